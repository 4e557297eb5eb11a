"""Confidence intervals: what a number may well be, given what was seen."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

from assay.statistics.evidence import Estimate
from assay.statistics.influence import CLOSE, ROUNDED, Bounds, Influence, Spread

LEVEL = 0.95
COUNTED = 100
"""Up to so many documents, the interval of a share is exact; of more, Wilson's covers as well."""
LARGE = 1000
"""Beyond so many degrees of freedom two terms of an expansion are exact to nine digits."""
FEW_MAKE_IT = 0.4
"""From this skewness, a number has a note about it; one of a logarithmic scale as soon as its interval is adjusted."""
LEAST = 0.5
"""A bounded number counts for at least so many documents."""
SKEWED, ENOUGH = 0.2, 10
"""From this skewness of a number, that of the scores over √n, its interval is adjusted for it; fewer draws do not show it."""
RANKED = 6
"""From so many documents, order statistics give a 95 % interval of a median."""


Decision = Literal["pass", "fail", "inconclusive"]
"""Of a claim about a number: as far as its interval, or a test, decides it."""


def with_interval(estimate: Estimate, level: float = LEVEL, side: str = "both") -> Estimate:
    """The finished number: with its interval at this level, or the bound of one `side`, and how it was made."""
    draws = estimate.draws
    clusters = draws if 0 < draws < estimate.n else None
    ends = one_sided(estimate, level, side)
    if ends is None:
        return replace(estimate, interval=None, method="", df=None, clusters=clusters)
    kind = method(estimate)
    is_counted = estimate.evidence.is_rate and draws == estimate.n
    freedom = None if is_counted or kind == "order" else spread_of(estimate).freedom
    return replace(estimate, interval=ends, method=kind, df=without_rounding(freedom), clusters=clusters)


def without_rounding(freedom: float | None) -> float | None:
    """Degrees of freedom as they are reported: those of one part, the square of a variance over its own, are a whole number but
    for rounding.

    >>> without_rounding(27.999999999999996)
    28.0
    """
    if freedom is None or not math.isfinite(freedom):
        return freedom
    return float(round(freedom)) if math.isclose(freedom, round(freedom), rel_tol=1e-12) else freedom


def interval(estimate: Estimate, level: float = LEVEL) -> tuple[float, float] | None:
    """The interval of a number, within the bounds of its kind; None where it has none."""
    ends = _unbounded(estimate, level)
    if ends is None or estimate.scale is None or not _is_within(estimate, estimate.scale):
        return ends
    return max(ends[0], estimate.scale[0]), min(ends[1], estimate.scale[1])


def one_sided(estimate: Estimate, level: float, side: str) -> tuple[float, float] | None:
    """The interval, or of `side` "lower" or "upper" the bound that holds with this probability alone."""
    if side == "both":
        return interval(estimate, level)
    ends = interval(estimate, 2 * level - 1)
    if ends is None:
        return None
    least, most = estimate.scale or (-math.inf, math.inf)
    return (ends[0], most) if side == "lower" else (least, ends[1])


def method(estimate: Estimate) -> str:
    """By which method a number's interval is made. It is stored with results, so that those of two versions are distinguished."""
    if estimate.evidence.is_rate and _is_counted(estimate):
        return "mid-p"
    if estimate.stderr is None or estimate.value is None or estimate.n < 2:
        return ""
    if estimate.evidence.is_rate or _is_bounded(estimate):
        return "wilson"
    if estimate.evidence.ranked is not None:
        return "order"
    return f"student{'-log' if estimate.evidence.is_power and float(estimate) > 0 else ''}{'-skew' if skewness(estimate) else ''}"


def spread_of(estimate: Estimate) -> Spread:
    """The spread that the interval is made of: that of the parts, with Satterthwaite's degrees of freedom."""
    if estimate.evidence.spread is not None:
        return estimate.evidence.spread
    plain = (estimate.stderr or 0.0) ** 2
    if not estimate.evidence.parts or not all(part.count for part in estimate.evidence.parts):
        return Spread(plain, max(estimate.draws - max(estimate.evidence.tasks, 1), 1), float(estimate))
    more = below = 0.0
    shrunk = estimate.center
    for part, share in estimate.evidence.parts.items():
        own = part.spread()
        more += share**2 * (own.variance - part.variance)
        below += (share**2 * own.variance) ** 2 / own.freedom
        shrunk += share * (own.shrunk - part.center)
    variance = max(plain + more, 0.0)
    return Spread(variance, satterthwaite(estimate.evidence.parts, variance, below), shrunk)


