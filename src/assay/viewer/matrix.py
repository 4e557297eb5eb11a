"""Many runs at once: runs × tasks with the best of each task, a number over dates or training steps, and two numbers against
each other; each as a page, CSV and SVG."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from assay.catalog.index import no_collector
from assay.config.record_json import json_keys, json_values
from assay.number_text import format_short
from assay.report.charts import Chart, Panel, Point, Series, draw
from assay.report.drawing import Drawing, Label, Polygon, Shape, Stroke, Titled, as_svg, fitted, text_width
from assay.report.index import IndexedRow, IndexedRun
from assay.report.pictures import ends_of_axis, time_panel
from assay.report.report_table import (
    Cell,
    Column,
    LinkCell,
    NumberCell,
    Order,
    PartsCell,
    ReportTable,
    TableLine,
    TextCell,
)
from assay.report.table_writers import csv_text
from assay.results import Estimate, Row, keys
from assay.score_keys import ScoreKey, metric_title, spellings
from assay.viewer.library import RunLibrary
from assay.viewer.pages import MissingPage, Page, PageSources, points_table
from assay.viewer.query import RunFilter, url_for

MAX_RUNS, MAX_TASKS = 500, 400
"""Runs and rows of tasks of one page; others are counted."""
FEW_RUNS = 8
"""Up to so many runs are the columns; of more, each is a row."""
SORTS = ("created", "name", "model", "step")


SortURL = Callable[[str], str]
OrderOf = Callable[[str], Order]


class TaskKey(NamedTuple):
    """A row of a task or group: its name, metric and filter."""

    task: str
    metric: str
    filter: str

    @property
    def text(self) -> str:
        """As a URL has it, such as `gsm8k|exact_match,strict`."""
        return f"{self.task}|{ScoreKey(self.metric, self.filter)!s}"

    @property
    def label(self) -> str:
        return metric_title(self.metric, self.filter)


@dataclass(frozen=True, slots=True)
class MatrixNumber:
    """A number of a run; `best` where no other run is clearly better, `other_documents` where most runs have others."""

    run: IndexedRun = field(metadata=keys("run=name", "model", "created", "step", "status"))
    row: Row = field(
        metadata=keys("task=owner", "metric", "filter", "value=estimate.value", "low=estimate.low", "high=estimate.high",
                      "stderr=estimate.stderr", "n=estimate.n", "failed", "higher_is_better")
    )  # fmt: skip
    best: bool
    other_documents: bool


@dataclass(frozen=True)
class Matrix:
    """Runs and the numbers of their tasks."""

    entries: Sequence[IndexedRun]
    keys: Sequence[TaskKey]
    written: dict[TaskKey, dict[str, IndexedRow]]
    """By row and run the numbers as the index has them, also of rows that are not among `keys`."""
    aliases: Mapping[str, tuple[str, bool, int]]
    """By task: how it is shown, whether it is a group, and its depth."""
    other_data: frozenset[tuple[str, str]]
    """Runs and tasks with other documents than most runs have."""
    left_out: tuple[int, int] = (0, 0)
    running: frozenset[str] = frozenset()
    """Runs in progress, whose numbers are provisional."""
    _columns: dict[TaskKey, dict[str, Row]] = field(default_factory=dict)

    def column(self, key: TaskKey) -> Mapping[str, Row]:
        """The numbers of a row by run."""
        if key not in self._columns:
            self._columns[key] = {name: each.row for name, each in self.written.get(key, {}).items()}
        return self._columns[key]

    def cell(self, name: str, key: TaskKey) -> Row | None:
        """The number of a run in a row; None where it has none."""
        return self.column(key).get(name)

    def release(self) -> None:
        """Free the numbers, where they are shown and not needed again."""
        self.written.clear()
        self._columns.clear()

    @cached_property
    def best(self) -> Mapping[TaskKey, frozenset[str]]:
        """By row the runs whose number no other run's is clearly better than; runs in progress are never among them."""
        return {
            key: best_runs({name: row for name, row in self.column(key).items() if name not in self.running})
            for key in self.keys
        }


