"""`assay validate` and `assay run` agree about graphs: what the one refuses, the other does, in the same words."""

from pathlib import Path

import pytest

from assay.cli import main

GRAPH = """
task: checked
data_config: {source: {type: disk, file_path: DATA}}
graph_config:
  nodes:
    answer: {node_type: NODE, prompt: [{user: "{question}"}], output_keys: predicted, model: {name: m}}
    check: CHECK
    unit: {node_type: lambda, lambda: tasks.eval.utils.UnitMetrics, golden_key: answer, predicted_key: predicted, unit_metrics_map: [{name: METRIC}]}
  edges: [{from: START, to: answer}, {from: answer, to: check}, {from: check, to: unit}, {from: unit, to: END}]
"""
CODE = """
import beside
import of_tasks
from assay import unit_metric


def check(node, state):
    return {"extra": 1}


@unit_metric("TEST_of_steps")
def of_steps(golden, predicted):
    return True
"""
FILES = {
    "steps": CODE,
    "beside": 'from assay import unit_metric\n\n\n@unit_metric("TEST_beside")\ndef one(golden, predicted):\n    return True\n',
    "of_tasks": 'import assay\n\n\n@assay.metric("TEST_of_answers")\ndef of_answers(references, prediction):\n    return 1.0\n',
    "unnamed": 'from assay import unit_metric\n\n\n@unit_metric("TEST_unnamed")\ndef one(golden, predicted):\n    return True\n',
    "broken": "def check(node, state:\n    return state\n",
    "lacking": "import os\nimport nothing_like_it\n\n\ndef check(node, state):\n    return state\n",
    "guarded": "try:\n    import nothing_like_it\nexcept ImportError:\n    pass\n\n\ndef check(node, state):\n    return {'extra': 2}\n",
    "look_up": 'def city(name: str) -> str:\n    """Look up."""\n    return name\n',
}
SAMPLER = "{node_type: weighted_sampler, attributes: {extra: {values: [1, 2], weights: "
SUBGRAPH = "{node_type: subgraph, subgraph: below/"
INSIDE = """
graph_config:
  nodes: {inner: {node_type: lambda, lambda: steps.check, output_keys: [extra]}}
  edges: [{from: START, to: inner}, {from: inner, to: END}]
"""
LACKING = "No module named 'nothing_like_it' (pip install nothing_like_it) (lacking.py:2)"


