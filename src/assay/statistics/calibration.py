"""How far a model knows what it knows: calibration error, reliability curve, parts of the Brier score, accuracy by coverage.

Confidence comes with whether the answer is right, (confidence, right) for each document; the parts of the Brier score take
(right choice, shares of all choices). Each number has influence values: how far one document moves it, the bins being given.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from assay.records import Floats
from assay.statistics.evidence import Estimate, with_evidence
from assay.statistics.influence import Spread
from assay.statistics.intervals import LEVEL, interval, spread_of, student
from assay.statistics.softmax import softmax

Confidences = Sequence[tuple[float, float]]
"""Of each document the confidence in its answer, and whether that is right."""
Forecasts = Sequence[tuple[int, Sequence[float]]]
"""Of each document the index of the right choice, and the shares of all choices."""
Places = npt.NDArray[np.intp]
BINS = 10
UNIT = (0.0, 1.0)
CONTAINED = 1.9
"""Standard errors within which a bias must be: fewer than any interval of 95 % has, so that this contains the number."""


class CurvePoint(NamedTuple):
    """A bin of a reliability curve: its mean confidence, its accuracy and its number of documents."""

    confidence: float
    accuracy: float
    n: int


def likeliest(likelihoods: Sequence[float]) -> tuple[float, int]:
    """The share of the likeliest choice among all, and its place.

    >>> likeliest([0.0, 0.0])
    (0.5, 0)
    """
    best = max(range(len(likelihoods)), key=likelihoods.__getitem__)
    return softmax(likelihoods)[best], best


def _columns(values: Confidences) -> tuple[Floats, Floats]:
    pairs = np.asarray(values, dtype=np.float64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError("every document needs a pair: its confidence, and whether its answer is right")
    confidence, right = pairs.T
    if np.isnan(confidence).any() or not ((right >= 0) & (right <= 1)).all():
        raise ValueError("a confidence must be a number, and whether an answer is right must be from 0 to 1")
    return confidence, right


def bin_of(confidence: Floats, bins: int, *, equal_mass: bool = False) -> Places:
    """The bin of each confidence: of equal width over 0 to 1, or with about as many documents each; equal ones share a bin."""
    if confidence.min() < 0 or confidence.max() > 1:
        raise ValueError("a confidence must be between 0 and 1")
    if not equal_mass:
        return np.minimum((confidence * bins).astype(np.intp), bins - 1)
    edges = np.unique(np.quantile(confidence, np.linspace(0, 1, bins + 1)))
    return np.searchsorted(edges[1:-1], confidence)


def reliability_curve(values: Confidences, *, bins: int = BINS, equal_mass: bool = False) -> list[CurvePoint]:
    """Confidence and accuracy of every bin that has documents.

    >>> reliability_curve([(0.75, 1), (0.75, 0), (0.25, 0)], bins=2)
    [CurvePoint(confidence=0.25, accuracy=0.0, n=1), CurvePoint(confidence=0.75, accuracy=0.5, n=2)]
    """
    if not len(values):
        return []
    confidence, right = _columns(values)
    place = bin_of(confidence, bins, equal_mass=equal_mass)
    return [
        CurvePoint(
            float(confidence[place == each].mean()), float(right[place == each].mean()), int((place == each).sum())
        )
        for each in np.unique(place)
    ]


def ece(values: Confidences, *, bins: int = BINS, equal_mass: bool = False) -> float:
    """Expected calibration error: the mean over documents of how far accuracy and confidence of their bin are apart."""
    return float(ece_influence(values, bins=bins, equal_mass=equal_mass).mean())


def ece_influence(values: Confidences, *, bins: int = BINS, equal_mass: bool = False) -> Floats:
    confidence, right = _columns(values)
    place = bin_of(confidence, bins, equal_mass=equal_mass)
    gaps = np.bincount(place, weights=confidence - right)
    influence: Floats = np.sign(gaps)[place] * (confidence - right)
    return influence


def ece_bias(values: Confidences, *, bins: int = BINS, equal_mass: bool = False) -> float:
    """How much too large the number is to be expected: the distance of a bin that varies is never negative, and so adds up."""
    confidence, right = _columns(values)
    place = bin_of(confidence, bins, equal_mass=equal_mass)
    sizes, gaps, spread = _within_bins(place, confidence - right)
    errors = np.sqrt(spread / sizes)
    likely = np.sqrt(np.maximum(gaps**2 - errors**2, 0.0))  # what of a gap is not chance
    farther = [_folded(gap, error) - gap for gap, error in zip(likely, errors, strict=True)]
    return float(np.dot(farther, sizes)) / len(right)


def _within_bins(place: Places, off: Floats) -> tuple[Floats, Floats, Floats]:
    """By bin with documents their number, their mean and their variance; of one alone, that of all bins together."""
    place = np.unique(place, return_inverse=True)[1]
    sizes = np.bincount(place).astype(np.float64)
    means = np.bincount(place, weights=off) / sizes
    squares = np.bincount(place, weights=(off - means[place]) ** 2)
    pooled = squares.sum() / max(float((sizes - 1).sum()), 1.0)
    return sizes, means, np.where(sizes > 1, squares / np.maximum(sizes - 1, 1), pooled)


def _folded(mean: float, error: float) -> float:
    """The mean distance from 0 of a normal variable."""
    if not error:
        return abs(mean)
    return math.sqrt(2 / math.pi) * error * math.exp(-((mean / error) ** 2) / 2) + mean * math.erf(
        mean / error / math.sqrt(2)
    )


def less_bias(number: Estimate, bias: float) -> Estimate:
    """The number with an interval around what is left of it without its bias. The interval has the number in it: the bias is an
    estimate itself, and counts as a source of variance. It is Student's, which reaches 0, wherever that is within the bounds."""
    if number.stderr is None or number.value is None or not bias:
        return number
    own = spread_of(number)
    if bias > 0:
        spread, center = Spread(own.variance + (bias / CONTAINED) ** 2, own.freedom, number.value), number.value - bias
    else:  # of p(1 − p), greatest at ½: from the square of how far p is off on, the true one is below, never above
        error = math.sqrt(own.variance) - bias
        spread, center = Spread(error**2, own.freedom, number.value), number.value + student(LEVEL, own.freedom) * bias
    centered = with_evidence(number, center=float(center), spread=spread)
    if number.scale is None:
        return centered
    open_ended = replace(centered, scale=(number.scale[0], math.inf))
    ends = interval(open_ended)
    return open_ended if ends is None or ends[1] <= number.scale[1] else centered


