"""Answers of servers, whole and streamed, of every protocol that a backend speaks."""

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from hypothesis import strategies as st

from assay.models.load import load_model
from assay.models.local.embedded import BUNDLED as EMBEDDED
from assay.models.protocol import PermanentError, RetryableError
from assay.models.tokenizer import load_tokenizer
from assay.records import Generate, Loglikelihood, Message, Request, Rolling
from fuzz.doors import Files
from fuzz.mutations import mutated, mutated_bytes
from serving import Arrived, loopback

PLAIN = {"until": [], "max_gen_toks": 5}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USED = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}
CHAT = {
    "id": "1", "model": "m", "choices": [{"index": 0, "finish_reason": "stop", "message": {
        "role": "assistant", "content": "x", "reasoning_content": "hm", "tool_calls": [CALL]}}], "usage": USED,
}  # fmt: skip
NEXT = {
    "model": "m", "choices": [{"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "b"}, "logprobs": {
        "content": [{"token": "b", "logprob": -0.5, "top_logprobs": [{"token": "b", "logprob": -0.5}, {"token": "c", "logprob": -1.5}]}]}}],
    "usage": USED,
}  # fmt: skip
SCORED = {
    "model": "m", "choices": [{"index": 0, "text": "a b", "finish_reason": "length", "logprobs": {
        "tokens": ["a", " b"], "token_logprobs": [None, -1.5], "top_logprobs": [None, {" b": -1.5}], "text_offset": [0, 1]}}],
    "usage": {"prompt_tokens": 2, "completion_tokens": 0},
}  # fmt: skip
CLAUDE = {
    "model": "m", "role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "x"}, {"type": "tool_use", "id": "1", "name": "f", "input": {}}],
    "stop_reason": "end_turn", "usage": {"input_tokens": 7, "output_tokens": 2, "cache_read_input_tokens": 3},
}  # fmt: skip
CHAT_EVENTS: list[Any] = [
    {"model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "reasoning_content": "h"}, "finish_reason": None}]},
    {"model": "m", "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}]},
    {"model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **CALL}]}, "finish_reason": None}]},
    {"model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"model": "m", "choices": [], "usage": USED},
    "[DONE]",
]  # fmt: skip
TEXT_EVENTS: list[Any] = [
    {"model": "m", "choices": [{"index": 0, "text": "x", "finish_reason": None}]},
    {"model": "m", "choices": [{"index": 0, "text": "y", "finish_reason": "stop"}]},
    {"model": "m", "choices": [], "usage": USED},
    "[DONE]",
]
CLAUDE_EVENTS: list[Any] = [
    {"type": "message_start", "message": {**CLAUDE, "content": [], "stop_reason": None}},
    {"type": "ping"},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "1", "name": "f", "input": {}}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
]  # fmt: skip


class Protocol(NamedTuple):
    """A backend with its arguments, a request, and the right answer to it."""

    backend: str
    request: Request
    answer: Any
    arguments: Mapping[str, Any] = {}
    probed: Any = None
    """The answer to requests of the backend's own; None where it is the same."""


@cache
def protocols() -> Mapping[str, Protocol]:
    tokenizer = load_tokenizer(str(EMBEDDED), None, "m")
    assert tokenizer is not None
    tokens = tokenizer.encode("a b c")
    listed = [None, *({str(each): {"logprob": -1.5, "rank": 1, "decoded_token": "b"}} for each in tokens[1:])]
    vllm = {"model": "m", "choices": [{"index": 0, "text": "x", "prompt_logprobs": listed}], "usage": USED}
    pairs = [[-1.5, each, None] for each in tokens]
    sglang = {"text": "x", "meta_info": {"input_token_logprobs": pairs, "input_top_logprobs": [[pair] for pair in pairs],
                                         "prompt_tokens": 3, "completion_tokens": 1, "cached_tokens": 0}}  # fmt: skip
    known = {"tokenizer": str(EMBEDDED), "max_length": 64}
    plain = Generate("q", PLAIN)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    tools = Generate((Message("user", "q"),), {**PLAIN, "tools": [tool]})
    return {
        "openai-chat": Protocol("openai-chat", plain, CHAT),
        "openai-chat-turns": Protocol("openai-chat", tools, CHAT, {"reasoning": True}),
        "openai-chat-next": Protocol("openai-chat", Loglikelihood("q", "b"), NEXT, {"likelihoods": "generated"}),
        "openai-chat-stream": Protocol("openai-chat", plain, CHAT_EVENTS, {"stream": True}, CHAT),
        "openai": Protocol("openai", plain, SCORED),
        "openai-stream": Protocol("openai", plain, TEXT_EVENTS, {"stream": True}, SCORED),
        "openai-likelihood": Protocol("openai", Loglikelihood("a", " b"), SCORED),
        "openai-rolling": Protocol("openai", Rolling("a b"), SCORED),
        "openai-tokens": Protocol("openai", Loglikelihood("a b", " c"), SCORED, known),
        "openai-vllm": Protocol("openai", Loglikelihood("a b", " c"), vllm, {**known, "likelihoods": "prompt"}),
        "openai-sglang": Protocol("openai", Loglikelihood("a b", " c"), sglang, {**known, "likelihoods": "sglang"}, SCORED),
        "anthropic": Protocol("anthropic", plain, CLAUDE),
        "anthropic-stream": Protocol("anthropic", plain, CLAUDE_EVENTS, {"stream": True}, CLAUDE),
        "reward-pooling": Protocol("reward-http", Loglikelihood("q", "a"), {"data": [{"index": 0, "data": [0.5]}], "usage": USED}),
        "reward-score": Protocol("reward-http", Loglikelihood("q", "a"), {"data": [{"index": 0, "score": 0.5}], "usage": USED}, {"way": "score"}),
        **({"litellm": Protocol("litellm", plain, CHAT, {"model": "openai/m"})} if find_spec("litellm") else {}),
    }  # fmt: skip


def encoded(answer: Any) -> bytes:
    """An answer as it is sent: a list is a stream of events."""
    if not isinstance(answer, list):
        return json.dumps(answer).encode()
    texts = [event if isinstance(event, str) else json.dumps(event) for event in answer]
    return "".join(f"data: {text}\n\n" for text in texts).encode("utf-8", "surrogatepass")


def inputs() -> st.SearchStrategy[Files]:
    def change(name: str) -> st.SearchStrategy[Files]:
        answer = protocols()[name].answer
        values = mutated(answer).map(encoded)
        return st.one_of(values, values, mutated_bytes(encoded(answer))).map(lambda new: {f"{name}.json": new})

    return st.sampled_from(sorted(protocols())).flatmap(change)


def check_answer(files: Files, folder: Path) -> None:
    """A response, or one of the two errors that the engine counts."""
    [(name, body)] = files.items()
    protocol = protocols()[name.removesuffix(".json")]
    headers = {"Content-Type": "text/event-stream"} if isinstance(protocol.answer, list) else {}

    def answer(arrived: Arrived) -> Any:
        if arrived.method == "POST" and b"quick brown" not in arrived.body:
            return 200, headers, body
        return encoded(protocol.probed or protocol.answer)

    async def work(url: str) -> None:
        arguments = {"model": "m", "base_url": url, "timeout": 5, "max_retries": 1, **protocol.arguments}
        model: Any = load_model(protocol.backend, arguments)
        async with model:
            with contextlib.suppress(RetryableError, PermanentError):
                response = await model.ask(protocol.request)
                json.dumps(str(response))

    with mock.patch.dict(os.environ, {"OPENAI_API_KEY": "none"}), loopback(answer) as (url, _):
        asyncio.run(work(url))
