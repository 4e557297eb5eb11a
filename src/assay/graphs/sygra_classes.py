"""SyGra's classes for metrics, from which users derive their own, and its registries.

Inside, a metric is a declaration: a class becomes one when it is registered, and a declaration becomes a class where SyGra's
registry or one of its modules is asked for it.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from assay.errors import ConfigError, Place
from assay.extension_points import ExtensionPoint
from assay.graphs.aggregator_metrics import Collation
from assay.graphs.spec import Record, Value
from assay.records import JSONDict, UserFunction, UserValue, number
from assay.registry import Registry, refused
from assay.scoring.declarations import RECORD, Metric, prepared
from assay.signatures import accepted, dress
from assay.statistics.influence import Bounds

T = TypeVar("T")
NOT_GIVEN = float("nan")
"""A missing score, which then follows from the verdict. Compared by identity: another nan is a score that is not a number."""


def lost_result(reason: str) -> JSONDict:
    """The place of a result that a unit metric could not compute: neither right nor wrong."""
    return {"failed": reason}


def why_lost(cell: Value) -> str | None:
    """The reason where a column has no unit result because computing it failed.

    >>> why_lost(lost_result("no bbox")), why_lost({"correct": False, "failed": "twice"})
    ('no bbox', None)
    """
    is_lost = isinstance(cell, Mapping) and "failed" in cell and "correct" not in cell
    return str(cell["failed"]) if is_lost else None


def is_unit_result(cell: Value) -> bool:
    """Whether a value is meant as a unit result."""
    return isinstance(cell, UnitMetricResult) or (isinstance(cell, Mapping) and "correct" in cell)


def unit_value(cell: Value) -> float | None:
    """The score in a unit result; None where a value is not one."""
    if isinstance(cell, UnitMetricResult):
        return cell.score
    if not is_unit_result(cell):
        return None
    if cell.get("score") is not None:
        score = number(cell["score"])
        return None if score is None else float(score)
    correct = number(cell["correct"])
    return float(correct) if correct is not None and 0 <= correct <= 1 else None


@dataclass(frozen=True)
class UnitMetricResult:
    """The verdict about one record, what it is about, and its score: 1 or 0 unless the metric gives another."""

    correct: bool
    golden: JSONDict
    predicted: JSONDict
    metadata: JSONDict = field(default_factory=dict)
    score: float = NOT_GIVEN

    def __post_init__(self) -> None:
        if not (isinstance(self.golden, dict) and isinstance(self.predicted, dict)):
            name = "predicted" if isinstance(self.golden, dict) else "golden"
            raise ValueError(f"{name} must be a mapping, got {getattr(self, name)!r:.60}")
        score = float(self.correct) if self.score is NOT_GIVEN else float(self.score)
        if not math.isfinite(score):
            raise ValueError(f"a score must be a finite number, got {score}")
        object.__setattr__(self, "score", score)
        object.__setattr__(self, "correct", bool(self.correct))
        object.__setattr__(self, "metadata", self.metadata if isinstance(self.metadata, dict) else {})

    def to_dict(self) -> JSONDict:
        """Itself as JSON can say it: numbers that are not finite become null."""
        return {
            "correct": self.correct,
            "golden": finite(self.golden),
            "predicted": finite(self.predicted),
            "metadata": finite(self.metadata),
            "score": self.score,
        }

    @classmethod
    def from_dict(cls, written: Record) -> "UnitMetricResult":
        """The result that a mapping describes; one of SyGra has no score."""
        score = written.get("score")
        golden, predicted, metadata = (dict(written.get(key) or {}) for key in ("golden", "predicted", "metadata"))
        return cls(bool(written.get("correct")), golden, predicted, metadata, NOT_GIVEN if score is None else score)


_ALWAYS_FINITE = frozenset((str, bool, int, type(None)))


def finite(value: Value) -> Value:
    """A value without infinities, which JSON does not have, however deep."""
    if type(value) in _ALWAYS_FINITE:  # most of them: to ask what a text is not would take longer than all else
        return value
    if type(value) is dict:
        if _ALWAYS_FINITE.issuperset(map(type, value.values())):
            return dict(value)
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value


def as_mapping(value: Value) -> JSONDict:
    """A value as a result holds it: a mapping as it is, anything else as its text."""
    return dict(value) if isinstance(value, Mapping) else {"text": value}


class MetricMetadata:
    """A metric's description of itself; further keys are accepted."""

    name, description, metric_type = "", "", "custom"
    range = (0.0, 1.0)
    higher_is_better = True

    def __init__(self, **said: UserValue) -> None:
        self.__dict__.update({"display_name": said.get("name", ""), **said})


class SygraMetric:
    """Both of SyGra's base classes: the constructor's parameters are the keys of a file."""

    def __init__(self, **config: UserValue) -> None:
        self.config = config

    def validate_config(self) -> None:
        """For classes written for SyGra, which call it in their constructors."""

    def get_metadata(self) -> Any:
        return MetricMetadata(name=self.get_metric_name(), description=inspect.getdoc(type(self)) or "")

    def get_metric_name(self) -> str:
        return str(getattr(getattr(self, "metadata", None), "name", "")) or type(self).__name__


class UnitMetric(SygraMetric):
    """The class to derive a unit metric from. Override `compare`, of one record, or `evaluate`, of several."""

    higher_is_better = True
    bounds: Bounds | None = None
    """The least and the greatest score of a record, where that is known."""

    def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
        raise NotImplementedError(f"{type(self).__name__} has neither `compare` nor `evaluate`")

    def evaluate(self, golden: list[Value], predicted: list[Value]) -> list[UnitMetricResult]:
        """The verdict about each record."""
        if len(golden) != len(predicted):
            raise ValueError(f"there are {len(golden)} golden and {len(predicted)} predicted values")
        return [self.compare(right, answer) for right, answer in zip(golden, predicted, strict=True)]


