"""A graph for the eye: its nodes and ways as lines of a terminal, or as Mermaid."""

import re
from collections.abc import Iterator

from assay.graphs.reading import GraphFile, targets
from assay.graphs.spec import END, START, LambdaSpec, LikelihoodSpec, SubgraphSpec


def drawn(graph: GraphFile) -> Iterator[str]:
    """Every node in the order it is reached, each with the nodes after it; ways back are marked."""
    order = _order(graph)
    for number, name in enumerate(order):
        if name == END:
            continue
        about = f"  {_about(graph, name)}" if name in graph.nodes else ""
        yield f"{name}{about}"
        ways = list(_ways(graph, name))
        for at, (label, target) in enumerate(ways):
            corner = "└" if at == len(ways) - 1 else "├"
            back = "  ↺" if target in order[: number + 1] else ""
            yield f"  {corner}─{f' {label} ─' if label else ''}► {target}{back}"
    yield END


def mermaid(graph: GraphFile) -> Iterator[str]:
    """The graph in Mermaid's language."""
    yield "flowchart TD"
    numbers = {name: f"n{number}" for number, name in enumerate(_order(graph))}
    for name, number in numbers.items():
        if name in (START, END):
            yield f"    {number}([{name}])"
        else:
            yield f'    {number}["{_escaped(name)}<br/>{_escaped(_about(graph, name))}"]'
    for name, number in numbers.items():
        for label, target in _ways(graph, name):
            said = f'|"{_escaped(label)}"|' if label else ""
            yield f"    {number} -->{said} {numbers[target]}"


def _escaped(text: str) -> str:
    return re.sub(r'["<>|]', lambda sign: f"#{ord(sign.group())};", text)


def _ways(graph: GraphFile, name: str) -> Iterator[tuple[str, str]]:
    """The label of every edge from a node, and the node it leads to; without a choice the label is empty."""
    for edge in graph.edges:
        if edge.source != name:
            continue
        if edge.target is not None:
            yield "", edge.target
        for said, target in (edge.path_map or {}).items():
            yield str(said), str(target)


def _order(graph: GraphFile) -> list[str]:
    """START, then every node when it is first reached, then END."""
    order = [START]
    for name in order:
        for edge in graph.edges:
            if edge.source == name:
                order += [each for each in dict.fromkeys(targets(edge)) if each not in order and each != END]
    return [*order, END]


def _about(graph: GraphFile, name: str) -> str:
    """Describe a node: its type, the model or function it calls, and the keys it writes."""
    node = graph.nodes[name]
    description = str(node.node_type)
    if node.models:
        description += " " + ", ".join(model.name for model in node.models.values())
    elif isinstance(node, LambdaSpec):
        description += " " + node.function.rpartition(".")[2]
    elif isinstance(node, SubgraphSpec):
        description += " " + node.subgraph
    written = (*node.keys, *(node.further_keys if isinstance(node, LikelihoodSpec) else ()))
    return description + (f" → {', '.join(written)}" if written else "")
