"""A number over runs or training steps, with bands; and two numbers against each other; as page, CSV and SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from starlette.datastructures import QueryParams

from assay.number_text import format_short
from assay.records import JSONDict
from assay.report.charts import Chart, Panel, Point, Series, draw
from assay.report.drawing import Drawing
from assay.report.index import IndexedRun
from assay.report.pictures import date_ticks
from assay.results import Row
from assay.score_keys import ScoreKey
from assay.viewer.library import RunLibrary
from assay.viewer.matrix import Matrix, TaskKey, build_matrix
from assay.viewer.query import url_for
from assay.viewer.run_filter import RunFilter

MAX_RUNS, MAX_LINES, MAX_PAIRED = 2000, 12, 40
"""Runs of a chart, models that have separate lines, and rows among which a scatter looks for two."""
TREND = ("run", "model", "at", "created", "step", "task", "metric", "filter", "value", "low", "high", "n")
SCATTER = ("run", "model", "created", "step", "x", "x_low", "x_high", "y", "y_low", "y_high")


@dataclass(frozen=True)
class Shown:
    """The numbers of a chart, and what it can be switched to."""

    matrix: Matrix
    keys: Sequence[TaskKey]
    """The chosen rows: one of a trend, two of a scatter; fewer where there is no such row."""
    over: Literal["date", "step"] = "date"
    records: Sequence[JSONDict] = ()


def _numbers(library: RunLibrary, query: QueryParams) -> Matrix:
    """All rows of the runs that a URL chooses: `task` names the row here, and not which runs are shown."""
    pairs = [(key, value) for key, value in query.multi_items() if key not in ("task", "metric", "sort", "desc")]
    return build_matrix(library, QueryParams(pairs), MAX_RUNS)


def _chosen(matrix: Matrix, text: str, position: int) -> TaskKey | None:
    """The row that a URL names as `gsm8k|exact_match,strict` or `gsm8k`; else the main one at a position."""
    key = next((key for key in (*matrix.keys, *matrix.written) if text in (key.text, key.task)), None)
    if key is None and not text and len(matrix.keys) > position:
        return matrix.keys[position]
    return key


def _finite(row: Row | None) -> bool:
    return row is not None and row.estimate.value is not None and math.isfinite(row.estimate.value)


def final_runs(matrix: Matrix) -> list[IndexedRun]:
    """The runs that charts draw: not those in progress, whose numbers are provisional."""
    return [each for each in matrix.entries if each.name not in matrix.running]


def trend(library: RunLibrary, query: QueryParams) -> Shown:
    """The numbers of a row, by date or by training step: by step where each run has one."""
    matrix = _numbers(library, query)
    key = _chosen(matrix, _row_text(query), 0)
    entries = [each for each in final_runs(matrix) if key is not None and _finite(matrix.cell(each.name, key))]
    steps = {each.step for each in entries}
    by_step = query.get("over") == "step" or (query.get("over") != "date" and None not in steps and len(steps) > 1)
    placed = [(each.step if by_step else each.created, each) for each in entries]
    records = [
        _trend_record(at, each, key, matrix.column(key)[each.name]) for at, each in placed if at is not None and key
    ]
    records.sort(key=lambda record: (record["model"], record["at"]))
    return Shown(matrix, [key] if key is not None else [], "step" if by_step else "date", records)


def _row_text(query: QueryParams) -> str:
    """The row that a URL names: `row`, or `task` with or without `metric`."""
    task, metric = query.get("task", ""), query.get("metric", "")
    if query.get("row") or not task or not metric:
        return query.get("row") or task
    key = ScoreKey.parse(metric if "," in metric else f"{metric},none")
    return TaskKey(task, *key).text


def _trend_record(at: float, entry: IndexedRun, key: TaskKey, row: Row) -> JSONDict:
    values = (
        entry.name,
        entry.model,
        at,
        entry.created,
        entry.step,
        *key,
        row.estimate.value,
        row.estimate.low,
        row.estimate.high,
        row.estimate.n,
    )
    return dict(zip(TREND, values, strict=True))


def draw_trend(shown: Shown) -> Drawing | None:
    """A line and a band for each model; of checkpoints, which are a model each, one for all."""
    if not shown.records:
        return None
    models = list(dict.fromkeys(record["model"] for record in shown.records))
    is_one = shown.over == "step" or len(models) == len(shown.records) or len(models) > MAX_LINES
    names = [""] if is_one else models
    series = []
    for number, name in enumerate(names):
        own = sorted((each for each in shown.records if is_one or each["model"] == name), key=lambda each: each["at"])
        points = [Point(each["at"], each["value"], each["low"], each["high"], _title(each)) for each in own]
        series.append(Series(name, points, number, band=True))
    key, column = shown.keys[0], shown.matrix.column(shown.keys[0])
    is_share = all(column[record["run"]].estimate.is_share for record in shown.records)
    places = [record["at"] for record in shown.records]
    pad = (max(places) - min(places)) * 0.04 or 0.5
    across = ("training step", None) if shown.over == "step" else ("date (UTC)", date_ticks)
    panel = Panel(
        "", f"{key.label}{' (share of 1)' if is_share else ''}, 95 % interval", series, at_label=across[0],
        limits=(0.0, 1.0) if is_share else None, at_limits=(min(places) - pad, max(places) + pad), at_ticks=across[1],
    )  # fmt: skip
    return draw(Chart(f"{key.task} over {'training steps' if shown.over == 'step' else 'time'}", [panel], names))


def _title(record: JSONDict) -> str:
    ends = (
        f" ({format_short(record['low'], 3)} … {format_short(record['high'], 3)})" if record["low"] is not None else ""
    )
    return f"{record['run']}: {format_short(record['value'], 3)}{ends}, n {record['n']:,}"


def scatter(library: RunLibrary, query: QueryParams) -> Shown:
    """Two rows of each run that has both."""
    matrix = _numbers(library, query)
    first, second = _most_shared(matrix)
    chosen = (_chosen(matrix, query.get("x", ""), first), _chosen(matrix, query.get("y", ""), second))
    keys = [key for key in chosen if key is not None]
    if len(keys) < 2:
        return Shown(matrix, keys)
    records = []
    for entry in final_runs(matrix):
        x, y = (matrix.cell(entry.name, key) for key in keys)
        if x is not None and y is not None and _finite(x) and _finite(y):
            values = (
                entry.name,
                entry.model,
                entry.created,
                entry.step,
                x.estimate.value,
                x.estimate.low,
                x.estimate.high,
                y.estimate.value,
                y.estimate.low,
                y.estimate.high,
            )
            records.append(dict(zip(SCATTER, values, strict=True)))
    return Shown(matrix, keys, records=records)


def _most_shared(matrix: Matrix) -> tuple[int, int]:
    """The positions of the two rows that most runs have both of."""
    names = [matrix.written[key].keys() for key in matrix.keys[:MAX_PAIRED]]
    pairs = [
        (len(one & two), -at, -other) for at, one in enumerate(names) for other, two in enumerate(names) if at < other
    ]
    _, at, other = max(pairs, default=(0, 0, -1))
    return -at, -other


def draw_scatter(shown: Shown) -> Drawing | None:
    """A cross of two intervals for each run, a color for each model."""
    if not shown.records:
        return None
    models = list(dict.fromkeys(record["model"] for record in shown.records))
    names = models if len(models) <= MAX_LINES else [""]
    series = []
    for number, name in enumerate(names):
        own = [each for each in shown.records if len(names) == 1 or each["model"] == name]
        points = [
            Point(
                each["x"],
                each["y"],
                each["y_low"],
                each["y_high"],
                f"{each['run']}: {format_short(each['x'], 3)}, {format_short(each['y'], 3)}",
                0.4,
                at_low=each["x_low"],
                at_high=each["x_high"],
            )
            for each in own
        ]
        series.append(Series(name, points, number, line=False))
    ends = [end for each in shown.records for end in (each["x"], each["x_low"], each["x_high"]) if end is not None]
    pad = (max(ends) - min(ends)) * 0.04 or 0.5
    x, y = (f"{key.task}: {key.label}" for key in shown.keys)
    panel = Panel("", y, series, at_label=x, at_limits=(min(ends) - pad, max(ends) + pad))
    return draw(Chart(f"{x} and {y}", [panel], names if len(names) > 1 else ()))


def trend_page(library: RunLibrary, query: QueryParams) -> dict[str, Any]:
    """The content of the page of a trend."""
    shown = trend(library, query)
    return {**_page(library, query, shown, "trend", draw_trend(shown)), "over": shown.over, "columns": TREND}


def scatter_page(library: RunLibrary, query: QueryParams) -> dict[str, Any]:
    """The content of the page of a scatter plot."""
    shown = scatter(library, query)
    return {**_page(library, query, shown, "scatter", draw_scatter(shown)), "columns": SCATTER}


def _page(library: RunLibrary, query: QueryParams, shown: Shown, name: str, drawing: Drawing | None) -> dict[str, Any]:
    return {
        "name": name, "shown": shown, "release": shown.matrix.release,
        "drawing": drawing,
        "rows": list(dict.fromkeys([*shown.matrix.keys, *shown.matrix.written]))[:500],
        "chosen": RunFilter.of(QueryParams([pair for pair in query.multi_items() if pair[0] != "task"])),
        "pending": library.pending, "short": lambda value: format_short(value, 3),
        "live": url_for("events") if library.pending else "",
        "download": lambda kind: url_for(f"{name}.{kind}", query.multi_items()),
    }  # fmt: skip
