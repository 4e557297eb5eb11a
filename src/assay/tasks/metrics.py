"""The metrics a task names, made ready: everything about them that can be wrong is found here, before any request."""

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from assay.aggregate.functions import AGGREGATIONS, Aggregation
from assay.config.task import MetricConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.registry import library_problem
from assay.scorers.metrics import DEFAULTS, METRICS, Declared, Metric, Repeated, pair
from assay.scorers.reduce import ADDED, PLAIN, Reductions, read_reductions
from assay.scorers.results import GENERATE, GenResult
from assay.scorers.table import ALL_METRICS
from assay.scorers.text_metrics import ALONE
from assay.scorers.values import best
from assay.tasks.settings import Helpers

OF_PAIRS = ("f1", "matthews_corrcoef", "bleu", "chrf", "chrf++", "ter")
"""Aggregations of references with answers."""


class Binder:
    """Binds the metrics of one task. `place(number, key)` says where an entry of its metric_list stands."""

    def __init__(
        self, output_type: str, place: Callable[..., Place], helpers: Helpers, *, lenient: bool, repeats: int = 1
    ) -> None:
        self.output_type = output_type
        self.place = place
        self.helpers = helpers
        self.lenient = lenient
        self.repeats = repeats

    def bind(self, configs: Sequence[MetricConfig] | None, *, processed: bool) -> list[Metric]:
        """The metrics; `processed` means that a function of the task computes the values, and only the rest is needed."""
        if configs is None:
            return [] if processed else [self._default(name) for name in DEFAULTS[self.output_type]]
        return _told_apart([self._metric(config, number, processed=processed) for number, config in enumerate(configs)])

    def _default(self, name: str) -> Metric:
        declared = METRICS[name]
        compute = self._compute(name, declared, {}, 0)
        return Metric(name, compute, declared.aggregation, declared.higher_is_better, Reductions())

    def _metric(self, config: MetricConfig, number: int, *, processed: bool) -> Metric:
        named = config.name if isinstance(config.name, str) else function_name(config.name)
        declared = self._declared(config, processed=processed)
        compute: Callable[[Any], Any] = _never
        gives: Sequence[str] | None = ()
        if not processed and declared is None:
            compute = self._resolved(config, named, None, number)
        aggregation = self._aggregation(config, named, declared, number)
        if not processed and declared is not None:
            parts = _split(config.kwargs, aggregation)
            if parts.aggregation and isinstance(aggregation, Aggregation):
                aggregation = aggregation.bound(parts.aggregation)
            compute = self._resolved(replace(config, kwargs=parts.metric), named, declared, number)
            gives = () if config.hf_evaluate else self._names(declared, config.kwargs, number)
        better = self._better(config, named, declared)
        is_known = isinstance(aggregation, Aggregation) and AGGREGATIONS.get(aggregation.name) is aggregation
        by_name = aggregation.name if isinstance(aggregation, Aggregation) and is_known else aggregation
        return Metric(named, compute, by_name, better, self._reductions(config, number), gives)

    def _better(self, config: MetricConfig, named: str, declared: Declared | None) -> bool | None:
        """Whether more is better: as the file says, else as the metric was declared or registered."""
        if config.higher_is_better is not None:
            return config.higher_is_better
        known = declared or self.helpers.metrics.get(named)
        return known.higher_is_better if known is not None else None

    def _declared(self, config: MetricConfig, *, processed: bool) -> Declared | None:
        """The metric that a name means. A name that lm-eval does not have belongs to the task's own code first."""
        name = config.name
        if not isinstance(name, str) or name in METRICS or processed or name in self.helpers.metrics:
            declared = METRICS.get(name) if isinstance(name, str) else None
        else:
            declared = ALL_METRICS.get(name)
        is_of_numbers = isinstance(config.aggregation, str) and config.aggregation not in OF_PAIRS
        if declared is not None and name in ALONE and is_of_numbers and not processed:
            return ALONE[str(name)]
        return declared

    def _names(self, declared: Declared | None, kwargs: Mapping[str, Any], number: int) -> Sequence[str] | None:
        if declared is None or declared.gives is None:
            return ()
        try:
            return declared.gives(**kwargs)
        except (TypeError, ValueError) as error:
            raise self._problem(number, "metric", str(error), "correct its parameters") from None

    def _resolved(
        self, config: MetricConfig, named: str, declared: Declared | None, number: int
    ) -> Callable[[Any], Any]:
        if callable(config.name):
            return _adapted(config.name, config.kwargs, named, self._better(config, named, declared))
        is_generation = self.output_type == GENERATE
        if (
            declared is not None
            and self.output_type in declared.functions
            and not (config.hf_evaluate and is_generation)
        ):
            return self._compute(named, declared, config.kwargs, number)
        if declared is not None and is_generation and self._is_handed_on(config, declared):
            # lm-eval's own metrics hand reference and answer on to an aggregation that knows what to do with them
            return lambda result: pair(result.references, result.answer)
        found = self.helpers.find_metric(named) if is_generation else None
        if found is not None:
            return _adapted(found, config.kwargs, named, self._better(config, named, declared))
        if declared is not None:
            fix = f"it scores {', '.join(declared.functions)}"
            raise self._problem(number, "metric", f"metric {named!r} does not score {self.output_type}", fix)
        fitting = [name for name, other in ALL_METRICS.items() if self.output_type in other.functions]
        raise self._problem(number, "metric", f"no metric is called {named!r}", did_you_mean(named, fitting))

    @staticmethod
    def _is_handed_on(config: MetricConfig, declared: Declared) -> bool:
        aggregation = config.aggregation or declared.aggregation
        return not config.hf_evaluate and (callable(aggregation) or aggregation in OF_PAIRS)

    def _compute(self, name: str, declared: Declared, kwargs: Mapping[str, Any], number: int) -> Callable[[Any], Any]:
        function = declared.functions[self.output_type]
        _need(declared.needs, self.place(number, "metric"), f"metric {name!r}")
        obstacle = declared.obstacle() if declared.obstacle is not None else None
        if obstacle is not None:
            what, fix = obstacle
            raise self._problem(number, "metric", f"metric {name!r} cannot work here: {what}", fix)
        known = _parameters(function)
        used = {key: value for key, value in kwargs.items() if key in known}
        for key in kwargs:
            # lm-eval hands parameters to generation metrics only, so elsewhere it takes any
            if key not in known and not (self.lenient and self.output_type != GENERATE):
                raise self._problem(number, key, f"metric {name!r} has no parameter {key!r}", did_you_mean(key, known))
        for key, default in known.items():
            if default is inspect.Parameter.empty and key not in used:
                raise self._problem(number, "metric", f"metric {name!r} needs the parameter {key!r}", f"add `{key}:`")
        if self.output_type == GENERATE:
            prepared = getattr(function, "prepared", None)
            try:
                return _of_answers(prepared(**used) if prepared is not None else partial(function, **used))
            except (TypeError, ValueError) as error:
                raise self._problem(number, "metric", f"metric {name!r}: {error}", "correct its parameters") from None
        return lambda result: function(result, **used)

    def _aggregation(
        self, config: MetricConfig, named: str, declared: Declared | None, number: int
    ) -> Aggregation | Callable[..., Any]:
        wanted: object = config.aggregation
        if wanted is None and declared is None and named in self.helpers.metrics:
            wanted = self.helpers.metrics[named].aggregation
        if isinstance(wanted, str) and wanted not in AGGREGATIONS:
            wanted = self.helpers.aggregations.get(wanted, wanted)
        if callable(wanted):
            return wanted
        if wanted is None:
            if declared is None or declared.aggregation is None:
                fix = "add `aggregation: mean`"
                raise self._problem(number, "metric", f"metric {named!r} has no aggregation", fix)
            wanted = declared.aggregation
        if wanted not in AGGREGATIONS:
            what = f"no aggregation is called {wanted!r}"
            raise self._problem(number, "aggregation", what, did_you_mean(str(wanted), AGGREGATIONS))
        found = AGGREGATIONS[str(wanted)]
        _need(found.needs, self.place(number, "aggregation"), f"aggregation {found.name!r}")
        return found

    def _reductions(self, config: MetricConfig, number: int) -> Reductions:
        try:
            found = read_reductions(config.reduction)
        except LookupError as error:
            what = f"no reduction is called {error.args[0]!r}"
            known = [*PLAIN, *(f"{name}4" for name in ADDED)]
            raise self._problem(number, "reduction", what, did_you_mean(error.args[0], known)) from None
        except ValueError as error:
            raise self._problem(number, "reduction", str(error), "see docs/scorers.md") from None
        if found.least > self.repeats:
            what = f"needs {found.least} repeats, and the task has {self.repeats}"
            raise self._problem(number, "reduction", what, f"write `repeats: {found.least}` or more, or give --repeats")
        return found

    def _problem(self, number: int, key: str, what: str, fix: str) -> ConfigError:
        return ConfigError([Problem(self.place(number, key), what, fix)])


