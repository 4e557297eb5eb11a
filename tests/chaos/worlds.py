"""The worlds that are disturbed: tasks, a server whose answers depend on the request alone, and the commands of each kind."""

import json
import random
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from textwrap import dedent
from typing import Any

from serving import RESET, Arrived

LOGGED = Path(__file__).parent.parent / "logged/synth_wino"
SUMS, COLOURS, JUDGED, RECORDS = 60, 24, 24, 24
AT_ONCE = 6
LATENCY = 0.012
PROBE = b"quick brown"
FENCED = re.compile(r"<<<answer ([0-9a-f]{32})>>>")
Command = tuple[str, ...]

TASKS = {
    "sums.yaml": """
        task: sums
        dataset_path: json
        dataset_kwargs: {data_files: {test: sums.jsonl}}
        test_split: test
        doc_to_text: "{{q}}="
        doc_to_target: a
        generation_kwargs: {until: ["\\n"], do_sample: false, temperature: 0.0}
        filter_list:
          - {name: number, filter: [{function: regex, regex_pattern: "(\\\\d+)"}, {function: take_first}]}
          - {name: whole, filter: [{function: take_first}]}
        metric_list: [{metric: exact_match}]
    """,
    "colours.yaml": """
        task: colours
        dataset_path: json
        dataset_kwargs: {data_files: {test: colours.jsonl}}
        test_split: test
        output_type: multiple_choice
        doc_to_text: "{{thing}} is"
        doc_to_choice: [green, red]
        doc_to_target: gold
        metric_list: [{metric: acc}, {metric: acc_norm}]
    """,
    "both.yaml": """
        group: both
        task: [sums, colours]
        aggregate_metric_list: [{metric: exact_match, filter_list: [number], missing: skip}]
    """,
    "judged.yaml": """
        task: judged
        dataset_path: json
        dataset_kwargs: {data_files: {test: judged.jsonl}}
        test_split: test
        doc_to_text: q
        doc_to_target: a
        scorer: llm_judge
        metric_list: [{metric: exact_match}]
    """,
    "graph_config.yaml": """
        task: agents
        data_config: {source: {type: disk, file_path: records.jsonl}}
        graph_config:
          nodes:
            agent:
              node_type: agent
              prompt: [{user: "agent {q}"}]
              output_keys: [said]
              post_process: steps.note
              tools: [{name: steps.look_up, repeatable: true}]
              model: {name: m}
            again:
              node_type: llm
              prompt: [{user: "again {said}"}]
              output_keys: predicted
              model: {name: m}
            check: {node_type: lambda, lambda: steps.check, output_keys: [match_result]}
          edges: [{from: START, to: agent}, {from: agent, to: again}, {from: again, to: check}, {from: check, to: END}]
        output_config: {output_map: {q: {from: q}, predicted: {from: predicted}, match_result: {from: match_result}}}
    """,
    "steps.py": """
        def look_up(city: str) -> str:
            \"\"\"What is known of a city.\"\"\"
            return f"{city} is known"


        def note(message, state):
            return {"said": message.content}


        def check(node, state):
            state["match_result"] = {"correct": len(state["predicted"]) % 2 == 0}
            return state
    """,
    "slow.py": """
        import time

        import assay


        @assay.metric("slow", aggregation="mean", higher_is_better=True)
        def slow(references, predictions):
            time.sleep(0.004)
            return float(len(str(predictions[0])) % 3)
    """,
}  # fmt: skip


def write_tasks(folder: Path) -> None:
    folder.mkdir()
    for name, text in TASKS.items():
        (folder / name).write_text(dedent(text).lstrip("\n"))
    rows: Mapping[str, list[dict[str, object]]] = {
        "sums": [{"q": f"{n}+{n % 7}", "a": str(n + n % 7)} for n in range(SUMS)],
        "colours": [{"thing": f"thing {n}", "gold": n % 2} for n in range(COLOURS)],
        "judged": [{"q": f"judge {n}", "a": "x"} for n in range(JUDGED)],
        "records": [{"q": f"city {n}"} for n in range(RECORDS)],
    }
    for name, each in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in each))


# ---- the server


