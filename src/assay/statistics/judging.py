"""How well a judge agrees with people: kappa, Spearman's correlation, and the jackknife that gives them intervals."""

import math
from collections.abc import Callable

import numpy as np

from assay.records import Floats
from assay.statistics.influence import Bounds, Estimate, Spread
from assay.statistics.intervals import LEVEL

CORRELATION: Bounds = (-1.0, 1.0)
Statistic = Callable[[Floats, Floats], float]
"""A number of two columns; NaN where it is not defined."""


def kappa(a: Floats, b: Floats) -> float:
    """Cohen's kappa of two columns of categories: 1 where all agree, 0 where they agree as by chance.

    >>> round(kappa(np.array([1.0, 1, 0, 0]), np.array([1.0, 0, 0, 0])), 4)
    0.5
    """
    kinds = np.union1d(a, b)
    chance = sum(float((a == kind).mean() * (b == kind).mean()) for kind in kinds)
    return (float((a == b).mean()) - chance) / (1 - chance) if chance < 1 else math.nan


def spearman(a: Floats, b: Floats) -> float:
    """Spearman's correlation: Pearson's of the ranks, with the middle rank for those that are equal.

    >>> round(spearman(np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])), 4)
    0.8
    """
    one, two = _ranks(a), _ranks(b)
    one, two = one - one.mean(), two - two.mean()
    below = math.sqrt(float((one**2).sum() * (two**2).sum()))
    return float((one * two).sum()) / below if below else math.nan


def _ranks(numbers: Floats) -> Floats:
    _, place, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    middle: Floats = np.cumsum(counts) - (counts - 1) / 2
    return middle[place]


def jackknifed(statistic: Statistic, a: Floats, b: Floats, *, level: float = LEVEL) -> Estimate:
    """A number of two columns with the interval of its jackknife: how far it moves when each document is left out.

    >>> jackknifed(spearman, np.array([1.0, 2, 3, 4, 5]), np.array([1.0, 3, 2, 4, 5])).value
    0.9
    """
    n, value = len(a), statistic(a, b) if len(a) > 1 else math.nan
    if math.isnan(value):
        return Estimate(value, None, n, "all labels or all scores are alike" if n > 1 else "one document has no spread")
    keep = ~np.eye(n, dtype=bool)
    left = np.array([statistic(a[each], b[each]) for each in keep])
    if n < 3 or np.isnan(left).any():
        return Estimate(value, None, n, "it depends on one document alone")
    variance = (n - 1) / n * float(((left - left.mean()) ** 2).sum())
    if not variance:
        return Estimate(value, None, n, "it is the same whichever document is left out")
    spread = Spread(variance, float(n - 1), value)
    return Estimate(value, math.sqrt(variance), n, spread=spread, bounds=CORRELATION, level=level)