def write(folder: Path, **changes: str) -> str:
    values = {
        "CHECK": "{node_type: lambda, lambda: CODE, output_keys: [extra]}",
        "DATA": "records.jsonl",
        "NODE": "llm",
        "CODE": "steps.check",
        "METRIC": "exact_match",
    } | changes
    text = GRAPH
    for name, value in values.items():
        text = text.replace(name, value)
    (folder / "checked.yaml").write_text(text)
    for name, code in FILES.items():
        (folder / f"{name}.py").write_text(code.replace("TEST", f"metric_{abs(hash(folder))}"))
    (folder / "records.jsonl").write_text('{"question": "a", "answer": "b"}\n')
    (folder / "empty.jsonl").write_text("")
    (folder / "below/inside").mkdir(parents=True, exist_ok=True)
    (folder / "below/inside/graph_config.yaml").write_text(INSIDE)
    return str(folder / "checked.yaml")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"CODE": "steps.nope"}, "steps.py has no 'nope'"),
        ({"CODE": "stepz.check"}, "stepz.check: no module named 'stepz' — did you mean 'steps'?"),
        (
            {"CODE": "broken.check"},
            "broken.check: the module cannot be loaded: SyntaxError: '(' was never closed (broken.py, line 1)",
        ),
        ({"CODE": "lacking.check"}, f"lacking.check: the module cannot be loaded: ModuleNotFoundError: {LACKING}"),
        ({"METRIC": "metric_of_nobody"}, "no unit metric named 'metric_of_nobody'"),
        ({"METRIC": "TEST_unnamed"}, "no unit metric named 'metric_"),
        ({"NODE": "agent, tools: [look_up.town]"}, "look_up.py has no 'town' — use one of: city"),
        ({"NODE": "agent, tools: [look_ups]"}, "look_ups: no module named 'look_ups' — did you mean 'look_up'?"),
        ({"NODE": "agent, tools: ['look-up']"}, "invalid dotted name 'look-up'"),
        ({"DATA": "empty.jsonl"}, "the source has no records"),
        (
            {"NODE": "agent, tools: [look_up.city]", "METRIC": "no_forbidden_tool, params: {forbidden: citty}"},
            "no node has a tool named 'citty' — did you mean 'city'?",
        ),
        ({"METRIC": "tool_called, params: {times: 2}"}, "`arguments` and `times` need `tool`"),
        ({"CHECK": f"{SAMPLER}[1, -1]}}}}}}"}, "checked.yaml:7:88: the weights of extra must be at least 0"),
        ({"CHECK": f"{SAMPLER}[0, 0]}}}}}}"}, "the weights of extra must be at least 0, and some above it"),
        ({"CHECK": f"{SUBGRAPH}insid}}"}, "there is no graph 'below/insid' — did you mean 'below/inside'?"),
        (
            {"CHECK": f"{SUBGRAPH}inside, node_config_map: {{lacking: {{}}}}}}"},
            "checked.yaml:7:75: the subgraph has no node 'lacking' — its nodes are: inner",
        ),
        ({"CHECK": f"{SUBGRAPH}inside}}", "NODE": "llm, pre_process: steps.nope"}, "steps.py has no 'nope'"),
    ],
)
def test_both_refuse_it_in_the_same_words(
    changes: dict[str, str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(
        tmp_path, **{key: value.replace("TEST", f"metric_{abs(hash(tmp_path))}") for key, value in changes.items()}
    )
    assert main(["validate", path]) == 1
    assert words in capsys.readouterr().out
    assert main(["run", "--tasks", path, "--model", "embedded", "-o", str(tmp_path / "run")]) == 2
    assert words in capsys.readouterr().err


def test_no_mistake_in_a_graph_hides_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, NODE="lmm", CODE="steps.nope", DATA="nothing.jsonl", METRIC="exact_mach")
    file = Path(path)
    file.write_text(file.read_text().replace("to: unit}", "to: unitt}") + "output_confg: {}\n")
    assert main(["validate", path]) == 1
    reported = [line.partition("checked.yaml:")[2].partition(" — ")[0] for line in capsys.readouterr().out.splitlines()]
    expected = [
        "3:47: no data file 'nothing.jsonl'",
        "6:25: no node type named 'lmm'",
        "7:40: steps.py has no 'nope'",
        "8:141: no unit metric named 'exact_mach'",
        "9:83: there is no node 'unitt'",
        "10:1: unknown key 'output_confg'",
    ]
    assert [part for line in reported for part in expected if line.startswith(part)] == expected, reported
    assert main(["run", "--tasks", path, "--model", "embedded", "-o", str(tmp_path / "run")]) == 2
    refused = capsys.readouterr().err
    assert all(part.partition(": ")[2] in refused for part in expected)


@pytest.mark.parametrize("metric", ["TEST_of_steps", "TEST_beside", "TEST_of_answers"])
def test_both_take_metrics_that_helper_modules_register(
    metric: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, METRIC=metric.replace("TEST", f"metric_{abs(hash(tmp_path))}"))
    assert main(["validate", path]) == 0, capsys.readouterr()
    assert main(["run", "--tasks", path, "--model", "embedded", "-o", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize("changes", [{"CODE": "guarded.check"}, {"NODE": "agent, tools: [look_up]"}])
def test_validate_takes_modules_of_tools_and_imports_that_may_fail(changes: dict[str, str], tmp_path: Path) -> None:
    assert main(["validate", write(tmp_path, **changes)]) == 0


@pytest.mark.parametrize("forbidden", ["city", "delete_account"])
def test_a_metric_may_name_a_tool_that_is_there_or_like_no_other(forbidden: str, tmp_path: Path) -> None:
    changes = {
        "NODE": "agent, tools: [look_up.city]",
        "METRIC": f"no_forbidden_tool, params: {{forbidden: {forbidden}}}",
    }
    assert main(["validate", write(tmp_path, **changes)]) == 0


@pytest.mark.parametrize(
    "written", ["tools: '{question}'", "response_format: {schema: ['{question}']}", "seed: '{{question}}'"]
)
def test_a_parameter_that_a_prompt_would_fill_in_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str
) -> None:
    graph = write(tmp_path)
    file = Path(graph)
    file.write_text(
        file.read_text().replace("{name: m}", f"{{name: m, parameters: {{{written}, stop: ['{{question}}']}}}}")
    )
    for command in (["validate", graph], ["run", "--tasks", graph, "--model", "dummy"]):
        assert main(command) != 0
        said = "".join(capsys.readouterr())
        assert said.count("is sent as it is written: parameters of generation are the same for all") == 1, said
        assert "checked.yaml:6:" in said


def test_aggregators_are_checked_where_the_records_come_over_a_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, METRIC="exact_match")
    text = (
        Path(path)
        .read_text()
        .replace("{type: disk, file_path: records.jsonl}", "{type: hf, repo_id: no/such, split: test}")
    )
    collator = (
        "{processor: tasks.eval.utils.MetricCollatorPostProcessor, params: {aggregator_metrics_map: [AGGREGATOR]}}"
    )
    aggregator = "{name: acuracy, unit_metrics_results: [exact_match_metric_result]}"
    Path(path).write_text(text + f"graph_post_process: [{collator.replace('AGGREGATOR', aggregator)}]\n")
    assert main(["validate", path]) == 1
    assert "no aggregator metric named 'acuracy' — did you mean 'accuracy'?" in capsys.readouterr().out
