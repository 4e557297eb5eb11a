"""Cases of the frozen corpus: judges, reward models, graphs and agents. See frozen_corpus.py."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import assay
from assay.models import Scripted
from fake_models import golden_model
from frozen_corpus import Outcome, World, case, command
from graph_world import CLASSIFICATION, QUESTION_ANSWERING, RECORDS, the_file, write_graph
from serving import Arrived, loopback
from small_runs import SAMPLED, run, says, write_task

# --- judges ----------------------------------------------------------------------------------------------------------

MARK = re.compile(r'"id": "([0-9a-f]{32})"')
FENCED = re.compile(r"<<<(answer(?: [AB])?) ([0-9a-f]{32})>>>\n(.*?)\n<<<end of \1 \2>>>", re.DOTALL)
ANSWERS = ["1", "10", "4", "7 or so", "2.5"]


def judge(score: Callable[[str], object], identity: str = "judge") -> Scripted:
    """A judge that gives a score to the text inside the fence."""

    def say(prompt: str, params: dict[str, object], repeat: int) -> str:
        [(_, _, answer), *_] = FENCED.findall(prompt)
        return json.dumps({"id": MARK.findall(prompt)[-1], "reason": "so", "score": score(answer)})

    return Scripted(generate=say, identity=identity)


def prefers_longer(prompt: str, params: dict[str, object], repeat: int) -> str:
    [(_, _, first), (_, _, second)] = FENCED.findall(prompt)
    winner = "tie" if len(first) == len(second) else "A" if len(first) > len(second) else "B"
    return json.dumps({"id": MARK.findall(prompt)[-1], "winner": winner, "reason": "so"})


def first_number(answer: str) -> float:
    return float(answer.split()[0])


def judged(folder: Path, name: str, yaml: str, roles: Mapping[str, Scripted], answers: Sequence[Any] = ANSWERS) -> Path:
    """A run of a task whose n-th question gets the n-th answer, which judges look at."""
    rows = [{"q": f"{number}", "gold": f"gold {number}", "other": "x" * number} for number in range(len(answers))]
    write_task(folder / name, rows, "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n" + yaml)
    run(folder / name, says(answers), model_role=dict(roles), output_path=str(folder / f"run_{name}"))
    return folder / f"run_{name}"


@case("krippendorff")
def judges(world: World) -> Outcome:
    """One judge, a scale, several judges, verdicts that cannot be read, every repeat judged."""
    folder, number = world.folder, judge(first_number)
    strict = judge(lambda answer: min(10, first_number(answer) + 1), "strict")
    silent = judge(lambda answer: "none" if "so" in answer else first_number(answer), "silent")
    one = "scorer: llm_judge\nmetric_list: [{metric: exact_match}]\n"
    scale = "scorer: {type: llm_judge, kwargs: {scale: [0, 10], normalize: false}}\n"
    both = "scorer: {type: llm_judge, kwargs: {roles: [strict, kind]}}\n"
    repeats = (
        f"repeats: 2\n{SAMPLED}filter_list: [{{name: all, filter: [{{function: take_first_k, k: 2}}]}}]\n"
        "scorer: llm_judge\n"
    )
    return {
        "one": judged(folder, "one", one, {"judge": number}),
        "scale": judged(folder, "scale", scale, {"judge": number}),
        "several": judged(folder, "several", both, {"strict": strict, "kind": number}),
        "unread": judged(folder, "unread", one, {"judge": silent}),
        "repeats": judged(folder, "repeats", repeats, {"judge": number}, [["1", "3"], ["10", "10"], ["4", "2"]]),
    }


@case()
def pairwise_judges(world: World) -> Outcome:
    yaml = "scorer: {type: llm_judge, kwargs: {pairwise: true, baseline: other}}\n"
    roles = {"judge": Scripted(generate=prefers_longer, identity="longer")}
    biased = {"judge": Scripted(generate=lambda prompt, params, repeat: json.dumps(
        {"id": MARK.findall(prompt)[-1], "winner": "A", "reason": ""}), identity="biased")}  # fmt: skip
    return {
        "longer": judged(world.folder, "longer", yaml, roles),
        "biased": judged(world.folder, "biased", yaml, biased),
    }


@case()
def ensembles_and_rewards(world: World) -> Outcome:
    folder = world.folder
    roles = {
        "judge": judge(first_number),
        "reward": Scripted(loglikelihood=lambda context, answer: (len(answer) - float(context), False), identity="r"),
    }
    ensemble = "scorer: {type: ensemble, kwargs: {scorers: [generation, {type: llm_judge}, reward_model], weights: [3, 1, 0.5]}}\n"
    crossed = """
