"""`--serve` with Ray: servers on two nodes, one killed, a node lost, GPUs, and a driver that is killed."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import assay
import run_world
from assay.config.run import RunConfig
from assay.errors import AssayError
from assay.fleet.cluster import connected
from assay.fleet.servers import placement_of
from assay.models.local.embedded import BUNDLED
from serving import TRUTH
from test_managed_servers import DOCUMENTS, ROWS, World, driver, until, world  # noqa: F401  # a fixture

pytest.importorskip("ray")
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two node processes on this machine, each with two GPUs that are only declared."""
    os.environ |= (before := {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"})
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "num_gpus": 2, "object_store_memory": 80_000_000}
    built = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    built.add_node(**node)
    yield built
    built.shutdown()
    for name in before:
        del os.environ[name]


AUTO = {  # of two nodes with two GPUs each
    "vllm serve m": (None, 4, 1.0),
    "vllm serve m -tp 2": (None, 2, 2.0),
    "llama-server -m m.gguf": (0.5, 8, 0.5),
    "x {port}": (0.0, 2, 0.0),
}


def test_auto_starts_as_many_servers_as_the_gpus_of_the_nodes_are_enough_for(cluster: Any) -> None:
    with connected(cluster.address) as ray:
        for command, (gpus, count, each) in AUTO.items():
            config = RunConfig(serve=command, replicas="auto", gpus_per_replica=gpus, ray=cluster.address)
            placement = placement_of(ray, config)
            assert (placement.count, placement.gpus) == (count, each), command
        with pytest.raises(AssayError, match="the cluster has GPUs for 0 servers of 3 each"):
            placement_of(ray, RunConfig(serve="vllm serve m -tp 3", replicas="auto", ray=cluster.address))
        with pytest.raises(AssayError, match="the cluster has GPUs for 4 servers of 1 each, not for 5"):
            placement_of(ray, RunConfig(serve="vllm serve m", replicas=5, ray="local"))


def test_the_server_of_a_lost_node_is_started_on_a_node_that_joins(cluster: Any, world: World) -> None:  # noqa: F811
    node = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": 80_000_000}
    lost = cluster.add_node(**node)
    command = world.command("--wait", 1, "--host", "{host}")
    process = driver(
        world, "--serve", command, "--replicas", 5, "--ray", cluster.address, "--model_args", "num_concurrent=5"
    )
    until(lambda: len(world.asked) > 4)
    cluster.remove_node(lost, allow_graceful=False)
    joined = cluster.add_node(**node)
    until(lambda: len(world.logged("start")) == 6)
    assert process.communicate()[1].count("restart of 5 servers during the run: its Ray actor or its node ended") == 1
    cluster.remove_node(joined)
    results = run_world.results(world.output)
    assert results["results"]["t"]["exact_match,none"] == 1.0
    assert results["assay"]["servers"] == {
        "count": 5, "restarts": 1, "reasons": ["its Ray actor or its node ended"],
    }  # fmt: skip
    assert sorted(world.logged("gpus")) == ["0", "0", "0", "0", "1", "1"], "Ray gave every server its own GPU"
    assert set(world.asked) == {row["q"] for row in ROWS}
    keys = world.journaled()
    assert (len(keys), len(set(keys))) == (DOCUMENTS, DOCUMENTS)


def test_no_server_survives_a_driver_that_is_killed(cluster: Any, world: World) -> None:  # noqa: F811  # a fixture
    process: subprocess.Popen[str] = driver(
        world, "--serve", world.command("--wait", 0.5, "--spawn", "--host", "{host}"), "--replicas", 2, "--ray",
        cluster.address,
    )  # fmt: skip
    until(lambda: len(world.asked) > 2)
    assert len(world.running) == 4, "two servers, each with a process that it started"
    process.kill()
    process.communicate()
    until(lambda: not world.running, 20.0)


def processes(*parts: str) -> list[int]:
    """The processes with all of these texts in their command, but for guardians."""
    listed = [path for path in Path("/proc").iterdir() if path.name.isdigit()]
    commands: dict[int, str] = {}
    for path in listed:
        try:
            commands[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return [pid for pid, text in commands.items() if all(part in text for part in parts) and "guardian.py" not in text]


def likelihoods(results: dict[str, Any], task: str) -> list[Any]:
    return [sample["resps"] for sample in results["samples"][task]]


def flat(value: Any) -> list[Any]:
    return [each for part in value for each in flat(part)] if isinstance(value, list | tuple) else [value]


@pytest.mark.skipif("ASSAY_CLUSTER_TESTS" not in os.environ, reason="needs a quiet machine: make test-cluster")
def test_two_servers_of_transformers_say_what_hf_says_though_one_is_killed(cluster: Any, tmp_path: Path) -> None:
    """The killed one is started again while the other answers, and no answer is lost or doubled."""
    tasks = ["first_steps_plurals"]
    output = tmp_path / "run"
    journal, command = output / "responses.jsonl", f"{sys.executable} {TRUTH} {{port}} {BUNDLED} host={{host}}"
    killed: list[int] = []

    def kill() -> None:
        until(lambda: journal.exists() and journal.read_bytes().count(b"\n") > 10)
        killed.append(processes("truth_server.py", str(BUNDLED))[0])
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    there = assay.simple_evaluate(
        "openai", {"tokenizer": str(BUNDLED), "max_length": 1024, "num_concurrent": 2}, tasks=tasks, limit=15,
        serve=command, replicas=2, gpus_per_replica=0, ray=cluster.address, output_path=str(output),
    )  # fmt: skip
    thread.join()
    here = assay.simple_evaluate("hf", {"pretrained": str(BUNDLED), "dtype": "float32"}, tasks=tasks, limit=15)
    for task in tasks:
        ours, theirs = flat(likelihoods(here, task)), flat(likelihoods(there, task))
        assert len(ours) == len(theirs) > 0
        for one, other in zip(ours, theirs, strict=True):
            assert other == (pytest.approx(one, abs=1e-3) if isinstance(one, float) else one)
    assert (len(killed), there["assay"]["servers"]["count"], there["assay"]["servers"]["restarts"]) == (1, 2, 1)
    assert "SIGKILL" in there["assay"]["servers"]["reasons"][0]
    lines = journal.read_bytes().splitlines()[1:]
    assert len({line[:40] for line in lines}) == len(lines) == there["assay"]["usage"]["requests"]
    assert processes("truth_server.py", str(BUNDLED)) == []
