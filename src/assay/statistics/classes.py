"""Aggregations of classification: precision, recall and F1 of a class and over classes, as scikit-learn defines them.

Each is made of ratios of sums over documents, so each has influence values: how far one document moves it. A ratio
without anything below the line is 0.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

Values = Sequence[Any]
SCORES = ("precision", "recall", "f1")
AVERAGES = ("macro", "micro", "weighted")


def _parts(score: str, found: Any, given: Any, right: Any) -> tuple[Any, Any]:
    """What stands above and below the line."""
    if score == "f1":
        return 2 * found, given + right
    return found, given if score == "precision" else right


def _ratio(above: Any, below: Any) -> Any:
    return np.divide(above, below, out=np.zeros_like(below, dtype=np.float64), where=below != 0)


def _moves(above: Any, below: Any) -> Any:
    """How far each document moves the ratio of its columns' sums, per column."""
    value, mean = _ratio(above.sum(axis=0), below.sum(axis=0)), below.mean(axis=0)
    return _ratio(above - value * below, np.broadcast_to(mean, above.shape))


def _of_hits(score: str, values: Values) -> tuple[Any, Any]:
    found, given, right = np.asarray(values, dtype=np.float64).T
    return _parts(score, found, given, right)


def class_score(score: str, values: Values) -> float:
    """Of one class: values are (found, given, right) of each document."""
    above, below = _of_hits(score, values)
    return float(_ratio(above.sum(), below.sum()))


def class_influence(score: str, values: Values) -> Any:
    return _moves(*_of_hits(score, values))


def _table(values: Values, labels: Sequence[Any] | None) -> tuple[Any, Any, Any]:
    """For each document and class whether it was found, given, right. Classes are those that occur, unless named."""
    classes = list(dict.fromkeys(labels if labels is not None else [label for pair in values for label in pair]))
    place = {label: number for number, label in enumerate(classes)}
    right, given = (np.zeros((len(values), len(classes))) for _ in range(2))
    for number, (wanted, answer) in enumerate(values):
        if wanted in place:
            right[number, place[wanted]] = 1
        if answer in place:
            given[number, place[answer]] = 1
    if labels is not None and not right.any():
        raise ValueError(f"none of the right answers is one of the labels {', '.join(map(repr, classes))}")
    return right * given, given, right


def average_score(average: str, score: str, values: Values, *, labels: Sequence[Any] | None = None) -> float:
    """Over classes: values are (right, given) of each document. `labels` are the classes that count."""
    found, given, right = _table(values, labels)
    above, below = _parts(score, found, given, right)
    if average == "micro":
        return float(_ratio(above.sum(), below.sum()))
    scores = _ratio(above.sum(axis=0), below.sum(axis=0))
    if average == "macro":
        return float(scores.mean())
    return float(_ratio(scores @ right.sum(axis=0), right.sum()))


def average_influence(average: str, score: str, values: Values, *, labels: Sequence[Any] | None = None) -> Any:
    """How far each document moves the number."""
    found, given, right = _table(values, labels)
    above, below = _parts(score, found, given, right)
    if average == "micro":
        return _moves(above.sum(axis=1), below.sum(axis=1))
    moves = _moves(above, below)
    if average == "macro":
        return moves.mean(axis=1)
    scores, totals = _ratio(above.sum(axis=0), below.sum(axis=0)), right.sum(axis=0)
    # the weights move, too: they are shares of the documents
    return moves @ _ratio(totals, np.full_like(totals, right.sum())) + _moves(right @ scores, right.sum(axis=1))


CLASS_AGGREGATIONS: dict[str, tuple[Callable[..., float], Callable[..., Any]]] = {
    **{f"class_{score}": (partial(class_score, score), partial(class_influence, score)) for score in SCORES},
    **{
        f"{average}_{score}": (partial(average_score, average, score), partial(average_influence, average, score))
        for average in AVERAGES
        for score in SCORES
    },
}
"""By name, the function and its influence values."""
