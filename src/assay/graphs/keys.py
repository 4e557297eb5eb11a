"""Which keys of the state a graph reads, and whether anything puts them there."""

from collections.abc import Iterator

from assay.config.braces import Braces
from assay.errors import Place, Problem, nearest
from assay.graphs.reading import GraphFile, written_texts
from assay.graphs.spec import Asking, ChoiceNode, LambdaNode, LikelihoodNode, SubgraphNode, Weighing

ALWAYS = ("id", "messages", "tool_calls", "__chat_history__")
"""Keys of every state."""


def output_keys(keys: str | tuple[str, ...]) -> tuple[str, ...]:
    return (keys,) if isinstance(keys, str) else keys


def weighed_keys(node: Weighing) -> tuple[str, ...]:
    """The keys that a node writes which asks for log-likelihoods: that of its result, and those that belong to it."""
    key = node.output_keys
    if isinstance(node, ChoiceNode):
        return key, f"{key}_choices"
    return (
        (key, f"{key}_is_greedy") if isinstance(node, LikelihoodNode) else (key, f"{key}_per_word", f"{key}_per_byte")
    )


def produced(graph: GraphFile) -> set[str]:
    """The keys that the nodes of a graph declare to write."""
    found: set[str] = set()
    for name, node in graph.nodes.items():
        found.update(graph.attributes.get(name, ()))
        if isinstance(node, Asking | LambdaNode):
            found.update(output_keys(node.output_keys))
        if isinstance(node, Weighing):
            found.update(weighed_keys(node))
    return found


def has_hidden_keys(graph: GraphFile) -> bool:
    """Whether code may write keys that are declared nowhere: what it does is not looked at."""
    return any(
        isinstance(node, SubgraphNode) or (isinstance(node, Asking) and node.pre_process is not None)
        for node in graph.nodes.values()
    )


def undeclared(graph: GraphFile, columns: tuple[str, ...]) -> Iterator[Problem]:
    """Keys that are read and that neither the records nor a node has."""
    known = {*columns, *ALWAYS, *produced(graph)}
    hidden = has_hidden_keys(graph)
    for name, node in graph.nodes.items():
        if node.node_state == "active" and not hidden:
            yield from _of_node(graph, name, known)
    for name, field in graph.outputs.items():
        if field.source is not None and field.source not in known and not hidden:
            yield _problem(field.source, known, graph.place("output_config", "output_map", name, "from"))


def _of_node(graph: GraphFile, name: str, known: set[str]) -> Iterator[Problem]:
    node = graph.nodes[name]
    for path, text in written_texts(node):
        for key in Braces.of(text).names:
            if key not in known:
                yield _problem(key, known, graph.node_place(name, *path))
    if isinstance(node, ChoiceNode) and isinstance(node.choices, str) and node.choices not in known:
        yield _problem(node.choices, known, graph.node_place(name, "choices"))


def _problem(key: str, known: set[str], place: Place) -> Problem:
    near = nearest(key, known, count=1)
    fix = f"did you mean {near[0]!r}?" if near else "add it to the output_keys of the node that writes it"
    return Problem(place, f"nothing produces {key!r}: no column of the records, no output_keys", fix)
