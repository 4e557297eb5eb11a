"""Numbers and their standard errors: of a task, of repeats, of groups; as lm-eval has them, and corrected.

Where a comment does not say otherwise, literals come from `stderr_for_metric` and its kin in lm_eval 0.4.13.
"""

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay import AggMetricConfig, ConfigError
from assay.groups.pooled_means import pooled_means, pooled_stderr, weighted_mean
from assay.groups.task_results import MemberRows
from assay.score_keys import ScoreKey
from assay.statistics.aggregations import AGGREGATIONS
from assay.statistics.estimates import StderrMethod, bootstrap, estimate
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.influence import Influence
from run_world import rows_of
from small_runs import ANYTHING, SAMPLED, choose, continue_, generate, processed, roll, run

LLS = [-0.5, -1.25, -3.0, -0.75, -2.0, -1.5, -0.25, -4.0]
LABELS = list(zip([0, 0, 1, 1, 1, 0, 1, 1, 0, 1], [0, 1, 1, 0, 1, 0, 1, 1, 1, 1], strict=True))
THREE = list(zip([0, 1, 2, 2, 1, 0, 2], [0, 2, 2, 2, 1, 1, 0], strict=True))
WAVE = [math.sin(number) for number in range(3000)]
PAIRS = [
    ("the cat sat on the mat", "the cat sat on a mat"),
    ("a dog ran in the park", "a dog ran in the park"),
    ("it rains all day today", "it rained all day long"),
]


def stderr_of(folder: Path, values: Sequence[Any], aggregation: str, metric: str = "x", helper: str = "", **options: Any) -> Any:  # fmt: skip
    """The standard error that a run writes for documents with these values."""
    yaml = f"metric_list: [{{metric: {metric}, aggregation: {aggregation}}}]\n"
    processed(folder, [{metric: value} for value in values], yaml, helper=helper)
    return run(folder, ANYTHING, **options)["results"]["t"][f"{metric}_stderr,none"]


# --- as lm-eval has them ------------------------------------------------------------------------------------------

LIKE_LM_EVAL: dict[str, tuple[str, Sequence[Any], int, float]] = {
    "mean": ("mean", LLS, 1, 0.45791038385568106),
    "mean of many": ("mean", WAVE, 1, 0.012912284659966616),
    "median": ("median", LLS, 1000, 0.5675941888032009),
    "median, few draws": ("median", LLS, 37, 0.5605258149177336),
    "median, half a chunk is dropped": ("median", LLS, 1500, 0.5675941888032009),
    "median, several chunks": ("median", LLS, 2500, 0.53812705550263),
    "median of many": ("median", WAVE, 2000, 0.028890738821087707),
    "perplexity": ("perplexity", LLS, 1000, 2.9181624274141424),
    "perplexity, few draws": ("perplexity", LLS, 37, 3.0560704991364966),
    "perplexity, several chunks": ("perplexity", LLS, 2500, 2.7657692916779113),
    "perplexity of many": ("perplexity", WAVE, 1000, 0.012842946345357114),
    "correlation": ("matthews_corrcoef", LABELS, 2000, 0.3265625685872955),
    "correlation, few draws": ("matthews_corrcoef", LABELS, 37, 0.3121458861584345),
    "correlation of three classes": ("matthews_corrcoef", THREE, 500, 0.3037843472964779),
    "f1": ("f1", LABELS, 300, 0.141499670511511),
    "f1, few draws": ("f1", LABELS, 37, 0.11589234482954643),
}


@pytest.mark.parametrize("case", LIKE_LM_EVAL)
def test_standard_errors_are_lm_evals_when_asked_for(case: str, tmp_path: Path) -> None:
    name, values, iterations, expected = LIKE_LM_EVAL[case]
    stderr = stderr_of(tmp_path, values, name, bootstrap_iters=iterations, compat="lm-eval")
    assert stderr == pytest.approx(expected, abs=1e-12)