def satterthwaite(parts: Iterable[Influence], variance: float, below: float) -> float:
    """Degrees of freedom of a sum with this variance: `below` is the sum of the parts' squared variances, each over its degrees.
    Documents that parts share are not counted twice."""
    by_source: dict[str, float] = {}
    for part in parts:
        by_source[part.source] = max(by_source.get(part.source, 0.0), part.spread().freedom)
    most = sum(by_source.values())
    return min(variance**2 / below, most) if below else most


def _unbounded(estimate: Estimate, level: float) -> tuple[float, float] | None:
    """The interval of a number; None where it has no standard error, or none from which anything follows.

    A share of few documents has the exact one of its counts (Clopper and Pearson's, mid-p). Any other number within bounds has
    Wilson's, with as many documents as would give its spread, fewer by how much wider Student's is than the normal one: never a
    point, and within the bounds. All others have Student's.
    """
    if estimate.evidence.is_rate and _is_counted(estimate):
        return mid_p(round(float(estimate) * estimate.n), estimate.n, level)
    if estimate.stderr is None or estimate.value is None or estimate.n < 2:
        return None
    if estimate.evidence.is_rate:
        return _of_rate(estimate, level)
    ends = order_statistics(estimate.evidence.ranked, level) if estimate.evidence.ranked is not None else None
    if ends is not None:
        return ends
    spread = spread_of(estimate)
    if math.sqrt(spread.variance) <= ROUNDED * abs(estimate.center):
        return None
    if _is_bounded(estimate):
        return _of_bounded(estimate, spread, level)
    value, error = estimate.center, math.sqrt(spread.variance)
    below, above = (error * each for each in for_skewness(student(level, spread.freedom), skewness(estimate)))
    if estimate.evidence.is_power and value > 0:  # of e: even on the scale of its power, and never below 0
        return value * math.exp(-below / value), value * math.exp(min(above / value, 700.0))
    return value - below, value + above


def skewness(estimate: Estimate) -> float:
    """The skewness of a number over other documents; 0 where it is too small to matter, or not known."""
    sources = {part.source for part in estimate.evidence.parts}
    variance = sum(share**2 * part.variance for part, share in estimate.evidence.parts.items())
    if not (variance**1.5) or len(sources) < len(estimate.evidence.parts) or estimate.draws < ENOUGH:
        return 0.0
    skewed = sum(share**3 * part.third_moment() for part, share in estimate.evidence.parts.items()) / variance**1.5
    return skewed if abs(skewed) > SKEWED else 0.0


def noted(estimate: Estimate) -> Estimate:
    """The number of a task or group with a note, if a few documents make most of what it is uncertain by: others may well move it
    further."""
    least = SKEWED if estimate.evidence.is_power else FEW_MAKE_IT
    parts = estimate.evidence.parts.items()
    is_known = estimate.evidence.parts and all(part.contributions is not None for part in estimate.evidence.parts)
    if estimate.note or not is_known or "student" not in method(estimate) or abs(skewness(estimate)) < least:
        return estimate
    squares = sorted((each for part, share in parts for each in (share * part.by_draw()) ** 2), reverse=True)
    half, count = sum(squares) / 2, 0
    while half > 0:
        half, count = half - squares[count], count + 1
    drawn = "documents" if all(part.clusters is None for part in estimate.evidence.parts) else "clusters"
    share_of_all = f"{count} of {len(squares)} {drawn} {'makes' if count == 1 else 'make'} half of its uncertainty"
    return replace(estimate, note=f"{share_of_all}: others may move it further than its interval says")


