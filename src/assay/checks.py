"""Checks as data: each says what must be known before it can look. A walk over a list of them finds all that is wrong."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from assay.errors import ConfigError, Problem, collect

S = TypeVar("S")


class Level(Enum):
    """What is known when a check looks."""

    STATIC = auto()
    """The text of the files."""
    LOADED = auto()
    """User code, or stand-ins for it."""
    BOUND = auto()
    """Documents, filters and metrics, models."""
    FIRST_DOCUMENTS = auto()
    """What the first documents are asked."""


@dataclass(frozen=True, slots=True)
class Check(Generic[S]):
    """A check: `find` yields what is wrong, in sentences with their places, or raises a ConfigError."""

    level: Level
    find: Callable[[S], Iterable[Problem]]


def list_problems(checks: Sequence[Check[S]], subject: S, level: Level) -> list[Problem]:
    """List what the checks of a level find, in their order."""
    problems: list[Problem] = []
    for check in checks:
        if check.level is level:
            problems += collect(problems, lambda find=check.find: list(find(subject))) or ()  # type: ignore[misc]
    return problems


def refuse(checks: Sequence[Check[S]], subject: S, level: Level) -> None:
    """Refuse what the checks of a level find, all of it at once; notes refuse nothing."""
    serious = [problem for problem in list_problems(checks, subject, level) if problem.serious]
    if serious:
        raise ConfigError(serious)
