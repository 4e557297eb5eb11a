"""The metrics a task names, made ready: everything about them that can be wrong is found here, before any request."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Never

from assay.config.option import YAMLMapping
from assay.config.task import MetricConfig, NamedMetric
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.records import Function, MetricValue
from assay.registry import Accepted, accepted, library_problem, names_only, read_signature
from assay.scoring.metrics.table import DEFAULTS, LM_EVAL_METRICS, METRICS, pair
from assay.scoring.metrics.text import ALONE
from assay.scoring.reductions import REDUCTIONS, MetricReductions, read_reductions
from assay.scoring.results import GENERATE, DeclaredMetric, GenResult, Metric, Repeated, Result, best
from assay.statistics.aggregations import AGGREGATIONS, Aggregation
from assay.tasks.runnable import AggregationOrFunction
from assay.tasks.settings import Helpers, UserFunction

OF_PAIRS = ("f1", "matthews_corrcoef", "bleu", "chrf", "chrf++", "ter")
"""Aggregations of references with answers."""

Compute = Callable[[Any], MetricValue]
"""Computes the value of a metric from the result of a document."""
ScorePair = Callable[[Any, Any], MetricValue]
"""Compares one reference, or all, with an answer."""


class MetricBinder:
    """Binds the metrics of one task. `place(number, key)` returns the place of an entry of its metric_list."""

    def __init__(
        self, output_type: str, place: Callable[..., Place], helpers: Helpers, *, lenient: bool, repeats: int = 1
    ) -> None:
        self.output_type = output_type
        self.place = place
        self.helpers = helpers
        self.lenient = lenient
        self.repeats = repeats

    def bind(self, configs: Sequence[MetricConfig] | None, *, processed: bool) -> list[Metric]:
        """The metrics; `processed` means that a function of the task computes the values, and only the rest is needed.

        What is wrong with any of them is raised together.
        """
        if configs is None:
            return [] if processed else [self._default(name) for name in DEFAULTS[self.output_type]]
        bound: list[Metric] = []
        problems: list[Problem] = []
        for number, config in enumerate(configs):
            try:
                bound.append(self._metric(config, number, processed=processed))
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(problems)
        return _distinct(bound)

    def _default(self, name: str) -> Metric:
        declared = METRICS[name]
        compute = self._compute(name, declared, {}, 0)
        return Metric(name, compute, declared.aggregation, declared.higher_is_better, MetricReductions())

    def _metric(self, config: MetricConfig, number: int, *, processed: bool) -> Metric:
        named = config.name if isinstance(config.name, str) else function_name(config.name)
        declared = self._declared(config, processed=processed) if isinstance(config.fn, NamedMetric) else None
        function = None if processed else self._function(config, named, declared, number)
        aggregation = self._aggregation(config, named, declared, number)
        compute: Callable[[Any], Any] = _never
        gives: Sequence[str] | None = ()
        if not processed:
            aggregation, kwargs = self._split(aggregation, config.kwargs, number)
            if function is not None:
                compute = self._adapted(function, kwargs, named, number, self._better(config, named, declared))
            elif declared is not None and self.output_type in declared.functions and not self._from_hub(config):
                compute = self._compute(named, declared, kwargs, number)
                gives = () if config.hf_evaluate else self._names(declared, config.kwargs, number)
            else:
                # lm-eval's own metrics hand reference and answer on to an aggregation that knows what to do with them
                compute = _passed_through
        better = self._better(config, named, declared)
        is_known = isinstance(aggregation, Aggregation) and AGGREGATIONS.get(aggregation.name) is aggregation
        by_name = aggregation.name if isinstance(aggregation, Aggregation) and is_known else aggregation
        return Metric(named, compute, by_name, better, self._reductions(config, number), gives)

    def _better(self, config: MetricConfig, named: str, declared: DeclaredMetric | None) -> bool | None:
        """Whether more is better: as the file says, else as the metric was declared or registered."""
        if config.higher_is_better is not None:
            return config.higher_is_better
        known = declared or self.helpers.metrics.get(named)
        return known.higher_is_better if known is not None else None

    def _declared(self, config: MetricConfig, *, processed: bool) -> DeclaredMetric | None:
        """The metric that a name means. A name that lm-eval does not have belongs to the task's own code first."""
        name = config.name
        if not isinstance(name, str) or name in LM_EVAL_METRICS or processed or name in self.helpers.metrics:
            declared = LM_EVAL_METRICS.get(name) if isinstance(name, str) else None
        else:
            declared = METRICS.get(name)
        is_of_numbers = isinstance(config.aggregation, str) and config.aggregation not in OF_PAIRS
        if declared is not None and name in ALONE and is_of_numbers and not processed:
            return ALONE[str(name)]
        return declared

    def _names(self, declared: DeclaredMetric | None, kwargs: YAMLMapping, number: int) -> Sequence[str] | None:
        if declared is None or declared.gives is None:
            return ()
        try:
            return declared.gives(**kwargs)
        except (TypeError, ValueError) as error:
            raise self._problem(number, "metric", str(error), "correct its parameters") from None

    def _from_hub(self, config: MetricConfig) -> bool:
        return config.hf_evaluate and self.output_type == GENERATE

    def _function(
        self, config: MetricConfig, named: str, declared: DeclaredMetric | None, number: int
    ) -> UserFunction | None:
        """The user's function that a metric is; None where it is one of the table, or passes on what it gets."""
        own = config.name if isinstance(config.fn, NamedMetric) else config.fn
        if callable(own):
            return own
        is_generation = self.output_type == GENERATE
        if declared is not None and self.output_type in declared.functions and not self._from_hub(config):
            return None
        if declared is not None and is_generation and self._is_passed_through(config, declared):
            return None
        function = self.helpers.find_metric(named) if is_generation else None
        if function is not None:
            return function
        if declared is not None:
            fix = f"it scores {', '.join(declared.functions)}"
            raise self._problem(number, "metric", f"metric {named!r} does not score {self.output_type}", fix)
        unfit = {name for name, other in METRICS.items() if self.output_type not in other.functions}
        fitting = [name for name in METRICS.names() if name not in unfit]
        raise self._problem(number, "metric", f"no metric named {named!r}", did_you_mean(named, fitting))

    @staticmethod
    def _is_passed_through(config: MetricConfig, declared: DeclaredMetric) -> bool:
        aggregation = config.aggregation or declared.aggregation
        return not config.hf_evaluate and (callable(aggregation) or aggregation in OF_PAIRS)

    def _compute(self, name: str, declared: DeclaredMetric, kwargs: YAMLMapping, number: int) -> Compute:
        function = declared.functions[self.output_type]
        _need(declared.needs, self.place(number, "metric"), f"metric {name!r}")
        obstacle = declared.obstacle() if declared.obstacle is not None else None
        if obstacle is not None:
            what, fix = obstacle
            raise self._problem(number, "metric", f"metric {name!r} cannot work here: {what}", fix)
        takes = accepted(function, 2 if self.output_type == GENERATE else 1)
        used = kwargs
        if self.lenient and self.output_type != GENERATE:
            # lm-eval hands parameters to generation metrics only, so elsewhere it takes any
            used = {key: value for key, value in kwargs.items() if key in takes.named}
        self._refuse(self._wrong(name, takes, used, number))
        if self.output_type == GENERATE and _shape(function) == "names":
            return self._adapted(function, kwargs, name, number, declared.higher_is_better)
        if self.output_type == GENERATE:
            prepared = getattr(function, "prepared", None)
            try:
                return _of_answers(prepared(**used) if prepared is not None else partial(function, **used))
            except (TypeError, ValueError) as error:
                raise self._problem(number, "metric", f"metric {name!r}: {error}", "correct its parameters") from None
        return partial(function, **used) if used else function

    def _where(self, number: int, key: str = "metric") -> Callable[[str], Place]:
        return lambda each: self.place(number, each or key)

    def _wrong(self, name: str, takes: Accepted, kwargs: YAMLMapping, number: int) -> list[Problem]:
        return METRICS.problems(name, names_only(takes) if self.lenient else takes, kwargs, self._where(number))

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

    def _adapted(
        self, function: UserFunction, kwargs: YAMLMapping, named: str, number: int, better: bool | None
    ) -> Compute:
        """A user's metric with its parameters, called as its signature wants to be: see `_shape`."""
        shape = _shape(function)
        takes = accepted(function, {"names": 0, "pair": 1, "answers": 2}[shape])
        if shape == "names":
            own = {key: each for key, each in takes.named.items() if key not in ("references", "predictions")}
            takes = replace(takes, named=own, lacking=0)
        if shape == "pair" and self.lenient:  # lm-eval calls these without parameters
            kwargs = {key: value for key, value in kwargs.items() if key in takes.named}
        self._refuse(self._wrong(named, takes, kwargs, number))
        if shape == "answers":
            return _of_answers(partial(function, **kwargs) if kwargs else function)
        score = _by_name(function, kwargs) if shape == "names" else _by_pair(function, kwargs)
        return _best_of_references(score, named, better)

    def _aggregation(
        self, config: MetricConfig, named: str, declared: DeclaredMetric | None, number: int
    ) -> AggregationOrFunction:
        aggregation_named: object = config.aggregation
        if aggregation_named is None and declared is None and named in self.helpers.metrics:
            aggregation_named = self.helpers.metrics[named].aggregation
        if isinstance(aggregation_named, str) and aggregation_named not in AGGREGATIONS:
            aggregation_named = self.helpers.aggregations.get(aggregation_named, aggregation_named)
        if callable(aggregation_named):
            return aggregation_named
        if aggregation_named is None and not isinstance(config.fn, NamedMetric):
            aggregation_named = "mean"
        if aggregation_named is None:
            if declared is None or declared.aggregation is None:
                fix = "add `aggregation: mean`"
                raise self._problem(number, "metric", f"metric {named!r} has no aggregation", fix)
            aggregation_named = declared.aggregation
        if aggregation_named not in AGGREGATIONS:
            what = f"no aggregation named {aggregation_named!r}"
            raise self._problem(number, "aggregation", what, did_you_mean(str(aggregation_named), AGGREGATIONS.names()))
        aggregation = AGGREGATIONS[str(aggregation_named)]
        _need(aggregation.needs, self.place(number, "aggregation"), f"aggregation {aggregation.name!r}")
        return aggregation

    def _reductions(self, config: MetricConfig, number: int) -> MetricReductions:
        try:
            reductions = read_reductions(config.reduction)
        except LookupError as error:
            what = f"no reduction named {error.args[0]!r}"
            known = [name if name[-1].isalnum() else f"{name}4" for name in REDUCTIONS.names()]
            raise self._problem(number, "reduction", what, did_you_mean(error.args[0], known)) from None
        except ValueError as error:
            raise self._problem(number, "reduction", str(error), "see docs/scorers.md") from None
        if reductions.least > self.repeats:
            what = f"needs {reductions.least} repeats, but the task has {self.repeats}"
            raise self._problem(
                number, "reduction", what, f"write `repeats: {reductions.least}` or more, or give --repeats"
            )
        return reductions

    def _problem(self, number: int, key: str, what: str, fix: str) -> ConfigError:
        return ConfigError([Problem(self.place(number, key), what, fix)])


