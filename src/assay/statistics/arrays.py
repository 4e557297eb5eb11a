"""Statistics of plain arrays: one number per document in, an estimate with its interval out. Nothing here reads a file."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from assay.records import Floats
from assay.statistics.influence import SHARE, Bounds, Estimate, Influence
from assay.statistics.intervals import LEVEL, Decision
from assay.statistics.members import difference, extreme, mean_by_weight, middle, power_mean, weighted_sum
from assay.statistics.paired import interval as paired_interval
from assay.statistics.paired import paired_contrast, significance
from assay.statistics.pass_at_k import pass_at_k
from assay.statistics.spread import MemberEstimate

Side = Literal["both", "lower", "upper"]
Scores = Sequence[float] | npt.NDArray[np.floating] | npt.NDArray[np.integer] | npt.NDArray[np.bool_]


def estimate(  # scores, and all that their interval depends on
    scores: Scores, *, bounds: Bounds | None = None, clusters: Sequence[object] | None = None,
    weights: Scores | None = None, level: float = LEVEL, side: Side = "both",
) -> Estimate:  # fmt: skip
    """Estimate the mean of one score per document over the documents that they were drawn from.

    `bounds` are those of a score, and scores that are all 0 or 1 are a share without them. `clusters` has a label per document:
    documents with the same one are one draw. `weights` are importance weights, and the mean is Σwx/Σw. The standard error is the
    plain sample one; the interval (`low`, `high`) is made for small samples and bounds.

    >>> estimate([1, 0, 1, 1]).value, round(estimate([0.2, 0.4, 0.9], bounds=(0, 1)).high, 3) <= 1
    (0.75, True)
    """
    _check_level(level, side)
    numbers = _array("scores", scores)
    _check(numbers, bounds, clusters, weights)
    n, is_rate = len(numbers), weights is None and _right_or_wrong(numbers)
    limits: Bounds | None = (
        (float(bounds[0]), float(bounds[1])) if bounds is not None else (0.0, 1.0) if is_rate else None
    )
    is_rate = is_rate and limits == (0.0, 1.0)
    labels = _numbered(clusters) if clusters is not None else None
    shares = None if weights is None else _array("weights", weights)
    value = float(numbers.mean()) if shares is None else float((shares * numbers).sum() / shares.sum())
    draws = n if labels is None else len(set(labels))
    number = Estimate(value, None, n, is_rate=is_rate, bounds=limits, level=level, side=side, draws=draws)
    if draws < 2:
        return number.but(reason="one document has no spread" if n < 2 else "all documents are of one cluster")
    values = numbers if shares is None else value + n * shares * (numbers - value) / shares.sum()
    influence = Influence.of_mean("", range(n), values, labels, bounds=limits, weights=shares)
    return number.but(stderr=math.sqrt(influence.variance), parts={influence: 1.0})


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
    if not len(members):
        raise ValueError("members: at least one is needed")
    _check_level(level)
    if how.startswith("pass@") and how[5:].isdecimal():
        members, how = [_passes_at(int(how[5:]), member) for member in members], "mean"
    rows = [_member(f"member {number}", each) for number, each in enumerate(members, 1)]
    if weights is not None and len(weights) != len(rows):
        raise ValueError(f"weights: {len(weights)} for {len(rows)} members")
    own = weights if weights is not None else [float(row.size) if by_size else 1.0 for row in rows]
    if how not in HOW:
        raise ValueError(f"how: {how!r} is none of {', '.join((*HOW, 'pass@k'))}")
    return HOW[how](rows, own).but(level=level)


def _member(name: str, member: Scores | Estimate) -> MemberEstimate:
    number = member if isinstance(member, Estimate) else estimate(member)
    renamed = {_of_source(part, name): share for part, share in number.parts.items()}
    return MemberEstimate(name, number.but(parts=renamed), number.n)


def _of_source(part: Influence, name: str) -> Influence:
    """The same draws, as the member's own: arrays do not say which documents they share."""
    renamed = copy(part)
    renamed.source = part.source or name
    return renamed


def _passes_at(k: int, member: object) -> Estimate:
    rows = np.asarray(member, dtype=np.float64)
    if rows.ndim != 2 or not 1 <= k <= rows.shape[1]:
        raise ValueError(f"members: pass@{k} needs at least {k} scores for each document")
    return estimate([pass_at_k(len(row), int((row >= 1).sum()), k) for row in rows], bounds=(0.0, 1.0))


