"""Evaluate a model on tasks. Each step takes what the one before returned; nothing is filled in later.

    load → prepare → open → ask → score → estimate → write

`assay score` and `assay merge` take the same last steps, `finish`, with stored answers in place of a model's.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, TypeVar

from assay.config.option import YAMLValue
from assay.config.run import RunConfig
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.asking import RunProgress, Watch, ask
from assay.evaluation.estimates import estimate
from assay.evaluation.models import ModelPool, check_model_options, open_models
from assay.evaluation.options import run_config, task_manager
from assay.evaluation.prepare import Prepared, PreparedRun, load, prepare
from assay.evaluation.scoring import AnswerSource, Output, score_tasks, scorer_processes
from assay.evaluation.writing import Evaluation, OutputOptions, open_output
from assay.models.protocol import AnyModel
from assay.runs.results import failure_lines
from assay.runs.validation import JSONDict
from assay.tasks import TaskManager
from assay.tasks.manager import LoadedTasks

T = TypeVar("T")


def prepare_run(
    config: RunConfig,
    manager: TaskManager,
    model: AnyModel | None = None,
    roles: Mapping[str, AnyModel] | None = None,
) -> PreparedRun:
    """Everything that can fail, before the model is opened."""
    started = time.time()
    check_model_options(config, model)
    definitions = load(config, manager)  # tasks and groups by name; executes no user code
    models = ModelPool(config, model, roles)  # opened when they are needed
    return prepare(definitions, manager, models, started)  # data, prompts, filters, metrics; every problem at once


def execute(prepared: PreparedRun, watch: Watch | None = None, options: OutputOptions = OutputOptions()) -> Evaluation:  # noqa: B008  # a frozen record
    """Ask the models, score their answers, and write the run."""
    with scorer_processes(prepared.scorers):
        models = open_models(prepared)  # the model under test and roles; capabilities checked
        with open_output(prepared, models, options) as output:  # manifest, journal, lease; resumes the same run

            def notify(progress: RunProgress) -> None:
                output.beat(progress.tasks)
                if watch is not None:
                    watch(progress)

            answers = ask(prepared.config, models, output.journal, notify)  # the engine drives every plan
            return finish(prepared, answers, output)


def finish(prepared: Prepared, answers: AnswerSource, output: Output[T]) -> T:
    """Score answers, whatever their source, and write the results."""
    scored = score_tasks(prepared.tasks, answers, output)  # the one loop; failures per row
    results = estimate(prepared, scored.runs)  # numbers with intervals, of tasks and groups
    return output.write(results, scored)  # samples, results.json, manifest


def simple_evaluate(
    model: AnyModel | str, model_args: YAMLValue = None, tasks: YAMLValue = None, **options: Any
) -> JSONDict:
    """Evaluate a model on tasks; returns the content of results.json, with `samples` where they are logged.

    `model` is a model object or a name of `assay ls models`. `options` are those of lm-eval's function of this name, and
    `include_path`, `data_dir`, `compat`, `output_path`, `repeats`, `sample`, `force`, `max_failed`: see RunConfig.
    """
    if not isinstance(model, str) and not hasattr(model, "identity"):
        what, fix = f"{model!r:.60} is neither a model nor the name of one", "give a name of `assay ls models`"
        raise ConfigError([Problem(Place("model"), what, fix)])
    manager: TaskManager | None = options.pop("task_manager", None)
    options.pop("evaluation_tracker", None)  # what it would write is in the folder of the run
    roles = options.pop("model_role", None) or {}
    role_objects = {role: value for role, value in roles.items() if hasattr(value, "identity")}
    options["model_role"] = {role: value for role, value in roles.items() if role not in role_objects} or None
    given = {"log_samples": True, **options, "tasks": _listed(tasks), "model_args": model_args}
    config = run_config({**given, **({"model": model} if isinstance(model, str) else {})})
    about = {} if isinstance(model, str) else {"model": {"name": model.name, **getattr(model, "facts", {})}}
    prepared = prepare_run(
        config, manager or task_manager(config, **about), None if isinstance(model, str) else model, role_objects
    )
    results = execute(prepared, options=OutputOptions(keep_samples=config.log_samples)).results
    for line in failure_lines(results["assay"]):
        logging.getLogger("assay").warning(line)
    return results


def evaluate(lm: AnyModel, task_dict: LoadedTasks, **options: Any) -> JSONDict:
    """Evaluate a model on tasks that `TaskManager.load` returned."""
    items = [*task_dict["tasks"].values(), *task_dict.get("groups", {}).values()]
    return simple_evaluate(lm, tasks=items, **{"fewshot_as_multiturn": False, **options})


def _listed(tasks: YAMLValue) -> list[YAMLValue]:
    return [tasks] if isinstance(tasks, str | Mapping) else list(tasks or [])  # type: ignore[call-overload]
