"""Batches: user code that sees all documents at once. Where it fails, the documents that it fails for are found."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from assay.records import Failed
from assay.user_code import TIME_LIMIT, timed

T = TypeVar("T")
R = TypeVar("R")
Guarded = Callable[[Sequence[T]], Sequence[R] | Failed]
"""User code that sees many documents, or why it failed."""


def apply_batch(place: str, function: Callable[[Sequence[T]], Sequence[R]], items: Sequence[T]) -> list[R | Failed]:
    """The results of a batch. Where it fails, those of the items that work together, and of each other item its failure.

    The items that work are applied together again, since a batch may depend on all of its items.

    >>> apply_batch("halves", lambda items: [8 // item for item in items], [1, 2, 0, 4])[:2]
    [8, 4]
    """
    apply: Guarded[T, R] = partial(_timed, place, function)
    whole = apply(items)
    if not isinstance(whole, Failed):
        return list(whole)
    lost = _culprits(apply, items, whole)
    if not lost:
        return [whole] * len(items)  # they fail together only
    rest = [item for number, item in enumerate(items) if number not in lost]
    results = apply(rest) if rest else []
    working: Iterator[R | Failed] = iter([results] * len(rest) if isinstance(results, Failed) else results)
    return [lost[number] if number in lost else next(working) for number in range(len(items))]


def _timed(place: str, function: Callable[[Sequence[T]], Sequence[R]], items: Sequence[T]) -> Sequence[R] | Failed:
    """A batch may take as long as its documents may take together."""
    return timed(TIME_LIMIT * max(1, len(items)), place, function, items)


def _culprits(apply: Guarded[T, R], items: Sequence[T], failure: Failed, start: int = 0) -> dict[int, Failed]:
    """The items of a batch that failed which fail alone, by number: a few are found in a few halvings."""
    if len(items) <= 1:
        return {start: failure} if items else {}
    lost: dict[int, Failed] = {}
    middle = len(items) // 2
    for begin, half in ((0, items[:middle]), (middle, items[middle:])):
        returned = apply(half)
        if isinstance(returned, Failed):
            lost |= _culprits(apply, half, returned, start + begin)
    return lost
