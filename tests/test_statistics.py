"""`assay.statistics`: laws that hold for any scores, and intervals against other implementations."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import stats

from assay.report.table import results_table
from assay.statistics import combine, compare, corrected, estimate, passes
from assay.statistics.aggregations import AGGREGATIONS, BOUNDS
from assay.statistics.calibration import _folded
from assay.statistics.estimates import bootstrap, with_draws
from assay.statistics.estimates import estimate as estimate_by
from assay.statistics.evidence import Estimate
from assay.statistics.intervals import mid_p, noted, order_statistics, student, student_tail, with_interval
from interval_oracles import bounded
from run_world import rows_of
from small_runs import continue_

Numbers = st.lists(st.floats(-100, 100).map(lambda each: round(each, 3)), min_size=3, max_size=30)
Shares = st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0]), min_size=2, max_size=40)
Levels = st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99])


def ends(number: Any) -> tuple[float, float]:
    assert number.low is not None
    assert number.high is not None
    return number.low, number.high


# --- laws ------------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(Numbers, st.randoms(use_true_random=False))
def test_the_order_of_documents_does_not_matter(scores: list[float], random: Any) -> None:
    shuffled = random.sample(scores, len(scores))
    one, other = estimate(scores), estimate(shuffled)
    assert (one.value, one.stderr) == (pytest.approx(other.value, abs=1e-9), pytest.approx(other.stderr, abs=1e-9))
    if one.low is not None:
        assert ends(one) == pytest.approx(ends(other), abs=1e-6)


@settings(deadline=None, max_examples=40)
@given(Numbers, st.sampled_from([0.01, 2.0, 1000.0]), st.sampled_from([-5.0, 0.0, 3.0]))
def test_scaled_and_shifted_scores_have_a_scaled_and_shifted_interval(
    scores: list[float], times: float, more: float
) -> None:
    assume(np.ptp(scores) > 0.01 and set(scores) != {0.0, 1.0})
    moved = [times * score + more for score in scores]
    assume(set(moved) != {0.0, 1.0})
    low, high = ends(estimate(scores))
    expected = (times * low + more, times * high + more)
    assert ends(estimate(moved)) == pytest.approx(expected, rel=1e-6, abs=1e-6 * times)
    limits = min(scores) - 1, max(scores) + 1
    low, high = ends(estimate(scores, bounds=limits))
    within = estimate(moved, bounds=(times * limits[0] + more, times * limits[1] + more))
    assert ends(within) == pytest.approx((times * low + more, times * high + more), rel=1e-6, abs=1e-6 * times)


@settings(deadline=None, max_examples=40)
@given(Shares, Levels, Levels)
def test_a_higher_level_is_wider_and_one_side_is_the_end_of_a_lower_one(
    scores: list[float], one: float, other: float
) -> None:
    low, high = sorted((one, other))
    narrow, wide = ends(estimate(scores, bounds=(0, 1), level=low)), ends(estimate(scores, bounds=(0, 1), level=high))
    assert wide[0] <= narrow[0] + 1e-12
    assert narrow[1] <= wide[1] + 1e-12
    if one >= 0.8:
        both = ends(estimate(scores, bounds=(0, 1), level=2 * one - 1))
        assert ends(estimate(scores, bounds=(0, 1), level=one, side="lower")) == (pytest.approx(both[0]), 1.0)
        assert ends(estimate(scores, bounds=(0, 1), level=one, side="upper")) == (0.0, pytest.approx(both[1]))


@settings(deadline=None, max_examples=40)
@given(Shares, st.integers(1, 5), st.booleans())
def test_intervals_hold_their_number_and_stay_within_bounds(scores: list[float], size: int, clustered: bool) -> None:
    clusters = [number // size for number in range(len(scores))] if clustered else None
    number = estimate(scores, bounds=(0, 1), clusters=clusters)
    if number.low is not None:
        low, high = ends(number)
        assert 0 <= low <= number.value + 1e-12
        assert number.value - 1e-12 <= high <= 1
        assert low < high


@settings(deadline=None, max_examples=40)
@given(Shares, st.sampled_from(["mean", "harmonic", "geometric", "median", "weighted_sum"]))
def test_a_group_of_one_is_its_member(scores: list[float], how: str) -> None:
    own = estimate(scores, bounds=(0, 1))
    assume(own.value > 0.2 and own.stderr)
    group = combine([own], how=how, weights=[1.0] if how == "weighted_sum" else None)
    assert (group.value, group.stderr) == (pytest.approx(own.value), pytest.approx(own.stderr))
    if how != "weighted_sum" or not own.evidence.is_rate:
        assert ends(group) == pytest.approx(ends(own), rel=1e-9)


@settings(deadline=None, max_examples=25)
@given(st.lists(Shares, min_size=2, max_size=5), st.sampled_from(["mean", "harmonic", "median", "weighted_sum"]))
@example([[0.0] * 4, [0.0, 0.0, 0.0, 0.125, 0.75], [0.0, 1.0], [0.0, 1.0], [0.0, 0.125, 0.25]], "median")
def test_the_order_of_members_does_not_matter(members: list[list[float]], how: str) -> None:
    """Also of equal members, any of which may be the middle one."""
    group, reversed_ = (combine([estimate(each, bounds=(0, 1)) for each in some], how=how, by_size=False)
                        for some in (members, members[::-1]))  # fmt: skip
    assert group.value is None or group.value == pytest.approx(reversed_.value)
    if group.low is not None:
        assert ends(group) == pytest.approx(ends(reversed_), abs=1e-6)


def test_a_group_of_groups_has_the_error_of_separate_documents() -> None:
    """Members of both groups are called alike, and share no document: the variances add."""
    left, right = combine([[1, 0, 1, 1], [0, 1, 0]]), combine([[1, 1, 0, 1], [0, 0, 1]])
    assert left.stderr is not None
    assert right.stderr is not None
    assert combine([left, right], how="difference").stderr == pytest.approx(math.hypot(left.stderr, right.stderr))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.floats(0.01, 9)), min_size=3, max_size=30))
def test_weighted_shares_stay_shares(rows: list[tuple[float, float]]) -> None:
    number = estimate([score for score, _ in rows], weights=[weight for _, weight in rows])
    assert 0 <= number.value <= 1
    if number.low is not None:
        low, high = ends(number)
        assert 0 <= low <= number.value <= high <= 1


@pytest.mark.parametrize("side", ["both", "lower", "upper"])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_every_document_better_is_within_the_interval_of_any_side(side: Any, level: float) -> None:
    number = compare([0] * 9, [1] * 9, level=level, side=side)
    low, high = ends(number)
    assert low <= 1 <= high
    assert number.p is not None
    assert (number.p < 1 - level) == (not low <= 0 <= high)


def test_p_of_one_side_counts_the_signs_that_are_as_telling() -> None:
    """Of the 128 ways to exchange the runs on some documents; what is just as large counts by half."""
    a = [0.1, 0.5, 0.2, 0.9, 0.3, 0.35, 0.7]
    b = [0.4, 0.45, 0.6, 1.0, 0.55, 0.5, 0.63]
    changes = np.subtract(b, a)
    means = np.array([np.mean(changes * signs) for signs in product((-1, 1), repeat=7)])

    def share(sizes: Any, size: float) -> float:
        return float((sizes > size + 1e-9).mean() + (np.abs(sizes - size) <= 1e-9).mean() / 2)

    p = {
        "both": share(abs(means), changes.mean()),
        "lower": share(means, changes.mean()),
        "upper": share(-means, -changes.mean()),
    }
    for side, expected in p.items():
        assert compare(a, b, side=side).p == pytest.approx(expected)  # type: ignore[arg-type]
    assert compare(b, a, side="upper").p == pytest.approx(p["lower"])
    assert compare(b, a, side="lower").p == pytest.approx(p["upper"])


@pytest.mark.parametrize("missing", [None, math.nan])
def test_documents_without_a_cluster_are_separate_draws(missing: Any) -> None:
    scores = [0.2, 0.9, 0.4, 0.6, 0.1, 0.7]
    labels = [missing, "a", "a", missing, "b", "b"]
    assert ends(estimate(scores, clusters=labels)) == pytest.approx(ends(estimate(scores, clusters=list("xaaybb"))))
    alone = estimate(scores, clusters=[missing] * 6)
    assert ends(alone) == pytest.approx(ends(estimate(scores)))
    assert compare([0, 1, 1, 0], [1, 1, 1, 0], clusters=[missing] * 4) == compare([0, 1, 1, 0], [1, 1, 1, 0])


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (estimate([0.3, 0.1 + 0.2, 0.3]), "all scores are the same"),
        (estimate([1e200, 2e200, 3e200]), "too large"),
        (estimate([1e308, 1e308, -1e308]), "too large"),
        (estimate([0.2, 0.4, 0.9], weights=[0, 5, 0]), "one document has all the weight"),
        (compare([0.1, 0.2, 0.3], [0.2, 0.3, 0.4]), "all documents differ alike"),
        (compare([1e200, 2e200, 5], [2, 3e200, 1e201]), "too large"),
    ],
)
def test_a_number_without_an_interval_says_why(number: Any, reason: str) -> None:
    assert (number.low, number.high) == (None, None)
    assert reason in number.reason


def test_scores_that_differ_by_rounding_alone_are_the_same() -> None:
    number = estimate([0.3, 0.1 + 0.2] * 10, bounds=(0, 1))
    assert number.stderr == 0
    assert ends(number) == pytest.approx(ends(estimate([0.3] * 20, bounds=(0, 1))), rel=1e-12)


def test_any_array_of_numbers_is_taken() -> None:
    import pandas as pd

    expected = ends(estimate([1.0, 0.0, 1.0, 1.0]))
    for scores in (
        (1, 0, 1, 1), [True, False, True, True], np.array([1, 0, 1, 1], dtype="u1"), np.array([1, 0, 1, 1], dtype="f4"),
        pd.Series([1, 0, 1, 1], index=[7, 8, 9, 3]), np.array([1, 0, 1, 1], dtype=object),
    ):  # fmt: skip
        assert ends(estimate(scores)) == expected
    assert type(estimate([1, 0, 1], level=np.float32(0.95)).low) is float  # type: ignore[arg-type]
    assert ends(estimate([1, 3], bounds=np.array([0, 4]))) == ends(estimate([1, 3], bounds=(0, 4)))  # type: ignore[arg-type]


Pairs = st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=3, max_size=30)
Verdicts = st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=3, max_size=40)


@settings(deadline=None, max_examples=80)
@given(st.one_of(Pairs, Verdicts), Levels, st.integers(1, 4))
def test_p_and_interval_of_a_comparison_agree(pairs: list[tuple[float, float]], level: float, size: int) -> None:
    a, b = zip(*pairs, strict=True)
    clusters = [number // size for number in range(len(a))] if size > 1 else None
    number = compare(a, b, level=level, clusters=clusters)
    if number.low is None or number.high is None or number.p is None:
        return
    if abs(number.p - (1 - level)) > 1e-9:
        assert (number.p < 1 - level) == (not number.low <= 0 <= number.high)
    other = compare(b, a, level=level, clusters=clusters)
    assert (other.low, other.high) == (pytest.approx(-number.high, abs=1e-9), pytest.approx(-number.low, abs=1e-9))


def test_equal_weights_do_nothing() -> None:
    scores = [0.2, 0.9, 0.4, 0.6, 0.1]
    plain, weighted = estimate(scores, bounds=(0, 1)), estimate(scores, bounds=(0, 1), weights=[3] * 5)
    assert (weighted.value, weighted.stderr) == (pytest.approx(plain.value), pytest.approx(plain.stderr))
    assert ends(weighted) == pytest.approx(ends(plain))


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: estimate([]), "at least one"),
        (lambda: estimate([1.0, math.nan]), "1 of 2 are not finite"),
        (lambda: estimate([1.0, 2.0], bounds=(0, 1)), "not within"),
        (lambda: estimate([1.0, 2.0], clusters=["a"]), "1 for 2 scores"),
        (lambda: estimate([1.0, 2.0], weights=[-1, 1]), "0 or more"),
        (lambda: estimate([1.0, 2.0], level=95), "95 is not between 0 and 1"),
        (lambda: estimate([1.0, 2.0], side="left"), "'left' is none of both"),  # type: ignore[arg-type]
        (lambda: compare([1, 0], [0, 1], level=0.4, side="lower"), "0.4 is not between 0.5 and 1"),
        (lambda: combine([[1, 0]], how="pass@x"), "'pass@x' is none of mean"),
        (lambda: combine([[[1, 0]]], how="pass@3"), "at least 3 scores"),
        (lambda: combine([[[1, 0]]], how="pass@0"), "'pass@0' is none of"),
        (lambda: combine([[[1, math.nan]]], how="pass@1"), "1 of 2 scores are not finite"),
        (lambda: combine([[1, 0], 3.0]), "member 2: scores: a list of numbers"),  # type: ignore[list-item]
        (lambda: combine({"a": [1, 0]}), "a list of arrays or estimates"),  # type: ignore[arg-type]
        (lambda: combine([[1, 0]], how=None), "None is none of mean"),  # type: ignore[arg-type]
        (lambda: combine([[1, 0], [1, 1]], weights=[math.nan, 1]), "1 of 2 are not finite"),
        (lambda: combine([[1, 0], [1, 1]], weights=[-1, 1]), "0 or more"),
        (lambda: combine([[1, 0], [1, 1]], weights=[1, 2], how="median"), "'median' uses none"),
        (lambda: estimate(["1", "0"]), "a list of numbers"),  # type: ignore[list-item]
        (lambda: estimate(np.array(["2020-01-01"], dtype="M8[D]")), "a list of numbers"),  # type: ignore[arg-type]
        (lambda: estimate(np.ma.array([1, 0, 1], mask=[0, 1, 0])), "1 of 3 are not finite"),
        (lambda: estimate({0.2, 0.4}), "a list of numbers"),  # type: ignore[arg-type]
        (lambda: estimate([1.0, 2.0], bounds=(2, 0)), "the least and the greatest"),
        (lambda: estimate([1.0, 2.0], bounds=(0,)), "the least and the greatest"),  # type: ignore[arg-type]
        (lambda: estimate([1.0, 2.0], bounds=("0", "9")), "the least and the greatest"),  # type: ignore[arg-type]
        (lambda: estimate([1.0, 2.0], level=1 - 1e-16), "is not between 0 and 1"),
        (lambda: estimate([1.0, 2.0], level="0.9"), "'0.9' is not between"),  # type: ignore[arg-type]
        (lambda: estimate([1.0, 2.0], clusters=7), "no list for 2 scores"),  # type: ignore[arg-type]
        (lambda: passes(estimate([1, 0]), ">", math.nan), "nan is not a number"),
        (lambda: passes(0.7, ">", 0.5), "a plain number has no interval"),  # type: ignore[arg-type]
        (lambda: corrected(["a"], [1]), "scores: a list of numbers"),  # type: ignore[list-item]
        (lambda: combine([]), "at least one"),
        (lambda: combine([[1, 0]], how="mode"), "'mode' is none of mean"),
        (lambda: combine([[1, 0]], weights=[1, 2]), "2 for 1 members"),
        (lambda: compare([1], [1, 2]), "2 scores for 1 documents"),
        (lambda: passes(estimate([1, 0]), "=>", 0.5), "'=>' is none of"),
    ],
)
def test_bad_input_is_refused_in_words(call: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        call()


# --- other implementations -------------------------------------------------------------------------------------------


def test_student_is_scipys() -> None:
    for freedom in (1, 1.5, 2.45, 7, 30, 999, 1001, 1e5):
        assert student(0.95, freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-7)
        assert student_tail(2.1, freedom) == pytest.approx(2 * stats.t.sf(2.1, freedom), rel=1e-7)


@pytest.mark.parametrize(("right", "n"), [(0, 5), (1, 5), (3, 20), (50, 100), (99, 100), (100, 100)])
def test_mid_p_is_where_scipys_binomial_says(right: int, n: int) -> None:
    low, high = mid_p(right, n)
    for end, tail in ((low, 0.025), (high, 0.975)):
        if 0 < end < 1:
            above = stats.binom.sf(right, n, end) + stats.binom.pmf(right, n, end) / 2
            assert above == pytest.approx(tail, abs=1e-9)
    assert (low == 0) == (right == 0)
    assert (high == 1) == (right == n)


@settings(deadline=None, max_examples=40)
@given(Shares, Levels)
def test_bounded_scores_have_statsmodels_wilson_of_an_effective_size(scores: list[float], level: float) -> None:
    assume(not set(scores) <= {0.0, 1.0} or len(scores) > 100)
    (low, high), expected = ends(estimate(scores, bounds=(0, 1), level=level)), bounded(scores, level=level)
    if 2 * max((scores.count(score) for score in scores if 0 < score < 1), default=0) > len(scores):
        assert (low <= expected[0] + 1e-7, high >= expected[1] - 1e-7) == (True, True)  # the wider of two
    else:
        assert (low, high) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("n", [6, 10, 25, 200, 3000])
def test_the_interval_of_a_median_is_scipys_quantile_test(n: int) -> None:
    values = np.sort(np.random.default_rng(n).normal(size=n))
    theirs = stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    assert order_statistics(values) == pytest.approx((theirs.low, theirs.high))


def test_skewed_scores_have_halls_end_where_it_is_further() -> None:
    """Hall's transformation, inverted by root finding."""
    from scipy.optimize import brentq

    scores = np.random.default_rng(1).lognormal(0, 1.2, 40)
    skew = stats.skew(scores) / math.sqrt(40)
    error, t = stats.sem(scores), stats.t.ppf(0.975, 39)
    moment = ((scores - scores.mean()) ** 3).sum() / 40**3 / (39 / 40) ** 1.5 / error**3
    assert moment == pytest.approx(skew, rel=0.05)
    number = estimate(scores)
    furthest = brentq(lambda x: x + moment * x * x / 3 + moment**2 * x**3 / 27 + moment / 6 + t, -60, 0)
    assert ends(number) == pytest.approx((scores.mean() - t * error, scores.mean() - furthest * error), rel=1e-6)
    assert number.method == "student-skew"


