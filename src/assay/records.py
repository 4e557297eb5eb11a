"""Frozen values that pass between packages: messages, requests, responses, samples, scores, estimates.

Those created for every request are named tuples, the cheapest to create: a run has a hundred thousand of them.
"""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from functools import lru_cache
from operator import is_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat, TypeAlias

from assay.errors import Place

if TYPE_CHECKING:
    import numpy.typing

JSON = None | bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"]
"""A value that JSON can hold."""
AnyJSON = Any
"""A JSON value of a file without a schema, written by users or other programs: readers check the parts they rely on."""
JSONObject = Mapping[str, AnyJSON]
"""Such a JSON object, read only."""
JSONDict = dict[str, AnyJSON]
"""Such a JSON object that may be changed."""
UserValue = object
"""A value of a user's file or code: it may be anything, and is checked before it is used."""
UserFunction = Callable[..., Any]
"""A function of user code; its signature is checked where it is bound."""
Params = Mapping[str, Any]
"""Parameters by name, as a file or a call sets them."""
Document = Mapping[str, Any]
"""A row of data by column. Columns hold anything: texts, numbers, lists, images."""
Answer = Any
"""An answer after filters: text, a pair of log-likelihood and greedy, or whatever a user's filter returns."""
Answers = Sequence[Answer]
"""The answers of a document, one for each request."""
MetricValue = Any
"""A metric's value for one document: a number, the input of its aggregation, or a mapping of several."""
Floats: TypeAlias = "numpy.typing.NDArray[numpy.float64]"


@dataclass(frozen=True, slots=True)
class Function:
    """A Python object that a YAML file names with `!function module.name`. Nothing is imported until it is used.

    `folder` is the folder of the YAML file, where `module` is searched first. Two are equal if they name the same object,
    wherever they are written.
    """

    folder: str
    module: str
    name: str
    place: Place = field(default=Place("?"), compare=False)

    def __str__(self) -> str:
        return f"!function {self.module}.{self.name}"


_PLAIN = frozenset((str, int, float, bool, type(None)))


def plain(value: Any) -> Any:
    """Convert numpy values that user code returned to Python's numbers and texts, also inside lists and mappings.

    A value without numpy is returned as the same object. An array becomes a list, a zero-dimensional one a number. Numbers
    below double precision keep their digits, because most are written into texts: 0.1 stays 0.1, as in lm-eval.

    >>> plain({"a": [1, ("b", 2.5)]})
    {'a': [1, ('b', 2.5)]}
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list or kind is tuple:
        items = value if _PLAIN.issuperset(map(type, value)) else [plain(item) for item in value]
        return value if all(map(is_, items, value)) else kind(items)
    if kind is dict:
        keys = value if _PLAIN.issuperset(map(type, value)) else [plain(key) for key in value]
        inner = value.values()
        items = inner if _PLAIN.issuperset(map(type, inner)) else [plain(item) for item in inner]
        is_same = all(map(is_, items, inner)) and all(map(is_, keys, value))
        return value if is_same else dict(zip(keys, items, strict=True))
    if kind.__module__ != "numpy" or getattr(value, "dtype", None) is None:  # numpy is not imported to find that out
        return value
    if value.shape:
        return [plain(item) for item in value]
    single = value[()] if kind.__name__ == "ndarray" else value
    return float(str(single)) if value.dtype.kind == "f" else exact(single)


def exact(value: Any) -> Any:
    """Convert a numpy number that user code returned to the Python number with exactly that value."""
    if type(value).__module__ != "numpy" or getattr(value, "shape", None) != () or value.dtype.kind not in "biufcSUO":
        return value
    converted = value.item()
    return converted if type(converted).__module__ != "numpy" else float(converted)  # Python has no long doubles


_EXACT_IN_A_FLOAT = 2**53


def number(value: UserValue) -> int | float | None:
    """Return the value as a number; None for texts, None, complex numbers and collections."""
    if type(value) is float:  # as most are
        return value
    converted = exact(value)
    if isinstance(converted, float):
        return float(converted)
    if isinstance(converted, int):
        return converted if -_EXACT_IN_A_FLOAT <= converted <= _EXACT_IN_A_FLOAT else _as_float(converted)
    if getattr(converted, "shape", ()) != ():
        return None
    return _as_float(converted) if isinstance(converted, SupportsFloat) else None  # a fraction, a decimal


def _as_float(value: SupportsFloat) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


DEFAULT_MAX_GEN_TOKS = 256
"""Tokens to generate if neither task nor user sets a limit."""
LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names of that limit in generation parameters; the first one present counts."""


