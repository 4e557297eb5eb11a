"""Everything that can be known to be wrong without a model, a network or running any helper code."""

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import islice
from typing import Any

from assay.catalog.catalog import Catalog
from assay.catalog.examine import without_followers
from assay.catalog.functions import (
    functions_in,
    leave_registered,
    module_file,
    registered_names,
    written_definition,
)
from assay.catalog.roots import broken_plugins
from assay.checks import Level, list_problems, refuse
from assay.config.option import YAMLValue
from assay.config.task import FilterConfig, FormatConfig, MetricConfig, ScorerConfig, TaskConfig, generation_types
from assay.errors import ConfigError, Place, Problem, uncheckable
from assay.groups.checks import MemberAnswers, group_problems
from assay.groups.group import Group
from assay.records import Function, UserFunction, UserValue
from assay.samples.formats import formats_table
from assay.samples.prompt import Prompter, RenderError
from assay.samples.rows import DataError
from assay.scoring.filters import FILTERS
from assay.scoring.helper_code import Helpers, RegisteredMetric, resolve_functions
from assay.scoring.metrics.registry import METRICS
from assay.scoring.named import SCORERS
from assay.signatures import Accepted, accepted
from assay.tasks.checks import (
    TASK_CHECKS,
    CheckedTask,
    format_problems,
    missing_data,
    missing_functions,
    unnamed_roles,
)
from assay.tasks.documents import evaluated_docs, open_splits
from assay.tasks.kinds import FindDotted, kind_of
from assay.tasks.manager import TaskManager, file_of
from assay.tasks.prepare import KINDS, bind, with_settings
from assay.tasks.prompt_checks import (
    LOOKED_FURTHER,
    check_templates,
    unaskable,
)
from assay.tasks.scoring import bind_scoring, known_answers, known_rows
from assay.tasks.settings import Settings
from assay.tasks.stand_ins import Unloaded, UnloadedScorer, stand_in, stand_in_of_module
from assay.tasks.task import Task, class_place, not_a_task_class, task_dialect
from assay.user_code import UserCodeError, user_code

FindMetric = Callable[[str], UserFunction | None]


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """Helper code that may be imported: with it, names and functions are those of a run."""

    helpers: Helpers
    check_class: Callable[[Task], None]
    """Creates the class of a class task, or raises."""


@dataclass(frozen=True, slots=True)
class _Checks:
    """How tasks are checked: with the settings of a run, and with helper code or only by its text."""

    formats: Mapping[str, FormatConfig]
    settings: Settings
    find_metric: FindMetric
    find_dotted: FindDotted
    code: LoadedCode | None


LOG = logging.getLogger("assay.validate")
BEAT = 5.0
"""Seconds between two messages of how far a long check is."""


def validate(
    manager: TaskManager,
    specs: YAMLValue = None,
    find_metric: FindMetric = lambda name: None,  # noqa: ARG005
    find_dotted: FindDotted = lambda name, folder, place: None,  # noqa: ARG005
    *,
    settings: Settings | None = None,
    code: LoadedCode | None = None,
) -> list[Problem]:
    """List the problems of the tasks asked for, or of all; serious ones and mere notes, by place.

    `find_metric` finds metrics that are not in our own registry, `find_dotted` the objects that graphs name and assay supplies.
    With `code` helper modules are imported; without, they are read.
    """
    catalog = manager.catalog
    selected: object = [*catalog.index.named.values()] if specs is None else specs
    loaded, problems = manager.attempt(
        selected, thorough=True, resolve=code.helpers.resolve if code is not None else None
    )
    broken = {problem.place.file for problem in problems if problem.serious}
    checks = _Checks(manager.formats, settings or Settings(), find_metric, find_dotted, code)
    due = time.monotonic() + BEAT
    for number, task in enumerate(loaded["tasks"].values()):
        problems += _checked(task, checks, broken)
        if time.monotonic() > due:
            LOG.info("%s of %s tasks are checked", f"{number + 1:,}", f"{len(loaded['tasks']):,}")
            due = time.monotonic() + BEAT
    for task in _formatted(loaded["tasks"], manager):
        serious = [problem for problem in _checked(task, checks, broken) if problem.serious]
        problems += [each for each in serious if "is not a valid template" not in each.what]  # reported with its format
    known = _MemberAnswers(loaded["tasks"], checks)
    resolve = stand_in_of_module if code is None else code.helpers.resolve
    registered = {} if code is not None else _registered_by([*loaded["tasks"].values(), *loaded["groups"].values()])
    for group in loaded["groups"].values():
        problems += leave_registered(group_problems(group, resolve, known), registered)
    if specs is None:
        problems += [*manager.format_problems, *broken_plugins(), *_left_over(catalog)]
        problems += [
            p for known in manager.formats.values() for p in format_problems(known, Place(f"format {known.format!r}"))
        ]
    return sorted(dict.fromkeys(_once(problems)))


