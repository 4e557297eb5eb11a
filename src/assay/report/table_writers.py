"""Writers of a ReportTable: Markdown, CSV, JSON, LaTeX and HTML, and the text of a cell for people. report/terminal.py writes it,
too.

Nothing in a table can harm who reads it: texts are escaped, control characters and changes of the text direction are made
visible, and what a spreadsheet would run as a formula is marked as text. CSV and JSON have every value unrounded, each in a
separate column: a number's standard error in `KEY_stderr`, its interval in `KEY_low` and `KEY_high`.

LaTeX has the rules of booktabs, to be read by `\\input{table}`: the document needs `\\usepackage{booktabs}` and no other package.
Letters of scripts that pdflatex has no font for are left as they are: xelatex and lualatex print them. HTML has styles in every
cell for a notebook or a message, and classes for a page of ours, whose policy forbids styles in elements.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import assert_never

import orjson
from markupsafe import Markup

from assay.number_text import (
    NO_VALUE,
    format_count,
    format_decimal,
    format_duration,
    format_end,
    format_money,
    format_p,
    format_share,
    format_short,
    relative_error,
)
from assay.records import JSONDict
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
    Style,
    TableLine,
    TextCell,
)
from assay.safe_text import spreadsheet_text, visible
from assay.score_keys import metric_title

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


def cell_text(cell: Cell) -> str:  # noqa: C901  # a case for each kind of cell
    """Return the text of a cell; of texts, with invisible characters escaped.

    >>> cell_text(NumberCell(0.6133, stderr=0.0134, digits=3)), cell_text(IntervalCell(0.25, None))
    ('0.613 ± 0.013', '0.250 … –')
    >>> cell_text(CountCell(3, of=57, mark="*"))
    '3 of 57*'
    >>> cell_text(MetricCell("acc", "strict", True))
    'acc (strict) ↑'
    """
    match cell:
        case str():
            return visible(cell)
        case TextCell(is_repeated=True):
            return ""
        case TextCell(text=text) | LinkCell(text=text):
            return visible(text)
        case NumberCell():
            return _number_text(cell)
        case IntervalCell():
            return " … ".join(ends_text(cell))
        case PValueCell(p=p):
            return format_p(p)
        case CountCell(count=count, of=whole, mark=mark):
            return format_count(count) + (f" of {format_count(whole)}" if whole is not None else "") + mark
        case ShareCell(share=share, digits=digits):
            return format_share(share, digits)
        case DurationCell(seconds=seconds):
            return format_duration(seconds)
        case MoneyCell(amount=amount):
            return format_money(amount)
        case MetricCell(metric=metric, filter=filter_name, higher_is_better=is_better):
            return visible(f"{metric_title(metric, filter_name)} {direction_arrow(is_better)}".rstrip())
        case ProgressCell(done=done, expected=expected):
            return f"{format_count(done)} / {format_count(expected)}"
        case DrawingCell() | FoldCell() | CheckCell():
            return ""
        case PartsCell(parts=parts, separator=separator):
            return separator.join(filter(None, map(cell_text, parts)))
        case _:
            assert_never(cell)


def cell_style(cell: Cell) -> Style:
    """How a cell is emphasized, apart from its line."""
    match cell:
        case TextCell() | NumberCell() | CountCell() | LinkCell():
            return cell.style
        case PartsCell(parts=[part]):
            return cell_style(part)
        case _:
            return ""


def direction_arrow(higher_is_better: bool | None) -> str:
    """An arrow in the direction in which a metric is better; nothing where none is known."""
    return "" if higher_is_better is None else "↑" if higher_is_better else "↓"


def _number_text(cell: NumberCell) -> str:
    text = value_text(cell)
    factor = error_factor(cell)
    if factor is not None:
        text += f" ×/÷ {format_end(factor, is_logarithmic=True)}"
    elif cell.stderr is not None:
        text += f" ± {error_text(cell)}"
    if cell.interval is not None:
        text += f" [{', '.join(interval_ends(cell))}]"
    return f"{text} {visible(cell.reason)}{cell.mark}" if cell.reason else text + cell.mark


def value_text(cell: NumberCell) -> str:
    """The number alone, or a dash."""
    if cell.digits is None:
        return format_short(cell.value, is_signed=cell.is_signed)
    return format_decimal(cell.value, cell.digits, is_signed=cell.is_signed)


def error_text(cell: NumberCell) -> str:
    """The standard error alone, with as many digits after the point as the number."""
    return format_short(cell.stderr) if cell.digits is None else format_decimal(cell.stderr, cell.digits)


def error_factor(cell: NumberCell) -> float | None:
    """The standard error of a number on a logarithmic scale, as a factor; None of other numbers."""
    if not cell.is_logarithmic or cell.stderr is None or cell.value is None or cell.value <= 0:
        return None
    return relative_error(cell.value, cell.stderr)


def interval_ends(cell: NumberCell) -> list[str]:
    """The two ends of a number's interval: with as many digits as the number, or three where it does not say how many."""
    ends = cell.interval or ()
    if cell.is_logarithmic:
        return [format_end(end, is_logarithmic=True) for end in ends]
    if cell.digits is None:
        return [format_short(end, 3, is_signed=cell.is_signed) for end in ends]
    return [format_decimal(end, cell.digits, is_signed=cell.is_signed) for end in ends]


