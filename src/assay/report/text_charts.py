"""Charts for a terminal: the bar of a number, and rows of differences around zero."""

from assay.report.charts import Axis, Panel, Point


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
