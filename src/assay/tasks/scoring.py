"""How a task is scored, made of what its file says: its filters, each with its scorer, and that with its metrics."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from assay.catalog.functions import find_registrations, module_file
from assay.config.task import FilterConfig, FilterStep, MetricConfig, ScorerConfig, TaskConfig
from assay.dialect import Dialect
from assay.errors import ConfigError, Place, Problem, collect, did_you_mean
from assay.records import Function
from assay.samples.prompt import written_choices
from assay.score_keys import ScoreKey, filter_name_problem, metric_name_problem
from assay.scoring.filters import DEFAULT, answers_left, build_pipeline, leaves_text, text_step, without_first
from assay.scoring.helper_code import Helpers
from assay.scoring.loop import GuardedCall, ScoringLoop, ScoringStep, timed_call
from assay.scoring.metric_binding import MetricBinder, bound_reductions, import_libraries
from assay.scoring.metrics.registry import METRICS
from assay.scoring.named import SCORERS, make_scorer, returned_entries
from assay.scoring.results import CHOICE, GENERATE, LIKELIHOOD, ROLLING, ResultBuilder
from assay.scoring.scorer import (
    MEMBERS,
    Documents,
    GenerationScorer,
    LoglikelihoodScorer,
    PerplexityScorer,
    ProcessResultsScorer,
    Scorer,
    added_rows,
    bind,
    bounds_of,
    own_rows,
    scorer_step,
)
from assay.scoring.scores import BoundMetric
from assay.tasks.settings import Settings
from assay.tasks.task import Task, place_in, task_dialect
from assay.tasks.task_methods import own_task, refuse_unasked, step_with_methods, takes_part
from assay.user_code import call_user_code

BYPASS = "bypass"
"""The metric of what is not scored."""


def scoring(
    task: Task, config: TaskConfig, settings: Settings, helpers: Helpers, *, by_instances: bool = False
) -> ScoringLoop:
    """The scoring loop of a task, ready for documents: the libraries of its metrics are imported."""
    loop = bind_scoring(task, config, settings, helpers, by_instances=by_instances)
    import_libraries(loop.metrics)
    return loop


def bind_scoring(
    task: Task, config: TaskConfig, settings: Settings, helpers: Helpers, *, by_instances: bool = False
) -> ScoringLoop:
    """The filters of a task, each with its scorer, and that with its metrics. All problems are raised together.

    `by_instances` says that the task itself runs the loop, for instances that it was handed.
    """
    # a method of the task may run this loop: then it is not called from there again
    steps_only = by_instances and takes_part(task)
    own = task if steps_only else own_task(task, config, helpers)
    if not by_instances:  # else a user may call what a run does not
        refuse_unasked(task, own)
    config = with_own_scorers(task, replace(config, **own.set_keys), helpers)
    builder = StepBuilder(task, config, settings, helpers, task_dialect(task, settings.run.compat))
    steps = builder.steps()
    if not takes_part(own):
        guard: GuardedCall = call_user_code if _is_arithmetic(config.output_type, steps) else timed_call
        return ScoringLoop(steps, builder.reading, call=guard)
    names = [step.filter.name for step in steps]
    replaced = []
    for step in steps:
        documents = Documents(step.filter.name, names, builder.reading, task.name)
        replaced.append(step_with_methods(own, step, documents, steps_only=steps_only))
    return ScoringLoop(replaced, builder.reading)


def _is_arithmetic(output_type: str, steps: Sequence[ScoringStep]) -> bool:
    """Whether all that scores a document are our own metrics of log-likelihoods: no code of users, and no patterns.

    Those need no clock, whose two system calls take longer than they do.
    """
    return output_type != GENERATE and all(
        step.filter.only_takes_first
        and type(step.scorer) is BY_OUTPUT[output_type]
        and not step.adds_rows
        and all(_is_own(metric, output_type) for metric in step.metrics)
        for step in steps
    )


def _is_own(metric: BoundMetric, output_type: str) -> bool:
    """Whether a metric is one of ours as it is, without parameters."""
    is_ours = metric.of in METRICS and metric.of not in METRICS.added
    return is_ours and metric.compute is METRICS[metric.of].functions.get(output_type)


@dataclass
class StepBuilder:
    """Builds a step for each filter of a task, and collects every problem on the way."""

    task: Task
    config: TaskConfig
    settings: Settings
    helpers: Helpers
    dialect: Dialect
    problems: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = self.config
        self.reading = ResultBuilder(config.output_type, config.doc_to_choice is not None, dialect=self.dialect)
        self.processes = callable(config.process_results) and not self.settings.run.predict_only

    def steps(self) -> list[ScoringStep]:
        plain = self.config if self.processes else replace(self.config, process_results=None)
        whole = collect(self.problems, self._scorer, plain, "scorer")
        if whole is None:  # its filters are checked all the same
            whole = self._scorer(replace(plain, scorer=None), "scorer")
        of_scorer = collect(
            self.problems, returned_entries, whole, "default_filters", FilterConfig, place_in(self.task, "scorer")
        )
        entries = list(enumerate(self.config.filter_list or of_scorer or (DEFAULT,)))
        if self.dialect.keeps_last_of_equal_rows:
            entries = list({entry.name: (number, entry) for number, entry in entries}.values())
        names = [entry.name for _, entry in entries]
        built = {number: self._step(number, entry, whole, names) for number, entry in entries}
        self._refuse_problems()
        steps = {number: step for number, step in built.items() if step is not None}
        self.problems += [*self._uncomputed(steps), *self._row_problems(steps), *self._unfit_filters(steps)]
        self._refuse_problems()
        return list(steps.values())

    def _refuse_problems(self) -> None:
        if self.problems:
            raise ConfigError(dict.fromkeys(self.problems))  # filters without metrics share those of the task

    def _scorer(self, config: TaskConfig, *path: str | int) -> Scorer:
        """The scorer of a configuration, with the reductions of the rows that it adds."""
        written = config.scorer
        scorer = ScorerFactory.create_scorer(config, place_in(self.task, *path))
        try:
            bounds_of(scorer)
        except ValueError as error:
            what = f"scorer {scorer.name!r}: {error}"
            fix = "write two numbers, or such a pair for each of its rows"
            raise ConfigError.at(place_in(self.task, *path), what, fix) from None
        if isinstance(written, ScorerConfig) and written.reduction is not None:
            place = place_in(self.task, *path, "reduction")
            if own_rows(scorer) == ():
                what = f"scorer {scorer.name!r} has no scores of its own, which could be reduced"
                raise ConfigError.at(place, what, "write `reduction` beside a metric")
            scorer.own_reductions = bound_reductions(written.reduction, config.repeats, place)
            if scorer.own_reductions.replacing is not None:
                what = "a scorer's own rows have no references to reduce with"
                raise ConfigError.at(place, what, "name one of scores, such as pass@4, or reduce a metric")
        scorer.task_dialect = self.dialect
        return scorer

    def _step(self, number: int, entry: FilterConfig, whole: Scorer, names: Sequence[str]) -> ScoringStep | None:
        """A filter with its scorer and metrics; None where something is wrong with them."""
        config, dialect = self.config, self.dialect
        is_generation, only_asks = config.output_type == GENERATE, self.settings.run.predict_only
        at = partial(place_in, self.task, "filter_list", number, "filter")
        reads_any = is_generation or self.processes or dialect.applies_text_filters_to_likelihoods
        of_text = "" if reads_any else text_step(entry)
        if of_text:
            what = f"filter {of_text!r} reads text, and the answers of {config.output_type} are log-likelihoods"
            self.problems.append(Problem(at(), what, "remove it, or let the model write: output_type: generate_until"))
            return None
        # where no filter is named, all repeats are scored; lm-eval, and its `process_results`, see the first
        sees_first = dialect.scores_first_repeat or self.processes or only_asks
        if is_generation and config.repeats > 1 and not sees_first and not config.filter_list:
            entry = without_first(entry)
        pipeline = collect(self.problems, build_pipeline, _with_choices(entry), at, self.helpers.filters())
        scorer: Scorer | None = whole
        if entry.scorer is not None and not self.processes:
            own = replace(config, scorer=entry.scorer, process_results=None)
            scorer = collect(self.problems, self._scorer, own, "filter_list", number, "scorer")
        metrics: Sequence[MetricConfig] | None = entry.metric_list or config.metric_list
        if metrics is None and scorer is not None:
            place = place_in(self.task, "scorer")
            metrics = collect(self.problems, returned_entries, scorer, "default_metrics", MetricConfig, place)
        if only_asks:
            metrics, scorer = (MetricConfig(name=BYPASS),), ProcessResultsScorer(config, self._nothing)
        binder = MetricBinder(
            config.output_type, partial(self._place, number, "metric_list"), self.helpers,
            dialect=dialect, repeats=config.repeats, of_text=leaves_text(entry),
        )  # fmt: skip
        bound = collect(self.problems, binder.bind, metrics, processed=self.processes or only_asks)
        if pipeline is None or scorer is None or bound is None:
            return None
        if dialect.keeps_last_of_equal_rows:
            bound = list({metric.name: metric for metric in bound}.values())
        reductions = (*(metric.reductions for metric in bound), scorer.own_reductions)
        if pipeline.single and any(each.least > 1 for each in reductions):
            what = "the filter leaves one answer, and a reduction of its metrics needs more"
            self.problems.append(Problem(at(), what, f"end it with `{{function: take_first_k, k: {config.repeats}}}`"))
        scorer.task_dialect = dialect
        bind(scorer, entry.name, bound)
        return scorer_step(scorer, pipeline, names, self.reading, self.task.name)

    def _nothing(self, doc: Any, results: list[Any]) -> Mapping[str, None]:  # noqa: ARG002  # the shape of process_results
        """Counts a document that is asked and not scored; lm-eval counts those that generate alone."""
        counts_all = not self.settings.dialect.counts_only_generated_predictions
        return {BYPASS: None} if counts_all or self.config.output_type == GENERATE else {}

    def _place(self, number: int, key: str, *more: str | int) -> Place:
        """The place of a filter's metrics or scorer: its own, else the task's."""
        entries = self.config.filter_list or ()
        has_own = number < len(entries) and getattr(entries[number], key) is not None
        return place_in(self.task, *(("filter_list", number) if has_own else ()), key, *more)

    # the checks of all steps together

    def _uncomputed(self, steps: Mapping[int, ScoringStep]) -> Iterator[Problem]:
        """Scorers that are never called because of `process_results`, and filters that have no rows."""
        if self.dialect.accepts_what_is_not_computed:
            return
        config = self.config
        whole = config.scorer if "scorer" in self.task.fields else None  # else that of a format
        written: list[tuple[Any, tuple[str | int, ...]]] = [(whole, ("scorer",))]
        for number, entry in enumerate(config.filter_list or ()):
            written.append((entry.scorer, ("filter_list", number, "scorer")))
        for scorer, path in written if self.processes else ():
            if (scorer.type if isinstance(scorer, ScorerConfig) else scorer) not in (None, "process_results"):
                what = "process_results computes the scores, so this scorer would never be called"
                yield Problem(place_in(self.task, *path), what, "remove one of the two")
        for number, step in steps.items():
            if not self.processes and not step.metrics and own_rows(step.scorer) == ():
                what = f"filter {step.filter.name!r} has no metric, so nothing would be scored"
                fix = "leave metric_list out to get the metrics of the output type, or name some"
                yield Problem(self._place(number, "metric_list"), what, fix)

    def _row_problems(self, steps: Mapping[int, ScoringStep]) -> Iterator[Problem]:
        """Filters and rows with equal names, with names that results read otherwise, and rows of two directions."""
        filters: dict[str, Place] = {}
        directions: dict[str, tuple[bool, Place]] = {}
        for number, step in steps.items():
            place = place_in(self.task, "filter_list", number, "name")
            yield from self._name_problems("filter", step.filter.name, place, filters)
            rows: dict[str, Place] = {}
            for name, of_metric in step_rows(step):
                place = of_metric.place if of_metric is not None else self._place(number, "scorer")
                yield from self._name_problems("row", name, place, rows)
            for metric in () if self.dialect.accepts_two_directions else step.metrics:
                if metric.higher_is_better is None:
                    continue
                better, first = directions.setdefault(metric.name, (metric.higher_is_better, metric.place))
                if better != metric.higher_is_better:  # results have one value for both
                    what = f"higher_is_better of {metric.name!r} is {metric.higher_is_better}, and {better} at {first}"
                    yield Problem(metric.place, what, "set the same value for both, or rename one of the metrics")

    def _name_problems(self, what: str, name: str, place: Place, seen: dict[str, Place]) -> Iterator[Problem]:
        is_filter = what == "filter"
        wrong = (filter_name_problem if is_filter else metric_name_problem)(name)
        if wrong is not None and not self.dialect.accepts_any_row_name:
            yield Problem(place, f"a {what} cannot be named {name!r}: {wrong[0]}", wrong[1])
        if name in seen and not self.dialect.keeps_last_of_equal_rows:
            fix = "give one of them a `name`, leave it out, or give it another filter"
            said = f"two {what}s are named {name!r}: the other one is at {seen[name]}"
            yield Problem(place, said, "rename one of them" if is_filter else fix)
        seen.setdefault(name, place)

    def _unfit_filters(self, steps: Mapping[int, ScoringStep]) -> Iterator[Problem]:
        """Scorers that look at filters which the task does not have, or ask about answers that come all together."""
        known = [step.filter.name for step in steps.values()]
        place = place_in(self.task, "filter_list" if "filter_list" in self.task.fields else "scorer")
        for step in steps.values():
            scorer = step.scorer
            if len(known) < scorer.least_filters:
                what = f"scorer {scorer.name!r} needs {scorer.least_filters} filters, but the task has {len(known)}"
                yield Problem(place, what, "name more in filter_list")
            if scorer.asks and step.filter.is_batch:
                what = f"scorer {scorer.name!r} asks about each answer, and filter {step.filter.name!r} waits for all of them"
                yield Problem(place, what, "use a filter that needs one document at a time")
            for name in scorer.needs_filters:
                if name not in known:
                    what = f"scorer {scorer.name!r} needs the filter {name!r}, but the task has none of that name"
                    yield Problem(place, what, did_you_mean(name, known))


def _with_choices(entry: FilterConfig) -> FilterConfig:
    """The filter, with its `choices` as a function of the document: they are written as doc_to_choice is."""

    def step(each: FilterStep) -> FilterStep:
        written: Any = each.kwargs.get("choices") if each.function == "choice" else None
        return each if written is None else replace(each, kwargs={**each.kwargs, "choices": written_choices(written)})

    return replace(entry, filter=tuple(map(step, entry.filter)))


def step_rows(step: ScoringStep) -> Iterator[tuple[str, BoundMetric | None]]:
    """The rows of a step that are known before documents are scored, each with its metric; None of the scorer's own."""
    for metric in step.metrics:
        for name in (*metric.rows, *metric.added_rows()):
            yield name, metric
    for name in (*(own_rows(step.scorer) or ()), *added_rows(step.scorer)):
        yield name, None


