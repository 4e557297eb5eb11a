"""`simple_evaluate` and `evaluate`: the flow from Python, with model objects and loaded tasks."""

import logging
from collections.abc import Mapping
from typing import Any

from assay.config.option import YAMLMapping, YAMLValue
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.flow import execute, prepare_run
from assay.evaluation.options import run_config
from assay.evaluation.options import task_manager as manager_of
from assay.evaluation.writing import OutputOptions
from assay.models.protocol import AnyModel
from assay.records import JSONDict
from assay.runs.results import failure_lines
from assay.tasks import TaskManager
from assay.tasks.manager import LoadedTasks


def simple_evaluate(
    model: AnyModel | str,
    model_args: YAMLValue = None,
    tasks: YAMLValue = None,
    *,
    task_manager: TaskManager | None = None,
    model_role: Mapping[str, AnyModel | YAMLValue] | None = None,
    **options: YAMLValue,
) -> JSONDict:
    """Evaluate a model on tasks; returns the content of results.json, with `samples` where they are logged.

    `model` is a model object or a name of `assay ls models`; `model_role` has others by role. `options` are those of a run:
    see RunConfig.
    """
    return _evaluate(model, {**options, "tasks": _listed(tasks), "model_args": model_args}, task_manager, model_role)


def evaluate(
    lm: AnyModel,
    task_dict: LoadedTasks,
    *,
    task_manager: TaskManager | None = None,
    model_role: Mapping[str, AnyModel | YAMLValue] | None = None,
    **options: YAMLValue,
) -> JSONDict:
    """Evaluate a model on tasks that `TaskManager.load` returned."""
    items = [*task_dict["tasks"].values(), *task_dict.get("groups", {}).values()]
    return _evaluate(lm, {"fewshot_as_multiturn": False, **options, "tasks": items}, task_manager, model_role)


def _evaluate(
    model: AnyModel | str,
    options: YAMLMapping,
    manager: TaskManager | None,
    roles: Mapping[str, AnyModel | YAMLValue] | None,
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
    about = {} if isinstance(model, str) else {"model": {"name": model.name, **getattr(model, "facts", {})}}
    prepared = prepare_run(
        config, manager or manager_of(config, **about), None if isinstance(model, str) else model, objects
    )
    results = execute(prepared, options=OutputOptions(keep_samples=config.log_samples)).results
    for line in failure_lines(results["assay"]):
        logging.getLogger("assay").warning(line)
    return results


def _listed(tasks: YAMLValue) -> list[YAMLValue]:
    return [tasks] if isinstance(tasks, str | Mapping) else list(tasks or [])  # type: ignore[call-overload]
