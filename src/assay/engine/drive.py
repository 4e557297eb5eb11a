"""Drive plans: every request gets a key, is sent once, and resumes the plans that wait for its response."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from assay.engine.calls import KeyedCall, ResumeCalls, ToolLane
from assay.engine.counts import Asks, EarlyStop, TaskCounts
from assay.engine.fleet_lane import FleetLane, lane
from assay.engine.keys import Keys, count_draw, hash_of, nth_key
from assay.engine.lanes import Budget, KeyedRequest, Lane, RemoteLane, WindowLane
from assay.engine.retry import timed
from assay.engine.thread_lane import LocalTurns
from assay.engine.usage import RunUsage
from assay.models.protocol import AnyModel, Remote
from assay.records import (
    Call,
    Failed,
    Generate,
    Likelihood,
    Loglikelihood,
    Outcome,
    Plan,
    Request,
    Response,
    Text,
)
from assay.redaction import conceal
from assay.runs.journal import Journal
from assay.user_code import HALF, is_writable, written

NOTICE_SECONDS = 0.1
TICK_SECONDS = 1.0
CALLS = "(calls)"
"""Key of the call lane: no role can have this name."""


class ResponseStore(Protocol):
    """Responses stored by key: a journal. `claim` returns whether a response of an earlier process is used for the first
    time. Tool calls and finished records are in the run's `own` journal only."""

    @property
    def own(self) -> Journal: ...
    def find(self, keys: Sequence[bytes]) -> Mapping[bytes, Response]: ...
    def add(self, answered: Sequence[tuple[bytes, Response]], role: str) -> None: ...
    def claim(self, key: bytes) -> bool: ...
    def paid(self) -> Iterator[tuple[str, Response]]: ...
    def sync(self) -> None: ...


class Started(NamedTuple):
    """A plan to drive: the object it belongs to, its sample id and the task it is charged to. The outcome of one that
    `is_kept` is journaled: the plan is not driven again."""

    what: Any
    sample: bytes
    plan: Plan
    task: str = ""
    is_kept: bool = False


class Ended(NamedTuple):
    """A finished plan and its responses, in the order of its requests."""

    what: Any
    responses: Sequence[Response]


class TriedRequest(NamedTuple):
    """A request that was answered before the engine runs, the task it is charged to, and its cost where none is reported."""

    key: bytes
    role: str
    task: str
    response: Response
    estimate: float = 0.0


@dataclass(slots=True)
class RequestCounts:
    """Numbers of requests: asked by plans, sent, known from before, failed."""

    asked: int = 0
    sent: int = 0
    known: int = 0
    failed: int = 0


class _Plan:
    """A running plan and the responses it waits for."""

    __slots__ = (
        "answered",
        "asks",
        "counts",
        "drawn",
        "keys",
        "missing",
        "plan",
        "responses",
        "sample",
        "task",
        "what",
    )

    def __init__(self, started: Started, counts: TaskCounts) -> None:
        self.what, self.sample, self.plan, self.task, is_kept = started
        self.counts = counts
        self.asks: Asks = ()
        self.responses: list[Response | None] = []
        self.missing = 0
        self.drawn: dict[bytes, int] = {}
        """Numbers of requests so far by their keys, of those that may be answered otherwise when they are sent again."""
        self.keys: dict[int, bytes] = {}
        """Of the requests of this step, by place."""
        self.answered: dict[int, bytes] | None = {} if is_kept else None
        """By the id of a response the key of its request, where the outcome is kept."""


