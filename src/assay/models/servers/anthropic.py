"""Anthropic's messages: conversations, with thinking kept apart."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing

from assay.models.conversations import sent_messages
from assay.models.protocol import PermanentError, RetryableError
from assay.models.reasoning import Draft
from assay.models.servers.http import error_message
from assay.models.servers.server_model import RENAMED_PARAMETERS, Connection, ServerModel, stops_of, temperature_of
from assay.models.servers.usage import RequestBody, ServerObject, finish_of, mapping_of, token_count
from assay.records import JSON, Generate, Request, Response, Usage

VERSION = "2023-06-01"
LARGEST = 32_000
"""Limit where the task sets none: the protocol requires a number."""
FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
PARTS: Mapping[str | None, tuple[str, ...]] = {
    None: ("text", "thinking", "partial_json"),
    "text": ("text",),
    "text_delta": ("text",),
    "thinking": ("thinking",),
    "thinking_delta": ("thinking",),
    "input_json_delta": ("partial_json",),
}
"""Keys of the text by the type of a block or delta: one of them must be there."""
RATE_LIMITED = ("overloaded_error", "rate_limit_error")
RETRYABLE = (*RATE_LIMITED, "api_error", "timeout_error")


class Anthropic(ServerModel):
    """Claude, by Anthropic's messages. `thinking` is its reasoning budget in tokens."""

    name = "anthropic"
    public = "https://api.anthropic.com/v1"
    variables = ("ANTHROPIC_API_KEY",)
    endings = ("/messages",)
    unsupported_connection = frozenset({"seed"})

    def __init__(self, model: str, connection: Connection | None = None, *, thinking: int | None = None) -> None:
        self.samples = "always" if thinking is not None else self.samples  # it has no temperature then
        super().__init__(model, connection, thinking=thinking)
        self._thinking = thinking
        self.thinks = self.thinks or thinking is not None

    def headers(self) -> dict[str, str]:
        return {"anthropic-version": VERSION, **({"x-api-key": self.key} if self.key else {})}

    def max_output(self, request: Request) -> int:
        return super().max_output(request) + (self._thinking or 0)

    async def generate(self, request: Generate) -> Response:
        limit = self.limit(request.params) or LARGEST
        stops = stops_of(request.params)
        draft, body = Draft(stops), self._body(request, limit, stops)
        if not self.is_streamed(limit):
            _fill(draft, await self.http.post("/messages", body))
        else:
            async with aclosing(self.http.stream("/messages", {**body, "stream": True})) as events:  # type: ignore[type-var]
                async for event in events:
                    _add_event(draft, event)
        if draft.finish is None:
            raise RetryableError("incomplete answer: the stream ended before the answer did")
        return draft.whole()

    def _body(self, request: Generate, limit: int, stops: Sequence[str]) -> RequestBody:
        """Return the body, with the system message apart. Anthropic refuses stop strings of white space: they are applied here."""
        messages = sent_messages(request.prompt)
        system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
        more = {key: value for key, value in request.params.items() if key not in RENAMED_PARAMETERS}
        visible = [stop for stop in stops if stop.strip()]
        thinking = {"type": "enabled", "budget_tokens": self._thinking} if self._thinking is not None else None
        return {
            "model": self.model,
            "max_tokens": limit + (self._thinking or 0),
            "messages": [message for message in messages if message["role"] != "system"],
            **({"system": system} if system else {}),
            **({"stop_sequences": visible} if visible else {}),
            **({"thinking": thinking} if thinking else {"temperature": temperature_of(request.params)}),
            **more,
        }


def _fill(draft: Draft, answer: ServerObject) -> None:
    if not isinstance(answer["content"], list):
        raise TypeError(f"content must be a list of blocks, got {type(answer['content']).__name__}")
    for block in answer["content"]:
        _add(draft, block)
    _finish(draft, answer["stop_reason"])
    draft.usage = _usage(answer.get("usage"), Usage())


def _add_event(draft: Draft, event: ServerObject) -> None:
    """Add a stream event to the draft."""
    match event.get("type"):
        case "message_start":
            draft.usage = _usage(event["message"].get("usage"), Usage())
        case "content_block_delta":
            _add(draft, event["delta"])
        case "message_delta":
            _finish(draft, event["delta"].get("stop_reason"))
            draft.usage = _usage(event.get("usage"), draft.usage or Usage())
        case "error":
            error = event.get("error") or {}
            message = f"{error.get('type')}: {error_message(str(error.get('message')))}"
            if error.get("type") in RETRYABLE:
                raise RetryableError(message, rate_limited=error.get("type") in RATE_LIMITED)
            raise PermanentError(message)
        case "message" | None:
            _fill(draft, event)


def _add(draft: Draft, block: ServerObject) -> None:
    """Add a block or delta. A known type must have its text; other types have none."""
    kind = block.get("type")
    keys = PARTS.get(kind) if isinstance(kind, str | None) else ()
    if keys is not None and not any(isinstance(block.get(name), str) for name in keys):
        raise TypeError(f"a content block has no text ({' or '.join(keys) or 'type'})")
    draft.add(block.get("text"), block.get("thinking"))


def _finish(draft: Draft, reason_sent: JSON) -> None:
    reason = finish_of(reason_sent)
    if reason == "refusal":
        raise PermanentError("the model refused to answer (stop_reason: refusal)")
    draft.finish = FINISHES.get(reason, reason) if reason is not None else draft.finish


def _usage(counts: JSON, before: Usage) -> Usage:
    """Return the usage so far; counts that an event does not report stay as before."""
    reported = mapping_of(counts)
    stored = token_count(reported.get("cache_read_input_tokens")) or before.stored
    fresh = token_count(reported.get("input_tokens")) + token_count(reported.get("cache_creation_input_tokens"))
    read = fresh + stored if reported.get("input_tokens") is not None else before.read
    return before._replace(
        read=read, written=token_count(reported.get("output_tokens")) or before.written, stored=min(read, stored)
    )
