"""The metrics a task names, made ready: everything about them that can be wrong is found here, before any request."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Never, Protocol, runtime_checkable

from assay.config.kinds import KINDS
from assay.config.option import YAMLMapping
from assay.config.task import MetricConfig as MetricConfig
from assay.config.task import NamedMetric
from assay.dialect import OURS, Dialect
from assay.errors import ConfigError, Place, Problem, check_each, collect, library_problem, unknown_name
from assay.number_text import format_figures
from assay.records import Failed, Function, MetricValue, UserFunction, UserValue
from assay.registry import refused
from assay.scoring.declarations import Metric
from assay.scoring.helper_code import Helpers, RegisteredMetric, resolve_functions
from assay.scoring.loop import ParallelMetric
from assay.scoring.metrics.convention import (
    Compute,
    Unfit,
    depends_on_order,
    of_answers,
    of_choice,
    read_call,
)
from assay.scoring.metrics.registry import DEFAULTS, LM_EVAL_METRICS, METRICS, pair
from assay.scoring.metrics.structured import ALONE
from assay.scoring.reductions import REDUCTIONS, MetricReductions, by_repeat, read_reductions
from assay.scoring.results import CHOICE, GENERATE, LIKELIHOOD, ROLLING, GenResult, LLResult, MCResult, Result
from assay.scoring.scores import BoundMetric
from assay.signatures import Accepted, accepted, names_only
from assay.statistics.aggregations import (
    AGGREGATIONS,
    Aggregation,
    AggregationOrFunction,
    Repeated,
    known_aggregation,
    over_repeats,
)
from assay.statistics.influence import Bounds, read_bounds

if TYPE_CHECKING:
    from assay.scoring.scorer import Scorer

OF_PAIRS = ("f1", "matthews_corrcoef", "bleu", "chrf", "chrf++", "ter")
"""Aggregations of references with answers."""


class _Computation(NamedTuple):
    """How a metric is computed, with its parameters."""

    compute: Compute
    gives: Sequence[str] | None = ()
    sees_references: bool = False


@dataclass(frozen=True, slots=True)
class MetricBinder:
    """Binds the metrics of one filter. `place(number, key)` returns the place of an entry of its metric_list."""

    output_type: str
    place: Callable[..., Place]
    helpers: Helpers
    dialect: Dialect = field(default=OURS, kw_only=True)
    repeats: int = field(default=1, kw_only=True)
    of_text: bool = field(default=False, kw_only=True)
    """Whether answers are certainly texts."""

    def bind(self, configs: Sequence[MetricConfig] | None, *, processed: bool) -> list[BoundMetric]:
        """The metrics; `processed` means that a function of the task computes the values, and only the rest is needed.

        What is wrong with any of them is raised together.
        """
        if configs is None:
            configs = () if processed else [MetricConfig(name=name) for name in DEFAULTS[self.output_type]]
        if all(isinstance(config, BoundMetric) for config in configs):
            return list(configs)  # type: ignore[arg-type]  # filters that a user took from a task, and set on one
        entries = [_Entry(self, config, number, processed=processed) for number, config in enumerate(configs)]
        return _distinct(check_each(_Entry.bind, entries))


class _Entry:
    """An entry of a metric_list on its way to a metric: a metric of ours, or a function of the user's."""

    def __init__(self, binder: MetricBinder, config: MetricConfig, number: int, *, processed: bool) -> None:
        self.binder, self.config, self.processed = binder, config, processed
        self.output_type, self.dialect, self.helpers = binder.output_type, binder.dialect, binder.helpers
        self.at = partial(binder.place, number)
        self.name = config.name if isinstance(config.name, str) else function_name(config.name)
        self.declared = self._declared() if isinstance(config.fn, NamedMetric) else None
        self.registered = self.declared or self._registered() or self.helpers.metrics.get(self.name)
        """What counts where the file says nothing."""
        self.from_hub = config.hf_evaluate and self.output_type == GENERATE

    def bind(self) -> BoundMetric:
        config, row, repeats = self.config, self.config.row, self.binder.repeats
        if row is not None and self.processed:
            fix = "leave `name` out, and rename the key that it returns"
            raise self._problem("name", "process_results names its rows itself", fix)
        problems: list[Problem] = []
        function = None if self.processed else collect(problems, self._function)
        aggregation = None
        if config.aggregation is not None or not problems:  # else that of the metric, which nobody knows
            aggregation = collect(problems, self._aggregation)
        reductions = collect(problems, self._reductions)
        bounds = collect(problems, self._bounds)
        if aggregation is None or reductions is None or problems:
            raise ConfigError(problems)
        bound, libraries = _Computation(_never), [getattr(aggregation, "needs", None)]
        if not self.processed:
            libraries += [self.declared.needs] if function is None and self.declared is not None else []
            aggregation, kwargs = self._split(aggregation)
            bound = self._computation(function, kwargs)
            # scores of a metric may be computed elsewhere, from references and answers alone
            is_called_by_lm_eval = self.name in METRICS.added and self.dialect.calls_metrics_as_lm_eval
            is_parallel = function is None and self.declared is not None and self.declared.parallel
            if is_parallel and self.output_type == GENERATE and not is_called_by_lm_eval:
                bound = bound._replace(compute=ParallelMetric(row or self.name, bound.compute))
            if row is not None and (function is not None or bound.gives != ()):
                bound = _renamed(bound, row)
            if reductions.replacing is not None:
                bound = _with_reduced(bound, row or self.name, reductions.replacing)
                bounds = reductions.bounds[""]
        known = known_aggregation(aggregation)
        is_of_numbers = isinstance(known, Aggregation) and known.of_numbers
        if repeats > 1 and not is_of_numbers and not self.dialect.aggregates_repeats_together:
            if reductions.added and isinstance(known, Aggregation) and known.name in AGGREGATIONS:
                what = f"metric {self.name!r} is computed over all documents: an answer has no score to reduce"
                fix = "add `aggregation: mean`, if it scores single answers, or leave `reduction` out"
                raise self._problem("reduction", what, fix)
            aggregation, reductions = over_repeats(known, repeats), replace(reductions, plain=by_repeat)
        is_named = isinstance(aggregation, Aggregation) and AGGREGATIONS.get(aggregation.name) is aggregation
        return BoundMetric(
            self.name if row is None else row,
            bound.compute,
            aggregation.name if isinstance(aggregation, Aggregation) and is_named else aggregation,
            self._better,
            reductions,
            bound.gives,
            sees_references=bound.sees_references,
            place=self.at("name" if row is not None else "metric"),
            of=self.name,
            bounds=bounds,
            needs=[library for library in libraries if library is not None],
        )

    # what it names

    def _declared(self) -> Metric | None:
        """The metric that a name means. A name that lm-eval does not have belongs to the task's own code first."""
        config, name = self.config, self.name
        if not isinstance(config.name, str):
            return None
        declared = LM_EVAL_METRICS.get(name)
        if declared is None and not self.processed and name not in self.helpers.metrics:
            declared = METRICS.get(name) or metric_of_kinds(name)
        is_of_numbers = isinstance(config.aggregation, str) and config.aggregation not in OF_PAIRS
        if declared is not None and name in ALONE and is_of_numbers and not self.processed:
            return ALONE[name]
        return declared

    def _registered(self) -> Metric | RegisteredMetric | None:
        """The registration of a function that a file names."""
        function: object = self.config.name
        if isinstance(function, str):
            return None
        added = (METRICS[name] for name in METRICS.added)
        by_name = next((metric for metric in added if function in metric.functions.values()), None)
        return by_name or next((own for own in self.helpers.metrics.values() if own.function is function), None)

    def _function(self) -> UserFunction | None:
        """The user's function that a metric is; None where it is one of ours, or passes on what it gets."""
        config, name, declared = self.config, self.name, self.declared
        own = config.name if isinstance(config.fn, NamedMetric) else config.fn
        if callable(own):
            return own
        is_generation = self.output_type == GENERATE
        if declared is not None:
            aggregation = config.aggregation or declared.aggregation
            is_passed_on = is_generation and (callable(aggregation) or aggregation in OF_PAIRS)
            if not self.from_hub and (self.output_type in declared.functions or is_passed_on):
                return None
        function = self.helpers.find_metric(name) if is_generation or name in self.helpers.metrics else None
        if function is not None:
            return function
        if declared is not None:
            fix = f"it scores {', '.join(declared.functions)}"
            raise self._problem("metric", f"metric {name!r} does not score {self.output_type}", fix)
        fitting = [known for known in METRICS.names() if self.output_type in METRICS[known].functions]
        raise ConfigError([unknown_name("metric", name, fitting, self.at("metric"))])

    @property
    def _better(self) -> bool | None:
        """Whether more is better: as the file says, else as the metric was declared or registered."""
        if self.config.higher_is_better is not None or self.registered is None:
            return self.config.higher_is_better
        return self.registered.higher_is_better

    def _bounds(self) -> Bounds | None:
        """The least and the greatest score: as the file says, else as the metric was declared."""
        if self.config.bounds is not None:
            try:
                return read_bounds(self.config.bounds)
            except ValueError as error:
                raise self._problem("bounds", str(error), "write two numbers, the lesser first") from None
        return self.registered.bounds if isinstance(self.registered, Metric) else None

    def _aggregation(self) -> AggregationOrFunction:
        named: object = self.config.aggregation
        if named is None and self.registered is not None:
            named = self.registered.aggregation
        if isinstance(named, str) and named not in AGGREGATIONS:
            named = self.helpers.aggregations.get(named, named)
        if callable(named):
            return named
        if named is None and self.declared is None:
            named = "mean"  # of user code, as seed 001 has it
        if named is None:
            raise self._problem("metric", f"metric {self.name!r} has no aggregation", "add `aggregation: mean`")
        if named == "median" and self.dialect.takes_upper_median:
            named = "median_high"
        if named not in AGGREGATIONS:
            raise ConfigError([unknown_name("aggregation", str(named), AGGREGATIONS.names(), self.at("aggregation"))])
        aggregation = AGGREGATIONS[str(named)]
        need_library(aggregation.needs, self.at("aggregation"), f"aggregation {aggregation.name!r}")
        return aggregation

    def _split(self, aggregation: AggregationOrFunction) -> tuple[AggregationOrFunction, YAMLMapping]:
        """The aggregation with its parameters, and what is left for the metric: in a file they are written side by side."""
        takes, kwargs = AGGREGATIONS.accepts(aggregation), self.config.kwargs
        used = {key: value for key, value in kwargs.items() if key in takes.named}
        left = {key: value for key, value in kwargs.items() if key not in takes.named}
        where = self._where("aggregation")
        if isinstance(aggregation, Aggregation):
            return AGGREGATIONS.bind(aggregation.name, used, where), left
        _refuse(AGGREGATIONS.problems(function_name(aggregation), takes, used, where))
        return (partial(aggregation, **used) if used else aggregation), left

    # how it is computed

    def _computation(self, function: UserFunction | None, kwargs: YAMLMapping) -> _Computation:
        """How a metric is computed: a user's as its signature says, one of ours with its parameters."""
        name, declared = self.name, self.declared
        if function is not None:
            # the metrics of `evaluate` take as many references as answers; lm-eval itself gives one at a time
            by_one = isinstance(self.config.name, str) and name not in self.helpers.metrics
            return self._of_user(function, kwargs, by_one=by_one and not self.dialect.calls_metrics_as_lm_eval)
        if declared is None or self.output_type not in declared.functions or self.from_hub:
            if name == "f1" and self.binder.of_text and not self.dialect.computes_f1_of_texts:
                fix = "use macro_f1, or f1_by_class with `labels`"
                raise self._problem("metric", "metric 'f1' is of the classes 0 and 1, and answers are texts", fix)
            # lm-eval's own metrics hand reference and answer on to an aggregation that knows what to do with them
            passes_all = self.dialect.aggregates_repeats_together
            return _Computation(_passed_through if passes_all else of_answers(pair))
        refuse_unusable(declared, f"metric {name!r}", self.at("metric"))
        if self.output_type == GENERATE and name in METRICS.added:
            bound = self._of_user(declared.functions[GENERATE], kwargs)
        else:
            bound = _Computation(self._of_ours(declared, kwargs))
        if self.config.hf_evaluate or declared.gives is None:
            return bound
        try:
            return bound._replace(gives=declared.gives(**self.config.kwargs))
        except (TypeError, ValueError) as error:
            raise self._problem("metric", str(error), "correct its parameters") from None

    def _of_ours(self, declared: Metric, kwargs: YAMLMapping) -> Compute:
        function = declared.functions[self.output_type]
        is_generation = self.output_type == GENERATE
        takes = accepted(function, 2 if is_generation else 1)
        if not is_generation and self.dialect.ignores_kwargs_of_likelihoods:
            # lm-eval hands parameters to generation metrics only, so elsewhere it takes any
            kwargs = {key: value for key, value in kwargs.items() if key in takes.named}
        problems = self._wrong(takes, kwargs)
        if problems:
            aggregation = AGGREGATIONS.get(declared.aggregation or "")  # whose parameters are written beside its own
            of_both = {**AGGREGATIONS.accepts(aggregation).named, **takes.named} if aggregation else takes.named
            _refuse(self._wrong(replace(takes, named=of_both), kwargs) or problems)
        if not is_generation:
            return partial(function, **kwargs) if kwargs else function
        prepared = getattr(function, "prepared", None)
        try:
            return of_answers(prepared(**kwargs) if prepared is not None else partial(function, **kwargs))
        except (TypeError, ValueError) as error:
            raise self._problem("metric", f"metric {self.name!r}: {error}", "correct its parameters") from None

    def _of_user(self, function: UserFunction, kwargs: YAMLMapping, *, by_one: bool = False) -> _Computation:
        """How a user's metric is computed, called as its signature says, with its parameters checked."""
        name, dialect, is_generation = self.name, self.dialect, self.output_type == GENERATE
        try:
            call = read_call(function, kwargs, dialect=dialect)
            if self.output_type not in (GENERATE, CHOICE) and not call.pair:
                raise Unfit(f"{self.output_type} has no answer to compare", "give it one parameter, `result`")
        except Unfit as error:
            raise self._problem("metric", f"metric {name!r} cannot be called: {error}", error.fix) from None
        if by_one:
            call = call.for_one_reference()
        if not (call.pair and dialect.ignores_kwargs_of_pairs):  # lm-eval calls these without parameters
            _refuse(self._wrong(call.takes, kwargs))
        if call.pair and (not is_generation or dialect.ignores_kwargs_of_pairs):
            kwargs = {key: value for key, value in kwargs.items() if key in call.takes.named}
        if call.pair and not is_generation:
            return _Computation(partial(call.function, **kwargs))
        if dialect.calls_metrics_as_lm_eval and call.is_called_by_lm_eval:
            return _Computation(call.by_each_reference(kwargs, name, higher_is_better=self._better))
        compute = call.computing(kwargs, name, higher_is_better=self._better)
        in_order = call.sees_references and not dialect.calls_metrics_as_lm_eval
        return _Computation(of_choice(compute) if self.output_type == CHOICE else compute, sees_references=in_order)

    def _reductions(self) -> MetricReductions:
        written: UserValue = self.config.reduction
        if written is None and isinstance(self.registered, RegisteredMetric):
            written = self.registered.reduction
        if isinstance(written, str):
            written = self.helpers.reductions.get(written, written)
        reductions = bound_reductions(written, self.binder.repeats, self.at("reduction"))
        if reductions.replacing is not None and self.processed:
            fix = "reduce in process_results, or leave `process_results` out"
            raise self._problem("reduction", "it takes references, and process_results computes the scores", fix)
        return reductions

    def _wrong(self, takes: Accepted, kwargs: YAMLMapping) -> list[Problem]:
        takes = names_only(takes) if self.dialect.accepts_kwargs_of_other_types else takes
        return METRICS.problems(self.name, takes, kwargs, self._where("metric"))

    def _where(self, key: str) -> Callable[[str], Place]:
        return lambda parameter: self.at(parameter or key)

    def _problem(self, key: str, what: str, fix: str) -> ConfigError:
        return ConfigError.at(self.at(key), what, fix)