def for_skewness(quantile: float, skewness: float) -> tuple[float, float]:
    """How many standard errors the interval of a skewed number goes below it, and above: as far as Hall's, and no less than an
    even one, since the skewness that a few documents show may be theirs alone.

    >>> for_skewness(2.0, 0.0), [round(each, 3) for each in for_skewness(2.0, 0.5)]
    ((2.0, 2.0), [2.0, 8.08])
    """
    if not skewness or math.isinf(quantile):
        return quantile, quantile
    ends = [3 / skewness * (math.cbrt(1 + skewness * (each - skewness / 6)) - 1) for each in (quantile, -quantile)]
    return max(quantile, ends[0]), max(quantile, -ends[1])


def evened(t: float, skewness: float) -> float:
    """A difference in standard errors on the scale on which a skewed one is even (Hall's transformation); the lesser in size."""
    return min(t, t + skewness * t * t / 3 + skewness**2 * t**3 / 27 + skewness / 6, key=abs) if skewness else t


def _is_counted(estimate: Estimate) -> bool:
    """Whether it is the share of so few separate documents that their counts give the interval."""
    return 1 <= estimate.n <= COUNTED and estimate.draws == estimate.n and estimate.evidence.tasks == 1


def _is_bounded(estimate: Estimate) -> bool:
    bounds = estimate.scale
    return bounds is not None and math.isfinite(bounds[0] + bounds[1]) and _is_within(estimate, bounds)


def _is_within(estimate: Estimate, bounds: Bounds) -> bool:
    """Whether the number is within bounds, up to rounding: a weighted mean of ones may be the float after 1."""
    close = CLOSE * (bounds[1] - bounds[0]) if math.isfinite(bounds[0] + bounds[1]) else 0.0
    return bounds[0] - close <= float(estimate) <= bounds[1] + close


def _of_rate(estimate: Estimate, level: float) -> tuple[float, float]:
    """Wilson's, of a share of all documents together. A share of clusters counts for no more documents than it has, and for
    fewer by how much wider that makes Student's (Korn and Graubard)."""
    value, plain = float(estimate), (estimate.stderr or 0.0) ** 2
    if estimate.draws == estimate.n:
        return wilson(value, value * (1 - value) / plain if plain else float(estimate.draws), level)
    return _of_bounded(replace(estimate, scale=(0.0, 1.0)), spread_of(estimate), level)


def _of_bounded(estimate: Estimate, spread: Spread, level: float) -> tuple[float, float]:
    assert estimate.scale is not None
    low, high = estimate.scale
    wide = high - low
    shrunk, value = (spread.shrunk - low) / wide, min(max((estimate.center - low) / wide, 0.0), 1.0)
    weight = shrunk * (1 - shrunk) * wide**2 / spread.variance if spread.variance else float(estimate.draws)
    weight = max(min(weight, float(estimate.n)) if estimate.evidence.is_rate else weight, LEAST)
    normal = NormalDist().inv_cdf(0.5 + level / 2)
    ends = wilson(value, weight * (normal / student(level, spread.freedom)) ** 2, level)
    below, above = low + wide * ends[0], low + wide * ends[1]
    means = next(iter(estimate.evidence.parts)).means_if_alike() if [*estimate.evidence.parts.values()] == [1.0] else ()
    if len(means) <= 1:
        return below, above
    last = len(means) - 1
    ends = float(means[math.floor(last * (1 - level) / 2)]), float(means[math.ceil(last * (1 + level) / 2)])
    return min(below, ends[0]), max(above, ends[1])


