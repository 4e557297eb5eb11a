"""The numbers of groups from those of their tasks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from assay.config.group import AggMetricConfig, GroupRules
from assay.errors import some
from assay.groups.group import Group, TaskT
from assay.groups.rows import MemberSelection, documents_of, member_names
from assay.groups.task_results import NONE, MemberRows, Members, guarded
from assay.results import TaskEntry
from assay.score_keys import ScoreKey
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.intervals import noted, with_interval
from assay.user_code import is_overridden


def estimates_of(task: TaskEntry) -> dict[ScoreKey, Estimate]:
    """The numbers of a task by row; a row in which every document failed has none."""
    return {row.key: row.estimate for row in task.rows if not row.is_lost}


def has_lost(task: TaskEntry, metric: str | None) -> bool:
    """Whether a task lacks an expected score of this metric because documents failed or were not asked, or because its number
    has no value; None: no score at all."""
    own = [row for row in task.rows if row.metric == metric and not row.is_lost]
    if own and all(row.lacks_number for row in own):
        return True
    if not task.failed and not task.not_asked:
        return False
    return not task.scored or (metric in task.directions and not own)


def bottom_up(groups: Iterable[Group[TaskT]]) -> list[Group[TaskT]]:
    """Every group, after those it contains."""
    ordered: dict[int, Group[Any]] = {}

    def visit(group: Group[TaskT]) -> None:
        if id(group) not in ordered:
            for child in group.children:
                if isinstance(child, Group):
                    visit(child)
            ordered[id(group)] = group

    for group in groups:
        visit(group)
    return list(ordered.values())


def group_numbers(
    groups: Sequence[Group[TaskT]], tasks: Mapping[str, TaskEntry]
) -> dict[str, dict[ScoreKey, Estimate]]:
    """The numbers of groups, which come with members first; by the group's name."""
    members = Members()
    for name, task in tasks.items():
        members.add(name, MemberRows(estimates_of(task), task.scored))
    numbers: dict[str, dict[ScoreKey, Estimate]] = {}
    for group in groups:
        rules = group.config.rules
        with _strictness(group, rules):
            rows = withheld(group, _numbers(group, members), tasks)
        if rules.means != "pooled":
            rows = {key: noted(row) for key, row in rows.items()}
        # an interval that is there is one that user code computed
        numbers[group.name] = {key: with_interval(row) if row.interval is None else row for key, row in rows.items()}
        members.add(group.name, MemberRows(numbers[group.name], documents_of(group, members)))
    return numbers


@contextmanager
def _strictness(group: Group[TaskT], rules: GroupRules) -> Iterator[None]:
    """Have the aggregator of a group be as strict as the group's file is; afterwards as before: it may be a user's object."""
    aggregator = group.aggregator
    before, aggregator.strict = aggregator.strict, rules.missing == "error"
    try:
        yield
    finally:
        aggregator.strict = before


def _numbers(group: Group[TaskT], members: Members) -> dict[ScoreKey, Estimate]:
    """A group's own numbers. What fails loses its own rows: the aggregators', or those of the group's scorer."""
    names = [entry.row_metric for entry in group.config.aggregate_metric_list or ()]
    if is_overridden(group, "compute_metrics", Group):
        rows = guarded(partial(group.rows, members), names or ["compute_metrics"])
        aggregated = guarded(partial(group.aggregator.estimates, group, members), names)
        return rows | {key: row for key, row in aggregated.items() if row.value is None and key not in rows}
    return group.rows(members)


# --- withheld numbers: a mean over one of 57 tasks is not the group's -------------------------------------------------
# Members without the metric are another matter: its `missing`, or the rules of the group, decide how those count.


def withheld(
    group: Group[TaskT], numbers: Mapping[ScoreKey, Estimate], tasks: Mapping[str, TaskEntry]
) -> dict[ScoreKey, Estimate]:
    """A group's numbers; those to which a task was to contribute that was not run, or has no score, without a value."""
    kept = dict(numbers)
    for row, metric, names in _rows(group, numbers):
        lost = [name for name in names if name not in tasks or has_lost(tasks[name], metric)]
        for key in [key for key in numbers if key.metric == row] or [ScoreKey(row, NONE)]:
            number = numbers.get(key)
            if lost and (number is None or number.value is not None):
                kept[key] = _without_value(number, f"{share_of_tasks(lost, names)}: no score of {some(lost)}")
    return kept


def share_of_tasks(lost: Sequence[str], names: Sequence[str]) -> str:
    """How many tasks a number is of.

    >>> share_of_tasks(["b", "c"], ["a", "b", "c"])
    '1 of 3 tasks'
    """
    return f"{len(names) - len(lost)} of {len(names)} tasks"


def counted_tasks(group: Group[TaskT]) -> list[str]:
    """The tasks that a group's numbers are made of; of a group without numbers, all below it."""
    listed = [name for entry in group.aggregated_entries for name in _tasks_of(group, entry)]
    return list(dict.fromkeys(listed)) or [task.name for task in group.get_all_tasks()]


def _rows(group: Group[TaskT], numbers: Mapping[ScoreKey, Estimate]) -> list[tuple[str, str | None, Sequence[str]]]:
    """By row the metric it is made of and the tasks that count for it. Rows that a user's function adds may use all tasks."""
    entries = group.aggregated_entries
    rows: dict[str, tuple[str | None, Sequence[str]]] = {
        entry.row_metric: (counted_metric(entry), _tasks_of(group, entry)) for entry in entries
    }
    every = [task.name for task in group.get_all_tasks()]
    rows |= {key.metric: (None, every) for key in numbers if key.metric not in rows}
    return [(row, *about) for row, about in rows.items()]


def counted_metric(entry: AggMetricConfig) -> str | None:
    """The members' metric that a row is computed from; None where a user's function may use any."""
    if callable(entry.aggregation):
        return None
    return str((entry.kwargs or {}).get("of", "exact_match")) if entry.aggregation == "pass@k" else entry.metric_name


def _tasks_of(group: Group[TaskT], entry: AggMetricConfig) -> list[str]:
    names = MemberSelection.of(group.config).names(member_names(group, entry))
    if entry.levels != "children":
        return names
    groups = {child.name: child for child in group.children if isinstance(child, Group)}
    members = [[task.name for task in groups[name].get_all_tasks()] if name in groups else [name] for name in names]
    return list(dict.fromkeys(name for each in members for name in each))


def _without_value(number: Estimate | None, reason: str) -> Estimate:
    if number is None:
        return Estimate(None, None, 0, reason)
    evidence = Evidence(tasks=number.evidence.tasks, missing=number.evidence.missing)
    return Estimate(None, None, number.n, reason, evidence=evidence)
