"""A hundred providers through LiteLLM, an optional library."""

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache, wraps
from importlib.util import find_spec
from types import TracebackType
from typing import Any

from assay.errors import ConfigError, installing
from assay.models.conversations import sent_messages
from assay.models.protocol import PermanentError, RetryableError
from assay.models.reasoning import Draft
from assay.models.servers.bodies import ENCODINGS, MB, BodyReader
from assay.models.servers.http import redirect_message
from assay.models.servers.openai import rules_for
from assay.models.servers.reading import ServerObject, fill_openai, finish_of, mapping_of
from assay.models.servers.server_model import (
    RENAMED_PARAMETERS,
    Connection,
    ServerModel,
    offers_tools,
    stops_of,
    temperature_of,
)
from assay.records import UNREPORTED, Failed, Generate, Response
from assay.user_code import UserCodeError, user_code

RETRYABLE = ("APIConnectionError", "InternalServerError", "RateLimitError", "ServiceUnavailableError", "Timeout", "APIError",
           "BadGatewayError")  # fmt: skip

OK = 200
PROTOCOL_PATH = "/chat/completions"
"""The end of the addresses whose answers are of OpenAI's protocol."""
_answers: ContextVar["AnswerRules | None"] = ContextVar("_answers", default=None)


class AnswerRules:
    """Rules for the answers to the current request: redirects are not followed; bodies have a maximum size in bytes, share
    their memory, and come within some seconds: httpx has a limit for the next bytes, which begins anew with each of them.
    `refused` are the reasons of what broke them."""

    def __init__(self, bodies: BodyReader, seconds: float) -> None:
        self._bodies, self._seconds = bodies, seconds
        self._held, self._is_late, self.refused = 0, False, list[str]()
        self.sent = b""
        """The body of an answer in OpenAI's protocol, from which the library makes its own."""

    def broken(self) -> Exception | None:
        """The error of an answer that broke a rule."""
        if self._is_late:
            return RetryableError(f"no answer within {self._seconds:.0f} s", rate_limited=True)
        return PermanentError(self.refused[0]) if self.refused else None

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._seconds):
                yield
        except TimeoutError:
            self._is_late = True
            raise

    def apply(self, answer: Any) -> Any:
        if answer.is_redirect:
            self.refused.append(redirect_message(answer.status_code, answer.headers.get("Location")))
        if answer.request.url.path.endswith(PROTOCOL_PATH) and answer.status_code == OK:
            self.sent = getattr(answer, "_content", b"")
        return answer

    async def read(self, answer: Any) -> None:
        """Read a body as httpx does, within the limit."""
        body = bytearray()
        async with aclosing(answer):
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > self._bodies.limit:
                    error = self._bodies.too_large(f"more than {self._bodies.limit / MB:.0f}")
                    self.refused.append(str(error))
                    raise error
                if not self._held and len(body) > self._bodies.small:
                    self._held = await self._bodies.reserve()
        answer._content = bytes(body)  # the attribute that its own `aread` sets

    def release(self) -> None:
        """Return the memory of the bodies."""
        self.sent = b""
        if self._held:
            gc.collect()  # the library's errors hold bodies in cycles: 60 MB each, until the next collection
            self._bodies.release(self._held)
            self._held = 0


