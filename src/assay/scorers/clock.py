"""The clock of the scoring loop, stopped while something else keeps the time."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def in_main_thread() -> bool:
    """Whether alarms can be set at all: only the main thread gets them."""
    return threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")


@contextmanager
def clock_stopped() -> Iterator[None]:
    """What is done within does not count towards the seconds that a document may take, and may set alarms of its own."""
    if not in_main_thread():
        yield
        return
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
