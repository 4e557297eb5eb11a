"""How far two columns agree: areas under the ROC and the precision-recall curve, Cohen's kappa, Spearman's correlation.

Each number has influence values: how far one document moves it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.records import Floats

Label = str | float
Scored = Sequence[Any]
"""Of each document whether it is of a class, and the score for that: (1, 0.9); or such a pair for each of several classes."""
KAPPA_WEIGHTS = ("none", "linear", "quadratic")


def _by_class(values: Scored) -> npt.NDArray[np.float64]:
    """The pairs of each class: an axis for classes, one for documents, one for truth and score."""
    counts = {np.ndim(each) and (np.ndim(each), len(each)) for each in values}
    if len(counts) > 1:
        raise ValueError("documents have different numbers of choices, so choices are not classes: name a `label`")
    pairs = np.asarray(values, dtype=np.float64)
    if pairs.ndim == 2:
        pairs = pairs[:, None, :]
    if pairs.ndim != 3 or pairs.shape[2] != 2 or np.isnan(pairs).any() or not np.isin(pairs[..., 0], (0, 1)).all():
        raise ValueError("every document needs a pair: 1 or 0 for whether it is of the class, and its score")
    return pairs.transpose(1, 0, 2)


def _over_classes(compute: Callable[[Floats, Floats], Any], values: Scored) -> Any:
    """The mean over classes. A class that no document has, or that all have, has no curve."""
    classes = [pairs.T for pairs in _by_class(values)]
    if not all(0 < truth.sum() < len(truth) for truth, _ in classes):
        raise ValueError("all documents are of one class, so that no score can distinguish them")
    return np.mean([compute(truth, scores) for truth, scores in classes], axis=0)


def roc_auc(values: Scored) -> float:
    """Area under the ROC curve: how often a document of the class has a higher score than another one; equal ones count half.

    >>> roc_auc([(1, 0.9), (1, 0.4), (0, 0.4), (0, 0.1)])
    0.875
    """
    return float(_over_classes(lambda truth, scores: _placements(truth, scores)[truth == 1].mean(), values))


def roc_auc_influence(values: Scored) -> Floats:
    """The placement of every document among those of the other kind: DeLong's variance."""

    def influence(truth: Floats, scores: Floats) -> Floats:
        placed, n = _placements(truth, scores), len(truth)
        moved = np.zeros(n)
        for own in (truth == 1, truth == 0):
            count = int(own.sum())
            small = count / max(count - 1, 1) * (n - 1) / n  # as of a variance within each kind
            moved[own] = (placed[own] - placed[own].mean()) * n / count * np.sqrt(small)
        return moved

    moved: Floats = _over_classes(influence, values)
    return moved


def _placements(truth: Floats, scores: Floats) -> Floats:
    """For each document the share of those of the other kind that it is on the right side of."""
    placed = np.empty(len(truth))
    for own, other, sign in ((truth == 1, truth == 0, 1.0), (truth == 0, truth == 1, -1.0)):
        ranked = np.sort(sign * scores[other])
        below, at_most = (np.searchsorted(ranked, sign * scores[own], side) for side in ("left", "right"))
        placed[own] = (below + at_most) / (2 * len(ranked))
    return placed


def pr_auc(values: Scored) -> float:
    """Average precision: the mean, over documents of the class, of the precision among those with at least their score.

    >>> pr_auc([(1, 0.9), (0, 0.8), (1, 0.7)])
    0.8333333333333333
    """
    return float(_over_classes(lambda truth, scores: _precision(truth, scores)[0][truth == 1].mean(), values))


def _precision(truth: Floats, scores: Floats) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """For each document the precision at its score, how many documents have at least that, and the place of its score."""
    _, place = np.unique(-scores, return_inverse=True)
    counts = np.cumsum(np.bincount(place))
    hits = np.cumsum(np.bincount(place, weights=truth))
    return (hits / counts)[place], counts[place].astype(np.float64), place


def pr_auc_influence(values: Scored) -> Floats:
    """A document of the class counts with its own precision; every document moves the precision of those below it."""

    def influence(truth: Floats, scores: Floats) -> Floats:
        precision, counts, place = _precision(truth, scores)
        n, positives = len(truth), truth.sum()
        average = precision[truth == 1].mean()
        gained, diluted = (
            np.cumsum(np.bincount(place, weights=truth * each)[::-1])[::-1][place]
            for each in (1 / counts, precision / counts)
        )
        moved: Floats = (truth * (precision - average) + truth * gained - diluted) * n / positives
        return moved

    moved: Floats = _over_classes(influence, values)
    return moved


# --- kappa --------------------------------------------------------------------------------------------------------------


