"""A graph file to a graph that can be walked: every dotted name becomes what it means, every node what it does."""

import inspect
import json
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType, UnionType
from typing import Any

from assay.config.braces import Braces
from assay.errors import ConfigError, Place, Problem, collect
from assay.graphs import likelihood_nodes, nodes
from assay.graphs.agents import AgentNode, UserNode
from assay.graphs.history import ChatMessage, History
from assay.graphs.judge_node import JudgedNode, JudgeMetric
from assay.graphs.models import GraphModels
from assay.graphs.reading import GraphFile, output_keys
from assay.graphs.shared_state import SharedObject
from assay.graphs.spec import (
    END,
    START,
    AgentSpec,
    AnyNode,
    ChoiceSpec,
    GenerationSpec,
    LambdaSpec,
    LikelihoodSpec,
    LlmSpec,
    LoglikelihoodSpec,
    MultiLlmSpec,
    Record,
    RecordLimits,
    RollingSpec,
    SampledColumn,
    SamplerSpec,
    SubgraphSpec,
    ToolSpec,
    UserSpec,
    Value,
)
from assay.graphs.tools import NodeTool
from assay.graphs.unit_node import UnitMetrics, bind_unit_metrics, judge_metrics, unfinished_results
from assay.graphs.walk import ConditionalEdge, Graph, GraphNode, OutgoingEdges
from assay.records import JSONDict, UserFunction, UserValue
from assay.samples.rows import DataError
from assay.scoring.helper_code import Helpers
from assay.signatures import accepted, can_take, is_async
from assay.user_code import place_of, user_code

ReadColumn = Callable[[GraphFile, SampledColumn, tuple[str | int, ...], str | None], Sequence[Value]]
"""Reads values of a sampler from a source; with the way to it in the file, and the folder of that."""
MESSAGE = "sygra.core.graph.sygra_message.SygraMessage"


