"""The values that flow between the rooms: frozen, and known to all of them.

Those that are made for every request are named tuples: a hundred thousand of them are made in a run.
"""

import json
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import is_
from types import MappingProxyType
from typing import Any, NamedTuple, SupportsFloat

from assay.errors import Place


@dataclass(frozen=True, slots=True)
class Function:
    """A Python object that a YAML file names with `!function module.name`. Nothing is imported until it is used.

    `folder` is where the YAML file lies: `module` is looked for there first. Two are equal when they name the same
    object, wherever they are written.
    """

    folder: str
    module: str
    name: str
    place: Place = field(default=Place("?"), compare=False)

    def __str__(self) -> str:
        return f"!function {self.module}.{self.name}"


_PLAIN = frozenset((str, int, float, bool, type(None)))


def plain(value: Any) -> Any:
    """A value that user code returned, with Python's own numbers and texts in place of numpy's, also inside lists and mappings.

    What has none of numpy's is returned as the object it is. An array becomes a list, one without dimensions the number it
    holds. Numbers of less than double precision keep their
    digits, since they are mostly written into texts: 0.1 stays 0.1, as in lm-eval.

    >>> plain({"a": [1, ("b", 2.5)]})
    {'a': [1, ('b', 2.5)]}
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list or kind is tuple:
        several = [plain(each) for each in value]
        return value if all(map(is_, several, value)) else kind(several)
    if kind is dict:
        found = {plain(key): plain(each) for key, each in value.items()}
        return value if all(map(is_, found.values(), value.values())) and all(map(is_, found, value)) else found
    if kind.__module__ != "numpy" or getattr(value, "dtype", None) is None:  # numpy is not imported to find that out
        return value
    if value.shape:
        return [plain(each) for each in value]
    single = value[()] if kind.__name__ == "ndarray" else value
    return float(str(single)) if value.dtype.kind == "f" else exact(single)


def exact(value: Any) -> Any:
    """A number that user code returned, where it is one of numpy's, as the Python number of just that value."""
    if type(value).__module__ != "numpy" or getattr(value, "shape", None) != () or value.dtype.kind not in "biufcSUO":
        return value
    found = value.item()
    return found if type(found).__module__ != "numpy" else float(found)  # Python has nothing for long doubles


_EXACT_IN_A_FLOAT = 2**53


def number(value: Any) -> int | float | None:
    """The number that a value is, None where it is none: texts, nothing, complex numbers and collections are not."""
    if type(value) is float:  # as most are
        return value
    found = exact(value)
    if isinstance(found, float):
        return float(found)
    if isinstance(found, int):
        return found if -_EXACT_IN_A_FLOAT <= found <= _EXACT_IN_A_FLOAT else _as_float(found)
    if getattr(found, "shape", ()) != ():
        return None
    return _as_float(found) if isinstance(found, SupportsFloat) else None  # a fraction, a decimal


def _as_float(value: SupportsFloat) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


DEFAULT_MAX_GEN_TOKS = 256
"""How many tokens are generated where nobody says."""
LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""What that number is called: the first of these that is given counts."""


def limit_of(params: Mapping[str, object]) -> int | None:
    """How many tokens may be generated, where the parameters say so."""
    found = next((params[key] for key in LIMITS if params.get(key) is not None), None)
    return int(str(found)) if found is not None else None


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
    """A part in the words of a server's protocol, such as an image by its address: a JSON object that is sent as it is."""

    json: str


Part = TextPart | ImagePart | AudioPart | ProtocolPart


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool that a model asks for. `arguments` is what the model wrote: mostly a JSON object.

    `json` is the whole call as the server sent it, where that says more than these or orders them otherwise: servers want
    their own words back.
    """

    id: str
    name: str
    arguments: str
    json: str = ""


class Message(NamedTuple):
    """One message of a conversation. `tool_call_id` is of a message that has the result of a tool; `more` is a JSON object
    with further keys of a server's protocol."""

    role: str
    content: str | tuple[Part, ...]
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    more: str = ""


Prompt = str | tuple[Message, ...]
"""What a model goes on from: text, or a conversation. A text is never one, whatever it looks like."""


