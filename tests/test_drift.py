"""The drift of a number: its interval against scipy's, and what it does not depend on."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from assay.statistics.aggregations import AGGREGATIONS
from assay.statistics.paired import drift

MEAN = AGGREGATIONS["mean"]
numbers = st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=3, max_size=30)


@given(numbers)
def test_means_have_the_interval_of_a_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    before, after = [a + 7 for a, _ in pairs], [b for _, b in pairs]  # never shares of 0 and 1
    drift_row = drift(MEAN, before, after).change
    differences = [b - a for a, b in zip(before, after, strict=True)]
    half = float(stats.sem(differences)) * stats.t.ppf(0.975, len(pairs) - 1)
    assert drift_row.interval is not None
    low, high = drift_row.interval
    assert (low + high) / 2 == pytest.approx(np.mean(differences), abs=1e-9)
    assert (high - low) / 2 == pytest.approx(half, rel=5e-3, abs=1e-9)  # ours is Student's to three digits


@given(numbers)
def test_drift_the_other_way_is_the_same_with_the_other_sign(pairs: list[tuple[float, float]]) -> None:
    before, after = ([pair[side] for pair in pairs] for side in (0, 1))
    there, back = drift(MEAN, before, after).change, drift(MEAN, after, before).change
    assert there.value == pytest.approx(-back.value)
    assert there.interval is not None
    assert back.interval is not None
    assert there.interval == pytest.approx((-back.interval[1], -back.interval[0]))


@given(st.lists(st.booleans(), min_size=2, max_size=40))
def test_equal_answers_never_drift_and_their_interval_has_a_width(values: list[bool]) -> None:
    drift_row = drift(MEAN, values, values).change
    assert drift_row.value == 0
    assert drift_row.interval is not None
    assert drift_row.interval[0] < 0 < drift_row.interval[1]


def test_a_number_without_influence_values_has_a_drift_and_no_interval() -> None:
    drift_row = drift(AGGREGATIONS["median"], [1, 2, 3], [2, 3, 4]).change
    assert (drift_row.value, drift_row.interval, drift_row.reason) == (1, None, "none is known for median")
    assert math.isnan(float(drift(MEAN, [], []).change))


def test_documents_of_one_cluster_are_one_draw() -> None:
    """Two clusters that moved by 1 and 3 each, twice: as two draws of 1 and 3, whose mean 2 has the error 1."""
    drift_row = drift(MEAN, [0.5] * 4, [1.5, 1.5, 3.5, 3.5], clusters=[1, 1, 2, 2]).change
    low, high = stats.t.interval(0.95, 1, loc=2, scale=1)
    assert drift_row.interval == pytest.approx((low, high), rel=1e-3)