def _once(problems: Sequence[Problem]) -> Iterator[Problem]:
    """Leave out that something has no such parameter where the key was reported as unknown."""
    slips = {
        (problem.place.file, problem.place.line, match[1])
        for problem in problems
        if (match := re.match(r"unknown key ('.+')", problem.what)) is not None
    }
    for problem in without_followers(problems):
        named = re.search(r" has no parameter ('.+')", problem.what)
        if named is None or (problem.place.file, problem.place.line, named[1]) not in slips:
            yield problem


def _formatted(tasks: Mapping[str, Task], manager: TaskManager) -> Iterator[Task]:
    """Registered tasks in every format of their tables. What is wrong with a table itself is reported with its task."""
    known = {name: formats_table(task.fields) for name, task in tasks.items() if name in manager.catalog.index.named}
    names = [f"{name}@{each}" for name, table in known.items() for each in table or ()]
    return iter(manager.attempt(names)[0]["tasks"].values() if names else ())


def _checked(task: Task, checks: _Checks, broken: Collection[str]) -> list[Problem]:
    """The problems of a task, whatever its file says; `broken` are the files that have wrong values."""
    try:
        with user_code("cannot be checked"):
            return _check(task, checks)
    except UserCodeError as error:
        file = file_of(task.fields)
        return [uncheckable(file, str(error))] if file not in broken else []  # wrong values may be why


def _check(task: Task, checks: _Checks) -> list[Problem]:
    kind = kind_of(task)
    if kind is None:
        return list(_check_task(task, checks))
    helpers, _ = _helpers_of(task, checks)
    return kind.check(task, replace(helpers, definition=checks.settings.graphs.definition), checks.find_dotted)


def _check_task(task: Task, checks: _Checks) -> Iterator[Problem]:
    """Yield the problems that a task shows without a model."""
    about = CheckedTask(task=task, config=task.config, settings=checks.settings, formats=checks.formats)
    yield from list_problems(TASK_CHECKS, about, Level.STATIC)
    broken = any(missing_functions(about))
    if task.config.class_ is not None and (broken or not is_own_class(checks, task.config.class_)):
        yield from _check_class(task, checks) if not broken else ()
    elif task.config.output_type in KINDS:
        yield from _check_run(task, checks, is_whole=not broken and not any(missing_data(about)))


class _MemberAnswers(Mapping[str, MemberAnswers]):
    """The rows that tasks will have, found when a group asks for them; nothing of tasks that are not scored as written."""

    def __init__(self, tasks: Mapping[str, Task], checks: _Checks) -> None:
        self._tasks = {
            name: task for name, task in tasks.items() if task.definition is None and task.config.class_ is None
        }
        self._find = cache(lambda name: _answers_of(self._tasks[name], checks))

    def __getitem__(self, name: str) -> MemberAnswers:
        return self._find(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)


