"""Many runs in the viewer: the index in their folder, the list, runs × tasks, a number over time, two numbers."""

import csv
import io
import json
import math
import os
import resource
import shutil
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.cli import main
from assay.report.index import FEW_RUNS, FORMAT, INDEX, MIN_RUNS, RunIndex
from assay.results import Results, Row, TaskEntry
from assay.runs.folder import write_json
from assay.runs.results_json import encode
from assay.score_keys import ScoreKey
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.intervals import interval, with_interval
from assay.version import __version__
from assay.viewer.matrix import best_runs, is_clearly_better
from viewer_world import read_pages

DAY = 86400.0
START = time.mktime((2026, 3, 1, 12, 0, 0, 0, 0, -1))


def write_run(folder: Path, shares: dict[str, float], *, model: str = "m", day: int = 0, n: int = 100,
              metrics: tuple[str, ...] = ("acc", "loss")) -> None:  # fmt: skip
    """A finished run with these shares of right answers."""
    tasks = {}
    for task, share in shares.items():
        row = Estimate(share, math.sqrt(share * (1 - share) / n), n, evidence=Evidence(is_rate=True))
        rows = {ScoreKey("acc", "none"): row, ScoreKey("loss", "none"): Estimate(1 - share, 0.01, n)}
        rows = {key: each for key, each in rows.items() if key.metric in metrics}
        better = {"acc": True, "loss": False}
        written = [
            Row(task, key.metric, key.filter, with_interval(number), higher_is_better=better[key.metric])
            for key, number in rows.items()
        ]
        tasks[task] = TaskEntry(
            task, task, written, n, n, original=n, directions=better, num_fewshot=0, version=1.0, config={"task": task}
        )
    about = {"config": {"model": model, "model_args": {}}, "facts": {"total_evaluation_time_seconds": "1"}}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "results.json", encode(Results(tasks, **about)))
    listed = {task: {"size": n, "repeats": 1, "source": f"data of {task}"} for task in shares}
    noted = {"created": START + day * DAY, "status": "complete", "tasks": listed, "model": {"name": model}}
    write_json(folder / "manifest.json", {"format": 3, **noted})
    old = time.time() - 10
    for each in (*folder.iterdir(), folder):
        os.utime(each, (old, old))  # files of just now are read again, as they may have changed


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for number in range(MIN_RUNS + 5):
        write_run(
            tmp_path / f"group/run-{number:02}", {"a": number / 100, "b": 0.5}, model=f"model-{number % 2}", day=number
        )
    return tmp_path


def page(folder: Path, path: str) -> str:
    [answer] = read_pages(folder, [path]).values()
    assert answer.status_code == 200, answer.text[-600:]
    return answer.text


def test_the_index_lists_every_run_without_opening_it_again(runs: Path) -> None:
    assert len(RunIndex(runs).refresh()) == MIN_RUNS + 5
    assert (runs / INDEX).is_file()
    opened: list[str] = []

    def read(path: Path, name: str) -> object:
        opened.append(name)
        raise AssertionError(name)

    entries = RunIndex(runs, read).refresh()  # type: ignore[arg-type]
    assert not opened
    assert len(entries) == MIN_RUNS + 5
    head = entries["group/run-07"]
    assert (head.headline.estimate.value, head.headline.estimate.n, head.model, head.tasks) == (
        0.07,
        100,
        "model-1",
        ["a", "b"],
    )


def test_a_run_counts_over_its_entry_in_the_index(runs: Path) -> None:
    RunIndex(runs).refresh()
    write_run(runs / "group/run-03", {"a": 0.93}, day=3)  # in place, by the same names
    content = (runs / "group/run-04/results.json").read_text()
    with (runs / "group/run-04/results.json").open(
        "r+"
    ) as file:  # written over, not replaced: the folder has its old time
        file.write(content.replace("0.04", "0.94"))
    shutil.rmtree(runs / "group/run-05")
    (runs / "group/run-08").rename(runs / "group/renamed")
    write_run(runs / "new", {"a": 0.5})
    (runs / "group/run-06/results.json").write_text("{")
    entries = RunIndex(runs).refresh()
    assert entries["group/run-03"].headline.estimate.value == 0.93
    assert entries["group/run-04"].headline.estimate.value == 0.94 or entries["group/run-04"].problem
    assert "group/run-05" not in entries and "group/run-08" not in entries
    assert "new" in entries and entries["group/renamed"].headline.estimate.value == 0.08
    assert "not JSON" in entries["group/run-06"].problem
    again = RunIndex(runs).refresh()
    assert {name: each.headline for name, each in again.items()} == {n: each.headline for n, each in entries.items()}


