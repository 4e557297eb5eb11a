"""Two texts side by side: what one has and the other has not."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

LONG = 4000
"""Words of a text that are compared; what is behind them is shown as it is."""


class Piece(NamedTuple):
    """A part of a text, and whether the other text has it, too."""

    text: str
    is_shared: bool


def aligned(before: str, after: str) -> tuple[list[Piece], list[Piece]]:
    """Both texts in pieces: words that stand in both, in the same order, are shared.

    >>> aligned("a b c", "a x c")[1]
    [Piece(text='a ', is_shared=True), Piece(text='x', is_shared=False), Piece(text=' c', is_shared=True)]
    """
    one, two = _words(before), _words(after)
    first, second = one[:LONG], two[:LONG]
    steps = SequenceMatcher(None, first, second, autojunk=False).get_opcodes() if len(first) * len(second) < 10**6 else [
        ("replace", 0, len(first), 0, len(second))
    ]  # fmt: skip
    left = [Piece("".join(first[a:b]), kind == "equal") for kind, a, b, _, _ in steps if b > a]
    right = [Piece("".join(second[a:b]), kind == "equal") for kind, _, _, a, b in steps if b > a]
    return [*left, *_rest(one)], [*right, *_rest(two)]


def _rest(words: list[str]) -> Iterator[Piece]:
    if len(words) > LONG:
        yield Piece("".join(words[LONG:]), True)


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|\w+|[^\w\s]", text)
