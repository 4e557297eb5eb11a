"""Everything that can be known to be wrong without a model, a network or running any helper code."""

import inspect
import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from assay.catalog.catalog import Catalog
from assay.catalog.examine import without_followers
from assay.catalog.functions import check_function, functions_in, is_plain_class, module_file, static_signature
from assay.catalog.roots import broken_plugins
from assay.config.fields import Fields
from assay.config.option import YAMLValue
from assay.config.task import FilterConfig, FormatConfig, MetricConfig, ScorerConfig, TaskConfig, generation_types
from assay.errors import ConfigError, Place, Problem, did_you_mean, run_checks, uncheckable
from assay.groups.checks import MemberAnswers, group_problems
from assay.records import Function, UserValue
from assay.samples.data import FILE_READERS, Split, columns_of, find_files
from assay.samples.fewshot import SAMPLERS
from assay.samples.formats import format_from_table, formats_table
from assay.samples.prompt import Prompter, RenderError
from assay.samples.rows import DataError
from assay.scoring.filters import FILTERS, selection_note
from assay.scoring.loop import ScoringLoop
from assay.scoring.metrics.registry import METRICS
from assay.scoring.named import SCORERS
from assay.scoring.scorer import GenerationScorer, Scorer
from assay.scoring.scorer_models import models_of
from assay.signatures import Accepted, accepted
from assay.tasks.documents import evaluated_docs, open_splits
from assay.tasks.kinds import FindDotted, kind_of
from assay.tasks.manager import TaskManager, file_of
from assay.tasks.prepare import KINDS, bind, check_clusters, check_columns, with_settings
from assay.tasks.prompt_checks import (
    FORMAT_TEXTS,
    LOOKED_FURTHER,
    check_prompts,
    check_targets,
    check_templates,
    format_slips,
    misfit_functions,
    template_error,
    unaskable,
    written_slips,
)
from assay.tasks.scoring import answers_left, known_rows, placer, scoring
from assay.tasks.settings import Helpers, RegisteredMetric, Settings, UserFunction, resolved
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
    resolve = _unloaded if code is None else code.helpers.resolve
    for group in loaded["groups"].values():
        missing = [problem for problem in map(check_function, functions_in(group.config)) if problem is not None]
        problems += missing
        problems += group_problems(group, resolve, known)
    if specs is None:
        problems += [*manager.format_problems, *broken_plugins(), *_left_over(catalog)]
        problems += [
            p for known in manager.formats.values() for p in _check_format(known, Place(f"format {known.format!r}"))
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
    helpers = Helpers(_unloaded, list, checks.find_metric, dict) if checks.code is None else checks.code.helpers
    return kind.check(task, replace(helpers, definition=checks.settings.graphs.definition), checks.find_dotted)


def _check_task(task: Task, checks: _Checks) -> Iterator[Problem]:
    """Yield the problems that a task shows without a model."""
    if task.unsent is not None:
        yield replace(task.unsent, serious=not task.fields.dialect.notes_what_cannot_run)
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
    yield from _check_formats(task.fields, checks.formats)
    lacking = list(_check_data(task))
    yield from lacking
    if task.config.class_ is not None and (broken or not is_own_class(checks, task.config.class_)):
        yield from _check_class(task, checks) if not broken else ()
    elif task.config.output_type in KINDS:
        yield from _check_run(task, checks, is_whole=not broken and not lacking)
    for note in task.notes:
        yield Problem(Place(f"task {task.name!r}"), note, "give the format a metric_list", serious=False)


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
            config = with_settings(resolved(replace(_typed(task.config), derived={}), helpers.resolve), checks.settings)
            loop = scoring(task, config, checks.settings, helpers)
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
    serious = not fields.dialect.notes_what_cannot_run
    if config.dataset_path is None and config.custom_dataset is None and config.class_ is None:
        what, fix = f"task {task.name!r} names no data", "add dataset_path"
        yield Problem(fields.place("task"), what, fix, serious=serious)
    files: Any = (config.dataset_kwargs or {}).get("data_files")
    if config.dataset_path not in FILE_READERS or files is None:
        return
    folder = fields.origin("dataset_kwargs").folder
    for split, written in files.items() if isinstance(files, Mapping) else [("", files)]:
        place = fields.place("dataset_kwargs", "data_files", *([str(split)] if split != "" else []))
        paths = written if isinstance(written, list | tuple) else [written]
        if not isinstance(split, str) or not all(isinstance(path, str) for path in paths):
            what = f"data_files: {split!r} must be the name of a split, with a file or a list of files"
            yield Problem(place, what, "write `data_files: {test: file.jsonl}`", serious=serious)
            continue
        for path in paths:
            try:
                if not path.startswith(("hf://", "http://", "https://")):
                    find_files(path, folder, None)
            except DataError as error:
                yield Problem(place, str(error), "put the file there, or correct its name", serious=serious)


class _AnyCallable:
    """A stand-in for what helper code defines: it is not run here, so it may be anything."""

    is_unknown = True

    def __init__(self, *_: Any, **__: Any) -> None:
        self.__name__ = "function"

    def apply(self, resps: Any, docs: Any) -> Any:  # noqa: ARG002  # the shape of a filter
        return resps

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


class _AnyScorer(_AnyCallable, Scorer):
    """The same for a class, which may be a scorer."""

    score_instances = GenerationScorer.score_instances

    def __init__(self, *_: Any, **__: Any) -> None:
        Scorer.__init__(self, None)
        self.__name__ = "function"


def _unloaded(function: Function) -> Any:
    """Return a stand-in for a function or class: with its signature, where the text of its module shows it, else with any."""
    written = static_signature(function)
    if written is None or written.is_class:
        kind = _AnyCallable if is_plain_class(function) else _AnyScorer
        known = {} if written is None else {"__signature__": written.signature, "is_unknown": False}
        return type(function.name, (kind,), known)

    def stand_in(*_: Any, **__: Any) -> Any:
        return stand_in

    async def async_stand_in(*_: Any, **__: Any) -> None: ...

    def generator_stand_in(*_: Any, **__: Any) -> Iterator[None]:
        yield

    like: Any = async_stand_in if written.is_async else generator_stand_in if written.is_generator else stand_in
    like.__name__, like.__signature__ = function.name, written.signature
    like.__code__ = like.__code__.replace(co_filename=str(module_file(function)), co_firstlineno=written.line)
    like.is_async, like.is_generator = written.is_async, written.is_generator
    return like


def is_own_class(checks: _Checks, written: Function | type) -> bool:
    """Whether a class is one of assay's tasks, which is prepared as any task is; False where its module may not be imported."""
    kind = (
        checks.code.helpers.resolve(written) if checks.code is not None and isinstance(written, Function) else written
    )
    return isinstance(kind, type) and issubclass(kind, Task)


def _check_class(task: Task, checks: _Checks) -> Iterator[Problem]:
    kind: Any = task.config.class_
    is_plain = is_plain_class(kind) if isinstance(kind, Function) else not is_of_library(kind)
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


def _typed(config: TaskConfig) -> TaskConfig:
    """The configuration without parameters of generation that have a wrong type: these were reported when it was read."""
    params = config.generation_kwargs or {}
    wrong = {path[0] for path, _, _ in generation_types(params)}
    kept = {key: value for key, value in params.items() if key not in wrong}
    return replace(config, generation_kwargs=kept) if wrong else config


def _check_run(task: Task, checks: _Checks, *, is_whole: bool) -> Iterator[Problem]:
    """Yield the problems of filters, metrics and scorers that a run would refuse, and those that local data shows."""
    helpers, known = _helpers_of(task, checks)
    problems = list(_selections(task, task.config))
    scored: ScoringLoop | None = None
    try:
        config = with_settings(resolved(replace(_typed(task.config), derived={}), helpers.resolve), checks.settings)
        problems += misfit_functions(task, config)
        scored = scoring(task, config, checks.settings, helpers)
        problems += _needed_roles(task, scored, checks.settings)
    except ConfigError as error:
        problems += error.problems
    yield from (each for problem in problems if (each := _unless_registered(problem, known)) is not None)
    if is_whole and (checks.code is None or not any(problem.serious for problem in problems)):
        shown = _check_documents(task, scored, helpers, checks)
        notes = task.fields.dialect.notes_what_cannot_run
        yield from (replace(problem, serious=problem.serious and not notes) for problem in shown)


def _selections(task: Task, config: TaskConfig) -> Iterator[Problem]:
    """Yield a note for each pattern whose `group_select` looks like the number of a group."""
    for number, entry in enumerate(config.filter_list or ()):
        for position, step in enumerate(entry.filter):
            note = selection_note(step)
            if note:
                place = placer(task, "filter_list", number, "filter", position, "group_select")()
                yield Problem(place, note, "use 0 for the first match, -1 for the last", serious=False)


def _helpers_of(task: Task, checks: _Checks) -> tuple[Helpers, Mapping[str, set[str]]]:
    """Helper code of a task, loaded or only read, and the names that it registers where it is only read."""
    if checks.code is not None:
        return checks.code.helpers, {}
    known = _registered(sorted({str(module_file(function)) for function in functions_in(dict(task.fields))}))
    return _static_helpers(known, checks.find_metric), known


def _needed_roles(task: Task, scored: ScoringLoop, settings: Settings) -> Iterator[Problem]:
    """Notes on further models that a run must name."""
    place = placer(task, "scorer" if "scorer" in task.fields else "filter_list")()
    for role, model in models_of(scorer.models() for _, scorer in scored.pipelines).items():
        if model is None and role not in (settings.run.model_role or {}):
            fix = f"give --model_role {role}=… when it is run"
            yield Problem(place, f"the scorer asks a model in the role {role!r}", fix, serious=False)


def _check_documents(task: Task, scored: ScoringLoop | None, helpers: Helpers, checks: _Checks) -> Sequence[Problem]:
    """The problems that documents show, where they can be read here: splits, columns, examples, prompts, targets."""
    settings = checks.settings
    hidden = _hidden_fields(task.config) if checks.code is None else {}
    config = with_settings(resolved(replace(_typed(task.config), **hidden), helpers.resolve), settings)
    try:
        check_templates(task, config)
        splits = open_splits(task, config, settings, helpers)
        if not splits.data.is_local:
            return ()
        docs = evaluated_docs(task, config, splits)
        if "process_docs" in hidden:
            return ()
        if hidden:
            _check_shown(task, config, docs, settings, scored)
            return ()
        if scored is not None:
            check_columns(task, docs, scored)
        if scored is None or checks.code is None:  # stand-ins score nothing
            unscored = replace(config, filter_list=None, metric_list=None, scorer=None, process_results=None)
            scored = scoring(task, unscored, settings, helpers)
        prepared = bind(task, config, splits, settings, scored)
        return (prepared.note,) if prepared.note is not None else ()
    except ConfigError as error:
        return error.problems
    except (DataError, RenderError) as error:
        at = "dataset_path" if "dataset_path" in task.fields else "task"
        place = task.fields.place(at) if at in task.fields else Place(f"task {task.name!r}")
        fix = "" if " — " in str(error) else "correct the data, or where the file says it is"
        return (error.problem or Problem(place, str(error), fix),)


def _check_shown(task: Task, config: TaskConfig, docs: Split, settings: Settings, scored: ScoringLoop | None) -> None:
    """Refuse what documents show of a task whose functions are not run; `config` has other values for them."""
    columns = columns_of(docs)
    checks = [partial(check_clusters, task, docs), partial(check_prompts, task, config, columns, settings)]
    if scored is not None:
        checks.insert(1, partial(check_columns, task, docs, scored))
    run_checks(*checks)
    prompter = Prompter(config, columns, dialect=task_dialect(task, settings.run.compat))
    problem: RenderError | None = None
    for doc in islice(docs, LOOKED_FURTHER):
        try:
            question = prompter.question(doc)
        except RenderError as error:
            problem = problem or error
            continue
        if task.config.doc_to_choice is None or config.doc_to_choice is not None:
            check_targets(task, config, columns, settings, question.choices)
        return
    if problem is not None:
        raise unaskable(task, problem, docs, settings)


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
    metrics = {name: RegisteredMetric(_AnyCallable(), _AnyCallable(), None) for name in known.get("metric", ())}
    return Helpers(
        _unloaded,
        list,
        lambda name: metrics[name].function if name in metrics else find_metric(name),
        lambda: dict.fromkeys(known.get("filter", ()), _AnyScorer),
        metrics,
        dict.fromkeys(known.get("aggregation", ()), _AnyCallable()),
    )


_REGISTERS = re.compile(
    r"(?:register_|assay\.|@)(filter|metric|aggregation|reduction|scorer|sampler)\("
    r"\s*(?:(?:name|metric)\s*=\s*)?(?:[\"']([^\"']+)[\"'])?"
)
_IMPORTS = re.compile(r"^\s*(?:from|import)\s+\.?(\w+)", re.MULTILINE)
_UNKNOWN = re.compile(r"no (\w+) named '(.+?)'")


def _registered(files: Sequence[str]) -> dict[str, set[str]]:
    """By kind, the names that helper modules register, as their texts show; "" for one that is computed."""
    known: dict[str, set[str]] = {}
    waiting, seen = list(files), set(files)
    while waiting:
        file = Path(waiting.pop())
        try:
            text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        except (OSError, ValueError):
            continue
        for kind, name in _REGISTERS.findall(text):
            known.setdefault(kind, set()).add(name)
        beside = {str(file.with_name(f"{name}.py")) for name in _IMPORTS.findall(text)} - seen
        seen |= beside
        waiting += beside
    return known


def _unless_registered(problem: Problem, known: Mapping[str, set[str]]) -> Problem | None:
    """A problem with a name; None where helper code registers it, a note where it may."""
    unknown = _UNKNOWN.match(problem.what)
    names = known.get(unknown[1], set()) if unknown is not None else set()
    if unknown is None or not names:
        return problem
    if unknown[2] in names:
        return None
    return (
        replace(problem, fix=f"{problem.fix}; `--load` runs the helper code that may register it", serious=False)
        if "" in names
        else problem
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
        written = static_signature(name)
        return [] if written is None else [accepted(_With(written.signature))]
    if kind == "metric":
        return [accepted(function) for function in METRICS[name].functions.values()] if name in METRICS else []
    registry = FILTERS if kind == "filter" else SCORERS
    return [registry.accepts(registry[name])] if name in registry else []


class _With:
    """A callable with a given signature."""

    def __init__(self, signature: inspect.Signature) -> None:
        self.__signature__ = signature

    def __call__(self) -> None: ...