def _refuse(problems: Sequence[Problem]) -> None:
    if problems:
        raise ConfigError(problems)


def bound_reductions(written: UserValue, repeats: int, place: Place) -> MetricReductions:
    """The reductions that a metric or a scorer names, for a task of so many repeats."""
    try:
        reductions = read_reductions(written)
    except LookupError as error:
        known = [name if name[-1].isalnum() else f"{name}4" for name in REDUCTIONS.names()]
        raise ConfigError([unknown_name("reduction", error.args[0], known, place)]) from None
    except ValueError as error:
        raise ConfigError.at(place, str(error), "see docs/scorers.md") from None
    if reductions.least > max(repeats, 1):  # fewer than 1 are refused where they are written
        what = f"needs {reductions.least} repeats, but the task has {repeats}"
        fix = f"write `repeats: {reductions.least}` or more, or give --repeats"
        raise ConfigError.at(place, what, fix)
    return reductions


@runtime_checkable
class _HasMetrics(Protocol):
    """A kind of task with metrics of its own, which tasks of other kinds may name."""

    def metric(self, name: str) -> Metric | None: ...


def metric_of_kinds(name: str) -> Metric | None:
    """The metric that a kind of task has by this name, such as a unit metric of graphs."""
    kinds = (kind for kind in KINDS.values() if isinstance(kind, _HasMetrics))
    return next((metric for kind in kinds if (metric := kind.metric(name)) is not None), None)