PAIRS = [(1, 1)] * 30 + [(1, 0)] * 6 + [(0, 1)] * 9 + [(0, 0)] * 55


def test_the_error_of_f1_is_that_of_its_resamples() -> None:
    """From influence values: equal to the derivative by a document's weight, and to 5,000 resamples within 3 %."""
    aggregation = AGGREGATIONS["f1"]
    assert aggregation.influence is not None
    influence = aggregation.influence(PAIRS)
    many, more = PAIRS * 1000, 200
    for document in ((1, 1), (1, 0), (0, 1), (0, 0)):
        moved = (aggregation.function(many + [document] * more) - aggregation.function(many)) * len(many) / more
        assert influence[PAIRS.index(document)] == pytest.approx(moved, abs=0.01)
    number = estimate_by(aggregation, PAIRS, bootstrap_iters=1000)
    assert number.stderr == pytest.approx(bootstrap(aggregation, PAIRS, 5000) * math.sqrt(100 / 99), rel=0.03)


@pytest.mark.parametrize("name", ["f1", "macro_f1", "class_f1"])
def test_a_rare_class_has_the_interval_of_a_smoothed_table(name: str) -> None:
    """50 documents, a class of four, all right: without an error; with a quarter of a document in each cell, by differences."""
    table = np.array([[46.0, 0.0], [0.0, 4.0]]) + 0.25

    def number(counts: Any) -> float:
        scores = 2 * np.diag(counts) / (counts.sum(axis=0) + counts.sum(axis=1))
        return float(scores.mean() if name == "macro_f1" else scores[1])

    step, total, variance = 1e-6, table.sum(), 0.0
    for cell in np.ndindex(2, 2):
        moved = table * (1 - step)
        moved[cell] += total * step
        variance += table[cell] / total * ((number(moved) - number(table)) / step) ** 2
    error = math.sqrt(variance / 50)
    pairs: list[Any] = [(0, 0)] * 46 + [(1, 1)] * 4
    values = pairs if name != "class_f1" else [(each[0],) * 3 for each in pairs]
    number_of_all = estimate_by(AGGREGATIONS[name], values, bootstrap_iters=1)
    drawn = with_interval(with_draws(number_of_all, AGGREGATIONS[name], values, range(50), "s"))
    assert (drawn.value, drawn.stderr) == (1, 0)
    spread = drawn.evidence.spread
    assert spread is not None
    assert math.sqrt(spread.variance) == pytest.approx(error, rel=1e-3)
    assert 0 < ends(drawn)[0] < ends(drawn)[1] == 1


