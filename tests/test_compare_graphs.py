"""Graphs of several steps are compared: what is asked later holds answers, and is no other prompt for that."""

import json
from pathlib import Path

import pytest

from assay import simple_evaluate
from assay.cli import main
from assay.comparison.compare import compare
from assay.errors import AssayError
from assay.models import Scripted
from assay.runs.comparison import ComparedRow, Comparison

GRAPH = """
data_config:
  source: {type: disk, file_path: records.jsonl}
graph_config:
  nodes:
    draft:
      node_type: llm
      prompt: [{user: "Draft {question}"}]
      output_keys: draft
      model: {name: under_test, parameters: {temperature: 0.0}}
    answer:
      node_type: llm
      prompt: [{user: "Answer {question} from {draft}"}]
      output_keys: predicted
      model: {name: under_test}
    judged:
      node_type: lambda
      lambda: tasks.eval.utils.UnitMetrics
      golden_key: answer
      predicted_key: predicted
      unit_metrics_map: [{name: exact_match, params: {key: text}}]
      output_keys: [exact_match_result]
  edges:
    - {from: START, to: draft}
    - {from: draft, to: answer}
    - {from: answer, to: judged}
    - {from: judged, to: END}
output_config:
  output_map:
    predicted: {from: predicted}
    answer: {from: answer}
    exact_match_result: {from: exact_match_result}
graph_post_process:
  - processor: tasks.eval.utils.MetricCollatorPostProcessor
    params:
      aggregator_metrics_map:
        - {name: accuracy, params: {key: text}, unit_metrics_results: [exact_match_result]}
"""


def make_graph_run(tmp_path: Path, name: str, right: set[int], graph: str = GRAPH, broken: int = -1) -> Path:
    """A run of ten records in which these are right; drafts are in the words of the run."""
    folder = tmp_path / "graph"
    folder.mkdir(exist_ok=True)
    (folder / "graph_config.yaml").write_text(graph)
    (folder / "records.jsonl").write_text(
        "".join(json.dumps({"question": f"q{n}", "answer": f"a{n}"}) + "\n" for n in range(10))
    )

    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        number = int(prompt.split("q")[1].split()[0])
        if number == broken:
            raise RuntimeError("not this one")
        if prompt.startswith("Draft"):
            return f"{name} thinks of {number}"
        return f"a{number}" if number in right else "no"

    model = Scripted(answer, chat_template=lambda messages, _: str(messages[-1]["content"]), identity=name)
    simple_evaluate(model, tasks=[str(folder)], output_path=str(tmp_path / name))
    return tmp_path / name


def row(comparison: Comparison, metric: str) -> ComparedRow:
    [one] = [each for each in comparison.rows if each.metric == metric]
    return one


def test_graphs_whose_later_steps_hold_answers_are_compared(tmp_path: Path) -> None:
    """Of ten records 1 to 4 are lost and 9 is won: mid-p 2 · (6 - 5/2)/32."""
    runs = [make_graph_run(tmp_path, "a", {1, 2, 3, 4, 5}), make_graph_run(tmp_path, "b", {5, 9})]
    result_row = row(compare(runs), "exact_match")
    assert (result_row.a, result_row.b, result_row.wins, result_row.losses) == (0.5, 0.2, 1, 4)
    assert result_row.difference.p == pytest.approx(2 * (6 - 5 / 2) / 32)


def test_a_graph_that_asks_in_other_words_later_is_refused(tmp_path: Path) -> None:
    runs = [
        make_graph_run(tmp_path, "a", {1, 2}),
        make_graph_run(tmp_path, "b", {1}, GRAPH.replace("Answer {", "Please answer {")),
    ]
    with pytest.raises(AssayError, match="the prompts of 10 of 10 documents differ"):
        compare(runs)


def test_another_model_or_temperature_is_no_other_prompt(tmp_path: Path) -> None:
    other = GRAPH.replace("temperature: 0.0", "temperature: 0.7")
    runs = [make_graph_run(tmp_path, "a", {1, 2}), make_graph_run(tmp_path, "b", {1}, other)]
    assert row(compare(runs), "exact_match").difference.n == 10


def test_a_record_that_failed_on_its_way_was_not_asked_in_other_words(tmp_path: Path) -> None:
    runs = [make_graph_run(tmp_path, "a", {1, 2}), make_graph_run(tmp_path, "b", {1, 2}, broken=7)]
    result_row = row(compare(runs), "exact_match")
    assert (result_row.difference.n, result_row.only_a) == (9, 1)


def test_a_number_of_all_records_together_is_shown_with_why_it_has_no_interval(tmp_path: Path) -> None:
    comparison = compare(
        [make_graph_run(tmp_path, "a", {1, 2}), make_graph_run(tmp_path, "b", {1})], gates=["accuracy > -1pp"]
    )
    result_row = row(comparison, "accuracy")
    assert (result_row.a, result_row.b, result_row.difference.interval, result_row.difference.p) == (
        0.2,
        0.1,
        None,
        None,
    )
    assert "computed over all documents together" in result_row.difference.reason
    assert comparison.decision == "inconclusive"


def test_a_plan_takes_the_first_number_of_a_graph_whose_spread_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Accuracy is computed over all records together; 3 of 10 are right: √(0.3 · 0.7 / 9) is the standard error."""
    run = str(make_graph_run(tmp_path, "a", {1, 2, 3}))
    assert main(["plan", "--mde", "5pp", "--baseline", run, "--format", "json"]) == 0
    printed = capsys.readouterr()
    content = json.loads(printed.out)
    assert [(row["name"], row["metric"], row["documents"]) for row in content["rows"]] == [("graph", "exact_match", 10)]
    assert [row["metric"] for row in content["noise"]] == ["exact_match"]
    assert "unknown variance" not in printed.err
    assert main(["plan", "--mde", "5pp", "--baseline", run, "--metric", "accuracy"]) == 0
    assert "unknown variance of accuracy: graph" in capsys.readouterr().err
