"""The numbers of groups from those of their tasks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from assay.config.group import AggMetricConfig
from assay.groups.group import Group
from assay.groups.mean import TaskScore, mean_of_tasks
from assay.records import Estimate, ScoreKey


class Scored(Protocol):
    """What a group needs of a task's result."""

    @property
    def rows(self) -> Mapping[ScoreKey, Estimate]: ...
    @property
    def scored(self) -> int: ...


def bottom_up(groups: Iterable[Group[Any]]) -> list[Group[Any]]:
    """Every group, after those it contains."""
    ordered: dict[int, Group[Any]] = {}

    def visit(group: Group[Any]) -> None:
        if id(group) not in ordered:
            for child in group.children:
                if isinstance(child, Group):
                    visit(child)
            ordered[id(group)] = group

    for group in groups:
        visit(group)
    return list(ordered.values())


def group_rows(group: Group[Any], tasks: Mapping[str, Scored], *, like_lm_eval: bool) -> dict[ScoreKey, Estimate]:
    """A group's own numbers, as its aggregate_metric_list says."""
    leaves = [task.name for task in group.get_all_tasks()]
    rows: dict[ScoreKey, Estimate] = {}
    for entry in group.config.aggregate_metric_list or ():
        for filter_name in _filters(entry, leaves, tasks):
            key = ScoreKey(entry.metric_name, filter_name)
            found = {
                name: TaskScore(estimate.value, estimate.stderr, tasks[name].scored if like_lm_eval else estimate.n)
                for name in leaves
                if name in tasks and (estimate := tasks[name].rows.get(key)) is not None
            }
            score = mean_of_tasks(leaves, found, by_size=bool(entry.weight_by_size), like_lm_eval=like_lm_eval)
            if score is not None:
                rows[key] = Estimate(score.value, score.stderr, score.size)
    return rows


def _filters(entry: AggMetricConfig, leaves: Sequence[str], tasks: Mapping[str, Scored]) -> list[str]:
    if entry.filter_list is None:
        rows = [key for name in leaves if name in tasks for key in tasks[name].rows]
        return sorted({key.filter for key in rows if key.metric == entry.metric_name})
    return [entry.filter_list] if isinstance(entry.filter_list, str) else list(entry.filter_list)
