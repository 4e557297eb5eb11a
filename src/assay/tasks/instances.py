"""A task that is handed instances, with their responses, and scores them: for users who have answers already.

The loop is that of every run: for filter, for document, create the result, for metric, compute.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from assay.config.option import YAMLMapping
from assay.config.task import TaskConfig
from assay.records import EVERY_ROW, Answers, Failed, FilterScores, MetricValue, Sample
from assay.scoring.asking import RUN, OnlyInRun
from assay.scoring.loop import ScoringLoop, ScoringStep, without_scores
from assay.scoring.reductions import mean
from assay.scoring.results import (
    CHOICE,
    GENERATE,
    Filtered,
    Instance,
    Metric,
    Result,
    StepInput,
    sort_instances,
    with_answers,
)
from assay.scoring.scorer import AnsweredSample, ComputeMetric, ProcessResultsScorer, Scorer, bound_metrics, computed
from assay.statistics.aggregations import AGGREGATIONS
from assay.tasks.scoring import ALONE, scoring
from assay.tasks.settings import Settings
from assay.tasks.task import Task

Scores = dict[tuple[str, str], list[Any]]
"""By metric and filter, the scores of documents in their order: a number, a list of several answers', or a failure."""


class InstanceTask(Task):
    """A task made of a configuration alone: no data, no model. `process_instances` scores what it is given."""

    OUTPUT_TYPE: ClassVar[str | None] = None

    def __init__(self, config: TaskConfig | YAMLMapping) -> None:
        task_config = config if isinstance(config, TaskConfig) else Task.from_config(config).config
        if self.OUTPUT_TYPE is not None:
            task_config = replace(task_config, output_type=self.OUTPUT_TYPE)  # type: ignore[arg-type]  # one of them
        super().__init__(task_config)
        self._scoring = scoring(self, task_config, Settings(), ALONE)
        self._loop = self._with_own_methods(self._scoring)
        self._instances: list[Instance] = []
        self._sample_scores: Scores = {}

    @property
    def _scorer(self) -> Scorer:
        return self._scoring.pipelines[0][1]

    sort_instances = staticmethod(sort_instances)

    def process_instances(self, instances: Sequence[Instance] | None = None) -> Scores:
        """The scores of instances, which are those of the task where none are given. Filters are applied where they were not."""
        if self._scoring.asks:
            raise OnlyInRun(f"task {self.name!r} asks other models about its answers, which only a run does — {RUN}")
        documents = self.sort_instances(list(instances or self._instances))
        scores: Scores = {}
        for scored in self._loop.score([self._document(instances_of_one) for instances_of_one in documents.values()]):
            for step, rows in zip(self._scoring.steps, _by_filter(scored, self._scoring.steps), strict=True):
                named = [metric.name for metric in step.metrics] if EVERY_ROW in rows.failed else rows.failed
                failed = {row: Failed(rows.failed.get(row) or rows.failed[EVERY_ROW]) for row in named}
                for row, value in {**rows.values, **rows.repeats, **failed}.items():
                    scores.setdefault((row, rows.filter), []).append(value)
        self._sample_scores = scores
        return scores

    def _document(self, instances: Sequence[Instance]) -> AnsweredSample:
        """The instances of one document, with the answers that filters which were applied have left."""
        first = instances[0]
        applied = [name for name in first.filtered_resps if all(name in each.filtered_resps for each in instances)]
        return AnsweredSample(
            Sample(first.doc_id, first.doc, (), first.target, first.target, first.choices or None),
            [list(each.resps) for each in instances],
            filtered={name: [each.filtered_resps[name] for each in instances] for name in applied},
            instances=[replace(each, request_type=self.output_type) for each in instances],
        )

    def compute_aggregations(self, sample_scores: Scores | None = None) -> dict[tuple[str, str], MetricValue]:
        """One number for each metric and filter: by the metric's own aggregation, the mean where it has none."""
        known = {metric.name: metric for metric in self._scoring.metrics}
        parents = self._scoring.parents
        return {
            row: _aggregated(known.get(parents.get(row[0], row[0])), values)
            for row, values in (self._sample_scores if sample_scores is None else sample_scores).items()
        }

    def _with_own_methods(self, scoring: ScoringLoop) -> ScoringLoop:
        """The loop with `_create_result` and `_compute_metric` of a class that is derived from this one."""
        own = type(self)
        if (own._create_result, own._compute_metric) == (InstanceTask._create_result, InstanceTask._compute_metric):
            return scoring
        steps = [
            with_methods(step, scorer, self._create_result, self._compute_metric)
            for step, (_, scorer) in zip(scoring.steps, scoring.pipelines, strict=True)
        ]
        return ScoringLoop((), scoring.reading, scoring.task, scoring.rules, steps)

    def _create_result(self, instances: Sequence[Instance], filter_name: str) -> Result:
        return self._scorer._create_result(instances, filter_name)

    def _compute_metric(self, result: Result, metric: Metric) -> MetricValue:
        return self._scorer._compute_metric(result, metric)


class GenerateTask(InstanceTask):
    """Generated text is compared with references."""

    OUTPUT_TYPE = GENERATE


class MultipleChoiceTask(InstanceTask):
    """Choices are compared by their log-likelihoods."""

    OUTPUT_TYPE = CHOICE


def with_methods(
    step: ScoringStep,
    scorer: Scorer,
    create_result: Callable[[Sequence[Instance], str], StepInput],
    compute_metric: ComputeMetric,
) -> ScoringStep:
    """A step for instances whose result and metrics are computed by the two methods that seed 004 gives to tasks."""
    if isinstance(scorer, ProcessResultsScorer):
        return step  # a task's own function comes first
    name = step.filter.name
    bound = bound_metrics(scorer, step.metrics, name, compute_metric)

    def result(document: AnsweredSample, own: Answers, answers: Sequence[Filtered]) -> StepInput:  # noqa: ARG001  # the shape of a result
        return create_result(with_answers(document.instances, (name,), (own,)), name)

    return replace(step, result=result, compute=lambda result: computed(result, bound, scorer))


def _by_filter(scored: list[FilterScores] | Failed, steps: Sequence[ScoringStep]) -> list[FilterScores]:
    if isinstance(scored, Failed):
        return [without_scores(step, scored, ()) for step in steps]
    return scored


def _aggregated(metric: Metric | None, values: Sequence[MetricValue]) -> MetricValue:
    scored = [each for each in values if not isinstance(each, Failed)]
    plain = [
        (metric.reductions.plain if metric else mean)(each, ()) if isinstance(each, list) else each for each in scored
    ]
    aggregation = metric.aggregation if metric is not None else "mean"
    function: Any = AGGREGATIONS[aggregation].function if isinstance(aggregation, str) else aggregation
    return function(plain)
