"""A run in progress, seen by another process: provisional numbers, newest samples, failures, events."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

from assay.report.reading import RunSummary
from assay.runs.live import LIVE, newest_samples, read_progress
from assay.runs.samples.reader import SampleFile
from viewer_world import fetched, serving, write_tasks

RUN = """
import time
from assay import simple_evaluate
from assay.models import Scripted

def generate(prompt, params, repeat):
    time.sleep(0.12)
    a = int(prompt.rpartition("\\n\\n")[2].split(" + ")[0])
    if a == 2:
        raise ValueError("no answer, api_key=sk-verysecretverysecret")
    return f" {{a + (3 if a % 5 == 0 else 1)}}"

model = Scripted(generate=generate, loglikelihood=lambda context, continuation: (-1.0, False), identity="slow")
simple_evaluate(model, tasks=["quiz"], include_path={tasks!r}, include_defaults=False, output_path={out!r}, max_failed=1.0)
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a run that takes some seconds."""
    folder = tmp_path_factory.mktemp("live")
    out = folder / "runs/slow"
    (folder / "runs").mkdir()
    script = RUN.format(tasks=str(write_tasks(folder / "tasks")), out=str(out))
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: sum(each["documents"] for each in read_progress(out).get("tasks", {}).values()) >= 10)
        yield out
    finally:
        process.wait(timeout=60)
    assert not (out / LIVE).exists()  # nothing of it is left
    assert (out / "results.json").is_file()


def until(is_so: object, seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.process
def test_a_run_in_progress_is_shown_as_it_goes(running: Path) -> None:
    with serving(running.parent) as at:
        seen: list[float] = []
        ended = threading.Event()

        def listen() -> None:
            with urlopen(f"{at}/events?run=slow", timeout=60) as events:
                for line in events:
                    if line.startswith(b"event: changed"):
                        seen.append(time.monotonic())
                    if line.startswith(b"event: ended"):
                        ended.set()
                        return

        page = threading.Thread(target=listen)
        page.start()
        _numbers_are_those_of_the_samples_so_far(running)
        status, text, _ = fetched(at, "/run", run="slow")
        assert status == 200
        for word in (
            "provisional",
            "requests/s",
            " left",
            "1 failed",
            "no answer",
            "running",
            "quiz",
            "seeing",
            "colours",
        ):
            assert word in text, word
        assert "verysecret" not in text
        status, text, _ = fetched(at, "/task", run="slow", task="sums")
        assert status == 200 and "In progress: the newest" in text and "provisional" in text
        newest = max(int(doc) for doc in re.findall(r"doc=(\d+)", text))  # on a busy machine the first are not kept
        status, sample, _ = fetched(at, "/sample", run="slow", task="sums", doc=str(newest))
        assert status == 200 and f"{newest} + 1 =" in sample
        assert "time left unknown" not in text
        assert 'http-equiv="refresh"' in text  # without JavaScript
        assert "provisional" in fetched(at, "/")[1]
        assert ended.wait(60)
        page.join(10)
        gaps = np.diff(seen)
        assert len(seen) >= 3 and np.median(gaps) < 2.0
        assert "complete" in fetched(at, "/run", run="slow")[1]


def _numbers_are_those_of_the_samples_so_far(out: Path) -> None:
    """The model is wrong at every 5th sum and fails at the third, which gives the mean of the first so many documents."""
    until(lambda: read_progress(out)["tasks"]["sums"]["numbers"])
    record = read_progress(out)["tasks"]["sums"]
    path = newest_samples(out, "sums")
    assert path is not None
    rows = list(SampleFile(path).rows())
    assert all(row.failed or row.scores["exact_match,strict"] == (row.doc_id % 5 != 0) for row in rows)
    scores = [a % 5 != 0 for a in range(record["documents"]) if a != 2]
    [strict] = [each for each in record["numbers"] if each["filter"] == "strict"]
    assert strict["value"] == pytest.approx(np.mean(scores))
    assert strict["interval"][0] < strict["value"] <= strict["interval"][1] and strict["n"] == len(scores)
    assert [row.doc_id for row in rows] == list(range(rows[0].doc_id, rows[0].doc_id + len(rows)))
    assert (record["failures"], record["size"]) == (1, 60)
    [reason] = record["reasons"]
    assert "no answer" in reason and "verysecret" not in reason
    summary = RunSummary(out)
    assert [line.name for line in summary.lines] == ["quiz", "quiz::seeing", "colours", "sums"]
    group = summary.lines[0]
    assert group.documents == 80 and group.done == summary.live.documents


def test_a_progress_record_that_is_damaged_or_of_a_later_version_is_ignored(tmp_path: Path) -> None:
    (tmp_path / LIVE).mkdir()
    for text in ("", "[]", '{"format": 99}', '{"format": 1', "\x00"):
        (tmp_path / LIVE / "progress.json").write_text(text)
        assert read_progress(tmp_path) == {}


@pytest.mark.process
def test_a_server_with_an_open_page_stops_at_once(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    manifest = '{"format": 1, "status": "running", "spec": {}, "tasks": {"a": {"size": 3}}}'
    (tmp_path / "run/manifest.json").write_text(manifest)
    lock = {"host": os.uname().nodename, "pid": os.getpid(), "time": time.time(), "documents": {}}
    (tmp_path / "run/run.lock").write_text(str(lock).replace("'", '"'))
    with serving(tmp_path) as at:
        events = urlopen(f"{at}/events?run=run", timeout=20)
        assert events.readline() == b"retry: 2000\n"
        started = time.monotonic()
    assert time.monotonic() - started < 5
    assert b"ended" not in events.read()
