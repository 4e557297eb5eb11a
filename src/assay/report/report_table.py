"""A table as a record: typed cells under columns. Commands, reports, viewer and notebooks build it; writers print it.

    table = ReportTable(
        columns=[Column("Task"), Column("Value", align="right"), Column("95 %", align="right", drop=2), Column("n", drop=1)],
        lines=[TableLine(["gsm8k", NumberCell(0.6133434), IntervalCell(0.58, 0.64), CountCell(1319)], style="bold")],
    )
    lines, left_out = write_terminal(table, width=80)        # report/terminal.py: leaves out what does not fit, wraps the rest
    Path("table.tex").write_text(write_latex(table))         # report/table_writers.py
    write_page_table(table, "results")                       # report/table_writers.py; report/table_writers.py: Markdown, CSV, JSON

A cell holds the value, not its text: CSV and JSON write 0.6133434, a terminal 0.6133, LaTeX $0.6133$. How many digits a number
has, and how durations and money look, is decided in assay/number_text.py alone.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text as RichText

    from assay.report.drawing import Drawing

Style = Literal["", "bold", "dim", "better", "worse", "warning", "chosen", "provisional"]
"""How a line or a cell is emphasized; a writer chooses color, weight or mark."""
Align = Literal["left", "right"]
Order = Literal["", "ascending", "descending"]


@dataclass(frozen=True, slots=True)
class TextCell:
    """A text with a style; writers escape it."""

    text: str
    style: Style = ""
    is_repeated: bool = False
    """Whether the line above has it, too: people see a blank, CSV and JSON have it."""


@dataclass(frozen=True, slots=True)
class NumberCell:
    """A number, with its standard error or its interval where one is given.

    Where `is_logarithmic`, as of a perplexity, the standard error is written as the factor that it is on that scale.
    """

    value: float | None
    stderr: float | None = None
    interval: tuple[float | None, float | None] | None = None
    is_logarithmic: bool = False
    is_signed: bool = False
    """Whether a plus is written, as for differences."""
    digits: int | None = None
    """Digits after the point; None: four, and fewer of a number above ten, so that it has four in all."""
    reason: str = ""
    """Is written beside it, where it has no error or interval for this reason."""
    mark: str = ""
    """Is written behind it: `*` where documents are missing."""
    style: Style = ""


@dataclass(frozen=True, slots=True)
class IntervalCell:
    """Both ends of an interval; None for an open end."""

    low: float | None
    high: float | None
    is_logarithmic: bool = False
    is_signed: bool = False
    digits: int = 3


@dataclass(frozen=True, slots=True)
class PValueCell:
    """A p-value."""

    p: float | None


@dataclass(frozen=True, slots=True)
class CountCell:
    """A whole number; `of` where it is a part, `mark` behind it (`*`: documents are missing)."""

    count: int | None
    of: int | None = None
    mark: str = ""
    style: Style = ""


@dataclass(frozen=True, slots=True)
class ShareCell:
    """A part of one, written as percent."""

    share: float | None
    digits: int = 1


@dataclass(frozen=True, slots=True)
class DurationCell:
    """A span of time in seconds."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class MoneyCell:
    """An amount in the currency of the prices."""

    amount: float | None


@dataclass(frozen=True, slots=True)
class LinkCell:
    """A text that leads to an address, where a writer can link."""

    text: str
    address: str
    style: Style = ""
    opens_line: bool = False
    """Whether it leads to what the line is about: the Enter key of a page opens it."""
    is_tag: bool = False


@dataclass(frozen=True, slots=True)
class MetricCell:
    """A metric, the filter of the answers that it is computed over, and whether higher values are better."""

    metric: str
    filter: str = "none"
    higher_is_better: bool | None = None
    address: str = ""
    """Where it leads in a page."""


@dataclass(frozen=True, slots=True)
class ProgressCell:
    """How many of the documents are done; a page draws a bar."""

    done: int
    expected: int


@dataclass(frozen=True, slots=True)
class DrawingCell:
    """A drawing, such as a number's place between 0 and 1; only pages have it."""

    drawing: "Drawing"


@dataclass(frozen=True, slots=True)
class FoldCell:
    """A link that opens or closes a group of lines; only pages have it. Without an address, the space of one."""

    name: str
    address: str
    is_closed: bool