def is_clearly_better(better: Row, other: Row) -> bool:
    """Whether the interval of the difference of two independent numbers excludes zero.

    The interval is made of those of the numbers (Zou and Donner's method; of shares, Newcombe's), so it is as skewed as these are.
    Without intervals, another value is another value.
    """
    high, low = (better, other) if better.higher_is_better is not False else (other, better)
    above, below = high.estimate, low.estimate
    if above.value is None or below.value is None:
        return other.estimate.value is None and better.estimate.value is not None
    apart = above.value - below.value
    if apart <= 0 or above.low is None or below.high is None:
        return apart > 0
    return apart > math.hypot(above.value - above.low, below.high - below.value)


def best_runs(numbers: Mapping[str, Row]) -> frozenset[str]:
    """The run with the best number, and those that it is not clearly better than; none where no direction is known."""
    known = {
        name: row
        for name, row in numbers.items()
        if row.estimate.value is not None and math.isfinite(row.estimate.value)
    }
    if len(known) < 2 or any(row.higher_is_better is None for row in known.values()):
        return frozenset()
    sign = 1.0 if next(iter(known.values())).higher_is_better else -1.0
    first = max(known.values(), key=lambda row: sign * (row.estimate.value or 0.0))
    return frozenset(name for name, row in known.items() if not is_clearly_better(first, row))


def build_matrix(library: RunLibrary, query: QueryParams, most: int = MAX_RUNS) -> Matrix:
    """The runs that a URL chooses, the latest first unless it sorts them, with the numbers it chooses."""
    chosen, metric = RunFilter.of(query), query.get("metric", "")[:200]
    entries = [entry for entry in library.runs() if chosen.matches(entry) and not entry.problem]
    entries.sort(key=lambda entry: (entry.created or 0.0, entry.name), reverse=True)
    shown = entries[:most]
    rows = library.rows([entry.name for entry in shown])
    written: dict[TaskKey, dict[str, IndexedRow]] = {}
    keys: dict[TaskKey, None] = {}
    aliases: dict[str, tuple[str, bool, int]] = {}
    is_chosen = cache(lambda task: chosen.has_task([task]))
    is_metric = cache(lambda *key: metric in spellings(ScoreKey(*key)))
    for entry in shown:
        for row in rows.get(entry.name, ()):
            task, alias, is_group, depth, is_main, (own, name, *_) = row
            if not is_chosen(task):
                continue
            key = TaskKey(task, own, name)
            written.setdefault(key, {})[entry.name] = row
            aliases.setdefault(task, (alias, is_group, depth))
            if is_metric(own, name) if metric else is_main:
                keys.setdefault(key)
    listed = [*keys][:MAX_TASKS]
    running = frozenset(entry.name for entry in shown if entry.is_running)
    left_out = (len(entries) - len(shown), len(keys) - len(listed))
    matrix = Matrix(shown, listed, written, aliases, other_documents(shown), left_out, running)
    return _sorted(matrix, query)


def other_documents(entries: Sequence[IndexedRun]) -> frozenset[tuple[str, str]]:
    """Runs and tasks whose documents are not those of most runs with the task."""
    by_task: dict[str, dict[int, list[str]]] = {}
    for entry in entries:
        for task, source in entry.sources.items():
            by_task.setdefault(task, {}).setdefault(source, []).append(entry.name)
    return frozenset(
        (name, task)
        for task, sources in by_task.items()
        if len(sources) > 1
        for names in sorted(sources.values(), key=len)[:-1]
        for name in names
    )


