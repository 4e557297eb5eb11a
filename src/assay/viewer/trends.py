"""A number over runs or training steps, with bands; and two numbers against each other; as page, CSV and SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from starlette.datastructures import QueryParams

from assay.config.record_json import json_keys, json_values
from assay.number_text import format_short
from assay.report.charts import Chart, Panel, Point, Series, draw
from assay.report.drawing import Drawing
from assay.report.index import IndexedRun
from assay.report.pictures import date_ticks
from assay.report.report_table import ReportTable
from assay.results import Estimate, Row, keys
from assay.score_keys import ScoreKey
from assay.viewer.library import RunLibrary
from assay.viewer.matrix import Matrix, TaskKey, build_matrix
from assay.viewer.query import url_for
from assay.viewer.run_filter import RunFilter
from assay.viewer.tables import points_table

MAX_RUNS, MAX_LINES, MAX_PAIRED, MAX_LISTED = 2000, 12, 40, 200
"""Runs of a chart, models that have separate lines, rows among which a scatter looks for two, and lines of the table below it."""


@dataclass(frozen=True)
class TrendPoint:
    """A number of a run; `at` is its time, or its training step."""

    run: str
    model: str
    at: float
    created: float | None
    step: int | None
    row: Row = field(
        metadata=keys("task=owner", "metric", "filter", "value=estimate.value", "low=estimate.low", "high=estimate.high",
                      "n=estimate.n")
    )  # fmt: skip

    @property
    def title(self) -> str:
        number = self.row.estimate
        ends = f" ({format_short(number.low, 3)} … {format_short(number.high, 3)})" if number.low is not None else ""
        return f"{self.run}: {format_short(number.value, 3)}{ends}, n {number.n:,}"


@dataclass(frozen=True)
class ScatterPoint:
    """Two numbers of a run."""

    run: IndexedRun = field(metadata=keys("run=name", "model", "created", "step"))
    x: Estimate = field(metadata=keys("x=value", "x_low=low", "x_high=high"))
    y: Estimate = field(metadata=keys("y=value", "y_low=low", "y_high=high"))


P = TypeVar("P", TrendPoint, ScatterPoint)


@dataclass(frozen=True)
class Shown(Generic[P]):
    """The numbers of a chart, and what it can be switched to."""

    matrix: Matrix
    keys: Sequence[TaskKey]
    """The chosen rows: one of a trend, two of a scatter; fewer where there is no such row."""
    over: Literal["date", "step"] = "date"
    points: Sequence[P] = ()


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


def trend(library: RunLibrary, query: QueryParams) -> Shown[TrendPoint]:
    """The numbers of a row, by date or by training step: by step where each run has one."""
    matrix = _numbers(library, query)
    key = _chosen(matrix, _row_text(query), 0)
    entries = [each for each in final_runs(matrix) if key is not None and _finite(matrix.cell(each.name, key))]
    steps = {each.step for each in entries}
    by_step = query.get("over") == "step" or (query.get("over") != "date" and None not in steps and len(steps) > 1)
    placed = [(each.step if by_step else each.created, each) for each in entries]
    points = [
        TrendPoint(entry.name, entry.model, at, entry.created, entry.step, matrix.column(key)[entry.name])
        for at, entry in placed
        if at is not None and key
    ]
    points.sort(key=lambda point: (point.model, point.at))
    return Shown(matrix, [key] if key is not None else [], "step" if by_step else "date", points)


def _row_text(query: QueryParams) -> str:
    """The row that a URL names: `row`, or `task` with or without `metric`."""
    task, metric = query.get("task", ""), query.get("metric", "")
    if query.get("row") or not task or not metric:
        return query.get("row") or task
    key = ScoreKey.parse(metric)
    return TaskKey(task, *key).text


def draw_trend(shown: Shown[TrendPoint]) -> Drawing | None:
    """A line and a band for each model; of checkpoints, which are a model each, one for all."""
    if not shown.points:
        return None
    models = list(dict.fromkeys(point.model for point in shown.points))
    is_one = shown.over == "step" or len(models) == len(shown.points) or len(models) > MAX_LINES
    names = [""] if is_one else models
    series = []
    for number, name in enumerate(names):
        line = sorted((point for point in shown.points if is_one or point.model == name), key=lambda point: point.at)
        numbers = [point.row.estimate for point in line]
        points = [
            Point(point.at, float(number), number.low, number.high, point.title)
            for point, number in zip(line, numbers, strict=True)
        ]
        series.append(Series(name, points, number, band=True))
    key = shown.keys[0]
    is_share = all(point.row.estimate.is_share for point in shown.points)
    places = [point.at for point in shown.points]
    pad = (max(places) - min(places)) * 0.04 or 0.5
    across = ("training step", None) if shown.over == "step" else ("date (UTC)", date_ticks)
    panel = Panel(
        "", f"{key.label}{' (share of 1)' if is_share else ''}, 95 % interval", series, at_label=across[0],
        limits=(0.0, 1.0) if is_share else None, at_limits=(min(places) - pad, max(places) + pad), at_ticks=across[1],
    )  # fmt: skip
    return draw(Chart(f"{key.task} over {'training steps' if shown.over == 'step' else 'time'}", [panel], names))


def scatter(library: RunLibrary, query: QueryParams) -> Shown[ScatterPoint]:
    """Two rows of each run that has both."""
    matrix = _numbers(library, query)
    first, second = _most_shared(matrix)
    chosen = (_chosen(matrix, query.get("x", ""), first), _chosen(matrix, query.get("y", ""), second))
    keys = [key for key in chosen if key is not None]
    if len(keys) < 2:
        return Shown(matrix, keys)
    points = []
    for entry in final_runs(matrix):
        x, y = (matrix.cell(entry.name, key) for key in keys)
        if x is not None and y is not None and _finite(x) and _finite(y):
            points.append(ScatterPoint(entry, x.estimate, y.estimate))
    return Shown(matrix, keys, points=points)


def _most_shared(matrix: Matrix) -> tuple[int, int]:
    """The positions of the two rows that most runs have both of."""
    names = [matrix.written[key].keys() for key in matrix.keys[:MAX_PAIRED]]
    pairs = [
        (len(one & two), -at, -other) for at, one in enumerate(names) for other, two in enumerate(names) if at < other
    ]
    _, at, other = max(pairs, default=(0, 0, -1))
    return -at, -other


def draw_scatter(shown: Shown[ScatterPoint]) -> Drawing | None:
    """A cross of two intervals for each run, a color for each model."""
    if not shown.points:
        return None
    models = list(dict.fromkeys(point.run.model for point in shown.points))
    names = models if len(models) <= MAX_LINES else [""]
    series = []
    for number, name in enumerate(names):
        points = [
            Point(
                float(point.x),
                float(point.y),
                point.y.low,
                point.y.high,
                f"{point.run.name}: {format_short(point.x.value, 3)}, {format_short(point.y.value, 3)}",
                0.4,
                at_low=point.x.low,
                at_high=point.x.high,
            )
            for point in shown.points
            if len(names) == 1 or point.run.model == name
        ]
        series.append(Series(name, points, number, line=False))
    numbers = [point.x for point in shown.points]
    ends = [end for x in numbers for end in (x.value, x.low, x.high) if end is not None]
    pad = (max(ends) - min(ends)) * 0.04 or 0.5
    x, y = (f"{key.task}: {key.label}" for key in shown.keys)
    panel = Panel("", y, series, at_label=x, at_limits=(min(ends) - pad, max(ends) + pad))
    return draw(Chart(f"{x} and {y}", [panel], names if len(names) > 1 else ()))


def trend_page(library: RunLibrary, query: QueryParams) -> dict[str, Any]:
    """The content of the page of a trend."""
    shown = trend(library, query)
    points = _points_table(shown, TrendPoint)
    return {**_page(library, query, shown, "trend", draw_trend(shown)), "over": shown.over, "points": points}


def scatter_page(library: RunLibrary, query: QueryParams) -> dict[str, Any]:
    """The content of the page of a scatter plot."""
    shown = scatter(library, query)
    points = _points_table(shown, ScatterPoint)
    return {**_page(library, query, shown, "scatter", draw_scatter(shown)), "points": points}


def _points_table(shown: Shown[P], kind: type[P]) -> ReportTable:
    records = (json_values(point) for point in shown.points[:MAX_LISTED])
    return points_table(json_keys(kind), records, is_over_time=shown.over == "date")


def _page(
    library: RunLibrary, query: QueryParams, shown: Shown[P], name: str, drawing: Drawing | None
) -> dict[str, Any]:
    return {
        "name": name, "shown": shown, "release": shown.matrix.release,
        "drawing": drawing,
        "rows": list(dict.fromkeys([*shown.matrix.keys, *shown.matrix.written]))[:500],
        "chosen": RunFilter.of(QueryParams([pair for pair in query.multi_items() if pair[0] != "task"])),
        "pending": library.pending,
        "live": url_for("events") if library.pending else "",
        "download": lambda kind: url_for(f"{name}.{kind}", query.multi_items()),
    }  # fmt: skip
