"""Evaluate from Python: the flow with model objects and options as keywords."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from assay.config.arguments import parse_arguments
from assay.config.option import YAMLMapping, YAMLValue
from assay.errors import ConfigError
from assay.evaluation.dispatch import Watch
from assay.evaluation.flow import execute, prepare_run
from assay.evaluation.model_facts import ModelFacts
from assay.evaluation.options import checkpoint_runs, in_runs_folder, run_config, run_facts
from assay.evaluation.options import task_manager as manager_of
from assay.evaluation.prepare import PreparedRun
from assay.evaluation.writing import Evaluation, OutputOptions
from assay.models.load import refuse_incomplete
from assay.models.protocol import AnyModel
from assay.runs.run import Run
from assay.tasks import TaskManager
from assay.tasks.order import StopRule

MakeStopRule = Callable[[PreparedRun], StopRule | None]


def evaluate_stored(
    model: AnyModel | str | None,
    options: YAMLMapping,
    manager: TaskManager | None,
    stop_rule: MakeStopRule | None,
    watch: Watch,
) -> Run:
    """Evaluate a model on tasks, and open the folder of the run; `options` has `tasks`, and where runs are stored."""
    if options.get("dry_run"):
        what = "a dry run has no results to return"
        raise ConfigError.at("dry_run", what, "use `assay run --dry_run`, or leave it out")
    folder = evaluate(model, options, manager, stop_rule, watch).folder
    assert folder is not None, "options name output_path or runs_dir"
    return Run.open(folder)


def evaluate(
    model: AnyModel | str | None,
    options: YAMLMapping,
    manager: TaskManager | None,
    stop_rule: MakeStopRule | None,
    watch: Watch | None = None,
) -> Evaluation:
    """Evaluate a model, or the one that has this name, with the options of a run; the models of `model_role` may be objects, too.

    None is the model of graphs that ask none. `stop_rule` makes the rule that `stop_when` describes.
    """
    is_object = model is not None and not isinstance(model, str)
    if is_object:
        refuse_incomplete(model, f"the model {model!r:.60}")
    if is_object and options.get("model_args"):  # tasks such as RULER read them as metadata, so they are not refused
        logging.getLogger("assay").warning("model_args: the model is an object, so that only tasks see them")
    roles = options.get("model_role")
    if roles is not None and not isinstance(roles, Mapping):
        what, fix = (
            f"must have the models by role, got {roles!r:.60}",
            "write model_role={'judge': MODEL OR 'NAME,K=V'}",
        )
        raise ConfigError.at("model_role", what, fix)
    objects: dict[str, Any] = {role: value for role, value in (roles or {}).items() if hasattr(value, "identity")}
    named = {role: value for role, value in (roles or {}).items() if role not in objects} or None
    name = {"model": model} if isinstance(model, str) else {}
    config = run_config({**options, "tasks": listed(options.get("tasks")), "model_role": named, **name})
    if checkpoint_runs(config):
        what, fix = "names several checkpoints", "call this function for each of them, or use `assay run`"
        raise ConfigError.at("model_args", what, fix)
    if watch is not None:  # of `assay.run`, which is stored
        config = in_runs_folder(config)
    metadata = parse_arguments(config.metadata or None, "metadata")
    under_test = None if model is None or isinstance(model, str) else model
    about = {} if under_test is None else {"model": ModelFacts.of_object(under_test, metadata)}
    known = manager.with_facts({**run_facts(config), **about}) if manager is not None else manager_of(config, **about)
    prepared = prepare_run(config, known, under_test, objects)
    rule = stop_rule(prepared) if stop_rule is not None else None
    return execute(prepared, watch, OutputOptions(keep_samples=config.log_samples and watch is None), rule)


def listed(tasks: YAMLValue) -> list[YAMLValue]:
    """One task, or a list of them, as a list."""
    return [tasks] if isinstance(tasks, str | Mapping) else list(tasks or [])  # type: ignore[call-overload]
