"""The conversation of a graph's record as Inspect has it: messages with tool calls, and an event for each call."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from assay.records import Generate, JSONDict, JSONObject, Message, Request, messages_to_plain, tool_call_of
from assay.runs.samples.records import SampleRecord, call_text, made_calls
from assay.runs.samples.turns import answer_message, exchanges


def transcript(record: SampleRecord, model: str) -> list[JSONDict]:
    """All messages of a graph's record: prompts, replies and results of tools, each once."""
    places = [
        number
        for number, request in enumerate(record.sample.requests)
        if isinstance(request, Generate) and number < len(record.responses)
    ]
    asked = [asked_messages(record.sample.requests[number]) for number in places]
    answers = [answer_message(str(record.responses[n][0]), _reply(record, n).get("calls")) for n in places]
    said = [message for each in exchanges(asked, answers) for message in (*each.asked, each.answer) if message]
    return inspect_messages(said, model)


def _reply(record: SampleRecord, number: int) -> JSONObject:
    return record.replies[number] if record.replies is not None and number < len(record.replies) else {}


def asked_messages(request: Request | None) -> tuple[Message, ...]:
    """The messages of a request; a prompt that is text is the user's."""
    prompt = request[0] if request is not None else ""
    return (Message("user", prompt),) if isinstance(prompt, str) else prompt


def inspect_messages(messages: Sequence[Message], model: str) -> list[JSONDict]:
    """Messages as Inspect has them; a tool's result names the function that was called."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [_message(each, names, model) for each in messages_to_plain(messages)]


def _message(said: JSONObject, names: Mapping[str, str], model: str) -> JSONDict:
    role, content = said["role"], said.get("content")
    text = content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)
    if role == "tool":
        called = str(said.get("tool_call_id"))
        return {"role": "tool", "content": text, "tool_call_id": called, "function": names.get(called, "")}
    if role != "assistant":
        return {"role": role, "content": text}
    calls = [_call(tool_call_of(call).name, call) for call in said.get("tool_calls") or ()]
    return {
        "role": "assistant", "content": text, "source": "generate", "model": model,
        **({"tool_calls": calls} if calls else {}),
    }  # fmt: skip


def _call(name: str, call: JSONObject) -> JSONDict:
    parsed: Any = {}
    with suppress(ValueError):
        parsed = orjson.loads(tool_call_of(call).arguments or "{}")
    return {"id": str(call.get("id") or ""), "function": name, "arguments": parsed if isinstance(parsed, dict) else {}}


def tool_events(record: SampleRecord, stamp: JSONObject) -> list[JSONDict]:
    """An event for each tool call of a record; `stamp` has the keys that all events have."""
    return [_event(number, call, stamp) for number, call in enumerate(made_calls(record.replies))]


def _event(number: int, call: JSONObject, stamp: JSONObject) -> JSONDict:
    arguments = call.get("arguments")
    with suppress(ValueError, TypeError):
        arguments = orjson.loads(arguments) if isinstance(arguments, str) else arguments
    error = {"error": {"type": "unknown", "message": call["error"]}} if call.get("error") else {}
    return {
        **stamp,
        "event": "tool",
        "type": "function",
        "id": f"call-{number}",
        "function": str(call.get("name")),
        "arguments": arguments if isinstance(arguments, dict) else {},
        "view": {"title": str(call.get("name")), "format": "text", "content": call_text(call)},
        "result": str(call.get("result") or ""),
        **error,
        **({"working_time": call["seconds"]} if call.get("seconds") is not None else {}),
        "events": [],
    }


def is_walked(replies: Sequence[JSONObject] | None) -> bool:
    """Whether a sample is a record of a graph."""
    return bool(replies) and "trace" in replies[-1] if replies else False
