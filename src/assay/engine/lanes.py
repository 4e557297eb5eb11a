"""Lanes: one request queue per model of a run, which sends while the budget lasts, and one for calls of user code."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol, Self

from assay.engine.retry import ConcurrencyWindow, Retrier, RetryLimits
from assay.engine.threads import begin_in_thread
from assay.errors import SelfExplanatory
from assay.models.protocol import Answered, Model, ModelLost, Remote
from assay.number_text import format_money
from assay.records import Call, Failed, Generate, Request, Response, Returned, Usage, UserValue
from assay.signatures import is_async
from assay.user_code import user_code

KeyedRequest = tuple[bytes, Request]
KeyedResponse = tuple[bytes, Request, Response]
Receive = Callable[[str, Sequence[KeyedResponse]], None]
"""Receives the responses of a role."""

GRACE_SECONDS = 60.0
"""Time that requests in flight get to finish when the budget is spent."""


@dataclass(slots=True)
class Budget:
    """Limits and how much of each is used. `ended` names the limit that was reached; cost is reserved before it is spent.
    `at_once`: the run needs no more answers, not even those of requests in flight."""

    cost: float | None = None
    seconds: float | None = None
    failures: int | None = None
    ended: str = ""
    at_once: bool = False
    _spent: float = 0.0
    _reserved: float = 0.0
    _open: int = 0
    _failed: int = 0
    _has_documents: bool = False
    _started: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        """Whether a limit is reached; stores which."""
        if not self.ended and self.seconds is not None and time.monotonic() - self._started >= self.seconds:
            self.ended = f"max_time: {self.seconds:g} s elapsed"
        return bool(self.ended)

    def reserve(self, estimate: float) -> bool:
        """Reserve the cost of a request; return whether it fits. One that does not may fit when others cost less than
        reserved; with no others in flight the budget is spent."""
        if self.cost is None or self._spent + self._reserved + estimate <= self.cost:
            self._reserved += estimate
            self._open += 1
            return True
        if not self._open and not self.ended:
            spent, more = format_money(self._spent), format_money(estimate)
            self.ended = f"max_cost: {spent} of {self.cost:g} spent, and the next request may cost {more}"
        return False

    def settle(self, estimate: float, cost: float) -> None:
        """Replace a reserved estimate by the actual cost."""
        self._reserved -= estimate
        self._open -= 1
        self._spent += cost

    def pay(self, cost: float) -> None:
        """Count cost from an earlier part of the run."""
        self._spent += cost

    def stop(self, reason: str) -> None:
        """End the run now."""
        if not self.ended:
            self.ended, self.at_once = reason, True

    def fail(self, *, is_document: bool = False) -> None:
        """Count a failed request, or a document that failed although its requests were answered."""
        self._failed += 1
        self._has_documents |= is_document
        if self.failures is not None and self._failed >= self.failures and not self.ended:
            things = "requests or documents" if self._has_documents else "requests"
            self.ended = f"max_failures: {self._failed} {things} failed"


class Lane(Protocol):
    """A request queue. `is_busy`: responses are outstanding; `is_full`: no further requests should be added."""

    @property
    def is_full(self) -> bool: ...
    @property
    def is_busy(self) -> bool: ...
    def put(self, requests: Sequence[KeyedRequest]) -> None: ...
    async def advance(self) -> bool:
        """Send what can be sent without waiting; return whether anything was sent."""
        ...

    def drop(self) -> None:
        """Discard requests that were not sent."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


FIRST_WINDOW = 2_048
"""Number of requests of the first window of a local model, if it takes as many."""


