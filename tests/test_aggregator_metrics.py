"""Aggregator metrics and the report, as seed 003 has it: by hand, by scikit-learn, and by trying all subsets."""

import itertools
import json
import math
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, recall_score

import assay
from assay import (
    AggregatorMetric,
    AggregatorMetricRegistry,
    MetricCollatorPostProcessor,
    UnitMetricResult,
    UnitMetrics,
    aggregator_metric,
)
from assay.dialect import OURS, Dialect, dialect_of
from assay.errors import ConfigError, Place
from assay.graphs.aggregator_registry import make_aggregator
from assay.graphs.collate import RecordCounts
from assay.statistics.aggregations import AGGREGATIONS
from graph_world import CLASSIFICATION, write_graph

HERE = Place("graph_config.yaml", 40, 5)
BOTH = {"golden_key": "text", "predicted_key": "text"}
PARAMS = {"precision": {"predicted_key": "text"}, "recall": {"golden_key": "text"}, "f1_score": BOTH}
AVERAGES = {"precision": "average_precision", "recall": "average_recall", "f1_score": "average_f1_score"}
COLUMN = "exact_match_result"


@pytest.fixture(autouse=True)
def own_registry() -> Any:
    """What a test registers is forgotten after it."""
    yield
    AggregatorMetricRegistry.clear()


def collated(
    rows: Any, entries: Any, counts: RecordCounts | None = None, compat: str | None = None, **rules: Any
) -> list[dict[str, Any]]:
    """The report as it is written."""
    return MetricCollatorPostProcessor([*entries], **rules).process(rows, {"counts": counts, "compat": compat})


def results(golds: Any, answers: Any, **metadata: Any) -> list[UnitMetricResult]:
    return [UnitMetricResult(g == a, {"text": g}, {"text": a}, metadata) for g, a in zip(golds, answers, strict=True)]


def attempts(**problems: str) -> list[UnitMetricResult]:
    """One result for every letter of a problem: + is correct."""
    return [
        UnitMetricResult(sign == "+", {}, {}, {"problem": name}) for name, signs in problems.items() for sign in signs
    ]


SYGRAS = dialect_of("sygra")


def here(*path: str | int) -> Place:  # the shape of what finds places
    return HERE


def aggregated(name: str, given_results: Any, *, dialect: Dialect = OURS, **params: Any) -> dict[str, Any]:
    return make_aggregator(name, params, HERE, dialect).calculate(given_results)


# --- classes ------------------------------------------------------------------------------------------------------------


def test_accuracy_is_the_share_of_correct_records() -> None:
    assert aggregated("accuracy", results("aabb", "abbb"), key="text") == {"accuracy": 0.75}


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcde")), min_size=1, max_size=60))
def test_precision_recall_and_f1_are_those_of_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    golds, answers = zip(*pairs, strict=True)
    labels = sorted({*golds, *answers})
    for name, oracle in (("precision", precision_score), ("recall", recall_score), ("f1_score", f1_score)):
        ours = aggregated(name, results(golds, answers), **PARAMS[name])
        by_class = oracle(golds, answers, labels=labels, average=None, zero_division=0)
        assert ours[f"{name}_per_class"] == pytest.approx(dict(zip(labels, by_class, strict=True)))
        expected = oracle(golds, answers, average="macro", zero_division=0)
        assert ours[AVERAGES[name]] == pytest.approx(expected, abs=1e-12)


def test_a_constant_answer_over_five_classes_gives_sygras_numbers_only_as_sygra_has_them() -> None:
    constant = results([*"abcde"] * 10, "a" * 50)
    for name in PARAMS:
        assert aggregated(name, constant, dialect=SYGRAS, **PARAMS[name])[AVERAGES[name]] == pytest.approx(0.20)
    assert aggregated("f1_score", constant, **BOTH)["average_f1_score"] == pytest.approx(1 / 15)
    assert aggregated("precision", constant, predicted_key="text")["average_precision"] == pytest.approx(0.04)
    assert aggregated("recall", constant, golden_key="text")["average_recall"] == pytest.approx(0.20)
    assert aggregated("pass@k", constant, dialect=SYGRAS, k=3)["pass@3"] == pytest.approx(
        1 - (40 * 39 * 38) / (50 * 49 * 48)
    )
    steps = aggregated("step_efficiency", constant, dialect=SYGRAS)
    assert (steps["step_efficiency"], steps["total_steps"]) == (1.0, 1)