@lru_cache(maxsize=8192)
def mid_p(right: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """The shares under which neither so many right of n, nor so few, would be unlikely; what is just as many counts by half.

    >>> [round(end, 4) for end in mid_p(0, 10)], [round(end, 4) for end in mid_p(5, 10)]
    ([0.0, 0.2589], [0.212, 0.788])
    """
    tail = (1 - level) / 2
    low = 0.0 if right == 0 else _root(lambda p: _more(right, n, p) - tail, 0.0, right / n)
    high = 1.0 if right == n else _root(lambda p: _more(right, n, p) - 1 + tail, right / n, 1.0)
    return low, high


def _more(right: int, n: int, p: float) -> float:
    """The probability of more right than so many of n, and half of that of as many, by the beta function."""
    as_many = beta(p, right, n - right + 1) if right else 1.0
    return (as_many + (beta(p, right + 1, n - right) if right < n else 0.0)) / 2


def _root(increasing: Callable[[float], float], low: float, high: float) -> float:
    """Where a function is 0 that is below it at one end and above at the other (regula falsi, as in Illinois)."""
    at_low, at_high = increasing(low), increasing(high)
    for _ in range(200):
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        value = increasing(middle)
        if abs(value) < 1e-12 or abs(high - low) <= 1e-13 * abs(middle):
            return middle
        if value * at_high < 0:
            low, at_low = high, at_high
        else:
            at_low /= 2
        high, at_high = middle, value
    return high


def order_statistics(ranked: Sequence[float], level: float = LEVEL) -> tuple[float, float] | None:
    """The interval of a median: the outermost values beyond which there are too few documents; None of fewer than six at 95 %.

    >>> order_statistics([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    (1.0, 8.0)
    """
    n, chance, beyond = len(ranked), 0.0, -1
    if n > LARGE:
        beyond = math.floor((n - 1 - NormalDist().inv_cdf(0.5 + level / 2) * math.sqrt(n)) / 2)
        return float(ranked[beyond]), float(ranked[n - 1 - beyond])
    log = -n * math.log(2)
    for k in range(n // 2 + 1):
        chance += math.exp(log)
        if chance > (1 - level) / 2:
            break
        beyond, log = k, log + math.log((n - k) / (k + 1))
    return (float(ranked[beyond]), float(ranked[n - 1 - beyond])) if beyond >= 0 else None


def wilson(p: float, n: float, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's interval of a share p of n.

    >>> [round(end, 4) for end in wilson(0.0, 10)], [round(end, 4) for end in wilson(0.5, 100)]
    ([0.0, 0.2775], [0.4038, 0.5962])
    """
    z = NormalDist().inv_cdf(0.5 + level / 2)
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return 0.0 if p == 0 else max(0.0, centre - half), 1.0 if p == 1 else min(1.0, centre + half)


@lru_cache(maxsize=4096)
def student(level: float, freedom: float) -> float:
    """How many standard errors Student's distribution puts on either side.

    >>> round(student(0.95, 10), 3), round(student(0.95, 1), 2), round(student(0.95, 1.5), 3), round(student(0.95, 10**6), 3)
    (2.228, 12.71, 6.017, 1.96)
    """
    freedom = freedom if freedom > 1 else 1.0  # also of NaN
    if level >= 1:
        return math.inf
    z, n = NormalDist().inv_cdf(0.5 + level / 2), freedom
    guess = z + (z**3 + z) / 4 / n + (5 * z**5 + 16 * z**3 + 3 * z) / 96 / n**2
    if n > LARGE:
        return guess
    if n >= 2:
        return _refined(guess, level, n)
    low, high = z, z + 1.0
    while student_tail(high, n) > 1 - level:
        low, high = high, 2 * high
    return _root(lambda t: 1 - level - student_tail(t, n), low, high)


def _refined(guess: float, level: float, freedom: float) -> float:
    """A quantile of Student's, by Newton's steps from one nearby."""
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    for _ in range(50):
        density = math.exp(scale - (freedom + 1) / 2 * math.log1p(guess * guess / freedom))
        step = (student_tail(guess, freedom) - 1 + level) / (2 * density)
        guess += step
        if abs(step) < 1e-12 * guess:
            break
    return guess


def student_tail(t: float, freedom: float) -> float:
    """The probability that Student's variable is further from 0 than t: the incomplete beta function of f/(f + t²).

    >>> round(student_tail(2.228, 10), 4), round(student_tail(1.0, 1), 4)
    (0.05, 0.5)
    """
    if freedom > 1e6:
        return 2 * NormalDist().cdf(-abs(t))
    return beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def beta(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function.

    >>> round(beta(0.5, 2, 2), 9), round(beta(0.3, 1, 3), 9)
    (0.5, 0.657)
    """
    if not 0 < x < 1:
        return 0.0 if x <= 0 else 1.0
    scale = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return scale * _fraction(x, a, b) / a
    return 1 - scale * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function (Lentz's way to sum it up)."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    total = d
    for m in range(1, 300):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + step * d)
            c = 1 + step / c
            total *= c * d
        if abs(c * d - 1) < 1e-13:
            break
    return total