def test_resamples_of_f1_are_scikit_learns() -> None:
    from sklearn.metrics import f1_score

    from assay.statistics.estimates import _f1_scores, _is_one, resamples

    [indices] = list(resamples(100, 20))
    golds, answers = np.array(PAIRS).T
    assert _f1_scores(_is_one(PAIRS), indices) == [f1_score(golds[row], answers[row]) for row in indices]


def test_a_median_of_integers_has_an_interval_though_its_resamples_do_not_vary() -> None:
    values = [3] * 150 + [2] * 25 + [4] * 25
    number = estimate_by(AGGREGATIONS["median"], values, bootstrap_iters=100)
    drawn = with_interval(with_draws(number, AGGREGATIONS["median"], values, range(200), "s"))
    assert (drawn.stderr, ends(drawn), drawn.method) == (0, (3, 3), "order")


def test_groups_have_the_notes_of_tasks() -> None:
    """A score of 9 in one of two members has 81 of 81 parts of the squares; a member that may be 0 makes a bent mean unsure."""
    scores = [[0.0] * 30 + [9.0], [0.1, -0.1] * 20]
    note = noted(combine(scores, by_size=False)).note
    assert note.startswith("1 of 71 documents makes half of its uncertainty")
    assert not noted(combine([[0.1, -0.1] * 20] * 2)).note
    rates = [[1] + [0] * 7, [1, 0] * 25]
    assert combine(rates, how="geometric").note.startswith("member 1: may as well be 0")
    assert not combine([rates[1]] * 2, how="geometric").note


