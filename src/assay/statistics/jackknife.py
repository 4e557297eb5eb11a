"""The jackknife: an interval for any number of pairs, by how far it moves when each document is left out."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.influence import Bounds, Spread
from assay.statistics.intervals import with_interval

CORRELATION: Bounds = (-1.0, 1.0)
Pairs = Sequence[tuple[float, float]]
Statistic = Callable[[Pairs], float]
"""A number of pairs, such as a correlation; it raises a ValueError where it is not defined."""


def jackknifed(statistic: Statistic, pairs: Pairs) -> Estimate:
    """A number from -1 to 1 of pairs, one for each document, with the interval of its jackknife.

    >>> from assay.statistics.agreement import spearman
    >>> round(jackknifed(spearman, [(1, 1), (2, 3), (3, 2), (4, 4), (5, 5)]).value, 4)
    0.9
    """
    n = len(pairs)
    if n < 2:
        return Estimate(None, None, n, "one document has no spread")
    try:
        value = statistic(pairs)
    except ValueError:
        return Estimate(None, None, n, "all labels or all scores are alike")
    try:
        left = np.array([statistic([*pairs[:at], *pairs[at + 1 :]]) for at in range(n)])
    except ValueError:
        left = np.empty(0)
    if n < 3 or not len(left):
        return Estimate(value, None, n, "it depends on one document alone")
    variance = (n - 1) / n * float(((left - left.mean()) ** 2).sum())
    if not variance:
        return Estimate(value, None, n, "it is the same whichever document is left out")
    spread = Spread(variance, float(n - 1), value)
    number = Estimate(value, math.sqrt(variance), n, scale=CORRELATION, evidence=Evidence(spread=spread))
    return with_interval(number)
