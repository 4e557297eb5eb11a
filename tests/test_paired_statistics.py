"""Paired tests and intervals, against scipy and statsmodels, a published example, and by simulation."""

import math
from unittest import mock

import numpy as np
import pytest
from bench.paired import Cell, measured
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as their_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import NormalIndPower

from assay.comparison.contrasts import ComparedTask, Part, contrast
from assay.score_keys import ScoreKey
from assay.statistics import compare
from assay.statistics.evidence import Interval
from assay.statistics.paired import (
    Contrast,
    PairedDifference,
    PairedValues,
    detectable,
    documents_needed,
    effect_found,
    holm,
    interval,
    mcnemar,
    recomputed,
    sign_flips,
    significance,
)
from interval_oracles import bell_and_mccaffrey
from kinds import mostly_nightly

KEY = ScoreKey("x", "none")
SCORES = st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=3, max_size=40)


def member(a: object, b: object, *, clusters: object = None, name: str = "t", source: str = "s") -> ComparedTask:
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    rate = set(first.tolist()) | set(second.tolist()) <= {0.0, 1.0}
    numbers = np.arange(len(first))
    return ComparedTask(name, KEY, source, numbers, numbers, float(first.mean()), float(second.mean()), rate, 0, 0,
                  None if clusters is None else np.asarray(clusters), first, second)  # fmt: skip


def compared(a: object, b: object, clusters: object = None) -> Contrast:
    one = member(a, b, clusters=clusters)
    contrasted = contrast([Part(one)], one.a, one.b)
    assert contrasted is not None
    return contrasted


# --- McNemar's test ------------------------------------------------------------------------------------------------


def test_mcnemar_on_a_published_example() -> None:
    """Airway hyper-responsiveness of 21 children before and after a transplantation, 1 and 7 discordant: mid-p 10/256.
    Fagerland, Lydersen and Laake 2013, BMC Medical Research Methodology 13:91, table 1 and its supplement."""
    assert mcnemar(7, 1) == pytest.approx(10 / 256, rel=1e-12)
    before, after = [1, 1] + [0] * 19, [1, 0] + [1] * 7 + [0] * 12
    p_value = significance(compared(before, after))
    assert (p_value.p, p_value.test) == (pytest.approx(0.0390625), "McNemar")


@pytest.mark.parametrize(("wins", "losses"), [(0, 1), (3, 9), (40, 25), (150, 86), (1200, 1100)])
def test_mcnemar_is_statsmodels_exact_p_minus_the_probability_of_the_observation(wins: int, losses: int) -> None:
    exact = their_mcnemar([[5, wins], [losses, 5]], exact=True).pvalue
    seen = stats.binom.pmf(min(wins, losses), wins + losses, 0.5)
    assert mcnemar(wins, losses) == pytest.approx(exact - seen, rel=1e-9)


def test_equal_numbers_of_wins_and_losses_give_p_1() -> None:
    assert mcnemar(4, 4) == 1.0
    assert significance(compared([0, 1, 1], [1, 0, 1])).p == 1.0


# --- permutations --------------------------------------------------------------------------------------------------


def test_few_documents_are_flipped_in_every_way() -> None:
    """scipy takes all 2^8 as well; what was seen and its mirror image it counts whole, we by half."""
    a, b = [0.1, 0.9, 0.4, 0.35, 0.8, 0.2, 0.55, 0.7], [0.3, 0.95, 0.33, 0.6, 0.97, 0.5, 0.54, 0.99]
    theirs = stats.permutation_test(
        (np.subtract(b, a),), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=False
    ).pvalue
    p_value = significance(compared(a, b))
    assert (p_value.p, p_value.test) == (pytest.approx(theirs - 1 / 256), "permutation")


def test_many_documents_are_flipped_at_random() -> None:
    random = np.random.default_rng(3)
    differences = random.exponential(1, 60) - random.exponential(1, 60) + 0.35
    theirs = stats.permutation_test(
        (differences,), lambda x, axis: np.mean(x, axis=axis), permutation_type="samples", n_resamples=20_000,
        vectorized=True, random_state=np.random.default_rng(0),
    ).pvalue  # fmt: skip
    p_value = significance(compared(np.zeros(60), differences))
    assert p_value.p == pytest.approx(theirs, abs=0.006)
    assert p_value.p == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, abs=0.02)


