"""Items that a thread makes ahead of their use, and modules that one imports.

The thread is a daemon that its consumer ends and waits for: one inside torch that Python's own end cuts off aborts the process.
"""

import contextvars
import ctypes
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from importlib import import_module
from itertools import count
from queue import Empty, Queue
from types import ModuleType, TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

T = TypeVar("T")
NAME = "assay-ahead"
WAIT_SECONDS = 0.05
AGAIN = 20
"""Number of waits after which a thread is interrupted again: what it runs may have ignored the first."""


class _End(NamedTuple):
    """The last entry of a queue: the error that ended the thread, if one did."""

    error: BaseException | None


class Ahead(Generic[T]):
    """Iterate in a thread, up to `most` items ahead (0: without limit), in the context of whoever made this. An error there is
    raised here, after the items before it. `notify` is called in the thread after every item and at the end."""

    def __init__(self, items: Generator[T], most: int = 0, notify: Callable[[], None] | None = None) -> None:
        self._items, self._notify = items, notify
        self._queue: Queue[T | _End] = Queue(most)
        self._ended: _End | None = None
        self._is_closed = False
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=NAME, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # suppressed is one of `close`, when there was nothing left to interrupt
        with suppress(KeyboardInterrupt), ExitStack() as stack:
            stack.push(self._end)
            stack.enter_context(closing(self._items))  # in this thread, which its parts may belong to
            for item in self._items:
                self._put(item)
                if self._is_closed:
                    break

    def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None  # noqa: ARG002
    ) -> bool:  # fmt: skip
        """Put the end behind the items; an error is raised again where they are used."""
        self._put(_End(error))
        return True

    def _put(self, entry: T | _End) -> None:
        self._queue.put(entry)
        if self._notify is not None:
            self._notify()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        """Wait for the next item."""
        return self._item(self._queue.get() if self._ended is None else self._ended)

    def ready(self) -> list[T]:
        """The next item, if it is ready: a list of one, or of none."""
        if self._ended is None:
            try:
                return [self._item(self._queue.get_nowait())]
            except Empty:
                return []
        return []

    def _item(self, entry: T | _End) -> T:
        if not isinstance(entry, _End):
            return entry
        self._ended = _End(None)
        if entry.error is not None:
            raise entry.error
        raise StopIteration

    def abandon(self) -> None:
        """End the thread as soon as it can, without waiting for that."""
        self._is_closed = True
        _interrupt(self._thread)

    def close(self) -> None:
        """End the thread, in the middle of an item if need be, and wait for that."""
        self._is_closed = True
        for turn in count():
            while not self._queue.empty():  # it may wait for space
                self._queue.get_nowait()
            self._thread.join(WAIT_SECONDS)
            if not self._thread.is_alive():
                return
            if turn % AGAIN == 0:
                _interrupt(self._thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _interrupt(thread: threading.Thread) -> None:
    """Raise a KeyboardInterrupt in a thread, at its next step in Python: as Ctrl-C does in the main one."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt))


def is_working_ahead() -> bool:
    """Whether a thread of this file still runs: one that was abandoned, when the process ends."""
    return any(thread.name == NAME for thread in threading.enumerate())


def import_ahead(names: Sequence[str]) -> None:
    """Import modules in a thread. Whoever imports them meanwhile waits for it, and gets the error where one is missing."""
    if names:
        Ahead(_imported(names))


def _imported(names: Sequence[str]) -> Generator[ModuleType]:
    for name in names:
        yield import_module(name)
