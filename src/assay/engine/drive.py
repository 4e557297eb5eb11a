"""Steps every plan as its responses land, and keeps the model's window full."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from assay.engine.flights import Flights, Land
from assay.engine.keys import Keys
from assay.engine.patience import Patience, Room
from assay.models.protocol import AnyModel, Model, Remote
from assay.records import Asking, Failed, Generate, Likelihood, Request, Response, Text

SYNC_SECONDS = 1.0


class Memory(Protocol):
    """Where responses are kept by key: a journal."""

    def get(self, key: bytes) -> Response | None: ...
    def add(self, answered: "Sequence[tuple[bytes, Response]]") -> None: ...
    def sync(self) -> None: ...


class Started(NamedTuple):
    """A plan to drive, with what it is for and the name of its sample."""

    what: Any
    sample: bytes
    asking: Asking


class Ended(NamedTuple):
    """A plan that came to its end: its responses, in the order of its requests."""

    what: Any
    responses: Sequence[Response]


@dataclass(slots=True)
class Counts:
    """What the engine did: requests of plans, those that were sent, those known from before, those that failed."""

    asked: int = 0
    sent: int = 0
    known: int = 0
    failed: int = 0


class _Plan:
    """A plan at work: what it waits for."""

    __slots__ = ("asking", "missing", "responses", "sample", "what")

    def __init__(self, started: Started) -> None:
        self.what, self.sample, self.asking = started
        self.responses: list[Response | None] = []
        self.missing = 0


class Engine:
    """Drives plans to their ends. Identical requests are sent once; what is in the memory is not sent at all."""

    def __init__(self, model: AnyModel, memory: Memory, notice: Callable[[Counts], None] | None = None) -> None:
        self.model = model
        self.counts = Counts()
        self._memory = memory
        self._notice = notice
        self._keys = Keys(model.identity)
        self._synced = time.monotonic()
        self.patience: Patience | None = None

    async def run(self, plans: Iterator[Started], end: Callable[[Ended], None]) -> None:
        """Drive every plan; `end` is called with each as it ends, in whatever order they do."""
        if isinstance(self.model, Remote):
            await self._run_remote(self.model, plans, end)
            return
        waiting: dict[bytes, list[tuple[_Plan, int]]] = {}
        batch: list[tuple[bytes, Request]] = []
        for started in plans:
            self._step(_Plan(started), None, waiting, batch, end)
            while len(batch) >= self.model.window:
                batch = await self._send(self.model, batch, waiting, end)
        while batch:
            batch = await self._send(self.model, batch, waiting, end)
        self._memory.sync()

    async def _run_remote(self, model: Remote, plans: Iterator[Started], end: Callable[[Ended], None]) -> None:
        """Drive plans with a model that answers one by one: as many at once as there is room for."""
        waiting: dict[bytes, list[tuple[_Plan, int]]] = {}
        batch: list[tuple[bytes, Request]] = []
        self.patience = Patience(model.ask, model.probe, room=Room(model.concurrency))
        flights = Flights(self.patience)

        def land(key: bytes, request: Request, response: Response) -> None:
            landed = _checked(request, response)
            self._memory.add([(key, landed)])
            self._sync_now_and_then()
            self._deliver(landed, waiting.pop(key), waiting, batch, end)
            if self._notice is not None:
                self._notice(self.counts)

        async with model, flights:
            for started in plans:
                self._step(_Plan(started), None, waiting, batch, end)
                await self._take_off(batch, flights, land)
            while batch or flights.under_way:
                await self._take_off(batch, flights, land)
                await flights.one_landed()
        self._memory.sync()

    async def _take_off(self, batch: list[tuple[bytes, Request]], flights: Flights, land: Land) -> None:
        for key, request in batch:
            self.counts.sent += 1
            await flights.send(key, request, land)
        batch.clear()

    def _step(
        self,
        plan: _Plan,
        responses: Sequence[Response] | None,
        waiting: dict[bytes, list[tuple[_Plan, int]]],
        batch: list[tuple[bytes, Request]],
        end: Callable[[Ended], None],
    ) -> None:
        """Go on with a plan until it waits or ends."""
        while True:
            try:
                requests = next(plan.asking) if responses is None else plan.asking.send(responses)
            except StopIteration as stop:
                end(Ended(plan.what, stop.value))
                return
            self._ask(plan, requests, waiting, batch)
            if plan.missing:
                return
            responses = plan.responses  # type: ignore[assignment]  # nothing is missing

    def _ask(
        self,
        plan: _Plan,
        requests: Sequence[Request],
        waiting: dict[bytes, list[tuple[_Plan, int]]],
        batch: list[tuple[bytes, Request]],
    ) -> None:
        plan.responses = [None] * len(requests)
        plan.missing = len(requests)
        self.counts.asked += len(requests)
        for slot, request in enumerate(requests):
            key = self._keys.key(request, plan.sample)
            others = waiting.get(key)
            if others is not None:
                others.append((plan, slot))
                continue
            known = self._memory.get(key)
            if known is not None and _fits(request, known):
                self.counts.known += 1
                plan.responses[slot] = known
                plan.missing -= 1
            else:
                waiting[key] = [(plan, slot)]
                batch.append((key, request))

    async def _send(
        self,
        model: Model,
        batch: list[tuple[bytes, Request]],
        waiting: dict[bytes, list[tuple[_Plan, int]]],
        end: Callable[[Ended], None],
    ) -> list[tuple[bytes, Request]]:
        """Send a window of requests and deliver what comes; returns what is to be sent next."""
        now, later = batch[: model.window], batch[model.window :]
        self.counts.sent += len(now)
        unanswered = dict(now)
        async for landed in self._answers(model, now, unanswered):
            self._memory.add(landed)
            self._sync_now_and_then()
            for key, response in landed:
                if unanswered.pop(key, None) is not None:
                    self._deliver(response, waiting.pop(key), waiting, later, end)
            if self._notice is not None:
                self._notice(self.counts)
            await asyncio.sleep(0)  # where Ctrl-C gets in
        return later

    async def _answers(
        self, model: Model, now: Sequence[tuple[bytes, Request]], unanswered: Mapping[bytes, Request]
    ) -> AsyncIterator[list[tuple[bytes, Response]]]:
        """What the model answers, as it comes; and a failure for every request that it left without."""
        reason = "the model gave no response"
        try:
            async for answered in model.answer([request for _, request in now]):
                yield [(now[number][0], _checked(now[number][1], response)) for number, response in answered]
        except Exception as error:  # noqa: BLE001  # whatever a model raises, its requests failed and are told apart
            reason = f"the model failed: {type(error).__name__}: {error}"
        yield [(key, Failed(reason)) for key in unanswered]

    def _deliver(
        self,
        response: Response,
        plans: Sequence[tuple[_Plan, int]],
        waiting: dict[bytes, list[tuple[_Plan, int]]],
        batch: list[tuple[bytes, Request]],
        end: Callable[[Ended], None],
    ) -> None:
        if isinstance(response, Failed):
            self.counts.failed += 1
        for plan, slot in plans:
            plan.responses[slot] = response
            plan.missing -= 1
            if not plan.missing:
                self._step(plan, plan.responses, waiting, batch, end)  # type: ignore[arg-type]  # nothing is missing

    def _sync_now_and_then(self) -> None:
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self._memory.sync()
            self._synced = time.monotonic()


def _fits(request: Request, response: Response) -> bool:
    """Whether a response is of the kind that was asked for."""
    return isinstance(response, Text if isinstance(request, Generate) else Likelihood)


def _checked(request: Request, response: Response) -> Response:
    """A response that can be used, or the failure it is: no text where text was asked, a likelihood that is no number."""
    if not isinstance(response, Failed) and not _fits(request, response):
        return Failed(f"the model answered {type(request).__name__} with {response!r:.80}")
    if isinstance(response, Likelihood):
        value = response.value
        if not isinstance(value, float | int) or value != value or value == float("inf"):
            return Failed(f"the model gave the log-likelihood {value!r}")
    elif isinstance(response, Text) and not isinstance(response.text, str):
        return Failed(f"the model gave {response.text!r} instead of text")
    return response
