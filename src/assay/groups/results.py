"""The numbers of groups from those of their tasks."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

from assay.config.group import AggMetricConfig
from assay.config.row_names import STDERR, filter_name_problem, row_key, row_name_problem
from assay.errors import some
from assay.groups.aggregators import guarded
from assay.groups.group import Group, TaskT
from assay.groups.rows import NONE, SAMPLES, MemberSelection, documents_of, failed_row, member_names, written_rows
from assay.records import ScoreKey, UserValue, number
from assay.statistics.influence import Estimate, Influence
from assay.statistics.intervals import noted
from assay.user_code import is_overridden


class MemberResult(Protocol):
    """The part of a task's result that a group needs."""

    @property
    def rows(self) -> Mapping[ScoreKey, Estimate]: ...
    @property
    def scored(self) -> int: ...
    def has_lost(self, metric: str | None) -> bool:
        """Whether it lacks a score of this metric because documents failed or were not asked; None: has no score at all."""
        ...


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
    groups: Sequence[Group[TaskT]], tasks: Mapping[str, MemberResult], *, like_lm_eval: bool
) -> dict[str, dict[ScoreKey, Estimate]]:
    """The numbers of groups, which come with members first; by the group's name."""
    known: dict[str, Mapping[str, float]] = {
        name: {**written_rows(task.rows), SAMPLES: task.scored} for name, task in tasks.items()
    }
    numbers: dict[str, dict[ScoreKey, Estimate]] = {}
    for group in groups:
        if like_lm_eval and _is_lm_evals(group):
            numbers[group.name] = withheld(group, like_lm_evals(group, tasks), tasks)
            continue
        with _strictness(group):
            checked = _checked(_numbers(group, known), lenient=is_lenient(group))
        numbers[group.name] = {key: noted(row) for key, row in withheld(group, checked, tasks).items()}
        known[group.name] = {**written_rows(numbers[group.name]), SAMPLES: documents_of(group, known)}
    return numbers


def _is_lm_evals(group: Group[TaskT]) -> bool:
    """Whether a group has nothing that lm-eval does not have: means alone, and no code of a user's."""
    entries = group.config.aggregate_metric_list or ()
    own_code = group.computes_own_numbers or group.config.group_scorer is not None
    return not own_code and all(entry.aggregation == "mean" for entry in entries)


@contextmanager
def _strictness(group: Group[TaskT]) -> Iterator[None]:
    """Have the aggregator of a group be as strict as the group's file is; afterwards as before: it may be a user's object."""
    aggregator = group.aggregator
    before, aggregator.strict = aggregator.strict, not is_lenient(group)
    try:
        yield
    finally:
        aggregator.strict = before


def _numbers(group: Group[TaskT], known: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, float]]:
    """A group's own numbers. What fails loses its own rows: the aggregators', or those of the group's scorer."""
    names = [entry.row_name for entry in group.config.aggregate_metric_list or ()]
    if is_overridden(group, "compute_metrics", Group):
        numbers = guarded(partial(group.compute_metrics, known), names or ["compute_metrics"])
        aggregated = guarded(partial(group.aggregator.estimates, group, known), names)
        lost = {row: value for row, value in aggregated.items() if value != value and row not in numbers}
        yield from {**numbers, **lost}.items()
        return
    scorer = getattr(group.config.group_scorer, "__name__", "group_scorer")
    if group.has_own_aggregator and not names:
        names = [type(group.aggregator).__name__]
    yield from guarded(partial(group.aggregator.estimates, group, known), names).items()
    yield from guarded(partial(group.own_metrics, known), [scorer]).items()


def _checked(numbers: Iterable[tuple[str, UserValue]], *, lenient: bool) -> dict[ScoreKey, Estimate]:
    """Rows with their numbers; user code may return other values, or one name twice."""
    rows: dict[ScoreKey, Estimate] = {}
    for name, value in numbers:
        key, wrong = row_key(name), None
        if not lenient:
            wrong = row_name_problem(key.metric) or filter_name_problem(key.filter)
        if wrong is not None:
            key = ScoreKey(key.metric.removesuffix(STDERR) or "unnamed", NONE)
            rows[key] = failed_row(f"a row cannot be named {name!r}: {wrong[0]} — {wrong[1]}")
        elif key in rows and not lenient:
            rows[key] = failed_row("two numbers of the group have this name — rename one of them")
        else:
            rows[key] = _as_estimate(value)
    return rows


def is_lenient(group: Group[TaskT]) -> bool:
    """Whether it comes from a folder that is read as leniently as lm-eval reads."""
    return any(group.fields.origin(key).lenient for key in group.fields)


def _as_estimate(value: UserValue) -> Estimate:
    if isinstance(value, Estimate):
        return value
    plain_number = number(value)
    if plain_number is None:
        return failed_row(f"a user function returned a value of type {type(value).__name__!r}, not a number")
    if math.isnan(plain_number):
        return failed_row("a user function returned NaN")
    return Estimate(plain_number, None, 0, "returned by a user function")


