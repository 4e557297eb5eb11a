"""Fallbacks of a local model: a faster way of computing that failed, and the slower one that is used instead."""

import logging
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

from assay.records import JSONDict

MOST_WORDS = 200
"""Longest reason that is kept: compilers put whole programs into theirs."""


class DeviceAttempt:
    """A context in which devices, compilers and models may raise whatever they like: `error` is that. Ctrl-C passes."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None


class Fallback(NamedTuple):
    """The way that is used instead, why, how many times that was decided, and the requests that were computed again."""

    what: str
    reason: str
    times: int
    requests: int


@dataclass(slots=True)
class Fallbacks:
    """The fallbacks of a model since it was loaded. Each is logged once."""

    _noted: dict[str, Fallback] = field(default_factory=dict)

    def note(self, what: str, error: BaseException, requests: int = 0) -> None:
        known = self._noted.get(what)
        if known is None:
            known = Fallback(what, reason_of(error), 0, 0)
            logging.getLogger("assay").warning("%s: %s", what, known.reason)
        self._noted[what] = known._replace(times=known.times + 1, requests=known.requests + requests)

    def as_json(self) -> list[JSONDict]:
        return [each._asdict() for each in self._noted.values()]


def reason_of(error: BaseException) -> str:
    """The first line of an error; its type where it has none.

    >>> reason_of(RuntimeError("no kernel\\nand more lines")), reason_of(NotImplementedError())
    ('no kernel', 'NotImplementedError')
    """
    line = str(error).strip().partition("\n")[0].strip()
    return line[:MOST_WORDS] if line else type(error).__name__
