"""Server-sent events: a page that shows a run in progress gets an event when there is something new.

One reader per run looks at a few files twice a second, however many pages show the run; it ends with the last of them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from signal import Signals
from types import FrameType

import uvicorn
from anyio import CapacityLimiter
from anyio.to_thread import run_sync

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

    async def stream(self, name: str, check: Callable[[], RunState]) -> AsyncIterator[bytes]:
        """Yield an event at once and at each change, until nothing more is to come."""
        reader = self._readers.setdefault(name, Reader(check))
        reader.pages += 1
        if reader.task is None:
            reader.task = asyncio.create_task(self._read(reader))
        try:
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
        finally:
            reader.pages -= 1
            if not reader.pages:
                reader.task.cancel()
                self._readers.pop(name, None)

    async def _read(self, reader: Reader) -> None:
        self._limiter = self._limiter or CapacityLimiter(1)  # looks at slow disks do not hold up pages
        due = 0.0
        while True:
            if time.monotonic() >= due:
                before = time.monotonic()
                reader.state = await run_sync(reader.check, limiter=self._limiter)
                due = before + max(SECONDS, (time.monotonic() - before) / SHARE)
            news, reader.news = reader.news, asyncio.Event()
            news.set()
            await asyncio.sleep(SECONDS if not self._is_closing else 0.05)


class StreamServer(uvicorn.Server):
    """A server that ends its streams when it is interrupted."""

    def __init__(self, config: uvicorn.Config, close: Callable[[], None]) -> None:
        super().__init__(config)
        self._close = close

    def handle_exit(self, sig: int | Signals, frame: FrameType | None) -> None:
        self._close()
        super().handle_exit(int(sig), frame)