TRANSLATION_ERRORS = {
    ("bleu", 100): 21.06212456850408,
    ("bleu", 37): 22.538795648705495,
    ("chrf", 100): 13.769110316828279,
    ("chrf", 37): 14.389448442493777,
    ("chrf++", 100): 13.795536827546888,
    ("chrf++", 37): 14.455505438555775,
    ("ter", 100): 9.665714657604262,
    ("ter", 37): 10.154102080041323,
}


@pytest.mark.parametrize(("name", "iterations"), TRANSLATION_ERRORS)
def test_translations_are_drawn_a_hundred_times_at_most(name: str, iterations: int, tmp_path: Path) -> None:
    asked = iterations if iterations < 100 else 100_000
    stderr = stderr_of(tmp_path, PAIRS, name, name, bootstrap_iters=asked, compat="lm-eval")
    assert stderr == pytest.approx(TRANSLATION_ERRORS[name, iterations], abs=1e-9)


def test_lm_eval_knows_what_to_draw_less_often_by_the_metrics_name(tmp_path: Path) -> None:
    """Not by its aggregation: 200 draws of bleu_max are 200, of bleu 100. Values of lm_eval 0.4.13's own run."""
    stderr = stderr_of(tmp_path / "a", PAIRS, "bleu", "bleu_max", bootstrap_iters=200, compat="lm-eval")
    assert stderr == pytest.approx(20.37960603113525, abs=1e-9)
    stderr = stderr_of(
        tmp_path / "b", [1.0, 2.0, 5.0, 9.0, 4.0], "median", "bleu", bootstrap_iters=200, compat="lm-eval"
    )
    assert stderr == pytest.approx(1.8141976549739913, abs=1e-12)


NAN = "def values(doc, results):\n    return {k: float(v) for k, v in doc['values'].items()}\n"


def test_lm_eval_draws_missing_values_too(tmp_path: Path) -> None:
    stderr = stderr_of(
        tmp_path, [1.0, "nan", 5.0, 9.0, 4.0], "nanmean", helper=NAN, bootstrap_iters=37, compat="lm-eval"
    )
    assert stderr == pytest.approx(1.2798511054749764, abs=1e-12)


AVERAGE = "def average(items):\n    return sum(items) / len(items)\n"


def test_lm_eval_has_no_error_for_the_rest(tmp_path: Path) -> None:
    pairs = [[-1.0, 2], [-3.0, 6], [-2.0, 1]]
    for number, name in enumerate(["weighted_perplexity", "bits_per_byte"]):
        assert stderr_of(tmp_path / str(number), pairs, name, compat="lm-eval") == "N/A"
    chances = [[0, [0.7, 0.3]], [1, [0.7, 0.3]]]
    assert stderr_of(tmp_path / "brier", chances, "brier_score", compat="lm-eval") == "N/A"
    assert stderr_of(tmp_path / "own", LLS, "!function helper.average", helper=AVERAGE, compat="lm-eval") == "N/A"


# --- corrected ----------------------------------------------------------------------------------------------------


def test_the_error_of_a_share(tmp_path: Path) -> None:
    """3 of 5: √(0.6·0.4/4), by hand; the number of draws does not matter."""
    row = generate(tmp_path, list("aabbb"), list("bbbbb"), bootstrap_iters=7)["results"]["t"]
    assert (row["exact_match,none"], row["exact_match_stderr,none"]) == pytest.approx((0.6, math.sqrt(0.06)))


def test_the_error_of_a_perplexity_is_that_of_its_mean_carried_over(tmp_path: Path) -> None:
    """d exp(-m) = exp(-m) dm."""
    row = continue_(tmp_path, [(value, True) for value in LLS])["results"]["t"]
    expected = math.exp(-statistics.fmean(LLS)) * statistics.stdev(LLS) / math.sqrt(8)
    assert row["perplexity_stderr,none"] == pytest.approx(expected, rel=1e-12)


TEXTS = {"one two": -4.0, "a much longer text of words": -12.0, "three words here": -9.0, "été": -1.0}


