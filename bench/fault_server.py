"""A server on loopback that does what `bench.faults` lists: `/KIND/WAY/v1/…` names the kind and the way in the address.

It speaks HTTP over plain sockets, so that it can do what no server library would. It runs in a thread.
"""

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote

from bench.faults import JUNK, KINDS, WAYS, Said, Step, Way

QUESTION = re.compile(r"question (\d+)")
MARK = re.compile(r"<<<answer ([0-9a-f]{32})[0-9a-f]*>>>")
HEADER = b"HTTP/1.1 200 OK\r\n"
ANTHROPIC_FINISHES = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
JSONObject = dict[str, Any]


def address(server: str, kind: str, way: str) -> str:
    return f"{server}/{quote(kind, safe='')}/{quote(way, safe='')}/v1"


def text_of(way: Way, number: int, body: str) -> str:
    """The answer to a document: in words, as fields for a graph, or as a verdict with the mark of the judge's prompt."""
    mark = MARK.search(body)
    if way.asks == "judge" and mark is not None:
        return json.dumps({"id": mark[1], "reason": "so", "score": 10 if f"answer {number}" in body else 1})
    return json.dumps({"said": f"answer {number}"}) if way.asks == "graph" else f"answer {number}"


def whole(said: Said, way: Way, right: str, sent: Mapping[str, Any]) -> JSONObject:
    """An answer as one JSON object."""
    text = right if said.text is None else said.text
    used = {"prompt_tokens": 7, "completion_tokens": 3}
    if way.protocol == "anthropic":  # nothing can come after the end: another block would be a part of the answer
        blocks: list[JSONObject] = [{"type": "text", "text": text}]
        blocks += [
            {"type": "tool_use", "id": f"t{n}", "name": name, "input": dict(given)}
            for n, (name, given) in enumerate(said.calls)
        ]
        finish = ANTHROPIC_FINISHES.get(said.finish or "", said.finish)
        message = {"type": "message", "role": "assistant", "model": "m", "content": blocks, "stop_reason": finish}
        return {**message, "usage": {"input_tokens": 7, "output_tokens": 3}, **(said.choice or {}), **(said.more or {})}
    choice: JSONObject = {"index": 0, "finish_reason": said.finish}
    if way.protocol == "echo":
        choice |= echo(str(sent.get("prompt", "")), said.text)
    elif way.protocol == "completions":
        choice["text"] = text
    else:
        choice["message"] = {"role": "assistant", "content": text, "refusal": said.refusal}
        if said.calls:
            choice["message"]["tool_calls"] = openai_calls(said)
    choices = [{**choice, **(said.choice or {})}]
    if said.after:
        choices.append({**choice, "message": {"role": "assistant", "content": said.after}, "text": said.after})
    return {"model": "m", "choices": choices, "usage": used, **(said.more or {})}