def function_name(function: UserFunction | Function) -> str:
    """The name of a function, also of one with some arguments given, or of the class of an object that can be called."""
    if isinstance(function, partial):
        return function_name(function.func)
    return str(getattr(function, "__name__", type(function).__name__))


def _distinct(metrics: list[Metric]) -> list[Metric]:
    """Metrics whose added rows have different names: where two would share one, it names the metric, too."""
    taken = Counter(row for metric in metrics for row in metric.reductions.added)
    taken.update(metric.name for metric in metrics)
    return [
        replace(metric, reductions=replace(metric.reductions, added={
            row if taken[row] == 1 else f"{row}({metric.name})": reduce for row, reduce in metric.reductions.added.items()
        }))
        for metric in metrics
    ]  # fmt: skip


def _need(module: str | None, place: Place, what: str) -> None:
    problem = library_problem(module, what, place)
    if problem is not None:
        raise ConfigError([problem])


def _never(result: Result) -> Never:  # noqa: ARG001
    raise AssertionError("the task computes its own values")


def _of_answers(score: ScorePair) -> Compute:
    """A metric of references and an answer as one of results; of several answers it gives the score of each."""

    def compute(result: GenResult) -> MetricValue:
        answer = result.answer
        if not isinstance(answer, list):
            return score(result.references, answer)
        if not answer:
            raise ValueError("the filter leaves no answer")
        return Repeated([score(result.references, each) for each in answer])

    return compute


