"""Groups in tables: every number below the group it belongs to, members by the last part of their name; names in results."""

import re
from pathlib import Path

from assay import TaskManager
from assay.report.table import checkpoints_table, results_table
from group_world import group_file, scored
from small_runs import ANYTHING, run

ENTRY = "aggregate_metric_list: [{metric: acc}]\n"


def first_column(table: str) -> list[str]:
    """The names in a table, as they are indented."""
    return [re.split(r"(?<!\\)\|", line)[1].rstrip() for line in table.splitlines()[2:]]


def world(folder: Path) -> None:
    for name, values in {"ta": [1, 1], "tb": [0, 0]}.items():
        scored(folder, name, acc=values)
    group_file(folder, f"group: inner\ngroup_alias: Inner\ntask: [ta, tb]\n{ENTRY}", "inner")
    group_file(folder, "group: plain\ntask: [{group: inner, num_fewshot: 1}]\n", "plain")
    group_file(folder, f"group: counted\ntask: [ta]\n{ENTRY}", "counted")


def test_a_number_is_listed_under_its_group_also_where_that_has_none(tmp_path: Path) -> None:
    world(tmp_path)
    results = run(tmp_path, ANYTHING, ["inner", "plain", "counted"])
    assert set(results["groups"]) == {"inner", "plain::inner", "counted"}
    table = str(results_table(results.results, groups=True))
    assert first_column(table) == ["counted", "Inner", "plain", " - Inner"]
    plain = next(line for line in table.splitlines() if "plain" in line)
    assert "acc" not in plain, "it has no number"


def test_members_are_shown_by_the_last_part_of_their_name(tmp_path: Path) -> None:
    world(tmp_path)
    results = run(tmp_path, ANYTHING, ["inner", "plain"])
    assert set(results["results"]) >= {"ta", "tb", "plain::inner::ta", "plain::inner::tb"}
    assert first_column(str(results_table(results.results))) == [
        "Inner", " - ta", " - tb", "plain", " - Inner", "  - ta", "  - tb"
    ]  # fmt: skip
    assert " - plain::" not in str(checkpoints_table({"one": results.results}))


def test_a_group_without_numbers_and_without_such_members_is_in_the_first_table_alone(tmp_path: Path) -> None:
    scored(tmp_path, "ta", acc=[1, 1])
    group_file(tmp_path, "group: g\ntask: [ta]\n")
    results = run(tmp_path, ANYTHING, "g")
    assert results_table(results.results, groups=True).lines == []
    assert first_column(str(results_table(results.results))) == ["g", " - ta"]


def test_an_alias_leaves_a_task_its_bare_name(tmp_path: Path) -> None:
    world(tmp_path)
    group_file(tmp_path, "group: galias\ntask: [{task: ta, task_alias: Alpha}, tb]\n", "galias")
    group_file(tmp_path, "group: govr\ntask: [{task: ta, description: D}]\n", "govr")
    manager = TaskManager(include_path=tmp_path, include_defaults=False)
    loaded = manager.load(["galias", "govr"])
    assert list(loaded["tasks"]) == ["ta", "tb", "govr::ta"]
    assert loaded["tasks"]["ta"].alias == "Alpha"
    assert list(manager.load(["govr", "galias"])["tasks"]) == ["govr::ta", "ta", "tb"]
    group_file(tmp_path, "group: top\ntask: [{group: inner, group_alias: Renamed}]\n", "top")
    group_file(tmp_path, "group: few\ntask: [{group: inner, num_fewshot: 1}]\n", "few")
    assert {"inner", "few::inner"} <= set(manager_of(tmp_path).load(["top", "few"])["groups"])


def manager_of(folder: Path) -> TaskManager:
    return TaskManager(include_path=folder, include_defaults=False)
