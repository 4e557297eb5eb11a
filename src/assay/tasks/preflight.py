"""What can be known to fail before anything is asked: of tasks, and of a model for these tasks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.config.group import AggMetricConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.groups.group import Group
from assay.models.protocol import Model
from assay.records import ScoreKey
from assay.tasks.runnable import Runnable
from assay.tasks.task import Task

MEANING = {
    "generate": "generate text",
    "loglikelihood": "give log-likelihoods",
    "rolling": "give the log-likelihood of whole texts",
    "chat": "apply a chat template",
}


def refuse_unsafe(tasks: Iterable[Task], *, confirmed: bool) -> None:
    """Tasks that execute what the model writes run only when that was asked for."""
    unsafe = [task for task in tasks if task.config.unsafe_code]
    if unsafe and not confirmed:
        names = ", ".join(task.name for task in unsafe[:5])
        what = f"scoring executes code that the model writes ({names})"
        raise ConfigError([Problem(Place("tasks"), what, "give --confirm_run_unsafe_code if that is what you want")])


def check_model(model: Model, tasks: Sequence[Runnable]) -> None:
    """Refuse tasks that need what the model cannot do, all of them at once."""
    problems = []
    for task in tasks:
        for need in sorted(task.needs):
            if not getattr(model.can, need):
                what = f"task {task.task.name!r} needs a model that can {MEANING[need]}, and {model.name!r} cannot"
                way = f"ask for {task.task.name}@generate" if need == "loglikelihood" else "choose another model"
                problems.append(Problem(Place("model"), what, way))
    if problems:
        raise ConfigError(problems)


def check_groups(groups: Iterable[Group[Any]], tasks: Sequence[Runnable]) -> None:
    """Refuse a group's aggregate of a metric or filter that none of its tasks has, where all of them can tell."""
    known = {task.task.name: task.rows() for task in tasks}
    problems = []
    for group in groups:
        rows = [known[task.name] for task in group.get_all_tasks() if task.name in known]
        lenient = any(group.fields.origin(key).lenient for key in group.fields)
        if lenient or not rows or any(row is None for row in rows):
            continue
        there = {key for row in rows for key in row or ()}
        for number, entry in enumerate(group.config.aggregate_metric_list or ()):
            problem = _missing(entry, there)
            if problem is not None:
                problems.append(Problem(_place(group, number), *problem))
    if problems:
        raise ConfigError(problems)


def _place(group: Group[Any], number: int) -> Place:
    if "aggregate_metric_list" in group.fields:
        return group.fields.place("aggregate_metric_list", number)
    return Place(f"group {group.name!r}")


def _missing(entry: AggMetricConfig, there: Iterable[ScoreKey]) -> tuple[str, str] | None:
    """What is wrong with an aggregate, and the remedy."""
    filters = [key.filter for key in there if key.metric == entry.metric_name]
    if not filters:
        metrics = sorted({key.metric for key in there})
        what = f"no task of the group has the metric {entry.metric_name!r}"
        return what, did_you_mean(entry.metric_name, metrics) + f" (there are: {', '.join(metrics)})"
    wanted = [entry.filter_list] if isinstance(entry.filter_list, str) else entry.filter_list or ()
    absent = next((name for name in wanted if name not in filters), None)
    if absent is None:
        return None
    return f"no task of the group has {entry.metric_name!r} of a filter {absent!r}", did_you_mean(absent, filters)


def check_samples(samples: Mapping[str, object] | None, tasks: Iterable[str]) -> None:
    """`samples` speaks of tasks that are there, and gives lists of whole numbers."""
    known, problems = list(tasks), []
    for name, numbers in (samples or {}).items():
        if name not in known:
            problems.append(
                Problem(Place("samples"), f"no task of this run is called {name!r}", did_you_mean(name, known))
            )
        elif not isinstance(numbers, list | tuple) or not all(isinstance(n, int) and n >= 0 for n in numbers):
            problems.append(
                Problem(Place(f"samples.{name}"), "must be a list of numbers of documents", "write [0, 5, 7]")
            )
    if problems:
        raise ConfigError(problems)
