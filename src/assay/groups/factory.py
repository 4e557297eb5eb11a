"""Aggregators by name. A new one is a class and a row here, or an entry point `assay.aggregators` of a plug-in."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from assay.config.group import AggMetricConfig, GroupConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.groups.aggregators import (
    Aggregator,
    CustomAggregator,
    DifferenceAggregator,
    GeometricMeanAggregator,
    HarmonicMeanAggregator,
    MaxAggregator,
    MeanAggregator,
    MedianAggregator,
    MinAggregator,
    NoOpAggregator,
    PassAtKAggregator,
    SeveralAggregators,
    WeightedSumAggregator,
)
from assay.registry import Table

PLUGINS = "assay.aggregators"

AGGREGATORS: Table[type[Aggregator]] = Table(
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
)

Places = Callable[[int], Place]


def register_aggregator(name: str) -> Callable[[type[Aggregator]], type[Aggregator]]:
    """Have a class known by a name in YAML."""
    return lambda kind: AGGREGATORS.add(name, kind)


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
        if len({(type(each), repr(entry.kwargs)) for each, entry in zip(made, entries, strict=True)}) > 1:
            return SeveralAggregators(config, made)
        made[0].config, made[0].agg_metric_configs = config, entries
        return made[0] if not isinstance(made[0], CustomAggregator) else SeveralAggregators(config, made)


def _one(config: GroupConfig, entry: AggMetricConfig, place: Place) -> Aggregator:
    """The aggregator of one entry, with its parameters."""
    if callable(entry.aggregation):
        return CustomAggregator(config, entry.aggregation, **dict(entry.kwargs or {}))
    kind = _kind(str(entry.aggregation), place)
    kwargs = dict(entry.kwargs or {})
    known = [name for name in inspect.signature(kind.__init__).parameters if name not in ("self", "config")]
    wrong = [key for key in kwargs if key not in known]
    if wrong:
        what = f"aggregator {entry.aggregation!r} has no parameter {wrong[0]!r}"
        raise ConfigError([Problem(place, what, did_you_mean(wrong[0], known))])
    try:
        return kind(config, **kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            [Problem(place, f"aggregator {entry.aggregation!r}: {error}", "see docs/groups.md")]
        ) from None


def _kind(name: str, place: Place) -> type[Aggregator]:
    if name not in AGGREGATORS:
        _load_plugins()
    return AGGREGATORS.find(name, place)


def _load_plugins() -> None:
    from importlib.metadata import entry_points

    for plugin in entry_points(group=PLUGINS):
        if plugin.name not in AGGREGATORS:
            found: Any = plugin.load()
            AGGREGATORS.add(plugin.name, found)
