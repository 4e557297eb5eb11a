"""What graphs show of their output: fields of structured answers, unit results that no list declares, arrows, counts."""

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import assay
from assay.report.table import results_table
from graph_world import the_file, write_graph
from test_graphs import HEAD, account, run, scripted
from test_judges import scoring

ASK = """
    graph_config:
      nodes:
        ask:
          node_type: llm
          prompt: [{user: "{x}"}]
          output_keys: [city, sure]
          model: {name: m, structured_output: {schema: {fields: {city: {type: str}, sure: {type: bool}}}}}
      edges: [{from: START, to: ask}, {from: ask, to: END}]
"""


def test_the_fields_of_a_structured_answer_fill_a_list_of_output_keys(tmp_path: Path) -> None:
    """The second record's answer is not JSON, also when it is asked for again: it has no values, which is counted."""

    def answer(messages: list[dict[str, str]]) -> str:
        return json.dumps({"city": "Rome", "sure": True}) if messages[-1]["content"][0] == "1" else "Rome"

    results, output = run(tmp_path, ASK, [{"x": 1}, {"x": 2}], scripted(answer))
    assert [(record["city"], record["sure"]) for record in output] == [("Rome", True), (None, None)]
    assert account(results)["noticed"]["without the structured output asked for"] == 1


def test_output_keys_beyond_the_fields_of_the_structured_answer_are_refused(tmp_path: Path) -> None:
    folder = write_graph(tmp_path, [{"x": 1}], HEAD + dedent(ASK.replace("[city, sure]", "[city, shure]")))
    with pytest.raises(assay.ConfigError, match=r"structured_output has no field 'shure'.* — did you mean 'sure'"):
        assay.simple_evaluate(scripted(str), tasks=[str(folder)])


MEASURED = """
    graph_config:
      nodes:
        unit: {node_type: lambda, lambda: tasks.eval.utils.UnitMetrics, golden_key: g, predicted_key: p, unit_metrics_map: [{name: exact_match}]}
      edges: [{from: START, to: unit}, {from: unit, to: END}]
    graph_post_process:
      - processor: tasks.eval.utils.MetricCollatorPostProcessor
        params:
          aggregator_metrics_map:
            - {name: accuracy, unit_metrics_results: [exact_match_result]}
            - {name: share_wrong, unit_metrics_results: [exact_match_result]}
      - code.Longest
"""
CODE = """
    from assay import AggregatorMetric, aggregator_metric
    from sygra.core.eval.metrics.base_metric_metadata import BaseMetricMetadata
    from sygra.core.graph.graph_postprocessor import GraphPostProcessor

    @aggregator_metric("share_wrong")
    class ShareWrong(AggregatorMetric):
        def get_metadata(self):
            return BaseMetricMetadata(name="share_wrong", higher_is_better=False)

        def calculate(self, results):
            return {"wrong": sum(not result.correct for result in results) / len(results)}

    class Longest(GraphPostProcessor):
        def process(self, data, metadata):
            return [max(data, key=lambda record: len(record["p"]))]
"""


