"""Ask models: the engine drives the plan of every sample, and scores are noted as responses arrive."""

import asyncio
import dataclasses
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NamedTuple, TypeVar

from assay.config.run import RunConfig
from assay.engine import Budget, Ended, Engine
from assay.engine.drive import ResponseStore, TriedRequest
from assay.engine.interrupts import interrupt
from assay.evaluation.scoring import AnswerSource, UsageSummary
from assay.models.protocol import AnyModel, Remote
from assay.runs.cache import Cache, CachedJournal
from assay.runs.journal import Journal
from assay.tasks.order import SeededOrder
from assay.tasks.run import TaskRun, end_plan, plans_of


class RunProgress(NamedTuple):
    """A live view of a run: its tasks, and the engine that asks for them."""

    tasks: Sequence[TaskRun]
    engine: Engine


AHEAD, PARTS = 128, 20
"""With a rule that may end the run, a local model gets this many documents at a time, or this part of all: it sorts those it
has by length, so that of all at once the first in the order might come last."""
Watch = Callable[[RunProgress], None]
"""Called several times a second while a run asks."""


def ask(
    config: RunConfig,
    models: Mapping[str, AnyModel],
    journal: Journal,
    watch: Watch,
    order: SeededOrder | None = None,
    tried: Sequence[TriedRequest] = (),
) -> AnswerSource:
    """The answers of models that are asked now; those in the journal or the cache, and those that were `tried`, are not asked
    for again. With an order, documents are asked in it until its rule has decided."""

    def answers(runs: Sequence[TaskRun]) -> UsageSummary:
        if config.use_cache is None:
            return run_async(_drive(config, models, journal, runs, watch, order, tried))
        with closing(Cache(Path(config.use_cache))) as cache:
            cached = CachedJournal(journal, cache, model_labels(models))
            return run_async(_drive(config, models, cached, runs, watch, order, tried))

    return answers


async def _drive(  # noqa: PLR0913  # the options of a run and its parts
    config: RunConfig,
    models: Mapping[str, AnyModel],
    memory: ResponseStore,
    runs: Sequence[TaskRun],
    watch: Watch,
    order: SeededOrder | None,
    tried: Sequence[TriedRequest],
) -> UsageSummary:
    budget = Budget(config.max_cost, config.max_time, config.max_failures)
    most = config.records_at_once
    if order is not None and most is None and not all(isinstance(model, Remote) for model in models.values()):
        most = max(AHEAD, sum(run.runnable.facts.size for run in runs) // PARTS)
    engine = Engine(models, memory, lambda: watch(RunProgress(runs, engine)), budget, most, config.resume_calls)
    engine.add_tried(tried)
    for run in runs:
        run.on_document = engine.end_document
    if order is None:
        await engine.run(plans_of(runs, _early(config, models, runs)), end_plan)
    else:
        await engine.run(order.plans(runs), partial(_end_in_order, order, budget))
    for run in runs:
        run.finish()
    outcome = order.rule.outcome() if order is not None else {}
    return UsageSummary(engine.usage.to_json(), dataclasses.asdict(engine.counts), budget.ended, outcome)


EARLY_TASKS = 16
"""Number of tasks whose first documents are asked first."""


def _early(config: RunConfig, models: Mapping[str, AnyModel], runs: Sequence[TaskRun]) -> list[TaskRun]:
    """Tasks whose first documents are asked first, so that the time left is known early: those that generate, and one of those
    that do not. None for local models, which share prefixes within a task, and none where lm-eval's order of draws counts."""
    if config.compat is not None or len(runs) < 2 or not all(isinstance(model, Remote) for model in models.values()):
        return []
    plain = [run for run in runs if run.runnable.task.config.class_ is None]
    texts = [run for run in plain if "generate" in run.runnable.needs() or not run.runnable.needs()]
    others = {run.runnable.needs(): run for run in reversed(plain) if run not in texts}
    return [run for run in plain if run in texts or run in others.values()][:EARLY_TASKS]


def _end_in_order(order: SeededOrder, budget: Budget, ended: Ended) -> None:
    order.end(ended)
    if order.ended:
        budget.stop(order.ended)


def model_labels(models: Mapping[str, AnyModel]) -> dict[str, str]:
    """A readable name of the model of each role, for the cache."""
    return {role: f"{model.name} {getattr(model, 'model', '')}".strip() for role, model in models.items()}


T = TypeVar("T")


def run_async(work: Coroutine[None, None, T]) -> T:
    """Run a coroutine to its end, in this thread even where a loop is running already, as in a notebook.

    That one waits as long: it would with another thread, too, where alarms cannot limit the time of a document.
    """
    with _outer_loop_left(), _prompt_interrupts(), asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work)


@contextmanager
def _outer_loop_left() -> Iterator[None]:
    """Let this thread run another event loop beside the one that runs already, if one does."""
    loop = asyncio._get_running_loop()
    task = asyncio.current_task(loop) if loop is not None else None
    if loop is not None and task is not None:
        asyncio.tasks._leave_task(loop, task)
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
        if loop is not None and task is not None:
            asyncio.tasks._enter_task(loop, task)


def _interrupt(signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # the shape of a handler
    interrupt(signal_number)


@contextmanager
def _prompt_interrupts() -> Iterator[None]:
    """Let Ctrl-C stop whatever is running, a long regex match too: asyncio would wait for the next await."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
