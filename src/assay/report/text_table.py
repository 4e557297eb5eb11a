"""Tables of runs and comparisons as Python objects: they fit a terminal, are HTML in a notebook, and Markdown as `str`."""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from assay.number_text import format_decimal, format_interval, format_p, format_signed
from assay.report.reading import ResultLine, RunSummary
from assay.report.table import is_logarithmic, markdown_table, shown_value
from assay.report.terminal import TableView, fitted_table, wrap
from assay.results import Row
from assay.runs.comparison import ComparedRow, Comparison
from assay.runs.run import RUNNING, Run
from assay.safe_text import shorten, visible
from assay.score_keys import shown_filter

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text as RichText

MAX_TABLE_ROWS, MAX_NOTES, MAX_NOTE = 300, 12, 300
COLORS = {"better": "green", "worse": "red"}
TEXT_COLUMNS = ("Task", "Metric", "Run", "b is")


class TableRow(NamedTuple):
    """The cells of a row; `is_group` is written bold, and `verdict` colors the row's last cell."""

    cells: tuple[str, ...]
    is_group: bool = False
    verdict: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class TextTable:
    """A table with a title above it and notes below it."""

    title: str
    header: Sequence[str]
    rows: Sequence[TableRow]
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        shown = [[visible(cell) for cell in row.cells] for row in self.rows]
        return "\n\n".join(filter(None, (self.title, markdown_table(self.header, shown), "\n".join(self.notes))))

    def __repr__(self) -> str:
        return self._drawn() if sys.stdout.isatty() else str(self)

    def _drawn(self) -> str:
        return "\n".join(self._lines(shutil.get_terminal_size().columns, colored="NO_COLOR" not in os.environ))

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RichText]":
        from rich.text import Text as RichText

        yield from map(RichText.from_ansi, self._lines(options.max_width, colored=console.color_system is not None))

    def _lines(self, width: int, *, colored: bool) -> Iterator[str]:
        """The table as commands draw it, at most so wide."""
        rows = [[visible(cell) for cell in row.cells] for row in self.rows]
        styles: dict[tuple[int, str | None], str] = {}
        for number, row in enumerate(self.rows):
            if row.is_group:
                styles[number, None] = "bold"
            if row.verdict in COLORS:
                styles[number, self.header[-1]] = COLORS[row.verdict]
        yield from wrap(self.title, width)
        yield from fitted_table(TableView(self.header, rows, styles=styles), width, colored=colored)[0]
        for note in self.notes:
            yield from wrap(note, width)

    def _repr_html_(self) -> str:
        head = "".join(f'<th style="text-align:{_side(name)}">{escape(name)}</th>' for name in self.header)
        body = "".join(f"<tr>{''.join(self._html_cells(row))}</tr>" for row in self.rows)
        notes = "".join(f"<p>{escape(visible(note))}</p>" for note in self.notes)
        title = f'<caption style="text-align:left">{escape(visible(self.title))}</caption>'
        return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def _html_cells(self, row: TableRow) -> Iterator[str]:
        for number, (name, cell) in enumerate(zip(self.header, row.cells, strict=True), 1):
            text = escape(visible(cell)).replace("  ", "&emsp;")
            color = f";color:{COLORS[row.verdict]}" if row.verdict in COLORS and number == len(row.cells) else ""
            style = f"text-align:{_side(name)};white-space:nowrap{color}"
            yield f'<td style="{style}">{f"<b>{text}</b>" if row.is_group else text}</td>'


def _side(column: str) -> str:
    return "left" if column in TEXT_COLUMNS else "right"


def table_of_run(run: Run) -> TextTable:
    """The results of a run: groups with their members below them, then the other tasks."""
    reading = RunSummary(run.path, run=run)
    title = f"{reading.name}: {reading.model}, {reading.status}"
    if reading.status == RUNNING or reading.results.is_empty:
        rows = [TableRow((line.alias, f"{line.done or 0:,}", f"{line.documents or 0:,}")) for line in reading.lines]
        return _shortened(title, ("Task", "answered", "documents"), rows, [reading.problem] if reading.problem else [])
    header = ("Task", "Metric", "Value", "95 %", "n", "failed")
    return _shortened(title, header, [row for line in reading.lines for row in _result_rows(line)], reading.remarks)


def _shortened(title: str, header: Sequence[str], rows: list[TableRow], notes: Sequence[str]) -> TextTable:
    """The table with as many rows and notes as a reader looks at."""
    shown = [shorten(visible(note), MAX_NOTE) for note in notes[:MAX_NOTES]]
    shown += [f"{len(notes) - MAX_NOTES} notes more"] if len(notes) > MAX_NOTES else []
    if len(rows) > MAX_TABLE_ROWS:
        shown.insert(
            0, f"{len(rows) - MAX_TABLE_ROWS:,} rows more: .scores() of a run, or .rows of a comparison, has all"
        )
    return TextTable(visible(title), header, rows[:MAX_TABLE_ROWS], shown)


def _result_rows(line: ResultLine) -> Iterator[TableRow]:
    name = "  " * line.depth + line.alias
    if not line.numbers:
        yield TableRow((name, "", "", "", line.coverage, line.failures), line.is_group)
    for number in line.numbers:
        estimate = number.estimate
        ends = format_interval(estimate.low, estimate.high, is_logarithmic=is_logarithmic(estimate.method))
        yield TableRow(
            (name, _metric(number, line.is_group), _value(number), ends, line.count(number),
             line.failures_in(number)),
            line.is_group,
        )  # fmt: skip
        name = ""


def _value(number: Row) -> str:
    return shorten(shown_value(number.estimate), MAX_NOTE)


def _metric(row: Row | ComparedRow, is_group: bool) -> str:
    arrow = "" if row.higher_is_better is None else " ↑" if row.higher_is_better else " ↓"
    shown = shown_filter(row.filter, is_group=is_group)
    return f"{row.metric}{'' if shown == 'none' else f' ({shown})'}{arrow}"


def table_of_comparison(comparison: Comparison) -> TextTable:
    """The rows of a comparison; with several runs, each row with the run that is compared with the first."""
    first, others = comparison.runs[0], comparison.runs[1:]
    title = f"a: {first.label}, {first.model}; " + "; ".join(f"b: {run.label}, {run.model}" for run in others)
    header = ("Task", "Metric", "a", "b", "b − a", f"{comparison.level * 100:g} %", "p (Holm)", "n", "b is")
    rows, before = [], ("", 0)
    for row in comparison.rows:
        name = "" if (row.name, row.run) == before else "  " * row.depth + row.alias
        before = (row.name, row.run)
        cells = (name, *_compared_cells(row))
        rows.append(
            TableRow(
                cells if len(others) < 2 else (others[row.run - 1].label, *cells), row.kind == "group", row.verdict
            )
        )
    return _shortened(title, header if len(others) < 2 else ("Run", *header), rows, comparison.notes)


def _compared_cells(row: ComparedRow) -> tuple[str, ...]:
    ends = f"{format_signed(row.interval[0])} … {format_signed(row.interval[1])}" if row.interval is not None else ""
    verdict = f"same {row.same}" if row.same else row.verdict if row.verdict != "unknown" else ""
    return (_metric(row, row.kind == "group"), format_decimal(row.a), format_decimal(row.b), format_signed(row.difference), ends,
            format_p(row.p_holm), f"{row.n:,}", verdict)  # fmt: skip
