"""Aggregations of classification: precision, recall and F1 of a class and over classes, as scikit-learn defines them.

Each is made of ratios of sums over documents, so each has influence values: how far one document moves it. A ratio
without anything below the line is 0.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from assay.records import Floats

N = TypeVar("N", int, "Floats")
Label = str | int
LabelPairs = Sequence[tuple[Label, Label]]
"""Actual and predicted class of each document."""
Counts = Sequence[tuple[int, int, int]]
"""Three numbers of each document; each function says which."""
SCORES = ("precision", "recall", "f1")
AVERAGES = ("macro", "micro", "weighted")
CLASS_SENTENCES = {
    **{f"class_{score}": f"{score.capitalize()} of one class." for score in SCORES},
    **{f"macro_{score}": f"{score.capitalize()} as a mean over classes." for score in SCORES},
    **{f"micro_{score}": f"{score.capitalize()} of all decisions together." for score in SCORES},
    **{f"weighted_{score}": f"{score.capitalize()} of each class, weighted by its documents." for score in SCORES},
}
"""A sentence about each: they share functions."""


def _fraction(score: str, correct: N, predicted: N, actual: N) -> tuple[N, N]:
    """Numerator and denominator of a score: from how often a class is correct, predicted and actual."""
    if score == "f1":
        return 2 * correct, predicted + actual
    return correct, predicted if score == "precision" else actual


def score_of_counts(score: str, correct: int, predicted: int, actual: int) -> float:
    """Precision, recall or F1 of one class; 0 where its denominator is 0.

    >>> [round(score_of_counts(score, 1, 2, 4), 4) for score in SCORES]
    [0.5, 0.25, 0.3333]
    """
    above, below = _fraction(score, correct, predicted, actual)
    return above / below if below else 0.0


def f1_of_rates(precision: float, recall: float) -> float:
    """Return the harmonic mean of two rates; 0 where both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _ratio(above: "Floats | np.float64", below: "Floats | np.float64") -> Floats:
    return np.divide(above, below, out=np.zeros_like(below, dtype=np.float64), where=below != 0)


def _influence(above: Floats, below: Floats) -> Floats:
    """How far each document moves the ratio of its columns' sums, per column."""
    value, mean = _ratio(above.sum(axis=0), below.sum(axis=0)), below.mean(axis=0)
    return _ratio(above - value * below, np.broadcast_to(mean, above.shape))


def _of_hits(score: str, values: Counts) -> tuple[Floats, Floats]:
    correct, predicted, actual = np.asarray(values, dtype=np.float64).T
    return _fraction(score, correct, predicted, actual)


def class_score(score: str, values: Counts) -> float:
    """Of one class: values are (correct, predicted, actual) of each document."""
    above, below = _of_hits(score, values)
    return float(_ratio(above.sum(), below.sum()))


def class_influence(score: str, values: Counts) -> Floats:
    return _influence(*_of_hits(score, values))


def _table(values: LabelPairs, labels: Sequence[Label] | None) -> tuple[Floats, Floats, Floats]:
    """For each document and class whether it is correct, predicted, actual. Classes are those that occur, unless named."""
    classes = list(dict.fromkeys(labels if labels is not None else [label for pair in values for label in pair]))
    place = {label: number for number, label in enumerate(classes)}
    actual, predicted = (np.zeros((len(values), len(classes))) for _ in range(2))
    for number, (label, answer) in enumerate(values):
        if label in place:
            actual[number, place[label]] = 1
        if answer in place:
            predicted[number, place[answer]] = 1
    if labels is not None and not actual.any():
        raise ValueError(f"none of the right answers is one of the labels {', '.join(map(repr, classes))}")
    return actual * predicted, predicted, actual


def average_score(average: str, score: str, values: LabelPairs, *, labels: Sequence[Label] | None = None) -> float:
    """Over classes: values are (actual, predicted) of each document. `labels` are the classes that count."""
    correct, predicted, actual = _table(values, labels)
    above, below = _fraction(score, correct, predicted, actual)
    if average == "micro":
        return float(_ratio(above.sum(), below.sum()))
    scores = _ratio(above.sum(axis=0), below.sum(axis=0))
    if average == "macro":
        return float(scores.mean())
    return float(_ratio(scores @ actual.sum(axis=0), actual.sum()))


