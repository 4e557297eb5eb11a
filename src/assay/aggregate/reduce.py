"""Reductions: the scores of a document's repeats to one."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

Reduction = Callable[[Sequence[Any]], Any]


def mean(scores: Sequence[Any]) -> Any:
    """The mean; of scores that are mappings, key by key."""
    if isinstance(scores[0], Mapping):
        return {key: mean([score[key] for score in scores]) for key in scores[0]}
    return sum(scores) / len(scores)


REDUCTIONS: dict[str, Reduction] = {
    "mean": mean,
    "take_first": lambda scores: scores[0],
    "max": max,
    "min": min,
    "median": median,
}