filter_list:
  - {name: first, filter: [{function: take_first}]}
  - {name: number, filter: [{function: regex, regex_pattern: "([0-9]+)"}, {function: take_first}]}
scorer: {type: cross_filter, kwargs: {filters: [first, number]}}
"""
    return {
        "reward": judged(folder, "reward", "scorer: reward_model\n", roles),
        "ensemble": judged(folder, "ensemble", ensemble, roles),
        "crossed": judged(folder, "crossed", crossed, roles),
    }


@case()
def labels_of_people(world: World) -> Outcome:
    """The judge's rows, and those corrected by the labels of people; the card of the judge."""
    answers = [f"{1 + number * 7 % 10}{' or so' * (number % 3 == 0)}" for number in range(40)]
    output = judged(world.folder, "t", "scorer: llm_judge\n", {"judge": judge(first_number)}, answers)
    table = world.folder / "labels.csv"
    command("label", output, "-n", 15, "-o", table)
    head, *lines = table.read_text(encoding="utf-8").splitlines()
    column = head.split(",").index("answer")
    labelled = [f"{line}{min(10, 2 + int(line.split(',')[column].split()[0]))}" for line in lines]
    table.write_text("\n".join([head, *labelled]) + "\n", encoding="utf-8")
    imported = command("label", output, "--import", table, "--labeller", "somebody")
    return {"run": output, "exit": imported["code"], "card": command("label", output, "--card")}


# --- graphs ----------------------------------------------------------------------------------------------------------


def repeats_its_question() -> Scripted:
    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        said: str = json.loads(prompt)[1]["content"].splitlines()[0]
        if said == "fail":
            raise TimeoutError("no answer")
        return said

    return Scripted(answer, chat_template=lambda messages, _: json.dumps(messages), identity="repeats")


def graph_files(output: Path) -> dict[str, object]:
    """What a graph writes beside its run, with SyGra's names."""
    patterns = {"output": "*output_*.json*", "report": "MetricCollatorPostProcessor_*.json"}
    return {name: the_file(output, pattern) for name, pattern in patterns.items() if list(output.glob(pattern))}


def graph_runs(world: World, folder: Path, **options: Any) -> Outcome:
    """A graph with our rules and with SyGra's, and what it writes."""
    outcome: dict[str, object] = {}
    for compat in (None, "sygra"):
        output = world.folder / f"run {compat or 'ours'}"
        assay.simple_evaluate(
            repeats_its_question(),
            tasks=[str(folder)],
            output_path=str(output),
            bootstrap_iters=50,
            compat=compat,  # type: ignore[arg-type]  # one of two texts
            **options,
        )
        outcome[output.name] = output
        outcome[f"files of {output.name}"] = graph_files(output)
    return outcome


@case()
def graph_of_questions(world: World) -> Outcome:
    records = [
        {
            **record,
            "problem": json.dumps(
                {"predicted_answer": json.loads(json.loads(record["problem"])["say"])["predicted_answer"]}
            ),
        }
        for record in RECORDS
    ]
    failing = {"task_id": 11, "problem": "fail", "answer": "x"}
    unread = {"task_id": 12, "problem": "no JSON", "answer": "x"}
    return graph_runs(world, write_graph(world.folder, [*records, failing, unread], QUESTION_ANSWERING))


PAIRS = [("Music", "Music"), ("Music", "Art"), ("Art", "Art"), ("Sports", "Music"), ("Sports", "Sports")] * 2


