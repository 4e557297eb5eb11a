"""Drawings: strokes, areas, marks and texts at places of a sheet; as SVG without a library, as PNG or PDF by matplotlib.

Nothing else in this package or the viewer writes SVG. In a file every color is written out, on a white sheet: it looks the same
in a paper, a dark page and an editor. In a page of ours (`embedded`) colors are classes of STYLE, light or dark as the page,
and nothing is styled inline, so that a page may forbid it.
"""

import io
import math
import os
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from assay.errors import ConfigError, installing
from assay.safe_text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Color(NamedTuple):
    """A color on white paper, and as CSS in a page: a variable of the page, or one color for light and one for dark."""

    paper: str
    page: str


COLORS = {
    "ink": Color("#1b1f24", "var(--ink)"), "faint": Color("#57606a", "var(--faint)"), "rule": Color("#8c959f", "var(--line)"),
    "grid": Color("#e1e4e8", "var(--track)"), "paper": Color("#ffffff", "var(--page)"), "panel": Color("#f6f8fa", "var(--panel)"),
    "spread": Color("#a9c7e8", "var(--spread)"), "better": Color("#00795c", "var(--good)"), "worse": Color("#b8420f", "var(--bad)"),
    "series0": Color("#0072b2", "var(--accent)"), "series1": Color("#d55e00", "light-dark(#c25500, #ff9a4d)"),
    "series2": Color("#009e73", "light-dark(#00805d, #35cf9f)"), "series3": Color("#cc79a7", "light-dark(#b25c8c, #e9a3cb)"),
    "series4": Color("#b57d00", "light-dark(#946600, #e6bb3f)"), "series5": Color("#3d9bd8", "light-dark(#2c82b8, #a5dbff)"),
    "series6": Color("#4d4d4d", "light-dark(#4d4d4d, #c3c8ce)"),
}  # fmt: skip
"""Okabe and Ito's palette, which color-blind readers can tell apart; yellow left out and two colors darker, for white paper."""
STYLE = (
    "svg.plot { display: block; max-width: 100%; height: auto; font: 12px system-ui, sans-serif; }\n"
    "td svg.plot { display: inline-block; max-width: none; vertical-align: middle; }\n"
    "svg.plot .stroke { fill: none; }\n"
) + "".join(
    f"svg.plot .fill.{name} {{ fill: {color.page}; }}\nsvg.plot .stroke.{name} {{ stroke: {color.page}; }}\n"
    for name, color in COLORS.items()
)
"""CSS of pages with drawings; the colors are variables of the page."""
SERIES = 7
SHAPES = ("circle", "square", "triangle", "diamond", "down")
"""Marks of series: their number shares no factor with that of the colors, so that 35 series look different."""
FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
Anchor = Literal["start", "middle", "end"]
NARROW, WIDE = frozenset("iljtfrI.,:;'|!()[]{}` -/\\"), frozenset("mwMW@%—…＋")


class Stroke(NamedTuple):
    """A line through points."""

    points: Sequence[tuple[float, float]]
    color: str = "ink"
    width: float = 1.0
    dashed: bool = False


class Polygon(NamedTuple):
    """A filled area."""

    points: Sequence[tuple[float, float]]
    color: str


class Box(NamedTuple):
    """A filled rectangle, with round corners where they have a radius."""

    x: float
    y: float
    width: float
    height: float
    color: str
    radius: float = 0.0


class Disc(NamedTuple):
    """A filled circle."""

    x: float
    y: float
    radius: float
    color: str


class Label(NamedTuple):
    """A text; `upward` is turned by a quarter."""

    x: float
    y: float
    text: str
    anchor: Anchor = "start"
    size: float = 12.0
    color: str = "ink"
    bold: bool = False
    upward: bool = False


class Titled(NamedTuple):
    """Shapes with a text that a browser shows when the mouse is over them."""

    title: str
    shapes: "Sequence[Shape]"


Shape = Stroke | Polygon | Box | Disc | Label | Titled


@dataclass(frozen=True, slots=True)
class Drawing:
    """Shapes on a sheet, with a title and a description for those who cannot see it."""

    width: float
    height: float
    title: str
    description: str
    shapes: Sequence[Shape] = field(repr=False)