def test_classes_are_distinguished_as_the_unit_metric_compares_texts() -> None:
    node = {
        "golden_key": "g",
        "predicted_key": "p",
        "unit_metrics_map": [{"name": "exact_match", "params": {"key": "text"}}],
    }
    pairs = [("Music", "music"), ("Art", "MUSIC "), ("Art", "Art")]
    unit_results = [
        UnitMetricResult.from_dict(UnitMetrics.apply(node, {"g": g, "p": p})["exact_match_result"]) for g, p in pairs
    ]
    # Music: given twice and right once; Art: given once and right twice
    assert aggregated("precision", unit_results, predicted_key="text")["precision_per_class"] == {
        "Music": 0.5,
        "Art": 1.0,
    }
    assert aggregated("recall", unit_results, golden_key="text")["recall_per_class"] == {"Music": 1.0, "Art": 0.5}
    apart = aggregated("precision", unit_results, dialect=SYGRAS, predicted_key="text")["precision_per_class"]
    assert apart == {"music": 1.0, "MUSIC ": 0.0, "Art": 1.0}


def test_case_distinguishes_classes_where_the_unit_metric_does() -> None:
    run_results = results(["US", "us"], ["us", "us"], case_sensitive=True)
    assert aggregated("precision", run_results, predicted_key="text")["precision_per_class"] == {"US": 0.0, "us": 0.5}


def test_labels_say_which_classes_count() -> None:
    run_results = results("aabb", "ab?b")
    oracle = f1_score([*"aabb"], [*"ab?b"], labels=["a", "b"], average="macro", zero_division=0)
    assert aggregated("f1_score", run_results, **BOTH, labels=["a", "b"])["average_f1_score"] == pytest.approx(oracle)
    assert set(aggregated("f1_score", run_results, **BOTH)["f1_score_per_class"]) == {"a", "b", "?"}


def test_an_answer_without_a_class_is_of_none_and_a_record_without_one_is_an_error() -> None:
    unit_results = [UnitMetricResult(True, {"text": "a"}, {"text": "a"}), UnitMetricResult(False, {"text": "a"}, {})]
    assert aggregated("precision", unit_results, predicted_key="text") == {
        "average_precision": 1.0,
        "precision_per_class": {"a": 1.0},
    }
    assert aggregated("recall", unit_results, golden_key="text")["average_recall"] == 0.5
    with pytest.raises(ValueError, match="golden value has no 'topic'"):
        aggregated("recall", unit_results, golden_key="topic")


def test_precision_needs_no_golden_classes_where_none_are_named() -> None:
    unit_results = [
        UnitMetricResult(correct, {"bbox": 1}, {"tool": tool})
        for tool, correct in (("click", True), ("click", False), ("type", True))
    ]
    expected = {"average_precision": 0.75, "precision_per_class": {"click": 0.5, "type": 1.0}}
    assert aggregated("precision", unit_results, predicted_key="tool") == expected
    with pytest.raises(ValueError, match="golden value has no 'tool'"):
        aggregated("precision", unit_results, predicted_key="tool", golden_key="tool")


