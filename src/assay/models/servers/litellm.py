"""Whatever LiteLLM speaks to: a hundred providers by one library, which is an extra."""

import logging
import os
from contextvars import ContextVar
from functools import wraps
from typing import Any

from assay.errors import ConfigError, Place, Problem, installing
from assay.models.conversations import sent_messages
from assay.models.reasoning import Draft
from assay.models.servers.http import Refused, redirected
from assay.models.servers.providers import rules_for
from assay.models.servers.served import OWN, Connection, Served, stops_of, temperature_of
from assay.models.servers.usage import finish_of, usage
from assay.records import Generate, Response, Trouble
from assay.user_code import UserCodeError, user_code

PASSING = ("APIConnectionError", "InternalServerError", "RateLimitError", "ServiceUnavailableError", "Timeout", "APIError",
           "BadGatewayError")  # fmt: skip

_refused: ContextVar[list[str] | None] = ContextVar("_refused", default=None)
"""While a request of ours is under way: the redirects that were not followed."""


class LiteLLM(Served):
    """A model by LiteLLM's name for it (`provider/model`): conversations. Keys are where LiteLLM looks for them."""

    name = "litellm"
    without = frozenset({"header", "stream", "verify_certificate", "ca_cert_path", "seed"})

    def __init__(self, model: str, connection: Connection | None = None) -> None:
        is_openai = rules_for(model.rpartition("/")[2], "api.openai.com")
        self.samples = (
            "always" if "temperature" in is_openai.refuses else self.samples
        )  # the library leaves it out then
        super().__init__(model, connection)
        if len(self.urls) > 1:
            what = "LiteLLM asks one address"
            raise ConfigError([Problem(Place("model_args.base_url"), what, "give one, or use openai-chat")])
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it opens a connection to be imported
        try:
            import litellm
        except ModuleNotFoundError:
            what, fix = "litellm is not installed", installing("litellm")
            raise ConfigError([Problem(Place("model"), what, fix)]) from None
        litellm.suppress_debug_info = True
        litellm.drop_params = True  # what a provider does not know is left out by the library that knows it
        logging.getLogger("LiteLLM").setLevel(logging.ERROR)
        _follow_no_redirects()
        self._complete: Any = litellm.acompletion

    async def __aenter__(self) -> "LiteLLM":
        return self  # the library keeps its own connections

    async def __aexit__(self, *_: object) -> None:
        import litellm

        close = getattr(litellm, "close_litellm_async_clients", None)
        if close is not None:
            await close()

    async def generate(self, request: Generate) -> Response:
        params, stops = request.params, stops_of(request.params)
        limit = self.limit(params)
        given = {"api_base": self.urls[0] or None, "api_key": self.key, "max_tokens": limit, "stop": stops or None}
        if self.tags is not None:
            given.pop("stop")
        more = {key: value for key, value in params.items() if key not in OWN}
        redirects: list[str] = []
        started = _refused.set(redirects)
        try:
            async with user_code("litellm"):
                answer = await self._complete(
                    model=self.model, messages=sent_messages(request.prompt), temperature=temperature_of(params),
                    timeout=self.connection.timeout, max_retries=0, **{k: v for k, v in given.items() if v is not None}, **more,
                )  # fmt: skip
        except UserCodeError as error:  # its errors are those of a hundred libraries, told apart by name
            raise (Refused(redirects[0]) if redirects else self._told(error.__cause__ or error)) from None
        finally:
            _refused.reset(started)
        return _read(answer, Draft(stops, self.tags))

    def _told(self, error: BaseException) -> Exception:
        """An error of the library as what it means for the request."""
        message = self.http.clean(f"{type(error).__name__}: {error}")[:400]
        kind = type(error).__name__
        if kind in PASSING or isinstance(error, TimeoutError | OSError):
            gone = kind == "APIConnectionError" or "Connection error" in message or isinstance(error, OSError)
            return Trouble(message, slow_down=kind in ("RateLimitError", "Timeout"), gone=gone)
        return Refused(message)


def _follow_no_redirects() -> None:
    """Have httpx follow no redirect of our requests: LiteLLM has no setting for it, and httpx keeps headers such as
    `x-api-key` on the way to another host. Whatever else this process asks by httpx is as it was."""
    import httpx

    send, send_now = httpx.AsyncClient.send, httpx.Client.send
    if getattr(send, "__wrapped__", None) is not None:
        return

    def noted(answer: Any, redirects: list[str]) -> Any:
        if answer.is_redirect:
            redirects.append(redirected(answer.status_code, answer.headers.get("Location")))
        return answer

    @wraps(send)
    async def send_async(self: Any, request: Any, **options: Any) -> Any:
        redirects = _refused.get()
        if redirects is None:
            return await send(self, request, **options)
        return noted(await send(self, request, **{**options, "follow_redirects": False}), redirects)

    @wraps(send_now)
    def send_sync(self: Any, request: Any, **options: Any) -> Any:
        redirects = _refused.get()
        if redirects is None:
            return send_now(self, request, **options)
        return noted(send_now(self, request, **{**options, "follow_redirects": False}), redirects)

    httpx.AsyncClient.send, httpx.Client.send = send_async, send_sync  # type: ignore[method-assign]


def _read(answer: Any, draft: Draft) -> Response:
    choice, used = answer.choices[0], getattr(answer, "usage", None)
    message = choice.message
    if message.content is None and not getattr(message, "reasoning_content", None):
        raise Refused(f"the model answered without a text (finish_reason: {choice.finish_reason})")
    draft.add(message.content, getattr(message, "reasoning_content", None))
    draft.finish = finish_of(choice.finish_reason)
    draft.usage = usage(getattr(used, "prompt_tokens", 0), getattr(used, "completion_tokens", 0))
    return draft.whole()
