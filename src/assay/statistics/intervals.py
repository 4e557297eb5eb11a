"""Confidence intervals: what a number may well be, given what was seen."""

import math
from statistics import NormalDist

from assay.records import Estimate

LEVEL = 0.95


def interval(estimate: Estimate, level: float = LEVEL) -> tuple[float, float] | None:
    """The interval of a number, within the bounds of its kind; None where it has none."""
    ends = _unbounded(estimate, level)
    if ends is None or estimate.bounds is None or not estimate.bounds[0] <= estimate <= estimate.bounds[1]:
        return ends
    return max(ends[0], estimate.bounds[0]), min(ends[1], estimate.bounds[1])


def _unbounded(estimate: Estimate, level: float) -> tuple[float, float] | None:
    """The interval of a number; None where it has no standard error, or none from which anything follows.

    A rate has Wilson's, with as many documents as would give its standard error: never a point, and within 0 and 1. Any
    other number has Student's, with the degrees of freedom of its documents, or of their clusters; a rate of clusters counts
    for no more documents than it has, and for fewer by how much wider that makes Student's (Korn and Graubard).
    """
    if estimate.is_rate and estimate.stderr is None and estimate.n == 1:
        return wilson(float(estimate), 1, level)
    if estimate.stderr is None or math.isnan(estimate) or estimate.n < 2:
        return None
    value, error = float(estimate), estimate.stderr
    freedom = estimate.draws - max(estimate.tasks, 1)
    if error == 0 and not estimate.is_rate:
        return _from_members(estimate, level)
    if estimate.is_rate:
        weight = value * (1 - value) / error**2 if error > 0 else float(estimate.draws)
        if estimate.draws < estimate.n:
            weight = min(weight, estimate.n) * (student(level, estimate.n - 1) / student(level, freedom)) ** 2
        return wilson(value, weight, level)
    half = student(level, freedom) * error
    if estimate.is_power and value > 0:  # of e: even on the scale of its power, and never below 0
        return value * math.exp(-half / value), value * math.exp(min(half / value, 700.0))
    return value - half, value + half


def _from_members(estimate: Estimate, level: float) -> tuple[float, float] | None:
    """Where all documents scored alike: from the intervals of the members (Zou and Donner's way to put them together)."""
    below = above = 0.0
    for slope, member in estimate.members:
        ends = interval(member, level)
        if ends is None:
            return None
        low, high = float(member) - ends[0], ends[1] - float(member)
        below += (slope * (low if slope > 0 else high)) ** 2
        above += (slope * (high if slope > 0 else low)) ** 2
    value = float(estimate)
    return (value - math.sqrt(below), value + math.sqrt(above)) if estimate.members else None


def wilson(p: float, n: float, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's interval of a share p of n.

    >>> [round(end, 4) for end in wilson(0.0, 10)], [round(end, 4) for end in wilson(0.5, 100)]
    ([0.0, 0.2775], [0.4038, 0.5962])
    """
    z = NormalDist().inv_cdf(0.5 + level / 2)
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return 0.0 if p == 0 else max(0.0, centre - half), 1.0 if p == 1 else min(1.0, centre + half)


def student(level: float, freedom: int) -> float:
    """How many standard errors Student's distribution puts on either side (an expansion, to three digits from 3 on).

    >>> round(student(0.95, 10), 3), round(student(0.95, 1), 2), round(student(0.95, 10**6), 3)
    (2.228, 12.71, 1.96)
    """
    freedom = max(freedom, 1)
    if freedom <= 2:
        tail = math.pi * (1 - level) / 2
        return (
            1 / math.tan(tail)
            if freedom == 1
            else math.sqrt(2 / ((1 - level) * (1 + level)) - 2)
            if level < 1
            else math.inf
        )
    z, n = NormalDist().inv_cdf(0.5 + level / 2), float(freedom)
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + g1 / n + g2 / n**2 + g3 / n**3 + g4 / n**4
