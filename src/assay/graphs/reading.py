"""Fields to a graph: every node by its type, and all that can be seen to be wrong with nodes and edges by looking."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING

from assay.config.braces import Braces
from assay.config.decode import decode
from assay.config.fields import Fields
from assay.config.option import Remark
from assay.config.task import TaskConfig
from assay.dialect import Dialect
from assay.errors import Place, Problem, did_you_mean, nearest
from assay.graphs.spec import (
    END,
    NODE_TYPES,
    START,
    AnyNode,
    ChoiceSpec,
    EdgeConfig,
    GenerationSpec,
    GraphConfig,
    GraphProperties,
    LambdaSpec,
    LikelihoodSpec,
    LlmSpec,
    MultiLlmSpec,
    OutputField,
    SampledColumn,
    SamplerSpec,
    SubgraphSpec,
)
from assay.records import UserValue

if TYPE_CHECKING:
    from assay.tasks.task import Task


ENDS = {START, END, "__start__", "__end__"}


@dataclass(frozen=True, slots=True)
class GraphFile:
    """A graph as it was read, with places."""

    config: GraphConfig
    nodes: Mapping[str, AnyNode]
    fields: Fields

    @property
    def folder(self) -> str | None:
        """The folder of the file, in which its dotted names and data begin."""
        return self.fields.origin("graph_config").folder

    @property
    def outputs(self) -> Mapping[str, OutputField]:
        return self.config.output_config.output_map or {}

    @property
    def edges(self) -> tuple[EdgeConfig, ...]:
        return self.config.graph_config.edges

    def task_config(self, name: str) -> TaskConfig:
        """Return the settings that a graph shares with every task."""
        config = self.config
        return TaskConfig(
            task=config.task or name, task_alias=config.task_alias, tag=config.tag, metadata=config.metadata,
            cluster_by=config.cluster_by, unsafe_code=any(map(_runs_code, config.graph_config.nodes.values())),
        )  # fmt: skip

    def place(self, *path: str | int, key: bool = False) -> Place:
        return self.fields.place(*path, key=key)

    def node_place(self, name: str, *path: str | int) -> Place:
        return self.place("graph_config", "nodes", name, *path, key=not path)


def graph_of(task: "Task") -> GraphFile:
    """Return the graph of a task that is one."""
    assert isinstance(task.definition, GraphFile)
    return task.definition


def _runs_code(node: AnyNode) -> bool:
    """Whether a node scores by executing code that the model wrote."""
    if not isinstance(node, Mapping) or not isinstance(node.get("unit_metrics_map"), list):
        return False
    from assay.graphs.unit_node import runs_code  # all metrics come with it, and few graphs name one

    return runs_code(node)


def read_graph(fields: Fields, problems: list[Problem]) -> GraphFile | None:
    """The graph that fields describe, as far as they do, with all that is wrong in `problems`; None where there is none."""
    found_problems = list(_servicenow(fields))
    unsupported = bool(found_problems)
    config = decode(GraphConfig, fields, [] if unsupported else found_problems, known=("include",), has_nulls=True)
    if config is None or unsupported:
        problems += found_problems
        return None
    written_nodes = config.graph_config.nodes.items()
    nodes = {str(name): _node(str(name), written, fields, found_problems) for name, written in written_nodes}
    graph = GraphFile(config, {name: node for name, node in nodes.items() if node is not None}, fields)
    found_problems += [*_check_nodes(graph), *_check_edges(graph)]
    if not any(problem.serious for problem in found_problems):
        found_problems += _check_ways(graph)
    problems += found_problems
    return graph


def _servicenow(fields: Fields) -> Iterator[Problem]:
    """The first source or sink in ServiceNow: whatever else such a graph has, it cannot run."""
    data = fields.get("data_config")
    for key in ("source", "sink"):
        written = data.get(key) if isinstance(data, Mapping) else None
        for number, each in enumerate(written if isinstance(written, list) else [written]):
            if isinstance(each, Mapping) and each.get("type") == "servicenow":
                path = (key, number) if isinstance(written, list) else (key,)
                place = fields.place("data_config", *path, "type")
                fix = "export the table to a file, and read that with type: disk"
                yield Problem(place, "ServiceNow sources and sinks are not supported", fix)
                return


def _node(name: str, written: UserValue, fields: Fields, problems: list[Problem]) -> AnyNode | None:
    path = ("graph_config", "nodes", name)
    kind = written.get("node_type") if isinstance(written, Mapping) else None
    if name in ENDS:
        what = f"invalid node name {name!r}: it is reserved"
        problems.append(Problem(fields.place(*path, key=True), what, "choose another name"))
    elif not isinstance(written, Mapping):
        problems.append(Problem(fields.place(*path), f"{name} must be a mapping", "write `key: value` below it"))
    elif not written:
        problems.append(Problem(fields.place(*path), f"{name} is empty", "add its keys"))
    elif "node_type" in written and str(kind) not in NODE_TYPES:
        fix = did_you_mean(str(kind), NODE_TYPES)
        problems.append(Problem(fields.place(*path, "node_type"), f"no node type named {kind!r}", fix))
    else:
        inside = Fields.of(written, fields.origin("graph_config").within(*path))
        return decode(NODE_TYPES.get(str(kind), LambdaSpec), inside, problems, has_nulls=True)
    return None


def _check_nodes(graph: GraphFile) -> Iterator[Problem]:
    for name, node in graph.nodes.items():
        for path, what, fix in _node_slips(node, graph.config.graph_config.graph_properties):
            yield Problem(graph.node_place(name, *path), what, fix)


def _node_slips(node: AnyNode, properties: GraphProperties) -> Iterator[Remark]:
    """What its keys, each right by itself, say wrongly together."""
    if isinstance(node, LlmSpec) and isinstance(node.output_keys, tuple) and node.post_process is None:
        yield from _unfilled(node)
    if isinstance(node, MultiLlmSpec) and node.tools:
        what = "a node that asks several models has no tools"
        yield ("tools",), what, "use an llm or agent node for each"
    for path, text in written_texts(node):
        wrong = Braces.of(text).wrong
        if wrong:
            yield path, f"the {path[0]} {wrong}", "write {name} for a key of the state, {{ for a brace"
    if isinstance(node, SamplerSpec):
        yield from _wrong_attributes(node)
    if isinstance(node, LikelihoodSpec):
        yield from _wrong_likelihood(node)
    if isinstance(node, GenerationSpec) and node.chat_history and properties.chat_conversation is None:
        fix = "add graph_properties: {chat_conversation: multiturn}"
        yield ("chat_history",), "chat_history needs a chat_conversation", fix


def _unfilled(node: LlmSpec) -> Iterator[Remark]:
    """The keys of a list of output_keys that neither a post_process nor the fields of structured answers fill."""
    structured = node.model.structured_output
    if structured is None or not structured.enabled:
        what = "a list of output_keys needs a post_process that fills them, or structured_output with these fields"
        yield ("output_keys",), what, "give one key without a list, or a post_process"
    elif not isinstance(structured.schema, str):  # a class is not looked at
        fields = structured.schema.fields
        for key in [key for key in node.output_keys if key not in fields][:1]:
            what = f"structured_output has no field {key!r}, which output_keys names"
            yield ("output_keys",), what, did_you_mean(key, fields)


def _wrong_likelihood(node: LikelihoodSpec) -> Iterator[Remark]:
    for key in ("parameters", "structured_output"):  # nothing is generated
        if getattr(node.model, key):
            yield ("model", key), f"{key} has no meaning for log-likelihoods", f"remove {key}"
    choices = node.choices if isinstance(node, ChoiceSpec) else None
    if isinstance(choices, tuple) and (len(choices) < 2 or "" in choices or len(set(choices)) < len(choices)):
        what = "choices must be two or more texts, all different and none empty"
        yield ("choices",), what, "correct the list, or name a key of the state"


def _wrong_attributes(node: SamplerSpec) -> Iterator[Remark]:
    for key, attribute in node.attributes.items():
        path, weights = ("attributes", key), attribute.weights
        if isinstance(attribute.values, SampledColumn):
            if weights is not None:
                what = "values of a source come in their order, without weights"
                yield (*path, "weights"), what, "remove the weights"
        elif not attribute.values or (weights is not None and len(weights) != len(attribute.values)):
            what = f"{key} needs values, and as many weights as values where there are any"
            yield path, what, "correct the lists"
        elif weights is not None and not (min(weights) >= 0 and 0 < sum(weights) < math.inf):
            what = f"the weights of {key} must be at least 0, and some above it"
            yield (*path, "weights"), what, "correct the weights"


Path = tuple[str | int, ...]


def written_texts(node: AnyNode) -> Iterator[tuple[Path, str]]:
    """The texts with {keys} of a node, each with its place in it."""
    for key in ("prompt", "continuation", "text"):
        if isinstance(getattr(node, key, None), str):
            yield (key,), getattr(node, key)
    prompt = getattr(node, "prompt", ())
    for number, message in enumerate(prompt if not isinstance(prompt, str) else ()):
        for role, content in message.items():
            yield from ((("prompt", number, role), text) for text in _texts_of(content))
    if isinstance(node, ChoiceSpec) and not isinstance(node.choices, str):
        yield from ((("choices", number), str(text)) for number, text in enumerate(node.choices))


def _texts_of(content: UserValue) -> list[str]:
    """The texts of a message's content: one, or those of its parts."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, list | tuple):
        return [
            value for part in content if isinstance(part, Mapping) for value in part.values() if isinstance(value, str)
        ]
    return []