def messages_to_plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A conversation as JSON has it: on disk, for servers of OpenAI's protocol, and for chat templates.

    >>> messages_to_plain([Message("user", "hi"), Message("tool", "4", tool_call_id="a")])
    [{'role': 'user', 'content': 'hi'}, {'role': 'tool', 'tool_call_id': 'a', 'content': '4'}]
    """
    return [
        {"role": each[0], "content": each[1]}
        if isinstance(each[1], str) and each[2:] == _ALONE
        else _plain_message(each)
        for each in messages
    ]


_ALONE = ((), None, None, "")
_MESSAGE_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name")


def _plain_message(message: Message) -> dict[str, Any]:
    """In the order of version 0.1, since the key of a request depends on it."""
    made: dict[str, Any] = {"role": message.role}
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    content = message.content
    made["content"] = content if isinstance(content, str) else [_plain_part(part) for part in content]
    if message.tool_calls:
        made["content"] = made["content"] or None
        made["tool_calls"] = [_plain_call(call) for call in message.tool_calls]
    if message.name is not None:
        made["name"] = message.name
    return {**made, **json.loads(message.more)} if message.more else made


def _plain_part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ProtocolPart):
        found: dict[str, Any] = json.loads(part.json)
        return found
    kind = "image" if isinstance(part, ImagePart) else "audio"
    return {"type": kind, "sha256": part.sha256, "media_type": part.media_type}


def _plain_call(call: ToolCall) -> dict[str, Any]:
    if call.json:
        found: dict[str, Any] = json.loads(call.json)
        return found
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def plain_to_messages(several: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """A conversation of what `messages_to_plain` made of it, or user code in the same words.

    >>> plain_to_messages([{"role": "user", "content": "hi"}])[0][:2]
    ('user', 'hi')
    """
    return tuple([_message_of(each) for each in several])


def _message_of(told: Mapping[str, Any]) -> Message:
    more = {key: value for key, value in told.items() if key not in _MESSAGE_KEYS}
    call_id, name = told.get("tool_call_id"), told.get("name")
    return Message(
        str(told["role"]),
        content_of(told.get("content")),
        tuple([tool_call_of(call) for call in told.get("tool_calls") or ()]),
        call_id if call_id is None else str(call_id),
        name if name is None else str(name),
        json.dumps(more, ensure_ascii=False) if more else "",
    )


def content_of(told: Any) -> str | tuple[Part, ...]:
    """What a message says: a text, or parts as mappings; any other value is written as text."""
    if isinstance(told, str):
        return told
    if isinstance(told, list | tuple) and all(isinstance(part, Mapping) for part in told):
        return tuple([_part_of(part) for part in told])
    return "" if told is None else str(told)


def _part_of(told: Mapping[str, Any]) -> Part:
    if list(told) == ["type", "text"] and told["type"] == "text" and isinstance(told["text"], str):
        return TextPart(told["text"])
    if list(told) == ["type", "sha256", "media_type"] and told["type"] in ("image", "audio"):
        kind = ImagePart if told["type"] == "image" else AudioPart
        return kind(str(told["sha256"]), str(told["media_type"]))
    return ProtocolPart(json.dumps(told, ensure_ascii=False))


def tool_call_of(told: Mapping[str, Any]) -> ToolCall:
    """A call of a tool in the words of OpenAI's protocol."""
    function = told.get("function") or {}
    given = function.get("arguments") or ""
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    made = ToolCall(str(told.get("id") or ""), str(function.get("name") or ""), arguments)
    written = json.dumps(told, ensure_ascii=False)
    is_usual = written == json.dumps(_plain_call(made), ensure_ascii=False)
    return made if is_usual else ToolCall(made.id, made.name, made.arguments, written)


def prompt_text(prompt: Prompt) -> str:
    """A prompt as one text; a conversation as JSON, which is what keys are made of and what lm-eval's code is shown."""
    return prompt if isinstance(prompt, str) else _written(prompt)


@lru_cache(maxsize=64)  # the choices and the repeats of one document come one after another
def _written(messages: tuple[Message, ...]) -> str:
    return json.dumps(messages_to_plain(messages), ensure_ascii=False)