@dataclass
class GraphBinder:
    """Makes the nodes and ways of one graph file. `inner` finds the graph of a subgraph, `column` reads values."""

    file: GraphFile
    models: GraphModels
    helpers: Helpers
    folder: str | None
    inner: Callable[[str, Place], GraphFile]
    column: ReadColumn
    trail: tuple[str, ...] = ()
    problems: list[Problem] = field(default_factory=list)
    shared: dict[int, SharedObject] = field(default_factory=dict)
    """Objects of users' classes that all records share, by their ids."""
    unfinished: list[Callable[[JSONDict, str], JSONDict]] = field(default_factory=list)
    """See Graph. Like `shared`, it is also that of graphs within this one."""

    def bind(self, finish: Callable[[JSONDict], Record] = dict) -> Graph:
        """The graph; whatever is wrong with its names is raised, all of it together."""
        nodes: dict[str, GraphNode] = {}
        for name, node in self.file.nodes.items():
            bound = collect(self.problems, self._node, name, node) if node.node_state == "active" else None
            if bound is not None:
                nodes[name] = bound
        ways = {name: self._way(name) for name in (*self.file.nodes, START)}
        if self.problems:
            raise ConfigError(self.problems)
        steps = self.file.config.graph_config.graph_properties.max_steps
        keeps = any(map(_runs_user_code, nodes.values()))
        limits = self.file.config.graph_config.graph_properties.limits
        metered = None if limits == RecordLimits() else limits
        cost = self.models.settings.graphs.cost
        shared = [*self.shared.values()]
        return Graph(nodes, ways, ways[START], steps, finish, keeps, metered, cost, self.unfinished, shared)

    def _way(self, source: str) -> OutgoingEdges:
        """Where edges lead from a node."""
        always, forks = [], []
        for number, edge in enumerate(self.file.edges):
            if edge.source != source:
                continue
            if edge.condition is None:
                always.append(str(edge.target))
                continue
            place = self.file.place("graph_config", "edges", number, "condition")
            condition = collect(self.problems, self.function, edge.condition, place, ("state",))
            if condition is None:
                continue
            paths: dict[object, str] = {said: str(target) for said, target in (edge.path_map or {}).items()}
            ends: dict[object, str] = {"__end__": paths[END]} if END in paths else {}
            name = f"the condition {edge.condition} after {source!r}"
            forks.append(ConditionalEdge(condition, {**ends, **_spelt(paths), **paths}, name))
        return OutgoingEdges(tuple(always), tuple(forks))

    def function(self, name: str, place: Place, *shapes: tuple[str, ...]) -> UserFunction:
        """Return the callable of a dotted name: a function, or `apply` of a class. `shapes` are the arguments that it may be
        given, of which it must take one."""
        named: Any = self.helpers.dotted(name, self.folder, place)
        function = _callable(named, name, place)
        self._share(function)
        unbound = getattr(named, "apply", None) if isinstance(named, type) else None
        if unbound is not None and not _takes_one(function, shapes) and _takes_one(unbound, shapes):
            function = unbound  # `def apply(state)` without a decorator: SyGra calls it on the class
        if not _takes_one(function, shapes):
            arguments = " or ".join(f"({', '.join(shape)})" for shape in shapes)
            what = f"{name} takes {len(accepted(function).required)} arguments, but is given {arguments}"
            raise ConfigError.at(place, what, "change its parameters")
        return function

    def _share(self, function: UserFunction) -> None:
        """Note the object of a bound method: all records share it."""
        owner = function.__self__ if inspect.ismethod(function) else None
        if owner is not None and not isinstance(owner, type):
            self.shared.setdefault(id(owner), SharedObject(owner))

    def _node(self, name: str, node: AnyNode) -> GraphNode:
        if isinstance(node, LambdaSpec):
            place = self.file.node_place(name, "lambda")
            function = self.function(node.function, place, ("node", "state"))
            settings = dict(self.written(name))
            run = self.models.settings.run
            if run.compat is not None:
                settings["compat"] = run.compat
            if function is UnitMetrics.apply:
                if not self.models.settings.dialect.loses_unfinished_records:
                    self.unfinished.append(partial(unfinished_results, settings))
                with suppress(ConfigError):  # reported where the node's metrics are checked
                    function = bind_unit_metrics(settings)
            if "unit_metrics_map" in settings and (judges := self._judges(settings)):
                return JudgedNode(name, function, settings, asks=True, judges=judges)
            waits = is_async(function)
            own = str(getattr(function, "__module__", "")).startswith("assay.")
            threads = node.thread_safe and not waits and not own
            accepts_less = self.models.settings.dialect.accepts_lambdas_without_declared_keys
            writes = () if accepts_less else output_keys(node.output_keys)
            return nodes.LambdaNode(name, function, settings, waits, threads, writes)
        if isinstance(node, SamplerSpec):
            return self._sampler(name)
        if isinstance(node, SubgraphSpec):
            return self._subgraph(name, node)
        return (
            self._likelihood_node(name, node) if isinstance(node, LikelihoodSpec) else self._generation_node(name, node)
        )

    def _judges(self, settings: JSONDict) -> dict[str, JudgeMetric]:
        """The judges among the unit metrics of a node, by field; the run must have their models."""
        try:
            judges = judge_metrics(settings)
        except ConfigError:
            return {}  # reported where the node's metrics are checked
        for judge in judges.values():
            for role, model in judge.scorer.model_roles.items():
                self.models.backends[role] = model
                self.models.needs.setdefault(role, set()).add("generate")
        return judges

    def _sampler(self, name: str) -> GraphNode:
        drawn: dict[str, tuple[Sequence[Value], Sequence[float] | None]] = {}
        in_turn: dict[str, Sequence[Value]] = {}
        for key, each in self.file.attributes[name].items():
            if isinstance(each.values, SampledColumn):
                at = ("attributes", key, "values", "source")
                in_turn[key] = self.column(self.file, each.values, ("graph_config", "nodes", name, *at), self.folder)
            else:
                drawn[key] = (each.values, each.weights)
        return nodes.SamplerNode(name, drawn, in_turn)

    def _likelihood_node(self, name: str, node: LikelihoodSpec) -> GraphNode:
        place = self.file.node_place(name, "model")
        if isinstance(node, RollingSpec):
            role, _ = self.models.likelihood_model(node.model, place, "rolling")
            return likelihood_nodes.RollingNode(name=name, role=role, key=node.output_keys, text=Braces.of(node.text))
        assert isinstance(node, ChoiceSpec | LoglikelihoodSpec)
        chat = () if isinstance(node.prompt, str) else ("chat",)
        role, write = self.models.likelihood_model(node.model, place, "loglikelihood", *chat)
        prompt = Braces.of(node.prompt) if isinstance(node.prompt, str) else nodes.PromptTemplate.of(node.prompt)
        shared: JSONDict = {
            "name": name, "role": role, "key": node.output_keys, "context": likelihood_nodes.Context(prompt, write),
        }  # fmt: skip
        if isinstance(node, LoglikelihoodSpec):
            return likelihood_nodes.LoglikelihoodNode(**shared, continuation=Braces.of(node.continuation))
        choices = node.choices if isinstance(node.choices, str) else [Braces.of(choice) for choice in node.choices]
        return likelihood_nodes.ChoiceNode(
            **shared, choices=choices, delimiter=node.target_delimiter, choose_by=node.choose_by
        )

    def written(self, name: str) -> JSONDict:
        """Return a node as the file has it, for functions that take all of its keys."""
        raw = self.file.config.graph_config.nodes[name]
        return dict(raw) if isinstance(raw, Mapping) else {}

    def _generation_node(self, name: str, node: LlmSpec | MultiLlmSpec) -> GraphNode:
        pre = node.pre_process
        properties = self.file.config.graph_config.graph_properties
        multiturn = properties.chat_conversation == "multiturn"
        shared: JSONDict = {
            "name": name,
            "prompt": nodes.PromptTemplate.of(node.prompt),
            "input_key": node.input_key,
            "pre": self.function(pre, self.file.node_place(name, "pre_process"), ("state",))
            if pre is not None
            else None,
            "history": History(properties.chat_history_window_size, not multiturn) if node.chat_history else None,
        }
        places = {label: self.file.node_place(name, "models", label) for label in self.file.models[name]}
        if isinstance(node, LlmSpec):
            places[""] = self.file.node_place(name, "model")
        tools: dict[str, Tool] = {}
        node_tools: dict[str, NodeTool] = {}
        for each in map(tool_spec, node.tools):
            named_tools = find_tools([each.name], self.helpers, self.folder, self.file.node_place(name, "tools"), tools)
            reruns = each.on_resume == "rerun"
            node_tools |= {key: NodeTool(one.function, each.repeatable, reruns) for key, one in named_tools.items()}
            tools |= named_tools
        for tool in tools.values():
            self._share(tool.function)
        tool_params = parameters(tools, node.tool_choice) if tools else None
        if node.tool_choice is not None:
            self._refuse_two_choices(name)
        models = {
            label: self.models.generation_model(model, places[label], tool_params)
            for label, model in self.file.models[name].items()
        }
        if isinstance(node, LlmSpec):
            shared |= {"model": models[""], "post": self._post(name, node), "tools": node_tools}
            if not isinstance(node, AgentSpec):
                return UserNode(**shared) if isinstance(node, UserSpec) else nodes.LlmNode(**shared)
            injected = {int(str(turn)): text for each in node.inject_system_messages for turn, text in each.items()}
            [key] = output_keys(node.output_keys)[:1]
            return AgentNode(
                **shared, max_turns=node.max_turns, injected=injected, key=key, cost_of=self.models.settings.graphs.cost
            )
        return nodes.MultiLlmNode(**shared, models=models, post=self._multi_post(name, node))

    def _refuse_two_choices(self, name: str) -> None:
        """Refuse tool_choice of a node and under its model's parameters: only one of them could be sent."""
        for label, model in self.file.models[name].items():
            if "tool_choice" in model.parameters:
                path = ("models", label) if label else ("model",)
                place = self.file.node_place(name, *path, "parameters", "tool_choice")
                raise ConfigError.at(place, "tool_choice is written for the node, too", "remove one of them")

    def _post(self, name: str, node: LlmSpec) -> Callable[[nodes.ModelReply, JSONDict], Value]:
        if node.post_process is None:
            return _into(node)
        place = self.file.node_place(name, "post_process")
        function = self.function(node.post_process, place, ("answer",), ("answer", "state"))
        with_state = can_take(function, 2)
        wrap: Callable[[Any], Any] = (
            self.helpers.dotted(MESSAGE, None, place)
            if isinstance(self.helpers.dotted(node.post_process, self.folder, place), type)
            else _itself
        )
        if with_state:
            return lambda reply, state: function(wrap(reply), state)
        return lambda reply, state: function(wrap(reply))  # noqa: ARG005  # the shape of a post-processor

    def _multi_post(self, name: str, node: MultiLlmSpec) -> Callable[[Mapping[str, nodes.ModelReply]], Value]:
        if node.multi_llm_post_process is not None:
            place = self.file.node_place(name, "multi_llm_post_process")
            return self.function(node.multi_llm_post_process, place, ("answers",))
        [key] = output_keys(node.output_keys)[:1] or ("messages",)
        return lambda replies: {key: [{label: reply.content for label, reply in replies.items()}]}

    def _subgraph(self, name: str, node: SubgraphSpec) -> GraphNode:
        place = self.file.node_place(name, "subgraph")
        if node.subgraph in self.trail:
            what = f"graphs contain each other in a circle: {' → '.join((*self.trail, node.subgraph))}"
            raise ConfigError.at(place, what, "remove one")
        subgraph = self.inner(node.subgraph, place)
        changed = changed_nodes(subgraph, node.node_config_map, self.file.node_place(name, "node_config_map"))
        folder = subgraph.fields.origin("graph_config").folder
        models = GraphModels(
            changed,
            self.models.settings,
            self.helpers,
            folder,
            self.models.backends,
            self.models.needs,
        )
        below = GraphBinder(
            changed,
            models,
            self.helpers,
            folder,
            self.inner,
            self.column,
            (*self.trail, node.subgraph),
            shared=self.shared,
            unfinished=self.unfinished,
        )
        return nodes.SubgraphNode(name, below.bind())


