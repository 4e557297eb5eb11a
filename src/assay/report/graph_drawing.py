"""Drawings of graphs: nodes in layers, with every edge and every label at a separate place between them.

An edge passes each layer through a slot, and its label is such a slot: lines cross neither nodes nor labels.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from assay.records import AnyJSON, JSONObject
from assay.report.drawing import Box, Drawing, Label, Polygon, Shape, Stroke, Titled, fitted, text_width
from assay.safe_text import cut

START, END = "START", "END"
NODE_WIDTH, LINE, GAP, ROW_GAP, SLOT = 190.0, 16.0, 26.0, 24.0, 10.0
"""Width of a node, height of its lines, the space between slots and between rows, and the width of a line's slot."""
LABEL = 24
"""Characters of a label."""
LABEL_SIZE = 12.0
SWEEPS = 6
BENDS = 12
"""Into how many straight pieces a curve is cut."""


class DrawnNode(NamedTuple):
    """A node of the drawing: its type, visits and failures, and what it spent."""

    name: str
    about: str = ""
    note: str = ""
    failed: int = 0
    spent: str = ""

    @property
    def lines(self) -> list[str]:
        """The texts in its box."""
        subtitle = " · ".join(part for part in (self.about, self.note) if part)
        return [self.name, *(part for part in (subtitle, self.spent) if part)]


class DrawnEdge(NamedTuple):
    """An edge from one node to another; `label` is the condition's value."""

    source: str
    target: str
    label: str = ""


class GraphSlot:
    """A place in a row: of a node, of a line that passes, or of a label."""

    __slots__ = ("above", "below", "node", "row", "text", "width", "x")

    def __init__(self, row: int, width: float, text: str = "", node: DrawnNode | None = None) -> None:
        self.row, self.width, self.text, self.node = row, width, text, node
        self.x = 0.0
        self.above: list[GraphSlot] = []
        self.below: list[GraphSlot] = []


class Line(NamedTuple):
    """An edge with the slots that it passes, from the upper end to the lower one; `is_back` leads upwards."""

    slots: Sequence[GraphSlot]
    is_back: bool


def graph_nodes_and_edges(graph: JSONObject) -> tuple[list[DrawnNode], list[DrawnEdge]]:
    """Nodes and edges of a graph, from its file or the results of a run."""
    written = graph.get("nodes")
    nodes = [
        DrawnNode(str(name), _kind(about)) for name, about in (written if isinstance(written, Mapping) else {}).items()
    ]
    edges: list[DrawnEdge] = []
    for edge in graph.get("edges") or ():
        source = _node_name(edge.get("from"))
        edges += [DrawnEdge(source, _node_name(target)) for target in _as_list(edge.get("to"))]
        edges += [
            DrawnEdge(source, _node_name(target), str(label)) for label, target in (edge.get("path_map") or {}).items()
        ]
    return [DrawnNode(START), *nodes, DrawnNode(END)], edges


def _kind(about: AnyJSON) -> str:
    return str(about.get("node_type", "")) if isinstance(about, Mapping) else ""


def _as_list(value: AnyJSON) -> list[AnyJSON]:
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def _node_name(name: AnyJSON) -> str:
    return {"__start__": START, "__end__": END}.get(str(name), str(name))


def draw_graph(nodes: Sequence[DrawnNode], edges: Sequence[DrawnEdge]) -> Drawing:
    """The graph as a drawing. Edges that lead back are dashed."""
    by_name = {node.name: node for node in nodes}
    known = [edge for edge in dict.fromkeys(edges) if edge.source in by_name and edge.target in by_name]
    layers = layers_of(list(by_name), known)
    rows, lines = _slots(layers, by_name, known)
    _order(rows)
    width = _place(rows)
    tops = _row_tops(rows)
    shapes = [shape for line in lines for shape in _line(line, tops)]
    shapes += [_node(slot.node, slot.x, *tops[slot.row]) for row in rows for slot in row if slot.node is not None]
    shapes += [shape for row in rows for slot in row if slot.text for shape in _label(slot, tops[slot.row][0])]
    label = "; ".join(f"{edge.source} → {edge.target}{f' ({edge.label})' if edge.label else ''}" for edge in edges)
    return Drawing(width, sum(tops[-1]) + 6, label, "", shapes)


