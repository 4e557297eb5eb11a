"""The viewer over a run of a million samples, and over 500 runs: seconds to a page, memory of the server."""

import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from bench.big_run import TASK, write_numbers, write_run
from bench.environments import ROOT, bare_environment
from bench.kill import python
from bench.measure import Row

SAMPLES, RUNS = 1_000_000, 500
BIG = {"run": "big", "task": TASK}
FILTERS = {
    "a page of wrong samples": {"show": "wrong"},
    "full-text search, 100,000 found": {"q": "Astronomy"},
    "full-text search, 1 found": {"q": "sample 123456."},
    "a filter by a column of the documents": {"f": "doc.level~eq~3"},
    "a filter by what a filter left": {"f": "answer.strict~has~777"},
    "cut-off answers": {"audit": "truncated"},
    "the last page": {"page": "20000"},
    "slices by a column of the documents": {"slice": "subject"},
}


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        write_run(runs / "big", SAMPLES)
        install_extra()
        with serving(runs) as (address, server):
            yield Row(
                f"{SAMPLES:,} samples: first page of the task, server just started",
                None,
                seconds(address, "task", BIG),
                "≤ 1 s",
            )
            yield Row("the same again", None, seconds(address, "task", BIG), "≤ 1 s")
            for what, query in FILTERS.items():
                yield Row(what, None, seconds(address, "task", {**BIG, **query}), "≤ 1 s")
            yield Row("one sample", None, seconds(address, "sample", {**BIG, "doc": "777777", "at": "5"}), "≤ 1 s")
            yield Row("memory of the server at its most", None, peak_of(server), "≤ 300 MB", "MB")
        many = Path(folder) / "many"
        for number in range(RUNS):
            write_numbers(
                many / f"model-{number % 7}/run-{number:03}", f"task_{number % 11}", (number, 1000, number % 3)
            )
        with serving(many) as (address, _):
            yield Row(f"{RUNS} runs listed, server just started", None, seconds(address, "", {}), "≤ 0.5 s")
            yield Row("the same again", None, seconds(address, "", {}), "≤ 0.5 s")


def install_extra() -> None:
    """What the viewer needs beside the core."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["view"]
    subprocess.run([str(python()), "-m", "pip", "install", "--quiet", *extra], check=True, env=bare_environment())


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int]]:
    """The address of a viewer over a folder, and its process."""
    command = [str(python()), "-m", "assay", "view", str(folder), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=bare_environment(), cwd=ROOT)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip(), server.pid
    finally:
        server.terminate()
        server.communicate(timeout=30)


def seconds(address: str, page: str, query: dict[str, str]) -> float:
    """How long a page takes, to its last byte."""
    before = time.perf_counter()
    with urlopen(f"{address}{page}?{urlencode(query)}", timeout=120) as answer:
        answer.read()
    return time.perf_counter() - before


def peak_of(process: int) -> float:
    """The most a process has held, in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