def _runs_user_code(node: GraphNode) -> bool:
    """Whether a node calls a tool, or a lambda that is not one of assay's."""
    if isinstance(node, nodes.SubgraphNode):
        return node.graph.keeps_records
    if isinstance(node, nodes.LambdaNode):
        return not str(getattr(node.function, "__module__", "")).startswith("assay.")
    return isinstance(node, nodes.LlmNode) and bool(node.tools)


def changed_nodes(graph: GraphFile, changes: Record, place: Place) -> GraphFile:
    """A graph with some keys of its nodes changed."""
    if not changes:
        return graph
    from assay.config.fields import Fields
    from assay.graphs.reading import read_graph

    unknown = sorted(set(map(str, changes)) - set(graph.nodes))
    if unknown or not all(isinstance(each, Mapping) for each in changes.values()):
        what = f"the subgraph has no node {unknown[0]!r}" if unknown else "changes must be mappings of keys"
        raise ConfigError.at(place, what, f"its nodes are: {', '.join(graph.nodes)}")
    shape: Any = graph.fields["graph_config"]
    copies = _copies(changes)
    renamed = {name: each.pop("prompt_placeholder_map", None) for name, each in copies.items()}
    nodes = {name: {**node, **copies.get(name, {})} for name, node in shape["nodes"].items()}
    for name, names in renamed.items():
        if names and not (isinstance(names, Mapping) and all(isinstance(each, str) for each in names.values())):
            what = f"prompt_placeholder_map of {name!r} must be a mapping of keys"
            raise ConfigError.at(place, what, "write `prompt_placeholder_map: {old: new}`")
        if names and "prompt" in nodes[name]:
            nodes[name]["prompt"] = _renamed(nodes[name]["prompt"], names)
    values = {**dict(graph.fields), "graph_config": {**shape, "nodes": nodes}}
    problems: list[Problem] = []
    changed = read_graph(Fields.of(values, graph.fields.origin("graph_config")), problems)
    if changed is None or any(problem.serious for problem in problems):
        raise ConfigError(problems)
    return changed


