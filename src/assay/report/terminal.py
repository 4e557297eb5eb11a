"""Tables that fit a terminal: columns are left out in a fixed order, long cells are wrapped, widths are counted in cells."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

from assay.report.report_table import (
    Cell,
    IntervalCell,
    LinkCell,
    MetricCell,
    NumberCell,
    PartsCell,
    ReportTable,
    Style,
    TextCell,
)
from assay.report.table_writers import cell_style, cell_text
from assay.safe_text import visible

GAP = "  "
NARROW = (10, 7)
"""The narrowest columns of names: of intervals on one line, then on two. Below that, each row becomes a block of lines."""
ROOMY = 40
"""Cells that are longer are wrapped before a column is left out; shorter ones only after all have been that may be."""
TOGETHER = "\N{NO-BREAK SPACE}"
"""A space where a cell is not broken."""
NUMBERS, INTERVALS, WORDS = range(3)
"""How much stays on one line: numbers, also intervals, also words."""
ANSI: Mapping[Style, str] = {
    "bold": "bold",
    "dim": "dim",
    "better": "green",
    "worse": "red",
    "warning": "yellow",
    "chosen": "bold",
    "provisional": "dim",
}
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_LETTER = re.compile(r"[^\W\d_]")
_EXPONENT = re.compile(r"(?<=\d)e(?=[-+]?\d)")
_FIGURES = re.compile(r"[\[(]?[-+−±]?\d[\d.,]*(e[-+]?\d+)?[\]),%*]*")
_BEFORE_FIGURES = re.compile(rf"(?<={TOGETHER})(?=[\[(+−-]?\d)")
_PARTS = re.compile(r"[^_\-/:.,=@|]*[_\-/:.,=@|]?")
_TREE = re.compile(r"( *(?:- )?)(.*)", re.DOTALL)


def cell_width(text: str) -> int:
    """The cells of a terminal that a text takes: two for a wide character.

    >>> cell_width("acc"), cell_width("日本")
    (3, 4)
    """
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # not needed for most tables

    return cell_len(text)


@dataclass(frozen=True, slots=True)
class _Grid:
    """A table as texts. `drop` are the columns that a narrow terminal does without, the first of them first; styles are by
    line, and by line and column."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_right: Sequence[bool]
    drop: Sequence[int]
    line_styles: Mapping[int, str]
    cell_styles: Mapping[tuple[int, int], str]


class Layout(NamedTuple):
    """The columns that are shown, by their numbers; their widths; and the names of those left out."""

    columns: Sequence[int]
    widths: Sequence[int]
    left_out: Sequence[str]


def write_terminal(table: ReportTable, width: int | None, *, colored: bool = False) -> tuple[list[str], Sequence[str]]:
    """The lines of a table that are at most so wide, without its title and notes; and the names of the columns left out.

    Members are indented below their group. Numbers with their errors, intervals and durations are not broken over two lines.
    """
    return _draw(_grid_of_table(table), width, colored=colored)


def _grid_of_table(table: ReportTable) -> _Grid:
    rows: list[Sequence[str]] = []
    cell_styles: dict[tuple[int, int], str] = {}
    for number, line in enumerate(table.lines):
        line_cells = table.cells(line)
        if not line.level and _is_plain(line_cells):
            rows.append(line_cells)
            continue
        cells = [_unbroken(cell) for cell in line_cells]
        if line.level and cells[0]:
            cells[0] = f"{' ' * line.level}- {cells[0]}"
        rows.append(cells)
        for place, cell in enumerate(line_cells):
            style = cell_style(cell)
            if style:
                cell_styles[number, place] = ANSI[style]
    order = {number: column.drop for number, column in enumerate(table.columns) if column.drop is not None}
    return _Grid(
        titles=[visible(column.title) for column in table.columns],
        rows=rows,
        is_right=[column.align == "right" for column in table.columns],
        drop=sorted(order, key=order.__getitem__),
        line_styles={number: ANSI[line.style] for number, line in enumerate(table.lines) if line.style},
        cell_styles=cell_styles,
    )


def _is_plain(cells: Sequence[Cell]) -> TypeGuard[Sequence[str]]:
    """Whether a terminal shows all cells as they are: so it does the fourteen thousand names that `ls` prints at once."""
    if set(map(type, cells)) != {str}:
        return False
    text = "".join(cells)  # type: ignore[arg-type]  # all are str
    return text.isascii() and text.isprintable()


