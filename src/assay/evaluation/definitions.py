"""Definitions of tasks and groups: those of an earlier run loaded again, replaced by files, or changed on the command line."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from assay.config.arguments import parse_arguments, parse_value
from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.config.option import YAMLValue
from assay.config.source import Source
from assay.config.task import FilterConfig, FilterStep, MetricConfig, ScorerConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean, some
from assay.groups import Group
from assay.runs.results import tasks_text
from assay.scoring.filters import DEFAULT, ENDS, FILTERS, text_step
from assay.scoring.metrics.registry import DEFAULTS
from assay.scoring.named import make_scorer
from assay.scoring.results import GENERATE
from assay.tasks import Task, TaskManager
from assay.user_code import code_in

if TYPE_CHECKING:
    from assay.evaluation.answers import StoredAnswers

SCORING_CODE = ("class", "filter_list", "metric_list", "process_results", "scorer")
"""Keys of a task whose code is needed to score its answers."""
IN_A_FILE = "write it in a file that names it with `!function`, and give that file with --with FILE"
FIX = "give the folder that has it with --include_path DIR, or a file with --with FILE"


class Definitions(NamedTuple):
    """Tasks and groups by name, and the groups that cannot be computed, each with the reason."""

    tasks: dict[str, Task]
    groups: dict[str, Group[Task]]
    left_out: dict[str, str]


def load_definitions(answers: "StoredAnswers", files: Sequence[str] = (), selected: Sequence[str] = ()) -> Definitions:
    """The definitions of the tasks of stored answers; `selected` are names, globs or groups. All problems at once."""
    manager, names = answers.manager, answers.names
    loaded, problems = manager.attempt([*map(_without_code, answers.config.tasks)], resolve=manager.resolve)
    tasks, groups = dict(loaded["tasks"]), dict(loaded["groups"])
    unloaded = _unloaded(answers, groups, problems)
    in_python = _set_in_python(answers)
    for file in files:
        before = dict(tasks)
        replaced = _replace(tasks, groups, manager, file, names)
        unloaded = {name: why for name, why in unloaded.items() if name not in replaced}
        in_python = {name: what for name, what in in_python.items() if tasks.get(name) is before.get(name)}
    chosen = _chosen(selected, names, groups)
    lost = [Problem(Place(f"task {name!r}"), in_python[name], IN_A_FILE) for name in chosen if name in in_python]
    if lost:
        raise ConfigError(lost)
    what = "its definition is not found"
    if answers.left_out:
        unused = some(answers.left_out)
        what = (
            f"its definition is not found: the run was made elsewhere, and the paths it names are not used ({unused})"
        )
    wrong = [Problem(Place(f"task {name!r}"), what, FIX) for name in chosen if name not in tasks]
    if wrong:
        raise ConfigError([*wrong, *(problem for problem in problems if problem.serious)])
    lacking = {name: why for name, group in groups.items() if (why := _lacking(group, [*chosen, *answers.broken]))}
    left_out = {**unloaded, **lacking}
    return Definitions(
        {name: tasks[name] for name in chosen},
        {name: group for name, group in groups.items() if name not in left_out},
        left_out,
    )


def _without_code(spec: YAMLValue) -> YAMLValue:
    """A spec of the run without the keys whose code was given in Python; what scores a task is refused by its own record."""
    if not isinstance(spec, Mapping) or code_in(spec) is None:
        return spec
    rest = {key: value for key, value in spec.items() if code_in(value) is None}
    [*kept] = rest
    return rest[kept[0]] if kept in (["task"], ["group"]) else rest


def _set_in_python(answers: "StoredAnswers") -> dict[str, str]:
    """The tasks that code in memory scored, each with that code."""
    found = {}
    for name, task in answers.results.tasks.items():
        code = {key: code_in(value) for key, value in (task.config or {}).items() if key in SCORING_CODE}
        lost = [f"{key} was {what}" for key, what in code.items() if what is not None]
        if lost:
            found[name] = ", ".join(lost)
    return found


def _unloaded(
    answers: "StoredAnswers", groups: Mapping[str, Group[Task]], problems: Sequence[Problem]
) -> dict[str, str]:
    """The groups of the run that cannot be computed as they were, each with the reason."""
    left_out: dict[str, str] = {}
    for spec in answers.config.tasks:
        if isinstance(spec, Mapping) and "group" in spec and (code := code_in(spec)) is not None:
            left_out[str(spec["group"])] = f"its code was {code}: {IN_A_FILE}"
    serious = [problem for problem in problems if problem.serious]
    for name, group in answers.results.groups.items():
        code = group.computed_by
        if name not in groups and serious:
            left_out[name] = f"its definition cannot be loaded: {serious[0]}"
        elif name in groups and code is not None and not groups[name].computes_own_numbers:
            left_out[name] = (
                f"{code}, which computed it, was set in Python: a file can name it, as `type: !function MODULE.GROUP`"
            )
    return left_out


def _replace(
    tasks: dict[str, Task], groups: dict[str, Group[Task]], manager: TaskManager, file: str, names: Sequence[str]
) -> Collection[str]:
    """Replace tasks and groups by those of a file that have the same names; returns the names of its groups."""
    if not Path(file).is_file():
        raise ConfigError.at("--with", f"no file {file!r}", "give a YAML file of a task or group")
    loaded = manager.load([str(Path(file).resolve())])
    replacements = _replacements(loaded["tasks"], tasks)
    unknown = [name for name in replacements if name not in names]
    if unknown:
        what = f"{file} defines a task that was not run: {unknown[0]!r}"
        raise ConfigError.at("--with", what, did_you_mean(unknown[0], names))
    tasks.update(replacements)
    for group in groups.values():
        group.children = [loaded["groups"].get(child.name, child) for child in group.children]
    groups.update(loaded["groups"])
    return loaded["groups"]


def _replacements(loaded: dict[str, Task], known: Mapping[str, Task]) -> dict[str, Task]:
    """The tasks of a file. A graph is named after its folder: the only one replaces the only graph of the run."""
    graphs = [name for name, task in known.items() if task.definition is not None]
    [name, task] = next(iter(loaded.items()), ("", None))
    if task is None or len(loaded) > 1 or task.definition is None or name in known or len(graphs) != 1:
        return loaded
    return {graphs[0]: Task.from_kind(task.definition.fields, name=graphs[0])}


def _chosen(selected: Sequence[str], names: Sequence[str], groups: Mapping[str, Group[Task]]) -> list[str]:
    """The selected tasks; all of them where nothing is selected."""
    if not selected:
        return list(names)
    chosen: set[str] = set()
    for pattern in selected:
        below = [task.name for task in groups[pattern].get_all_tasks()] if pattern in groups else []
        matched = [name for name in names if fnmatchcase(name, pattern) or name in below]
        if not matched:
            fix = f"{did_you_mean(pattern, [*names, *groups])} (there are: {_some(names)})"
            raise ConfigError.at("--tasks", f"this run has no task named {pattern!r}", fix)
        chosen.update(matched)
    return [name for name in names if name in chosen]


def _lacking(group: Group[Task], chosen: Iterable[str]) -> str:
    there = set(chosen)
    without = [task.name for task in group.get_all_tasks() if task.name not in there]
    return f"not scored here: {_some(without)}" if without else ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


R = TypeVar("R", FilterConfig, MetricConfig)


def parse_filter(written: str) -> FilterConfig:
    r"""The filter that `NAME=STEP:VALUE` means, VALUE being the step's first parameter; or an entry of filter_list.

    >>> [step.function for step in parse_filter(r"number=regex:(\d+)").filter]
    ['regex', 'take_first']
    """
    if written.lstrip().startswith("{"):
        return _decoded(FilterConfig, written, "--filter")
    name, equals, rest = written.partition("=")
    step, colon, value = rest.partition(":")
    if not equals or not name.strip() or not step.strip():
        fix = r"write NAME=STEP or NAME=STEP:VALUE, as in number=regex:(\d+); or an entry of filter_list, {name: …}"
        raise ConfigError.at("--filter", f"invalid filter {written!r}", fix)
    FILTERS.find(step.strip(), Place("--filter"))
    steps = [FilterStep(function=step.strip(), kwargs=_first_parameter(step.strip(), value) if colon else {})]
    if step.strip() not in ENDS:
        steps.append(FilterStep(function="take_first"))
    return FilterConfig(name=name.strip(), filter=tuple(steps))


def _first_parameter(step: str, value: str) -> dict[str, YAMLValue]:
    parameters = list(FILTERS.accepts(FILTERS[step]).named.values())
    if not parameters:
        raise ConfigError.at("--filter", f"filter {step!r} has no parameter", f"write {step} alone")
    return {parameters[0].name: value if parameters[0].annotation is str else parse_value(value)}


def parse_metric(written: str) -> MetricConfig:
    """The metric that `NAME` or `NAME:key=value,…` means; or an entry of metric_list.

    >>> parse_metric("exact_match:ignore_case=true").kwargs["ignore_case"]
    True
    """
    if written.lstrip().startswith("{"):
        return _decoded(MetricConfig, written, "--metric")
    name, _, rest = written.partition(":")
    if not name.strip():
        raise ConfigError.at("--metric", f"invalid metric {written!r}", "write NAME or NAME:key=value")
    entry = {"metric": name.strip(), **parse_arguments(rest, "--metric")}
    return _checked(MetricConfig, Fields.of(entry, Origin("--metric")))


def _decoded(record: type[R], written: str, name: str) -> R:
    source = Source(name, written.encode())
    if source.problems or not isinstance(source.value, Mapping):
        raise ConfigError(
            source.problems or [Problem(Place(name), f"must be a mapping, got {written!r}", "write {name: …}")]
        )
    return _checked(record, Fields.of(source.value, Origin(source)))


def _checked(record: type[R], fields: Fields) -> R:
    problems: list[Problem] = []
    config = decode(record, fields, problems)
    if config is None or problems:
        raise ConfigError(problems)
    return config


def with_metrics(task: Task, filters: Sequence[FilterConfig], metrics: Sequence[MetricConfig]) -> Task:
    """The task with further filters and metrics; one with the name of an old one replaces it. Filters of text are not for
    log-likelihoods."""
    filters = [each for each in filters if fits(task, each)]
    if not filters and not metrics:
        return task
    config = task.config
    problem = _fixed_scoring(task, metrics)
    if problem is not None:
        raise ConfigError([problem])
    named = (
        make_scorer(config.scorer, config, Place("scorer")) if isinstance(config.scorer, str | ScorerConfig) else None
    )
    own_filters = config.filter_list or (named.default_filters() if named is not None else None) or (DEFAULT,)
    own_metrics = config.metric_list if config.metric_list is not None or named is None else named.default_metrics()
    if own_metrics is None:
        own_metrics = tuple(MetricConfig(name=name) for name in DEFAULTS[config.output_type])
    fields = task.fields
    if filters:
        config = replace(config, filter_list=_last_by(lambda entry: entry.name, (*own_filters, *filters)))
        entries = [_plain_filter(entry) for entry in config.filter_list or ()]
        fields |= Fields.of({"filter_list": entries}, Origin("--filter"))
    if metrics:
        config = replace(config, metric_list=_last_by(lambda entry: entry.row_metric, (*own_metrics, *metrics)))
        entries = [_plain_metric(entry) for entry in config.metric_list or ()]
        fields |= Fields.of({"metric_list": entries}, Origin("--metric"))
    changed = Task(config, name=task.name, fields=fields)
    changed.alias, changed.notes = task.alias, task.notes
    return changed


def fits(task: Task, entry: FilterConfig) -> bool:
    """Whether a filter can read the answers to a task."""
    return task.config.output_type == GENERATE or task.definition is not None or not text_step(entry)


def refuse_unread(tasks: Iterable[Task], filters: Sequence[FilterConfig]) -> list[str]:
    """Lines about tasks that a filter of text is not for; refused where it is for none of them."""
    lines, tasks = [], list(tasks)
    for entry in filters:
        left = [task.name for task in tasks if not fits(task, entry)]
        why = f"filter {text_step(entry)!r} reads text, and the answers are log-likelihoods"
        if left and len(left) == len(tasks):
            fix = "score it with metrics of log-likelihoods, as --metric acc_norm"
            raise ConfigError.at(f"--filter {entry.name}", f"{tasks_text(left)}: {why}", fix)
        lines += [f"not filtered by {entry.name!r}: {tasks_text(left)}: {why}"] if left else []
    return lines


def _fixed_scoring(task: Task, metrics: Sequence[MetricConfig]) -> Problem | None:
    place = Place(f"task {task.name!r}")
    if task.definition is not None:
        fix = "change graph_post_process in its file, or give another one: --with FILE"
        return Problem(place, "is a graph, which has neither filters nor metrics", fix)
    if task.config.class_ is not None:
        return Problem(place, "is a Python class, which defines its own scoring", "leave it out with --tasks")
    if metrics and task.config.process_results is not None:
        fix = "change that function, or give the task without it in a file: --with FILE"
        return Problem(place, "computes its values in process_results, not by metrics", fix)
    return None


def _last_by(name: Callable[[R], str], entries: Iterable[R]) -> tuple[R, ...]:
    """The entries, of several with one name the last."""
    return tuple({name(entry): entry for entry in entries}.values())


def _plain_filter(config: FilterConfig) -> dict[str, YAMLValue]:
    steps = [{"function": step.function, **step.kwargs} for step in config.filter]
    own = config.metric_list
    more = {"metric_list": [_plain_metric(entry) for entry in own]} if own is not None else {}
    return {"name": config.name, "filter": steps, **more}


def _plain_metric(config: MetricConfig) -> dict[str, YAMLValue]:
    keys = {key: getattr(config, key) for key in ("aggregation", "higher_is_better", "reduction")}
    keys["name"] = config.row
    return {"metric": config.name, **{key: value for key, value in keys.items() if value is not None}, **config.kwargs}