def _copies(changes: Record) -> dict[str, JSONDict]:
    return {str(name): dict(each) for name, each in changes.items()}


def _renamed(prompt: Value, names: Mapping[str, str]) -> Value:
    if isinstance(prompt, str):
        for old, new in names.items():
            prompt = prompt.replace(f"{{{old}}}", f"{{{new}}}")
        return prompt
    if isinstance(prompt, Mapping):
        return {key: _renamed(value, names) for key, value in prompt.items()}
    return [_renamed(each, names) for each in prompt] if isinstance(prompt, Sequence) else prompt


def _spelt(paths: Mapping[Value, str]) -> dict[Value, str]:
    """The paths whose keys YAML read as true or false, by every word that the file may have had: yes, on, no …"""
    words = {True: ("yes", "true", "on"), False: ("no", "false", "off")}
    truths = [said for said in paths if isinstance(said, bool)]
    return {word: paths[truth] for truth in truths for word in (*words[truth], *map(str.capitalize, words[truth]))}


def _into(node: GenerationSpec) -> Callable[[nodes.ModelReply, JSONDict], Value]:
    """Puts the text of a reply where the node says; the fields of a structured answer under the keys of a list."""
    if isinstance(node.output_keys, tuple) and node.output_keys != ("messages",):
        names = node.output_keys
        return lambda reply, state: _fields(reply.content, names)  # noqa: ARG005  # the shape of a post-processor
    [key] = output_keys(node.output_keys)[:1]
    if key == "messages":
        role = node.output_role
        return lambda reply, state: {"messages": [ChatMessage(role=role, content=reply.content)]}  # noqa: ARG005
    return lambda reply, state: {key: reply.content}  # noqa: ARG005  # the shape of a post-processor


