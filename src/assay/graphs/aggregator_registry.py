"""Aggregator metrics by name: those that come along, assay's aggregations, and those that users add."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from assay.dialect import Dialect
from assay.errors import ConfigError, Place, library_problem
from assay.graphs.aggregator_metrics import (
    AccuracyMetric,
    AggregatorMetric,
    F1ScoreMetric,
    NoResults,
    NumberEvidence,
    PassAtKMetric,
    PassPowerKMetric,
    PrecisionMetric,
    RecallMetric,
    StepEfficiencyMetric,
    Tally,
    metric_of,
)
from assay.graphs.spec import Record, Value
from assay.graphs.sygra_aggregators import sygra_aggregators
from assay.graphs.sygra_classes import MetricRegistry, UnitMetricResult
from assay.records import JSONDict, UserFunction, UserValue
from assay.registry import Registry, subclass_of
from assay.signatures import accepted, give_parameters
from assay.statistics.aggregations import AGGREGATIONS, MEDIANS, Aggregation

OF_SCORES = ("mean", *MEDIANS, "nanmean", "perplexity", "bypass")
OF_WEIGHTED_SCORES = ("weighted_perplexity", "bits_per_byte")
OF_ONE_CLASS = ("class_precision", "class_recall", "class_f1")


def of_scores(result: UnitMetricResult) -> float:
    return result.score


def of_weighted_scores(result: UnitMetricResult, *, weight_key: str = "weight") -> tuple[float, Value]:
    return result.score, result.metadata[weight_key]


def of_one_class(
    result: UnitMetricResult, *, label: str, golden_key: str = "text", predicted_key: str = "text"
) -> tuple[int, int, int]:
    """Whether a class was found, given, right."""
    right, predicted = str(result.golden.get(golden_key)) == label, str(result.predicted.get(predicted_key)) == label
    return int(right and predicted), int(predicted), int(right)


def of_documents(result: UnitMetricResult, *, predicted_key: str = "text") -> tuple[Value, Value]:
    return result.predicted.get(predicted_key), result.golden


def of_pairs(result: UnitMetricResult, *, golden_key: str = "text", predicted_key: str = "text") -> tuple[Value, Value]:
    return result.golden.get(golden_key), result.predicted.get(predicted_key)


def values_of(name: str) -> UserFunction:
    """Return the function that reads the value for an aggregation from a unit result."""
    kinds = ((OF_SCORES, of_scores), (OF_WEIGHTED_SCORES, of_weighted_scores), (OF_ONE_CLASS, of_one_class))
    known: dict[str, UserFunction] = {each: function for names, function in kinds for each in names}
    return known.get(name, of_documents if name == "acc_all" else of_pairs)


def adapted(aggregation: Aggregation) -> type[AggregatorMetric]:
    """An aggregation of assay as a class of aggregator metrics: over scores, or over golden and predicted values."""
    value_of, name = values_of(aggregation.name), aggregation.name
    keys = accepted(value_of, 1).named

    class OfAggregation(AggregatorMetric):
        def __init__(self, **config: UserValue) -> None:
            super().__init__(**config)
            problem = library_problem(aggregation.needs, f"aggregation {name!r}", Place(f"aggregator metric {name!r}"))
            if problem is not None:
                raise ConfigError([problem])
            self._reading = {key: value for key, value in config.items() if key in keys}
            self._rest = {key: value for key, value in config.items() if key not in keys}

        def numbers(self) -> Sequence[str]:
            return (name,)

        def tally(self) -> Tally:
            return _Values(aggregation, self._reading, self._rest)

        def evidence(self, tally: Tally) -> Mapping[str, NumberEvidence]:
            assert isinstance(tally, _Values)
            return {name: tally.evidence()}

    OfAggregation.__name__ = OfAggregation.__qualname__ = f"Aggregator_{name}"
    OfAggregation.__doc__ = aggregation.function.__doc__
    give_parameters(OfAggregation, keys, accepted(aggregation.function, 1).named)
    return OfAggregation


class _Values:
    """Collects the value that an aggregation needs of every unit result."""

    def __init__(self, aggregation: Aggregation, reading: Record, rest: Record) -> None:
        self._aggregation, self._reading, self._rest = aggregation, reading, rest
        self._value_of, self._values = values_of(aggregation.name), list[Value]()

    def add(self, result: UnitMetricResult) -> None:
        self._values.append(self._value_of(result, **self._reading))

    def value(self) -> JSONDict:
        if not self._values:
            raise NoResults
        return {self._aggregation.name: self.evidence().aggregation.function(self._values)}

    def evidence(self) -> NumberEvidence:
        return NumberEvidence(self._aggregation.bound(self._rest), self._values)


OWN: dict[str, type[AggregatorMetric]] = {
    **{name: adapted(aggregation) for name, aggregation in AGGREGATIONS.items()},
    "accuracy": AccuracyMetric,
    "precision": PrecisionMetric,
    "recall": RecallMetric,
    "f1_score": F1ScoreMetric,
    "pass@k": PassAtKMetric,
    "pass_at_k": PassAtKMetric,
    "pass^k": PassPowerKMetric,
    "step_efficiency": StepEfficiencyMetric,
}


def _adopted(name: str, thing: UserValue) -> type[AggregatorMetric]:
    """A class of aggregator metrics, or a function of all unit results as one."""
    return subclass_of(AggregatorMetric)(name, metric_of(name, thing) if inspect.isroutine(thing) else thing)


AGGREGATOR_METRICS: Registry[type[AggregatorMetric], AggregatorMetric] = Registry(
    "aggregator metric", OWN, group="assay.aggregator_metrics", adopt=_adopted
)
AggregatorMetricRegistry = MetricRegistry(
    AGGREGATOR_METRICS, lambda name: AGGREGATOR_METRICS.find(name, Place(f"aggregator metric {name!r}"))
)
"""The same by SyGra's name, with its methods."""
Decorated = TypeVar("Decorated", bound=UserFunction)


def aggregator_metric(name: str) -> Callable[[Decorated], Decorated]:
    """Make a class or function known as an aggregator metric by a name.

    A class is derived from AggregatorMetric. A function takes the list of all unit results and keyword parameters, and
    gives a number or a mapping.
    """
    return AGGREGATOR_METRICS.register(name)


def make_aggregator(name: str, params: Record, place: Place, dialect: Dialect) -> AggregatorMetric:
    """Make the aggregator metric that a name means: SyGra's where the dialect defines it as there."""
    sygras = sygra_aggregators(dialect)
    if name not in sygras:
        return AGGREGATOR_METRICS.bind(name, params, place)
    registry: Registry[type[AggregatorMetric], AggregatorMetric] = Registry("aggregator metric", sygras)
    return registry.bind(name, params, place)
