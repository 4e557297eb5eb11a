"""Two runs on the same documents: how likely a difference is by chance, how large it may be, how small a one would be skewed.

The documents are the draws. Were both runs equally good, each document might as well have been scored the other way round:
this is what the tests build on (sign flips of what each document contributes; where all contribute the same, McNemar's).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from assay.records import Floats
from assay.statistics.aggregations import Aggregation, Values
from assay.statistics.estimates import estimate, resamples, whole_clusters
from assay.statistics.evidence import Estimate, Interval
from assay.statistics.influence import Influence, Spread
from assay.statistics.intervals import (
    ENOUGH,
    LEVEL,
    SKEWED,
    evened,
    for_skewness,
    satterthwaite,
    student,
    student_tail,
    without_rounding,
)

FLIPS = 10_000
"""Sign flips that are drawn where there are too many to take each: p is known to 0.002 near 0.05."""
EVERY = 13
"""Up to so many documents that differ, every combination of signs is taken."""
MANY = 1000
"""Beyond so many, the sum of random signs is as good as normal."""
FEW = 64
"""Up to so many different contributions, the signs of equal ones are drawn together."""
BESIDE = 1e-9
"""The end of an interval that must not hold 0 is at least so much of the difference beside it."""
HALF = 0.5
"""Added to the wins and to the losses of a rate, so that its interval is never a point."""


@dataclass(frozen=True)
class Contrast:
    """A difference and what each draw (a document, or a cluster of them) contributes to it: their sum is the difference.

    `variance` is that of the difference over other documents. `unit` is, for rates, how far one draw can move it (the root of
    the mean square); 0 for other numbers. `tasks` is how many numbers were taken from the data to know the spread.
    Where nothing but the variance is known, there are no contributions. `spread` is that of the interval, if it is another one.
    `wide` is how large the difference can be, `own_test` the p of a number that was computed anew. `has_clusters` says that draws
    are clusters, and not only documents that several tasks have.
    """

    difference: float
    contributions: Any
    variance: float
    documents: int
    draws: int
    tasks: int = 1
    unit: float = 0.0
    spread: Spread | None = None
    wide: float = math.inf
    own_test: "Significance | None" = None
    has_clusters: bool = False

    @cached_property
    def tested(self) -> "Significance":
        return self.own_test or _tested(self)

    @cached_property
    def skewness(self) -> float:
        """Skewness of the difference over other documents; 0 of rates, whose changes are few values, and of clusters."""
        if (
            self.draws < ENOUGH
            or self.unit
            or self.contributions is None
            or self.is_clustered
            or not (self.variance**1.5)
        ):
            return 0.0
        skewed = float(((np.asarray(self.contributions) - np.mean(self.contributions)) ** 3).sum()) / self.variance**1.5
        return skewed if abs(skewed) > SKEWED else 0.0

    @property
    def stderr(self) -> float:
        return math.sqrt(self.variance)

    @property
    def is_clustered(self) -> bool:
        return self.draws < self.documents

    @property
    def freedom(self) -> float:
        return self.spread.freedom if self.spread is not None else float(max(self.draws - self.tasks, 1))


def spread_of_draws(drawn: Sequence[Influence], plain: float) -> Spread:
    """The spread for intervals of a sum of influences with this variance, with Satterthwaite's degrees of freedom."""
    own = [each.spread() for each in drawn]
    variance = max(plain + sum(wide.variance - each.variance for wide, each in zip(own, drawn, strict=True)), 0.0)
    below = sum(wide.variance**2 / wide.freedom for wide in own)
    return Spread(variance, satterthwaite(drawn, variance, below), 0.0)


class Significance(NamedTuple):
    """How likely a difference as large is by chance, and by which test."""

    p: float
    test: str


@dataclass(frozen=True, slots=True, repr=False)
class PairedDifference(Estimate):
    """How much larger a number is in the second of two runs, on the same documents, and how likely that is by chance."""

    p: float | None = None
    test: str = ""
    """The test that p is of."""

    @property
    def excludes_zero(self) -> bool | None:
        """Whether 0 is not in the interval; None where there is none."""
        if self.low is None or self.high is None:
            return None
        return not self.low <= 0 <= self.high

    def reversed(self) -> "PairedDifference":
        """The difference of the first to the second."""
        low, high = self.interval or (None, None)
        ends = (None if high is None else -high, None if low is None else -low)
        value = None if self.value is None else -self.value
        return replace(self, value=value, interval=None if self.interval is None else ends)


