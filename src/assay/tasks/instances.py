"""Tasks that are handed instances, with their responses, and score them: for users who have answers already.

The loop is that of every run: for filter, for document, create the result, for metric, compute. A class of the user's may
replace steps of it, and does so in runs, too: `_create_result`, `_compute_metric`, `_process_with_custom_fn`, or all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from assay.config.option import YAMLMapping
from assay.config.task import FilterConfig, TaskConfig
from assay.errors import Place
from assay.records import EVERY_ROW, Answers, Failed, FilterScores, MetricValue, Sample
from assay.registry import refused
from assay.scoring.loop import ScoringLoop, ScoringStep, without_scores
from assay.scoring.reductions import mean
from assay.scoring.results import (
    CHOICE,
    GENERATE,
    LIKELIHOOD,
    Filtered,
    Instance,
    Metric,
    ScoreDict,
    StepInput,
    with_answers,
)
from assay.scoring.scorer import AnsweredSample, ProcessResultsScorer, Scorer, bound_metrics, computed, shown
from assay.scoring.scorer_models import RUN, OnlyInRun
from assay.statistics.aggregations import AGGREGATIONS
from assay.tasks.scoring import ALONE, scoring
from assay.tasks.settings import Helpers, Settings, resolved
from assay.tasks.task import InstanceScores, Task

STEPS = ("_create_result", "_compute_metric")


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


def typed(config: TaskConfig, kind: object = None) -> TaskConfig:
    """The configuration with the output type of the task's own class, where it has one that says so."""
    own = kind or config.class_
    output_type = own.OUTPUT_TYPE if isinstance(own, type) and issubclass(own, Task) else None
    if (
        output_type == LIKELIHOOD and config.output_type == CHOICE
    ) or output_type is None:  # what lm-eval asks for choices
        return config
    return replace(config, output_type=output_type)  # type: ignore[arg-type]  # one of them


class InstanceScoring:
    """The scoring loop of a task, for instances."""

    def __init__(self, task: Task, helpers: Helpers | None) -> None:
        config = task.config
        if task.definition is not None:
            raise TypeError(f"task {task.name!r} is a graph, which is not scored by instances: run it")
        if helpers is None:  # of a task that was loaded; by name, since helper code is loaded a layer above
            is_loaded = bool(task.fields)
            helpers = import_module("assay.compat.modules").HelperCode().helpers() if is_loaded else ALONE
        config = typed(resolved(config, helpers.resolve))
        if config.class_ is not None and not (isinstance(config.class_, type) and issubclass(config.class_, Task)):
            raise OnlyInRun(f"task {task.name!r} is a class for lm-eval, which only a run scores — {RUN}")
        self.task, self.output_type = task, config.output_type
        loop = scoring(task, config, Settings(), helpers)
        # a method of the task runs this loop: it is not called from there again
        self.loop = replace(loop, adapt=partial(with_methods, task, True)) if takes_part(task) else loop
        entries = config.filter_list or self.scorer.default_filters() or tuple(config.get_filters())
        self.filters: list[FilterConfig] = [
            replace(entry, metric_list=tuple(scorer.run_metrics(entry.name)))  # type: ignore[arg-type]  # that can be called
            for entry, (_, scorer) in zip(entries, self.loop.pipelines, strict=False)
        ]

    @property
    def scorer(self) -> Scorer:
        return self.loop.pipelines[0][1]

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


def own_task(task: Task, config: TaskConfig, helpers: Helpers) -> Task | None:
    """The object of the user's own class that a task is, or is made of; None where no method of it takes part in scoring."""
    own = task
    kind = config.class_ if isinstance(config.class_, type) and issubclass(config.class_, Task) else type(task)
    if not isinstance(task, kind):
        at = task.config.class_.place if task.config.class_ is not None else Place(f"task {task.name!r}")
        with refused(at, f"the class {kind.__name__} cannot be made", "it must take the configuration of the task"):
            own = kind.__new__(kind)
            own.helpers = helpers  # its `__init__` may need them
            own.__init__(config)  # type: ignore[misc]  # as the class has it
    return own if takes_part(own) else None


def takes_part(task: Task) -> bool:
    """Whether a method of the task's class takes part in scoring."""
    return any(_overrides(task, method) for method in (*STEPS, "process_instances", "_process_with_custom_fn"))


def _overrides(task: Task, method: str) -> bool:
    return getattr(type(task), method) is not getattr(Task, method)


def with_methods(task: Task, steps_only: bool, loop: ScoringLoop, step: ScoringStep, scorer: Scorer) -> ScoringStep:
    """A step of the loop as the methods of the user's class compute it; `steps_only` where one of these runs the loop."""
    name, filters = step.filter.name, [pipeline.name for pipeline, _ in loop.pipelines]

    def instances(document: AnsweredSample, own: Answers, answers: Sequence[Filtered]) -> Sequence[Instance]:  # noqa: ARG001  # the shape of a result
        if document.instances:
            return with_answers(document.instances, filters, answers)
        left = {key: each for key, each in zip(filters, answers, strict=True) if not isinstance(each, Failed)}
        return shown(document, left, loop.reading, loop.task)

    def rows(instances_of_one: Sequence[Instance]) -> ScoreDict:
        by_itself = _overrides(task, "process_instances")
        by_document = task.sort_instances(instances_of_one)
        scores = task.process_instances(instances_of_one) if by_itself else task._process_with_custom_fn(by_document)
        return {metric: values[0] for (metric, of), values in scores.items() if of == name}

    by_answer = [metric.name for metric in step.metrics]
    processes = isinstance(scorer, ProcessResultsScorer)
    whole = _overrides(task, "process_instances") or (processes and _overrides(task, "_process_with_custom_fn"))
    if whole and not steps_only:
        place = f"scoring: task class {type(task).__name__!r} of filter {name!r}"
        changed = replace(step, result=instances, compute=rows, by_answer=by_answer, place=place)
        return replace(changed, score=None, batch=None, ask=None)
    if processes or not any(_overrides(task, method) for method in STEPS):
        return step  # a task's own function comes first
    bound = bound_metrics(scorer, step.metrics, name, task._compute_metric)

    def result(document: AnsweredSample, own: Answers, answers: Sequence[Filtered]) -> StepInput:
        return task._create_result(instances(document, own, answers), name)

    return replace(step, result=result, compute=lambda created: computed(created, bound, scorer), by_answer=by_answer)


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
