"""Distributions of a task's scores: histogram, calibration, slices."""

import math
from collections.abc import Sequence
from typing import Any

from assay.records import AnyJSON
from assay.report.plots import Bin, Interval
from assay.statistics.calibration import CurvePoint, likeliest, reliability_curve
from assay.statistics.influence import SHARE, Bounds, Estimate, Spread, with_pseudo_documents
from assay.viewer.sample_page import parse_json
from assay.viewer.samples import SOURCE, Samples, quoted

MAX_BINS, MAX_SLICES, MAX_SAMPLES = 20, 20, 5000
"""Bars of a histogram, slices of a plot, and samples read for calibration."""


def score_bins(samples: Samples) -> list[Bin]:
    """Count each score: value by value where there are few, else in bins of equal width."""
    if samples.metric not in samples.scores:
        return []
    name = quoted(samples.metric)
    counted = f"select {name}, count(*) from {SOURCE} where isfinite({name}) group by 1 order by 1 limit 13"
    few = samples.database.rows(counted, [samples.file])
    if len(few) <= 12:
        return [Bin(value, value, count) for value, count in few]
    ends = f"select min({name}), max({name}) from {SOURCE} where isfinite({name})"
    [[low, high]] = samples.database.rows(ends, [samples.file])
    width = (high - low) / MAX_BINS
    which = f"least(cast(floor(({name} - ?) / ?) as integer), {MAX_BINS - 1})"
    query = f"select {which}, count(*) from {SOURCE} where isfinite({name}) group by 1"
    counts: dict[int, int] = dict(samples.database.rows(query, [low, width, samples.file]))
    return [Bin(low + at * width, low + (at + 1) * width, counts.get(at, 0)) for at in range(MAX_BINS)]


def slice_intervals(samples: Samples, column: str) -> list[Interval]:
    """The mean score by value of a column, the largest slices first; numbers that hardly repeat are cut into fifths."""
    if samples.metric not in samples.scores or column not in samples.document_columns():
        return []
    term, own = samples.term(f"doc.{column}")
    name = quoted(samples.metric)
    parts = f"select {term} as part, {name} as score from {SOURCE} where isfinite({name})"
    summed = "count(*), avg(score), stddev_samp(score), kurtosis_pop(score), min(score), max(score), bool_and(score in (0, 1))"
    query = (
        f"select part, {summed}, count(*) over () from ({parts}) group by part order by 2 desc, 1 limit {MAX_SLICES}"
    )
    rows = samples.database.rows(query, [*own, samples.file])
    if rows and rows[0][8] > MAX_SLICES:
        numbers = f"select try_cast(part as double) as part, score from ({parts})"
        fifths = f"select *, ntile(5) over (order by part) as fifth from ({numbers}) where part is not null"
        within = f"select min(part), max(part), {summed} from ({fifths}) group by fifth order by 1"
        binned = samples.database.rows(within, [*own, samples.file])
        rows = [(f"{low:g} … {high:g}", *rest) for low, high, *rest in binned] or rows
    return [slice_of(str(name), summary, samples.scale) for name, *summary in rows]


def slice_of(name: str, summary: Sequence[Any], scale: Bounds | None) -> Interval:
    """A slice of the samples: their mean, with the interval of a task made of these samples alone."""
    count, mean, deviation, kurtosis, least, most, is_right_or_wrong, *_ = summary
    is_rate = is_right_or_wrong and scale in (None, SHARE)
    bounds = SHARE if is_rate else scale if scale is not None and scale[0] <= least and most <= scale[1] else None
    error = deviation / math.sqrt(count) if deviation is not None and count > 1 else None
    number = Estimate(mean, error, count, is_rate=is_rate, bounds=bounds)
    if error is not None and bounds is not None:
        carriers = (count / (kurtosis + 3) if kurtosis is not None else float(count)) if error else 0.0
        spread = with_pseudo_documents(Spread(error**2, count - 1.0, mean), float(count), carriers, bounds)
        number = number.but(spread=spread)
    return Interval(name, mean, number.low, number.high, f"n {count:,}")


def value_count(samples: Samples, column: str) -> int:
    """Count the values of a document column."""
    term, own = samples.term(f"doc.{column}")
    [[count]] = samples.database.rows(f"select count(distinct {term}) from {SOURCE}", [*own, samples.file])
    return int(count)


def calibration_points(samples: Samples) -> list[CurvePoint]:
    """For tasks with choices: by tenths of confidence, how often the likeliest choice is right, on the first
    samples.
    """
    if "responses.value" not in samples.stored.leaves:
        return []
    columns = "list_transform(responses, lambda repeats: repeats[1].value), len(choices), coalesce(gold, target)"
    query = f"select {columns} from {SOURCE} where choices is not null and failed is null limit {MAX_SAMPLES}"
    points = [
        confidence(values, choices, parse_json(gold, None))
        for values, choices, gold in samples.database.rows(query, [samples.file])
    ]
    return reliability_curve([point for point in points if point is not None])


def confidence(likelihoods: Sequence[float | None], choices: int, gold: AnyJSON) -> tuple[float, bool] | None:
    """The probability of the likeliest choice among all, and whether it is right; None where it is undefined.

    >>> confidence([0.0, 0.0], 2, 0)
    (0.5, True)
    """
    values = [value for value in likelihoods[:choices] if value is not None and math.isfinite(value)]
    if len(values) != choices or not values or not isinstance(gold, int):
        return None
    share, best = likeliest(values)
    return share, best == gold
