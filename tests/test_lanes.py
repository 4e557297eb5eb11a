"""The lanes of a server and of calls, with a server that is a function: its errors end the run, cancellations do not."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self

import pytest

from assay.engine.calls import _GroupSync
from assay.engine.lanes import LATE, Budget, CallLane, KeyedResponse, RemoteLane, answer_call
from assay.models.protocol import Can
from assay.records import Call, Failed, Generate, Request, Response, Returned, Text

Ask = Callable[[Request], Awaitable[Response]]


class Server:
    """A server that answers two requests at once."""

    name = identity = "server"
    can, concurrency, first_concurrency, attempts = Can(), 2, 2, 1
    answers_repeats = is_usage_bound = False

    def __init__(self, ask: Ask) -> None:
        self.ask = ask

    async def ask_repeats(self, requests: Sequence[Request]) -> Sequence[Response]:
        raise NotImplementedError

    def estimate(self, request: Request) -> float:
        return 0.0

    def cost(self, response: Response) -> float | None:
        return None

    async def probe(self) -> bool:
        return True

    async def greet(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def request(prompt: str) -> tuple[bytes, Generate]:
    return prompt.encode(), Generate(prompt, {})


async def settle(lane: RemoteLane | CallLane) -> None:
    """Wait until nothing is in flight."""
    async with asyncio.timeout(20):
        while lane.is_busy:
            await asyncio.sleep(0)


def test_the_first_error_of_a_request_that_is_no_answer_ends_the_run() -> None:
    async def ask(asked: Request) -> Response:
        raise ValueError(f"a fault of the backend at {asked[0]!r}")

    async def run() -> None:
        wake = asyncio.Event()
        lane = RemoteLane("model", Server(ask), lambda *_: None, Budget(), wake)
        lane.put([request("a"), request("b")])
        await settle(lane)
        assert wake.is_set()
        await lane.advance()

    with pytest.raises(ValueError, match="a fault of the backend at 'a'"):
        asyncio.run(run())


def test_a_canceled_request_is_no_error_and_counts_as_unanswered() -> None:
    async def ask(asked: Request) -> Response:
        if asked[0] == "slow":
            await asyncio.Event().wait()
        return Text("said")

    received: list[bytes] = []

    def receive(_: str, responses: Sequence[KeyedResponse]) -> None:
        received.extend(key for key, *_ in responses)

    async def run() -> None:
        lane = RemoteLane("model", Server(ask), receive, Budget(), asyncio.Event())
        lane.put([request("slow"), request("quick"), request("next")])
        async with asyncio.timeout(20):
            while len(received) < 2:
                await asyncio.sleep(0)
        assert (lane.is_busy, lane.unanswered, lane.pending) == (True, 0, 1)
        lane.cancel()
        await settle(lane)
        assert not await lane.advance()
        assert (lane.unanswered, lane.pending) == (1, 0)

    asyncio.run(run())
    assert received == [b"quick", b"next"]


@pytest.mark.parametrize(
    ("ends", "error"),
    [
        ([], None),
        ([asyncio.CancelledError()], None),
        ([asyncio.CancelledError(), ValueError("first"), ValueError("second")], "first"),
        ([ValueError("first"), asyncio.CancelledError()], "first"),
    ],
)
def test_the_first_error_behind_a_call_ends_the_run(ends: list[BaseException], error: str | None) -> None:
    async def work(end: BaseException | None) -> None:
        if end is not None:
            raise end

    async def run() -> Any:
        wake = asyncio.Event()
        lane = CallLane(wake)
        for end in [None, *ends]:
            lane.start(work(end))
        assert lane.is_busy
        await settle(lane)
        assert wake.is_set()
        return await lane.advance()

    if error is None:
        assert asyncio.run(run()) is False
    else:
        with pytest.raises(ValueError, match=error):
            asyncio.run(run())


def test_those_who_wait_for_a_sync_share_it_and_who_comes_while_it_runs_gets_the_next() -> None:
    begun, may_end, count = threading.Event(), threading.Event(), 0

    def sync() -> None:
        nonlocal count
        count += 1
        begun.set()
        assert may_end.wait(20)

    async def run() -> None:
        synced = _GroupSync(sync)
        first = asyncio.gather(synced(), synced(), synced())
        await asyncio.to_thread(begun.wait, 20)
        assert count == 1
        later = asyncio.gather(synced(), synced())
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.gather(first, later)
        assert count == 2
        await synced()
        assert count == 3

    asyncio.run(run())


def test_an_error_of_a_sync_is_raised_for_all_who_wait_for_it_or_for_a_later_one() -> None:
    def sync() -> None:
        raise OSError("no space left")

    async def run() -> list[object]:
        synced = _GroupSync(sync)
        return [*await asyncio.gather(synced(), synced(), return_exceptions=True), await answered(synced)]

    async def answered(synced: _GroupSync) -> object:
        try:
            return await synced()
        except OSError as error:
            return error

    assert [str(error) for error in asyncio.run(run())] == ["no space left"] * 3


def test_a_call_has_what_it_returned_and_the_seconds_that_it_took_or_a_reason() -> None:
    def double(number: int) -> int:
        time.sleep(0.02)
        return 2 * number

    async def wait() -> None:
        await asyncio.Event().wait()

    def fail() -> None:
        raise ValueError("no")

    returned = asyncio.run(answer_call(Call(double, (4,))))
    assert isinstance(returned, Returned) and returned.value == 8 and returned.usage is not None
    assert 0.02 <= returned.usage.seconds < 20
    assert asyncio.run(answer_call(Call(wait, seconds=0.01))) == Failed(LATE)
    failed = asyncio.run(answer_call(Call(fail)))
    assert isinstance(failed, Failed) and "ValueError: no" in failed.reason
