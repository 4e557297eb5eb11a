"""Charts as drawings: rows of intervals, and curves over an axis, one or more panels on a sheet, with legend and notes."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from assay.report.drawing import (
    SERIES,
    SHAPES,
    Anchor,
    Drawing,
    Label,
    Shape,
    Stroke,
    Titled,
    fitted,
    fitted_names,
    is_finite,
    mark,
    text_width,
)

WIDTH, EDGE = 720.0, 14.0
"""Width of a sheet, and the space at its edges."""
TITLE, TEXT, SMALL = 15.0, 12.0, 11.0
"""Sizes of texts."""
BOLD = 1.15
"""By what factor bold texts are wider."""
CAP = 3.5
"""Half the length of the caps of an interval."""
LOG_RANGE = 100.0
"""A positive quantity whose values differ by more than this factor has a logarithmic axis."""


class Point(NamedTuple):
    """A value at a place of an axis, or in a row; with its interval, and what a reader sees when pointing at it."""

    at: float
    value: float
    low: float | None = None
    high: float | None = None
    title: str = ""
    weight: float = 1.0
    """The size of its mark, between 0 and 1."""
    verdict: str = ""
    """`better` or `worse` colors its mark."""
    at_low: float | None = None
    at_high: float | None = None
    """The interval of its place, where that is a number, too."""
    text: str = ""
    """Is written beside its mark."""


class Series(NamedTuple):
    """Points of one run, or of one model."""

    name: str
    points: Sequence[Point]
    number: int = 0
    """Chooses color and mark: the same on every panel."""
    line: bool = True
    """Whether a line joins the points."""
    band: bool = False
    """Whether the intervals are joined, too."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of a chart with separate axes. With `rows`, values are across and `at` numbers the rows; else values are upright."""

    title: str
    value_label: str
    series: Sequence[Series]
    rows: Sequence[str] = ()
    at_label: str = ""
    limits: tuple[float, float] | None = None
    """The least and the greatest value that there can be."""
    whole: bool = False
    """Whether the axis begins and ends at the limits."""
    zero: bool = False
    """Whether a line marks zero."""
    diagonal: bool = False
    at_limits: tuple[float, float] | None = None
    at_ticks: "Callable[[float, float, int], Sequence[tuple[float, str]]] | None" = None


@dataclass(frozen=True, slots=True)
class Chart:
    """Panels below a title and a legend, above notes."""

    title: str
    panels: Sequence[Panel]
    legend: Sequence[str] = ()
    notes: Sequence[str] = ()
    width: float = WIDTH