def _cells(
    values: Sequence[tuple[Label, Label]], weights: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]:
    """Of each document the numbers of both labels; and the disagreement of every pair of labels."""
    if weights not in KAPPA_WEIGHTS:
        raise ValueError(f"weights must be {', '.join(KAPPA_WEIGHTS[:-1])} or {KAPPA_WEIGHTS[-1]}, got {weights!r}")
    known = list(dict.fromkeys(label for pair in values for label in pair))
    if any(label != label for label in known):  # NaN
        raise ValueError("a label is NaN: a class needs a name or a number")
    place = {label: number for number, label in enumerate(known)}
    one, other = (np.array([place[pair[side]] for pair in values]) for side in (0, 1))
    if weights == "none":
        return one, other, 1.0 - np.eye(len(known))
    try:
        numbers = np.array([float(label) for label in known])
    except ValueError:
        raise ValueError("weights need labels that are numbers, or their order under `labels`") from None
    apart = np.abs(np.subtract.outer(numbers, numbers))
    return one, other, apart if weights == "linear" else apart**2


def kappa(values: Sequence[tuple[Label, Label]], *, weights: str = "none") -> float:
    """Cohen's kappa: agreement beyond chance. With `weights`, numbers that are further apart disagree more.

    >>> kappa([("a", "a"), ("a", "b"), ("b", "b"), ("b", "b")])
    0.5
    """
    one, other, apart = _cells(values, weights)
    return 1 - float(apart[one, other].mean()) / _by_chance(one, other, apart)


def _by_chance(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64], apart: Floats) -> float:
    first, second = (np.bincount(each, minlength=len(apart)) / len(each) for each in (one, other))
    expected = float(first @ apart @ second)
    if not expected:
        raise ValueError("all labels are the same, so that agreement cannot be distinguished from chance")
    return expected


def kappa_influence(values: Sequence[tuple[Label, Label]], *, weights: str = "none") -> Floats:
    one, other, apart = _cells(values, weights)
    expected = _by_chance(one, other, apart)
    first, second = (np.bincount(each, minlength=len(apart)) / len(each) for each in (one, other))
    own = apart[one, other]
    chance = (apart @ second)[one] + (first @ apart)[other]
    moved: Floats = own.mean() * chance / expected**2 - own / expected
    return moved


# --- Spearman's correlation -----------------------------------------------------------------------------------------------


def _middle_ranks(numbers: Floats) -> Floats:
    """The share of numbers below each, and half of those equal to it."""
    ranked = np.sort(numbers)
    return (np.searchsorted(ranked, numbers, "left") + np.searchsorted(ranked, numbers, "right")) / (2 * len(numbers))


def _ranked(values: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    pairs = np.asarray(values, dtype=np.float64)
    if np.isnan(pairs).any():
        raise ValueError(f"{int(np.isnan(pairs).any(axis=1).sum())} of {len(pairs)} pairs are not of two numbers")
    one, other = (_middle_ranks(column) for column in pairs.T)
    if not np.ptp(one) or not np.ptp(other):
        raise ValueError("all numbers of one side are the same, so that there is no correlation")
    return one, other


def spearman(values: Sequence[tuple[float, float]]) -> float:
    """Spearman's correlation of two numbers per document: of their ranks, the middle one for equal numbers.

    >>> round(spearman([(1, 10), (2, 30), (3, 20)]), 4)
    0.5
    """
    one, other = _ranked(values)
    return float(np.clip(np.corrcoef(one, other)[0, 1], -1.0, 1.0))


def spearman_influence(values: Sequence[tuple[float, float]]) -> Floats:
    """A document counts with its own ranks, and moves the ranks of those above it."""
    one, other = _ranked(values)

    def moved(ranks: Floats, partner: Floats) -> Floats:
        """Influence on the mean product of ranks, through `ranks`: the sum of `partner` above each document, half of it beside."""
        _, place = np.unique(ranks, return_inverse=True)
        sums = np.bincount(place, weights=partner)
        above = np.cumsum(sums[::-1])[::-1] - sums
        return ((above + sums / 2) / len(ranks))[place]

    together = one * other + moved(one, other) + moved(other, one)
    spread_one, spread_other = (each**2 + 2 * moved(each, each) for each in (one, other))
    center, var_one, var_other = float(np.mean(one * other)) - 0.25, float(one.var()), float(other.var())
    scale = np.sqrt(var_one * var_other)
    influence: Floats = (together - center / 2 * (spread_one / var_one + spread_other / var_other)) / scale
    return influence


AGREEMENT_AGGREGATIONS: dict[str, tuple[Callable[..., float], Callable[..., Floats], tuple[float, float]]] = {
    "roc_auc": (roc_auc, roc_auc_influence, (0.0, 1.0)),
    "pr_auc": (pr_auc, pr_auc_influence, (0.0, 1.0)),
    "kappa": (kappa, kappa_influence, (-1.0, 1.0)),
    "spearman": (spearman, spearman_influence, (-1.0, 1.0)),
}
"""By name the function, its influence values and its bounds."""
