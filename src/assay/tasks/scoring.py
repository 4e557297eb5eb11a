"""How a task is scored, made of what its file says: its filters, each with its scorer, and that with its metrics."""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from assay.catalog.functions import module_file
from assay.config.task import FilterConfig, FilterStep, MetricConfig, ScorerConfig, TaskConfig
from assay.dialect import Dialect
from assay.errors import ConfigError, Place, Problem, collect, did_you_mean
from assay.records import Function, UserValue
from assay.samples.prompt import written_choices
from assay.score_keys import ScoreKey, filter_name_problem, metric_name_problem
from assay.scoring.filters import DEFAULT, Pipeline, answers_left, build_pipeline, leaves_text, text_step, without_first
from assay.scoring.helper_code import Helpers
from assay.scoring.loop import GuardedCall, ScoringLoop, ScoringStep, timed_call
from assay.scoring.metric_binding import MetricBinder, bound_reductions
from assay.scoring.metrics.registry import METRICS
from assay.scoring.named import SCORERS, make_scorer
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
    metrics_of,
    own_rows,
    scorer_step,
)
from assay.scoring.scores import BoundMetric
from assay.tasks.settings import Settings
from assay.tasks.task import Task, task_dialect
from assay.tasks.task_methods import own_task, step_with_methods, takes_part
from assay.user_code import call_user_code

BYPASS = "bypass"
"""The metric of what is not scored."""


class BoundFilter(NamedTuple):
    """A filter with its scorer and metrics; `place` says where the n-th entry of its metric_list is written."""

    name: str
    at: Place
    scorer: Scorer
    metrics: Sequence[BoundMetric]
    place: Callable[..., Place]
    scorer_at: Place


def scoring(
    task: Task, config: TaskConfig, settings: Settings, helpers: Helpers, *, by_instances: bool = False
) -> ScoringLoop:
    """The filters of a task, each with its scorer, and that with its metrics. All problems are raised together.

    `by_instances` says that the task itself runs the loop, for instances that it was handed.
    """
    process = config.process_results if callable(config.process_results) and not settings.run.predict_only else None
    dialect = task_dialect(task, settings.run.compat)
    config = with_own_scorers(task, config, helpers)
    whole, unmade = _whole_scorer(task, replace(config, process_results=process))
    with_reductions(whole, config.scorer, config, placer(task, "scorer"))
    whole.task_dialect = dialect
    entries = config.filter_list or whole.default_filters() or (DEFAULT,)
    making = _Making(task, config, settings, helpers, whole, process is not None, dialect)
    making.problems += unmade
    numbered = _last_of_equal_names(entries) if dialect.keeps_last_of_equal_rows else enumerate(entries)
    filters = [making.filter(number, entry) for number, entry in numbered]
    if making.problems:
        raise ConfigError(dict.fromkeys(making.problems))  # filters without metrics share those of the task
    bound_filters = [bound for _, bound in filter(None, filters)]
    reading = ResultBuilder(config.output_type, config.doc_to_choice is not None, dialect=dialect)
    names = [bound.name for bound in bound_filters]
    steps = [
        scorer_step(bound.scorer, pipeline, names, reading, task.name) for pipeline, bound in filter(None, filters)
    ]
    if not dialect.accepts_what_is_not_computed:
        _check_computed(task, config, bound_filters, processes=process is not None)
    check_rows(bound_filters, dialect)
    _check_filters(task, steps)
    steps_only = by_instances and takes_part(
        task
    )  # a method of the task runs this loop: it is not called from there again
    own = task if steps_only else own_task(task, config, helpers)
    if own is None:
        guard: GuardedCall = call_user_code if _is_arithmetic(config.output_type, steps) else timed_call
        return ScoringLoop(steps, reading, call=guard)
    documents = [Documents(name, names, reading, task.name) for name in names]
    methods = partial(step_with_methods, own, steps_only=steps_only)
    return ScoringLoop(list(map(methods, steps, documents)), reading)


def _is_arithmetic(output_type: str, steps: Sequence[ScoringStep]) -> bool:
    """Whether all that scores a document are our own metrics of log-likelihoods: no code of users, and no patterns.

    Those need no clock, whose two system calls take longer than they do.
    """
    return output_type != GENERATE and all(
        isinstance(step.filter, Pipeline)
        and step.filter.only_takes_first
        and type(step.scorer) is BY_OUTPUT[output_type]
        and not step.adds_rows
        and all(_is_own(metric, output_type) for metric in step.metrics)
        for step in steps
    )