def _fields(text: str, names: Sequence[str]) -> JSONDict:
    """The fields of a JSON object; None for each that the model did not give, which is counted."""
    answer: Any = None
    with suppress(ValueError, RecursionError):
        answer = json.loads(text)
    return {name: answer.get(name) if isinstance(answer, dict) else None for name in names}


def _itself(reply: nodes.ModelReply) -> nodes.ModelReply:
    return reply


def _callable(named: UserValue, name: str, place: Place) -> UserFunction:
    if not isinstance(named, type):
        if callable(named):
            function: UserFunction = named
            return function
        raise ConfigError.at(place, f"{name} must be a function or a class, got {named!r:.60}", "name one of them")
    if not hasattr(named, "apply"):
        raise ConfigError.at(place, f"the class {name} has no `apply`", "add one")
    apply: UserFunction = named.apply
    if not isinstance(inspect.getattr_static(named, "apply"), staticmethod | classmethod):
        with user_code(place_of(name, named), DataError):
            apply = named().apply
    return apply


def _takes_one(function: UserFunction, shapes: Sequence[Sequence[str]]) -> bool:
    return any(can_take(function, len(shape)) for shape in shapes)


TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object"}


class Tool(typing.NamedTuple):
    """A function with its description for the model."""

    name: str
    function: UserFunction
    schema: Record


NO_TOOLS: Mapping[str, Tool] = {}


def tool_spec(written: str | ToolSpec) -> ToolSpec:
    return ToolSpec(name=written) if isinstance(written, str) else written


