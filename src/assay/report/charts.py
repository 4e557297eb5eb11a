"""Charts as records, and as drawings: rows of intervals, curves over an axis, histograms, shares of a whole and timelines.

One or more panels are on a sheet, with legend and notes. A report, the viewer, notebooks and `assay plot` make a `Chart` and
`draw` it; `drawing` writes it as SVG, PNG or PDF.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from assay.number_text import format_decimal, format_duration, format_figures, format_share
from assay.report.drawing import (
    SERIES,
    SHAPES,
    Anchor,
    Box,
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
from assay.results import Estimate, ReliabilityPoint

WIDTH, PART_WIDTH, CARD_WIDTH = 720.0, 560.0, 360.0
"""Widths of a sheet, of a chart among the texts of a page, and of one beside others."""
EDGE = 14.0
"""The space at the edges of a sheet."""
TITLE, TEXT, SMALL = 15.0, 12.0, 11.0
"""Sizes of texts."""
GUTTER, PANEL_GAP = 22.0, 16.0
"""The space between panels: beside and below each other."""
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
    """Is written beside its mark; of a row, at its end."""


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


TickMaker = Callable[[float, float, int], Sequence[tuple[float, str]]]


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
    at_ticks: TickMaker | None = None


class Bin(NamedTuple):
    """The number of values between two bounds."""

    low: float
    high: float
    size: int

    @property
    def ends(self) -> str:
        return (
            format_figures(self.low)
            if self.low == self.high
            else f"{format_figures(self.low)} … {format_figures(self.high)}"
        )

    @property
    def title(self) -> str:
        return f"{self.ends}: {self.size:,}"


@dataclass(frozen=True, slots=True)
class Histogram:
    """A panel with the distribution of values: a bar for each bin; signed ones are colored by their side of 0."""

    bins: Sequence[Bin]
    is_signed: bool = False
    title: str = ""


class Segment(NamedTuple):
    """A part of a whole, with the name of its color."""

    name: str
    size: int
    color: str


@dataclass(frozen=True, slots=True)
class Shares:
    """A panel with one bar of parts side by side, each with its name, count and share below."""

    parts: Sequence[Segment]
    title: str = ""

    @property
    def total(self) -> int:
        return sum(part.size for part in self.parts)

    def describe(self, part: Segment) -> str:
        return f"{part.name}: {part.size:,} ({format_share(part.size / (self.total or 1))})"


class Span(NamedTuple):
    """A piece of work with its duration: a request to a `model`, or a call of a `tool`."""

    name: str
    seconds: float
    kind: str
    note: str = ""

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}: {format_duration(self.seconds)} {self.note}".strip()


@dataclass(frozen=True, slots=True)
class Timeline:
    """A panel with pieces of work one below the other, each where the one before it ends; a tool's are thinner."""

    spans: Sequence[Span]
    title: str = ""


AnyPanel = Panel | Histogram | Shares | Timeline


@dataclass(frozen=True, slots=True)
class Chart:
    """Panels below a title and a legend, above notes.

    `label` says what it shows to those who cannot see it, where the title does not.
    """

    title: str
    panels: Sequence[AnyPanel]
    legend: Sequence[str] = ()
    notes: Sequence[str] = ()
    width: float = WIDTH
    edge: float = EDGE
    label: str = ""


def interval_text(value: float, low: float | None, high: float | None) -> str:
    """A number with its interval as text.

    >>> interval_text(0.5, 0.25, 0.75), interval_text(0.5, None, None)
    ('0.5 (0.25 … 0.75)', '0.5')
    """
    ends = f" ({format_figures(low)} … {format_figures(high)})" if low is not None and high is not None else ""
    return f"{format_figures(value)}{ends}"


