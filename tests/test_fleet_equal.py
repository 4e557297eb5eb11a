"""A fleet of replicas gives what one process gives, to the byte: results, samples, journals; and is never there unasked."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import run_world

pytest.importorskip("ray")

from bench.fleet_equal import BOTH, BUNDLED, CAPITAL, GRAPH_RUN, JUDGED, RECORDS, Pairs, variables
from bench.ray_nodes import RayNodes

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("ray")]


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    with RayNodes(variables=variables()) as cluster:
        yield cluster


@pytest.fixture
def pairs(nodes: RayNodes, tmp_path: Path) -> Pairs:
    return Pairs(tmp_path / "work", nodes)


def test_the_bundled_benchmark_is_byte_equal_on_four_replicas_of_two_nodes(pairs: Pairs) -> None:
    assert pairs.differing((*BUNDLED, "--limit", "4")) == []
    assert pairs.responses > 15 * 4  # of all tasks
    results = run_world.results(pairs.work / "run")
    assert len([name for name in results["results"] if name.startswith("first_steps_")]) >= 15


def test_a_graph_and_its_local_judge_are_byte_equal_on_two_replicas_each(pairs: Pairs) -> None:
    assert pairs.differing(JUDGED, GRAPH_RUN, BOTH) == []
    speakers, judges = pairs.askers["speaker"], pairs.askers["verdicts"]
    assert (len(speakers), len(judges), speakers & judges) == (2, 2, set())
    assert pairs.responses == 3 * RECORDS
    row = run_world.results(pairs.work / "run")["results"]["capitals"]
    assert row["exact_match,none"] == pytest.approx(sum(said(n) == CAPITAL for n in range(RECORDS)) / RECORDS)
    assert 0 < row["llm_judge,none"] < 1


def said(number: int) -> str:
    """What the model of the graph says about a country, worked out by hand: first a hint, then an answer that has it."""
    hint = answer(f"user: hint country {number}")
    return answer(f"user: country {number} {hint}")


def answer(prompt: str) -> str:
    return "the capital " + hashlib.sha256(prompt.encode()).hexdigest()[0]
