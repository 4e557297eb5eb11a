"""Krippendorff's alpha: against the published example, and against another implementation."""

import krippendorff
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assay.statistics.aggregations import AGGREGATIONS, krippendorff_alpha
from assay.statistics.estimates import estimate

_ = None
PUBLISHED = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
    [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
]
"""Four observers and twelve units: Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), part C to E."""

RATINGS = st.lists(st.lists(st.integers(1, 10), min_size=3, max_size=3), min_size=2, max_size=30)


def units(observers: list[list[int | None]]) -> list[list[list[int | None]]]:
    return [[list(unit)] for unit in zip(*observers, strict=True)]


def test_the_published_example_of_interval_data() -> None:
    assert round(krippendorff_alpha(units(PUBLISHED)), 3) == 0.849  # type: ignore[arg-type]


def test_two_observers_by_hand() -> None:
    """(1, 1), (2, 2), (3, 4): observed 2/6; the six values are 6.8333 from their centre, so expected is 2·6·6.8333/30."""
    assert krippendorff_alpha([[[1, 1]], [[2, 2]], [[3, 4]]]) == pytest.approx(1 - (2 / 6) / (82 / 30))


@given(RATINGS)
def test_it_is_what_another_implementation_computes(ratings: list[list[int]]) -> None:
    assume(len({value for unit in ratings for value in unit}) > 1)
    theirs = krippendorff.alpha(np.array(ratings, dtype=float).T, level_of_measurement="interval")
    assert krippendorff_alpha([[unit] for unit in ratings]) == pytest.approx(theirs, abs=1e-9)


@given(RATINGS, st.floats(0.1, 9), st.floats(-5, 5))
def test_where_a_scale_begins_and_how_long_it_is_changes_nothing(
    ratings: list[list[int]], factor: float, start: float
) -> None:
    assume(len({value for unit in ratings for value in unit}) > 1)
    moved = [[[factor * value + start for value in unit]] for unit in ratings]
    assert krippendorff_alpha(moved) == pytest.approx(krippendorff_alpha([[unit] for unit in ratings]), abs=1e-6)


@given(RATINGS)
def test_answers_of_one_document_or_of_several_are_the_same_units(ratings: list[list[int]]) -> None:
    assume(len({value for unit in ratings for value in unit}) > 1)
    assert krippendorff_alpha([ratings]) == pytest.approx(krippendorff_alpha([[unit] for unit in ratings]), abs=1e-12)


def test_full_agreement_is_one_and_no_spread_is_unknown() -> None:
    assert krippendorff_alpha([[[1, 1]], [[5, 5]]]) == 1.0
    with pytest.raises(ValueError, match="all verdicts are the same"):
        krippendorff_alpha([[[3, 3]], [[3, 3]]])
    with pytest.raises(ValueError, match="no answer has two verdicts"):
        krippendorff_alpha([[[3]], [[4]]])


def test_it_has_a_standard_error_of_resampled_documents() -> None:
    values = [[[n % 10, (n * 7) % 10]] for n in range(40)]
    estimated = estimate(AGGREGATIONS["krippendorff_alpha"], values, bootstrap_iters=200)
    assert estimated.stderr is not None
    assert 0 < estimated.stderr < 0.5
