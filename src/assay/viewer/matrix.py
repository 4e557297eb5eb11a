"""Many runs at once: runs × tasks with intervals, the best of each task; as a page, CSV and SVG."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from html import escape
from typing import Any, NamedTuple

from markupsafe import Markup
from starlette.datastructures import QueryParams

from assay.number_text import format_short
from assay.report.drawing import Drawing, Label, Polygon, Shape, Stroke, Titled, fitted, text_width
from assay.report.index import IndexedRow, IndexedRun
from assay.results import Row, keys
from assay.score_keys import ScoreKey, metric_title, spellings
from assay.viewer.library import RunLibrary
from assay.viewer.query import url_for
from assay.viewer.run_filter import RunFilter

MAX_RUNS, MAX_TASKS = 500, 400
"""Runs and rows of tasks of one page; others are counted."""
FEW_RUNS = 8
"""Up to so many runs are the columns; of more, each is a row."""
SORTS = ("created", "name", "model", "step")


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


def matrix_page(library: RunLibrary, query: QueryParams) -> dict[str, Any]:
    """The content of the page."""
    matrix = build_matrix(library, query)
    by = query.get("by", "")
    by = by if by in ("tasks", "runs") else "tasks" if len(matrix.entries) <= FEW_RUNS else "runs"
    rest = [(key, value) for key, value in query.multi_items() if key not in ("sort", "desc", "by")]
    sort, descending = query.get("sort", "created"), query.get("desc", "1") == "1"

    def sort_url(key: str) -> str:
        return url_for("matrix", rest, sort=key, desc="0" if sort == key and descending else "1", by=query.get("by"))

    make_table = _runs_down if by == "runs" else _tasks_down
    return {
        "matrix": matrix, "table": lambda: Markup(make_table(matrix, sort_url, sort, descending)), "release": matrix.release,
        "by": by, "chosen": RunFilter.of(query), "metric": query.get("metric", ""),
        "compared": url_for("compare", [("run", each.name) for each in matrix.entries if len(matrix.entries) == 2],
                            baseline="oldest"),
        "has_other_data": bool(matrix.other_data), "has_running": bool(matrix.running),
        "sorts": SORTS, "sort": sort, "pending": library.pending,
        "turned": url_for("matrix", rest, sort=query.get("sort"), desc=query.get("desc"), by="runs" if by == "tasks" else "tasks"),
        "download": lambda kind: url_for(f"matrix.{kind}", query.multi_items()),
        "trend": url_for("trend", [pair for pair in rest if pair[0] != "metric"]),
        "scatter": url_for("scatter", [pair for pair in rest if pair[0] != "metric"]),
        "live": url_for("events") if library.pending else "",
    }  # fmt: skip


def _cell(row: Row | None, *, is_best: bool, is_other: bool, is_running: bool) -> str:
    """A number with its interval. Thirty thousand of them are a page: texts are put together without a template."""
    if row is None or row.estimate.value is None:
        return "<td></td>"
    low, high = row.estimate.low, row.estimate.high
    marks = ("†" if is_other else "") + ("*" if row.is_incomplete else "")
    ends = (
        f" <small>{format_short(low, 3)}–{format_short(high, 3)}</small>"
        if low is not None and high is not None
        else ""
    )
    value = format_short(row.estimate.value, 3)
    value = f"<b>{value}</b>" if is_best else value
    value = f"<i>{value}</i>" if is_running else value
    return f"<td{' class=best' if is_best else ''}>{value}{marks}{ends}</td>"


def _cells(matrix: Matrix, pairs: Iterable[tuple[str, TaskKey]]) -> str:
    """The cells of a line."""
    column, best, other, running = matrix.column, matrix.best, matrix.other_data, matrix.running
    return "".join(
        _cell(
            column(key).get(name),
            is_best=name in best[key],
            is_other=(name, key.task) in other,
            is_running=name in running,
        )
        for name, key in pairs
    )


def _runs_down(matrix: Matrix, sort_url: Any, sort: str, descending: bool) -> str:
    heads = [
        _head("run", sort_url("name"), sort == "name", descending),
        _head("model", sort_url("model"), sort == "model", descending),
    ]
    for key in matrix.keys:
        alias = matrix.aliases[key.task][0]
        heads.append(_head(f"{alias}\n{key.label}", sort_url(key.text), sort == key.text, descending, key.text))
    lines = [f"<thead><tr>{''.join(heads)}</tr></thead><tbody>"]
    for entry in matrix.entries:
        cells = _cells(matrix, ((entry.name, key) for key in matrix.keys))
        lines.append(f"<tr>{_run_cell(entry)}<td class=model><bdi>{escape(entry.model)}</bdi></td>{cells}</tr>")
    return "\n".join([*lines, "</tbody>"])


def _tasks_down(matrix: Matrix, sort_url: Any, sort: str, descending: bool) -> str:
    heads = ["<th scope=col>task</th>"]
    heads += [
        f'<th scope=col class=right><a href="{escape(url_for("run", run=entry.name))}"><bdi>{escape(entry.name)}</bdi></a>'
        f"<br><small><bdi>{escape(entry.model)}</bdi></small></th>"
        for entry in matrix.entries
    ]
    lines = [f"<thead><tr>{''.join(heads)}</tr></thead><tbody>"]
    for key in matrix.keys:
        alias, is_group, depth = matrix.aliases[key.task]
        mark = (" ▾" if descending else " ▴") if sort == key.text else ""
        name = f"<b><bdi>{escape(alias)}</bdi></b>" if is_group else f"<bdi>{escape(alias)}</bdi>"
        link = f'<a href="{escape(sort_url(key.text))}" title="sort the runs by {escape(key.text)}">{name}{mark}</a>'
        cells = _cells(matrix, ((entry.name, key) for entry in matrix.entries))
        lines.append(
            f'<tr><th scope=row class="name depth{min(depth, 8)}">{link} <small>{escape(key.label)}</small></th>{cells}</tr>'
        )
    return "\n".join([*lines, "</tbody>"])


def _head(text: str, url: str, is_sorted: bool, descending: bool, title: str = "") -> str:
    first, _, second = text.partition("\n")
    mark = (" ▾" if descending else " ▴") if is_sorted else ""
    order = f' aria-sort="{"descending" if descending else "ascending"}"' if is_sorted else ""
    below = f"<br><small><bdi>{escape(second)}</bdi></small>" if second else ""
    return f'<th scope=col title="{escape(title)}"{order}><a href="{escape(url)}"><bdi>{escape(first)}</bdi>{mark}</a>{below}</th>'


def _run_cell(entry: IndexedRun) -> str:
    tags = "".join(f' <span class="chip quiet"><bdi>{escape(tag)}</bdi></span>' for tag in entry.tags)
    url = escape(url_for("run", run=entry.name))
    return f'<th scope=row class=name><a href="{url}"><bdi>{escape(entry.name)}</bdi></a>{tags}</th>'


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
