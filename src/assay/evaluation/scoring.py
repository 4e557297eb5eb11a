"""Score answers as they arrive: the step that a run, a re-scoring and a merge share. They differ in the source of answers
and in what is written."""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from assay.results import Results
from assay.runs.cache import ScoreCache
from assay.runs.samples.reader import ReplayedSample
from assay.scoring.scorer import Scorer, scorer_identity
from assay.scoring.workers import ScorerMemo, Workers
from assay.tasks.prepare import PreparedTask
from assay.tasks.run import TaskRun
from assay.tasks.runnable import Runnable

if TYPE_CHECKING:
    from assay.evaluation.prepare import Prepared

Written = TypeVar("Written", covariant=True)
T = TypeVar("T")


class UsageSummary(NamedTuple):
    """The cost of answers, the number of requests by outcome, the limit or rule that ended the run early, if one did, and what
    the rule decided."""

    account: Mapping[str, Any] = {}
    requests: Mapping[str, int] = {}
    ended: str = ""
    decided: Mapping[str, Any] = {}


AnswerSource = Callable[[Sequence[TaskRun]], UsageSummary]
"""Hands every task its answers, sample by sample, and finishes it."""


class ScoredTasks(NamedTuple):
    """Tasks with all of their scores, and the usage of their answers."""

    runs: Sequence[TaskRun]
    usage: UsageSummary


class Output(Protocol[Written]):
    """Where the samples of each task and the results are written."""

    def task_run(self, task: Runnable) -> TaskRun:
        """A task that takes answers and hands every scored sample to be written."""
        ...

    def write(self, results: Results, scored: ScoredTasks) -> Written: ...


def score_tasks(tasks: Sequence[Runnable], answers: AnswerSource, output: Output[T]) -> ScoredTasks:
    """Score every task's answers as the source delivers them."""
    runs = [output.task_run(task) for task in tasks]
    with fewer_collections(100_000):
        return ScoredTasks(runs, answers(runs))


def replay(
    samples: Callable[[Runnable], Iterator[ReplayedSample]],
    usage: UsageSummary = UsageSummary(),  # noqa: B008  # a frozen record
    done: Callable[[Runnable], None] | None = None,
) -> AnswerSource:
    """Answers that are stored, task by task in the order of documents; `done` is called after each task."""

    def answers(runs: Sequence[TaskRun]) -> UsageSummary:
        for run in runs:
            for number, stored in enumerate(samples(run.runnable)):
                run.end(number, stored.sample, stored.responses)
            run.finish()
            if done is not None:
                done(run.runnable)
        return usage

    return answers


@contextmanager
def fewer_collections(objects: int) -> Iterator[None]:
    """Collect garbage after so many new objects: with Python's 700, a run looks at all it holds again and again.

    While documents are scored there are hardly any cycles, and the samples that a writer holds until a group of rows is full are
    up to 70,000 objects, none of them garbage: with 100,000, this saves a tenth. Preparing tasks leaves cycles behind, whose
    memory is used again sooner with 10,000: of 600 tasks, that saves a sixth, and 100,000 nothing.
    """
    before = gc.get_threshold()
    gc.set_threshold(objects, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def scorer_processes(scorers: Sequence[Scorer]) -> Iterator[None]:
    """Worker processes for the scorers that compute in parallel."""
    parallel = [scorer for scorer in scorers if scorer.parallel]
    with closing(Workers(parallel)) as workers:
        for scorer in parallel:
            scorer._workers = workers
        yield


@contextmanager
def scorer_nodes(prepared: "Prepared", *, at_end: bool = True) -> Iterator[None]:
    """The nodes of the run's cluster for scorers and metrics that compute in parallel; without one, worker processes.

    A cluster on this machine alone has no more processors than the processes, which are there sooner and have the scorers as
    they are. `at_end` says that no rule needs scores before all answers are there, so that metrics may be computed then.

    Processes are made first, before there is a connection: they score what cannot travel, and what fails on a node.
    """
    if prepared.config.ray in (None, "local"):
        with scorer_processes(prepared.scorers):
            yield
        return
    tasks = [task for task in prepared.tasks if at_end and isinstance(task, PreparedTask)]
    parallel = [scorer for scorer in prepared.scorers if scorer.parallel]
    metrics = [metric for task in tasks for step in task.scoring.steps for metric in step.parallel]
    if not parallel and not metrics:
        yield
        return
    from assay.fleet.work import node_workers

    config, files = prepared.config, prepared.helper_files
    with (
        closing(Workers([*parallel, *metrics])) as workers,
        node_workers(config, prepared.tasks, files, workers) as nodes,
    ):
        for scorer in parallel:
            scorer._workers = nodes
        for task in tasks:
            if any(step.parallel for step in task.scoring.steps):
                task.scoring = replace(task.scoring, workers=nodes)
        yield


@contextmanager
def scorer_memories(scorers: Sequence[Scorer], folder: Path) -> Iterator[None]:
    """Scores that an earlier part of the run stored in its folder, for the scorers that cache them."""
    cached = [
        (scorer, identity) for scorer in scorers if scorer.cached and (identity := scorer_identity(scorer)) is not None
    ]
    if not cached:
        yield
        return
    with closing(ScoreCache(folder)) as file:
        for scorer, identity in cached:
            scorer._memory = ScorerMemo(identity, file)
        yield