def _sorted(matrix: Matrix, query: QueryParams) -> Matrix:
    sort, descending = query.get("sort", "created"), query.get("desc", "1") == "1"
    key = next((each for each in matrix.keys if each.text == sort), None)
    if key is None and sort not in SORTS:
        sort = "created"

    def place(entry: IndexedRun) -> Any:
        if key is not None:
            row = matrix.cell(entry.name, key)
            return row.estimate.value if row is not None else None
        return entry.step if sort == "step" else getattr(entry, sort)

    known = [entry for entry in matrix.entries if place(entry) is not None]
    known.sort(key=place, reverse=descending)
    rest = [entry for entry in matrix.entries if place(entry) is None]
    return replace(matrix, entries=[*known, *rest])


def matrix_page(sources: PageSources, query: QueryParams) -> Page:
    """The content of the page."""
    matrix = build_matrix(sources.library, query)
    by = query.get("by", "")
    by = by if by in ("tasks", "runs") else "tasks" if len(matrix.entries) <= FEW_RUNS else "runs"
    rest = [(key, value) for key, value in query.multi_items() if key not in ("sort", "desc", "by")]
    sort, descending = query.get("sort", "created"), query.get("desc", "1") == "1"

    def sort_url(key: str) -> str:
        return url_for("matrix", rest, sort=key, desc="0" if sort == key and descending else "1", by=query.get("by"))

    def order_of(key: str) -> Order:
        return "" if key != sort else "descending" if descending else "ascending"

    make_table = _runs_down if by == "runs" else _tasks_down
    return {
        "matrix": matrix, "table_of_runs": make_table(matrix, sort_url, order_of), "release": matrix.release,
        "by": by, "chosen": RunFilter.of(query), "metric": query.get("metric", ""),
        "compared": url_for("compare", [("run", each.name) for each in matrix.entries if len(matrix.entries) == 2],
                            baseline="oldest"),
        "has_other_data": bool(matrix.other_data), "has_running": bool(matrix.running),
        "sorts": SORTS, "sort": sort, "pending": sources.library.pending,
        "turned": url_for("matrix", rest, sort=query.get("sort"), desc=query.get("desc"), by="runs" if by == "tasks" else "tasks"),
        "download": lambda kind: url_for(f"matrix.{kind}", query.multi_items()),
        "trend": url_for("trend", [pair for pair in rest if pair[0] != "metric"]),
        "scatter": url_for("scatter", [pair for pair in rest if pair[0] != "metric"]),
        "live": url_for("events") if sources.library.pending else "",
    }  # fmt: skip


def _cells(matrix: Matrix, pairs: Iterable[tuple[str, TaskKey]]) -> Iterator[Cell]:
    """The cells of a line."""
    column, best, other = matrix.column, matrix.best, matrix.other_data
    for name, key in pairs:
        row = column(key).get(name)
        if row is None or row.estimate.value is None:
            yield ""
            continue
        ends = (row.estimate.low, row.estimate.high)
        yield NumberCell(
            row.estimate.value,
            interval=ends if None not in ends else None,
            mark=("†" if (name, key.task) in other else "") + ("*" if row.is_incomplete else ""),
            style="bold" if name in best[key] else "provisional" if name in matrix.running else "",
        )


def _runs_down(matrix: Matrix, sort_url: SortURL, order_of: OrderOf) -> ReportTable:
    columns = [
        Column("run", address=sort_url("name"), order=order_of("name"), heads_lines=True),
        Column("model", address=sort_url("model"), order=order_of("model")),
    ]
    for key in matrix.keys:
        title = f"{matrix.aliases[key.task][0]}\n{key.label}"
        columns.append(Column(title, "", "right", hint=key.text, address=sort_url(key.text), order=order_of(key.text)))
    lines = []
    for run in matrix.entries:
        tags = [LinkCell(tag, url_for("", tag=tag), is_tag=True) for tag in run.tags]
        name = PartsCell([LinkCell(run.name, url_for("run", run=run.name)), *tags])
        lines.append(TableLine([name, run.model, *_cells(matrix, ((run.name, key) for key in matrix.keys))]))
    return ReportTable(columns, lines)


