"""The metrics a task names, made ready: everything about them that can be wrong is found here, before any request."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Never, Protocol, runtime_checkable

from assay.config.kinds import KINDS
from assay.config.option import YAMLMapping
from assay.config.task import MetricConfig as MetricConfig
from assay.config.task import NamedMetric
from assay.dialect import OURS, Dialect
from assay.errors import ConfigError, Place, Problem, check_each, collect, did_you_mean, library_problem
from assay.number_text import format_figures
from assay.records import Failed, Function, MetricValue, UserFunction, UserValue
from assay.scoring.declarations import Metric
from assay.scoring.helper_code import Helpers, RegisteredMetric, resolve_functions
from assay.scoring.loop import ParallelMetric
from assay.scoring.metrics.convention import (
    Compute,
    MetricCall,
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


class _Meaning(NamedTuple):
    """The meaning of a name or a function in a metric_list: a metric of ours, or a function of the user's."""

    name: str
    declared: Metric | None
    function: UserFunction | None


class _Computation(NamedTuple):
    """How a metric is computed, with its parameters."""

    compute: Compute
    gives: Sequence[str] | None = ()
    sees_references: bool = False


class MetricBinder:
    """Binds the metrics of one filter. `place(number, key)` returns the place of an entry of its metric_list.

    `of_text` says that answers are certainly texts.
    """

    def __init__(
        self, output_type: str, place: Callable[..., Place], helpers: Helpers, *,
        dialect: Dialect = OURS, repeats: int = 1, of_text: bool = False,
    ) -> None:  # fmt: skip
        self.output_type = output_type
        self.place = place
        self.helpers = helpers
        self.dialect = dialect
        self.repeats = repeats
        self.of_text = of_text

    def bind(self, configs: Sequence[MetricConfig] | None, *, processed: bool) -> list[BoundMetric]:
        """The metrics; `processed` means that a function of the task computes the values, and only the rest is needed.

        What is wrong with any of them is raised together.
        """
        if configs is None:
            return [] if processed else [self._default(name) for name in DEFAULTS[self.output_type]]
        return _distinct(
            check_each(lambda entry: self._metric(entry[1], entry[0], processed=processed), enumerate(configs))
        )

    def _default(self, name: str) -> BoundMetric:
        declared = METRICS[name]
        compute = self._compute(name, declared, {}, 0)
        return BoundMetric(
            name, compute, declared.aggregation, declared.higher_is_better, MetricReductions(), bounds=declared.bounds
        )

    def _metric(self, config: MetricConfig, number: int, *, processed: bool) -> BoundMetric:
        named = config.name if isinstance(config.name, str) else function_name(config.name)
        row = config.row if config.row is not None else named
        if config.row is not None and processed:
            fix = "leave `name` out, and rename the key that it returns"
            raise self._problem(number, "name", "process_results names its rows itself", fix)
        declared = self._declared(config, processed=processed) if isinstance(config.fn, NamedMetric) else None
        problems: list[Problem] = []
        function = None if processed else collect(problems, self._function, config, named, declared, number)
        aggregation = None
        if config.aggregation is not None or not problems:  # else that of the metric, which nobody knows
            aggregation = collect(problems, self._aggregation, config, named, declared, number)
        reductions = collect(problems, self._reductions, config, named, number, processed=processed)
        bounds = collect(problems, self._bounds, config, declared, number)
        if aggregation is None or reductions is None or problems:
            raise ConfigError(problems)
        bound = _Computation(_never)
        if not processed:
            aggregation, kwargs = self._split(aggregation, config.kwargs, number)
            bound = self._bound(config, _Meaning(named, declared, function), kwargs, number)
            if function is None and self._is_parallel(declared, named):
                bound = bound._replace(compute=ParallelMetric(row, bound.compute))
            is_number = function is None and bound.gives == ()
            bound = bound if config.row is None or is_number else _renamed(bound, row)
            if reductions.replacing is not None:
                bound, bounds = _with_reduced(bound, row, reductions.replacing), reductions.bounds[""]
        better = self._better(config, named, declared)
        known = known_aggregation(aggregation)
        is_of_numbers = isinstance(known, Aggregation) and known.of_numbers
        if self.repeats > 1 and not is_of_numbers and not self.dialect.aggregates_repeats_together:
            self._refuse_reductions(named, known, reductions, number)
            aggregation, reductions = over_repeats(known, self.repeats), replace(reductions, plain=by_repeat)
        is_known = isinstance(aggregation, Aggregation) and AGGREGATIONS.get(aggregation.name) is aggregation
        return BoundMetric(
            row,
            bound.compute,
            aggregation.name if isinstance(aggregation, Aggregation) and is_known else aggregation,
            better,
            reductions,
            bound.gives,
            sees_references=bound.sees_references,
            place=self.place(number, "name" if config.row is not None else "metric"),
            of=named,
            bounds=bounds,
        )

    def _is_parallel(self, declared: Metric | None, named: str) -> bool:
        """Whether the scores of a metric may be computed elsewhere, from references and answers alone."""
        called_by_lm_eval = named in METRICS.added and self.dialect.calls_metrics_as_lm_eval
        return declared is not None and declared.parallel and self.output_type == GENERATE and not called_by_lm_eval

    def _bounds(self, config: MetricConfig, declared: Metric | None, number: int) -> Bounds | None:
        """The least and the greatest score: as the file says, else as the metric was declared."""
        if config.bounds is not None:
            try:
                return read_bounds(config.bounds)
            except ValueError as error:
                raise self._problem(number, "bounds", str(error), "write two numbers, the lesser first") from None
        registered = declared or self._registered(config)
        return registered.bounds if isinstance(registered, Metric) else None

    def _refuse_reductions(
        self, named: str, aggregation: AggregationOrFunction, reductions: MetricReductions, number: int
    ) -> None:
        """Refuse reductions of pairs, of which the aggregation of all documents makes a number."""
        if reductions.added and isinstance(aggregation, Aggregation) and aggregation.name in AGGREGATIONS:
            what = f"metric {named!r} is computed over all documents: an answer has no score to reduce"
            fix = "add `aggregation: mean`, if it scores single answers, or leave `reduction` out"
            raise self._problem(number, "reduction", what, fix)

    def _bound(self, config: MetricConfig, meaning: "_Meaning", kwargs: YAMLMapping, number: int) -> "_Computation":
        """How a metric is computed: a user's as its signature says, one of ours with its parameters."""
        named, declared, function = meaning
        if function is not None:
            # the metrics of `evaluate` take as many references as answers
            by_one = isinstance(config.name, str) and named not in self.helpers.metrics
            call = self._call(function, kwargs, meaning, number, by_one=by_one)
            return self._called(call, kwargs, named, self._better(config, named, declared))
        if declared is None or self.output_type not in declared.functions or self._from_hub(config):
            if named == "f1" and self.of_text and not self.dialect.computes_f1_of_texts:
                fix = "use macro_f1, or f1_by_class with `labels`"
                raise self._problem(
                    number, "metric", "metric 'f1' is of the classes 0 and 1, and answers are texts", fix
                )
            # lm-eval's own metrics hand reference and answer on to an aggregation that knows what to do with them
            passes_all = self.dialect.aggregates_repeats_together
            return _Computation(_passed_through if passes_all else of_answers(pair))
        if self.output_type == GENERATE and named in METRICS.added:
            refuse_unusable(declared, f"metric {named!r}", self.place(number, "metric"))
            call = self._call(declared.functions[GENERATE], kwargs, meaning, number)
            bound = self._called(call, kwargs, named, self._better(config, named, declared))
        else:
            bound = _Computation(self._compute(named, declared, kwargs, number))
        return bound if config.hf_evaluate else bound._replace(gives=self._names(declared, config.kwargs, number))

    def _better(self, config: MetricConfig, named: str, declared: Metric | None) -> bool | None:
        """Whether more is better: as the file says, else as the metric was declared or registered."""
        if config.higher_is_better is not None:
            return config.higher_is_better
        known = declared or self._registered(config) or self.helpers.metrics.get(named)
        return known.higher_is_better if known is not None else None

    def _registered(self, config: MetricConfig) -> Metric | RegisteredMetric | None:
        """The registration of a function that a file names."""
        function: object = config.name
        if isinstance(function, str):
            return None
        added = (METRICS[name] for name in METRICS.added)
        by_name = next((each for each in added if function in each.functions.values()), None)
        return by_name or next((each for each in self.helpers.metrics.values() if each.function is function), None)

    def _declared(self, config: MetricConfig, *, processed: bool) -> Metric | None:
        """The metric that a name means. A name that lm-eval does not have belongs to the task's own code first."""
        name = config.name
        if not isinstance(name, str) or name in LM_EVAL_METRICS or processed or name in self.helpers.metrics:
            declared = LM_EVAL_METRICS.get(name) if isinstance(name, str) else None
        else:
            declared = METRICS.get(name) or metric_of_kinds(name)
        is_of_numbers = isinstance(config.aggregation, str) and config.aggregation not in OF_PAIRS
        if declared is not None and name in ALONE and is_of_numbers and not processed:
            return ALONE[str(name)]
        return declared

    def _names(self, declared: Metric | None, kwargs: YAMLMapping, number: int) -> Sequence[str] | None:
        if declared is None or declared.gives is None:
            return ()
        try:
            return declared.gives(**kwargs)
        except (TypeError, ValueError) as error:
            raise self._problem(number, "metric", str(error), "correct its parameters") from None

    def _from_hub(self, config: MetricConfig) -> bool:
        return config.hf_evaluate and self.output_type == GENERATE

    def _function(self, config: MetricConfig, named: str, declared: Metric | None, number: int) -> UserFunction | None:
        """The user's function that a metric is; None where it is one of ours, or passes on what it gets."""
        own = config.name if isinstance(config.fn, NamedMetric) else config.fn
        if callable(own):
            return own
        is_generation = self.output_type == GENERATE
        if declared is not None and self.output_type in declared.functions and not self._from_hub(config):
            return None
        if declared is not None and is_generation and self._is_passed_through(config, declared):
            return None
        function = self.helpers.find_metric(named) if is_generation or named in self.helpers.metrics else None
        if function is not None:
            return function
        if declared is not None:
            fix = f"it scores {', '.join(declared.functions)}"
            raise self._problem(number, "metric", f"metric {named!r} does not score {self.output_type}", fix)
        unfit = {name for name, other in METRICS.items() if self.output_type not in other.functions}
        fitting = [name for name in METRICS.names() if name not in unfit]
        raise self._problem(number, "metric", f"no metric named {named!r}", did_you_mean(named, fitting))

    @staticmethod
    def _is_passed_through(config: MetricConfig, declared: Metric) -> bool:
        aggregation = config.aggregation or declared.aggregation
        return not config.hf_evaluate and (callable(aggregation) or aggregation in OF_PAIRS)

    def _compute(self, name: str, declared: Metric, kwargs: YAMLMapping, number: int) -> Compute:
        function = declared.functions[self.output_type]
        refuse_unusable(declared, f"metric {name!r}", self.place(number, "metric"))
        takes = accepted(function, 2 if self.output_type == GENERATE else 1)
        used = kwargs
        if self.output_type != GENERATE and self.dialect.ignores_kwargs_of_likelihoods:
            # lm-eval hands parameters to generation metrics only, so elsewhere it takes any
            used = {key: value for key, value in kwargs.items() if key in takes.named}
        if self._wrong(name, takes, used, number):
            aggregation = AGGREGATIONS.get(declared.aggregation or "")  # whose parameters are written beside its own
            of_both = {**AGGREGATIONS.accepts(aggregation).named, **takes.named} if aggregation else takes.named
            self._refuse(self._wrong(name, replace(takes, named=of_both), used, number))
            self._refuse(self._wrong(name, takes, used, number))
        if self.output_type == GENERATE:
            prepared = getattr(function, "prepared", None)
            try:
                return of_answers(prepared(**used) if prepared is not None else partial(function, **used))
            except (TypeError, ValueError) as error:
                raise self._problem(number, "metric", f"metric {name!r}: {error}", "correct its parameters") from None
        return partial(function, **used) if used else function

    def _where(self, number: int, key: str = "metric") -> Callable[[str], Place]:
        return lambda each: self.place(number, each or key)

    def _wrong(self, name: str, takes: Accepted, kwargs: YAMLMapping, number: int) -> list[Problem]:
        takes = names_only(takes) if self.dialect.accepts_kwargs_of_other_types else takes
        return METRICS.problems(name, takes, kwargs, self._where(number))

    @staticmethod
    def _refuse(problems: Sequence[Problem]) -> None:
        if problems:
            raise ConfigError(problems)

    def _split(
        self, aggregation: AggregationOrFunction, kwargs: YAMLMapping, number: int
    ) -> tuple[AggregationOrFunction, YAMLMapping]:
        """The aggregation with its parameters, and what is left for the metric: in a file they are written side by side."""
        takes = AGGREGATIONS.accepts(aggregation)
        used = {key: value for key, value in kwargs.items() if key in takes.named}
        left = {key: value for key, value in kwargs.items() if key not in takes.named}
        where = self._where(number, "aggregation")
        if isinstance(aggregation, Aggregation):
            return AGGREGATIONS.bind(aggregation.name, used, where), left
        self._refuse(AGGREGATIONS.problems(function_name(aggregation), takes, used, where))
        return (partial(aggregation, **used) if used else aggregation), left

    def _call(
        self, function: UserFunction, kwargs: YAMLMapping, meaning: "_Meaning", number: int, *, by_one: bool = False
    ) -> MetricCall:
        """How a user's metric is called, with its parameters checked."""
        try:
            call = read_call(function, kwargs, dialect=self.dialect)
            if self.output_type not in (GENERATE, CHOICE) and not call.pair:
                raise Unfit(f"{self.output_type} has no answer to compare", "give it one parameter, `result`")
        except Unfit as error:
            what = f"metric {meaning.name!r} cannot be called: {error}"
            raise self._problem(number, "metric", what, error.fix) from None
        if by_one and not self.dialect.calls_metrics_as_lm_eval:  # lm-eval itself gives one at a time
            call = call.for_one_reference()
        if not (call.pair and self.dialect.ignores_kwargs_of_pairs):  # lm-eval calls these without parameters
            self._refuse(self._wrong(meaning.name, call.takes, kwargs, number))
        return call

    def _called(self, call: MetricCall, kwargs: YAMLMapping, named: str, better: bool | None) -> "_Computation":
        if call.pair and (self.output_type != GENERATE or self.dialect.ignores_kwargs_of_pairs):
            kwargs = {key: value for key, value in kwargs.items() if key in call.takes.named}
        if call.pair and self.output_type != GENERATE:
            return _Computation(partial(call.function, **kwargs))
        if self.dialect.calls_metrics_as_lm_eval and call.is_called_by_lm_eval:
            return _Computation(call.by_each_reference(kwargs, named, higher_is_better=better))
        compute = call.computing(kwargs, named, higher_is_better=better)
        in_order = call.sees_references and not self.dialect.calls_metrics_as_lm_eval
        return _Computation(of_choice(compute) if self.output_type == CHOICE else compute, sees_references=in_order)

    def _aggregation(
        self, config: MetricConfig, named: str, declared: Metric | None, number: int
    ) -> AggregationOrFunction:
        aggregation_named: object = config.aggregation
        registered = self._registered(config)
        if aggregation_named is None and registered is not None:
            aggregation_named = registered.aggregation
        elif aggregation_named is None and declared is None and named in self.helpers.metrics:
            aggregation_named = self.helpers.metrics[named].aggregation
        if isinstance(aggregation_named, str) and aggregation_named not in AGGREGATIONS:
            aggregation_named = self.helpers.aggregations.get(aggregation_named, aggregation_named)
        if callable(aggregation_named):
            return aggregation_named
        if aggregation_named is None:
            aggregation_named = "mean" if declared is None else declared.aggregation  # of user code, as seed 001 has it
        if aggregation_named is None:
            fix = "add `aggregation: mean`"
            raise self._problem(number, "metric", f"metric {named!r} has no aggregation", fix)
        if aggregation_named == "median" and self.dialect.takes_upper_median:
            aggregation_named = "median_high"
        if aggregation_named not in AGGREGATIONS:
            what = f"no aggregation named {aggregation_named!r}"
            raise self._problem(number, "aggregation", what, did_you_mean(str(aggregation_named), AGGREGATIONS.names()))
        aggregation = AGGREGATIONS[str(aggregation_named)]
        need_library(aggregation.needs, self.place(number, "aggregation"), f"aggregation {aggregation.name!r}")
        return aggregation

    def _reductions(self, config: MetricConfig, named: str, number: int, *, processed: bool) -> MetricReductions:
        registered = self._registered(config) or self.helpers.metrics.get(named)
        written: UserValue = config.reduction
        if written is None and isinstance(registered, RegisteredMetric):
            written = registered.reduction
        if isinstance(written, str):
            written = self.helpers.reductions.get(written, written)
        reductions = bound_reductions(written, self.repeats, self.place(number, "reduction"))
        if reductions.replacing is not None and processed:
            fix = "reduce in process_results, or leave `process_results` out"
            raise self._problem(
                number, "reduction", "it takes references, and process_results computes the scores", fix
            )
        return reductions

    def _problem(self, number: int, key: str, what: str, fix: str) -> ConfigError:
        return ConfigError.at(self.place(number, key), what, fix)


