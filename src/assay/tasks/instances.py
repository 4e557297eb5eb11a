"""A task that is handed instances, with their responses, and scores them: for whoever has answers of their own already.

The loop is that of every run: for filter, for document, create the result, for metric, compute.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from assay.aggregate.functions import AGGREGATIONS
from assay.config.task import TaskConfig
from assay.filters.pipeline import Pipeline
from assay.records import Function
from assay.scorers.instance import Instance, sort_instances
from assay.scorers.metrics import Metric
from assay.scorers.reduce import mean
from assay.scorers.results import CHOICE, GENERATE, Result
from assay.scorers.scorer import Scorer
from assay.tasks.scoring import scoring
from assay.tasks.settings import Helpers, Settings
from assay.tasks.task import Task

Scores = dict[tuple[str, str], list[Any]]
"""By metric and filter, the scores of documents in their order; of several answers a list."""


def _no_code(function: Function) -> Any:
    raise LookupError(f"{function} is helper code: load the task with a TaskManager, and run it")


_ALONE = Helpers(resolve=_no_code, as_dataset=list, find_metric=lambda name: None, filters=dict)  # noqa: ARG005


class InstanceTask(Task):
    """A task made of a configuration alone: no data, no model. `process_instances` scores what it is given."""

    OUTPUT_TYPE: ClassVar[str | None] = None

    def __init__(self, config: TaskConfig | Mapping[str, object]) -> None:
        made = config if isinstance(config, TaskConfig) else Task.from_config(config).config
        if self.OUTPUT_TYPE is not None:
            made = replace(made, output_type=self.OUTPUT_TYPE)  # type: ignore[arg-type]  # one of them
        super().__init__(made)
        self._scoring = scoring(self, made, Settings(), _ALONE)
        self._filters: list[Pipeline] = [pipeline for pipeline, _ in self._scoring.pipelines]  # type: ignore[misc]
        self._instances: list[Instance] = []
        self._sample_scores: Scores = {}

    @property
    def _scorer(self) -> Scorer:
        return self._scoring.pipelines[0][1]

    sort_instances = staticmethod(sort_instances)

    def process_instances(self, instances: Sequence[Instance] | None = None) -> Scores:
        """The scores of instances, which are those of the task where none are given. Filters are applied where they were not."""
        documents = self.sort_instances([self._filtered(each) for each in instances or self._instances])
        scores: Scores = {}
        for pipeline, scorer in self._scoring.pipelines:
            for several in documents.values():
                made = scorer.score_instances(several, pipeline.name)
                for metric, value in (made.scores if isinstance(made, Result) else made).items():
                    scores.setdefault((metric, pipeline.name), []).append(value)
        self._sample_scores = scores
        return scores

    def compute_aggregations(self, sample_scores: Scores | None = None) -> dict[tuple[str, str], Any]:
        """One number for each metric and filter: by the metric's own aggregation, the mean where it has none."""
        known = {metric.name: metric for metric in self._scoring.metrics}
        parents = self._scoring.parents
        return {
            row: _aggregated(known.get(parents.get(row[0], row[0])), values)
            for row, values in (self._sample_scores if sample_scores is None else sample_scores).items()
        }

    def _create_result(self, instances: Sequence[Instance], filter_name: str) -> Result:
        return self._scorer._create_result(instances, filter_name)

    def _compute_metric(self, result: Result, metric: Metric) -> Any:
        return self._scorer._compute_metric(result, metric)

    def _filtered(self, instance: Instance) -> Instance:
        missing = [pipeline for pipeline in self._filters if pipeline.name not in instance.filtered_resps]
        if not missing:
            return instance
        made = {pipeline.name: pipeline.apply([list(instance.resps)], instance.doc)[0] for pipeline in missing}
        return replace(instance, filtered_resps={**instance.filtered_resps, **made}, request_type=self.output_type)


class GenerateTask(InstanceTask):
    """Generated text is compared with references."""

    OUTPUT_TYPE = GENERATE


class MultipleChoiceTask(InstanceTask):
    """Choices are compared by their log-likelihoods."""

    OUTPUT_TYPE = CHOICE


def _aggregated(metric: Metric | None, values: Sequence[Any]) -> Any:
    plain = [
        (metric.reductions.plain if metric else mean)(each, ()) if isinstance(each, list) else each for each in values
    ]
    found = metric.aggregation if metric is not None else "mean"
    function: Any = AGGREGATIONS[found].function if isinstance(found, str) else found
    return function(plain)
