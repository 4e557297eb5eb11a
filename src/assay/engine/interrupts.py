"""Ctrl-C and SIGTERM while tools are at work: a call that is cut off loses its record, so the first signal waits for them."""

import asyncio
import logging
import os
import threading
from typing import Protocol

GRACE = 30.0
"""Seconds that tool calls get to finish when a run is interrupted."""


class Interruptible(Protocol):
    """What an interrupt waits for."""

    def end_soon(self, number: int) -> bool: ...


_at_work: list[Interruptible] = []
"""The lanes of tool calls of the runs in progress."""


def interrupt(number: int) -> None:
    """Raise KeyboardInterrupt for a signal; where tools are at work, it is raised when they have finished."""
    waits = [lane.end_soon(number) for lane in _at_work]
    if not any(waits):
        raise KeyboardInterrupt


class InterruptTimer:
    """Raises KeyboardInterrupt in the event loop after GRACE seconds, or earlier when `raise_now` is called."""

    def __init__(self, number: int, count: int) -> None:
        self._loop, self.is_over = asyncio.get_running_loop(), False
        # where user code blocks the loop, a second signal ends the process
        self._second = threading.Timer(GRACE + 1, os.kill, (os.getpid(), number))
        self._second.daemon = True
        self._second.start()
        self._last = self._loop.call_later(GRACE, self.raise_now)
        logging.getLogger("assay").warning(
            "interrupted: waiting up to %g s for %d tool calls that were begun; a second signal ends the run at once",
            GRACE,
            count,
        )

    def raise_now(self) -> None:
        """End the run when the event loop comes by: nothing of this call is left undone."""
        if not self.is_over:
            self.is_over = True
            self._loop.call_soon(_raise)

    def cancel(self) -> None:
        self._last.cancel()
        self._second.cancel()


def _raise() -> None:
    raise KeyboardInterrupt


def enter(lane: Interruptible) -> None:
    """Let interrupts wait for a lane."""
    _at_work.append(lane)


def leave(lane: Interruptible) -> None:
    """Let interrupts wait for a lane no longer."""
    _at_work.remove(lane)