def openai_calls(said: Said) -> list[JSONObject]:
    return [
        {"index": n, "id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for n, (name, given) in enumerate(said.calls)
    ]


def echo(prompt: str, changed: str | None) -> JSONObject:
    """An echoed prompt with a log-probability for each word: `answer` is likely, everything else is not. A changed text is the
    echo of another document, whose other choice is likelier."""
    prompt = prompt if changed is None else QUESTION.sub("question 999", prompt)
    words = re.findall(r" ?[^ ]+", prompt)
    likely = "answer" if changed is None else "junk"
    starts = [sum(map(len, words[:n])) for n in range(len(words) + 1)]
    values: list[float | None] = [None, *(-0.1 if word.strip() == likely else -2.0 for word in words[1:]), -1.0]
    top = [None, *({word: value} for word, value in zip([*words[1:], "!"], values[1:], strict=True))]
    pieces = {"tokens": [*words, "!"], "token_logprobs": values, "top_logprobs": top, "text_offset": starts}
    return {"text": f"{prompt}!", "logprobs": pieces}


def events(said: Said, way: Way, right: str, sent: Mapping[str, Any]) -> list[Any]:
    """An answer as the events of a stream."""
    text = right if said.text is None else said.text
    halves = [text[: len(text) // 2], text[len(text) // 2 :]]
    if way.protocol == "anthropic":
        answer = whole(Said(text=text, finish=said.finish, choice=said.choice, more=said.more), way, right, sent)
        start = {**answer, "content": [], "stop_reason": None}
        parts: list[Any] = [{"type": "message_start", "message": start}]
        parts += [
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": half}}
            for half in halves
        ]
        for n, (name, given) in enumerate(said.calls, 1):
            block = {"type": "tool_use", "id": f"t{n}", "name": name, "input": {}}
            parts.append({"type": "content_block_start", "index": n, "content_block": block})
            delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
            parts.append({"type": "content_block_delta", "index": n, "delta": delta})
        ending = {
            "type": "message_delta",
            "delta": {"stop_reason": answer["stop_reason"]},
            "usage": {"output_tokens": 3},
        }
        after = {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": said.after}}
        return [*parts, ending, {"type": "message_stop"}, *([after] if said.after else [])]

    def event(delta: JSONObject, finish: str | None = None) -> JSONObject:
        content = {"text": delta.get("content") or ""} if way.protocol == "completions" else {"delta": delta}
        choice = {"index": 0, "finish_reason": finish, **content}
        return {
            "model": "m",
            "choices": [{**choice, **((said.choice or {}) if finish else {})}],
            **((said.more or {}) if finish else {}),
        }

    parts = [event({"content": half}) for half in halves]
    if said.refusal:
        parts.append(event({"refusal": said.refusal}))
    if said.calls:
        parts.append(event({"tool_calls": openai_calls(said)}))
    parts.append(event({}, said.finish) if said.finish else event({"content": ""}))
    parts += [event({"content": said.after})] if said.after else []
    return [*parts, {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}, "[DONE]"]


def payload(said: Said, way: Way, right: str, sent: Mapping[str, Any]) -> tuple[bytes, str]:
    """The body of an answer, and its type."""
    if not sent.get("stream"):
        return json.dumps(whole(said, way, right, sent)).encode(), "application/json"
    lines = (each if isinstance(each, str) else json.dumps(each) for each in events(said, way, right, sent))
    return "".join(f"data: {line}\n\n" for line in lines).encode(), "text/event-stream"


class Exchange:
    """One request about a document, and the steps that answer it."""

    def __init__(self, writer: asyncio.StreamWriter, way: Way, body: str) -> None:
        self._writer, self._way, self._body = writer, way, body
        self._sent: Mapping[str, Any] = json.loads(body)
        self._number = int((QUESTION.findall(body) or ["0"])[-1])

    async def act(self, steps: Sequence[Step]) -> None:
        for step in steps:
            await self._do(step)
            with suppress(ConnectionError):
                await self._writer.drain()

    async def _do(self, step: Step) -> None:
        match step.does:
            case "answer" | "begin":
                message = self._response(step)
                self._writer.write(message[: len(message) - step.missing])
            case "raw":
                self._writer.write(step.data)
            case "wait":
                await asyncio.sleep(step.seconds)
            case "close":
                self._writer.close()
            case "reset":
                self._writer.transport.abort()
            case "drip" | "ping":
                await self._drip(step)

    def _response(self, step: Step) -> bytes:
        said, right = step.said, text_of(self._way, self._number, self._body)
        if said.text == JUNK:  # in the form of the way; a verdict about another answer has another mark
            said = replace(said, text=text_of(self._way, 999, self._body.replace("<<<answer ", "<<<answer 00000000")))
        body, kind = payload(said, self._way, right, self._sent)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), **(step.headers or {})}
        return HEADER + b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items()) + b"\r\n" + body

    async def _drip(self, step: Step) -> None:
        """Send something every so often until the client is gone."""
        stream = bool(self._sent.get("stream"))
        kind = "text/event-stream" if stream else "application/json"
        if not step.data:
            self._writer.write(HEADER + f"Content-Type: {kind}\r\nContent-Length: 50000000\r\n\r\n".encode())
        ping = {"type": "ping"} if self._way.protocol == "anthropic" else {"choices": []}
        token = events(Said(), self._way, "answer ", self._sent)[1 if self._way.protocol == "anthropic" else 0]
        event = f"data: {json.dumps(ping if step.does == 'ping' else token)}\n\n".encode()
        while not self._writer.is_closing():
            self._writer.write(step.data or (event if stream else b" "))
            await self._writer.drain()
            await asyncio.sleep(step.seconds)


class FaultServer:
    """Answers by the kind and the way that the path names. `asked` are the paths and bodies that arrived."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):  # cancelled at the end
            while not writer.is_closing():
                await self._answer(reader, writer)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        path = head.split(" ", 2)[1]
        length = re.search(r"(?i)^content-length: *(\d+)", head, re.MULTILINE)
        body = (await reader.readexactly(int(length[1]))).decode() if length else ""
        self.asked.append((path, body))
        _, kind_name, way_name, *_ = map(unquote, path.split("/"))
        kind, way = KINDS[kind_name], WAYS[way_name]
        if not body:
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        numbers = QUESTION.findall(body)
        is_faulty = bool(numbers) and int(numbers[-1]) % kind.each == 0
        await Exchange(writer, way, body).act(kind.steps if is_faulty else (Step("answer"),))
        if re.search(r"(?i)^connection: *close", head, re.MULTILINE):
            writer.close()


@contextmanager
def fault_server() -> Iterator[tuple[str, FaultServer]]:
    """The server in a thread, with its address without a path."""
    loop, server = asyncio.new_event_loop(), FaultServer()
    listening = loop.run_until_complete(asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=512))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(_cancel_all(loop))
        listening.close()
        loop.close()


async def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
