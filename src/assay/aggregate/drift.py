"""How far a number moves when the same documents are answered by somebody else."""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from assay.aggregate.estimate import estimate
from assay.aggregate.functions import Aggregation, Values
from assay.aggregate.interval import LEVEL, student
from assay.records import Draws


class Drift(NamedTuple):
    """A number before and after, of the same n documents, and the interval of their difference; without one, `reason`."""

    before: float
    after: float
    n: int
    interval: tuple[float, float] | None = None
    reason: str = ""

    @property
    def value(self) -> float:
        return self.after - self.before


def drift(
    aggregation: Aggregation | Callable[[Values], float],
    before: Values,
    after: Values,
    *,
    level: float = LEVEL,
    clusters: Sequence[int] | None = None,
) -> Drift:
    """What becomes of a number. The values are of the same documents in the same order: they are compared in pairs."""
    was, now = (
        estimate(aggregation, values, bootstrap_iters=0, like_lm_eval=False) if len(values) else None
        for values in (before, after)
    )
    if was is None or now is None or math.isnan(was) or math.isnan(now):
        return Drift(math.nan, math.nan, len(before), None, "it is no number")
    plain = Drift(float(was), float(now), len(before))
    known = aggregation if isinstance(aggregation, Aggregation) else None
    if known is not None and known.name == "mean" and clusters is None and {*before, *after} <= {0, 1}:
        return plain._replace(interval=difference_of_shares(before, after, level))
    if known is None or known.influence is None:
        return plain._replace(reason=f"none is known for {known.name if known is not None else 'this aggregation'}")
    moves = [np.asarray(known.influence(values), dtype=np.float64) for values in (before, after)]
    usable = len(moves[0]) == len(moves[1]) and (clusters is None or len(moves[0]) == len(clusters))
    draws = len(moves[0]) if clusters is None else len(set(clusters))
    if not usable or draws < 2:
        return plain._replace(reason="too few documents can be compared in pairs")
    return plain._replace(interval=_interval(plain.value, moves[1] - moves[0], level, clusters))


def _interval(value: float, moves: Any, level: float, clusters: Sequence[int] | None) -> tuple[float, float]:
    made = Draws.of_mean("", range(len(moves)), moves, clusters)
    half = student(level, made.count - 1) * math.sqrt(made.variance)
    return value - half, value + half


def difference_of_shares(before: Values, after: Values, level: float = LEVEL) -> tuple[float, float]:
    """The interval of the difference of two shares of the same documents: Bonett and Price's (2012), never a point.

    >>> [round(end, 4) for end in difference_of_shares([1] * 10, [1] * 10)]
    [-0.2309, 0.2309]
    """
    pairs = list(zip(before, after, strict=True))
    lost, won = sum(a > b for a, b in pairs), sum(b > a for a, b in pairs)
    n = len(pairs) + 2
    gone, come = (lost + 1) / n, (won + 1) / n
    half = NormalDist().inv_cdf(0.5 + level / 2) * math.sqrt((gone + come - (come - gone) ** 2) / n)
    return max(-1.0, come - gone - half), min(1.0, come - gone + half)
