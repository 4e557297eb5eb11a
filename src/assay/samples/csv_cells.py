"""The cells of a csv column: numbers where nothing of what is written gets lost, else the text.

`007`, `1.50`, `1e3`, `+5`, ` 7`, `1_000` and whole numbers beyond 64 bits keep their column a text: printed again, the
number would be another text, and so would a prompt or a right answer that is made of it. So would the truth that is
made of `true`, which prints as `True`: such a column is text, too.
"""

import math
import re
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

MISSING = frozenset((
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
))  # fmt: skip
"""Cells of a csv file that say there is nothing, as pandas has it."""
SIGNED, UNSIGNED = (-(2**63), 2**63 - 1), (0, 2**64 - 1)
"""The whole numbers that a table can hold, in one of two ways."""


def typed(column: Sequence[str], *, as_numbers: bool = False) -> list[Any]:
    """A column as numbers where all of its cells are such, else as texts.

    Among numbers, what says it is missing is None; among texts only an empty cell is, for `NA` may be a country.
    `as_numbers`: other files have numbers in this column, so it is one of numbers also where every cell is missing.

    >>> typed(["7", "12", "NA"]), typed(["1", "2.5"]), typed(["007", "12"]), typed(["NA", "ZA", ""])
    ([7, 12, None], [1, 2.5], ['007', '12'], ['NA', 'ZA', None])
    """
    present = [text for text in column if text not in MISSING]
    if not present and not as_numbers:
        return texts(column)
    try:
        numbers = iter([_number(text) for text in present])
    except ValueError:
        return texts(column)
    return [None if text in MISSING else next(numbers) for text in column]


def texts(column: Sequence[str]) -> list[str | None]:
    """A column as texts, whatever is in it; an empty cell is None."""
    return [text or None for text in column]


def typed_as_pandas(column: Sequence[str]) -> list[Any]:
    """The same as pandas has it, which lm-eval's and SyGra's data is read with.

    Whole numbers with a gap among them become floats there, and of `007` is left 7.

    >>> typed_as_pandas(["007", "12"]), typed_as_pandas(["7", ""])
    ([7, 12], [7.0, None])
    """
    present = [text for text in column if text not in MISSING]
    if present and all(map(_WHOLE.fullmatch, present)):
        try:
            numbers = [int(text) for text in present]
        except ValueError:  # more digits than Python converts
            return _untyped_as_pandas(column)
        if not _fit(numbers, SIGNED):  # a gap would need floats, which cannot hold them
            return numbers if len(present) == len(column) and _fit(numbers, UNSIGNED) else list(column)
        return _read(column, (int,) if len(present) == len(column) else (float,))
    return _read(column, (_float_of_pandas, _truth))


def names_as_pandas(header: Sequence[str]) -> list[str]:
    """The names of columns, each once: pandas numbers those that it meets again, and those that have none.

    >>> names_as_pandas(["a", "a", "", "b", "a"])
    ['a', 'a.1', 'Unnamed: 2', 'b', 'a.2']
    """
    named = [name or f"Unnamed: {at}" for at, name in enumerate(header)]
    made: list[str] = []
    for name in named:
        free = (f"{name}.{number}" for number in count(1))
        made.append(next(new for new in free if new not in named and new not in made) if name in made else name)
    return made


def _untyped_as_pandas(column: Sequence[str]) -> list[str | None]:
    return [None if text in MISSING else text for text in column]


def _read(column: Sequence[str], readers: Sequence[Callable[[str], Any]]) -> list[Any]:
    """The column by the first reader that can read all of its cells; texts where none can."""
    present = [text for text in column if text not in MISSING]
    for read in readers if present else ():
        try:
            values = iter([read(text) for text in present])
        except ValueError:
            continue
        return [None if text in MISSING else next(values) for text in column]
    return _untyped_as_pandas(column)


def _number(text: str) -> int | float:
    """The number that is written so, and not otherwise."""
    if _PLAIN.fullmatch(text):
        whole = int(text)
        if _fit([whole], SIGNED) or _fit([whole], UNSIGNED):
            return whole
        raise ValueError(text)
    number = float(text)
    if repr(number) != text or not math.isfinite(number):
        raise ValueError(text)
    return number


def _float_of_pandas(text: str) -> float:
    if _FLOAT.fullmatch(text) is None:
        raise ValueError(text)
    return float(text)


def _truth(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _fit(numbers: Sequence[int], bounds: tuple[int, int]) -> bool:
    return all(bounds[0] <= number <= bounds[1] for number in numbers)


_PLAIN = re.compile(r"0|-?[1-9][0-9]{0,20}", re.ASCII)
_WHOLE = re.compile(r"[ \t\n\v\f\r]*[+-]?[0-9]+[ \t\n\v\f\r]*", re.ASCII)
_FLOAT = re.compile(
    r"[ \t\n\v\f\r]*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?)[ \t\n\v\f\r]*",
    re.ASCII | re.IGNORECASE,
)