# --- attempts -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=6), min_size=1, max_size=5), st.integers(1, 3))
def test_pass_at_k_and_pass_to_the_k_are_means_over_all_ways_to_draw_k_attempts(
    problems: list[list[bool]], k: int
) -> None:
    unit_results = [
        UnitMetricResult(correct, {}, {}, {"id": number}) for number, each in enumerate(problems) for correct in each
    ]
    random.Random(0).shuffle(unit_results)
    subsets = [list(itertools.combinations(each, k)) for each in problems]
    one = [sum(map(any, items)) / len(items) for items in subsets]
    every = [sum(map(all, items)) / len(items) for items in subsets]
    assert aggregated("pass@k", unit_results, k=k, group_by="id")[f"pass@{k}"] == pytest.approx(sum(one) / len(one))
    assert aggregated("pass^k", unit_results, k=k, group_by=["id"])[f"pass^{k}"] == pytest.approx(
        sum(every) / len(every)
    )


def test_pass_at_k_is_counted_for_every_number_up_to_k() -> None:
    unit_results = attempts(first="+--", second="++-")
    # of three attempts: one correct gives 1/3, 2/3, 1; two give 2/3, 1, 1
    expected = {"pass@1": pytest.approx(1 / 2), "pass@2": pytest.approx(5 / 6), "pass@3": 1.0}
    assert aggregated("pass_at_k", unit_results, k=3, group_by="problem") == expected
    # all correct: 1/3, 0, 0 and 2/3, 1/3, 0
    powers = {"success_rate": 0.5, "pass^1": pytest.approx(1 / 2), "pass^2": pytest.approx(1 / 6), "pass^3": 0.0}
    assert aggregated("pass^k", unit_results, k=3, group_by="problem") == powers
    assert aggregated("pass^k", unit_results, dialect=SYGRAS, k=2) == {
        "success_rate": 0.5,
        "pass^1": 0.5,
        "pass^2": 0.25,
    }


def test_a_problem_with_too_few_attempts_is_reported_and_no_number_is_invented() -> None:
    unit_results = attempts(first="+-", second="+--")
    assert aggregated("pass@k", unit_results, k=3, group_by="problem") == {
        "pass@1": pytest.approx(5 / 12), "pass@2": pytest.approx(5 / 6), "pass@3": None, "note": "1 of 2 problems have fewer than 3 attempts",
    }  # fmt: skip
    with pytest.raises(ValueError, match="pass@4 needs 4 attempts"):
        aggregated("pass@k", unit_results, k=4, group_by="problem")


def test_questions_are_not_taken_for_attempts_at_one_problem() -> None:
    unit_results = attempts(first="+", second="-")
    with pytest.raises(ValueError, match="add `group_by:`"):
        aggregated("pass@k", unit_results, k=2)
    assert aggregated("pass@k", unit_results, k=1) == {"pass@1": 0.5}
    with pytest.raises(ValueError, match="no 'question' in its metadata"):
        aggregated("pass@k", unit_results, k=1, group_by="question")


def test_step_efficiency_subtracts_a_penalty_for_every_retry() -> None:
    def attempt(step: int, retry: str, correct: bool) -> UnitMetricResult:
        return UnitMetricResult(correct, {}, {}, {"mission_id": "m", "step_id": step, "retry_id": retry})

    unit_results = [
        attempt(1, "retry_0", True), attempt(1, "retry_1", True),
        attempt(2, "retry_2", True), attempt(2, "retry_0", False), attempt(2, "retry_1", True),
        attempt(3, "retry_0", False), attempt(3, "retry_1", False),
    ]  # fmt: skip
    assert aggregated("step_efficiency", unit_results) == {  # 1, 1 - 0.2 and 0
        "step_efficiency": pytest.approx(0.6), "total_steps": 3, "first_attempt_correct": 1, "retry_correct": 1, "never_correct": 1, "avg_retries_when_correct": 0.5,
    }  # fmt: skip
    assert aggregated("step_efficiency", unit_results, penalty_per_retry=0.5)["step_efficiency"] == pytest.approx(0.5)


def test_steps_without_a_name_are_not_thrown_together() -> None:
    with pytest.raises(ValueError, match="no 'mission_id'"):
        aggregated("step_efficiency", attempts(first="+-"))