def function_name(function: Any) -> str:
    """The name of a function, also of one with some arguments given, or of the class of an object that can be called."""
    if isinstance(function, partial):
        return function_name(function.func)
    return str(getattr(function, "__name__", type(function).__name__))


def _told_apart(metrics: list[Metric]) -> list[Metric]:
    """Metrics whose added rows have different names: where two would share one, it names the metric, too."""
    taken = Counter(row for metric in metrics for row in metric.reductions.added)
    taken.update(metric.name for metric in metrics)
    return [
        replace(metric, reductions=replace(metric.reductions, added={
            row if taken[row] == 1 else f"{row}({metric.name})": reduce for row, reduce in metric.reductions.added.items()
        }))
        for metric in metrics
    ]  # fmt: skip


class Parts(NamedTuple):
    """The parameters of a metric and those of its aggregation, which stand side by side in a file."""

    metric: Mapping[str, Any]
    aggregation: Mapping[str, Any]


def _split(kwargs: Mapping[str, Any], aggregation: object) -> Parts:
    taken = _parameters(aggregation.function) if isinstance(aggregation, Aggregation) else {}
    of_aggregation = {key: value for key, value in kwargs.items() if key in taken}
    return Parts({key: value for key, value in kwargs.items() if key not in taken}, of_aggregation)


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword parameters of a function, with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}


