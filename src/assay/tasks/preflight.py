"""What can be known to fail before anything is asked: of tasks, and of a model for these tasks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.config.task import TaskConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.groups.aggregators import AggregatorFactory
from assay.groups.group import Group
from assay.groups.results import is_lenient
from assay.groups.rows import check as check_filter
from assay.models.protocol import AnyModel
from assay.records import Function
from assay.scoring.metrics.table import METRICS
from assay.tasks.aggregates import doubled, lacking, place_in
from assay.tasks.graph import GraphTask
from assay.tasks.runnable import Runnable
from assay.tasks.task import Task

Resolve = Callable[[Function], Any]
MEANING = {
    "generate": "generate text",
    "loglikelihood": "give log-likelihoods",
    "rolling": "give the log-likelihood of whole texts",
    "chat": "apply a chat template",
    "tools": "call tools",
}


def refuse_unsafe(tasks: Iterable[Task], *, confirmed: bool) -> None:
    """Tasks that execute what the model writes run only when that was asked for."""
    unsafe = [task for task in tasks if task.config.unsafe_code or _runs_code(task.config)]
    if unsafe and not confirmed:
        names = ", ".join(task.name for task in unsafe[:5])
        what = f"scoring executes code that the model writes ({names})"
        raise ConfigError([Problem(Place("tasks"), what, "give --confirm_run_unsafe_code if that is what you want")])


def _runs_code(config: TaskConfig) -> bool:
    """Whether a metric of the task, or of one of its filters, executes what the model writes."""
    lists = [config.metric_list, *(entry.metric_list for entry in config.filter_list or ())]
    names = [metric.name for metrics in lists for metric in metrics or () if isinstance(metric.name, str)]
    return any(name in METRICS and METRICS[name].runs_code for name in names)


def check_model(model: AnyModel, tasks: Sequence[Runnable]) -> None:
    """Refuse tasks that need what the model cannot do, all of them at once."""
    problems = []
    for task in tasks:
        for need in sorted(task.needs):
            if not getattr(model.can, need):
                what = f"task {task.task.name!r} needs a model that can {MEANING[need]}, and {model.name!r} cannot"
                formats = need == "loglikelihood" and task.task.graph is None
                way = f"ask for {task.task.name}@generate" if formats else "choose another model"
                problems.append(Problem(Place("model"), what, way))
    if problems:
        raise ConfigError(problems)


def check_over_length(model: AnyModel, wanted: str) -> None:
    """Examples can only be dropped by a model that counts tokens, and prompts only be cut by one that was told to."""
    place = Place("over_length")
    if wanted == "drop_shots" and (model.max_length is None or model.count_tokens("a") is None):
        what = f"model {model.name!r} does not say how many tokens a prompt has, or may have"
        raise ConfigError([Problem(place, what, "give tokenizer=FOLDER and max_length=N in --model_args")])
    if wanted == "truncate" and not getattr(model, "cuts", False):  # models of users need not know of it
        what = f"model {model.name!r} does not cut prompts"
        raise ConfigError([Problem(place, what, "make it with over_length='truncate', or take drop_shots")])


def check_roles(models: Mapping[str, AnyModel], tasks: Sequence[Runnable]) -> None:
    """Refuse models of graphs that cannot do what their nodes ask of them."""
    for task in tasks:
        for role in task.models() if task.task.graph is not None else ():
            for need in sorted(task.needs_of(role)) if isinstance(task, GraphTask) else ():
                if not getattr(models[role].can, need):
                    what = f"task {task.task.name!r} needs a model {role!r} that can {MEANING[need]}"
                    what += f", and {models[role].name!r} cannot"
                    raise ConfigError([Problem(Place(f"model_role.{role}"), what, "choose another model")])


def ready_groups(groups: Iterable[Group[Any]], tasks: Sequence[Runnable], resolve: Resolve, *, lenient: bool) -> None:
    """Give every group what computes its numbers, and refuse what cannot be computed; all problems at once."""
    known = {task.task.name: task.rows() for task in tasks}
    problems: list[Problem] = []
    for group in groups:
        try:
            ready_group(group, resolve)
        except ConfigError as error:
            problems += error.problems
            continue
        group.directions = _directions(group, tasks)
        if not lenient and not is_lenient(group):
            problems += [*lacking(group, known), *doubled(group)]
    if problems:
        raise ConfigError(problems)


def ready_group(group: Group[Any], resolve: Resolve) -> None:
    """A group with its functions resolved and its aggregators made."""
    entries = tuple(
        replace(entry, aggregation=resolve(entry.aggregation)) if isinstance(entry.aggregation, Function) else entry
        for entry in group.config.aggregate_metric_list or ()
    )
    scorer = group.config.group_scorer
    found = resolve(scorer) if isinstance(scorer, Function) else scorer
    group.config = replace(group.config, aggregate_metric_list=entries or None, group_scorer=found)
    wrong = check_filter(group.config.group_filter)
    if wrong is not None:
        raise ConfigError([Problem(place_in(group, "group_filter"), wrong, "see docs/groups.md")])
    if isinstance(group.config.type, Function):
        group.__class__ = resolve(group.config.type)
    group.aggregator = AggregatorFactory.create_aggregator(
        group.config, lambda number: place_in(group, "aggregate_metric_list", number)
    )


def _directions(group: Group[Any], tasks: Sequence[Runnable]) -> dict[str, bool | None]:
    """By metric whether more is better, where the members agree."""
    below = {task.name for task in group.get_all_tasks()}
    found: dict[str, bool | None] = {}
    for task in tasks:
        if task.task.name in below:
            for metric, better in task.higher_is_better().items():
                found[metric] = better if found.get(metric, better) == better else None
    return found


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