def layers_of(names: Sequence[str], edges: Sequence[DrawnEdge]) -> list[list[str]]:
    """Nodes by their longest distance from START, ignoring edges that lead back; END last."""
    onward: dict[str, list[str]] = {name: [] for name in names}
    for edge in edges:
        if edge.source in onward and edge.target in onward and edge.target not in onward[edge.source]:
            onward[edge.source].append(edge.target)
    depth = {START: 0} if START in onward else {}
    order = {name: number for number, name in enumerate(_forward_order(onward))}
    for name in order:
        for target in onward[name]:
            if order[target] > order[name]:
                depth[target] = max(depth.get(target, 0), depth.get(name, 0) + 1)
    last = max((level for name, level in depth.items() if name != END), default=0)
    depth |= {name: last for name in names if name not in depth}
    depth |= {END: last + 1} if END in onward else {}
    layers: list[list[str]] = [[] for _ in range(last + 2)]
    for name in names:
        layers[depth[name]].append(name)
    return [layer for layer in layers if layer]


def _forward_order(onward: Mapping[str, Sequence[str]]) -> list[str]:
    """Nodes in topological order, ignoring edges that lead back."""
    order: list[str] = []
    stack = [(START, 0)] if START in onward else []
    seen = {START}
    while stack:
        name, at = stack.pop()
        targets = onward[name]
        if at < len(targets):
            stack.append((name, at + 1))
            if targets[at] not in seen:
                seen.add(targets[at])
                stack.append((targets[at], 0))
        else:
            order.append(name)
    return order[::-1]


def _slots(
    layers: Sequence[Sequence[str]], nodes: Mapping[str, DrawnNode], edges: Sequence[DrawnEdge]
) -> tuple[list[list[GraphSlot]], list[Line]]:
    """Rows of slots: nodes in every other row, between them the lines and labels of the edges that pass."""
    rows: list[list[GraphSlot]] = [
        [] for _ in range(2 * len(layers) + 1)
    ]  # one more below, for edges within the last layer
    places = {}
    for number, layer in enumerate(layers):
        for name in layer:
            places[name] = GraphSlot(2 * number, NODE_WIDTH, "", nodes[name])
            rows[2 * number].append(places[name])
    lines = []
    for edge in edges:
        source, target = places[edge.source], places[edge.target]
        is_back = target.row <= source.row
        upper, lower = (target, source) if is_back else (source, target)
        between = range(upper.row + 1, max(lower.row, upper.row + 2))
        named = (between[-1] if is_back else between[0]) if edge.label else -1
        passed = [_passing(row, edge.label if row == named else "") for row in between]
        for slot in passed:
            rows[slot.row].append(slot)
        chain = [upper, *passed, lower]
        for one, two in pairwise(chain):
            if two.row > one.row:
                one.below.append(two)
                two.above.append(one)
        lines.append(Line(chain, is_back))
    return (rows if rows[-1] else rows[:-1]), lines


def _passing(row: int, text: str) -> GraphSlot:
    shown = cut(text, LABEL)
    return GraphSlot(row, max(text_width(shown, LABEL_SIZE) + 12, SLOT) if shown else SLOT, shown)


def _order(rows: list[list[GraphSlot]]) -> None:
    """Sort the slots of each row by where their neighbors are, so that lines cross seldom."""
    for row in rows:
        for place, slot in enumerate(row):
            slot.x = float(place)
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            ideal = {slot: _mean(slot.above if sweep % 2 == 0 else slot.below, slot.x) for slot in row}
            row.sort(key=ideal.__getitem__)
            for place, slot in enumerate(row):
                slot.x = place - (len(row) - 1) / 2


def _mean(slots: Sequence[GraphSlot], otherwise: float) -> float:
    return sum(slot.x for slot in slots) / len(slots) if slots else otherwise


def _place(rows: Sequence[Sequence[GraphSlot]]) -> float:
    """Set the middle of each slot, near its neighbors, without overlaps; returns the width of the drawing."""
    for row in rows:
        left = 0.0
        for slot in row:
            slot.x, left = left + slot.width / 2, left + slot.width + GAP
        for slot in row:
            slot.x -= (left - GAP) / 2
    for sweep in range(2 * SWEEPS):
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            ideal = [_mean([*slot.above, *slot.below], slot.x) for slot in row]
            _spread(row, ideal)
    every = [slot for row in rows for slot in row]
    left = min(slot.x - slot.width / 2 for slot in every) - 4
    for slot in every:
        slot.x -= left
    return max(slot.x + slot.width / 2 for slot in every) + 4


