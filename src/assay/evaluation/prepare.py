"""Prepare tasks: bound to their data or to stored answers, with every problem reported before a model is opened."""

import dataclasses
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.catalog.conditions import ConditionError, holds
from assay.compat.evaluate_names import find_metric
from assay.compat.modules import HelperCode, seen_dotted
from assay.config.arguments import parse_arguments
from assay.config.option import YAMLMapping, YAMLValue
from assay.config.run import RunConfig
from assay.config.task import template_slips
from assay.errors import ConfigError, Place, Problem, grouped
from assay.evaluation.definitions import Definitions
from assay.evaluation.graphs import graph_settings, read_inner
from assay.evaluation.models import ModelPool
from assay.groups import Group
from assay.records import Function
from assay.registry import load_plugins
from assay.runs.results import tasks_text
from assay.samples.prompt import Chat, InvalidTemplate, RenderError
from assay.samples.rows import DataError, HubError
from assay.scoring.helper_code import Helpers
from assay.scoring.scorer import Scorer
from assay.tasks import Task, TaskManager
from assay.tasks.documents import open_splits, parse_shard
from assay.tasks.kinds import FindDefinition, kind_of
from assay.tasks.preflight import check_samples, ready_groups, refuse_unsafe
from assay.tasks.prepare import prepare as prepare_yaml
from assay.tasks.prompt_checks import placed
from assay.tasks.runnable import Runnable
from assay.tasks.settings import Settings, preserved_random, seed_random
from assay.tasks.validate import LoadedCode, validate

if TYPE_CHECKING:
    from assay.compat.class_task import ClassTask
    from assay.evaluation.answers import StoredAnswers
    from assay.tasks.rescore import StoredTask

