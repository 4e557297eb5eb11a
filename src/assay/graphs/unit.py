"""Unit metrics: what was right next to what was predicted, of one record, to a verdict with a score.

A unit metric is a class derived from UnitMetric, or a function of both; `@unit_metric("name")` makes it known
(graphs/unit_table.py).
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.registry import dress

NOT_GIVEN = float("nan")
"""The score, where none is given: then it follows from the verdict. It is this object and no other one that is no number."""


@dataclass(frozen=True)
class UnitMetricResult:
    """The verdict about one record, what it is about, and its score: 1 or 0 unless the metric gives another."""

    correct: bool
    golden: dict[str, Any]
    predicted: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    score: float = NOT_GIVEN

    def __post_init__(self) -> None:
        if not (isinstance(self.golden, dict) and isinstance(self.predicted, dict)):
            name = "predicted" if isinstance(self.golden, dict) else "golden"
            raise ValueError(f"{name} must be a mapping, and is {getattr(self, name)!r:.60}")
        score = float(self.correct) if self.score is NOT_GIVEN else float(self.score)
        if not math.isfinite(score):
            raise ValueError(f"a score must be a finite number, and is {score}")
        object.__setattr__(self, "score", score)
        object.__setattr__(self, "correct", bool(self.correct))
        object.__setattr__(self, "metadata", self.metadata if isinstance(self.metadata, dict) else {})

    def to_dict(self) -> dict[str, Any]:
        """Itself as JSON can say it: numbers that are not finite become null."""
        return {
            "correct": self.correct,
            "golden": finite(self.golden),
            "predicted": finite(self.predicted),
            "metadata": finite(self.metadata),
            "score": self.score,
        }

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> "UnitMetricResult":
        """The result that a mapping describes; one of SyGra has no score."""
        correct, score = bool(written.get("correct", False)), written.get("score")
        return cls(
            correct,
            dict(written.get("golden") or {}),
            dict(written.get("predicted") or {}),
            dict(written.get("metadata") or {}),
            float(correct) if score is None else float(score),
        )


_ALWAYS_FINITE = frozenset((str, bool, int, type(None)))


def finite(value: Any) -> Any:
    """A value without infinities, which JSON does not have, however deep."""
    if type(value) in _ALWAYS_FINITE:  # most of them: to ask what a text is not would take longer than all else
        return value
    if type(value) is dict:
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value


class MetricMetadata:
    """What a metric says about itself; anything more may be given, too."""

    def __init__(self, **said: Any) -> None:
        self.name = said.get("name", "")
        self.display_name = said.get("display_name", self.name)
        self.description = said.get("description", "")
        self.range = said.get("range", (0.0, 1.0))
        self.higher_is_better = said.get("higher_is_better", True)
        self.metric_type = said.get("metric_type", "custom")
        self.__dict__.update(said)


class UnitMetric:
    """The class to derive a unit metric from. Override `compare`, of one record, or `evaluate`, of several.

    Its constructor's parameters are its YAML keys. `like_sygra` means that what is missing is taken for an empty text.
    """

    like_sygra = False
    runs_code = False

    def __init__(self, **config: Any) -> None:
        self.config = config

    def compare(self, golden: Any, predicted: Any) -> UnitMetricResult:
        raise NotImplementedError(f"{type(self).__name__} has neither `compare` nor `evaluate`")

    def evaluate(self, golden: list[Any], predicted: list[Any]) -> list[UnitMetricResult]:
        """The verdict about each record."""
        if len(golden) != len(predicted):
            raise ValueError(f"there are {len(golden)} golden and {len(predicted)} predicted values")
        return [self.compare(right, given) for right, given in zip(golden, predicted, strict=True)]

    def validate_config(self) -> None:
        """For classes written for SyGra, which call it in their constructors."""

    def get_metadata(self) -> MetricMetadata:
        return MetricMetadata(name=self.get_metric_name(), description=inspect.getdoc(type(self)) or "")

    def get_metric_name(self) -> str:
        return str(getattr(getattr(self, "metadata", None), "name", "")) or type(self).__name__


def metric_of(name: str, function: Callable[..., Any]) -> type[UnitMetric]:
    """A function of golden and predicted values as a class. It gives a verdict, a score, or a whole result."""

    class OfFunction(UnitMetric):
        def compare(self, golden: Any, predicted: Any) -> UnitMetricResult:
            given = function(golden, predicted, **self.config)
            if isinstance(given, UnitMetricResult):
                return given
            correct = given if isinstance(given, bool) else float(given) >= 1
            return UnitMetricResult(
                correct, as_mapping(golden), as_mapping(predicted), {"validator": name}, float(given)
            )

    dress(OfFunction, function, name)
    return OfFunction


def as_mapping(value: Any) -> dict[str, Any]:
    """A value as a result holds it: a mapping as it is, anything else as its text."""
    return dict(value) if isinstance(value, Mapping) else {"text": value}