HOW: Mapping[str, Callable[[Sequence[MemberEstimate], Sequence[float]], Estimate]] = {
    "mean": mean_by_weight,
    "harmonic": lambda rows, own: power_mean(rows, own, -1.0, "harmonic"),
    "geometric": lambda rows, own: power_mean(rows, own, 0.0, "geometric"),
    "median": lambda rows, own: middle(rows),  # noqa: ARG005  # all alike
    "difference": lambda rows, own: difference(rows),  # noqa: ARG005
    "weighted_sum": weighted_sum,
    "min": lambda rows, own: extreme(rows, least=True),  # noqa: ARG005
    "max": lambda rows, own: extreme(rows, least=False),  # noqa: ARG005
}


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How much better the second of two is on the same documents: b − a, its interval, and how likely that is by chance."""

    value: float
    stderr: float | None
    low: float | None
    high: float | None
    n: int
    p: float | None
    test: str
    df: float | None = None
    reason: str = ""


def compare(  # two arrays, and all that the interval depends on
    a: Scores, b: Scores, *, bounds: Bounds | None = None, clusters: Sequence[object] | None = None,
    level: float = LEVEL, side: Side = "both",
) -> PairedDifference:  # fmt: skip
    """Compare two arrays of scores of the same documents, in the same order. The interval and p come from one test.

    >>> compare([0, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]).value
    0.5
    """
    _check_level(level, side)
    first, second = _array("a", a), _array("b", b)
    if len(first) != len(second):
        raise ValueError(f"b: {len(second)} scores for {len(first)} documents")
    for numbers in (first, second):
        _check(numbers, bounds, clusters, None)
    n, labels = len(first), _numbered(clusters) if clusters is not None else None
    value, draws = float(second.mean() - first.mean()), n if labels is None else len(set(labels))
    if draws < 2:
        reason = "one document has no spread" if n < 2 else "all documents are of one cluster"
        return PairedDifference(value, None, None, None, n, None, "", reason=reason)
    limits = (float(bounds[0]), float(bounds[1])) if bounds is not None else SHARE
    is_rate = limits == SHARE and _right_or_wrong(first) and _right_or_wrong(second)
    wide = 1.0 if is_rate else bounds[1] - bounds[0] if bounds is not None else math.inf
    contrast = paired_contrast(first, second, labels, is_rate=is_rate, wide=wide)
    tested = significance(contrast)
    ends = paired_interval(contrast, level if side == "both" else 2 * level - 1)
    low, high = (max(ends[0], -wide), min(ends[1], wide)) if ends is not None else (None, None)
    if low is not None and high is not None and side != "both":
        low, high = (low, wide) if side == "lower" else (-wide, high)
    reason = "" if ends is not None else "no document differs" if not value else "all documents differ alike"
    return PairedDifference(value, contrast.stderr, low, high, n, tested.p, tested.test, contrast.freedom, reason)


def passes(number: Estimate | PairedDifference, sign: str, threshold: float) -> Decision:
    """Decide whether a number is above (">", ">=") or below ("<", "<=") a threshold, as far as its interval decides it.

    >>> passes(estimate([1] * 90 + [0] * 10), ">", 0.8), passes(estimate([1, 1, 0]), ">", 0.5)
    ('pass', 'inconclusive')
    """
    if sign not in SIGNS:
        raise ValueError(f"sign: {sign!r} is none of {', '.join(SIGNS)}")
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


def _check_level(level: float, side: str = "both") -> None:
    if side not in ("both", "lower", "upper"):
        raise ValueError(f"side: {side!r} is none of both, lower, upper")
    if not (0 if side == "both" else 0.5) < level < 1:
        raise ValueError(f"level: {level!r} is not between {'0' if side == 'both' else '0.5'} and 1")


def _array(name: str, scores: Scores) -> Floats:
    numbers = np.asarray(scores, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise ValueError(f"{name}: one number per document is needed, and at least one")
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name}: {int((~np.isfinite(numbers)).sum())} of {len(numbers)} are not finite numbers")
    return numbers


def _right_or_wrong(numbers: Floats) -> bool:
    return bool(((numbers == 0) | (numbers == 1)).all())


def _check(numbers: Floats, bounds: Bounds | None, clusters: Sequence[object] | None, weights: Scores | None) -> None:
    if bounds is not None and not (bounds[0] < bounds[1] and bounds[0] <= numbers.min() and numbers.max() <= bounds[1]):
        raise ValueError(f"bounds: scores from {numbers.min():g} to {numbers.max():g} are not within {bounds}")
    for name, column in (("clusters", clusters), ("weights", weights)):
        if column is not None and len(column) != len(numbers):
            raise ValueError(f"{name}: {len(column)} for {len(numbers)} scores")
    if weights is not None:
        own = _array("weights", weights)
        if own.min() < 0 or not own.sum() > 0:
            raise ValueError("weights: they must be 0 or more, and one of them above 0")


def _numbered(clusters: Sequence[object]) -> list[int]:
    numbers: dict[object, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in clusters]
