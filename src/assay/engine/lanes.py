"""A lane for every model of a run: requests wait in it, and leave it in the way the model likes."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol

from assay.engine.budget import Budget
from assay.engine.keys import Keys
from assay.engine.patience import Limits, Patience, Room
from assay.errors import SelfExplanatory
from assay.models.protocol import Answered, AnyModel, Model, Remote
from assay.records import Failed, Generate, Request, Response
from assay.user_code import user_code

Asked = tuple[bytes, Request]
Answer = tuple[bytes, Request, Response]
Land = Callable[[str, Sequence[Answer]], None]
"""Takes responses that a role gave."""


class Lane(Protocol):
    """What the engine needs of one. `is_busy`: something has yet to land; `is_full`: nothing more should be put in."""

    keys: Keys

    @property
    def is_full(self) -> bool: ...
    @property
    def is_busy(self) -> bool: ...
    def put(self, requests: Sequence[Asked]) -> None: ...
    async def advance(self) -> bool:
        """Do what can be done without waiting for anybody; whether something was done."""
        ...

    def drop(self) -> None:
        """Forget what was not sent."""
        ...

    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, *_: Any) -> Any: ...


def lane(role: str, model: AnyModel, land: Land, budget: Budget, moved: asyncio.Event) -> "Lane":
    """The lane for a model: one by one, or a window at a time."""
    return RemoteLane(role, model, land, budget, moved) if isinstance(model, Remote) else WindowLane(role, model, land)


class WindowLane:
    """Requests for a model that is asked in batches: it gets its window full."""

    def __init__(self, role: str, model: Model, land: Land) -> None:
        self.keys = Keys(model.identity, model.can.samples)
        self._role, self._model, self._land = role, model, land
        self._queue: list[Asked] = []

    @property
    def is_full(self) -> bool:
        return len(self._queue) >= self._model.window

    @property
    def is_busy(self) -> bool:
        return bool(self._queue)

    def put(self, requests: Sequence[Asked]) -> None:
        self._queue += requests

    def drop(self) -> None:
        self._queue.clear()

    async def advance(self) -> bool:
        """Send a window of requests and hand on what comes; a failure for every request that is left without."""
        now, self._queue = self._queue[: self._model.window], self._queue[self._model.window :]
        if not now:
            return False
        unanswered = dict(now)
        async for answered in self._answers(now, unanswered):
            new = [(*now[n], response) for n, response in answered if unanswered.pop(now[n][0], None) is not None]
            self._land(self._role, new)
            await asyncio.sleep(0)  # where Ctrl-C gets in, and other lanes land
        return True

    async def _answers(self, now: Sequence[Asked], unanswered: Mapping[bytes, Request]) -> AsyncIterator[Answered]:
        """What the model answers, as it comes; and in the end a failure for every request that it left without."""
        reason = "the model gave no response"
        try:
            async with user_code(
                "the model failed"
            ):  # whatever it raises, its requests failed, and the others are asked
                async for answered in self._model.answer([request for _, request in now]):
                    yield answered
        except SelfExplanatory as error:
            reason = str(error)
        yield [(number, Failed(reason)) for number, (key, _) in enumerate(now) if key in unanswered]

    async def __aenter__(self) -> "WindowLane":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


class RemoteLane:
    """Requests for a model that answers one by one: as many are under way as there is room for.

    The repeats of a question go together where the model can answer them so. Used as a context: whatever ends it, no
    request is left in the air.
    """

    def __init__(self, role: str, model: Remote, land: Land, budget: Budget, moved: asyncio.Event) -> None:
        self.keys = Keys(model.identity, model.can.samples)
        limits = replace(Limits(), attempts=model.attempts)
        self.patience = Patience(self._ask, model.probe, limits, Room(model.concurrency))
        self._role, self._model, self._land, self._budget, self._moved = role, model, land, budget, moved
        self._queue: deque[Sequence[Asked]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_air = 0
        self._landed: list[Answer] = []
        self._error: BaseException | None = None

    @property
    def is_full(self) -> bool:
        """A roomful waits, so that one can leave as soon as another has landed."""
        return len(self._queue) >= self.patience.room.size

    @property
    def is_busy(self) -> bool:
        return bool(self._queue or self._tasks or self._landed)

    def put(self, requests: Sequence[Asked]) -> None:
        self._queue.extend(self._together(requests))
        self._take_off()

    def drop(self) -> None:
        self._queue.clear()

    async def advance(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._take_off()

    def _together(self, requests: Sequence[Asked]) -> list[Sequence[Asked]]:
        if not self._model.answers_repeats or len(requests) == 1:
            return [[each] for each in requests]
        flights: dict[object, list[Asked]] = {}
        for number, (key, request) in enumerate(requests):
            sampled = isinstance(request, Generate) and self.keys.is_sampled(request)
            flights.setdefault((request.prompt, id(request.params)) if sampled else number, []).append((key, request))  # type: ignore[union-attr]
        return list(flights.values())

    def _take_off(self) -> bool:
        """Send what there is room and money for."""
        sent = False
        while self._queue and self._in_air < self.patience.room.size and not self._budget.is_over:
            estimate = sum(self._model.estimate(request) for _, request in self._queue[0])
            if not self._budget.reserve(estimate):
                break
            self._in_air += 1
            task = asyncio.create_task(self._fly(self._queue.popleft(), estimate))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
            sent = True
        if self._queue and self._budget.is_over:
            self._moved.set()  # what waits here will not leave, and nobody else would say so
        return sent

    async def _ask(self, requests: Sequence[Request]) -> Sequence[Response]:
        return [await self._model.ask(requests[0])] if len(requests) == 1 else await self._model.ask_repeats(requests)

    async def _fly(self, flight: Sequence[Asked], estimate: float) -> None:
        cost = 0.0
        try:
            responses = await self.patience.answer([request for _, request in flight])
            share = estimate / len(flight)  # of what the server does not tell
            told = [self._model.cost(response) for response in responses]
            if any(cost is not None for cost in told):
                cost = sum(each or 0.0 for each in told)
            else:
                cost = sum(share for response in responses if not isinstance(response, Failed))
        finally:
            self._in_air -= 1
            self._budget.settle(estimate, cost)
        if not self._landed:
            later = asyncio.get_running_loop().call_soon
            later(later, self._hand_on)  # after all that has landed now, and after those that leave in its place
        self._landed += [(*asked, response) for asked, response in zip(flight, responses, strict=True)]
        self._take_off()

    def _hand_on(self) -> None:
        """Give the engine what has landed, all of it at once."""
        landed, self._landed = self._landed, []
        try:
            self._land(self._role, landed)
        except Exception as error:  # noqa: BLE001  # a full disk, say: it ends the run, from where the run is waited for
            self._error = self._error or error
        self._moved.set()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and self._error is None:
            self._error = task.exception()
            self._moved.set()
        if not self.is_busy:
            self._moved.set()

    async def __aenter__(self) -> "RemoteLane":
        await self._model.__aenter__()
        return self

    def cancel(self) -> None:
        """Give up what is under way: it was not answered, and may be asked again."""
        for task in self._tasks:
            task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._landed:
            self._hand_on()
        await self._model.__aexit__(kind, error, trace)