def _answers_of(task: Task, checks: _Checks) -> MemberAnswers:
    """The rows that a task shows without being run; none where something is wrong with it, which is reported there."""
    try:
        with user_code("cannot be checked"):
            helpers, _ = _helpers_of(task, checks)
            config = _config_of(task, checks, helpers, derived={})
            loop = bind_scoring(task, config, checks.settings, helpers)
    except (ConfigError, UserCodeError):
        return MemberAnswers(None, {})
    return MemberAnswers(known_rows(loop), known_answers(loop, config), config.repeats)


def is_own_class(checks: _Checks, written: Function | type) -> bool:
    """Whether a class is one of assay's tasks, which is prepared as any task is; False where its module may not be imported."""
    kind = (
        checks.code.helpers.resolve(written) if checks.code is not None and isinstance(written, Function) else written
    )
    return isinstance(kind, type) and issubclass(kind, Task)


def _check_class(task: Task, checks: _Checks) -> Iterator[Problem]:
    kind: Any = task.config.class_
    written = written_definition(kind) if isinstance(kind, Function) else None
    is_plain = written is not None and written.is_plain if isinstance(kind, Function) else not is_of_library(kind)
    if is_plain:
        yield not_a_task_class(task)
    elif checks.code is not None:
        try:
            checks.code.check_class(task)
        except ConfigError as error:
            yield from error.problems
        except (DataError, RenderError) as error:
            yield error.problem or Problem(class_place(task), str(error), "correct the class")


def is_of_library(kind: UserValue) -> bool:
    """Whether something is a class with a base of assay or lm_eval."""
    bases = kind.__mro__ if isinstance(kind, type) else ()
    return any(base.__module__.partition(".")[0] in ("assay", "lm_eval") for base in bases)


def _config_of(task: Task, checks: _Checks, helpers: Helpers, **hidden: Any) -> TaskConfig:
    """The configuration that a run has, with other values for what is `hidden`, and without parameters of generation that
    have a wrong type: these were reported when it was read."""
    params = task.config.generation_kwargs or {}
    wrong = {path[0] for path, _, _ in generation_types(params)}
    kept = {key: value for key, value in params.items() if key not in wrong} if wrong else task.config.generation_kwargs
    config = replace(task.config, **{"generation_kwargs": kept, **hidden})
    return with_settings(resolve_functions(config, helpers.resolve), checks.settings)


def _check_run(task: Task, checks: _Checks, *, is_whole: bool) -> Iterator[Problem]:
    """Yield the problems of filters, metrics and scorers that a run would refuse, and those that local data shows."""
    helpers, known = _helpers_of(task, checks)
    problems: list[Problem] = []
    about = CheckedTask(task=task, config=task.config, settings=checks.settings)
    try:
        about = replace(about, config=_config_of(task, checks, helpers, derived={}))
        problems += list_problems(TASK_CHECKS, about, Level.LOADED)
        about = replace(about, scored=bind_scoring(task, about.config, checks.settings, helpers))
        problems += unnamed_roles(about)
    except ConfigError as error:
        problems += error.problems
    yield from leave_registered(problems, known)
    if is_whole and (checks.code is None or not any(problem.serious for problem in problems)):
        shown = _check_documents(about, helpers, checks)
        notes = task.fields.dialect.notes_what_cannot_run
        yield from (replace(problem, serious=problem.serious and not notes) for problem in shown)


def _helpers_of(task: Task, checks: _Checks) -> tuple[Helpers, Mapping[str, set[str]]]:
    """Helper code of a task, loaded or only read, and the names that it registers where it is only read."""
    if checks.code is not None:
        return checks.code.helpers, {}
    known = _registered_by([task])
    return _static_helpers(known, checks.find_metric), known


def _registered_by(nodes: Iterable[Task | Group[Task]]) -> Mapping[str, set[str]]:
    """The names that the modules register which the files of tasks and groups name, by kind."""
    return registered_names({module_file(function) for node in nodes for function in functions_in(dict(node.fields))})