def paired_difference(contrast: Contrast, level: float = LEVEL) -> PairedDifference:
    """The difference of two runs with its interval and p."""
    tested = significance(contrast)
    return PairedDifference(
        contrast.difference,
        contrast.stderr,
        contrast.documents,
        interval=interval(contrast, level),
        df=without_rounding(contrast.freedom),
        clusters=contrast.draws if contrast.draws < contrast.documents else None,
        p=tested.p,
        test=tested.test,
    )


def paired_contrast(
    a: Floats, b: Floats, clusters: Sequence[int] | None, *, is_rate: bool, wide: float = math.inf
) -> Contrast:
    """The difference of the means of one score per document. `wide` is how far a score can change."""
    n, changes = len(a), b - a
    draws = drawn_changes(changes, "", range(n), clusters, math.inf if is_rate else wide)
    can, does = (
        Influence("", range(n), each, clusters=clusters).by_draw() for each in (np.full(n, 1 / n), changes / n)
    )
    unit = reach(can, does, n) if is_rate else 0.0
    spread = spread_of_draws([draws], draws.variance)
    return Contrast(
        float(changes.mean()), does, draws.variance, n, draws.count,
        unit=unit, spread=spread, wide=wide, has_clusters=draws.count < n,
    )  # fmt: skip


def drawn_changes(
    changes: Floats, source: str, documents: Sequence[int], clusters: Sequence[int] | None, wide: float
) -> Influence:
    """How far each document moves a difference, where no score changes by more than `wide`. If none changes, bounds say nothing."""
    bounds = (-abs(wide), abs(wide)) if math.isfinite(wide) and np.any(changes) else None
    return Influence.of_mean(source, documents, changes, clusters, bounds=bounds)


def interval(contrast: Contrast, level: float) -> tuple[float, float] | None:
    """The confidence interval of the difference; None where no document says anything about it.

    Rates: half a draw is added to either side (Bonett and Price add a whole one, which covers too often), so that the interval
    is not a point where both runs agree on all documents. Other numbers: Student's, by the number of draws. It holds 0 where p
    does not reject at this level, and else does not: where the two are made of different distributions, its end is moved to 0.
    """
    if not contrast.variance and not contrast.unit:
        return None
    centre, error = smoothed(contrast)
    below, above = for_skewness(quantile(contrast, level), contrast.skewness)
    low = max(min(centre - below * error, contrast.difference), -contrast.wide)
    high = min(max(centre + above * error, contrast.difference), contrast.wide)
    if not contrast.difference:
        return low, high
    rejects, beside = contrast.tested.p < 1 - level, contrast.difference * BESIDE
    if contrast.difference > 0:
        return (max(low, beside) if rejects else min(low, 0.0)), high
    return low, (min(high, beside) if rejects else max(high, 0.0))


def quantile(contrast: Contrast, level: float) -> float:
    """How many standard errors the interval of a difference goes to either side."""
    if contrast.unit and not contrast.is_clustered:
        return NormalDist().inv_cdf(0.5 + level / 2)
    return student(level, contrast.freedom)


def _tail(contrast: Contrast, t: float) -> float:
    if contrast.unit and not contrast.is_clustered:
        return 2 * NormalDist().cdf(-abs(t))
    return student_tail(t, contrast.freedom)


def smoothed(contrast: Contrast) -> tuple[float, float]:
    """The middle of the interval and the standard error in it."""
    variance = contrast.spread.variance if contrast.spread is not None else contrast.variance
    if not contrast.unit:
        return contrast.difference, math.sqrt(variance)
    share = contrast.draws / (contrast.draws + 2 * HALF)
    return contrast.difference * share, math.sqrt(variance + 2 * HALF * contrast.unit**2) * share


def reach(can: "Sequence[float] | Floats", does: "Sequence[float] | Floats", documents: int) -> float:
    """The unit of a rate, from how far each draw can move it and how far it does: the root of the mean square.

    A document counts as far as it can move it. A cluster, or a document that several tasks have, seldom goes so far: it counts
    as those do that move it at all, and only where none does as far as it can.

    >>> reach([0.25] * 4, [0.0, 0.25, 0.0, 0.0], 4), reach([0.5, 0.5], [0.25, 0.0], 4), reach([0.5, 0.5], [0.0, 0.0], 4)
    (0.25, 0.25, 0.5)
    """
    possible, changes = np.asarray(can), np.abs(does)
    seen = changes[changes > 1e-12 * possible]
    chosen = seen if len(seen) and len(possible) < documents else possible
    return math.sqrt(float(np.mean(np.square(chosen))))


def detectable(contrast: Contrast, power: float, level: float = 0.95) -> float | None:
    """The least true difference that would be distinguished from 0 with this power, at the level of the interval."""
    error = smoothed(contrast)[1]
    return error * _quantiles(power, 1 - level) if error else None


