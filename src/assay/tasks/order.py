"""Documents in one random order, the same every time, for a run that ends as soon as a rule has decided.

Short answers land first, and may be the right ones. So a document counts when all before it in the order have landed or failed;
what landed after it is stored, and counts for nothing.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from assay.engine import Ended, Started
from assay.records import JSONObject, Sample
from assay.runs.samples.records import SampleRecord
from assay.tasks.run import Keep, TaskRun, end_plan, starter
from assay.tasks.runnable import Runnable

Draw = list[tuple[TaskRun, Sample]]
"""Documents that are one draw: one, or those of a cluster."""


class StopRule(Protocol):
    """Decides when a run has asked enough."""

    def begin(self, draws: Sequence[Sequence[str]]) -> None:
        """Take the tasks of the documents of each draw, in no order that means anything."""
        ...

    def __call__(self, samples: Sequence[tuple[str, SampleRecord]]) -> str:
        """Count the samples of the next draw, each with its task; returns why the run ends, or nothing."""
        ...

    def outcome(self) -> JSONObject:
        """The decision and the numbers behind it, for the results."""
        ...


class SeededOrder:
    """The order of a run with a rule. `ended` is the rule's reason, once it has decided."""

    def __init__(self, rule: StopRule, seed: int | None) -> None:
        self.rule, self.ended = rule, ""
        self._seed = seed
        self._next = 0
        self._waiting: dict[int, Ended] = {}
        self._counted: list[tuple[str, SampleRecord]] = []
        self._last: set[int] = set()
        """The places of the last documents of draws."""

    def task_run(self, runnable: Runnable, keep: Keep | None, ended: Callable[[], None] | None) -> TaskRun:
        """A task whose samples the rule counts when they are scored."""
        name = runnable.task.name

        def count(record: SampleRecord) -> None:
            self._counted.append((name, record))
            if keep is not None:
                keep(record)

        return TaskRun(runnable, count, ended)

    def plans(self, runs: Sequence[TaskRun]) -> Iterator[Started]:
        """Yield the plans of all samples of all tasks, in the order."""
        draws = _draws(runs)
        self.rule.begin([[run.runnable.task.name for run, _ in draw] for draw in draws])
        random.Random(f"order {self._seed}").shuffle(draws)
        start = {id(run): starter(run) for run in runs}
        place, numbers = 0, Counter[int]()
        for draw in draws:
            self._last.add(place + len(draw) - 1)
            for run, sample in draw:
                started = start[id(run)](numbers[id(run)], sample)
                yield started._replace(what=(place, started.what))
                numbers[id(run)] += 1
                place += 1

    def end(self, ended: Ended) -> None:
        """Take the responses of a plan, and count what now has nothing missing before it."""
        place, what = ended.what
        self._waiting[place] = ended._replace(what=what)
        while not self.ended and self._next in self._waiting:
            end_plan(self._waiting.pop(self._next))
            if self._next in self._last:
                samples, self._counted = self._counted, []
                self.ended = self.rule(samples)
            self._next += 1


def _draws(runs: Sequence[TaskRun]) -> list[Draw]:
    """All samples: those that share a cluster, or tasks of one source share, are together."""
    draws: dict[tuple[str, object], Draw] = {}
    for run in runs:
        runnable = run.runnable
        column, source = runnable.facts.cluster_column, runnable.facts.source or runnable.task.name
        for sample in run.samples():
            cluster = sample.doc.get(column) if column is not None else None
            draws.setdefault((source, sample.doc_id if cluster is None else repr(cluster)), []).append((run, sample))
    return list(draws.values())
