"""How a task is scored, made of what its file says: its filters, each with its scorer, and that with its metrics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.config.task import FilterConfig, MetricConfig, TaskConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.filters import build_pipeline
from assay.filters.pipeline import DEFAULT, Pipeline
from assay.scorers.loop import Scoring
from assay.scorers.named import make_scorer
from assay.scorers.results import GENERATE, Reading
from assay.scorers.scorer import ProcessResultsScorer, Scorer
from assay.tasks.metrics import Binder
from assay.tasks.row_names import Bound, check_rows, last_of_each
from assay.tasks.scorers import ScorerFactory
from assay.tasks.settings import Helpers, Settings
from assay.tasks.task import Task

BYPASS = "bypass"
"""The metric of what is not scored."""


def scoring(task: Task, config: TaskConfig, settings: Settings, helpers: Helpers) -> Scoring:
    """The filters of a task, each with its scorer, and that with its metrics."""
    process = config.process_results if callable(config.process_results) and not settings.predict_only else None
    lenient = settings.like_lm_eval or any(task.fields.origin(key).lenient for key in task.fields)
    whole = ScorerFactory.create_scorer(replace(config, process_results=process), placer(task, "scorer")())
    entries = config.filter_list or whole.default_filters() or (DEFAULT,)
    pipelines: list[tuple[Pipeline, Scorer]] = []
    filters: list[Bound] = []
    for number, entry in _different(entries) if lenient else enumerate(entries):
        pipeline = build_pipeline(entry, placer(task, "filter_list", number, "filter"), helpers.filters())
        place = placer(task, "filter_list", number, "scorer")
        scorer = whole if entry.scorer is None or process is not None else make_scorer(entry.scorer, config, place())
        binder = Binder(
            config.output_type, _metric_placer(task, entry, number), helpers, lenient=lenient, repeats=config.repeats
        )
        own = next(
            (m for m in (entry.metric_list, config.metric_list, scorer.default_metrics()) if m is not None), None
        )
        if settings.predict_only:
            own, scorer = (MetricConfig(name=BYPASS),), ProcessResultsScorer(config, _unscored(config, settings))
        bound = binder.bind(own, processed=process is not None or settings.predict_only)
        bound = last_of_each(bound) if lenient else bound
        scorer.overwrites = lenient
        if pipeline.single and any(metric.reductions.least > 1 for metric in bound):
            if config.filter_list:
                what = "the filter leaves one answer, and a reduction of its metrics needs several"
                fix = f"end it with `{{function: take_first_k, k: {config.repeats}}}`"
                raise ConfigError([Problem(placer(task, "filter_list", number, "filter")(), what, fix)])
            pipeline = replace(pipeline, steps=(), single=False)  # nobody asked for the first alone
        scorer.bind(entry.name, bound)
        pipelines.append((pipeline, scorer))
        at = placer(task, "filter_list", number, "name")()
        filters.append(Bound(entry.name, at, scorer, bound, binder.place, _scorer_place(task, entry, number)))
    if not lenient:
        check_rows(filters)
    _check_filters(task, pipelines)
    reading = Reading(config.output_type, config.doc_to_choice is not None, like_lm_eval=settings.like_lm_eval)
    return Scoring(pipelines, reading, task.name)


def _check_filters(task: Task, pipelines: Sequence[tuple[Pipeline, Scorer]]) -> None:
    """Scorers that look at other filters find them."""
    known = [pipeline.name for pipeline, _ in pipelines]
    for pipeline, scorer in pipelines:
        if len(known) < scorer.least_filters:
            what = f"scorer {scorer.name!r} needs {scorer.least_filters} filters, and the task has {len(known)}"
            raise ConfigError([Problem(placer(task, "filter_list")(), what, "name more in filter_list")])
        if scorer.asks and pipeline.is_batch:
            what = f"scorer {scorer.name!r} asks about each answer, and filter {pipeline.name!r} waits for all of them"
            raise ConfigError([Problem(placer(task, "filter_list")(), what, "take a filter of one document")])
        for name in scorer.needs_filters:
            if name not in known:
                what = f"scorer {scorer.name!r} needs the filter {name!r}, and the task has none of that name"
                raise ConfigError([Problem(placer(task, "filter_list")(), what, did_you_mean(name, known))])


def _unscored(config: TaskConfig, settings: Settings) -> Callable[[Any, list[Any]], Mapping[str, None]]:
    """Counts documents that are asked and not scored; lm-eval counts those that generate alone."""
    counted = {BYPASS: None} if config.output_type == GENERATE or not settings.like_lm_eval else {}
    return lambda doc, results: counted  # noqa: ARG005  # the shape of process_results


def _different(entries: Sequence[FilterConfig]) -> Sequence[tuple[int, FilterConfig]]:
    """Filters of different names, with their numbers: of two with one name the later, as in lm-eval."""
    return list({entry.name: (number, entry) for number, entry in enumerate(entries)}.values())


def _scorer_place(task: Task, entry: FilterConfig, number: int) -> Place:
    return placer(task, "filter_list", number, "scorer")() if entry.scorer is not None else placer(task, "scorer")()


def placer(task: Task, *path: str | int) -> Callable[..., Place]:
    """Where something in a list of the task's file stands."""

    def place(*more: str | int) -> Place:
        steps = [step for step in (*path, *more) if step != ""]
        known = str(path[0]) in task.fields
        return task.fields.place(*steps) if known else Place(f"task {task.name!r}, {'.'.join(map(str, steps))}")

    return place


def _metric_placer(task: Task, entry: FilterConfig, number: int) -> Callable[..., Place]:
    return (
        placer(task, "filter_list", number, "metric_list")
        if entry.metric_list is not None
        else placer(task, "metric_list")
    )