def test_a_perplexity_of_a_few_documents_is_noted_and_shown_as_a_factor(tmp_path: Path) -> None:
    """6 of 48 documents of -40, the others of -0.2: √(48/47)·std/√48 = 1.92 on the scale of logarithms, e to that is 6.8."""
    results = continue_(tmp_path, [(-40.0 if number % 8 == 0 else -0.2, True) for number in range(48)])
    about = rows_of(results, "t")["perplexity,none"]
    assert about["method"] == "student-log-skew"
    assert about["note"].startswith("4 of 48 documents make half of its uncertainty")
    scores = np.repeat([40.0, 0.2], [6, 42])
    factor = math.exp(stats.sem(scores))
    assert f"|×/÷|{factor:>6.2f}|" in str(results_table(results.results))
    low = math.exp(scores.mean() - stats.t.ppf(0.975, 47) * stats.sem(scores))
    assert about["interval"][0] == pytest.approx(low, rel=1e-6)
    assert f"{low:.2f} … " in str(results_table(results.results))


def test_degrees_of_freedom_are_a_whole_number_where_rounding_alone_makes_them_another() -> None:
    number = estimate([n * n % 5 for n in range(29)])  # a variance², divided by itself over 28: 27.999999999999993
    assert (number.method, number.df) == ("student", 28.0)
    pairs = compare([n * n % 5 for n in range(29)], [0.0] * 29)
    assert pairs.df == 28.0


