"""Turns between templates, whose memory is limited by limiting the address space of the whole process, and threads that map
memory, such as one that loads a model: under that limit, these would fail."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PAUSE = 0.02
"""Seconds after a template in which no thread gets its turn: the next template mostly follows at once."""


class _Turns:
    """Number of threads that map memory, and the time until which templates have their turn."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.mapping = 0
        self.templates_until = 0.0


_turns = _Turns()


@contextmanager
def mapping_memory() -> Iterator[None]:
    """The turn of a thread: until it ends, the address space is not limited."""
    with _turns.changed:
        while (left := _turns.templates_until - time.monotonic()) > 0:
            _turns.changed.wait(min(left, PAUSE))
        _turns.mapping += 1
    try:
        yield
    finally:
        with _turns.changed:
            _turns.mapping -= 1
            _turns.changed.notify_all()


@contextmanager
def limiting_memory() -> Iterator[None]:
    """The turn of a template, in the main thread: it begins when no thread maps memory."""
    before, _turns.templates_until = _turns.templates_until, float("inf")
    try:
        with _turns.changed:
            while _turns.mapping:
                _turns.changed.wait()
        yield
    finally:
        _turns.templates_until = before if before == float("inf") else time.monotonic() + PAUSE  # inside another one
