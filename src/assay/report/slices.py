"""The number of a task on parts of its samples: by the values of a column of its documents."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import orjson

from assay.config.row_names import row_name
from assay.records import Estimate, ScoreKey
from assay.report.plots import Interval
from assay.runs.samples.records import StoredSample
from assay.statistics.aggregations import mean
from assay.statistics.estimates import sample_deviation
from assay.statistics.intervals import interval

MOST, LEAST = 12, 5
"""A column that nobody asked for is shown with at most so many values, of at least so many samples each."""
BEYOND = 1000
"""Values of a column after which it is no column of parts."""


class Values:
    """The scores of a task under one name, by column and value of the documents."""

    def __init__(self, key: ScoreKey) -> None:
        self._name = row_name(key)
        self.columns: dict[str, dict[str, list[float]]] = {}
        self._dropped: set[str] = set()
        self._total, self._count = 0.0, 0

    @property
    def mean(self) -> float:
        return self._total / self._count if self._count else math.nan

    def add(self, row: StoredSample) -> None:
        value = row.scores.get(self._name)
        if not isinstance(value, int | float):
            return
        self._total, self._count = self._total + value, self._count + 1
        doc = orjson.loads(row.doc)
        for column, told in doc.items() if isinstance(doc, dict) else ():
            if column not in self._dropped and isinstance(told, str | bool | int) and len(str(told)) <= 80:
                parts = self.columns.setdefault(str(column), defaultdict(list))
                parts[str(told)].append(float(value))
                if len(parts) > BEYOND:
                    self._dropped.add(column)
                    del self.columns[column]


def sliced(values: Values, number: float | None, wanted: Sequence[str] = ()) -> Mapping[str, Sequence[Interval]]:
    """By column its parts, the lowest first. A number that is no mean of its documents has none."""
    if number is None or not math.isclose(values.mean, number, rel_tol=1e-9, abs_tol=1e-12):
        return {}
    found = {
        column: parts for column, parts in values.columns.items() if column in wanted or (not wanted and _speaks(parts))
    }
    return {
        column: sorted((_part(name, own) for name, own in parts.items()), key=lambda each: each.value)
        for column, parts in found.items()
    }


def _speaks(parts: Mapping[str, Sequence[float]]) -> bool:
    """Whether a column divides the samples into a few parts of some size."""
    return 2 <= len(parts) <= MOST and all(len(own) >= LEAST for own in parts.values())


def _part(name: str, own: Sequence[float]) -> Interval:
    deviation = sample_deviation(own) if len(own) > 1 else None
    return part(name, mean(own), deviation, len(own), is_rate=set(own) <= {0, 1})


def part(name: str, value: float, deviation: float | None, count: int, *, is_rate: bool) -> Interval:
    """A part of the samples: their mean, with the interval that a task of these samples alone would have."""
    error = deviation / math.sqrt(count) if deviation is not None and count > 1 else None
    ends = interval(Estimate(value, error, count, is_rate=is_rate))
    low, high = ends if ends is not None else (None, None)
    return Interval(name, value, low, high, f"n {count:,}")
