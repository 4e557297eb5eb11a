"""The lane of a model with replicas, on replicas that are scripted to be slow, to end and to join: no Ray, no other process."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import NoReturn, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.engine.fleet_lane import RELEASE_SECONDS, FleetLane, _Call, _Member
from assay.engine.lanes import Budget, KeyedResponse
from assay.engine.pieces import Piece, PrefixQueue
from assay.errors import AssayError, Place, Problem
from assay.models.protocol import Answered, Can, ReplicaLostError
from assay.records import Generate, Loglikelihood, Message, Request, Text

PARAMS: dict[str, object] = {}


@dataclass
class ScriptedReplica:
    """Answers calls in order, one request after the other; ends before the answer with the number `ends_at`, or at a request
    with a word of `poison`. `struck` says whether it is killed from outside, where it is given: before or after it reports
    that it begins a call."""

    name: str
    ends_at: int | None = None
    poison: str = ""
    seconds: float = 0.0
    machine: bool = False
    answered: int = 0
    is_lost: bool = False
    calls: list[list[str]] = field(default_factory=list)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    struck: Callable[[Sequence[str], str], bool] = lambda _, __: False
    ended_by: str = ""

    async def answer(self, requests: Sequence[Request], *, reports_begin: bool = False) -> AsyncGenerator[Answered]:
        async with self.turn:
            texts = [each.text for each in requests]
            if self.is_lost or self.struck(texts, "waits"):
                self._end("a kill")
            if reports_begin:
                yield []
            self.calls.append(texts)
            for number, text in enumerate(texts):
                await asyncio.sleep(self.seconds)
                if self.poison and self.poison in text:
                    self._end(text)
                if self.is_lost or self.answered == self.ends_at or self.struck(texts[number:], "answers"):
                    self._end("a kill")
                self.answered += 1
                yield [(number, Text(f"{text}!"))]

    def _end(self, by: str) -> NoReturn:
        self.ended_by = self.ended_by or by
        self.is_lost = True
        raise ReplicaLostError(f"{self.name} ended", machine=self.machine)


class ScriptedFleet:
    """A model with these replicas; `more` makes another where one is lost."""

    name, identity, can, max_length = "scripted", "scripted", Can(), None

    def __init__(
        self, replicas: Sequence[ScriptedReplica], more: Callable[[int], ScriptedReplica | None] = lambda _: None
    ) -> None:
        self.all, self.more, self.window, self.expected = list(replicas), more, 64, len(replicas)
        self.shares, self.released = False, list[str]()

    def release(self, replica: ScriptedReplica) -> None:
        self.released.append(replica.name)

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        raise NotImplementedError

    def count_tokens(self, text: str) -> int | None:
        raise NotImplementedError

    def close(self) -> None:
        return None

    async def joined(self) -> AsyncIterator[ScriptedReplica]:
        shown, replaced = 0, 0
        while True:
            while shown < len(self.all):
                shown += 1
                yield self.all[shown - 1]
            await asyncio.sleep(0)
            lost = sum(each.is_lost for each in self.all)
            if lost > replaced:
                replaced += 1
                new = self.more(replaced)
                self.all += [new] if new is not None else []
            if lost == len(self.all):
                raise AssayError([Problem(Place("replicas"), "all ended")])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def request(text: str) -> Generate:
    return Generate(text, PARAMS)


async def _drive(fleet: ScriptedFleet, texts: Sequence[str], budget: Budget) -> dict[str, list[str]]:
    answers: dict[str, list[str]] = {}

    def receive(_: str, responses: Sequence[KeyedResponse]) -> None:
        for key, asked, response in responses:
            said = response.text if isinstance(response, Text) else f"failed: {response.reason}"  # type: ignore[union-attr]
            assert key.decode() == asked.text
            answers.setdefault(asked.text, []).append(said)

    wake = asyncio.Event()
    waiting = [(text.encode(), request(text)) for text in texts]
    async with asyncio.timeout(20), FleetLane("model", fleet, receive, budget, wake) as lane:
        while waiting or lane.is_busy:
            wake.clear()
            while waiting and not lane.is_full:
                lane.put([waiting.pop(0)])
            if not await lane.advance() and lane.is_busy:
                await wake.wait()
    return answers


def drive(fleet: ScriptedFleet, texts: Sequence[str], budget: Budget | None = None) -> dict[str, list[str]]:
    return asyncio.run(_drive(fleet, texts, budget or Budget()))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400)), unique=True, max_size=150),
    st.lists(st.none() | st.integers(0, 40), min_size=1, max_size=5),
    st.integers(0, 2),
)
def test_whatever_ends_and_joins_each_request_is_answered_exactly_once(
    documents: list[tuple[str, int]], ends: list[int | None], processes: int
) -> None:
    """Machines end, and at most two processes: three could be the work of a request."""
    texts = [f"{'The prefix of ' + task * 40} question {number}" for task, number in documents]
    replicas = [ScriptedReplica(f"r{n}", end, machine=n >= processes) for n, end in enumerate(ends)]
    fleet = ScriptedFleet(replicas, lambda n: ScriptedReplica(f"new {n}"))
    assert drive(fleet, texts) == {text: [f"{text}!"] for text in texts}


def test_a_poison_request_fails_alone_and_only_it(caplog: pytest.LogCaptureFixture) -> None:
    texts = [*(f"question {n}" for n in range(40)), "a bad one", *(f"question {n}" for n in range(40, 80))]
    fleet = ScriptedFleet(
        [ScriptedReplica(f"r{n}", poison="bad") for n in range(3)], lambda n: ScriptedReplica(f"n{n}", poison="bad")
    )
    answers = drive(fleet, texts)
    [reason] = answers.pop("a bad one")
    assert reason.startswith("failed: 3 replicas ended while they answered it, the last 2 this request alone")
    assert answers == {text: [f"{text}!"] for text in texts if "bad" not in text}
    assert sum(each.is_lost for each in fleet.all) == 3
    losses = [record.getMessage() for record in caplog.records if record.name == "assay"]
    assert len(losses) == 3  # one for each, however many calls it had
    assert all(re.fullmatch(r"\w+ ended; its \d+ requests? (are|is) asked again", each) for each in losses[:2])
    assert losses[2].startswith(reason.rpartition(": ")[2])


class Storm:
    """Kills from outside, drawn by `draw`: of what waits as often as one likes, of what is answered by `company` too. While a
    request is answered alone one kill strikes it: a second would look like what the request does."""

    def __init__(self, draw: Callable[[], bool]) -> None:
        self.draw, self.kills = draw, 0
        self.alone = set[str]()

    def __call__(self, texts: Sequence[str], state: str) -> bool:
        if self.kills > 60 or not self.draw():
            return False
        if state == "answers" and len(texts) == 1:
            if texts[0] in self.alone:
                return False
            self.alone.add(texts[0])
        self.kills += 1
        return True


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 60), st.sets(st.integers(0, 59), max_size=3), st.integers(1, 4), st.randoms(), st.floats(0, 0.6))
def test_only_what_ends_replicas_by_itself_fails_whatever_else_ends(
    number: int, bad: set[int], replicas: int, draw: Random, chance: float
) -> None:
    texts = [f"{'bad' if n in bad else 'good'} question {n}" for n in range(number)]
    storm = Storm(lambda: draw.random() < chance)

    def new(name: object) -> ScriptedReplica:
        return ScriptedReplica(f"r{name}", poison="bad", struck=storm)

    fleet = ScriptedFleet([new(n) for n in range(replicas)], lambda n: new(f"new {n}"))
    answers = drive(fleet, texts)
    failed = {
        text for text, [said] in answers.items() if said.startswith("failed: 3 replicas ended while they answered")
    }
    assert failed == {text for text in texts if text.startswith("bad")}
    assert {text: said for text, said in answers.items() if text not in failed} == {
        text: [f"{text}!"] for text in texts if text not in failed
    }
    caused = Counter(each.ended_by for each in fleet.all if each.is_lost)
    assert all(caused[text] <= 3 for text in failed), caused
    assert storm.kills or all(caused[text] >= 2 for text in failed)  # alone, both times


def test_kills_of_replicas_that_had_not_begun_a_request_are_not_counted() -> None:
    struck = iter([True] * 30)
    fleet = ScriptedFleet(
        [ScriptedReplica("r0", 0)],
        lambda n: ScriptedReplica(f"n{n}", struck=lambda _, state: state == "waits" and next(struck, False)),
    )
    assert drive(fleet, ["one", "two"]) == {"one": ["one!"], "two": ["two!"]}
    assert len(fleet.all) > 30


def test_a_request_is_not_blamed_for_machines_that_are_lost() -> None:
    lost = [ScriptedReplica(f"r{n}", 0, machine=True) for n in range(5)]
    fleet = ScriptedFleet(lost[:1], lambda n: lost[n] if n < len(lost) else ScriptedReplica("last"))
    assert drive(fleet, ["one"]) == {"one": ["one!"]}


def test_when_all_are_lost_the_run_ends_with_the_error_and_what_was_answered_is_kept() -> None:
    kept: list[str] = []

    async def run() -> None:
        wake = asyncio.Event()
        fleet = ScriptedFleet([ScriptedReplica("r0", 5)])

        def receive(_: str, responses: Sequence[KeyedResponse]) -> None:
            kept.extend(asked.text for _, asked, _ in responses)

        async with FleetLane("model", fleet, receive, Budget(), wake) as lane:
            lane.put([(b"%d" % n, request(f"question {n}")) for n in range(20)])
            while lane.is_busy:
                wake.clear()
                if not await lane.advance():
                    await wake.wait()

    with pytest.raises(AssayError, match="all ended"):
        asyncio.run(run())
    assert len(kept) == 5


def test_one_that_joins_late_gets_work_and_a_faster_one_gets_more() -> None:
    slow, fast = ScriptedReplica("slow", seconds=0.05), ScriptedReplica("fast", seconds=0.005)
    ends = ScriptedReplica("ends", 3)
    fleet = ScriptedFleet([slow, ends], lambda _: fast)
    texts = [f"question {n}" for n in range(200)]
    assert drive(fleet, texts) == {text: [f"{text}!"] for text in texts}
    assert fast.answered > 2 * slow.answered > 0


def test_requests_with_one_prefix_stay_on_the_replica_that_began_it() -> None:
    texts = [f"{task * 40} question {n}" for task in "abcdefgh" for n in range(30)]
    replicas = [ScriptedReplica(f"r{n}", seconds=0.0005) for n in range(4)]
    drive(ScriptedFleet(replicas), texts)
    homes = {
        task: {r.name for r in replicas for call in r.calls for text in call if text[0] == task} for task in "abcdefgh"
    }
    assert sum(len(names) for names in homes.values()) <= 8 + 4  # a few pieces are shared out at the end
    assert all(each.answered >= 30 for each in replicas)


def test_nothing_is_sent_when_the_budget_is_over_and_calls_are_cancelled_at_once() -> None:
    budget = Budget(seconds=0.0)
    replica = ScriptedReplica("r0")

    async def run() -> None:
        wake = asyncio.Event()
        async with FleetLane("model", ScriptedFleet([replica]), lambda *_: None, budget, wake) as lane:
            lane.put([(b"a", request("a"))])
            await asyncio.sleep(0.01)
            assert not await lane.advance()
            assert wake.is_set()
            lane.drop()
            assert not lane.is_busy

    asyncio.run(run())
    assert replica.calls == []


@pytest.mark.parametrize(
    ("shares", "rest", "waiting", "released"),
    [
        (True, RELEASE_SECONDS, 0, ["r0", "r1"]),  # the last one stays
        (True, 0.0, 0, []),
        (True, RELEASE_SECONDS, 1, []),
        (False, RELEASE_SECONDS, 0, []),
    ],
)
def test_replicas_that_rest_are_given_up_where_others_wait_for_their_place(
    shares: bool, rest: float, waiting: int, released: list[str]
) -> None:
    fleet = ScriptedFleet([ScriptedReplica(f"r{number}", seconds=0.001) for number in range(3)])
    fleet.shares = shares

    async def run() -> None:
        wake = asyncio.Event()
        async with asyncio.timeout(20), FleetLane("model", fleet, lambda _, __: None, Budget(), wake) as lane:
            lane.put([(b"%d" % number, request(f"{number}")) for number in range(60)])
            while lane.is_busy or lane.replicas < 3:
                wake.clear()
                if not await lane.advance():
                    await wake.wait()
            await asyncio.sleep(rest * 1.1)
            lane.put([(b"more %d" % number, request("more")) for number in range(waiting)])
            lane.on_tick(0.0)
            lane.on_tick(0.0)

    asyncio.run(run())
    assert sorted(fleet.released) == released


def test_a_call_that_does_not_answer_all_fails_the_rest() -> None:
    class Silent(ScriptedReplica):
        async def answer(self, requests: Sequence[Request], *, reports_begin: bool = False) -> AsyncGenerator[Answered]:
            assert not reports_begin
            yield [(0, Text("said"))]

    answers = drive(ScriptedFleet([Silent("r0")]), [f"question {n}" for n in range(3)])
    assert sorted(said for each in answers.values() for said in each) == [
        "failed: the model gave no response", "failed: the model gave no response", "said"
    ]  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=60),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40), st.booleans()), max_size=40),
)
def test_the_queue_gives_out_each_request_once(
    documents: list[tuple[int, int]], takes: list[tuple[int, int, bool]]
) -> None:
    queue, out = PrefixQueue(), list[bytes]()
    put: list[bytes] = []
    for place, (task, choices) in enumerate(documents):
        context = f"{'few-shot examples of a task ' * task}document {place}"
        choice = [(b"%d %d" % (place, n), Loglikelihood(context, str(n))) for n in range(choices)]
        queue.put(choice)
        put += [key for key, _ in choice]
    for holder, size, is_lost in takes:
        taken = queue.take(holder, size, 30)
        assert len(taken) <= 30 + 64
        if is_lost:
            queue.release(holder)
            queue.put_back(taken)
        else:
            out += [key for key, _ in taken]
        assert len(queue) == len(put) - len(out)
    while taken := queue.take("last", 1000, 1000):
        out += [key for key, _ in taken]
    assert sorted(out) == sorted(put)
    assert not len(queue)


def test_choices_of_a_document_stay_together() -> None:
    queue = PrefixQueue()
    for place in range(10):
        context = f"{'the same examples ' * 10}document {place}"
        queue.put([(b"%d %d" % (place, n), Loglikelihood(context, str(n))) for n in range(4)])
    first, second = queue.take("a", 6, 100), queue.take("b", 6, 100)
    assert len(first) == 8
    assert {key.split()[0] for key, _ in first}.isdisjoint(key.split()[0] for key, _ in second)


def test_choices_beyond_64_of_one_document_may_be_parted() -> None:
    piece, context = Piece("q"), "q"
    piece.requests.extend((b"%d" % number, Loglikelihood(context, str(number))) for number in range(100))
    assert (len(piece.first(1)), len(piece.first(1))) == (1 + 64, 100 - 65)


@pytest.mark.parametrize(
    ("speed", "waiting", "size"),
    [
        (0, 100, 8),  # it is not known yet
        (2, 1, 1),
        (2, 100, 50),  # half of what is left
        (100, 10, 15),  # no less than 0.15 s of work
        (100, 900, 450),
        (100, 4000, 500),  # no more than 5 s
        (10, 4000, 256),  # or a batch
    ],
)
def test_a_call_is_half_of_what_is_left_within_limits_of_time(speed: float, waiting: int, size: int) -> None:
    lane = FleetLane("model", ScriptedFleet([ScriptedReplica("r0")]), lambda *_: None, Budget(), asyncio.Event())
    member = _Member(ScriptedReplica("r0"))
    member._answers, member._seconds = 10 * speed, 10.0
    lane._members.append(member)
    lane.put([(b"%d" % number, request(f"{number}")) for number in range(waiting)])
    assert lane._size(member) == size


@pytest.mark.parametrize(
    ("waiting", "load", "size"),
    [
        (10, 3, 15),  # no less than 0.15 s of work, in flight less than half of it
        (10, 8, 0),  # enough for now: others may be free sooner
        (900, 8, 446),  # half of 908, with the 8 in flight
    ],
)
def test_a_replica_with_little_left_to_do_gets_the_next_call_before_it_is_free(
    waiting: int, load: int, size: int
) -> None:
    async def run() -> int:
        lane = FleetLane("model", ScriptedFleet([ScriptedReplica("r0")]), lambda *_: None, Budget(), asyncio.Event())
        member = _Member(ScriptedReplica("r0"))
        member._answers, member._seconds = 1000.0, 10.0
        task = asyncio.create_task(asyncio.sleep(0))
        member.calls[task] = _Call([(b"in flight %d" % number, request(f"{number}")) for number in range(load)])
        lane._members.append(member)
        lane.put([(b"%d" % number, request(f"{number}")) for number in range(waiting)])
        await task
        return lane._size(member)

    assert asyncio.run(run()) == size


def test_the_speed_of_a_replica_is_that_of_the_last_seconds() -> None:
    """100 answers in 10 s are all that counts then; a second later they count 4 fifths: 81 in 9 s."""
    member = _Member(ScriptedReplica("r0"))
    member._since -= 10
    member.count(100)
    assert member.speed == pytest.approx(10, rel=0.01)
    member._since -= 1
    member.count(1)
    assert member.speed == pytest.approx(9, rel=0.01)


def test_an_error_while_an_answer_is_received_ends_the_run() -> None:
    def receive(_: str, __: Sequence[KeyedResponse]) -> None:
        raise RuntimeError("the disk is full")

    async def run() -> None:
        wake = asyncio.Event()
        fleet = ScriptedFleet([ScriptedReplica("r0")])
        async with asyncio.timeout(5), FleetLane("model", fleet, receive, Budget(), wake) as lane:
            lane.put([(b"a", request("a"))])
            while lane.is_busy:
                wake.clear()
                if not await lane.advance():
                    await wake.wait()
            await lane.advance()  # as the engine does behind the last answer

    with pytest.raises(RuntimeError, match="the disk is full"):
        asyncio.run(run())