def _is_own(metric: BoundMetric, output_type: str) -> bool:
    """Whether a metric is one of ours as it is, without parameters."""
    name = metric.of or metric.name
    is_ours = name in METRICS and name not in METRICS.added
    return is_ours and metric.compute is METRICS[name].functions.get(output_type)


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
    dialect: Dialect
    problems: list[Problem] = field(default_factory=list)

    def filter(self, number: int, entry: FilterConfig) -> tuple[Pipeline, BoundFilter] | None:
        """A filter with its scorer and metrics; None where something is wrong with them."""
        config, processes = self.config, self.processes
        at = placer(self.task, "filter_list", number, "filter")
        named_filters = bool(config.filter_list)
        reads_any = config.output_type == GENERATE or processes or self.dialect.applies_text_filters_to_likelihoods
        of_text = "" if reads_any else text_step(entry)
        if of_text:
            what = f"filter {of_text!r} reads text, and the answers of {config.output_type} are log-likelihoods"
            self.problems.append(Problem(at(), what, "remove it, or let the model write: output_type: generate_until"))
            return None
        if not named_filters and self._scores_repeats:
            entry = without_first(entry)
        pipeline = collect(self.problems, build_pipeline, _with_choices(entry), at, self.helpers.filters())
        scorer = self.whole if processes else collect(self.problems, self._scorer, number, entry)
        places = _metric_placer(self.task, entry, number)
        binder = MetricBinder(
            config.output_type, places, self.helpers,
            dialect=self.dialect, repeats=config.repeats, of_text=leaves_text(entry),
        )  # fmt: skip
        declared = (
            entry.metric_list or None,
            config.metric_list,
            scorer.default_metrics() if scorer is not None else None,
        )
        own = next((each for each in declared if each is not None), None)
        if self.settings.run.predict_only:
            own, scorer = (MetricConfig(name=BYPASS),), ProcessResultsScorer(config, _unscored(config, self.settings))
        processed = processes or self.settings.run.predict_only
        bound = collect(self.problems, binder.bind, own, processed=processed)
        if pipeline is None or scorer is None or bound is None:
            return None
        bound = last_of_each(bound) if self.dialect.keeps_last_of_equal_rows else bound
        scorer.task_dialect = self.dialect
        reductions = (*(metric.reductions for metric in bound), scorer.own_reductions)
        if pipeline.single and any(each.least > 1 for each in reductions):
            what = "the filter leaves one answer, and a reduction of its metrics needs more"
            self.problems.append(Problem(at(), what, f"end it with `{{function: take_first_k, k: {config.repeats}}}`"))
        bind(scorer, entry.name, bound)
        name = placer(self.task, "filter_list", number, "name")()
        return pipeline, BoundFilter(
            entry.name, name, scorer, bound, binder.place, _scorer_place(self.task, entry, number)
        )

    @property
    def _scores_repeats(self) -> bool:
        """Whether all repeats are scored where no filter is named: lm-eval, and its `process_results`, see the first."""
        left_out = self.dialect.scores_first_repeat or self.processes or self.settings.run.predict_only
        return self.config.output_type == GENERATE and self.config.repeats > 1 and not left_out

    def _scorer(self, number: int, entry: FilterConfig) -> Scorer:
        if entry.scorer is None:
            return self.whole
        place = placer(self.task, "filter_list", number, "scorer")
        return with_reductions(make_scorer(entry.scorer, self.config, place()), entry.scorer, self.config, place)


def with_reductions(scorer: Scorer, written: UserValue, config: TaskConfig, place: Callable[..., Place]) -> Scorer:
    """The scorer with the reductions of the rows that it adds; the bounds of these are checked."""
    try:
        bounds_of(scorer)
    except ValueError as error:
        what = f"scorer {scorer.name!r}: {error}"
        raise ConfigError.at(place(), what, "write two numbers, or such a pair for each of its rows") from None
    if isinstance(written, ScorerConfig) and written.reduction is not None:
        scorer.own_reductions = bound_reductions(written.reduction, config.repeats, place("reduction"))
        if scorer.own_reductions.replacing is not None:
            what = "a scorer's own rows have no references to reduce with"
            raise ConfigError.at(place("reduction"), what, "name one of scores, such as pass@4, or reduce a metric")
    return scorer


