"""Evaluate a model on tasks. Each step takes what the one before returned; nothing is filled in later.

    load → prepare → open → ask → score → estimate → write

`assay score` and `assay merge` take the same last steps, `finish`, with stored answers in place of a model's.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import TypeVar

from assay.config.run import RunConfig
from assay.evaluation.dispatch import RunProgress, Watch, ask
from assay.evaluation.estimates import estimate
from assay.evaluation.models import ModelPool, check_model_options, open_models
from assay.evaluation.prepare import Prepared, PreparedRun, load, prepare
from assay.evaluation.scoring import AnswerSource, Output, fewer_collections, score_tasks, scorer_nodes
from assay.evaluation.time_left import time_left_of
from assay.evaluation.trials import try_requests
from assay.evaluation.writing import Evaluation, OutputOptions, decided_before, is_resumed, open_output
from assay.models.protocol import AnyModel, Planning
from assay.runs.storage import check_storage
from assay.tasks import TaskManager
from assay.tasks.order import SeededOrder, StopRule

T = TypeVar("T")


def prepare_run(
    config: RunConfig,
    manager: TaskManager,
    model: AnyModel | None = None,
    roles: Mapping[str, AnyModel] | None = None,
    *,
    load_ahead: bool = False,
) -> PreparedRun:
    """Everything that can fail, before the model is opened. With `load_ahead` a thread may load it meanwhile: what goes wrong
    there is reported when it is opened."""
    started = time.time()
    check_storage(config.output_path, config.runs_dir)
    check_model_options(config, model)
    models = ModelPool(config, model, roles)  # opened when they are needed
    with ExitStack() as undo, fewer_collections(10_000):
        undo.callback(models.close)
        if load_ahead:
            models.load_ahead()
        definitions = load(config, manager)  # tasks and groups by name; executes no user code
        prepared = prepare(
            definitions, manager, models, started
        )  # data, prompts, filters, metrics; every problem at once
        undo.pop_all()
    return prepared


def execute(
    prepared: PreparedRun,
    watch: Watch | None = None,
    options: OutputOptions = OutputOptions(),  # noqa: B008  # a frozen record
    rule: StopRule | None = None,
) -> Evaluation:
    """Ask the models, score their answers, and write the run; with a rule, until that has decided."""
    order = SeededOrder(rule, prepared.config.random_seed) if rule is not None else None
    with closing(prepared.models), scorer_nodes(prepared, at_end=order is None):
        models = open_models(prepared)  # the model under test and roles; capabilities checked
        if order is not None:
            known = decided_before(prepared, models)  # nothing is asked again
            if known is not None:
                return known
            options = options._replace(task_run=order.task_run)
        tried = () if is_resumed(prepared, models) else try_requests(prepared.config, prepared.tasks, models)
        with open_output(prepared, models, options) as output:  # manifest, journal, lease; resumes the same run

            def notify(progress: RunProgress) -> None:
                output.beat(progress)
                expect_rest(models, progress)
                if watch is not None:
                    watch(progress)

            answers = ask(prepared.config, models, output.journal, notify, order, tried)  # the engine drives every plan
            return finish(prepared, answers, output)


def expect_rest(models: Mapping[str, AnyModel], progress: RunProgress) -> None:
    """Pass on to models that plan ahead how long the rest of the run takes, once that is known."""
    planning = [model for model in models.values() if isinstance(model, Planning)]
    if planning and (seconds := time_left_of(progress).seconds) is not None:
        for model in planning:
            model.expect(seconds)


def finish(prepared: Prepared, answers: AnswerSource, output: Output[T]) -> T:
    """Score answers, whatever their source, and write the results."""
    scored = score_tasks(prepared.tasks, answers, output)  # the one loop; failures per row
    results = estimate(prepared, scored.runs)  # numbers with intervals, of tasks and groups
    return output.write(results, scored)  # samples, results.json, manifest
