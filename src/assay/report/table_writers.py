"""Writers of a ReportTable: Markdown, CSV and JSON. report/html.py, report/terminal.py and report/latex.py write it, too.

Nothing in a table can harm who reads it: texts are escaped for Markdown, control characters and changes of the text
direction are made visible, and what a spreadsheet would run as a formula is marked as text. CSV and JSON have every value
unrounded, each in a separate column: a number's standard error in `KEY_stderr`, its interval in `KEY_low` and `KEY_high`.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import assert_never

import orjson

from assay.records import JSONDict
from assay.report.cell_text import cell_style, cell_text
from assay.report.report_table import (
    Cell,
    CheckCell,
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
    Style,
    TableLine,
    TextCell,
)
from assay.safe_text import spreadsheet_text, visible

_MARKUP = re.compile(r"[\\`*|~$<>&]|](?=[(\[:])|(?<!\w)_|_(?!\w)")
_REFERENCE = re.compile(r"([@#])(?=\w)")
_SAFE_ADDRESS = re.compile(r"(?!//)(https?://|[^:]*$|[^:]*[/?#])", re.IGNORECASE)
HTML_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}

Value = str | float | None


def write_markdown(table: ReportTable) -> str:
    """The table as Markdown with aligned columns, its title above and its notes below."""
    titles = [markdown_cell(column.title) for column in table.columns]
    rows = [
        [_indented(_markdown_cell(cell), line, place) for place, cell in enumerate(table.cells(line))]
        for line in table.lines
    ]
    widths = [max(2, *(len(row[place]) for row in [titles, *rows])) for place in range(len(titles))]
    is_right = [column.align == "right" for column in table.columns]
    rule = ["-" * (width - 1) + ":" if right else "-" * width for width, right in zip(widths, is_right, strict=True)]
    padded = [
        [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, is_right, strict=True)
        ]
        for row in [titles, *rows]
    ]
    grid = "\n".join(f"|{'|'.join(row)}|" for row in [padded[0], rule, *padded[1:]])
    notes = "\n".join(markdown_cell(note) for note in table.notes)
    title = "\n".join(map(markdown_cell, table.title.splitlines()))
    return "\n\n".join(part for part in (title, grid, notes) if part)


def markdown_cell(text: str) -> str:
    r"""The text within a cell of a Markdown table; names such as `exact_match` stay as they are.

    >>> markdown_cell("exact_match [95 %]"), markdown_cell("a|<b>\n*c* @you _d_ [e](f)")
    ('exact_match [95 %]', 'a\\|&lt;b&gt;⏎\\*c\\* @&#8203;you \\_d\\_ [e\\](f)')
    """
    plain = _MARKUP.sub(lambda match: HTML_ENTITIES.get(match.group(), "\\" + match.group()), visible(text))
    return _REFERENCE.sub(r"\1&#8203;", plain.replace("\n", "⏎"))


def _markdown_cell(cell: Cell) -> str:
    match cell:
        case str():
            text = markdown_cell(cell)
        case TextCell():
            text = "" if cell.is_repeated else markdown_cell(cell.text)
        case LinkCell() if is_safe_address(cell.address):
            text = f"[{markdown_cell(cell.text)}](<{escape(cell.address).replace('|', '%7C')}>)"
        case LinkCell():
            text = markdown_cell(cell.text)
        case _:
            text = cell_text(cell)
    return f"**{text}**" if text and cell_style(cell) == "bold" else text


def _indented(text: str, line: TableLine, place: int) -> str:
    """The text of a cell; a member's name below its group's."""
    return f"{' ' * line.level}- {text}" if line.level and not place and text else text


def is_safe_address(address: str) -> bool:
    """Whether a link leads to a page: not to a script, nor to another host by leaving out the protocol.

    >>> is_safe_address("https://a.example/x"), is_safe_address("runs/a:b"), is_safe_address("javascript:alert(1)")
    (True, True, False)
    """
    return visible(address) == address and not re.search(r"\s", address) and _SAFE_ADDRESS.match(address) is not None


def write_csv(table: ReportTable) -> str:
    """The table as CSV: values unrounded, a text that a spreadsheet would run as a formula marked as text."""
    records, names = table_records(table)
    return csv_text(names, [[record.get(name) for name in names] for record in records])


def csv_text(names: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    r"""Rows of values as CSV: nothing for None, and a text that a spreadsheet would run as a formula marked as text.

    >>> csv_text(["run", "value"], [["=a", 0.5], ["b", None]])
    "run,value\n'=a,0.5\nb,\n"
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in (names, *rows):
        writer.writerow([spreadsheet_text(value) if isinstance(value, str) else value for value in row])
    return out.getvalue()


