"""A table as a record: typed cells under columns. Commands, reports, viewer and notebooks build it; writers print it.

    table = ReportTable(
        columns=[Column("Task"), Column("Value", align="right"), Column("95 %", align="right", drop=2), Column("n", drop=1)],
        lines=[Line([Text("gsm8k"), Number(0.61), Interval(0.58, 0.64), Count(1319)], style="bold")],
    )
    print(write_terminal(table, width=80))       # report/terminal.py: leaves out what does not fit, wraps the rest
    Path("table.tex").write_text(write_latex(table))

A cell holds the value, not its text: CSV and JSON write 0.6133434, a terminal 0.613, LaTeX $0.613$. How many digits a number
has, and how durations and money look, is decided in report/number_text.py alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Style = Literal["", "bold", "dim", "better", "worse", "warning"]
"""How a line or a cell is emphasized; a writer chooses color, weight or mark."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text, which a writer escapes."""

    text: str
    style: Style = ""


@dataclass(frozen=True, slots=True)
class Number:
    """A number; `stderr` beside it, as a factor where `is_logarithmic`, as of a perplexity."""

    value: float | None
    stderr: float | None = None
    is_logarithmic: bool = False
    is_signed: bool = False
    """Whether a plus is written, as for differences."""
    digits: int | None = None
    """Digits after the point; None: as many as report/number_text.py finds right for the value."""
    style: Style = ""


@dataclass(frozen=True, slots=True)
class Interval:
    """Both ends of an interval; None for an open end."""

    low: float | None
    high: float | None
    is_logarithmic: bool = False
    is_signed: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number; `of` where it is a part, `mark` behind it (`*`: incomplete)."""

    count: int | None
    of: int | None = None
    mark: str = ""
    style: Style = ""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of one, written as percent."""

    share: float | None


@dataclass(frozen=True, slots=True)
class Duration:
    """A span of time in seconds."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in the currency of the prices."""

    amount: float | None


@dataclass(frozen=True, slots=True)
class Link:
    """A text that leads to an address, where a writer can link."""

    text: str
    address: str
    style: Style = ""


Cell = Text | Number | Interval | Count | Share | Duration | Money | Link
EMPTY = Text("")


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `key` is its name in CSV and JSON, in lower case without blanks if it is not given."""

    title: str
    key: str = ""
    align: Literal["left", "right"] = "left"
    drop: int | None = None
    """A narrow terminal leaves out columns in this order, 1 first; None: never."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of cells, one for each column. `level` is its depth in a tree: the first cell is indented by it."""

    cells: Sequence[Cell]
    level: int = 0
    style: Style = ""


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Lines under columns, with a title above and notes below."""

    columns: Sequence[Column]
    lines: Sequence[Line]
    title: str = ""
    notes: Sequence[str] = field(default_factory=tuple)
