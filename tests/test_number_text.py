"""Numbers as people read them: every table, page and message takes them from assay.number_text."""

import math
from collections.abc import Callable

import pytest

from assay.number_text import (
    format_count,
    format_decimal,
    format_duration,
    format_end,
    format_figures,
    format_interval,
    format_money,
    format_p,
    format_points,
    format_share,
    format_short,
    format_signed,
    format_trimmed,
)

SHOWN: list[tuple[Callable[..., str], tuple[object, ...], str]] = [
    (format_decimal, (0.00004,), "0.0000"),
    (format_decimal, (2 / 3, 3), "0.667"),
    (format_decimal, (1e6,), "1e+06"),
    (format_decimal, (-math.inf,), "-∞"),
    (format_decimal, (math.nan,), "–"),
    (format_signed, (-0.25,), "-0.2500"),
    (format_short, (9.99999,), "10.0000"),
    (format_short, (99.126,), "99.13"),
    (format_short, (12345.678,), "12346"),
    (format_trimmed, (-0.5,), "-0.5"),
    (format_trimmed, (1e-7,), "1e-07"),
    (format_figures, (12345.6,), "1.235e+04"),
    (format_figures, (0.5, 2), "0.5"),
    (format_p, (0.00009,), "<0.0001"),
    (format_p, (0.0001,), "0.0001"),
    (format_end, (None,), "–"),
    (format_interval, (None, 0.5), "– … 0.500"),
    (format_count, (1_234_567,), "1,234,567"),
    (format_share, (0.12345,), "12.3 %"),
    (format_share, (1.0, 0), "100 %"),
    (format_points, (0.12345,), "+12.35pp"),
    (format_duration, (None,), ""),
    (format_duration, (0,), "0 s"),
    (format_duration, (0.0001,), "<1 ms"),
    (format_duration, (0.9996,), "1.0 s"),
    (format_duration, (59.96,), "1 min"),
    (format_duration, (3599.6,), "1 h"),
    (format_duration, (90_060,), "25 h 1 min"),
    (format_money, (0.0099,), "0.009900"),
    (format_money, (12.345678,), "12.3457"),
]


@pytest.mark.parametrize(("function", "arguments", "text"), SHOWN)
def test_a_number_is_written_by_its_rule(
    function: Callable[..., str], arguments: tuple[object, ...], text: str
) -> None:
    assert function(*arguments) == text