def _unbroken(cell: Cell) -> str:
    """The text of a cell, with non-breaking spaces where a line may not end: within numbers, not before an interval or a reason."""
    text = cell_text(cell)
    match cell:
        case str() | TextCell() | LinkCell() | MetricCell() | PartsCell():
            return text.replace("\n", "⏎").replace(" ↑", f"{TOGETHER}↑").replace(" ↓", f"{TOGETHER}↓")
        case IntervalCell():
            return text.replace(" …", f"{TOGETHER}…")
        case NumberCell(reason=reason) if reason:
            return text
        case _:
            return text.replace(" ", TOGETHER).replace(f"{TOGETHER}[", " [")


def _draw(grid: _Grid, width: int | None, *, colored: bool) -> tuple[list[str], Sequence[str]]:
    layout = fit(grid, width)
    if layout is None:
        return list(_blocks(grid, width or 0)), ()
    is_right = [grid.is_right[column] for column in layout.columns]

    def lines(row: Sequence[str], styles: Sequence[str]) -> Iterator[str]:
        cells = [wrap(row[column], most) for column, most in zip(layout.columns, layout.widths, strict=True)]
        for number in range(max(map(len, cells))):
            parts = [cell[number].replace(TOGETHER, " ") if number < len(cell) else "" for cell in cells]
            filled = [
                _styled(part, most, style if colored else "", right=right)
                for part, most, right, style in zip(parts, layout.widths, is_right, styles, strict=True)
            ]
            yield GAP.join(filled).rstrip()

    shown = list(lines(grid.titles, ["bold"] * len(layout.columns)))
    styled = {*grid.line_styles, *(row for row, _ in grid.cell_styles)}
    for number, row in enumerate(grid.rows):
        line = _plain_line(row, layout, is_right) if number not in styled else None
        if line is not None:
            shown.append(line)
            continue
        whole = grid.line_styles.get(number, "")
        shown += lines(row, [grid.cell_styles.get((number, column), whole) for column in layout.columns])
    return shown, layout.left_out


def _plain_line(row: Sequence[str], layout: Layout, is_right: Sequence[bool]) -> str | None:
    """A row without styles whose cells fit, as most do: fourteen thousand names are printed at once. None for others."""
    parts = []
    for column, width, right in zip(layout.columns, layout.widths, is_right, strict=True):
        text = row[column]
        if len(text) > width or not text.isascii():
            return None
        parts.append(text.rjust(width) if right else text.ljust(width))
    return GAP.join(parts).rstrip()


def fit(grid: _Grid, width: int | None) -> Layout | None:
    """Choose columns and widths; None if the table cannot be that narrow."""
    everything = [grid.titles, *grid.rows]
    natural = [max(cell_width(row[column]) for row in everything) for column in range(len(grid.titles))]
    columns = [number for number, name in enumerate(grid.titles) if natural[number] or name]
    if width is None:
        return Layout(columns, [natural[each] for each in columns], ())
    left_out: list[str] = []
    for dropped in (None, *grid.drop):
        if dropped is not None:
            columns = [column for column in columns if column != dropped]
            if any(row[dropped] for row in grid.rows):
                left_out.append(grid.titles[dropped])
        widths = _narrowed(grid, columns, natural, width, ROOMY)
        if widths is not None:
            return Layout(columns, widths, left_out)
    for least, whole in ((NARROW[0], WORDS), (NARROW[0], INTERVALS), (NARROW[0], NUMBERS), (NARROW[1], NUMBERS)):
        widths = _narrowed(grid, columns, natural, width, least, whole)
        if widths is not None:
            return Layout(columns, widths, left_out)
    return None