NO_PROCESS = "    class Longest(GraphPostProcessor):\n        def proces(self, data, metadata):"
SLIPS = {
    "a post-processor without `process`": (
        (
            CODE.replace(
                "    class Longest(GraphPostProcessor):\n        def process(self, data, metadata):", NO_PROCESS
            ),
            MEASURED,
        ),
        "'Longest': proces has no effect — did you mean 'process'",
    ),
    "a process of one argument": (
        (CODE.replace("def process(self, data, metadata)", "def process(self, data)"), MEASURED),
        r"process must take 2 arguments — write `def process\(self, data, metadata\)`",
    ),
    "an aggregator's method": (
        (
            CODE.replace("def calculate", "def numbres(self):\n            return ['wrong']\n\n        def calculate"),
            MEASURED,
        ),
        "numbres has no effect — did you mean 'numbers'",
    ),
    "a field of the schema": (
        (CODE, MEASURED + "    schema_config: {fields: [{name: q, type: str}]}\n"),
        "nothing produces 'q'",
    ),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_in_what_ends_a_graph_is_refused_before_the_first_record(slip: str, tmp_path: Path) -> None:
    (code, graph), message = SLIPS[slip]
    folder = write_graph(tmp_path, [{"g": "a", "p": "A"}], HEAD + dedent(graph))
    (folder / "code.py").write_text(dedent(code))
    with pytest.raises(assay.ConfigError, match=message):
        assay.simple_evaluate(scripted(str), tasks=[str(folder)])


def test_a_report_that_is_one_mapping_is_a_list_of_one(tmp_path: Path) -> None:
    code = CODE.replace('return [max(data, key=lambda record: len(record["p"]))]', "return {'n': len(list(data))}")
    folder = write_graph(tmp_path, [{"g": "a", "p": "A"}], HEAD + dedent(MEASURED))
    (folder / "code.py").write_text(dedent(code))
    assay.simple_evaluate(None, tasks=[str(folder)], output_path=str(tmp_path / "out"))
    assert the_file(tmp_path / "out", "Longest_*.json") == [{"n": 1}]


def test_a_users_aggregator_has_its_direction_and_leaves_the_others_theirs(tmp_path: Path) -> None:
    """The unit results need no `output_keys`: their columns are known by the names of the metrics."""
    results, _ = run(tmp_path, MEASURED, [{"g": "a", "p": "A"}, {"g": "b", "p": "c"}], code=CODE)
    [better] = results["higher_is_better"].values()
    assert better == {"accuracy": True, "exact_match": True, "wrong": False}
    [row] = results["results"].values()
    assert (row["accuracy,none"], row["wrong,none"]) == (0.5, 0.5)


def test_a_task_without_a_metric_shows_how_many_documents_it_had(tmp_path: Path) -> None:
    graph = "    graph_config:\n      nodes: {a: {node_type: lambda, lambda: code.a}}\n      edges: [{from: START, to: a}, {from: a, to: END}]\n"
    code = "def a(node, state):\n    return {'y': 1 / state['x']}\n"
    results: dict[str, Any]
    results, _ = run(tmp_path, graph, [{"x": 1}, {"x": 0}, {"x": 3}], code=code)
    cells = [cell.strip() for cell in str(results_table(results.results)).splitlines()[-1].split("|")]
    assert cells[-3:-1] == ["2", "1*"]


def test_a_json_file_is_left_by_a_run_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.cli import main

    lines = [line for line in dedent(MEASURED).splitlines() if "Longest" not in line and "share_wrong" not in line]
    folder = write_graph(tmp_path, [{"g": "a", "p": "A"}], HEAD + "\n".join(lines))
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--task", str(folder), "--batch_size", "64"]) == 0
    assert "at most 32 requests are sent at once: --model_args num_concurrent=64" in capsys.readouterr().err
    [left] = (tmp_path / "runs").iterdir()
    assert the_file(left, "output_*.json")[0]["exact_match_result"]["correct"]
    assert the_file(left, "MetricCollatorPostProcessor_*.json")[0]["results"]["accuracy"] == {"accuracy": 1.0}


def test_a_judge_in_a_graph_sees_the_users_own_seconds_and_not_those_of_tool_calls(tmp_path: Path) -> None:
    """The time that a call took differs in every run: with it in the prompt, the same answer would be judged again."""
    graph = """
    graph_config:
      nodes:
        unit: {node_type: lambda, lambda: tasks.eval.utils.UnitMetrics, predicted_key: p, unit_metrics_map: [{name: llm_judge, params: {role: judge, rubric: "Be strict."}}]}
      edges: [{from: START, to: unit}, {from: unit, to: END}]
    """
    call = {"name": "f", "arguments": {}, "turn": 1, "tokens": 3, "seconds": 0.125}
    seen: list[str] = []

    def score(answer: str) -> int:
        seen.append(answer)
        return 10

    predicted = {"race": {"seconds": 9.58}, "calls": [call]}
    records = [{"question": "?", "p": predicted}]
    results, _ = run(tmp_path, graph, records, model_role={"judge": scoring(score)})
    assert seen == ["{'race': {'seconds': 9.58}, 'calls': [{'name': 'f', 'arguments': {}, 'turn': 1, 'tokens': 3}]}"]
    [row] = results["results"].values()
    assert row["llm_judge,none"] == 1.0