class Generate(NamedTuple):
    """Go on from a prompt. `repeat` tells apart the requests of a sample that is asked several times.

    `node` is the node of a graph that asks, with the subgraphs around it and the label of its model. `draw` names
    one draw among all with the same prompt: the engine fills it in where the answer is sampled, and random numbers follow
    from it.
    """

    prompt: Prompt
    params: Mapping[str, object]
    repeat: int = 0
    role: str = "model"
    node: tuple[str, ...] = ()
    draw: bytes = b""

    @property
    def is_sampled(self) -> bool:
        """Whether asking twice may give two answers."""
        if self.params.get("do_sample") is False:
            return False
        temperature = self.params.get("temperature")
        return self.params.get("do_sample") is True or (isinstance(temperature, int | float) and temperature > 0)

    @property
    def seed_bytes(self) -> bytes:
        """What the random numbers of a sampled answer follow from."""
        drawn = b"\0" + self.draw if self.draw else b""
        return f"{prompt_text(self.prompt)}\0{self.repeat}".encode() + drawn

    @property
    def text(self) -> str:
        """The prompt of a request that is about text."""
        return _text(self.prompt)


class Loglikelihood(NamedTuple):
    """How likely is a continuation after a context, and is it what the model would say?"""

    context: Prompt
    continuation: str
    role: str = "model"

    @property
    def text(self) -> str:
        """The context of a request that is about text."""
        return _text(self.context)


def _text(prompt: Prompt) -> str:
    assert isinstance(prompt, str), "the model's chat template writes conversations as text before this"
    return prompt


class Rolling(NamedTuple):
    """How likely is a whole text?"""

    text: str
    role: str = "model"


Request = Generate | Loglikelihood | Rolling


class Call(NamedTuple):
    """Code that waits: an async function, or one that runs beside the others. It is no model's, and nobody writes it down."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


def arguments(request: Request) -> tuple[Any, ...]:
    """What lm-eval calls the arguments of a request; there a conversation is a text, its JSON."""
    if isinstance(request, Loglikelihood):
        context = request.context
        return (context if isinstance(context, str) else _written(context), request.continuation)
    if isinstance(request, Generate):
        return (prompt_text(request.prompt), dict(request.params))
    return (request.text,)


MOST_TOKENS = 10**12
"""A request of more tokens cannot have been: what says so is not counted."""


class Usage(NamedTuple):
    """What a response took: tokens read and written, seconds, how often it was asked for.

    `cut` tokens of the prompt were left out because it was too long; `stored` of those read the model had read before.
    """

    read: int = 0
    written: int = 0
    seconds: float = 0.0
    tries: int = 1
    cut: int = 0
    stored: int = 0


UNFINISHED = "thinking"
"""Why a text ended that came no further than thinking: it is no answer yet."""


class Text(NamedTuple):
    """What a model generated; `finish` says why it ended, where the model tells. What it thought first stands apart, and so
    do the `calls` of tools that it wants, in the words of OpenAI's protocol."""

    text: str
    finish: str | None = None
    reasoning: str | None = None
    usage: Usage | None = None
    calls: Sequence[Mapping[str, Any]] = ()


class Likelihood(NamedTuple):
    """A log-likelihood; and for a continuation, whether each token was the most likely one."""

    value: float
    greedy: bool = False
    usage: Usage | None = None


Trace = Sequence[tuple[str, Sequence[int]]]
"""The nodes of a graph that a record came through, in their order, each with the numbers of the responses it was given."""


class Failed(NamedTuple):
    """A request that has no answer, and why. It is never a score. Of a graph, `trace` is the way there."""

    reason: str
    trace: Trace = ()


class Returned(NamedTuple):
    """What a Call came to."""

    value: Any
    usage: Usage | None = None


class Outcome(NamedTuple):
    """What a graph came to, last among the responses of its plan: the record, what was asked on the way to it, and how
    often something worth telling happened."""

    record: Mapping[str, Any]
    asked: Sequence[Request] = ()
    noticed: Mapping[str, int] = MappingProxyType({})
    usage: Usage | None = None
    trace: Trace = ()


Response = Text | Likelihood | Failed | Returned | Outcome


JSON = None | bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"]
"""A value that JSON can hold."""

Asking = Generator[Sequence[Request | Call], Sequence[Response], Sequence[Response]]
"""A plan at work: it yields requests, is sent their responses, and returns those that its answer is made of."""


class Turn(NamedTuple):
    """One message of a conversation; `suffix` follows it where the conversation is written as one text."""

    role: str
    content: str
    suffix: str = ""


class Sample(NamedTuple):
    """One document of a task with what is asked about it.

    `gold` is what the answer is compared with: the target, but for choices that stand in the contexts. `prefix` is the
    part of the prompt that many samples share, kept apart so that it is stored once. `problem` is why nothing can be asked;
    `dropped` examples were left out, because it would have been too long.
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
"""In the place of a row's name: all rows of a filter."""


