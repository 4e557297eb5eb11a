"""Conversations as people read them: turns with roles, and tool calls with their results; for pages, terminal and reports."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from assay.records import (
    AudioPart,
    ImagePart,
    JSONObject,
    Message,
    Part,
    ProtocolPart,
    TextPart,
    messages_to_plain,
    plain_to_messages,
    tool_call_of,
)
from assay.runs.samples.records import GRAPH, StoredRequest, StoredSample, call_text
from assay.runs.samples.writer import messages_of
from assay.safe_text import cut

Messages = tuple[Message, ...]
SYSTEM = ("system", "developer")
"""Roles of instructions before a conversation."""
LONG_PART = 120
"""Characters of a part in a server's format that are shown: an image may be megabytes of text."""


class ChatTurn(NamedTuple):
    """One turn: who speaks, the text, the tool calls as lines, and the reasoning before it."""

    role: str
    text: str
    calls: Sequence[str] = ()
    reasoning: str = ""


class ChatPrompt(NamedTuple):
    """A prompt as turns: the instructions, the few-shot examples, and the rest, which ends with the question."""

    system: Sequence[ChatTurn]
    examples: Sequence[ChatTurn]
    turns: Sequence[ChatTurn]


class Exchange(NamedTuple):
    """A request of a conversation without the messages that an earlier request had, and the model's turn after it."""

    asked: Messages
    answer: Message | None


def read_conversation(text: str) -> Messages | None:
    """Read a conversation from the text that it is stored as; None where it is another text, whatever it looks like.

    >>> read_conversation('[{"role": "user", "content": "hi"}]')[0].content
    'hi'
    >>> read_conversation('[{"content": "hi", "role": "user" }]')
    """
    if not text.startswith('[{"role": "') or not text.endswith("}]"):
        return None
    try:
        plain = json.loads(text)
        messages = plain_to_messages(plain)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    return messages if json.dumps(messages_to_plain(messages), ensure_ascii=False) == text else None


def request_messages(row: StoredSample, request: StoredRequest | None) -> Messages | None:
    """The conversation of a request of a sample, if it is one: all requests of graphs are."""
    if request is not None and request.messages is not None:
        return plain_to_messages(request.messages)
    text = row.prefix + row.prompt if request is None or request.prompt is None else request.prompt
    messages = read_conversation(text)
    # one that the columns of messages can hold would be there: this is a text that looks like a conversation
    return messages if messages is not None and (row.kind == GRAPH or messages_of(messages) is None) else None


def turns_of(messages: Sequence[Message]) -> list[ChatTurn]:
    """Messages as turns: the result of a tool is shown behind its call.

    >>> call = tool_call_of({"id": "c", "function": {"name": "look_up", "arguments": '{"order": "A1"}'}})
    >>> turns_of([Message("assistant", "", (call,)), Message("tool", "shipped", tool_call_id="c")])[0].calls
    ['look_up(order="A1") → shipped']
    """
    results: dict[str, str] = {}
    for message in messages:
        if message.role == "tool" and message.tool_call_id:
            results.setdefault(message.tool_call_id, _content(message))
    called = {call.id for message in messages for call in message.tool_calls}
    return [
        _turn(message, results)
        for message in messages
        if message.role != "tool" or message.tool_call_id not in called or not message.tool_call_id
    ]


def _turn(message: Message, results: JSONObject) -> ChatTurn:
    calls = [
        call_text({"name": call.name, "arguments": call.arguments, "result": results.get(call.id) if call.id else None})
        for call in message.tool_calls
    ]
    name = f" {message.name}" if message.name else ""
    return ChatTurn(f"{message.role}{name}", _content(message), calls, _reasoning(message))


def _reasoning(message: Message) -> str:
    more = json.loads(message.more) if message.more else {}
    thoughts = next((more[key] for key in ("reasoning_content", "reasoning") if isinstance(more.get(key), str)), "")
    return str(thoughts)


