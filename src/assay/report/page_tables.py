"""Tables of pages, which the report and the viewer share: results of a run, and the rows of a comparison."""

from collections.abc import Callable, Iterable, Iterator

from assay.number_text import format_decimal, format_end, format_level
from assay.report.charts import Point, draw_bar
from assay.report.comparison_text import compared_table, row_columns, rows_of_run
from assay.report.document import Slice
from assay.report.report_table import (
    Cell,
    Column,
    CountCell,
    DrawingCell,
    NumberCell,
    PartsCell,
    ProgressCell,
    ReportTable,
    Style,
    TableLine,
    TextCell,
    make_table,
    number_columns,
)
from assay.report.table import documents_cell, failed_cell, interval_cell, metric_cell, number_cell, table_rows
from assay.report.table_writers import error_factor
from assay.results import Estimate, Row
from assay.runs.comparison import ComparedRow, Comparison
from assay.runs.lines import ResultLine

NUMBER_COLUMNS = (
    Column("Metric"),
    *number_columns("Value"),
    Column("95 %", "interval"),
    Column("", "bar", drop=1),
    *number_columns("n"),
)
SHORT_COLUMNS = (*number_columns("Value"), Column("95 %", "interval"), *number_columns("n"))
IN_PAGES = ("metric", "a", "b", "difference", "interval", "p", "p_holm", "counts", "n", "mde", "conclusion")


def alias_cell(line: ResultLine | ComparedRow) -> Cell:
    """The name of a line without a link."""
    return TextCell(line.alias)


def results_page_table(
    lines: Iterable[ResultLine], make_name: Callable[[ResultLine], Cell] = alias_cell, *, main_only: bool = False
) -> ReportTable:
    """The results of a run: groups with their members below them; of a run in progress also what is done.

    Where `main_only`, only the main number of each task, without the tree.
    """
    columns = [
        Column("Task"),
        *NUMBER_COLUMNS,
        Column("failed", align="right", drop=1),
        Column("Stderr", align="right", drop=1),
        Column("n-shot", align="right", drop=1),
    ]
    table_lines = [table_line for line in lines for table_line in _result_lines(line, make_name(line), main_only)]
    return ReportTable(columns, table_lines)


def _result_lines(line: ResultLine, name: Cell, main_only: bool) -> Iterator[TableLine]:
    level = 0 if main_only else line.depth
    style: Style = "bold" if line.is_group else ""
    if line.not_run:
        yield TableLine([name, PartsCell([TextCell("not run", "worse"), TextCell(line.not_run, "dim")])], level)
        return
    rows = table_rows(line.numbers)
    if main_only:
        rows = [line.main] if line.main is not None else []
    for number, row in enumerate(rows):
        shown_name = name if not number else TextCell(line.alias, is_repeated=True)
        if line.done is None:
            yield TableLine([shown_name, *_finished_cells(line, row, is_first=not number)], level, style)
        else:
            yield TableLine([shown_name, *_provisional_cells(line, row, is_first=not number)], level, "provisional")
    if rows:
        return
    failed = TextCell(f"{line.failed:,} failed" if line.failed and not line.coverage else "", "worse")
    if line.done is None:
        yield TableLine(
            [name, PartsCell([TextCell(f"{line.coverage}*" if line.coverage else "", "worse"), failed])], level, style
        )
    else:
        done = ProgressCell(line.done, line.documents or 0)
        yield TableLine([name, PartsCell([done, failed, TextCell(line.note, "dim")])], level, style)


def _finished_cells(line: ResultLine, row: Row, *, is_first: bool) -> list[Cell]:
    return [
        metric_cell(row, is_group=line.is_group),
        *estimate_cells(row),
        documents_cell(line, row),
        failed_cell(line, row),
        stderr_cell(row.estimate),
        CountCell(line.shots if is_first else None),
    ]


def _provisional_cells(line: ResultLine, row: Row, *, is_first: bool) -> list[Cell]:
    return [
        PartsCell([metric_cell(row, is_group=line.is_group), TextCell("provisional", "dim")]),
        *estimate_cells(row),
        CountCell(row.estimate.n),
        CountCell(line.failed if is_first else None, style="worse" if line.failed else ""),
        ProgressCell(line.done or 0, line.documents or 0) if is_first else "",
    ]


def estimate_cells(row: Row) -> list[Cell]:
    """The value of a row, or a dash with the reason why it has none; its interval, and its place between 0 and 1."""
    value: Cell = NumberCell(row.estimate.value, digits=4)
    if row.estimate.reason:
        value = PartsCell([value], hint=row.estimate.reason)
    return [value, interval_cell(row.estimate), bar_cell(row)]


def bar_cell(row: Row) -> Cell:
    """The place of a share between 0 and 1; other numbers have no common scale."""
    estimate = row.estimate
    if estimate.value is None or not estimate.is_share:
        return ""
    return DrawingCell(draw_bar(row.metric, Point(0, estimate.value, estimate.low, estimate.high)))


def stderr_cell(estimate: Estimate) -> Cell:
    """The standard error; of a logarithmic scale the factor that it is there."""
    factor = error_factor(number_cell(estimate))
    text = format_decimal(estimate.stderr) if factor is None else f"×/÷ {format_end(factor, is_logarithmic=True)}"
    return TextCell(text, "dim")


def numbers_table(rows: Iterable[tuple[Row, Cell, bool]]) -> ReportTable:
    """The numbers of one task: of each row the cell of its metric, and whether it is the chosen one."""
    lines = [
        TableLine(
            [metric, *estimate_cells(row), CountCell(row.estimate.n), stderr_cell(row.estimate)],
            style="chosen" if is_chosen else "",
        )
        for row, metric, is_chosen in rows
    ]
    return ReportTable([*NUMBER_COLUMNS, Column("Stderr", align="right", drop=1)], lines)


def slices_table(column: str, slices: Iterable[Slice]) -> ReportTable:
    """The score, its interval and the number of documents of every value of a column."""
    return make_table([column, *SHORT_COLUMNS], ([part.name, *short_cells(part.number)] for part in slices))


def short_cells(number: Estimate) -> list[Cell]:
    """The cells of SHORT_COLUMNS: a number, its interval, and of how many documents it is."""
    return [NumberCell(number.value, digits=4), interval_cell(number), CountCell(number.n)]


def comparison_page_table(
    comparison: Comparison, run: int, make_name: Callable[[ComparedRow], Cell] = alias_cell
) -> ReportTable:
    """The differences of a run to the first: groups with their members below them, then the other tasks."""
    titles = {
        "a": comparison.runs[0].label,
        "b": comparison.runs[run].label,
        "difference": "difference",
        "interval": format_level(comparison.level),
        "p_holm": "p (Holm), tasks",
        "conclusion": "conclusion",
    }
    return compared_table(rows_of_run(comparison, run), row_columns(IN_PAGES, titles), make_name)
