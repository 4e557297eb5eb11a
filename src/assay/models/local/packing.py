"""Pieces of text that see each other, one behind the other in a row without gaps.

A piece is some tokens with what they see before them: the tokens of other pieces, of this row or kept from an earlier one.
A few-shot prefix, a question behind it and a choice behind that are three pieces; nothing is in the row twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Span = tuple[int, int]
"""From one token of a row to another; those that were kept from earlier rows are counted from KEPT on."""
KEPT = 1 << 40


@dataclass(slots=True)
class Row:
    """The tokens of one pass through a model, and what each piece of them sees. `kept` tokens of earlier passes are seen, too:
    in front of the new ones."""

    tokens: list[int] = field(default_factory=list)
    kept: int = 0
    _first: list[int] = field(default_factory=list)
    _lengths: list[int] = field(default_factory=list)
    _seen: list[list[Span]] = field(default_factory=list)

    def add(self, tokens: Sequence[int], seen: Sequence[Span]) -> Span:
        """Put a piece in, behind what it sees; where it stands."""
        own = (len(self.tokens), len(self.tokens) + len(tokens))
        self.tokens.extend(tokens)
        self._first.append(sum(stop - begin for begin, stop in seen))
        self._lengths.append(len(tokens))
        self._seen.append([*seen, own])
        return own

    def see(self, length: int) -> Span:
        """Put so many tokens in front that were kept; where they stand."""
        self.kept += length
        return KEPT + self.kept - length, KEPT + self.kept

    def place(self, span: Span) -> Span:
        """Where tokens stand in the end, with those that were kept in front."""
        return (span[0] - KEPT, span[1] - KEPT) if span[0] >= KEPT else (span[0] + self.kept, span[1] + self.kept)

    @property
    def sight(self) -> int:
        """How many tokens all pieces see together, their own included: what is looked up for them."""
        return sum(self._first) + len(self.tokens)

    def positions(self) -> Any:
        """Where in its text each token stands."""
        return np.repeat(self._first, self._lengths) + _counted(self._lengths)

    def lengths(self) -> tuple[Any, Any]:
        """Of each piece: its tokens, and those it sees with them."""
        own = np.asarray(self._lengths)
        return own, own + np.asarray(self._first)

    def lookup(self) -> Any:
        """The tokens that the pieces see, piece by piece; nothing where each sees itself alone."""
        if not self.kept and not any(self._first):
            return None
        spans = [self.place(span) for seen in self._seen for span in seen]
        starts = np.asarray([start for start, _ in spans])
        lengths = [stop - start for start, stop in spans]
        return np.repeat(starts, lengths) + _counted(lengths)


def _counted(lengths: Sequence[int]) -> Any:
    """0, 1, 2 … for each of the lengths.

    >>> _counted([2, 3]).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - np.asarray(lengths), lengths)
