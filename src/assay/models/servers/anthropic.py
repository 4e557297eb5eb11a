"""Anthropic's messages: conversations, with thinking kept apart."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from assay.models.conversations import sent_messages
from assay.models.endings import FAULTS
from assay.models.protocol import RetryableError
from assay.models.reasoning import Draft
from assay.models.servers.anthropic_tools import tool_parameters, with_blocks
from assay.models.servers.bodies import StreamLimits
from assay.models.servers.http import DONE
from assay.models.servers.reading import RequestBody, add_anthropic_event, fill_anthropic
from assay.models.servers.server_model import (
    RENAMED_PARAMETERS,
    Connection,
    ServerModel,
    offers_tools,
    read_rest,
    stops_of,
    temperature_of,
)
from assay.records import UNREPORTED, Generate, Request, Response

VERSION = "2023-06-01"
LARGEST = 32_000
"""Limit where the task sets none: the protocol requires a number."""


class Anthropic(ServerModel):
    """Claude, by Anthropic's messages. `thinking` is its reasoning budget in tokens."""

    name = "anthropic"
    public = "https://api.anthropic.com/v1"
    variables = ("ANTHROPIC_API_KEY",)
    endings = ("/messages",)
    version = "/v1"  # the SDK adds it to its base_url, too
    unsupported_connection = frozenset({"seed"})

    def __init__(self, model: str, connection: Connection | None = None, *, thinking: int | None = None) -> None:
        self.samples = "always" if thinking is not None else self.samples  # it has no temperature then
        super().__init__(model, connection, thinking=thinking)
        self.can = replace(self.can, tools=True)
        self._thinking = thinking
        self.thinks = self.thinks or thinking is not None

    def headers(self) -> dict[str, str]:
        return {"anthropic-version": VERSION, **({"x-api-key": self.key} if self.key else {})}

    def max_output(self, request: Request) -> int:
        return super().max_output(request) + (self._thinking or 0)

    async def generate(self, request: Generate) -> Response:
        limit = self.limit(request.params) or LARGEST
        stops = stops_of(request.params)
        tokens = limit + (self._thinking or 0)
        draft = Draft(stops, most=self.max_text(tokens), tools=offers_tools(request.params))
        body = self._body(request, limit, stops)
        if not self.is_streamed(limit) or "tools" in request.params:
            fill_anthropic(draft, await self.http.post("/messages", body))
        else:
            await self._stream(draft, body, self.max_stream(tokens))
        return draft.whole()

    async def _stream(self, draft: Draft, body: RequestBody, limits: StreamLimits) -> None:
        is_over = False
        stream = self.http.stream("/messages", {**body, "stream": True}, limits)
        async with aclosing(stream) as events:  # type: ignore[type-var]
            async for event in events:
                is_over = event is DONE or add_anthropic_event(draft, event)
                if is_over:
                    break
            if not (draft.has_ended or (is_over and draft.has_message)):
                raise RetryableError(FAULTS["broken off"].sentence)
            if not draft.fault:
                draft.finish = draft.finish or UNREPORTED
                await read_rest(events, lambda event: event is DONE or add_anthropic_event(draft, event))

    def _body(self, request: Generate, limit: int, stops: Sequence[str]) -> RequestBody:
        """Return the body, with the system message apart. Anthropic refuses stop strings of white space: they are applied here."""
        messages = sent_messages(request.prompt)
        system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
        own = (*RENAMED_PARAMETERS, "tools", "tool_choice")
        more = {key: value for key, value in request.params.items() if key not in own}
        visible = [stop for stop in stops if stop.strip()]
        thinking = {"type": "enabled", "budget_tokens": self._thinking} if self._thinking is not None else None
        return {
            "model": self.model,
            "max_tokens": limit + (self._thinking or 0),
            "messages": with_blocks([message for message in messages if message["role"] != "system"]),
            **({"system": system} if system else {}),
            **({"stop_sequences": visible} if visible else {}),
            **({"thinking": thinking} if thinking else {"temperature": temperature_of(request.params)}),
            **tool_parameters(request.params),
            **more,
        }