class Engine:
    """Drive plans to their end. Identical requests are sent once, sampled ones once per draw; responses in the store are
    not requested again.

    `models` are by role; `max_plans` limits how many plans run at a time. When the budget is spent nothing more is sent:
    requests in flight finish, the rest stays unasked.
    """

    def __init__(
        self,
        models: Mapping[str, AnyModel],
        store: ResponseStore,
        notice: Callable[[], None] | None = None,
        budget: Budget | None = None,
        max_plans: int | None = None,
        resume_calls: ResumeCalls = "fail",
    ) -> None:
        self._max_plans, self._open = max_plans, 0
        local = frozenset(role for role, model in models.items() if not isinstance(model, Remote))
        self.counts, self.usage, self.budget = RequestCounts(), RunUsage(local), budget or Budget()
        self._remote_models = {role: model for role, model in models.items() if isinstance(model, Remote)}
        self._store, self._notice = store, notice
        self._wake = asyncio.Event()
        turns = LocalTurns()
        self._lanes: dict[str, Lane] = {
            role: lane(role, model, self._receive, self.budget, self._wake, turns) for role, model in models.items()
        }
        self._keys = {role: Keys(model.identity, model.can.samples) for role, model in models.items()}
        self._ticking: asyncio.Task[None] | None = None
        self._calls = self._lanes[CALLS] = ToolLane(self._wake, store.own, self.budget, resume_calls)
        self._waiting: dict[bytes, list[tuple[_Plan, int]]] = {}
        self._end: Callable[[Ended], None] = _ignore
        self._noticed = time.monotonic()
        self.task_counts: dict[str, TaskCounts] = {}
        self.early_stop = EarlyStop(is_off=self.budget.failures is not None)
        self._tried: set[bytes] = set()
        """Keys of requests that were tried before, until a plan asks for them."""

    def add_tried(self, tried: Sequence[TriedRequest]) -> None:
        """Use the answers to requests that were sent before the plans."""
        for key, role, task, response, estimate in tried:
            self._tried.add(key)
            self.counts.sent += 1
            self._store.add([(key, response)], role)
            cost = self._charge(task, role, response)
            self.budget.pay(estimate if cost is None else cost)

    def end_document(self, task: str, reason: str, *, is_lost: bool) -> None:
        """Count a document whose requests were answered: why it failed, if it did, and whether it `is_lost` or has other rows."""
        if reason:
            self.budget.fail(is_document=True)
        self.early_stop.end_document(task, reason if is_lost else "")

    @property
    def unreachable_since(self) -> float | None:
        """Monotonic time since which a model is unreachable; None while all answer."""
        return next((lane.retrier.unreachable_since for lane in self._remote() if lane.retrier.unreachable_since), None)

    @property
    def busy_roles(self) -> list[str]:
        """Roles whose models have requests to answer."""
        return [role for role, queue in self._lanes.items() if role != CALLS and queue.is_busy]

    def capacity(self, role: str) -> float:
        """Number of requests that a role's model answers at once now; 1 for a local model."""
        queue = self._lanes[role]
        return float(queue.retrier.window.size) if isinstance(queue, RemoteLane) else 1.0

    def pending(self, role: str) -> int:
        """Number of requests to a role that are in flight; of a local model none is counted."""
        queue = self._lanes[role]
        return queue.pending if isinstance(queue, RemoteLane) else 0

    def _remote(self) -> list[RemoteLane]:
        return [lane for lane in self._lanes.values() if isinstance(lane, RemoteLane)]

    def _cancellable(self) -> list[RemoteLane | FleetLane]:
        """Lanes whose requests are answered elsewhere: the engine waits for them, and can stop to."""
        return [lane for lane in self._lanes.values() if isinstance(lane, RemoteLane | FleetLane)]

    @property
    def replicas(self) -> dict[str, int]:
        """Number of replicas that are ready, by role; without models that have none."""
        return {role: lane.replicas for role, lane in self._lanes.items() if isinstance(lane, FleetLane)}

    async def run(self, plans: Iterator[Started], end: Callable[[Ended], None]) -> None:
        """Drive every plan; `end` is called with each as it finishes, in any order."""
        self._end = end
        if self.budget.cost is not None:
            for role, response in self._store.paid():
                model = self._remote_models.get(role)
                self.budget.pay((model.cost(response) or 0.0) if model is not None else 0.0)
        self._calls.warn_of_doubt()
        async with AsyncExitStack() as stack:
            for queue in self._lanes.values():
                await stack.enter_async_context(queue)
            if self._cancellable():
                self._ticking = asyncio.create_task(self._tick())
                self._ticking.add_done_callback(lambda _: self._wake.set())
                stack.callback(self._ticking.cancel)
            for started in plans:
                if self.budget.is_over:
                    break
                self._start(started)
                while self._is_full and not self.budget.is_over:
                    await self._advance()
            await self._drain()
        for role, response in self._store.own.paid(unclaimed=True):
            self._charge(None, role, response)
        self.usage.unanswered = sum(queue.unanswered for queue in self._remote())
        self.usage.bound = frozenset(role for role, model in self._remote_models.items() if model.is_usage_bound)
        self._store.sync()
        if self._notice is not None:
            self._notice()

    @property
    def _is_full(self) -> bool:
        """Whether no further plan should start now."""
        if self._max_plans is not None and self._open >= self._max_plans:
            return True
        for queue in self._lanes.values():  # noqa: SIM110  # asked after every plan: a generator takes three times as long
            if queue.is_full:
                return True
        return False

    async def _drain(self) -> None:
        while any(queue.is_busy for queue in self._lanes.values()):
            if self.budget.is_over:
                for queue in self._lanes.values():
                    queue.drop()
                for queue in self._cancellable() if self.budget.at_once else ():
                    queue.cancel()
            await self._advance()
        await self._advance()  # raises an error of the last request, too

    async def _advance(self) -> None:
        """Let every lane send what it can; if none can, wait for a response."""
        self._wake.clear()
        if self._ticking is not None and self._ticking.done():
            self._ticking.result()  # it ends only by an error, which ends the run
        done = [await queue.advance() for queue in list(self._lanes.values())]
        if not any(done) and any(queue.is_busy for queue in self._lanes.values()):
            await self._wake.wait()

    async def _tick(self) -> None:
        """Report progress while no response arrives, and limit the wait for the rest when the budget is spent."""
        over = 0.0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self._notice is not None:
                self._notice()
            over += TICK_SECONDS if self.budget.is_over else 0.0
            for queue in self._cancellable():
                queue.on_tick(over)

    def _start(self, started: Started) -> None:
        """Begin a plan; one whose outcome is journaled has ended."""
        counts = self.task_counts.get(started.task)
        if counts is None:
            counts = self.task_counts[started.task] = TaskCounts()
        kept = self._recalled(started) if started.is_kept else None
        if kept is not None:
            counts.started, counts.ended = counts.started + 1, counts.ended + 1
            self._end(Ended(started.what, kept))
            return
        if started.task in self.early_stop.stopped:
            counts.started, counts.ended = counts.started + 1, counts.ended + 1
            self._end(Ended(started.what, [Failed(self.early_stop.stopped[started.task])]))
            return
        self._open += 1
        counts.started += 1
        self._step(_Plan(started, counts), None)

    def _recalled(self, started: Started) -> list[Response] | None:
        """The responses and the outcome of a plan that ended in an earlier process; None where one is missing."""
        record = self._store.own.record(hash_of(b"record", started.sample).digest())
        if record is None:
            return None
        responses = [self._store.own.get(key) for key in record.keys]
        if len(responses) != len(record.outcome.asked) or None in responses:
            return None
        for key, request, response in zip(record.keys, record.outcome.asked, responses, strict=True):
            self.counts.asked += 1
            self._claim(key, started.task, request.role, response)  # type: ignore[arg-type]  # none is missing
        return [*responses, record.outcome]  # type: ignore[list-item]  # none is missing

    def _kept(self, plan: _Plan, responses: Sequence[Response]) -> Sequence[Response]:
        """Journal the outcome of a plan; returns the responses as they are read back."""
        outcome = responses[-1] if responses else None
        if plan.answered is None or not isinstance(outcome, Outcome) or outcome.failed:
            return responses
        keys = [key for each in responses[:-1] if (key := plan.answered.get(id(each))) is not None]
        if len(keys) != len(outcome.asked):
            return responses
        return [*responses[:-1], self._store.own.put_record(hash_of(b"record", plan.sample).digest(), outcome, keys)]

    def _step(self, plan: _Plan, responses: Sequence[Response] | None) -> None:
        """Resume a plan until it waits or ends."""
        while True:
            if plan.answered is not None and responses is not None:
                plan.answered |= {id(responses[slot]): key for slot, key in plan.keys.items()}
                plan.keys = {}
            try:
                requests = next(plan.plan) if responses is None else plan.plan.send(responses)
            except StopIteration as stop:
                self._open -= 1
                plan.counts.ended += 1
                for role, number in plan.asks:
                    plan.counts.of_ended[role] += number
                self._end(Ended(plan.what, stop.value if plan.answered is None else self._kept(plan, stop.value)))
                if self.early_stop.is_new:
                    self._drop_stopped()
                return
            self._ask(plan, requests)
            if plan.missing:
                return
            responses = plan.responses  # type: ignore[assignment]  # nothing is missing

    def _ask(self, plan: _Plan, requests: Sequence[Request | Call]) -> None:
        """Ask the models of a plan's step, and begin its calls."""
        plan.responses = [None] * len(requests)
        plan.missing = len(requests)
        calls: list[tuple[int, Call]] = []
        asked: dict[str, tuple[list[int], list[Request]]] = {}
        for slot, request in enumerate(requests):
            if isinstance(request, Call):
                calls.append((slot, request))
                continue
            slots, own = asked.setdefault(request.role, ([], []))
            slots.append(slot)
            own.append(request)
        asks: Asks = ()
        for role, (slots, own) in asked.items():
            asks += ((role, len(own)),)
            self._ask_model(plan, role, slots, own)
        plan.asks += plan.counts.steps.setdefault(asks, asks)  # shared by the plans: thousands are open at once
        if calls:
            self._begin(plan, calls)

    def _ask_model(self, plan: _Plan, role: str, slots: Sequence[int], requests: Sequence[Request]) -> None:
        """Look requests up in the store, and send the others to their model; `slots` are their places in the plan's step."""
        self.counts.asked += len(requests)
        plan.counts.asked[role] += len(requests)
        keys = self._keys.get(role)
        refused = self.early_stop.stopped.get(plan.task, "" if keys else f"no model with the role {role!r} in this run")
        if keys is None or refused:
            for slot in slots:
                plan.responses[slot] = Failed(refused)
            plan.missing -= len(requests)
            return
        hashes, sendable = keys.keyed(requests, plan.sample, plan.drawn)
        stored = self._store.find(hashes)
        waiting, unsent = self._waiting, []
        for slot, key, request in zip(slots, hashes, sendable, strict=True):
            if not key:
                plan.responses[slot] = Failed(f"the prompt has {HALF}")
                plan.missing -= 1
                continue
            if plan.answered is not None:
                plan.keys[slot] = key
            others = waiting.get(key)
            if others is not None:
                others.append((plan, slot))
                continue
            known = stored.get(key)
            if known is None or not _fits(request, known):
                waiting[key] = [(plan, slot)]
                unsent.append((key, request))
                continue
            if key in self._tried:
                self._tried.discard(key)  # counted when it was sent
            else:
                self._claim(key, plan.task, role, known)
            plan.responses[slot] = known
            plan.missing -= 1
            plan.counts.known[role] += 1
        if unsent:
            self.counts.sent += len(unsent)
            self._lanes[role].put(unsent)

    def _begin(self, plan: _Plan, calls: Sequence[tuple[int, Call]]) -> None:
        """Begin the calls of a plan's step that are not finished yet. If one of its tools was cut off, none begins."""
        tools: list[tuple[int, KeyedCall]] = []
        cut: Response | None = None
        for slot, call in calls:
            deliver = partial(self._deliver, plans=[(plan, slot)])
            if not call.identity:
                self._calls.begin(call, deliver)
                continue
            parts = [str(part).encode("utf-8", "surrogatepass") for part in call.identity]
            key = hash_of(b"call", plan.sample, *parts).digest()
            keyed = KeyedCall(nth_key(key, count_draw(plan.drawn, key)), call, deliver)
            known = self._calls.known(keyed.key, call)
            if isinstance(known, Failed):
                cut = known
            if known is None:
                tools.append((slot, keyed))
            else:
                plan.responses[slot] = known
                plan.missing -= 1
        if cut is None:
            for _, keyed in tools:
                self._calls.begin_once(keyed)
            return
        for slot, _ in tools:
            plan.responses[slot] = cut
            plan.missing -= 1

    def _claim(self, key: bytes, task: str, role: str, known: Response) -> None:
        """Count a response that is known, and charge it to its task the first time."""
        self.counts.known += 1
        if not isinstance(known, Failed) and known.usage is not None and self._store.claim(key):
            self._charge(task, role, known)

    def _receive(self, role: str, arrived: Sequence[tuple[bytes, Request, Response]]) -> None:
        """Store responses, then pass each to the plans that wait for it."""
        fitting: list[tuple[bytes, Response]] = []
        for key, request, response in arrived:
            is_number = type(response) is Likelihood and type(response.value) is float and response.value < math.inf
            is_usual = is_number and type(request) is Loglikelihood  # as most are
            fitting.append((key, response if is_usual else checked(request, response)))
        self._store.add(fitting, role)
        is_remote, waiting = role in self._remote_models, self._waiting
        for key, response in fitting:
            plans = waiting.pop(key)
            if isinstance(response, Failed):
                self.counts.failed += 1
                self.budget.fail()
                if is_remote:
                    self.early_stop.fail((plans[0][0].task, role), response, self.usage.seconds)
                    self._charge(plans[0][0].task, role, response)
            elif is_remote or (response.usage is not None and response.usage.read > 0):
                self._charge(plans[0][0].task, role, response)
            for plan, _ in plans:
                plan.counts.received[role] += 1
            self._deliver(response, plans)
        if self.early_stop.is_new:
            self._drop_stopped()
        now = time.monotonic()
        if self._notice is not None and now - self._noticed > NOTICE_SECONDS:
            self._noticed = now
            self._notice()

    def _drop_stopped(self) -> None:
        """Fail the requests of stopped tasks that wait to be sent."""
        self.early_stop.is_new = False
        stopped = self.early_stop.stopped
        waiting = {key for key, plans in self._waiting.items() if all(plan.task in stopped for plan, _ in plans)}
        for queue in self._lanes.values():
            for key in queue.drop_keys(waiting) if isinstance(queue, RemoteLane | WindowLane) else ():
                self.counts.sent -= 1
                plans = self._waiting.pop(key)
                self._deliver(Failed(stopped[plans[0][0].task]), plans)

    def _charge(self, task: str | None, role: str, response: Response) -> float | None:
        model = self._remote_models.get(role)
        cost = model.cost(response) if model is not None else None
        self.usage.add(task, role, response, cost)
        return cost

    def _deliver(self, response: Response, plans: Sequence[tuple[_Plan, int]]) -> None:
        for plan, slot in plans:
            plan.responses[slot] = response
            plan.missing -= 1
            if not plan.missing:
                self._step(plan, plan.responses)  # type: ignore[arg-type]  # nothing is missing


