"""Fleets that lose replicas, nodes and drivers: nothing is lost, nothing is there twice, every byte is that of one process.

`python -m bench.fleet_kills` does the same twenty times for each.
"""

import random
from collections.abc import Iterator

import pytest

pytest.importorskip("ray")

from bench.fleet_kills import KINDS, FleetWorld, Round
from bench.ray_nodes import RayNodes

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("ray")]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> FleetWorld:
    world = FleetWorld(tmp_path_factory.mktemp("fleet"))
    world.undisturbed()
    return world


@pytest.fixture(scope="module")
def nodes(world: FleetWorld) -> Iterator[RayNodes]:
    with RayNodes(variables=world.variables) as cluster:
        yield cluster


@pytest.mark.parametrize(("kind", "at"), [("replica", 0.3), ("node", 0.5), ("driver", 0.6)])
def test_a_fleet_that_is_struck_ends_as_one_process(kind: str, at: float, world: FleetWorld, nodes: RayNodes) -> None:
    round_ = Round(kind, at)
    world.fresh()
    KINDS[kind][0](world, nodes, random.Random(1), round_)
    assert round_.problems == []
    assert (round_.struck, round_.lost, round_.doubled) == (True, 0, 0)