def _narrowed(
    grid: _Grid, columns: Sequence[int], natural: Sequence[int], width: int, least: int, whole: int = INTERVALS
) -> list[int] | None:
    """The widths of columns that share a width: those with letters get narrower, the widest first, but not below `least`, nor
    so that something is broken that stays `whole`."""
    free = width - len(GAP) * (len(columns) - 1)
    if sum(natural[each] for each in columns) <= free:
        return [natural[each] for each in columns]
    rigid: dict[int, int] = {}
    for each in columns:
        if not any(_LETTER.search(_EXPONENT.sub("", row[each])) for row in grid.rows):
            cells = [grid.titles[each], *(row[each] for row in grid.rows)]
            is_split = whole == NUMBERS
            words = [word for cell in cells for word in (cell.split(" ") if is_split or cell is cells[0] else [cell])]
            rigid[each] = max(map(cell_width, words))
    while True:
        flexible = [natural[each] for each in columns if each not in rigid]
        level = _level(flexible, free - sum(rigid.values()))
        if level is None or level < min(least, max(flexible, default=0)):
            return None
        cut = [each for each in columns if each not in rigid and natural[each] > level]
        kept = {each: most for each in cut if (most := _least(grid, each, whole)) > level}
        if not kept:
            return [rigid[each] if each in rigid else min(natural[each], level) for each in columns]
        rigid |= kept


def _least(grid: _Grid, column: int, whole: int) -> int:
    """The width of a column at which nothing is broken that stays whole."""
    cells = {row[column] for row in grid.rows}
    if whole == WORDS:
        split = [match.groups() for cell in cells if (match := _TREE.match(cell))]
        return max(len(start) + max(map(cell_width, _small_parts(rest))) for start, rest in split)
    between = re.compile(f"[ {TOGETHER}]" if whole == NUMBERS else " ")
    words = (word for cell in cells for word in between.split(cell) if word)
    return max((cell_width(word) for word in words if _is_interval(word)), default=0)


def _small_parts(text: str) -> list[str]:
    """The parts of a text between which a line may end."""
    return [part for word in text.split(" ") for part in ([word] if _is_interval(word) else _PARTS.findall(word))] or [
        ""
    ]


def _is_interval(word: str) -> bool:
    return all(map(_FIGURES.fullmatch, word.split(TOGETHER)))


def _level(widths: Sequence[int], free: int) -> int | None:
    """The greatest width at which columns that are cut to it fit together; None if not even empty ones do."""
    left, level = free, None
    for number, each in enumerate(sorted(widths)):
        level = left // (len(widths) - number)
        if each > level:
            return level if level > 0 else None
        left -= each
    return max(widths, default=0) if left >= 0 else level if level and level > 0 else None


def wrap(text: str, width: int) -> list[str]:
    """A text in lines of so many cells: broken at spaces, names after a `_` or another mark, and nothing is lost.

    >>> wrap(" - first_steps_graph_classes", 16)
    [' - first_steps_', '   graph_classes']
    """
    if cell_width(text) <= width:
        return [text]
    tree = _TREE.match(text)
    start = tree[1] if tree and width - len(tree[1]) >= 4 else ""
    lines: list[str] = []
    line = ""
    for word in text[len(start) :].split(" "):
        for number, part in enumerate(pieces(word, width - len(start))):
            space = " " if line and not number else ""
            if line and cell_width(line + space + part) > width - len(start):
                lines.append(line)
                line = part
            else:
                line += space + part
    return [(start if not number else " " * len(start)) + each for number, each in enumerate([*lines, line])]


def pieces(word: str, width: int) -> list[str]:
    """A word whole, or if it is too long in parts that are not."""
    if cell_width(word) <= width:
        return [word]
    from rich.cells import chop_cells

    parts = [
        part
        for each in _BEFORE_FIGURES.split(word)
        for part in ([each] if _FIGURES.fullmatch(each.rstrip(TOGETHER)) else _PARTS.findall(each))
        if part
    ]
    return [each for part in parts for each in chop_cells(part, max(width, 2))]


def _styled(text: str, width: int, style: str, *, right: bool) -> str:
    space = " " * (width - cell_width(text))
    shown = f"\x1b[{STYLES[style]}m{text}\x1b[0m" if style and text else text
    return space + shown if right else shown + space


def _blocks(grid: _Grid, width: int) -> Iterator[str]:
    """For a very narrow terminal: the cells of a row below each other, with their names."""
    for row in grid.rows:
        yield from wrap(row[0], width) if row[0] else ()
        for name, cell in zip(grid.titles[1:], row[1:], strict=True):
            if cell:
                yield from wrap(f"  {name}: {cell}".replace(TOGETHER, " "), width)
