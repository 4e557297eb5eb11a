"""Tool calls: an intent is on the disk before a tool runs, and its result is written down after, so that it runs once."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Literal, NamedTuple, Self

from assay.engine.interrupts import GRACE, InterruptTimer, enter, leave
from assay.engine.lanes import LATE, Budget, CallLane, begin_call
from assay.records import Call, Failed, Response, Returned, Usage, UserValue
from assay.runs.journal import Journal
from assay.runs.outcomes import result_text
from assay.signatures import is_async

THREADS = 32
"""Number of tools that run at a time, unless they are async."""
DELIVERY = 0.2
"""Seconds in which the result of a tool that has finished comes from its thread."""
MOST_LISTED = 20
IN_DOUBT = "was begun and not finished when the run was stopped"
UNKNOWN = "the run was stopped during this call; whether it took effect is not known"
"""The result of a call in doubt that is skipped, as the model reads it."""
ResumeCalls = Literal["retry", "skip", "fail"]
MEANING: Mapping[ResumeCalls, str] = {
    "retry": "they are made again",
    "skip": "they are not made again, and their models read that the outcome is not known",
    "fail": "their records fail; skip or retry completes them",
}


class KeyedCall(NamedTuple):
    """A call with its key in the journal, and the function that takes its result."""

    key: bytes
    call: Call
    deliver: Callable[[Response], None]


class ToolLane(CallLane):
    """Calls of user code in progress; those of tools are journaled. `resume` says what becomes of a tool call that an earlier
    process began and did not finish."""

    def __init__(self, wake: asyncio.Event, journal: Journal, budget: Budget, resume: ResumeCalls) -> None:
        super().__init__(wake)
        self._journal, self._budget, self._resume = journal, budget, resume
        self._synced = _GroupSync(journal.sync_intents)
        self._free = asyncio.Semaphore(THREADS)
        self._ending: InterruptTimer | None = None
        self._deadline: float | None = None
        self._is_ending = False
        self.begun = 0
        """Tool calls that are announced, and whose result is not journaled yet."""

    def known(self, key: bytes, call: Call) -> Response | None:
        """The result of a call that an earlier process finished; of one that it began, what `resume` makes of it; None for a
        call that is to be made."""
        result = self._journal.result(key)
        if result is not None or call.repeatable or self._resume == "retry" or not self._journal.has_begun(key):
            return result
        *_, name, _ = call.identity
        if self._resume == "skip":
            unknown = Returned(None, error=UNKNOWN)
            self._journal.put_result(key, unknown)
            return unknown
        fix = "--resume_calls skip says so to the model, retry makes it again; a tool that may run twice is repeatable: true"
        return Failed(f"the call of the tool {name!r} {IN_DOUBT} ({fix})")

    def warn_of_doubt(self) -> None:
        """List the calls that an earlier process of the run began and did not finish."""
        calls = self._journal.calls_in_doubt()
        if calls:
            listed = ", ".join(f"{name}({arguments})" for *_, name, arguments in calls[:MOST_LISTED])
            more = f" and {len(calls) - MOST_LISTED} more" if len(calls) > MOST_LISTED else ""
            logging.getLogger("assay").warning(
                "%d tool calls were begun and not finished when the run was stopped: %s%s; --resume_calls is %s: %s",
                len(calls), listed, more, self._resume, MEANING[self._resume],
            )  # fmt: skip

    def begin_once(self, keyed: KeyedCall) -> None:
        """Begin a tool call. It is announced when a thread is free for it: what waits has not begun."""
        self.start(self._do_once(keyed))

    def end_soon(self, number: int) -> bool:
        """Begin no further tool call; when those that were begun have ended, an interrupt ends the run. Returns whether there is
        something to wait for. For signal handlers."""
        if self._is_ending or not self.begun:
            return False
        self._is_ending, self._deadline = True, time.perf_counter() + GRACE
        self._loop.call_soon_threadsafe(self._end_soon, number)
        return True

    def _end_soon(self, number: int) -> None:
        self._ending = InterruptTimer(number, self.begun)
        self._budget.stop("interrupted")
        self._wake.set()
        if not self.begun:
            self._ending.raise_now()

    async def _do_once(self, keyed: KeyedCall) -> None:
        if is_async(keyed.call.function):
            await self._announce_and_do(keyed)
            return
        async with self._free:
            await self._announce_and_do(keyed)

    async def _announce_and_do(self, keyed: KeyedCall) -> None:
        result = None if self._is_ending else await self._result_of(keyed)
        if result is None or self._is_ending:
            await asyncio.Future()  # until the run ends: its record goes on when it is resumed
        else:
            keyed.deliver(result)

    async def _result_of(self, keyed: KeyedCall) -> Returned | None:
        """The journaled result of a call; None where the run ended before it began."""
        self.begun += 1  # before the announcement: an interrupt between the two would leave a call in doubt
        try:
            return await self._finish(keyed) if await self._announce(keyed) else None
        finally:
            self.begun -= 1
            if self._ending is not None and not self.begun:
                self._ending.raise_now()

    async def _announce(self, keyed: KeyedCall) -> bool:
        """Write the intent to the disk; where the run ends before it is there, it is withdrawn, and False is returned."""
        self._journal.announce(keyed.key, keyed.call.identity)
        try:
            await self._synced()
        except asyncio.CancelledError:
            self._journal.withdraw(keyed.key)
            raise
        if self._is_ending:
            self._journal.withdraw(keyed.key)
        return not self._is_ending

    async def _finish(self, keyed: KeyedCall) -> Returned:
        """The journaled result of a tool. If the run ends meanwhile, it is waited for some seconds."""
        call, began = keyed.call, time.perf_counter()
        running = begin_call("tool", call)
        try:
            async with asyncio.timeout(call.seconds):
                response = _as_response(await asyncio.shield(running))
        except TimeoutError:
            running.cancel()
            response = Failed(LATE)
        except asyncio.CancelledError:
            await self._wait_after_end(running)
            if running.done() and not running.cancelled():
                self._kept(keyed.key, _as_response(running.result()), time.perf_counter() - began)
            raise
        return self._kept(keyed.key, response, time.perf_counter() - began)

    async def _wait_after_end(self, running: "asyncio.Future[UserValue | Failed]") -> None:
        now = time.perf_counter()
        self._deadline = self._deadline or now + GRACE
        end = max(self._deadline, now + DELIVERY)
        while not running.done() and (left := end - time.perf_counter()) > 0:
            with suppress(asyncio.CancelledError):  # all tasks are cancelled, and this one by its lane once more
                await asyncio.wait([running], timeout=left)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        enter(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await super().__aexit__()
        finally:
            leave(self)
            if self._ending is not None:
                self._ending.cancel()

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
