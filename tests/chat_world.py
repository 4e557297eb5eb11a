"""Chats to look at in tests: a server on loopback that reasons, calls tools and writes markdown; tasks, a graph, two runs."""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from assay import simple_evaluate
from graph_world import write_graph

SUMS = 12
"""Documents of `sums`. The first run is wrong at every 4th, the second at every 3rd."""
TASK = """
task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl, train: train.jsonl}}
test_split: test
fewshot_split: train
num_fewshot: 2
doc_to_text: "What is {{a}} + {{b}}?"
doc_to_target: "{{a + b}}"
generation_kwargs: {until: [], max_gen_toks: 4096}
filter_list:
  - name: number
    filter: [{function: regex, regex_pattern: "= ([0-9]+)"}, {function: take_first}]
metric_list: [{metric: exact_match}]
"""
GRAPH = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    support:
      node_type: agent
      prompt: [{system: "You are the support desk of a shop. Look orders up before you answer."}, {user: "{question}"}]
      output_keys: answer
      tools: [code.lookup_order]
      model: {name: m}
    verdict: {node_type: lambda, lambda: code.judge, output_keys: verdict}
    checked: {node_type: lambda, lambda: code.check, output_keys: checked}
  edges:
    - {from: START, to: support}
    - {from: support, to: verdict}
    - {from: verdict, condition: code.is_polite, path_map: {again: support, "good enough": checked, "hopeless": END}}
    - {from: checked, to: END}
"""
JUDGED_GRAPH = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    reply: {node_type: llm, prompt: [{user: "{question}"}], output_keys: answer, model: {name: desk}}
    measure:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      predicted_key: answer
      unit_metrics_map: [{name: llm_judge, params: {rubric: "Is it polite?", question: question}, as: polite_result}]
  edges: [{from: START, to: reply}, {from: reply, to: measure}, {from: measure, to: END}]
"""
CODE = """
import time

def lookup_order(order_id: str):
    \"\"\"Where an order is.\"\"\"
    time.sleep(0.02)
    if order_id == "B2":
        raise ValueError("no such order")
    return "shipped"

def judge(node, state):
    return {"verdict": "polite"}

def is_polite(state):
    return "good enough"

def check(node, state):
    if "C3" in state["question"]:
        raise KeyError("unknown order C3")
    return {"checked": True}
"""


def said(messages: list[dict[str, Any]], has_tools: bool, every: int) -> dict[str, Any]:
    """The model's turn: a sum with its reasoning in markdown, or the support desk's."""
    last = messages[-1]
    if last["role"] == "tool":
        return {"content": f"Your order: **{last['content']}**."}
    question = last["content"]
    if has_tools and "order" in question:
        order = question.split("order ")[1].strip("?.")
        call = {"name": "lookup_order", "arguments": json.dumps({"order_id": order})}
        return {"content": None, "tool_calls": [{"id": "c1", "type": "function", "function": call}]}
    if judged := re.search(r"<<<answer ([0-9a-f]{32})>>>", question):
        return {"content": json.dumps({"id": judged[1], "reason": "It is a little curt.", "score": 4})}
    if not question.startswith("What is"):
        return {"content": "hello"}
    a, b = (int(word.strip("?")) for word in question.split()[2::2])
    total = a + b + (1 if a % every == 0 else 0)
    return {
        "content": f"The sum:\n\n- first **{a}**, then **{b}**\n- so $\\frac{{{total}}}{{1}} = {total}$\n\n{a} + {b} = {total}",
        "reasoning_content": f"Let me count from {a}, {b} times.",
    }


@contextmanager
def chat_server(every: int) -> Iterator[str]:
    """The address of a chat server that adds wrongly at every so many sums."""

    class ChatHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(0.01)
            message = {"role": "assistant", **said(body["messages"], bool(body.get("tools")), every)}
            finish = "tool_calls" if message.get("tool_calls") else "stop"
            usage = {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}
            reply = {
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                "usage": usage,
                "model": "m",
            }
            data = json.dumps({"id": "x", "object": "chat.completion", **reply}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *values: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), ChatHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_judged_graph(folder: Path) -> None:
    """A run of a graph whose reply and whose judge are asked of models with different prices."""
    graph = write_graph(folder, [{"question": "Who are you?"}, {"question": "Where are you?"}], JUDGED_GRAPH)
    with chat_server(4) as url:
        model = f"openai-chat,model=m,base_url={url}"
        roles = {
            "desk": f"{model},price_in=1000000,price_out=2000000",
            "judge": f"{model},price_in=0,price_out=1000000",
        }
        simple_evaluate("dummy", tasks=[str(graph)], model_role=roles, output_path=str(folder / "runs/judged graph"))


def write_chat_runs(folder: Path) -> Path:
    """Runs over chat servers: `one` and `two` of the sums, and `agent` of the support desk, whose third record fails."""
    tasks = folder / "tasks"
    tasks.mkdir(parents=True)
    (tasks / "sums.yaml").write_text(TASK)
    rows = [{"a": a, "b": a % 5, "level": "low" if a < 6 else "high"} for a in range(1, SUMS + 1)]
    (tasks / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tasks / "train.jsonl").write_text("".join(json.dumps({"a": a, "b": 1}) + "\n" for a in (100, 200)))
    for name, every in (("one", 4), ("two", 3)):
        with chat_server(every) as url:
            simple_evaluate(
                "openai-chat", model_args=f"model=m,base_url={url},price_in=1000000,price_out=2000000", tasks=["sums"],
                include_path=str(tasks), include_defaults=False, apply_chat_template=True, output_path=str(folder / f"runs/{name}"),
                system_instruction="Be brief.", fewshot_as_multiturn=True,
            )  # fmt: skip
    records = [{"question": f"Where is my order {order}?"} for order in ("A1", "B2", "C3")]
    graph = write_graph(folder / "graph", records, GRAPH, code=CODE)
    with chat_server(4) as url:
        simple_evaluate(
            "openai-chat", model_args=f"model=m,base_url={url},price_in=1000000,price_out=2000000", tasks=[str(graph)],
            output_path=str(folder / "runs/agent"),
        )  # fmt: skip
    return folder / "runs"
