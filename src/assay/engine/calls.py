"""Tool calls: an intent is on the disk before a tool runs, and its result is written down after, so that it runs once."""

import asyncio
import inspect
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from assay.engine.lanes import LATE, CallLane, answer_call
from assay.engine.threads import begin_in_thread
from assay.records import Call, Failed, Response, Returned, Usage, UserValue
from assay.runs.journal import Journal
from assay.runs.outcomes import result_text

THREADS = 32
"""Number of tools that run at a time, unless they are async."""
GRACE = 5.0
"""Seconds that a tool gets to finish when the run is interrupted."""


class KeyedCall(NamedTuple):
    """A call with its key in the journal, and the function that takes its result."""

    key: bytes
    call: Call
    deliver: Callable[[Response], None]


class ToolLane(CallLane):
    """Calls of user code in progress; those of tools are journaled."""

    def __init__(self, wake: asyncio.Event, journal: Journal) -> None:
        super().__init__(wake)
        self._journal = journal
        self._synced = _GroupSync(journal.sync_intents)
        self._free = asyncio.Semaphore(THREADS)

    def known(self, key: bytes, call: Call) -> Response | None:
        """The result of a call that an earlier process finished; a failure for one that it began, unless that may be
        repeated; None for any other."""
        result = self._journal.result(key)
        if result is not None or call.repeatable or not self._journal.has_begun(key):
            return result
        *_, name, _ = call.identity
        fix = "a tool that may run twice is declared repeatable: true"
        return Failed(f"the call of the tool {name!r} was begun and not finished when the run was stopped ({fix})")

    def begin_once(self, keyed: KeyedCall) -> None:
        """Begin a tool call. It is announced when a thread is free for it: what waits has not begun."""
        self.start(self._do_once(keyed))

    async def _do_once(self, keyed: KeyedCall) -> None:
        if inspect.iscoroutinefunction(keyed.call.function):
            begun = await self._announced(keyed)
            response = await answer_call(keyed.call)
        else:
            async with self._free:
                begun = await self._announced(keyed)
                response = await self._in_thread(keyed, begun)
        keyed.deliver(self._kept(keyed.key, response, time.perf_counter() - begun))

    async def _announced(self, keyed: KeyedCall) -> float:
        """Write the intent to the disk; returns when it is there."""
        self._journal.announce(keyed.key, keyed.call.identity)
        await self._synced()
        return time.perf_counter()

    async def _in_thread(self, keyed: KeyedCall, begun: float) -> Response:
        """The result of a function that blocks. If the run is interrupted, it is waited for some seconds, and its result is
        journaled."""
        call = keyed.call
        running = begin_in_thread("tool", call.function, *call.arguments)
        try:
            async with asyncio.timeout(call.seconds):
                return _as_response(await asyncio.shield(running))
        except TimeoutError:
            return Failed(LATE)
        except asyncio.CancelledError:
            end = time.perf_counter() + GRACE
            while not running.done() and (left := end - time.perf_counter()) > 0:
                with suppress(asyncio.CancelledError):  # all tasks are cancelled, and this one by its lane once more
                    await asyncio.wait([running], timeout=left)
            if running.done():
                self._kept(keyed.key, _as_response(running.result()), time.perf_counter() - begun)
            raise

    def _kept(self, key: bytes, response: Response, seconds: float) -> Returned:
        """The result of a call as it is read back from the journal; one that is not JSON is not journaled."""
        usage = Usage(seconds=round(seconds, 6))
        if isinstance(response, Failed):
            result = Returned(None, usage, response.reason)
        else:
            assert isinstance(response, Returned)
            text = result_text(response.value)
            if text is None:
                return Returned(response.value, usage, is_kept=False)
            result = Returned(json.loads(text), usage)
        self._journal.put_result(key, result)
        return result


def _as_response(value: UserValue) -> Response:
    return value if isinstance(value, Failed) else Returned(value)


class _GroupSync:
    """Syncs for all who wait together: what was written before the call is on the disk after it."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync, self._thread = sync, ThreadPoolExecutor(1)  # not among tools, which may take all other threads
        self._last: asyncio.Task[None] | None = None
        self._is_running = False

    async def __call__(self) -> None:
        if self._last is None or self._is_running or self._last.done():
            self._last, self._is_running = asyncio.create_task(self._after(self._last)), False
        await asyncio.shield(self._last)

    async def _after(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait([before])
            before.result()
        self._is_running = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._sync)