def _ignore(_: Ended) -> None:
    """Ignore plans that finish before the engine runs: none does."""


def first_key(request: Request, sample: bytes, model: AnyModel) -> KeyedRequest | None:
    """The first request of a sample's plan with its key, as it is sent; None where no key can be made."""
    [key], [sent] = Keys(model.identity, model.can.samples).keyed([request], sample, {})
    return (key, sent) if key else None


def answer_to(request: Request, response: Response, seconds: float, attempts: int) -> Response:
    """The response to a request, checked, with its latency and number of attempts."""
    return checked(request, timed(response, seconds, attempts))


def _fits(request: Request, response: Response) -> bool:
    """Whether a response is of the requested kind."""
    return isinstance(response, Text if isinstance(request, Generate) else Likelihood)


def checked(request: Request, response: Response) -> Response:
    """Return the response, or a failure if it is of the wrong kind or its log-likelihood is not a number."""
    if not isinstance(response, Failed) and not _fits(request, response):
        return Failed(f"the model answered {type(request).__name__} with {response!r:.80}")
    if isinstance(response, Likelihood):
        value = response.value
        if not isinstance(value, float | int) or value != value or value == float("inf") or isinstance(value, bool):
            return Failed(f"the model gave the log-likelihood {value!r}")
    elif isinstance(response, Failed):
        return response._replace(reason=conceal(written(response.reason)))
    elif isinstance(response, Text):
        return _checked_text(response)
    return response


def _checked_text(response: Text) -> Response:
    if not isinstance(response.text, str):
        return Failed(f"the model gave {response.text!r} instead of text")
    is_simple = response.text.isascii() and not response.reasoning and not response.calls  # as most are
    return response if is_simple or is_writable(response) else Failed(f"the model gave {HALF}")
