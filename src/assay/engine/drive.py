"""Steps every plan as its responses land, and keeps the models busy."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from assay.engine.account import Account
from assay.engine.budget import Budget
from assay.engine.calls import Calls
from assay.engine.keys import Keys, nth_key
from assay.engine.lanes import Asked, Lane, RemoteLane, lane
from assay.models.protocol import AnyModel, Remote
from assay.records import Asking, Call, Failed, Generate, Likelihood, Request, Response, Text
from assay.writable import HALF, is_writable, written

NOTICE_SECONDS = 0.1
TICK_SECONDS = 1.0
CALLS = "(calls)"
"""What the lane of calls is called: no role can have this name."""
GRACE_SECONDS = 60.0
"""How long requests under way are waited for when the budget is over."""


class Memory(Protocol):
    """Where responses are kept by key: a journal. `claim` says of a response that an earlier process wrote whether it is
    used for the first time."""

    def get(self, key: bytes) -> Response | None: ...
    def add(self, answered: Sequence[tuple[bytes, Response]], role: str) -> None: ...
    def claim(self, key: bytes) -> bool: ...
    def paid(self) -> Iterator[tuple[str, Response]]: ...
    def sync(self) -> None: ...


class Started(NamedTuple):
    """A plan to drive, with what it is for, the name of its sample and of the task that pays for it."""

    what: Any
    sample: bytes
    asking: Asking
    task: str = ""


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

    __slots__ = ("asking", "drawn", "missing", "responses", "sample", "task", "what")

    def __init__(self, started: Started) -> None:
        self.what, self.sample, self.asking, self.task = started
        self.responses: list[Response | None] = []
        self.missing = 0
        self.drawn: dict[bytes, int] | None = None

    def nth(self, key: bytes) -> int:
        """How often this plan has asked for a draw of this key before."""
        if self.drawn is None:
            self.drawn = {}
        before = self.drawn.get(key, 0)
        self.drawn[key] = before + 1
        return before


def _is_counted(response: Response) -> bool:
    """Whether a local model has told what a response took."""
    return not isinstance(response, Failed) and response.usage is not None and response.usage.read > 0


class Engine:
    """Drives plans to their ends. Identical requests are sent once, but for sampled ones, each of which is a draw of its
    own; what is in the memory is not sent at all.

    `models` are by role; `most` is how many plans are at work at a time, where there is such a limit. When the budget is
    over nothing more is sent: what is under way lands, the rest stays undone.
    """

    def __init__(
        self,
        models: Mapping[str, AnyModel],
        memory: Memory,
        notice: Callable[[], None] | None = None,
        budget: Budget | None = None,
        most: int | None = None,
    ) -> None:
        self._most, self._open = most, 0
        local = frozenset(role for role, model in models.items() if not isinstance(model, Remote))
        self.counts, self.account, self.budget = Counts(), Account(local), budget or Budget()
        self._remote_models = {role: model for role, model in models.items() if isinstance(model, Remote)}
        self._memory, self._notice = memory, notice
        self._moved = asyncio.Event()
        self._lanes: dict[str, Lane] = {
            role: lane(role, model, self._land, self.budget, self._moved) for role, model in models.items()
        }
        self._ticking: asyncio.Task[None] | None = None
        self._calls = self._lanes[CALLS] = Calls(self._moved)
        self._waiting: dict[bytes, list[tuple[_Plan, int]]] = {}
        self._end: Callable[[Ended], None] = _nobody
        self._noticed = time.monotonic()

    @property
    def waiting_since(self) -> float | None:
        """Since when a model is gone and waited for, in the clock's seconds."""
        return next((lane.patience.waiting_since for lane in self._remote() if lane.patience.waiting_since), None)

    def _remote(self) -> list[RemoteLane]:
        return [lane for lane in self._lanes.values() if isinstance(lane, RemoteLane)]

    async def run(self, plans: Iterator[Started], end: Callable[[Ended], None]) -> None:
        """Drive every plan; `end` is called with each as it ends, in whatever order they do."""
        self._end = end
        if self.budget.cost is not None:
            for role, response in self._memory.paid():
                model = self._remote_models.get(role)
                self.budget.pay((model.cost(response) or 0.0) if model is not None else 0.0)
        async with AsyncExitStack() as stack:
            for each in self._lanes.values():
                await stack.enter_async_context(each)
            if self._remote():
                self._ticking = asyncio.create_task(self._tick())
                self._ticking.add_done_callback(lambda _: self._moved.set())
                stack.callback(self._ticking.cancel)
            for started in plans:
                if self.budget.is_over:
                    break
                self._open += 1
                self._step(_Plan(started), None)
                while self._is_full and not self.budget.is_over:
                    await self._advance()
            await self._drain()
        self._memory.sync()
        if self._notice is not None:
            self._notice()

    @property
    def _is_full(self) -> bool:
        """Whether no further plan should begin now."""
        many = self._most is not None and self._open >= self._most
        return many or any(each.is_full for each in self._lanes.values())

    async def _drain(self) -> None:
        while any(each.is_busy for each in self._lanes.values()):
            if self.budget.is_over:
                for each in self._lanes.values():
                    each.drop()
            await self._advance()
        await self._advance()  # what went wrong with the last one is told, too

    async def _advance(self) -> None:
        """Let every lane do what it can; where none can do anything, wait until something lands."""
        self._moved.clear()
        if self._ticking is not None and self._ticking.done():
            self._ticking.result()  # it ends only by an error, which is the run's
        done = [await each.advance() for each in list(self._lanes.values())]
        if not any(done) and any(each.is_busy for each in self._lanes.values()):
            await self._moved.wait()

    async def _tick(self) -> None:
        """Tell how things stand also while nothing lands; and when the budget is over, wait for the rest only so long."""
        over = 0.0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self._notice is not None:
                self._notice()
            over += TICK_SECONDS if self.budget.is_over else 0.0
            for each in self._remote():
                each.patience.room.pass_second()
                each.put(())
                self._moved.set()  # there may be room for plans that were not begun
                if over > GRACE_SECONDS or (over and each.patience.waiting_since is not None):
                    each.cancel()

    def _step(self, plan: _Plan, responses: Sequence[Response] | None) -> None:
        """Go on with a plan until it waits or ends."""
        while True:
            try:
                requests = next(plan.asking) if responses is None else plan.asking.send(responses)
            except StopIteration as stop:
                self._open -= 1
                self._end(Ended(plan.what, stop.value))
                return
            self._ask(plan, requests)
            if plan.missing:
                return
            responses = plan.responses  # type: ignore[assignment]  # nothing is missing

    def _ask(self, plan: _Plan, requests: Sequence[Request | Call]) -> None:
        plan.responses = [None] * len(requests)
        plan.missing = len(requests)
        self.counts.asked += len(requests)
        new: dict[str, list[Asked]] = {}
        for slot, request in enumerate(requests):
            if isinstance(request, Call):
                self._calls.begin(request, partial(self._deliver, plans=[(plan, slot)]))
                continue
            if request.role not in self._lanes:
                plan.responses[slot] = Failed(f"no model of this run has the role {request.role!r}")
                plan.missing -= 1
                continue
            try:
                request, key, earlier = _keyed(request, plan, self._lanes[request.role].keys)
            except UnicodeEncodeError:
                plan.responses[slot] = Failed(f"the prompt has {HALF}")
                plan.missing -= 1
                continue
            others = self._waiting.get(key)
            if others is not None:
                others.append((plan, slot))
                continue
            known = self._known(key, earlier, request, plan.task)
            if known is not None:
                plan.responses[slot] = known
                plan.missing -= 1
            else:
                self._waiting[key] = [(plan, slot)]
                new.setdefault(request.role, []).append((key, request))
        for role, several in new.items():
            self.counts.sent += len(several)
            self._lanes[role].put(several)

    def _known(self, key: bytes, earlier: bytes | None, request: Request, task: str) -> Response | None:
        """What was answered before: in this process, or in an earlier one of the same run, which is counted once."""
        known = self._memory.get(key)
        if known is None and earlier is not None:
            key, known = earlier, self._memory.get(earlier)
        if known is None or not _fits(request, known):
            return None
        self.counts.known += 1
        if not isinstance(known, Failed) and known.usage is not None and self._memory.claim(key):
            self._charge(task, request.role, known)
        return known

    def _land(self, role: str, landed: Sequence[tuple[bytes, Request, Response]]) -> None:
        """Write responses down, then hand each to the plans that wait for it."""
        checked = [(key, _checked(request, response)) for key, request, response in landed]
        self._memory.add(checked, role)
        for key, response in checked:
            plans = self._waiting.pop(key)
            if isinstance(response, Failed):
                self.counts.failed += 1
                self.budget.fail()
            if role in self._remote_models or _is_counted(response):
                self._charge(plans[0][0].task, role, response)
            self._deliver(response, plans)
        now = time.monotonic()
        if self._notice is not None and now - self._noticed > NOTICE_SECONDS:
            self._noticed = now
            self._notice()

    def _charge(self, task: str, role: str, response: Response) -> float | None:
        model = self._remote_models.get(role)
        cost = model.cost(response) if model is not None else None
        self.account.add(task, role, response, cost)
        return cost

    def _deliver(self, response: Response, plans: Sequence[tuple[_Plan, int]]) -> None:
        for plan, slot in plans:
            plan.responses[slot] = response
            plan.missing -= 1
            if not plan.missing:
                self._step(plan, plan.responses)  # type: ignore[arg-type]  # nothing is missing