def average_influence(average: str, score: str, values: LabelPairs, *, labels: Sequence[Label] | None = None) -> Floats:
    """How far each document moves the number."""
    correct, predicted, actual = _table(values, labels)
    above, below = _fraction(score, correct, predicted, actual)
    if average == "micro":
        return _influence(above.sum(axis=1), below.sum(axis=1))
    influence = _influence(above, below)
    if average == "macro":
        mean: Floats = influence.mean(axis=1)
        return mean
    scores, totals = _ratio(above.sum(axis=0), below.sum(axis=0)), actual.sum(axis=0)
    # the weights move, too: they are shares of the documents
    weights = _ratio(totals, np.full_like(totals, actual.sum()))
    moved: Floats = influence @ weights + _influence(actual @ scores, actual.sum(axis=1))
    return moved


def binary_influence(values: LabelPairs) -> Floats:
    """How far each document moves the F1 of class 1; values are (actual, predicted)."""
    actual, predicted = (np.array([each == 1 for each in side], dtype=np.float64) for side in zip(*values, strict=True))
    return _influence(*_fraction("f1", actual * predicted, predicted, actual))


HITS: Counts = ((0, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1))
"""All that (correct, predicted, actual) can be."""
FEW_CLASSES, MANY_PAIRS = 4, 2000


def every_pair(name: str, values: Sequence[object]) -> Sequence[object]:
    """All values that documents of these classes can have; none where there are so many that they would not matter."""
    if name.startswith("class_"):
        return HITS if len(values) <= MANY_PAIRS else ()
    labels = list(dict.fromkeys(label for pair in values for label in pair))  # type: ignore[attr-defined]  # pairs
    is_few = 1 < len(labels) <= FEW_CLASSES and len(values) <= MANY_PAIRS
    return [(actual, predicted) for actual in labels for predicted in labels] if is_few else ()


# --- records by the numbers of their classes, where there may be very many classes ------------------------------------

MACRO_AVERAGES = ("average_precision", "average_recall", "average_f1_score")
"""Names of numbers made by `macro_score`: those that graphs report."""


def _sums(values: Counts, score: str, classes: int) -> tuple[Floats, Floats]:
    """Numerator and denominator, by class."""
    actual, predicted, correct = np.asarray(values, dtype=np.int64).T
    predicted_counts = np.bincount(predicted[predicted >= 0], minlength=classes).astype(np.float64)
    actual_counts = np.bincount(actual[actual >= 0], minlength=classes).astype(np.float64)
    hits = np.bincount(predicted[(predicted >= 0) & (correct > 0)], minlength=classes)
    return _fraction(score, hits.astype(np.float64), predicted_counts, actual_counts)


def macro_score(values: Counts, *, score: str, classes: int) -> float:
    """The mean over classes. Values are (actual class, predicted class, is correct) by number, -1 for no class.

    >>> macro_score([(0, 0, 1), (1, 0, 0)], score="precision", classes=2)
    0.25
    """
    return float(_ratio(*_sums(values, score, classes)).mean())


def macro_influence(values: Counts, *, score: str, classes: int) -> Floats:
    """Influence of each record on that mean: a record concerns two classes at most, so no table of all is built."""
    actual, predicted, correct = np.asarray(values, dtype=np.int64).T
    above, below = _sums(values, score, classes)
    share = _ratio(above, below)
    rarity = _ratio(np.full(classes, float(len(values))), below)
    moved = np.zeros(len(values))
    if score != "recall":
        hit = np.where(correct > 0, 2.0 if score == "f1" else 1.0, 0.0)
        moved += np.where(predicted >= 0, (hit - share[predicted]) * rarity[predicted], 0.0)
    if score != "precision":
        hit = np.where(correct > 0, 0.0 if score == "f1" else 1.0, 0.0)
        moved += np.where(actual >= 0, (hit - share[actual]) * rarity[actual], 0.0)
    return moved / classes


CLASS_AGGREGATIONS: dict[str, tuple[Callable[..., float], Callable[..., Floats]]] = {
    **{f"class_{score}": (partial(class_score, score), partial(class_influence, score)) for score in SCORES},
    **{
        f"{average}_{score}": (partial(average_score, average, score), partial(average_influence, average, score))
        for average in AVERAGES
        for score in SCORES
    },
}
"""By name, the function and its influence values."""