def test_attempts_without_a_number_are_counted_in_their_order() -> None:
    built = aggregated("step_efficiency", attempts(first="-+", second="+-"), group_by="problem")
    assert (built["step_efficiency"], built["first_attempt_correct"], built["retry_correct"]) == (
        pytest.approx(0.9),
        1,
        1,
    )


# --- names --------------------------------------------------------------------------------------------------------------------


def test_aggregations_of_assay_are_aggregator_metrics_by_name() -> None:
    scores = [UnitMetricResult(False, {}, {}, {"weight": n + 1}, n / 4) for n in range(5)]
    assert aggregated("mean", scores) == {"mean": 0.5}
    assert aggregated("perplexity", scores) == {"perplexity": pytest.approx(math.exp(-0.5))}
    # the sum of scores over the sum of weights: 2.5 / 15
    assert aggregated("weighted_perplexity", scores) == {"weighted_perplexity": pytest.approx(math.exp(-2.5 / 15))}
    run_results = results("aabbc", "abbbc")
    oracle = f1_score([*"aabbc"], [*"abbbc"], average="weighted")
    assert aggregated("weighted_f1", run_results) == {"weighted_f1": pytest.approx(oracle)}
    assert aggregated("class_recall", run_results, label="a") == {"class_recall": 0.5}
    assert set(AGGREGATIONS) <= set(AggregatorMetricRegistry.list_metrics())


def test_a_class_and_a_function_of_the_user_are_aggregator_metrics() -> None:
    @aggregator_metric("wrong")
    class Wrong(AggregatorMetric):
        def __init__(self, **config: Any) -> None:
            super().__init__(**config)

        def calculate(self, results: Any) -> dict[str, Any]:
            return {"wrong": self._safe_divide(len(results) - self._count_correct(results), len(results))}

    @aggregator_metric("above")
    def above(results: list[UnitMetricResult], *, bar: float) -> float:
        return sum(each.score > bar for each in results) / len(results)

    assert aggregated("wrong", results("ab", "aa")) == {"wrong": 0.5}
    assert aggregated("above", results("aba", "aab"), bar=0.5) == {"above": pytest.approx(1 / 3)}
    with pytest.raises(ConfigError, match="needs the parameter 'bar'"):
        AggregatorMetricRegistry.get_metric("above")
    with pytest.raises(TypeError, match="must be a class derived from AggregatorMetric"):
        aggregator_metric("mine")(dict)


@pytest.mark.parametrize(
    ("name", "params", "reported"),
    [
        ("acuracy", {}, "no aggregator metric named 'acuracy' — did you mean 'accuracy'?"),
        ("precision", {}, "needs the parameter 'predicted_key'"),
        ("precision", {"predicted_key": ""}, "predicted_key is empty"),
        ("f1_score", {**BOTH, "label": ["a"]}, "did you mean 'labels'?"),
        ("pass@k", {"k": 0}, "k must be at least 1"),
        ("pass@k", {"k": "3"}, "'k' cannot be '3'"),
        ("step_efficiency", {"penalty_per_retry": 2}, "must be between 0 and 1"),
    ],
)
def test_wrong_names_and_parameters_are_refused_with_a_remedy(name: str, params: dict[str, Any], reported: str) -> None:
    with pytest.raises(ConfigError) as refused:
        AggregatorMetricRegistry.get_metric(name, **params)
    assert reported in str(refused.value)


def test_of_nothing_there_is_no_number_but_sygras_zero() -> None:
    for name, params in {"accuracy": {}, **PARAMS, "pass@k": {"k": 1}, "mean": {}}.items():
        with pytest.raises(ValueError, match="no unit results"):
            aggregated(name, [], **params)
    assert aggregated("accuracy", [], dialect=SYGRAS) == {"accuracy": 0.0}
    assert aggregated("precision", [], dialect=SYGRAS, predicted_key="text") == {
        "average_precision": 0.0,
        "precision_per_class": {},
    }


# --- the report ---------------------------------------------------------------------------------------------------------------