def function_name(function: UserFunction | Function) -> str:
    """The name of a function, also of one with some arguments given, or of the class of an object that can be called."""
    if isinstance(function, partial):
        return function_name(function.func)
    return str(getattr(function, "__name__", type(function).__name__))


def _renamed(bound: _Computation, row: str) -> _Computation:
    """A metric of another name: it becomes the prefix of values by name."""

    def renamed(value: MetricValue) -> MetricValue:
        if isinstance(value, Mapping):
            return {f"{row}_{key}": each for key, each in value.items()}
        return Repeated(map(renamed, value)) if isinstance(value, Repeated) else value

    gives = tuple(f"{row}_{each}" for each in bound.gives) if bound.gives else bound.gives
    return bound._replace(compute=lambda result: renamed(bound.compute(result)), gives=gives)


def _distinct(metrics: list[BoundMetric]) -> list[BoundMetric]:
    """Metrics whose added rows have different names: where two would share one, it names the metric, too."""
    taken = Counter(row for metric in metrics for row in metric.reductions.added)
    taken.update(metric.name for metric in metrics)
    return [
        replace(metric, reductions=replace(metric.reductions, added={
            row if taken[row] == 1 else f"{row}({metric.name})": reduce for row, reduce in metric.reductions.added.items()
        }))
        for metric in metrics
    ]  # fmt: skip


