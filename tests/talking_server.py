"""A server for tests that speaks OpenAI's and Anthropic's protocols as its first message instructs.

usage: talking_server.py PORT

The last user message, or the prompt, is a JSON object of what to do, all of it optional:
  say, think: texts; size: so many characters instead; pieces: how many a stream comes in; finish: the reason; pause: seconds between pieces; break_at: close the
  connection after so many pieces; error: send an error event after so many pieces; plain: do not stream although asked to;
  tags: the thinking is in the text; status, message: answer so instead; usage: [in, out, stored]; fail_first: how many
  times to refuse (status 503) before answering; raw, raw_text, events: answer with just that; garbage: bytes that are not HTTP;
  refuses_n, ignores_n: several answers at once; drip: send comments instead of data, for ever; reset: close at once;
  calls: [[tool, arguments]] that it wants; draw: say something that was never said before; wait: seconds before an answer that comes at once.
A judge's prompt is answered with a verdict: the answer in its fence is such an object, too, with a `score`.
Anything else is answered with "hello". GET /log: every body, path and headers that came.
"""

import asyncio
import itertools
import json
import re
import sys
from typing import Any

from aiohttp import web

FENCED = re.compile(r"<<<answer ([0-9a-f]{32})>>>\n(.*?)\n<<<end of answer \1>>>", re.DOTALL)
LOG: list[dict[str, Any]] = []
REFUSED: dict[str, int] = {}
DRAWS = itertools.count()


def instructions(body: dict[str, Any]) -> dict[str, Any]:
    text = body["messages"][-1]["content"] if "messages" in body else str(body["prompt"])
    while isinstance(text, list):  # blocks: the last one counts
        text = text[-1].get("text", text[-1].get("content"))
    judging = FENCED.search(text)
    if judging is not None:
        loaded = json.loads(judging[2])
        return {"say": json.dumps({"id": judging[1], "reason": "so", "score": loaded["score"]}), **loaded}
    try:
        loaded = json.loads(text)
    except ValueError:
        return {}
    return loaded if isinstance(loaded, dict) else {}