def bound_reductions(written: UserValue, repeats: int, place: Place) -> MetricReductions:
    """The reductions that a metric or a scorer names, for a task of so many repeats."""
    try:
        reductions = read_reductions(written)
    except LookupError as error:
        known = [name if name[-1].isalnum() else f"{name}4" for name in REDUCTIONS.names()]
        fix = did_you_mean(error.args[0], known)
        raise ConfigError.at(place, f"no reduction named {error.args[0]!r}", fix) from None
    except ValueError as error:
        raise ConfigError.at(place, str(error), "see docs/scorers.md") from None
    if reductions.least > repeats:
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
                problems[metric.place] = Problem(metric.place or Place(metric.name), what, fix)
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
    binder = MetricBinder(
        config.output_type if config is not None else scorer.output_types[0],
        lambda *steps: Place(f"scorer {scorer.name!r}, metric_list{list(steps)}"),
        NO_HELPERS,
        repeats=config.repeats if config is not None else 1,
    )
    return binder.bind(resolve_functions(chosen, _no_code), processed=hasattr(scorer, "process_results_fn"))


def bind_one(scorer: "Scorer", metric: MetricConfig) -> BoundMetric:
    """A metric that a scorer of the user's chooses itself, in its `get_metrics`."""
    output_type = scorer.config.output_type if scorer.config is not None else scorer.output_types[0]
    place = Place(f"get_metrics of scorer {scorer.name!r}")
    binder = MetricBinder(output_type, lambda *_: place, NO_HELPERS)
    [bound] = binder.bind((resolve_functions(metric, _no_code),), processed=False)
    return bound


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
