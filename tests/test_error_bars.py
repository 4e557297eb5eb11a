"""Standard errors against the truth, in worlds of which everything is known. `python -m bench errors` has the whole grid."""

import math
from functools import lru_cache

import numpy as np
import pytest
from bench.errors import Cell, ErrorMeasurement, measured, single_coverage
from bench.worlds import TRUTHS, data_set, drawn, expected, group_estimates, true_numbers, world

from assay.config.group import GroupConfig
from assay.groups.aggregators import DifferenceAggregator, MeanAggregator
from assay.statistics.arrays import estimate
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.influence import Influence
from assay.statistics.intervals import interval
from assay.statistics.members import mean_of_scores
from assay.statistics.spread import MemberEstimate
from kinds import mostly_nightly

pytestmark = pytest.mark.xdist_group("error_bars")  # a cell is measured once
CELLS = [
    Cell("independent", 100, 0.1, False),
    Cell("repeats", 30, 0.5, False),
    Cell("shared", 100, 0.5, False),
    Cell("nested", 30, 0.9, False),
]


@lru_cache
def measurements(cell: Cell) -> dict[str, ErrorMeasurement]:
    return {each.aggregator: each for each in measured(cell, data_sets=200, draws=20_000)}


@pytest.mark.slow
@pytest.mark.parametrize("cell", mostly_nightly(CELLS, kept=CELLS[1:2]), ids=str)
@pytest.mark.parametrize("aggregator", TRUTHS)
def test_the_mean_standard_error_is_the_spread_of_the_number(aggregator: str, cell: Cell) -> None:
    assert measurements(cell)[aggregator].ratio == pytest.approx(1, abs=0.08)
    assert measurements(cell)[aggregator].coverage > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("clustering", mostly_nightly(["repeats", "shared", "nested"], kept=["repeats"]))
def test_the_error_of_pass_at_k_counts_problems(clustering: str) -> None:
    assert measurements(Cell(clustering, 30, 0.5, True))["pass@k"].ratio == pytest.approx(1, abs=0.08)


def test_the_worlds_compute_the_same_numbers_as_assay() -> None:
    for clustering in ("shared", "nested"):
        small_world = world(clustering, 30, 0.5)
        results = data_set(small_world, np.random.default_rng(5))
        tasks = np.array([[results[name]["acc,none"] for name in "abcde"]])
        numbers = {name: value[0] for name, value in true_numbers(small_world, tasks).items()}
        assert {name: float(value) for name, value in group_estimates(small_world, results).items()} == pytest.approx(
            numbers
        )
        means = drawn(small_world, 20_000, np.random.default_rng(6)).mean(axis=0)
        assert means == pytest.approx(expected(small_world)[0], abs=0.005)


# --- what would be wrong, and by how much: the tolerance above would notice ------------------------------------------


def rates(source: str, scores: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> MemberEstimate:
    like = Estimate(0.0, evidence=Evidence({Influence(source, range(len(scores)), None, 0.0): 1.0}))
    return MemberEstimate(source, mean_of_scores(scores, like), len(scores))


@pytest.mark.slow
def test_thirty_problems_with_64_repeats_are_not_1920_draws() -> None:
    """Where every problem is always or never solved, repeats add no information: √(0.25/29) for 15 of 30, and not √(0.25/1919)."""
    member = rates("problems", np.repeat([0.0, 1.0], 15))
    combined = MeanAggregator(GroupConfig(group="g")).combine([member], [30.0])
    assert combined.stderr == pytest.approx(math.sqrt(0.25 / 29))
    cell = Cell("repeats", 30, 0.5, False)
    as_draws = math.sqrt(0.25 / (30 * 64))
    truth = np.std(drawn(world("repeats", 30, 0.5), 20_000, np.random.default_rng(7))[:, 0])
    assert as_draws / truth < 0.25
    assert measurements(cell)["mean by size"].ratio == pytest.approx(1, abs=0.08)


def test_documents_that_two_members_share_are_paired_in_their_difference() -> None:
    """Scores that differ in 10 of 100 documents: the error of those differences, 0.0302, and not of two samples, 0.0707."""
    one = np.tile([0.0, 1.0], 50)
    other = one.copy()
    other[:10] = 1 - other[:10]
    both = [
        MemberEstimate(name, rates("same", scores).estimate, 100) for name, scores in (("one", one), ("other", other))
    ]
    combined = DifferenceAggregator(GroupConfig(group="g")).combine(both, [1.0, 1.0])
    assert (float(combined), combined.stderr) == pytest.approx((0.0, math.sqrt(0.1 / 99)))


def test_members_of_different_sizes_are_not_pooled_where_they_count_equally() -> None:
    """Half of 30 and half of 600: ½·√(0.25/29 + 0.25/599); pooled it would be √(0.25/630)."""
    members = [rates("few", np.repeat([0.0, 1.0], 15)), rates("many", np.repeat([0.0, 1.0], 300))]
    combined = MeanAggregator(GroupConfig(group="g")).combine(members, [1.0, 1.0])
    assert combined.stderr == pytest.approx(math.sqrt(0.25 / 29 + 0.25 / 599) / 2)


# --- intervals -------------------------------------------------------------------------------------------------------


def test_intervals_of_a_share_hold_the_truth_as_often_as_they_say() -> None:
    grid = {(n, p): single_coverage(n, p) for n in (30, 100, 1000) for p in (0.1, 0.5, 0.9)}
    assert 0.94 <= sum(grid.values()) / len(grid) <= 0.96
    assert min(share for (n, _), share in grid.items() if n >= 100) >= 0.92


def test_an_interval_has_a_width_where_all_scores_are_equal() -> None:
    """30 of 30: the share of which 30 right have a chance of 2 · 2.5 %, as the half of them that counts (mid-p): 0.05^(1/30)."""
    ends = interval(estimate(np.ones(30)))
    assert ends == pytest.approx((0.05 ** (1 / 30), 1.0), abs=1e-9)


# --- numbers of which no document's move is known ----------------------------------------------------------------------


def spread_alone(name: str, source: str, documents: range, stderr: float) -> MemberEstimate:
    """A number with its own error, and documents whose influence is not known: a median, a bleu score."""
    evidence = Evidence({Influence(source, documents, None, stderr**2): 1.0})
    return MemberEstimate(name, Estimate(0.5, stderr, 10, evidence=evidence), 10)


def test_numbers_over_shared_documents_without_moves_have_at_most_the_sum_of_their_errors() -> None:
    """(0.3 + 0.4)/2: they may move together. Of other documents, or of other data: √(0.3² + 0.4²)/2."""
    for other, error in (
        (spread_alone("u", "same", range(10), 0.4), 0.35),
        (spread_alone("u", "same", range(9, 20), 0.4), 0.35),
        (spread_alone("u", "same", range(10, 20), 0.4), 0.25),
        (spread_alone("u", "other", range(10), 0.4), 0.25),
    ):
        members = [spread_alone("t", "same", range(10), 0.3), other]
        combined = MeanAggregator(GroupConfig(group="g")).combine(members, [1.0, 1.0])
        assert combined.stderr == pytest.approx(error)


def test_a_number_without_moves_beside_one_with_them_may_move_with_it() -> None:
    """15 of 30 right: √(0.25/29). Half of that and half of 0.3."""
    members = [rates("same", np.repeat([0.0, 1.0], 15)), spread_alone("u", "same", range(30), 0.3)]
    combined = MeanAggregator(GroupConfig(group="g")).combine(members, [1.0, 1.0])
    assert combined.stderr == pytest.approx((math.sqrt(0.25 / 29) + 0.3) / 2)