def mark(kind: str, x: float, y: float, color: str, size: float = 4.0) -> Shape:
    """A mark at a place: one of SHAPES."""
    if kind == "circle":
        return Disc(x, y, size, color)
    side, reach = size * 0.9, size * 1.2
    corners = {
        "square": [(-side, -side), (side, -side), (side, side), (-side, side)],
        "triangle": [(0.0, -reach), (reach, side), (-reach, side)],
        "diamond": [(0.0, -reach), (reach, 0.0), (0.0, reach), (-reach, 0.0)],
        "down": [(0.0, reach), (reach, -side), (-reach, -side)],
    }
    return Polygon([(x + dx, y + dy) for dx, dy in corners[kind]], color)


def text_width(text: str, size: float = 12.0) -> float:
    """About how wide a text is; rather too much."""
    return size * sum(_em(sign) for sign in text)


def _em(sign: str) -> float:
    if sign in NARROW:
        return 0.38
    if sign in WIDE or unicodedata.east_asian_width(sign) in "WF":
        return 1.0
    return 0.0 if unicodedata.combining(sign) else 0.7 if sign.isupper() else 0.61


def fitted(text: str, width: float, size: float = 12.0) -> str:
    """The text on one line; a long one without its middle, since names differ at both ends.

    >>> fitted("a_very_long_name_of_a_task", 90)
    'a_very…_task'
    """
    plain = " ".join(visible(text).split())
    if text_width(plain, size) <= width:
        return plain
    kept = len(plain)
    while kept > 2 and text_width(_without_middle(plain, kept), size) > width:
        kept -= 1
    return _without_middle(plain, kept)


def fitted_names(names: Sequence[str], width: float) -> list[str]:
    """Names on one line each that stay different: where the middle tells them apart, an end that all share is left out.

    >>> fitted_names(["suite_of_long_names_01_with_parts", "suite_of_long_names_02_with_parts"], 110)
    ['suite_o…es_01…', 'suite_o…es_02…']
    """
    plain = [" ".join(visible(name).split()) for name in names]
    shown = [fitted(name, width) for name in plain]
    different = len(set(plain))
    if len(set(shown)) == different or different < 2:
        return shown
    end = len(os.path.commonprefix([name[::-1] for name in plain]))  # noqa: RUF071  # letters, not folders
    cut = [f"{name[: len(name) - end]}…" if end > 3 else name for name in plain]
    shown = [fitted(name, width) for name in cut]
    if len(set(shown)) == different:
        return shown
    begin = len(os.path.commonprefix(cut))  # noqa: RUF071
    return [fitted(f"…{name[begin:]}" if begin > 3 else name, width) for name in cut]


def _without_middle(text: str, kept: int) -> str:
    return f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"


# --- SVG


def as_svg(drawing: Drawing, *, embedded: bool = False) -> str:
    """The drawing as one `svg` element."""
    size = f'viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}" width="{drawing.width:.0f}" height="{drawing.height:.0f}"'
    size += f' aria-label="{_safe(drawing.title)}"'
    about = f"<desc>{_safe(drawing.description)}</desc>" if drawing.description else ""
    paint = _class if embedded else _colored
    body = "".join(part for shape in drawing.shapes for part in _elements(shape, paint))
    if embedded:  # without a title, which a browser would show wherever the mouse is
        return f'<svg class="plot" role="img" {size}>{about}{body}</svg>'
    paper = f'<rect width="{drawing.width:.0f}" height="{drawing.height:.0f}" fill="{COLORS["paper"].paper}"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} font-family="{FONT}">'
        f"<title>{_safe(drawing.title)}</title>{about}{paper}{body}</svg>\n"
    )


def _class(color: str, attribute: str) -> str:
    return f'class="{color} {attribute}"'


def _colored(color: str, attribute: str) -> str:
    other = ' fill="none"' if attribute == "stroke" else ""
    return f'{attribute}="{COLORS[color].paper}"{other}'


def _safe(text: str) -> str:
    return escape(visible(text))


