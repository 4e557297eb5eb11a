"""SyGra's own definitions, for dialects that have them: kept as they are, so that its numbers can be reproduced.

Precision averages over predicted classes, recall over golden ones, and the average F1 is the harmonic mean of these two
averages; labels are compared as they are written; pass@k takes all records for attempts at one problem, and pass^k is a
power of their rate; a step without a name is the step "unknown"; of nothing, everything is 0.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from assay.dialect import Dialect
from assay.graphs.aggregator_metrics import (
    STEP,
    STEP_NUMBERS,
    AccuracyTally,
    AggregatorMetric,
    StepTally,
    Tally,
)
from assay.graphs.spec import Record
from assay.graphs.sygra_classes import UnitMetricResult
from assay.records import JSONDict
from assay.statistics.classes import f1_of_rates
from assay.statistics.pass_at_k import pass_at_k


class _Rates:
    """By label of one side, how many records have it and how many of them are correct."""

    def __init__(self, side: str, key: str) -> None:
        self._side, self._key = side, key
        self._count, self._correct = Counter[str](), Counter[str]()

    def add(self, result: UnitMetricResult) -> None:
        value = getattr(result, self._side)
        if self._key in value:
            self._count[str(value[self._key])] += 1
            self._correct[str(value[self._key])] += bool(result.correct)

    def by_class(self) -> dict[str, float]:
        return {label: self._correct[label] / count for label, count in self._count.items()}

    def average(self) -> float:
        rates = self.by_class()
        return sum(rates.values()) / len(rates) if rates else 0.0


class _Named(_Rates):
    def __init__(self, name: str, side: str, key: str) -> None:
        super().__init__(side, key)
        self._name = name

    def value(self) -> JSONDict:
        return {f"average_{self._name}": self.average(), f"{self._name}_per_class": self.by_class()}


class _BothRates:
    def __init__(self, predicted_key: str, golden_key: str) -> None:
        self._predicted, self._right = _Rates("predicted", predicted_key), _Rates("golden", golden_key)

    def add(self, result: UnitMetricResult) -> None:
        self._predicted.add(result)
        self._right.add(result)

    def value(self) -> JSONDict:
        precision, recall = self._predicted.by_class(), self._right.by_class()
        labels = dict.fromkeys([*precision, *recall])
        return {
            "average_f1_score": f1_of_rates(self._predicted.average(), self._right.average()),
            "f1_score_per_class": {
                label: f1_of_rates(precision.get(label, 0.0), recall.get(label, 0.0)) for label in labels
            },
        }


class _Pooled:
    """All records, taken for attempts at one problem."""

    def __init__(self, k: int, *, power: bool) -> None:
        self._k, self._power = k, power
        self._n = self._correct = 0

    def add(self, result: UnitMetricResult) -> None:
        self._n += 1
        self._correct += bool(result.correct)

    def value(self) -> JSONDict:
        rate = self._correct / self._n if self._n else 0.0
        sizes = range(1, self._k + 1)
        if self._power:
            return {"success_rate": rate, **{f"pass^{k}": rate**k for k in sizes}}
        return {f"pass@{k}": pass_at_k(self._n, self._correct, k) if k <= self._n else 0.0 for k in sizes}


class _AccuracyOrZero(AccuracyTally):
    def value(self) -> JSONDict:
        return super().value() if self.verdicts else {"accuracy": 0.0}


class _Steps(StepTally):
    def step(self, metadata: Record) -> tuple[str, ...]:
        return tuple(str(metadata.get(column, "unknown")) for column in STEP)

    def number(self, metadata: Record, before: int) -> int:  # noqa: ARG002
        return super().number(metadata, 0)

    def value(self) -> JSONDict:
        return self.summary()


@dataclass(kw_only=True)
class Accuracy(AggregatorMetric):
    """The share of correct records; 0 of none."""

    key: str | None = None

    def numbers(self) -> Sequence[str]:
        return ("accuracy",)

    def tally(self) -> Tally:
        return _AccuracyOrZero()


@dataclass(kw_only=True)
class Precision(AggregatorMetric):
    """By predicted class, and the mean over these."""

    predicted_key: str

    def numbers(self) -> Sequence[str]:
        return ("average_precision",)

    def tally(self) -> Tally:
        return _Named("precision", "predicted", self.predicted_key)


@dataclass(kw_only=True)
class Recall(AggregatorMetric):
    """By golden class, and the mean over these."""

    golden_key: str

    def numbers(self) -> Sequence[str]:
        return ("average_recall",)

    def tally(self) -> Tally:
        return _Named("recall", "golden", self.golden_key)


@dataclass(kw_only=True)
class F1Score(AggregatorMetric):
    """By class; the average is the harmonic mean of average precision and average recall."""

    predicted_key: str
    golden_key: str

    def numbers(self) -> Sequence[str]:
        return ("average_f1_score",)

    def tally(self) -> Tally:
        return _BothRates(self.predicted_key, self.golden_key)


@dataclass(kw_only=True)
class PassAtK(AggregatorMetric):
    """Of all records together."""

    k: int

    def numbers(self) -> Sequence[str]:
        return [f"pass@{k}" for k in range(1, self.k + 1)]

    def tally(self) -> Tally:
        return _Pooled(self.k, power=False)


@dataclass(kw_only=True)
class PassPowerK(AggregatorMetric):
    """Powers of the rate of correct records."""

    k: int

    def numbers(self) -> Sequence[str]:
        return ["success_rate", *(f"pass^{k}" for k in range(1, self.k + 1))]

    def tally(self) -> Tally:
        return _Pooled(self.k, power=True)


@dataclass(kw_only=True)
class StepEfficiency(AggregatorMetric):
    """Steps without a name are one step; attempts without a number are first ones."""

    penalty_per_retry: float = 0.2
    key: str | None = None

    def numbers(self) -> Sequence[str]:
        return STEP_NUMBERS

    def tally(self) -> Tally:
        return _Steps(self.penalty_per_retry, STEP)


def sygra_aggregators(dialect: Dialect) -> dict[str, type[AggregatorMetric]]:
    """Return the aggregator metrics that a dialect defines as SyGra does, by name."""
    metrics: dict[str, type[AggregatorMetric]] = {}
    if dialect.scores_nothing_as_zero:
        metrics["accuracy"] = Accuracy
    if dialect.averages_classes_as_sygra:
        metrics |= {"precision": Precision, "recall": Recall, "f1_score": F1Score}
    if dialect.pools_attempts:
        metrics |= {"pass@k": PassAtK, "pass_at_k": PassAtK, "pass^k": PassPowerK}
    if dialect.takes_unnamed_steps_for_one:
        metrics["step_efficiency"] = StepEfficiency
    return metrics