def _need(module: str | None, place: Place, what: str) -> None:
    problem = library_problem(module, what, place)
    if problem is not None:
        raise ConfigError([problem])


def _never(result: Any) -> Any:  # noqa: ARG001
    raise AssertionError("the task computes its own values")


def _of_answers(score: Callable[[list[Any], Any], Any]) -> Callable[[GenResult], Any]:
    """A metric of references and an answer as one of results; of several answers it gives the score of each."""

    def compute(result: GenResult) -> Any:
        answer = result.answer
        if not isinstance(answer, list):
            return score(result.references, answer)
        if not answer:
            raise ValueError("the filter leaves no answer")
        return Repeated([score(result.references, each) for each in answer])

    return compute


def _adapted(
    function: Callable[..., Any], kwargs: Mapping[str, Any], named: str, higher_is_better: bool | None
) -> Callable[[Any], Any]:
    """A user's metric, called as it wants to be: with references and predictions, or with a pair; of several references
    the best value counts.

    Which of the two is read from its signature here, and never found out by trying.
    """
    by_name = _takes_references(function)

    def score(reference: Any, answer: Any) -> Any:
        if by_name:
            return function(references=[reference], predictions=[answer], **kwargs)
        return function([reference, answer])

    def compute(result: GenResult) -> Any:
        answer = result.answer
        references = result.references
        found = [score(reference, answer) for reference in references]
        if result.any_counts:
            return 1.0 if any(each[named] if isinstance(each, Mapping) else each for each in found) else 0.0
        return best(found, higher_is_better=higher_is_better, metric=named)

    return compute


def _takes_references(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return takes_any or {"references", "predictions"} <= set(parameters)
