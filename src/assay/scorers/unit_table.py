"""Unit metrics by name: those that come along, assay's own metrics, and those that users add."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from assay.registry import MetricRegistry
from assay.scorers.unit import UnitMetric, metric_of
from assay.scorers.unit_adapter import ADAPTED_METRICS
from assay.scorers.unit_metrics import UNIT_METRICS

Made = TypeVar("Made", bound=Callable[..., Any])

UnitMetricRegistry: MetricRegistry[UnitMetric] = MetricRegistry(
    "unit metric", UnitMetric, {**ADAPTED_METRICS, **UNIT_METRICS}
)


def unit_metric(name: str) -> Callable[[Made], Made]:
    """Make a class or function known as a unit metric by a name.

    A class is derived from UnitMetric. A function takes what is right, what was predicted, and keyword parameters, and
    gives a verdict, a score (of which 1 is correct), or a UnitMetricResult.
    """

    def register(made: Made) -> Made:
        as_class: Any = made if inspect.isclass(made) else metric_of(name, made)
        UnitMetricRegistry.register(name, as_class)
        return made

    return register