def test_equal_sizes_that_are_drawn_together_are_drawn_as_if_apart() -> None:
    """4 documents of weight 2 and 20 of weight 1: by counting all sums of two binomials, by hand of scipy."""
    sizes = np.array([2.0] * 4 + [1.0] * 20)
    twos, ones = np.arange(5), np.arange(21)
    sums = np.abs(2 * (2 * twos[:, None] - 4) + (2 * ones[None, :] - 20))
    chances = stats.binom.pmf(twos, 4, 0.5)[:, None] * stats.binom.pmf(ones, 20, 0.5)[None, :]
    expected = chances[sums > 10].sum() + chances[sums == 10].sum() / 2
    assert sign_flips(sizes, 10.0) == pytest.approx(expected, abs=0.012)


def test_of_very_many_documents_p_is_students() -> None:
    random = np.random.default_rng(4)
    a, b = random.normal(0, 1, 3000), random.normal(0.04, 1, 3000)
    p_value = significance(compared(a, b))
    assert (p_value.p, p_value.test) == (pytest.approx(stats.ttest_rel(b, a).pvalue, rel=1e-6), "Student")


def test_equal_clusters_are_tested_as_their_means() -> None:
    """Three clusters that all win: scipy's test of three means; as nine documents the least p of 2^9 sign flips, 1/512."""
    a, b = np.zeros(9), [0.5, 0.6, 0.7, 0.2, 0.3, 0.4, 0.8, 0.9, 0.1]
    means = np.reshape(b, (3, 3)).mean(axis=1)
    tested = significance(compared(a, b, np.repeat([1, 2, 3], 3)))
    assert (tested.p, tested.test) == (pytest.approx(stats.ttest_1samp(means, 0).pvalue), "Student")
    assert significance(compared(a, b)).p == pytest.approx(1 / 512)


# --- intervals -----------------------------------------------------------------------------------------------------


def test_the_interval_of_scores_is_that_of_the_paired_t_test() -> None:
    random = np.random.default_rng(5)
    a, b = random.normal(0, 1, 25), random.normal(0.3, 1, 25)
    theirs = stats.ttest_rel(b, a).confidence_interval(0.95)
    assert interval(compared(a, b), 0.95) == pytest.approx((theirs.low, theirs.high), rel=1e-4)


def test_clusters_give_the_error_of_statsmodels() -> None:
    """OLS of the differences on 1 with clusters, without its correction (n - 1)/(n - k): CR1's G/(G - 1) alone."""
    import statsmodels.api as sm

    random = np.random.default_rng(6)
    a, b, clusters = random.normal(0, 1, 30), random.normal(0.5, 1, 30), np.arange(30) // 4
    theirs = sm.OLS(b - a, np.ones(30)).fit(cov_type="cluster", cov_kwds={"groups": clusters})
    comparison = compared(a, b, clusters)
    assert comparison.stderr == pytest.approx(float(theirs.bse[0]), rel=1e-9)
    *ends, freedom = bell_and_mccaffrey(b - a, clusters)
    assert interval(comparison, 0.95) == pytest.approx(ends, rel=1e-9)
    assert comparison.freedom == pytest.approx(freedom)


def test_the_interval_of_rates_by_hand() -> None:
    """100 documents, 10 won and 4 lost, half a document more on either side: 6/101 ± 1.96 · √(14 + 1 - ...)/101."""
    a = [0] * 10 + [1] * 4 + [1] * 86
    b = [1] * 10 + [0] * 4 + [1] * 86
    spread = (14 - 36 / 100) * 100 / 99 / 100**2
    half = 1.959964 * math.sqrt(spread + 1 / 100**2) * 100 / 101
    assert interval(compared(a, b), 0.95) == pytest.approx((6 / 101 - half, 6 / 101 + half), rel=1e-6)


def test_rates_that_agree_on_all_documents_have_an_interval_with_a_width() -> None:
    """√1/101 · 1.96, to either side."""
    comparison = compared([0, 1] * 50, [0, 1] * 50)
    assert interval(comparison, 0.95) == pytest.approx((-0.019406, 0.019406), abs=1e-5)
    assert significance(comparison).p == 1.0


def test_scores_that_all_differ_by_the_same_amount_have_no_interval() -> None:
    assert interval(compared([0.25, 0.5, 0.75], [0.5, 0.75, 1.0]), 0.95) is None