def _with_reduced(bound: _Computation, row: str, reduction: UserFunction) -> _Computation:
    """The metric with the scores of several answers reduced by a function of the references and the scores."""

    def compute(result: Result) -> MetricValue:
        value = bound.compute(result)
        if not isinstance(value, Repeated) or len(value) == 1 or any(isinstance(score, Failed) for score in value):
            return value
        target = result.target
        references = target[0] if isinstance(target, list) and len(target) == 1 else target
        number = reduction(references=references, predictions=list(value))
        return {f"{name}({row})": each for name, each in number.items()} if isinstance(number, Mapping) else number

    return bound._replace(compute=compute, gives=None)


def need_library(module: str | None, place: Place, what: str) -> None:
    problem = library_problem(module, what, place)
    if problem is not None:
        raise ConfigError([problem])


def refuse_unusable(declared: Metric, what: str, place: Place) -> None:
    """Refuse a metric whose library is not installed, or that cannot work on this machine."""
    need_library(declared.needs, place, what)
    obstacle = declared.obstacle() if declared.obstacle is not None else None
    if obstacle is not None:
        raise ConfigError.at(place, f"{what} cannot work here: {obstacle[0]}", obstacle[1])


def import_libraries(metrics: Iterable[BoundMetric]) -> None:
    """Import the libraries of metrics, before the first request: a first import may take longer than a document has."""
    for metric in metrics:
        for library in metric.needs:
            with refused(metric.place, f"metric {metric.name!r} cannot import {library}", "install it again"):
                import_module(library)