def significance(contrast: Contrast) -> Significance:
    """The probability of a difference at least as large if both were equally good, half of that of one just as large."""
    return contrast.tested


def _tested(contrast: Contrast) -> Significance:
    if contrast.contributions is None or contrast.has_clusters:
        return _student(contrast)
    sizes = np.abs(np.asarray(contrast.contributions, dtype=np.float64))
    sizes = np.sort(sizes[sizes > 1e-12 * sizes.max(initial=0.0)])
    if not len(sizes) or not contrast.difference:
        return Significance(1.0, "no difference")
    if contrast.skewness:
        return _student(contrast)
    if sizes[-1] - sizes[0] <= 1e-9 * sizes[-1]:
        signed = np.asarray(contrast.contributions)[np.abs(contrast.contributions) > sizes[0] / 2]
        plus = int((signed > 0).sum())
        return Significance(mcnemar(plus, len(signed) - plus), "McNemar" if contrast.unit else "sign test")
    if len(sizes) <= MANY:
        return Significance(sign_flips(sizes, contrast.difference), "permutation")
    return _student(contrast)


def _student(contrast: Contrast) -> Significance:
    """By the interval's own distribution: it holds 0 exactly where this does not reject."""
    centre, error = smoothed(contrast)
    if not contrast.difference or not error:  # without a spread nothing speaks against chance
        return Significance(1.0, "no spread" if contrast.difference else "no difference")
    skewed = contrast.skewness
    return Significance(_tail(contrast, evened(centre / error, skewed)), "Hall" if skewed else "Student")


def mcnemar(wins: int, losses: int) -> float:
    """McNemar's p for as many documents that only one and that only the other run got right: exact, two-sided, mid-p.

    The plain exact p is conservative: at 5 % it rejects 3.4 % of equal pairs in the mean, 1.9 % at least (bench/paired.py).

    >>> mcnemar(5, 5), round(mcnemar(1, 7), 4)
    (1.0, 0.0391)
    """
    n, few = wins + losses, min(wins, losses)
    if wins == losses:
        return 1.0
    counts = np.arange(few + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log((n - counts[:-1]) / (counts[:-1] + 1.0)))]) - n * math.log(2)
    chances = np.exp(logs)
    return min(1.0, float(2 * chances.sum() - chances[-1]))


def sign_flips(sizes: "Sequence[float] | Floats", difference: float, draws: int = FLIPS) -> float:
    """The share of sign flips of the contributions whose sum is larger than the difference, and half of those as large.

    It depends on the sizes of the contributions alone, so that neither the order of documents nor that of runs matters.
    """
    sizes = np.sort(np.asarray(sizes, dtype=np.float64))
    observed, close = abs(difference), 1e-9 * float(sizes.sum())
    larger = equal = 0
    every = len(sizes) <= EVERY
    for sums in map(np.abs, _every_sum(sizes) if every else _drawn_sums(sizes, draws)):
        larger += int((sums > observed + close).sum())
        equal += int((np.abs(sums - observed) <= close).sum())
    whole = 2 ** len(sizes) if every else draws
    own = 0.0 if every else 1.0  # of the drawn ones, what was seen counts as one more
    return (larger + (equal + own) / 2) / (whole + own)


def _every_sum(sizes: Floats) -> Iterator[Floats]:
    bits = np.arange(2 ** len(sizes))[:, None] >> np.arange(len(sizes)) & 1
    yield (bits * 2.0 - 1.0) @ sizes


