"""The mean of a group's tasks and its error, as lm-eval 0.4.13 computes them."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class TaskScore(NamedTuple):
    """One task's number for a row of a group: its value, standard error and number of documents."""

    value: float
    stderr: float | None
    size: int


class GroupScore(NamedTuple):
    """A group's number."""

    value: float
    stderr: float | None
    size: int
    missing: Sequence[str] = ()


def weighted_mean(scores: Sequence[TaskScore], *, by_size: bool) -> float:
    """The members' values, each as often as it has documents, or each once; summed from left to right."""
    weights = [score.size if by_size else 1 for score in scores]
    above = 0.0
    for score, weight in zip(scores, weights, strict=True):
        above += score.value * weight
    return above / sum(weights)


def pooled_stderr(scores: Sequence[TaskScore], *, by_size: bool) -> float | None:
    """What lm-eval 0.4.13 writes: for means by size the pooled error, which also counts the spread between sizes."""
    errors = [score.stderr for score in scores if score.stderr is not None]
    if len(errors) < len(scores):
        return None
    if not by_size:
        return math.sqrt(sum(error**2 for error in errors)) / len(errors)
    sizes = [score.size for score in scores]
    if sum(sizes) == len(sizes):
        return None
    variance = sum((size - 1) * error**2 * size for size, error in zip(sizes, errors, strict=True)) / (
        sum(sizes) - len(sizes)
    )
    return math.sqrt(variance / sum(sizes))


def mean_of_tasks(tasks: Sequence[str], found: Mapping[str, TaskScore], *, by_size: bool) -> GroupScore | None:
    """The group's number from those of its tasks that have one; None where none has."""
    scores = [found[task] for task in tasks if task in found]
    if not scores:
        return None
    error = pooled_stderr(scores, by_size=by_size)
    missing = tuple(task for task in tasks if task not in found)
    return GroupScore(weighted_mean(scores, by_size=by_size), error, sum(score.size for score in scores), missing)
