"""A disk that is full: each command that writes says so, leaves what was there, and nothing half written."""

import json
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import run_world
from assay import TaskManager
from assay.cli import main
from assay.cli.tasks import fetch
from run_world import RecordingModel

SMALL = 250
"""Bytes of the largest file that can be written: enough for a line, and not for what any of the commands writes."""


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size: the system then writes a part, and reports an error, as on a full disk.

    Nor is a module that is imported meanwhile kept in compiled form: Python 3.11 leaves the half of it for all later processes.
    """
    is_read_only, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
        sys.dont_write_bytecode = is_read_only


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, an archive of one, files of lm-eval and a log of Inspect, tasks, and a task with the data of another file."""
    folder = tmp_path_factory.mktemp("full")
    tasks = folder / "tasks"
    tasks.mkdir()
    for name, text in run_world.FILES.items():
        (tasks / name).write_text(text)
    data = [{"q": f"question {number}", "a": "x" * 40} for number in range(60)]
    (tasks / "far.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
    (tasks / "far.yaml").write_text(
        "task: far\ndataset_path: json\ndataset_kwargs: {data_files: {test: far.jsonl}}\ntest_split: test\n"
        "doc_to_text: q\ndoc_to_target: a\nmetric_list: [{metric: exact_match}]\n"
    )
    run_world.run(RecordingModel(), tasks, folder / "one")
    run_world.run(RecordingModel(), tasks, folder / "two", limit=3)
    assert main(["pack", str(folder / "one"), "-o", str(folder / "one.zip")]) == 0
    for name in ("lm-eval", "inspect"):
        assert main(["export", str(folder / "one"), "--to", name, "-o", str(folder / name)]) == 0
    return folder


COMMANDS = {
    "export to lm-eval": "export one --to lm-eval -o OUT", "export to inspect": "export one --to inspect -o OUT",
    "export to parquet": "export one --to parquet -o OUT", "pack": "pack one -o OUT/run.zip",
    "pack without golds": "pack one --no_gold -o OUT/run.zip", "baseline": "pack one --baseline -o OUT/base.zip",
    "report as a page": "report one -o OUT/report.html", "report as markdown": "report one -o OUT/report.md",
    "report as json": "report one two -o OUT/report.json", "plot": "plot one -o OUT/plot.svg", "import an archive": "import one.zip -o OUT/run",
    "import lm-eval's files": "import lm-eval -o OUT/run", "import a log": "import inspect -o OUT/run",
    "score": "score one --include_path tasks --filter last=regex:(.)$ -o OUT/run", "gate for CI": "gate one acc>=0.1 --junit OUT/junit.xml",
    "new": "new task thing --dir OUT",
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_full_disk_is_reported_and_nothing_half_written_is_left(
    command: str, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(world)
    out = tmp_path / "out"
    out.mkdir()
    arguments = [word.replace("OUT", str(out)) for word in command.split()]
    before = set(world.rglob("*"))
    with largest_file(SMALL):
        code = main(arguments)
    said = capsys.readouterr().err
    assert (code, "File too large" in said, "Traceback" in said) == (2, True, False), said
    assert [
        path for path in out.rglob("*") if path.is_file() and (".part" in str(path) or path.stat().st_size >= SMALL)
    ] == []
    assert set(world.rglob("*")) == before
    assert main(arguments) in (0, 1), capsys.readouterr().err  # and it works where there is room
    assert [path for path in out.rglob("*") if path.is_file() and ".part" in str(path)] == []


@pytest.mark.usefixtures(
    "capsys"
)  # a stream in memory: after an error of the disk nothing more goes to a descriptor, here pytest's
def test_a_file_that_was_there_stays_whole_when_its_new_content_has_no_room(world: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("the report of before")
    with largest_file(SMALL):
        assert main(["report", str(world / "one"), "-o", str(target)]) == 2
    assert target.read_text() == "the report of before"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_data_set_without_room_leaves_no_part_of_a_split(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world / "tasks")
    config = TaskManager(include_path=world / "tasks", include_defaults=False).load(["far"])["tasks"]["far"].config
    with largest_file(SMALL), pytest.raises(OSError, match="File too large"):
        fetch(config, tmp_path / "data")
    assert [path for path in tmp_path.rglob("*") if path.is_file() and "cache" not in path.parts] == []
    [(path, count)] = fetch(config, tmp_path / "data")
    assert (path.name, count) == ("test.jsonl", 60)
