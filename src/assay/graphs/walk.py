"""A graph as one plan per record: from START, step by step, to END. Nodes of one step ask together."""

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import orjson

from assay.errors import SelfExplanatory
from assay.graphs.contexts import put_together, steps_in
from assay.graphs.history import HISTORY
from assay.graphs.shared_state import SharedObject
from assay.graphs.spec import END, MAX_STEPS, Record, RecordLimits, Value
from assay.records import Call, Failed, Generate, JSONDict, Outcome, Params, Plan, Prompt, Request, Response, plain
from assay.user_code import HALF, is_writable, user_code

State = dict[str, Any]
Updates = Mapping[str, Any]
Steps = Generator[Sequence[Request | Call], Sequence[Response], Updates]
"""A node at work: it yields requests, is sent responses, and returns what it writes into the state."""
ENDS = (END, "__end__")
SHARED = (HISTORY, "tool_calls")
"""Lists that nodes write without naming them in output_keys: those of the same step are joined."""


SHARED_STATE = "of code that keeps state from record to record, in"


class NodeFailed(SelfExplanatory):
    """The reason why a record failed."""


UNFINISHED = "of agents that still called tools at max_turns"


class UnfinishedAgent(NodeFailed):
    """An agent still called tools at its last turn: `state` is what it has written by then."""

    def __init__(self, reason: str, state: "Updates") -> None:
        super().__init__(reason)
        self.state = state


class Walk:
    """The walk of one record: its requests, responses, visited nodes and counted events.

    `name` identifies the record, `number` is its position. `node` is the node that asks: see Generate.
    """

    __slots__ = ("asked", "calls", "meter", "name", "node", "noticed", "number", "responses", "trace", "visits")

    def __init__(self, name: str, number: int = 0, meter: "Meter | None" = None) -> None:
        self.name, self.number, self.meter = name, number, meter
        self.calls: list[JSONDict] = []
        self.node: tuple[str, ...] = ()
        self.asked: list[Request] = []
        self.responses: list[Response] = []
        self.noticed: dict[str, int] = defaultdict(int)
        self.visits: dict[object, int] = defaultdict(int)
        self.trace: list[tuple[str, list[int]]] = []

    def at(self, node: str) -> "Walk":
        """The same walk, for what is asked by a node below this one, or by a label of it."""
        walk = Walk.__new__(Walk)
        walk.name, walk.number, walk.node = self.name, self.number, (*self.node, node)
        walk.asked, walk.responses, walk.noticed = self.asked, self.responses, self.noticed
        walk.visits, walk.trace, walk.calls, walk.meter = self.visits, self.trace, self.calls, self.meter
        return walk

    def enter(self, node: str) -> list[int]:
        """Note that the record entered a node; returns the list for the numbers of its responses."""
        numbers: list[int] = []
        self.trace.append((node, numbers))
        return numbers

    def generate(self, role: str, prompt: Prompt, params: Params) -> Generate:
        """A request; the second of its kind in a record differs from the first by its visit."""
        visit = self.visits[role, prompt, id(params)]
        self.visits[role, prompt, id(params)] += 1
        return Generate(prompt, params, visit, role, self.node)

    def outcome(self, record: Record, failed: str = "") -> Outcome:
        """The end of the walk. A record with half a character has failed and is not kept: no reader could read the samples."""
        if not _is_kept(record):
            record, failed = {}, failed or f"the record has {HALF}"
        return Outcome(record, self.asked, self.noticed, trace=self.trace, calls=self.calls, failed=failed)

    def take(self, requests: Sequence[Request], responses: Sequence[Response]) -> None:
        """Note what came back; a request that failed for good ends the record."""
        self.asked += requests
        self.responses += responses
        for response in responses:
            if isinstance(response, Failed):
                raise NodeFailed(response.reason)
        if self.meter is not None:
            self.meter.add(requests, responses)

    def note_call(self, call: JSONDict) -> None:
        """Note a tool call that was made."""
        self.calls.append({"node": "/".join(self.node), **call})
        if self.meter is not None:
            self.meter.seconds += call["seconds"]

    def check_limits(self) -> None:
        if self.meter is not None:
            self.meter.check()

    def seconds_left(self) -> float | None:
        """The seconds that the record may still take."""
        return self.meter.left() if self.meter is not None else None


Costs = Callable[[str, Response], float | None]
"""The cost of a response of a role; None where no price is known."""


def _is_kept(record: Record) -> bool:
    """Whether all text of a record can be written; most records are plain JSON, which is found out fastest by writing one."""
    try:
        return bool(orjson.dumps(record))
    except TypeError:
        return is_writable(record)


