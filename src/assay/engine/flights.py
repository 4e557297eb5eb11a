"""Requests under way to a model that answers one by one."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any

from assay.engine.patience import Patience
from assay.records import Request, Response

Land = Callable[[bytes, Request, Response], None]


class Flights:
    """As many requests at once as there is room for. Used as a context: whatever ends it, none is left in the air."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._tasks: set[asyncio.Task[None]] = set()
        self._landed = asyncio.Event()
        self._error: BaseException | None = None

    @property
    def under_way(self) -> int:
        return len(self._tasks)

    async def send(self, key: bytes, request: Request, land: Land) -> None:
        """Send a request as soon as there is room; `land` takes its response."""
        while len(self._tasks) >= self._patience.room.size:
            await self.one_landed()
        task = asyncio.create_task(self._fly(key, request, land))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def one_landed(self) -> None:
        """Wait until something has landed since the last time."""
        if self._tasks:
            await self._landed.wait()
            self._landed.clear()
        if self._error is not None:
            raise self._error

    async def _fly(self, key: bytes, request: Request, land: Land) -> None:
        land(key, request, await self._patience.answer(request))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and self._error is None:
            self._error = task.exception()
        self._landed.set()

    async def __aenter__(self) -> "Flights":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