def _spread(row: Sequence[GraphSlot], ideal: Sequence[float]) -> None:
    """Move slots to where they are ideal, in their order; those that would overlap share what they are off."""
    groups: list[
        tuple[float, float, list[GraphSlot]]
    ] = []  # the left end, the width, and the slots of a group side by side
    for slot, middle in zip(row, ideal, strict=True):
        group = (middle - slot.width / 2, slot.width, [slot])
        while groups and groups[-1][0] + groups[-1][1] + GAP > group[0]:
            left, wide, slots = groups.pop()
            count, more = len(slots), len(group[2])
            middle_of_both = (left * count + (group[0] - wide - GAP) * more) / (count + more)
            group = (middle_of_both, wide + GAP + group[1], [*slots, *group[2]])
        groups.append(group)
    for left, _, slots in groups:
        for slot in slots:
            slot.x = left + slot.width / 2
            left += slot.width + GAP  # the end of one is the beginning of the next


def _row_tops(rows: Sequence[Sequence[GraphSlot]]) -> list[tuple[float, float]]:
    """Top and height of every row."""
    tops, top = [], 4.0
    for row in rows:
        lines = max((len(slot.node.lines) for slot in row if slot.node is not None), default=0)
        height = lines * LINE + 14 if lines else LINE if any(slot.text for slot in row) else 2.0
        tops.append((top, height))
        top += height + ROW_GAP
    return tops


def _line(line: Line, tops: Sequence[tuple[float, float]]) -> list[Shape]:
    """An edge with the tip of its arrow: straight through its slots, curved between rows."""
    first, *passed, last = line.slots
    points = [(first.x, sum(tops[first.row]))]
    for slot in passed:
        top, height = tops[slot.row]
        points += [(slot.x, top), (slot.x, top + height)]
    is_below = last.row > first.row
    points.append((last.x, tops[last.row][0] if is_below else sum(tops[last.row])))
    if not is_below:  # within a layer: down to the slot and up again
        offset = 18 if first is last else 0
        points[0], points[-1] = (first.x - offset, points[0][1]), (last.x + offset, points[-1][1])
    if line.is_back:
        points.reverse()
    way = points[:1]
    for begin, end in pairwise(points):
        way += _curve(begin, end)
    (_, before), (x, y) = way[-2:]
    base = y + (7 if before > y else -7)
    return [
        Stroke(way, "faint", 1.25, dashed=line.is_back),
        Polygon([(x, y), (x - 3.5, base), (x + 3.5, base)], "faint"),
    ]


def _curve(begin: tuple[float, float], end: tuple[float, float]) -> list[tuple[float, float]]:
    """A curve that leaves one point and reaches the other upright, as the places where it is cut; the first is left out."""
    (x, y), (to_x, to_y) = begin, end
    if x == to_x:
        return [end]
    bend = (to_y - y) / 2
    places = []
    for number in range(1, BENDS + 1):
        share = number / BENDS
        left = 1 - share
        # of Bézier's curve with both handles upright
        ends = left**3, 3 * left**2 * share, 3 * left * share**2, share**3
        across = (ends[0] + ends[1]) * x + (ends[2] + ends[3]) * to_x
        down = ends[0] * y + ends[1] * (y + bend) + ends[2] * (to_y - bend) + ends[3] * to_y
        places.append((across, down))
    return places


def _node(node: DrawnNode, middle: float, top: float, height: float) -> Titled:
    left, wide = middle - NODE_WIDTH / 2, NODE_WIDTH
    color, line = ("worse", 2.0) if node.failed else ("rule", 1.0)
    radius = height / 2 if node.name in (START, END) else 5.0
    first = top + (height - len(node.lines) * LINE) / 2 + 12
    texts = [
        Label(middle, first + place * LINE, fitted(text, wide - 8), "middle", color="faint" if place else "ink")
        for place, text in enumerate(node.lines)
    ]
    boxes = [
        Box(left, top, wide, height, color, radius),
        Box(left + line, top + line, wide - 2 * line, height - 2 * line, "panel", radius - line),
    ]
    return Titled(" ".join(node.lines), [*boxes, *texts])


def _label(slot: GraphSlot, top: float) -> list[Shape]:
    """A label on its line, with the ground of the page behind it."""
    return [
        Box(slot.x - slot.width / 2, top, slot.width, LINE, "paper"),
        Label(slot.x, top + 12, slot.text, "middle", color="faint"),
    ]
