"""A run in progress, seen by another process: provisional numbers, newest samples, failures, events."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import httpx
import numpy as np
import pytest

from assay import simple_evaluate
from assay.records import FilterScores, Generate, Sample
from assay.runs.lease import is_held
from assay.runs.live import LIVE, newest_samples, read_progress
from assay.runs.run import Run
from assay.runs.samples.reader import SampleFile, sample_file
from assay.runs.samples.records import SampleRecord
from assay.runs.samples.writer import SampleWriter
from assay.score_keys import ScoreKey
from assay.viewer.app import make_app
from assay.viewer.events import MAX_STREAMS
from viewer_world import SUMS, fetched, model, serving, write_tasks

RUN = """
import time
from pathlib import Path
from assay import simple_evaluate
from assay.models import Scripted

go = Path({go!r})
until = time.monotonic() + 60

def generate(prompt, params, repeat):
    a = int(prompt.rpartition("\\n\\n")[2].split(" + ")[0])
    if not go.exists():
        time.sleep(0.12 if a < 15 else 0.6)  # a line of progress a second, as long as somebody looks
    while a == {last} and not go.exists() and time.monotonic() < until:
        time.sleep(0.02)
    if a == 2:
        raise ValueError("no answer, api_key=sk-verysecretverysecret")
    return f" {{a + (3 if a % 5 == 0 else 1)}}"

model = Scripted(generate=generate, loglikelihood=lambda context, continuation: (-1.0, False), identity="slow")
simple_evaluate(model, tasks=["quiz"], include_path={tasks!r}, include_defaults=False, output_path={out!r}, max_failed=1.0)
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a run that goes on until there is a file `go` beside it."""
    folder = tmp_path_factory.mktemp("live")
    out = folder / "runs/slow"
    (folder / "runs").mkdir()
    script = RUN.format(tasks=str(write_tasks(folder / "tasks")), out=str(out), go=str(folder / "go"), last=SUMS - 1)
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: sum(each["documents"] for each in read_progress(out).get("tasks", {}).values()) >= 10)
        yield out
    finally:
        (folder / "go").touch()
        process.wait(timeout=60)
    assert not (out / LIVE).exists()  # nothing of it is left
    assert (out / "results.json").is_file()


def until(is_so: object, seconds: float = 120.0) -> None:
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
        until(lambda: len(seen) >= 3)  # an event for each record of progress
        assert not ended.is_set()
        (running.parent.parent / "go").touch()
        assert ended.wait(60)
        page.join(10)
        assert "complete" in fetched(at, "/run", run="slow")[1]


def _numbers_are_those_of_the_samples_so_far(out: Path) -> None:
    """The model is wrong at every 5th sum and fails at the third, which gives the mean of the first so many documents."""
    until(lambda: read_progress(out)["tasks"]["sums"]["numbers"])
    record = read_progress(out)["tasks"]["sums"]
    path = newest_samples(out, "sums")
    assert path is not None
    rows = list(SampleFile(path).rows())
    assert all(row.failed or row.scores[ScoreKey("exact_match", "strict")] == (row.doc_id % 5 != 0) for row in rows)
    scores = [a % 5 != 0 for a in range(record["documents"]) if a != 2]
    [strict] = [each for each in record["numbers"] if each["filter"] == "strict"]
    assert strict["value"] == pytest.approx(np.mean(scores))
    assert strict["interval"][0] < strict["value"] <= strict["interval"][1] and strict["n"] == len(scores)
    assert [row.doc_id for row in rows] == list(range(rows[0].doc_id, rows[0].doc_id + len(rows)))
    assert (record["failures"], record["size"]) == (1, 60)
    [reason] = record["reasons"]
    assert "no answer" in reason and "verysecret" not in reason
    summary = Run.try_open(out)
    assert [line.name for line in summary.lines] == ["quiz", "quiz::seeing", "colours", "sums"]
    group = summary.lines[0]
    assert group.documents == 80 and group.done == summary.live.documents


REWRITE = """
import shutil, sys
sys.path.insert(0, {tests!r})
from viewer_world import model
from assay import simple_evaluate

for number in range({times}):
    if number % 4 == 3:
        shutil.rmtree({out!r})
    simple_evaluate(model(lambda a: a % 5 == 0), tasks=["quiz"], include_path={tasks!r}, include_defaults=False, output_path={out!r})
