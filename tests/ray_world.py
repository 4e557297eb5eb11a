"""A Ray cluster of two nodes on this machine, one for the whole session; and runs on it.

The cluster runs in separate processes. This one never connects to it but through `assay.fleet.cluster.connected`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

CPUS = 4
"""CPUs that each node declares."""
STORE = 80_000_000
MODELS = Path(__file__).with_name("fleet_models.py")


@contextmanager
def cluster(nodes: int = 2, **resources: Any) -> Iterator[Any]:
    """A cluster with so many nodes; `resources` are those that each declares besides its CPUs."""
    from assay.fleet.cluster import import_ray

    before = dict(os.environ)
    import_ray()
    from ray.cluster_utils import Cluster

    Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir(), "ray").mkdir(
        exist_ok=True
    )  # Ray notes the address there
    folder = tempfile.mkdtemp(prefix="r", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    options = {"num_cpus": CPUS, "object_store_memory": STORE, "include_dashboard": False, **resources}
    started = Cluster(initialize_head=True, head_node_args={**options, "temp_dir": folder})
    try:
        for _ in range(nodes - 1):
            started.add_node(**{key: value for key, value in options.items() if key != "include_dashboard"})
        yield started
    finally:
        started.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """Two nodes for the tests that leave them alive."""
    with cluster() as started:
        yield started


def assay(*arguments: object, cwd: Path | None = None, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
    """Run the command line."""
    command = [sys.executable, "-m", "assay", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