def known_rows(scored: ScoringLoop) -> frozenset[ScoreKey] | None:
    """The rows that a task will have; None where only user code knows."""
    rows = set()
    for step in scored.steps:
        if own_rows(step.scorer) is None or any(metric.gives is None for metric in step.metrics):
            return None
        rows |= {ScoreKey(name, step.filter.name) for name, _ in step_rows(step)}
    return frozenset(rows)


def known_answers(scored: ScoringLoop, config: TaskConfig) -> dict[str, int]:
    """By filter how many answers to a document it leaves; without those of which only user code knows."""
    written = {entry.name: entry for entry in config.filter_list or ()}
    left: dict[str, int] = {}
    for step in scored.steps:
        name = step.filter.name
        count = answers_left(written[name], config.repeats) if name in written else config.repeats
        if step.filter.single:
            count = 1
        if count is not None:
            left[name] = count
    return left


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
            raise ConfigError.at(at, what, f"one of {', '.join(BY_OUTPUT)}")
        return BY_OUTPUT[task_config.output_type](task_config)


# --- scorers that the files beside a task register -------------------------------------------------------------------


def with_own_scorers(task: Task, config: TaskConfig, helpers: Helpers) -> TaskConfig:
    """The configuration with the classes that files beside the task's register by the names it says."""

    def resolve(written: Any, *path: str | int) -> Any:
        if isinstance(written, ScorerConfig):
            kwargs, members = written.kwargs, written.kwargs.get(MEMBERS)
            if isinstance(members, list | tuple):
                kwargs = {**kwargs, MEMBERS: [resolve(member, *path) for member in members]}
            return replace(written, type=resolve(written.type, *path), kwargs=kwargs)
        key = str(path[0])
        is_ours = written in SCORERS and written not in SCORERS.added if isinstance(written, str) else True
        if is_ours or key not in task.fields:
            return written
        function = registered_beside(written, task.fields.origin(key).folder, place_in(task, *path))
        if function is None or SCORERS.is_loaded_from(written, module_file(function)):
            return written  # --plugin named that file, or it is the script that runs
        return helpers.resolve(function)

    entries = config.filter_list and tuple(
        replace(entry, scorer=resolve(entry.scorer, "filter_list", number, "scorer"))
        for number, entry in enumerate(config.filter_list)
    )
    return replace(config, scorer=resolve(config.scorer, "scorer"), filter_list=entries)


def registered_beside(name: str, folder: str | None, place: Place) -> Function | None:
    """The class that a Python file in a folder registers as a scorer of this name. No file is run."""
    for file in sorted(Path(folder).glob("*.py")) if folder is not None else ():
        for kind, registered, target in find_registrations(file):
            if kind == "scorer" and registered == name and target:
                return Function(str(folder), file.stem, target, place)
    return None