def _check_computed(task: Task, config: TaskConfig, filters: Sequence[BoundFilter], *, processes: bool) -> None:
    """Refuse a scorer that is never called because of `process_results`, and a filter that has no rows."""
    for number, scorer in enumerate([config.scorer, *(entry.scorer for entry in config.filter_list or ())]):
        written = scorer.type if isinstance(scorer, ScorerConfig) else scorer
        is_written = number > 0 or "scorer" in task.fields  # else that of a format
        if processes and written not in (None, "process_results") and is_written:
            what = "process_results computes the scores, so this scorer would never be called"
            at = placer(task, "scorer")() if number == 0 else placer(task, "filter_list", number - 1, "scorer")()
            raise ConfigError.at(at, what, "remove one of the two")
    for bound in filters:
        is_empty = not metrics_of(bound.scorer, bound.name) and own_rows(bound.scorer) == ()
        if not processes and not bound.metrics and is_empty:
            what = f"filter {bound.name!r} has no metric, so nothing would be scored"
            fix = "leave metric_list out to get the metrics of the output type, or name some"
            raise ConfigError.at(bound.place(), what, fix)


def _with_choices(entry: FilterConfig) -> FilterConfig:
    """The filter, with its `choices` as a function of the document: they are written as doc_to_choice is."""

    def step(each: FilterStep) -> FilterStep:
        written: Any = each.kwargs.get("choices") if each.function == "choice" else None
        return each if written is None else replace(each, kwargs={**each.kwargs, "choices": written_choices(written)})

    return replace(entry, filter=tuple(map(step, entry.filter)))


def _check_filters(task: Task, steps: Sequence[ScoringStep]) -> None:
    """Refuse scorers that look at filters which the task does not have, or ask about answers that come all together."""
    known = [step.filter.name for step in steps]
    place = placer(task, "filter_list" if "filter_list" in task.fields else "scorer")()
    for step in steps:
        scorer = step.scorer
        if len(known) < scorer.least_filters:
            what = f"scorer {scorer.name!r} needs {scorer.least_filters} filters, but the task has {len(known)}"
            raise ConfigError.at(place, what, "name more in filter_list")
        if scorer.asks and step.filter.is_batch:
            what = (
                f"scorer {scorer.name!r} asks about each answer, and filter {step.filter.name!r} waits for all of them"
            )
            raise ConfigError.at(place, what, "use a filter that needs one document at a time")
        for name in scorer.needs_filters:
            if name not in known:
                what = f"scorer {scorer.name!r} needs the filter {name!r}, but the task has none of that name"
                raise ConfigError.at(place, what, did_you_mean(name, known))


def known_rows(scored: ScoringLoop) -> frozenset[ScoreKey] | None:
    """The rows that a task will have; None where only user code knows."""
    rows = set()
    for step in scored.steps:
        of_scorer = own_rows(step.scorer)
        if of_scorer is None or any(metric.gives is None for metric in step.metrics):
            return None
        of_metrics = [name for metric in step.metrics for name in (*metric.rows, *metric.added_rows())]
        rows |= {ScoreKey(name, step.filter.name) for name in (*of_metrics, *of_scorer, *added_rows(step.scorer))}
    return frozenset(rows)


def known_answers(scored: ScoringLoop, config: TaskConfig) -> dict[str, int]:
    """By filter how many answers to a document it leaves; without those of which only user code knows."""
    written = {entry.name: entry for entry in config.filter_list or ()}
    left: dict[str, int] = {}
    for step in scored.steps:
        pipeline = step.filter
        if not isinstance(pipeline, Pipeline):  # a class's own
            continue
        count = answers_left(written[pipeline.name], config.repeats) if pipeline.name in written else config.repeats
        if pipeline.single or count is not None:
            left[pipeline.name] = 1 if pipeline.single or count is None else count
    return left


def _unscored(config: TaskConfig, settings: Settings) -> Callable[[Any, list[Any]], Mapping[str, None]]:
    """Counts documents that are asked and not scored; lm-eval counts those that generate alone."""
    is_counted = config.output_type == GENERATE or not settings.dialect.counts_only_generated_predictions
    counted = {BYPASS: None} if is_counted else {}
    return lambda doc, results: counted  # noqa: ARG005  # the shape of process_results


def _last_of_equal_names(entries: Sequence[FilterConfig]) -> Sequence[tuple[int, FilterConfig]]:
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
            raise ConfigError.at(at, what, f"one of {', '.join(BY_OUTPUT)}")
        return BY_OUTPUT[task_config.output_type](task_config)


# --- scorers that the files beside a task register -------------------------------------------------------------------