# --- parts of the Brier score -----------------------------------------------------------------------------------------


def _forecasts(values: Forecasts) -> tuple[Floats, Floats]:
    """The shares, and 1 at the right choice: a column for each choice."""
    golds, shares = zip(*values, strict=True)
    counts = {len(each) for each in shares}
    if len(counts) > 1:
        raise ValueError(f"documents have {min(counts)} to {max(counts)} choices, so choices are not classes")
    if not all(isinstance(each, int) and 0 <= each < len(shares[0]) for each in golds):
        raise ValueError("a document has none or several right choices")
    forecast = np.asarray(shares, dtype=np.float64)
    if np.isnan(forecast).any():
        raise ValueError("a share of a choice is not a number")
    return forecast, np.eye(forecast.shape[1])[list(golds)]


def brier_part(part: str, values: Forecasts, *, bins: int = BINS) -> float:
    """A part of the Brier score, summed over the choices: reliability − resolution + uncertainty is the score of shares that
    are rounded to the mean of their bin."""
    forecast, actual = _forecasts(values)
    return sum(_part(part, forecast[:, k], actual[:, k], bins)[0] for k in range(forecast.shape[1]))


def brier_part_influence(part: str, values: Forecasts, *, bins: int = BINS) -> Floats:
    forecast, actual = _forecasts(values)
    moved: Floats = np.sum(
        [_part(part, forecast[:, k], actual[:, k], bins)[1] for k in range(forecast.shape[1])], axis=0
    )
    return moved


def _part(part: str, forecast: Floats, actual: Floats, bins: int) -> tuple[float, Floats]:
    """Of one choice, with the influence of every document."""
    rate = actual.mean()
    if part == "uncertainty":
        return float(rate * (1 - rate)), (1 - 2 * rate) * actual
    place = bin_of(forecast, bins)
    sizes = np.maximum(np.bincount(place), 1.0)
    off = forecast - actual if part == "reliability" else actual - rate
    means = (np.bincount(place, weights=off) / sizes)[place]
    value = float((means**2).mean())
    # the rate within `off` of the resolution moves, too; deviations of all bins add up to 0, so that it does not count
    return value, 2 * means * off - means**2


def brier_part_bias(part: str, values: Forecasts, *, bins: int = BINS) -> float:
    """How much too large a part is to be expected: squared means of bins have the variance of these means in them, as Ferro and
    Fricker (2012) correct it."""
    forecast, actual = _forecasts(values)
    n, bias = len(values), 0.0
    for k in range(forecast.shape[1]):
        rate = actual[:, k].mean()
        overall = float(rate * (1 - rate)) / max(n - 1, 1)
        if part == "uncertainty":
            bias -= overall
            continue
        off = forecast[:, k] - actual[:, k] if part == "reliability" else actual[:, k]
        _, _, spread = _within_bins(bin_of(forecast[:, k], bins), off)
        bias += float(spread.sum()) / n - (overall if part == "resolution" else 0.0)
    return bias


