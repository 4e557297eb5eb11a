"""Aggregators by name. A new one is a class and a row here, or an entry point `assay.aggregators` of a plug-in."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from assay.config.group import AggMetricConfig, GroupConfig
from assay.errors import ConfigError, Place, Problem
from assay.groups.aggregators import (
    Aggregator,
    AggregatorList,
    CustomAggregator,
    DifferenceAggregator,
    FunctionOfScores,
    GeometricMeanAggregator,
    HarmonicMeanAggregator,
    MaxAggregator,
    MeanAggregator,
    MedianAggregator,
    MinAggregator,
    NoOpAggregator,
    PassAtKAggregator,
    WeightedSumAggregator,
)
from assay.registry import Table, accepted, parameter_problems, subclass_of

AGGREGATORS: Table[type[Aggregator], Aggregator] = Table(
    "aggregator",
    {
        "mean": MeanAggregator,
        "harmonic_mean": HarmonicMeanAggregator,
        "geometric_mean": GeometricMeanAggregator,
        "median": MedianAggregator,
        "min": MinAggregator,
        "max": MaxAggregator,
        "difference": DifferenceAggregator,
        "weighted_sum": WeightedSumAggregator,
        "pass@k": PassAtKAggregator,
        "none": NoOpAggregator,
    },
    group="assay.aggregators",
    supplied=("config",),
    adopt=subclass_of(Aggregator),  # type: ignore[type-abstract]  # its subclasses are not
)

Places = Callable[[int], Place]


def register_aggregator(name: str) -> Callable[[type[Aggregator]], type[Aggregator]]:
    """Have a class known by a name in YAML."""
    return AGGREGATORS.register(name)


class AggregatorFactory:
    """Makes the aggregator that a group's configuration describes."""

    @staticmethod
    def create_aggregator(config: GroupConfig, place: Places | None = None) -> Aggregator:
        """One for the whole list where all its entries are alike; else one for each. Every problem is told at once."""
        entries = tuple(config.aggregate_metric_list or ())
        if not entries:
            return NoOpAggregator(config)
        where = place or (lambda number: Place(f"group {config.group!r}, aggregate_metric_list[{number}]"))
        made: list[Aggregator] = []
        problems: list[Problem] = []
        for number, entry in enumerate(entries):
            try:
                made.append(_one(dataclasses.replace(config, aggregate_metric_list=(entry,)), entry, where(number)))
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(problems)
        kinds = {(type(each), repr(entry.kwargs)) for each, entry in zip(made, entries, strict=True)}
        if len(kinds) > 1 or isinstance(made[0], CustomAggregator):  # a function is that of one entry
            return AggregatorList(config, made)
        made[0].config, made[0].agg_metric_configs = config, entries
        return made[0]


def _one(config: GroupConfig, entry: AggMetricConfig, place: Place) -> Aggregator:
    """The aggregator of one entry, with its parameters."""
    kwargs = dict(entry.kwargs or {})
    wanted: Any = entry.aggregation
    if isinstance(wanted, str) or (inspect.isclass(wanted) and issubclass(wanted, Aggregator)):
        return AGGREGATORS.bind(wanted, kwargs, place, config)
    kind = FunctionOfScores if "weight_by_size" in accepted(wanted, 2).named else CustomAggregator
    supplied = 3 if kind is FunctionOfScores else 2
    name = getattr(wanted, "__name__", "function")
    problems = parameter_problems(wanted, kwargs, f"aggregator {name!r}", place, supplied)
    if problems:
        raise ConfigError(problems)
    return kind(config, wanted, **kwargs)