def _passed_through(result: GenResult) -> MetricValue:
    return pair(result.references, result.answer)


def _by_name(function: UserFunction, kwargs: YAMLMapping) -> ScorePair:
    return lambda reference, answer: function(references=[reference], predictions=[answer], **kwargs)


def _by_pair(function: UserFunction, kwargs: YAMLMapping) -> ScorePair:
    return lambda reference, answer: function([reference, answer], **kwargs)


def _best_of_references(score: ScorePair, named: str, higher_is_better: bool | None) -> Compute:
    """A metric of one reference as one of results: of several references the best value counts."""

    def compute(result: GenResult) -> MetricValue:
        answer = result.answer
        scores = [score(reference, answer) for reference in result.references]
        if result.any_counts:
            return 1.0 if any(each[named] if isinstance(each, Mapping) else each for each in scores) else 0.0
        return best(scores, higher_is_better=higher_is_better, metric=named)

    return compute


def _shape(function: UserFunction) -> Literal["answers", "names", "pair"]:
    """How a user's metric is called, read from its signature and never found out by trying.

    "answers": as ours, with all references and a prediction; "names": as lm-eval does, with `references` and
    `predictions` of one; "pair": with one list of both.

    >>> _shape(lambda references, prediction, *, weight=0.5: 0), _shape(lambda items: 0)
    ('answers', 'pair')
    """
    try:
        parameters = read_signature(function).parameters
    except (TypeError, ValueError):
        return "names"
    if {"references", "predictions"} <= set(parameters):
        return "names"
    positional = [
        each for each in parameters.values() if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    required = sum(each.default is each.empty for each in positional)
    if required >= 2 or any(each.name == "prediction" for each in positional[1:2]):
        return "answers"
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return "names" if takes_any and not required else "pair"
