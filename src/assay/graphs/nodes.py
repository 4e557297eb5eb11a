"""The nodes of graphs: lambdas, samplers, models, graphs within graphs."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

from assay.config.braces import Braces
from assay.config.option import NOTHING
from assay.graphs.history import HISTORY, ROLES, History, WantedCall
from assay.graphs.spec import JSON_TYPES, AnswerField, AnyNode, Record, Value
from assay.graphs.tools import Tool, as_mapping
from assay.graphs.walk import Asking, Graph, NodeFailed, State, Steps, Updates, Walk, run_calls, user_code_of
from assay.records import (
    Call,
    Failed,
    JSONDict,
    Message,
    Part,
    Prompt,
    Request,
    Response,
    Text,
    TextPart,
    content_of,
    messages_to_plain,
    tool_call_of,
)  # fmt: skip

JSON_CLASSES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (float, int),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
"""Classes of Python by the types of JSON Schema."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The fields that an answer must have; `schema` is their JSON Schema."""

    name: str
    schema: Record

    @classmethod
    def of_fields(cls, name: str, fields: Mapping[str, AnswerField]) -> "Structure":
        properties = {
            key: {
                "type": JSON_TYPES[field.type],
                **({"description": field.description} if field.description else {}),
            }
            for key, field in fields.items()
        }
        required = [key for key, field in fields.items() if field.default is NOTHING]
        return cls(
            name, {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        )

    @property
    def response_format(self) -> JSONDict:
        """The parameter that servers of OpenAI's protocol take."""
        return {"type": "json_schema", "json_schema": {"name": self.name, "schema": dict(self.schema)}}

    def asked_in(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """A conversation whose last message says in words what the answer must be."""
        instruction = "\n\nAnswer with one JSON object and nothing else. It must fit this JSON Schema:\n"
        words = instruction + json.dumps(self.schema, ensure_ascii=False)
        last = messages[-1]
        content = last.content
        added = content + words if isinstance(content, str) else (*content, TextPart(words))
        return (*messages[:-1], last._replace(content=added))

    def fits(self, text: str) -> bool:
        """Whether a text is a JSON object with the fields, each of its type."""
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            return False
        if not isinstance(answer, dict) or not answer.keys() >= set(self.schema.get("required", ())):
            return False
        properties = self.schema.get("properties", {})
        kinds = {key: str(written.get("type")) for key, written in properties.items() if key in answer}
        return all(_is_of(answer[key], kind) for key, kind in kinds.items() if kind in JSON_CLASSES)


def _is_of(value: Value, kind: str) -> bool:
    return isinstance(value, JSON_CLASSES[kind]) and (kind == "boolean" or not isinstance(value, bool))


AGAIN, UNREADABLE = "asked again for structured output", "without the structured output asked for"


class ModelReply(NamedTuple):
    """A model's response, as post-processors see it."""

    content: str
    reasoning: str | None = None
    tool_calls: Sequence[Record] = ()
    type: str = "ai"


BLOCKING = 0.001
"""Seconds above which a function is called in a thread: where a call takes less, the thread would take longer."""


@dataclass(slots=True)
class LambdaNode:
    """Calls a function of the node's settings and the state. One that waits is a Call: an async function, or one that may
    run in `threads` and takes long there. A single slow call among fast ones, of a busy machine, does not count."""

    name: str
    function: Callable[[Record, State], Any]
    settings: Record
    asks: bool = False
    threads: bool = False
    writes: Sequence[str] = ()
    """Keys that it declares: each must be among its updates."""
    _seconds: float | None = None

    def ask(self, state: State, walk: Walk) -> Steps:  # noqa: ARG002  # the shape of a node
        function, arguments = (self._timed, (state,)) if self.threads else (self.function, (self.settings, state))
        updates: Updates
        if self.asks:
            [response] = yield from run_calls([Call(function, arguments)])
            if isinstance(response, Failed):
                raise NodeFailed(f"the node {self.name!r}: {response.reason}")
            updates = response.value
        else:
            with user_code_of(self.name):  # out of a generator, a StopIteration would be another error
                updates = function(*arguments)
        missing = [key for key in self.writes if key not in updates] if isinstance(updates, Mapping) else []
        if missing:
            raise NodeFailed(f"the node {self.name!r} did not write {missing[0]!r}, which is one of its output_keys")
        return updates

    def _timed(self, state: State) -> Updates:
        begin = perf_counter()
        try:
            updates: Updates = self.function(self.settings, state)
            return updates
        finally:
            self.note(perf_counter() - begin)

    def note(self, seconds: float) -> None:
        """Decide by the time that a call took, and those before it, where the next one is made."""
        took, usual = min(seconds, 15 * BLOCKING), self._seconds
        self._seconds = took if usual is None else usual + (took - usual) / 16
        self.asks = self._seconds > BLOCKING


@dataclass(frozen=True, slots=True)
class SamplerNode:
    """Draws values: for one record the same every time, whatever else is in the run."""

    name: str
    attributes: Mapping[str, tuple[Sequence[Value], Sequence[float] | None]]
    in_turn: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    """Values that are not drawn: the n-th record gets the n-th, and the next one when it comes by again."""

    def ask(self, state: State, walk: Walk) -> Steps:  # noqa: ARG002  # the shape of a node
        yield from ()
        visit = walk.visits[self.name]
        walk.visits[self.name] += 1
        drawn = random.Random(f"{walk.name}\0{self.name}\0{visit}")
        values_drawn = {
            key: drawn.choices(values, weights)[0] if weights is not None else drawn.choice(values)
            for key, (values, weights) in self.attributes.items()
        }
        return {**values_drawn, **{key: each[(walk.number + visit) % len(each)] for key, each in self.in_turn.items()}}


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The messages of a node, with places for values of the state."""

    messages: Sequence[tuple[str, Braces | Sequence[Record]]]

    @classmethod
    def of(cls, written: Sequence[Record]) -> "PromptTemplate":
        return cls([(role, _content(content)) for message in written for role, content in message.items()])

    def fill(self, state: State) -> tuple[Message, ...]:
        try:
            return tuple(
                [
                    Message(role, content.fill(state) if isinstance(content, Braces) else _filled(content, state))
                    for role, content in self.messages
                ]
            )
        except KeyError as missing:
            raise NodeFailed(f"the prompt needs {missing}, which is not in the state") from missing


def _content(content: Value) -> Braces | list[JSONDict]:
    if not isinstance(content, list | tuple):
        return Braces.of(str(content))
    return [
        {key: Braces.of(value) if isinstance(value, str) else value for key, value in part.items()} for part in content
    ]


def _filled(parts: Sequence[Record], state: State) -> str | tuple[Part, ...]:
    """The parts of a message: texts, and addresses of images and sounds as servers want them."""
    contents = []
    for part in parts:
        values = {key: value.fill(state) if isinstance(value, Braces) else value for key, value in part.items()}
        for key in ("image_url", "audio_url"):
            if isinstance(values.get(key), str):
                values[key] = {"url": values[key]}
        contents.append(values)
    return content_of(contents)


@dataclass(frozen=True, slots=True)
class NodeModel:
    """A model of a node: whom to ask, and how messages become a prompt for it.

    `params` ask a server for the structure, where it `takes` a JSON Schema; `plain` are those without, for a model that gets
    the schema in words.
    """

    role: str
    params: Mapping[str, object]
    plain: Mapping[str, object]
    write: Callable[[tuple[Message, ...]], Prompt]
    structure: Structure | None = None
    takes: Callable[[], bool] = lambda: True
    clean: Callable[[str], str] | None = None
    """Changes the text of every answer, as the model's entry in models.yaml says."""

    def request(self, messages: tuple[Message, ...], walk: Walk, *, again: bool = False) -> Request:
        """A request of the model; `again`, where its answer did not fit, with the schema in words as SyGra does."""
        if self.structure is not None and (again or not self.takes()):
            messages, params = self.structure.asked_in(messages), self.plain
        else:
            params = self.params
        return walk.generate(self.role, self.write(messages), params)

    def fits(self, response: Response) -> bool:
        """Whether an answer is as the structure says; calls of tools need not be."""
        if self.structure is None or not isinstance(response, Text) or response.calls:
            return True
        return self.structure.fits(response.text)


Asked = Sequence[tuple[NodeModel, Walk]]
"""Models with the walks in which they are asked."""


def answers(asked: Asked, messages: tuple[Message, ...]) -> Asking[list[Text]]:
    """The texts that models give to a conversation, all asked at once; one that is not as it should be is asked for again."""
    responses = yield from _cleaned_answers(asked, [model.request(messages, walk) for model, walk in asked])
    for_again = [number for number, response in enumerate(responses) if not asked[number][0].fits(response)]
    if for_again:
        unfit = [asked[number] for number in for_again]
        requests = [model.request(messages, walk, again=True) for model, walk in unfit]
        second = yield from _cleaned_answers(unfit, requests)
        for number, (model, walk), response in zip(for_again, unfit, second, strict=True):
            walk.noticed[AGAIN] += 1
            if not model.fits(response):
                walk.noticed[UNREADABLE] += 1
            responses[number] = response
    return responses


def _cleaned_answers(asked: Asked, requests: Sequence[Request]) -> Asking[list[Any]]:
    responses = list((yield requests))
    for number, (model, _) in enumerate(asked):
        response = responses[number]
        if model.clean is not None and isinstance(response, Text):
            responses[number] = response._replace(text=model.clean(response.text))
    asked[0][1].take(requests, responses)  # the walk of each is that of the record
    return responses


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationNode:
    """The base of nodes that ask models: the prompt, its pre-processor, and the messages after it."""

    name: str
    prompt: PromptTemplate
    spec: AnyNode
    pre: Callable[[State], Any] | None = None
    history: History | None = None

    def prepared(self, state: State) -> tuple[State, tuple[Message, ...]]:
        """The state after the pre-processor, and what is sent. `messages` that it replaced are for this request only."""
        if self.pre is None:
            return state, self.conversation(state)
        before = state.get("messages")
        state = _after(self.pre(state), state)
        sent = self.conversation(state)
        if state.get("messages") is not before:
            state["messages"] = before if before is not None else []
        return state, sent

    def conversation(self, state: State) -> tuple[Message, ...]:
        messages = self.prompt.fill(state)
        if self.history is not None and state.get(HISTORY):
            messages = self.history.place(messages, state[HISTORY], self.name)
        return (*messages, *map(_as_message, state.get(self.spec.input_key) or ()))

    def remembered(self, state: State, messages: tuple[Message, ...], text: str) -> Updates:
        """The turn that was, for the nodes that ask with history."""
        if self.history is None:
            return {}
        turn = {"name": self.name, "request": messages_to_plain(messages), "response": text}
        return {HISTORY: [*(state.get(HISTORY) or []), turn]}


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmNode(GenerationNode):
    """Asks one model; `post` makes updates of the reply and the state."""

    model: NodeModel
    post: Callable[[ModelReply, State], Any]
    tools: Mapping[str, Tool] = field(default_factory=dict)

    def ask(self, state: State, walk: Walk) -> Steps:
        state, messages = self.prepared(state)
        [response] = yield from answers([(self.model, walk)], messages)
        return self.updates(response, state, messages)

    def updates(self, response: Text, state: State, messages: tuple[Message, ...]) -> Updates:
        """Return the updates of the state for an answer."""
        calls = [WantedCall(as_mapping(tool_call_of(call))) for call in response.calls]
        if self.tools:
            state["tool_calls"] = calls
        updates = self.post(ModelReply(response.text, response.reasoning, calls), state)
        if not isinstance(updates, Mapping):
            raise NodeFailed(f"post_process of {self.name!r} must return a mapping, got {type(updates).__name__}")
        more = {"tool_calls": calls} if self.tools else {}
        return {**updates, **more, **self.remembered(state, messages, response.text)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiLlmNode(GenerationNode):
    """Asks several models the same, all at once; `post` makes updates of the texts by label."""

    models: Mapping[str, NodeModel]
    post: Callable[[Mapping[str, ModelReply]], Any]

    def ask(self, state: State, walk: Walk) -> Steps:
        state, messages = self.prepared(state)
        asked = [(model, walk.at(label)) for label, model in self.models.items()]
        responses = yield from answers(asked, messages)
        replies = {
            label: ModelReply(response.text, response.reasoning)
            for label, response in zip(self.models, responses, strict=True)
        }
        updates: Updates = self.post(replies)
        return updates


@dataclass(frozen=True, slots=True)
class SubgraphNode:
    """A graph within a graph: the record goes through it from its START to its END."""

    name: str
    graph: Graph

    def ask(self, state: State, walk: Walk) -> Steps:
        return self.graph.steps(state, walk)


def _after(returned: Value, state: State) -> State:
    """The state after a pre-processor, which may give a new one or change the old."""
    if returned is None or returned is state:
        return state
    if not isinstance(returned, Mapping):
        raise NodeFailed(f"pre_process must return the state, got {type(returned).__name__}")
    return {**state, **returned}


def _as_message(each: Value) -> Message:
    if isinstance(each, Mapping):
        return Message(str(each.get("role", "user")), content_of(each.get("content", "")))
    inner = getattr(each, "message", each)
    role = ROLES.get(getattr(inner, "type", ""), "user")
    return Message(role, content_of(getattr(inner, "content", str(inner))))