def limit_of(params: Params) -> int | None:
    """Return the token limit in generation parameters, if there is one."""
    limit = next((params[key] for key in LIMITS if params.get(key) is not None), None)
    return int(str(limit)) if limit is not None else None


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text within a message."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image within a message, by the hash of its bytes."""

    sha256: str
    media_type: str


@dataclass(frozen=True, slots=True)
class AudioPart:
    """A recording within a message, by the hash of its bytes."""

    sha256: str
    media_type: str


@dataclass(frozen=True, slots=True)
class ProtocolPart:
    """A part in the format of a server's protocol, such as an image by URL: a JSON object, sent unchanged."""

    json: str


Part = TextPart | ImagePart | AudioPart | ProtocolPart


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that a model requests. `arguments` is the text the model wrote, usually a JSON object. `json` is the whole
    call as the server sent it, if it has other keys or another order: servers expect it back unchanged."""

    id: str
    name: str
    arguments: str
    json: str = ""


class Message(NamedTuple):
    """One message of a conversation. `tool_call_id` links a tool's result to its call; `more` is a JSON object with other
    keys of a server's protocol."""

    role: str
    content: str | tuple[Part, ...]
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    more: str = ""


Prompt = str | tuple[Message, ...]
"""Input of a model: text or a conversation. Text never becomes a conversation because of how it looks."""


def messages_to_plain(messages: Sequence[Message]) -> list[JSONDict]:
    """Convert a conversation to JSON objects: for the disk, OpenAI-compatible servers and chat templates.

    >>> messages_to_plain([Message("user", "hi"), Message("tool", "4", tool_call_id="a")])
    [{'role': 'user', 'content': 'hi'}, {'role': 'tool', 'tool_call_id': 'a', 'content': '4'}]
    """
    return [
        {"role": message[0], "content": message[1]}
        if isinstance(message[1], str) and message[2:] == _ALONE
        else _plain_message(message)
        for message in messages
    ]


_ALONE = ((), None, None, "")
_MESSAGE_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name")


def _plain_message(message: Message) -> JSONDict:
    """Convert a message that has more than a role and a text. The key of a request is made of this JSON, so the order of
    its keys stays."""
    plain_message: dict[str, Any] = {"role": message.role}
    if message.tool_call_id is not None:
        plain_message["tool_call_id"] = message.tool_call_id
    content = message.content
    plain_message["content"] = content if isinstance(content, str) else [_plain_part(part) for part in content]
    if message.tool_calls:
        plain_message["content"] = plain_message["content"] or None
        plain_message["tool_calls"] = [_plain_call(call) for call in message.tool_calls]
    if message.name is not None:
        plain_message["name"] = message.name
    return {**plain_message, **json.loads(message.more)} if message.more else plain_message


def _plain_part(part: Part) -> JSONDict:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ProtocolPart):
        sent: dict[str, Any] = json.loads(part.json)
        return sent
    kind = "image" if isinstance(part, ImagePart) else "audio"
    return {"type": kind, "sha256": part.sha256, "media_type": part.media_type}


def _plain_call(call: ToolCall) -> JSONDict:
    if call.json:
        sent: dict[str, Any] = json.loads(call.json)
        return sent
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def plain_to_messages(messages: Sequence[JSONObject]) -> tuple[Message, ...]:
    """Read a conversation from JSON objects, written by `messages_to_plain` or by user code.

    >>> plain_to_messages([{"role": "user", "content": "hi"}])[0][:2]
    ('user', 'hi')
    """
    return tuple([_message_of(message) for message in messages])


def _message_of(message: JSONObject) -> Message:
    more = {key: value for key, value in message.items() if key not in _MESSAGE_KEYS}
    call_id, name = message.get("tool_call_id"), message.get("name")
    return Message(
        str(message["role"]),
        content_of(message.get("content")),
        tuple([tool_call_of(call) for call in message.get("tool_calls") or ()]),
        call_id if call_id is None else str(call_id),
        name if name is None else str(name),
        json.dumps(more, ensure_ascii=False) if more else "",
    )