_DESCRIBED = ("config", "metadata", "validate_config", "get_metadata", "get_metric_name", "higher_is_better", "bounds")
UNIT_POINT = ExtensionPoint(
    UnitMetric, {"compare": ("golden", "predicted"), "evaluate": ("golden", "predicted")}, _DESCRIBED
)


def declare_unit_class(name: str, kind: type[UnitMetric]) -> Metric:
    """The declaration of a unit metric that a user's class is."""

    def prepare(**params: UserValue) -> UserFunction:
        metric = kind(**params)
        UNIT_POINT.refuse(metric, Place(f"unit metric {name!r}"))
        if kind.compare is UnitMetric.compare and kind.evaluate is UnitMetric.evaluate:
            fix = "write `def compare(self, golden, predicted)`"
            raise ConfigError.at(f"unit metric {name!r}", f"{kind.__name__} has neither `compare` nor `evaluate`", fix)

        def compare(golden: Value, predicted: Value) -> UnitMetricResult:
            results = metric.evaluate([golden], [predicted])
            if len(results) != 1:
                raise ValueError(f"unit metric {name!r} gave {len(results)} results for one record")
            return results[0]

        return compare

    function: Any = prepared(prepare, [accepted(kind)], like=kind)
    function.sygra_class = kind
    return Metric({RECORD: function}, higher_is_better=kind.higher_is_better, bounds=kind.bounds)


class AggregatorMetric(SygraMetric):
    """The class to derive an aggregator metric from. Override `calculate`.

    `columns` are the columns of the records that it looks at: a report puts them into the metadata of the unit results.
    """

    columns: Sequence[str] = ()

    def numbers(self) -> Sequence[str] | None:
        """The names of the numbers that it gives; None where only its code knows."""
        return None

    def calculate(self, results: Sequence[UnitMetricResult]) -> JSONDict:
        """Return the numbers of these unit results."""
        raise NotImplementedError(f"{type(self).__name__} has no `calculate`")

    def get_metadata(self) -> Any:
        return None

    def _count_correct(self, results: Sequence[UnitMetricResult]) -> int:
        return sum(result.correct for result in results)

    def _safe_divide(self, numerator: float, denominator: float) -> float:
        return numerator / denominator if denominator else 0.0


AGGREGATOR_POINT = ExtensionPoint(
    AggregatorMetric,
    {"calculate": ("results",), "numbers": ()},
    (*_DESCRIBED, "columns", "_count_correct", "_safe_divide"),
)


def declare_aggregator_class(kind: type[AggregatorMetric]) -> Callable[..., Collation]:
    """The aggregator metric that a user's class is."""

    def make(**params: UserValue) -> Collation:
        metric = kind(**params)
        AGGREGATOR_POINT.refuse(metric, Place(f"aggregator metric {kind.__name__!r}"))
        about = metric.get_metadata() or getattr(metric, "metadata", None)
        return Collation(
            read=lambda result: result,
            summarize=lambda results: dict(metric.calculate(results)),
            numbers=metric.numbers(),
            columns=metric.columns,
            counts_nothing=True,
            higher_is_better=getattr(about, "higher_is_better", None),
        )

    made: Any = dress(make, kind, [accepted(kind)])
    made.sygra_class = kind
    return make


class MetricRegistry(Generic[T]):
    """A registry by the methods of SyGra's, which gives classes. Users may add classes and replace their own, never built-ins."""

    def __init__(self, registry: Registry[Any, Any], stand_in: Callable[[str, Any], type[T]]) -> None:
        self.registry, self._stand_in = registry, stand_in

    def register(self, name: str, metric_class: type[T]) -> None:
        """Register a class."""
        self.registry[name] = metric_class

    def get_metric(self, name: str, **params: UserValue) -> T:
        """Return a metric with its parameters; raise a ConfigError for a wrong name or parameter."""
        what = f"{self.registry.kind} {name!r}"
        self.registry.check(name, params, Place(what))
        with refused(Place(what), f"{what} cannot be made", "correct its parameters"):
            return self.get_metric_class(name)(**params)

    def get_metric_class(self, name: str) -> type[T]:
        """Return the class that a user registered, or one that stands for a declaration."""
        member = self.registry.find(name, Place(f"{self.registry.kind} {name!r}"))
        function = next(iter(member.functions.values())) if isinstance(member, Metric) else member
        registered: type[T] | None = getattr(function, "sygra_class", None)
        return registered or self._stand_in(name, member)

    def has_metric(self, name: str) -> bool:
        return name in self.registry

    def list_metrics(self) -> list[str]:
        """List all names, sorted."""
        return sorted(self.registry.names())

    def unregister(self, name: str) -> bool:
        """Remove a user's metric; return whether there was one."""
        return name in self.registry.added and bool(self.registry.pop(name))

    def clear(self) -> None:
        """Remove all users' metrics."""
        for name in self.registry.added:
            del self.registry[name]

    def get_metrics_info(self) -> dict[str, dict[str, str]]:
        """Return class and module of every metric by name."""
        kinds = ((name, self.get_metric_class(name)) for name in self.list_metrics())
        return {name: {"class": kind.__name__, "module": kind.__module__} for name, kind in kinds}
