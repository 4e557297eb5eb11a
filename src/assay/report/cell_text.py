"""The text of a cell for people, as terminals, Markdown and HTML show it. LaTeX, CSV and JSON write values their own way."""

from typing import assert_never

from assay.number_text import (
    NO_VALUE,
    format_count,
    format_decimal,
    format_duration,
    format_end,
    format_interval,
    format_money,
    format_share,
    relative_error,
)
from assay.report.report_table import (
    Cell,
    CountCell,
    DurationCell,
    IntervalCell,
    LinkCell,
    MoneyCell,
    NumberCell,
    ShareCell,
    TextCell,
)
from assay.safe_text import visible

DIGITS = 4
"""Digits after the point of a number that does not say how many."""


def cell_text(cell: Cell) -> str:
    """Return the text of a cell; of texts, with invisible characters escaped.

    >>> cell_text(NumberCell(0.6133, stderr=0.0134, digits=3)), cell_text(IntervalCell(0.25, None))
    ('0.613 ± 0.013', '0.250 … –')
    >>> cell_text(CountCell(3, of=57, mark="*"))
    '3 of 57*'
    """
    match cell:
        case str():
            return visible(cell)
        case TextCell(text=text) | LinkCell(text=text):
            return visible(text)
        case NumberCell():
            return _number_text(cell)
        case IntervalCell(low=low, high=high, is_logarithmic=is_logarithmic):
            if cell.is_signed:
                return " … ".join(format_decimal(end, is_signed=True) for end in (low, high))
            return format_interval(low, high, is_logarithmic=is_logarithmic)
        case CountCell(count=count, of=whole, mark=mark):
            return format_count(count) + (f" of {format_count(whole)}" if whole is not None else "") + mark
        case ShareCell(share=share):
            return format_share(share)
        case DurationCell(seconds=seconds):
            return format_duration(seconds)
        case MoneyCell(amount=amount):
            return format_money(amount)
        case _:
            assert_never(cell)


def _number_text(cell: NumberCell) -> str:
    digits = DIGITS if cell.digits is None else cell.digits
    if cell.value is None:
        return NO_VALUE + cell.mark
    text = format_decimal(cell.value, digits, is_signed=cell.is_signed)
    factor = error_factor(cell)
    if factor is not None:
        text += f" ×/÷ {format_end(factor, is_logarithmic=True)}"
    elif cell.stderr is not None:
        text += f" ± {format_decimal(cell.stderr, digits)}"
    if cell.interval is not None:
        text += f" [{', '.join(interval_ends(cell))}]"
    return text + cell.mark


def error_factor(cell: NumberCell) -> float | None:
    """The standard error of a number on a logarithmic scale, as a factor; None of other numbers."""
    if not cell.is_logarithmic or cell.stderr is None or cell.value is None or cell.value <= 0:
        return None
    return relative_error(cell.value, cell.stderr)


def interval_ends(cell: NumberCell) -> list[str]:
    """The two ends of a number's interval, with as many digits as the number."""
    digits = DIGITS if cell.digits is None else cell.digits
    return [
        format_end(end, is_logarithmic=True)
        if cell.is_logarithmic
        else format_decimal(end, digits, is_signed=cell.is_signed)
        for end in cell.interval or ()
    ]
