"""lm-eval's layout of results: rows named by metric and filter ("acc,none"), and what it lacks under `assay`."""

import math
from collections.abc import Iterable
from typing import Any

from assay.config.record_json import json_values
from assay.records import JSONDict
from assay.results import AuditCount, Entry, GroupEntry, ReliabilityPoint, Results, Row, TaskEntry
from assay.score_keys import BYPASS, ScoreKey, stderr_name
from assay.statistics.influence import Bounds

BYPASSED = 999.0
"""The value that lm-eval reports of a task that scores nothing."""
RUN_SECTIONS = (
    ("usage", "account"), ("ended", "ended"), ("shard", "shard"), ("stop_when", "stop_when"), ("servers", "servers"),
    ("fallbacks", "fallbacks"), ("imported", "imported"), ("rescored", "scored"),
)  # fmt: skip
"""Fields of results, each with its key in the section `assay`."""


def lm_eval_layout(results: Results) -> JSONDict:
    """Results as lm-eval writes them, with all that its layout has no place for under `assay`."""
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
        "assay": _assay_section(results),
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


def _assay_section(results: Results) -> JSONDict:
    section = {key: getattr(results, name) for name, key in RUN_SECTIONS if getattr(results, name)}
    return {
        "status": results.status,
        "failed": results.failed,
        "incomplete": [task.name for task in results.tasks.values() if task.is_incomplete],
        "broken": dict(results.broken),
        "tasks": {task.name: _task_section(task) for task in results.tasks.values()},
        "groups": {group.name: _group_section(group) for group in results.groups.values()},
        **section,
    }


def _task_section(task: TaskEntry) -> JSONDict:
    bounds = {str(row.key): list(row.failure_bounds) for row in task.rows if row.failure_bounds is not None}
    without = {str(row.key): row.estimate.reason for row in task.rows if row.lacks_number}
    return {
        "documents": task.documents,
        "scored": task.scored,
        "failed": task.failed,
        "reasons": dict(task.reasons),
        "incomplete": task.is_incomplete,
        **({"not_asked": task.not_asked} if task.not_asked else {}),
        **({"noticed": dict(task.noticed)} if task.noticed else {}),
        **({"remarks": list(task.remarks)} if task.remarks else {}),
        "audit": {flag: _audit_count(documents) for flag, documents in task.audit.items()},
        **({"bounds": bounds} if task.failed else {}),
        **({"no_value": without} if without else {}),
        **({"never_came": list(task.never_came)} if task.never_came else {}),
        "rows": {str(row.key): {**_described(row), **_failures(row)} for row in task.rows},
    }


def _audit_count(documents: AuditCount) -> JSONDict:
    return {"count": documents.count, **({"ids": list(documents.ids)} if documents.count else {})}


def _group_section(group: GroupEntry) -> JSONDict:
    rows = group.rows or ()
    without = {str(row.key): row.estimate.reason for row in rows if row.lacks_number}
    section: dict[str, Any] = {"incomplete": group.is_incomplete}
    if group.is_incomplete:
        names = ("tasks", "scored_tasks", "failed", "not_run", "incomplete_tasks")
        section |= {name: getattr(group, name) for name in names}
    return {
        **section,
        **({"metadata": group.metadata} if group.metadata else {}),
        **({"skipped": dict(group.skipped)} if group.skipped else {}),
        **({"computed_by": group.computed_by} if group.computed_by else {}),
        **({"no_value": without} if without else {}),
        "rows": {str(row.key): {**_described(row), **_shares(row)} for row in rows},
    }


def _described(row: Row) -> JSONDict:
    """All that is known about a number: null, with the reason, where there is none."""
    number = row.estimate
    return {
        "value": number.value,
        **({"values": dict(number.named_values)} if number.named_values is not None else {}),
        "stderr": number.stderr,
        "interval": None if number.interval is None else list(number.interval),
        **({} if row.is_lost else {"method": number.method or None}),
        **({"df": number.df} if number.df is not None else {}),
        **({"scale": _open_ends(number.scale)} if number.scale is not None else {}),
        **({"unused_bounds": _open_ends(number.unused_bounds)} if number.unused_bounds is not None else {}),
        **({"note": number.note} if number.note else {}),
        "n": number.n,
        **({"clusters": number.clusters} if number.clusters is not None else {}),
        **({"tasks": row.tasks} if row.tasks > 1 else {}),
        **({"missing": list(row.missing)} if row.missing else {}),
        **({"chosen": list(row.chosen)} if row.chosen else {}),
        **({"reason": number.reason} if number.reason else {}),
        **({"noise": dict(row.noise)} if row.noise is not None else {}),
        **({"reliability": [_point(point) for point in row.reliability]} if row.reliability else {}),
        **({"labels": row.labels} if row.labels is not None else {}),
        **({"tuning": row.tuning} if row.tuning is not None else {}),
    }


def _point(point: ReliabilityPoint) -> JSONDict:
    ends = point.accuracy.interval
    return {**json_values(point), "interval": None if ends is None else list(ends)}


def _failures(row: Row) -> JSONDict:
    return {
        "failed": row.failed,
        **({"reasons": dict(row.reasons)} if row.reasons else {}),
        **({"incomplete": True} if row.is_incomplete else {}),
    }


def _shares(row: Row) -> JSONDict:
    return {} if row.shares is None else {"of": [[share.task, str(share.row), share.slope] for share in row.shares]}


def _open_ends(bounds: Bounds) -> list[float | None]:
    """Bounds with null for an end that is open."""
    return [end if math.isfinite(end) else None for end in bounds]