def _never(result: Result) -> Never:  # noqa: ARG001
    raise AssertionError("the task computes its own values")


def _passed_through(result: GenResult) -> MetricValue:
    return pair(result.references, result.answer)


def check_reference_order(metrics: Iterable[BoundMetric], results: Callable[[], Iterable[GenResult]]) -> None:
    """Refuse metrics that are given all references and whose value depends on the order of these."""
    problems = {}
    for metric in metrics:
        if not metric.sees_references or metric.place in problems:
            continue
        for result in results():
            values = depends_on_order(metric.compute, result)
            if values is not None:
                what = f"metric {metric.name!r} gives {_shown(values[0])} for the references {result.references!r:.80}"
                what += f" and the answer {result.answer!r:.40}, but {_shown(values[1])} for the same in reverse order"
                fix = "name its parameter `reference`, and it is called for each of them; or compare with all of them"
                problems[metric.place] = Problem(metric.place, what, fix)
                break
    if problems:
        raise ConfigError(problems.values())


def _shown(value: MetricValue) -> str:
    return format_figures(value) if isinstance(value, int | float) else f"{value!r:.60}"


# --- without a task ----------------------------------------------------------------------------------------------------


def _no_code(function: Function) -> Never:
    raise LookupError(f"{function} is helper code: load the task with a TaskManager, and run it")


