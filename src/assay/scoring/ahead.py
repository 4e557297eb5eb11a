"""Metrics whose scores take long, computed ahead in other processes for all documents of a task."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from assay.records import Answer, Failed, MetricValue
from assay.scoring.results import BoundMetric, Filtered, GenResult, Reference
from assay.scoring.workers import ScoreWorkers
from assay.user_code import TIME_LIMIT, timed

if TYPE_CHECKING:
    from assay.scoring.loop import ScoringStep
    from assay.scoring.scorer import AnsweredSample


class ParallelMetric:
    """A metric whose scores are looked up where they were computed ahead; all others are computed here.

    It has the shape of a scorer for worker processes: `score` takes the references and what a filter left of the answers.
    """

    def __init__(self, name: str, compute: Callable[[Any], MetricValue]) -> None:
        self.name = name
        self.known: dict[str, MetricValue] = {}
        self._compute = compute

    def score(self, reference: Reference, predictions: Answer) -> MetricValue:
        return self._compute(GenResult({}, reference, predictions))

    def __call__(self, result: GenResult) -> MetricValue:
        key = repr((result.references, result.answer)) if self.known else ""
        return self.known[key] if key in self.known else self._compute(result)


def parallel_metrics(metrics: Sequence[BoundMetric]) -> list[ParallelMetric]:
    """The metrics among these whose scores may be computed ahead."""
    return [metric.compute for metric in metrics if isinstance(metric.compute, ParallelMetric)]


def compute_ahead(
    steps: "Sequence[ScoringStep]",
    documents: "Sequence[AnsweredSample]",
    by_step: Sequence[Sequence[Filtered]],
    workers: ScoreWorkers,
) -> "list[AnsweredSample]":
    """Compute the scores of parallel metrics; returns the documents with the answers that each filter left."""
    by_document = list(zip(*by_step, strict=True))
    for number, step in enumerate(steps):
        if not step.parallel:
            continue
        results: list[Any] = [
            timed(TIME_LIMIT, step.place, step.result, document, every[number], every)
            for document, every in zip(documents, by_document, strict=True)
            if not isinstance(every[number], Failed)
        ]
        asked = [(each.references, each.answer) for each in results if isinstance(each, GenResult)]
        for metric in step.parallel:
            place = f"scoring: metric {metric.name!r} of filter {step.filter.name!r}"
            scores = workers.score(metric, asked, place)
            metric.known = {repr(each): value for each, value in zip(asked, scores, strict=True)}
    names = [step.filter.name for step in steps]
    return [
        document._replace(
            filtered={name: each for name, each in zip(names, every, strict=True) if not isinstance(each, Failed)}
        )
        for document, every in zip(documents, by_document, strict=True)
    ]