class WindowLane:
    """Queue of a local model, which is sent a window of requests at a time."""

    def __init__(self, role: str, model: Model, receive: Receive, budget: Budget) -> None:
        self._role, self._model, self._receive, self._budget = role, model, receive, budget
        self._queue: list[KeyedRequest] = []
        self._size = min(FIRST_WINDOW, model.window)
        self._sent_keys: dict[bytes, Request] = {}
        """Requests that the model was sent and has not answered."""

    @property
    def is_full(self) -> bool:
        return len(self._queue) >= self._size

    @property
    def is_busy(self) -> bool:
        return bool(self._queue)

    def put(self, requests: Sequence[KeyedRequest]) -> None:
        self._queue += requests

    def drop(self) -> None:
        self._queue.clear()

    def drop_keys(self, keys: Set[bytes]) -> list[bytes]:
        """Discard those of some requests that were not answered; returns their keys. A window may be a whole task, so the one
        that the model is at ends, and the rest of it is queued again."""
        waiting = [*self._sent_keys.items(), *self._queue]
        dropped = [key for key, _ in waiting if key in keys]
        if not self._sent_keys.keys().isdisjoint(keys):
            self._sent_keys.clear()
            self._queue = waiting
        self._queue = [keyed for keyed in self._queue if keyed[0] not in keys]
        return dropped

    async def advance(self) -> bool:
        """Send a window of requests and pass on the responses; a failure for every request without one."""
        window = self._take()
        if not window:
            return False
        self._sent_keys = dict(window)
        async with aclosing(self._responses(window)) as responses:
            async for new in responses:
                self._pass_on(new)
                await asyncio.sleep(0)  # lets Ctrl-C and the other lanes in
                if self._budget.is_over or not self._sent_keys:
                    break
        self._sent_keys = {}
        return True

    def _pass_on(self, responses: Sequence[KeyedResponse]) -> None:
        for key, _, _ in responses:
            self._sent_keys.pop(key, None)
        self._receive(self._role, responses)

    def _take(self) -> list[KeyedRequest]:
        """The requests of the next window. Each is twice as large as the one before: a model begins early, and is busy until
        the next is there."""
        window, self._queue = self._queue[: self._size], self._queue[self._size :]
        self._size = min(2 * self._size, self._model.window)
        return window

    async def _responses(self, window: Sequence[KeyedRequest]) -> AsyncGenerator[list[KeyedResponse]]:
        """Yield the responses to a window, one to each request."""
        is_answered = bytearray(len(window))
        async with aclosing(self._answers(window, is_answered)) as answers:
            async for answered in answers:
                new: list[KeyedResponse] = []
                for number, response in answered:
                    if not is_answered[number]:
                        is_answered[number] = True
                        key, request = window[number]
                        new.append((key, request, response))
                yield new

    async def _answers(self, window: Sequence[KeyedRequest], is_answered: Sequence[int]) -> AsyncGenerator[Answered]:
        """Yield the responses as they come, and last a failure for every unanswered request."""
        reason = "the model gave no response"
        try:
            # whatever it raises fails its own requests only
            async with user_code("the model failed"):
                async for answered in self._model.answer([request for _, request in window]):
                    yield answered
        except ModelLost:
            raise
        except SelfExplanatory as error:
            reason = str(error)
        yield [(number, Failed(reason)) for number, answered in enumerate(is_answered) if not answered]

    async def __aenter__(self) -> "WindowLane":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


def error_of(task: "asyncio.Task[None]") -> BaseException | None:
    """Return the error that a task ended with; None where it was canceled."""
    return None if task.cancelled() else task.exception()