def _drawn_sums(sizes: Floats, draws: int) -> Iterator[Floats]:
    """Sums with random signs. Where few sizes differ, how many of each are positive is drawn instead of every sign."""
    random = np.random.Generator(np.random.SFC64(0))
    different, counts = np.unique(np.round(sizes / sizes[-1], 12), return_counts=True)
    if len(different) <= FEW:
        yield (2.0 * random.binomial(counts, 0.5, size=(draws, len(different))) - counts) @ (different * sizes[-1])
        return
    rows = max(1, min(draws, 500_000 // len(sizes)))
    for start in range(0, draws, rows):
        bits = random.integers(0, 2, size=(min(rows, draws - start), len(sizes)), dtype=np.int8)
        yield (2.0 * bits - 1.0) @ sizes


def holm(ps: Sequence[float]) -> list[float]:
    """Each p, corrected so that the chance of one wrong rejection among all is what it says (Holm).

    >>> [round(p, 9) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    corrected, least = [0.0] * len(ps), 0.0
    for place, number in enumerate(sorted(range(len(ps)), key=lambda each: ps[each])):
        least = max(least, min(1.0, (len(ps) - place) * ps[number]))
        corrected[number] = least
    return corrected


def documents_needed(variance: float, effect: float, power: float, alpha: float) -> int:
    """How many documents distinguish a difference from 0; `variance` is that of one document's difference.

    >>> documents_needed(0.25, 0.05, 0.8, 0.05)
    785
    """
    return max(2, math.ceil(variance * (_quantiles(power, alpha) / effect) ** 2))


def effect_found(variance: float, documents: int, power: float, alpha: float) -> float:
    """The least difference that so many documents distinguish from 0."""
    return math.sqrt(variance / documents) * _quantiles(power, alpha)


def _quantiles(power: float, alpha: float) -> float:
    normal = NormalDist()
    return normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)


class PairedValues(NamedTuple):
    """The scores of both runs on the same documents, and the cluster of each where there are any."""

    a: Values
    b: Values
    clusters: Sequence[int] | None = None


def recomputed(
    function: Callable[[Values], float], values: PairedValues, iterations: int
) -> tuple[Contrast, Significance] | None:
    """A difference of numbers that must be computed anew for other documents: its spread over resamples of the pairs, and
    its p over runs that take each document from either. None where the function takes some resample badly, or has no number
    for it."""
    a, b, clusters = values
    n = len(a)
    try:
        observed = function(b) - function(a)
        drawn = resamples(n, iterations) if clusters is None else whole_clusters(clusters, iterations)
        resampled = [
            function([b[i] for i in row]) - function([a[i] for i in row]) for rows in drawn for row in rows.tolist()
        ]
        swapped = [abs(each) for each in _swapped(function, values, iterations)]
    except (TypeError, ValueError, ArithmeticError, LookupError):
        return None
    if not np.isfinite([observed, *resampled, *swapped]).all():
        return None
    count = n if clusters is None else len(set(clusters))
    spread = float(np.var(resampled, ddof=1)) * count / (count - 1)
    close = 1e-9 * max(1e-300, abs(observed))
    larger = sum(each > abs(observed) + close for each in swapped)
    equal = sum(abs(each - abs(observed)) <= close for each in swapped)
    p = 1.0 if not observed else (larger + (equal + 1) / 2) / (iterations + 1)
    tested = Significance(p, "permutation")
    return Contrast(observed, None, spread, n, count, own_test=tested), tested


def _swapped(function: Callable[[Values], float], values: PairedValues, draws: int) -> Iterator[float]:
    """The difference with the runs exchanged on a random half of the documents, or of the clusters."""
    a, b, clusters = values
    place = np.arange(len(a)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    random = np.random.Generator(np.random.SFC64(0))
    for _ in range(draws):
        swap = random.integers(0, 2, size=int(place.max()) + 1)[place].tolist()
        mixed = [(y, x) if other else (x, y) for x, y, other in zip(a, b, swap, strict=True)]
        yield function([y for _, y in mixed]) - function([x for x, _ in mixed])


class Drift(NamedTuple):
    """A number before and after, of the same documents, and their difference."""

    before: float
    after: float
    change: PairedDifference


def drift(
    aggregation: Aggregation | Callable[[Values], float],
    before: Values,
    after: Values,
    *,
    level: float = LEVEL,
    clusters: Sequence[int] | None = None,
) -> Drift:
    """The change of a number. The values are of the same documents in the same order: they are compared in pairs."""
    was, now = (estimate(aggregation, values, bootstrap_iters=0) if len(values) else None for values in (before, after))
    if was is None or now is None or math.isnan(was) or math.isnan(now):
        return Drift(math.nan, math.nan, PairedDifference(math.nan, n=len(before), reason="it is not a number"))
    difference = float(now) - float(was)

    def changed_by(ends: Interval | None, reason: str = "") -> Drift:
        change = PairedDifference(difference, interval=ends, n=len(before), reason=reason)
        return Drift(float(was), float(now), change)

    known = aggregation if isinstance(aggregation, Aggregation) else None
    if known is None or known.influence is None:
        return changed_by(None, f"none is known for {known.name if known is not None else 'this aggregation'}")
    influence = [np.asarray(known.influence(values), dtype=np.float64) for values in (before, after)]
    usable = len(influence[0]) == len(influence[1]) and (clusters is None or len(influence[0]) == len(clusters))
    if not usable or len(influence[0] if clusters is None else set(clusters)) < 2:
        return changed_by(None, "too few documents can be compared in pairs")
    is_rate = known.name == "mean" and {*before, *after} <= {0, 1}
    contrast = paired_contrast(influence[0], influence[1], clusters, is_rate=is_rate)
    contrast = replace(contrast, difference=difference, contributions=None)
    return changed_by(interval(contrast, level) or (difference, difference))
