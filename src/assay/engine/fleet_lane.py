"""The lane of a model with replicas: each has its calls in flight; what a lost one had not answered is sent again."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from types import TracebackType
from typing import cast

from assay.engine.lanes import GRACE_SECONDS, Budget, KeyedRequest, Lane, Receive, RemoteLane, WindowLane, error_of
from assay.engine.pieces import PrefixQueue
from assay.engine.thread_lane import LocalTurns, ThreadLane
from assay.errors import SelfExplanatory
from assay.models.protocol import (
    Answered,
    AnyModel,
    Model,
    Remote,
    Replica,
    ReplicaLostError,
    Replicated,
    is_replicated,
)
from assay.records import Failed, Request

CALLS = 2
"""Calls of a replica in flight: the next is there when one ends."""
FIRST = 8
"""Requests of a call while the speed of its replica is not known."""
LEAST_SECONDS = 0.15
"""Work of a call, at the speed of its replica: shorter calls cost more than they even out."""
MOST_SECONDS, BATCH = 5.0, 256
"""A call is at most this much work, so that replicas that join find some; or so many requests, which an engine batches."""
AHEAD = 1024
"""Requests for each replica that wait in the queue."""
FORGET_SECONDS = 5.0
"""The speed of a replica is that of about the last seconds."""
RELEASE_SECONDS = 1.0
"""Time without work after which a replica is given up, where others wait for its place."""
MAX_LOSSES = 3
"""A request fails when so many replicas ended while they answered it: the first with others, the next ones it alone."""


class _Call:
    """A batch that was sent to a replica, and what of it is not answered."""

    __slots__ = ("is_alone", "is_begun", "requests", "unanswered")

    def __init__(self, requests: Sequence[KeyedRequest], *, is_alone: bool = False) -> None:
        self.requests, self.is_alone, self.is_begun = requests, is_alone, False
        self.unanswered: dict[bytes, Request] = dict(requests)


class _Member:
    """A replica with its calls in flight and its speed."""

    __slots__ = ("_answers", "_seconds", "_since", "calls", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.calls: dict[asyncio.Task[None], _Call] = {}
        self._answers = self._seconds = 0.0
        self._since = time.monotonic()

    @property
    def speed(self) -> float:
        """Requests per second; 0 while it is not known."""
        return self._answers / self._seconds if self._seconds and self._answers else 0.0

    @property
    def load(self) -> int:
        return sum(len(call.unanswered) for call in self.calls.values())

    @property
    def rests(self) -> bool:
        """Whether it has answered nothing for a moment."""
        return time.monotonic() - self._since > RELEASE_SECONDS

    def start(self) -> None:
        if not self.calls:
            self._since = time.monotonic()

    def count(self, answers: int) -> None:
        now = time.monotonic()
        passed, self._since = now - self._since, now
        keep = max(0.0, 1.0 - passed / FORGET_SECONDS)
        self._answers, self._seconds = keep * self._answers + answers, keep * self._seconds + passed


class FleetLane:
    """Queue of a model with replicas.

    A replica gets requests in calls: larger ones for a faster replica, smaller ones towards the end. What it was answering
    when it ended is sent again, each request alone. One fails, and only it, if two more replicas end after they reported
    that they begin it: replicas that end with it still waiting, or with their whole machine, are not counted.
    """

    def __init__(self, role: str, model: Replicated, receive: Receive, budget: Budget, wake: asyncio.Event) -> None:
        self._role, self._model, self._receive, self._budget, self._wake = role, model, receive, budget, wake
        self._queue, self._alone = PrefixQueue(), deque[KeyedRequest]()
        self._members: list[_Member] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._losses: dict[bytes, int] = {}
        self._joining: asyncio.Task[None] | None = None
        self._error: BaseException | None = None

    @property
    def replicas(self) -> int:
        """Number of replicas that are ready."""
        return len(self._members)

    @property
    def is_full(self) -> bool:
        return len(self._queue) >= max(self._model.window, AHEAD * len(self._members))

    @property
    def is_busy(self) -> bool:
        return bool(self._queue or self._alone or self._tasks)

    def put(self, requests: Sequence[KeyedRequest]) -> None:
        self._queue.put(requests)

    def drop(self) -> None:
        self._queue.clear()
        self._alone.clear()

    def cancel(self) -> None:
        """Cancel calls in flight: their requests stay unanswered and can be sent again."""
        for task in self._tasks:
            task.cancel()

    def on_tick(self, over: float) -> None:
        """Once a second; `over` are the seconds since the budget was spent."""
        self._wake.set()
        if over > GRACE_SECONDS:
            self.cancel()
        if self._model.shares and not self._queue and not self._alone:
            self._release_free()

    def _release_free(self) -> None:
        """Give up the replicas that have had nothing to do for a moment; the last one stays."""
        asked = any(member.speed for member in self._members)
        free = [each for each in self._members if not each.calls and each.rests]
        for member in free[: len(self._members) - 1] if asked else ():
            self._members.remove(member)
            self._queue.release(member)
            self._model.release(member.replica)

    async def advance(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._send()

    def _send(self) -> bool:
        """Send to every replica with fewer than two calls; the least busy first."""
        sent = False
        while (self._queue or self._alone) and not self._budget.is_over:
            free = [member for member in self._members if len(member.calls) < CALLS]
            if not free:
                break
            member = min(free, key=lambda each: (len(each.calls), each.load))
            call = self._next_call(member)
            if call is None:
                break
            sent = True
            member.start()
            self._begin(member, call)
        if self._budget.is_over:
            self._wake.set()  # what is queued will not be sent, and there may be no response to wake the engine
        return sent

    def _next_call(self, member: _Member) -> _Call | None:
        if self._alone:
            return _Call([self._alone.popleft()], is_alone=True)
        size = self._size(member)
        requests = self._queue.take(member, size, self._model.window) if size else []
        return _Call(requests) if requests else None

    def _size(self, member: _Member) -> int:
        """Number of requests of the next call: with those in flight, half of the replica's share of all that are not
        answered, by its speed. 0: it has enough for now, and others may be free sooner."""
        if not member.speed:
            return FIRST
        speeds = [each.speed for each in self._members]
        mean = sum(speeds) / max(1, sum(speed > 0 for speed in speeds))
        missing = max(0, self._model.expected - len(speeds))
        share = member.speed / (sum(speed or mean for speed in speeds) + missing * mean)
        unanswered = len(self._queue) + sum(each.load for each in self._members)
        most = max(BATCH, round(member.speed * MOST_SECONDS))
        fair = min(most, round(share * unanswered / 2) - member.load)
        least = max(1, round(member.speed * LEAST_SECONDS))
        if member.calls and fair < least and member.load > least / 2:
            return 0
        return max(least, fair)

    def _begin(self, member: _Member, call: _Call) -> None:
        task = asyncio.create_task(self._ask(member, call))
        member.calls[task] = call
        self._tasks.add(task)

        def end(task: "asyncio.Task[None]") -> None:
            self._tasks.discard(task)
            member.calls.pop(task, None)
            self._error = self._error or error_of(task)
            self._wake.set()

        task.add_done_callback(end)

    async def _ask(self, member: _Member, call: _Call) -> None:
        reason = "the model gave no response"
        try:
            requests = [request for _, request in call.requests]
            async with aclosing(member.replica.answer(requests, reports_begin=call.is_alone)) as answers:
                async for answered in answers:
                    call.is_begun = True
                    self._take_in(member, call, answered)
        except ReplicaLostError as error:
            self._lose(member, error)
            return
        except SelfExplanatory as error:
            reason = str(error)
        if call.unanswered:
            self._fail(call, reason)

    def _take_in(self, member: _Member, call: _Call, answered: Answered) -> None:
        """Pass on responses, each once."""
        asked, unanswered = call.requests, call.unanswered
        new = [(*asked[n], each) for n, each in answered if unanswered.pop(asked[n][0], None) is not None]
        member.count(len(new))
        self._receive(self._role, new)
        self._wake.set()

    def _fail(self, call: _Call, reason: str) -> None:
        failed = [(key, request, Failed(reason)) for key, request in call.unanswered.items()]
        call.unanswered = {}
        self._receive(self._role, failed)

    def _lose(self, member: _Member, error: ReplicaLostError) -> None:
        """Put what a lost replica had not answered back to the front. Its calls are answered in order: only requests of the
        first that is not done can have ended it, and one that is alone only if the model had begun it."""
        if member not in self._members:
            return
        self._members.remove(member)
        self._queue.release(member)
        again: list[KeyedRequest] = []
        alone: list[KeyedRequest] = []
        for place, call in enumerate([call for call in member.calls.values() if call.unanswered]):
            left, call.unanswered = [*call.unanswered.items()], {}
            if not error.machine and (call.is_begun if call.is_alone else place == 0):
                alone += self._suspect(left, str(error))
            else:
                (alone if call.is_alone else again).extend(left)
        self._queue.put_back(again)
        self._alone.extendleft(reversed(alone))
        count = len(again) + len(alone)
        more = f"; its {count} {'requests are' if count > 1 else 'request is'} asked again" if count else ""
        logging.getLogger("assay").warning("%s%s", error, more)

    def _suspect(self, left: Sequence[KeyedRequest], reason: str) -> list[KeyedRequest]:
        """Count a loss for requests; returns those that are sent again, alone."""
        again: list[KeyedRequest] = []
        for key, request in left:
            losses = self._losses[key] = self._losses.get(key, 0) + 1
            if losses < MAX_LOSSES:
                again.append((key, request))
                continue
            alone = f"the last {losses - 1} this request alone"
            why = f"{losses} replicas ended while they answered it, {alone}: {reason}"
            self._receive(self._role, [(key, request, Failed(why))])
        return again

    async def _welcome(self) -> None:
        async for replica in self._model.joined():
            self._members.append(_Member(replica))
            self._wake.set()

    def _on_end_of_joining(self, task: "asyncio.Task[None]") -> None:
        self._error = self._error or error_of(task)
        self._wake.set()

    async def __aenter__(self) -> "FleetLane":
        await self._model.__aenter__()
        self._joining = asyncio.create_task(self._welcome())
        self._joining.add_done_callback(self._on_end_of_joining)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()
        self.cancel()
        tasks = [*self._tasks, *([self._joining] if self._joining is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._model.__aexit__(kind, error, trace)


def lane(role: str, model: AnyModel, receive: Receive, budget: Budget, wake: asyncio.Event, turns: LocalTurns) -> Lane:
    """Return the lane for a model: concurrent requests to a server, calls of replicas, or one window at a time."""
    if is_replicated(model):
        return FleetLane(role, model, receive, budget, wake)
    if isinstance(model, Remote):
        return RemoteLane(role, model, receive, budget, wake)
    local = cast(Model, model)
    if local.can.answer_in_thread:
        return ThreadLane(role, local, receive, budget, wake, turns)
    return WindowLane(role, local, receive, budget)
