"""Turns between templates, whose memory is limited by limiting the address space of the whole process, and threads that map
memory, such as one that loads a model: under that limit, these would fail."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PAUSE = 0.02
"""Seconds after a template in which no thread gets its turn: the next template mostly follows at once."""
LONGEST_WAIT = 0.02
"""Seconds that a thread waits while one template follows the other; then it is its turn."""


class _Turns(threading.local):
    """How many turns this thread has, one inside the other."""

    held = 0


class _Queue:
    """Number of threads that map memory, those that wait to, since when, and the time until which templates have their turn."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.mapping = self.waiting = 0
        self.waiting_since = self.templates_until = 0.0
        self.is_open = False
        """Whether templates let waiting threads in."""

    def enter(self) -> None:
        with self.changed:
            if not self.waiting:
                self.waiting_since = time.monotonic()
            self.waiting += 1
            try:
                while not self.is_open and (left := self.templates_until - time.monotonic()) > 0:
                    self.changed.wait(min(left, PAUSE))
                self.mapping += 1
            finally:
                self.waiting -= 1
                self.changed.notify_all()

    def leave(self) -> None:
        with self.changed:
            self.mapping -= 1
            self.changed.notify_all()

    def let_in(self) -> None:
        """Let threads have their turn that have waited for long."""
        if not self.waiting or time.monotonic() - self.waiting_since < LONGEST_WAIT:
            return
        self.is_open = True
        self.changed.notify_all()
        while self.waiting:
            self.changed.wait()
        self.is_open = False


_queue, _turns = _Queue(), _Turns()


@contextmanager
def mapping_memory() -> Iterator[None]:
    """The turn of a thread: until it ends, the address space is not limited."""
    _queue.enter()
    _turns.held += 1
    try:
        yield
    finally:
        _turns.held -= 1
        _queue.leave()


@contextmanager
def waiting_for_device() -> Iterator[None]:
    """A part of a thread's turn in which it maps nothing, since it waits: templates may have theirs."""
    held, _turns.held = _turns.held, 0
    for _ in range(held):
        _queue.leave()
    try:
        yield
    finally:
        for _ in range(held):
            _queue.enter()
        _turns.held = held


@contextmanager
def limiting_memory() -> Iterator[None]:
    """The turn of a template, in the main thread: it begins when no thread maps memory."""
    with _queue.changed:
        before = _queue.templates_until
        if before != float("inf"):  # else it is inside another one
            _queue.let_in()
        _queue.templates_until = float("inf")
        while _queue.mapping:
            _queue.changed.wait()
    try:
        yield
    finally:
        _queue.templates_until = before if before == float("inf") else time.monotonic() + PAUSE
