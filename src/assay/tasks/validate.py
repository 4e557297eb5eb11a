"""Everything that can be known to be wrong without a model, a network or running any helper code."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from assay.catalog.catalog import Catalog
from assay.catalog.functions import StaticSignature, check_function, functions_in, module_file, static_signature
from assay.catalog.roots import broken_plugins
from assay.config.fields import Fields
from assay.config.option import YAMLValue
from assay.config.task import FilterConfig, FormatConfig, MetricConfig, ScorerConfig, TaskConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean, uncheckable
from assay.groups.checks import MemberAnswers, group_problems
from assay.records import Function
from assay.registry import Accepted, accepted
from assay.samples.data import FILE_READERS, find_files
from assay.samples.fewshot import SAMPLERS
from assay.samples.formats import format_from_table, formats_table
from assay.samples.rows import DataError
from assay.scoring.filters import FILTERS, selection_note
from assay.scoring.loop import ScoringLoop
from assay.scoring.metrics.table import METRICS
from assay.scoring.named import SCORERS
from assay.scoring.scorer import GenerationScorer, Scorer
from assay.tasks.kinds import FindDotted, kind_of
from assay.tasks.manager import TaskManager, file_of
from assay.tasks.prompt_checks import FORMAT_TEXTS, format_slips, template_error, written_slips
from assay.tasks.scoring import answers_left, known_rows, placer, scoring
from assay.tasks.settings import Helpers, Settings, UserFunction, resolved
from assay.tasks.task import Task
from assay.user_code import UserCodeError, user_code

FindMetric = Callable[[str], UserFunction | None]


def validate(
    manager: TaskManager,
    specs: YAMLValue = None,
    find_metric: FindMetric = lambda name: None,  # noqa: ARG005
    find_dotted: FindDotted = lambda name, folder, place: None,  # noqa: ARG005
) -> list[Problem]:
    """List the problems of the tasks asked for, or of all; serious ones and mere notes, by place.

    `find_metric` finds metrics that are not in our own table, `find_dotted` the objects that graphs name and assay supplies.
    """
    catalog = manager.catalog
    selected: object = [*catalog.index.named.values()] if specs is None else specs
    loaded, problems = manager.attempt(selected, thorough=True)
    for task in loaded["tasks"].values():
        try:
            with user_code("cannot be checked"):  # a file may say anything: the others are checked
                problems += check_task(task, manager.formats, find_metric)
                kind = kind_of(task)
                if kind is not None:
                    problems += kind.check(task, Helpers(_unloaded, list, find_metric, dict), find_dotted)
        except UserCodeError as error:
            problems.append(uncheckable(file_of(task.fields), str(error)))
    known = _MemberAnswers(loaded["tasks"], find_metric)
    for group in loaded["groups"].values():
        broken = [problem for problem in map(check_function, functions_in(group.config)) if problem is not None]
        problems += broken or group_problems(group, _unloaded, known, lenient=False)
    if specs is None:
        problems += [*manager.format_problems, *broken_plugins(), *_left_over(catalog)]
        problems += [
            p for known in manager.formats.values() for p in _check_format(known, Place(f"format {known.format!r}"))
        ]
    return sorted(dict.fromkeys(problems))


def check_task(task: Task, formats: Mapping[str, FormatConfig], find_metric: FindMetric) -> Iterator[Problem]:
    """Yield the problems that a task shows without being run."""
    if task.definition is not None:
        return  # its keys were checked when it was read, the rest is for `TaskKind.check`
    if task.unsent is not None:
        yield replace(task.unsent, serious=not any(task.fields.origin(key).lenient for key in task.fields))
    functions = list(functions_in(dict(task.fields)))
    broken = [problem for problem in map(check_function, functions) if problem is not None]
    yield from broken
    yield from written_slips(task.fields)
    shots = task.fields.get("fewshot_config")
    if isinstance(shots, Mapping):
        sampler = shots.get("sampler", "default")
        if isinstance(sampler, str) and sampler not in SAMPLERS:
            place = task.fields.place("fewshot_config", "sampler")
            yield Problem(place, f"no sampler named {sampler!r}", did_you_mean(sampler, SAMPLERS.names()))
    yield from _check_formats(task.fields, formats)
    yield from _check_data(task)
    if not broken and task.config.class_ is None:
        yield from _check_scoring(task, functions, find_metric)
    for note in task.notes:
        yield Problem(Place(f"task {task.name!r}"), note, "give the format a metric_list", serious=False)


class _MemberAnswers(Mapping[str, MemberAnswers]):
    """The rows that tasks will have, found when a group asks for them; nothing of tasks that are not scored as written."""

    def __init__(self, tasks: Mapping[str, Task], find_metric: FindMetric) -> None:
        self._tasks = {
            name: task for name, task in tasks.items() if task.definition is None and task.config.class_ is None
        }
        self._find = cache(lambda name: _answers_of(self._tasks[name], find_metric))

    def __getitem__(self, name: str) -> MemberAnswers:
        return self._find(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)


def _answers_of(task: Task, find_metric: FindMetric) -> MemberAnswers:
    """The rows that a task shows without being run; none where something is wrong with it, which is reported there."""
    try:
        with user_code("cannot be checked"):
            config, loop = _scoring_of(task, list(functions_in(dict(task.fields))), find_metric)
    except (ConfigError, UserCodeError):
        return MemberAnswers(None, {})
    return MemberAnswers(known_rows(loop), answers_left(loop, config), config.repeats)


def _check_formats(fields: Fields, formats: Mapping[str, FormatConfig]) -> Iterator[Problem]:
    """Every format of a task's table, also those that are not asked for now."""
    if formats_table(fields) is None:
        yield from format_slips(fields)
    for name in formats_table(fields) or {}:
        try:
            yield from _check_format(format_from_table(fields, name, formats), fields.place("formats", name))
        except ConfigError as error:
            yield from error.problems


