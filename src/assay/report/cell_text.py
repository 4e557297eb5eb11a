"""The text of a cell for people, as terminals, Markdown and HTML show it. LaTeX, CSV and JSON write values their own way."""

from typing import assert_never

from assay.number_text import (
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
    ShareCell,
    Style,
    TextCell,
)
from assay.safe_text import visible
from assay.score_keys import metric_title


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