class RemoteLane:
    """Queue of a server, with as many requests in flight as the concurrency window allows.

    Repeats of a prompt are sent as one request where the server supports it. Leaving the context cancels every request
    in flight.
    """

    def __init__(self, role: str, model: Remote, receive: Receive, budget: Budget, wake: asyncio.Event) -> None:
        limits = replace(RetryLimits(), attempts=model.attempts)
        window = ConcurrencyWindow(model.concurrency, model.first_concurrency)
        self.retrier = Retrier(self._send, model.probe, limits, window)
        self._role, self._model, self._receive, self._budget, self._wake = role, model, receive, budget, wake
        self._queue: deque[Sequence[KeyedRequest]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self.pending = 0
        self.unanswered = 0
        """Number of requests that were canceled in flight: the server was asked for most of them, and may charge for those."""
        self._responses: list[KeyedResponse] = []
        self._error: BaseException | None = None

    @property
    def is_full(self) -> bool:
        """Whether a full window is queued, so that a request can follow each response at once."""
        return len(self._queue) >= self.retrier.window.size

    @property
    def is_busy(self) -> bool:
        return bool(self._queue or self._tasks or self._responses)

    def put(self, requests: Sequence[KeyedRequest]) -> None:
        self._queue.extend(self._batches(requests))
        self._send_queued()

    def drop(self) -> None:
        self._queue.clear()

    def drop_keys(self, keys: Set[bytes]) -> list[bytes]:
        """Discard those of some requests that were not sent; returns their keys."""
        dropped = [key for batch in self._queue for key, _ in batch if key in keys]
        left = ([each for each in batch if each[0] not in keys] for batch in self._queue)
        self._queue = deque(batch for batch in left if batch)
        return dropped

    async def advance(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._send_queued()

    def _batches(self, requests: Sequence[KeyedRequest]) -> list[Sequence[KeyedRequest]]:
        if not self._model.answers_repeats or len(requests) == 1:
            return [[request] for request in requests]
        batches: dict[object, list[KeyedRequest]] = {}
        for number, (key, request) in enumerate(requests):
            sampled = isinstance(request, Generate) and request.draw
            batches.setdefault((request.prompt, id(request.params)) if sampled else number, []).append((key, request))  # type: ignore[union-attr]
        return list(batches.values())

    def _send_queued(self) -> bool:
        """Send as many batches as the window and the budget allow."""
        sent = False
        while self._queue and self.pending < self.retrier.window.size and not self._budget.is_over:
            estimate = sum(self._model.estimate(request) for _, request in self._queue[0])
            if not self._budget.reserve(estimate):
                break
            self.pending += 1
            task = asyncio.create_task(self._send_batch(self._queue.popleft(), estimate))
            self._tasks.add(task)
            task.add_done_callback(self._on_done)
            sent = True
        if self._queue and self._budget.is_over:
            self._wake.set()  # nothing queued here will be sent, and no response will wake the engine
        return sent

    async def _send(self, requests: Sequence[Request]) -> Sequence[Response]:
        return [await self._model.ask(requests[0])] if len(requests) == 1 else await self._model.ask_repeats(requests)

    async def _send_batch(self, batch: Sequence[KeyedRequest], estimate: float) -> None:
        cost = 0.0
        try:
            responses = await self.retrier.answer([request for _, request in batch])
            share = estimate / len(batch)  # for responses without usage
            costs = [self._model.cost(response) for response in responses]
            if any(price is not None for price in costs):
                cost = sum(price or 0.0 for price in costs)
            else:
                cost = sum(share for response in responses if not isinstance(response, Failed))
        except asyncio.CancelledError:
            self.unanswered += len(batch)
            raise
        finally:
            self.pending -= 1
            self._budget.settle(estimate, cost)
        if not self._responses:
            later = asyncio.get_running_loop().call_soon
            later(later, self._pass_on)  # after all responses of this round, and after the requests that replace them
        self._responses += [(*keyed, response) for keyed, response in zip(batch, responses, strict=True)]
        self._send_queued()

    def _pass_on(self) -> None:
        """Pass all responses of this round to the engine at once."""
        responses, self._responses = self._responses, []
        try:
            self._receive(self._role, responses)
        except Exception as error:  # noqa: BLE001  # a full disk, say: it ends the run, from where the run is awaited
            self._error = self._error or error
        self._wake.set()

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._error = self._error or error_of(task)
        if self._error is not None or not self.is_busy:
            self._wake.set()

    async def __aenter__(self) -> "RemoteLane":
        await self._model.__aenter__()
        return self

    def cancel(self) -> None:
        """Cancel requests in flight: they stay unanswered and can be sent again."""
        for task in self._tasks:
            task.cancel()

    def on_tick(self, over: float) -> None:
        """Once a second: let the window grow; `over` are the seconds since the budget was spent."""
        self.retrier.window.on_tick()
        self._send_queued()
        self._wake.set()  # the window may accept further plans
        if over > GRACE_SECONDS or (over and self.retrier.unreachable_since is not None):
            self.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._responses:
            self._pass_on()
        await self._model.__aexit__(kind, error, trace)


LATE = "it took longer than the time that was left"
MAX_CALLS = 256
"""Number of running calls from which on no further plan begins."""


class CallLane:
    """Calls of user code in progress. An exception in one fails its plan; an error after it, in the engine, ends the run."""

    def __init__(self, wake: asyncio.Event) -> None:
        self._wake = wake
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None

    @property
    def is_full(self) -> bool:
        return len(self._tasks) >= MAX_CALLS

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def begin(self, call: Call, deliver: Callable[[Response], None]) -> None:
        self.start(self._do(call, deliver))

    def start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    async def _do(self, call: Call, deliver: Callable[[Response], None]) -> None:
        deliver(await answer_call(call))

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._error = self._error or error_of(task)
        self._wake.set()

    def put(self, requests: Sequence[object]) -> None:
        raise NotImplementedError("calls begin at once")

    def drop(self) -> None:
        """Let calls that began finish."""

    async def advance(self) -> bool:
        if self._error is not None:
            raise self._error
        return False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def answer_call(call: Call) -> Response:
    """Return what a call returns, or a failure with what it raised."""
    begun = time.perf_counter()
    try:
        async with asyncio.timeout(call.seconds):
            value = await begin_call("lambda", call)
    except TimeoutError:
        return Failed(LATE)
    took = Usage(seconds=round(time.perf_counter() - begun, 6))
    return value if isinstance(value, Failed) else Returned(value, took)


def begin_call(kind: str, call: Call) -> "asyncio.Future[UserValue | Failed]":
    """Begin a call in its context: an async function as a task, any other in a thread of its kind."""
    if is_async(call.function):
        return asyncio.create_task(_await_value(call), context=call.context)
    return begin_in_thread(kind, call)


async def _await_value(call: Call) -> UserValue | Failed:
    try:
        async with user_code(""):
            value: UserValue = await call.function(*call.arguments)
            return value
    except SelfExplanatory as error:
        return Failed(str(error))