def _check_format(format: FormatConfig, place: Place) -> Iterator[Problem]:
    for key in FORMAT_TEXTS:
        text = getattr(format, key)
        wrong = template_error(text) if text else None
        if wrong:
            yield Problem(place, f"{key} of format {format.format!r} is not a valid template: {wrong}", "correct it")


def _check_data(task: Task) -> Iterator[Problem]:
    """Whether a task says where its data is, and whether files it names are there."""
    config, fields = task.config, task.fields
    lenient = any(fields.origin(key).lenient for key in fields)
    if config.dataset_path is None and config.custom_dataset is None and config.class_ is None:
        what, fix = f"task {task.name!r} names no data", "add dataset_path"
        yield Problem(fields.place("task"), what, fix, serious=not lenient)
    files: Any = (config.dataset_kwargs or {}).get("data_files")
    if config.dataset_path not in FILE_READERS or files is None:
        return
    folder = fields.origin("dataset_kwargs").folder
    for split, written in files.items() if isinstance(files, Mapping) else [("", files)]:
        place = fields.place("dataset_kwargs", "data_files", *([str(split)] if split != "" else []))
        paths = written if isinstance(written, list | tuple) else [written]
        if not isinstance(split, str) or not all(isinstance(path, str) for path in paths):
            what = f"data_files: {split!r} must be the name of a split, with a file or a list of files"
            yield Problem(place, what, "write `data_files: {test: file.jsonl}`", serious=not lenient)
            continue
        for path in paths:
            try:
                if not path.startswith(("hf://", "http://", "https://")):
                    find_files(path, folder, None)
            except DataError as error:
                yield Problem(place, str(error), "put the file there, or correct its name", serious=not lenient)


class _Unloaded(Scorer):
    """A stand-in for what helper code defines: it is not run here, so it may be anything, also a scorer."""

    is_unknown = True
    score_instances = GenerationScorer.score_instances

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(None)
        self.__name__ = "function"

    def apply(self, resps: Any, docs: Any) -> Any:  # noqa: ARG002  # the shape of a filter
        return resps

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


class _UnloadedFunction:
    """A stand-in for a function of helper code, with the signature that the text of its module shows."""

    def __init__(self, name: str, written: StaticSignature) -> None:
        self.__name__, self.__signature__ = name, written.signature
        self.is_async, self.is_generator = written.is_async, written.is_generator

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


