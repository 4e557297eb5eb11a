"""Tool calls: an intent is on the disk before a tool runs, and its result is written down after, so that it runs once."""

import asyncio
import inspect
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from assay.engine.lanes import CallLane, answer_call
from assay.records import Call, Failed, Response, Returned, Usage
from assay.runs.journal import Journal
from assay.runs.outcomes import result_text


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

    def known(self, key: bytes, call: Call) -> Response | None:
        """The result of a call that an earlier process finished; a failure for one that it began, unless that may be
        repeated; None for any other."""
        result = self._journal.result(key)
        if result is not None or call.repeatable or not self._journal.has_begun(key):
            return result
        name = call.identity[-2]
        fix = "a tool that may run twice is declared repeatable: true"
        return Failed(f"the call of the tool {name!r} was begun and not finished when the run was stopped ({fix})")

    def begin_all(self, calls: Sequence[KeyedCall]) -> None:
        """Announce tool calls, all in one write, and begin them."""
        self._journal.announce([(key, call.identity) for key, call, _ in calls])
        for each in calls:
            self.start(self._do_once(each))

    async def _do_once(self, keyed: KeyedCall) -> None:
        await self._synced()
        call, begun = keyed.call, time.perf_counter()
        running = asyncio.ensure_future(answer_call(call))
        try:
            response = await asyncio.shield(running)
        except asyncio.CancelledError:
            if inspect.iscoroutinefunction(call.function):
                running.cancel()
            else:  # a thread cannot be stopped: the process ends after it, and its result is known
                with suppress(asyncio.CancelledError):
                    self._kept(keyed.key, await running, time.perf_counter() - begun)
            raise
        keyed.deliver(self._kept(keyed.key, response, time.perf_counter() - begun))

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


class _GroupSync:
    """Syncs for all who wait together: what was written before the call is on the disk after it."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
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
        await asyncio.to_thread(self._sync)