NO_HELPERS = Helpers(resolve=_no_code, as_dataset=list, find_metric=lambda name: None, filters=dict)  # noqa: ARG005
"""For scorers and metrics that are used by themselves: there are no files, and so no helper code."""


def bind_configured(scorer: "Scorer", filter_name: str) -> Sequence[BoundMetric]:
    """The metrics of a filter from the scorer's configuration: the filter's, else the task's, else its defaults."""
    config = scorer.config
    declared = [scorer.default_metrics()]
    if config is not None:
        own = next((entry.metric_list for entry in config.filter_list or () if entry.name == filter_name), None)
        declared = [own or None, config.metric_list, *declared]
    elif declared == [None]:
        raise TypeError(f"{type(scorer).__name__} has no metrics: hand it the configuration of a task")
    chosen: Any = next((metrics for metrics in declared if metrics is not None), None)
    if chosen is not None and all(isinstance(metric, BoundMetric) for metric in chosen):
        return chosen  # type: ignore[no-any-return]  # as was just asked
    return _bind_alone(scorer, chosen, "metric_list")


def bind_one(scorer: "Scorer", metric: MetricConfig) -> BoundMetric:
    """A metric that a scorer of the user's chooses itself, in its `get_metrics`."""
    if not isinstance(metric, MetricConfig):  # a user's class may return anything
        place = Place(f"get_metrics of scorer {scorer.name!r}")
        raise ConfigError.at(place, f"it returned {metric!r:.60}", "return a list of `MetricConfig(name=…)`")
    [bound] = _bind_alone(scorer, (metric,), "get_metrics")
    return bound


def _bind_alone(scorer: "Scorer", metrics: Sequence[MetricConfig] | None, source: str) -> list[BoundMetric]:
    output_type, repeats = scorer.output_types[0], 1
    if scorer.config is not None:
        output_type, repeats = scorer.config.output_type, scorer.config.repeats
    binder = MetricBinder(
        output_type,
        lambda *steps: Place(f"scorer {scorer.name!r}, {source}{list(steps)}"),
        NO_HELPERS,
        repeats=repeats,
    )
    return binder.bind(resolve_functions(metrics, _no_code), processed=hasattr(scorer, "process_results_fn"))


def metric_function(config: MetricConfig) -> Callable[..., Any]:
    """The function of an entry of metric_list: of a result, or of `references` and `predictions`."""
    plain = resolve_functions(replace(config, reduction=None), _no_code)
    bound: dict[str, BoundMetric] = {}

    def function(result: Any = None, **arguments: Any) -> Any:
        kind = next((kind for kind, result_type in OF_RESULT.items() if isinstance(result, result_type)), GENERATE)
        if kind == LIKELIHOOD and LIKELIHOOD not in getattr(METRICS.get(str(plain.name)), "functions", {LIKELIHOOD}):
            kind = ROLLING
        if kind not in bound:
            binder = MetricBinder(kind, lambda *_: Place(f"metric {config.name!r}"), NO_HELPERS)
            [bound[kind]] = binder.bind((plain,), processed=False)
        return bound[kind].fn(result, **arguments)

    return function


OF_RESULT: Mapping[str, type[Result]] = {CHOICE: MCResult, LIKELIHOOD: LLResult}
NamedMetric.bind = staticmethod(metric_function)
