r"""Writes a ReportTable as LaTeX, with the rules of booktabs, to be read by `\input{table}`.

Every character that LaTeX would take for a command, for math, or for an option of the line before is escaped: a name is only
ever text. The document needs `\usepackage{booktabs}` and no other package. Letters of scripts that pdflatex has no font for are
left as they are: xelatex and lualatex print them.
"""

from collections.abc import Iterable

from assay.number_text import NO_VALUE, format_end
from assay.report.cell_text import cell_style, cell_text, ends_text, error_factor, error_text, interval_ends, value_text
from assay.report.report_table import Cell, IntervalCell, NumberCell, ReportTable, TableLine, TextCell
from assay.safe_text import visible

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
MARKS = {"*": r"^{*}", "†": r"^{\dagger}"}


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
    mark = MARKS.get(cell.mark, rf"^{{\mbox{{{latex_text(cell.mark)}}}}}" if cell.mark else "")
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
