"""Splits of a data set: their names, their sizes, and the order of their rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np


class NamedSplit(str):
    """The name of a split, which is a text like any other."""

    def __repr__(self) -> str:
        return f"NamedSplit({str(self)!r})"


class Split(NamedSplit):
    """The usual names."""

    TRAIN = NamedSplit("train")
    TEST = NamedSplit("test")
    VALIDATION = NamedSplit("validation")
    ALL = NamedSplit("all")


def random_numbers(seed: int | None, generator: Any) -> Any:
    """The generator that shuffles, as Hugging Face makes it."""
    if generator is not None:
        return generator
    if seed is None:  # as Hugging Face does: from the state of numpy's global numbers, which moves on by one
        state: Any = np.random.get_state()
        words, position = state[1], state[2]
        seed = int(words[position]) if position < 624 else int(words[0])
        np.random.random()
    return np.random.default_rng(seed)


def sorted_places(places: Sequence[int], values: Sequence[Any], descending: bool, nothing_first: bool) -> list[int]:
    """Places in the order of the values that stand there; equal ones stay, NaN and then None come last."""
    nothing = [place for place in places if values[place] is None]
    numberless = [place for place in places if values[place] is not None and values[place] != values[place]]
    apart = {*nothing, *numberless}
    rest = [place for place in places if place not in apart]
    rest.sort(key=values.__getitem__, reverse=descending)
    return [*nothing, *numberless, *rest] if nothing_first else [*rest, *numberless, *nothing]


def split_sizes(n: int, test_size: float | int | None, train_size: float | int | None) -> tuple[int, int]:
    """How many rows of n are for training and how many for testing; a quarter is for testing where nothing is said."""
    tests = _part(test_size, n, up=True) if test_size is not None else None
    trains = _part(train_size, n, up=False) if train_size is not None else None
    if tests is None:
        tests = n - trains if trains is not None else _part(0.25, n, up=True)
    trains = n - tests if trains is None else trains
    if trains + tests > n:
        raise ValueError(f"train_size and test_size are {trains + tests} together, and there are {n} rows")
    return trains, tests


def _part(size: float | int, n: int, *, up: bool) -> int:
    if (size < 1 or size >= n) if isinstance(size, int) else not 0 < size < 1:
        raise ValueError(f"{size} is neither a share between 0 and 1 nor a number of rows below {n}")
    if isinstance(size, int):
        return size
    return int(np.ceil(size * n)) if up else int(np.floor(size * n))
