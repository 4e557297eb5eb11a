"""The viewer over a run of a million samples, over 10,000 runs, and 500 runs × 60 tasks: seconds to a page, memory of the server.

`python -m bench viewer`, or one part: `viewer:samples`, `viewer:downloads`, `viewer:compared`, `viewer:runs`, `viewer:matrix`.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from tools.get_browser import find_browser

from bench.big_run import SUBJECTS, TASK, write_numbers, write_run
from bench.environments import ROOT, bare_environment
from bench.measure import Row, peak_of

SAMPLES, RUNS, WIDE, TASKS, COMPARED = 1_000_000, 10_000, 500, 60, 300_000
PAINT = """() => {
    const { responseEnd, loadEventEnd } = performance.getEntriesByType("navigation")[0];
    return [responseEnd, performance.getEntriesByType("paint")[0].startTime, loadEventEnd];
}"""
IS_PAINTED = "performance.getEntriesByType('paint').length > 0 && performance.timing.loadEventEnd > 0"
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


def rows(chosen: str = "") -> Iterator[Row]:
    """The rows of all parts, or of one: `python -m bench viewer:matrix`."""
    for name, part in PARTS.items():
        if chosen in ("", name):
            with tempfile.TemporaryDirectory() as folder:
                yield from part(Path(folder))


def of_samples(folder: Path) -> Iterator[Row]:
    """A run of a million samples."""
    write_run(folder / "big", SAMPLES)
    first = []
    for _ in range(TIMES):
        with serving(folder) as (address, _server):
            first.append(seconds(address, "task", BIG))
    yield Row(f"{SAMPLES:,} samples: first page of the task, server just started", None, min(first), "≤ 0.5 s")
    with serving(folder) as (address, server):
        for what in filters(0):
            taken = [seconds(address, "task", {**BIG, **filters(number)[what]}) for number in range(TIMES)]
            yield Row(what, None, min(taken), "≤ 0.5 s")
        taken = [seconds(address, "sample", {**BIG, "doc": f"77777{number}", "at": "5"}) for number in range(TIMES)]
        yield Row("one sample, with those before and behind it", None, min(taken), "≤ 0.5 s")
        yield Row("charts of all answers", None, seconds(address, "task", {**BIG, "charts": "all"}), "–")
        yield Row("16 pages asked for at once", None, together(address), "–")
        yield Row("memory of the server at its most", None, peak_of(server), "≤ 300 MB", "MB")


def of_downloads(folder: Path) -> Iterator[Row]:
    """The wrong ones of a million samples as files: each by a server that has just started."""
    write_run(folder / "big", SAMPLES)
    for kind in ("parquet", "csv", "jsonl"):
        with serving(folder) as (address, server):
            before = time.perf_counter()
            with urlopen(f"{address}samples.{kind}?{urlencode({**BIG, 'show': 'wrong'})}", timeout=600) as answer:
                answer.read(1)
                first, size = time.perf_counter() - before, 1
                while part := answer.read(1 << 20):
                    size += len(part)
            took = time.perf_counter() - before
            yield Row(f"350,000 wrong samples as {kind}: first byte", None, first, "–")
            yield Row(f"all {size / 1e6:.0f} MB", None, took, "–")
            yield Row("memory of the server at its most", None, peak_of(server), "≤ 300 MB", "MB")


def of_runs(folder: Path) -> Iterator[Row]:
    """Ten thousand runs: read into the index, listed, and the pages over them."""
    for number in range(RUNS):
        write_numbers(folder / f"model-{number % 7}/run-{number:05}", f"task_{number % 11}", (number % 1000, 1000, 0))
    time.sleep(0.1)
    before = time.perf_counter()
    with serving(folder) as (address, server):
        yield Row(
            f"{RUNS:,} runs without an index: the first page, with those that were read",
            None,
            seconds(address, "", {}),
            "≤ 1 s",
        )
        while "are being read" in text_of(address, ""):
            time.sleep(0.2)
        yield Row(
            "until all are in the index, the page asked for five times a second",
            None,
            time.perf_counter() - before,
            "–",
        )
        yield Row("memory of the server at its most", None, peak_of(server), "≤ 300 MB", "MB")
    yield from painted(folder, f"{RUNS:,} runs listed", "")
    with serving(folder) as (address, server):
        seconds(address, "", {})
        for what, page, query in (
            ("listed again", "", {}), ("listed, filtered by words", "", {"q": "model-3 task_5"}),
            ("a run is added: listed again", "", {"sort": "name"}), ("matrix of the latest 500", "matrix", {}),
            ("a number over time", "trend", {}), ("two numbers", "scatter", {}), ("compare", "compare", {}),
        ):  # fmt: skip
            if what.startswith("a run is added"):
                write_numbers(folder / "added", "task_1", (1, 1000, 0))
            yield Row(f"{RUNS:,} runs: {what}", None, min(seconds(address, page, query) for _ in range(TIMES)), "≤ 1 s")
        assert ">added<" in text_of(address, "")
        yield Row("memory of the server at its most", None, peak_of(server), "≤ 300 MB", "MB")


def of_matrix(folder: Path) -> Iterator[Row]:
    """The matrix of 500 runs and 60 tasks."""
    tasks = [f"task_{number:02}" for number in range(TASKS)]
    for number in range(WIDE):
        write_numbers(folder / f"model-{number % 7}/run-{number:03}", tasks, (number, 1000, number % 3))
    time.sleep(0.1)
    with serving(folder) as (address, _server):
        while "are being read" in text_of(address, ""):
            time.sleep(0.2)
    yield from painted(folder, f"matrix of {WIDE} runs × {TASKS} tasks", "matrix")
    with serving(folder) as (address, server):
        for page in ("matrix", "matrix.json", "matrix.csv", "trend", "scatter"):
            yield Row(f"{page}, answered", None, min(seconds(address, page, {}) for _ in range(TIMES)), "≤ 1 s")
        yield Row("memory of the server at its most", None, peak_of(server), "≤ 300 MB", "MB")


def painted(folder: Path, what: str, page: str) -> Iterator[Row]:
    """First paint in a browser, and the answer before it: by a server that has just started, and again."""
    from playwright.sync_api import sync_playwright

    taken: dict[str, list[tuple[float, float, float]]] = {"server just started": [], "again": []}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        for _ in range(TIMES):
            with serving(folder) as (address, _server):
                for times in taken.values():
                    tab = browser.new_page(viewport={"width": 1280, "height": 800})
                    tab.goto(f"{address}{page}")
                    while not tab.evaluate(IS_PAINTED):
                        time.sleep(0.02)
                    times.append(tuple(each / 1000 for each in tab.evaluate(PAINT)))
                    tab.close()
        browser.close()
    for when, times in taken.items():
        answered, paint, loaded = min(times, key=lambda each: each[1])
        yield Row(f"{what}, {when}: first paint in a browser", None, paint, "≤ 1 s")
        yield Row(
            f"of that, until the answer was there ({loaded:.2f} s until all of it was laid out)", None, answered, "–"
        )


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


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int]]:
    """The address of a viewer over a folder, and its process."""
    command = [sys.executable, "-m", "assay", "view", str(folder), "--port", "0"]
    environment = {**bare_environment(), "PYTHONPATH": str(ROOT / "src")}
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, cwd=ROOT
    )
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


def text_of(address: str, page: str) -> str:
    with urlopen(f"{address}{page}", timeout=120) as answer:
        return str(answer.read().decode())


def together(address: str) -> float:
    """How long all pages take that are asked for at the same time."""
    before = time.perf_counter()
    asked = [*filters(0).values(), *filters(1).values()]
    with ThreadPoolExecutor(len(asked)) as pool:
        list(pool.map(lambda query: seconds(address, "task", {**BIG, **query}), asked))
    return time.perf_counter() - before


PARTS = {"samples": of_samples, "downloads": of_downloads, "compared": compared, "runs": of_runs, "matrix": of_matrix}
