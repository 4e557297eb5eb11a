"""The lane for code that waits: async functions are awaited, others run in threads. Nothing of it is written down."""

import asyncio
import inspect
from collections.abc import Callable, Sequence

from assay.engine.keys import Keys
from assay.errors import SelfExplanatory
from assay.records import Call, Failed, Response, Returned
from assay.user_code import user_code

MANY = 256
"""Calls at work from which on no further plan begins."""


class Calls:
    """Calls under way. What one raises is a failure of its plan; what goes wrong behind it ends the run."""

    def __init__(self, moved: asyncio.Event) -> None:
        self.keys = Keys("")
        self._moved = moved
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None

    @property
    def is_full(self) -> bool:
        return len(self._tasks) >= MANY

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def begin(self, call: Call, deliver: Callable[[Response], None]) -> None:
        task = asyncio.create_task(self._do(call, deliver))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _do(self, call: Call, deliver: Callable[[Response], None]) -> None:
        deliver(await _answer(call))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and self._error is None:
            self._error = task.exception()
        self._moved.set()

    def put(self, requests: Sequence[object]) -> None:
        raise NotImplementedError("calls begin at once")

    def drop(self) -> None:
        """A call that began is let come to its end."""

    async def advance(self) -> bool:
        if self._error is not None:
            raise self._error
        return False

    async def __aenter__(self) -> "Calls":
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _answer(call: Call) -> Response:
    function, arguments = call
    try:
        async with user_code(""):
            if inspect.iscoroutinefunction(function):
                return Returned(await function(*arguments))
            return Returned(await asyncio.to_thread(function, *arguments))
    except SelfExplanatory as error:
        return Failed(str(error))