def _tasks_down(matrix: Matrix, sort_url: SortURL, order_of: OrderOf) -> ReportTable:
    columns = [Column("task", heads_lines=True)]
    columns += [
        Column(f"{run.name}\n{run.model}", align="right", address=url_for("run", run=run.name))
        for run in matrix.entries
    ]
    lines = []
    for key in matrix.keys:
        alias, is_group, depth = matrix.aliases[key.task]
        mark = {"": "", "descending": " ▾", "ascending": " ▴"}[order_of(key.text)]
        link = LinkCell(alias + mark, sort_url(key.text), "bold" if is_group else "")
        name = PartsCell([link, TextCell(key.label, "dim")], f"sort the runs by {key.text}")
        lines.append(TableLine([name, *_cells(matrix, ((run.name, key) for run in matrix.entries))], depth))
    return ReportTable(columns, lines)


# ---- files


def matrix_numbers(matrix: Matrix) -> Iterator[MatrixNumber]:
    """One record for each number."""
    for entry in matrix.entries:
        for key in matrix.keys:
            row = matrix.cell(entry.name, key)
            if row is None:
                continue
            is_best, has_other_data = entry.name in matrix.best[key], (entry.name, key.task) in matrix.other_data
            yield MatrixNumber(entry, row, is_best, has_other_data)


CELL, LINE = 92.0, 20.0
DRAWN_RUNS, DRAWN_TASKS = 40, 120


def draw_matrix(matrix: Matrix) -> Drawing:
    """The matrix as a drawing, tasks below each other; the first runs and tasks, where there are many."""
    entries, keys = matrix.entries[:DRAWN_RUNS], matrix.keys[:DRAWN_TASKS]
    names = [f"{'  ' * matrix.aliases[key.task][2]}{matrix.aliases[key.task][0]}: {key.label}" for key in keys]
    left = min(max((text_width(name) for name in names), default=60.0), 300.0) + 24
    shapes: list[Shape] = []
    for at, entry in enumerate(entries):
        text = Label(left + (at + 1) * CELL - 8, 30, fitted(entry.name, CELL - 10), "end", bold=True)
        shapes.append(Titled(f"{entry.name}: {entry.model}", [text]))
    for line, (key, name) in enumerate(zip(keys, names, strict=True)):
        y = 52 + line * LINE
        shapes.append(Label(12, y, fitted(name, left - 16)))
        shapes.append(Stroke([(12, y + 6), (left + len(entries) * CELL, y + 6)], "grid"))
        for at, entry in enumerate(entries):
            row = matrix.cell(entry.name, key)
            if row is None or row.estimate.value is None:
                continue
            is_best, x = entry.name in matrix.best[key], left + (at + 1) * CELL - 8
            estimate = row.estimate
            low, high, value = (format_short(each, 3) for each in (estimate.low, estimate.high, estimate.value))
            ends = f" ({low} … {high})" if estimate.low is not None else ""
            parts: list[Shape] = [Label(x - 10, y, value, "end", bold=is_best)]
            if is_best:
                parts.append(Polygon([(x - 5, y - 7), (x + 1, y - 4), (x - 5, y - 1)], "better"))
            shapes.append(Titled(f"{entry.name}, {key.text}: {value}{ends}, n {estimate.n:,}", parts))
    more = [f"{count} more {what}" for count, what in (
        (len(matrix.entries) - len(entries) + matrix.left_out[0], "runs"), (len(matrix.keys) - len(keys), "rows")
    ) if count]  # fmt: skip
    height = 52 + len(keys) * LINE + 12
    note = "; ".join(["bold: the best, and those that it is not clearly better than by their intervals", *more])
    width = max(left + len(entries) * CELL + 12, 480.0)
    shapes.append(Label(12, height, fitted(note, width - 24, 11.0), "start", 11.0, "faint"))
    return Drawing(width, height + 14, "Runs and tasks", note, shapes)


