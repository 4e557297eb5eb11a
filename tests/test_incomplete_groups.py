"""A group's number stands for all of its tasks: where one could not be run or scored there is none, and what is partial is marked."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import run_world
from assay import TaskManager, simple_evaluate
from assay.comparison.compare import compare
from assay.exchange.exporters import export_parquet
from assay.exchange.lm_eval import export_lm_eval
from assay.exchange.trackers import tracked_metrics
from assay.models import Scripted
from assay.report.document import build_report
from assay.report.table import results_table, table_footing
from assay.report.write import as_csv, as_html, as_markdown
from assay.runs.run import finished_run
from compared_world import write_tasks
from group_world import group_file, scored
from run_world import rows_of
from small_runs import ANYTHING, run
from viewer_world import fetched, serving

MEAN = "aggregate_metric_list: [{metric: x, aggregation: mean}]"
LENIENT = [pytest.param(None, id="lm-eval's folder"), pytest.param("lm-eval", id="compat")]
Scores = Mapping[str, Sequence[float | str]]


def evaluated(folder: Path, scores: Scores, output: Path | None = None, *, lenient: bool = True, **options: Any) -> Any:
    """A run in which the n-th document of a task scores the n-th number; a text makes it fail."""

    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        name, number = prompt.split()[-2:]
        return str(scores[name][int(number)])

    manager = TaskManager(include_path=folder, include_defaults=False, compat="lm-eval" if lenient else None)
    more = {"output_path": str(output)} if output is not None else {}
    model = Scripted(generate=answer, identity=repr(scores))
    return simple_evaluate(model, task_manager=manager, **{"tasks": ["g"], "log_samples": False, **options, **more})


def with_group(folder: Path, scores: Scores, group: str, *missing: str) -> Path:
    """Tasks for these scores and a group; the data of those that are `gone` are not there."""
    write_tasks(folder, {name: [{}] * len(items) for name, items in scores.items()}, group=group)
    for name in missing:
        (folder / f"{name}.jsonl").unlink()
    return folder


def table_row(results: Mapping[str, Any], name: str) -> list[str]:
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in str(results_table(results.results)).splitlines()
    ]
    return next(cells for cells in lines if cells[0].removeprefix("- ") == name)


HALF = {"t": [1, 0, 1, 0], "u": [1, 1, 1, 0], "v": [0, 0, 0, 0]}


@pytest.mark.parametrize("compat", LENIENT)
def test_a_lenient_group_of_which_a_task_could_not_be_run_has_no_number(tmp_path: Path, compat: str | None) -> None:
    folder = with_group(tmp_path / "tasks", HALF, f"group: g\ntask: [t, u, v]\n{MEAN}\n", "v")
    results = evaluated(folder, HALF, tmp_path / "run", compat=compat)
    row = table_row(results, "g")
    assert (row[6], row[10], row[11]) == ("–", "8 in 2 of 3 tasks", "0*")
    written = run_world.results(tmp_path / "run")
    assert [math.isnan(written[part]["g"]["x,none"]) for part in ("results", "groups")] == [True, True]
    own = written["assay"]["groups"]["g"]
    assert own["is_incomplete"] is True
    assert (own["tasks"], own["scored_tasks"], own["not_run"]) == (3, 2, ["v"])
    assert rows_of(written, "g")["x,none"]["value"] is None
    assert "2 of 3 tasks" in rows_of(written, "g")["x,none"]["reason"]
    assert any(line.startswith("g: x,none: no number: 2 of 3 tasks") for line in table_footing(results.results))
    assert written["results"]["t"]["x,none"] == 0.5


@pytest.mark.parametrize("compat", LENIENT)
def test_groups_around_and_between_are_marked_too(tmp_path: Path, compat: str | None) -> None:
    inner = "group: inner\ntask: [v]\n" + MEAN + "\n"
    plain = "group: plain\ntask: [v, w]\n"
    scores = {**HALF, "w": [1, 1]}
    folder = with_group(tmp_path / "tasks", scores, f"group: g\ntask: [t, inner, plain]\n{MEAN}\n", "v", "w")
    (folder / "inner.yaml").write_text(inner)
    (folder / "plain.yaml").write_text(plain)
    results = evaluated(folder, scores, compat=compat)
    assert table_row(results, "g")[6:11:4] == ["–", "4 in 1 of 3 tasks"]
    assert table_row(results, "inner")[6:11:4] == ["–", "0 in 0 of 1 tasks"]
    assert table_row(results, "plain")[6:12:4] == ["", "0 of 2 tasks"]
    assert table_row(results, "plain")[11] == "0*"
    assert any(line == "incomplete: plain: 0 of 2 tasks (not run: v, w)" for line in table_footing(results.results))


@pytest.mark.parametrize("compat", LENIENT)
def test_a_member_of_which_all_documents_failed_leaves_the_group_without_a_number(
    tmp_path: Path, compat: str | None
) -> None:
    scores: Scores = {**HALF, "v": ["?", "?", "?", "?"]}
    folder = with_group(tmp_path / "tasks", scores, f"group: g\ntask: [t, u, v]\n{MEAN}\n")
    results = evaluated(folder, scores, compat=compat)
    row = table_row(results, "g")
    assert (row[6], row[10], row[11]) == ("–", "8 in 2 of 3 tasks", "4*")
    assert results["assay"]["groups"]["g"]["incomplete_tasks"] == ["v"]
    assert results["assay"]["groups"]["g"].get("not_run", []) == []


@pytest.mark.parametrize("compat", LENIENT)
def test_members_that_a_budget_left_unasked_leave_the_group_without_a_number(
    tmp_path: Path, compat: str | None
) -> None:
    scores: Scores = {"t": [1, 0, 1, 0], "u": [1] * 400, "v": [1] * 400}
    folder = with_group(tmp_path / "tasks", scores, f"group: g\ntask: [t, u, v]\n{MEAN}\n")
    asked = 0

    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        nonlocal asked
        asked += 1
        if asked > 4:
            raise RuntimeError("out of order")
        return "1"

    manager = TaskManager(include_path=folder, include_defaults=False, compat="lm-eval")
    model = Scripted(generate=answer, identity="falls ill")
    model.window = 4
    results = simple_evaluate(model, tasks=["g"], task_manager=manager, max_failures=3, compat=compat)
    assert results["assay"]["status"] == "partial"
    assert results["assay"]["tasks"]["v"]["not_asked"] == 400
    row = table_row(results, "g")
    assert row[6] == "–"
    assert "1 of 3 tasks" in row[10]


@pytest.mark.parametrize("compat", LENIENT)
def test_a_member_with_some_failed_documents_leaves_a_number_that_is_marked(tmp_path: Path, compat: str | None) -> None:
    scores: Scores = {**HALF, "v": [1, "?", 1, 1]}
    folder = with_group(tmp_path / "tasks", scores, f"group: g\ntask: [t, u, v]\n{MEAN}\n")
    results = evaluated(folder, scores, compat=compat)
    row = table_row(results, "g")
    assert (row[6], row[10], row[11]) == (f"{8 / 11:.4f}", "11 (1 of 3 tasks incomplete)", "1*")
    assert "incomplete: g: 1 of 3 tasks incomplete (incomplete: v)" in table_footing(results.results)
    assert results["assay"]["groups"]["g"]["is_incomplete"] is True


def test_failures_within_what_is_allowed_do_not_mark_a_group(tmp_path: Path) -> None:
    scores: Scores = {**HALF, "v": [1, "?", 1, 1]}
    folder = with_group(tmp_path / "tasks", scores, f"group: g\ntask: [t, u, v]\n{MEAN}\n")
    results = evaluated(folder, scores, max_failed=0.5)
    assert table_row(results, "g")[6:] == [f"{8 / 11:.4f}", "±", *table_row(results, "g")[8:10], "11", ""]
    assert "is_incomplete" not in results["assay"]["groups"]["g"]


@pytest.mark.parametrize("compat", LENIENT)
def test_a_member_that_was_run_and_has_no_such_metric_does_not_count_as_lacking(
    tmp_path: Path, compat: str | None
) -> None:
    folder = with_group(tmp_path / "tasks", HALF, f"group: g\ntask: [t, u, v]\n{MEAN}\n")
    (folder / "helper.py").write_text("def values(doc, results):\n    return {'y': 1.0}\n")
    other = (folder / "v.yaml").read_text().replace("metric: x", "metric: y")
    (folder / "v.yaml").write_text(other.replace("helper.", "other."))
    (folder / "other.py").write_text((folder / "helper.py").read_text())
    (folder / "helper.py").write_text("def values(doc, results):\n    return {'x': float(results[0])}\n")
    results = evaluated(folder, HALF, compat=compat)
    row = table_row(results, "g")
    assert (row[6], row[10], row[11]) == ("0.6250", "8", "")


def test_a_task_that_a_group_does_not_count_may_fail(tmp_path: Path) -> None:
    group = f"group: g\ntask: [t, u, v]\ngroup_filter: {{exclude: [v]}}\n{MEAN}\n"
    folder = with_group(tmp_path / "tasks", HALF, group, "v")
    row = table_row(evaluated(folder, HALF), "g")
    assert (row[6], row[10], row[11]) == ("0.6250", "8", "")


def test_a_strict_group_says_which_member_lacks_its_number(tmp_path: Path) -> None:
    folder = with_group(tmp_path / "tasks", HALF, f"group: g\ntask: [t, u, v]\n{MEAN}\n", "v")
    results = evaluated(folder, HALF, lenient=False)
    assert table_row(results, "g")[6] == "–"
    assert rows_of(results, "g")["x,none"]["reason"] == "v: no 'x' of filter 'none'"


@pytest.mark.parametrize(
    "entry",
    [
        "{metric: x, missing: skip}",
        "{metric: x, aggregation: median, missing: skip}",
        "{metric: x, aggregation: max, missing: skip}",
        "{metric: x, levels: children, missing: skip}",
        "{metric: x, aggregation: !function own.best}",
    ],
)
def test_leaving_out_what_lacks_a_metric_does_not_leave_out_what_was_not_run(tmp_path: Path, entry: str) -> None:
    group = f"group: g\ntask: [t, u, v]\naggregate_metric_list: [{entry}]\n"
    folder = with_group(tmp_path / "tasks", HALF, group, "v")
    (folder / "own.py").write_text("def best(group, results):\n    return max(r['x,none'] for r in results.values())\n")
    results = evaluated(folder, HALF, lenient=False)
    assert table_row(results, "g")[6] == "–"
    assert "2 of 3 tasks" in rows_of(results, "g")["x,none"]["reason"]


def test_leaving_out_what_lacks_a_metric_does_not_leave_out_a_task_whose_aggregation_failed(tmp_path: Path) -> None:
    scored(tmp_path, "t", x=[1, 0])
    scored(tmp_path, "u", x=[1, 1])
    (tmp_path / "own.py").write_text("def nothing(scores):\n    raise ValueError('nothing')\n")
    task = tmp_path / "u.yaml"
    task.write_text(task.read_text().replace("aggregation: mean", "aggregation: !function own.nothing"))
    group_file(tmp_path, "group: g\ntask: [t, u]\naggregate_metric_list: [{metric: x, missing: skip}]\n")
    row = rows_of(run(tmp_path, ANYTHING, "g"), "g")["x,none"]
    assert (row["value"], row["reason"]) == (None, "1 of 2 tasks: no score of u")


def test_numbers_of_a_group_scorer_are_withheld_as_well(tmp_path: Path) -> None:
    group = "group: g\ntask: [t, u, v]\ngroup_scorer: !function own.gap\n"
    folder = with_group(tmp_path / "tasks", HALF, group, "v")
    own = "def gap(group, results):\n    xs = [r['x,none'] for r in results.values()]\n    return {'gap': max(xs) - min(xs)}\n"
    (folder / "own.py").write_text(own)
    assert table_row(evaluated(folder, HALF, lenient=False), "g")[6] == "–"


@pytest.fixture
def lacking(tmp_path: Path) -> Path:
    """The folder of a run whose group lacks a task that has no data, and another that has failed documents."""
    scores: Scores = {**HALF, "w": [1, "?", 1, 1]}
    folder = with_group(tmp_path / "tasks", scores, f"group: g\ntask: [t, u, v]\n{MEAN}\n", "v")
    (folder / "partly.yaml").write_text(f"group: partly\ntask: [t, w]\n{MEAN}\n")
    evaluated(folder, scores, tmp_path / "runs/lacking", tasks=["g", "partly"])
    return tmp_path / "runs/lacking"


def test_reports_mark_what_a_group_lacks(lacking: Path) -> None:
    report = build_report([lacking])
    text = as_markdown(report)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert ["g", "x ↑", "–", "", "8 in 2 of 3 tasks", "0*"] in rows
    assert any(row[-2:] == ["7 (1 of 2 tasks incomplete)", "1*"] for row in rows)
    assert "8 in 2 of 3 tasks" in as_html(report)
    assert "7 (1 of 2 tasks incomplete)" in as_html(report)
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(as_csv(report)))}
    assert (rows["g"]["value"], rows["g"]["incomplete"]) == ("", "2 of 3 tasks")
    assert rows["partly"]["incomplete"] == "1 of 2 tasks incomplete"
    assert (rows["t"]["incomplete"], rows["w"]["incomplete"]) == ("", "incomplete")


def test_the_viewer_marks_what_a_group_lacks(lacking: Path) -> None:
    with serving(lacking.parent) as address:
        text = fetched(address, "/run", run="lacking")[1]
        columns = fetched(address, "/run", run="lacking", view="columns")[1]
    assert "8 in 2 of 3 tasks" in text
    assert "7 (1 of 2 tasks incomplete)" in text
    assert "7 (1 of 2 tasks incomplete)" in columns


def test_no_gate_passes_on_a_group_that_lacks_a_task(lacking: Path, tmp_path: Path) -> None:
    evaluated(tmp_path / "tasks", {**HALF, "t": [1, 1, 1, 1]}, tmp_path / "runs/better")
    for incomplete in (False, True):
        comparison = compare([lacking, tmp_path / "runs/better"], gates=["g/x > -90pp"], allow_incomplete=incomplete)
        assert [each.decision for each in comparison.verdicts] == ["inconclusive"]
    row = next(row for row in comparison.rows if row.name == "g")
    assert (row.a, row.b, row.difference.value) == (None, None, None)
    assert "2 of 3 tasks" in row.difference.reason


def test_exports_have_no_number_of_a_group_that_lacks_a_task(lacking: Path, tmp_path: Path) -> None:
    run = finished_run(lacking)
    results, *_ = export_lm_eval(run, tmp_path / "lm")
    assert math.isnan(json.loads(results.read_text())["groups"]["g"]["x,none"]), "as lm-eval writes it"
    *_, numbers = export_parquet(run, tmp_path / "pq")
    values = {row["name"]: row["value"] for row in pq.read_table(numbers).to_pylist()}
    assert (values["g"], values["t"]) == (None, 0.5)
    assert "g/x/none" not in dict(tracked_metrics(run))
