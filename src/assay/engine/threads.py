"""Blocking user code in threads. They are daemons: Ctrl-C ends the process at once, whatever they wait for."""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import cache, partial
from queue import SimpleQueue
from typing import TypeVar

from assay.records import Call, Failed, UserValue
from assay.user_code import call_user_code

T = TypeVar("T")
MAX_THREADS = 64
"""Number of calls of a kind that run at once; asyncio's own pool has six threads on two processors."""


def begin_in_thread(kind: str, call: Call) -> "asyncio.Future[UserValue | Failed]":
    """Begin a call of user code in a thread of its kind: what one kind waits for does not keep another from beginning. The
    result is its value or a Failed with the reason, as a plain future, so nothing cancels the call."""
    loop = asyncio.get_running_loop()
    returned: asyncio.Future[UserValue | Failed] = loop.create_future()
    context = call.context or copy_context()

    def work() -> None:
        try:
            deliver = partial(
                _deliver, returned.set_result, context.run(call_user_code, "", call.function, *call.arguments)
            )
        except KeyboardInterrupt as interrupt:  # raised by the code itself: Ctrl-C is of the main thread
            deliver = partial(_deliver, returned.set_exception, interrupt)
        with suppress(RuntimeError):  # the loop is closed: the run has ended
            loop.call_soon_threadsafe(deliver, returned)

    _threads(os.getpid(), kind).begin(work)
    return returned


def _deliver(put: Callable[[T], None], value: T, returned: "asyncio.Future[T]") -> None:
    if not returned.done():  # else it was cancelled
        put(value)


class _Threads:
    """Threads that begin when there is work and none of them is free."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._free = threading.Semaphore(0)
        self._count = 0

    def begin(self, call: Callable[[], None]) -> None:
        self._calls.put(call)
        if not self._free.acquire(blocking=False) and self._count < MAX_THREADS:
            self._count += 1
            threading.Thread(target=self._work, name=f"assay-call-{self._count}", daemon=True).start()

    def _work(self) -> None:
        while True:
            self._calls.get()()
            self._free.release()


@cache
def _threads(process: int, kind: str) -> _Threads:  # noqa: ARG001  # threads do not survive a fork
    return _Threads()