Bind = Callable[[Task, HelperCode], Runnable]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Tasks that are ready for answers, the groups above them, and the tasks that could not be prepared, with the reason."""

    config: RunConfig
    tasks: Sequence[Runnable]
    groups: Sequence[Group[Task]]
    broken: Mapping[str, str]
    helper_files: Sequence[Path]

    @cached_property
    def has_several_graphs(self) -> bool:
        return sum(task.task.definition is not None for task in self.tasks) > 1

    @property
    def scorers(self) -> list[Scorer]:
        return list({id(scorer): scorer for task in self.tasks for scorer in task.facts.scorers}.values())


@dataclass(frozen=True, kw_only=True)
class PreparedRun(Prepared):
    """A run that is ready to ask its models."""

    manager: TaskManager
    models: ModelPool
    started: float


def load(config: RunConfig, manager: TaskManager) -> Definitions:
    """Look the tasks and groups of a run up by name; no helper code is executed."""
    with every_problem(config, manager):
        loaded = manager.load(config.tasks)  # type: ignore[arg-type]  # checked there
        _refuse_undecided(loaded["groups"].values(), manager.facts or {})
    refuse_unsafe(loaded["tasks"].values(), confirmed=config.confirm_run_unsafe_code)
    check_samples(config.samples, loaded["tasks"])
    return Definitions(loaded["tasks"], loaded["groups"], {})


def _refuse_undecided(groups: Iterable[Group[Task]], facts: YAMLMapping) -> None:
    """Refuse groups that were loaded before the model was known, with a member whose condition is false: it would count."""
    problems: list[Problem] = []
    for group in groups:
        for name, condition, place in group.undecided:
            try:
                if not holds(condition, facts):
                    what = f"`if: {condition}` is false, and {name!r} was loaded before that was known"
                    fix = "name the group in `tasks` of simple_evaluate or run, or load it with TaskManager(facts={…})"
                    problems.append(Problem(place, what, fix))
            except ConditionError as error:
                problems.append(Problem(place, f"invalid condition: {error.what}", error.fix))
    if problems:
        raise ConfigError(problems)


@contextmanager
def every_problem(config: RunConfig, manager: TaskManager) -> Iterator[None]:
    """Raise a ConfigError inside again with everything else that is wrong with the tasks of the run."""
    try:
        yield
    except ConfigError as error:
        specs = config.tasks if isinstance(config.tasks, list | tuple) else [config.tasks]
        if not all(isinstance(spec, str | Mapping) for spec in specs):
            raise
        every = find_problems(manager, config, list(specs))
        raise ConfigError([*error.problems, *(problem for problem in every if problem.serious)]) from error


def find_problems(manager: TaskManager, config: RunConfig, specs: YAMLValue, *, load: bool = False) -> list[Problem]:
    """List what is wrong with tasks and groups; with `load`, helper modules are imported as by a run, else only read."""
    settings, code = _settings(config), HelperCode.of_run(config)
    settings = dataclasses.replace(
        settings, graphs=dataclasses.replace(settings.graphs, definition=read_inner(manager))
    )
    if not load:
        return validate(
            manager,
            specs,
            find_metric,
            lambda name, folder, place: seen_dotted(name, folder, code, place),
            settings=settings,
        )
    helpers = code.helpers()
    loaded = LoadedCode(helpers, lambda task: _check_class(task, settings, helpers))
    with preserved_random():
        return validate(manager, specs, helpers.find_metric, code.dotted, settings=settings, code=loaded)


def _check_class(task: Task, settings: Settings, helpers: Helpers) -> None:
    """Make a class task, where its data is here; else only its class."""
    if open_splits(task, task.config, settings, helpers).data.is_local:
        _class_task(task, settings, helpers).check_first()
    elif task.config.class_ is not None:
        helpers.resolve(task.config.class_)


def _class_task(task: Task, settings: Settings, helpers: Helpers) -> "ClassTask":
    """Bind a task that is a Python class. Few tasks are, so what that needs is imported here."""
    from assay.compat.class_task import ClassTask

    return ClassTask.of(task, settings, helpers)


def prepare(definitions: Definitions, manager: TaskManager, models: ModelPool, started: float) -> PreparedRun:
    """Bind tasks to data, prompts, filters and metrics.

    What a task's file gets wrong is raised, of all tasks together; missing data breaks its task alone.
    """
    config, settings, find = models.config, run_settings(models), read_inner(manager)
    with every_problem(config, manager):
        bound = _bind_all(
            definitions.tasks.values(), settings, config, lambda task, code: _bind(task, settings, code, find)
        )
    helper_files = [*bound.helper_files, *load_plugins(config.plugins)]
    if not bound.tasks:
        raise ConfigError(bound.problems or [Problem(Place("tasks"), "the selection has no tasks", "name others")])
    groups = list(definitions.groups.values())
    if not config.predict_only:
        with every_problem(config, manager):
            ready_groups(groups, bound.tasks, bound.resolve, settings.dialect)
    return PreparedRun(
        config=config,
        tasks=bound.tasks,
        groups=groups,
        broken=bound.broken,
        helper_files=helper_files,
        manager=manager,
        models=models,
        started=started,
    )


def prepare_to_score(answers: "StoredAnswers", definitions: Definitions, config: RunConfig) -> Prepared:
    """Bind tasks to answers that are stored. A class task needs its data to be created at all."""
    from assay.tasks.rescore import prepare_scoring

    settings = _scoring_settings(config)
    stored = {name: _stored(answers, task) for name, task in definitions.tasks.items()}

    def bind(task: Task, code: HelperCode) -> Runnable:
        kind = kind_of(task)
        if kind is not None:
            return kind.prepare_scoring(task, settings, code.helpers(), stored[task.name])
        if _is_for_lm_eval(task, code):
            return _class_task(task, settings, code.helpers())
        return prepare_scoring(task, settings, code.helpers(), stored[task.name])

    bound = _bind_all(definitions.tasks.values(), settings, config, bind)
    groups = list(definitions.groups.values())
    ready_groups(groups, bound.tasks, bound.resolve, settings.dialect)
    broken = {**answers.broken, **bound.broken}
    return Prepared(config=config, tasks=bound.tasks, groups=groups, broken=broken, helper_files=bound.helper_files)


def _stored(answers: "StoredAnswers", task: Task) -> "StoredTask":
    stored = answers.stored(task.name)
    return stored if task.definition is None else stored._replace(first=answers.record(task.name))


def run_settings(models: ModelPool) -> Settings:
    """Settings of a run for all of its tasks. Prompts that need the model, for its chat template or length, open it."""
    config = models.config
    chat = Chat(
        models.chat_template if config.apply_chat_template else None,
        config.fewshot_as_multiturn,
        config.system_instruction,
    )
    return dataclasses.replace(
        _settings(config),
        chat=chat,
        graphs=graph_settings(config, models.opened, models.roles, whole=models.answers_for_graphs),
        fits=models.fits if config.over_length == "drop_shots" else None,
    )


def _scoring_settings(config: RunConfig) -> Settings:
    """Settings for answers that are stored: the options that select prompts and documents have had their effect."""
    default = RunConfig()
    return _settings(
        dataclasses.replace(
            config,
            start_index=default.start_index,
            fewshot_random_seed=default.fewshot_random_seed,
            predict_only=default.predict_only,
        )
    )


def _settings(config: RunConfig) -> Settings:
    params = parse_arguments(config.gen_kwargs, "gen_kwargs")
    wrong = [Problem(Place("--gen_kwargs"), f"{path[0]}: {what}", fix) for path, what, fix in template_slips(params)]
    if wrong:
        raise ConfigError(wrong)
    return Settings(config, params, parse_shard(config.shard))


class _Bound(NamedTuple):
    """Tasks bound to data or answers, those that could not be, and the helper code that was loaded for them."""

    tasks: list[Runnable]
    broken: dict[str, str]
    helper_files: list[Path]
    resolve: Callable[[Function], Any]
    problems: list[Problem]
    """Those of the broken tasks."""


def _bind_all(tasks: Iterable[Task], settings: Settings, config: RunConfig, bind: Bind) -> _Bound:
    code = HelperCode.of_run(settings.run)
    seed_random(config.random_seed, config.numpy_random_seed)
    bound: list[Runnable] = []
    broken: dict[str, str] = {}
    problems: list[Problem] = []
    reasons: list[Problem] = []
    for task in tasks:
        if not settings.dialect.keeps_one_random_stream:  # a task draws the same numbers whichever tasks come before it
            seed_random(config.random_seed, config.numpy_random_seed)
        try:
            bound.append(bind(task, code))
        except (DataError, RenderError) as error:
            broken[task.name] = str(error) + (_fetching(config, task) if isinstance(error, HubError) else "")
            reasons += [error.problem] if error.problem is not None else []
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    with_place = {str(problem) for problem in reasons}
    for names, reason in grouped((name, why) for name, why in broken.items() if why not in with_place):
        place = Place(f"task {names[0]!r}" if len(names) == 1 else tasks_text(names))
        reasons.append(Problem(place, reason))
    return _Bound(bound, broken, code.files, code.resolve, reasons)


def _fetching(config: RunConfig, task: Task) -> str:
    """The command that gets the data of what was asked for, on a machine that reaches the hub: with the folders that know it."""
    named = [spec for spec in config.tasks if isinstance(spec, str)]
    names = " ".join(named).replace(",", " ") if len(named) == len(config.tasks) else task.name
    folders = "".join(f" --include_path {shlex.quote(folder)}" for folder in config.include_path or ())
    into = shlex.quote(config.data_dir or "data")
    return f"; with a network `assay fetch {names} --data_dir {into}{folders}` gets it"


def _is_for_lm_eval(task: Task, code: HelperCode) -> bool:
    """Whether a task is a class written for lm-eval: one derived from ours is a YAML task with methods."""
    kind = code.resolve(task.config.class_) if task.config.class_ is not None else Task
    return not (isinstance(kind, type) and issubclass(kind, Task))


def _bind(task: Task, settings: Settings, code: HelperCode, find: FindDefinition) -> Runnable:
    kind = kind_of(task)
    if kind is not None:
        return kind.prepare(task, settings, code.helpers(), find)
    if task.unsent is not None:
        raise DataError(str(task.unsent))
    if not _is_for_lm_eval(task, code):
        return prepare_yaml(task, settings, code.helpers())
    try:
        class_task = _class_task(task, settings, code.helpers())
        class_task.refuse_media()
        with preserved_random():
            class_task.check_first()
    except InvalidTemplate as error:
        raise placed(task, error.reason) from error
    return class_task