# --- accuracy by coverage -----------------------------------------------------------------------------------------------


def _by_confidence(values: Confidences) -> tuple[Floats, Floats, Places, Places]:
    """Right or not, from the most confident on, and their order; equal confidences share the mean of what they have."""
    confidence, right = _columns(values)
    order = np.argsort(-confidence, kind="stable")
    tied = np.unique(-confidence[order], return_inverse=True)[1]
    shared = (np.bincount(tied, weights=right[order]) / np.bincount(tied))[tied]
    return right, shared, order, tied


def _check_coverage(coverage: float) -> None:
    if isinstance(coverage, bool) or not 0 < coverage <= 1:
        raise ValueError(f"coverage must be above 0 and at most 1, got {coverage!r}")


def selective_accuracy(values: Confidences, *, coverage: float = 0.8) -> float:
    """Accuracy on the share of documents that the model is most confident of; of equally confident ones, each counts in part.

    >>> selective_accuracy([(0.9, 1), (0.8, 0), (0.7, 1), (0.6, 0)], coverage=0.25)
    1.0
    """
    _check_coverage(coverage)
    _, shared, _, _ = _by_confidence(values)
    return float(shared @ _within(len(shared), coverage)) / (coverage * len(shared))


def _within(n: int, coverage: float) -> Floats:
    """How much of each of n documents is among the first: all, a part of one, nothing."""
    return np.clip(coverage * n - np.arange(n), 0.0, 1.0)


def selective_influence(values: Confidences, *, coverage: float = 0.8) -> Floats:
    """A document that enters pushes another one out: one at the threshold, which is right as often as those around it."""
    right, shared, order, tied = _by_confidence(values)
    n = len(right)
    at, reach = min(int(coverage * n), n - 1), math.ceil(math.sqrt(n) / 2)
    near = shared[max(0, at - reach) : at + reach + 1].mean() if coverage < 1 else 0.0
    within = _within(n, coverage)
    parts = (np.bincount(tied, weights=within) / np.bincount(tied))[tied]
    influence = np.empty(n)
    influence[order] = (right[order] - near) * parts / coverage + near
    return influence


def risk_coverage_area(values: Confidences) -> float:
    """Area under the curve of risk by coverage: the mean share of wrong answers among the most confident k, over all k.

    >>> risk_coverage_area([(0.9, 1), (0.8, 0)])
    0.25
    """
    _, shared, _, _ = _by_confidence(values)
    return float((np.cumsum(1 - shared) / np.arange(1, len(shared) + 1)).mean())


def risk_coverage_influence(values: Confidences) -> Floats:
    """A wrong answer adds to the risk at its coverage and beyond; every answer moves the coverage of those that are less sure."""
    right, shared, order, tied = _by_confidence(values)
    n = len(right)
    counts = np.arange(1, n + 1)
    beyond = np.cumsum((1 / counts)[::-1])[::-1]  # at place k the sum of 1/j for j from k to n
    beyond = (np.bincount(tied, weights=beyond) / np.bincount(tied))[tied]
    lowered = np.cumsum(((1 - shared) / counts)[::-1])[::-1]
    lowered = (np.bincount(tied, weights=lowered) / np.bincount(tied))[tied]
    influence = np.empty(n)
    influence[order] = (1 - right[order]) * beyond - lowered
    return influence


BRIER_SENTENCES = {
    "brier_reliability": "The part of the Brier score that calibration could remove.",
    "brier_resolution": "The part of the Brier score that telling documents apart saves.",
    "brier_uncertainty": "The part of the Brier score that is in the data.",
}
CALIBRATION_AGGREGATIONS: dict[str, tuple[Callable[..., float], Callable[..., Floats], tuple[float, float]]] = {
    "ece": (ece, ece_influence, UNIT),
    **{
        f"brier_{part}": (partial(brier_part, part), partial(brier_part_influence, part), (0.0, 2.0))
        for part in ("reliability", "resolution", "uncertainty")
    },
    "selective_accuracy": (selective_accuracy, selective_influence, UNIT),
    "risk_coverage_area": (risk_coverage_area, risk_coverage_influence, UNIT),
}
"""By name the function, its influence values and its bounds."""
BIASES: dict[str, Callable[..., float]] = {
    "ece": ece_bias,
    **{f"brier_{part}": partial(brier_part_bias, part) for part in ("reliability", "resolution", "uncertainty")},
}
"""By name how much too large a number is to be expected, where that matters."""
