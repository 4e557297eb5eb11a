"""A graph file to a graph that can be walked: every dotted name becomes what it means, every node what it does."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from assay.config.braces import Braces
from assay.config.fields import Fields
from assay.errors import ConfigError, Place, Problem, collect
from assay.graphs import likelihood_nodes, nodes
from assay.graphs.agents import AgentNode, UserNode
from assay.graphs.history import ChatMessage, History
from assay.graphs.judge_node import JudgedNode, JudgeMetric
from assay.graphs.models import GraphModels
from assay.graphs.reading import GraphFile, read_graph, written_texts
from assay.graphs.shared_state import SharedObject
from assay.graphs.spec import (
    END,
    START,
    AgentSpec,
    AnyNode,
    GenerationSpec,
    LambdaSpec,
    LikelihoodSpec,
    LlmSpec,
    MultiLlmSpec,
    Record,
    RecordLimits,
    SampledColumn,
    SamplerSpec,
    SubgraphSpec,
    UserSpec,
    Value,
)
from assay.graphs.tools import find_tools, parameters
from assay.graphs.unit_node import UnitMetrics, bind_unit_metrics, judge_metrics, unfinished_results
from assay.graphs.walk import ConditionalEdge, Graph, GraphNode, Ways
from assay.records import JSONDict, Prompt, UserFunction, UserValue
from assay.samples.rows import DataError
from assay.scoring.helper_code import Helpers
from assay.signatures import accepted, can_take, is_async
from assay.tasks.kinds import FindDefinition
from assay.user_code import place_of, user_code

ReadColumn = Callable[[GraphFile, SampledColumn, tuple[str | int, ...]], Sequence[Value]]
"""Reads values of a sampler from a source; with the way to it in the file."""
MESSAGE = "sygra.core.graph.sygra_message.SygraMessage"


@dataclass
class GraphBinder:
    """Makes the nodes and ways of one graph file. `inner` finds the graph of a subgraph, `column` reads values."""

    file: GraphFile
    models: GraphModels
    helpers: Helpers
    inner: FindDefinition | None
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
        ways = {name: self._ways(name) for name in (*self.file.nodes, START)}
        if self.problems:
            raise ConfigError(self.problems)
        properties = self.file.config.graph_config.graph_properties
        return Graph(
            nodes,
            ways,
            properties.max_steps,
            finish,
            keeps_records=any(map(_runs_user_code, nodes.values())),
            limits=None if properties.limits == RecordLimits() else properties.limits,
            cost_of=self.models.settings.graphs.cost,
            unfinished=self.unfinished,
            shared=[*self.shared.values()],
        )

    def _ways(self, source: str) -> Ways:
        """Where edges lead from a node."""
        always: list[str] = []
        forks: list[ConditionalEdge] = []
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
        return [*always, *forks]

    def function(self, name: str, place: Place, *shapes: tuple[str, ...]) -> UserFunction:
        """Return the callable of a dotted name: a function, or `apply` of a class. `shapes` are the arguments that it may be
        given, of which it must take one."""
        named: Any = self.helpers.dotted(name, self.file.folder, place)
        function = _callable(named, name, place)
        self._share(function)
        # of `def apply(state)` without a decorator, SyGra calls it on the class
        for candidate in (function, getattr(named, "apply", function)):
            if any(can_take(candidate, len(shape)) for shape in shapes):
                return candidate
        arguments = " or ".join(f"({', '.join(shape)})" for shape in shapes)
        what = f"{name} takes {len(accepted(function).required)} arguments, but is given {arguments}"
        raise ConfigError.at(place, what, "change its parameters")

    def _share(self, function: UserFunction) -> None:
        """Note the object of a bound method: all records share it."""
        owner = function.__self__ if inspect.ismethod(function) else None
        if owner is not None and not isinstance(owner, type):
            self.shared.setdefault(id(owner), SharedObject(owner))

    def _node(self, name: str, node: AnyNode) -> GraphNode:
        if isinstance(node, LambdaSpec):
            place = self.file.node_place(name, "lambda")
            function = self.function(node.function, place, ("node", "state"))
            written: Any = self.file.config.graph_config.nodes[name]  # functions take all keys of the file
            settings = dict(written)
            run = self.models.settings.run
            if run.compat is not None:
                settings["compat"] = run.compat
            if function is UnitMetrics.apply:
                if not self.models.settings.dialect.loses_unfinished_records:
                    self.unfinished.append(partial(unfinished_results, settings))
                with suppress(ConfigError):  # reported where the node's metrics are checked
                    function = bind_unit_metrics(settings)
            if "unit_metrics_map" in settings and (judges := self._judges(settings)):
                return JudgedNode(name, function, settings, judges=judges)
            waits = is_async(function)
            own = str(getattr(function, "__module__", "")).startswith("assay.")
            threads = node.thread_safe and not waits and not own
            accepts_less = self.models.settings.dialect.accepts_lambdas_without_declared_keys
            writes = () if accepts_less else node.keys
            return nodes.LambdaNode(name, function, settings, waits, threads, writes)
        if isinstance(node, SamplerSpec):
            return self._sampler(name, node)
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

    def _sampler(self, name: str, node: SamplerSpec) -> GraphNode:
        drawn: dict[str, tuple[Sequence[Value], Sequence[float] | None]] = {}
        in_turn: dict[str, Sequence[Value]] = {}
        for key, each in node.attributes.items():
            if isinstance(each.values, SampledColumn):
                at = ("graph_config", "nodes", name, "attributes", key, "values", "source")
                in_turn[key] = self.column(self.file, each.values, at)
            else:
                drawn[key] = (each.values, each.weights)
        return nodes.SamplerNode(name, drawn, in_turn)

    def _likelihood_node(self, name: str, node: LikelihoodSpec) -> GraphNode:
        prompt = getattr(node, "prompt", None)
        chat = () if isinstance(prompt, str) else ("chat",)
        needs = ("rolling",) if prompt is None else ("loglikelihood", *chat)
        role, write = self.models.likelihood_model(node.model, self.file.node_place(name, "model"), *needs)
        if isinstance(prompt, str):
            write_context: Callable[[JSONDict], Prompt] = partial(likelihood_nodes.filled, Braces.of(prompt))
        else:
            template = nodes.PromptTemplate.of(prompt or ())
            write_context = lambda state: write(template.fill(state))  # noqa: E731
        texts = [Braces.of(text) for path, text in written_texts(node) if path[0] != "prompt"]
        return likelihood_nodes.NODES[type(node)](name, role, node, write_context, texts)

    def _generation_node(self, name: str, node: LlmSpec | MultiLlmSpec) -> GraphNode:
        at = partial(self.file.node_place, name)
        properties = self.file.config.graph_config.graph_properties
        tools = find_tools(node.tools, self.helpers, self.file.folder, at("tools"))
        for tool in tools.values():
            self._share(tool.function)
        models: dict[str, nodes.NodeModel] = {}
        for label, model in node.models.items():
            path = ("models", label) if label else ("model",)
            if node.tool_choice is not None and "tool_choice" in model.parameters:
                place = at(*path, "parameters", "tool_choice")
                raise ConfigError.at(place, "tool_choice is written for the node, too", "remove one of them")
            models[label] = self.models.generation_model(model, at(*path), parameters(tools, node.tool_choice))
        pre, is_multiturn = node.pre_process, properties.chat_conversation == "multiturn"
        shared: JSONDict = {
            "name": name,
            "prompt": nodes.PromptTemplate.of(node.prompt),
            "spec": node,
            "pre": self.function(pre, at("pre_process"), ("state",)) if pre is not None else None,
            "history": History(properties.chat_history_window_size, not is_multiturn) if node.chat_history else None,
        }
        if isinstance(node, MultiLlmSpec):
            return nodes.MultiLlmNode(**shared, models=models, post=self._multi_post(name, node))
        shared |= {"model": models[""], "post": self._post(name, node), "tools": tools}
        if isinstance(node, AgentSpec):
            injected = {int(str(turn)): text for each in node.inject_system_messages for turn, text in each.items()}
            return AgentNode(**shared, injected=injected)
        return UserNode(**shared) if isinstance(node, UserSpec) else nodes.LlmNode(**shared)

    def _post(self, name: str, node: LlmSpec) -> Callable[[nodes.ModelReply, JSONDict], Value]:
        if node.post_process is None:
            return _into(node)
        place = self.file.node_place(name, "post_process")
        function = self.function(node.post_process, place, ("answer",), ("answer", "state"))
        is_class = isinstance(self.helpers.dotted(node.post_process, self.file.folder, place), type)
        message = self.helpers.dotted(MESSAGE, None, place) if is_class else None
        takes = 2 if can_take(function, 2) else 1

        def post(reply: nodes.ModelReply, state: JSONDict) -> Value:
            answer = reply if message is None else message(reply)
            return function(*(answer, state)[:takes])

        return post

    def _multi_post(self, name: str, node: MultiLlmSpec) -> Callable[[Mapping[str, nodes.ModelReply]], Value]:
        if node.multi_llm_post_process is not None:
            place = self.file.node_place(name, "multi_llm_post_process")
            return self.function(node.multi_llm_post_process, place, ("answers",))
        [key] = node.keys[:1] or ("messages",)
        return lambda replies: {key: [{label: reply.content for label, reply in replies.items()}]}

    def _subgraph(self, name: str, node: SubgraphSpec) -> GraphNode:
        place = self.file.node_place(name, "subgraph")
        if node.subgraph in self.trail:
            what = f"graphs contain each other in a circle: {' → '.join((*self.trail, node.subgraph))}"
            raise ConfigError.at(place, what, "remove one")
        subgraph = self.inner(node.subgraph, place) if self.inner is not None else None
        assert isinstance(subgraph, GraphFile)
        changed = changed_nodes(subgraph, node.node_config_map, self.file.node_place(name, "node_config_map"))
        models = replace(self.models, graph=changed)
        trail = (*self.trail, node.subgraph)
        return nodes.SubgraphNode(name, replace(self, file=changed, models=models, trail=trail, problems=[]).bind())


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
    unknown = sorted(set(map(str, changes)) - set(graph.nodes))
    if unknown or not all(isinstance(change, Mapping) for change in changes.values()):
        what = f"the subgraph has no node {unknown[0]!r}" if unknown else "changes must be mappings of keys"
        raise ConfigError.at(place, what, f"its nodes are: {', '.join(graph.nodes)}")
    shape: Any = graph.fields["graph_config"]
    nodes = {str(name): dict(node) for name, node in shape["nodes"].items()}  # YAML may have read a number
    for name, change in changes.items():
        node = nodes[str(name)]
        node.update(change)
        names = node.pop("prompt_placeholder_map", None)
        if names and not (isinstance(names, Mapping) and all(isinstance(new, str) for new in names.values())):
            what = f"prompt_placeholder_map of {name!r} must be a mapping of keys"
            raise ConfigError.at(place, what, "write `prompt_placeholder_map: {old: new}`")
        if names and "prompt" in node:
            node["prompt"] = _renamed(node["prompt"], names)
    values = {**dict(graph.fields), "graph_config": {**shape, "nodes": nodes}}
    problems: list[Problem] = []
    changed = read_graph(Fields.of(values, graph.fields.origin("graph_config")), problems)
    if changed is None or any(problem.serious for problem in problems):
        raise ConfigError(problems)
    return changed


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
    names, role = node.keys, node.output_role
    is_list = isinstance(node.output_keys, tuple) and names != ("messages",)

    def put(reply: nodes.ModelReply, state: JSONDict) -> Value:  # noqa: ARG001  # the shape of a post-processor
        if is_list:
            return _fields(reply.content, names)
        message = ChatMessage(role=role, content=reply.content)
        return {names[0]: [message] if names[0] == "messages" else reply.content}

    return put


def _fields(text: str, names: Sequence[str]) -> JSONDict:
    """The fields of a JSON object; None for each that the model did not give, which is counted."""
    answer: Any = None
    with suppress(ValueError, RecursionError):
        answer = json.loads(text)
    return {name: answer.get(name) if isinstance(answer, dict) else None for name in names}


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
