"""Numbers as people read them: digits, signs, p-values, ends of intervals, counts, shares, durations and money.

Every table, page and message formats its numbers here, so that the same number looks the same everywhere. What rounds to zero
is written without a minus (`z` in a format).
"""

import math
from collections.abc import Sequence

NO_VALUE = "–"
"""Written where there is no number."""
LARGE = 1e6
"""Larger numbers are written by their first digits."""


def format_decimal(value: float | None, digits: int = 4, *, is_signed: bool = False) -> str:
    """A number with so many digits after the point; a very large one by its first digits; a dash where there is none.

    >>> format_decimal(0.25), format_decimal(0.25, is_signed=True), format_decimal(12345678.0), format_decimal(None)
    ('0.2500', '+0.2500', '1.235e+07', '–')
    >>> format_decimal(-0.00001), format_decimal(-0.00001, is_signed=True)
    ('0.0000', '+0.0000')
    """
    if value is None or math.isnan(value):
        return NO_VALUE
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    sign = "+" if is_signed else ""
    return f"{value:{sign}z.{digits}f}" if abs(value) < LARGE else f"{value:{sign}.4g}"


def format_signed(value: float | None) -> str:
    """A difference: with its sign, and four digits after the point.

    >>> format_signed(0.25), format_signed(None)
    ('+0.2500', '–')
    """
    return format_decimal(value, is_signed=True)


def format_short(value: float | None, digits: int = 4, *, is_signed: bool = False) -> str:
    """A number below ten with so many digits after the point; a larger one with four digits in all.

    >>> format_short(0.25), format_short(-5692.38, is_signed=True), format_short(434.9848, is_signed=True)
    ('0.2500', '-5692', '+435.0')
    >>> format_short(0.12345, 3), format_short(12.345, 3), format_short(float("inf"))
    ('0.123', '12.35', '∞')
    """
    if value is None or not 10 <= abs(value) < LARGE:
        return format_decimal(value, digits, is_signed=is_signed)
    return format_decimal(value, max(0, 3 - math.floor(math.log10(abs(value)))), is_signed=is_signed)


def format_trimmed(value: float) -> str:
    """A number with four digits after the point at most and no zeros at its end; a very large or small one by its first digits.

    >>> format_trimmed(1.0), format_trimmed(1 / 3), format_trimmed(0.00001234), format_trimmed(123456.75)
    ('1', '0.3333', '1.234e-05', '123456.75')
    """
    rounded = f"{value:z.4f}".rstrip("0").rstrip(".")
    return rounded if 1e-4 <= abs(value) < 1e9 or value == 0 else f"{value:.4g}"


def format_figures(value: float | None, figures: int = 4, *, is_signed: bool = False) -> str:
    """A number with its first figures alone, as on an axis and in a sentence; a dash where there is none.

    >>> format_figures(0.25), format_figures(1 / 3), format_figures(0.000012345), format_figures(0.0123, 2)
    ('0.25', '0.3333', '1.234e-05', '0.012')
    """
    return NO_VALUE if value is None else f"{value:{'+' if is_signed else ''}z.{figures}g}"


def format_points(difference: float, digits: int = 2, *, unit: str = "pp", is_signed: bool = True) -> str:
    """A difference of shares in percentage points, or in another unit of a hundredth.

    >>> format_points(-0.008), format_points(0.0471, 1, is_signed=False), format_points(0.02, unit="%")
    ('-0.80pp', '4.7pp', '+2.00%')
    """
    return f"{difference * 100:{'+' if is_signed else ''}z.{digits}f}{unit}"


def format_p(p: float | None) -> str:
    """A p-value with four digits; nothing where there is none.

    >>> format_p(0.00001), format_p(0.0412), format_p(None)
    ('<0.0001', '0.0412', '')
    """
    if p is None or math.isnan(p):
        return ""
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"


