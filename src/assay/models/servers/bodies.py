"""Bodies of answers: read up to a limit, which applies after decompression, within a memory that all of them share."""

import asyncio
import math
import sys
import time
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from assay.models.protocol import PermanentError, RetryableError

if TYPE_CHECKING:
    import aiohttp

MB = 10**6
BLOCK = 2**18
"""Bytes that are decompressed at a time."""
ENCODINGS = "gzip, deflate"
MAX_SMALL, MIN_SMALL = 2**20, 2**14
"""Bounds of the size up to which a body is read without a reservation."""
ERROR_BYTES = 2**16
"""Bytes of an error's body that are read."""
ENDLESS = "the stream did not end where the tokens that were asked for must have ended"
T = TypeVar("T")


@dataclass(slots=True)
class SharedMemory:
    """Memory for large bodies in flight. A body that must wait for its part is not read meanwhile, and its server waits."""

    size: int = 0
    free: int = 0
    _waiting: deque[tuple[int, "asyncio.Future[None]"]] = field(default_factory=deque)

    def grow_to(self, size: int) -> None:
        """Be at least of this size."""
        more = max(size - self.size, 0)
        self.size, self.free = self.size + more, self.free + more

    async def take(self, amount: int) -> None:
        if not self._waiting and amount <= self.free:
            self.free -= amount
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, turn))
        try:
            await turn
        except asyncio.CancelledError:
            self.give(0 if turn.cancelled() else amount)
            raise

    def give(self, amount: int) -> None:
        """Return memory; those who wait get theirs in the order they came."""
        self.free += amount
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= self.free):
            amount, turn = self._waiting.popleft()
            if not turn.done():
                self.free -= amount
                turn.set_result(None)


_memories: WeakKeyDictionary[asyncio.AbstractEventLoop, SharedMemory] = WeakKeyDictionary()
"""One for all models of a run."""


