"""`simple_evaluate` and `evaluate`: the flow from Python, with model objects and loaded tasks."""

import logging
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from assay.config.arguments import parse_arguments
from assay.config.option import YAMLMapping, YAMLValue
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.flow import execute, prepare_run
from assay.evaluation.model_facts import ModelFacts
from assay.evaluation.options import run_config
from assay.evaluation.options import task_manager as manager_of
from assay.evaluation.prepare import PreparedRun
from assay.evaluation.writing import OutputOptions
from assay.groups import Group
from assay.models.protocol import AnyModel
from assay.records import JSONDict
from assay.runs.results import failure_lines
from assay.tasks import Task, TaskManager
from assay.tasks.manager import LoadedTasks
from assay.tasks.order import StopRule

MakeStopRule = Callable[[PreparedRun], StopRule | None]


def simple_evaluate(
    model: AnyModel | str,
    model_args: YAMLValue = None,
    tasks: YAMLValue = None,
    *,
    task_manager: TaskManager | None = None,
    model_role: Mapping[str, AnyModel | YAMLValue] | None = None,
    stop_rule: MakeStopRule | None = None,
    **options: YAMLValue,
) -> JSONDict:
    """Evaluate a model on tasks; returns the content of results.json, with `samples` where they are logged.

    `model` is a model object or a name of `assay ls models`; `model_role` has others by role. `options` are those of a run:
    see RunConfig. `stop_rule` makes the rule that `stop_when` describes.
    """
    own = {**options, "tasks": _listed(tasks), "model_args": model_args}
    return _evaluate(model, own, task_manager, model_role, stop_rule)


def evaluate(
    lm: AnyModel,
    task_dict: LoadedTasks | Mapping[str, Task | Group[Task]],
    *,
    task_manager: TaskManager | None = None,
    model_role: Mapping[str, AnyModel | YAMLValue] | None = None,
    stop_rule: MakeStopRule | None = None,
    **options: YAMLValue,
) -> JSONDict:
    """Evaluate a model on tasks that `TaskManager.load` returned, or on tasks and groups by name."""
    items = _tasks_in(task_dict)
    own = {"fewshot_as_multiturn": False, **options, "tasks": items}
    return _evaluate(lm, own, task_manager, model_role, stop_rule)


def _evaluate(
    model: AnyModel | str,
    options: YAMLMapping,
    manager: TaskManager | None,
    roles: Mapping[str, AnyModel | YAMLValue] | None,
    stop_rule: MakeStopRule | None,
) -> JSONDict:
    if not isinstance(model, str) and not hasattr(model, "identity"):
        what, fix = f"{model!r:.60} is neither a model nor the name of one", "give a name of `assay ls models`"
        raise ConfigError([Problem(Place("model"), what, fix)])
    if roles is not None and not isinstance(roles, Mapping):
        what, fix = (
            f"must have the models by role, got {roles!r:.60}",
            "write model_role={'judge': MODEL OR 'NAME,K=V'}",
        )
        raise ConfigError([Problem(Place("model_role"), what, fix)])
    objects: dict[str, Any] = {role: value for role, value in (roles or {}).items() if hasattr(value, "identity")}
    named = {role: value for role, value in (roles or {}).items() if role not in objects} or None
    name = {"model": model} if isinstance(model, str) else {}
    own = {key: value for key, value in options.items() if key != "evaluation_tracker"}  # the run has its own folder
    config = run_config({"log_samples": True, **own, "model_role": named, **name})
    metadata = parse_arguments(config.metadata or None, "metadata")
    about = {} if isinstance(model, str) else {"model": ModelFacts.of_object(model, metadata)}
    prepared = prepare_run(
        config, manager or manager_of(config, **about), None if isinstance(model, str) else model, objects
    )
    rule = stop_rule(prepared) if stop_rule is not None else None
    results = execute(prepared, options=OutputOptions(keep_samples=config.log_samples), rule=rule).results
    for line in failure_lines(results["assay"]):
        logging.getLogger("assay").warning(line)
    return results


def _tasks_in(written: YAMLValue) -> list[Task | Group[Task]]:
    """The tasks and groups of what `TaskManager.load` returned, or of a mapping of names to them, as lm-eval's task_dict."""
    loaded = isinstance(written, Mapping) and isinstance(written.get("tasks"), Mapping)
    parts = [written["tasks"], written.get("groups", {})] if loaded else [written]  # type: ignore[index, attr-defined]
    items = [_named(item, str(name)) for part in parts if isinstance(part, Mapping) for name, item in part.items()]
    wrong = next((item for item in items if not isinstance(item, Task | Group)), None)
    if wrong is not None or not items:
        what = f"{wrong!r:.60} is neither a task nor a group" if items else "there is no task"
        fix = "give what TaskManager.load returned, or {'name': task}"
        raise ConfigError([Problem(Place("task_dict"), what, fix)])
    return items


def _named(item: Task | Group[Task], name: str) -> Task | Group[Task]:
    """A task under the name that results call it by."""
    if not isinstance(item, Task) or item.name == name:
        return item
    renamed = copy(item)
    renamed.name = renamed.alias = name
    return renamed


def _listed(tasks: YAMLValue) -> list[YAMLValue]:
    return [tasks] if isinstance(tasks, str | Mapping) else list(tasks or [])  # type: ignore[call-overload]
