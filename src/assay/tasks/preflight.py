"""Checks before the first request: of tasks, of a model for these tasks, of groups' aggregates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from assay.config.group import AggMetricConfig
from assay.config.option import YAMLMapping
from assay.config.row_names import row_name_problem
from assay.config.task import TaskConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean, some
from assay.groups.aggregators import AggregatorFactory
from assay.groups.group import Group, TaskT
from assay.groups.results import is_lenient
from assay.groups.rows import NONE, MemberSelection, filter_name, member_names
from assay.groups.rows import check as check_filter
from assay.models.protocol import AnyModel
from assay.records import Function, ScoreKey
from assay.scoring.metrics.table import METRICS
from assay.tasks.runnable import Runnable
from assay.tasks.settings import Resolve
from assay.tasks.task import Task

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
                formats = need == "loglikelihood" and task.task.definition is None
                way = f"ask for {task.task.name}@generate" if formats else "choose another model"
                problems.append(Problem(Place("model"), what, way))
    if problems:
        raise ConfigError(problems)


def check_over_length(model: AnyModel, over_length: str) -> None:
    """Refuse `drop_shots` for a model that does not count tokens, and `truncate` for one that does not cut prompts."""
    place = Place("over_length")
    if over_length == "drop_shots" and (model.max_length is None or model.count_tokens("a") is None):
        what = f"model {model.name!r} does not count tokens, or has no known context length"
        raise ConfigError([Problem(place, what, "give tokenizer=FOLDER and max_length=N in --model_args")])
    if over_length == "truncate" and not getattr(model, "cuts", False):  # models of users need not know of it
        what = f"model {model.name!r} does not cut prompts"
        raise ConfigError([Problem(place, what, "create it with over_length='truncate', or use drop_shots")])


def check_roles(models: Mapping[str, AnyModel], tasks: Sequence[Runnable]) -> None:
    """Refuse models of roles that cannot do what a task needs of them."""
    for task in tasks:
        for role, needs in task.role_needs().items():
            for need in sorted(needs):
                if not getattr(models[role].can, need):
                    what = f"task {task.task.name!r} needs a model {role!r} that can {MEANING[need]}"
                    what += f", and {models[role].name!r} cannot"
                    raise ConfigError([Problem(Place(f"model_role.{role}"), what, "choose another model")])


def ready_groups(groups: Iterable[Group[TaskT]], tasks: Sequence[Runnable], resolve: Resolve, *, lenient: bool) -> None:
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


def ready_group(group: Group[TaskT], resolve: Resolve) -> None:
    """A group with its functions resolved and its aggregators made."""
    entries = tuple(
        replace(entry, aggregation=resolve(entry.aggregation)) if isinstance(entry.aggregation, Function) else entry
        for entry in group.config.aggregate_metric_list or ()
    )
    scorer = group.config.group_scorer
    group_scorer = resolve(scorer) if isinstance(scorer, Function) else scorer
    group.config = replace(group.config, aggregate_metric_list=entries or None, group_scorer=group_scorer)
    wrong = check_filter(group.config.group_filter)
    if wrong is not None:
        raise ConfigError([Problem(place_in(group, "group_filter"), wrong, "see docs/groups.md")])
    if isinstance(group.config.type, Function):
        group.__class__ = resolve(group.config.type)
    group.aggregator = AggregatorFactory.create_aggregator(
        group.config, lambda number: place_in(group, "aggregate_metric_list", number)
    )


def _directions(group: Group[TaskT], tasks: Sequence[Runnable]) -> dict[str, bool | None]:
    """By metric whether more is better, where the members agree."""
    below = {task.name for task in group.get_all_tasks()}
    directions: dict[str, bool | None] = {}
    for task in tasks:
        if task.task.name in below:
            for metric, better in task.higher_is_better().items():
                directions[metric] = better if directions.get(metric, better) == better else None
    return directions


def check_samples(samples: YAMLMapping | None, tasks: Iterable[str]) -> None:
    """Refuse `samples` of tasks that the run does not have, or that are not lists of document numbers."""
    known, problems = list(tasks), []
    for name, numbers in (samples or {}).items():
        if name not in known:
            problems.append(
                Problem(Place("samples"), f"this run has no task named {name!r}", did_you_mean(name, known))
            )
        elif not isinstance(numbers, list | tuple) or not all(isinstance(n, int) and n >= 0 for n in numbers):
            problems.append(Problem(Place(f"samples.{name}"), "must be a list of document numbers", "write [0, 5, 7]"))
    if problems:
        raise ConfigError(problems)


Known = Mapping[str, frozenset[ScoreKey] | None]
"""By task the rows it will have; None where only user code knows."""
Fault = tuple[str, str]
"""A problem and its fix."""
SKIP = "add `missing: skip` to leave such members out of this number"


def lacking(group: Group[TaskT], known: Known) -> Iterator[Problem]:
    """Aggregates of what members do not have."""
    entries = group.config.aggregate_metric_list or ()
    for number, entry in enumerate(entries):
        place = place_in(group, "aggregate_metric_list", number)
        every = member_names(group, entry)
        names = MemberSelection.of(group.config).names(every)
        if every and not names:
            what = f"{dict.fromkeys(['group_filter'], group.config.group_filter)} leaves no member"
            yield Problem(place_in(group, "group_filter"), what, f"there are: {', '.join(every[:8])}")
            return
        wrong = group.aggregator.of_entry(number).check(names)
        fault = (wrong, "correct it") if wrong else _fault(group, entry, names, known)
        if fault is not None:
            yield Problem(place, *fault)


def doubled(group: Group[TaskT]) -> Iterator[Problem]:
    """Entries that make the same row, of which one would overwrite the other, or a row that results read otherwise."""
    entries = list(enumerate(group.config.aggregate_metric_list or ()))
    for number, entry in entries:
        place = place_in(group, "aggregate_metric_list", number)
        wrong = row_name_problem(entry.row_name)
        if wrong is not None:
            yield Problem(place, f"a row cannot be named {entry.row_name!r}: {wrong[0]}", wrong[1])
        first = next((n for n, other in entries[:number] if _make_one_row(other, entry)), None)
        if first is not None:
            other_place = place_in(group, "aggregate_metric_list", first)
            what = f"two entries make the row {entry.row_name!r}: the other one is at {other_place}"
            yield Problem(place, what, "give one of them a `name`")


def _make_one_row(one: AggMetricConfig, other: AggMetricConfig) -> bool:
    """Whether two entries make rows of one name, of the same filter or of filters that only a run will show."""
    if one.row_name != other.row_name or not one.filter_list or not other.filter_list:
        return one.row_name == other.row_name
    if isinstance(one.filter_list, Mapping) or isinstance(other.filter_list, Mapping):
        return one.filter_list == other.filter_list
    filters = [[each] if isinstance(each, str) else each for each in (one.filter_list, other.filter_list)]
    return not {filter_name(str(each)) for each in filters[0]}.isdisjoint(filter_name(str(each)) for each in filters[1])


def place_in(group: Group[TaskT], *path: str | int) -> Place:
    """Return the place of a key in the file of a group."""
    if str(path[0]) in group.fields:
        return group.fields.place(*path)
    return Place(f"group {group.name!r}, {path[0]}")


def _fault(group: Group[TaskT], entry: AggMetricConfig, names: Sequence[str], known: Known) -> Fault | None:
    if callable(entry.aggregation):
        return None
    rows = {name: keys for name in names if (keys := _rows(group, name, known)) is not None}
    if not rows:
        return None
    metrics = {entry.metric_name}
    if entry.aggregation == "pass@k":
        metrics.add(str((entry.kwargs or {}).get("of", "exact_match")))
    return _metric_fault(entry, metrics, rows, len(rows) == len(names)) or _filter_fault(entry, metrics, rows, names)


def _rows(group: Group[TaskT], name: str, known: Known) -> frozenset[ScoreKey] | None:
    """The rows of a member: those of a task, or of the aggregate_metric_list of a group; None where user code decides."""
    child = next((each for each in group.children if each.name == name and isinstance(each, Group)), None)
    if child is None:
        return known.get(name)
    entries = child.config.aggregate_metric_list or ()
    if child.config.group_scorer is not None or any(callable(entry.aggregation) for entry in entries):
        return None
    return frozenset(ScoreKey(entry.row_name, "*") for entry in entries)


def _metric_fault(
    entry: AggMetricConfig, metrics: set[str], rows: Mapping[str, frozenset[ScoreKey]], whole: bool
) -> Fault | None:
    there = sorted({key.metric for keys in rows.values() for key in keys})
    if not metrics & set(there):
        metric = sorted(metrics)[0] if entry.aggregation == "pass@k" else entry.metric_name
        what = f"no task of the group has the metric {metric!r}"
        return (what, f"{did_you_mean(metric, there)} (there are: {', '.join(there)})") if whole else None
    without = [name for name, keys in rows.items() if not any(key.metric in metrics for key in keys)]
    if without and entry.missing != "skip":
        return f"{some(without)}: no metric {entry.metric_name!r}", SKIP
    return None


def _filter_fault(
    entry: AggMetricConfig, metrics: set[str], rows: Mapping[str, frozenset[ScoreKey]], names: Sequence[str]
) -> Fault | None:
    """Return the problem of a filter that an entry names and members lack."""
    filters = {name: {key.filter for key in keys if key.metric in metrics} for name, keys in rows.items()}
    if isinstance(entry.filter_list, Mapping):
        unknown = [str(name) for name in entry.filter_list if name != "*" and name not in names]
        if unknown:
            return f"no member named {unknown[0]!r}", did_you_mean(unknown[0], names)
        by_task = {str(task): filter_name(str(name)) for task, name in entry.filter_list.items()}
        filters_named = {name: [by_task.get(name, by_task.get("*", NONE))] for name in filters}
    else:
        listed = [entry.filter_list] if isinstance(entry.filter_list, str) else list(entry.filter_list or ())
        filters_named = {name: [filter_name(str(each)) for each in listed] for name in filters}
    for name, keys in filters.items():
        absent = next((each for each in filters_named[name] if keys and "*" not in keys and each not in keys), None)
        if absent is not None and (entry.missing != "skip" or not any(absent in each for each in filters.values())):
            known_elsewhere = any(absent in each for each in filters.values())
            who = f"{name}: no" if known_elsewhere else "no task of the group has"
            return f"{who} {entry.metric_name!r} of filter {absent!r}", f"{did_you_mean(absent, keys)} or {SKIP}"
    return None