def test_texts_have_errors_of_a_ratio(tmp_path: Path) -> None:
    """Variance of a ratio, sampling theory: mean square of (ll - ratio·size) over the mean size squared."""
    row = roll(tmp_path, TEXTS)["results"]["t"]

    def error(sizes: list[int]) -> tuple[float, float]:
        ratio = sum(TEXTS.values()) / sum(sizes)
        rest = [ll - ratio * size for ll, size in zip(TEXTS.values(), sizes, strict=True)]
        spread = math.sqrt(sum(each**2 for each in rest) / 3 / 4) / statistics.fmean(sizes)
        return ratio, spread

    ratio, spread = error([len(text.split()) for text in TEXTS])
    assert row["word_perplexity_stderr,none"] == pytest.approx(math.exp(-ratio) * spread, rel=1e-9)
    ratio, spread = error([len(text.encode()) for text in TEXTS])
    assert row["byte_perplexity_stderr,none"] == pytest.approx(math.exp(-ratio) * spread, rel=1e-9)
    assert row["bits_per_byte_stderr,none"] == pytest.approx(spread / math.log(2), rel=1e-9)


def test_the_error_of_a_brier_score_is_that_of_a_mean(tmp_path: Path) -> None:
    """Distances 0.18, 1.28 and 0.5, by hand."""
    lls = [[math.log(0.7), math.log(0.3)], [math.log(0.2), math.log(0.8)], [0.0, 0.0]]
    row = choose(tmp_path, lls, [0, 0, 1], ["a", "b"], "metric_list: [{metric: brier_score}]\n")["results"]["t"]
    assert row["brier_score_stderr,none"] == pytest.approx(statistics.stdev([0.18, 1.28, 0.5]) / math.sqrt(3))


@pytest.mark.parametrize(
    ("name", "values", "drawn"),
    [("median_high", LLS, 0.5675941888032009), ("matthews_corrcoef", LABELS, 0.3233450248531319)],
    ids=["median", "correlation"],
)
def test_a_bootstrap_makes_up_for_the_spread_that_resamples_lack(
    name: str, values: Any, drawn: float, tmp_path: Path
) -> None:
    """A resample of n values has (n-1)/n of the variance: lm-eval's number of 1000 draws by √(n/(n-1))."""
    stderr = stderr_of(tmp_path, values, name, bootstrap_iters=1000)
    assert stderr == pytest.approx(drawn * math.sqrt(len(values) / (len(values) - 1)), rel=1e-9)


def test_an_aggregation_of_ones_own_is_bootstrapped(tmp_path: Path) -> None:
    values = [float(number % 7) for number in range(60)]
    stderr = stderr_of(tmp_path, values, "!function helper.average", helper=AVERAGE)
    assert stderr == pytest.approx(statistics.stdev(values) / math.sqrt(60), rel=0.08)


def test_values_that_are_missing_do_not_spoil_the_error_of_the_rest(tmp_path: Path) -> None:
    """lm-eval's is nan as soon as one resample has nothing else. Error of a mean over those that are there: 1.65."""
    stderr = stderr_of(tmp_path, [1.0, "nan", 5.0, 9.0, 4.0], "nanmean", helper=NAN)
    assert stderr == "N/A" or 1.0 < stderr < 2.5


@pytest.mark.parametrize("compat", [None, "lm-eval"])
@pytest.mark.parametrize("iterations", [0, None])
def test_without_draws_there_is_no_error(compat: str | None, iterations: int | None, tmp_path: Path) -> None:
    assert stderr_of(tmp_path / "a", [1.0, 0.0], "mean", bootstrap_iters=iterations, compat=compat) == "N/A"
    assert stderr_of(tmp_path / "b", [1.0, 0.0], "median", bootstrap_iters=iterations, compat=compat) == "N/A"