class LiteLLM(ServerModel):
    """Chat by LiteLLM's model name (`provider/model`). Keys are where LiteLLM looks for them."""

    name = "litellm"
    unsupported_connection = frozenset({"header", "stream", "verify_certificate", "ca_cert_path", "seed", "proxy"})

    def __init__(self, model: str, connection: Connection | None = None, *, api_version: str | None = None) -> None:
        rules = rules_for(model.rpartition("/")[2], "api.openai.com")
        # the library drops the temperature then
        self.samples = "always" if "temperature" in rules.refuses else self.samples
        super().__init__(model, connection, **({"api_version": api_version} if api_version else {}))
        self.can = replace(self.can, tools=True)
        self._version = {"api_version": api_version} if api_version else {}
        if len(self.urls) > 1:
            what = "LiteLLM supports one address"
            raise ConfigError.at("model_args.base_url", what, "give one, or use openai-chat")
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise importing it opens a connection
        try:
            import litellm
        except ModuleNotFoundError:
            what, fix = "litellm is not installed", installing("litellm")
            raise ConfigError.at("model", what, fix) from None
        litellm.suppress_debug_info = True
        litellm.drop_params = True  # the library drops parameters that a provider does not support
        litellm.disable_aiohttp_transport = True  # its connections are used again whatever a request says
        for library in ("LiteLLM", "openai", "httpx", "httpcore"):  # at lower levels they log headers and addresses
            logging.getLogger(library).setLevel(logging.ERROR)
        _rule_answers()
        self._complete: Any = litellm.acompletion

    async def __aenter__(self) -> "LiteLLM":
        return self  # the library manages its connections

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        import litellm

        close = getattr(litellm, "close_litellm_async_clients", None)
        if close is not None:
            await close()
        kept = getattr(litellm, "in_memory_llm_clients_cache", None)
        if kept is not None:  # by event loop, of which a new one may have the place of an old one: closed clients fail
            kept.flush_cache()

    async def generate(self, request: Generate) -> Response:
        params, stops = request.params, stops_of(request.params)
        limit = self.limit(params)
        named = {"api_base": self.urls[0] or None, "api_key": self.key, "max_tokens": limit, "stop": stops or None}
        if self.tags is not None:
            named.pop("stop")
        named |= self._version
        more = {key: value for key, value in params.items() if key not in RENAMED_PARAMETERS}
        if "tools" in more and _wants_mcp():
            more["_skip_mcp_handler"] = True
        rules = AnswerRules(BodyReader(self.http.limit, self.http.connections), self.connection.timeout)
        started = _answers.set(rules)
        draft = Draft(stops, self.tags, self.max_text(limit), tools=offers_tools(params))
        try:
            async with user_code("litellm"):
                answer = await self._complete(
                    model=self.model, messages=sent_messages(request.prompt), temperature=temperature_of(params),
                    timeout=self.connection.timeout, max_retries=0, **{k: v for k, v in named.items() if v is not None}, **more,
                )  # fmt: skip
                said = answer.model_dump()
            ended = self._end_as_sent(rules.sent, tools=offers_tools(params))
        except UserCodeError as error:  # its errors are those of a hundred libraries, distinguished by name
            self._end_as_sent(rules.sent, tools=False)  # raises the error that the answer itself reports
            raise (rules.broken() or self._converted(error.__cause__ or error)) from None
        finally:
            _answers.reset(started)
            rules.release()
        if isinstance(ended, Failed):
            return ended
        fill_openai([draft], said)
        draft.finish = ended or _native_reason(said) or draft.finish
        return draft.whole()

    def _end_as_sent(self, sent: bytes, *, tools: bool) -> Failed | str:
        """Return how an answer in OpenAI's protocol ended: the library takes every unknown end, and a missing one, for a good
        one, and drops what it does not know."""
        if not sent:
            return ""
        draft = Draft(tools=tools)
        fill_openai([draft], self.http.parse(sent))
        response = draft.whole()
        return response if isinstance(response, Failed) else draft.finish or UNREPORTED

    def _converted(self, error: BaseException) -> Exception:
        """Convert an error of the library."""
        message = self.http.clean(f"{type(error).__name__}: {error}")[:400]
        kind = type(error).__name__
        if kind in RETRYABLE or isinstance(error, TimeoutError | OSError):
            unreachable = kind == "APIConnectionError" or "Connection error" in message or isinstance(error, OSError)
            return RetryableError(message, rate_limited=kind in ("RateLimitError", "Timeout"), unreachable=unreachable)
        return PermanentError(message)


def _native_reason(said: ServerObject) -> str | None:
    """Return the reason that a provider gave for the end of an answer, where the library gives another one."""
    [choice, *_] = said["choices"]
    return finish_of(mapping_of(choice.get("provider_specific_fields")).get("native_finish_reason"))


@cache
def _wants_mcp() -> bool:
    """Whether this version of the library imports `mcp` for any tools, and it is not installed."""
    handler = "litellm.responses.mcp.chat_completions_handler"
    return (
        find_spec("mcp") is None and find_spec("litellm.responses.mcp") is not None and find_spec(handler) is not None
    )


def _rule_answers() -> None:
    """Make httpx follow no redirect of our requests, and read no body without end: LiteLLM has no settings for it, and httpx
    would send headers such as `x-api-key` to another host. Other uses of httpx in this process are unchanged."""
    import httpx

    send, send_now = httpx.AsyncClient.send, httpx.Client.send
    if getattr(send, "__wrapped__", None) is not None:
        return

    @wraps(send)
    async def send_async(self: Any, request: Any, **options: Any) -> Any:
        rules = _answers.get()
        if rules is None:
            return await send(self, request, **options)
        request.headers["Accept-Encoding"] = ENCODINGS
        request.headers["Connection"] = "close"  # a late response to another request would be taken for this one's
        async with rules.in_time():
            answer = await send(self, request, **{**options, "follow_redirects": False, "stream": True})
            if not options.get("stream"):
                await rules.read(answer)
        return rules.apply(answer)

    @wraps(send_now)
    def send_sync(self: Any, request: Any, **options: Any) -> Any:
        rules = _answers.get()
        if rules is None:
            return send_now(self, request, **options)
        request.headers["Connection"] = "close"
        return rules.apply(send_now(self, request, **{**options, "follow_redirects": False}))

    httpx.AsyncClient.send, httpx.Client.send = send_async, send_sync  # type: ignore[method-assign]