def entry(name: str, column: str = COLUMN, **more: Any) -> dict[str, Any]:
    return {"name": name, "params": PARAMS.get(name, {}), "unit_metrics_results": [column], **more}


FOUR = [entry("accuracy", params={"key": "text"}), entry("precision"), entry("recall"), entry("f1_score")]


def records(golds: str, answers: str) -> list[dict[str, Any]]:
    return [{"topic": each.golden["text"], COLUMN: each.to_dict()} for each in results(golds, answers)]


def test_the_report_has_the_shape_of_the_seed() -> None:
    report = MetricCollatorPostProcessor(aggregator_metrics_map=FOUR).process(records("mmpo", "mppp"), {})
    # m: given once, right twice, found once; p: given three times, right once, found once; o: never given
    assert json.loads(json.dumps(report, allow_nan=False)) == [
        {
            "evaluation_summary": {"total_records": 4, "status": "success", "requested": 4, "ok": 4, "failed": 0, "skipped": 0},
            "results": {
                "accuracy": {"accuracy": 0.5},
                "precision": {"average_precision": pytest.approx(4 / 9), "precision_per_class": {"m": 1.0, "p": pytest.approx(1 / 3), "o": 0.0}},
                "recall": {"average_recall": 0.5, "recall_per_class": {"m": 0.5, "p": 1.0, "o": 0.0}},
                "f1_score": {
                    "average_f1_score": pytest.approx((2 / 3 + 1 / 2) / 3),
                    "f1_score_per_class": {"m": pytest.approx(2 / 3), "p": 0.5, "o": 0.0},
                },
            },
        }
    ]  # fmt: skip


def test_sygras_report_has_its_two_counts_and_its_averages() -> None:
    [report] = MetricCollatorPostProcessor(FOUR).process(records("mmpo", "mppp"), {"compat": "sygra"})
    assert report["evaluation_summary"] == {"total_records": 4, "status": "success"}
    # precision over m and p, recall over m, p and o: 2/3 and 1/2, whose harmonic mean is 4/7
    assert report["results"]["precision"]["average_precision"] == pytest.approx(2 / 3)
    assert report["results"]["f1_score"]["average_f1_score"] == pytest.approx(4 / 7)


def test_without_records_the_report_says_so() -> None:
    expected = {"total_records": 0, "status": "no_data", "requested": 3, "ok": 0, "failed": 3, "skipped": 0}
    assert collated([], FOUR, RecordCounts(3, 0, 3)) == [{"evaluation_summary": expected, "results": {}}]
    assert collated([], FOUR, compat="sygra") == [
        {"evaluation_summary": {"total_records": 0, "status": "no_data"}, "results": {}}
    ]


def test_records_that_failed_are_not_wrong_answers_and_make_the_report_incomplete() -> None:
    rows = [*records("ab", "ab"), {"topic": "c", COLUMN: None}]
    [report] = collated(rows, [entry("accuracy")], RecordCounts(4, 2, 1, 1))
    assert report["results"] == {"accuracy": {"accuracy": 1.0}}
    assert report["evaluation_summary"] == {
        "total_records": 3, "status": "incomplete", "requested": 4, "ok": 2, "failed": 1, "skipped": 1, "without_result": {"accuracy": 1},
    }  # fmt: skip
    [counted] = collated(rows, [entry("accuracy")])
    assert (counted["evaluation_summary"]["ok"], counted["evaluation_summary"]["failed"]) == (2, 1)
    [theirs] = collated(rows, [entry("accuracy")], compat="sygra")
    assert theirs["evaluation_summary"] == {"total_records": 3, "status": "success"}