@dataclass(frozen=True, slots=True)
class CheckCell:
    """A box that chooses the line's run in a form; only pages have it."""

    name: str


@dataclass(frozen=True, slots=True)
class PartsCell:
    """Several cells side by side in one, such as a name and links beside it; or one cell with a hint."""

    parts: Sequence["Cell"]
    hint: str = ""
    """Is shown in a page where a pointer rests on the cell."""
    keys: Sequence[str] = ()
    """The names of the parts in CSV and JSON; without them, these have the first part that has a value."""
    separator: str = " "


Cell = (
    str
    | TextCell
    | NumberCell
    | IntervalCell
    | PValueCell
    | CountCell
    | ShareCell
    | DurationCell
    | MoneyCell
    | LinkCell
    | MetricCell
    | ProgressCell
    | DrawingCell
    | FoldCell
    | CheckCell
    | PartsCell
)
"""The content of a column in a line; a `str` is a text without a style."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `key` is its name in CSV and JSON."""

    title: str
    key: str = ""
    """If it is not given, the title in lower case, with `_` for everything but letters and digits."""
    align: Align = "left"
    drop: int | None = None
    """A narrow terminal leaves out columns in this order, 1 first; None: never. A page on a narrow screen leaves them all out."""
    hint: str = ""
    """Is shown in a page where a pointer rests on the title."""
    address: str = ""
    """Where the title leads in a page: to the table sorted by this column."""
    order: Order = ""
    """How the lines are sorted by this column."""
    heads_lines: bool = False
    """Whether its cells are the titles of their lines: a page says so to those who hear it."""
    has_texts: bool = False
    """Whether the cells are texts of models and documents: a page keeps their lines and breaks long ones."""

    @property
    def name(self) -> str:
        """The name in CSV and JSON.

        >>> Column("to the first").name, Column("95 %", key="interval").name
        ('to_the_first', 'interval')
        """
        return self.key or re.sub(r"\W+", "_", self.title.lower()).strip("_")


class TableLine(NamedTuple):
    """A line of cells, one for each column; of fewer, the last one takes the place of those that are left out.

    `level` is its depth in a tree: the first cell is indented by it.
    """

    cells: Sequence[Cell]
    level: int = 0
    style: Style = ""


@dataclass(frozen=True, slots=True, repr=False)
class ReportTable:
    """Lines under columns, with a title above and notes below.

    Python shows it as Markdown (`str`), fitted to the terminal, or in a notebook as HTML. The writers, which read this record,
    are imported where that happens.
    """

    columns: Sequence[Column]
    lines: Sequence[TableLine]
    title: str = ""
    notes: Sequence[str] = field(default_factory=tuple)

    def __str__(self) -> str:
        from assay.report.table_writers import write_markdown

        return write_markdown(self)

    def __repr__(self) -> str:
        if not sys.stdout.isatty():
            return str(self)
        return "\n".join(self._fit(shutil.get_terminal_size().columns, colored="NO_COLOR" not in os.environ))

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RichText]":
        from rich.text import Text as RichText

        yield from map(RichText.from_ansi, self._fit(options.max_width, colored=console.color_system is not None))

    def _repr_html_(self) -> str:
        from assay.report.table_writers import write_html

        return write_html(self)

    def cells(self, line: TableLine) -> Sequence[Cell]:
        """The cells of a line, with an empty one for each that it leaves out."""
        left_out = len(self.columns) - len(line.cells)
        return [*line.cells, *[""] * left_out] if left_out else line.cells

    def _fit(self, width: int, *, colored: bool) -> Iterator[str]:
        from assay.report.terminal import wrap, write_terminal

        if self.title:
            yield from wrap(self.title, width)
        yield from write_terminal(self, width, colored=colored)[0]
        for note in self.notes:
            yield from wrap(note, width)


def number_columns(*titles: str) -> list[Column]:
    """Columns of numbers, which end at the right."""
    return [Column(title, align="right") for title in titles]


def make_table(columns: Iterable[Column | str], rows: Iterable[Sequence[Cell]], title: str = "") -> ReportTable:
    """A table of plain lines; a column of which nothing but its title is to be said is that text."""
    named = [Column(column) if isinstance(column, str) else column for column in columns]
    return ReportTable(named, [TableLine(row) for row in rows], title)