class Axis:
    """Maps values to places of the sheet, with ticks."""

    def __init__(self, values: Sequence[float], first: float, last: float, panel: Panel | None = None) -> None:
        limits = panel.limits if panel is not None else None
        low, high = min(values, default=0.0), max(values, default=1.0)
        if panel is not None and panel.zero:
            low, high = min(low, 0.0), max(high, 0.0)
        self.is_log = low > 0 and high / low > LOG_RANGE and limits is None
        if panel is not None and panel.whole and limits is not None:
            low, high = limits
        elif not self.is_log:
            low, high = _padded(low, high, limits)
        self.low, self.high, self.first, self.last = low, high, first, last

    def __call__(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        low, high = (math.log(self.low), math.log(self.high)) if self.is_log else (self.low, self.high)
        share = ((math.log(value) if self.is_log else value) / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)
        return self.first + share * (self.last - self.first)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """At most so many round values, each as text."""
        if self.is_log:
            powers = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            step = max(1, -(-len(powers) // max(most, 1)))
            return [(10.0**power, f"{10.0**power:g}") for power in powers[::step]]
        return round_ticks(self.low, self.high, most)


def _padded(low: float, high: float, limits: tuple[float, float] | None) -> tuple[float, float]:
    """A range a little wider than that of the values, within the limits."""
    span = high / 2 - low / 2
    largest = max(abs(low), abs(high))
    least = 0.025 * (1.0 if limits is not None or not largest else max(largest, 1e-9))
    pad = max(span * 0.1, least - span, 0.0) if math.isfinite(span) else 0.0
    lowest, highest = limits or (-sys.float_info.max, sys.float_info.max)
    return max(low - pad, lowest), min(high + pad, highest)


def round_ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Round values between two ends, each as text.

    >>> [text for _, text in round_ticks(0.0, 1.0, 6)], [text for _, text in round_ticks(-1250, 900, 4)]
    (['0.0', '0.2', '0.4', '0.6', '0.8', '1.0'], ['-1,000', '0'])
    """
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return [(low, f"{low:.4g}")]
    power = 10.0 ** math.floor(math.log10(span / max(most, 1)))
    step = next(each * power for each in (1, 2, 5, 10, 20) if span / (each * power) <= max(most - 1, 1))
    first, count = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if count - first > 100 or abs(first) > 1e12:
        return [(low, f"{low:.4g}"), (high, f"{high:.4g}")]
    digits = max(0, -math.floor(math.log10(step)))
    shape = f",.{digits}f" if digits <= 6 and max(abs(low), abs(high)) < 1e7 else ".4g"
    return [(number * step, f"{number * step + 0.0:{shape}}") for number in range(first, count + 1)]


def draw(chart: Chart) -> Drawing:
    """The chart as a drawing."""
    room, top = chart.width - 2 * EDGE, EDGE
    shapes: list[Shape] = []
    if chart.title:
        shapes.append(Label(EDGE, top + TITLE, fitted(chart.title, room / BOLD, TITLE), "start", TITLE, bold=True))
        top += TITLE + 12
    legend, top = _legend(chart.legend, top, chart.width)
    shapes += legend
    columns = 1 if len(chart.panels) == 1 or chart.panels[0].rows else 2 if len(chart.panels) <= 4 else 3
    wide = (room - (columns - 1) * 22) / columns
    if chart.panels[0].diagonal:
        wide = min(wide, 440.0)
    names = fitted_names([panel.title for panel in chart.panels], wide / BOLD)
    panels = [replace(panel, title=name) for panel, name in zip(chart.panels, names, strict=True)]
    for start in range(0, len(panels), columns):
        heights = []
        for column, panel in enumerate(panels[start : start + columns]):
            left = EDGE + column * (wide + 22)
            own, height = _rows_panel(panel, left, top, wide) if panel.rows else _curve_panel(panel, left, top, wide)
            shapes += own
            heights.append(height)
        top += max(heights) + 16
    for note in chart.notes:
        shapes.append(Label(EDGE, top + SMALL, fitted(note, room, SMALL), "start", SMALL, "faint"))
        top += SMALL + 5
    return Drawing(chart.width, math.ceil(top + EDGE - 6), chart.title, _description(chart), shapes)


def reliability_panel(title: str, series: Sequence[Series]) -> Panel:
    """Confidence against accuracy, with the line of a calibrated model."""
    return Panel(title, "share of right answers, 95 % interval", series, at_label="confidence", limits=(0.0, 1.0),
                 whole=True, diagonal=True, at_limits=(0.0, 1.0))  # fmt: skip


MAX_DESCRIBED = 60


def _description(chart: Chart) -> str:
    titles = [
        point.title for panel in chart.panels for series in panel.series for point in series.points if point.title
    ]
    more = f"; and {len(titles) - MAX_DESCRIBED} more" if len(titles) > MAX_DESCRIBED else ""
    return "; ".join([*titles[:MAX_DESCRIBED]]) + more + "".join(f"; {note}" for note in chart.notes)


def style_of(number: int) -> tuple[str, str]:
    """The color and the mark of a series."""
    return f"series{number % SERIES}", SHAPES[number % len(SHAPES)]


def _legend(names: Sequence[str], top: float, width: float) -> tuple[list[Shape], float]:
    """The names of series with their marks, in as many lines as they need."""
    if len(names) < 2:
        return [], top
    shapes: list[Shape] = []
    left = EDGE
    for number, name in enumerate(names):
        text = fitted(name, width - 2 * EDGE - 20)
        wide = text_width(text) + 34
        if left > EDGE and left + wide > width - EDGE:
            left, top = EDGE, top + 18
        color, shape = style_of(number)
        shapes += [mark(shape, left + 5, top + 8, color), Label(left + 15, top + 12, text)]
        left += wide
    return shapes, top + 26


def _values(panel: Panel) -> list[float]:
    numbers = (
        number for series in panel.series for each in series.points for number in (each.value, each.low, each.high)
    )
    return [number for number in numbers if number is not None and math.isfinite(number)]


# --- rows of intervals

MAX_NAME_SHARE = 0.45
"""How much of the width names may take."""


def _rows_panel(panel: Panel, left: float, top: float, wide: float) -> tuple[list[Shape], float]:
    shapes: list[Shape] = []
    begin = top
    if panel.title:
        shapes.append(Label(left, top + TEXT, panel.title, bold=True))
        top += TEXT + 10
    most = wide * MAX_NAME_SHARE
    indents = [min((len(name) - len(name.lstrip(" "))) * 5.0, most / 3) for name in panel.rows]
    names = list(zip(fitted_names(panel.rows, most - max(indents, default=0.0)), indents, strict=True))
    name_width = min(max((text_width(text) + indent for text, indent in names), default=0.0), most)
    axis = Axis(_values(panel), left + name_width + 14, left + wide - 10, panel)
    lane = 11.0 if len(panel.series) > 1 else 18.0
    tall = max(18.0, lane * len(panel.series) + 6)
    floor = top + tall * len(panel.rows)
    shapes += _value_ticks_across(panel, axis, top, floor)
    if len(panel.series) > 1:
        shapes += [
            Stroke([(left, top + tall * row), (left + wide, top + tall * row)], "grid") for row in range(len(names))
        ]
    for number, (text, indent) in enumerate(names):
        middle = top + tall * (number + 0.5)
        shapes.append(Titled(panel.rows[number].strip(), [Label(left + indent, middle + 4, text)]))
    for place, series in enumerate(panel.series):
        for point in series.points:
            y = top + tall * (point.at + 0.5) + (place - (len(panel.series) - 1) / 2) * lane
            shapes.append(_interval_across(point, axis, y, style_of(series.number)))
    return shapes, floor - begin + 36


def _value_ticks_across(panel: Panel, axis: Axis, top: float, floor: float) -> Iterator[Shape]:
    for value, text in axis.ticks(6):
        yield Stroke([(axis(value), top), (axis(value), floor)], "grid")
        yield Label(axis(value), floor + 15, text, "middle", SMALL, "faint")
    yield Stroke([(axis.first, floor), (axis.last, floor)], "rule")
    if panel.zero:
        yield Stroke([(axis(0.0), top), (axis(0.0), floor)], "rule", 1.2)
    middle, half = (axis.first + axis.last) / 2, text_width(panel.value_label) / 2
    wide = axis.last - EDGE
    at: tuple[float, Anchor] = (middle, "middle") if middle + half <= axis.last else (axis.last, "end")
    yield Label(at[0], floor + 31, fitted(panel.value_label, wide), at[1])


def _interval_across(point: Point, axis: Axis, y: float, style: tuple[str, str]) -> Titled:
    color, shape = _style_by_verdict(point, style)
    parts: list[Shape] = []
    if is_finite(point.low, point.high):
        low, high = float(point.low or 0.0), float(point.high or 0.0)
        parts.append(Stroke([(axis(low), y), (axis(high), y)], color, 1.6))
        parts += [
            Stroke([(axis(end), y - CAP), (axis(end), y + CAP)], color, 1.6) for end in (low, high) if axis.holds(end)
        ]
    return Titled(point.title, [*parts, mark(shape, axis(point.value), y, color)])


def _style_by_verdict(point: Point, style: tuple[str, str]) -> tuple[str, str]:
    """The color and the mark of a point: those of its verdict, where it has one."""
    return (point.verdict, "triangle" if point.verdict == "better" else "down") if point.verdict else style


# --- curves


def _curve_panel(panel: Panel, left: float, top: float, wide: float) -> tuple[list[Shape], float]:
    head = TEXT + 10 if panel.title else 2.0
    tall = min(wide * (0.92 if panel.diagonal else 0.62), 400.0)
    floor = top + head + tall
    values = Axis(_values(panel), floor, top + head, panel)
    ticks = values.ticks(6)
    margin = 22 + max((text_width(text, SMALL) for _, text in ticks), default=0.0)
    places = [point.at for series in panel.series for point in series.points]
    across = Axis(places, left + margin, left + wide - 8)
    if panel.at_limits is not None:
        across.low, across.high, across.is_log = *panel.at_limits, False
    shapes: list[Shape] = [Label(left, top + TEXT, panel.title, bold=True)] if panel.title else []
    for value, text in ticks:
        shapes.append(Stroke([(across.first, values(value)), (across.last, values(value))], "grid"))
        shapes.append(Label(across.first - 5, values(value) + 4, text, "end", SMALL, "faint"))
    shapes += _place_ticks(panel, across, floor)
    shapes.append(Label(left + 9, (top + head + floor) / 2, fitted(panel.value_label, tall), "middle", upward=True))
    if panel.diagonal:
        shapes.append(Stroke([(across(0.0), values(0.0)), (across(1.0), values(1.0))], "rule", dashed=True))
    apart = 0.0 if panel.diagonal else 5.0  # so that intervals at one place do not hide each other
    for place, series in enumerate(panel.series):
        shapes += _curve(series, across, values, (place - (len(panel.series) - 1) / 2) * apart)
    return shapes, floor - top + 36


def _place_ticks(panel: Panel, across: Axis, floor: float) -> Iterator[Shape]:
    """The ticks below a panel: as many as have space beside each other."""
    most = 7
    ticks = across.ticks(most) if panel.at_ticks is None else list(panel.at_ticks(across.low, across.high, most))
    while most > 1 and sum(text_width(text, SMALL) + 10 for _, text in ticks) > across.last - across.first:
        most -= 1
        ticks = across.ticks(most) if panel.at_ticks is None else list(panel.at_ticks(across.low, across.high, most))
    for value, text in ticks:
        yield Stroke([(across(value), floor), (across(value), floor + 4)], "rule")
        yield Label(across(value), floor + 16, text, "middle", SMALL, "faint")
    yield Stroke([(across.first, floor), (across.last, floor)], "rule")
    yield Label(
        (across.first + across.last) / 2, floor + 32, fitted(panel.at_label, across.last - across.first), "middle"
    )


def _curve(series: Series, across: Axis, values: Axis, aside: float) -> Iterator[Shape]:
    color, _ = style_of(series.number)
    if len(series.points) > 1 and series.line:
        yield Stroke([(across(point.at) + aside, values(point.value)) for point in series.points], color, 1.4)
    if series.band:
        yield from _band(series, across, values, aside)
    for point in series.points:
        x = across(point.at) + aside
        color, shape = _style_by_verdict(point, style_of(series.number))
        parts: list[Shape] = []
        if is_finite(point.at_low, point.at_high):
            y, ends = values(point.value), [across(float(end or 0.0)) for end in (point.at_low, point.at_high)]
            parts.append(Stroke([(end, y) for end in ends], color, 1.2))
        if is_finite(point.low, point.high):
            low, high = float(point.low or 0.0), float(point.high or 0.0)
            parts.append(Stroke([(x, values(low)), (x, values(high))], color, 1.2))
            parts += [
                Stroke([(x - CAP, values(end)), (x + CAP, values(end))], color, 1.2)
                for end in (low, high)
                if values.holds(end)
            ]
        parts += _point_text(point, x, across, values) if point.text else ()
        yield Titled(
            point.title, [*parts, mark(shape, x, values(point.value), color, 2.5 + 3.0 * math.sqrt(point.weight))]
        )


def _point_text(point: Point, x: float, across: Axis, values: Axis) -> Iterator[Shape]:
    """The text beside a mark, towards the middle of the panel."""
    y = values(point.value)
    side: tuple[float, Anchor] = (x - 9, "end") if x > (across.first + across.last) / 2 else (x + 9, "start")
    yield Label(side[0], y + (15 if y < (values.first + values.last) / 2 else -7), point.text, side[1], SMALL)


def _band(series: Series, across: Axis, values: Axis, aside: float) -> Iterator[Shape]:
    """The ends of the intervals, joined by dashed lines; drawings have no half-transparent colors."""
    known = [point for point in series.points if is_finite(point.low, point.high)]
    if len(known) > 1:
        for name in ("low", "high"):
            ends = [(across(point.at) + aside, values(float(getattr(point, name)))) for point in known]
            yield Stroke(ends, style_of(series.number)[0], 0.8, dashed=True)