"""
PAGES = (
    "/", "/runs.json", "/matrix.json", "/run?run=one", "/run.json?run=one", "/task?run=one&task=colours", "/compare?run=one&run=two",
    "/task?run=one&task=sums&show=wrong", "/task?run=one&task=colours&q=green", "/sample?run=one&task=sums&doc=5",
    "/samples.csv?run=one&task=sums", "/task.json?run=one&task=sums", "/flips?run=one&run=two&task=sums",
)  # fmt: skip


@pytest.mark.process
def test_no_page_fails_while_its_run_is_written_removed_and_written_again(tmp_path: Path) -> None:
    """A process writes the run over and over, and many pages are read meanwhile: each is whole, or there is no such run yet."""
    tasks, runs = write_tasks(tmp_path / "tasks"), tmp_path / "runs"
    options = {"tasks": ["quiz"], "include_path": str(tasks), "include_defaults": False}
    simple_evaluate(model(lambda a: a % 5 == 1), output_path=str(runs / "two"), **options)
    script = REWRITE.format(tests=str(Path(__file__).parent), times=13, out=str(runs / "one"), tasks=str(tasks))
    writer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    statuses: Counter[int] = Counter()
    failures: set[str] = set()

    async def read(client: httpx.AsyncClient, number: int) -> None:
        while writer.poll() is None:
            page = PAGES[number % len(PAGES)]
            answer = await client.get(page)
            statuses[answer.status_code] += 1
            notice = re.findall(r'"notice bad">(.*?)<', answer.text)
            if answer.status_code not in (200, 404) or "damaged" in answer.text or "cannot be read" in answer.text:
                failures.add(f"{page}: {answer.status_code} {notice or answer.text[-200:]}")
            number += 1

    async def read_all() -> None:
        transport = httpx.ASGITransport(make_app(runs), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
            await asyncio.gather(*(read(client, 4 * number) for number in range(3)))

    try:
        asyncio.run(read_all())
    finally:
        said = writer.communicate(timeout=60)[1]
    assert writer.returncode == 0, said
    assert failures == set()
    assert statuses[200] > 20


@pytest.mark.process
def test_a_run_at_work_is_never_seen_as_stopped(tmp_path: Path) -> None:
    """Its beats are of different lengths, and are written into the file that is locked."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom assay.runs.lease import Lease\n"
        "lease = Lease(Path(sys.argv[1]))\nprint('held', flush=True)\n"
        "for number in range(200_000):\n    lease.beat({'t' * 40: 10 ** 30} if number % 2 else {})\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    try:
        assert writer.stdout.readline() == "held\n"
        seen = [is_held(tmp_path) for _ in range(4000) if writer.poll() is None]
    finally:
        writer.kill()
        writer.communicate(timeout=20)
    assert len(seen) > 100
    assert all(seen)


def test_samples_are_whole_when_their_checksum_is_there(tmp_path: Path) -> None:
    """The end of a Parquet file is written before its checksum: a page between the two would take it for damaged."""
    writer = SampleWriter(tmp_path / "samples", "t")
    writer.add(
        SampleRecord(Sample(0, {}, [Generate("q", {})], "a", "a"), [["a"]], [FilterScores("none", ["a"], {"m": 1.0})])
    )
    writer.end()
    part = tmp_path / "samples/t.parquet.part"
    whole = part.read_bytes()
    assert sample_file(tmp_path, "t") == part
    at = whole.rindex(b"crc32:") + len(b"crc32:")
    part.write_bytes(whole[:at] + b"00000000" + whole[at + 8 :])
    assert sample_file(tmp_path, "t") is None
    part.write_bytes(whole)
    writer.place()
    assert sample_file(tmp_path, "t") == tmp_path / "samples/t.parquet"


def test_so_many_streams_are_open_and_no_more_however_fast_they_are_asked_for(tmp_path: Path) -> None:
    """400 at once, before any of them has sent a byte."""
    statuses: Counter[int] = Counter()
    app = make_app(tmp_path)

    async def ask(is_over: asyncio.Event) -> None:
        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses[message["status"]] += 1

        async def receive() -> MutableMapping[str, Any]:
            await is_over.wait()
            return {"type": "http.disconnect"}

        scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "GET",
                 "path": "/events", "raw_path": b"/events", "query_string": b"run=x", "headers": [(b"host", b"127.0.0.1")],
                 "scheme": "http", "server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2), "root_path": ""}  # fmt: skip
        await app(scope, receive, send)

    async def ask_all(count: int) -> None:
        is_over = asyncio.Event()
        asked = [asyncio.create_task(ask(is_over)) for _ in range(count)]
        while sum(statuses.values()) < count:
            await asyncio.sleep(0.01)
        is_over.set()
        await asyncio.gather(*asked)

    lock = {"host": os.uname().nodename, "pid": os.getpid(), "time": time.time()}
    (tmp_path / "x").mkdir()
    (tmp_path / "x/manifest.json").write_text('{"format": 1, "status": "running", "spec": {}, "tasks": {}}')
    (tmp_path / "x/run.lock").write_text(json.dumps(lock))

    async def main() -> None:
        await ask_all(2 * MAX_STREAMS)
        assert statuses == {200: MAX_STREAMS, 503: MAX_STREAMS}
        await ask_all(5)  # the others were closed, and their places are free
        assert statuses[200] == MAX_STREAMS + 5

    asyncio.run(main())


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
    lock = {"host": os.uname().nodename, "pid": os.getpid(), "time": time.time()}
    (tmp_path / "run/run.lock").write_text(str(lock).replace("'", '"'))
    with serving(tmp_path) as at:  # which waits 20 seconds for its end; the stream would go on for ever
        events = urlopen(f"{at}/events?run=run", timeout=60)
        assert events.readline() == b"retry: 2000\n"
    assert b"ended" not in events.read()
