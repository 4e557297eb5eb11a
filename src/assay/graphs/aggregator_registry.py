"""Aggregator metrics by name: those that come along, the aggregations of statistics, and those that users add."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from assay.dialect import Dialect
from assay.errors import Place
from assay.graphs import aggregator_metrics as own
from assay.graphs.aggregator_metrics import Collation, collate_values
from assay.graphs.spec import Record, Value
from assay.graphs.sygra_aggregators import sygra_aggregators
from assay.graphs.sygra_classes import AggregatorMetric, MetricRegistry, UnitMetricResult, declare_aggregator_class
from assay.records import JSONDict, UserFunction, UserValue
from assay.registry import AdaptedMembers, Registry, RegistryWithOthers, subclass_of
from assay.scoring.metric_binding import need_library
from assay.signatures import accepted, dress, unreturned
from assay.statistics.aggregations import AGGREGATIONS, MEDIANS, Aggregation

MakeCollation = Callable[..., Collation]
"""An aggregator metric: a function of its parameters in a file."""

# --- aggregations of statistics -------------------------------------------------------------------------------------------


def read_score(result: UnitMetricResult) -> float:
    return result.score


def read_weighted_score(result: UnitMetricResult, *, weight_key: str = "weight") -> tuple[float, Value]:
    return result.score, result.metadata[weight_key]


def read_hits(
    result: UnitMetricResult, *, label: str, golden_key: str = "text", predicted_key: str = "text"
) -> tuple[int, int, int]:
    """Whether a class was found, given, right."""
    right, predicted = str(result.golden.get(golden_key)) == label, str(result.predicted.get(predicted_key)) == label
    return int(right and predicted), int(predicted), int(right)


def read_document(result: UnitMetricResult, *, predicted_key: str = "text") -> tuple[Value, Value]:
    return result.predicted.get(predicted_key), result.golden


def read_pair(
    result: UnitMetricResult, *, golden_key: str = "text", predicted_key: str = "text"
) -> tuple[Value, Value]:
    return result.golden.get(golden_key), result.predicted.get(predicted_key)


READERS: Mapping[str, UserFunction] = {
    **dict.fromkeys(("mean", *MEDIANS, "nanmean", "perplexity", "bypass"), read_score),
    **dict.fromkeys(("weighted_perplexity", "bits_per_byte"), read_weighted_score),
    **dict.fromkeys(("class_precision", "class_recall", "class_f1"), read_hits),
    "acc_all": read_document,
}
"""By aggregation what it is over; the others of assay are over golden and predicted values, those of users over scores."""


def of_aggregation(name: str, aggregation: Aggregation) -> MakeCollation:
    """An aggregation of task metrics as an aggregator metric, with its parameters."""
    is_users = name in AGGREGATIONS.added
    read = READERS.get(name, read_score if is_users else read_pair)
    reads = accepted(read, 1)

    def make(**params: UserValue) -> Collation:
        need_library(aggregation.needs, Place(f"aggregator metric {name!r}"), f"aggregation {name!r}")
        of_reader = {key: value for key, value in params.items() if key in reads.named}
        others = {key: value for key, value in params.items() if key not in reads.named}
        collation = collate_values(name, partial(read, **of_reader), aggregation.bound(others))
        return replace(collation, numbers=None) if is_users else collation

    make.sentence = aggregation.sentence  # type: ignore[attr-defined]  # for `assay ls`
    return dress(make, aggregation.function, [reads, AGGREGATIONS.accepts(aggregation)])


# --- names ----------------------------------------------------------------------------------------------------------------


def _made_by(name: str, thing: UserValue) -> MakeCollation:
    """A class of aggregator metrics, or a function of all unit results, as a function of the parameters."""
    if not inspect.isroutine(thing):
        return declare_aggregator_class(subclass_of(AggregatorMetric)(name, thing))
    function: UserFunction = thing
    wrong = unreturned(function)
    if wrong is not None:
        raise TypeError(f"aggregator metric {name!r} {wrong[0]}: {wrong[1]}")

    def make(**params: UserValue) -> Collation:
        def summarize(results: Sequence[UnitMetricResult]) -> JSONDict:
            numbers = function(results, **params)
            return dict(numbers) if isinstance(numbers, Mapping) else {name: numbers}

        return Collation(read=lambda result: result, summarize=summarize, counts_nothing=True)

    return dress(make, function, [accepted(function, 1)])


AGGREGATOR_METRICS: Registry[MakeCollation, Collation] = RegistryWithOthers(
    "aggregator metric",
    {
        "accuracy": own.accuracy,
        "precision": own.precision,
        "recall": own.recall,
        "f1_score": own.f1_score,
        "pass@k": own.chance_of_one,
        "pass_at_k": own.chance_of_one,
        "pass^k": own.chance_of_all,
        "step_efficiency": own.step_efficiency,
    },
    AdaptedMembers(AGGREGATIONS, of_aggregation),
    group="assay.aggregator_metrics",
    adopt=_made_by,
)


def aggregator_class(name: str, make: MakeCollation) -> type[AggregatorMetric]:  # noqa: ARG001  # the shape of a stand-in
    """The class that stands for an aggregator metric in SyGra's registry."""

    class DeclaredAggregator(AggregatorMetric):
        def __init__(self, **config: UserValue) -> None:
            super().__init__(**config)
            self._collation: Collation = make(**config)

        def numbers(self) -> Sequence[str] | None:
            return self._collation.numbers

        def calculate(self, results: Sequence[UnitMetricResult]) -> JSONDict:
            return self._collation.calculate(results)

    return dress(DeclaredAggregator, make, [accepted(make)])


AggregatorMetricRegistry = MetricRegistry(AGGREGATOR_METRICS, aggregator_class)
"""The same by SyGra's name, with its methods."""
Decorated = TypeVar("Decorated", bound=UserFunction)


def aggregator_metric(name: str) -> Callable[[Decorated], Decorated]:
    """Make a class or function known as an aggregator metric by a name.

    A class is derived from AggregatorMetric. A function takes the list of all unit results and keyword parameters, and
    gives a number or a mapping.
    """
    return AGGREGATOR_METRICS.register(name)


def make_aggregator(name: str, params: Record, place: Place, dialect: Dialect) -> Collation:
    """Make the aggregator metric that a name means: SyGra's where the dialect defines it as there."""
    sygras = sygra_aggregators(dialect)
    known: Registry[MakeCollation, Collation] = (
        Registry("aggregator metric", sygras) if name in sygras else AGGREGATOR_METRICS
    )
    return known.bind(name, params, place)