def _content(message: Message) -> str:
    return message.content if isinstance(message.content, str) else "\n".join(map(_part_text, message.content))


def _part_text(part: Part) -> str:
    match part:
        case TextPart(text):
            return text
        case ImagePart(sha256, media_type) | AudioPart(sha256, media_type):
            return f"[{media_type} {sha256[:12]}]"
        case ProtocolPart(text):
            return cut(text, LONG_PART)


def chat_prompt(row: StoredSample, shots: object = None) -> ChatPrompt | None:
    """The first prompt of a sample as turns; None where it is a text. `shots` is the number of examples, if it is known."""
    messages = request_messages(row, row.requests[0] if row.requests else None)
    if not messages:
        return None
    turns = turns_of(messages)
    start = next((place for place, turn in enumerate(turns) if turn.role not in SYSTEM), len(turns))
    system, body = turns[:start], turns[start:]
    count = 2 * shots if isinstance(shots, int) and shots > 0 else 0
    if not count or len(body) <= count or [turn.role for turn in body[:count]] != ["user", "assistant"] * (count // 2):
        count = 0
    return ChatPrompt(system, body[:count], body[count:])


def shown_prompt(row: StoredSample) -> str:
    """The prompt of a sample without the examples that many share; a conversation as lines with roles."""
    chat = chat_prompt(row)
    return row.prompt if chat is None else chat_text([*chat.system, *chat.turns])


def question_of(row: StoredSample) -> str:
    """The question of a sample for a list: of a conversation the last turn that is not the model's."""
    chat = chat_prompt(row)
    if chat is None:
        return row.prompt
    asked = [turn for turn in (*chat.system, *chat.turns) if turn.role != "assistant"]
    return asked[-1].text if asked else chat_text(chat.turns[-1:])


def chat_text(turns: Sequence[ChatTurn]) -> str:
    """Turns as text, each below its role.

    >>> print(chat_text([ChatTurn("user", "hi"), ChatTurn("assistant", "", ["look_up(n=1) → 2"])]))
    user: hi
    assistant: look_up(n=1) → 2
    """
    return "\n".join(f"{turn.role}: {turn_text(turn)}" for turn in turns)


def turn_text(turn: ChatTurn) -> str:
    """The text and the tool calls of a turn."""
    return "\n".join([*([turn.text] if turn.text.strip() or not turn.calls else []), *turn.calls])


def exchanges(asked: Sequence[Messages], answers: Sequence[Message | None]) -> list[Exchange]:
    """Requests in their order, each without the messages that continue an earlier request: an agent sends all again."""
    known: list[Messages] = []
    parts = []
    for messages, answer in zip(asked, answers, strict=True):
        shared = max((len(each) for each in known if messages[: len(each)] == each), default=0)
        parts.append(Exchange(messages[shared:], answer))
        known.append(messages if answer is None else (*messages, answer))
    return parts


def stored_exchanges(row: StoredSample) -> list[Exchange]:
    """The requests of a sample with their answers, by their order; a prompt that is text is the user's turn."""
    whole, replies = row.prefix + row.prompt, row.replies or ()
    asked, answers = [], []
    flat = [values[0] if values else None for values in row.responses]
    for number, request in enumerate(row.requests):
        text = whole if request.prompt is None else request.prompt
        asked.append(request_messages(row, request) or (Message("user", text),))
        said = flat[number] if number < len(flat) else None
        calls = replies[number].get("calls") if number < len(replies) else None
        answers.append(answer_message(said, calls))
    return exchanges(asked, answers)


def answer_message(said: object, calls: Sequence[JSONObject] | None) -> Message | None:
    """A response as the message that continues a conversation; None where there is none."""
    if said is None and not calls:
        return None
    text = said if isinstance(said, str) else "" if said is None else json.dumps(said, default=str)
    return Message("assistant", text, tuple(map(tool_call_of, calls or ())))
