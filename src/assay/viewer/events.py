"""Server-sent events: a page that shows a run in progress gets an event when there is something new.

One reader per run looks at a few files twice a second, however many pages show the run; it ends with the last of them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from signal import Signals
from types import FrameType

import uvicorn
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

SECONDS = 0.5
"""Time between two looks at a run."""
SHARE = 0.1
"""Maximum share of the time that looking may take: a folder of many runs is looked at less often."""
SILENCE = 15.0
"""After so many seconds without news a comment is sent, by which a closed page is noticed."""
MAX_STREAMS = 200


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of what a page shows: a text that changes with it, and whether more is to come."""

    stamp: str
    is_running: bool


@dataclass
class Reader:
    """Looks at a run for all pages that show it."""

    check: Callable[[], RunState]
    state: RunState | None = None
    pages: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None


class EventStreams:
    """The open streams of all pages."""

    def __init__(self) -> None:
        self._readers: dict[str, Reader] = {}
        self._limiter: CapacityLimiter | None = None
        self._is_closing = False

    @property
    def open_streams(self) -> int:
        return sum(reader.pages for reader in self._readers.values())

    @property
    def readers(self) -> int:
        return len(self._readers)

    def close(self) -> None:
        """End all streams: the server stops, and would wait for them."""
        self._is_closing = True

    @contextmanager
    def open_stream(self, name: str, check: Callable[[], RunState]) -> Iterator[Reader | None]:
        """A place among the open streams; None where they are too many. It is taken before anything is sent: a stream that was
        counted at its first event would let in all those that were asked for before.
        """
        if self.open_streams >= MAX_STREAMS:
            yield None
            return
        reader = self._readers.setdefault(name, Reader(check))
        reader.pages += 1
        try:
            yield reader
        finally:
            reader.pages -= 1
            if not reader.pages:
                self._readers.pop(name, None)
                if reader.task is not None:
                    reader.task.cancel()

    async def stream(self, reader: Reader) -> AsyncIterator[bytes]:
        """Yield an event at once and at each change, until nothing more is to come."""
        if reader.task is None:
            reader.task = asyncio.create_task(self._read(reader))
        yield b"retry: 2000\n\n"
        sent, quiet_since = "", time.monotonic()
        while not self._is_closing:
            state = reader.state
            if state is not None and state.stamp != sent:
                sent, quiet_since = state.stamp, time.monotonic()
                yield f"event: changed\ndata: {sent}\n\n".encode()
            if state is not None and not state.is_running:
                yield b"event: ended\ndata: -\n\n"
                return
            if time.monotonic() - quiet_since > SILENCE:
                quiet_since = time.monotonic()
                yield b": still here\n\n"
            await reader.news.wait()

    async def _read(self, reader: Reader) -> None:
        self._limiter = self._limiter or CapacityLimiter(1)  # looks at slow disks do not hold up pages
        due = 0.0
        try:
            while True:
                if time.monotonic() >= due:
                    before = time.monotonic()
                    reader.state = await run_sync(reader.check, limiter=self._limiter)
                    due = before + max(SECONDS, (time.monotonic() - before) / SHARE)
                news, reader.news = reader.news, asyncio.Event()
                news.set()
                await asyncio.sleep(SECONDS if not self._is_closing else 0.05)
        finally:  # where looking failed, no page waits for ever
            reader.state = RunState("-", False)
            reader.news.set()


class EventResponse(Response):
    """The stream of a page; 503 where too many are open."""

    def __init__(self, streams: EventStreams, name: str, check: Callable[[], RunState]) -> None:
        super().__init__()
        self._streams, self._name, self._check = streams, name, check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.open_stream(self._name, self._check) as reader:
            answer: Response = PlainTextResponse("too many open pages", 503)
            if reader is not None:
                answer = StreamingResponse(
                    self._streams.stream(reader), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
                )
            await answer(scope, receive, send)


class StreamServer(uvicorn.Server):
    """A server that ends its streams when it is interrupted."""

    def __init__(self, config: uvicorn.Config, close: Callable[[], None]) -> None:
        super().__init__(config)
        self._close = close

    def handle_exit(self, sig: int | Signals, frame: FrameType | None) -> None:
        self._close()
        super().handle_exit(int(sig), frame)