@pytest.mark.parametrize("compat", [None, "lm-eval"])
@pytest.mark.parametrize("name", ["mean", "median", "perplexity"])
def test_one_document_has_no_error(compat: str | None, name: str, tmp_path: Path) -> None:
    processed(tmp_path, [{"x": 1.0}], f"metric_list: [{{metric: x, aggregation: {name}}}]\n")
    results = run(tmp_path, ANYTHING, compat=compat)
    assert results["results"]["t"]["x_stderr,none"] == "N/A"
    assert "one document" in rows_of(results, "t")["x,none"]["reason"]


@pytest.mark.parametrize("compat", [None, "lm-eval"])
@pytest.mark.parametrize("name", ["mean", "median", "perplexity", "nanmean"])
def test_equal_values_have_no_spread(compat: str | None, name: str, tmp_path: Path) -> None:
    assert stderr_of(tmp_path, [0.1] * 10, name, bootstrap_iters=50, compat=compat) == pytest.approx(0, abs=1e-15)


def test_a_document_that_failed_does_not_count_in_the_error(tmp_path: Path) -> None:
    second = "def second(references, predictions):\n    return float(references[0] == predictions[0][1])\n"
    (tmp_path / "own.py").write_text(second)
    yaml = "metric_list: [{metric: !function own.second, aggregation: mean}]\n"
    row = generate(tmp_path, ["aa", "ab", "a", "bb", "aa"], list("aabba"), yaml)["results"]["t"]
    assert (row["second,none"], row["sample_len"]) == (0.75, 4)
    assert row["second_stderr,none"] == pytest.approx(0.25)  # √(0.75·0.25/3)


# --- repeats ------------------------------------------------------------------------------------------------------

REPEATED = [["a", "a", "b"], ["b", "b", "b"], ["a", "a", "a"], ["b", "a", "b"]]
ALL_THREE = SAMPLED + "repeats: 3\nfilter_list: [{name: all, filter: [{function: take_first_k, k: 3}]}]\n"


@pytest.mark.parametrize("compat", [None, "lm-eval"])
def test_repeats_are_averaged_by_document_and_the_error_is_that_of_documents(compat: str | None, tmp_path: Path) -> None:  # fmt: skip
    """2/3, 0, 1 and 1/3 of the repeats are right: 4 documents, not 12 answers."""
    row = generate(tmp_path, REPEATED, list("aaaa"), ALL_THREE, compat=compat)["results"]["t"]
    shares = [2 / 3, 0.0, 1.0, 1 / 3]
    assert row["exact_match,all"] == pytest.approx(0.5)
    assert row["exact_match_stderr,all"] == pytest.approx(statistics.stdev(shares) / 2)
    assert row["sample_len"] == 4


def test_the_score_of_every_repeat_is_kept(tmp_path: Path) -> None:
    """Design, decision 3: every repeat's score is stored; lm-eval 0.5 calls the list `scores_per_repeat`."""
    results = generate(tmp_path, REPEATED, list("aaaa"), ALL_THREE)
    texts = [json.dumps(sample).replace(".0", "") for sample in results["samples"]["t"]]
    for text, scores in zip(texts, ["[1, 1, 0]", "[0, 0, 0]", "[1, 1, 1]", "[0, 1, 0]"], strict=True):
        assert scores in text


def test_equal_repeats_add_no_information(tmp_path: Path) -> None:
    once = generate(tmp_path / "1", list("aabb"), list("aaaa"))["results"]["t"]
    thrice = generate(tmp_path / "3", [[each] * 3 for each in "aabb"], list("aaaa"), ALL_THREE)["results"]["t"]
    assert thrice["exact_match,all"] == once["exact_match,none"]
    assert thrice["exact_match_stderr,all"] == pytest.approx(once["exact_match_stderr,none"], rel=1e-12)


# --- groups -------------------------------------------------------------------------------------------------------

