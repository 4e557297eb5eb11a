"""The lane of a model that answers in a thread, with a model that waits until it is told to go on."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

from assay.engine.lanes import Budget, KeyedResponse
from assay.engine.thread_lane import LocalTurns, ThreadLane
from assay.models.protocol import Answered, Can
from assay.records import Generate, Message, Request, Text


class Waiting:
    """A local model of two requests a window."""

    name, identity, can, max_length, window = "waiting", "waiting", Can(), None, 2

    def __init__(self) -> None:
        self.has_begun, self.may_answer = threading.Event(), threading.Event()

    async def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        self.has_begun.set()
        while not self.may_answer.wait(0.01):
            pass  # it may be interrupted between two steps, as a model is
        for number, _ in enumerate(requests):
            yield [(number, Text("said"))]

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        raise NotImplementedError

    def count_tokens(self, text: str) -> int | None:
        raise NotImplementedError


KEYS = [b"a", b"b", b"c", b"d", b"e"]


class World:
    """A lane with five requests, of which the model has begun with the first two, and the next two are sent."""

    def __init__(self) -> None:
        self.model, self.wake, self.turns = Waiting(), asyncio.Event(), LocalTurns()
        self.received: list[bytes] = []
        self.lane = ThreadLane("model", self.model, self._receive, Budget(), self.wake, self.turns)

    def _receive(self, _: str, responses: Sequence[KeyedResponse]) -> None:
        self.received += [key for key, *_ in responses]

    async def begin(self) -> None:
        for key in KEYS:
            self.lane.put([(key, Generate(key.decode(), {}))])
        assert [await self.lane.advance(), await self.lane.advance()] == [True, True]
        await asyncio.to_thread(self.model.has_begun.wait, 20)
        assert self.turns.windows == 2
        assert not await self.lane.advance(), "there is nothing to do until it answers"

    async def end(self) -> list[bytes]:
        """What is received when the model answers."""
        self.model.may_answer.set()
        while self.lane.is_busy:
            self.wake.clear()
            if not await self.lane.advance():
                await self.wake.wait()
        assert self.turns.windows == 0
        return self.received


def test_what_the_model_has_not_begun_with_may_be_dropped() -> None:
    async def run() -> list[bytes]:
        world = World()
        async with asyncio.timeout(20), world.lane:
            await world.begin()
            world.lane.drop()
            return await world.end()

    assert asyncio.run(run()) == KEYS[:2]


def test_of_requests_that_nobody_wants_any_more_those_in_a_window_with_others_are_answered() -> None:
    async def run() -> tuple[list[bytes], list[bytes]]:
        world = World()
        async with asyncio.timeout(20), world.lane:
            await world.begin()
            dropped = world.lane.drop_keys({KEYS[0], KEYS[4]})
            return dropped, await world.end()

    assert asyncio.run(run()) == ([KEYS[4]], KEYS[:4])


def test_windows_that_nobody_wants_any_more_end_at_once() -> None:
    async def run() -> tuple[list[bytes], list[bytes]]:
        world = World()
        async with asyncio.timeout(20), world.lane:
            await world.begin()
            dropped = world.lane.drop_keys(set(KEYS[:4]))
            return sorted(dropped), await world.end()

    dropped, received = asyncio.run(run())
    assert set(dropped) <= set(KEYS[:4])
    assert received == [KEYS[4]]
