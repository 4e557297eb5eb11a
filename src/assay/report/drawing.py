"""A graph drawn as SVG: nodes in layers from START to END, ways between them, counts in the nodes."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from assay.report.plots import STYLE as STYLE

START, END = "START", "END"
WIDE, TALL, ACROSS, DOWN = 190, 44, 34, 46
"""The size of a node, and the room between nodes."""


class Node(NamedTuple):
    """A node: what it is, and what happened there."""

    name: str
    about: str = ""
    note: str = ""
    failed: int = 0


class Way(NamedTuple):
    """A way from one node to another; `label` is what a condition says there."""

    source: str
    target: str
    label: str = ""


def graph_parts(graph: Mapping[str, Any]) -> tuple[list[Node], list[Way]]:
    """Nodes and ways of a graph as its file, or the results of a run, have them."""
    written = graph.get("nodes")
    nodes = [Node(str(name), _kind(about)) for name, about in (written if isinstance(written, Mapping) else {}).items()]
    ways: list[Way] = []
    for edge in graph.get("edges") or ():
        source = _end(edge.get("from"))
        ways += [Way(source, _end(each)) for each in _listed(edge.get("to"))]
        ways += [Way(source, _end(target), str(said)) for said, target in (edge.get("path_map") or {}).items()]
    return [Node(START), *nodes, Node(END)], ways


def draw_graph(nodes: Sequence[Node], ways: Sequence[Way]) -> str:
    """The graph as SVG. Ways that lead back run beside the nodes."""
    layers = layers_of([node.name for node in nodes], ways)
    widest = max(len(layer) for layer in layers)
    width = widest * (WIDE + ACROSS) + 4 * ACROSS
    height = len(layers) * (TALL + DOWN) - DOWN + 8
    places = {
        name: ((width - len(layer) * (WIDE + ACROSS) + ACROSS) / 2 + at * (WIDE + ACROSS), 4 + row * (TALL + DOWN))
        for row, layer in enumerate(layers)
        for at, name in enumerate(layer)
    }
    drawn = [_way(way, places) for way in ways if way.source in places and way.target in places]
    drawn += [_node(node, *places[node.name]) for node in nodes if node.name in places]
    arrow = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0 0L8 4L0 8Z"/></marker></defs>'
    )
    label = "; ".join(f"{way.source} → {way.target}" for way in ways)
    opened = f'<svg class="plot graph" role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'{opened} aria-label="{escape(label)}">{arrow}{"".join(drawn)}</svg>'


def layers_of(names: Sequence[str], ways: Sequence[Way]) -> list[list[str]]:
    """Nodes by how many steps they are from START at most, where no way leads back; END last."""
    onward: dict[str, list[str]] = {name: [] for name in names}
    for way in ways:
        if way.source in onward and way.target in onward and way.target not in onward[way.source]:
            onward[way.source].append(way.target)
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
    """Nodes so that each stands before those it leads to, but for ways that lead back."""
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


def _node(node: Node, x: float, y: float) -> str:
    failing = " failing" if node.failed else ""
    round_ends = 20 if node.name in (START, END) else 5
    lines = [f'<text x="{x + WIDE / 2}" y="{y + (18 if node.about or node.note else 27)}" text-anchor="middle">'
             f"{escape(node.name[:26])}</text>"]  # fmt: skip
    told = " · ".join(part for part in (node.about, node.note) if part)
    if told:
        lines.append(
            f'<text class="faint" x="{x + WIDE / 2}" y="{y + 35}" text-anchor="middle">{escape(told[:32])}</text>'
        )
    box = f'<rect class="node{failing}" x="{x}" y="{y}" rx="{round_ends}" width="{WIDE}" height="{TALL}"/>'
    return f"<g><title>{escape(f'{node.name} {told}'.strip())}</title>{box}{''.join(lines)}</g>"


def _way(way: Way, places: Mapping[str, tuple[float, float]]) -> str:
    (x, y), (to_x, to_y) = places[way.source], places[way.target]
    if to_y > y:
        begin, finish = (x + WIDE / 2, y + TALL), (to_x + WIDE / 2, to_y - 2)
        bend = (to_y - y - TALL) / 2
        path = f"M{begin[0]} {begin[1]}C{begin[0]} {begin[1] + bend} {finish[0]} {finish[1] - bend} {finish[0]} {finish[1]}"
        at = (begin[0] + (finish[0] - begin[0]) * 0.3 + 6, begin[1] + 16)
    else:
        begin, finish = (x + WIDE, y + TALL / 2 + 6), (to_x + WIDE + 2, to_y + TALL / 2 - 6)
        side = max(begin[0], finish[0]) + ACROSS
        path = f"M{begin[0]} {begin[1]}C{side} {begin[1]} {side} {finish[1]} {finish[0]} {finish[1]}"
        at = (max(begin[0], finish[0]) + ACROSS * 0.75 + 4, (begin[1] + finish[1]) / 2)
    said = f'<text class="faint" x="{at[0]}" y="{at[1]}">{escape(way.label[:24])}</text>' if way.label else ""
    return f'<path class="way" marker-end="url(#tip)" d="{path}"/>{said}'


def _kind(about: Any) -> str:
    return str(about.get("node_type", "")) if isinstance(about, Mapping) else ""


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def _end(name: Any) -> str:
    return {"__start__": START, "__end__": END}.get(str(name), str(name))
