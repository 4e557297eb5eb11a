"""Tasks that are handed instances, with their responses, and score them: for users who have answers already.

The loop is that of every run: for filter, for document, create the result, for metric, compute. A class of the user's may
replace steps of it, and does so in runs, too: `_create_result`, `_compute_metric`, `_process_with_custom_fn`, or all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.config.option import YAMLMapping
from assay.config.task import FilterConfig, TaskConfig
from assay.records import EVERY_ROW, Failed, FilterScores, MetricValue, Sample
from assay.scoring.helper_code import Helpers, resolve_functions
from assay.scoring.loop import ScoringStep
from assay.scoring.metric_binding import NO_HELPERS
from assay.scoring.reductions import mean
from assay.scoring.results import CHOICE, GENERATE, AnsweredSample, Instance
from assay.scoring.scorer import Scorer
from assay.scoring.scorer_models import RUN, OnlyInRun
from assay.scoring.scores import BoundMetric
from assay.statistics.aggregations import AGGREGATIONS
from assay.tasks.scoring import scoring
from assay.tasks.settings import HELPER_CODE, Settings
from assay.tasks.task import InstanceScores, Task
from assay.tasks.task_methods import typed


class GenerateTask(Task):
    """Generated text is compared with references."""

    OUTPUT_TYPE = GENERATE

    def __init__(self, config: TaskConfig | YAMLMapping) -> None:
        super().__init__(typed(_decoded(config), type(self)))


class MultipleChoiceTask(Task):
    """Choices are compared by their log-likelihoods."""

    OUTPUT_TYPE = CHOICE

    def __init__(self, config: TaskConfig | YAMLMapping) -> None:
        super().__init__(typed(_decoded(config), type(self)))


def _decoded(config: TaskConfig | YAMLMapping) -> TaskConfig:
    return config if isinstance(config, TaskConfig) else Task.from_config(config).config


class InstanceScoring:
    """The scoring loop of a task, for instances."""

    def __init__(self, task: Task, helpers: Helpers | None) -> None:
        config = task.config
        if task.definition is not None:
            raise TypeError(f"task {task.name!r} is a graph, which is not scored by instances: run it")
        if helpers is None:
            is_loaded = bool(task.fields)
            helpers = HELPER_CODE.functions() if is_loaded else NO_HELPERS
        config = typed(resolve_functions(config, helpers.resolve))
        if config.class_ is not None and not (isinstance(config.class_, type) and issubclass(config.class_, Task)):
            raise OnlyInRun(f"task {task.name!r} is a class for lm-eval, which only a run scores — {RUN}")
        self.task, self.output_type = task, config.output_type
        self.loop = scoring(task, config, Settings(), helpers, by_instances=True)
        entries = config.filter_list or self.scorer.default_filters() or tuple(config.get_filters())
        self.filters: list[FilterConfig] = [
            replace(entry, metric_list=tuple(step.metrics))  # type: ignore[arg-type]  # that can be called
            for entry, step in zip(entries, self.loop.steps, strict=False)
        ]

    @property
    def scorer(self) -> Scorer:
        return self.loop.steps[0].scorer  # type: ignore[no-any-return]

    def scores(self, documents: Mapping[int, Sequence[Instance]]) -> InstanceScores:
        """The scores of instances by document. Filters are applied where they were not."""
        if self.loop.asks:
            raise OnlyInRun(f"task {self.task.name!r} asks other models about answers, which only a run does — {RUN}")
        scores: InstanceScores = {}
        for scored in self.loop.score([self._document(instances) for instances in documents.values()]):
            for step, rows in zip(self.loop.steps, _by_filter(scored, self.loop.steps), strict=True):
                named = [metric.name for metric in step.metrics] if EVERY_ROW in rows.failed else rows.failed
                failed = {row: Failed(rows.failed.get(row) or rows.failed[EVERY_ROW]) for row in named}
                for row, value in {**rows.values, **rows.repeats, **failed}.items():
                    scores.setdefault((row, rows.filter), []).append(value)
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

    def aggregated(self, scores: InstanceScores) -> dict[tuple[str, str], MetricValue]:
        """One number for each metric and filter: by the metric's own aggregation, the mean where it has none."""
        known, parents = {metric.name: metric for metric in self.loop.metrics}, self.loop.parents
        return {row: _aggregated(known.get(parents.get(row[0], row[0])), values) for row, values in scores.items()}


def _by_filter(scored: list[FilterScores] | Failed, steps: Sequence[ScoringStep]) -> list[FilterScores]:
    if isinstance(scored, Failed):
        return [step.lose(scored) for step in steps]
    return scored


def _aggregated(metric: BoundMetric | None, values: Sequence[MetricValue]) -> MetricValue:
    scored = [each for each in values if not isinstance(each, Failed)]
    plain = [
        (metric.reductions.plain if metric else mean)(each, ()) if isinstance(each, list) else each for each in scored
    ]
    aggregation = metric.aggregation if metric is not None else "mean"
    function: Any = AGGREGATIONS[aggregation].function if isinstance(aggregation, str) else aggregation
    return function(plain)