def content_of(content: UserValue) -> str | tuple[Part, ...]:
    """Read the content of a message: text, or parts as mappings; any other value becomes text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple) and all(isinstance(part, Mapping) for part in content):
        return tuple([_part_of(part) for part in content])
    return "" if content is None else str(content)


def _part_of(part: JSONObject) -> Part:
    if list(part) == ["type", "text"] and part["type"] == "text" and isinstance(part["text"], str):
        return TextPart(part["text"])
    if list(part) == ["type", "sha256", "media_type"] and part["type"] in ("image", "audio"):
        kind = ImagePart if part["type"] == "image" else AudioPart
        return kind(str(part["sha256"]), str(part["media_type"]))
    return ProtocolPart(json.dumps(part, ensure_ascii=False))


def tool_call_of(sent: JSONObject) -> ToolCall:
    """Read a tool call in OpenAI's format."""
    function = sent.get("function") or {}
    written = function.get("arguments") or ""
    arguments = written if isinstance(written, str) else json.dumps(written, ensure_ascii=False)
    call = ToolCall(str(sent.get("id") or ""), str(function.get("name") or ""), arguments)
    whole = json.dumps(sent, ensure_ascii=False)
    is_usual = whole == json.dumps(_plain_call(call), ensure_ascii=False)
    return call if is_usual else ToolCall(call.id, call.name, call.arguments, whole)


def prompt_text(prompt: Prompt) -> str:
    """Return a prompt as one text; a conversation as JSON, which request keys hash and lm-eval's code receives."""
    return prompt if isinstance(prompt, str) else _written(prompt)


@lru_cache(maxsize=256)  # for choices and repeats of a document, and when a sample is written whose request was keyed
def _written(messages: tuple[Message, ...]) -> str:
    return json.dumps(messages_to_plain(messages), ensure_ascii=False)


class Generate(NamedTuple):
    """Generate text after a prompt. `repeat` numbers the requests of a sample with repeats.

    `node` is the graph node that sends it, with the subgraphs around it and the label of its model. `draw` identifies one
    sampled answer among those to the same prompt; random numbers depend on it.
    """

    prompt: Prompt
    params: Mapping[str, object]
    repeat: int = 0
    role: str = "model"
    node: tuple[str, ...] = ()
    draw: bytes = b""

    @property
    def is_sampled(self) -> bool:
        """Whether sending it twice may give different answers."""
        if self.params.get("do_sample") is False:
            return False
        temperature = self.params.get("temperature")
        return self.params.get("do_sample") is True or (isinstance(temperature, int | float) and temperature > 0)

    @property
    def seed_bytes(self) -> bytes:
        """Seed of the random numbers of a sampled answer."""
        drawn = b"\0" + self.draw if self.draw else b""
        return f"{prompt_text(self.prompt)}\0{self.repeat}".encode() + drawn

    @property
    def text(self) -> str:
        """The prompt, which must be text."""
        return _text(self.prompt)


class Loglikelihood(NamedTuple):
    """Log-likelihood of a continuation after a context, and whether greedy decoding would produce it."""

    context: Prompt
    continuation: str
    role: str = "model"

    @property
    def text(self) -> str:
        """The context, which must be text."""
        return _text(self.context)


def _text(prompt: Prompt) -> str:
    assert isinstance(prompt, str), "the chat template must have rendered the conversation as text"
    return prompt


class Rolling(NamedTuple):
    """Log-likelihood of a whole text."""

    text: str
    role: str = "model"


Request = Generate | Loglikelihood | Rolling


class Call(NamedTuple):
    """A call of user code that waits: an async function, or a blocking one in a thread, for at most so many `seconds`. One with
    an `identity` is journaled; begun and not finished, it is only begun again if it is `repeatable`. It runs in its `context`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    identity: tuple[str | int, ...] = ()
    repeatable: bool = False
    seconds: float | None = None
    context: Context | None = None


def arguments(request: Request) -> tuple[Any, ...]:
    """Return a request's arguments as in lm-eval, where a conversation is its JSON text."""
    if isinstance(request, Loglikelihood):
        context = request.context
        return (context if isinstance(context, str) else _written(context), request.continuation)
    if isinstance(request, Generate):
        return (prompt_text(request.prompt), dict(request.params))
    return (request.text,)


