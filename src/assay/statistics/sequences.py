"""Decide about a mean while its documents arrive: the error holds however often one looks, and whenever one stops.

A gambler bets on each document that the mean is above the threshold. Were it not, the capital would hardly ever grow twentyfold
(Ville's inequality; Waudby-Smith and Ramdas 2023, Howard et al. 2021). The capital is divided evenly among bets of several
sizes, since the right size depends on the true mean and the spread, which are not known before.
"""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from assay.records import Floats
from assay.statistics.influence import Bounds
from assay.statistics.intervals import LEVEL, Decision

BETS = 12
"""Sizes of bets. With 6, or 16, a decision needs about as many documents."""
BOLDEST = 0.95
"""The share of the capital that the largest bet loses on the worst document."""
SHYEST = 2.0
"""The smallest bet, for scores from -1 to 1 and a single document; it shrinks with the root of their number."""
STEPS = 40
"""Halvings to find an end of an interval."""


class SequentialTest:
    """A test whether a mean is above a threshold, which may be looked at after every observation.

    The scores are within `bounds`; `documents` is how many are expected, which sets the sizes of the bets and no more. Either
    decision is wrong with a probability of `alpha` at most. Observations may be arrays, of as many runs at a time.

    >>> test = SequentialTest(0.5, (0.0, 1.0), documents=100)
    >>> [test.add(1.0) for _ in range(7)]
    ['inconclusive', 'inconclusive', 'inconclusive', 'inconclusive', 'inconclusive', 'inconclusive', 'pass']
    """

    def __init__(self, threshold: float, bounds: Bounds, documents: int, alpha: float = 1 - LEVEL) -> None:
        if not bounds[0] < threshold < bounds[1]:
            raise ValueError(f"threshold: {threshold:g} is not between {bounds[0]:g} and {bounds[1]:g}")
        self.threshold, self.bounds, self.alpha, self.documents = threshold, bounds, alpha, max(documents, 1)
        self._bets = self._sizes(threshold, above=True), self._sizes(threshold, above=False)
        self._logs = np.zeros(BETS), np.zeros(BETS)
        self._seen: list[tuple[float, float, float]] = []

    def add(self, low: float, high: float | None = None, weight: float = 1.0) -> Decision:
        """Count a document, and decide. One that has no score counts as the `low`est it could have for a pass, and as the
        `high`est for a fail. `weight` is that of the document, as a share of the largest there is."""
        self._seen.append((low, low if high is None else high, weight))
        self.count(low, high, weight)
        if self.capital("pass") >= 1 / self.alpha:
            return "pass"
        return "fail" if self.capital("fail") >= 1 / self.alpha else "inconclusive"

    def count(self, low: ArrayLike, high: ArrayLike | None = None, weight: ArrayLike = 1.0) -> None:
        """Count one document of each of many runs; `capital` has the state of each."""
        changes = [
            np.asarray(weight) * (np.asarray(each) - self.threshold) for each in (low, low if high is None else high)
        ]
        above, below = (
            (logs.T + np.log1p(np.multiply.outer(change, bets))).T
            for logs, bets, change in zip(self._logs, self._bets, changes, strict=True)
        )
        self._logs = above, below

    def capital(self, claim: Literal["pass", "fail"]) -> Any:
        """How many times its first capital the bet on a claim holds now."""
        return _mean_of_logs(self._logs[claim == "fail"])

    def _sizes(self, threshold: float, *, above: bool) -> Floats:
        """Sizes of bets on a mean above, or below, a threshold: none can lose more than there is."""
        low, high = self.bounds
        largest = BOLDEST / (threshold - low if above else high - threshold)
        smallest = SHYEST / ((high - low) / 2 * math.sqrt(self.documents))
        sizes = np.geomspace(min(smallest, largest / 2), largest, BETS)
        return sizes if above else -sizes

    def interval(self) -> Bounds:
        """The means that no bet at level `alpha`, on either side, has refuted by now; valid whenever one stops."""
        return self._end(above=True), self._end(above=False)

    def _end(self, *, above: bool) -> float:
        scores = np.array([low if above else high for low, high, _ in self._seen])
        weights = np.array([weight for _, _, weight in self._seen])
        refuted, left = self.bounds if above else self.bounds[::-1]
        for _ in range(STEPS):
            middle = (refuted + left) / 2
            logs = np.log1p(np.multiply.outer(self._sizes(middle, above=above), weights * (scores - middle)))
            if len(scores) and float(_mean_of_logs(logs.sum(axis=-1))) >= 1 / self.alpha:
                refuted = middle
            else:
                left = middle
        return float(refuted)


def _mean_of_logs(logs: Floats) -> Any:
    """The mean of numbers whose logarithms these are, along the first axis."""
    with np.errstate(over="ignore"):
        return np.exp(logs).mean(axis=0)


def spent_at(number: int, alpha: float = 1 - LEVEL) -> float:
    """The alpha of the n-th test of a series without an end: α/(n(n + 1)), which sums to alpha.

    >>> [round(spent_at(n), 5) for n in (1, 2, 3)], round(sum(spent_at(n) for n in range(1, 1000)), 4)
    ([0.025, 0.00833, 0.00417], 0.05)
    """
    if number < 1:
        raise ValueError(f"number: the first is 1, got {number}")
    return alpha / (number * (number + 1))


def without_difference(alpha: float, share: float) -> float:
    """The upper bound of the share that differs, if none of the documents does: of n alike, each a share of 1/n, 1 − α^(1/n).
    Of documents with different shares, the largest gives a bound for all (the bound is concave in each).

    >>> round(without_difference(0.05, 1 / 300), 5)
    0.00994
    """
    return -math.expm1(math.log(alpha) * share)
