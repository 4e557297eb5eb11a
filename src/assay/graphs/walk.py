"""A graph as one plan per record: from START, step by step, to END. Nodes of one step ask together.

A context variable that the code of one record sets is not seen by another record. A lambda may run in place, in a thread or
as a coroutine, and a fast one may move into a thread when it gets slow. So that the values it sees do not depend on that,
every call gets a copy of its record's context, and what it has set there is put into the record's context when its step is over.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, TypeVar

import orjson

from assay.errors import SelfExplanatory
from assay.graphs.history import HISTORY
from assay.graphs.shared_state import SharedObject
from assay.graphs.spec import END, MAX_STEPS, START, Record, RecordLimits, Value
from assay.records import (
    Call,
    Failed,
    Generate,
    JSONDict,
    Outcome,
    Params,
    Plan,
    Prompt,
    Request,
    Response,
    Returned,
    Usage,
    plain,
)
from assay.user_code import HALF, is_writable, user_code

T = TypeVar("T")
State = dict[str, Any]
Updates = Mapping[str, Any]
Asking = Generator[Sequence[Request | Call], Sequence[Response], T]
Steps = Asking[Updates]
"""A node at work: it yields requests, is sent responses, and returns what it writes into the state."""
Costs = Callable[[str, Response], float | None]
"""The cost of a response of a role; None where no price is known."""
ENDS = (END, "__end__")
SHARED = (HISTORY, "tool_calls")
"""Lists that nodes write without naming them in output_keys: those of the same step are joined."""
SHARED_STATE = "of code that keeps state from record to record, in"
UNFINISHED = "of agents that still called tools at max_turns"
UNUSED: JSONDict = {"turns": 0, "tokens": 0, "seconds": 0.0, "cost": None}
"""The usage of a record or an agent before its first reply."""
_UNSET = object()


class NodeFailed(SelfExplanatory):
    """The reason why a record failed."""


class UnfinishedAgent(NodeFailed):
    """An agent still called tools at its last turn: `state` is what it has written by then."""

    def __init__(self, reason: str, state: Updates) -> None:
        super().__init__(reason)
        self.state = state


def add_usage(total: JSONDict, usage: Usage | None, cost: float | None) -> None:
    """Add a reply to the turns, tokens, seconds and cost of a record or an agent."""
    total["turns"] += 1
    if usage is not None:
        total["tokens"] += usage.read + usage.written
        total["seconds"] += usage.seconds
    if cost is not None:
        total["cost"] = (total["cost"] or 0.0) + cost


@dataclass
class Walk:
    """The walk of one record: its requests, responses, visited nodes and counted events.

    `name` identifies the record, `number` is its position. `node` is the way to the node that asks: see Generate.
    """

    name: str
    number: int = 0
    limits: RecordLimits | None = None
    cost_of: Costs = lambda role, response: None  # noqa: ARG005
    node: tuple[str, ...] = ()
    within: tuple[list[int], ...] = ()
    """The numbers of the responses of this node, and of those that it is within."""
    asked: list[Request] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)
    noticed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    visits: dict[object, int] = field(default_factory=lambda: defaultdict(int))
    trace: list[tuple[str, list[int]]] = field(default_factory=list)
    calls: list[JSONDict] = field(default_factory=list)
    used: JSONDict = field(default_factory=UNUSED.copy)

    def at(self, label: str) -> "Walk":
        """The same walk, for what is asked by a label of the node."""
        return self._with(node=(*self.node, label))

    def enter(self, node: str) -> "Walk":
        """The same walk in a node, which is noted."""
        inside, numbers = (*self.node, node), list[int]()
        self.trace.append(("/".join(inside), numbers))
        return self._with(node=inside, within=(*self.within, numbers))

    def _with(self, **changes: object) -> "Walk":
        """The same walk with changes: as dataclasses.replace, which takes five times as long."""
        walk = object.__new__(Walk)
        walk.__dict__.update(self.__dict__, **changes)
        return walk

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
        first = len(self.responses)
        self.asked += requests
        self.responses += responses
        for numbers in self.within:
            numbers.extend(range(first, len(self.responses)))
        for request, response in zip(requests, responses, strict=True):
            if isinstance(response, Failed):
                raise NodeFailed(response.reason)
            if self.limits is not None:
                add_usage(self.used, response.usage, self.cost_of(request.role, response))
        self.check_limits()

    def note_call(self, call: JSONDict) -> None:
        """Note a tool call that was made."""
        self.calls.append({"node": "/".join(self.node), **call})
        self.used["seconds"] += call["seconds"]

    def check_limits(self) -> None:
        if self.limits is None:
            return
        for name, used in self.used.items():
            limit = getattr(self.limits, name)
            if limit is not None and (used or 0) > limit:
                raise NodeFailed(f"the record used more than its limit of {name}: {limit:g} (graph_properties.limits)")

    def seconds_left(self) -> float | None:
        """The seconds that the record may still take."""
        limit = self.limits.seconds if self.limits is not None else None
        return None if limit is None else max(0.001, limit - self.used["seconds"])


def _is_kept(record: Record) -> bool:
    """Whether all text of a record can be written; most records are plain JSON, which is found out fastest by writing one."""
    try:
        return bool(orjson.dumps(record))
    except TypeError:
        return is_writable(record)


class GraphNode(Protocol):
    """One node at work."""

    @property
    def name(self) -> str: ...
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


Ways = Sequence[str | ConditionalEdge]
"""The edges that leave a node: to the same nodes always, and to those that conditions choose."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes and ways, compiled once for all records. `finish` makes the output of the last state."""

    nodes: Mapping[str, GraphNode]
    ways: Mapping[str, Ways]
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
        walk, state = Walk(name, number, self.limits, self.cost_of), dict(record)
        unfinished, failed = None, ""
        try:
            try:
                yield from self.steps(state, walk)
            except UnfinishedAgent as error:
                unfinished = error
                self._measure(state, unfinished)
            with user_code("the output", NodeFailed, NodeFailed):
                written = self.finish(state)
            outcome = plain(dict(written))
        except NodeFailed as error:
            changed = {key: value for key, value in state.items() if key not in record or record[key] is not value}
            outcome, failed = {plain(key): plain(value) for key, value in changed.items()}, str(error)
        for shared in self.shared:
            for attribute in shared.changes(name):
                walk.noticed[f"{SHARED_STATE} {attribute}"] += 1
        if unfinished is not None and not failed:
            walk.noticed[UNFINISHED] += 1
        return [*walk.responses, walk.outcome(outcome, failed)]

    def _measure(self, state: State, unfinished: UnfinishedAgent) -> None:
        """Give the record of an agent that did not finish the values that its unit metrics declare for that. Nodes behind the
        agent do not run; without a unit metric there is no score, and the record has failed."""
        if not self.unfinished:
            raise unfinished
        state.update(unfinished.state)
        for measure in self.unfinished:
            with user_code("a unit metric", NodeFailed, NodeFailed):
                state.update(measure(state, str(unfinished)))

    def steps(self, state: State, walk: Walk) -> Steps:
        """Go from START to END; `state` is written to on the way."""
        active = self._following([START], state)
        for _ in range(self.max_steps):
            if not active:
                return state
            if len(active) == 1:
                [node] = active
                merge(state, (yield from _run(node, state, walk.enter(node.name))))
            else:
                yield from _run_together(active, state, walk)
            active = self._following([node.name for node in active], state)
        if active:
            fix = f"graph_properties.max_steps is {self.max_steps}"
            raise NodeFailed(f"the record was still at {active[0].name!r} after {self.max_steps} steps ({fix})")
        return state

    def _following(self, names: Sequence[str], state: State) -> Sequence[GraphNode]:
        """The nodes that come next, each once, in the order of the edges."""
        following: dict[str, GraphNode] = {}
        for name in names:
            for way in self.ways[name]:
                target = way if isinstance(way, str) else way.choose(state)
                if target not in ENDS:
                    following[target] = self.nodes[target]
        return [*following.values()]


