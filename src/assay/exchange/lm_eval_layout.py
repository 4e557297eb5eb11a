"""lm-eval's layout of results: rows named by metric and filter ("acc,none"), with the tree of results.json under `assay`."""

from collections.abc import Iterable
from typing import Any

from assay.records import JSONDict
from assay.results import Entry, GroupEntry, Results, Row, TaskEntry
from assay.runs.results_json import encode
from assay.score_keys import BYPASS, ScoreKey, stderr_name

BYPASSED = 999.0
"""The value that lm-eval reports of a task that scores nothing."""
SECTION = "assay"
"""The key of the tree of results.json: lm-eval's layout has no place for failures, intervals and more."""


def lm_eval_layout(results: Results) -> JSONDict:
    """Results as lm-eval writes them, and as results.json has them under `assay`."""
    tasks, groups = list(results.tasks.values()), list(results.groups.values())
    entries: list[Entry] = [*tasks, *groups]
    group_rows = {group.name: _group_row(group) for group in groups}
    aggregated = {group.name: group_rows[group.name] for group in groups if group.rows is not None}
    versions = {entry.name: entry.version for entry in entries}
    shots = {task.name: task.num_fewshot for task in tasks}
    shots |= {group.name: group.num_fewshot for group in groups if group.num_fewshot is not None}
    better = {task.name: dict(task.directions) for task in tasks}
    better |= {group.name: dict(group.directions) for group in groups if group.directions}
    return {
        "results": {**{task.name: _task_row(task) for task in tasks}, **group_rows},
        **({"groups": aggregated} if aggregated else {}),
        "group_subtasks": {group.name: list(group.members) for group in reversed(groups)},
        "configs": {name: dict(results.tasks[name].config) for name in sorted(results.tasks)},
        "versions": dict(sorted(versions.items())),
        "n-shot": dict(sorted(shots.items())),
        "higher_is_better": dict(sorted(better.items())),
        "n-samples": {task.name: {"original": task.original, "effective": task.scored} for task in tasks},
        **({"config": dict(results.config)} if results.config else {}),
        **results.facts,
        SECTION: encode(results),
    }


def _task_row(task: TaskEntry) -> JSONDict:
    row = {"name": task.name, "alias": task.alias, "sample_len": task.scored, **_values(task.rows)}
    for filter_name in task.unscored:
        key = ScoreKey(BYPASS, filter_name)
        row |= {str(key): BYPASSED, stderr_name(key): "N/A"}
    return row


def _group_row(group: GroupEntry) -> JSONDict:
    row: dict[str, Any] = {"alias": group.alias, "name": group.name}
    if group.rows is None:
        return row
    counts = {str(row.key): row.estimate.n for row in group.rows if row.estimate.n}
    return {**row, "sample_len": group.size, **_values(group.rows), **({"sample_count": counts} if counts else {})}


def _values(rows: Iterable[Row]) -> JSONDict:
    values: dict[str, Any] = {}
    for row in rows:
        number = row.estimate
        if not row.is_lost:
            values[str(row.key)] = float(number) if number.named_values is None else dict(number.named_values)
            values[stderr_name(row.key)] = "N/A" if number.stderr is None else number.stderr
    return values