def test_clusters_of_one_document_each_are_none() -> None:
    scores = [1.0, 0.0, 1.0, 1.0]
    assert estimate(scores, clusters=["a", "b", "c", "d"]) == estimate(scores)
    assert estimate(scores, clusters=[None, None, "c", math.nan]) == estimate(scores)  # type: ignore[list-item]
    assert estimate(scores, clusters=["a", "a", "b", "b"]).clusters == 2


def test_the_influence_of_a_document_on_the_brier_score_is_its_squared_distance() -> None:
    influence = AGGREGATIONS["brier_score"].influence
    assert influence is not None
    assert [*influence([(0, [0.75, 0.25])])] == [2 * 0.25**2]
    assert [*influence([(0, [1.0, 0.0, 0.0]), (2, [0.5, 0.5, 0.0])])] == [0.0, 1.5]


def test_scores_of_translations_are_percentages() -> None:
    assert [BOUNDS[name] for name in ("bleu", "chrf", "chrf++")] == [(0.0, 100.0)] * 3
    assert BOUNDS["ter"] == (0.0, math.inf)


@pytest.mark.parametrize("scale", [(0.0, 1.0), (0.0, 100.0), (-1.0, 1.0)])
def test_a_mean_that_rounding_put_beyond_its_bounds_has_the_interval_of_one_at_them(scale: tuple[float, float]) -> None:
    at = Estimate(scale[1], 0.1, 20, scale=scale)
    beyond = replace(at, value=math.nextafter(scale[1], math.inf))
    assert with_interval(beyond).method == with_interval(at).method
    assert ends(with_interval(beyond)) == pytest.approx(ends(with_interval(at)))
    assert with_interval(replace(at, value=scale[1] + 0.1)).method != with_interval(at).method


@pytest.mark.parametrize(("mean", "error"), [(0.0, 1.0), (0.5, 0.25), (-0.5, 2.0), (3.0, 0.1)])
def test_the_mean_distance_from_zero_is_that_of_scipy(mean: float, error: float) -> None:
    assert _folded(mean, error) == pytest.approx(stats.foldnorm(abs(mean) / error, scale=error).mean())
    assert _folded(mean, 0.0) == abs(mean)


def test_the_parts_of_a_brier_score_are_within_its_bounds() -> None:
    """Of two sides the score is 2 where every document is answered wrongly and for sure, and 0 where rightly."""
    for part in ("reliability", "resolution", "uncertainty"):
        assert BOUNDS[f"brier_{part}"] == BOUNDS["brier_score"] == (0.0, 2.0)
