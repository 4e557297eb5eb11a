"""The numbers of a graph's report as rows of the table: their names before the run, and their standard errors."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, recall_score

import assay
from assay import UnitMetricResult
from assay.dialect import OURS
from assay.errors import ConfigError, Place
from assay.graphs.aggregator_registry import make_aggregator
from assay.graphs.output import REASON
from assay.models import Scripted
from assay.statistics.aggregations import AGGREGATIONS
from assay.statistics.estimates import estimate, with_draws
from assay.statistics.intervals import interval
from graph_world import CLASSIFICATION, write_graph

ORACLES = {"precision": precision_score, "recall": recall_score, "f1_score": f1_score}
PARAMS = {
    "precision": {"predicted_key": "text"},
    "recall": {"golden_key": "text"},
    "f1_score": {"predicted_key": "text", "golden_key": "text"},
}


def result(golden: str, arguments: str) -> UnitMetricResult:
    return UnitMetricResult(golden == arguments, {"text": golden}, {"text": arguments})


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcde")), min_size=2, max_size=10))
def test_the_influence_of_a_record_is_the_effect_of_slightly_more_weight(pairs: list[tuple[str, str]]) -> None:
    """scikit-learn takes weights: the slope of its number in a record's weight, times their count, is the influence."""
    golds, answers = zip(*pairs, strict=True)
    labels = sorted({*golds, *answers})
    for name, oracle in ORACLES.items():
        metric = make_aggregator(name, PARAMS[name], Place("here"), OURS)
        [evidence] = metric.evidence([metric.read(result(golden, answer)) for golden, answer in pairs]).values()
        parameters = {"labels": labels, "average": "macro", "zero_division": 0}
        assert evidence.aggregation.function(evidence.values) == pytest.approx(oracle(golds, answers, **parameters))
        assert evidence.aggregation.influence is not None
        influence = evidence.aggregation.influence(evidence.values)
        for number in range(len(pairs)):
            weights = np.ones(len(pairs))
            slopes = []
            for step in (1e-5, -1e-5):
                weights[number] = 1 + step
                slopes.append(oracle(golds, answers, sample_weight=weights, **parameters))
            assert influence[number] == pytest.approx((slopes[0] - slopes[1]) / 2e-5 * len(pairs), abs=1e-4)
        assert sum(influence) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", ["precision", "recall", "f1_score"])
def test_intervals_of_precision_recall_and_f1_stay_between_0_and_1(name: str) -> None:
    """One of ten answers is wrong: the number is high, and Student's interval of its standard error reaches beyond 1."""
    metric = make_aggregator(name, PARAMS[name], Place("here"), OURS)
    pairs = [("a", "a")] * 6 + [("b", "b")] * 3 + [("b", "a")]
    [evidence] = metric.evidence([metric.read(result(golden, answer)) for golden, answer in pairs]).values()
    plain = estimate(evidence.aggregation, evidence.values, bootstrap_iters=10)
    number = with_draws(plain, evidence.aggregation, evidence.values, range(10), "here")
    golds, answers = zip(*pairs, strict=True)
    assert float(number) == pytest.approx(ORACLES[name](golds, answers, average="macro"))
    ends = interval(number)
    assert number.stderr is not None and ends is not None
    assert float(number) + 2.26 * number.stderr > 1  # Student's t of nine degrees of freedom
    assert 0 <= ends[0] < float(number) < ends[1] <= 1


def test_a_thousand_classes_need_no_table_of_all_records_by_all_classes() -> None:
    metric = make_aggregator("f1_score", PARAMS["f1_score"], Place("here"), OURS)
    results = (result(f"answer {number}", f"answer {number + number % 2}") for number in range(20_000))
    [evidence] = metric.evidence([metric.read(each) for each in results]).values()
    assert evidence.aggregation.influence is not None
    assert len(evidence.aggregation.influence(evidence.values)) == 20_000  # a table would have 400 million cells


PAIRS = [("Music", "Music"), ("Music", "Art"), ("Art", "Art"), ("Sports", "Music"), ("Sports", "Sports")] * 4


def world(top: Path, more: str = "") -> Path:
    records = [
        {
            "task_id": number,
            "problem": json.dumps({"predicted_topic": arguments}),
            "topic": golden,
            "author": number % 5,
        }
        for number, (golden, arguments) in enumerate(PAIRS)
    ]
    return write_graph(top, records, CLASSIFICATION + more, kind="classification")


def scripted() -> Scripted:
    """A model that repeats its question."""
    return Scripted(
        lambda prompt, *_: json.loads(prompt)[1]["content"].splitlines()[0],
        chat_template=lambda messages, _: json.dumps(messages),
    )


