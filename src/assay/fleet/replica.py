"""A replica of a model in a Ray actor, as the engine sees it."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from itertools import count
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import orjson

from assay.errors import ConfigError, Place, Problem, SelfExplanatory
from assay.fleet.actor import BEGINS, FAILED
from assay.fleet.wire import pack_requests, read_responses
from assay.models.protocol import Answered, ReplicaLostError
from assay.records import JSONDict, Request

CONTROL = "control"
"""The concurrency group of methods that do not wait for the model."""
NODE_DIED = ("node has died", "node was terminated", "node died", "preempted")


class ReplicaError(SelfExplanatory):
    """A call of a replica failed as a whole."""


def problems_of(plain: Sequence[Sequence[Any]]) -> list[Problem]:
    """The problems that a replica reported."""
    return [
        Problem(Place(file, line, column), what, fix, cause=tuple(cause))
        for file, line, column, what, fix, cause in plain
    ]


Deliver = Callable[[bytes | Exception | None], None]


class RayReplica:
    """A Ray actor with a model. One thread reads its answers: its calls are answered in order."""

    def __init__(self, ray: ModuleType, actor: Any, number: int) -> None:
        self._ray, self.actor, self.number = ray, actor, number
        self.placed = self.control("where")
        self.opened = actor.open.remote()
        self.where: JSONDict = {}
        self.described: JSONDict = {}
        self.is_lost = False
        self._calls: SimpleQueue[tuple[Any, Deliver] | None] = SimpleQueue()
        self._numbers = count()
        self._thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        place = f" (pid {self.where['pid']} on {self.where['host']})" if self.where else ""
        return f"replica {self.number}{place}"

    def control(self, method: str, *arguments: object) -> Any:
        """Call a method that does not wait for the model; returns the reference of its value."""
        return getattr(self.actor, method).options(concurrency_group=CONTROL).remote(*arguments)

    def read_description(self, opened: bytes) -> None:
        """Note how the model describes itself; raises its problems."""
        described = orjson.loads(opened)
        if "problems" in described:
            raise ConfigError(problems_of(described["problems"]))
        self.described = described

    def log_warnings(self) -> None:
        for each in self.described.get("warnings", ()):
            logging.getLogger("assay").warning(each)

    async def answer(self, requests: Sequence[Request], *, reports_begin: bool = False) -> AsyncGenerator[Answered]:
        """Send a batch and yield its responses as they come; nothing, when the model begins it, if it reports that."""
        arrived: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        number = next(self._numbers)
        try:
            packed = pack_requests(requests)
        except TypeError as error:
            raise ReplicaError(str(error)) from None
        # with that limit the actor continues after a chunk when it is read here: that it begins is known before it does
        limit = {"_generator_backpressure_num_objects": 1} if reports_begin else {}
        sent = self.actor.answer.options(num_returns="streaming", **limit).remote(number, packed, reports_begin)
        self._read(sent, partial(_deliver, asyncio.get_running_loop(), arrived))
        is_over = False
        try:
            while (chunk := await arrived.get()) is not None:
                if isinstance(chunk, Exception):
                    is_over = True
                    raise chunk
                if chunk.startswith(FAILED):
                    raise ReplicaError(chunk[len(FAILED) :].decode())
                yield read_responses(chunk) if chunk != BEGINS else []
            is_over = True
        finally:
            if not is_over and not self.is_lost:
                self.control("cancel", number)

    def _read(self, sent: Any, deliver: Deliver) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._read_all, name=f"replica {self.number}", daemon=True)
            self._thread.start()
        self._calls.put((sent, deliver))

    def _read_all(self) -> None:
        """Read the answers of call after call."""
        ray = self._ray
        while (call := self._calls.get()) is not None:
            sent, deliver = call
            try:
                for reference in sent:
                    deliver(ray.get(reference))
                deliver(None)
            except ray.exceptions.RayTaskError as error:
                deliver(ReplicaError(f"the replica failed: {str(error).strip().splitlines()[-1]}"))
            except ray.exceptions.RayError as error:
                self.is_lost = True
                deliver(self._lost(error))

    def _lost(self, error: Exception) -> ReplicaLostError:
        """The loss of the replica: of its process alone only where its machine lives to report it. Of a machine that does not
        answer any more it is known, for the 15 seconds before Ray counts it as dead, that the replica is unavailable."""
        exceptions = self._ray.exceptions
        reported = isinstance(error, exceptions.ActorDiedError | exceptions.OutOfMemoryError)
        is_process = reported and not getattr(error, "preempted", False)
        is_process = is_process and not any(each in str(error) for each in NODE_DIED)
        return ReplicaLostError(f"{self.name} ended", machine=not is_process)

    def end(self) -> None:
        """End the process of the replica."""
        self.is_lost = True
        self._calls.put(None)
        self._ray.kill(self.actor)


def _deliver(
    loop: asyncio.AbstractEventLoop, arrived: "asyncio.Queue[bytes | Exception | None]", item: bytes | Exception | None
) -> None:
    try:
        loop.call_soon_threadsafe(arrived.put_nowait, item)
    except RuntimeError:  # the loop of the run is closed: nothing waits
        return