MEMBERS = {"a": [1.0, 0.0, 1.0, 1.0], "b": [0.0, 1.0], "c": [1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]}
"""Means 3/4, 1/2, 3/8; standard errors 1/4, 1/2, √(15/64/7) = 0.18298."""
ERRORS = {name: statistics.stdev(values) / math.sqrt(len(values)) for name, values in MEMBERS.items()}
MEAN = "metric_list: [{metric: x, aggregation: mean}]\n"


def grouped(folder: Path, entry: str, members: str = "[a, b, c]", **options: Any) -> dict[str, Any]:
    """The results of a group of those tasks with one entry in its aggregate_metric_list."""
    for name, values in MEMBERS.items():
        processed(folder, [{"x": value} for value in values], MEAN, name)
    (folder / "g.yaml").write_text(f"group: g\ntask: {members}\naggregate_metric_list: [{{{entry}}}]\n")
    return run(folder, ANYTHING, "g", **options)


def test_a_group_weights_its_tasks_by_size(tmp_path: Path) -> None:
    """7 of 14; the error is that of a sum of independent parts, each with its share of the documents."""
    row = grouped(tmp_path, "metric: x")["groups"]["g"]
    expected = math.sqrt(sum((len(MEMBERS[name]) / 14 * ERRORS[name]) ** 2 for name in MEMBERS))
    assert (row["x,none"], row["x_stderr,none"]) == pytest.approx((0.5, expected), rel=1e-12)
    assert (row["sample_len"], row["sample_count"]) == (14, {"x,none": 14})


def test_a_group_may_weight_its_tasks_equally(tmp_path: Path) -> None:
    row = grouped(tmp_path, "metric: x, weight_by_size: false")["groups"]["g"]
    expected = math.sqrt(sum(error**2 for error in ERRORS.values())) / 3
    assert (row["x,none"], row["x_stderr,none"]) == pytest.approx(((3 / 4 + 1 / 2 + 3 / 8) / 3, expected), rel=1e-12)


def test_lm_eval_pools_the_errors_of_a_group(tmp_path: Path) -> None:
    """Values of lm_eval 0.4.13: pooled_sample_stderr by size, unweighted_mean_stderr without."""
    row = grouped(tmp_path / "by_size", "metric: x", compat="lm-eval")["groups"]["g"]
    assert (row["x,none"], row["x_stderr,none"]) == pytest.approx((0.5, 0.1424507205745474), abs=1e-12)
    row = grouped(tmp_path / "alike", "metric: x, weight_by_size: false", compat="lm-eval")["groups"]["g"]
    expected = (0.5416666666666666, 0.19606748919048336)
    assert (row["x,none"], row["x_stderr,none"]) == pytest.approx(expected, abs=1e-12)


def test_a_group_of_groups_looks_at_the_tasks_and_counts_each_once(tmp_path: Path) -> None:
    (tmp_path / "inner.yaml").write_text("group: inner\ntask: [a, b]\naggregate_metric_list: [{metric: x, weight_by_size: false}]\n")  # fmt: skip
    results = grouped(tmp_path, "metric: x", "[inner, c, a]")
    expected = math.sqrt(sum((len(MEMBERS[name]) / 14 * ERRORS[name]) ** 2 for name in MEMBERS))
    assert results["groups"]["inner"]["x,none"] == 5 / 8
    assert results["groups"]["g"]["x,none"] == 0.5
    assert results["groups"]["g"]["x_stderr,none"] == pytest.approx(expected, rel=1e-12)


def test_one_task_without_an_error_leaves_the_group_without(tmp_path: Path) -> None:
    for compat in (None, "lm-eval"):
        folder = tmp_path / str(compat)
        processed(folder, [{"x": 1.0}], MEAN, "one")
        row = grouped(folder, "metric: x", "[a, one]", compat=compat)["groups"]["g"]
        assert (row["x,none"], row["x_stderr,none"]) == (0.8, "N/A")


def test_a_group_without_draws_has_no_error(tmp_path: Path) -> None:
    assert grouped(tmp_path, "metric: x", bootstrap_iters=0)["groups"]["g"]["x_stderr,none"] == "N/A"