def _run(node: GraphNode, state: State, walk: Walk) -> Steps:
    with user_code_of(node.name):
        updates: Value = yield from node.ask(state, walk)
    if not isinstance(updates, Mapping):
        got = "nothing (None)" if updates is None else type(updates).__name__
        raise NodeFailed(f"the node {node.name!r} must return the state, or a mapping of changes to it, got {got}")
    return updates


@cache
def user_code_of(node: str) -> user_code:
    """The context in which a node runs."""
    return user_code(f"the node {node!r}", NodeFailed, NodeFailed)


def _run_together(active: Sequence[GraphNode], state: State, walk: Walk) -> Asking[None]:
    """Run nodes of one step: all see the state as it was, what they ask goes out together, and then all write."""
    context, before = copy_context(), dict(state)
    contexts = [context.copy() for _ in active]
    walks = [walk.enter(node.name) for node in active]
    steps = {
        node.name: steps_in(own, _run(node, dict(state), inside))
        for node, own, inside in zip(active, contexts, walks, strict=True)
    }
    updates: dict[str, Updates] = {}
    responses: dict[str, Sequence[Response] | None] = dict.fromkeys(steps)
    while responses:
        asked: dict[str, Sequence[Request | Call]] = {}
        for name, arrived in responses.items():
            try:
                asked[name] = steps[name].send(arrived)  # type: ignore[arg-type]  # None begins a generator
            except StopIteration as stop:
                updates[name] = stop.value
        further = iter((yield [request for requests in asked.values() for request in requests]) if asked else ())
        responses = {name: [next(further) for _ in requests] for name, requests in asked.items()}
    put_together(context, contexts)
    writers: dict[str, str] = {}
    for node in active:
        own_updates = {
            key: value for key, value in updates[node.name].items() if key not in before or before[key] is not value
        }
        for key in own_updates:
            if key != "messages" and writers.setdefault(key, node.name) != node.name:
                if key not in SHARED:
                    raise NodeFailed(f"the nodes {writers[key]!r} and {node.name!r} wrote {key!r} in the same step")
                own_updates[key] = [*state[key], *_added(own_updates[key], before.get(key) or ())]
        merge(state, own_updates)