class Meter:
    """The usage of a record, and its limits."""

    __slots__ = ("_cost_of", "_limits", "cost", "seconds", "tokens", "turns")

    def __init__(self, limits: RecordLimits, cost_of: Costs) -> None:
        self._limits, self._cost_of = limits, cost_of
        self.turns, self.tokens, self.seconds, self.cost = 0, 0, 0.0, 0.0

    def add(self, requests: Sequence[Request], responses: Sequence[Response]) -> None:
        for request, response in zip(requests, responses, strict=True):
            self.turns += 1
            usage = None if isinstance(response, Failed) else response.usage
            if usage is not None:
                self.tokens += usage.read + usage.written
                self.seconds += usage.seconds
                self.cost += self._cost_of(request.role, response) or 0.0
        self.check()

    def check(self) -> None:
        for name in ("turns", "tokens", "seconds", "cost"):
            limit = getattr(self._limits, name)
            if limit is not None and getattr(self, name) > limit:
                raise NodeFailed(f"the record used more than its limit of {name}: {limit:g} (graph_properties.limits)")

    def left(self) -> float | None:
        return None if self._limits.seconds is None else max(0.001, self._limits.seconds - self.seconds)


class GraphNode(Protocol):
    """One node at work. A node that `asks` is a generator; the others return their updates at once."""

    @property
    def name(self) -> str: ...
    @property
    def asks(self) -> bool: ...
    def apply(self, state: State, walk: Walk) -> Updates: ...
    def ask(self, state: State, walk: Walk) -> Steps: ...


@dataclass(frozen=True, slots=True)
class ConditionalEdge:
    """A condition at the end of a node: what it says of the state leads to a node."""

    condition: Callable[[State], object]
    paths: Mapping[object, str]
    name: str = "a condition"

    def choose(self, state: State) -> str:
        with user_code(self.name, NodeFailed, NodeFailed):
            said = plain(self.condition(state))
        target = self.paths.get(said) or self.paths.get(str(said))
        if target is None and said in ENDS:
            target = END
        if target is None:
            known = ", ".join(str(path) for path in self.paths if path != "__end__")
            raise NodeFailed(f"{self.name} returned {said!r:.60}, and path_map has: {known}")
        return target