FILTERED = """
    filter_list:
      - {name: raw, filter: [{function: take_first}]}
      - {name: small, filter: [{function: lowercase}, {function: take_first}]}
"""


@pytest.mark.parametrize(("chosen", "rows"), [
    ("", {"exact_match,raw", "exact_match,small"}),
    (", filter_list: small", {"exact_match,small"}),
    (", filter_list: [raw]", {"exact_match,raw"}),
    (", filter_list: [small, raw]", {"exact_match,raw", "exact_match,small"}),
    (", filter_list: []", set()),
])  # fmt: skip
def test_a_group_takes_the_filters_it_names_or_all(chosen: str, rows: set[str], tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(f"group: g\ntask: [t]\naggregate_metric_list: [{{metric: exact_match{chosen}}}]\n")
    row = generate(tmp_path, ["A", "b"], ["a", "b"], FILTERED, tasks="g")["groups"]["g"]
    assert {key for key in row if "," in key and "_stderr" not in key} == rows
    assert {row[key] for key in rows} <= {0.5, 1.0}
    assert row.get("exact_match,small", 1.0) == 1.0


def test_a_metric_is_weighted_by_the_documents_that_have_it(tmp_path: Path) -> None:
    """lm-eval counts 4 documents for `y`, which one has, and says itself that this is too much: 0.8 in place of 0.5."""
    yaml = "metric_list: [{metric: x, aggregation: mean}, {metric: y, aggregation: mean}]\n"
    processed(tmp_path, [{"x": 1.0, "y": 1.0}, {"x": 1.0}, {"x": 1.0}, {"x": 1.0}], yaml, "some")
    processed(tmp_path, [{"x": 1.0, "y": 0.0}], yaml, "all")
    (tmp_path / "g.yaml").write_text("group: g\ntask: [some, all]\naggregate_metric_list: [{metric: y}]\n")
    assert run(tmp_path, ANYTHING, "g", compat="lm-eval")["groups"]["g"]["y,none"] == 0.8
    assert run(tmp_path, ANYTHING, "g")["groups"]["g"]["y,none"] == 0.5


def test_a_metric_that_no_member_has_is_refused_before_the_run(tmp_path: Path) -> None:
    """Design, decision 4: a missing metric is an error before the run, naming those that exist."""
    (tmp_path / "g.yaml").write_text("group: g\ntask: [t]\naggregate_metric_list: [{metric: exact_mach}]\n")
    with pytest.raises(ConfigError, match=r"exact_mach[\s\S]*exact_match"):
        generate(tmp_path, ["a"], ["a"], tasks="g")


def test_a_group_metric_that_no_task_has_is_left_out_like_lm_eval(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text("group: g\ntask: [t]\naggregate_metric_list: [{metric: acc}]\n")
    row = generate(tmp_path, ["a"], ["a"], tasks="g", compat="lm-eval")["groups"]["g"]
    assert [key for key in row if "," in key] == []


# --- properties ---------------------------------------------------------------------------------------------------

SCORES = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=30)
SHARES = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=30)


def of(values: Sequence[Any], name: str = "mean", *, stderr: StderrMethod = "influence") -> tuple[float, float]:
    estimated = estimate(AGGREGATIONS[name], values, bootstrap_iters=1000, stderr=stderr)
    assert estimated.stderr is not None
    return estimated.value, estimated.stderr


@given(SCORES)
def test_a_mean_and_its_error_are_those_of_statistics(values: list[float]) -> None:
    expected = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
    assert of(values) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert of(values, stderr="lm-eval") == of(values)


@given(st.data(), SCORES)
def test_the_order_of_documents_does_not_matter(data: st.DataObject, values: list[float]) -> None:
    assert of(data.draw(st.permutations(values))) == pytest.approx(of(values), rel=1e-9, abs=1e-9)