def classified(folder: Path, more: str = "") -> Path:
    records = [
        {"task_id": number, "problem": json.dumps({"predicted_topic": said}), "topic": topic, "author": number % 5}
        for number, (topic, said) in enumerate(PAIRS)
    ]
    return write_graph(folder, records, CLASSIFICATION + more, kind="classification")


@case()
def graph_of_classes(world: World) -> Outcome:
    more = "        - {name: pass_at_k, params: {k: 1}, unit_metrics_results: exact_match_result}\n"
    return graph_runs(world, classified(world.folder, more))


@case()
def graph_in_a_group(world: World) -> Outcome:
    """Clusters of records, a group of aggregator rows, the graph scored again with another aggregator."""
    folder = classified(world.folder)
    config = folder / "graph_config.yaml"
    config.write_text("task: topics\ncluster_by: author\n" + config.read_text())
    (folder / "group.yaml").write_text(
        "group: all\ntask: [topics]\naggregate_metric_list: [{metric: average_recall}, {metric: exact_match}]\n"
    )
    output = world.folder / "run"
    assay.simple_evaluate(
        repeats_its_question(), tasks=["all"], include_path=str(folder), output_path=str(output), bootstrap_iters=50
    )
    with config.open("a") as file:
        file.write("        - {name: accuracy, as: share, unit_metrics_results: exact_match_result}\n")
    scoring = command("score", output)
    return {"run": output, "exit": scoring["code"], "scored": output / "scored/001"}


NODES = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    first: {node_type: lambda, lambda: code.first, output_keys: [one, right]}
    pick: {node_type: multiple_choice, prompt: "Q: {q}", choices: options, choose_by: per_byte, output_keys: picked, model: {name: m}}
    weigh: {node_type: loglikelihood, prompt: "{q}", continuation: " {one}", output_keys: ll, model: {name: m}}
    roll: {node_type: loglikelihood_rolling, text: "{q}", output_keys: whole, model: {name: m}}
    unit:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      golden_key: right
      predicted_key: picked
      unit_metrics_map: [{name: exact_match, params: {key: text}}, {name: rouge_l, params: {key: text}}]
  edges:
    - {from: START, to: first}
    - {from: first, to: pick}
    - {from: first, to: weigh}
    - {from: first, to: roll}
    - {from: pick, to: unit}
    - {from: weigh, to: unit}
    - {from: roll, to: unit}
    - {from: unit, to: END}