@dataclass(frozen=True, slots=True)
class OutgoingEdges:
    """The edges that leave a node: to the same nodes always, and to those that conditions choose."""

    always: tuple[str, ...] = ()
    forks: tuple[ConditionalEdge, ...] = ()

    def onward(self, state: State) -> Sequence[str]:
        return (*self.always, *(fork.choose(state) for fork in self.forks)) if self.forks else self.always


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes and ways, compiled once for all records. `finish` makes the output of the last state."""

    nodes: Mapping[str, GraphNode]
    ways: Mapping[str, OutgoingEdges]
    start: OutgoingEdges
    max_steps: int = MAX_STEPS
    finish: Callable[[State], Record] = dict
    keeps_records: bool = False
    """Whether tools or lambdas of users run in it: what they did for a finished record is not done again."""
    limits: RecordLimits | None = None
    cost_of: Costs = lambda role, response: None  # noqa: ARG005
    unfinished: Sequence[Callable[[State, str], Updates]] = ()
    """Give the unit results of a record whose agent did not finish, from its state and the reason."""
    shared: Sequence[SharedObject] = ()
    """Objects of users' classes that its nodes call, in graphs within it, too."""

    def plan(self, record: Record, name: str, number: int = 0) -> Plan:
        """Yield the requests about a record, in a context of its own; return the responses and the Outcome at the end."""
        return steps_in(copy_context(), self._walked(record, name, number))

    def _walked(self, record: Record, name: str, number: int) -> Plan:
        meter = Meter(self.limits, self.cost_of) if self.limits is not None else None
        walk, state = Walk(name, number, meter), dict(record)
        try:
            yield from self.steps(state, walk)
            record_written = plain(dict(self._finished(state)))
            self._note_shared(walk)
        except UnfinishedAgent as unfinished:
            self._note_shared(walk)
            return [*walk.responses, self._outcome_of_unfinished(record, state, walk, unfinished)]
        except NodeFailed as failed:
            self._note_shared(walk)
            return [*walk.responses, _failed_outcome(record, state, walk, failed)]
        return [*walk.responses, walk.outcome(record_written)]

    def _outcome_of_unfinished(self, record: Record, state: State, walk: Walk, unfinished: UnfinishedAgent) -> Outcome:
        """The record of an agent that did not finish: its unit metrics have the values that they declare for that. Nodes behind
        the agent do not run; without a unit metric there is no score, and the record has failed."""
        try:
            if not self.unfinished:
                raise unfinished
            state.update(unfinished.state)
            for measure in self.unfinished:
                with user_code("a unit metric", NodeFailed, NodeFailed):
                    state.update(measure(state, str(unfinished)))
            written = plain(dict(self._finished(state)))
        except NodeFailed as failed:
            return _failed_outcome(record, state, walk, failed)
        walk.noticed[UNFINISHED] += 1
        return walk.outcome(written)

    def _note_shared(self, walk: Walk) -> None:
        for shared in self.shared:
            for attribute in shared.changes(walk.name):
                walk.noticed[f"{SHARED_STATE} {attribute}"] += 1

    def _finished(self, state: State) -> Record:
        with user_code("the output", NodeFailed, NodeFailed):
            return self.finish(state)

    def steps(self, state: State, walk: Walk, within: str = "") -> Steps:
        """Go from START to END; `state` is written to on the way. `within` is before the names of nodes in the trace."""
        active: Sequence[GraphNode] = self._following([self.start], state)
        for _ in range(self.max_steps):
            if not active:
                return state
            if len(active) == 1:
                node = active[0]
                numbers, before = walk.enter(within + node.name), len(walk.responses)
                try:
                    with _running(node.name):
                        updates = (
                            (yield from node.ask(state, walk.at(node.name))) if node.asks else node.apply(state, walk)
                        )
                finally:
                    numbers.extend(range(before, len(walk.responses)))
                merge(state, updates, node.name)
            else:
                yield from self._together(active, state, walk, within)
            active = self._following([self.ways[node.name] for node in active], state)
        if active:
            fix = f"graph_properties.max_steps is {self.max_steps}"
            raise NodeFailed(f"the record was still at {active[0].name!r} after {self.max_steps} steps ({fix})")
        return state

    def _following(self, ways: Sequence[OutgoingEdges], state: State) -> Sequence[GraphNode]:
        """The nodes that come next, each once, in the order of the edges."""
        names = ways[0].onward(state) if len(ways) == 1 else [name for way in ways for name in way.onward(state)]
        return [self.nodes[name] for name in dict.fromkeys(names) if name not in ENDS]

    def _together(self, active: Sequence[GraphNode], state: State, walk: Walk, within: str) -> Steps:
        """Nodes of one step: all see the state as it was, what they ask goes out together, and then all write."""
        updates: dict[str, Updates] = {}
        waiting: dict[str, tuple[Steps, Sequence[Request | Call]]] = {}
        context = copy_context()
        contexts = {node.name: context.copy() for node in active}
        entered = {node.name: walk.enter(within + node.name) for node in active}
        for node in active:
            own = dict(state)
            if node.asks:
                steps = steps_in(contexts[node.name], node.ask(own, walk.at(node.name)))
                self._resume(node.name, steps, None, waiting, updates)
            else:
                with _running(node.name):
                    updates[node.name] = contexts[node.name].run(node.apply, own, walk)
        while waiting:
            now, waiting = waiting, {}
            responses = iter((yield [request for _, requests in now.values() for request in requests]))
            for name, (steps, requests) in now.items():
                known = len(walk.responses)
                self._resume(name, steps, [next(responses) for _ in requests], waiting, updates)
                entered[name].extend(range(known, len(walk.responses)))
        put_together(context, contexts.values())
        writers: dict[str, str] = {}
        before = dict(state)
        for node in active:
            own_updates = {
                key: value for key, value in updates[node.name].items() if key not in before or before[key] is not value
            }
            for key in own_updates:
                if key != "messages" and writers.setdefault(key, node.name) != node.name:
                    if key not in SHARED:
                        raise NodeFailed(f"the nodes {writers[key]!r} and {node.name!r} wrote {key!r} in the same step")
                    own_updates[key] = [*state[key], *_added(own_updates[key], before.get(key) or ())]
            merge(state, own_updates, node.name)
        return state

    def _resume(
        self,
        name: str,
        steps: Steps,
        responses: Sequence[Response] | None,
        waiting: dict[str, tuple[Steps, Sequence[Request | Call]]],
        updates: dict[str, Updates],
    ) -> None:
        with _running(name):
            try:
                requests = next(steps) if responses is None else steps.send(responses)
                waiting[name] = (steps, requests)
            except StopIteration as stop:
                updates[name] = stop.value


def _failed_outcome(record: Record, state: State, walk: Walk, failed: NodeFailed) -> Outcome:
    written = {key: value for key, value in state.items() if key not in record or record[key] is not value}
    return walk.outcome({plain(key): plain(value) for key, value in written.items()}, str(failed))


def merge(state: State, updates: Value, name: str) -> None:
    """Write the updates of a node into the state; messages are appended."""
    if not isinstance(updates, Mapping):
        got = "nothing (None)" if updates is None else type(updates).__name__
        raise NodeFailed(f"the node {name!r} must return the state, or a mapping of changes to it, got {got}")
    if updates is state:
        state.update({key: plain(value) for key, value in state.items() if type(value).__module__ == "numpy"})
        return
    messages = updates.get("messages")
    known = state.get("messages")
    state.update({key: value if state.get(key) is value else plain(value) for key, value in updates.items()})
    if isinstance(messages, list) and isinstance(known, list) and messages is not known:
        state["messages"] = known + _added(messages, known)


def _added(values: Sequence[Value], known: Sequence[Value]) -> list[Value]:
    """The values that a node put behind those that were there."""
    return [each for each in values if not any(each is old for old in known)]


@cache
def _running(name: str) -> user_code:
    """The context in which a node runs: its code is the user's."""
    return user_code(f"the node {name!r}", NodeFailed, NodeFailed)