@given(SCORES, st.floats(-10, 10), st.floats(-100, 100))
def test_a_mean_moves_with_its_values_and_its_error_scales(values: list[float], factor: float, shift: float) -> None:
    value, error = of(values)
    expected = (factor * value + shift, abs(factor) * error)
    assert of([factor * each + shift for each in values]) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(SCORES, st.integers(2, 4))
def test_documents_counted_several_times_keep_the_mean(values: list[float], times: int) -> None:
    """And the error falls as if they were new: √((n-1)/(kn-1)). So it matters that repeats are not documents."""
    (value, error), n = of(values), len(values)
    expected = value, error * math.sqrt((n - 1) / (times * n - 1))
    assert of(values * times) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(SHARES)
@settings(max_examples=25, deadline=None)
def test_a_bootstrap_of_the_mean_is_near_the_closed_form(values: list[float]) -> None:
    n = len(values)
    drawn = bootstrap(AGGREGATIONS["mean"], values, 2000) * math.sqrt(n / (n - 1))
    assert drawn == pytest.approx(of(values)[1], rel=0.12, abs=1e-12)


@given(st.lists(SHARES, min_size=1, max_size=5))
def test_a_mean_by_size_is_the_mean_of_all_documents(tasks: list[list[float]]) -> None:
    scores = [Estimate(*of(values), len(values)) for values in tasks]
    everything = [value for values in tasks for value in values]
    assert weighted_mean(scores, by_size=True) == pytest.approx(statistics.fmean(everything), abs=1e-12)
    assert weighted_mean(scores, by_size=False) == pytest.approx(statistics.fmean(s.value for s in scores), abs=1e-12)


@given(st.data(), st.lists(SHARES, min_size=1, max_size=5), st.booleans())
def test_the_order_of_tasks_does_not_matter(data: st.DataObject, tasks: list[list[float]], by_size: bool) -> None:
    scores = [Estimate(*of(values), len(values)) for values in tasks]
    shuffled = data.draw(st.permutations(scores))
    for function in (pooled_stderr, weighted_mean):
        assert function(shuffled, by_size=by_size) == pytest.approx(
            function(scores, by_size=by_size), rel=1e-9, abs=1e-12
        )


@given(SHARES, st.integers(1, 5), st.booleans())
def test_like_tasks_have_the_error_of_one_over_the_root_of_their_number(values: list[float], count: int, by_size: bool) -> None:  # fmt: skip
    """There lm-eval's pooled error agrees."""
    value, error = of(values)
    scores = [Estimate(value, error, len(values))] * count
    assert pooled_stderr(scores, by_size=by_size) == pytest.approx(error / math.sqrt(count), rel=1e-9, abs=1e-12)


def test_a_pooled_mean_knows_what_it_is_made_of_if_each_of_its_tasks_does() -> None:
    """Of a task with 1 and one with 3 documents the shares are 1/4 and 3/4."""
    key, first, second = ScoreKey("acc", "none"), Influence("a", (), None, 0.01), Influence("b", (), None, 0.01)
    known = {
        "a": MemberRows({key: Estimate(0.5, 0.1, 1, evidence=Evidence({first: 1.0}))}, 1),
        "b": MemberRows({key: Estimate(0.5, 0.1, 3, evidence=Evidence({second: 1.0}))}, 3),
        "c": MemberRows({key: Estimate(0.5, 0.1, 4)}, 4),
    }
    entries = [AggMetricConfig(metric="acc")]
    assert pooled_means(entries, ["a", "b"], known)[key].evidence.parts == {first: 0.25, second: 0.75}
    assert not pooled_means(entries, ["a", "b", "c"], known)[key].evidence.parts
    assert pooled_means(entries, ["a", "b"], known)[key].stderr == pytest.approx(math.sqrt(2 * 0.01 * 3 / 2 / 4))


@given(SCORES)
def test_medians_are_those_of_python(values: list[float]) -> None:
    assert AGGREGATIONS["median"].function(values) == statistics.median(values)
    assert AGGREGATIONS["median_high"].function(values) == statistics.median_high(values)
