"""Aggregators: their numbers by hand and by scipy, their standard errors by the delta method written out."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import gmean, hmean  # type: ignore[import-untyped]

import assay
from assay import (
    AggMetricConfig,
    CustomAggregator,
    Estimate,
    GroupConfig,
    NoOpAggregator,
    RowAggregator,
    StandardGroup,
    register_aggregator,
)
from assay.groups.task_results import EstimatedFloat
from assay.score_keys import ScoreKey
from assay.statistics import combine
from assay.statistics.aggregations import AGGREGATIONS
from assay.tasks.validate import validate
from group_world import (
    Plain,
    by_filter,
    computed,
    group_file,
    group_of,
    group_row,
    rows_of,
    scored,
    twins,
)
from seam_world import world_of
from small_runs import ANYTHING, run

VALUES, SIZES = (0.5, 0.25, 1.0), (1, 3, 4)
THREE: Plain = {
    name: {"acc,none": value, "samples": size} for name, value, size in zip("abc", VALUES, SIZES, strict=True)
}

NUMBERS: dict[str, tuple[dict[str, object], float, float]] = {
    # the entry, its number with every member alike, and by size
    "mean": ({}, 1.75 / 3, (0.5 + 0.75 + 4) / 8),
    "harmonic_mean": ({}, float(hmean(VALUES)), float(hmean(VALUES, weights=SIZES))),
    "geometric_mean": ({}, float(gmean(VALUES)), float(gmean(VALUES, weights=SIZES))),
    "min": ({}, 0.25, 0.25),
    "max": ({}, 1.0, 1.0),
    "weighted_sum": ({"kwargs": {"weights": {"a": 2, "b": -1, "c": 0.5}}}, 1.25, 1.25),
    "difference": ({"kwargs": {"of": ["c", "a"]}}, 0.5, 0.5),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_with_and_without_sizes(name: str) -> None:
    entry, alike, by_size = NUMBERS[name]
    entry = {"metric": "acc", "aggregation": name, **entry}
    assert computed(THREE, {**entry, "weight_by_size": False}) == {"acc,none": pytest.approx(alike, abs=1e-12)}
    assert computed(THREE, {**entry, "weight_by_size": True}) == {"acc,none": pytest.approx(by_size, abs=1e-12)}


def test_only_a_mean_is_weighted_by_size_by_default() -> None:
    for name, (more, alike, by_size) in NUMBERS.items():
        [result] = computed(THREE, {"metric": "acc", "aggregation": name, **more}).values()
        assert result == pytest.approx(by_size if name == "mean" else alike, abs=1e-12), name


def test_a_median_of_odd_and_even_numbers_of_members() -> None:
    assert computed(THREE, {"metric": "acc", "aggregation": "median"}) == {"acc,none": 0.5}
    two = {name: THREE[name] for name in "ac"}
    assert computed(two, {"metric": "acc", "aggregation": "median"}) == {"acc,none": 0.75}


def test_weights_may_be_made_to_add_up_to_one() -> None:
    kwargs = {"weights": {"a": 2, "b": 1, "c": 1}, "normalize": True}
    result = computed(THREE, {"metric": "acc", "aggregation": "weighted_sum", "kwargs": kwargs})
    assert result == {"acc,none": pytest.approx((1 + 0.25 + 1) / 4, abs=1e-15)}


def test_plain_numbers_have_no_standard_error_and_say_so() -> None:
    result = computed(THREE, {"metric": "acc"})["acc,none"]
    assert isinstance(result, EstimatedFloat)
    number = result.estimate
    assert (number.stderr, number.n, number.evidence.tasks) == (None, 8, 3)
    assert "no standard error is known of a, b, c" in number.reason


def test_a_group_of_nothing_computes_nothing() -> None:
    assert NoOpAggregator(GroupConfig(group="g")).aggregate(StandardGroup(GroupConfig(group="g")), THREE) == {}


# --- standard errors ----------------------------------------------------------------------------------------------

DOCUMENTS = {"a": (0.8, 0.6, 0.7, 0.9), "b": (0.3, 0.5), "c": (0.5, 0.9, 0.7)}
"""All well above 0, where a straight line does for means that end there."""
X = {name: statistics.mean(scores) for name, scores in DOCUMENTS.items()}
V = {name: statistics.variance(scores) / len(scores) for name, scores in DOCUMENTS.items()}
N = {name: len(scores) for name, scores in DOCUMENTS.items()}
H = 3 / sum(1 / x for x in X.values())
HW = 9 / sum(N[name] / X[name] for name in X)
G = math.prod(X.values()) ** (1 / 3)

ERRORS: dict[str, tuple[str, dict[str, float]]] = {
    # what is written, and the derivative of the number by each member
    "mean by size": ("aggregation: mean", {name: N[name] / 9 for name in X}),
    "mean of tasks": ("aggregation: mean, weight_by_size: false", dict.fromkeys(X, 1 / 3)),
    "harmonic": ("aggregation: harmonic_mean", {name: H**2 / (3 * X[name] ** 2) for name in X}),
    "harmonic by size": (
        "aggregation: harmonic_mean, weight_by_size: true",
        {name: HW**2 * N[name] / (9 * X[name] ** 2) for name in X},
    ),
    "geometric": ("aggregation: geometric_mean", {name: G / (3 * X[name]) for name in X}),
    "weighted sum": ("aggregation: weighted_sum, kwargs: {weights: {a: 2, b: -1, c: 0}}", {"a": 2, "b": -1, "c": 0}),
    "difference": ("aggregation: difference, kwargs: {of: [a, c]}", {"a": 1, "b": 0, "c": -1}),
    # aggregations of scores, which declare an influence
    "mean of numbers": ("aggregation: nanmean", dict.fromkeys(X, 1 / 3)),
    "perplexity": ("aggregation: perplexity", dict.fromkeys(X, -math.exp(-sum(X.values()) / 3) / 3)),
}


@pytest.mark.parametrize("case", ERRORS)
def test_standard_errors_by_the_delta_method(case: str, tmp_path: Path) -> None:
    written, slopes = ERRORS[case]
    for name, scores in DOCUMENTS.items():
        scored(tmp_path, name, acc=scores)
    row = group_row(tmp_path, f"group: g\ntask: [a, b, c]\naggregate_metric_list: [{{metric: acc, {written}}}]\n")
    assert row["stderr"] == pytest.approx(math.sqrt(sum(slopes[n] ** 2 * V[n] for n in X)), abs=1e-12)
    assert row["interval"][0] < row["value"] < row["interval"][1]


def trimmed(values: Sequence[float], *, cut: int = 1) -> float:
    """The mean without the least and the greatest values."""
    kept = sorted(values)[cut:-cut]
    return sum(kept) / len(kept)


@pytest.fixture
def trimmed_mean() -> Iterator[None]:
    assay.aggregation("trimmed_mean")(trimmed)
    yield
    del AGGREGATIONS["trimmed_mean"]


@pytest.mark.usefixtures("trimmed_mean")
def test_an_aggregation_of_scores_aggregates_the_members_of_a_group(tmp_path: Path) -> None:
    entry = {"metric": "acc", "aggregation": "trimmed_mean"}
    assert computed(THREE, entry) == {"acc,none": 0.5}  # of 0.25, 0.5 and 1
    assert computed({**THREE, "d": {"acc,none": 0.75, "samples": 1}}, entry) == {"acc,none": 0.625}  # of 0.5 and 0.75
    five = {str(number): {"acc,none": number / 10, "samples": 1} for number in (1, 2, 3, 8, 9)}
    assert computed(five, {**entry, "kwargs": {"cut": 2}}) == {"acc,none": 0.3}
    for name, scores in DOCUMENTS.items():
        scored(tmp_path, name, acc=scores)
    row = group_row(
        tmp_path, "group: g\ntask: [a, b, c]\naggregate_metric_list: [{metric: acc, aggregation: trimmed_mean}]\n"
    )
    assert (row["value"], row["stderr"]) == (pytest.approx(0.7), None)  # of 0.4, 0.7 and 0.75
    assert "declares no influence" in row["reason"]


@pytest.mark.usefixtures("trimmed_mean")
@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ("aggregation: trimmed_mean, kwargs: {cutt: 2}", "aggregator 'trimmed_mean' has no parameter 'cutt' — did you mean 'cut'?"),
        ("aggregation: trimmed_mean, kwargs: {cut: a}", "aggregator 'trimmed_mean': 'cut' cannot be 'a'"),
        ("aggregation: trimmed_men", "no aggregator named 'trimmed_men' — did you mean 'trimmed_mean'?"),
        ("aggregation: trimmed_mean, weight_by_size: true", "does not weight members by size — remove `weight_by_size`"),
        ("aggregation: max, weight_by_size: true", "does not weight members by size — remove `weight_by_size`"),
        ("aggregation: bleu", "no aggregator named 'bleu'"),  # of pairs of texts, which members have not
    ],
)  # fmt: skip
def test_what_an_aggregation_of_a_group_cannot_use_is_refused_by_validate_and_run(
    entry: str, what: str, tmp_path: Path
) -> None:
    for name, scores in DOCUMENTS.items():
        scored(tmp_path, name, acc=scores)
    group_file(tmp_path, f"group: g\ntask: [a, b, c]\naggregate_metric_list:\n  - {{metric: acc, {entry}}}\n")
    manager = assay.TaskManager(include_path=str(tmp_path), include_defaults=False)
    with pytest.raises(assay.ConfigError) as refused:
        run(tmp_path, ANYTHING, "g")
    problems = [problem for problem in validate(manager, ["g"]) if problem.serious]
    assert what in str(refused.value)
    assert [str(problem) for problem in problems] == [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize("name", ["min", "max"])
def test_the_least_and_the_greatest_have_no_standard_error_and_say_why(name: str, tmp_path: Path) -> None:
    for each, scores in DOCUMENTS.items():
        scored(tmp_path, each, acc=scores)
    row = group_row(
        tmp_path, f"group: g\ntask: [a, b, c]\naggregate_metric_list: [{{metric: acc, aggregation: {name}}}]\n"
    )
    assert (row["stderr"], row["interval"], row["value"]) == (
        None,
        None,
        pytest.approx({"min": 0.4, "max": 0.75}[name]),
    )
    assert "matter of chance" in row["reason"]


def test_a_difference_of_shares_lies_between_minus_1_and_1(tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[1, 1, 1])
    scored(tmp_path, "b", acc=[0, 0, 0])
    entry = "{metric: acc, aggregation: difference}"
    row = group_row(tmp_path, f"group: g\ntask: [a, b]\naggregate_metric_list: [{entry}]\n")
    assert (row["value"], row["scale"]) == (1.0, [-1.0, 1.0])
    assert -1.0 <= row["interval"][0] < row["interval"][1] <= 1.0


def test_a_median_between_far_members_varies_as_its_middle_one(tmp_path: Path) -> None:
    middle = [0.4, 0.6] * 20
    scored(tmp_path, "low", acc=[0.1, 0.12] * 20)
    scored(tmp_path, "mid", acc=middle)
    scored(tmp_path, "high", acc=[0.9, 0.92] * 20)
    row = group_row(
        tmp_path, "group: g\ntask: [low, high, mid]\naggregate_metric_list: [{metric: acc, aggregation: median}]\n"
    )
    assert row["value"] == pytest.approx(0.5)
    error = statistics.stdev(middle) / math.sqrt(40)
    assert row["stderr"] == pytest.approx(error, rel=0.08)
    width = 2 * 2.0227 * error  # of Student's with 39 degrees of freedom
    assert row["interval"] == [
        pytest.approx(0.5 - width / 2, abs=0.1 * width),
        pytest.approx(0.5 + width / 2, abs=0.1 * width),
    ]


def test_a_median_of_two_members_has_the_interval_of_their_mean(tmp_path: Path) -> None:
    """They are one number. The interval depends on how seldom the smaller one, all right, is known to be wrong."""
    scored(tmp_path, "few", acc=[1, 1, 1])
    scored(tmp_path, "many", acc=[1, 0, 0, 0] * 10)
    entries = "{metric: acc, weight_by_size: false}, {metric: acc, aggregation: median, name: median}"
    group_file(tmp_path, f"group: g\ntask: [few, many]\naggregate_metric_list: [{entries}]\n")
    rows = rows_of(run(tmp_path, ANYTHING, "g"), "g")
    assert rows["median,none"]["value"] == rows["acc,none"]["value"] == 0.625
    assert rows["median,none"]["interval"] == pytest.approx(rows["acc,none"]["interval"], abs=0.005)


FIRST, SECOND = (1, 0, 1, 1, 0), (1, 0, 0, 1, 0.5)


def test_a_group_whose_error_a_few_documents_make_says_so_and_one_read_as_lm_eval_does_not(tmp_path: Path) -> None:
    for name in ("a", "b"):
        scored(tmp_path, name, acc=[0] * 19 + [100])
    group_file(tmp_path, "group: g\ntask: [a, b]\naggregate_metric_list: [{metric: acc}]\n")
    # of the squared deviations 95² + 19 · 5² of each task, one document's are 95 %
    note = "2 of 40 documents make half of its uncertainty: others may move it further than its interval says"
    assert rows_of(run(tmp_path, ANYTHING, "g"), "g")["acc,none"]["note"] == note
    assert "note" not in rows_of(run(tmp_path, ANYTHING, "g", compat="lm-eval"), "g")["acc,none"]


@pytest.mark.parametrize(
    ("written", "of_one"),
    [
        ("aggregation: mean", lambda x, y: (x + y) / 2),
        ("aggregation: difference", lambda x, y: x - y),
        ("aggregation: weighted_sum, kwargs: {weights: {x: 3, y: 1}}", lambda x, y: 3 * x + y),
    ],
)
def test_documents_that_two_tasks_share_are_one_draw(
    written: str, of_one: Callable[[float, float], float], tmp_path: Path
) -> None:
    """So the number is the mean over documents of what each gives to it."""
    group = f"group: g\ntask: [x, y]\naggregate_metric_list: [{{metric: acc, {written}}}]\n"
    twins(tmp_path, x=FIRST, y=SECOND)
    together = [of_one(x, y) for x, y in zip(FIRST, SECOND, strict=True)]
    row = group_row(tmp_path, group)
    assert row["value"] == pytest.approx(statistics.mean(together), abs=1e-12)
    assert row["stderr"] == pytest.approx(statistics.stdev(together) / math.sqrt(5), abs=1e-12)
    scored(tmp_path, "x", acc=FIRST)
    scored(tmp_path, "y", acc=SECOND)
    apart = math.sqrt(
        sum(of_one(*one) ** 2 * statistics.variance(s) / 5 for one, s in (((1, 0), FIRST), ((0, 1), SECOND)))
    )
    assert group_row(tmp_path, group)["stderr"] == pytest.approx(apart, abs=1e-12)


def test_a_task_in_two_groups_of_a_group_of_groups_moves_both(tmp_path: Path) -> None:
    """mean(mean(a, b), mean(b, c)) = a/4 + b/2 + c/4, and b varies once."""
    for name, scores in DOCUMENTS.items():
        scored(tmp_path, name, acc=scores)
    entry = "aggregate_metric_list: [{metric: acc, weight_by_size: false%s}]\n"
    group_file(tmp_path, "group: one\ntask: [a, b]\n" + entry % "", "one")
    group_file(tmp_path, "group: two\ntask: [b, c]\n" + entry % "", "two")
    row = group_row(tmp_path, "group: g\ntask: [one, two]\n" + entry % ", levels: children")
    assert row["value"] == pytest.approx(X["a"] / 4 + X["b"] / 2 + X["c"] / 4, abs=1e-12)
    assert row["stderr"] == pytest.approx(math.sqrt(V["a"] / 16 + V["b"] / 4 + V["c"] / 16), abs=1e-12)


@pytest.mark.parametrize("written", ["mean", "harmonic_mean", "geometric_mean", "median", "difference"])
def test_equal_scores_have_error_0_and_an_interval_that_is_not_a_point(written: str, tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[0] * 20 if written in ("mean", "difference") else [1] * 20)
    scored(tmp_path, "b", acc=[0] * 10 if written == "mean" else [1] * 10)
    row = group_row(
        tmp_path, f"group: g\ntask: [a, b]\naggregate_metric_list: [{{metric: acc, aggregation: {written}}}]\n"
    )
    assert row["stderr"] == 0
    assert row["interval"][0] < row["interval"][1]


# --- filters, names, levels ---------------------------------------------------------------------------------------

TWO_FILTERS: Plain = {
    "a": {"f1,none": 0.1, "f1,strict": 0.2, "f1,loose": 0.4, "samples": 2},
    "b": {"f1,none": 0.3, "f1,strict": 0.6, "f1,loose": 0.8, "samples": 2},
}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, {"f1,none": 0.2, "f1,strict": 0.4, "f1,loose": 0.6}),
        ({"filter_list": "strict"}, {"f1,strict": 0.4}),
        ({"filter_list": "default"}, {"f1,none": 0.2}),
        ({"filter_list": "none"}, {"f1,none": 0.2}),
        ({"filter_list": ["loose", "strict"]}, {"f1,strict": 0.4, "f1,loose": 0.6}),
        ({"filter_list": ["strict", "loose"], "combine": True}, {"f1,strict+loose": 0.5}),
        ({"filter_list": {"a": "strict", "*": "loose"}}, {"f1,strict+loose": 0.5}),
        ({"filter_list": {"b": "loose"}}, {"f1,none+loose": 0.45}),
        ({"filter_list": "strict", "name": "score"}, {"score,strict": 0.4}),
    ],
)
def test_forms_of_filter_list(written: dict[str, object], expected: dict[str, float]) -> None:
    assert computed(TWO_FILTERS, {"metric": "f1", **written}) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("missing", [None, "skip", "error"])
def test_filters_are_not_combined_where_no_member_has_any(missing: str | None) -> None:
    assert computed(THREE, {"metric": "f1", "combine": True, "missing": missing}) == {}


def test_combined_filters_count_a_document_once(tmp_path: Path) -> None:
    by_filter(tmp_path, "a", strict=(0.0, 1.0), lenient=(1.0, 1.0))
    by_filter(tmp_path, "b", strict=(0.5, 0.5), lenient=(0.5, 0.7))
    entry = "{metric: f1, filter_list: [strict, lenient], combine: true}"
    row = group_row(tmp_path, f"group: g\ntask: [a, b]\naggregate_metric_list: [{entry}]\n", "f1,strict+lenient")
    assert (row["n"], row["value"]) == (4, pytest.approx((0.5 + 1.0 + 0.5 + 0.6) / 4))
    spread = math.sqrt(2**2 * statistics.variance((0.5, 1.0)) / 2 + 2**2 * statistics.variance((0.5, 0.6)) / 2) / 4
    assert row["stderr"] == pytest.approx(spread, abs=1e-12)


@pytest.mark.parametrize(("levels", "expected"), [("leaves", 1.0 / 3), ("children", (0.25 + 0.5) / 2)])
def test_levels_choose_tasks_or_members(levels: str, expected: float, tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[0, 0])
    scored(tmp_path, "b", acc=[1, 0])
    scored(tmp_path, "c", acc=[1, 0])
    group_file(tmp_path, "group: inner\ntask: [a, b]\naggregate_metric_list: [{metric: acc}]\n", "inner")
    entry = f"{{metric: acc, weight_by_size: false, levels: {levels}}}"
    row = group_row(tmp_path, f"group: g\ntask: [inner, c]\naggregate_metric_list: [{entry}]\n")
    assert row["value"] == pytest.approx(expected, abs=1e-15)


def test_the_direction_of_a_row_may_be_given(tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[0, 1])
    group_file(tmp_path, "group: g\ntask: [a]\naggregate_metric_list: [{metric: acc, higher_is_better: false}]\n")
    assert run(tmp_path, ANYTHING, "g")["higher_is_better"]["g"] == {"acc": False}


def test_a_renamed_row_keeps_the_direction_of_its_metric(tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[0, 1])
    group_file(tmp_path, "group: g\ntask: [a]\naggregate_metric_list: [{metric: acc, name: score}]\n")
    assert run(tmp_path, ANYTHING, "g")["higher_is_better"]["g"]["score"] is True


# --- functions and plug-ins ---------------------------------------------------------------------------------------


def test_a_function_gives_rows_or_one_number() -> None:
    config = GroupConfig(group="g", aggregate_metric_list=[AggMetricConfig(metric="best")])
    group = group_of(["a", "b", "c"])

    def best(group: Any, results: Mapping[str, Mapping[str, float]]) -> float:
        return max(results[task.name]["acc,none"] for task in group.get_all_tasks())

    assert CustomAggregator(config, best).aggregate(group, THREE) == {"best,none": 1.0}
    rows = CustomAggregator(config, lambda group, results: {"best,x": best(group, results), "n,none": 8})
    assert rows.aggregate(group, THREE) == {"best,x": 1.0, "n,none": 8.0}


def test_a_function_beside_the_file_aggregates_a_run(tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[0, 1])
    (tmp_path / "own.py").write_text("def best(group, results):\n    return 10 * results['a']['acc,none']\n")
    written = "[{metric: best, aggregation: !function own.best}, {metric: acc}]"
    group_file(tmp_path, f"group: g\ntask: [a]\naggregate_metric_list: {written}\n")
    rows = rows_of(run(tmp_path, ANYTHING, "g"), "g")
    assert (rows["best,none"]["value"], rows["best,none"]["stderr"]) == (5.0, None)
    assert rows["acc,none"]["value"] == 0.5


def test_parameters_of_a_function_reach_it(tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[0, 1])
    (tmp_path / "own.py").write_text("def times(group, results, by=1):\n    return by * results['a']['acc,none']\n")
    entry = "{metric: m, aggregation: !function own.times, kwargs: {by: 4}}"
    assert group_row(tmp_path, f"group: g\ntask: [a]\naggregate_metric_list: [{entry}]\n", "m,none")["value"] == 2.0


def test_a_function_that_fails_after_the_run_loses_only_its_own_row(tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[0, 1])
    (tmp_path / "own.py").write_text("def bad(group, results):\n    return 1 / 0\n")
    written = "[{metric: m, aggregation: !function own.bad}, {metric: acc}]"
    group_file(tmp_path, f"group: g\ntask: [a]\naggregate_metric_list: {written}\n")
    results = run(tmp_path, ANYTHING, "g")
    assert results["groups"]["g"]["acc,none"] == 0.5
    assert "ZeroDivisionError" in rows_of(results, "g")["m,none"]["reason"]


def test_a_scorer_of_a_group_adds_rows(tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[0, 1])
    code = "def gap(group, results):\n    return {'gap,none': 1 - results['a']['acc,none'], 'members': len(group.children)}\n"
    (tmp_path / "own.py").write_text(code)
    group_file(
        tmp_path, "group: g\ntask: [a]\ngroup_scorer: !function own.gap\naggregate_metric_list: [{metric: acc}]\n"
    )
    rows = rows_of(run(tmp_path, ANYTHING, "g"), "g")
    assert {key: row["value"] for key, row in rows.items()} == {"acc,none": 0.5, "gap,none": 0.5, "members,none": 1.0}


@pytest.mark.parametrize("entries", ["aggregate_metric_list: [{metric: acc}]\n", ""])
def test_a_failing_group_scorer_is_reported(entries: str, tmp_path: Path) -> None:
    scored(tmp_path, "a", acc=[0, 1])
    (tmp_path / "own.py").write_text("def gap(group, results):\n    return {'gap,none': results['a']['nothing']}\n")
    group_file(tmp_path, f"group: g\ntask: [a]\ngroup_scorer: !function own.gap\n{entries}")
    rows = rows_of(run(tmp_path, ANYTHING, "g"), "g")
    assert "KeyError" in rows["gap,none"]["reason"]
    assert rows["gap,none"]["value"] is None
    if entries:
        assert rows["acc,none"]["value"] == 0.5


def test_a_plug_in_is_a_class_of_a_few_lines() -> None:
    @register_aggregator("range")
    class Range(RowAggregator):
        def combine(self, members: Sequence[Any], weights: Sequence[float]) -> Estimate:
            values = [float(member.estimate) for member in members]
            return Estimate(max(values) - min(values))

    assert computed(THREE, {"metric": "acc", "aggregation": "range"}) == {"acc,none": 0.75}


@pytest.mark.parametrize(("returned", "value", "reason"), [
    (0.5, 0.5, "returned by a user function"),
    ("half", None, "a value of type 'str', not a number"),
    (Estimate(math.nan, 0.1, 3), None, "returned no number"),
    (Estimate(0.5, math.nan, 3), 0.5, "nan as its standard error"),
    (Estimate(0.5, -1.0, 3), 0.5, "-1.0 as its standard error"),
    (Estimate(0.5, "wide", 3), 0.5, "'wide' as its standard error"),  # type: ignore[arg-type]
    (Estimate(0.5, 0.1, None), None, "n = None, which is no count of documents"),  # type: ignore[arg-type]
])  # fmt: skip
def test_what_a_users_combine_returns_is_checked(
    returned: Any, value: float | None, reason: str, tmp_path: Path
) -> None:
    @register_aggregator("own_combine")
    class Own(RowAggregator):
        def combine(self, members: Sequence[Any], weights: Sequence[float]) -> Any:
            return returned

    scored(tmp_path, "a", acc=[0, 1])
    entries = "[{metric: acc, aggregation: own_combine}]"
    group_file(tmp_path, f"group: g\ntask: [a]\naggregate_metric_list: {entries}\n")
    row = rows_of(run(tmp_path, ANYTHING, "g"), "g")["acc,none"]
    assert row["value"] == value
    assert reason in row["reason"]
    assert row.get("stderr") is None


def test_a_function_written_for_lm_evals_groups_is_called_as_there(tmp_path: Path) -> None:
    """lm-eval gives the members' values, their sizes and `weight_by_size`: here (0.5 · 2 - 1 · 1) / 3, then without sizes."""
    scored(tmp_path, "a", acc=[0, 1])
    scored(tmp_path, "b", acc=[1])
    code = "def gap(values, sizes, weight_by_size):\n    w = sizes if weight_by_size else [1, 1]\n    return (values[0] * w[0] - values[1] * w[1]) / sum(w)\n"
    (tmp_path / "own.py").write_text(code)
    entries = "[{metric: acc, aggregation: !function own.gap}, {metric: acc, name: plain, aggregation: !function own.gap, weight_by_size: false}]"
    group_file(tmp_path, f"group: g\ntask: [a, b]\naggregate_metric_list: {entries}\n")
    rows = rows_of(run(tmp_path, ANYTHING, "g"), "g")
    assert {key: row["value"] for key, row in rows.items()} == {"acc,none": 0.0, "plain,none": -0.25}