def _check_edges(graph: GraphFile) -> Iterator[Problem]:
    for number, edge in enumerate(graph.edges):
        for path, what, fix in _edge_slips(graph, edge):
            yield Problem(graph.place("graph_config", "edges", number, *path), what, fix)


def _edge_slips(graph: GraphFile, edge: EdgeConfig) -> Iterator[Remark]:
    yield from _wrong_end(graph, edge.source, END, "from")
    if edge.condition is None:
        if edge.path_map is not None:
            yield (), "path_map needs a condition", "name a function that chooses the next node"
        if edge.target is None:
            yield (), "the edge leads nowhere", "add `to:`, or `condition:` with `path_map:`"
        else:
            yield from _wrong_end(graph, edge.target, START, "to")
        return
    if edge.target is not None:
        yield ("to",), "an edge with a condition has no `to`", "put it into path_map"
    if not edge.path_map:
        yield ("condition",), "a condition needs a path_map", "map its values to nodes"
    for said, target in (edge.path_map or {}).items():
        yield from _wrong_end(graph, str(target), START, "path_map", str(said))


def _wrong_end(graph: GraphFile, name: str, other: str, *path: str) -> Iterator[Remark]:
    """The problem of an end of an edge; `other` is what only the other end can be."""
    known = {*map(str, graph.config.graph_config.nodes), START, END} - {other}  # also a node that is wrong itself
    if name not in known:
        what = f"there is no node {name!r}" if name not in ENDS else f"an edge cannot go {path[-1]} {name}"
        yield path, what, did_you_mean(name, known)
    elif name in graph.nodes and graph.nodes[name].node_state == "idle":
        yield path, f"the node {name!r} is idle", "set node_state: active, or remove the edge"