def find_tools(
    names: Sequence[str], helpers: Helpers, folder: str | None, place: Place, others: Mapping[str, Tool] = NO_TOOLS
) -> dict[str, Tool]:
    """The tools that names mean: a function, the public methods of a class, the public functions of a module."""
    tools: dict[str, Tool] = {}
    for name in names:
        named_tools = list(_tools(helpers.dotted(name, folder, place)))
        if not named_tools:
            raise ConfigError.at(place, f"{name} has no functions to call", "name a function, class or module")
        for each in named_tools:
            if each.name in tools or each.name in others:
                raise ConfigError.at(place, f"two tools are called {each.name!r}", "remove one")
            tools[each.name] = each
    return tools


def parameters(tools: Mapping[str, Tool], choice: str | Record | None) -> JSONDict:
    """Return the request parameters that describe tools, and which of them must be called where the node says so."""
    described = [{"type": "function", "function": dict(tool.schema)} for tool in tools.values()]
    return {"tools": described, **({"tool_choice": choice} if choice is not None else {})}


def _tools(named: UserValue) -> Iterator[Tool]:
    if isinstance(named, ModuleType):
        for name, each in vars(named).items():
            own = getattr(each, "__module__", None) == named.__name__ or hasattr(each, "args_schema")
            if not name.startswith("_") and own and not isinstance(each, type) and (callable(each) or _is_tool(each)):
                yield _tool(each)
    elif isinstance(named, type):
        with user_code(place_of("tools", named), DataError):
            instance = named()
        public = {name: getattr(instance, name) for name in dir(named) if not name.startswith("_")}
        marked = {name: each for name, each in public.items() if _is_tool(each)}
        for each in (marked or {name: each for name, each in public.items() if callable(each)}).values():
            yield _tool(each)
    elif callable(named) or _is_tool(named):
        yield _tool(named)


def _is_tool(thing: UserValue) -> bool:
    """Whether something is a tool as LangChain makes them."""
    return hasattr(thing, "args_schema") and hasattr(thing, "invoke")


def _tool(function_or_tool: Any) -> Tool:
    if _is_tool(function_or_tool):
        function = _invoking(function_or_tool)
        schema = {"type": "object", "properties": dict(function_or_tool.args)}
        return Tool(
            function_or_tool.name,
            function,
            {"name": function_or_tool.name, "description": function_or_tool.description, "parameters": schema},
        )
    name = function_or_tool.__name__
    hints = typing.get_type_hints(function_or_tool)
    takes = accepted(function_or_tool)
    properties = {name: _schema(hints.get(name, str)) for name in takes.named}
    schema = {"type": "object", "properties": properties, "required": list(takes.required)}
    return Tool(
        name,
        function_or_tool,
        {"name": name, "description": inspect.getdoc(function_or_tool) or "", "parameters": schema},
    )


def _invoking(tool: Any) -> UserFunction:
    """A tool of LangChain's as a function of its arguments, which it converts: 2 to 2.0 for a float."""
    if getattr(tool, "coroutine", None) is not None:

        async def waits(**arguments: UserValue) -> UserValue:
            return await tool.ainvoke(arguments)

        return waits

    def calls(**arguments: UserValue) -> UserValue:
        return tool.invoke(arguments)

    return calls


def _schema(hint: Any) -> JSONDict:
    """The JSON Schema of an annotation; of one that JSON does not know, that of texts.

    >>> _schema(int | None), _schema(list[float]), _schema(typing.Literal["up", "down"])
    ({'type': 'integer'}, {'type': 'array', 'items': {'type': 'number'}}, {'type': 'string', 'enum': ['up', 'down']})
    """
    origin, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is typing.Annotated:
        return _schema(parts[0])
    if origin is typing.Literal:
        return {**_schema(type(parts[0])), "enum": list(parts)}
    if origin in (typing.Union, UnionType):
        schemas = [_schema(each) for each in parts if each is not type(None)]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    if origin is list:
        return {"type": "array", "items": _schema(parts[0]) if parts else {}}
    return {"type": TYPES.get(origin, "string")}
