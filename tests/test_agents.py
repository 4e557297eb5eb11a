"""Agents are measured: conversations and tool calls in the state and in the samples, unit metrics of them, limits."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import assay
from assay.cli import main
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.graphs.tools import describe_tool
from assay.runs.run import Run
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import call_text
from assay.viewer.sample_page import sample_view
from graph_world import the_file, write_graph
from serving import TALKING, Servers, fetched

CODE = """
    import json, time

    def look_up(order: str, deep: bool = False):
        \"\"\"Where an order is.\"\"\"
        if order == "B2":
            raise ValueError("no such order")
        return {"say": "shipped", "order": order} if not deep else {"say": "", "calls": [["refund", {"order": order}]]}

    def refund(order: str):
        return '{"say": "done"}'

    def slow(order: str):
        time.sleep(5)

    def noted(node, state):
        return {"seconds_known": [call["seconds"] >= 0 for call in state["said_tool_calls"]]}
"""
GRAPH = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    agent:
      node_type: agent
      prompt: [{system: "You help."}, {user: "{q}"}]
      output_keys: said
      tools: [code.look_up, code.refund, code.slow]
      model: {name: m}
    noted: {node_type: lambda, lambda: code.noted, output_keys: seconds_known}
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
  edges: [{from: START, to: agent}, {from: agent, to: noted}, {from: noted, to: measured}, {from: measured, to: counted}, {from: counted, to: END}]
"""


def asked(*calls: tuple[str, dict[str, Any]]) -> str:
    return json.dumps({"calls": calls})


RECORDS = [
    {"q": asked(("look_up", {"order": "A1"})), "expected": {"name": "look_up", "arguments": {"order": "A1"}}},
    {
        "q": asked(("look_up", {"order": "A2", "deep": True})),
        "expected": ["look_up", {"name": "refund", "arguments": {"order": "A9"}}],
    },
    {"q": asked(("look_up", {"order": "B2"}), ("lacking", {})), "expected": "look_up"},
    {"q": '{"say": "no tool"}', "expected": []},
]


@pytest.fixture(scope="module")
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