def _check_documents(about: CheckedTask, helpers: Helpers, checks: _Checks) -> Sequence[Problem]:
    """The problems that documents show, where they can be read here: splits, columns, examples, prompts, targets."""
    task, settings, scored = about.task, about.settings, about.scored
    hidden = _hidden_fields(task.config) if checks.code is None else {}
    config = _config_of(task, checks, helpers, **hidden)
    try:
        check_templates(task, config)
        splits = open_splits(task, config, settings, helpers)
        if not splits.data.is_local:
            return ()
        docs = evaluated_docs(task, config, splits)
        if "process_docs" in hidden:
            return ()
        about = replace(about, config=config, docs=docs)
        refuse(TASK_CHECKS, about, Level.BOUND)
        if hidden:
            _check_first(about)
            return ()
        if scored is None or checks.code is None:  # stand-ins score nothing
            unscored = replace(config, filter_list=None, metric_list=None, scorer=None, process_results=None)
            scored = bind_scoring(task, unscored, settings, helpers)
        prepared = bind(task, config, splits, settings, scored)
        return (prepared.note,) if prepared.note is not None else ()
    except ConfigError as error:
        return error.problems
    except (DataError, RenderError) as error:
        at = "dataset_path" if "dataset_path" in task.fields else "task"
        place = task.fields.place(at) if at in task.fields else Place(f"task {task.name!r}")
        fix = "" if " — " in str(error) else "correct the data, or where the file says it is"
        return (error.problem or Problem(place, str(error), fix),)


def _check_first(about: CheckedTask) -> None:
    """Refuse what the first documents show of a task whose functions are not run; its `config` has other values for them."""
    config, choices = about.config, about.task.config.doc_to_choice
    prompter = Prompter(config, about.columns, dialect=task_dialect(about.task, about.settings.run.compat))
    problem: RenderError | None = None
    for doc in islice(about.docs, LOOKED_FURTHER):
        try:
            question = prompter.question(doc)
        except RenderError as error:
            problem = problem or error
            continue
        if choices is None or config.doc_to_choice is not None:
            refuse(TASK_CHECKS, replace(about, choices=question.choices), Level.FIRST_DOCUMENTS)
        return
    if problem is not None:
        raise unaskable(about.task, problem, about.docs, about.settings)


def _hidden_fields(config: TaskConfig) -> dict[str, Any]:
    """Fields that functions fill, with values to take instead where no helper code is run."""
    hidden = {
        key: value
        for key, value in HIDDEN.items()
        if isinstance(getattr(config, key), Function) or (key == "derived" and config.derived)
    }
    shots = config.fewshot_config
    if (
        config.num_fewshot
        and shots is not None
        and next(functions_in({each.name: getattr(shots, each.name) for each in fields(shots)}), None) is not None
    ):
        hidden["num_fewshot"] = 0
    return hidden


HIDDEN: Mapping[str, Any] = {
    "process_docs": None,
    "doc_to_text": "",
    "doc_to_target": "",
    "doc_to_choice": None,
    "derived": {},
}


def _static_helpers(known: Mapping[str, set[str]], find_metric: FindMetric) -> Helpers:
    """Helper code that is only read: what it registers may be anything."""
    metrics = {name: RegisteredMetric(Unloaded(), Unloaded(), None) for name in known.get("metric", ())}
    return Helpers(
        stand_in,
        list,
        lambda name: metrics[name].function if name in metrics else find_metric(name),
        lambda: dict.fromkeys(known.get("filter", ()), UnloadedScorer),
        metrics,
        dict.fromkeys(known.get("aggregation", ()), Unloaded()),
    )


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
        written = written_definition(name)
        return [] if written is None or written.like is None else [accepted(stand_in(name))]
    if kind == "metric":
        return [accepted(function) for function in METRICS[name].functions.values()] if name in METRICS else []
    registry = FILTERS if kind == "filter" else SCORERS
    return [registry.accepts(registry[name])] if name in registry else []
