"""Aggregator metrics: the unit results of all records to what a report says of them.

An aggregator metric makes a tally, which looks at one unit result after the other and keeps only what it needs; a class
written for SyGra has `calculate`, which is given all of them at once.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from assay.registry import dress
from assay.statistics.aggregations import AGGREGATIONS, Aggregation


class UnitResult(Protocol):
    """The verdict of a unit metric about one record."""

    @property
    def correct(self) -> bool: ...
    @property
    def score(self) -> float: ...
    @property
    def golden(self) -> Mapping[str, Any]: ...
    @property
    def predicted(self) -> Mapping[str, Any]: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...


class Tally(Protocol):
    """An aggregation at work."""

    def add(self, result: UnitResult) -> None: ...
    def value(self) -> dict[str, Any]: ...


class Evidence(NamedTuple):
    """What a number was made of: an aggregation, and its values, one of every unit result. Its error follows from them."""

    aggregation: Aggregation
    values: Sequence[Any]


class Kept:
    """All unit results, for what must have them at once."""

    def __init__(self, metric: "AggregatorMetric") -> None:
        self._metric, self._results = metric, list[UnitResult]()

    def add(self, result: UnitResult) -> None:
        self._results.append(result)

    def value(self) -> dict[str, Any]:
        return dict(self._metric.calculate(self._results))


class AggregatorMetric:
    """The class to derive an aggregator metric from. Override `tally`, or `calculate`.

    Its constructor's parameters are its YAML keys. `columns` are the columns of the records that it looks at: a report
    puts them into the metadata of the unit results.
    """

    def __init__(self, **config: Any) -> None:
        self.config = config

    @property
    def columns(self) -> Sequence[str]:
        return ()

    def lacks(self, columns: Collection[str]) -> tuple[str, str] | None:  # noqa: ARG002  # most need none
        """What it cannot work without, and what to do, where the metadata will have these columns."""
        return None

    def numbers(self) -> Sequence[str] | None:
        """The names of the numbers that it gives; None where only its code knows."""
        return None

    def tally(self) -> Tally:
        return Kept(self)

    def evidence(self, tally: Tally) -> Mapping[str, Evidence]:  # noqa: ARG002  # most have none
        """By name of a number what it was made of, where its error can be told from that."""
        return {}

    def calculate(self, results: Sequence[UnitResult]) -> dict[str, Any]:
        """What there is to say of these unit results."""
        if type(self).tally is AggregatorMetric.tally:
            raise NotImplementedError(f"{type(self).__name__} has neither `tally` nor `calculate`")
        return tallied(self, results)

    def validate_config(self) -> None:
        """For classes written for SyGra, which call it in their constructors."""

    def get_metadata(self) -> Any:
        return None

    def get_metric_name(self) -> str:
        return str(getattr(getattr(self, "metadata", None), "name", "")) or type(self).__name__

    def _count_correct(self, results: Sequence[UnitResult]) -> int:
        return sum(result.correct for result in results)

    def _safe_divide(self, numerator: float, denominator: float) -> float:
        return numerator / denominator if denominator else 0.0


class NoResults(ValueError):
    """There is nothing to aggregate: that is no number."""

    def __init__(self) -> None:
        super().__init__("there are no unit results")


def tallied(metric: AggregatorMetric, results: Iterable[UnitResult]) -> dict[str, Any]:
    tally = metric.tally()
    for result in results:
        tally.add(result)
    return tally.value()


def metric_of(name: str, function: Any) -> type[AggregatorMetric]:
    """A function of all unit results, with keyword parameters, as a class. It gives a number or a mapping."""

    class OfFunction(AggregatorMetric):
        def calculate(self, results: Sequence[UnitResult]) -> dict[str, Any]:
            given = function(results, **self.config)
            return dict(given) if isinstance(given, Mapping) else {name: given}

    dress(OfFunction, function, name)
    return OfFunction


@dataclass(kw_only=True)
class AccuracyMetric(AggregatorMetric):
    """The share of records that are correct. `key` changes nothing: SyGra's configurations write it."""

    key: str | None = None

    def numbers(self) -> Sequence[str]:
        return ("accuracy",)

    def tally(self) -> Tally:
        return _Share()

    def evidence(self, tally: Tally) -> Mapping[str, Evidence]:
        assert isinstance(tally, _Share)
        return {"accuracy": Evidence(AGGREGATIONS["mean"], tally.verdicts.tolist())}


class _Share:
    def __init__(self) -> None:
        self.verdicts = array("b")

    def add(self, result: UnitResult) -> None:
        self.verdicts.append(bool(result.correct))

    def value(self) -> dict[str, Any]:
        if not self.verdicts:
            raise NoResults
        return {"accuracy": sum(self.verdicts) / len(self.verdicts)}