@pytest.fixture(scope="module")
def run(talking: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("agents")
    evaluate(top, talking, GRAPH, RECORDS)
    return top / "run"


def evaluate(top: Path, url: str, graph: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    folder = write_graph(top, records, graph, code=CODE)
    prices = "price_in=1000000,price_out=1000000"  # one for each token
    results: dict[str, Any] = assay.simple_evaluate(
        model="openai-chat",
        model_args=f"model=m,base_url={url},max_retries=1,{prices}",
        tasks=[str(folder)],
        output_path=str(top / "run"),
    )
    return results


def test_the_conversation_and_its_calls_are_in_the_state(run: Path) -> None:
    first, second, third, fourth = the_file(run, "output_*.json")
    assert first["said_tool_calls"] == [
        {"name": "look_up", "arguments": {"order": "A1"}, "result": {"say": "shipped", "order": "A1"}, "error": None,
         "turn": 1, "tokens": 10}
    ]  # fmt: skip
    assert [message["role"] for message in first["said_messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert first["said_messages"][-1] == {"role": "assistant", "content": "shipped"}
    assert first["said_usage"] == {"turns": 2, "tokens": 20, "cost": 20.0}
    assert [(call["name"], call["turn"]) for call in second["said_tool_calls"]] == [("look_up", 1), ("refund", 2)]
    assert [call["error"] for call in third["said_tool_calls"]] == [
        "ValueError: no such order",
        "there is no such tool, or its arguments cannot be read: lacking",
    ]
    assert fourth["said_tool_calls"] == []
    assert first["seconds_known"] == [True]


def test_unit_metrics_of_agents(run: Path) -> None:
    # by hand: the second record calls refund with another order, and is the only one that calls look_up, then refund
    rows = next(iter(lm_eval_layout(Run.open(run).results)["results"].values()))
    assert rows["tool_called,none"] == 0.75
    assert rows["tool_order,none"] == 0.25
    assert rows["no_forbidden_tool,none"] == 0.75
    assert rows["agent_turns,none"] == (2 + 3 + 2 + 1) / 4
    assert rows["agent_cost,none"] == (20 + 30 + 20 + 10) / 4
    [better] = lm_eval_layout(Run.open(run).results)["higher_is_better"].values()
    assert [better[name] for name in ("tool_called", "agent_turns", "agent_cost")] == [True, False, False]
    results = [record["agent_turns_result"]["correct"] for record in the_file(run, "output_*.json")]
    assert results == [True, False, True, True]


CALLS = [
    {"name": "find", "arguments": {"city": "Oslo", "days": 3, "by": {"train": True}}},
    {"name": "book", "arguments": {"city": "Oslo"}},
    {"name": "find", "args": {"city": "Bergen", "days": 2}},
]


@pytest.mark.parametrize(
    "name, params, golden, correct",
    [
        ("tool_called", {"tool": "find"}, None, True),
        ("tool_called", {"tool": "find", "arguments": {"city": "Bergen"}}, None, True),
        ("tool_called", {"tool": "find", "arguments": {"by": {"train": True}}}, None, True),
        ("tool_called", {"tool": "find", "arguments": {"by": {"train": 1}}}, None, False),
        ("tool_called", {"tool": "find", "times": 1}, None, False),
        ("tool_called", {"tool": "find", "times": 2}, None, True),
        ("tool_called", {"tool": "cancel", "times": 0}, None, True),
        ("tool_called", {"tool": "find", "schema": {"required": ["by"]}}, None, True),
        ("tool_called", {"tool": "find", "times": 1, "schema": {"not": {"required": ["by"]}}}, None, True),
        ("tool_called", {"tool": "book", "schema": {"required": ["days"]}}, None, False),
        ("tool_called", {"tool": "find", "schema": {"properties": {"days": {"type": "integer", "minimum": 4}}}}, None, False),
        ("tool_called", {"tool": "book", "schema": {"properties": {"city": {"enum": ["Oslo"]}}, "additionalProperties": False}}, None, True),
        ("tool_called", {}, ["find", "find"], True),
        ("tool_called", {}, ["find", "find", "find"], False),
        ("tool_order", {"order": ["find", "book"]}, None, True),
        ("tool_order", {"order": ["book", "find"]}, None, True),
        ("tool_order", {"order": ["book", "book"]}, None, False),
        ("tool_order", {"order": ["find", "book"], "exact": True}, None, False),
        ("tool_order", {"exact": True}, ["find", "book", "find"], True),
        ("no_forbidden_tool", {"forbidden": ["cancel"]}, None, True),
        ("no_forbidden_tool", {"forbidden": ["cancel", "book"]}, None, False),
        ("no_forbidden_tool", {"forbidden": "book"}, None, False),
        ("tool_order", {"order": "book"}, None, True),
        ("no_forbidden_tool", {}, "book", False),
    ],
)  # fmt: skip
def test_calls_are_compared(name: str, params: dict[str, Any], golden: Any, correct: bool) -> None:
    [result] = assay.UnitMetricRegistry.get_metric(name, **params).evaluate([{"text": golden}], [{"text": CALLS}])
    assert result.correct is correct


@pytest.mark.parametrize(
    "name, params, reason",
    [
        ("tool_called", {"tool": "find", "schema": {"oneOf": []}}, "the JSON Schema is invalid: .. should be non-empty"),
        ("tool_called", {"tool": "find", "schema": {"properties": {"a": {"type": "text"}}}}, "the JSON Schema is invalid: 'text' is not valid"),
        ("tool_called", {"tol": "find"}, "tol"),
        ("tool_called", {"arguments": {"a": 1}}, "need `tool`"),
    ],
)  # fmt: skip
def test_parameters_of_agent_metrics_are_checked_before_the_run(name: str, params: dict[str, Any], reason: str) -> None:
    with pytest.raises(assay.ConfigError, match=reason):
        assay.UnitMetricRegistry.get_metric(name, **params)


BRANCHES = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    one: &agent {node_type: agent, prompt: [{user: "{q}"}], output_keys: said, tools: [code.look_up], chat_history: true, model: {name: m}}
    two: {<<: *agent, output_keys: also}
    both: {node_type: lambda, lambda: code.both, output_keys: [all_calls, asked]}
    measured: {node_type: lambda, lambda: tasks.eval.utils.UnitMetrics, predicted_key: all_calls, unit_metrics_map: [{name: tool_called, params: {tool: look_up, times: 2}}]}
    counted: {node_type: lambda, lambda: tasks.eval.utils.UnitMetrics, predicted_key: also_usage, unit_metrics_map: [{name: agent_turns}]}
  edges: [{from: START, to: one}, {from: START, to: two}, {from: one, to: both}, {from: two, to: both}, {from: both, to: measured}, {from: measured, to: counted}, {from: counted, to: END}]
  graph_properties: {chat_conversation: multiturn}
"""
BOTH = """
    def both(node, state):
        return {"all_calls": state["said_tool_calls"] + state["also_tool_calls"], "asked": len(state["__chat_history__"])}
"""


def test_agents_of_parallel_branches_are_measured_and_files_have_no_times(tmp_path: Path, talking: str) -> None:
    folder = write_graph(tmp_path, RECORDS[:1], BRANCHES, code=CODE + BOTH)
    arguments = ["run", "--tasks", str(folder), "--model", "openai-chat", "--model_args", f"model=m,base_url={talking}"]
    assert main([*arguments, "-o", str(tmp_path / "run")]) == 0
    [record] = the_file(tmp_path / "run", "output_*.json")
    assert [call["name"] for call in record["all_calls"]] == ["look_up", "look_up"]
    assert record["tool_called_result"]["correct"] and record["agent_turns_result"]["score"] == 2
    assert record["asked"] == 2 and "seconds" not in json.dumps(record)


def test_tools_are_described_by_their_annotations() -> None:
    def tool(
        at_most: int | None = None,
        way: Literal["up", "down"] = "up",
        *rest: str,
        names: list[str] | None = None,
        either: int | str = 1,
        loose: list = (),  # type: ignore[type-arg, assignment]
    ) -> None:
        """Look."""

    described = dict(describe_tool(tool).schema)["parameters"]
    assert described == {
        "type": "object",
        "properties": {
            "at_most": {"type": "integer"},
            "way": {"type": "string", "enum": ["up", "down"]},
            "names": {"type": "array", "items": {"type": "string"}},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "loose": {"type": "array", "items": {}},
        },
        "required": [],
    }


def test_a_unit_metric_that_needs_golden_values_asks_for_their_key(tmp_path: Path) -> None:
    graph = GRAPH.replace("      golden_key: expected\n", "")
    folder = write_graph(tmp_path, RECORDS, graph, code=CODE)
    with pytest.raises(assay.ConfigError, match="UnitMetrics needs 'golden_key'"):
        assay.simple_evaluate(model="dummy", tasks=[str(folder)])


def test_calls_are_typed_in_the_samples_and_no_empty_answers(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [file] = (run / "samples").glob("*.parquet")
    first, second, third, fourth = SampleFile(file).rows()
    [call] = first.replies[-1]["tool_calls"]
    assert call.pop("seconds") >= 0
    assert call == {
        "node": "agent", "turn": 1, "name": "look_up", "arguments": '{"order":"A1"}',
        "result": '{"say":"shipped","order":"A1"}', "error": None, "tokens": 10,
    }  # fmt: skip
    assert not any("empty" in row.audit for row in (first, second, third, fourth))
    assert main(["samples", str(run)]) == 0
    shown = capsys.readouterr().out
    assert 'assistant: look_up(order="A1") → {"say": "shipped", "order": "A1"}\nassistant: shipped\n' in shown
    assert 'look_up(order="B2") → Error: ValueError: no such order' in shown


def test_the_page_of_a_sample_shows_calls(run: Path) -> None:
    [file] = (run / "samples").glob("*.parquet")
    first, *_ = SampleFile(file).rows()
    view = sample_view(first, {}, {})
    assert view.calls == ['look_up(order="A1") → {"say":"shipped","order":"A1"}']
    assert [reply.text for reply in view.replies] == ['look_up(order="A1")', "shipped"]  # no empty boxes


def test_calls_are_messages_and_events_of_an_inspect_log(run: Path, tmp_path: Path) -> None:
    assert main(["export", str(run), "--to", "inspect", "-o", str(tmp_path / "logs")]) == 0
    [log] = (tmp_path / "logs").rglob("*.eval")
    with zipfile.ZipFile(log) as packed:
        names = sorted(name for name in packed.namelist() if name.startswith("samples/"))
        sample = json.loads(packed.read(names[0]))
    assert [message["role"] for message in sample["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert sample["messages"][2]["tool_calls"] == [{"id": "c0", "function": "look_up", "arguments": {"order": "A1"}}]
    assert sample["messages"][3]["function"] == "look_up"
    [event] = sample["events"]
    assert (event["event"], event["function"], event["arguments"]) == ("tool", "look_up", {"order": "A1"})
    assert sample["output"]["completion"] == "shipped"


def test_a_call_as_a_line() -> None:
    assert call_text({"name": "f", "arguments": {"a": [1], "b": None}, "result": None}) == "f(a=[1], b=null)"
    assert call_text({"name": "f", "arguments": "no", "error": "out"}) == "f(no) → Error: out"


@pytest.mark.parametrize(
    "limits, failed, reason",
    [
        ("turns: 2", 1, "limit of turns: 2"),
        ("tokens: 20", 1, "limit of tokens: 20"),
        ("cost: 10", 3, "limit of cost: 10"),
        ("{turns: 9, seconds: 100.5}", 0, ""),
    ],
)
def test_a_record_that_uses_too_much_fails(tmp_path: Path, talking: str, limits: str, failed: int, reason: str) -> None:
    written = limits if limits.startswith("{") else "{" + limits + "}"
    results = evaluate(tmp_path, talking, GRAPH + f"  graph_properties: {{limits: {written}}}\n", RECORDS)
    [account] = results["assay"]["tasks"].values()
    assert account["failed"] == failed
    reasons = account.get("reasons", {})
    assert all(reason in each for each in reasons) and sum(reasons.values()) == failed


def test_a_tool_is_not_waited_for_beyond_the_seconds_of_its_record(tmp_path: Path, talking: str) -> None:
    records = [{"q": asked(("slow", {"order": "A1"})), "expected": []}]
    results = evaluate(tmp_path, talking, GRAPH + "  graph_properties: {limits: {seconds: 0.5}}\n", records)
    [account] = results["assay"]["tasks"].values()
    assert account["reasons"] == {"the record used more than its limit of seconds: 0.5 (graph_properties.limits)": 1}


TRIALS = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    drawn:
      node_type: llm
      prompt: [{user: '{{"draw": true}}'}]
      output_keys: drawn
      model: {name: m, parameters: {temperature: 1.0}}
    tried: {node_type: lambda, lambda: code.tried, output_keys: predicted}
    measured:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      golden_key: answer
      predicted_key: predicted
      unit_metrics_map: [{name: exact_match}]
      output_keys: [exact_match_result]
  edges: [{from: START, to: drawn}, {from: drawn, to: tried}, {from: tried, to: measured}, {from: measured, to: END}]
output_config: {output_map: {drawn: {from: drawn}, exact_match_result: {from: exact_match_result}}}
graph_post_process:
  - processor: tasks.eval.utils.MetricCollatorPostProcessor
    params:
      aggregator_metrics_map:
        - {name: "pass@k", params: {k: 3}, unit_metrics_results: [exact_match_result]}
        - {name: "pass^k", params: {k: 3}, unit_metrics_results: [exact_match_result]}
"""


def test_repeats_of_records_are_attempts_at_one_problem(tmp_path: Path, talking: str) -> None:
    code = """
    def tried(node, state):
        return {"predicted": "yes" if state["repeat"] <= state["right"] else "no"}
    """
    records = [{"answer": "yes", "right": right} for right in (3, 1, 0)]
    folder = write_graph(tmp_path, records, TRIALS, code=code)
    arguments = f"model=m,base_url={talking},max_retries=1"
    options = {"model": "openai-chat", "model_args": arguments, "tasks": [str(folder)], "repeats": 3}
    results = assay.simple_evaluate(**options, output_path=str(tmp_path / "run"))
    [row] = results["results"].values()
    assert row["exact_match,none"] == pytest.approx(4 / 9)
    assert row["exact_match_stderr,none"] == pytest.approx(7**0.5 / 9)  # the repeats of a record are one draw
    assert row["pass@3,none"] == pytest.approx(2 / 3)
    assert row["pass^3,none"] == pytest.approx(1 / 3)
    output = the_file(tmp_path / "run", "output_*.json")
    assert [(record["repeat_of"], record["repeat"]) for record in output] == [
        (n, m) for n in range(3) for m in (1, 2, 3)
    ]
    assert len({record["drawn"] for record in output}) == 9  # each repeat draws anew
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*_20*")}
    assert main(["score", str(tmp_path / "run")]) == 0
    [again] = lm_eval_layout(Run.open(tmp_path / "run/scored/001").results)["results"].values()
    assert again["exact_match_stderr,none"] == row["exact_match_stderr,none"]
    assert again["pass^3,none"] == row["pass^3,none"]
    assay.simple_evaluate(**options, output_path=str(tmp_path / "run"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*_20*")} == before
    with pytest.raises(assay.ConfigError, match="which records are attempts at the same problem"):
        assay.simple_evaluate(**{**options, "repeats": None})


def test_columns_of_repeats_must_be_free(tmp_path: Path) -> None:
    folder = write_graph(
        tmp_path, [{"answer": "yes", "right": 1, "repeat": 7}], TRIALS, code="def tried(node, state): return {}"
    )
    with pytest.raises(assay.ConfigError, match="the records have a column 'repeat'"):
        assay.simple_evaluate(model="dummy", tasks=[str(folder)], repeats=2)


DIALOGUE = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    customer:
      node_type: user
      prompt: [{system: "You are a customer. {goal}"}, {user: '{opening}'}]
      model: {name: m}
    agent:
      node_type: agent
      prompt: [{system: "You serve."}]
      output_keys: messages
      tools: [code.look_up]
      model: {name: m}
    judged:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      predicted_key: verdict
      unit_metrics_map: [{name: llm_judge, params: {role: judge, rubric: "Be strict.", question: goal, threshold: 0.6}}]
  edges:
    - {from: START, to: customer}
    - {from: customer, to: agent}
    - {from: agent, condition: code.goes_on, path_map: {more: customer, done: judged}}
    - {from: judged, to: END}
"""
DIALOGUE_CODE = (
    CODE
    + """
    def goes_on(state):
        return "done" if len(state["messages"]) >= 4 else "more"
"""
)


def dialogue(top: Path, url: str, score: float) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    first_call = {"calls": [["look_up", {"order": "A1"}]]}
    record = {
        "goal": "Find A1.",
        "opening": json.dumps({"say": json.dumps(first_call)}),  # the customer says what the agent then does
        "verdict": json.dumps({"score": score}),
    }
    folder = write_graph(top, [record], DIALOGUE, code=DIALOGUE_CODE)
    before = len(fetched(url, "/log"))
    results = assay.simple_evaluate(
        model="openai-chat",
        model_args=f"model=m,base_url={url},max_retries=1",
        model_role={"judge": f"openai-chat,model=j,base_url={url},max_retries=1"},
        tasks=[str(folder)],
        output_path=str(top / "run"),
    )
    return results, [each["body"] for each in fetched(url, "/log")[before:]]


def test_a_simulated_user_sees_the_conversation_with_roles_exchanged(tmp_path: Path, talking: str) -> None:
    results, bodies = dialogue(tmp_path, talking, 7)
    [record] = the_file(tmp_path / "run", "output_*.json")
    assert [message["role"] for message in record["messages"]] == ["user", "assistant", "user", "assistant"]
    customer = [body["messages"] for body in bodies if body["messages"][0]["content"].startswith("You are a customer")]
    assert [[message["role"] for message in messages] for messages in customer] == [
        ["system", "user"],
        ["system", "user", "assistant", "user"],
    ]
    assert customer[1][2]["content"] == record["messages"][0]["content"]  # its own words are the assistant's
    assert customer[1][3]["content"] == "shipped"
    agent = [body["messages"] for body in bodies if body["messages"][0]["content"] == "You serve."]
    assert [message["role"] for message in agent[-1]] == ["system", "user", "assistant", "user"]
    assert [call["turn"] for call in record["messages_tool_calls"]] == [1]
    assert record["messages_usage"]["turns"] == 3  # two of the first visit, one of the second
    [row] = results["results"].values()
    assert row["llm_judge,none"] == pytest.approx(6 / 9)  # 7 on the scale from 1 to 10
    assert record["llm_judge_result"]["correct"] is True
    [judged] = [body for body in bodies if body["model"] == "j" and "Be strict." in body["messages"][0]["content"]]
    assert "Find A1." in judged["messages"][0]["content"]
    asked = len(fetched(talking, "/log"))
    dialogue(tmp_path, talking, 7)  # verdicts are journaled
    assert len(fetched(talking, "/log")) == asked + 4  # the greetings of two models


def test_a_verdict_that_cannot_be_read_fails_the_record(tmp_path: Path, talking: str) -> None:
    results, _ = dialogue(tmp_path, talking, 99)
    [account] = results["assay"]["tasks"].values()
    assert account["failed"] == 1 and "judge: unparsable verdict" in next(iter(account["reasons"]))


def test_a_judge_of_a_graph_needs_a_model(tmp_path: Path, talking: str) -> None:
    folder = write_graph(tmp_path, [{"goal": "a", "opening": "b", "verdict": "c"}], DIALOGUE, code=DIALOGUE_CODE)
    with pytest.raises(assay.ConfigError, match="judge"):
        assay.simple_evaluate(model="openai-chat", model_args=f"model=m,base_url={talking}", tasks=[str(folder)])


TEXT_GRAPH = """
data_config: {source: {type: disk, file_path: records.jsonl}}
graph_config:
  nodes:
    ask:
      node_type: llm
      prompt: [{user: "{q}"}]
      output_keys: [answer]
      model: {name: m, structured_output: {schema: {fields: {answer: {type: str}}}}}
    measured:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      golden_key: gold
      predicted_key: answer
      unit_metrics_map: [{name: exact_match}]
  edges: [{from: START, to: ask}, {from: ask, to: measured}, {from: measured, to: END}]
"""
FINE = {"q": json.dumps({"say": '{"answer": "yes"}'}), "gold": {"text": "yes"}}


def of_a_call(arguments: str) -> str:
    """A call of a tool with arguments as the model wrote them."""
    return json.dumps({"calls": [["look_up", arguments]]})


@pytest.mark.parametrize(
    ("graph", "hostile", "fine"),
    [
        (GRAPH, of_a_call('{"order": "\\ud800"}'), RECORDS[0]),
        (GRAPH, of_a_call("[" * 100_000), RECORDS[0]),
        (TEXT_GRAPH, json.dumps({"say": '{"answer": "\\ud800"}'}), FINE),
        (TEXT_GRAPH, json.dumps({"say": '{"answer": ' + "[" * 100_000}), FINE),
    ],
    ids=["half a character in arguments", "deep arguments", "half a character in a field", "a deep field"],
)
def test_what_a_model_writes_as_json_leaves_the_run_readable(
    graph: str, hostile: str, fine: dict[str, Any], talking: str, tmp_path: Path
) -> None:
    evaluate(tmp_path, talking, graph, [{**fine, "q": hostile}, fine])
    run = str(tmp_path / "run")
    assert main(["samples", run, "-n", "0"]) == 0
    assert main(["export", run, "--to", "inspect", "-o", str(tmp_path / "out")]) == 0
    assert len(next(Run.open(run).sample_batches(Run.open(run).tasks[0]))) == 2
