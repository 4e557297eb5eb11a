"""Ask models: the engine drives the plan of every sample, and scores are noted as responses land."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from assay.config.run import RunConfig
from assay.engine import Budget, Ended, Engine, Memory, Started
from assay.evaluation.event_loop import run_async
from assay.evaluation.models import labels
from assay.evaluation.scoring import AnswerSource, RunUsage
from assay.models.protocol import AnyModel
from assay.runs.cache import Cache, Cached
from assay.runs.journal import Journal
from assay.tasks.run import TaskRun


class RunProgress(NamedTuple):
    """A live view of a run: its tasks, and the engine that asks for them."""

    tasks: Sequence[TaskRun]
    engine: Engine


Watch = Callable[[RunProgress], None]
"""Called several times a second while a run asks."""


def ask(config: RunConfig, models: Mapping[str, AnyModel], journal: Journal, watch: Watch) -> AnswerSource:
    """The answers of models that are asked now; those in the journal or the cache are not asked for again."""

    def answers(runs: Sequence[TaskRun]) -> RunUsage:
        if config.use_cache is None:
            return run_async(_drive(config, models, journal, runs, watch))
        with closing(Cache(Path(config.use_cache))) as cache:
            return run_async(_drive(config, models, Cached(journal, cache, labels(models)), runs, watch))

    return answers


async def _drive(
    config: RunConfig, models: Mapping[str, AnyModel], memory: Memory, runs: Sequence[TaskRun], watch: Watch
) -> RunUsage:
    budget = Budget(config.max_cost, config.max_time, config.max_failures)
    engine = Engine(models, memory, lambda: watch(RunProgress(runs, engine)), budget, config.records_at_once)
    await engine.run(_plans(runs), _end)
    for run in runs:
        run.finish()
    return RunUsage(engine.account.told(), dataclasses.asdict(engine.counts), budget.ended)


def _plans(runs: Sequence[TaskRun]) -> Iterator[Started]:
    for run in runs:
        task = run.runnable
        name = task.task.name
        encoded = name.encode()
        for number, sample in run.samples():
            yield Started((run, number, sample), b"%s\0%d" % (encoded, sample.doc_id), task.plan(sample), name)


def _end(ended: Ended) -> None:
    run, number, sample = ended.what
    run.end(number, sample, ended.responses)
