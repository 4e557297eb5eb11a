"""What metrics look at: a document's answers next to what is right."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OUT_OF_RANGE = -100
"""A right answer that is none of the choices: lm-eval's number for it."""


@dataclass(frozen=True, slots=True)
class MCResult:
    """Choices with their log-likelihoods. `target` is the index of the right one, or a list where several are right."""

    doc: Mapping[str, Any]
    target: Any
    choices: Sequence[str]
    lls: Sequence[float]
    is_greedy: Sequence[bool]
    lls_unconditional: Sequence[float] = ()

    @property
    def has_several(self) -> bool:
        return isinstance(self.target, list)

    def is_right(self, choice: int) -> bool:
        return choice in self.target if isinstance(self.target, list) else choice == self.target


@dataclass(frozen=True, slots=True)
class LLResult:
    """One continuation, or one text as a whole, with its log-likelihood."""

    doc: Mapping[str, Any]
    target: Any
    value: float
    is_greedy: bool


@dataclass(frozen=True, slots=True)
class GenResult:
    """What was generated: one answer, or several where a filter leaves several. `target` is one reference or a list."""

    doc: Mapping[str, Any]
    target: Any
    results: Any


def gold_index(gold: Any, choices: Sequence[str]) -> Any:
    """The index of the right choice, by index or by words; OUT_OF_RANGE where there is no such choice."""
    if isinstance(gold, list):
        return [each if each < len(choices) else OUT_OF_RANGE for each in gold]
    if isinstance(gold, str):
        return choices.index(gold) if gold in choices else OUT_OF_RANGE
    if isinstance(gold, int | float) and not isinstance(gold, bool):
        return gold if gold < len(choices) else OUT_OF_RANGE
    return int(gold) if isinstance(gold, bool) else OUT_OF_RANGE


def is_none_of(gold: Any, choices: Sequence[str]) -> bool:
    """Whether the index of a right choice, or one of several, means no choice: then there is nothing to be right about."""
    several = gold if isinstance(gold, list) else [gold]
    return not several or any(not 0 <= each < len(choices) for each in several)
