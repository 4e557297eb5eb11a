"""Numbers of groups that are withheld: a mean over one of 57 tasks is not the group's.

Members that have no such metric are another matter: the group's `missing`, or lm-eval's leniency, decides how those count.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from assay.config.group import AggMetricConfig
from assay.errors import some
from assay.groups.group import Group
from assay.groups.rows import NONE, member_names
from assay.groups.selection import MemberSelection
from assay.records import Estimate, ScoreKey


class Counted(Protocol):
    """The result of a task that was run."""

    def has_lost(self, metric: str | None) -> bool:
        """Whether documents that failed, or were not asked, are why it has no score of this metric; None: no score at all."""
        ...


def withheld(
    group: Group[Any], numbers: Mapping[ScoreKey, Estimate], tasks: Mapping[str, Counted]
) -> dict[ScoreKey, Estimate]:
    """A group's numbers; those to which a task was to contribute that was not run, or has no score, without a value."""
    found = dict(numbers)
    for row, metric, names in _rows(group, numbers):
        lost = [name for name in names if name not in tasks or tasks[name].has_lost(metric)]
        for key in [key for key in numbers if key.metric == row] or [ScoreKey(row, NONE)]:
            number = numbers.get(key)
            if lost and (number is None or not math.isnan(number)):
                found[key] = _without_value(number, f"{share_of_tasks(lost, names)}: no score of {some(lost)}")
    return found


def share_of_tasks(lost: Sequence[str], names: Sequence[str]) -> str:
    """How many tasks a number is of.

    >>> share_of_tasks(["b", "c"], ["a", "b", "c"])
    '1 of 3 tasks'
    """
    return f"{len(names) - len(lost)} of {len(names)} tasks"


def counted_tasks(group: Group[Any]) -> list[str]:
    """The tasks that a group's numbers are made of; of a group without numbers, all below it."""
    listed = [name for entry in group.config.aggregate_metric_list or () for name in _tasks_of(group, entry)]
    return list(dict.fromkeys(listed)) or [task.name for task in group.get_all_tasks()]


def _rows(group: Group[Any], numbers: Mapping[ScoreKey, Estimate]) -> list[tuple[str, str | None, Sequence[str]]]:
    """By row the metric it is made of and the tasks that count for it. What a function of the user's adds may use all tasks."""
    entries = group.config.aggregate_metric_list or ()
    rows: dict[str, tuple[str | None, Sequence[str]]] = {
        entry.row_name: (_metric(entry), _tasks_of(group, entry)) for entry in entries
    }
    every = [task.name for task in group.get_all_tasks()]
    rows |= {key.metric: (None, every) for key in numbers if key.metric not in rows}
    return [(row, *about) for row, about in rows.items()]


def _metric(entry: AggMetricConfig) -> str | None:
    if callable(entry.aggregation):
        return None
    return str((entry.kwargs or {}).get("of", "exact_match")) if entry.aggregation == "pass@k" else entry.metric_name


def _tasks_of(group: Group[Any], entry: AggMetricConfig) -> list[str]:
    names = MemberSelection.of(group.config).names(member_names(group, entry))
    if entry.levels != "children":
        return names
    groups = {child.name: child for child in group.children if isinstance(child, Group)}
    several = [[task.name for task in groups[name].get_all_tasks()] if name in groups else [name] for name in names]
    return list(dict.fromkeys(name for each in several for name in each))


def _without_value(number: Estimate | None, reason: str) -> Estimate:
    if number is None:
        return Estimate(math.nan, None, 0, reason)
    return Estimate(math.nan, None, number.n, reason, tasks=number.tasks, missing=number.missing)
