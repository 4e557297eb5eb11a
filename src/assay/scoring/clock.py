"""The clock of the scoring loop: patterns of users can run without end, so that every document has a time limit."""

import signal
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # 16 ns; that of `signal` makes an enum member first, which takes 2 µs
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from assay.records import Failed
from assay.user_code import call_user_code

_CAN_ALARM = hasattr(signal, "setitimer")
T = TypeVar("T")
P = ParamSpec("P")

TIME_LIMIT = 10.0
"""Seconds that the filters and metrics of one document may take."""


def in_main_thread() -> bool:
    """Whether alarms can be set at all: only the main thread gets them."""
    return threading.get_ident() == threading.main_thread().ident and _CAN_ALARM


def timed(seconds: float, place: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Failed:
    """As `call_user_code`, with a limit in seconds: Python's pattern matcher looks for signals now and then.

    The alarm is repeated, so that of a document whose first metric was stopped, the second one can be stopped, too.
    Within another call of it, the limit of that one holds.
    """
    global _running
    if _running or not in_main_thread():
        return call_user_code(place, function, *args, **kwargs)
    if getsignal(signal.SIGALRM) is not _stop:  # user code may set alarms of its own, and leave its handler behind
        signal.signal(signal.SIGALRM, _stop)
    _running = True
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        return call_user_code(place, function, *args, **kwargs)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _running = False


def _stop(*_: object) -> None:
    raise TimeoutError(f"a filter or metric took more than {TIME_LIMIT:.0f} s")


_running = False


@contextmanager
def clock_stopped() -> Iterator[None]:
    """What is done within does not count towards the seconds that a document may take, and may set alarms of its own."""
    if not in_main_thread():
        yield
        return
    left, repeated = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, repeated)