async def answer(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    LOG.append({"path": request.path, "body": body, "headers": dict(request.headers)})
    asked = instructions(body)
    await asyncio.sleep(asked.get("wait", 0))
    if asked.get("reset"):
        assert request.transport is not None
        request.transport.abort()
    mistake = anthropic_mistake if request.path.endswith("/messages") else openai_mistake
    asked |= {"status": 400, "message": wrong} if "messages" in body and (wrong := mistake(body)) else {}
    times = REFUSED.get(str(asked), 0)
    if times < asked.get("fail_first", 0):
        REFUSED[str(asked)] = times + 1
        return web.json_response({"error": {"message": "not yet"}}, status=503, headers={"Retry-After": "0"})
    if "status" in asked:
        said = asked.get("message", "no").replace(
            "KEY", request.headers.get("Authorization", "") + request.headers.get("x-api-key", "")
        )
        return web.json_response({"error": {"message": said}}, status=asked["status"])
    if asked.get("garbage"):
        assert request.transport is not None
        request.transport.write(b"GARBAGE\r\n\r\n")  # type: ignore[attr-defined]
        request.transport.close()
    if asked.get("refuses_n") and body.get("n", 1) > 1:
        return web.json_response({"error": {"message": "n must be 1"}}, status=400)
    if "raw" in asked and not body.get("stream"):
        return web.json_response(asked["raw"])
    if "raw_text" in asked:
        return web.Response(text=asked["raw_text"].replace("KEY", request.headers.get("Authorization", "")))
    if "events" in asked and body.get("stream"):
        text = json.dumps(asked["events"]).replace("KEY", request.headers.get("Authorization", ""))
        return await stream(request, asked, [*json.loads(text), "[DONE]"])
    claude = request.path.endswith("/messages")
    if body.get("stream") and not asked.get("plain"):
        return await stream(request, asked, anthropic_events(asked, body) if claude else openai_events(asked, body))
    return web.json_response(anthropic_whole(asked, body) if claude else openai_whole(asked, body))


def openai_mistake(body: dict[str, Any]) -> str:
    """What OpenAI's protocol refuses about tools: calls without results, results without calls."""
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                return "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return f"tool_call_ids did not have response messages: {waiting}"
        waiting = [call["id"] for call in message.get("tool_calls") or ()] or waiting
    if any(tool.get("type") != "function" or "name" not in tool.get("function", {}) for tool in body.get("tools", [])):
        return "tools: a tool needs a type and a function"
    return "tool_choice needs tools" if "tool_choice" in body and not body.get("tools") else ""


def anthropic_mistake(body: dict[str, Any]) -> str:
    """What Anthropic's protocol refuses: other roles, tools of OpenAI's form, tool_use without tool_result right behind it."""
    waiting: set[str] = set()
    for message in body["messages"]:
        if message["role"] not in ("user", "assistant") or set(message) != {"role", "content"}:
            return f"messages: unexpected role or key: {sorted(message)} {message['role']}"
        blocks = message["content"] if isinstance(message["content"], list) else []
        results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if results != waiting:
            return f"tool_use ids were found without tool_result blocks immediately after: {waiting ^ results}"
        waiting = {block["id"] for block in blocks if block["type"] == "tool_use" and isinstance(block["input"], dict)}
    if any("input_schema" not in tool or "name" not in tool for tool in body.get("tools", [])):
        return "tools: input_schema: Field required"
    choice = body.get("tool_choice", {"type": "auto"})
    return "" if isinstance(choice, dict) and choice.get("type") in ("auto", "any", "none", "tool") else "tool_choice"


def parts(asked: dict[str, Any]) -> tuple[str, str]:
    text, thought = asked.get("say", "hello"), asked.get("think", "")
    text = "word " * (asked["size"] // 5) if "size" in asked else text
    if thought and asked.get("tags"):
        return f"<think>{thought}" + (f"</think>{text}" if text else ""), ""
    return text, thought


def cut(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // pieces))
    return [text[start : start + size] for start in range(0, len(text), size)]


def used(asked: dict[str, Any]) -> dict[str, Any]:
    read, written, stored = asked.get("usage", [7, 3, 0])
    return {"prompt_tokens": read, "completion_tokens": written, "prompt_tokens_details": {"cached_tokens": stored}}


async def reward(request: web.Request) -> web.Response:
    """A reward model: as many points as the answer has letters, less those of the question."""
    body = await request.json()
    LOG.append({"path": request.path, "body": body, "headers": dict(request.headers)})
    said = [each["content"] for each in body["messages"]] if "messages" in body else [body["text_1"], body["text_2"]]
    points = len(said[1]) - len(said[0])
    row = {"data": [points]} if request.path.endswith("pooling") else {"score": points}
    if said[1] == "several":
        row = {"data": [1, 2]}
    return web.json_response({"data": [{"index": 0, **row}], "usage": {"prompt_tokens": 5}})


def openai_whole(asked: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    text, thought = parts(asked)
    finish = asked.get("finish", "stop")
    count = 1 if asked.get("ignores_n") else body.get("n", 1)
    drawn = [f"draw {next(DRAWS)}" if asked.get("draw") else text for n in range(count)]
    message = {"role": "assistant", "content": text or None, **({"reasoning_content": thought} if thought else {})}
    if asked.get("calls"):
        drawn = [""] * count
        message |= {"tool_calls": [
            {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(asked["calls"])
        ]}  # fmt: skip
    items = [
        {
            "index": n,
            "finish_reason": finish,
            **({"message": {**message, "content": said or None}} if "messages" in body else {"text": said}),
        }
        for n, said in enumerate(drawn)
    ]
    return {"choices": items, "usage": used(asked)}


def openai_events(asked: dict[str, Any], body: dict[str, Any]) -> list[Any]:
    text, thought = parts(asked)
    pieces = asked.get("pieces", 3)
    events: list[Any] = []
    for n in range(1 if asked.get("ignores_n") else body.get("n", 1)):
        chunks = [{"reasoning_content": piece} for piece in cut(thought, pieces)] + [
            {"content": piece} for piece in cut(text, pieces)
        ]
        if "messages" in body:
            events += [{"choices": [{"index": n, "delta": chunk, "finish_reason": None}]} for chunk in chunks]
        else:
            events += [
                {"choices": [{"index": n, "text": chunk.get("content", ""), "finish_reason": None}]} for chunk in chunks
            ]
        events.append({"choices": [{"index": n, "delta": {}, "finish_reason": asked.get("finish", "stop")}]})
    return [*events, {"choices": [], "usage": used(asked)}, "[DONE]"]


def anthropic_whole(asked: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    text, thought = parts({**asked, "say": f"draw {next(DRAWS)}"} if asked.get("draw") else asked)
    content = [{"type": "thinking", "thinking": thought}] if thought else []
    read, written, stored = asked.get("usage", [7, 3, 0])
    usage = {"input_tokens": read - stored, "output_tokens": written, "cache_read_input_tokens": stored}
    if not asked.get("calls") or asked.get("say"):
        content.append({"type": "text", "text": text})
    content += [
        {"type": "tool_use", "id": f"t{n}", "name": name, "input": arguments}
        for n, (name, arguments) in enumerate(asked.get("calls", ()))
    ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": asked.get("finish", "tool_use" if asked.get("calls") else "end_turn"),
        "usage": usage,
    }


def anthropic_events(asked: dict[str, Any], body: dict[str, Any]) -> list[Any]:
    whole = anthropic_whole(asked, body)
    start = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    events: list[Any] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for number, block in enumerate(whole["content"]):
        kind = "thinking" if block["type"] == "thinking" else "text"
        events.append({"type": "content_block_start", "index": number, "content_block": {**block, kind: ""}})
        deltas = [{"type": f"{kind}_delta", kind: piece} for piece in cut(block[kind], asked.get("pieces", 3))]
        events += [{"type": "content_block_delta", "index": number, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": number})
    ending = {
        "type": "message_delta",
        "delta": {"stop_reason": whole["stop_reason"]},
        "usage": {"output_tokens": whole["usage"]["output_tokens"]},
    }
    return [*events, ending, {"type": "message_stop"}]


async def stream(request: web.Request, asked: dict[str, Any], events: list[Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for _ in range(10_000 if asked.get("drip") else 0):
        await response.write(b": still here\n\n")
        await asyncio.sleep(0.05)
    for number, event in enumerate(events):
        if number == asked.get("break_at"):
            assert request.transport is not None
            request.transport.close()
            return response
        if number == asked.get("error"):
            event = {"type": "error", "error": {"type": "overloaded_error", "message": "too much"}}
        text = event if isinstance(event, str) else json.dumps(event)
        await response.write(f"event: x\ndata: {text}\n\n".encode())
        await asyncio.sleep(asked.get("pause", 0))
    return response


async def log(_: web.Request) -> web.Response:
    return web.json_response(LOG)


async def models(_: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "m", "max_model_len": 4096}]})


if __name__ == "__main__":
    app = web.Application(client_max_size=1 << 26)
    app.add_routes([web.post(f"/v1/{path}", answer) for path in ("completions", "chat/completions", "messages")])
    app.add_routes([web.post(path, reward) for path in ("/pooling", "/score")])
    app.add_routes([web.get("/log", log), web.get("/v1/models", models)])
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