def format_end(end: float | None, *, is_logarithmic: bool = False) -> str:
    """An end of an interval; on a logarithmic scale with its first three digits, of which more would say nothing.

    >>> format_end(9300.748, is_logarithmic=True), format_end(4.2437, is_logarithmic=True), format_end(0.98765)
    ('9300', '4.24', '0.988')
    """
    if end is None or not is_logarithmic or not math.isfinite(end) or end <= 0:
        return format_decimal(end, 3)
    digits = 2 - math.floor(math.log10(end))
    return f"{round(end, digits):.{max(digits, 0)}f}" if abs(digits) < 9 else f"{end:.3g}"


def format_interval(low: float | None, high: float | None, *, is_logarithmic: bool = False) -> str:
    """Both ends of an interval; a dash at an open end, nothing where both are.

    >>> format_interval(0.25, 0.5), format_interval(0.25, None), format_interval(None, None)
    ('0.250 … 0.500', '0.250 … –', '')
    """
    if low is None and high is None:
        return ""
    return " … ".join(format_end(end, is_logarithmic=is_logarithmic) for end in (low, high))


def relative_error(value: float, stderr: float) -> float:
    """By what factor a positive number of a logarithmic scale may well be more or less: e to its relative error.

    >>> round(relative_error(198.66, 379.8), 2)
    6.77
    """
    return math.exp(min(stderr / value, 700.0))  # e to 710 is more than a float holds


def format_count(count: int | None) -> str:
    """A whole number with its thousands set apart; nothing where there is none.

    >>> format_count(1319), format_count(None)
    ('1,319', '')
    """
    return "" if count is None else f"{count:,}"


def format_share(share: float | None, digits: int = 1) -> str:
    """A part of one as percent.

    >>> format_share(0.0314), format_share(None)
    ('3.1 %', '–')
    """
    return NO_VALUE if share is None or math.isnan(share) else f"{share * 100:z.{digits}f} %"


def format_level(level: float) -> str:
    """A level of confidence or of a test, with the digits that it was given with.

    >>> format_level(0.95), format_level(0.995), format_level(1 - 0.95)
    ('95 %', '99.5 %', '5 %')
    """
    return f"{level * 100:g} %"


def format_duration(seconds: float | None) -> str:
    """A span of time, in at most two units; nothing where there is none. A whole number is one that was rounded before.

    >>> format_duration(0.0123), format_duration(1.25), format_duration(30), format_duration(75), format_duration(7300)
    ('12 ms', '1.2 s', '30 s', '1 min 15 s', '2 h 2 min')
    """
    if seconds is None:
        return ""
    if 0 < seconds < 0.0005:
        return "<1 ms"
    if 0 < seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds} s" if isinstance(seconds, int) else f"{seconds:.1f} s"
    whole = round(seconds)
    units = (whole // 60, "min", whole % 60, "s")
    if whole >= 3600:
        minutes = round(whole / 60)
        units = (minutes // 60, "h", minutes % 60, "min")
    more, unit, rest, smaller = units
    return f"{more} {unit} {rest} {smaller}" if rest else f"{more} {unit}"


def time_left_text(seconds: float | None, unknown: Sequence[str] = ()) -> str:
    """The time left in words; a kind of request that was not seen yet makes it a minimum.

    >>> time_left_text(130.0), time_left_text(20.0, ("judge calls",))
    ('about 2 min left', 'at least 20 s left (judge calls not yet seen)')
    """
    unseen = f" ({' and '.join(_few(unknown))} not yet seen)" if unknown else ""
    if seconds is None:
        return f"time left unknown{unseen}"
    rounded = round(seconds) if seconds < 60 else round(seconds / 60) * 60  # nobody knows it better
    return f"{'at least' if unknown else 'about'} {format_duration(rounded)} left{unseen}"


def _few(kinds: Sequence[str]) -> list[str]:
    return [*kinds[:2], f"{len(kinds) - 2} more kinds"] if len(kinds) > 3 else list(kinds)


def format_money(amount: float | None) -> str:
    """An amount in the currency of the prices; a small one with more digits; nothing where there is none.

    >>> format_money(1.5), format_money(0.00123), format_money(0), format_money(None)
    ('1.5000', '0.001230', '0.0000', '')
    """
    if amount is None:
        return ""
    return f"{amount:.{6 if 0 < abs(amount) < 0.01 else 4}f}"
