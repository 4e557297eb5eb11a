"""Plots: what they say can be read off them, and no text in them is markup."""

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from assay.report.graph_drawing import END, START, DrawnEdge, DrawnNode, draw_graph, graph_nodes_and_edges, layers_of
from assay.report.plots import (
    STYLE,
    Bin,
    Interval,
    bar_text,
    calibration,
    forest,
    forest_text,
    histogram,
    histogram_text,
    interval_bar,
    slices,
)
from assay.statistics.calibration import CurvePoint

HOSTILE = '"><script>alert(1)</script>&amp;'


def rects(svg: str, kind: str) -> list[dict[str, str]]:
    return [dict(each.attrib) for each in ElementTree.fromstring(svg).iter("rect") if each.get("class") == kind]


def test_an_interval_bar_has_its_ends_where_they_belong() -> None:
    [spread] = rects(interval_bar(Interval("acc", 0.5, 0.25, 0.75), width=206), "spread")
    assert (spread["x"], spread["width"]) == ("53.0", "100.0")  # 3 + 200 × 0.25, 200 × 0.5
    [mark] = rects(interval_bar(Interval("acc", 0.5, 0.25, 0.75), width=206), "mark")
    assert mark["x"] == "101.5"


def test_the_tallest_bar_of_a_histogram_has_the_most() -> None:
    bars = rects(histogram([Bin(0, 0.5, 10), Bin(0.5, 1, 40)], height=132), "mark")
    assert [bar["height"] for bar in bars] == ["25.0", "100.0"]
    assert histogram_text([Bin(0, 1, 10), Bin(1, 2, 40), Bin(2, 3, 0)]) == "▂█ "


def test_a_difference_whose_interval_excludes_zero_is_highlighted() -> None:
    drawn = forest([Interval("a", 0.2, 0.1, 0.3), Interval("b", -0.2, -0.3, -0.1), Interval("c", 0.1, -0.1, 0.3)])
    assert (len(rects(drawn, "better")), len(rects(drawn, "worse")), len(rects(drawn, "mark"))) == (1, 1, 1)
    assert forest_text([Interval("a", 0.2, 0.1, 0.3)]).startswith("a  ·")
    fitted = forest_text([Interval("a task", 0.2, 0.1, 0.3, "p 0.1"), Interval("b", -0.12345, -0.2, -0.1)], most=40)
    assert max(map(len, fitted.splitlines())) <= 40 and "+0.2" in fitted and "-0.1235" in fitted


def test_calibration_draws_a_dot_for_every_bin_and_the_line_of_a_calibrated_model() -> None:
    svg = calibration(
        [CurvePoint(0.0, 0.0, 4), CurvePoint(0.5, 1.0, 4), CurvePoint(1.0, 0.0, 1)], [None, (0.5, 1.0), None]
    )
    root = ElementTree.fromstring(svg)
    left, middle, right = [(float(each.get("cx") or 0), float(each.get("cy") or 0)) for each in root.iter("circle")]
    assert middle[0] == (left[0] + right[0]) / 2 and left[1] == right[1] > middle[1]
    [diagonal] = [each for each in root.iter("polyline") if each.get("stroke-dasharray")]
    assert diagonal.get("points") == f"{left[0]:.1f},{left[1]:.1f} {right[0]:.1f},{middle[1]:.1f}"
    halfway = f"{middle[0]:.1f},{(left[1] + middle[1]) / 2:.1f}"
    assert halfway in "".join(each.get("points") or "" for each in root.iter("polyline")), "the interval ends at 0.5"
    assert "style" not in svg, "colors are those of the page"


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1))
def test_every_plot_is_well_formed_and_stays_within_its_frame(name: str, value: float, share: float) -> None:
    name = "".join(sign for sign in name if sign.isprintable())
    rows = [Interval(name, value, min(value, share), max(value, share), name)]
    for drawn in (
        interval_bar(rows[0]),
        slices(rows),
        forest(rows),
        draw_graph([DrawnNode(name), DrawnNode(END)], [DrawnEdge(START, name), DrawnEdge(name, END)]),
    ):
        root = ElementTree.fromstring(drawn)
        width = float(root.get("width") or 0)
        assert all(-2 <= float(each.get("x") or 0) <= width for each in root.iter("rect"))


@given(st.floats(0, 1), st.integers(3, 60))
def test_the_text_of_a_bar_has_its_width_and_one_mark(value: float, width: int) -> None:
    text = bar_text(Interval("x", value, value / 2, (1 + value) / 2), width=width)
    assert len(text) == width
    assert text.count("●") == 1


def test_names_and_labels_are_text_and_never_markup() -> None:
    rows = [Interval(HOSTILE, 0.5, 0.4, 0.6, HOSTILE)]
    graph = draw_graph(
        [DrawnNode(START), DrawnNode(HOSTILE, HOSTILE, HOSTILE), DrawnNode(END)], [DrawnEdge(START, HOSTILE, HOSTILE)]
    )
    for drawn in (interval_bar(rows[0]), slices(rows), forest(rows), histogram([Bin(0, 1, 1)], label=HOSTILE), graph):
        assert "<script" not in drawn
        ElementTree.fromstring(drawn)


def test_nothing_is_styled_in_place_so_that_a_page_may_forbid_it() -> None:
    drawn = slices([Interval("a", 0.5, 0.4, 0.6)]) + draw_graph(
        *graph_nodes_and_edges({"nodes": {"a": {}}, "edges": []})
    )
    assert "style=" not in drawn
    classes = set(re.findall(r'class="([\w ]+)"', drawn))
    assert all(f".{name}" in STYLE for items in classes for name in items.split() if name != "graph")


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
