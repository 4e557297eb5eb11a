"""How a task is scored, made of what its file says: its filters, each with its scorer, and that with its metrics."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from assay.config.row_names import filter_name_problem, row_name_problem
from assay.config.task import FilterConfig, MetricConfig, TaskConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.scoring.filters import DEFAULT, Pipeline, build_pipeline
from assay.scoring.loop import ScoringLoop
from assay.scoring.results import CHOICE, GENERATE, LIKELIHOOD, ROLLING, Metric, ResultBuilder
from assay.scoring.scorer import (
    GenerationScorer,
    LoglikelihoodScorer,
    PerplexityScorer,
    ProcessResultsScorer,
    Scorer,
    make_scorer,
)
from assay.tasks.metrics import MetricBinder
from assay.tasks.settings import Helpers, Settings
from assay.tasks.task import Task

T = TypeVar("T")

BYPASS = "bypass"
"""The metric of what is not scored."""


class BoundFilter(NamedTuple):
    """A filter with its scorer and metrics; `place` says where the n-th entry of its metric_list is written."""

    name: str
    at: Place
    scorer: Scorer
    metrics: Sequence[Metric]
    place: Callable[..., Place]
    scorer_at: Place


def scoring(task: Task, config: TaskConfig, settings: Settings, helpers: Helpers) -> ScoringLoop:
    """The filters of a task, each with its scorer, and that with its metrics. All problems are raised together."""
    process = config.process_results if callable(config.process_results) and not settings.run.predict_only else None
    lenient = settings.like_lm_eval or any(task.fields.origin(key).lenient for key in task.fields)
    whole, unmade = _whole_scorer(task, replace(config, process_results=process))
    entries = config.filter_list or whole.default_filters() or (DEFAULT,)
    making = _Making(task, config, settings, helpers, whole, process is not None, lenient)
    making.problems += unmade
    filters = [making.filter(*each) for each in (_different(entries) if lenient else enumerate(entries))]
    if making.problems:
        raise ConfigError(dict.fromkeys(making.problems))  # filters without metrics share those of the task
    pipelines = [(pipeline, bound.scorer) for pipeline, bound in filter(None, filters)]
    if not lenient:
        check_rows([bound for _, bound in filter(None, filters)])
    _check_filters(task, pipelines)
    reading = ResultBuilder(config.output_type, config.doc_to_choice is not None, like_lm_eval=settings.like_lm_eval)
    return ScoringLoop(pipelines, reading, task.name)


def _whole_scorer(task: Task, config: TaskConfig) -> tuple[Scorer, Sequence[Problem]]:
    """The scorer of a task; where it cannot be made, that of its output type with the problems, so that filters are checked."""
    place = placer(task, "scorer")()
    try:
        return ScorerFactory.create_scorer(config, place), ()
    except ConfigError as error:
        if config.scorer is None:
            raise
        return ScorerFactory.create_scorer(replace(config, scorer=None), place), error.problems


@dataclass(slots=True)
class _Making:
    """A task on its way to its filters; what is wrong with any of them is in `problems`."""

    task: Task
    config: TaskConfig
    settings: Settings
    helpers: Helpers
    whole: Scorer
    processes: bool
    lenient: bool
    problems: list[Problem] = field(default_factory=list)

    def filter(self, number: int, entry: FilterConfig) -> tuple[Pipeline, BoundFilter] | None:
        """A filter with its scorer and metrics; None where something is wrong with them."""
        config, processes = self.config, self.processes
        at = placer(self.task, "filter_list", number, "filter")
        pipeline = self._tried(lambda: build_pipeline(entry, at, self.helpers.filters()))
        scorer = self.whole if processes else self._tried(lambda: self._scorer(number, entry))
        places = _metric_placer(self.task, entry, number)
        binder = MetricBinder(config.output_type, places, self.helpers, lenient=self.lenient, repeats=config.repeats)
        declared = (entry.metric_list, config.metric_list, scorer.default_metrics() if scorer is not None else None)
        own = next((each for each in declared if each is not None), None)
        if self.settings.run.predict_only:
            own, scorer = (MetricConfig(name=BYPASS),), ProcessResultsScorer(config, _unscored(config, self.settings))
        bound = self._tried(lambda: binder.bind(own, processed=processes or self.settings.run.predict_only))
        if pipeline is None or scorer is None or bound is None:
            return None
        bound = last_of_each(bound) if self.lenient else bound
        scorer.overwrites = self.lenient
        if pipeline.single and any(metric.reductions.least > 1 for metric in bound):
            if config.filter_list:
                what = "the filter leaves one answer, and a reduction of its metrics needs more"
                self.problems.append(
                    Problem(at(), what, f"end it with `{{function: take_first_k, k: {config.repeats}}}`")
                )
            pipeline = replace(pipeline, steps=(), single=False)  # the first alone was not asked for
        scorer.bind(entry.name, bound)
        name = placer(self.task, "filter_list", number, "name")()
        return pipeline, BoundFilter(
            entry.name, name, scorer, bound, binder.place, _scorer_place(self.task, entry, number)
        )

    def _scorer(self, number: int, entry: FilterConfig) -> Scorer:
        if entry.scorer is None:
            return self.whole
        return make_scorer(entry.scorer, self.config, placer(self.task, "filter_list", number, "scorer")())

    def _tried(self, make: Callable[[], T]) -> T | None:
        try:
            return make()
        except ConfigError as error:
            self.problems += error.problems
            return None


def _check_filters(task: Task, pipelines: Sequence[tuple[Pipeline, Scorer]]) -> None:
    """Scorers that look at other filters find them."""
    known = [pipeline.name for pipeline, _ in pipelines]
    place = placer(task, "filter_list" if "filter_list" in task.fields else "scorer")()
    for pipeline, scorer in pipelines:
        if len(known) < scorer.least_filters:
            what = f"scorer {scorer.name!r} needs {scorer.least_filters} filters, but the task has {len(known)}"
            raise ConfigError([Problem(place, what, "name more in filter_list")])
        if scorer.asks and pipeline.is_batch:
            what = f"scorer {scorer.name!r} asks about each answer, and filter {pipeline.name!r} waits for all of them"
            raise ConfigError([Problem(place, what, "use a filter that needs one document at a time")])
        for name in scorer.needs_filters:
            if name not in known:
                what = f"scorer {scorer.name!r} needs the filter {name!r}, but the task has none of that name"
                raise ConfigError([Problem(place, what, did_you_mean(name, known))])


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
    """Return the place of an entry in a list of the task's file."""

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