def targets(edge: EdgeConfig) -> list[str]:
    """Where an edge may lead."""
    return [edge.target] if edge.target is not None else [str(target) for target in (edge.path_map or {}).values()]


def _check_ways(graph: GraphFile) -> Iterator[Problem]:
    """Every node can be reached, and the end from every node."""
    ways = [(edge.source, target) for edge in graph.edges for target in targets(edge)]
    if START not in dict(ways):
        yield Problem(graph.place("graph_config", "edges"), "no edge begins at START", "add {from: START, to: …}")
        return
    reached, ending = _closure(START, ways), _closure(END, [(target, source) for source, target in ways])
    for name, node in graph.nodes.items():
        if node.node_state == "idle":
            continue
        if name not in reached:
            fix = "add an edge to it, or node_state: idle"
            yield Problem(graph.node_place(name), f"no way leads from START to the node {name!r}", fix)
        elif name not in ending:
            yield Problem(
                graph.node_place(name), f"no way leads from the node {name!r} to END", f"add {{from: {name}, to: END}}"
            )
    yield from _conflicts(graph)


MOST_STEPS, MOST_CHOICES = 500, 64
"""Sets of nodes that are looked at, and ways to go on from each. What is not seen here fails its record when it happens."""


def _conflicts(graph: GraphFile) -> Iterator[Problem]:
    """Nodes that may run in one step, and declare the same key: neither sees what the other one writes."""
    seen: set[tuple[str, str]] = set()
    for step in _steps(graph):
        writers: dict[str, str] = {}
        for name in sorted(step, key=[*graph.nodes].index):
            for key in declared_keys(graph, name):
                other = writers.setdefault(key, name)
                if other != name and key not in ALWAYS and (other, name) not in seen:
                    seen.add((other, name))
                    what = f"the nodes {other!r} and {name!r} both write {key!r}, and can run in the same step"
                    path = ("output_keys",) if getattr(graph.nodes[name], "output_keys", None) else ()
                    yield Problem(
                        graph.node_place(name, *path), what, "give one of them another name, or run one after the other"
                    )


