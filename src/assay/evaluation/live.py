"""Write how far a run is into its folder: documents, failures, rate, time left, cost, provisional numbers, the newest samples.

It is written about once a second and takes at most one part in a hundred of the time: a run of 2,000 requests a second must not
notice it. Nothing is done for a single document or request.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from assay.evaluation.dispatch import RunProgress
from assay.evaluation.prepare import Prepared
from assay.evaluation.time_left import TimeLeft, time_left_of
from assay.groups.results import bottom_up
from assay.records import JSONDict, JSONObject
from assay.runs.live import LiveFolder
from assay.runs.samples.writer import NEWEST, SampleWriter
from assay.score_keys import ScoreKey
from assay.statistics.aggregations import Aggregation, known_aggregation
from assay.statistics.evidence import Estimate
from assay.tasks.run import TaskRun

SECONDS, SHARE = 1.0, 0.01
"""Time between two records, and the share of the processor's time that they may take."""
MAX_WAIT = 0.05
"""The share of the time that a run may wait for a slow disk; on a busy machine, most of it is other processes' time."""
MAX_REASONS, MAX_LETTERS = 20, 300
MIN_SAMPLES = 20


class LiveRecord:
    """Called with the progress of a run as it advances; writes now and then, however often it is called."""

    def __init__(self, folder: LiveFolder, prepared: Prepared, started: float) -> None:
        self._folder, self._started = folder, started
        self._groups = {group.name: group.child_names for group in bottom_up(prepared.groups)}
        self._aliases = {group.name: group.alias for group in bottom_up(prepared.groups)}
        self._broken = {name: reason[:MAX_LETTERS] for name, reason in prepared.broken.items()}
        self._writers: dict[str, SampleWriter] = {}
        self._seen: dict[str, int] = {}
        self._shown: dict[str, int] = {}
        self._numbers: dict[str, TaskNumbers] = {}
        self._next, self._seconds_per_sample = 0.0, 0.0

    def follow(self, task: str, writer: SampleWriter) -> None:
        """Show the newest samples that a writer gets."""
        self._writers[task] = writer

    def __call__(self, run: RunProgress) -> None:
        left = time_left_of(run)  # called also where nothing is written: it measures what is recent
        if time.monotonic() < self._next:
            return
        import pyarrow.parquet  # noqa: F401  # the run writes its samples with it, whether it is followed or not

        started, used = time.monotonic(), time.thread_time()
        try:
            self._write_samples(started)
            self._folder.write(self._record(run, left))
        except OSError:
            self._next = math.inf  # a full disk is reported where the run itself writes
            return
        used, took = time.thread_time() - used, time.monotonic() - started
        self._next = started + max(SECONDS, used / SHARE, took / MAX_WAIT)

    def _write_samples(self, started: float) -> None:
        """Write the newest samples of tasks that have new ones, those first that waited longest, until half the time is used."""
        changed = [task for task, writer in self._writers.items() if writer.count != self._seen.get(task, 0)]
        for task in changed:
            writer, before = self._writers[task], time.thread_time()
            if time.monotonic() - started > SECONDS * SHARE / 2:
                break
            self._writers[task] = self._writers.pop(task)  # to the end of the queue
            self._seen[task] = writer.count
            if not writer.is_ended:
                most = SECONDS * SHARE / 2 / (self._seconds_per_sample or 1.0)
                written = self._folder.write_samples(writer, task, min(max(round(most), MIN_SAMPLES), NEWEST))
                self._shown[task] = written
                self._seconds_per_sample = (time.thread_time() - before) / max(written, 1)

    def _record(self, run: RunProgress, left: TimeLeft) -> JSONDict:
        waiting = run.engine.unreachable_since
        self._compute_numbers(run.tasks)
        return {
            "time": time.time(),
            "started": self._started,
            "requests": {"done": left.done, "left": left.left, "rate": left.rate},
            "seconds_left": left.seconds,
            "unknown": left.unknown,
            "cost": run.engine.usage.total.cost,
            "waiting": time.monotonic() - waiting if waiting is not None else None,
            "groups": self._groups,
            "aliases": self._aliases,
            "broken": self._broken,
            "tasks": {each.runnable.task.name: self._task_record(each) for each in run.tasks},
        }

    def _compute_numbers(self, runs: Sequence[TaskRun]) -> None:
        """Compute the numbers of tasks that have new documents, those first that waited longest, until half the time is used."""
        started = time.monotonic()
        changed = [
            each
            for each in runs
            if each.board.documents != self._numbers.get(each.runnable.task.name, NO_NUMBERS).documents
        ]
        changed.sort(key=lambda each: self._numbers.get(each.runnable.task.name, NO_NUMBERS).time)
        for each in changed:
            numbers = [as_json(key, number, each) for key, number in provisional_numbers(each).items()]
            self._numbers[each.runnable.task.name] = TaskNumbers(each.board.documents, time.monotonic(), numbers)
            if time.monotonic() - started > SECONDS * SHARE / 2:
                break

    def _task_record(self, run: TaskRun) -> JSONObject:
        task, board = run.runnable, run.board
        name = task.task.name
        return {
            "alias": task.task.alias or name,
            "documents": board.documents,
            "size": task.facts.size,
            "failures": board.failed.total(),
            "reasons": _reasons(board.failed),
            "samples": self._shown.get(name, 0),
            "is_scored_together": task.is_batch,
            "numbers": self._numbers.get(name, NO_NUMBERS).numbers,
        }


class TaskNumbers(NamedTuple):
    """The provisional numbers of a task, after so many documents, and when they were computed."""

    documents: int
    time: float
    numbers: Sequence[JSONObject]


NO_NUMBERS = TaskNumbers(0, 0.0, ())


def provisional_numbers(run: TaskRun) -> dict[ScoreKey, Estimate]:
    """The numbers of the documents so far. User code is not called, and nothing is resampled: such rows come at the end."""
    task = run.runnable
    keys = [key for key in run.board.columns if _is_quick(known_aggregation(task.aggregation(key)))]
    return run.board.estimates(
        task.aggregation, bootstrap_iters=1, source=task.facts.source or task.task.name, rows=keys
    )


def _is_quick(aggregation: object) -> bool:
    return isinstance(aggregation, Aggregation) and aggregation.influence is not None


def as_json(key: ScoreKey, number: Estimate, run: TaskRun) -> JSONDict:
    """A number as the record has it."""
    return {
        "metric": key.metric,
        "filter": key.filter,
        "value": number.value if math.isfinite(float(number)) else None,
        "stderr": number.stderr,
        "interval": number.interval,
        "n": number.n,
        "higher_is_better": run.runnable.higher_is_better().get(key.metric),
        "method": number.method,
        "reason": number.reason,
    }


def _reasons(failed: Mapping[str, int]) -> dict[str, int]:
    """The most frequent reasons of failures."""
    counted: dict[str, int] = {}
    for reason, count in sorted(failed.items(), key=lambda each: -each[1])[:MAX_REASONS]:
        shown = reason[:MAX_LETTERS]
        counted[shown] = counted.get(shown, 0) + count
    return counted