def with_own_scorers(task: Task, config: TaskConfig, helpers: Helpers) -> TaskConfig:
    """The configuration with the classes that files beside the task's register by the names it says."""

    def resolve_name(written: Any, place: Place, folder: str | None) -> Any:
        if isinstance(written, ScorerConfig):
            members: Any = written.kwargs.get(MEMBERS)
            own = [resolve_name(each, place, folder) for each in members] if isinstance(members, list | tuple) else None
            kwargs = {**written.kwargs, MEMBERS: own} if own is not None and own != list(members) else written.kwargs
            return replace(written, type=resolve_name(written.type, place, folder), kwargs=kwargs)
        if not isinstance(written, str) or (written in SCORERS and written not in SCORERS.added):
            return written
        function = registered_beside(written, folder, place)
        if function is None or SCORERS.is_loaded_from(written, module_file(function)):
            return written  # --plugin named that file, or it is the script that runs
        return helpers.resolve(function)

    def folder(key: str) -> str | None:
        return task.fields.origin(key).folder if key in task.fields else None

    whole = resolve_name(config.scorer, placer(task, "scorer")(), folder("scorer"))
    entries = tuple(
        replace(
            each,
            scorer=resolve_name(each.scorer, placer(task, "filter_list", number, "scorer")(), folder("filter_list")),
        )
        for number, each in enumerate(config.filter_list or ())
    )
    return replace(config, scorer=whole, filter_list=entries or config.filter_list)


def registered_beside(name: str, folder: str | None, place: Place) -> Function | None:
    """The class that a Python file in a folder registers as a scorer of this name. No file is run."""
    for file in sorted(Path(folder).glob("*.py")) if folder is not None else ():
        text = file.read_text("utf-8", "replace") if file.is_file() else ""  # an editor's lock is a link to nothing
        if name not in text or "scorer" not in text.lower():
            continue
        try:
            class_name = next(_registering(ast.parse(text), name), None)
        except SyntaxError:
            continue
        if class_name is not None:
            return Function(str(folder), file.stem, class_name, place)
    return None


def _registering(tree: ast.Module, name: str) -> Iterator[str]:
    """The names of the classes that a file registers under a name: by a decorator, or as an entry of SCORER_REGISTRY."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            calls = [each for each in node.decorator_list if isinstance(each, ast.Call) and each.args]
            if any(_last(each.func) in DECORATORS and _is_text(each.args[0], name) for each in calls):
                yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            entries = [each for each in node.targets if isinstance(each, ast.Subscript)]
            if any(_last(each.value) == "SCORER_REGISTRY" and _is_text(each.slice, name) for each in entries):
                yield node.value.id


DECORATORS = ("register_scorer", "scorer", "register")


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_text(node: ast.expr, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def check_rows(filters: Sequence[BoundFilter], dialect: Dialect) -> None:
    """Refuse filters and rows with equal names, with names that results read otherwise, and of two directions, all at once."""
    problems: list[Problem] = []
    if not dialect.keeps_last_of_equal_rows:
        problems += _doubled([(bound.name, bound.at) for bound in filters], "filter")
        problems += [problem for bound in filters for problem in _doubled(_rows(bound), "row")]
    if not dialect.accepts_any_row_name:
        problems += [problem for bound in filters for problem in _name_problems(bound)]
    if not dialect.accepts_two_directions:
        problems += _directions(filters)
    if problems:
        raise ConfigError(problems)


def last_of_each(metrics: Iterable[BoundMetric]) -> list[BoundMetric]:
    """Metrics of different names: of two with one name the later, as in lm-eval."""
    return list({metric.name: metric for metric in metrics}.values())


def _name_problems(bound: BoundFilter) -> Iterator[Problem]:
    """Names of a filter and its rows that results would read otherwise."""
    wrong = filter_name_problem(bound.name)
    if wrong is not None:
        yield Problem(bound.at, f"a filter cannot be named {bound.name!r}: {wrong[0]}", wrong[1])
    for name, place in _rows(bound):
        wrong = metric_name_problem(name)
        if wrong is not None:
            yield Problem(place, f"a row cannot be named {name!r}: {wrong[0]}", wrong[1])


def _rows(bound: BoundFilter) -> Iterator[tuple[str, Place]]:
    """The rows of a filter that are known now, each with where it comes from."""
    for number, metric in enumerate(bound.metrics):
        for name in metric.rows:
            yield name, bound.place(number, "metric")
        for name in metric.added_rows():
            yield name, bound.place(number, "reduction")
    for name in (*(own_rows(bound.scorer) or ()), *added_rows(bound.scorer)):
        yield name, bound.scorer_at


def _doubled(named: Iterable[tuple[str, Place]], what: str) -> Iterator[Problem]:
    """Names that come twice, with both places."""
    seen: dict[str, Place] = {}
    for name, place in named:
        if name in seen:
            fix = (
                "rename one of them"
                if what == "filter"
                else "give one of them a `name`, leave it out, or give it another filter"
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