def estimate_point(at: float, number: Estimate, whose: str, text: str = "") -> Point:
    """The point of a number, with its interval and how many documents it is of."""
    value = float(number)
    title = f"{whose} {interval_text(value, number.low, number.high)}, n {number.n:,}"
    return Point(at, value, number.low, number.high, title, text=text)


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values from `low` to `high` to places from `first` to `last`; those beyond are at the ends."""

    low: float
    high: float
    first: float
    last: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        low, high = (math.log(self.low), math.log(self.high)) if self.is_log else (self.low, self.high)
        # halves: the whole of a span may be beyond the largest number there is
        share = ((math.log(value) if self.is_log else value) / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)
        return self.first + share * (self.last - self.first)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def ticks(self, most: int) -> Sequence[tuple[float, str]]:
        """At most so many round values, each as text."""
        if self.is_log:
            powers = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            step = max(1, -(-len(powers) // max(most, 1)))
            return [(10.0**power, f"{10.0**power:g}") for power in powers[::step]]
        return round_ticks(self.low, self.high, most)


def axis_of(values: Sequence[float], first: float, last: float, panel: Panel | None = None) -> Axis:
    """The axis of a panel's values: a little wider than they are, within the panel's limits."""
    limits = panel.limits if panel is not None else None
    if panel is not None and panel.whole and limits is not None:
        return Axis(*limits, first, last)
    low, high = min(values, default=0.0), max(values, default=1.0)
    if panel is not None and panel.zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low > 0 and high / low > LOG_RANGE and limits is None:
        return Axis(low, high, first, last, is_log=True)
    return Axis(*_padded(low, high, limits), first, last)


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
        return [(low, format_figures(low))]
    power = 10.0 ** math.floor(math.log10(span / max(most, 1)))
    step = next(each * power for each in (1, 2, 5, 10, 20) if span / (each * power) <= max(most - 1, 1))
    first, count = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if count - first > 100 or abs(first) > 1e12:
        return [(low, format_figures(low)), (high, format_figures(high))]
    digits = max(0, -math.floor(math.log10(step)))
    shape = f",.{digits}f" if digits <= 6 and max(abs(low), abs(high)) < 1e7 else ".4g"
    return [(number * step, f"{number * step + 0.0:{shape}}") for number in range(first, count + 1)]


def draw(chart: Chart) -> Drawing:
    """The chart as a drawing."""
    edge = chart.edge
    room, top = chart.width - 2 * edge, edge
    shapes: list[Shape] = []
    if chart.title:
        shapes.append(Label(edge, top + TITLE, fitted(chart.title, room / BOLD, TITLE), "start", TITLE, bold=True))
        top += TITLE + 12
    legend, top = _legend(chart.legend, edge, top, chart.width - edge)
    shapes += legend
    columns = _columns(chart.panels)
    wide = (room - (columns - 1) * GUTTER) / columns
    names = fitted_names([panel.title for panel in chart.panels], wide / BOLD)
    for start in range(0, len(names), columns):
        bottoms = []
        for column, (panel, name) in enumerate(list(zip(chart.panels, names, strict=True))[start : start + columns]):
            left = edge + column * (wide + GUTTER)
            if name:
                shapes.append(Label(left, top + TEXT, name, bold=True))
            own, bottom = _panel(panel, left, top + (TEXT + 10 if name else 0.0), wide)
            shapes += own
            bottoms.append(bottom)
        top = max(bottoms) + PANEL_GAP
    top -= 0 if chart.notes else PANEL_GAP
    for note in chart.notes:
        shapes.append(Label(edge, top + SMALL, fitted(note, room, SMALL), "start", SMALL, "faint"))
        top += SMALL + 5
    return Drawing(chart.width, math.ceil(top + edge), chart.label or chart.title, _description(chart), shapes)


def draw_part(panel: AnyPanel, label: str, width: float = PART_WIDTH) -> Drawing:
    """A panel as a part of a page, which has the title and the space around it."""
    return draw(Chart("", [panel], width=width, edge=2.0, label=label))


def _columns(panels: Sequence[AnyPanel]) -> int:
    """How many panels are beside each other: curves alone, up to three."""
    if len(panels) == 1 or not all(isinstance(panel, Panel) and not panel.rows for panel in panels):
        return 1
    return 2 if len(panels) <= 4 else 3


def _panel(panel: AnyPanel, left: float, top: float, wide: float) -> tuple[list[Shape], float]:
    """The shapes of a panel, and where it ends."""
    match panel:
        case Histogram():
            return _histogram(panel, left, top, wide)
        case Shares():
            return _shares(panel, left, top, wide)
        case Timeline():
            return _timeline(panel, left, top, wide)
    return _rows_panel(panel, left, top, wide) if panel.rows else _curve_panel(panel, left, top, wide)


def draw_bar(name: str, number: Point, width: float = 140.0) -> Drawing:
    """A share beside its number in a table: its place between 0 and 1, with its interval."""
    axis = Axis(0.0, 1.0, 3.0, width - 3.0)
    shapes: list[Shape] = [Box(0.0, 7.0, width, 2.0, "grid")]
    if number.low is not None and number.high is not None:
        low, high = axis(number.low), axis(number.high)
        shapes.append(Box(low, 4.0, max(high - low, 1.0), 8.0, "spread"))
    shapes.append(Box(axis(number.value) - 1.5, 2.0, 3.0, 12.0, "series0"))
    return Drawing(width, 16.0, f"{name} {interval_text(number.value, number.low, number.high)}".strip(), "", shapes)


def reliability_points(points: Sequence[ReliabilityPoint], whose: str = "") -> list[Point]:
    """The points of a reliability curve; large ones have many documents."""
    most = max((point.accuracy.n for point in points), default=1)
    drawn = []
    for confidence, right in ((point.confidence, point.accuracy) for point in points):
        title = (
            f"{whose}confidence {format_decimal(confidence, 2)}, {format_decimal(right.value, 2)} right of {right.n:,}"
        )
        drawn.append(Point(confidence, float(right), right.low, right.high, title, right.n / most))
    return drawn


def reliability_panel(title: str, series: Sequence[Series]) -> Panel:
    """Confidence against accuracy, with the line of a calibrated model."""
    return Panel(title, "share of right answers, 95 % interval", series, at_label="confidence", limits=(0.0, 1.0),
                 whole=True, diagonal=True, at_limits=(0.0, 1.0))  # fmt: skip


MAX_DESCRIBED = 60


def _description(chart: Chart) -> str:
    titles = [title for panel in chart.panels for title in _titles(panel) if title]
    more = f"; and {len(titles) - MAX_DESCRIBED} more" if len(titles) > MAX_DESCRIBED else ""
    return "; ".join(titles[:MAX_DESCRIBED]) + more + "".join(f"; {note}" for note in chart.notes)


def _titles(panel: AnyPanel) -> list[str]:
    """What each mark of a panel says."""
    match panel:
        case Histogram():
            return [counted.title for counted in panel.bins]
        case Shares():
            return [panel.describe(part) for part in panel.parts]
        case Timeline():
            return [span.title for span in panel.spans]
    return [point.title for series in panel.series for point in series.points]


def style_of(number: int) -> tuple[str, str]:
    """The color and the mark of a series."""
    return f"series{number % SERIES}", SHAPES[number % len(SHAPES)]


def _legend(names: Sequence[str], begin: float, top: float, end: float) -> tuple[list[Shape], float]:
    """The names of series with their marks, in as many lines as they need."""
    if len(names) < 2:
        return [], top
    shapes: list[Shape] = []
    left = begin
    for number, name in enumerate(names):
        text = fitted(name, end - begin - 20)
        wide = text_width(text) + 34
        if left > begin and left + wide > end:
            left, top = begin, top + 18
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

MAX_NAME_SHARE, MAX_TEXT_SHARE = 0.45, 0.35
"""How much of the width names may take, and texts at the ends of rows."""


def _rows_panel(panel: Panel, left: float, top: float, wide: float) -> tuple[list[Shape], float]:
    shapes: list[Shape] = []
    points = [point for series in panel.series for point in series.points]
    beside = min(
        max((text_width(point.text) + 10 for point in points if point.text), default=0.0), wide * MAX_TEXT_SHARE
    )
    most = (wide - beside) * MAX_NAME_SHARE
    indents = [min((len(name) - len(name.lstrip(" "))) * 5.0, most / 3) for name in panel.rows]
    names = list(zip(fitted_names(panel.rows, most - max(indents, default=0.0)), indents, strict=True))
    name_width = min(max((text_width(text) + indent for text, indent in names), default=0.0), most)
    axis = axis_of(_values(panel), left + name_width + 14, left + wide - 10 - beside, panel)
    lane = 11.0 if len(panel.series) > 1 else 18.0
    tall = max(18.0, lane * len(panel.series) + 6)
    floor = top + tall * len(panel.rows)
    shapes += _value_ticks_across(panel, axis, left, top, floor)
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
            if point.text:
                shapes.append(Label(left + wide - beside + 4, y + 4, fitted(point.text, beside)))
    return shapes, floor + 36


def _value_ticks_across(panel: Panel, axis: Axis, left: float, top: float, floor: float) -> Iterator[Shape]:
    for value, text in _ticks_that_fit(axis, 6):
        yield Stroke([(axis(value), top), (axis(value), floor)], "grid")
        yield Label(axis(value), floor + 15, text, "middle", SMALL, "faint")
    yield Stroke([(axis.first, floor), (axis.last, floor)], "rule")
    if panel.zero:
        yield Stroke([(axis(0.0), top), (axis(0.0), floor)], "faint")
    middle, half = (axis.first + axis.last) / 2, text_width(panel.value_label) / 2
    wide = axis.last - left
    at: tuple[float, Anchor] = (middle, "middle") if middle + half <= axis.last else (axis.last, "end")
    yield Label(at[0], floor + 31, fitted(panel.value_label, wide), at[1])


def _ticks_that_fit(axis: Axis, most: int, maker: TickMaker | None = None) -> Sequence[tuple[float, str]]:
    """Ticks of an axis that is across: as many as have space beside each other."""
    while True:
        ticks = axis.ticks(most) if maker is None else maker(axis.low, axis.high, most)
        if most == 1 or sum(text_width(text, SMALL) + 10 for _, text in ticks) <= axis.last - axis.first:
            return ticks
        most -= 1


def _interval_across(point: Point, axis: Axis, y: float, style: tuple[str, str]) -> Titled:
    color, shape = _style_by_verdict(point, style)
    lines = [[(x, y + off) for x, off in line] for line in _interval_lines(point, axis)]
    strokes = [Stroke(line, color, 1.6) for line in lines]
    return Titled(point.title, [*strokes, mark(shape, axis(point.value), y, color)])


def _interval_lines(point: Point, axis: Axis) -> list[list[tuple[float, float]]]:
    """The line of an interval and its caps, as places on the axis and beside it; an end that is cut off has no cap."""
    if point.low is None or point.high is None or not is_finite(point.low, point.high):
        return []
    low, high = point.low, point.high
    caps = [[(axis(end), -CAP), (axis(end), CAP)] for end in (low, high) if axis.holds(end)]
    return [[(axis(low), 0.0), (axis(high), 0.0)], *caps]


def _style_by_verdict(point: Point, style: tuple[str, str]) -> tuple[str, str]:
    """The color and the mark of a point: those of its verdict, where it has one."""
    return (point.verdict, "triangle" if point.verdict == "better" else "down") if point.verdict else style


# --- curves


def _curve_panel(panel: Panel, left: float, top: float, wide: float) -> tuple[list[Shape], float]:
    if panel.diagonal:
        wide = min(wide, 440.0)
    top += 2.0 if not panel.title else 0.0
    floor = top + min(wide * (0.92 if panel.diagonal else 0.62), 400.0)
    values = axis_of(_values(panel), floor, top, panel)
    ticks = values.ticks(6)
    margin = 22 + max((text_width(text, SMALL) for _, text in ticks), default=0.0)
    ends = left + margin, left + wide - 8
    places = [point.at for series in panel.series for point in series.points]
    across = Axis(*panel.at_limits, *ends) if panel.at_limits is not None else axis_of(places, *ends)
    shapes: list[Shape] = []
    for value, text in ticks:
        shapes.append(Stroke([(across.first, values(value)), (across.last, values(value))], "grid"))
        shapes.append(Label(across.first - 5, values(value) + 4, text, "end", SMALL, "faint"))
    shapes += _place_ticks(panel, across, floor)
    shapes.append(Label(left + 9, (top + floor) / 2, fitted(panel.value_label, floor - top), "middle", upward=True))
    if panel.diagonal:
        shapes.append(Stroke([(across(0.0), values(0.0)), (across(1.0), values(1.0))], "faint", dashed=True))
    apart = 0.0 if panel.diagonal else 5.0  # so that intervals at one place do not hide each other
    for place, series in enumerate(panel.series):
        shapes += _curve(series, across, values, (place - (len(panel.series) - 1) / 2) * apart)
    return shapes, floor + 36


def _place_ticks(panel: Panel, across: Axis, floor: float) -> Iterator[Shape]:
    ticks = _ticks_that_fit(across, 7, panel.at_ticks)
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
        lines = [[(x + off, y) for y, off in line] for line in _interval_lines(point, values)]
        parts += [Stroke(line, color, 1.2) for line in lines]
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


# --- bars

MAX_COUNTED_BINS = 12
"""Bins with their count above them: of more, only those who point at one see it."""


def _histogram(panel: Histogram, left: float, top: float, wide: float) -> tuple[list[Shape], float]:
    most = max((counted.size for counted in panel.bins), default=0) or 1
    step, tall = wide / max(len(panel.bins), 1), 88.0
    has_counts = len(panel.bins) <= MAX_COUNTED_BINS
    floor = top + tall + (TEXT if has_counts else 0.0)
    shapes: list[Shape] = []
    for number, counted in enumerate(panel.bins):
        color = "series0" if not panel.is_signed else "better" if counted.low >= 0 else "worse"
        height, begin = counted.size / most * tall, left + number * step
        shown: list[Shape] = [Box(begin + 1, floor - height, max(step - 2, 1.0), height, color)]
        if counted.size and has_counts:
            shown.append(Label(begin + step / 2, floor - height - 3, f"{counted.size:,}", "middle", SMALL, "faint"))
        shapes.append(Titled(counted.title, shown))
    shapes.append(Stroke([(left, floor), (left + wide, floor)], "rule"))
    if panel.bins:
        shapes.append(Label(left, floor + 15, format_figures(panel.bins[0].low), "start", SMALL, "faint"))
        shapes.append(Label(left + wide, floor + 15, format_figures(panel.bins[-1].high), "end", SMALL, "faint"))
    return shapes, floor + 18


def _shares(panel: Shares, left: float, top: float, wide: float) -> tuple[list[Shape], float]:
    shapes: list[Shape] = []
    begin, below = left, top + 30.0
    for part in panel.parts:
        text, size = panel.describe(part), part.size / (panel.total or 1) * wide
        shapes.append(Titled(text, [Box(begin, top, max(size - 1, 0.0), 22.0, part.color)]))
        shapes += [Box(left, below, 10.0, 10.0, part.color), Label(left + 16, below + 9, fitted(text, wide - 16))]
        begin, below = begin + size, below + 18
    return shapes, below


SPAN_LINE = 20.0


def _timeline(panel: Timeline, left: float, top: float, wide: float) -> tuple[list[Shape], float]:
    total = sum(span.seconds for span in panel.spans) or 1.0
    durations = [format_duration(span.seconds) for span in panel.spans]
    names = fitted_names([span.name for span in panel.spans], wide * MAX_NAME_SHARE)
    beside = max((text_width(text) for text in durations), default=0.0) + 8
    across = Axis(0.0, total, left + max(map(text_width, names), default=0.0) + 10, left + wide - beside)
    shapes: list[Shape] = []
    begun = 0.0
    for number, span in enumerate(panel.spans):
        middle, ended = top + (number + 0.5) * SPAN_LINE, begun + span.seconds
        half, color = (3.0, "series2") if span.kind == "tool" else (6.0, "series0")
        shown: list[Shape] = [
            Label(left, middle + 4, names[number]),
            Box(across.first, middle - 1, across.last - across.first, 2.0, "grid"),
            Box(across(begun), middle - half, max(across(ended) - across(begun), 1.5), 2 * half, color),
            Label(left + wide, middle + 4, durations[number], "end"),
        ]
        shapes.append(Titled(span.title, shown))
        begun = ended
    return shapes, top + len(panel.spans) * SPAN_LINE


def bar_text(number: Point, *, start: float = 0.0, end: float = 1.0, width: int = 24) -> str:
    """The bar of a number between two bounds.

    >>> bar_text(Point(0, 0.5, 0.25, 0.75), width=9)
    '··──●──··'
    """
    axis = Axis(start, end, 0, width - 1)
    cells = ["·"] * width
    if number.low is not None and number.high is not None:
        for cell in range(round(axis(number.low)), round(axis(number.high)) + 1):
            cells[cell] = "─"
    cells[round(axis(number.value))] = "●"
    return "".join(cells)


def forest_text(panel: Panel, *, width: int = 41, most: int | None = None) -> str:
    """The rows of a panel in at most `most` columns, one line each, with zero in the middle; of its first series.

    >>> from assay.report.charts import Series
    >>> print(forest_text(Panel("", "", [Series("", [Point(0, 0.5, 0.25, 0.75, text="+0.5")])], ["sums"]), width=9))
    sums  ····│──●─  +0.5
    """
    points = panel.series[0].points if panel.series else ()
    names = [panel.rows[int(point.at)] for point in points]
    longest = max(map(len, names), default=0)
    if most is not None:
        beside = longest + max((len(point.text) for point in points), default=0) + 4
        width = min(width, max(most - beside, 11) - 1 | 1)
    reach = max(
        (abs(end) for point in points for end in (point.value, point.low, point.high) if end is not None), default=1.0
    )
    lines = []
    for name, point in zip(names, points, strict=True):
        cells = list(bar_text(point, start=-(reach or 1.0), end=reach or 1.0, width=width))
        if cells[width // 2] == "·":
            cells[width // 2] = "│"
        lines.append(f"{name.ljust(longest)}  {''.join(cells)}  {point.text}".rstrip())
    return "\n".join(lines)
