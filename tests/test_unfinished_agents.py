"""An agent that still calls tools at max_turns has a defined score: each metric declares it, and by default it is not solved."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.errors import ConfigError
from graph_world import AGENT, the_file, write_graph
from serving import TALKING, Servers, fetched

CODE = """
    import json

    def look(again: bool = False):
        return json.dumps({"calls": [["look", {"again": True}]]} if again else {"say": "done"})

    def after(node, state):
        return {"after": state["said"].upper()}

    def finish(reply, state):
        return {"said": reply.content}
"""
GRAPH = (
    AGENT.replace("TOOLS", "code.look").replace("model: {name: m}", "model: {name: m}\n      max_turns: 3")
    + """\
    after: {node_type: lambda, lambda: code.after, output_keys: [after]}
    right:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      golden_key: gold
      predicted_key: after
      unit_metrics_map: [{name: exact_matchRIGHT}]
    calls:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      predicted_key: said_tool_calls
      unit_metrics_map: [{name: tool_called, params: {tool: look}CALLS}]
    usage:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      predicted_key: said_usage
      unit_metrics_map: [{name: agent_turnsTURNS}]
  edges:
    - {from: START, to: agent}
    - {from: agent, to: after}
    - {from: after, to: right}
    - {from: right, to: calls}
    - {from: calls, to: usage}
    - {from: usage, to: END}
"""
)
RECORDS = [
    {"q": json.dumps({"calls": [["look", {"again": looping}]]}), "gold": "DONE"}
    for looping in (False, True, True, False)
]


@pytest.fixture(scope="module")
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


def evaluate(top: Path, url: str, **rules: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The row and the account of a run of four records, of which two loop."""
    graph = GRAPH
    for name in ("RIGHT", "CALLS", "TURNS"):
        graph = graph.replace(name, f", at_max_turns: {rules[name]}" if name in rules else "")
    folder = write_graph(top, RECORDS, graph, code=CODE)
    results = assay.simple_evaluate(
        "openai-chat", model_args=f"model=m,base_url={url}", tasks=[str(folder)], output_path=str(top / "run")
    )
    [row] = results["results"].values()
    [account] = results["assay"]["tasks"].values()
    return row, account


def test_an_agent_at_its_last_turn_is_not_solved(tmp_path: Path, talking: str) -> None:
    """Two of four records loop: exact_match and tool_called are 2/4, and the turns are (2 + 3 + 3 + 2)/4."""
    row, account = evaluate(tmp_path, talking)
    assert account["failed"] == 0
    assert (row["exact_match,none"], row["tool_called,none"], row["agent_turns,none"]) == (0.5, 0.5, 2.5)
    assert account["noticed"]["of agents that still called tools at max_turns"] == 2
    output = the_file(tmp_path / "run", "*output_*.json*")
    assert [record["exact_match_result"]["correct"] for record in output] == [True, False, False, True]
    reason = "the agent 'agent' still called tools after 3 turns"
    assert output[1]["exact_match_result"]["metadata"]["unfinished"] == reason
    assert len(output[1]["said_tool_calls"]) == 3


def test_each_metric_declares_what_becomes_of_such_records(tmp_path: Path, talking: str) -> None:
    row, account = evaluate(tmp_path, talking, RIGHT="fail", CALLS="measure", TURNS="fail")
    assert (row["exact_match,none"], row["tool_called,none"], row["agent_turns,none"]) == (1.0, 1.0, 2.0)
    assert "still called tools after 3 turns" in json.dumps(account)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"RIGHT": "not_sloved"}, "at_max_turns of 'exact_match' must be not_solved, measure, fail, got 'not_sloved'"),
        ({"TURNS": "not_solved"}, "less of 'agent_turns' is better, so that it has no score for what is not solved"),
    ],
)
def test_rules_that_cannot_be_are_refused_before_the_run(
    tmp_path: Path, talking: str, rules: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluate(tmp_path, talking, **rules)


CHOICE = AGENT.replace("TOOLS", "code.look").replace(
    "model: {name: m}", "model: {name: m, parameters: {tool_choice: CHOICE}}"
)
EDGES = "  edges: [{from: START, to: agent}, {from: agent, to: END}]\n"
LOOK = {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("required", "required"),
        ("none", "none"),
        ("{type: function, function: {name: look}}", LOOK),
        ("look", LOOK),
    ],
)
def test_tool_choice_under_the_parameters_of_a_model_is_sent(
    tmp_path: Path, talking: str, written: str, sent: object
) -> None:
    folder = write_graph(tmp_path, RECORDS[:1], CHOICE.replace("CHOICE", written) + EDGES, code=CODE)
    assay.simple_evaluate("openai-chat", model_args=f"model=m,base_url={talking}", tasks=[str(folder)])
    assert fetched(talking, "/log")[-1]["body"]["tool_choice"] == sent


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("banana", "invalid tool_choice 'banana'"),
        ("requird", "did you mean 'required'"),
        ("{type: function, function: {name: lok}}", "one of the node's tools"),
        ("auto}}\n      tool_choice: {a: b", "tool_choice is written for the node, too"),
    ],
)
def test_a_tool_choice_that_cannot_be_is_refused_before_any_request(tmp_path: Path, written: str, message: str) -> None:
    text = CHOICE.replace("CHOICE}}", written + "}}" if "a: b" not in written else written + "}")
    folder = write_graph(tmp_path, RECORDS[:1], text + EDGES, code=CODE)
    with pytest.raises(ConfigError, match=message):
        assay.simple_evaluate("openai-chat", model_args="model=m,base_url=http://127.0.0.1:1/v1", tasks=[str(folder)])
    assert any(message in str(problem) for problem in assay_validate(folder))


def assay_validate(folder: Path) -> list[object]:
    """The problems that `assay validate` finds."""
    from assay.evaluation.options import run_config, task_manager
    from assay.evaluation.prepare import find_problems

    config = run_config({"tasks": [str(folder)]})
    return list(find_problems(task_manager(config), config, [str(folder)]))
