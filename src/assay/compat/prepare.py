"""Every task of a run bound to its data, in the order in which lm-eval would do it."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from assay.catalog.roots import installed_folders
from assay.compat.class_task import ClassTask
from assay.compat.modules import HelperCode
from assay.config.graph_reading import GraphFile
from assay.config.run import RunConfig
from assay.errors import ConfigError, Place, Problem
from assay.records import Function
from assay.samples.rows import DataError
from assay.samples.templates import InvalidTemplate, RenderError
from assay.tasks import Task
from assay.tasks.graph import ReadGraph, prepare_graph
from assay.tasks.graph_rescore import prepare_graph_scoring
from assay.tasks.prepare import prepare
from assay.tasks.randomness import preserved_random, seed_random
from assay.tasks.rescore import TaskFacts, prepare_scoring
from assay.tasks.runnable import Runnable
from assay.tasks.settings import Settings
from assay.tasks.template_checks import placed


def no_graph(name: str, place: Place) -> GraphFile:
    raise ConfigError([Problem(place, f"the graph {name} cannot be looked for here", "write its nodes in this file")])


class Prepared(NamedTuple):
    """The tasks that can be run; of those that cannot because of their data, why; and the helper code they use."""

    tasks: list[Runnable]
    broken: dict[str, str]
    helper_files: list[Path]
    resolve: Callable[[Function], Any]


def prepare_tasks(tasks: Iterable[Task], settings: Settings, config: RunConfig, read: ReadGraph = no_graph) -> Prepared:
    """Every task, ready to be run.

    `read` finds the graphs that others have within them. What a task's file says wrongly is raised, of all tasks together;
    data that is missing troubles its task alone.
    """
    return _each(tasks, settings, config, lambda task, helper: _bound(task, settings, helper, read))


def prepare_to_score(
    tasks: Iterable[Task], settings: Settings, config: RunConfig, facts: Mapping[str, TaskFacts]
) -> Prepared:
    """Every task, ready to score what was answered already. One that is a class needs its data, to be made at all."""

    def bind(task: Task, helper: HelperCode) -> Runnable:
        if task.graph is not None:
            return prepare_graph_scoring(task, settings, helper.helpers(), facts[task.name])
        if task.config.class_ is not None:
            return ClassTask.of(task, settings, helper.helpers())
        return prepare_scoring(task, settings, helper.helpers(), facts[task.name])

    return _each(tasks, settings, config, bind)


def _each(
    tasks: Iterable[Task], settings: Settings, config: RunConfig, bind: Callable[[Task, HelperCode], Runnable]
) -> Prepared:
    lm_eval = next((folder for origin, folder in installed_folders() if origin == "lm_eval"), None)
    helper = HelperCode(settings.data_dir, lm_eval or None)
    seed_random(config.random_seed, config.numpy_random_seed)
    made: list[Runnable] = []
    broken: dict[str, str] = {}
    problems: list[Problem] = []
    for task in tasks:
        if not settings.like_lm_eval:  # a task draws the same numbers whatever stands before it
            seed_random(config.random_seed, config.numpy_random_seed)
        try:
            made.append(bind(task, helper))
        except (DataError, RenderError) as error:
            broken[task.name] = str(error)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return Prepared(made, broken, helper.files, helper.resolve)


def _bound(task: Task, settings: Settings, helper: HelperCode, read: ReadGraph) -> Runnable:
    if task.graph is not None:
        return prepare_graph(task, settings, helper.helpers(), read)
    if task.unsent is not None:
        raise DataError(str(task.unsent))
    if task.config.class_ is None:
        return prepare(task, settings, helper.helpers())
    try:
        made = ClassTask.of(task, settings, helper.helpers())
        made.refuse_media()
        with preserved_random():
            made.check_first()
    except InvalidTemplate as error:
        raise placed(task, error.reason) from error
    return made