def write_json(table: ReportTable) -> str:
    """The table as a JSON object with `title`, `rows` (an object each, with the same keys) and `notes`."""
    records, names = table_records(table)
    rows = [{name: record.get(name) for name in names} for record in records]
    written: JSONDict = {"title": table.title, "rows": rows, "notes": list(table.notes)}
    return orjson.dumps(written, option=orjson.OPT_INDENT_2).decode() + "\n"


def table_records(table: ReportTable) -> tuple[list[dict[str, Value]], list[str]]:
    """The values of each line by name, and all names in the order of the columns."""
    has_levels = any(line.level for line in table.lines)
    records = [_record(table, line, has_levels=has_levels) for line in table.lines]
    names = ["level"] if has_levels else []
    for place, column in enumerate(table.columns):
        endings = dict.fromkeys(ending for line in table.lines for ending in cell_values(table.cells(line)[place]))
        names += [f"{column.name}{ending}" for ending in endings] if endings else [column.name]
    return records, names


def _record(table: ReportTable, line: TableLine, *, has_levels: bool) -> dict[str, Value]:
    record: dict[str, Value] = {"level": line.level} if has_levels else {}
    for column, cell in zip(table.columns, table.cells(line), strict=True):
        record |= {f"{column.name}{ending}": value for ending, value in cell_values(cell).items()}
    return record


def cell_values(cell: Cell) -> dict[str, Value]:  # noqa: C901  # a case for each kind of cell
    """The values of a cell, each by what is added to the name of its column."""
    match cell:
        case str():
            return {"": cell} if cell else {}
        case TextCell(text=text) | LinkCell(text=text):
            return {"": text}
        case NumberCell(value=value, stderr=stderr, interval=interval, mark=mark):
            values: dict[str, Value] = {"": value}
            if stderr is not None:
                values["_stderr"] = stderr
            if interval is not None:
                values |= {"_low": interval[0], "_high": interval[1]}
            if cell.reason:
                values["_reason"] = cell.reason
            return values | _remarks(mark, cell.style)
        case PValueCell(p=p):
            return {"": p}
        case IntervalCell(low=low, high=high):
            return {"_low": low, "_high": high}
        case CountCell(count=count, of=whole, mark=mark):
            counted: dict[str, Value] = {"": count} if whole is None else {"": count, "_of": whole}
            return counted | _remarks(mark, cell.style)
        case ShareCell(share=value) | DurationCell(seconds=value) | MoneyCell(amount=value):
            return {"": value}
        case MetricCell(metric=metric, filter=filter_name):
            return {"": metric, "_filter": filter_name}
        case ProgressCell(done=done, expected=expected):
            return {"": done, "_of": expected}
        case DrawingCell() | FoldCell() | CheckCell():
            return {}
        case PartsCell(parts=parts, keys=keys) if keys:
            return {f"_{key}": cell_values(part)[""] for key, part in zip(keys, parts, strict=True)}
        case PartsCell(parts=parts):
            return next((values for values in map(cell_values, parts) if values), {})
        case _:
            assert_never(cell)


def _remarks(mark: str, style: Style) -> dict[str, Value]:
    return {**({"_mark": mark} if mark else {}), **({"_style": style} if style else {})}
