"""The numbers of groups from those of their tasks."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from assay.config.group import AggMetricConfig
from assay.config.row_names import STDERR, filter_name_problem, row_key, row_name_problem
from assay.groups.aggregators import guarded
from assay.groups.group import Group
from assay.groups.mean import TaskScore, mean_of_tasks
from assay.groups.rows import NONE, SAMPLES, written_rows
from assay.groups.spread import unknown
from assay.groups.withheld import Counted, withheld
from assay.records import Draws, Estimate, ScoreKey, number


class MemberResult(Counted, Protocol):
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


def group_numbers(
    groups: Sequence[Group[Any]], tasks: Mapping[str, MemberResult], *, like_lm_eval: bool
) -> dict[str, dict[ScoreKey, Estimate]]:
    """The numbers of groups, which come with members first; by the group's name."""
    known: dict[str, Mapping[str, float]] = {
        name: {**written_rows(task.rows), SAMPLES: task.scored} for name, task in tasks.items()
    }
    found: dict[str, dict[ScoreKey, Estimate]] = {}
    for group in groups:
        if like_lm_eval and all(entry.aggregation == "mean" for entry in group.config.aggregate_metric_list or ()):
            found[group.name] = withheld(group, like_lm_evals(group, tasks), tasks)
            continue
        group.aggregator.strict = not is_lenient(group)
        made = _checked(_numbers(group, known), lenient=is_lenient(group))
        found[group.name] = withheld(group, made, tasks)
        known[group.name] = written_rows(found[group.name])
    return found


def _numbers(group: Group[Any], known: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, float]]:
    """A group's own numbers. What fails loses its own rows: the aggregators', or those of the group's scorer."""
    names = [entry.row_name for entry in group.config.aggregate_metric_list or ()]
    if type(group).compute_metrics is not Group.compute_metrics:  # a kind of group of the user's
        yield from guarded(partial(group.compute_metrics, known), names).items()
        return
    scorer = getattr(group.config.group_scorer, "__name__", "group_scorer")
    yield from guarded(partial(group.aggregator.aggregate, group, known), names).items()
    yield from guarded(partial(group.own_metrics, known), [scorer]).items()


def _checked(numbers: Iterable[tuple[str, Any]], *, lenient: bool) -> dict[ScoreKey, Estimate]:
    """Rows with their numbers; of user code some may be none, and some have names that others have."""
    found: dict[ScoreKey, Estimate] = {}
    for name, value in numbers:
        key, wrong = row_key(name), None
        if not lenient:
            wrong = row_name_problem(key.metric) or filter_name_problem(key.filter)
        if wrong is not None:
            key = ScoreKey(key.metric.removesuffix(STDERR) or "unnamed", NONE)
            found[key] = unknown(math.nan, (), f"a row cannot be named {name!r}: {wrong[0]} — {wrong[1]}")
        elif key in found and not lenient:
            found[key] = unknown(math.nan, (), "two numbers of the group have this name — rename one of them")
        else:
            found[key] = _as_estimate(value)
    return found


def is_lenient(group: Group[Any]) -> bool:
    """Whether it comes from a folder that is read as leniently as lm-eval reads."""
    return any(group.fields.origin(key).lenient for key in group.fields)


def _as_estimate(value: Any) -> Estimate:
    if isinstance(value, Estimate):
        return value
    found = number(value)
    if found is None:
        return unknown(math.nan, (), f"a function of yours gave a value of type {type(value).__name__!r}, not a number")
    return Estimate(found, None, 0, "a function of yours gave it")


def like_lm_evals(group: Group[Any], tasks: Mapping[str, MemberResult]) -> dict[ScoreKey, Estimate]:
    """A group's numbers as lm-eval 0.4.13 computes them."""
    leaves = [task.name for task in group.get_all_tasks()]
    rows: dict[ScoreKey, Estimate] = {}
    for entry in group.config.aggregate_metric_list or ():
        for filter_name in _filters(entry, leaves, tasks):
            key = ScoreKey(entry.metric_name, filter_name)
            found = {
                name: TaskScore(float(estimate), estimate.stderr, tasks[name].scored)
                for name in leaves
                if name in tasks and (estimate := tasks[name].rows.get(key)) is not None
            }
            by_size = entry.weight_by_size is not False
            score = mean_of_tasks(leaves, found, by_size=by_size)
            if score is not None:
                parts = _parts({name: tasks[name].rows[key] for name in found}, found, by_size=by_size)
                missing = tuple(score.missing)
                rows[key] = Estimate(score.value, score.stderr, score.size, missing=missing, parts=parts)
    return rows


def _parts(rows: Mapping[str, Estimate], found: Mapping[str, TaskScore], *, by_size: bool) -> dict[Draws, float]:
    """What a mean of tasks depends on; nothing where that is not known of all."""
    weights = {name: score.size if by_size else 1 for name, score in found.items()}
    whole = sum(weights.values())
    if not whole or not all(row.parts for row in rows.values()):
        return {}
    return {draws: weights[name] / whole for name, row in rows.items() for draws in row.parts}


def _filters(entry: AggMetricConfig, leaves: Sequence[str], tasks: Mapping[str, MemberResult]) -> list[str]:
    if isinstance(entry.filter_list, str):
        return [entry.filter_list]
    if entry.filter_list is not None:
        return list(entry.filter_list)
    rows = [key for name in leaves if name in tasks for key in tasks[name].rows]
    return sorted({key.filter for key in rows if key.metric == entry.metric_name})