@pytest.mark.parametrize(
    "damage",
    ["", "{}", "[]", "7", "no json", '{"format": 1}\n[]', "cut", f'{{"format": {FORMAT}, "version": "{__version__}", "bytes": 1e99}}',
     f'{{"format": {FORMAT}, "version": "{__version__}", "bytes": {10**18}, "crc32": 0}}\n[]',
     f'{{"format": {FORMAT}, "version": "{__version__}", "bytes": -1, "crc32": 0}}\n[]'],
)  # fmt: skip
def test_a_damaged_index_is_rebuilt(runs: Path, damage: str) -> None:
    RunIndex(runs).refresh()
    whole = (runs / INDEX).read_bytes()
    (runs / INDEX).write_bytes(whole[: len(whole) // 3] if damage == "cut" else damage.encode())
    assert len(RunIndex(runs).refresh()) == MIN_RUNS + 5
    assert (runs / INDEX).read_bytes()[:10] == whole[:10]


MANY_RUNS_PAGES = ("/", "/matrix", "/trend.json?task=a")


def test_whatever_byte_of_the_index_is_damaged_every_page_has_the_numbers_of_the_runs(runs: Path) -> None:
    RunIndex(runs).refresh()
    whole = (runs / INDEX).read_bytes()
    expected = {path: page(runs, path) for path in MANY_RUNS_PAGES}
    rows = whole.index(b"\n") + 1 + json.loads(whole.partition(b"\n")[0])["bytes"]
    damages = {
        at: whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in (1, 30, 90, 2000, rows, rows + 400)
    }
    for at, damaged in {**damages, "cut": whole[: rows + 300], "cut at its end": whole[:-1]}.items():
        for path in MANY_RUNS_PAGES:
            (runs / INDEX).write_bytes(damaged)
            assert page(runs, path) == expected[path], (at, path)


def with_rows(index: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """An index with other rows of its last run, and all checksums right."""
    first, _, rest = index.partition(b"\n")
    about = json.loads(first)
    listed, blobs = json.loads(rest[: about["bytes"]]), rest[about["bytes"] :]
    last = listed[-1]
    packed = change(zlib.decompress(blobs[last[3] : last[3] + last[4]]))
    last[4:] = [len(packed), zlib.crc32(packed)]
    entries = json.dumps(listed).encode()
    head = json.dumps({**about, "bytes": len(entries), "crc32": zlib.crc32(entries)}).encode()
    return head + b"\n" + entries + blobs[: last[3]] + packed


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: zlib.compress(b" " * (1 << 27) + rows, 9), lambda rows: b"no zlib", lambda rows: zlib.compress(rows)[:-9],
        lambda rows: zlib.compress(b"{"), lambda rows: zlib.compress(b"[[1]]"), lambda rows: zlib.compress(b"7"), lambda rows: b"",
    ],
    ids=["a bomb", "no zlib", "cut", "no JSON", "a short row", "a number", "nothing"],
)  # fmt: skip
def test_rows_of_an_index_that_cannot_be_read_are_read_from_the_run_in_bounded_memory(
    runs: Path, change: Callable[[bytes], bytes]
) -> None:
    RunIndex(runs).refresh()
    whole = (runs / INDEX).read_bytes()
    expected = page(runs, "/matrix.csv")
    (runs / INDEX).write_bytes(with_rows(whole, zlib.compress))
    assert page(runs, "/matrix.csv") == expected  # the helper of this test writes a valid index
    (runs / INDEX).write_bytes(with_rows(whole, change))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert page(runs, "/matrix.csv") == expected
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB; the bomb has 134 MB


def test_a_folder_that_cannot_be_written_has_its_index_in_the_cache(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(runs.parent / "cache"))
    (runs / INDEX).mkdir()  # nothing can be moved there: root may write into any folder
    assert len(RunIndex(runs).refresh()) == MIN_RUNS + 5
    [kept] = (runs.parent / "cache/indexes").iterdir()
    assert kept.stat().st_size > 1000
    assert len(RunIndex(runs).refresh()) == MIN_RUNS + 5


def test_two_readers_at_once_leave_a_whole_index(runs: Path) -> None:
    counts: list[int] = []

    def read() -> None:
        index = RunIndex(runs)
        counts.append(len(index.refresh()))
        index.save()

    threads = [threading.Thread(target=read) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert counts == [MIN_RUNS + 5] * 6
    assert not list(runs.glob("*.part")) and not list(runs.glob(".*.part"))
    assert len(RunIndex(runs).refresh()) == MIN_RUNS + 5


def test_few_runs_leave_no_file_in_the_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "one", {"a": 0.5})
    assert len(RunIndex(tmp_path).refresh()) == 1
    assert not (tmp_path / INDEX).exists()


def test_some_runs_are_listed_at_once_however_busy_the_machine_is(runs: Path) -> None:
    index = RunIndex(runs)
    assert len(index.refresh(0.0)) == MIN_RUNS + 5
    assert index.pending == 0


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """More runs than are read at once."""
    for number in range(FEW_RUNS + 5):
        write_run(tmp_path / f"run-{number:03}", {"a": 0.5}, day=number)
    return tmp_path


def test_many_runs_are_read_in_steps(many: Path) -> None:
    index = RunIndex(many)
    assert (len(index.refresh(0.0)), index.pending) == (FEW_RUNS, 5)
    assert (len(index.refresh(0.0)), index.pending) == (FEW_RUNS + 5, 0)


def test_a_page_says_that_runs_are_missing_and_a_file_for_programs_has_them_all(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.viewer.library.FIRST_SECONDS", 0.0)
    monkeypatch.setattr("assay.viewer.library.RunLibrary._read_rest", lambda library: None)
    assert "5 more runs are being read" in page(many, "/")
    for path, count in (("/runs.json", lambda text: json.loads(text)["count"]),
                        ("/matrix.json", lambda text: len(json.loads(text)["numbers"])),
                        ("/matrix.csv", lambda text: text.count("\n") - 1),
                        ("/trend.csv?task=a", lambda text: text.count("\n") - 1)):  # fmt: skip
        (many / INDEX).unlink(missing_ok=True)
        assert count(page(many, path)) == FEW_RUNS + 5, path


def test_the_command_lists_the_same_with_and_without_an_index(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "group/run-09/results.json").write_text("{")
    assert main(["runs", "--runs_dir", str(runs / "group")]) == 0
    first = capsys.readouterr()
    assert (runs / "group" / INDEX).is_file()
    assert main(["runs", "--runs_dir", str(runs / "group")]) == 0
    again = capsys.readouterr()
    assert (first.out, first.err) == (again.out, again.err)
    assert "run-24" in first.out
    assert "run-09" in first.err


def test_runs_are_filtered_by_model_task_date_and_tag(runs: Path) -> None:
    write_run(runs / "other", {"c": 0.5}, model="big", day=100)
    write_json(runs / "other/notes.json", {"tags": ["paper", "<b>"], "note": "the last"})
    for query, expected in (
        ("model=big", {"other"}),
        ("tag=paper", {"other"}),
        ("task=c", {"other"}),
        ("q=paper", {"other"}),
        ("since=2026-03-24&until=2026-03-25", {"group/run-23", "group/run-24"}),
        ("since=never&model=model-1&until=2026-03-02", {"group/run-01"}),
        ("tag=none", set()),
    ):
        data = json.loads(page(runs, f"/matrix.json?{query}"))
        assert {run["run"] for run in data["runs"]} == expected, query
    text = page(runs, "/?tag=paper")
    assert "&lt;b&gt;" in text and "run-03" not in text


def rate(right: int, n: int, higher: bool = True) -> Row:
    share = right / n
    low, high = interval(Estimate(share, math.sqrt(share * (1 - share) / n), n, evidence=Evidence(is_rate=True)))  # type: ignore[misc]
    return Row("t", "acc", "none", Estimate(share, None, n, interval=(low, high)), higher_is_better=higher)


def test_ties_are_decided_by_intervals_not_by_digits() -> None:
    # Newcombe's example (Statistics in Medicine 17, 1998, table II a): 56/70 against 48/80, the difference 0.2 has 0.0524 … 0.3339
    a, b = rate(56, 70), rate(48, 80)
    one, other = a.estimate, b.estimate
    distance = math.hypot(one.value - one.low, other.high - other.value)  # type: ignore[operator]
    assert math.isclose(one.value - other.value - distance, 0.0524, abs_tol=0.006)  # type: ignore[operator]
    assert is_clearly_better(a, b)
    assert not is_clearly_better(b, a)
    assert best_runs({"a": a, "b": b, "c": rate(52, 70)}) == {"a", "c"}
    lower = {name: rate(right, 1000, higher=False) for name, right in (("a", 100), ("b", 105), ("c", 300))}
    assert best_runs(lower) == {"a", "b"}
    assert best_runs({"a": a}) == frozenset()


def test_the_matrix_has_every_number_with_its_interval_and_the_best(runs: Path) -> None:
    data = list(csv.DictReader(io.StringIO(page(runs, "/matrix.csv?sort=a|acc,none"))))
    own = [row for row in data if row["task"] == "a"]
    assert [float(row["value"]) for row in own] == [number / 100 for number in range(MIN_RUNS + 4, -1, -1)]
    assert {row["metric"] for row in data} == {"acc"}  # the main one; others by name
    best = {row["run"] for row in own if row["best"] == "True"}
    assert "group/run-24" in best and "group/run-20" in best and "group/run-05" not in best
    assert all(row["best"] == "True" for row in data if row["task"] == "b")
    loss = json.loads(page(runs, "/matrix.json?metric=loss&task=a"))["numbers"]
    assert {row["metric"] for row in loss} == {"loss"}
    text = page(runs, "/matrix?by=tasks&run=group/run-01&run=group/run-24")
    assert text.count("<b>0.2400</b>") == 1 and "<b>0.0100</b>" not in text
    assert page(runs, "/matrix?by=runs").count('<th scope="row"') == MIN_RUNS + 5
    assert page(runs, "/matrix.svg").startswith("<svg xmlns")


def test_a_row_that_is_the_main_one_of_one_run_is_shown_of_every_run(runs: Path) -> None:
    write_run(runs / "other", {"a": 0.5}, metrics=("loss",))
    shown = json.loads(page(runs, "/matrix.json?task=a"))["numbers"]
    loss = {row["run"]: row["value"] for row in shown if row["metric"] == "loss"}
    assert loss["other"] == 0.5 and loss["group/run-02"] == 0.98


def test_of_many_runs_the_latest_are_offered_to_be_compared_and_others_can_be_typed(tmp_path: Path) -> None:
    for number in range(201):
        write_run(tmp_path / f"run-{number:03}", {"a": 0.5}, day=number)
    RunIndex(tmp_path).refresh()
    text = page(tmp_path, "/compare?run=run-000")
    assert "<select" not in text and text.count("<option") == 200
    assert '<option value="run-200">' in text and '<option value="run-000">' not in text
    assert 'value="run-000"' in text
    shutil.rmtree(tmp_path / "run-100")
    assert page(tmp_path, "/compare").count("<option") == 2 * 200


def test_other_documents_are_marked(runs: Path) -> None:
    manifest = runs / "group/run-02/manifest.json"
    manifest.write_text(manifest.read_text().replace("data of a", "data of others"))
    marked = {
        (row["run"], row["task"]) for row in json.loads(page(runs, "/matrix.json"))["numbers"] if row["other_documents"]
    }
    assert marked == {("group/run-02", "a")}
    assert "†" in page(runs, "/matrix")


def test_a_number_is_drawn_over_dates_and_over_training_steps(runs: Path) -> None:
    by_date = json.loads(page(runs, "/trend.json?task=a&metric=acc"))
    assert by_date["over"] == "date"
    assert [each["value"] for each in by_date["points"] if each["model"] == "model-0"] == [
        n / 100 for n in range(0, 25, 2)
    ]
    for step in (100, 2000, 300):
        write_run(runs / f"train/step-{step}", {"a": step / 4000}, model=f"checkpoint {step}")
    by_step = json.loads(page(runs, "/trend.json?row=a|acc,none&q=train"))
    assert by_step["over"] == "step"
    assert {each["at"]: each["value"] for each in by_step["points"]} == {100: 0.025, 300: 0.075, 2000: 0.5}
    assert "training step" in page(runs, "/trend.svg?task=a&q=train")
    assert "model-1" in page(runs, "/trend?task=a") and "No run has" in page(runs, "/trend?task=zzz")


def test_two_numbers_of_each_run_are_drawn_against_each_other(runs: Path) -> None:
    data = json.loads(page(runs, "/scatter.json?x=a&y=b|loss,none"))
    assert [(row["task"], row["metric"]) for row in data["rows"]] == [("a", "acc"), ("b", "loss")]
    assert {each["run"]: (each["x"], each["y"]) for each in data["points"]}["group/run-11"] == (0.11, 0.5)
    assert (
        page(runs, "/scatter.svg?x=a&y=b").count("<circle") + page(runs, "/scatter.svg?x=a&y=b").count("<polygon") >= 25
    )
    assert "group/run-11" in page(runs, "/scatter")


def test_a_list_of_many_runs_has_pages(tmp_path: Path) -> None:
    for number in range(205):
        write_run(tmp_path / f"run-{number:03}", {"a": 0.5}, day=number)
    RunIndex(tmp_path).refresh()
    first, second = page(tmp_path, "/"), page(tmp_path, "/?page=2")
    assert "run-204" in first and "run-004" not in first
    assert "run-004" in second and "page 2 of 2" in second
