"""What the scores of a task look like together: how they are distributed, how sure the model was, which parts are worse."""

import math
from collections.abc import Sequence
from typing import Any

from assay.report.document import part
from assay.report.plots import Bin, Calibrated, Interval
from assay.viewer.sample_page import loads
from assay.viewer.samples import SOURCE, Samples, quoted

BINS, PARTS, LOOKED_AT = 20, 20, 5000
"""Bars of a histogram, parts of a slicing, and samples that calibration is computed of."""


def score_bins(samples: Samples) -> list[Bin]:
    """How often each score comes: every value for itself where there are few, else in bins of equal width."""
    if samples.metric not in samples.scores:
        return []
    name = quoted(samples.metric)
    counted = f"select {name}, count(*) from {SOURCE} where isfinite({name}) group by 1 order by 1 limit 13"
    few = samples.database.rows(counted, [samples.file])
    if len(few) <= 12:
        return [Bin(value, value, count) for value, count in few]
    ends = f"select min({name}), max({name}) from {SOURCE} where isfinite({name})"
    [[low, high]] = samples.database.rows(ends, [samples.file])
    width = (high - low) / BINS
    which = f"least(cast(floor(({name} - ?) / ?) as integer), {BINS - 1})"
    query = f"select {which}, count(*) from {SOURCE} where isfinite({name}) group by 1"
    counts = dict(samples.database.rows(query, [low, width, samples.file]))
    return [Bin(low + at * width, low + (at + 1) * width, counts.get(at, 0)) for at in range(BINS)]


def slices_by(samples: Samples, column: str) -> list[Interval]:
    """The mean score of the documents that share a value of a column, the largest parts; numbers that hardly repeat, in fifths."""
    if samples.metric not in samples.scores or column not in samples.document_columns():
        return []
    term, own = samples.term(f"doc.{column}")
    name = quoted(samples.metric)
    parts = f"select {term} as part, {name} as score from {SOURCE} where isfinite({name})"
    summed = "count(*), avg(score), stddev_samp(score), bool_and(score in (0, 1))"
    query = f"select part, {summed}, count(*) over () from ({parts}) group by part order by 2 desc, 1 limit {PARTS}"
    found = samples.database.rows(query, [*own, samples.file])
    if found and found[0][5] > PARTS:
        numbers = f"select try_cast(part as double) as part, score from ({parts})"
        fifths = f"select *, ntile(5) over (order by part) as fifth from ({numbers}) where part is not null"
        within = f"select min(part), max(part), {summed} from ({fifths}) group by fifth order by 1"
        binned = samples.database.rows(within, [*own, samples.file])
        found = [(f"{low:g} … {high:g}", *rest) for low, high, *rest in binned] or found
    return [part(str(name), mean, spread, count, is_rate=is_share) for name, count, mean, spread, is_share, *_ in found]


def value_count(samples: Samples, column: str) -> int:
    """How many values a column of the documents has."""
    term, own = samples.term(f"doc.{column}")
    [[count]] = samples.database.rows(f"select count(distinct {term}) from {SOURCE}", [*own, samples.file])
    return int(count)


def calibrated(samples: Samples) -> list[Calibrated]:
    """For tasks with choices: by tenths of confidence, how often the likeliest choice is right. Of the first samples."""
    if "responses.value" not in samples.stored.leaves:
        return []
    columns = "list_transform(responses, lambda several: several[1].value), len(choices), coalesce(gold, target)"
    query = f"select {columns} from {SOURCE} where choices is not null and failed is null limit {LOOKED_AT}"
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(10)]
    for values, choices, gold in samples.database.rows(query, [samples.file]):
        told = confidence(values, choices, loads(gold, None))
        if told is not None:
            bins[min(int(told[0] * 10), 9)].append(told)
    return [
        Calibrated(sum(sure for sure, _ in each) / len(each), sum(right for _, right in each) / len(each), len(each))
        for each in bins
        if each
    ]


def confidence(likelihoods: Sequence[float | None], choices: int, gold: Any) -> tuple[float, bool] | None:
    """How likely the likeliest choice is among all, and whether it is right; None where that cannot be said.

    >>> confidence([0.0, 0.0], 2, 0)
    (0.5, True)
    """
    values = [value for value in likelihoods[:choices] if value is not None and math.isfinite(value)]
    if len(values) != choices or not values or not isinstance(gold, int):
        return None
    best = max(values)
    return 1 / sum(math.exp(value - best) for value in values), values.index(best) == gold
