"""Plots and graph drawings as SVG, for reports and the viewer, with text forms for a terminal.

Nothing in them is styled inline: colors come from STYLE, so that a page may forbid inline styles.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from assay.comparison.comparison import ComparedRow, Comparison
from assay.config.row_names import shown_filter
from assay.number_text import format_decimal, format_duration, format_p, format_signed
from assay.report.charts import Chart, Point, Series, draw, reliability_panel
from assay.report.drawing import as_svg

if TYPE_CHECKING:
    from assay.statistics.calibration import CurvePoint

STYLE = """\
svg.plot { display: block; max-width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg.plot.inline { display: inline-block; vertical-align: middle; }
svg.plot text { fill: var(--ink); }
svg.plot .faint { fill: var(--faint); }
svg.plot .track { fill: var(--track); }
svg.plot .rule { stroke: var(--line); stroke-width: 1; fill: none; }
svg.plot .spread { fill: var(--spread); }
svg.plot .mark { fill: var(--accent); }
svg.plot .worse { fill: var(--bad); }
svg.plot .better { fill: var(--good); }
svg.plot .node { fill: var(--panel); stroke: var(--line); }
svg.plot .node.failing { stroke: var(--bad); stroke-width: 2; }
svg.plot .way { stroke: var(--faint); stroke-width: 1.25; fill: none; }
svg.plot .way.back { stroke-dasharray: 4 3; }
svg.plot .ground { fill: var(--page); }
svg.plot .tip { fill: var(--faint); }
svg.plot .stroke { fill: none; stroke: var(--accent); }
svg.plot .fill.series0 { fill: var(--accent); }
svg.plot .stroke.rule { stroke: var(--line); }
svg.plot .stroke.grid { stroke: var(--track); }
"""
"""CSS of pages with plots; the colors are variables of the page."""


class Interval(NamedTuple):
    """A value with its interval, under a name; `note` is shown beside it."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    note: str = ""


class Span(NamedTuple):
    """A piece of work with its duration: a request to a model, or a call of a tool."""

    name: str
    seconds: float
    kind: str
    note: str = ""


class Bin(NamedTuple):
    """The number of values between two bounds."""

    low: float
    high: float
    size: int


def interval_bar(interval: Interval, *, start: float = 0.0, end: float = 1.0, width: int = 140) -> str:
    """A bar for one number: its place between two bounds, with its interval."""
    at = _scale(start, end, 3, width - 3)
    low, high = (
        (interval.low, interval.high) if interval.low is not None and interval.high is not None else (None, None)
    )
    parts = [f'<rect class="track" x="0" y="7" width="{width}" height="2"/>']
    if low is not None and high is not None:
        parts.append(_rect("spread", at(low), 4, max(at(high) - at(low), 1.0), 8))
    parts.append(_rect("mark", at(interval.value) - 1.5, 2, 3, 12))
    return _svg(width, 16, f"{interval.name} {interval_text(interval)}".strip(), parts, "plot inline")


def shares(parts: Sequence[tuple[str, int, str]], *, width: int = 360, label: str = "shares") -> str:
    """One bar of parts side by side, each with its name, count and share; the third value of a part is its color."""
    total = sum(size for _, size, _ in parts) or 1
    shapes, at = [], 0.0
    for number, (name, size, kind) in enumerate(parts):
        wide, text = size / total * width, f"{name}: {size:,} ({size / total:.1%})"
        bar = _rect(kind, at, 4, max(wide - 1, 0.0), 22)
        shapes.append(f"<g><title>{escape(text)}</title>{bar}</g>")
        shapes += [_rect(kind, 0, 36 + number * 18, 10, 10), _text(16, 45 + number * 18, text)]
        at += wide
    described = ", ".join(f"{name}: {size:,}" for name, size, _ in parts)
    return _svg(width, 36 + len(parts) * 18, f"{label}: {described}", shapes)


def histogram(
    bins: Sequence[Bin], *, width: int = 360, height: int = 120, label: str = "scores", is_signed: bool = False
) -> str:
    """The distribution of values: a bar per bin, with its count as a tooltip; signed ones are colored by their side of 0."""
    if not bins:
        return ""
    most = max(each.size for each in bins) or 1
    step, floor = width / len(bins), height - 18
    parts = []
    for number, each in enumerate(bins):
        tall = each.size / most * (floor - 14)
        label_text = f"{_four_digits(each.low)} … {_four_digits(each.high)}: {each.size:,}"
        kind = "mark" if not is_signed else "better" if each.low >= 0 else "worse"
        bar = _rect(kind, number * step + 1, floor - tall, max(step - 2, 1.0), tall)
        parts.append(f"<g><title>{escape(label_text)}</title>{bar}</g>")
        if each.size and len(bins) <= 12:
            parts.append(_text(number * step + step / 2, floor - tall - 3, f"{each.size:,}", "middle", "faint"))
    parts.append(f'<path class="rule" d="M0 {floor}H{width}"/>')
    parts.append(_text(0, height - 4, _four_digits(bins[0].low), "start"))
    parts.append(_text(width, height - 4, _four_digits(bins[-1].high), "end"))
    return _svg(width, height, f"{label}: {histogram_text(bins)}", parts)


def calibration(
    points: Sequence["CurvePoint"], intervals: Sequence[tuple[float, float] | None] = (), *, size: float = 320
) -> str:
    """Confidence against accuracy; a calibrated model is on the diagonal."""
    most = max((each.n for each in points), default=1)
    drawn = []
    for number, each in enumerate(points):
        low, high = (intervals[number] if number < len(intervals) else None) or (None, None)
        title = f"confidence {each.confidence:.2f}: {each.accuracy:.2f} right of {each.n:,}"
        drawn.append(Point(each.confidence, each.accuracy, low, high, title, each.n / most))
    drawing = draw(Chart("", [reliability_panel("", [Series("", drawn)])], width=size))
    return as_svg(replace(drawing, title=f"calibration: {calibration_text(points)}"), embedded=True)


def slices(rows: Sequence[Interval], *, start: float = 0.0, end: float = 1.0, width: int = 560) -> str:
    """One line per slice: its name, its value with interval, and its note."""
    return _rows(rows, start, end, width, middle=None)


def forest(rows: Sequence[Interval], *, width: int = 560) -> str:
    """Differences with their intervals around zero; those that exclude it are colored."""
    reach = max((abs(end) for row in rows for end in (row.value, row.low, row.high) if end is not None), default=1.0)
    return _rows(rows, -(reach or 1.0), reach or 1.0, width, middle=0.0)


def _rows(rows: Sequence[Interval], start: float, end: float, width: int, middle: float | None) -> str:
    names, notes = min(220, width // 2), 150
    at = _scale(start, end, names + 8, width - notes)
    parts = []
    if middle is not None:
        parts.append(f'<path class="rule" d="M{at(middle):.1f} 0V{len(rows) * 20}"/>')
    for number, row in enumerate(rows):
        top = number * 20
        low, high = (row.low if row.low is not None else row.value), (row.high if row.high is not None else row.value)
        kind = "mark"
        if middle is not None and (low > middle or high < middle):
            kind = "better" if low > middle else "worse"
        label_text = f"{row.name}: {interval_text(row)} {row.note}".strip()
        value = format_signed(row.value) if middle is not None else format_decimal(row.value)
        shapes = [
            _text(names, top + 14, _short(row.name, names // 7), "end"),
            _rect("track", at(start), top + 9, at(end) - at(start), 2) if middle is None else "",
            _rect("spread", at(low), top + 6, max(at(high) - at(low), 1.0), 8),
            _rect(kind, at(row.value) - 1.5, top + 3, 3, 14),
            _text(width - notes + 8, top + 14, _short(f"{value}  {row.note}".rstrip(), 22), "start"),
        ]
        parts.append(f"<g><title>{escape(label_text)}</title>{''.join(shapes)}</g>")
    return _svg(
        width, max(len(rows) * 20, 20), "; ".join(f"{row.name} {interval_text(row)}" for row in rows[:20]), parts
    )


def timeline(spans: Sequence[Span], *, width: int = 640) -> str:
    """Pieces of work one below the other, each where the one before it ends; `tool` is drawn thinner than `model`."""
    total = sum(span.seconds for span in spans)
    names, notes = 190, 80
    at = _scale(0.0, total or 1.0, names + 8, width - notes)
    parts, begun = [], 0.0
    for number, span in enumerate(spans):
        top, ended = number * 20, begun + span.seconds
        is_tool = span.kind == "tool"
        bar = _rect("better" if is_tool else "mark", at(begun), top + (7 if is_tool else 4), max(at(ended) - at(begun), 1.5),
                    6 if is_tool else 12)  # fmt: skip
        shapes = [
            _text(names, top + 14, _short(span.name, names // 7), "end", "faint" if is_tool else ""),
            _rect("track", at(0.0), top + 9, at(total or 1.0) - at(0.0), 2),
            bar,
            _text(width - notes + 8, top + 14, format_duration(span.seconds)),
        ]
        title = f"{span.kind} {span.name}: {format_duration(span.seconds)} {span.note}".strip()
        parts.append(f"<g><title>{escape(title)}</title>{''.join(shapes)}</g>")
        begun = ended
    label = "; ".join(f"{span.kind} {span.name} {format_duration(span.seconds)}" for span in spans[:40])
    return _svg(width, max(len(spans) * 20, 20), label, parts)


def bar_text(interval: Interval, *, start: float = 0.0, end: float = 1.0, width: int = 24) -> str:
    """The bar of a number for a terminal.

    >>> bar_text(Interval("acc", 0.5, 0.25, 0.75), width=9)
    '··──●──··'
    """
    at = _scale(start, end, 0, width - 1)

    def place(value: float) -> int:
        return min(max(round(at(value)), 0), width - 1)

    cells = ["·"] * width
    if interval.low is not None and interval.high is not None:
        for cell in range(place(interval.low), place(interval.high) + 1):
            cells[cell] = "─"
    cells[place(interval.value)] = "●"
    return "".join(cells)


def histogram_text(bins: Sequence[Bin]) -> str:
    """Bars of eight heights, one per bin.

    >>> histogram_text([Bin(0, 0.5, 1), Bin(0.5, 1, 8)])
    '▁█'
    """
    most = max((each.size for each in bins), default=0)
    return "".join(" ▁▂▃▄▅▆▇█"[-(-each.size * 8 // most) if most else 0] for each in bins)


def calibration_text(points: Iterable["CurvePoint"]) -> str:
    """Confidence and accuracy of every bin."""
    return ", ".join(f"{each.confidence:.2f}→{each.accuracy:.2f} ({each.n})" for each in points)


def forest_text(rows: Sequence[Interval], *, width: int = 41, most: int | None = None) -> str:
    """Differences for a terminal of `most` columns, one line each, with zero in the middle.

    >>> print(forest_text([Interval("sums", 0.5, 0.25, 0.75)], width=9))
    sums  ····│──●─  +0.5
    """
    ends = [f"{'+' if row.value > 0 else ''}{_four_digits(row.value)}  {row.note}".rstrip() for row in rows]
    if most is not None:
        beside = max((len(row.name) for row in rows), default=0) + max(map(len, ends), default=0) + 4
        width = min(width, max(most - beside, 11) - 1 | 1)
    reach = max((abs(end) for row in rows for end in (row.value, row.low, row.high) if end is not None), default=1.0)
    wide = max((len(row.name) for row in rows), default=0)
    lines = []
    for row, end in zip(rows, ends, strict=True):
        cells = list(bar_text(row, start=-(reach or 1.0), end=reach or 1.0, width=width))
        if cells[width // 2] == "·":
            cells[width // 2] = "│"
        lines.append(f"{row.name.ljust(wide)}  {''.join(cells)}  {end}")
    return "\n".join(lines)


def interval_text(interval: Interval) -> str:
    """A number with its interval as text.

    >>> interval_text(Interval("acc", 0.5, 0.25, 0.75))
    '0.5 (0.25 … 0.75)'
    """
    ends = (
        f" ({_four_digits(interval.low)} … {_four_digits(interval.high)})"
        if interval.low is not None and interval.high is not None
        else ""
    )
    return f"{_four_digits(interval.value)}{ends}"


class _scale:  # noqa: N801  # used as a function
    """Maps a value to a coordinate; values beyond the bounds are drawn at the edge."""

    def __init__(self, start: float, end: float, first: float, last: float) -> None:
        self.start, self.end, self.first, self.last = start, end, first, last

    def __call__(self, value: float) -> float:
        span = self.end / 2 - self.start / 2  # halves: the whole of it may be beyond the largest number there is
        share = (value / 2 - self.start / 2) / span if span else 0.5
        return self.first + min(max(share, 0.0), 1.0) * (self.last - self.first)


def _svg(width: float, height: float, label: str, parts: Iterable[str], kind: str = "plot") -> str:
    opened = f'<svg class="{kind}" role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'{opened} aria-label="{escape(label)}">{"".join(parts)}</svg>'


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _four_digits(value: float) -> str:
    """A number with four significant digits."""
    return f"{value:.4g}"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def difference_intervals(comparison: Comparison, run: int) -> list[Interval]:
    """The differences of a run to the first, of shares that are not lower-is-better, with their intervals."""
    return [_difference(row) for row in comparison.rows if row.run == run and _is_rate_difference(row)]


def _is_rate_difference(row: ComparedRow) -> bool:
    shares = all(value is not None and 0 <= value <= 1 for value in (row.a, row.b))
    return shares and row.interval is not None and row.higher_is_better is not False


def _difference(row: ComparedRow) -> Interval:
    low, high = row.interval or (None, None)
    shown = shown_filter(row.filter, is_group=row.kind == "group")
    name = f"{row.alias} {row.metric}" + (f" ({shown})" if shown not in ("", "none") else "")
    return Interval(name, row.difference or 0.0, low, high, _p_value(row.p))


def _p_value(value: float | None) -> str:
    return "" if value is None else f"p {format_p(value)}"