MAX_TREND_RUNS, MAX_LINES, MAX_PAIRED, MAX_LISTED = 2000, 12, 40, 200
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
    return build_matrix(library, QueryParams(pairs), MAX_TREND_RUNS)


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
        points = [
            Point(point.at, float(point.row.estimate), point.row.estimate.low, point.row.estimate.high, point.title)
            for point in line
        ]
        series.append(Series(name, points, number, band=True))
    key = shown.keys[0]
    is_share = all(point.row.estimate.is_share for point in shown.points)
    label, places = (
        f"{key.label}{' (share of 1)' if is_share else ''}, 95 % interval",
        [point.at for point in shown.points],
    )
    panel = time_panel("", label, series, places, by_step=shown.over == "step", is_share=is_share)
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
    x, y = (f"{key.task}: {key.label}" for key in shown.keys)
    panel = Panel("", y, series, at_label=x, at_limits=ends_of_axis(ends))
    return draw(Chart(f"{x} and {y}", [panel], names if len(names) > 1 else ()))


def trend_page(sources: PageSources, query: QueryParams) -> Page:
    """The content of the page of a trend."""
    shown = trend(sources.library, query)
    points = _points_table(shown, TrendPoint)
    return {
        **_chart_page(sources.library, query, shown, "trend", draw_trend(shown)),
        "over": shown.over,
        "points": points,
    }


def scatter_page(sources: PageSources, query: QueryParams) -> Page:
    """The content of the page of a scatter plot."""
    shown = scatter(sources.library, query)
    points = _points_table(shown, ScatterPoint)
    return {**_chart_page(sources.library, query, shown, "scatter", draw_scatter(shown)), "points": points}


def _points_table(shown: Shown[P], kind: type[P]) -> ReportTable:
    records = (json_values(point) for point in shown.points[:MAX_LISTED])
    return points_table(json_keys(kind), records, is_over_time=shown.over == "date")


def _chart_page(library: RunLibrary, query: QueryParams, shown: Shown[P], name: str, drawing: Drawing | None) -> Page:
    return {
        "name": name, "shown": shown, "release": shown.matrix.release,
        "drawing": drawing,
        "rows": list(dict.fromkeys([*shown.matrix.keys, *shown.matrix.written]))[:500],
        "chosen": RunFilter.of(QueryParams([pair for pair in query.multi_items() if pair[0] != "task"])),
        "pending": library.pending,
        "live": url_for("events") if library.pending else "",
        "download": lambda kind: url_for(f"{name}.{kind}", query.multi_items()),
    }  # fmt: skip


TYPES = {"csv": "text/csv", "svg": "image/svg+xml"}


def make_file(library: RunLibrary, path: str, request: Request) -> Response:
    """The numbers of a page over many runs as CSV, or its picture."""
    kind = path.rpartition(".")[2]
    headers = {"content-disposition": f'{"inline" if kind == "svg" else "attachment"}; filename="{path[1:]}"'}
    library.read_all()
    with no_collector():
        text = FILES[path](library, request.query_params)
    return Response(text, media_type=TYPES[kind], headers=headers)


def _csv(kind: type, records: Iterable[object]) -> str:
    return csv_text(json_keys(kind), ([*json_values(record).values()] for record in records))


def _svg(drawn: Drawing | None) -> str:
    if drawn is None:
        raise MissingPage("no run has a number to draw")
    return as_svg(drawn)


FILES: dict[str, Callable[[RunLibrary, QueryParams], str]] = {
    "/matrix.csv": lambda library, query: _csv(MatrixNumber, matrix_numbers(build_matrix(library, query))),
    "/matrix.svg": lambda library, query: _svg(draw_matrix(build_matrix(library, query))),
    "/trend.csv": lambda library, query: _csv(TrendPoint, trend(library, query).points),
    "/trend.svg": lambda library, query: _svg(draw_trend(trend(library, query))),
    "/scatter.csv": lambda library, query: _csv(ScatterPoint, scatter(library, query).points),
    "/scatter.svg": lambda library, query: _svg(draw_scatter(scatter(library, query))),
}
