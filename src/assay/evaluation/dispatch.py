"""Ask models: the engine drives the plan of every sample, and scores are noted as responses arrive."""

import asyncio
import dataclasses
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple, TypeVar

from assay.config.run import RunConfig
from assay.engine import Budget, Engine
from assay.engine.drive import ResponseStore
from assay.evaluation.scoring import AnswerSource, UsageSummary
from assay.models.protocol import AnyModel
from assay.runs.cache import Cache, CachedJournal
from assay.runs.journal import Journal
from assay.tasks.run import TaskRun, end_plan, plans_of


class RunProgress(NamedTuple):
    """A live view of a run: its tasks, and the engine that asks for them."""

    tasks: Sequence[TaskRun]
    engine: Engine


Watch = Callable[[RunProgress], None]
"""Called several times a second while a run asks."""


def ask(config: RunConfig, models: Mapping[str, AnyModel], journal: Journal, watch: Watch) -> AnswerSource:
    """The answers of models that are asked now; those in the journal or the cache are not asked for again."""

    def answers(runs: Sequence[TaskRun]) -> UsageSummary:
        if config.use_cache is None:
            return run_async(_drive(config, models, journal, runs, watch))
        with closing(Cache(Path(config.use_cache))) as cache:
            return run_async(_drive(config, models, CachedJournal(journal, cache, model_labels(models)), runs, watch))

    return answers


async def _drive(
    config: RunConfig, models: Mapping[str, AnyModel], memory: ResponseStore, runs: Sequence[TaskRun], watch: Watch
) -> UsageSummary:
    budget = Budget(config.max_cost, config.max_time, config.max_failures)
    engine = Engine(models, memory, lambda: watch(RunProgress(runs, engine)), budget, config.records_at_once)
    await engine.run(plans_of(runs), end_plan)
    for run in runs:
        run.finish()
    return UsageSummary(engine.usage.to_json(), dataclasses.asdict(engine.counts), budget.ended)


def model_labels(models: Mapping[str, AnyModel]) -> dict[str, str]:
    """A readable name of the model of each role, for the cache."""
    return {role: f"{model.name} {getattr(model, 'model', '')}".strip() for role, model in models.items()}


T = TypeVar("T")


def run_async(work: Coroutine[None, None, T]) -> T:
    """Run a coroutine to its end; where a loop is running already, as in a notebook, in a separate thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with _prompt_interrupts():
            return asyncio.run(work)
    return _run_in_thread(work)


def _run_in_thread(work: Coroutine[None, None, T]) -> T:
    """Run a coroutine in a thread. Ctrl-C reaches the main thread, which cancels it."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)

    def run_loop() -> T:
        try:
            return loop.run_until_complete(task)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(run_loop)
        try:
            return running.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(task.cancel)
            raise


def _interrupt(signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # the shape of a handler
    raise KeyboardInterrupt


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