def test_one_failing_aggregator_does_not_discard_the_others() -> None:
    @aggregator_metric("broken")
    def broken(results: Any) -> float:
        return 1 / 0

    [report] = collated(records("ab", "aa"), [entry("broken"), entry("accuracy"), entry("acuracy")])
    assert report["results"]["accuracy"] == {"accuracy": 0.5}
    assert report["results"]["broken"] == {
        "error": f"ZeroDivisionError: division by zero (test_aggregator_metrics.py:{broken.__code__.co_firstlineno + 2})"
    }
    assert "did you mean 'accuracy'?" in report["results"]["acuracy"]["error"]
    assert report["evaluation_summary"]["status"] == "incomplete"
    assert "broken: ZeroDivisionError" in report["evaluation_summary"]["error"]
    [theirs] = collated(records("ab", "aa"), [entry("accuracy"), entry("broken")], compat="sygra")
    assert theirs["results"] == {}
    assert theirs["evaluation_summary"]["status"] == "fatal_error"


def test_a_missing_column_is_reported_with_the_existing_ones() -> None:
    [report] = collated(records("ab", "aa"), [entry("accuracy", "exact_match")])
    assert report["evaluation_summary"]["status"] == "fatal_error"
    assert f"'exact_match' in data. Available columns: topic, {COLUMN}" in report["evaluation_summary"]["error"]
    [other] = collated(records("ab", "aa"), [entry("accuracy", "topic")])
    assert "holds something else than results of a unit metric" in other["results"]["accuracy"]["error"]


def test_infinities_of_an_aggregator_never_reach_json() -> None:
    @aggregator_metric("endless")
    def endless(results: Any) -> dict[str, float]:
        return {"endless": math.inf}

    report = collated(records("a", "a"), [entry("endless")])
    assert json.loads(json.dumps(report, allow_nan=False))[0]["results"] == {"endless": {"endless": None}}


def test_numbers_can_be_named_by_column_by_as_and_by_default_by_the_metric() -> None:
    rows = [{**row, "fuzzy": row[COLUMN]} for row in records("ab", "aa")]
    two = [entry("accuracy"), entry("accuracy", "fuzzy", **{"as": "near"})]
    assert list(collated(rows, two)[0]["results"]) == ["accuracy", "near"]
    assert list(collated(rows, [entry("accuracy")], field_names=True)[0]["results"]) == [f"{COLUMN}-accuracy"]
    items = [{"name": "accuracy", "unit_metrics_results": [COLUMN, "fuzzy"]}]
    assert list(collated(rows, items)[0]["results"]) == [f"{COLUMN}-accuracy", "fuzzy-accuracy"]
    assert list(MetricCollatorPostProcessor([{"name": "accuracy"}], unit_metrics_results="fuzzy", field_names=True).process(rows, {})[0]["results"]) == ["fuzzy-accuracy"]  # fmt: skip


def test_columns_of_the_records_reach_the_aggregators() -> None:
    rows = [{COLUMN: UnitMetricResult(turn < 2, {}, {}), "mission": 1, "turn": turn, "retry_id": f"retry_{retry}"} for turn in (1, 2) for retry in (0, 1)]  # fmt: skip
    metadata = {"mission_id": "mission", "step_id": "turn", "retry_id": "retry_id"}
    entries = [
        entry("pass@k", params={"k": 2}, metadata=metadata),
        entry("step_efficiency", metadata=metadata),
        entry("pass^k", params={"k": 2, "group_by": "turn"}),
    ]
    assert MetricCollatorPostProcessor(entries).problems(rows[0], here) == []
    [report] = collated(rows, entries)
    assert report["results"]["pass@k"] == {"pass@1": 0.5, "pass@2": 0.5}
    assert report["results"]["step_efficiency"]["step_efficiency"] == 0.5
    assert report["results"]["pass^k"]["pass^2"] == 0.5


