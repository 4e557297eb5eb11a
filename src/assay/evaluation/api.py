"""`simple_evaluate` and `evaluate`: the flow from Python, with model objects and loaded tasks."""

import logging
from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from typing import Any

from assay.config.arguments import parse_arguments
from assay.config.option import YAMLMapping, YAMLValue
from assay.errors import ConfigError, Place, Problem, some
from assay.evaluation.dispatch import Watch
from assay.evaluation.flow import execute, prepare_run
from assay.evaluation.model_facts import ModelFacts
from assay.evaluation.options import checkpoint_runs, in_runs_folder, run_config
from assay.evaluation.options import task_manager as manager_of
from assay.evaluation.prepare import PreparedRun
from assay.evaluation.writing import Evaluation, OutputOptions
from assay.groups import Group
from assay.models.protocol import AnyModel
from assay.records import JSONDict
from assay.results import Results
from assay.runs.lm_eval_layout import lm_eval_layout
from assay.runs.results import failure_lines
from assay.runs.run import Run
from assay.tasks import Task, TaskManager
from assay.tasks.manager import LoadedTasks
from assay.tasks.order import StopRule

MakeStopRule = Callable[[PreparedRun], StopRule | None]


def simple_evaluate(
    model: AnyModel | str | None,
    model_args: YAMLValue = None,
    tasks: YAMLValue = None,
    *,
    task_manager: TaskManager | None = None,
    model_role: Mapping[str, AnyModel | YAMLValue] | None = None,
    stop_rule: MakeStopRule | None = None,
    **options: YAMLValue,
) -> JSONDict:
    """Evaluate a model on tasks; returns the content of results.json, with `samples` where they are logged.

    `model` is a model object, a name of `assay ls models`, or None where the tasks are graphs that ask none; `model_role` has
    others by role. `options` are those of a run: see RunConfig. `stop_rule` makes the rule that `stop_when` describes.
    """
    own = {"log_samples": True, **options, "tasks": _listed(tasks), "model_args": model_args}
    return _with_failures_logged(_evaluate(model, own, task_manager, model_role, stop_rule))


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
    own = {"log_samples": True, "fewshot_as_multiturn": False, **options, "tasks": items}
    return _with_failures_logged(_evaluate(lm, own, task_manager, model_role, stop_rule))


def stored_run(
    model: AnyModel | str | None,
    options: YAMLMapping,
    *,
    task_manager: TaskManager | None = None,
    model_role: Mapping[str, AnyModel | YAMLValue] | None = None,
    stop_rule: MakeStopRule | None = None,
    watch: Watch | None = None,
) -> Run:
    """Evaluate a model on tasks, and open the folder of the run; `options` has `tasks`, and where runs are stored."""
    own = {**options, "tasks": _listed(options.get("tasks"))}
    if options.get("dry_run"):
        what = "a dry run has no results to return"
        raise ConfigError([Problem(Place("dry_run"), what, "use `assay run --dry_run`, or leave it out")])
    folder = _evaluate(model, own, task_manager, model_role, stop_rule, watch).folder
    assert folder is not None, "options name output_path or runs_dir"
    return Run.open(folder)


class EvaluationResults(dict[str, Any]):
    """Results in lm-eval's layout: a dict that is short where it is printed, and a table in a notebook."""

    def __init__(self, results: Results, samples: Mapping[str, Any] | None = None) -> None:
        layout = lm_eval_layout(results)
        own = {"samples": samples} if samples is not None else {}
        super().__init__({**layout, **own})
        self.results = results

    def __repr__(self) -> str:
        names, status = list(self.results.tasks), self.results.status
        return f"<EvaluationResults: {some(names)}, {status}; keys: {', '.join(self)}>"

    def _repr_html_(self) -> str:
        return Run(Path("results"), {}, self.results)._repr_html_()


def _evaluate(
    model: AnyModel | str | None,
    options: YAMLMapping,
    manager: TaskManager | None,
    roles: Mapping[str, AnyModel | YAMLValue] | None,
    stop_rule: MakeStopRule | None,
    watch: Watch | None = None,
) -> Evaluation:
    is_object = model is not None and not isinstance(model, str)
    if is_object and not hasattr(model, "identity"):
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
    config = run_config({**own, "model_role": named, **name})
    if checkpoint_runs(config):
        what, fix = "names several checkpoints", "call this function for each of them, or use `assay run`"
        raise ConfigError([Problem(Place("model_args"), what, fix)])
    if watch is not None:  # of `assay.run`, which is stored
        config = in_runs_folder(config)
    metadata = parse_arguments(config.metadata or None, "metadata")
    under_test = None if model is None or isinstance(model, str) else model
    about = {} if under_test is None else {"model": ModelFacts.of_object(under_test, metadata)}
    prepared = prepare_run(config, manager or manager_of(config, **about), under_test, objects)
    rule = stop_rule(prepared) if stop_rule is not None else None
    return execute(prepared, watch, OutputOptions(keep_samples=config.log_samples and watch is None), rule)


def _with_failures_logged(evaluation: Evaluation) -> EvaluationResults:
    for line in failure_lines(evaluation.results):
        logging.getLogger("assay").warning(line)
    return EvaluationResults(evaluation.results, evaluation.samples)


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
