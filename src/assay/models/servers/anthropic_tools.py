"""Tools in Anthropic's protocol: definitions, calls and results, from and to those of OpenAI's, which assay keeps."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay.models.servers.reading import RequestBody
from assay.records import JSONDict, JSONObject, ToolCall, tool_call_of

CHOICES = {"auto": "auto", "none": "none", "required": "any"}
FAILED = "Error: "
"""Beginning of the result of a tool that failed."""


def tool_parameters(params: Mapping[str, Any]) -> RequestBody:
    """Return `tools` and `tool_choice` as Anthropic names them."""
    sent: RequestBody = {}
    if params.get("tools"):
        sent["tools"] = [_definition(tool) for tool in params["tools"]]
    if params.get("tools") and params.get("tool_choice") is not None:
        sent["tool_choice"] = _choice(params["tool_choice"])
    return sent


def _definition(tool: JSONObject) -> JSONDict:
    function = tool.get("function", tool)
    described = {"description": function["description"]} if function.get("description") else {}
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {"name": function["name"], **described, "input_schema": schema}


def _choice(written: str | JSONObject) -> JSONDict:
    if isinstance(written, str):
        return {"type": CHOICES[written]} if written in CHOICES else {"type": "tool", "name": written}
    function = written.get("function")
    return {"type": "tool", "name": function["name"]} if isinstance(function, Mapping) else dict(written)


def with_blocks(messages: Sequence[JSONObject]) -> list[JSONDict]:
    """Return messages with calls and results of tools as blocks; the results of one turn are one message of the user."""
    sent: list[JSONDict] = []
    for message in messages:
        if message["role"] == "tool":
            if not sent or not _has_results(sent[-1]):
                sent.append({"role": "user", "content": []})
            sent[-1]["content"].append(_result(message))
        elif message.get("tool_calls"):
            sent.append({"role": "assistant", "content": [*_texts(message), *map(_use, message["tool_calls"])]})
        else:
            sent.append(dict(message))
    return sent


def _has_results(message: JSONObject) -> bool:
    content = message["content"]
    return isinstance(content, list) and bool(content) and content[-1].get("type") == "tool_result"


def _result(message: JSONObject) -> JSONDict:
    text = message.get("content") or ""
    failed = {"is_error": True} if isinstance(text, str) and text.startswith(FAILED) else {}
    return {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": text, **failed}


def _texts(message: JSONObject) -> list[JSONDict]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else []


def _use(sent: JSONObject) -> JSONDict:
    call: ToolCall = tool_call_of(sent)
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = {}
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.name,
        "input": arguments if isinstance(arguments, dict) else {},
    }
