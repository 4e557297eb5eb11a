"""Reading a run for a page: what exists is shown, the rest is shown as missing."""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from assay.report.index import index_run
from assay.runs.lines import worst_tasks
from assay.runs.live import LiveFolder
from assay.runs.run import Run, find_runs
from assay.runs.validation import FORMAT
from assay.tasks.audit import audit_counts


def row(metric: str, value: float, **more: object) -> dict[str, object]:
    return {"metric": metric, "filter": "none", "value": value, "higher_is_better": metric == "acc", **more}


RESULTS: dict[str, Any] = {
    "format": FORMAT,
    "status": "incomplete",
    "config": {"model": "openai", "model_args": {"model": "m", "api_key": "sk-verysecret"}},
    "facts": {"total_evaluation_time_seconds": "12.5"},
    "usage": {"requests": 9, "failed": 0, "retries": 0, "tokens": {"in": 1, "out": 1}, "cost": 0.5},
    "tasks": {
        "a": {"alias": "a", "documents": 6, "scored": 5, "failed": 2, "is_incomplete": True, "reasons": {"timeout": 2},
              "audit": {"failed": {"count": 2}}, "num_fewshot": 3, "version": 1.0,
              "rows": [row("acc", 0.25, interval=[0.1, 0.5], n=4)]},
        "b": {"alias": "b", "documents": 6, "scored": 5, "audit": {"failed": {"count": 0}},
              "rows": [row("perplexity", 3.0, stderr=0.5, n=6)]},
        "c": {"alias": "c", "documents": 6, "scored": 5, "rows": [row("acc", 0.75, stderr=0.5, n=6)]},
    },
    "groups": {
        "g": {"alias": "The group", "members": ["a", "b"], "size": 10,
              "rows": [row("acc", 0.5, stderr=0.1, interval=[0.3, 0.7], n=10)]},
    },
}  # fmt: skip


def written(folder: Path, results: object = RESULTS, **manifest: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "samples").mkdir()
    (folder / "results.json").write_text(json.dumps(results))
    if manifest:
        (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_the_tree_is_read_as_rows_with_their_way(tmp_path: Path) -> None:
    run = Run.try_open(written(tmp_path / "one"))
    assert [(line.path, line.is_group) for line in run.lines] == [
        (("g",), True), (("g", "a"), False), (("g", "b"), False), (("c",), False),
    ]  # fmt: skip
    number = run.lines[1].numbers[0]
    assert (
        number.estimate.value,
        number.estimate.stderr,
        number.estimate.low,
        number.estimate.high,
        number.estimate.n,
    ) == (0.25, None, 0.1, 0.5, 4)
    assert (run.lines[1].documents, run.lines[1].failed, run.lines[1].incomplete, run.lines[1].shots) == (6, 2, True, 3)
    assert audit_counts(run.results)["failed"] == 2
    assert run.remarks == ["incomplete: a: 2 of 6 documents failed (2× timeout)"]


def test_the_head_has_what_a_list_of_runs_shows(tmp_path: Path) -> None:
    head = index_run(Run.try_open(written(tmp_path / "one", created=5.0, status="incomplete")))
    assert (head.name, head.model, head.tasks, head.status) == ("one", "openai m", ["g", "c"], "incomplete")
    assert head.headline is not None
    assert (head.headline.estimate.value, head.headline.estimate.low, head.headline_of) == (0.5, 0.3, "The group")
    assert (head.n, head.failed, head.cost, head.seconds, head.created) == (15, 2, 0.5, 12.5, 5.0)


def test_worst_tasks_are_shares_of_which_more_is_better(tmp_path: Path) -> None:
    run = Run.try_open(written(tmp_path / "one"))
    assert [line.name for line in worst_tasks(run.lines)] == ["a", "c"]


def test_runs_are_found_below_a_folder_and_scorings_after_their_run(tmp_path: Path) -> None:
    written(tmp_path / "deep/er/one", status="complete")
    written(tmp_path / "deep/er/one/scored/001")
    written(tmp_path / "deep/er/one/samples/no_run")
    written(tmp_path / ".hidden/two", status="complete")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert list(find_runs(tmp_path)) == ["deep/er/one", "deep/er/one/scored/001"]
    assert list(find_runs(tmp_path / "deep/er/one")) == ["one", "scored/001"]


def test_a_run_in_progress_shows_its_progress(tmp_path: Path) -> None:
    folder = written(tmp_path / "one", status="running", tasks={"a": {"size": 8}, "b": {"size": 2}})
    (folder / "results.json").unlink()
    lock = {"host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}
    (folder / "run.lock").write_text(json.dumps(lock))
    started = Run.try_open(folder)
    assert [(line.name, line.done, line.documents) for line in started.lines] == [("a", 0, 8), ("b", 0, 2)]
    LiveFolder(folder).write({"tasks": {"a": {"documents": 3, "size": 8}, "b": {"documents": 0, "size": 2}}})
    run = Run.try_open(folder)
    assert (run.status, run.answered, sum(run.sizes.values())) == ("running", 3, 10)
    assert [(line.name, line.done, line.documents) for line in run.lines] == [("a", 3, 8), ("b", 0, 2)]


def test_a_run_whose_process_died_has_stopped(tmp_path: Path) -> None:
    folder = written(tmp_path / "one", status="running")
    assert Run.try_open(folder).status == "stopped"
    (folder / "run.lock").write_text(json.dumps({"host": "elsewhere", "pid": 1, "time": time.time() - 600}))
    assert Run.try_open(folder).status == "stopped"


def test_secrets_in_the_files_of_a_run_are_not_shown(tmp_path: Path) -> None:
    reported = {
        "command": ["assay", "--model_args", "api_key=sk-verysecret"],
        "environment": {"token": "hf_verysecret"},
    }
    task = {**RESULTS["tasks"]["a"], "config": {"metadata": {"auth_token": "verysecret"}}}
    tasks = {**RESULTS["tasks"], "a": task}
    run = Run.try_open(written(tmp_path / "one", {**RESULTS, "tasks": tasks}, status="complete", **reported))
    assert "verysecret" not in repr((run.provenance, index_run(run), run.config("a")))


@pytest.mark.parametrize("content", [b"", b"[]", b'{"tasks": 3}', b'{"tasks": {"a": 1}}', b"\xff\xfe", b'{"a"'])
def test_a_damaged_run_is_listed_as_unreadable(tmp_path: Path, content: bytes) -> None:
    folder = written(tmp_path / "one")
    (folder / "results.json").write_bytes(content)
    run = Run.try_open(folder)
    assert run.status == "unreadable"
    assert run.lines == []