@pytest.mark.slow
def test_records_are_read_once_and_not_kept() -> None:
    def stream(count: int) -> Iterator[dict[str, Any]]:
        for number in range(count):
            label = "abcd"[number % 4]
            yield {
                "long": "x" * 2000,
                COLUMN: UnitMetricResult(
                    number % 2 == 0, {"text": label}, {"text": "a"}, {"long": "y" * 2000}
                ).to_dict(),
            }

    collated(stream(10), FOUR)
    tracemalloc.start()
    [report] = collated(stream(20_000), FOUR)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report["evaluation_summary"]["total_records"] == 20_000
    assert peak < 2_000_000  # the records together are eighty


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([entry("acuracy")], "did you mean 'accuracy'?"),
        ([entry("accuracy", "exact_match")], "aggregates 'exact_match', which the records do not have — did you mean 'exact_match_result'?"),
        ([entry("precision", params={})], "needs the parameter 'predicted_key'"),
        ([entry("accuracy", parms={})], "unknown key 'parms' — did you mean 'params'?"),
        ([{"name": "accuracy"}], "'accuracy' aggregates nothing"),
        ([{"params": {}}], "entry 1 of aggregator_metrics_map names no metric"),
        ([entry("accuracy"), entry("accuracy")], "two aggregators are called 'accuracy'"),
        ([entry("pass@k", params={"k": 2})], "must know which records are attempts at the same problem — add `group_by:`"),
        ([entry("pass@k", params={"k": 2, "group_by": "topik"})], "reads 'topik', which the records do not have — did you mean 'topic'?"),
        ([entry("accuracy", metadata={"id": "nr"})], "reads 'nr', which the records do not have"),
    ],
)  # fmt: skip
def test_problems_of_aggregators_are_reported_before_the_run(entries: list[Any], expected: str) -> None:
    assert MetricCollatorPostProcessor(FOUR).problems(["topic", COLUMN], here) == []
    problems = MetricCollatorPostProcessor(entries).problems(["topic", COLUMN], here)
    assert expected in "\n".join(map(str, problems))
    assert all(problem.place == HERE and problem.fix for problem in problems)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (
            {"agregator_metrics_map": []},
            "no parameter 'agregator_metrics_map' — did you mean 'aggregator_metrics_map'?",
        ),
        ({"aggregator_metrics_map": {}}, "'aggregator_metrics_map' cannot be {}"),
        ({}, "MetricCollatorPostProcessor aggregates nothing — add `aggregator_metrics_map:`"),
        ({"aggregator_metrics_map": ["accuracy"]}, "entry 1 of aggregator_metrics_map names no metric"),
        ({"aggregator_metrics_map": [{"name": "accuracy"}], "unit_metrics_results": "topics"}, "aggregates 'topics'"),
    ],
)
def test_problems_of_a_post_processor_are_reported_before_the_run(
    tmp_path: Path, params: dict[str, Any], expected: str
) -> None:
    graph, _, _ = CLASSIFICATION.partition("graph_post_process:")
    processor = {"processor": "tasks.eval.utils.MetricCollatorPostProcessor", "params": params}
    graph += json.dumps({"graph_post_process": [processor]})[1:-1] + "\n"
    folder = write_graph(tmp_path, [{"task_id": 1, "problem": "p", "topic": "t"}], graph, kind="classification")
    with pytest.raises(ConfigError) as refused:
        assay.simple_evaluate("dummy", tasks=[str(folder)])
    assert expected in str(refused.value)


def test_repeated_names_overwrite_each_other_only_as_sygra_has_it() -> None:
    twice = [entry("accuracy"), entry("accuracy", "other_result")]
    rows = [{**row, "other_result": UnitMetricResult(False, {}, {}).to_dict()} for row in records("ab", "ab")]
    assert MetricCollatorPostProcessor(twice).problems(rows[0], here, dialect=SYGRAS) == []
    assert collated(rows, twice, compat="sygra")[0]["results"] == {"accuracy": {"accuracy": 0.0}}


def test_an_aggregator_metric_that_yields_or_is_async_is_refused_where_it_is_registered() -> None:
    async def waits(results: Any) -> Any:
        return {}

    def yields(results: Any) -> Any:
        yield 1.0

    for function, reason in ((waits, "is async"), (yields, "yields, and must return its value")):
        with pytest.raises(TypeError, match=reason):
            assay.aggregator_metric("own")(function)