BY_OUTPUT: dict[str, type[Scorer]] = {
    GENERATE: GenerationScorer,
    CHOICE: LoglikelihoodScorer,
    LIKELIHOOD: LoglikelihoodScorer,
    ROLLING: PerplexityScorer,
}


class ScorerFactory:
    """Makes the scorer of a task: its own function first, then the scorer it names, then that of its output type."""

    @staticmethod
    def create_scorer(task_config: TaskConfig, place: Place | None = None) -> Scorer:
        if callable(task_config.process_results):
            return ProcessResultsScorer(task_config, task_config.process_results)
        at = place or Place(f"task {task_config.task!r}")
        if task_config.scorer is not None:
            return make_scorer(task_config.scorer, task_config, at)
        if task_config.output_type not in BY_OUTPUT:
            what = f"no scorer scores the output type {task_config.output_type!r}"
            raise ConfigError([Problem(at, what, f"one of {', '.join(BY_OUTPUT)}")])
        return BY_OUTPUT[task_config.output_type](task_config)


def check_rows(filters: Sequence[BoundFilter]) -> None:
    """Refuse filters and rows with the same name, all of them at once."""
    problems = [
        *_doubled(((each.name, each.at) for each in filters), "filter"),
        *(Problem(each.at, f"a filter cannot be named {each.name!r}: {wrong[0]}", wrong[1])
          for each in filters if (wrong := filter_name_problem(each.name)) is not None),
        *(problem for each in filters for problem in _row_problems(each)),
        *_directions(filters),
    ]  # fmt: skip
    if problems:
        raise ConfigError(problems)


def last_of_each(metrics: Iterable[Metric]) -> list[Metric]:
    """Metrics of different names: of two with one name the later, as in lm-eval."""
    return list({metric.name: metric for metric in metrics}.values())


def _row_problems(bound: BoundFilter) -> Iterator[Problem]:
    rows = list(_rows(bound))
    yield from _doubled(rows, "row")
    for name, place in rows:
        wrong = row_name_problem(name)
        if wrong is not None:
            yield Problem(place, f"a row cannot be named {name!r}: {wrong[0]}", wrong[1])


def _rows(bound: BoundFilter) -> Iterator[tuple[str, Place]]:
    """The rows of a filter that are known now, each with where it comes from."""
    for number, metric in enumerate(bound.metrics):
        for name in metric.gives or (metric.name,):
            yield name, bound.place(number, "metric")
        for name in metric.reductions.added:
            yield name, bound.place(number, "reduction")
    for name in bound.scorer.rows() or ():
        yield name, bound.scorer_at


def _doubled(named: Iterable[tuple[str, Place]], what: str) -> Iterator[Problem]:
    """Names that come twice, with both places."""
    seen: dict[str, Place] = {}
    for name, place in named:
        if name in seen:
            fix = (
                "rename one of them"
                if what == "filter"
                else "leave one out, rename its function, or give it another filter"
            )
            yield Problem(place, f"two {what}s are named {name!r}: the other one is at {seen[name]}", fix)
        seen.setdefault(name, place)


def _directions(filters: Sequence[BoundFilter]) -> Iterator[Problem]:
    """Yield metrics of one name with different `higher_is_better` in two filters: results have one value for both."""
    seen: dict[str, tuple[bool, Place]] = {}
    for bound in filters:
        for number, metric in enumerate(bound.metrics):
            if metric.higher_is_better is None:
                continue
            place = bound.place(number, "metric")
            better, first = seen.setdefault(metric.name, (metric.higher_is_better, place))
            if better != metric.higher_is_better:
                what = f"higher_is_better of {metric.name!r} is {metric.higher_is_better}, and {better} at {first}"
                yield Problem(place, what, "set the same value for both, or rename one of the metrics")