class FilterScores(NamedTuple):
    """What one filter made of one document: its answers, the value of every metric, and by metric the score of every
    answer where there are several; `failed` has, by row, why there is no value, or under EVERY_ROW why there are none."""

    filter: str
    answers: Sequence[Any]
    values: Mapping[str, Any]
    repeats: Mapping[str, Sequence[Any]] = MappingProxyType({})
    failed: Mapping[str, str] = MappingProxyType({})


class ScoreKey(NamedTuple):
    """What a number is about: a metric, of the answers that a filter leaves."""

    metric: str
    filter: str


class RowFailures(NamedTuple):
    """How many documents have no value in a row, and why, as far as it is this row alone that they failed in."""

    documents: int
    reasons: Mapping[str, int] = MappingProxyType({})


class Draws:
    """The documents a number comes from, and how far each of them moves it: the sum of all squared `moves` is its variance.

    Documents of one `source` with one number are the same draw, wherever they are met, and so are those of one of the
    `clusters`, if there are any: then it is the sums of their moves that are squared. Where only the variance is known,
    there are no moves.
    """

    __slots__ = ("clusters", "documents", "moves", "source", "variance")

    def __init__(
        self, source: str, documents: Sequence[int], moves: Any, variance: float | None = None, clusters: Any = None
    ) -> None:
        self.source, self.documents, self.moves, self.clusters = source, documents, moves, clusters
        self.variance: float = float((self.summed() ** 2).sum()) if variance is None else variance

    @classmethod
    def of_mean(cls, source: str, documents: Sequence[int], values: Any, clusters: Any = None) -> "Draws":
        """The draws of the mean of a value per document; of a few, each counts for a little more (CR1)."""
        count = len(values) if clusters is None else len(set(clusters))
        moves = (values - values.mean()) / (len(values) * math.sqrt((count - 1) / count))
        return cls(source, documents, moves, clusters=clusters)

    @property
    def count(self) -> int:
        """How many draws there are."""
        return len(self.documents if self.clusters is None else set(self.clusters))

    def summed(self) -> Any:
        """The move of every draw: of a document, or of a cluster of them."""
        if self.clusters is None:
            return self.moves
        import numpy as np

        return np.bincount(np.unique(self.clusters, return_inverse=True)[1], weights=self.moves)


class Estimate(float):
    """A number computed from n documents, with its standard error; without one, `reason` says why there is none.

    `parts` says which draws it depends on and how much; `repeats` has the scores of every answer, document by document,
    where there were several; a group's number also tells of how many tasks it is and which of its members had none. Where
    its error is 0, `members` are the numbers it follows from, each with how much it moves with them. `draws` is how many
    were independent of each other: as many as documents, or as clusters of them. Of an aggregation that gives several
    numbers `several` has them by name; the value is then no number. `bounds` are those that no such number can pass.
    """

    __slots__ = (
        "bounds", "draws", "is_power", "is_rate", "members", "missing", "n", "parts", "reason", "repeats", "several",
        "stderr", "tasks",
    )  # fmt: skip

    def __new__(cls, value: float, *_: Any, **__: Any) -> "Estimate":
        return super().__new__(cls, value)

    def __init__(  # noqa: PLR0913  # all that is known about a number
        self, value: float, stderr: float | None = None, n: int = 0, reason: str = "", *,
        parts: Mapping[Draws, float] | None = None, repeats: Sequence[Sequence[float]] | None = None,
        is_rate: bool = False, is_power: bool = False, tasks: int = 1, missing: Sequence[str] = (),
        members: "Sequence[tuple[float, Estimate]]" = (), draws: int | None = None,
        several: Mapping[str, float] | None = None, bounds: tuple[float, float] | None = None,
    ) -> None:  # fmt: skip
        del value  # the float itself
        self.stderr, self.n, self.reason = stderr, n, reason
        self.parts: Mapping[Draws, float] = parts if parts is not None else {}
        self.is_power, self.several, self.bounds = is_power, several, bounds
        self.draws = n if draws is None else draws
        self.repeats, self.is_rate, self.tasks, self.missing, self.members = repeats, is_rate, tasks, missing, members

    @property
    def value(self) -> float:
        return float(self)

    def but(self, **changes: Any) -> "Estimate":
        """The same with something changed."""
        own = {name: getattr(self, name) for name in self.__slots__} | changes
        return Estimate(float(self), own.pop("stderr"), own.pop("n"), own.pop("reason"), **own)
