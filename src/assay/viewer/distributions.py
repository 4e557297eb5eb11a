"""Distributions of a task's scores: histogram and slices."""

import math
from collections.abc import Sequence
from typing import Any

from assay.report.charts import Bin
from assay.report.document import Slice
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.influence import SHARE, Bounds, Spread, clip_to_bounds, with_pseudo_documents
from assay.statistics.intervals import with_interval
from assay.viewer.samples import SOURCE, Samples, quoted

MAX_BINS, MAX_SLICES = 20, 20
"""Bars of a histogram, and slices of a plot."""


def score_bins(samples: Samples) -> list[Bin]:
    """Count each score: value by value where there are few, else in bins of equal width."""
    if samples.metric not in samples.scores:
        return []
    name = quoted(str(samples.metric))
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


def score_slices(samples: Samples, column: str) -> list[Slice]:
    """The mean score by value of a column, the largest slices first; numbers that hardly repeat are cut into fifths."""
    if samples.metric not in samples.scores or column not in (*samples.document_columns(), *more_columns(samples)):
        return []
    term, own = samples.term(_column(samples, column))
    name = quoted(str(samples.metric))
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
    return [Slice(str(name), slice_score(summary, samples.scale)) for name, *summary in rows]


def more_columns(samples: Samples) -> list[str]:
    """Columns beside those of the documents that samples can be sliced by."""
    return [
        "target",
        "audit",
        *(f"answer.{name}" for name in dict.fromkeys(key.filter for key in samples.scores)),
    ]


def _column(samples: Samples, column: str) -> str:
    return f"doc.{column}" if column in samples.document_columns() else column


def slice_score(summary: Sequence[Any], scale: Bounds | None) -> Estimate:
    """The score of a slice of the samples: their mean, with the interval of a task made of these samples alone."""
    count, mean, deviation, kurtosis, least, most, is_right_or_wrong, *_ = summary
    if scale is not None:
        least, most = clip_to_bounds([least, most], scale)
    is_rate = is_right_or_wrong and scale in (None, SHARE)
    bounds = SHARE if is_rate else scale if scale is not None and scale[0] <= least and most <= scale[1] else None
    error = deviation / math.sqrt(count) if deviation is not None and count > 1 else None
    spread = None
    if error is not None and bounds is not None:
        carriers = (count / (kurtosis + 3) if kurtosis is not None else float(count)) if error else 0.0
        spread = with_pseudo_documents(Spread(error**2, count - 1.0, mean), float(count), carriers, bounds)
    evidence = Evidence(is_rate=is_rate, spread=spread)
    return with_interval(Estimate(mean, error, count, scale=bounds, evidence=evidence))


def value_count(samples: Samples, column: str) -> int:
    """Count the values of a column."""
    term, own = samples.term(_column(samples, column))
    [[count]] = samples.database.rows(f"select count(distinct {term}) from {SOURCE}", [*own, samples.file])
    return int(count)
