"""Fleets of replicas on a local Ray cluster: rates, shares of the ideal, the driver's CPU time for each request, and how much of
shared prefixes is computed again."""

import asyncio
import logging
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import assay
from assay.engine.fleet_lane import FleetLane
from assay.engine.lanes import Budget, KeyedResponse
from assay.fleet.replica import RayReplica
from assay.fleet.replicas import Fleet
from assay.models.protocol import Answered
from assay.records import Generate, Likelihood, Request
from assay.runs.journal import Journal
from bench.environments import ROOT

MODELS = ROOT / "tests/fleet_models.py"
SECONDS = 0.02
DOCUMENTS = 24
"""Of each of the 57 tasks."""
READY_SECONDS = 120.0


class _Took(NamedTuple):
    seconds: float
    cpu: float
    answers: Sequence[int]
    """Of each replica."""


def rows() -> Iterator[str]:
    alone = _measured("fleet-slow", {"seconds": SECONDS}, 1, 200)
    eight = _measured("fleet-slow", {"seconds": SECONDS}, 8, 4000)
    share = (4000 / eight.seconds) / (8 * 200 / alone.seconds)
    yield f"| 8 replicas, 20 ms per request, of 8 times one{_each(eight)} | | {share:.1%} | | ≥ 95 % |"
    with tempfile.TemporaryDirectory() as folder:
        uneven = _measured("fleet-slow", {"seconds": SECONDS, "slow": f"{folder}/slow"}, 8, 4000)
    share = (4000 / uneven.seconds) / (7.2 * 200 / alone.seconds)
    yield f"| one of 8 five times slower, of the ideal{_each(uneven)} | | {share:.1%} | | ≥ 90 % |"
    instant = min(_measured("fleet-instant", {}, 4, 60_000) for _ in range(3))
    yield f"| requests per second, instant replicas{_each(instant)} | | {60_000 / instant.seconds:,.0f} | | ≥ 3,000 |"
    milliseconds = 1000 * instant.cpu / 60_000
    yield f"| driver CPU per request, queue and decoding included | | {milliseconds:.3f} ms | | ≤ 0.06 ms |"
    yield from _prefixes()


def _each(took: _Took) -> str:
    return f" (answers of each: {', '.join(map(str, sorted(took.answers)))})"


class _CountedReplica:
    """A replica whose answers are counted."""

    def __init__(self, replica: RayReplica, counts: Counter[str]) -> None:
        self._replica, self._counts, self.name = replica, counts, replica.name
        counts[self.name] += 0

    async def answer(self, requests: Sequence[Request], *, reports_begin: bool = False) -> AsyncIterator[Answered]:
        async for answered in self._replica.answer(requests, reports_begin=reports_begin):
            self._counts[self.name] += len(answered)
            yield answered


class _CountedFleet(Fleet):
    """A fleet that waits until all its replicas are ready."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.answers: Counter[str] = Counter()

    def open(self) -> None:
        super().open()
        until = time.monotonic() + READY_SECONDS
        while len(self._ready) < self._target and time.monotonic() < until:
            self._tend()
            time.sleep(0.1)
        assert len(self._ready) >= self._target, f"{len(self._ready)} of {self._target} replicas are ready"

    async def joined(self) -> AsyncIterator[Any]:
        async for replica in super().joined():
            yield _CountedReplica(replica, self.answers)


def _measured(model: str, arguments: dict[str, object], replicas: int, requests: int) -> _Took:
    """Seconds and seconds of CPU that a fleet takes for so many requests; opening does not count."""
    prompts = [f"{'a shared beginning of some length ' * 8}{n % 40} and then question {n}" for n in range(requests)]
    asked = [(b"%d" % n, Generate(prompt, {})) for n, prompt in enumerate(prompts)]
    answered: set[bytes] = set()

    def receive(_: str, responses: Sequence[KeyedResponse]) -> None:
        answered.update(key for key, _, _ in responses)

    async def drive(fleet: _CountedFleet) -> tuple[float, float]:
        wake = asyncio.Event()
        begun, cpu = time.perf_counter(), time.process_time()
        async with FleetLane("model", fleet, receive, Budget(), wake) as lane:
            at = 0
            while at < len(asked) or lane.is_busy:
                wake.clear()
                while at < len(asked) and not lane.is_full:
                    lane.put(asked[at : at + 4])
                    at += 4
                if not await lane.advance() and lane.is_busy:
                    await wake.wait()
        return time.perf_counter() - begun, time.process_time() - cpu

    with _CountedFleet(
        model, arguments, replicas=replicas, gpus_per_replica=0, ray="local", plugins=[str(MODELS)]
    ) as fleet:
        took = asyncio.run(drive(fleet))
    assert len(answered) == requests, f"{len(answered)} of {requests} were answered"
    return _Took(*took, list(fleet.answers.values()))


def _prefixes() -> Iterator[str]:
    """A tree of 57 tasks with five examples each: a tiny Llama in one process, and four of it."""
    logging.getLogger("assay").setLevel(logging.ERROR)  # a random model gives reason for remarks
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        world, model = Path(folder, "world"), Path(folder, "model")
        for command in (["bench/make_benchmark.py", world], ["bench/local_run.py", "make", world, model]):
            subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, check=True, capture_output=True)
        arguments = {"pretrained": str(model), "dtype": "float32", "device": "cpu", "threads": 1}
        options: dict[str, Any] = {
            "tasks": ["synth_mmlu"], "include_path": str(world / "tasks"), "limit": DOCUMENTS, "log_samples": True
        }  # fmt: skip
        one, four = Path(folder, "one"), Path(folder, "four")
        assay.simple_evaluate("hf", arguments, output_path=str(one), **options)
        with _CountedFleet("hf", arguments, replicas=4, ray="local") as fleet:
            assay.simple_evaluate(fleet, output_path=str(four), **options)  # type: ignore[arg-type]
        here, there = _likelihoods(one), _likelihoods(four)
        each = ", ".join(map(str, sorted(fleet.answers.values())))
    assert here.keys() == there.keys(), "other requests"
    computed, again = _computed(here.values()), _computed(there.values())
    what = f"57-task MMLU tree × {DOCUMENTS} documents, tiny Llama, 4 `hf` replicas (answers of each: {each})"
    yield f"| {what}: tokens computed, of {computed:,} in one process | | {again / computed:.3f}× | | ≤ 1.1× |"
    apart = max(abs(here[key].value - there[key].value) for key in here)
    yield f"| the same: largest difference of {len(here):,} log-likelihoods | | {apart:.1e} | | ≤ 1e-5 |"


def _likelihoods(run: Path) -> dict[bytes, Likelihood]:
    """The answers of a run by the keys of their requests."""
    with closing(Journal(run / "responses.jsonl")) as journal:
        return {each.key: each.response for each in journal.earlier() if isinstance(each.response, Likelihood)}


def _computed(answers: Iterable[Likelihood]) -> int:
    """Tokens that were read and not stored."""
    return sum(each.usage.read - each.usage.stored for each in answers if each.usage is not None)