MOST_TOKENS = 10**12
"""Upper limit for a plausible token count; larger counts are ignored."""


class Usage(NamedTuple):
    """Tokens read and written, seconds, and number of tries of a response. `cut` tokens of the prompt were truncated;
    `stored` of the tokens read came from the model's cache."""

    read: int = 0
    written: int = 0
    seconds: float = 0.0
    tries: int = 1
    cut: int = 0
    stored: int = 0


UNFINISHED = "thinking"
"""Finish reason of a text that ended while the model was still thinking: there is no answer."""
UNREPORTED = "unreported"
"""Finish reason of a text for whose end the server gave none."""
USUAL_FINISHES = frozenset(("stop", "length", "tool_calls", UNFINISHED))
"""Finish reasons of answers that ended as answers do; every other one is counted."""


class Text(NamedTuple):
    """A generated text, reasoning apart. `calls` are tool calls in OpenAI's format; `model` is a name other than requested."""

    text: str
    finish: str | None = None
    reasoning: str | None = None
    usage: Usage | None = None
    calls: Sequence[Mapping[str, Any]] = ()
    model: str = ""


class Likelihood(NamedTuple):
    """A log-likelihood; for a continuation also whether each token was the most likely one. `model` as in Text. Of one that
    `is_bound` only that it is not above this value is known."""

    value: float
    greedy: bool = False
    usage: Usage | None = None
    model: str = ""
    is_bound: bool = False


NOTHING_MORE = Likelihood(0.0)[2:]
"""What stands behind value and greediness of most log-likelihoods, which take short ways: no usage, no model, no bound."""
Trace = Sequence[tuple[str, Sequence[int]]]
"""Graph nodes that a record passed, in order, each with the indices of its responses."""


class Failed(NamedTuple):
    """A request without an answer, with the reason. It is never a score."""

    reason: str


class Returned(NamedTuple):
    """Return value of a Call; of a journaled one also the `error` it raised, and whether it could be journaled."""

    value: Any
    usage: Usage | None = None
    error: str = ""
    is_kept: bool = True


class Outcome(NamedTuple):
    """End of a graph's plan: the record, or if it `failed` what nodes had written by then; requests, counts of events to
    report, and tool `calls` with node, turn, name, arguments, result, error, tokens and seconds."""

    record: Mapping[str, Any]
    asked: Sequence[Request] = ()
    noticed: Mapping[str, int] = MappingProxyType({})
    usage: Usage | None = None
    trace: Trace = ()
    calls: Sequence[Mapping[str, Any]] = ()
    failed: str = ""


Response = Text | Likelihood | Failed | Returned | Outcome


Plan = Generator[Sequence[Request | Call], Sequence[Response], Sequence[Response]]
"""A running plan: it yields requests, is sent their responses, and returns those that form its answer."""


class Turn(NamedTuple):
    """One message of a conversation; `suffix` follows it if the conversation is written as one text."""

    role: str
    content: str
    suffix: str = ""


class Sample(NamedTuple):
    """A document of a task with its requests.

    `gold` is the value the answer is compared with: the target, except for choices that are part of the contexts. `prefix`
    is the part of the prompt that many samples share, stored once. `problem` is the reason why there are no requests;
    `dropped` few-shot examples were left out because the prompt was too long.
    """

    doc_id: int
    doc: Mapping[str, object]
    requests: Sequence[Request]
    target: object
    gold: object
    choices: Sequence[str] | None = None
    prefix: str = ""
    problem: str = ""
    dropped: int = 0


EVERY_ROW = "*"
"""Stands for all rows of a filter."""


class FilterScores(NamedTuple):
    """Answers of one filter for one document, the value of every metric, and with repeats the score of every answer by
    metric; `failed` has the reason for each row without a value, or under EVERY_ROW for all of them."""

    filter: str
    answers: Sequence[Any]
    values: Mapping[str, Any]
    repeats: Mapping[str, Sequence[Any]] = MappingProxyType({})
    failed: Mapping[str, str] = MappingProxyType({})


def mapping(value: AnyJSON) -> JSONObject:
    """A value where it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def json_number(value: AnyJSON) -> float | None:
    """A value where it is a number, else None."""
    is_plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_plain and value == value else None