def merge(state: State, updates: Updates) -> None:
    """Write the updates of a node into the state; messages are appended."""
    if updates is state:
        state.update({key: plain(value) for key, value in state.items() if type(value).__module__ == "numpy"})
        return
    messages, known = updates.get("messages"), state.get("messages")
    state.update({key: value if state.get(key) is value else plain(value) for key, value in updates.items()})
    if isinstance(messages, list) and isinstance(known, list) and messages is not known:
        state["messages"] = known + _added(messages, known)


def _added(values: Sequence[Value], known: Sequence[Value]) -> list[Value]:
    """The values that a node put behind those that were there."""
    return [value for value in values if not any(value is old for old in known)]


def steps_in(context: Context, steps: Asking[T]) -> Asking[T]:
    """The same steps, taken in a context."""
    responses: Sequence[Response] | None = None
    while True:
        try:
            requests = context.run(steps.send, responses)  # type: ignore[arg-type]  # None begins a generator
        except StopIteration as stop:
            result: T = stop.value
            return result
        responses = yield requests


def run_calls(calls: Sequence[Call]) -> Generator[Sequence[Call], Sequence[Returned | Failed], list[Returned | Failed]]:
    """Yield calls of user code, each with a copy of this context; returns their responses."""
    before = copy_context()
    contexts = [before.copy() for _ in calls]
    responses = yield [call._replace(context=own) for call, own in zip(calls, contexts, strict=True)]
    finished = (own for own, response in zip(contexts, responses, strict=True) if isinstance(response, Returned))
    put_together(before, finished)
    return [*responses]


def put_together(before: Context, copies: Iterable[Context]) -> None:
    """Set in this context what was set in copies of it, as it was `before`; of several values the last one counts."""
    for own in copies:
        for variable, value in own.items():
            if before.get(variable, _UNSET) is not value:
                variable.set(value)
