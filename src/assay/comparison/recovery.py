"""Recovery: how much of a reference's number a candidate keeps on the same documents, with an interval."""

import math

from assay.comparison.rows import PairedRow
from assay.results import Estimate
from assay.statistics.paired import HALF, quantile, smoothed


def recovery_of(row: PairedRow, level: float) -> Estimate | None:
    """The ratio of two numbers on the same documents with Fieller's interval, which there is none of where the reference may as
    well be 0; None where there is no ratio.

    It holds every ratio r for which b - r a may be 0. The variance of that difference is a polynomial of r of degree 2, known
    from three of its values.
    """
    a, b = row.a, row.b
    if a is None or b is None or a <= 0 or not math.isfinite(b):
        return None
    n = sum(part.member.n for part in row.parts)
    at = [_variance(row, each) for each in (-0.5, 0.0, 0.5)]
    contrast = row.contrast(0.999 * b / a)  # at a ratio of 1, bounds of the difference would count
    if contrast is None or None in at:
        return Estimate(b / a, n=n)
    below, middle, above = (each or 0.0 for each in at)
    of_a, crossed, of_b = 2 * (above + below - 2 * middle), above - below, middle
    t = quantile(contrast, level) ** 2
    square, linear, constant = a * a - t * of_a, -(2 * a * b + t * crossed), b * b - t * of_b
    inside = linear * linear - 4 * square * constant
    if square <= 0 or inside < 0 or not (of_a or of_b):
        return Estimate(b / a, n=n)
    ends = [(-linear + sign * math.sqrt(inside)) / (2 * square) for sign in (-1, 1)]
    return Estimate(b / a, interval=(max(ends[0], 0.0) if b >= 0 else ends[0], ends[1]), n=n)


def _variance(row: PairedRow, ratio: float) -> float | None:
    """The variance of b - r a for an interval; that of a rate with half a document on either side."""
    contrast = row.contrast(ratio)
    if contrast is None:
        return None
    share = contrast.draws / (contrast.draws + 2 * HALF) if contrast.unit else 1.0
    return (smoothed(contrast)[1] / share) ** 2
