"""Fleets of replicas on a local Ray cluster: rates, shares of the ideal, and the driver's CPU time for each request."""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.engine.fleet_lane import FleetLane
from assay.engine.lanes import Budget, KeyedResponse
from assay.fleet.replicas import Fleet
from assay.records import Generate

MODELS = Path(__file__).parents[1] / "tests/fleet_models.py"
SECONDS = 0.02


def rows() -> Iterator[str]:
    alone = _measured("fleet-slow", {"seconds": SECONDS}, 1, 200)
    eight = _measured("fleet-slow", {"seconds": SECONDS}, 8, 4000)
    share = (4000 / eight[0]) / (8 * 200 / alone[0])
    yield f"| 8 replicas, 20 ms per request, of 8 times one | | {share:.1%} | | ≥ 95 % |"
    with tempfile.TemporaryDirectory() as folder:
        uneven = _measured("fleet-slow", {"seconds": SECONDS, "slow": f"{folder}/slow"}, 8, 4000)
    share = (4000 / uneven[0]) / (7.2 * 200 / alone[0])
    yield f"| one of 8 five times slower, of the ideal | | {share:.1%} | | ≥ 90 % |"
    instant = max((_measured("fleet-instant", {}, 4, 60_000) for _ in range(3)), key=lambda each: -each[0])
    yield f"| requests per second, instant replicas | | {60_000 / instant[0]:,.0f} | | ≥ 3,000 |"
    yield f"| driver CPU per request, queue and decoding included | | {1000 * instant[1] / 60_000:.3f} ms | | ≤ 0.06 ms |"


def _measured(model: str, arguments: dict[str, object], replicas: int, requests: int) -> tuple[float, float]:
    """Seconds and seconds of CPU that a fleet takes for so many requests; opening does not count."""
    prompts = [f"{'a shared beginning of some length ' * 8}{n % 40} and then question {n}" for n in range(requests)]
    asked = [(b"%d" % n, Generate(prompt, {})) for n, prompt in enumerate(prompts)]
    answered: set[bytes] = set()

    def receive(_: str, responses: Sequence[KeyedResponse]) -> None:
        answered.update(key for key, _, _ in responses)

    async def drive(fleet: Fleet) -> tuple[float, float]:
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

    with Fleet(model, arguments, replicas=replicas, ray="local", plugins=[str(MODELS)]) as fleet:
        took = asyncio.run(drive(fleet))
    assert len(answered) == requests, f"{len(answered)} of {requests} were answered"
    return took