@dataclass
class Server:
    """Answers as a function of the request. Faults depend on the history, the request and how often it came: none stays for ever."""

    faults: float = 0.0
    seed: str = ""
    asked: Counter[bytes] = field(default_factory=Counter)
    """How often each request arrived in this command; the probes of a backend are not counted."""
    answered: Counter[bytes] = field(default_factory=Counter)
    at: Mapping[int, Callable[[], None]] = field(default_factory=dict)
    """What is done when so many requests have arrived."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _times: Counter[bytes] = field(default_factory=Counter)

    def begin(self, at: Mapping[int, Callable[[], None]] | None = None) -> None:
        """Count for a new command."""
        with self._lock:
            self.asked, self.answered, self.at = Counter(), Counter(), at or {}

    def __call__(self, arrived: Arrived) -> Any:
        if arrived.method != "POST":
            return {"data": [{"id": "m"}]}
        body = json.loads(arrived.body)
        if PROBE in arrived.body:
            return answer(body)
        key = sha256(arrived.body).digest()
        with self._lock:
            self.asked[key] += 1
            self._times[key] += 1
            then, times = self.at.get(self.asked.total()), self._times[key]
            answered = (
                self.answered
            )  # of this command: what a killed one had sent may be answered when the next one runs
        if then is not None:
            then()
        draw = random.Random(f"{self.seed} {key.hex()} {times}")
        time.sleep(LATENCY * (0.5 + draw.random()))
        fault = draw.choice(FAULTS) if draw.random() < self.faults else None
        if fault is not None:
            return fault(body)
        with self._lock:
            answered[key] += 1
        return answer(body)


def answer(body: Mapping[str, Any]) -> dict[str, Any]:
    if "messages" in body:
        return _chat(body["messages"])
    prompt = str(body["prompt"])
    if not body.get("echo"):
        number = sum(map(int, re.findall(r"\d+", prompt)))
        return _completion({"text": f" {number if number % 5 else 'none'}", "finish_reason": "stop"})
    words = re.findall(r"\s*\S+", prompt)
    chances = [
        -1.0 - int(sha256("".join(words[: n + 1]).encode()).hexdigest()[:6], 16) / 2**24 for n in range(len(words))
    ]
    logprobs = {
        "tokens": words,
        "token_logprobs": [None, *chances[1:]],
        "top_logprobs": [None, *({word: chance} for word, chance in zip(words[1:], chances[1:], strict=True))],
        "text_offset": [len("".join(words[:n])) for n in range(len(words))],
    }
    return _completion({"text": prompt, "finish_reason": "length", "logprobs": logprobs})


def _completion(choice: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, **choice}], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}


def _chat(messages: list[dict[str, Any]]) -> dict[str, Any]:
    last = messages[-1]
    text = last["content"] if isinstance(last["content"], str) else json.dumps(last["content"])
    said: dict[str, Any] = {"role": "assistant", "content": f"said {sha256(text.encode()).hexdigest()[:9]}"}
    mark = FENCED.search(text)
    if mark is not None:
        said["content"] = json.dumps({"id": mark[1], "reason": "so", "score": 1 + int(mark[1][:4], 16) % 10})
    elif text.startswith("agent ") and last["role"] == "user":
        call = {"name": "look_up", "arguments": json.dumps({"city": text})}
        said |= {"content": "", "tool_calls": [{"id": "c0", "type": "function", "function": call}]}
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls" if "tool_calls" in said else "stop"}
    return {"model": "m", "choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}


def _slow(body: Mapping[str, Any]) -> Any:
    time.sleep(0.3)
    return answer(body)


FAULTS: tuple[Callable[[Mapping[str, Any]], Any], ...] = (
    lambda _: RESET,
    lambda _: (500, {}, {"error": {"message": "boom"}}),
    lambda _: (429, {"Retry-After": "0"}, {"error": {"message": "slow down"}}),
    lambda _: (503, {}, b"<html>busy</html>"),
    lambda _: b'{"choices": [{"te',
    lambda _: b"\xff\xfe not JSON",
    lambda _: {"choices": []},
    lambda _: {"choices": [{"index": 0, "text": 7, "message": {"content": {"a": 1}}}]},
    _slow,
)


# ---- the kinds of histories


@dataclass(frozen=True)
class Kind:
    """Commands in their order, and what is there before the first."""

    commands: Callable[[str], list[Command]]
    prepare: Callable[[Path, Path], None] = lambda world, done: None
    """Puts what the commands need into a new world, from finished worlds of other kinds (`done`/KIND)."""
    after: str | None = None
    """The kind whose finished world is needed."""
    fleet: bool = False
    """Whether its commands are given to a fleet of replicas; undisturbed, to one process."""


def _run(url: str, output: str, *more: str, model: str = "openai", tasks: str = "both") -> Command:
    where = f"model=m,base_url={url},num_concurrent={AT_ONCE},max_retries=6"
    return ("run", "--model", model, "--model_args", where, "--tasks", tasks, "--include_path", "tasks", "--no_defaults",
            "--log_samples", "-o", output, *more)  # fmt: skip


def _judge(url: str) -> tuple[str, str]:
    return "--model_role", f"judge=openai-chat,model=j,base_url={url},num_concurrent={AT_ONCE},max_retries=6"


def _copied(*names: str) -> Callable[[Path, Path], None]:
    def copy(world: Path, done: Path) -> None:
        for name in names:
            shutil.copytree(done / "run" / name, world / name)

    return copy


def _logs(world: Path, done: Path) -> None:
    shutil.copytree(LOGGED, world / "logs")
    _copied("run")(world, done)


KINDS: Mapping[str, Kind] = {
    "run": Kind(lambda url: [_run(url, "run")]),
    "local": Kind(lambda _: [("run", "--tasks", "first_steps_larger", "first_steps_stories", "first_steps_sums", "--log_samples", "-o", "run")]),
    "cache": Kind(lambda url: [_run(url, "first", "--use_cache", "answers"), _run(url, "second", "--use_cache", "answers")]),
    "judge": Kind(lambda url: [_run(url, "run", *_judge(url), model="openai-chat", tasks="judged")]),
    "graph": Kind(lambda url: [_run(url, "run", model="openai-chat", tasks="agents")]),
    "score": Kind(
        lambda url: [("score", "run", "--tasks", "sums", "--metric", "slow", "--plugin", "tasks/slow.py", "--include_path", "tasks")],
        _copied("run"), "run",
    ),
    "merge": Kind(
        lambda url: [_run(url, "one", "--shard", "1/2"), _run(url, "two", "--shard", "2/2"), ("merge", "whole", "one", "two")]
    ),
    "import": Kind(
        lambda url: [
            ("pack", "run", "-o", "packed/run.zip"), ("pack", "run", "--no_gold", "-o", "packed/open.zip"), ("import", "packed/run.zip", "-o", "unpacked"), ("import", "logs", "-o", "brought"),
            *(("export", "run", "--to", to, "-o", f"exported-{to}") for to in ("lm-eval", "inspect", "parquet")),
        ],
        _logs, "run",
    ),
}  # fmt: skip