def _elements(shape: Shape, paint: Any) -> Iterator[str]:
    match shape:
        case Titled(title, shapes):
            yield f"<g><title>{_safe(title)}</title>"
            yield from (part for shown in shapes for part in _elements(shown, paint))
            yield "</g>"
        case Stroke(points, color, width, dashed):
            dash = ' stroke-dasharray="4 3"' if dashed else ""
            yield f'<polyline points="{_places(points)}" stroke-width="{width:g}"{dash} {paint(color, "stroke")}/>'
        case Polygon(points, color):
            yield f'<polygon points="{_places(points)}" {paint(color, "fill")}/>'
        case Box(x, y, width, height, color, radius):
            size = f'width="{width:.1f}" height="{height:.1f}"' + (f' rx="{radius:g}"' if radius else "")
            yield f'<rect x="{x:.1f}" y="{y:.1f}" {size} {paint(color, "fill")}/>'
        case Disc(x, y, radius, color):
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" {paint(color, "fill")}/>'
        case Label():
            yield _text(shape, paint)


def _places(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _text(label: Label, paint: Any) -> str:
    turned = f' transform="rotate(-90 {label.x:.1f} {label.y:.1f})"' if label.upward else ""
    bold = ' font-weight="bold"' if label.bold else ""
    place = f'x="{label.x:.1f}" y="{label.y:.1f}" font-size="{label.size:g}" text-anchor="{label.anchor}"'
    return f"<text {place}{bold}{turned} {paint(label.color, 'fill')}>{_safe(label.text)}</text>"


# --- PNG and PDF

NO_DATES: dict[str, dict[str, None]] = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Producer": None}}
"""The same drawing is the same file, whenever it is written."""
DOTS_PER_INCH = 200


def check_matplotlib(place: str) -> None:
    """Refuse PNG and PDF where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        fix = f"{installing('plot')}, or write .svg, which needs nothing"
        raise ConfigError.at(place, "PNG and PDF need matplotlib, which is not installed", fix) from None


def as_image(drawing: Drawing, format: Literal["png", "pdf"]) -> bytes:
    """The drawing as PNG or PDF: the same shapes at the same places."""
    import warnings

    from matplotlib.figure import Figure

    figure = Figure(figsize=(drawing.width / 72, drawing.height / 72), facecolor=COLORS["paper"].paper)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    axes.set_axis_off()
    for shape in drawing.shapes:
        _add(axes, shape)
    target = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # drawn as a box
        figure.savefig(target, format=format, dpi=DOTS_PER_INCH, metadata=NO_DATES[format])
    return target.getvalue()


def _add(axes: "Axes", shape: Shape) -> None:
    from matplotlib import lines, patches

    match shape:
        case Titled(_, shapes):
            for shown in shapes:
                _add(axes, shown)
        case Stroke(points, color, width, dashed):
            xs, ys = zip(*points, strict=True)
            dash: Literal["--", "-"] = "--" if dashed else "-"
            axes.add_line(lines.Line2D(xs, ys, color=COLORS[color].paper, linewidth=width, linestyle=dash, zorder=2))
        case Polygon(points, color):
            axes.add_patch(patches.Polygon(list(points), closed=True, **_fill(color)))
        case Box(x, y, width, height, color, radius):
            style = patches.BoxStyle
            corners = style.Round(pad=0.0, rounding_size=radius) if radius else style.Square(pad=0.0)
            axes.add_patch(patches.FancyBboxPatch((x, y), width, height, boxstyle=corners, **_fill(color)))
        case Disc(x, y, radius, color):
            axes.add_patch(patches.Circle((x, y), radius, **_fill(color)))
        case Label():
            axes.text(
                shape.x, shape.y, visible(shape.text), fontsize=shape.size, color=COLORS[shape.color].paper,
                ha={"start": "left", "middle": "center", "end": "right"}[shape.anchor], va="baseline",
                rotation=90 if shape.upward else 0, rotation_mode="anchor", parse_math=False,
                fontweight="bold" if shape.bold else "normal", family="sans-serif", zorder=3,
            )  # fmt: skip


def _fill(color: str) -> dict[str, Any]:
    return {"color": COLORS[color].paper, "linewidth": 0, "zorder": 2}


def is_finite(*numbers: float | None) -> bool:
    """Whether all are numbers with a place on a sheet."""
    return all(number is not None and math.isfinite(number) for number in numbers)
