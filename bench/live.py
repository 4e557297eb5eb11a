"""A run at about 2,000 requests a second with a page open, beside the same run without: how much slower, and how fresh the page is.

Three kinds of runs in turns, so that a busy machine slows all alike: one that writes no progress, one that writes it, one with a
page open as well. The run has a processor for itself; the model's stub, the viewer and the page share the others, as a model and
a browser are elsewhere. The page is followed as a browser does it: one stream of events, and the page again after each; and once
by a browser. `python -m bench live`.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

from tools.get_browser import find_browser

from bench.measure import Said, peak_of, serving

ROUNDS, DOCUMENTS, CONCURRENT, LATENCY = 8, 20_000, 64, 28
KINDS = ("silent", "written", "followed")
STUB = Path(__file__).parent / "openai_stub.py"
TASK = """task: texts
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: q
doc_to_target: gold
generation_kwargs: {{until: [], max_gen_toks: 64, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""
WATCH = """() => {
    window.seen = [];
    const look = () => {
        const shown = document.querySelector("main .live progress");
        if (shown && window.seen.at(-1)?.[1] !== shown.value) window.seen.push([Date.now() / 1000, shown.value]);
    };
    new MutationObserver(look).observe(document.body, {childList: true, subtree: true});
    look();
}"""


class Seen(NamedTuple):
    """When a page showed how many documents."""

    time: float
    documents: int


class Measured(NamedTuple):
    """One run: its seconds, its processor seconds; how old the page became, and the memory of the viewer."""

    wall: float
    cpu: float
    ages: Sequence[float] = ()
    memory: float = 0.0


def rows() -> Iterator[Said]:
    with tempfile.TemporaryDirectory() as name, own_processors():
        folder = Path(name)
        write_task(folder)
        (folder / "runs").mkdir()
        run(folder, "first", "written")  # files and imports are read once
        all_runs: dict[str, list[Measured]] = {kind: [] for kind in KINDS}
        for number in range(ROUNDS):
            for kind in (*KINDS[number % 3 :], *KINDS[: number % 3]):
                all_runs[kind].append(run(folder, f"{kind}-{number}", kind))
        rates = ", ".join(
            f"{kind} {DOCUMENTS / median(each.wall for each in runs):.0f}" for kind, runs in all_runs.items()
        )
        yield Said(f"{DOCUMENTS:,} requests, {CONCURRENT} at a time: requests/s in the middle", rates, "about 2,000")
        silent = all_runs["silent"]
        for kind in KINDS[1:]:
            what = "progress is written" if kind == "written" else "progress is written and a page is open"
            for field, label in (("wall", "wall clock"), ("cpu", "processor time of the run")):
                yield Said(f"{what}: {label}", compared(silent, all_runs[kind], field), "≤ 1.02×")
        ages = [age for each in all_runs["followed"] for age in each.ages]
        yield Said("from a sample to the page that has it, by a stream of events", age_text(ages), "≤ 2 s")
        most = max(each.memory for each in all_runs["followed"])
        yield Said("memory of the viewer at its most", f"{most:.0f} MB", "≤ 300 MB")
        if find_browser() is not None:
            seen = run(folder, "browser", "browser")
            yield Said("from a sample to the page that has it, in a browser", age_text(seen.ages), "≤ 2 s")


def compared(silent: Sequence[Measured], others: Sequence[Measured], field: str) -> str:
    """How many times as long: of the pairs in the middle, and the least of each kind."""
    one, two = ([getattr(each, field) for each in runs] for runs in (silent, others))
    ratios = sorted(b / a for a, b in zip(one, two, strict=True))
    return (
        f"{median(ratios):.3f}× in the middle of {len(ratios)} pairs ({ratios[0]:.3f} to {ratios[-1]:.3f}), "
        f"{min(two) / min(one):.3f}× of the least ({min(one):.2f} and {min(two):.2f} s)"
    )


def age_text(ages: Sequence[float]) -> str:
    return f"at most {max(ages):.2f} s, {median(ages):.2f} s in the middle, {len(ages)} pages" if ages else "no page"


@contextmanager
def own_processors() -> Iterator[None]:
    """Leave the first processor to runs: this process and what it starts use the others."""
    known = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {*sorted(known)[1:]} or known)
    try:
        yield
    finally:
        os.sched_setaffinity(0, known)


def write_task(folder: Path) -> None:
    data = folder / "texts.jsonl"
    data.write_text("".join(json.dumps({"q": f"question {n} " * 20, "gold": "x"}) + "\n" for n in range(DOCUMENTS)))
    (folder / "texts.yaml").write_text(TASK.format(data=data))


def run(folder: Path, name: str, kind: str) -> Measured:
    """One run in a process, and beside it what belongs to its kind."""
    is_followed = kind in ("followed", "browser")
    with (
        serving(STUB, "--latency", str(LATENCY)) as url,
        viewing(folder / "runs") if is_followed else nullcontext(("", 0)) as (address, viewer),
    ):
        command = [sys.executable, "-m", "bench.live", url, str(folder), name, str(int(kind != "silent"))]
        pages: list[Seen] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            os.sched_setaffinity(running.pid, {min(os.sched_getaffinity(1))} if _may_pin() else os.sched_getaffinity(0))
            follower = threading.Thread(
                target=follow if kind == "followed" else browse, args=(address, name, folder / "runs" / name, pages)
            )
            if is_followed:
                follower.start()
            assert running.stdout is not None
            said = json.loads(running.stdout.read())
        if is_followed:
            follower.join(60)
        answered = json.loads(urlopen(url.removesuffix("/v1") + "/times").read())
        return Measured(said["wall"], said["cpu"], [*ages(pages, answered)], peak_of(viewer) if is_followed else 0.0)


def _may_pin() -> bool:
    return len(os.sched_getaffinity(1)) > 1


def ages(pages: Sequence[Seen], answered: Sequence[float]) -> Iterator[float]:
    """How old what a page showed was when the next took its place: since the first answer that it did not have."""
    times = sorted(answered)
    for page, following in pairwise(pages):
        if page.documents < len(times) and times[page.documents] < following.time:
            yield following.time - times[page.documents]


@contextmanager
def viewing(folder: Path) -> Iterator[tuple[str, int]]:
    """The address of a viewer, and its process."""
    view = [sys.executable, "-m", "assay", "view", str(folder), "--port", "0"]
    server = subprocess.Popen(view, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip(), server.pid
    finally:
        server.terminate()
        server.wait(30)


def wait_for(path: Path) -> None:
    for _ in range(3000):
        if path.exists():
            return
        time.sleep(0.02)


def follow(address: str, name: str, path: Path, pages: list[Seen]) -> None:
    """Follow a run as a page does."""
    wait_for(path / "run.lock")
    text = ""
    with urlopen(f"{address}events?run={name}", timeout=60) as events:
        for line in events:
            if line.startswith(b"event: ended"):
                return
            if line.startswith(b"data: "):
                with suppress(HTTPError):  # the run has no manifest yet
                    text = urlopen(f"{address}run?run={name}", timeout=60).read().decode()
                shown = re.search(r'<progress max="\d+" value="(\d+)"', text)
                if shown is not None:
                    pages.append(Seen(time.time(), int(shown[1])))


def browse(address: str, name: str, path: Path, pages: list[Seen]) -> None:
    """Open the page in a browser until the run has ended."""
    from playwright.sync_api import sync_playwright

    wait_for(path / "manifest.json")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"{address}run?run={name}")
        page.evaluate(WATCH)
        page.wait_for_selector("main .live", state="detached", timeout=60_000)
        pages += [Seen(at, int(documents)) for at, documents in page.evaluate("window.seen")]
        browser.close()


def _nothing(*_: object) -> None:
    """Write no progress."""


def measured(url: str, folder: Path, name: str, is_written: bool) -> None:
    """The run, in this process: prints its seconds."""
    from assay import simple_evaluate
    from assay.evaluation import live as module

    if not is_written:
        module.LiveRecord.__call__ = _nothing  # type: ignore[method-assign]
    model = f"model=stub,base_url={url}/completions,num_concurrent={CONCURRENT},tokenizer_backend=none"
    before, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    done = simple_evaluate(
        "local-completions", model_args=model, tasks=["texts"], include_path=str(folder), include_defaults=False,
        output_path=str(folder / "runs" / name),
    )  # fmt: skip
    took, after = time.perf_counter() - before, resource.getrusage(resource.RUSAGE_SELF)
    assert done is not None
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    print(json.dumps({"wall": took, "cpu": cpu}))


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    measured(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "1")