# --- as lm-eval 0.4.13 computes them ---------------------------------------------------------------------------------


class TaskScore(NamedTuple):
    """One task's number for a row of a group: its value, standard error and number of documents."""

    value: float
    stderr: float | None
    size: int


class GroupScore(NamedTuple):
    """A group's number."""

    value: float
    stderr: float | None
    size: int
    missing: Sequence[str] = ()


def weighted_mean(scores: Sequence[TaskScore], *, by_size: bool) -> float:
    """The members' values, each as often as it has documents, or each once; summed from left to right."""
    weights = [score.size if by_size else 1 for score in scores]
    above = 0.0
    for score, weight in zip(scores, weights, strict=True):
        above += score.value * weight
    return above / sum(weights)


def pooled_stderr(scores: Sequence[TaskScore], *, by_size: bool) -> float | None:
    """The error as lm-eval 0.4.13 writes it: for means by size the pooled error, which also counts the spread between sizes."""
    errors = [score.stderr for score in scores if score.stderr is not None]
    if len(errors) < len(scores):
        return None
    if not by_size:
        return math.sqrt(sum(error**2 for error in errors)) / len(errors)
    sizes = [score.size for score in scores]
    if sum(sizes) == len(sizes):
        return None
    variance = sum((size - 1) * error**2 * size for size, error in zip(sizes, errors, strict=True)) / (
        sum(sizes) - len(sizes)
    )
    return math.sqrt(variance / sum(sizes))


def mean_of_tasks(tasks: Sequence[str], scores_by_task: Mapping[str, TaskScore], *, by_size: bool) -> GroupScore | None:
    """The group's number from those of its tasks that have one; None where none has."""
    scores = [scores_by_task[task] for task in tasks if task in scores_by_task]
    if not scores:
        return None
    error = pooled_stderr(scores, by_size=by_size)
    missing = tuple(task for task in tasks if task not in scores_by_task)
    return GroupScore(weighted_mean(scores, by_size=by_size), error, sum(score.size for score in scores), missing)


def like_lm_evals(group: Group[TaskT], tasks: Mapping[str, MemberResult]) -> dict[ScoreKey, Estimate]:
    """A group's numbers as lm-eval 0.4.13 computes them."""
    leaves = [task.name for task in group.get_all_tasks()]
    rows: dict[ScoreKey, Estimate] = {}
    for entry in group.config.aggregate_metric_list or ():
        for filter_name in _filters(entry, leaves, tasks):
            key = ScoreKey(entry.metric_name, filter_name)
            scores = {
                name: TaskScore(float(estimate), estimate.stderr, tasks[name].scored)
                for name in leaves
                if name in tasks and (estimate := tasks[name].rows.get(key)) is not None
            }
            by_size = entry.by_size is not False
            score = mean_of_tasks(leaves, scores, by_size=by_size)
            if score is not None:
                parts = _parts({name: tasks[name].rows[key] for name in scores}, scores, by_size=by_size)
                missing = tuple(score.missing)
                rows[key] = Estimate(score.value, score.stderr, score.size, missing=missing, parts=parts)
    return rows


def _parts(rows: Mapping[str, Estimate], scores: Mapping[str, TaskScore], *, by_size: bool) -> dict[Influence, float]:
    """The draws that a mean of tasks depends on; none where that is not known of all."""
    weights = {name: score.size if by_size else 1 for name, score in scores.items()}
    whole = sum(weights.values())
    if not whole or not all(row.parts for row in rows.values()):
        return {}
    return {draws: weights[name] / whole for name, row in rows.items() for draws in row.parts}


def _filters(entry: AggMetricConfig, leaves: Sequence[str], tasks: Mapping[str, MemberResult]) -> list[str]:
    if isinstance(entry.filters, str):
        return [entry.filters]
    if entry.filters is not None:
        return list(entry.filters)
    rows = [key for name in leaves if name in tasks for key in tasks[name].rows]
    return sorted({key.filter for key in rows if key.metric == entry.metric_name})


# --- withheld numbers: a mean over one of 57 tasks is not the group's -------------------------------------------------
# Members without the metric are another matter: the group's `missing`, or lm-eval's leniency, decides how those count.


def withheld(
    group: Group[TaskT], numbers: Mapping[ScoreKey, Estimate], tasks: Mapping[str, MemberResult]
) -> dict[ScoreKey, Estimate]:
    """A group's numbers; those to which a task was to contribute that was not run, or has no score, without a value."""
    kept = dict(numbers)
    for row, metric, names in _rows(group, numbers):
        lost = [name for name in names if name not in tasks or tasks[name].has_lost(metric)]
        for key in [key for key in numbers if key.metric == row] or [ScoreKey(row, NONE)]:
            number = numbers.get(key)
            if lost and (number is None or not math.isnan(number)):
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
        entry.row_name: (counted_metric(entry), _tasks_of(group, entry)) for entry in entries
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
        return Estimate(math.nan, None, 0, reason)
    return Estimate(math.nan, None, number.n, reason, tasks=number.tasks, missing=number.missing)
