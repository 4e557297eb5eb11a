"""Unit metrics by name: those that come along, assay's own metrics, and those that users add."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from assay.graphs.unit import UnitMetric, metric_of
from assay.graphs.unit_adapter import ADAPTED_METRICS
from assay.graphs.unit_metrics import OWN_UNIT_METRICS
from assay.registry import MetricRegistry, Table, subclass_of

Made = TypeVar("Made", bound=Callable[..., Any])


def _adopted(name: str, thing: Any) -> type[UnitMetric]:
    """A class of unit metrics, or a function of golden and predicted values as one."""
    return subclass_of(UnitMetric)(name, metric_of(name, thing) if inspect.isroutine(thing) else thing)


UNIT_METRICS: Table[type[UnitMetric], UnitMetric] = Table(
    "unit metric", {**ADAPTED_METRICS, **OWN_UNIT_METRICS}, group="assay.unit_metrics", adopt=_adopted
)
UnitMetricRegistry = MetricRegistry(UNIT_METRICS)
"""The same by SyGra's name, with its methods."""


def unit_metric(name: str) -> Callable[[Made], Made]:
    """Make a class or function known as a unit metric by a name.

    A class is derived from UnitMetric. A function takes what is right, what was predicted, and keyword parameters, and
    gives a verdict, a score (of which 1 is correct), or a UnitMetricResult.
    """
    return UNIT_METRICS.register(name)
