"""Writes a ReportTable as HTML: with styles in every cell for a notebook or a message, with classes for a page of ours.

The policy of the report's and the viewer's pages forbids styles in elements; their stylesheets have a rule for each class. All
texts are escaped, and a text in another direction does not change that of its neighbors.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

import orjson
from markupsafe import Markup

from assay.report.cell_text import cell_style, cell_text, direction_arrow, interval_ends, value_text
from assay.report.drawing import as_svg
from assay.report.report_table import (
    Cell,
    CheckCell,
    Column,
    CountCell,
    DrawingCell,
    DurationCell,
    FoldCell,
    IntervalCell,
    LinkCell,
    MetricCell,
    MoneyCell,
    NumberCell,
    PartsCell,
    ProgressCell,
    PValueCell,
    ReportTable,
    ShareCell,
    TableLine,
    TextCell,
)
from assay.report.table_writers import Value, cell_values, is_safe_address
from assay.safe_text import visible

STYLES = {
    "left": "text-align:left",
    "right": "text-align:right",
    "nowrap": "white-space:nowrap",
    "better": "color:green",
    "worse": "color:firebrick",
    "warning": "color:darkorange",
    "dim": "color:gray",
}
"""What a class means where there is no stylesheet."""
CLASSES = {"left": "", "bold": "best", "better": "good", "worse": "bad", "dim": "faint"}
"""Classes that pages have under another name, or not at all."""
MAX_LEVEL = 8
"""The stylesheet indents so many levels."""
NUMBERS = (NumberCell, IntervalCell, PValueCell, CountCell, ShareCell, DurationCell, MoneyCell)
MARKS = re.compile(r"(?<=[_+/])(?=.)")
NO_BREAK = "\N{NO-BREAK SPACE}" * 2


def write_html(table: ReportTable) -> str:
    """The table as HTML without scripts or classes: it looks the same in a notebook, a message and a page."""
    caption = f'<caption style="text-align:left">{escape(visible(table.title))}</caption>' if table.title else ""
    head = "".join(
        f'<th scope="col" style="{STYLES[column.align]}">{escape(visible(column.title))}</th>'
        for column in table.columns
    )
    body = "".join(f"<tr>{''.join(_inline_cells(table, line))}</tr>" for line in table.lines)
    notes = "".join(f"<p>{escape(visible(note))}</p>" for note in table.notes)
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _inline_cells(table: ReportTable, line: TableLine) -> Iterator[str]:
    for place, (column, cell) in enumerate(zip(table.columns, table.cells(line), strict=True)):
        text = escape(cell_text(cell))
        if isinstance(cell, LinkCell) and is_safe_address(cell.address):
            text = f'<a href="{escape(cell.address)}">{text}</a>'
        style = cell_style(cell) or line.style
        if "bold" in (style, line.style) and text:
            text = f"<b>{text}</b>"
        indent = "&emsp;" * line.level if text and not place else ""
        styles = ";".join(STYLES[word] for word in (column.align, "nowrap", style) if word in STYLES)
        yield f'<td style="{styles}">{indent}{text}</td>'


def write_page_table(table: ReportTable, name: str = "", classes: str = "", *, is_main: bool = False) -> Markup:
    """The table for a page of ours: its `name` is its id, by which it can be copied as Markdown and CSV.

    Keys move through the lines of the main table of a page. A table without titles has no line of them.
    """
    endings = [_endings(table, place) if name else () for place in range(len(table.columns))]
    is_tree = any(line.level for line in table.lines)
    if name and is_tree:
        endings[0] = ("", "_depth")
    head = "".join(_head(column, ends) for column, ends in zip(table.columns, endings, strict=True))
    lines = "\n".join(_line(table, line, endings, is_tree=is_tree) for line in table.lines)
    about = f' id="{name}"' if name else ""
    about += f' class="{classes}"' if classes else ""
    about += f' aria-label="{escape(visible(table.title))}"' if table.title else ""
    about += " data-main" if is_main else ""
    titles = f"<thead><tr>{head}</tr></thead>" if any(column.title for column in table.columns) else ""
    return Markup(f"<table{about}>{titles}<tbody>\n{lines}\n</tbody></table>")


def _endings(table: ReportTable, place: int) -> Sequence[str]:
    """What is added to the name of a column for each of its values, where it has several."""
    found = dict.fromkeys(ending for line in table.lines for ending in cell_values(table.cells(line)[place]))
    endings = [ending for ending in found if ending != "_style"]
    return endings if endings != [""] else ()


def _head(column: Column, endings: Sequence[str]) -> str:
    title, _, below = column.title.partition("\n")
    text = _breakable(title)
    if column.order:
        text += " ▾" if column.order == "descending" else " ▴"
    if column.address:
        text = f'<a href="{escape(column.address)}">{text}</a>'
    if below:
        text += f"<br><small>{_breakable(below)}</small>"
    attributes = [_class_attribute([column.align, "roomy" if column.drop else ""])]
    attributes += [f' title="{escape(visible(column.hint))}"'] if column.hint else []
    attributes += [f' aria-sort="{column.order}"'] if column.order else []
    if endings:
        attributes.append(_values_attribute([ending.removeprefix("_") or column.title for ending in endings]))
    return f'<th scope="col"{"".join(attributes)}>{text}</th>'


def _line(table: ReportTable, line: TableLine, endings: Sequence[Sequence[str]], *, is_tree: bool) -> str:
    cells = []
    for place, cell in enumerate(line.cells):
        hint = cell.hint if isinstance(cell, PartsCell) else ""
        attributes = f' title="{escape(visible(hint))}"' if hint else ""
        values: Mapping[str, Value] = cell_values(cell) if endings[place] else {}
        classes = _cell_classes(table.columns[place], cell)
        if is_tree and not place:
            classes = [*classes, "name", f"depth{min(line.level, MAX_LEVEL)}"]
            values = {**values, "_depth": line.level}
            attributes += f' data-markdown="{NO_BREAK * line.level}{escape(visible(str(values.get("") or "")))}"'
        if endings[place]:
            attributes += _values_attribute([values.get(ending) for ending in endings[place]])
        left_out = len(table.columns) - len(line.cells)
        if left_out and place == len(line.cells) - 1:
            attributes += f' colspan="{left_out + 1}"'
        tag, scope = ("th", ' scope="row"') if table.columns[place].heads_lines else ("td", "")
        cells.append(f"<{tag}{scope}{_class_attribute(classes)}{attributes}>{_inner(cell)}</{tag}>")
    is_group, first = line.style == "bold", line.cells[0]
    continues = isinstance(first, TextCell) and first.is_repeated
    kinds = ["group" if is_group else line.style, "more" if continues else ""]
    return f"<tr{_class_attribute(kinds)}>{''.join(cells)}</tr>"


def _cell_classes(column: Column, cell: Cell) -> list[str]:
    part = cell.parts[0] if isinstance(cell, PartsCell) and len(cell.parts) == 1 else cell
    classes = [column.align, "roomy" if column.drop else "", "text" if column.has_texts else "", cell_style(part)]
    if isinstance(part, NUMBERS):
        classes.append("num")
    if isinstance(part, IntervalCell | DurationCell):
        classes.append("nowrap")
    if isinstance(part, IntervalCell):
        classes.append("dim")
    if isinstance(part, MetricCell):
        classes.append("metric")
    return classes


def _class_attribute(words: Iterable[str]) -> str:
    names = " ".join(dict.fromkeys(name for word in words if (name := CLASSES.get(word, word))))
    return f' class="{names}"' if names else ""


def _values_attribute(values: Sequence[Value]) -> str:
    written = [visible(value) if isinstance(value, str) else value for value in values]
    return f' data-csv="{escape(orjson.dumps(written).decode())}"'


def _inner(cell: Cell) -> str:  # noqa: C901  # a case for each kind of cell
    """The content of a cell in a page."""
    match cell:
        case LinkCell() if is_safe_address(cell.address):
            kind = ' class="chip"' if cell.is_tag else " data-open" if cell.opens_line else ""
            text = _emphasized(cell, _breakable(cell.text))
            return f'<a{kind} href="{escape(cell.address)}">{text}</a>'
        case MetricCell():
            return _metric(cell)
        case ProgressCell(done=done, expected=expected):
            bar = f'<progress max="{expected or 1}" value="{done}">{done}</progress>'
            return f'{bar} <span class="num">{cell_text(cell)}</span>'
        case DrawingCell(drawing=drawing):
            return as_svg(drawing, embedded=True)
        case FoldCell(address=""):
            return '<span class="fold"></span>'
        case FoldCell(name=name, address=address, is_closed=is_closed):
            state, word, mark = ("false", "open", "▸") if is_closed else ("true", "close", "▾")
            label = f'aria-expanded="{state}" aria-label="{word} {escape(visible(name))}"'
            return f'<a class="fold" href="{escape(address)}" data-fold {label}>{mark}</a>'
        case CheckCell(name=name):
            shown = escape(visible(name))
            return f'<input type="checkbox" name="run" value="{escape(name)}" aria-label="compare {shown}">'
        case PartsCell(parts=[part]):
            return _inner(part)
        case PartsCell(parts=parts, separator=separator):
            return separator.join(filter(None, map(_part, parts)))
        case NumberCell(interval=(_, _), mark=mark):
            value = _emphasized(cell, escape(value_text(cell)))
            return f"{value}{escape(mark)} <small>{' … '.join(interval_ends(cell))}</small>"
        case cell if isinstance(cell, NUMBERS):
            return _emphasized(cell, escape(cell_text(cell)))
        case _:
            return _emphasized(cell, _directed(cell_text(cell)))


def _metric(cell: MetricCell) -> str:
    text = _breakable(cell.metric)
    if cell.higher_is_better is not None:
        word = "higher" if cell.higher_is_better else "lower"
        text += f' <span title="{word} is better">{direction_arrow(cell.higher_is_better)}</span>'
    if cell.filter not in ("", "none"):
        text += f" <small>{_breakable(cell.filter)}</small>"
    return f'<a href="{escape(cell.address)}">{text}</a>' if cell.address else text


def _part(cell: Cell) -> str:
    """A cell that is not alone: its style is not that of the whole."""
    inner, classes = _inner(cell), _class_attribute([cell_style(cell)])
    return f"<span{classes}>{inner}</span>" if inner and classes and not isinstance(cell, LinkCell) else inner


def _emphasized(cell: Cell, text: str) -> str:
    return f"<b>{text}</b>" if text and cell_style(cell) == "bold" else text


def _directed(text: str, after_marks: str = "") -> str:
    """A text escaped; one that may be written from right to left keeps that for itself."""
    escaped = MARKS.sub(after_marks, escape(text)) if after_marks else escape(text)
    return escaped if text.isascii() else f"<bdi>{escaped}</bdi>"


def _breakable(name: str) -> str:
    """A name escaped, which may be broken over lines after underscores, plus signs and slashes."""
    return _directed(visible(name), "<wbr>")
