"""Statistics of plain arrays: one number per document in, an estimate with its interval out. Nothing here reads a file."""

import itertools
import math
import numbers
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from assay.records import Floats
from assay.statistics.evidence import Estimate, Evidence, with_evidence
from assay.statistics.influence import SHARE, Bounds, Influence, clip_to_bounds, read_bounds
from assay.statistics.intervals import LEVEL, Decision, with_interval
from assay.statistics.members import (
    difference,
    geometric_mean,
    greatest,
    harmonic_mean,
    least,
    mean_by_weight,
    middle,
    weighted_sum,
)
from assay.statistics.paired import PairedDifference, paired_contrast, paired_difference
from assay.statistics.pass_at_k import pass_at_k
from assay.statistics.spread import MemberEstimate

ARRAY = "array "
"""The source of draws that came as an array, before its number."""
TOO_LARGE = "the scores are too large for a standard error"
WEIGHTED = ("mean", "harmonic", "geometric", "weighted_sum", "pass@k")
_numbers = itertools.count(1)
Side = Literal["both", "lower", "upper"]
Scores = Sequence[float] | npt.NDArray[np.floating] | npt.NDArray[np.integer] | npt.NDArray[np.bool_]


def estimate(  # scores, and all that their interval depends on
    scores: Scores, *, bounds: Bounds | None = None, clusters: Sequence[object] | None = None,
    weights: Scores | None = None, level: float = LEVEL, side: Side = "both",
) -> Estimate:  # fmt: skip
    """Estimate the mean of one score per document over the documents that they were drawn from.

    `bounds` are those of a score, and scores that are all 0 or 1 are a share without them. `clusters` has a label per document:
    documents with the same one are one draw, those without a label (None, NaN) one each. `weights` are importance weights, and
    the mean is Σwx/Σw. The standard error is the plain sample one; the interval (`low`, `high`) is made for small samples and
    bounds.

    >>> estimate([1, 0, 1, 1]).value, round(estimate([0.2, 0.4, 0.9], bounds=(0, 1)).high, 3) <= 1
    (0.75, True)
    """
    level = _checked_level(level, side)
    sample = array("scores", scores)
    limits, sample = _within_bounds(bounds, sample)
    labels, shares = _labels(clusters, len(sample)), _shares(weights, len(sample))
    if limits is None and _right_or_wrong(sample):
        limits = SHARE
    n, is_rate = len(sample), shares is None and limits == SHARE and _right_or_wrong(sample)
    with np.errstate(over="ignore", invalid="ignore"):  # the reason says so
        value = float(sample.mean() if shares is None else np.clip((shares * sample).sum(), sample.min(), sample.max()))
        draws = n if labels is None else len(set(labels))
        number = Estimate(value, None, n, scale=limits, evidence=Evidence(draws=draws, is_rate=is_rate))
        if draws < 2:
            reason = "one document has no spread" if n < 2 else "all documents are of one cluster"
            return with_interval(replace(number, reason=reason), level, side)
        values = sample if shares is None else value + n * shares * (sample - value)
        influence = Influence.of_mean("", range(n), values, labels, bounds=limits, weights=shares)
    if not math.isfinite(influence.variance):
        return with_interval(replace(number, reason=TOO_LARGE), level, side)
    if shares is not None and np.count_nonzero(shares) < 2:
        return with_interval(replace(number, reason="one document has all the weight"), level, side)
    number = with_evidence(replace(number, stderr=math.sqrt(influence.variance)), parts={influence: 1.0})
    number = with_interval(number, level, side)
    if number.interval is None:
        return replace(number, reason="all scores are the same, which gives no interval")
    return number


def combine(
    members: Sequence[Scores | Estimate], *, how: str = "mean", by_size: bool = True,
    weights: Sequence[float] | None = None, level: float = LEVEL,
) -> Estimate:  # fmt: skip
    """Combine members, of which none shares a document with another: arrays of scores, or estimates.

    `how`: "mean" (by size, or all alike), "harmonic", "geometric", "median", "difference", "weighted_sum", "min", "max", or
    "pass@k" with a number for k, of arrays with a row of scores per document. `weights` are those of the members.

    >>> combine([[1, 0, 1, 1], [0, 0]], by_size=False).value, combine([[1, 0, 1, 1], [0, 0]]).value
    (0.375, 0.5)
    """
    if isinstance(members, Mapping | str | Estimate) or not hasattr(members, "__len__") or not len(members):
        raise ValueError("members: a list of arrays or estimates is needed, and at least one")
    level, rows = _checked_level(level), []
    k = int(how[5:]) if isinstance(how, str) and how.startswith("pass@") and how[5:].isdecimal() else 0
    if how not in HOW and not k:
        raise ValueError(f"how: {how!r} is none of {', '.join((*HOW, 'pass@k'))}")
    for number, member in enumerate(members, 1):
        rows.append(_member(f"member {number}", _passes_at(k, f"member {number}", member) if k else member))
    own = [float(row.size) if by_size else 1.0 for row in rows]
    if weights is not None:
        own = _member_weights(weights, len(rows), "mean" if k else how)
    return with_interval(HOW["mean" if k else how](rows, own), level)


