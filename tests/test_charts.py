"""Charts of pages: what they say can be read off them, and no text in them is markup."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.report import charts as charts_module
from assay.report.charts import (
    Bin,
    Chart,
    Histogram,
    Panel,
    Point,
    Segment,
    Series,
    Shares,
    Span,
    Timeline,
    bar_text,
    draw,
    draw_bar,
    forest_text,
    reliability_panel,
    reliability_points,
)
from assay.report.drawing import STYLE, Drawing, as_image, as_svg
from assay.report.graph_drawing import END, START, DrawnEdge, DrawnNode, draw_graph, graph_nodes_and_edges, layers_of
from assay.results import Estimate, ReliabilityPoint

HOSTILE = '"><script>alert(1)</script>&amp;'
GRAPH = [DrawnNode(START), DrawnNode(HOSTILE, HOSTILE, HOSTILE), DrawnNode(END)], [DrawnEdge(START, HOSTILE, HOSTILE)]


def embedded(drawing: Drawing) -> ElementTree.Element:
    return ElementTree.fromstring(as_svg(drawing, embedded=True))


def rects(drawing: Drawing, color: str) -> list[dict[str, str]]:
    boxes = embedded(drawing).iter("rect")
    return [dict(box.attrib) for box in boxes if box.get("class") == f"{color} fill"]


def charts(name: str, number: Point) -> list[Drawing]:
    """A chart of every kind with a name in every text."""
    one = [Series(name, [number])]
    panels = (
        Panel("", name, one, [name], zero=True),
        Panel("", name, one, [name], limits=(0.0, 1.0), whole=True),
        reliability_panel(name, one),
        Histogram([Bin(number.value, number.value, 3)], title=name),
        Shares([Segment(name, 1, "better"), Segment(name, 0, "worse")]),
        Timeline([Span(name, 0.5, "model", name), Span(name, 0.0, "tool")]),
    )
    drawn = [draw(Chart(name, [panel], [name, name], [name], label=name)) for panel in panels]
    return [*drawn, draw(Chart("", panels)), draw_bar(name, number)]


def test_an_interval_bar_has_its_ends_where_they_belong() -> None:
    bar = draw_bar("acc", Point(0, 0.5, 0.25, 0.75), width=206)
    [spread] = rects(bar, "spread")
    assert (spread["x"], spread["width"]) == ("53.0", "100.0")  # 3 + 200 × 0.25, 200 × 0.5
    [mark] = rects(bar, "series0")
    assert mark["x"] == "101.5"
    assert embedded(bar).get("aria-label") == "acc 0.5 (0.25 … 0.75)"


def test_the_tallest_bar_of_a_histogram_has_the_most() -> None:
    drawing = draw(Chart("", [Histogram([Bin(0, 0.5, 10), Bin(0.5, 1, 40)])]))
    low, high = (float(bar["height"]) for bar in rects(drawing, "series0"))
    assert high == 4 * low
    [described] = embedded(drawing).iter("desc")
    assert described.text == "0 … 0.5: 10; 0.5 … 1: 40"


def test_shares_are_as_wide_as_their_parts() -> None:
    drawing = draw(Chart("", [Shares([Segment("1", 30, "better"), Segment("0", 10, "worse")])], width=428))
    assert [rects(drawing, color)[0]["width"] for color in ("better", "worse")] == [
        "299.0",
        "99.0",
    ]  # of 400, less a gap
    assert "1: 30 (75.0 %)" in as_svg(drawing)


def test_each_piece_of_work_begins_where_the_one_before_it_ends() -> None:
    drawing = draw(Chart("", [Timeline([Span("ask", 3.0, "model"), Span("look up", 1.0, "tool", "query")])]))
    [model], [tool] = rects(drawing, "series0"), rects(drawing, "series2")
    assert float(tool["x"]) == pytest.approx(float(model["x"]) + float(model["width"]), abs=0.11)
    assert float(model["width"]) == pytest.approx(3 * float(tool["width"]), abs=0.3)
    assert "tool look up: 1.0 s query" in [each.text for each in embedded(drawing).iter("title")]


def test_differences_have_zero_in_the_middle_of_a_text_and_fit_its_columns() -> None:
    points = [Point(0, 0.2, 0.1, 0.3, text="+0.2000  p 0.1"), Point(1, -0.12345, -0.2, -0.1, text="-0.1235")]
    panel = Panel("", "", [Series("", points)], ["a task", "b"])
    first, second = forest_text(panel, width=41).splitlines()
    assert first[8 + 20] == "│" == second[8 + 20] and "●" in first[8 + 21 :] and "●" in second[8 : 8 + 20]
    fitted = forest_text(panel, most=40)
    assert max(map(len, fitted.splitlines())) <= 40 and "+0.2" in fitted and "-0.1235" in fitted


def test_calibration_draws_a_dot_for_every_bin_and_the_line_of_a_calibrated_model() -> None:
    bins = [Estimate(0.0, n=4), Estimate(1.0, interval=(0.5, 1.0), n=4), Estimate(0.0, n=1)]
    points = reliability_points([ReliabilityPoint(place / 2, right) for place, right in enumerate(bins)])
    root = embedded(draw(Chart("", [reliability_panel("", [Series("", points)])])))
    left, middle, right = [(float(each.get("cx") or 0), float(each.get("cy") or 0)) for each in root.iter("circle")]
    assert middle[0] == (left[0] + right[0]) / 2 and left[1] == right[1] > middle[1]
    [diagonal] = [each for each in root.iter("polyline") if each.get("stroke-dasharray")]
    assert diagonal.get("points") == f"{left[0]:.1f},{left[1]:.1f} {right[0]:.1f},{middle[1]:.1f}"
    halfway = f"{middle[0]:.1f},{(left[1] + middle[1]) / 2:.1f}"
    assert halfway in "".join(each.get("points") or "" for each in root.iter("polyline")), "the interval ends at 0.5"


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1))
def test_every_chart_is_well_formed_and_stays_within_its_frame(name: str, value: float, share: float) -> None:
    graph = draw_graph([DrawnNode(name), DrawnNode(END)], [DrawnEdge(START, name), DrawnEdge(name, END)])
    for drawing in (*charts(name, Point(0, value, min(value, share), max(value, share), name, text=name)), graph):
        for box in embedded(drawing).iter("rect"):
            assert 0 <= float(box.get("x") or -1) <= float(box.get("x") or 0) + float(box.get("width") or 0)
            assert float(box.get("x") or 0) + float(box.get("width") or 0) <= drawing.width + 0.2


@given(st.floats(0, 1), st.integers(3, 60))
def test_the_text_of_a_bar_has_its_width_and_one_mark(value: float, width: int) -> None:
    text = bar_text(Point(0, value, value / 2, (1 + value) / 2), width=width)
    assert len(text) == width
    assert text.count("●") == 1


def test_names_and_labels_are_text_and_never_markup() -> None:
    for drawing in (*charts(HOSTILE, Point(0, 0.5, 0.4, 0.6, HOSTILE, text=HOSTILE)), draw_graph(*GRAPH)):
        for text in (as_svg(drawing), as_svg(drawing, embedded=True)):
            assert "<script" not in text
            ElementTree.fromstring(text)


def test_every_color_of_a_page_has_a_class_and_nothing_is_styled_in_place_so_that_a_page_may_forbid_it() -> None:
    failing = draw_graph(
        [DrawnNode(START), DrawnNode("a", failed=1)], [DrawnEdge(START, "a", "x"), DrawnEdge("a", "a")]
    )
    judged = Panel("", "", [Series("", [Point(0, 0.5, verdict="better")], number) for number in range(7)])
    for drawing in (*charts("a", Point(0, 0.5, 0.4, 0.6)), failing, draw(Chart("", [judged], list("abcdefg")))):
        text = as_svg(drawing, embedded=True)
        assert "style=" not in text and 'fill="#' not in text
        for color, kind in re.findall(r'class="(\w+) (\w+)"', text):
            assert f".{kind}.{color} " in STYLE


def test_one_module_writes_svg() -> None:
    source = Path(charts_module.__file__).parents[1]
    files = [path for path in source.rglob("*") if path.suffix in (".py", ".html", ".jinja", ".js")]
    writing = {path.name for path in files if re.search(r"<(svg|rect|circle|poly\w+)\b", path.read_text("utf-8"))}
    assert writing == {"drawing.py"}


def test_every_chart_is_a_picture_too() -> None:
    pytest.importorskip("matplotlib")
    for drawing in (*charts("a", Point(0, 0.5, 0.4, 0.6)), draw_graph(*GRAPH)):
        assert as_image(drawing, "png")[:4] == b"\x89PNG"


def test_a_graph_is_layered_by_the_longest_way_and_ways_back_do_not_count() -> None:
    ways = [
        DrawnEdge(START, "a"),
        DrawnEdge("a", "b"),
        DrawnEdge("a", "c"),
        DrawnEdge("b", "c"),
        DrawnEdge("c", "a", "again"),
        DrawnEdge("c", END, "done"),
    ]
    assert layers_of([START, "a", "b", "c", END], ways) == [[START], ["a"], ["b"], ["c"], [END]]


def test_conditions_become_ways_with_what_they_say() -> None:
    edges = [{"from": "START", "to": "a"}, {"from": "a", "condition": "x", "path_map": {"yes": "END", "no": "a"}}]
    nodes, ways = graph_nodes_and_edges({"nodes": {"a": {"node_type": "llm"}}, "edges": edges})
    assert nodes == [DrawnNode(START), DrawnNode("a", "llm"), DrawnNode(END)]
    assert ways == [DrawnEdge(START, "a"), DrawnEdge("a", END, "yes"), DrawnEdge("a", "a", "no")]
