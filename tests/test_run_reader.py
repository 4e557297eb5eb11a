"""One reader of a run folder: whatever made it, and whatever state it is in."""

import ast
import json
import os
import shutil
import socket
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import run_world
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.records import Failed, Text
from assay.runs.folder import NoRun, OtherFormat, RunError
from assay.runs.journal import NAME as JOURNAL
from assay.runs.journal import header, sealed
from assay.runs.live import LiveFolder
from assay.runs.run import Run, find_runs, finished_run, runs_in
from assay.runs.validation import FORMAT
from assay.samples.rows import DataError
from assay.score_keys import ScoreKey
from assay.tasks.documents import read_run
from run_world import RecordingModel

ROOT = Path(__file__).parent.parent
G_ROW = {"metric": "acc", "filter": "none", "value": 0.5, "stderr": 0.1, "interval": [0.3, 0.7], "n": 10,
         "higher_is_better": True, "shares": [["a", ["acc", "strict"], 0.4]]}  # fmt: skip
A_ROWS = [
    {"metric": "acc", "filter": "strict", "value": 0.25, "interval": [0.1, 0.6], "n": 4, "failed": 2, "is_incomplete": True,
     "higher_is_better": True, "failure_bounds": [0.2, 0.5]},
    {"metric": "f1", "filter": "strict", "value": None, "n": 0, "reason": "no positives", "higher_is_better": True},
]  # fmt: skip
RESULTS: dict[str, Any] = {
    "format": FORMAT,
    "status": "incomplete",
    "broken": {"c": "no data"},
    "usage": {"requests": 9, "failed": 0, "retries": 0, "tokens": {"in": 1, "out": 1}, "cost": 0.5},
    "tasks": {
        "a": {"alias": "a", "documents": 6, "scored": 5, "failed": 2, "is_incomplete": True, "reasons": {"timeout": 2},
              "original": 9, "rows": A_ROWS},
        "b": {"alias": "b", "documents": 6, "scored": 5, "unscored": ["none"], "rows": []},
    },
    "groups": {"g": {"alias": "The group", "members": ["a", "b"], "size": 10, "rows": [G_ROW]}},
}  # fmt: skip