@pytest.mark.slow
def test_aggregator_rows_have_the_errors_of_what_they_are_made_of(tmp_path: Path) -> None:
    folder = world(tmp_path, "        - {name: pass_at_k, params: {k: 1}, unit_metrics_results: exact_match_result}\n")
    results = assay.simple_evaluate(scripted(), tasks=[str(folder)])
    [row] = results["results"].values()
    assert row["accuracy,none"] == 0.6
    assert row["accuracy_stderr,none"] == pytest.approx(math.sqrt(0.6 * 0.4 / 19))
    assert row["exact_match_stderr,none"] == pytest.approx(row["accuracy_stderr,none"])
    # recall by hand: Music 1/2, Art 1, Sports 1/2. A record of Music moves it by (hit - 1/2)/(8/20)/3 = ±5/12, one of Sports
    # likewise, one of Art not at all: sixteen times 25/144 over 20 records, less one
    assert row["average_recall,none"] == pytest.approx(2 / 3)
    assert row["average_recall_stderr,none"] == pytest.approx(math.sqrt(16 * 25 / 144 / 19 / 20))
    golds, predicted = zip(*PAIRS, strict=True)
    rng = np.random.default_rng(7)
    drawn = []
    for _ in range(2000):
        chosen = rng.integers(0, 20, 20)
        items = ([golds[i] for i in chosen], [predicted[i] for i in chosen])
        drawn.append(f1_score(*items, labels=["Music", "Art", "Sports"], average="macro", zero_division=0))
    assert row["average_f1_score_stderr,none"] == pytest.approx(np.std(drawn), rel=0.2)
    assert row["pass@1_stderr,none"] in (None, "N/A")
    [account] = results["assay"]["tasks"].values()
    assert REASON in json.dumps(account)


def test_an_aggregation_that_users_register_is_an_aggregator_metric_with_its_parameters_and_an_error(
    tmp_path: Path,
) -> None:
    """Twelve of twenty scores are 1: their squares' sum over 20, times `scale`, is 1.2."""

    @assay.aggregation("mean_square")
    def mean_square(values: list[float], *, scale: float = 1.0) -> float:
        return scale * sum(value**2 for value in values) / len(values)

    try:
        entry = "        - {name: mean_square, params: {scale: 2}, unit_metrics_results: exact_match_result}\n"
        folder = world(tmp_path, entry)
        [row] = assay.simple_evaluate(scripted(), tasks=[str(folder)])["results"].values()
        assert row["mean_square,none"] == pytest.approx(1.2)
        assert row["mean_square_stderr,none"] == pytest.approx(2 * math.sqrt(0.6 * 0.4 / 19), rel=0.2)  # of resamples
        (folder / "graph_config.yaml").write_text(
            (folder / "graph_config.yaml").read_text().replace("scale: 2", "scal: 2")
        )
        with pytest.raises(ConfigError, match="'mean_square' has no parameter 'scal' — did you mean 'scale'"):
            assay.simple_evaluate(scripted(), tasks=[str(folder)])
    finally:
        del AGGREGATIONS["mean_square"]


def test_records_of_one_cluster_are_one_draw_for_aggregator_rows_too(tmp_path: Path) -> None:
    folder = world(tmp_path)
    path = folder / "graph_config.yaml"
    path.write_text("cluster_by: author\n" + path.read_text())
    [row] = assay.simple_evaluate(scripted(), tasks=[str(folder)])["results"].values()
    # every author has the same kind of record four times: five draws of 1, 0, 1, 0, 1
    assert row["accuracy_stderr,none"] == pytest.approx(math.sqrt(0.6 * 0.4 / 4))


GROUP = "group: all\ntask: [topics]\naggregate_metric_list: [{metric: METRIC}]\n"


def grouped(top: Path, metric: str) -> dict[str, Any]:
    folder = world(top)
    path = folder / "graph_config.yaml"
    path.write_text("task: topics\n" + path.read_text())
    (folder / "group.yaml").write_text(GROUP.replace("METRIC", metric))
    return assay.simple_evaluate(scripted(), tasks=["all"], include_path=str(folder))


def test_a_group_takes_aggregator_rows_with_their_errors(tmp_path: Path) -> None:
    results = grouped(tmp_path, "average_recall")
    assert results["results"]["all"]["average_recall,none"] == pytest.approx(2 / 3)
    assert results["results"]["all"]["average_recall_stderr,none"] == pytest.approx(math.sqrt(16 * 25 / 144 / 19 / 20))


def test_a_group_that_misspells_an_aggregator_row_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="average_recal") as refused:
        grouped(tmp_path, "average_recal")
    assert "average_recall" in str(refused.value).replace("'average_recal'", "")
    assert "group.yaml:3:" in str(refused.value)


def test_a_unit_metric_may_have_the_name_of_another_tasks_row_to_be_averaged_with_it(tmp_path: Path) -> None:
    folder = world(tmp_path)
    path = folder / "graph_config.yaml"
    text = path.read_text().replace("exact_match_result", "acc_result")
    path.write_text(text.replace('- name: "exact_match"', '- name: "exact_match"\n          as: acc_result'))
    [row] = assay.simple_evaluate(scripted(), tasks=[str(folder)])["results"].values()
    assert row["acc,none"] == 0.6