def _unloaded(function: Function) -> Any:
    """Return a stand-in for a function or class: with its signature, where the text of its module shows it, else with any."""
    written = static_signature(function)
    if written is not None and not written.is_class:
        return _UnloadedFunction(function.name, written)
    known = {} if written is None else {"__signature__": written.signature, "is_unknown": False}
    return type(function.name, (_Unloaded,), known)


def _check_scoring(task: Task, functions: list[Function], find_metric: FindMetric) -> Iterator[Problem]:
    """The names and parameters of filters, metrics and aggregations."""
    yield from _selections(task, task.config)
    try:
        _scoring_of(task, functions, find_metric)
    except ConfigError as error:
        yield from error.problems


def _scoring_of(task: Task, functions: list[Function], find_metric: FindMetric) -> tuple[TaskConfig, ScoringLoop]:
    """The filters and scorers of a task, with stand-ins for helper code."""
    registered = {name: _Unloaded for function in functions for name in _registered_filters(str(module_file(function)))}
    helpers = Helpers(_unloaded, list, find_metric, lambda: registered)
    config = resolved(replace(task.config, derived={}), _unloaded)
    return config, scoring(task, config, Settings(), helpers)


def _selections(task: Task, config: TaskConfig) -> Iterator[Problem]:
    """Yield a note for each pattern whose `group_select` looks like the number of a group."""
    for number, entry in enumerate(config.filter_list or ()):
        for position, step in enumerate(entry.filter):
            note = selection_note(step)
            if note:
                place = placer(task, "filter_list", number, "filter", position, "group_select")()
                yield Problem(place, note, "use 0 for the first match, -1 for the last", serious=False)


@cache
def _registered_filters(module: str) -> frozenset[str]:
    """The filters that a helper module gives names to, as its text shows."""
    try:
        text = Path(module).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    return frozenset(re.findall(r"register_filter\(\s*[\"']([^\"']+)[\"']", text))


def _left_over(catalog: Catalog) -> Iterator[Problem]:
    """Yield the problems of files that no name selects: broken ones, those with a taken name, unused templates."""
    index = catalog.index
    for entry in index.entries():
        if entry.kind == "broken":
            yield from catalog.read(entry, thorough=True)[1]
        elif entry.kind == "template" and entry.path not in index.included:
            yield Problem(Place(entry.path), "is neither task nor group, and nothing includes it", "", serious=False)
    for clash in index.clashes:
        yield from catalog.read(clash.second, thorough=True)[1]


def unchecked_parameters(config: TaskConfig) -> list[str]:
    """A sentence for each metric, filter and scorer whose signature has `**kwargs`. No helper code is run."""
    named = list(dict.fromkeys(_named(config)))
    return [
        f"{kind} {getattr(name, 'name', name)!r} takes any parameter (**kwargs): names are not checked"
        for kind, name in named
        if any(each.takes_any for each in _accepts(kind, name))
    ]


def _named(config: TaskConfig) -> Iterator[tuple[str, str | Function]]:
    yield from _scorer(config.scorer)
    yield from _metrics(config.metric_list)
    for each in config.filter_list or ():
        yield from _filter(each)


def _filter(config: FilterConfig) -> Iterator[tuple[str, str | Function]]:
    for step in config.filter:
        yield "filter", step.function
    yield from _metrics(config.metric_list)
    yield from _scorer(config.scorer)


def _metrics(configs: tuple[MetricConfig, ...] | None) -> Iterator[tuple[str, str | Function]]:
    for each in configs or ():
        yield "metric", each.name
        if isinstance(each.aggregation, Function):
            yield "aggregation", each.aggregation


def _scorer(written: str | Function | ScorerConfig | None) -> Iterator[tuple[str, str | Function]]:
    if written is not None:
        yield "scorer", written.type if isinstance(written, ScorerConfig) else written


def _accepts(kind: str, name: str | Function) -> list[Accepted]:
    if isinstance(name, Function):
        written = static_signature(name)
        return [] if written is None else [accepted(_With(written.signature))]
    if kind == "metric":
        return [accepted(function) for function in METRICS[name].functions.values()] if name in METRICS else []
    table = FILTERS if kind == "filter" else SCORERS
    return [table.accepts(table[name])] if name in table else []


class _With:
    """A callable with a given signature."""

    def __init__(self, signature: inspect.Signature) -> None:
        self.__signature__ = signature

    def __call__(self) -> None: ...