OWN_ERROR = """
from assay import Estimate, RowAggregator

class Own(RowAggregator):
    def combine(self, members, weights):
        return Estimate(0.25, 0.1, sum(member.size for member in members))
"""


def test_the_error_that_a_users_aggregator_gives_is_part_of_that_of_the_group_above(tmp_path: Path) -> None:
    """The mean of 1/4 ± 1/10 and 1/8 ± √(7/64 / 7) = 1/8: √((1/10)² + (1/8)²) / 2."""
    entry = "aggregate_metric_list: [{metric: exact_match, "
    inner = f"group: inner\ntask: [a, b]\n{entry}aggregation: !function own.Own}}]\n"
    outer = f"group: outer\ntask: [inner, b]\n{entry}levels: children, weight_by_size: false}}]\n"
    world = world_of(tmp_path, {"own.py": OWN_ERROR, "inner.yaml": inner, "outer.yaml": outer})
    options = {"output_path": str(tmp_path / "run"), "progress": False, **world.options}
    results = assay.run(world.model(), tasks=["outer"], **options).results
    row = results.row("outer", ScoreKey("exact_match", "none"))
    assert row is not None
    assert (row.estimate.value, row.estimate.stderr) == (0.1875, pytest.approx(math.hypot(0.1, 0.125) / 2))


def test_combine_counts_the_error_of_an_estimate_that_is_given() -> None:
    """2/10 · 0.3 and 8/10 · 0.125: √(0.06² + 0.1²)."""
    combined = combine([Estimate(0.5, 0.3, 2), Estimate(0.125, 0.125, 8)])
    assert (combined.value, combined.stderr) == (0.2, pytest.approx(math.hypot(0.06, 0.1)))
