"""The viewer over a run of a million samples, and over 500 runs: seconds to a page, memory of the server."""

import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from bench.big_run import SUBJECTS, TASK, write_numbers, write_run
from bench.environments import ROOT, bare_environment, built_python
from bench.measure import Row

SAMPLES, RUNS, COMPARED = 1_000_000, 500, 300_000
BIG = {"run": "big", "task": TASK}
TIMES = 3
"""The least of so many counts: others use this machine, too. Searches are remembered, so each time it is another word."""


def filters(number: int) -> dict[str, dict[str, str]]:
    """What is asked of the samples, each time something else."""
    return {
        "a page of wrong samples": {"show": "wrong", "page": str(number + 1)},
        "full-text search, 100,000 found": {"q": SUBJECTS[number].upper()},
        "full-text search, 1 found": {"q": f"sample 12345{number}."},
        "a filter by a column of the documents": {"f": f"doc.level~eq~{number + 1}"},
        "a filter by what a filter left": {"f": f"answer.strict~has~77{number}"},
        "cut-off answers": {"audit": "truncated", "page": str(number + 1)},
        "the last page": {"page": str(20_000 - number)},
        "slices by a column of the documents": {"slice": ("subject", "level", "subject")[number]},
    }


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        write_run(runs / "big", SAMPLES)
        install_extra()
        first = []
        for _ in range(TIMES):
            with serving(runs) as (address, server):
                first.append(seconds(address, "task", BIG))
        yield Row(f"{SAMPLES:,} samples: first page of the task, server just started", None, min(first), "≤ 1 s")
        with serving(runs) as (address, server):
            for what in filters(0):
                taken = [seconds(address, "task", {**BIG, **filters(number)[what]}) for number in range(TIMES)]
                yield Row(what, None, min(taken), "≤ 1 s")
            taken = [seconds(address, "sample", {**BIG, "doc": f"77777{number}", "at": "5"}) for number in range(TIMES)]
            yield Row("one sample, with those before and behind it", None, min(taken), "≤ 1 s")
            yield Row("16 pages asked for at once", None, together(address), "–")
            yield Row("memory of the server at its most", None, peak_of(server), "≤ 300 MB", "MB")
        yield from compared(Path(folder) / "compared")
        many = Path(folder) / "many"
        for number in range(RUNS):
            write_numbers(
                many / f"model-{number % 7}/run-{number:03}", f"task_{number % 11}", (number, 1000, number % 3)
            )
        first = []
        for _ in range(TIMES):
            with serving(many) as (address, _server):
                first.append(seconds(address, "", {}))
                again = seconds(address, "", {})
        yield Row(f"{RUNS} runs listed, server just started", None, min(first), "≤ 0.5 s")
        yield Row("the same again", None, again, "≤ 0.5 s")


def compared(runs: Path) -> Iterator[Row]:
    """Two runs that differ in every 10th sample, compared: each time by a server that has just started."""
    write_run(runs / "one", COMPARED)
    write_run(runs / "other", COMPARED, changed=10)
    asked = [("run", "one"), ("run", "other")]
    first, again, most = [], [], []
    for _ in range(TIMES):
        with serving(runs) as (address, server):
            first.append(seconds(address, "compare", asked))
            again.append(seconds(address, "compare", asked))
            seconds(address, "flips", [*asked, ("task", TASK)])
            most.append(peak_of(server))
    yield Row(f"two runs of {COMPARED:,} samples compared, server just started", None, min(first), "≤ 10 s")
    yield Row("the same again", None, min(again), "≤ 1 s")
    yield Row(
        "memory of the server at its most, with the flipped samples of the task", None, min(most), "≤ 500 MB", "MB"
    )


def install_extra() -> None:
    """What the viewer needs beside the core."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["view"]
    subprocess.run([str(built_python()), "-m", "pip", "install", "--quiet", *extra], check=True, env=bare_environment())


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int]]:
    """The address of a viewer over a folder, and its process."""
    command = [str(built_python()), "-m", "assay", "view", str(folder), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=bare_environment(), cwd=ROOT)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip(), server.pid
    finally:
        server.terminate()
        server.communicate(timeout=30)


def seconds(address: str, page: str, query: dict[str, str] | list[tuple[str, str]]) -> float:
    """How long a page takes, to its last byte."""
    before = time.perf_counter()
    with urlopen(f"{address}{page}?{urlencode(query)}", timeout=120) as answer:
        answer.read()
    return time.perf_counter() - before


def together(address: str) -> float:
    """How long all pages take that are asked for at the same time."""
    before = time.perf_counter()
    asked = [*filters(0).values(), *filters(1).values()]
    with ThreadPoolExecutor(len(asked)) as pool:
        list(pool.map(lambda query: seconds(address, "task", {**BIG, **query}), asked))
    return time.perf_counter() - before


def peak_of(process: int) -> float:
    """The most a process has held, in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
