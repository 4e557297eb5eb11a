"""A Ray cluster of real processes on this machine, for benchmarks and tests that kill parts of it: `ray start` once per node.

Every node has a loopback address and a separate session of processes, all of which are killed by their ids.
"""

import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

STORE = 80 << 20
"""Bytes of a node's object store: the smallest that Ray takes is 75 MB."""
START_SECONDS = 90.0
"""Seconds in which a node starts on a busy machine."""


class NodeProcesses:
    """One node: the process of `ray start` and all that it has started."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self.log = process, log

    def processes(self) -> list[int]:
        """All processes of the node that live."""
        return [each for each in _processes() if _session(each) == self.process.pid]

    def replicas(self) -> list[int]:
        """The processes of its actors, the agents of Ray itself aside."""
        return [each for each in self.processes() if _is_replica(_title(each))]

    def kill(self) -> None:
        """SIGKILL for all of it: first the node's own processes, so that no word of it gets out, then its workers."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for _ in range(100):
            living = self.processes()
            for each in living:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            self.process.poll()
            if not [each for each in living if each != self.process.pid]:
                break
            time.sleep(0.02)
        self.process.wait()


class RayNodes:
    """A cluster with a head node, and nodes that are added and killed. `environment` is for its processes and what joins it."""

    def __init__(self, cpus: Sequence[int] = (2, 2), variables: Mapping[str, str] | None = None) -> None:
        memory = Path("/dev/shm")  # paths of sockets have to be short
        self.folder = Path(tempfile.mkdtemp(prefix="ray-", dir=memory if memory.is_dir() else None))
        self.environment = {
            **os.environ, **(variables or {}), "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32), "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        self.nodes: list[NodeProcesses] = []
        self._host, self._started = f"127.{os.getpid() % 250}.{random.randrange(1, 250)}", 0
        self.address = f"{self._host}.1:{free_port(f'{self._host}.1')}"
        self._cpus = cpus

    def __enter__(self) -> Self:
        try:
            for cpus in self._cpus:
                self.add(cpus)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def head(self) -> NodeProcesses:
        return self.nodes[0]

    def begin(self, cpus: int = 2) -> NodeProcesses:
        """Start a node and do not wait for it; the first one is the head."""
        self._started += 1
        mine = f"{self._host}.{self._started}"
        where = ["--address", self.address]
        if self._started == 1:
            # its port for the state API is taken by any other cluster of this machine
            where = ["--head", "--port", self.address.rpartition(":")[2], "--temp-dir", str(self.folder / "t"),
                     "--include-dashboard", "false", "--dashboard-port", str(free_port("127.0.0.1"))]  # fmt: skip
        log = self.folder / f"node-{self._started}.log"
        size = ["--num-cpus", str(cpus), "--object-store-memory", str(STORE)]
        quiet = ["--include-log-monitor", "false", "--disable-usage-stats", "--block"]
        command = [
            str(Path(sys.executable).with_name("ray")),
            "start",
            *where,
            "--node-ip-address",
            mine,
            *size,
            *quiet,
        ]
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )  # fmt: skip
        node = NodeProcesses(process, log)
        self.nodes.append(node)
        return node

    def add(self, cpus: int = 2) -> NodeProcesses:
        """Start a node, and wait until it is part of the cluster."""
        node = self.begin(cpus)
        end = time.monotonic() + START_SECONDS
        while b"runtime started" not in node.log.read_bytes():
            if node.process.poll() is not None or time.monotonic() > end:
                said = node.log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"a Ray node does not start: {said}")
            time.sleep(0.05)
        return node

    def kill(self, node: NodeProcesses) -> None:
        node.kill()
        self.nodes.remove(node)

    def replicas(self) -> list[int]:
        return [each for node in self.nodes for each in node.replicas()]

    def close(self) -> None:
        for node in reversed(self.nodes):
            node.kill()
        self.nodes = []
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port(host: str) -> int:
    with socket.socket() as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _session(process: int) -> int:
    """The session of a process that lives; 0 for one that has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] == "Z" else int(fields[3])


def _title(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _is_replica(title: str) -> bool:
    return title.startswith("ray::") and not title.startswith(
        ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
    )