def _steps(graph: GraphFile) -> Iterator[frozenset[str]]:
    """The sets of nodes that can run in one step, as the walk finds them: all plain edges, and one way of each condition."""
    ways: dict[str, list[list[str]]] = {}
    for edge in graph.edges:
        ways.setdefault(edge.source, []).append(targets(edge))
    waiting, known = [frozenset([START])], {frozenset([START])}
    while waiting and len(known) < MOST_STEPS:
        step = waiting.pop()
        forks = [choice for name in sorted(step) for choice in ways.get(name, ())]
        for chosen in islice(product(*forks), MOST_CHOICES):
            after = frozenset(chosen) - ENDS
            if after not in known and after:
                known.add(after)
                waiting.append(after)
                yield after


def _closure(start: str, ways: Sequence[tuple[str, str]]) -> set[str]:
    """The nodes that ways lead to from one."""
    reached, new = {start}, {start}
    while new:
        new = {target for source, target in ways if source in new} - reached
        reached |= new
    return reached


ALWAYS = ("id", "messages", "tool_calls", "__chat_history__")
"""Keys of every state."""


def produced(graph: GraphFile) -> set[str]:
    """The keys that the nodes of a graph declare to write."""
    return {key for name in graph.nodes for key in declared_keys(graph, name)}


def declared_keys(graph: GraphFile, name: str) -> list[str]:
    """The keys that a node declares to write."""
    node = graph.nodes[name]
    if isinstance(node, LambdaSpec) and not node.output_keys and "unit_metrics_map" in node.settings:
        from assay.graphs.unit_node import unit_metric_fields  # all metrics come with it

        return unit_metric_fields(node.settings)
    return [*node.keys, *node.further_keys]


def has_hidden_keys(graph: GraphFile) -> bool:
    """Whether code may write keys that are declared nowhere: what it does is not looked at."""
    return any(
        isinstance(node, SubgraphSpec) or (isinstance(node, GenerationSpec) and node.pre_process is not None)
        for node in graph.nodes.values()
    )


def undeclared(graph: GraphFile, columns: tuple[str, ...], dialect: Dialect) -> Iterator[Problem]:
    """Keys that are read and that neither the records nor a node has; in the output of SyGra they are null."""
    known = {*columns, *ALWAYS, *produced(graph)}
    hidden = has_hidden_keys(graph)
    for name, node in graph.nodes.items():
        if node.node_state == "active" and not hidden:
            yield from _of_node(graph, name, known)
    for name, field in graph.outputs.items():
        if (
            field.source is not None
            and field.source not in known
            and not hidden
            and not dialect.writes_null_for_unknown_keys
        ):
            yield _problem(field.source, known, graph.place("output_config", "output_map", name, "from"))


def unproduced_fields(graph: GraphFile, columns: tuple[str, ...]) -> Iterator[Problem]:
    """Fields of the schema that no record can have: each would fail after it was asked. One of `any` type may be absent."""
    known, schema = {*columns, *ALWAYS, *produced(graph)}, graph.config.schema_config
    if schema is None or has_hidden_keys(graph):
        return
    for number, field in enumerate(schema.fields):
        if field.name not in known and field.type.strip().lower() != "any":
            yield _problem(field.name, known, graph.place("schema_config", "fields", number, "name"))


def _of_node(graph: GraphFile, name: str, known: set[str]) -> Iterator[Problem]:
    node = graph.nodes[name]
    for path, text in written_texts(node):
        for key in Braces.of(text).names:
            if key not in known:
                inside = ("graph_config", "nodes", name, *path)
                yield _problem(key, known, graph.fields.origin("graph_config").word_place(inside, key))
    settings = node.settings if isinstance(node, LambdaSpec) and "unit_metrics_map" in node.settings else {}
    sides = {key: settings.get(key) for key in ("golden_key", "predicted_key")}
    for written, read in {"choices": getattr(node, "choices", None), **sides}.items():
        if isinstance(read, str) and read not in known:
            yield _problem(read, known, graph.node_place(name, written))


def _problem(key: str, known: set[str], place: Place) -> Problem:
    near = nearest(key, known, count=1)
    fix = f"did you mean {near[0]!r}?" if near else "add it to the output_keys of the node that writes it"
    return Problem(place, f"nothing produces {key!r}: no column of the records, no output_keys", fix)
