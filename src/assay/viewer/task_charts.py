"""The charts of a task's page: each counted by DuckDB, with the table of what it draws.

Scores are counted over all samples. What needs the answers is counted over the first MAX_COUNTED, which takes 0.1 s, or over all
where the reader asks for it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from assay.number_text import format_decimal, format_figures, format_interval, format_share
from assay.report.charts import (
    CARD_WIDTH,
    Bin,
    Histogram,
    Panel,
    Point,
    Segment,
    Series,
    Shares,
    draw_part,
    estimate_point,
    reliability_panel,
    reliability_points,
)
from assay.report.document import Slice
from assay.report.drawing import Drawing
from assay.report.report_table import ReportTable, make_table, number_columns
from assay.results import ReliabilityPoint
from assay.statistics.calibration import BINS
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.influence import SHARE, Bounds, Spread, clip_to_bounds, with_pseudo_documents
from assay.statistics.intervals import interval, with_interval
from assay.statistics.pass_at_k import pass_at_k
from assay.viewer.samples import SOURCE, Samples, quoted

MAX_COUNTED = 50_000
"""Samples whose answers are read unless all are asked for: those of a million take longer than a page may."""
MAX_K = 100
MARGIN_BINS = 20
PAIR_BINS = 20
"""Steps of each score in the chart of two runs."""
MAX_WRITTEN = 9
"""Pairs of scores with their number written beside them: scores of 0 and 1 have 4."""
MARGIN_REACH = 10.0
"""Margins are drawn up to this many nats; those beyond are counted at the ends."""
Row = tuple[str, ...]


class ChartCard(NamedTuple):
    """A chart with its title, one sentence about it, and its numbers as a table."""

    name: str
    title: str
    about: str
    drawing: Drawing
    head: Row
    rows: Sequence[Row]

    @property
    def table(self) -> ReportTable:
        """Its numbers as a table."""
        first, *others = self.head
        return make_table([first, *number_columns(*others)], self.rows)


Maker = Callable[[Samples, int | None], ChartCard | None]


def task_charts(samples: Samples, most: int | None = None) -> list[ChartCard]:
    """The charts that the samples of a task allow; answers are read of the first `most` samples, or of all."""
    makers: tuple[Maker, ...] = (
        score_card, reliability_card, margin_card, length_card, pass_at_k_card,
    )  # fmt: skip
    return [
        card
        for make in makers
        if (card := samples.remember((make.__name__, samples.metric, most), lambda make=make: [make(samples, most)])[0])  # type: ignore[misc]
    ]


def score_card(samples: Samples, most: int | None = None) -> ChartCard | None:  # noqa: ARG001  # the shape of all
    """How often each score occurs; scores of 0 and 1 as one bar with their shares."""
    bins = score_bins(samples)
    if not bins:
        return None
    total = sum(each.size for each in bins)
    rows = [(each.ends, f"{each.size:,}", format_share(each.size / total)) for each in bins]
    label = f"{samples.metric} of {total:,} samples"
    head = ("score", "samples", "share")
    if {each.low for each in bins} <= {0.0, 1.0} and all(each.low == each.high for each in bins):
        counts = {each.low: each.size for each in bins}
        both = Shares([Segment("1", counts.get(1.0, 0), "better"), Segment("0", counts.get(0.0, 0), "worse")])
        return ChartCard(
            "scores", "Scores", f"{total:,} samples are 0 or 1", draw_part(both, label, CARD_WIDTH), head, rows
        )
    [[mean]] = samples.database.rows(
        f"select avg({_score(samples)}) from {SOURCE} where {_is_scored(samples)}", [samples.file]
    )
    about = f"mean {format_figures(mean)} of {total:,} samples"
    return ChartCard("scores", "Scores", about, draw_part(Histogram(bins), label, CARD_WIDTH), head, rows)


def _first(most: int | None) -> str:
    return "true" if most is None else f"file_row_number < {int(most)}"


def _score(samples: Samples) -> str:
    return quoted(str(samples.metric))


def _is_scored(samples: Samples) -> str:
    return f"isfinite({_score(samples)})"


VALUES = "list_transform(responses, lambda repeats: repeats[1].value)[1:len(choices)]"
GOLD = "try_cast(coalesce(gold, target) as integer)"


def _likelihoods(samples: Samples, most: int | None) -> str | None:
    """The log-likelihoods of the choices and the number of the right one, of the samples that have them all."""
    if not {"responses.value", "choices"} <= {*samples.stored.leaves, *samples.stored.names}:
        return None
    asked = f"select {VALUES} as v, {GOLD} as gold from {SOURCE} where {_first(most)} and choices is not null and failed is null"
    return (
        f"select v, gold, list_max(v) as best from ({asked}) where len(v) > 1 and gold between 0 and len(v) - 1"
        " and len(list_filter(v, lambda x: x is null or not isfinite(x))) = 0"
    )


def reliability_card(samples: Samples, most: int | None = None) -> ChartCard | None:
    """By tenths of confidence, how often the likeliest choice is right."""
    likelihoods = _likelihoods(samples, most)
    if likelihoods is None:
        return None
    share = "1.0 / list_sum(list_transform(v, lambda x: exp(x - best)))"
    each = f"select {share} as share, list_position(v, best) - 1 = gold as is_right from ({likelihoods})"
    place = f"least(cast(floor(share * {BINS}) as integer), {BINS - 1})"
    query = f"select avg(share), avg(cast(is_right as double)), count(*) from ({each}) group by {place} order by 1"
    numbers = [
        (confidence, Estimate(share, interval=interval(_rate(share, count)), n=count))
        for confidence, share, count in samples.database.rows(query, [samples.file])
    ]
    if not numbers:
        return None
    total = sum(right.n for _, right in numbers)
    gap = sum(right.n * abs(confidence - float(right)) for confidence, right in numbers) / total
    rows = []
    for confidence, right in numbers:
        shares = format_decimal(confidence, 3), format_decimal(float(right), 3)
        rows.append((*shares, format_interval(right.low, right.high), f"{right.n:,}"))
    about = (
        f"a calibrated model is on the line; expected calibration error {format_decimal(gap)} over {total:,} samples"
    )
    panel = reliability_panel("", [Series("", reliability_points([ReliabilityPoint(*number) for number in numbers]))])
    head = ("confidence", "right", "95 %", "n")
    return ChartCard("reliability", "Reliability", about, draw_part(panel, about, CARD_WIDTH), head, rows)


def _rate(share: float, count: int) -> Estimate:
    error = math.sqrt(share * (1 - share) / (count - 1)) if count > 1 else None
    return Estimate(share, error, count, scale=SHARE, evidence=Evidence(is_rate=True))


def margin_card(samples: Samples, most: int | None = None) -> ChartCard | None:
    """The log-likelihood of the right choice minus that of the best other one."""
    likelihoods = _likelihoods(samples, most)
    if likelihoods is None:
        return None
    others = "list_max(list_filter(v, lambda x, i: i != gold + 1))"
    margin = f"select v[gold + 1] - {others} as margin from ({likelihoods})"
    width = 2 * MARGIN_REACH / MARGIN_BINS
    place = f"greatest(least(cast(floor((margin + {MARGIN_REACH}) / {width}) as integer), {MARGIN_BINS - 1}), 0)"
    query = f"select {place}, count(*), count(*) filter (margin > 0), sum(margin) from ({margin}) group by 1"
    counted = samples.database.rows(query, [samples.file])
    if not counted:
        return None
    sizes = {place: count for place, count, *_ in counted}
    used = range(min(sizes), max(sizes) + 1)
    bins = [Bin(at * width - MARGIN_REACH, (at + 1) * width - MARGIN_REACH, sizes.get(at, 0)) for at in used]
    total, won, summed = (sum(row[column] for row in counted) for column in (1, 2, 3))
    mean = format_decimal(summed / total, 3, is_signed=True)
    about = f"right choice minus the best other, in nats: mean {mean}; above 0 in {won:,} of {total:,}"
    rows = [(f"{each.low:+g} … {each.high:+g}", f"{each.size:,}") for each in bins]
    drawing = draw_part(Histogram(bins, is_signed=True), about, CARD_WIDTH)
    return ChartCard("margins", "Likelihood margins", about, drawing, ("margin", "samples"), rows)


def length_card(samples: Samples, most: int | None = None) -> ChartCard | None:
    """The mean score by length of the answer, in tenths of the samples."""
    if "responses.text" not in samples.stored.leaves or samples.metric is None or samples.metric not in samples.scores:
        return None
    name = _score(samples)
    each = f"select len(responses[1][1].text) as size, {name} as score from {SOURCE} where {_first(most)} and {_is_scored(samples)}"
    tenths = f"select *, least(floor(percent_rank() over (order by size) * 10), 9) as tenth from ({each}) where size is not null"
    summed = "count(*), avg(score), stddev_samp(score), kurtosis_pop(score), min(score), max(score), bool_and(score in (0, 1))"
    query = f"select avg(size), min(size), max(size), {summed} from ({tenths}) group by tenth order by 1"
    rows = samples.database.rows(query, [samples.file])
    if len(rows) < 2 or rows[0][1] == rows[-1][2]:
        return None
    points, table = [], []
    for mean, low, high, *summary in rows:
        name, part = f"{low:,} … {high:,}", slice_score(summary, samples.scale)
        points.append(estimate_point(mean, part, f"{name} characters:"))
        table.append((name, format_decimal(float(part)), format_interval(part.low, part.high), f"{part.n:,}"))
    label = f"{samples.metric.metric}, 95 % interval"
    panel = Panel("", label, [Series("", points)], at_label="characters of the answer")
    about = "mean score by tenths of the samples, from the shortest answers to the longest; answers of one length stay together"
    head = ("characters", "score", "95 %", "n")
    return ChartCard("length", "Length and score", about, draw_part(panel, about, CARD_WIDTH), head, table)


def pass_at_k_card(samples: Samples, most: int | None = None) -> ChartCard | None:
    """The chance that at least one of k answers is right, from the scores of repeats."""
    if (
        "other_scores.repeat" not in samples.stored.leaves
        or samples.metric is None
        or samples.metric not in samples.scores
    ):
        return None
    own = "list_filter(other_scores, lambda s: s.metric = ? and s.filter = ? and s.repeat is not null and s.value is not null)"
    each = f"select list_transform({own}, lambda s: s.value) as v from {SOURCE} where {_first(most)} and failed is null"
    whole = "len(list_filter(v, lambda x: x not in (0, 1))) = 0"
    query = f"select len(v), cast(list_sum(v) as integer), count(*), bool_and({whole}) from ({each}) where len(v) > 1 group by 1, 2"
    counted = samples.database.rows(query, [*samples.metric, samples.file])
    if not counted or not all(is_whole for *_, is_whole in counted):
        return None
    most = max(n for n, *_ in counted)
    full = [(right, count) for n, right, count, _ in counted if n == most]
    points = [*_passes(most, full)]
    ends = (0.6, min(most, MAX_K) + 0.4)
    panel = Panel("", "pass@k, 95 % interval", [Series("", points)], at_label="k, number of answers", limits=SHARE,
                  at_limits=ends)  # fmt: skip
    total = sum(count for _, count in full)
    about = f"the chance that at least one of k answers is right, over {total:,} documents with {most} answers each"
    rows = [(f"{point.at:g}", format_decimal(point.value), format_interval(point.low, point.high)) for point in points]
    return ChartCard("pass", "pass@k", about, draw_part(panel, about, CARD_WIDTH), ("k", "pass@k", "95 %"), rows)


def paired_card(first: Samples, second: Samples, names: tuple[str, str]) -> ChartCard | None:
    """The scores of the same documents in two runs: how many have each pair of scores."""
    if first.metric is None or not (first.metric in first.scores and first.metric in second.scores):
        return None
    name = _score(first)
    a, b = (f"select doc_id, {name} as score from {SOURCE} where isfinite({name})" for _ in "ab")
    joined = f"select a.score as x, b.score as y from ({a}) a join ({b}) b using (doc_id)"
    [[low, high]] = first.database.rows(
        f"select min(least(x, y)), max(greatest(x, y)) from ({joined})", [first.file, second.file]
    )
    if low is None:
        return None
    width = (high - low) / PAIR_BINS or 1.0
    x, y = (f"floor(({each} - {low!r}) / {width!r} + 0.5)" for each in "xy")
    query = f"select avg(x), avg(y), count(*) from ({joined}) group by {x}, {y} order by 3 desc"
    rows = first.database.rows(query, [first.file, second.file])
    most, total = rows[0][2], sum(count for *_, count in rows)
    verdicts = (
        {} if first.is_more_better is None else {first.is_more_better: "better", not first.is_more_better: "worse"}
    )
    points = [
        Point(a, b, title=f"{format_figures(a)} in {names[0]}, {format_figures(b)} in {names[1]}: {n:,} documents",
              weight=math.sqrt(n / most), verdict="" if a == b else verdicts.get(b > a, ""),
              text=f"{n:,}" if len(rows) <= MAX_WRITTEN else "")
        for a, b, n in rows
    ]  # fmt: skip
    limits = (min(low, 0.0), max(high, 1.0)) if first.scale in (None, SHARE) and low >= 0 and high <= 1 else (low, high)
    series = [Series("", [point]) for point in points]
    panel = Panel("", f"{first.metric.metric} in {names[1]}", series, diagonal=limits == SHARE,
                  at_label=f"in {names[0]}", limits=limits, whole=True, at_limits=limits)  # fmt: skip
    above, below = sum(n for a, b, n in rows if a < b), sum(n for a, b, n in rows if a > b)
    about = (
        f"{total:,} documents: {above:,} score higher in {names[1]}, {below:,} lower, {total - above - below:,} alike"
    )
    table = [(format_figures(a), format_figures(b), f"{n:,}") for a, b, n in rows[:50]]
    title, drawing = "The same documents in both runs", draw_part(panel, about, CARD_WIDTH)
    return ChartCard("paired", title, about, drawing, (*names, "documents"), table)


def _passes(n: int, counted: Sequence[tuple[int, int]]) -> Iterator[Point]:
    total = sum(count for _, count in counted)
    for k in range(1, min(n, MAX_K) + 1):
        values = [(pass_at_k(n, right, k), count) for right, count in counted]
        mean = sum(value * count for value, count in values) / total
        square = sum((value - mean) ** 2 * count for value, count in values)
        error = math.sqrt(square / (total - 1) / total) if total > 1 else None
        ends = interval(Estimate(mean, error, total, scale=SHARE))
        low, high = ends or (None, None)
        yield Point(k, mean, low, high, f"pass@{k} {format_decimal(mean)}")


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