@settings(deadline=None)
@given(SCORES)
def test_exchanging_the_runs_changes_the_sign_and_nothing_else(pairs: list[tuple[float, float]]) -> None:
    a, b = zip(*pairs, strict=True)
    one, other = compared(a, b), compared(b, a)
    assert one.difference == pytest.approx(-other.difference, abs=1e-12)
    assert significance(one).p == pytest.approx(significance(other).p, abs=1e-12)
    ends, mirrored = interval(one, 0.9), interval(other, 0.9)
    if ends is not None and mirrored is not None:
        assert ends == pytest.approx((-mirrored[1], -mirrored[0]), abs=1e-9)


@settings(deadline=None)
@given(SCORES, st.randoms(use_true_random=False))
def test_neither_the_order_of_documents_nor_a_constant_matters(
    pairs: list[tuple[float, float]], random: object
) -> None:
    a, b = zip(*pairs, strict=True)
    shuffled = list(pairs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    c, d = zip(*shuffled, strict=True)
    moved = compared(np.add(c, 16.0), np.add(d, 16.0))
    comparison = compared(a, b)
    assert comparison.difference == pytest.approx(moved.difference, abs=1e-9)
    assert comparison.stderr == pytest.approx(moved.stderr, abs=1e-7)
    assert significance(comparison).p == pytest.approx(significance(compared(c, d)).p, abs=1e-12)


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=30))
def test_a_run_does_not_differ_from_itself(scores: list[float]) -> None:
    comparison = compared(scores, scores)
    assert (comparison.difference, comparison.variance, significance(comparison).p) == (0.0, 0.0, 1.0)


@given(SCORES)
def test_contributions_of_documents_sum_to_the_difference(pairs: list[tuple[float, float]]) -> None:
    comparison = compared(*zip(*pairs, strict=True))
    assert float(np.sum(comparison.contributions)) == pytest.approx(comparison.difference, abs=1e-9)


# --- groups --------------------------------------------------------------------------------------------------------


def test_a_group_of_tasks_with_their_own_documents_adds_their_variances() -> None:
    random = np.random.default_rng(8)
    items = [member(random.normal(0, 1, n), random.normal(0, 1, n), source=f"s{n}") for n in (20, 50)]
    parts = [Part(each, 0.5, 0.5) for each in items]
    contrasted = contrast(parts, sum(m.a for m in items) / 2, sum(m.b for m in items) / 2)
    assert contrasted is not None
    expected = sum(np.var(m.influence_b - m.influence_a, ddof=1) / m.n / 4 for m in items)
    assert contrasted.variance == pytest.approx(expected, rel=1e-12)
    assert float(contrasted.contributions.sum()) == pytest.approx(contrasted.difference)


def test_documents_that_two_tasks_share_are_one_draw_of_the_group() -> None:
    """The same task twice is the task once: the error of a group of independent ones would be 1/√2 of it."""
    random = np.random.default_rng(9)
    a, b = random.normal(0, 1, 40), random.normal(0, 1, 40)
    one = member(a, b)
    twice = contrast([Part(one, 0.5, 0.5), Part(member(a, b, name="u"), 0.5, 0.5)], one.a, one.b)
    single = contrast([Part(one)], one.a, one.b)
    assert twice is not None and single is not None
    assert (twice.variance, twice.draws) == (pytest.approx(single.variance), 40)


# --- numbers that are computed anew --------------------------------------------------------------------------------


def test_a_recomputed_mean_has_the_same_spread_and_p() -> None:
    random = np.random.default_rng(10)
    a, b = random.normal(0, 1, 60).tolist(), random.normal(0.3, 1, 60).tolist()
    scores = recomputed(lambda values: sum(values) / len(values), PairedValues(a, b), 1000)
    assert scores is not None
    built, tested = scores
    assert built.stderr == pytest.approx(compared(a, b).stderr, rel=0.08)
    assert tested.p == pytest.approx(significance(compared(a, b)).p, abs=0.03)


def test_a_function_that_takes_no_resample_has_no_spread() -> None:
    def picky(values: object) -> float:
        raise ValueError("not these")

    assert recomputed(picky, PairedValues([1.0, 2.0], [2.0, 3.0]), 10) is None


# --- several tests, and power --------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_is_statsmodels(values: list[float]) -> None:
    with mock.patch("gc.collect"):  # statsmodels calls it each time: a second, late in a whole run
        theirs = multipletests(values, method="holm")[1]
    assert holm(values) == pytest.approx(theirs.tolist(), abs=1e-12)