def _nobody(_: Ended) -> None:
    """Takes what ends before the engine runs: nothing does."""


def _keyed(request: Request, plan: _Plan, keys: Keys) -> tuple[Request, bytes, bytes | None]:
    """A request as it is asked, its key, and the one that an earlier version may have stored its answer under."""
    if isinstance(request, Generate) and keys.is_sampled(request):
        return _drawn(request, plan, keys)
    return request, keys.key(request), None


def _drawn(request: Generate, plan: _Plan, keys: Keys) -> tuple[Generate, bytes, bytes | None]:
    """A sampled request with the name of its draw, its key, and the key of its answer in a run of version 0.1.0.

    That version gave one answer to equal requests of several nodes: only the first of them takes it.
    """
    key, earlier = keys.drawn(request, plan.sample)
    nth = plan.nth(key)
    is_first = earlier is not None and plan.nth(earlier) == 0
    draw = b"\0".join((plan.sample, "\0".join(request.node).encode(), b"%d" % nth))
    return request._replace(draw=draw), nth_key(key, nth), earlier if is_first else None


def _fits(request: Request, response: Response) -> bool:
    """Whether a response is of the kind that was asked for."""
    return isinstance(response, Text if isinstance(request, Generate) else Likelihood)


def _checked(request: Request, response: Response) -> Response:
    """A response that can be used, or the failure it is: no text where text was asked, a likelihood that is no number."""
    if not isinstance(response, Failed) and not _fits(request, response):
        return Failed(f"the model answered {type(request).__name__} with {response!r:.80}")
    if isinstance(response, Likelihood):
        value = response.value
        if not isinstance(value, float | int) or value != value or value == float("inf") or isinstance(value, bool):
            return Failed(f"the model gave the log-likelihood {value!r}")
    elif isinstance(response, Failed):
        return response if response.reason.isascii() else response._replace(reason=written(response.reason))
    elif isinstance(response, Text):
        return _checked_text(response)
    return response


def _checked_text(response: Text) -> Response:
    if not isinstance(response.text, str):
        return Failed(f"the model gave {response.text!r} instead of text")
    is_simple = response.text.isascii() and not response.reasoning and not response.calls  # as most are
    return response if is_simple or is_writable(response) else Failed(f"the model gave {HALF}")
