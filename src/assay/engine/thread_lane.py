"""The lane of a local model that answers in a thread: its responses are journaled and scored, and the next window is made,
while it computes."""

import asyncio
import sys
import threading
from collections.abc import Generator, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from assay.ahead import Ahead
from assay.engine.lanes import Budget, KeyedRequest, KeyedResponse, Receive, WindowLane
from assay.models.protocol import Model

WINDOWS = 2
"""Windows that a model has: one that it answers, and one that follows without a pause."""
SWITCH_SECONDS = 0.0002
"""Time after which a thread that wants to run Python gets its turn. A thread of torch asks for that after every operation:
with Python's 5 ms, a pass of 400 would take 2 s beside a thread that is busy in Python."""


@dataclass(slots=True)
class LocalTurns:
    """The local models of a run answer one after the other: they may share a device. `windows` are sent and not answered."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    windows: int = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        while not self.lock.acquire(timeout=0.1):  # else it could not be interrupted
            pass
        try:
            yield
        finally:
            self.lock.release()


class ThreadLane(WindowLane):
    """Queue of a local model that answers in its own thread.

    What a window holds does not depend on time: a full one is sent while another is answered, any other when no local model
    has anything to do, and responses are passed on one batch at a time.
    """

    def __init__(
        self, role: str, model: Model, receive: Receive, budget: Budget, wake: asyncio.Event, turns: LocalTurns
    ) -> None:
        super().__init__(role, model, receive, budget)
        self._wake, self._turns = wake, turns
        self._sent: SimpleQueue[Sequence[KeyedRequest] | None] = SimpleQueue()
        self._windows = 0
        self._answered: Ahead[list[KeyedResponse] | None] | None = None
        self._switch_seconds = 0.0

    @property
    def is_busy(self) -> bool:
        return bool(self._queue or self._windows)

    def drop(self) -> None:
        """Discard requests that the model has not begun with."""
        super().drop()
        while self._windows:
            try:
                self._sent.get_nowait()
            except Empty:
                return
            self._count(-1)

    def drop_keys(self, keys: Set[bytes]) -> list[bytes]:
        """Discard those of some requests that were not answered; returns their keys. Windows that others wait for, too, are
        answered to their end: what is in a batch does not depend on time."""
        if self._windows and not self._sent_keys.keys() <= keys:
            keys = keys - self._sent_keys.keys()
        elif self._windows:
            self._stop()
        return super().drop_keys(keys)

    async def advance(self) -> bool:
        """Send a window if that is due, else pass on a batch of responses."""
        if self._budget.is_over and self._windows:
            self._stop()
        if self._may_send():
            if self._has_conversation:
                with self._turns.turn():  # a chat template has limits of time and memory in the main thread only
                    return await super().advance()
            self._send(self._take())
            return True
        for responses in self._ready():
            if responses is None:
                self._count(-1)
            else:
                self._pass_on(responses)
            return True
        return False

    def _ready(self) -> list[list[KeyedResponse] | None]:
        return [] if self._answered is None else self._answered.ready()

    def _may_send(self) -> bool:
        if self._windows:
            return self.is_full and self._windows < WINDOWS and not self._has_conversation
        return self.is_full or bool(self._queue and not self._turns.windows)

    @property
    def _has_conversation(self) -> bool:
        return any(not isinstance(request[0], str) for _, request in self._queue[: self._size])

    def _send(self, window: Sequence[KeyedRequest]) -> None:
        self._count(1)
        self._sent_keys |= dict(window)
        self._sent.put(window)
        if self._answered is None:
            loop = asyncio.get_running_loop()
            self._answered = Ahead(self._answer(), notify=lambda: _wake(loop, self._wake))

    def _count(self, windows: int) -> None:
        self._windows += windows
        self._turns.windows += windows

    def _answer(self) -> Generator[list[KeyedResponse] | None]:
        """Yield the responses to every window, and None behind each; runs in the thread."""
        with asyncio.Runner() as runner:
            while (window := self._sent.get()) is not None:
                responses = self._responses(window)

                async def batch() -> list[KeyedResponse] | None:
                    return await anext(responses, None)  # noqa: B023  # it runs before the next window

                try:
                    with self._turns.turn():
                        while (new := runner.run(batch())) is not None:
                            yield new
                finally:
                    runner.run(responses.aclose())
                yield None

    def _stop(self) -> None:
        """End the thread: what it has not answered stays unanswered."""
        if self._answered is not None:
            self._sent.put(None)
            self._answered.close()
            self._answered, self._sent = None, SimpleQueue()
        self._count(-self._windows)

    async def __aenter__(self) -> "ThreadLane":
        self._switch_seconds = sys.getswitchinterval()
        sys.setswitchinterval(min(self._switch_seconds, SWITCH_SECONDS))
        return self

    async def __aexit__(self, *_: object) -> None:
        sys.setswitchinterval(self._switch_seconds)
        self._stop()


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    if not loop.is_closed():  # else the run has ended
        loop.call_soon_threadsafe(event.set)