@pytest.mark.parametrize(("variance", "effect", "power", "alpha"), [(0.25, 0.05, 0.8, 0.05), (0.1, 0.01, 0.9, 0.01)])
def test_documents_needed_are_those_of_statsmodels(variance: float, effect: float, power: float, alpha: float) -> None:
    theirs = NormalIndPower().solve_power(effect / math.sqrt(variance), alpha=alpha, power=power, ratio=0)
    assert documents_needed(variance, effect, power, alpha) == math.ceil(theirs)
    assert effect_found(variance, math.ceil(theirs), power, alpha) == pytest.approx(effect, rel=2e-3)


def test_the_detectable_difference_is_found_with_the_stated_power() -> None:
    """Differences of normal scores around it, simulated: significant in 80 % of 2,000 data sets."""
    random = np.random.default_rng(11)
    comparison = compared(np.zeros(200), random.normal(0, 1, 200))
    least = detectable(comparison, 0.8)
    assert least is not None
    drawn = random.normal(least / comparison.stderr / math.sqrt(200), 1, (2000, 200))
    p = stats.ttest_1samp(drawn, 0, axis=1).pvalue
    assert float((p < 0.05).mean()) == pytest.approx(0.8, abs=0.03)


# --- simulation (the whole grid: python -m bench paired) -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "cells",
    [
        [Cell("rate", n, 0.5, d, 0.0) for n, d in ((100, 0.2), (300, 0.1), (1000, 0.1))],
        [Cell("group by size", n, 0.85, 0.1, 0.0) for n in (50, 100, 300)],
    ],
    ids=["rates", "groups"],
)
def test_equally_good_runs_differ_significantly_in_one_of_twenty_cases(cells: list[Cell]) -> None:
    result = [measured(cell, 1500) for cell in cells]
    assert 0.04 <= np.mean([each.rejected for each in result]) <= 0.06
    assert 0.94 <= np.mean([each.coverage for each in result]) <= 0.96


@pytest.mark.parametrize("data_sets", mostly_nightly([1500, 400], kept=[400]))
def test_true_differences_are_in_nineteen_of_twenty_intervals(data_sets: int) -> None:
    cells = [Cell("rate", n, 0.5, 0.2, 0.5) for n in (50, 100, 300)] + [Cell("score", 100, 0.5, 1.0, 0.5)]
    result = [measured(cell, data_sets) for cell in cells]
    assert 0.94 <= np.mean([each.coverage for each in result]) <= 0.96


# --- what has no number --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [math.nan, math.inf])
def test_a_number_that_some_resample_has_not_has_no_spread(missing: float) -> None:
    """Of four documents a resample has often but one value: there this function has no value."""

    def choosy(values: object) -> float:
        items = list(values)  # type: ignore[call-overload]
        return missing if len(set(items)) == 1 else float(np.mean(items))

    assert recomputed(choosy, PairedValues([0, 0, 0, 1], [0, 0, 1, 1]), 200) is None


def test_a_difference_without_a_spread_has_p_1() -> None:
    assert significance(Contrast(0.5, None, 0.0, 10, 10)).p == 1.0


@pytest.mark.parametrize(("documents", "is_skewed"), [(9, False), (10, True), (11, True)])
def test_ten_documents_show_that_a_difference_is_skewed_and_fewer_do_not(documents: int, is_skewed: bool) -> None:
    changes = [number / 10 for number in range(documents - 1)]
    change = compare([0.0] * documents, [*changes, 6.0])
    assert change.low is not None
    assert change.high is not None
    assert (change.high - change.value > 2 * (change.value - change.low)) == is_skewed


@pytest.mark.parametrize(
    ("interval", "excludes_zero", "reversed_interval"),
    [
        ((0.1, 0.5), True, (-0.5, -0.1)),
        ((-0.5, -0.1), True, (0.1, 0.5)),
        ((-0.1, 0.5), False, (-0.5, 0.1)),
        ((0.0, 0.5), False, (-0.5, 0.0)),
        ((-0.5, 0.0), False, (0.0, 0.5)),
        ((0.1, None), None, (None, -0.1)),  # an end that is not known may be anywhere
        ((None, -0.1), None, (0.1, None)),
        (None, None, None),
    ],
)
def test_a_difference_excludes_zero_where_both_ends_are_on_one_side(
    interval: Interval | None, excludes_zero: bool | None, reversed_interval: Interval | None
) -> None:
    difference = PairedDifference(0.3, 0.1, 10, interval=interval)
    assert difference.excludes_zero is excludes_zero
    assert (difference.reversed().value, difference.reversed().interval) == (-0.3, reversed_interval)