def ends_text(cell: IntervalCell) -> list[str]:
    """The two ends of an interval; none where both are open."""
    if cell.low is None and cell.high is None:
        return []
    if cell.is_logarithmic:
        return [format_end(end, is_logarithmic=True) for end in (cell.low, cell.high)]
    return [format_decimal(end, cell.digits, is_signed=cell.is_signed) for end in (cell.low, cell.high)]


ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",  # babel makes it a command in some languages
    "`": r"\textasciigrave{}",
    "'": "{'}",  # two of them are another character
    "-": "{-}",  # two of them are a dash
    "[": "{[}",  # at the beginning of a line it would begin an option of the line before
    "]": "{]}",
    "*": "{*}",  # likewise
    "\n": " ",
    "\t": " ",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "÷": r"$\div$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "∞": r"$\infty$",
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
    "·": r"$\cdot$",
    "†": r"$\dagger$",
    "\N{NO-BREAK SPACE}": "~",
}
NO_NUMBER = "--"
LATEX_MARKS = {"*": r"^{*}", "†": r"^{\dagger}"}


def write_latex(table: ReportTable) -> str:
    """The table as a `table` environment: its title is the caption, its notes follow in small type."""
    columns = "".join("r" if column.align == "right" else "l" for column in table.columns)
    lines = [
        "% needs \\usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        *([rf"\caption{{{latex_text(table.title)}}}"] if table.title else []),
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _row(latex_text(column.title) for column in table.columns),
        r"\midrule",
        *(_row(_cell(cell, line, place) for place, cell in enumerate(table.cells(line))) for line in table.lines),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if table.notes:
        notes = " ".join(map(latex_text, table.notes))
        lines += ["", r"\smallskip", rf"{{\footnotesize {notes}\par}}"]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def latex_text(text: str) -> str:
    r"""The text with every character escaped that LaTeX reads as more than a letter.

    >>> latex_text(r"50% of a_b & {c} \input{x}")
    '50\\% of a\\_b \\& \\{c\\} \\textbackslash{}input\\{x\\}'
    """
    return "".join(ESCAPES.get(character, character) for character in visible(text))


def _row(cells: Iterable[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _cell(cell: Cell, line: TableLine, place: int) -> str:
    is_bold = "bold" in (cell_style(cell), line.style)
    is_named = not place and not (isinstance(cell, TextCell) and cell.is_repeated)
    indent = rf"\hspace*{{{line.level}em}}" if line.level and is_named else ""
    match cell:
        case NumberCell():
            return indent + _number(cell, is_bold=is_bold)
        case IntervalCell():
            return _interval(cell, is_bold=is_bold)
        case _:
            text = latex_text(cell_text(cell))
            return indent + (rf"\textbf{{{text}}}" if is_bold and text else text)


def _number(cell: NumberCell, *, is_bold: bool) -> str:
    mark = LATEX_MARKS.get(cell.mark, rf"^{{\mbox{{{latex_text(cell.mark)}}}}}" if cell.mark else "")
    if cell.value is None:
        return f"{NO_NUMBER}${mark}$" if mark else NO_NUMBER
    text = _figures(value_text(cell))
    if is_bold:
        text = rf"\mathbf{{{text}}}"
    factor = error_factor(cell)
    if factor is not None:
        text += rf" \mathbin{{\times\!/\!\div}} {_figures(format_end(factor, is_logarithmic=True))}"
    elif cell.stderr is not None:
        text += rf" \pm {_figures(error_text(cell))}"
    if cell.interval is not None:
        text += rf"\;[{', '.join(map(_figures, interval_ends(cell)))}]"
    reason = f" {latex_text(cell.reason)}" if cell.reason else ""
    return f"${text}{mark}${reason}"


def _interval(cell: IntervalCell, *, is_bold: bool) -> str:
    text = r" \dots ".join(map(_figures, ends_text(cell)))
    if not text:
        return ""
    return rf"$\mathbf{{{text}}}$" if is_bold else f"${text}$"


def _figures(text: str) -> str:
    r"""A number as it is written in math.

    >>> _figures("1.235e+07"), _figures("-∞"), _figures("–")
    ('1.235\\times10^{7}', '-\\infty', '\\mbox{--}')
    """
    if text == NO_VALUE:
        return r"\mbox{--}"
    figures, _, exponent = text.partition("e")
    return rf"{figures}\times10^{{{int(exponent)}}}" if exponent else text.replace("∞", r"\infty")


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
