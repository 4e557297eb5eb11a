"""Differences between runs that fit on one scale, as a plot shows them."""

from assay.comparison.comparison import ComparedRow, Comparison
from assay.report.plots import Interval


def drawn(comparison: Comparison, run: int) -> list[Interval]:
    """The differences of a run to the first: those of shares of which more is better, with their intervals."""
    return [_difference(row) for row in comparison.rows if row.run == run and _fits(row)]


def _fits(row: ComparedRow) -> bool:
    shares = all(value is not None and 0 <= value <= 1 for value in (row.a, row.b))
    return shares and row.interval is not None and row.higher_is_better is not False


def _difference(row: ComparedRow) -> Interval:
    low, high = row.interval or (None, None)
    name = f"{row.alias} {row.metric}" + (f" {row.filter}" if row.filter != "none" else "")
    return Interval(name, row.difference or 0.0, low, high, _p(row.p))


def _p(value: float | None) -> str:
    return "" if value is None else "p < 0.001" if value < 0.001 else f"p {value:.3f}"