def _member_weights(weights: Sequence[float], members: int, how: str) -> list[float]:
    if how not in WEIGHTED:
        raise ValueError(f"weights: {how!r} uses none, only {', '.join(WEIGHTED)} do")
    own = array("weights", weights)
    if len(own) != members:
        raise ValueError(f"weights: {len(own)} for {members} members")
    if how != "weighted_sum" and (own.min() < 0 or not own.any()):
        raise ValueError("weights: they must be 0 or more, and one of them above 0")
    return [float(each) for each in own]


def _member(name: str, member: Scores | Estimate) -> MemberEstimate:
    try:
        number = member if isinstance(member, Estimate) else estimate(member)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    own: dict[str, str] = {}
    parts = {_of_source(part, own): share for part, share in number.evidence.parts.items()}
    return MemberEstimate(name, with_evidence(number, parts=parts), number.n)


def _of_source(part: Influence, own: dict[str, str]) -> Influence:
    """The same draws, as the member's own, also where the member is a group: arrays do not say which documents they share."""
    if part.source and not part.source.startswith(ARRAY):
        return part
    renamed = copy(part)
    renamed.source = own.setdefault(part.source, f"{ARRAY}{next(_numbers)}")
    return renamed


def _passes_at(k: int, name: str, member: object) -> Estimate:
    needed = f"{name}: pass@{k} needs a row for each document, of at least {k} scores"
    try:
        rows = np.asarray(member, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(needed) from None
    if rows.ndim != 2 or k > rows.shape[1] or isinstance(member, Estimate):
        raise ValueError(needed)
    if not np.isfinite(rows).all():
        raise ValueError(f"{name}: {int((~np.isfinite(rows)).sum())} of {rows.size} scores are not finite numbers")
    return estimate([pass_at_k(len(row), int((row >= 1).sum()), k) for row in rows], bounds=SHARE)


HOW: Mapping[str, Callable[[Sequence[MemberEstimate], Sequence[float]], Estimate]] = {
    "mean": mean_by_weight,
    "harmonic": harmonic_mean,
    "geometric": geometric_mean,
    "median": middle,
    "difference": difference,
    "weighted_sum": weighted_sum,
    "min": least,
    "max": greatest,
}


def compare(  # two arrays, and all that the interval depends on
    a: Scores, b: Scores, *, bounds: Bounds | None = None, clusters: Sequence[object] | None = None,
    level: float = LEVEL, side: Side = "both",
) -> PairedDifference:  # fmt: skip
    """Compare two arrays of scores of the same documents, in the same order. The interval and p come from one test: of `side`
    "lower" p is that of b being no better than a, of "upper" that of b being no worse.

    >>> compare([0, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]).value
    0.5
    """
    level = _checked_level(level, side)
    first, second = array("a", a), array("b", b)
    if len(first) != len(second):
        raise ValueError(f"b: {len(second)} scores for {len(first)} documents")
    n, labels = len(first), _labels(clusters, len(first))
    limits, both = _within_bounds(bounds, np.concatenate([first, second]))
    first, second = both[:n], both[n:]
    is_rate = limits in (None, SHARE) and _right_or_wrong(first) and _right_or_wrong(second)
    wide = 1.0 if is_rate else limits[1] - limits[0] if limits is not None else math.inf
    with np.errstate(over="ignore", invalid="ignore"):  # the reason says so
        value, draws = float((second - first).mean()), n if labels is None else len(set(labels))
        if draws < 2:
            reason = "one document has no spread" if n < 2 else "all documents are of one cluster"
            return PairedDifference(value, n=n, reason=reason)
        contrast = paired_contrast(first, second, labels, is_rate=is_rate, wide=wide)
    if not math.isfinite(contrast.variance):
        return PairedDifference(value, n=n, reason=TOO_LARGE)
    difference = paired_difference(contrast, level if side == "both" else 2 * level - 1)
    if side != "both" and difference.p is not None:
        p = difference.p / 2 if (value > 0) == (side == "lower") else 1 - difference.p / 2
        difference = replace(difference, p=p)
    if difference.low is None or difference.high is None:
        return replace(difference, reason="no document differs" if not value else "all documents differ alike")
    low = -wide if side == "upper" else max(difference.low, -wide)
    high = wide if side == "lower" else min(difference.high, wide)
    return replace(difference, interval=(low, high))


def passes(number: Estimate | PairedDifference, sign: str, threshold: float) -> Decision:
    """Decide whether a number is above (">", ">=") or below ("<", "<=") a threshold, as far as its interval decides it.

    >>> passes(estimate([1] * 90 + [0] * 10), ">", 0.8), passes(estimate([1, 1, 0]), ">", 0.5)
    ('pass', 'inconclusive')
    """
    if sign not in SIGNS:
        raise ValueError(f"sign: {sign!r} is none of {', '.join(SIGNS)}")
    if not isinstance(number, Estimate | PairedDifference):
        raise ValueError("number: an estimate or a difference is needed, a plain number has no interval")
    if not isinstance(threshold, numbers.Real) or math.isnan(threshold):
        raise ValueError(f"threshold: {threshold!r} is not a number")
    if number.low is None or number.high is None:
        return "inconclusive"
    safe, other = (number.low, number.high) if sign.startswith(">") else (number.high, number.low)
    if SIGNS[sign](safe, threshold):
        return "pass"
    return "inconclusive" if SIGNS[sign](other, threshold) else "fail"


SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def _checked_level(level: float, side: str = "both") -> float:
    if side not in ("both", "lower", "upper"):
        raise ValueError(f"side: {side!r} is none of both, lower, upper")
    least = 0.0 if side == "both" else 0.5
    if not isinstance(level, numbers.Real) or not least < level < 1 - 1e-15:  # beyond, no quantile is known
        raise ValueError(f"level: {level!r} is not between {least:g} and 1")
    return float(level)


def array(name: str, scores: object, *, missing: bool = False) -> Floats:
    """One finite number per document, or NaN where it may be missing; masked ones are, and texts and dates are refused."""
    try:
        column = np.ma.filled(scores.astype(np.float64), np.nan) if isinstance(scores, np.ma.MaskedArray) else scores
        column = np.asarray(column)
        is_list = column.ndim == 1 and len(column) > 0 and column.dtype.kind in "biufO"
        own: Floats = column.astype(np.float64) if is_list else np.empty(0)
    except (TypeError, ValueError, OverflowError):
        own = np.empty(0)
    if not len(own):
        raise ValueError(f"{name}: a list of numbers is needed, one per document, and at least one")
    wrong = int((np.isinf(own) if missing else ~np.isfinite(own)).sum())
    if wrong:
        raise ValueError(f"{name}: {wrong} of {len(own)} are not finite numbers")
    return own


def _right_or_wrong(scores: Floats) -> bool:
    return bool(((scores == 0) | (scores == 1)).all())


def _within_bounds(bounds: object, scores: Floats) -> tuple[Bounds | None, Floats]:
    """The bounds, checked, and the scores with what rounding put beyond them on them."""
    if bounds is None:
        return None, scores
    limits = read_bounds(bounds.tolist() if isinstance(bounds, np.ndarray) else bounds)
    scores = np.asarray(clip_to_bounds(scores, limits))  # type: ignore[arg-type]  # read once, as a sequence
    if not (limits[0] <= scores.min() and scores.max() <= limits[1]):
        shown = f"{limits[0]:g} to {limits[1]:g}"
        raise ValueError(f"bounds: scores from {scores.min():g} to {scores.max():g} are not within {shown}")
    return limits, scores


def _shares(weights: Scores | None, n: int) -> "Floats | None":
    """Weights that add up to 1; None where all are the same."""
    if weights is None:
        return None
    own = array("weights", weights)
    if len(own) != n:
        raise ValueError(f"weights: {len(own)} for {n} scores")
    if own.min() < 0 or not own.max() > 0:
        raise ValueError("weights: they must be 0 or more, and one of them above 0")
    own = own / own.max()
    shares: Floats = own / own.sum()
    return shares if own.min() < 1 else None


def _labels(clusters: Sequence[object] | None, n: int) -> list[int] | None:
    """The number of each document's cluster; None where no two documents have the same."""
    if clusters is None:
        return None
    if not hasattr(clusters, "__len__") or isinstance(clusters, Mapping) or len(clusters) != n:
        count = len(clusters) if hasattr(clusters, "__len__") else "no list"
        raise ValueError(f"clusters: {count} for {n} scores")
    labels = numbered(clusters)
    return labels if len(set(labels)) < n else None


def numbered(clusters: Sequence[object]) -> list[int]:
    """A number for each cluster; a document without a label (None, NaN) is a separate one, as in runs."""
    known: dict[object, int] = {}
    labels = []
    for label in clusters:
        is_missing = label is None or label != label  # NaN
        key = object() if is_missing else label if isinstance(label, Hashable) else repr(label)
        labels.append(known.setdefault(key, len(known)))
    return labels
