"""The models of a sweep over one cluster: a process each, two at a time, so that the next one's weights are loaded on the
replicas that the one before it does not need any more."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from assay.cli.output import echo_err
from assay.cli.sweep import SweepOutcome
from assay.cli.trackers import Tracking
from assay.config.run import RunConfig
from assay.errors import AssayError
from assay.fleet.cluster import connected
from assay.registry import load_plugins

AT_ONCE = 2
"""Models at work: one, and the next on the replicas that are free."""
COMMAND = "__sweep"
PAUSE_SECONDS = 0.05


class SweepWork(NamedTuple):
    """A run of a sweep as its process gets it."""

    config: RunConfig
    command: Sequence[str]
    trackers: Sequence[Tracking]


def run_together(
    runs: Mapping[str, RunConfig], command: Sequence[str], trackers: Sequence[Tracking]
) -> dict[str, SweepOutcome]:
    """Evaluate the models over the same cluster; returns the outcome of each."""
    first = next(iter(runs.values()))
    least = first.replicas if isinstance(first.replicas, int) else None
    outcomes: dict[str, SweepOutcome] = {}
    with connected(first.ray, least) as ray, TemporaryDirectory(prefix="assay-") as folder:
        address = ray.get_runtime_context().gcs_address
        waiting, at_work = deque(enumerate(runs.items(), 1)), dict[str, _SweepProcess]()
        try:
            while waiting or at_work:
                while waiting and len(at_work) < AT_ONCE:
                    number, (name, config) = waiting.popleft()
                    echo_err(f"model {number} of {len(runs)}: {name}")
                    work = SweepWork(replace(config, ray=address), command, trackers)
                    at_work[name] = _SweepProcess(work, Path(folder) / str(number))
                for name in [name for name, process in at_work.items() if process.has_ended]:
                    outcomes[name] = at_work.pop(name).outcome(name)
                time.sleep(PAUSE_SECONDS)
        finally:
            for process in at_work.values():  # interrupted: each stops as at Ctrl-C
                process.stop()
    return {name: outcomes[name] for name in runs}


class _SweepProcess:
    """The process of one model; what it says is printed at its end."""

    def __init__(self, work: SweepWork, place: Path) -> None:
        self._said, self._file = place.with_suffix(".err"), place.with_suffix(".out")
        arguments = [sys.executable, "-m", "assay", COMMAND, str(self._file)]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True
            )
        assert self._process.stdin is not None, "it is a pipe"
        self._pipe = self._process.stdin
        content = pickle.dumps(work)
        with suppress(BrokenPipeError):  # it has ended already: its outcome says so
            self._pipe.write(len(content).to_bytes(8) + content)
            self._pipe.flush()  # left open: its end is that of this process

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        self._pipe.close()

    def outcome(self, name: str) -> SweepOutcome:
        self._pipe.close()
        lines = self._said.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in lines:
            echo_err(f"{name}: {line}")
        if self._file.exists():
            outcome: SweepOutcome = pickle.loads(self._file.read_bytes())  # noqa: S301  # written by our own process
            return outcome
        last = f": {lines[-1]}" if lines else ""
        return SweepOutcome(None, f"its process ended with exit code {self._process.returncode}{last}")


def run_one(path: str) -> int:
    """Evaluate one model of a sweep in this process, which ends with the one that started it."""
    from assay.cli.run import swept
    from assay.fleet.replicas import Fleet

    size = int.from_bytes(sys.stdin.buffer.read(8))
    work: SweepWork = pickle.loads(sys.stdin.buffer.read(size))  # noqa: S301  # of the process that started this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    Fleet.shares = True
    try:
        load_plugins(work.config.plugins)
        outcome = SweepOutcome(swept(*work))
    except (AssayError, OSError) as error:
        outcome = SweepOutcome(None, "; ".join(map(str, getattr(error, "problems", (error,)))))
    Path(path).write_bytes(pickle.dumps(outcome))
    return 0


def _end_with_parent() -> None:
    """Stop when the pipe from the process that started this one is closed: that process has ended."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
