"""How far a number moves when the same documents are answered by somebody else."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from assay.records import Draws
from assay.statistics.aggregations import Aggregation, Values
from assay.statistics.estimates import estimate
from assay.statistics.intervals import LEVEL
from assay.statistics.paired import Contrast, interval, reach


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
    if known is None or known.influence is None:
        return plain._replace(reason=f"none is known for {known.name if known is not None else 'this aggregation'}")
    moves = [np.asarray(known.influence(values), dtype=np.float64) for values in (before, after)]
    usable = len(moves[0]) == len(moves[1]) and (clusters is None or len(moves[0]) == len(clusters))
    if not usable or len(moves[0] if clusters is None else set(clusters)) < 2:
        return plain._replace(reason="too few documents can be compared in pairs")
    made = Draws.of_mean("", range(len(moves[0])), moves[1] - moves[0], clusters)
    is_rate = known.name == "mean" and {*before, *after} <= {0, 1}
    can, does = np.full(len(before), 1 / len(before)), (moves[1] - moves[0]) / len(before)
    drawn = [Draws("", range(len(before)), each, clusters=clusters).summed() for each in (can, does)]
    unit = reach(drawn[0], drawn[1], len(before)) if is_rate else 0.0
    contrast = Contrast(plain.value, None, made.variance, len(before), made.count, unit=unit)
    return plain._replace(interval=interval(contrast, level) or (plain.value, plain.value))