def written(folder: Path, results: object = RESULTS, **manifest: object) -> Path:
    (folder / "samples").mkdir(parents=True)
    if results is not None:
        (folder / "results.json").write_text(json.dumps(results))
    if manifest:
        (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def in_progress(folder: Path) -> Path:
    """The folder of a run that this process holds."""
    lock = {"host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}
    (folder / "run.lock").write_text(json.dumps(lock))
    return folder


def test_rows_are_keyed_by_metric_and_filter_with_everything_known_of_each(tmp_path: Path) -> None:
    rows = Run.open(written(tmp_path / "run", status="incomplete")).rows("a")
    assert list(rows) == [ScoreKey("acc", "strict"), ScoreKey("f1", "strict")]
    row = rows[ScoreKey("acc", "strict")]
    assert (row.estimate.value, row.estimate.stderr, row.estimate.interval, row.estimate.n) == (
        0.25,
        None,
        (0.1, 0.6),
        4,
    )
    assert (row.failed, row.failure_bounds, row.higher_is_better) == (2, (0.2, 0.5), True)
    lost = rows[ScoreKey("f1", "strict")]
    assert (lost.estimate.value, lost.estimate.reason) == (None, "no positives")


def test_a_group_row_lists_the_task_rows_it_depends_on(tmp_path: Path) -> None:
    row = Run.open(written(tmp_path / "run", status="complete")).rows("g")[ScoreKey("acc", "none")]
    assert (row.estimate.value, row.estimate.stderr, row.estimate.interval, row.estimate.n) == (
        0.5,
        0.1,
        (0.3, 0.7),
        10,
    )
    assert row.slopes == {("a", ScoreKey("acc", "strict")): 0.4}


def test_a_task_that_scores_nothing_has_no_rows(tmp_path: Path) -> None:
    run = Run.open(written(tmp_path / "run", status="complete", tasks={"c": {"size": 3}}))
    assert run.rows("b") == run.rows("c") == {}


@pytest.mark.parametrize("look_up", ["rows", "config", "graph", "higher_is_better", "samples"])
def test_a_name_that_the_run_does_not_have_is_refused_with_a_near_one(look_up: str, tmp_path: Path) -> None:
    run = Run.open(written(tmp_path / "run", status="complete", tasks={"numbers": {"size": 3}}))
    with pytest.raises(RunError, match="named 'numbrs' — did you mean 'numbers'"):
        getattr(run, look_up)("numbrs")


def test_tasks_groups_usage_and_broken_tasks_are_there(tmp_path: Path) -> None:
    run = Run.open(
        written(tmp_path / "run", status="complete", tasks={"c": {"size": 3}, "a": {"size": 6, "source": "data"}})
    )
    assert (run.tasks, run.scored_tasks, run.groups) == (["c", "a", "b"], ["a", "b"], ["g"])
    assert run.members == {"g": ["a", "b"]}
    assert (run.source("a"), run.source("c"), run.repeats("a")) == ("data", "", 1)
    assert run.broken == {"c": "no data"}
    assert run.usage["cost"] == 0.5
    assert dict(run.labels) == {}


def test_the_problems_of_a_run_are_listed_a_line_each(tmp_path: Path) -> None:
    results = deepcopy(RESULTS)
    acc, f1 = results["tasks"]["a"]["rows"]
    acc["note"], f1["lacks_number"] = "few documents", True
    results["tasks"]["b"] |= {"not_asked": 3, "noticed": {"cut off": 2}, "remarks": ["two filters agree"]}
    lost = {**G_ROW, "metric": "f1", "value": None, "interval": None, "reason": "no row of a member has a value"}
    results["groups"] = {
        "g": {**results["groups"]["g"], "rows": [{**G_ROW, "note": "of 3 documents"}]},
        "h": {"alias": "h", "members": ["a"], "skipped": {"c": "no data"}, "rows": [lost, {**lost, "metric": "acc"}]},
    }
    assert Run.open(written(tmp_path / "run", results, status="complete")).remarks == [
        "incomplete: a: 2 of 6 documents failed (2× timeout)",
        "a: acc,strict: few documents",
        "no value: a: f1,strict: no positives",
        "incomplete: b: 3 documents were not asked",
        "b: answers cut off: 2 of 6 documents (33.3 %)",
        "b: two filters agree",
        "g: acc,none: of 3 documents",
        "h: left out: c: no data",
        "h: f1,none, acc,none: no number: no row of a member has a value",
        "not run: c: no data",
    ]


@pytest.mark.parametrize(
    ("manifest", "results", "status"),
    [
        ({"status": "complete"}, RESULTS, "incomplete"),  # documents failed: the results say so
        ({"status": "complete"}, {"tasks": {}}, "complete"),
        ({"status": "interrupted"}, RESULTS, "interrupted"),  # started again since
        ({"status": "running"}, None, "stopped"),  # and no process holds it
        ({"created": 1.0}, None, "unknown"),
        ({}, RESULTS, "incomplete"),
    ],
)
def test_the_status_is_what_happened_last(
    tmp_path: Path, manifest: dict[str, object], results: object, status: str
) -> None:
    assert Run.open(written(tmp_path / "run", results, **manifest)).status == status


def test_what_a_run_counts_is_of_its_results_and_while_it_is_in_progress_of_its_progress(tmp_path: Path) -> None:
    tasks = {"a": {"size": 8}, "b": {}}
    ended = Run.open(written(tmp_path / "ended", status="complete", tasks=tasks))
    assert (ended.scored, ended.failed, ended.cost, ended.answered) == (10, 2, 0.5, None)
    assert (ended.sizes, ended.seconds) == ({"a": 8, "b": 0}, None)
    folder = in_progress(written(tmp_path / "run", None, status="running", tasks=tasks))
    LiveFolder(folder).write({"tasks": {"a": {"documents": 3, "failures": 1, "size": 8}}, "cost": 0.25})
    run = Run.open(folder)
    assert (run.scored, run.failed, run.cost, run.answered) == (0, 1, 0.25, 3)


@pytest.mark.parametrize(
    ("config", "noted", "model"),
    [
        ({"model": "hf", "model_args": {"dtype": "float32", "pretrained": "gpt2"}}, {}, "hf gpt2"),
        ({"model": "openai", "model_args": {"model": "m", "path": "p"}}, {"name": "other"}, "openai m"),
        ({"model": "embedded", "model_args": {"path": "p"}}, {}, "embedded p"),
        ({"model": "mine"}, {}, "mine"),
        ({}, {"name": "noted", "args": {"pretrained": "gpt2"}}, "noted gpt2"),
        ({}, {}, "?"),
    ],
)
def test_a_model_is_named_with_the_argument_that_identifies_it(
    config: dict[str, object], noted: dict[str, object], model: str, tmp_path: Path
) -> None:
    run = Run.open(written(tmp_path / "run", {**RESULTS, "config": config}, status="complete", model=noted))
    assert run.model == model


def test_a_task_that_could_not_be_run_has_a_line_with_the_reason_while_the_others_are_in_progress(
    tmp_path: Path,
) -> None:
    folder = in_progress(written(tmp_path / "run", None, status="running", tasks={"a": {"size": 8}}))
    LiveFolder(folder).write({"tasks": {"a": {"documents": 3, "size": 8}}, "broken": {"c": "no data", "d": ""}})
    lines = {line.name: (line.done, line.documents, line.not_run) for line in Run.open(folder).lines}
    assert lines == {"a": (3, 8, ""), "c": (None, None, "no data"), "d": (None, None, "unknown")}


def test_a_run_in_progress_has_a_document_count_and_has_not_finished(tmp_path: Path) -> None:
    folder = in_progress(written(tmp_path / "run", None, status="running", tasks={"a": {"size": 8}}))
    LiveFolder(folder).write({"tasks": {"a": {"documents": 3, "size": 8}}})
    run = Run.open(folder)
    assert (run.status, run.answered, run.has_finished) == ("running", 3, False)
    with pytest.raises(RunError, match=r"has not finished \(status: running\) — wait until it has"):
        run.finished()
    (folder / "run.lock").unlink()
    with pytest.raises(RunError, match=r"has not finished \(status: running\) — resume it with the same command"):
        Run.open(folder).finished()


def test_a_folder_without_a_run_an_archive_and_nothing_at_all_are_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "run.zip").write_bytes(b"PK")
    with pytest.raises(NoRun, match="the folder holds no run"):
        Run.open(tmp_path)
    with pytest.raises(NoRun, match="no run"):
        Run.open(tmp_path / "nowhere")
    with pytest.raises(NoRun, match="this is an archive"):
        Run.open(tmp_path / "run.zip")


@pytest.mark.parametrize("content", [b"", b"[]", b'{"tasks": 3}', b"\xff\xfe", b'{"a"'])
def test_a_damaged_manifest_is_refused_with_its_file(tmp_path: Path, content: bytes) -> None:
    folder = written(tmp_path / "run")
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(RunError, match=r"manifest\.json.*the file is damaged"):
        Run.open(folder)


def test_damaged_results_leave_manifest_and_samples_readable(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", status="complete", tasks={"a": {"size": 1}})
    (folder / "results.json").write_bytes(b'{"tasks"')
    run = Run.open(folder)
    assert run.manifest["tasks"] == {"a": {"size": 1}}
    with pytest.raises(RunError, match=r"results\.json.*the file is damaged"):
        run.rows("a")


def test_a_lost_manifest_is_rebuilt_from_the_journal_and_the_run_counts_as_stopped(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", None)
    manifest = {"format": 3, "created": 5.0, "spec": {"model": "m"}, "tasks": {"a": {"size": 8}}}
    (folder / JOURNAL).write_bytes(header(manifest))
    run = Run.open(folder)
    assert run.manifest == manifest
    assert (run.tasks, run.status, run.has_finished) == (["a"], "stopped", False)
    assert list(find_runs(tmp_path)) == ["run"]


@pytest.mark.parametrize("other", [2, 9])
def test_another_format_is_refused_by_its_number_in_the_manifest_and_in_the_journal(other: int, tmp_path: Path) -> None:
    with pytest.raises(OtherFormat, match=f"it has format {other}, and this version of assay reads format 3"):
        Run.open(written(tmp_path / "one", format=other))
    folder = written(tmp_path / "two", None)
    (folder / JOURNAL).write_bytes(sealed(b'{"format":%d,"manifest":{"spec":{}}' % other))
    with pytest.raises(OtherFormat, match=f"it has format {other}"):
        Run.open(folder)


def test_links_that_lead_out_are_refused_where_they_must_not_be_followed(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", None)
    (tmp_path / "elsewhere.json").write_text(json.dumps({"status": "complete"}))
    (folder / "manifest.json").symlink_to(tmp_path / "elsewhere.json")
    assert Run.open(folder).status == "complete"
    with pytest.raises(RunError, match=r"manifest\.json.*leads out"):
        Run.open(folder, follow_links=False)
    (folder / "manifest.json").unlink()
    (tmp_path / "journal").write_bytes(header({"spec": {}}))
    (folder / JOURNAL).symlink_to(tmp_path / "journal")
    with pytest.raises(RunError, match=rf"{JOURNAL}.*leads out"):
        Run.open(folder, follow_links=False)


@pytest.fixture
def finished(tasks: Path, output: Path) -> Path:
    """A finished run of one task."""
    run_world.run(RecordingModel(), tasks, output, tasks=["sums"])
    return output


def test_opening_reads_the_manifest_alone(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    for file in [folder / "results.json", *folder.glob("samples/*"), *folder.glob(f"{JOURNAL}*")]:
        file.write_bytes(b"nobody reads this")
    assert Run.open(folder).manifest == Run.open(finished).manifest


def test_samples_are_arrow_one_row_for_each_document(finished: Path) -> None:
    run = Run.open(finished)
    [task] = run.scored_tasks
    batches = list(run.sample_batches(task, ["doc_id"]))
    effective = lm_eval_layout(run.results)["n-samples"][task]["effective"]
    assert sum(batch.num_rows for batch in batches) == effective == len({*batches[0]["doc_id"].to_pylist()})
    with pytest.raises(RunError, match=f"no samples of a task named 'nothing' — use one of: {task}"):
        run.samples("nothing")
    with pytest.raises(RunError, match=f"did you mean '{task}'"):
        run.samples(task[:-1])


def test_a_slip_in_the_name_of_a_folder_is_answered_with_the_run_beside_it(tmp_path: Path) -> None:
    folder = written(tmp_path / "text", status="complete")
    with pytest.raises(RunError, match=f"holds no run — did you mean {folder}"):
        Run.open(tmp_path / "txet").results  # noqa: B018  # read when asked for
    with pytest.raises(RunError, match="name the folder that --output_path gave"):
        Run.open(tmp_path / "something-else").results  # noqa: B018


def test_damaged_samples_are_refused_with_their_file(finished: Path) -> None:
    run = Run.open(finished)
    [task] = run.scored_tasks
    path = run.sample_path(task)
    assert path is not None
    path.write_bytes(b"PAR1 and then nothing PAR1")
    with pytest.raises(RunError, match="the samples cannot be read"):
        run.samples(task)


def test_responses_are_those_of_the_journal_with_their_roles_and_failures(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", None, status="stopped")
    good = b'{"k":"%s","r":{"text":"yes"}' % (b"01" * 16)
    judged = b'{"k":"%s","r":{"failed":"timeout"},"m":"judge"' % (b"02" * 16)
    damaged = sealed(good).replace(b"yes", b"no!")
    (folder / JOURNAL).write_bytes(header({"spec": {}}) + sealed(good) + damaged + sealed(judged))
    assert [(each.key[:1], each.role, each.response) for each in Run.open(folder).responses()] == [
        (b"\x01", "model", Text("yes")),
        (b"\x02", "judge", Failed("timeout")),
    ]


def test_an_exported_run_has_no_secrets_and_a_scoring_has_the_facts_of_its_run(tmp_path: Path) -> None:
    results = {**RESULTS, "config": {"model_args": {"api_key": "sk-verysecret"}}}
    written(tmp_path / "run", results, status="complete", spec_digest="x", tasks={"a": {"size": 6, "source": "data"}})
    scoring = written(tmp_path / "run/scored/001", results, status="complete", scored={}, of="x")
    run = Run.open(scoring)
    assert (run.source("a"), "tasks" in run.manifest) == ("data", False)
    safe = finished_run(scoring)
    assert "verysecret" not in json.dumps(lm_eval_layout(run.results))
    assert "verysecret" not in json.dumps(lm_eval_layout(safe.results))
    assert safe.manifest["tasks"]["a"]["source"] == "data"


def test_a_thousand_runs_are_opened_in_a_moment(tmp_path: Path) -> None:
    for number in range(1000):
        written(tmp_path / f"run-{number}", status="complete", tasks={"a": {"size": 6}})
    started = time.process_time()
    assert sum(Run.open(path).status == "incomplete" for path in find_runs(tmp_path).values()) == 1000
    assert time.process_time() - started < 2.0


def test_runs_directly_in_a_folder_are_listed_damaged_ones_too(tmp_path: Path) -> None:
    written(tmp_path / "b", status="complete")
    (written(tmp_path / "a") / "manifest.json").write_text("damaged")
    written(tmp_path / "deeper/c", status="complete")
    (tmp_path / "manifest.json").write_text("{}")
    assert [path.name for path in runs_in(tmp_path)] == ["a", "b"]
    assert runs_in(tmp_path / "nowhere") == []


READERS = ("runs/run.py", "runs/folder.py")
"""The reader, and the writer, which looks at what a folder holds before it adds to it."""


@pytest.mark.slow
def test_only_the_reader_opens_the_files_of_a_run() -> None:
    """Whoever wants something of a run folder opens the run."""
    values = set()
    for path in sorted((ROOT / "src/assay").rglob("*.py")):
        name = path.relative_to(ROOT / "src/assay").as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            is_reader = isinstance(node, ast.ImportFrom) and any(
                alias.name in ("read_file", "sample_file", "read_header", "manifest_from_journal")
                for alias in node.names
            )
            if is_reader and name not in READERS:
                values.add(name)
    assert values == set()


def test_an_invalid_or_damaged_results_mapping_is_refused_with_a_message(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the folder holds no run.*dataset_kwargs\.run"):
        read_run(tmp_path)
    earlier = read_run(finished)
    [task] = earlier.splits
    rows = earlier.rows(task)
    assert rows is not None and {"doc_id", "prompt", "responses", "answers", "scores"} <= rows[0].keys()
    assert earlier.rows("nothing") is None
    next((finished / "samples").iterdir()).write_bytes(b"PAR1 and then nothing PAR1")
    with pytest.raises(DataError, match="the samples cannot be read"):
        read_run(finished).rows(task)