"""
CHOOSING = [
    {"q": "The sky is", "options": ["blue", "green and very far away"], "gold": 0},
    {"q": "Two and two are", "options": ["five", "four"], "gold": 1},
    {"q": "Snow is", "options": ["white", "black", "loud — löud"], "gold": 0},
]


@case()
def graph_of_log_likelihoods(world: World) -> Outcome:
    code = """
    def first(node, state):
        return {"one": state["options"][0], "right": state["options"][state["gold"]]}
    """
    nodes = NODES.replace(", {name: rouge_l, params: {key: text}}", "")
    folder = write_graph(world.folder, CHOOSING, nodes, code=code)
    output = world.folder / "run"
    assay.simple_evaluate(golden_model(), tasks=[str(folder)], output_path=str(output))
    return {"run": output, "files": graph_files(output)}


@case()
def graph_within_a_graph(world: World) -> Outcome:
    inner = """
    graph_config:
      nodes:
        ask: {node_type: llm, output_keys: said, prompt: [{system: be}, {user: "{question}"}], model: {name: m}}
      edges: [{from: START, to: ask}, {from: ask, to: END}]
    """
    outer = """
    data_config: {source: {type: disk, file_path: records.jsonl}}
    graph_config:
      nodes:
        all:
          node_type: subgraph
          subgraph: inner
          node_config_map: {ask: {prompt_placeholder_map: {question: x}, output_keys: answer}}
        again: {node_type: lambda, lambda: code.again, output_keys: [n]}
        unit:
          node_type: lambda
          lambda: tasks.eval.utils.UnitMetrics
          golden_key: gold
          predicted_key: answer
          unit_metrics_map: [{name: exact_match, params: {key: text}}]
      edges:
        - {from: START, to: all}
        - {from: all, to: again}
        - {from: again, condition: code.way, path_map: {back: all, on: unit}}
        - {from: unit, to: END}
    """
    code = """
    def again(node, state):
        return {"n": state.get("n", 0) + 1}

    def way(state):
        return "back" if state["n"] < 2 else "on"
    """
    folder = write_graph(world.folder, [])
    (folder / "inner").mkdir()
    (folder / "inner/graph_config.yaml").write_text(inner)
    records = [{"x": "yes", "gold": "yes", "n": 0}, {"x": "no", "gold": "yes", "n": 0}]
    write_graph(world.folder, records, outer, code=code)
    output = world.folder / "run"
    assay.simple_evaluate(repeats_its_question(), tasks=[str(folder)], output_path=str(output))
    return {"run": output, "files": graph_files(output)}


AGENTS = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    agent:
      node_type: agent
      prompt: [{system: "You help."}, {user: "{q}"}]
      output_keys: said
      tools: [code.look_up, code.refund]
      model: {name: m}
    measured:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      golden_key: expected
      predicted_key: said_tool_calls
      unit_metrics_map:
        - {name: tool_called}
        - {name: tool_order, params: {order: [look_up, refund]}}
        - {name: no_forbidden_tool, params: {forbidden: [refund]}}
    counted:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      predicted_key: said_usage
      unit_metrics_map: [{name: agent_turns, params: {at_most: 2}}, {name: agent_cost}]
  edges: [{from: START, to: agent}, {from: agent, to: measured}, {from: measured, to: counted}, {from: counted, to: END}]
"""
TOOLS = """
    def look_up(order: str):
        if order == "B2":
            raise ValueError("no such order")
        return {"say": "shipped"} if order != "A2" else {"calls": [["refund", {"order": order}]]}

    def refund(order: str):
        return '{"say": "done"}'
"""


def agent_model(arrived: Arrived) -> Any:
    """Calls the tools that the last message asks for, and says what it is told to say."""
    if arrived.method == "GET":
        return {"data": [{"id": "m", "max_model_len": 100_000}]}
    messages = json.loads(arrived.body)["messages"]
    try:
        wanted = json.loads(messages[-1]["content"])
    except ValueError:
        wanted = {"say": "sorry"}
    calls = [
        {"id": f"call{len(messages)}-{number}", "type": "function",
         "function": {"name": name, "arguments": json.dumps(arguments)}}
        for number, (name, arguments) in enumerate(wanted.get("calls", []))
    ]  # fmt: skip
    message = {"role": "assistant", "content": wanted.get("say", "")} | ({"tool_calls": calls} if calls else {})
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    used = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": used}


@case()
def agents_with_tools(world: World) -> Outcome:
    """Of a server, so that requests, tokens and costs are counted, too."""
    records = [
        {"q": {"calls": [["look_up", {"order": "A1"}]]}, "expected": {"name": "look_up", "arguments": {"order": "A1"}}},
        {"q": {"calls": [["look_up", {"order": "A2"}]]}, "expected": ["look_up", {"name": "refund", "arguments": {}}]},
        {"q": {"calls": [["look_up", {"order": "B2"}], ["lacking", {}]]}, "expected": "look_up"},
        {"q": {"say": "no tool"}, "expected": []},
    ]
    written = [{**record, "q": json.dumps(record["q"])} for record in records]
    folder = write_graph(world.folder, written, AGENTS, code=TOOLS)
    output = world.folder / "run"
    with loopback(agent_model) as (url, _):
        assay.simple_evaluate(
            "openai-chat",
            f"model=m,base_url={url},max_retries=1,price_in=1000000,price_out=1000000,num_concurrent=1",
            [str(folder)],
            output_path=str(output),
        )
    return {"run": output, "files": graph_files(output)}