class BodyReader:
    """Reads bodies of at most `limit` bytes. All bodies in flight take at most twice that: a quarter of it is for small
    bodies of `connections` at once, the rest is reserved by each large body before it is read."""

    def __init__(self, limit: int, connections: int) -> None:
        self.limit = limit
        self.small = max(MIN_SMALL, min(MAX_SMALL, limit // 2 // max(connections, 1), limit))
        self._memory = _memories.setdefault(asyncio.get_running_loop(), SharedMemory())
        self._memory.grow_to(2 * limit - limit // 2)

    async def read(self, answer: "aiohttp.ClientResponse", parse: Callable[[bytes], T]) -> T:
        """Return a parsed body; the body is released as soon as it is."""
        headers = answer.headers
        is_plain = "Content-Encoding" not in headers and "Transfer-Encoding" not in headers
        length = answer.content_length if is_plain else None
        if length is not None and length <= self.small:
            return parse(await answer.read())
        if length is not None and length > self.limit:
            raise self.too_large(f"{length / MB:.0f}")
        held, body = 0, bytearray()
        try:
            async for piece in pieces(answer):
                if len(body) + len(piece) > self.limit:
                    raise self.too_large(f"more than {self.limit / MB:.0f}")
                if not held and len(body) + len(piece) > self.small:
                    held = await self.reserve(length)
                body += piece
            return parse(body)  # type: ignore[arg-type]  # orjson and json read both
        finally:
            self.release(held)

    async def reserve(self, length: int | None = None) -> int:
        """Reserve memory for a large body: its length, if it is known, else the limit."""
        amount = self.limit if length is None else length
        await self._memory.take(amount)
        return amount

    def release(self, amount: int) -> None:
        if amount:
            self._memory.give(amount)

    def too_large(self, size: str) -> PermanentError:
        return too_large(size, self.limit)


def too_large(size: str, limit: int) -> PermanentError:
    """Return the error of a body of so many MB, above the limit in bytes."""
    return PermanentError(
        f"the answer has {size} MB, the limit is {limit / MB:.0f} MB: raise max_response_mb if that is right"
    )


class StreamLimits(NamedTuple):
    """Maximum size of a stream, and the seconds that all of it may take."""

    size: int
    events: int = sys.maxsize
    seconds: float = math.inf


class Deadline:
    """The seconds within which the next event must come, and those for the whole answer: a server that sends a little now and then
    meets the first for ever."""

    def __init__(self, timeout: float, seconds: float) -> None:
        self._timeout, self._seconds = timeout, seconds
        self._last = time.monotonic()
        self._end = self._last + seconds

    @property
    def left(self) -> float:
        """Seconds that the next bytes may take."""
        return max(0.0, min(self._timeout, self._end - time.monotonic()))

    def restart(self) -> None:
        """Note an event."""
        self._last = time.monotonic()

    def check_end(self) -> None:
        """Raise if the whole answer did not come in time."""
        if time.monotonic() >= self._end:
            raise PermanentError(
                f"the answer did not end within {self._seconds:.0f} s, the limit for the tokens that were asked for: raise timeout"
                " if that is right"
            )

    def check(self) -> None:
        """Raise if no event, or not the whole answer, came in time."""
        self.check_end()
        if time.monotonic() - self._last > self._timeout:
            raise RetryableError(f"no data within {self._timeout:.0f} s", rate_limited=True)


class EventData:
    """The data of a stream's events, within limits. `waiting` is the size of a line that has not ended."""

    def __init__(self, limits: StreamLimits) -> None:
        self._left, self._events = limits.size, limits.events
        self._start: list[bytes] = []
        self.waiting = 0

    def add(self, piece: bytes) -> Iterator[bytes]:
        """Yield the data of the events that a piece completes."""
        self._left -= len(piece)
        if self._left < 0:
            raise PermanentError(ENDLESS)
        if b"\n" not in piece:
            self._start.append(piece)
            self.waiting += len(piece)
            return
        *lines, rest = b"".join([*self._start, piece]).split(b"\n")
        self._start, self.waiting = [rest], len(rest)
        for line in lines:
            if line.startswith(b"data:"):
                self._events -= 1
                if self._events < 0:
                    raise PermanentError(ENDLESS)
                yield line[5:].strip()


async def start_of(answer: "aiohttp.ClientResponse") -> bytes:
    """Return the beginning of a body, for a message."""
    start = bytearray()
    async for piece in pieces(answer):
        start += piece
        if len(start) >= ERROR_BYTES:
            break
    return bytes(start[:ERROR_BYTES])


def pieces(answer: "aiohttp.ClientResponse") -> AsyncIterator[bytes]:
    """Yield a body as it arrives, decompressed block by block: a few bytes may be the start of gigabytes."""
    arriving = answer.content.iter_any()
    encoding = answer.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return arriving
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise PermanentError(f"the answer has the Content-Encoding {encoding!r:.40}, which was not asked for")
    return _decompressed(arriving)


async def within(deadline: Deadline, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield pieces, each of which must come in time: bytes that are none of a body do not count."""
    while True:
        try:
            async with asyncio.timeout(deadline.left):
                piece = await anext(pieces, None)
        except TimeoutError:
            deadline.check_end()
            raise
        if piece is None:
            return
        yield piece


async def _decompressed(arriving: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    stream = None
    try:
        async for piece in arriving:
            data = piece
            while data:
                if stream is None or stream.eof:
                    stream = zlib.decompressobj(_window_bits(data))
                if block := stream.decompress(data, BLOCK):
                    yield block
                data = stream.unused_data if stream.eof else stream.unconsumed_tail
    except zlib.error as error:
        raise RetryableError(f"the answer cannot be decompressed: {error}") from None
    if stream is not None and not stream.eof and (rest := stream.flush()):
        yield rest
    if stream is not None and not stream.eof:
        raise RetryableError("incomplete answer: the compressed body ended early")


def _window_bits(data: bytes) -> int:
    """Return zlib's number for gzip and deflate, or for deflate without a header, which some servers send."""
    return 47 if data[0] == 0x1F or data[0] & 0x0F == 8 else -15
