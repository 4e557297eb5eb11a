"""CPU seconds of a command, servers in processes, and rows of a table."""

import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.environments import bare_environment


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what was measured, on either side, and what was asked for."""

    what: str
    theirs: float | None
    ours: float
    expected: str
    unit: str = "s"

    def __str__(self) -> str:
        theirs = f"{self.theirs:.2f} {self.unit}" if self.theirs is not None else "–"
        ratio = f"{self.theirs / self.ours:.0f}×" if self.theirs is not None else "–"
        return f"| {self.what} | {theirs} | {self.ours:.3f} {self.unit} | {ratio} | {self.expected} |"


@dataclass(frozen=True, slots=True)
class Said:
    """A line without a ratio: what was found, in words; and what was found of something else."""

    what: str
    actual: str
    expected: str
    other: str = "–"

    def __str__(self) -> str:
        return f"| {self.what} | {self.other} | {self.actual} | – | {self.expected} |"


def cpu_seconds(command: Sequence[str | Path], *, runs: int, cwd: Path | None = None) -> float:
    """The least CPU time of several runs, of the process and its children."""
    best = float("inf")
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = subprocess.run(
            [str(part) for part in command], env=bare_environment(), capture_output=True, cwd=cwd, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if ended.returncode not in (0, 1):
            raise RuntimeError(f"{command}: {ended.stderr.decode()[-2000:]}")
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def peak_memory() -> float:
    """The most this process has held, in MB. The figure of `getrusage` may be its parent's, from before it was started."""
    return peak_of("self") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def peak_of(process: int | str) -> float:
    """The most a process has held, in MB; 0 where that is not known."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


@contextmanager
def serving(*command: str | Path) -> Iterator[str]:
    """A server of models in a process, started with a free port behind its command and ended by its id; its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    process = subprocess.Popen([sys.executable, *map(str, command), str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()
