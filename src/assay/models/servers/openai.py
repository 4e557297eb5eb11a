"""Servers that speak OpenAI's protocol: generation, by completions or in conversations."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import ClassVar, Literal

from assay.config.task import GenerationParams
from assay.errors import ConfigError
from assay.models.conversations import render_request, sent_messages
from assay.models.endings import FAULTS
from assay.models.protocol import Can, PermanentError, PerParams, RetryableError
from assay.models.reasoning import END, START, Draft
from assay.models.servers.bodies import StreamLimits
from assay.models.servers.http import DONE
from assay.models.servers.likelihoods import LoglikelihoodClient
from assay.models.servers.reading import (
    RequestBody,
    ServerObject,
    add_openai_event,
    fill_openai,
    is_whole,
    mapping_of,
    refuse_bad_end,
    reported_length,
    slot_length,
    tokens_of,
)
from assay.models.servers.server_model import (
    PROBE,
    RENAMED_PARAMETERS,
    Connection,
    ServerModel,
    offers_tools,
    read_rest,
    seed_of,
    stops_of,
    temperature_of,
)
from assay.models.tokenizer import ServerTokenizer, load_tokenizer
from assay.records import (
    JSON,
    UNREPORTED,
    Failed,
    Generate,
    Loglikelihood,
    Message,
    Prompt,
    Request,
    Response,
    Text,
    Usage,
)


@dataclass(frozen=True, slots=True)
class ProviderRules:
    """Parameter rules of a provider's model: the name of the limit, refused parameters, the maximum number of stop
    strings, whether it reasons before it answers."""

    limit_key: str = "max_tokens"
    refuses: tuple[str, ...] = ()
    max_stops: int | None = None
    thinks: bool = False

    def applied(self, params: RequestBody) -> RequestBody:
        applied = {key: value for key, value in params.items() if key not in self.refuses}
        if self.limit_key != "max_tokens" and "max_tokens" in applied:
            applied[self.limit_key] = applied.pop("max_tokens")
        if not applied.get("stop"):
            applied.pop("stop", None)
        elif self.max_stops is not None:
            applied["stop"] = applied["stop"][: self.max_stops]
        return applied


REASONING = ProviderRules("max_completion_tokens", ("temperature", "stop"), thinks=True)
PROVIDER_RULES: tuple[tuple[str, str, ProviderRules], ...] = (
    ("*api.openai.com*", "o[1-9]*", REASONING),
    ("*api.openai.com*", "gpt-5*", REASONING),
    ("*api.openai.com*", "*", ProviderRules(max_stops=4)),
)
"""Rules by address and model pattern: the first match counts."""


def rules_for(model: str, url: str) -> ProviderRules:
    return next(
        (rules for at, name, rules in PROVIDER_RULES if fnmatchcase(url, at) and fnmatchcase(model, name)),
        ProviderRules(),
    )


OverLength = Literal["error", "truncate"]
NATIVE_PATHS = {"sglang": "/generate", "llamacpp": "/completion"}
"""Paths outside of the protocol, by the source of log-likelihoods."""


class OpenAIServer(ServerModel):
    """The common part of completions and chat: everything but the path and the form of a prompt."""

    public = "https://api.openai.com/v1"
    variables = ("OPENAI_API_KEY",)
    endings = ("/chat/completions", "/completions")
    path = ""
    unsupported_arguments: ClassVar[Mapping[str, str]] = {"engine": "write model=… for engine=…"}

    def __init__(
        self,
        model: str,
        connection: Connection | None,
        *,
        n: bool,
        likelihoods: LoglikelihoodClient,
        **identity_fields: JSON,
    ) -> None:
        super().__init__(model, connection, likelihoods=likelihoods.source, cut=likelihoods.cut, **identity_fields)
        self._rules = rules_for(self.model, self.urls[0])
        self.samples = "always" if "temperature" in self._rules.refuses else self.samples
        self.thinks = self.thinks or self._rules.thinks
        self.answers_repeats = n
        self._sent_params = PerParams(self._parameters)
        self._is_counting_known = self.connection.base_url is None  # a provider's own address
        self._one_check = asyncio.Lock()
        self._likelihoods = likelihoods
        self.cuts = likelihoods.cut
        likelihoods.post = self._post
        likelihoods.post_native = partial(self._post_outside, NATIVE_PATHS.get(likelihoods.source or "", ""))
        likelihoods.max_length = self.max_length

    async def __aenter__(self) -> "OpenAIServer":
        self._one_check = asyncio.Lock()  # of the loop in which the model is opened
        await super().__aenter__()
        return self

    async def greet(self) -> None:
        await super().greet()
        if (
            self.http.slots is not None
        ):  # llama.cpp counts the tokens of one answer for all, which take a slot each either way
            self.answers_repeats = False

    async def generate(self, request: Generate) -> Response:
        return (await self._generate([request]))[0]

    async def ask_repeats(self, requests: Sequence[Request]) -> Sequence[Response]:
        """Send repeats as one request; a server that returns fewer is sent single requests from then on."""
        if not self.answers_repeats:  # known since the request was queued
            return await super().ask_repeats(requests)
        generate = [request for request in requests if isinstance(request, Generate)]
        responses: list[Response] = []
        with (
            self._protocol_errors(requests[0]),
            suppress(PermanentError),
        ):  # it may refuse n > 1: single requests show why
            responses = [self._checked(response, requests[0]) for response in await self._generate(generate)]
            if len(responses) >= len(requests) and not _are_all_counted(responses, generate[0].params):
                await self._learn_counting()
        if len(responses) < len(requests):
            self.answers_repeats = False
            responses = [*responses, *await super().ask_repeats(requests[len(responses) :])]
        return responses[: len(requests)]

    async def respond(self, request: Request) -> Response:
        if isinstance(request, Generate):
            return await self.generate(request)
        if isinstance(request, Loglikelihood):
            return await self._likelihoods.of(request.context, request.continuation)
        return await self._likelihoods.rolling(request.text)

    async def _learn_counting(self) -> None:
        """Ask once for two answers of one token each. Their usage tells whether the server counts the tokens of all answers; of any
        other number than two, what it counts is a lower bound."""
        async with self._one_check:
            if self._is_counting_known:
                return
            self.is_usage_bound = True
            one_token = Generate(PROBE, {"max_gen_toks": 1, "do_sample": False, "until": []})
            with suppress(RetryableError), self._protocol_errors():
                try:
                    drafts, _ = await self._drafts([one_token, one_token])
                except PermanentError:
                    drafts = []
                used = drafts[0].usage if drafts and not isinstance(drafts, Failed) else None
                self.is_usage_bound = used is None or used.written not in (0, 2)
                self._is_counting_known = True

    async def _generate(self, requests: Sequence[Generate]) -> list[Response]:
        drafts, cut = await self._drafts(requests)
        if isinstance(drafts, Failed):
            return [drafts] * len(requests)
        return [_ended(draft, cut) for draft in drafts if draft.usage is not None]

    async def _drafts(self, requests: Sequence[Generate]) -> tuple[Sequence[Draft] | Failed, int]:
        """Return the answers to repeats, and the number of truncated tokens; those without usage did not come."""
        params = requests[0].params
        limit, stops, sent = self._sent_params.of(params)
        prompt, cut = self._fitting(requests[0], limit)
        if isinstance(prompt, Failed):
            return prompt, 0
        body = {
            "model": self.model,
            **self._prompt_fields(prompt),
            **sent,
        }
        if self.connection.seed is not None:
            body["seed"] = seed_of(requests[0], self.connection.seed)
        if len(requests) > 1:
            body["n"] = len(requests)
        offers = offers_tools(params)
        drafts = [Draft(stops, self.tags, self.max_text(limit), tools=offers) for _ in requests]
        if self.is_streamed(limit) and "tools" not in params:
            limits = self.max_stream(limit if limit is None else limit * len(requests))
            await self._stream(body, drafts, limits)
        else:
            fill_openai(drafts, await self.http.post(self.path, body))
        return drafts, cut

    async def _stream(self, body: Mapping[str, JSON], drafts: Sequence[Draft], limits: StreamLimits) -> None:
        """Add chunks as they come, until all answers ended or reached a stop string."""
        options: dict[str, JSON] = {"stream": True, "stream_options": {"include_usage": True}}
        open_ones, is_over = set(range(len(drafts))), False
        async with aclosing(self.http.stream(self.path, {**body, **options}, limits)) as events:  # type: ignore[type-var]
            async for event in events:
                is_over = self._add(event, drafts, open_ones)
                if is_over or not open_ones:
                    break
            began = [draft for draft in drafts if draft.has_ended or (is_over and draft.has_begun)]
            if not began or any(draft.has_begun and not draft.has_ended and not is_over for draft in drafts):
                raise RetryableError(FAULTS["broken off"].sentence)
            if len(began) < len(drafts):  # a gateway may have given the pieces of all answers to one
                return
            if is_over:
                for draft in began:
                    draft.finish = draft.finish or UNREPORTED
                await read_rest(events, lambda event: self._add(event, drafts, set()))
        for draft in began:
            draft.usage = draft.usage or Usage()
        if not open_ones:  # closed at a stop string, before the server reported usage: count the chunks
            began[0].usage = Usage(written=sum(draft.pieces for draft in drafts))

    def _add(self, event: ServerObject, drafts: Sequence[Draft], open_ones: set[int]) -> bool:
        """Add an event of a stream; return whether it is the last one. Answers that need no more leave `open_ones`."""
        if event is DONE:
            return True
        if is_whole(event):
            fill_openai(drafts, event)
            return True
        open_ones -= add_openai_event(drafts, event)
        return False

    def _parameters(self, params: GenerationParams) -> tuple[int | None, Sequence[str], RequestBody]:
        """Return the token limit, the stop strings, and the parameters with the server's names. A model that reasons is sent
        no stop strings: they end the answer only."""
        limit, stops = self.limit(params), stops_of(params)
        sent = {
            "temperature": temperature_of(params),
            **{key: value for key, value in params.items() if key not in RENAMED_PARAMETERS},
        }
        if limit is not None:
            sent["max_tokens"] = limit
        if stops and self.tags is None:
            sent["stop"] = list(stops)
        return limit, stops, self._rules.applied(sent)

    def _prompt_fields(self, prompt: Prompt | list[int]) -> RequestBody:
        raise NotImplementedError

    def _fitting(self, request: Generate, limit: int | None) -> tuple[Prompt | list[int] | Failed, int]:  # noqa: ARG002
        """Return a prompt that fits, and the number of truncated tokens. Without a tokenizer the server decides."""
        return request.prompt, 0

    async def _post(self, body: Mapping[str, JSON]) -> ServerObject:
        answer: ServerObject = await self.http.post(self.path, {"model": self.model, **body})
        refuse_bad_end(answer)
        return answer

    async def _get_outside(self, path: str) -> ServerObject:
        """Return what a path outside of the protocol has; empty without it."""
        return mapping_of(await self.http.get(self._outside(path)))

    def _outside(self, path: str) -> str:
        return f"/..{path}" if self._place.endswith("/v1") else path

    async def _post_outside(self, path: str, body: Mapping[str, JSON]) -> ServerObject:
        """Post to a path outside of the protocol."""
        answer: ServerObject = await self.http.post(self._outside(path), body)
        refuse_bad_end(answer)
        return answer


class OpenAIChat(OpenAIServer):
    """Chat completions by OpenAI's protocol. Log-likelihoods only of one-token answers, with `likelihoods=generated`."""

    name = "openai-chat"
    path = "/chat/completions"

    def __init__(
        self, model: str | None = None, connection: Connection | None = None, *, pretrained: str | None = None,
        n: bool = True, likelihoods: Literal["generated"] | None = None, enable_thinking: bool | None = None,
    ) -> None:  # fmt: skip
        client = LoglikelihoodClient(likelihoods, None, chat=True)
        thinking = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        self._template: RequestBody = {"chat_template_kwargs": thinking} if thinking else {}
        # as a text: False is left out of identities
        identity: RequestBody = {"template": str(thinking)} if thinking else {}
        super().__init__(_named(model, pretrained), connection, n=n, likelihoods=client, **identity)
        self.can = Can(
            generate=True, loglikelihood=likelihoods is not None, rolling=False, chat=True, schema=True, tools=True,
            samples=self.samples,
        )  # fmt: skip

    def _prompt_fields(self, prompt: Prompt | list[int]) -> RequestBody:
        assert not isinstance(prompt, list)
        return {"messages": sent_messages(prompt), **self._template}


class OpenAI(OpenAIServer):
    """Completions by OpenAI's protocol, with log-likelihoods of prompts."""

    name = "openai"
    path = "/completions"

    def __init__(  # noqa: PLR0913  # lm-eval's arguments, by its names
        self, model: str | None = None, connection: Connection | None = None, *, pretrained: str | None = None,
        tokenizer: str | None = None, tokenizer_backend: str | None = None, custom_prefix_token_id: int | None = None,
        likelihoods: Literal["echo", "prompt", "sglang", "llamacpp", "generated"] = "echo", over_length: OverLength = "error",
        truncate: bool = False, n: bool = True,
    ) -> None:  # fmt: skip
        named = _named(model, pretrained)
        loaded = load_tokenizer(tokenizer, tokenizer_backend, named)
        if likelihoods == "llamacpp" and loaded is None:
            loaded = ServerTokenizer()
        if likelihoods == "sglang" and loaded is None:
            what, fix = (
                "SGLang reports no text offsets",
                "give tokenizer=FOLDER, or tokenizer_backend=remote",
            )
            raise ConfigError.at("model_args.likelihoods", what, fix)
        cut = truncate or over_length == "truncate"
        client = LoglikelihoodClient(likelihoods, loaded, cut=cut, prefix=custom_prefix_token_id)
        super().__init__(named, connection, n=n, likelihoods=client, prefix=custom_prefix_token_id)
        if loaded is None:
            self.remarks["loglikelihood"] = (
                f"{self.name}: without a tokenizer the server must report text offsets, and log-likelihoods may differ a little"
                " from lm-eval's; give tokenizer=FOLDER, or tokenizer_backend=remote or tiktoken"
            )
        if self.max_length is None and loaded is not None and loaded.max_length is not None:
            client.length_source = " (from tokenizer_config.json)"
        self._tokenizer, self._first = loaded, custom_prefix_token_id
        self.max_length = client.max_length = self.max_length or (loaded.max_length if loaded is not None else None)
        self.can = Can(chat=loaded is not None, rolling=likelihoods != "generated", samples=self.samples)

    def _identity_with(self, reply: str | None) -> str:
        return f"{super()._identity_with(reply)} {self._tokenizer.identity if self._tokenizer is not None else ''}"

    async def __aenter__(self) -> "OpenAI":
        await super().__aenter__()
        async with AsyncExitStack() as undo:  # closes the connection if the tokenizer is unreachable
            undo.push_async_callback(self.__aexit__)
            if isinstance(self._tokenizer, ServerTokenizer):
                with self._protocol_errors():
                    await self._tokenizer.start(self._tokens, self._first, await self._first_tokens())
            undo.pop_all()
        return self

    async def greet(self) -> None:
        await super().greet()
        if self.max_length is None:
            self._likelihoods.length_source = " (from the server)"
            async with self.http:
                length = reported_length(await self.http.get("/models"), self.model)
                if length is None and self._likelihoods.source == "llamacpp":
                    length = slot_length(await self._get_outside("/props"))
                self.max_length = self._likelihoods.max_length = length

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        if self._tokenizer is None:
            what, fix = (
                f"{self.name} has no chat template without a tokenizer",
                "give tokenizer=FOLDER, or use openai-chat",
            )
            raise ConfigError.at("model_args.tokenizer", what, fix)
        return self._tokenizer.chat_template(messages, add_generation_prompt)

    async def respond(self, request: Request) -> Response:
        if isinstance(request, Loglikelihood) and not isinstance(request.context, str):
            written = render_request(request, self.chat_template)
            return written if isinstance(written, Failed) else await super().respond(written)
        return await super().respond(request)

    def count_tokens(self, text: str) -> int | None:
        known = self._tokenizer is not None and not isinstance(self._tokenizer, ServerTokenizer)
        return len(self._tokenizer.encode(text)) if known and self._tokenizer is not None else None

    def limit(self, params: GenerationParams) -> int | None:
        """Always set a limit: some servers end completions after sixteen tokens without one."""
        limit = super().limit(params)
        return limit if limit is not None or self.max_length is None else max(self.max_length // 2, 1)

    def _prompt_fields(self, prompt: Prompt | list[int]) -> RequestBody:
        return {"prompt": prompt}

    def _fitting(self, request: Generate, limit: int | None) -> tuple[Prompt | list[int] | Failed, int]:
        written = render_request(request, self.chat_template)
        if isinstance(written, Failed):
            return written, 0
        prompt = written.text
        if self.max_length is None or len(prompt.encode()) + (limit or 0) <= self.max_length:
            return prompt, 0
        if self._tokenizer is None or isinstance(self._tokenizer, ServerTokenizer):
            return prompt, 0
        tokens, space = self._tokenizer.encode(prompt), self.max_length - (limit or 0)
        if len(tokens) <= space:
            return prompt, 0
        if not self.cuts or space <= 0:
            return Failed(
                f"{len(tokens)} tokens plus {limit} generated ones exceed the model's context length of {self.max_length}"
                f"{self._likelihoods.length_source}"
            ), 0
        return tokens[-space:], len(tokens) - space

    async def _first_tokens(self) -> list[int]:
        """Return the server's tokens of an empty text, which begin with BOS. llama.cpp names its BOS or EOS where the model puts
        none before a text."""
        tokens = await self._tokens("", special=True)
        if tokens or self._likelihoods.source != "llamacpp":
            return tokens
        props = mapping_of(await self._get_outside("/props"))
        named = props.get("bos_token") or props.get("eos_token")
        return await self._tokens(named) if isinstance(named, str) else []

    async def _tokens(self, text: str, special: bool = False) -> list[int]:
        """Return the server's tokens of a text, from its `/tokenize`."""
        body: dict[str, JSON] = {"model": self.model, "prompt": text, "add_special_tokens": special}
        if self._likelihoods.source == "llamacpp":
            body = {"model": self.model, "content": text, "add_special": special, "parse_special": True}
        try:
            return tokens_of(await self._post_outside("/tokenize", body))
        except PermanentError as refused:
            what, fix = f"the server's /tokenize failed: {refused}", "give tokenizer=FOLDER"
            raise ConfigError.at("model_args.tokenizer_backend", what, fix) from None


def _named(model: str | None, pretrained: str | None) -> str:
    name = model or pretrained
    if not name:
        what = "a model behind a server needs the argument 'model'"
        raise ConfigError.at("model_args", what, "add model=… to --model_args")
    return name


def _are_all_counted(responses: Sequence[Response], params: GenerationParams) -> bool:
    """Whether the reported tokens are more than one of the answers can have, or none are reported. A token has at least one
    byte; those of the end, of a stop string and around the reasoning are not in the text."""
    texts = [response for response in responses if isinstance(response, Text)]
    written = sum(text.usage.written for text in texts if text.usage is not None)
    hidden = max((len(stop.encode()) for stop in stops_of(params)), default=0) + 1
    most = max((_bytes_of(text) for text in texts), default=0) + hidden
    return not written or (written > most and not any(text.calls for text in texts))


def _bytes_of(text: Text) -> int:
    return len(text.text.encode()) + (len(f"{START}{text.reasoning}{END}".encode()) if text.reasoning else 0)


def _ended(draft: Draft, cut: int) -> Response:
    response = draft.whole()
    if isinstance(response, Failed) or not cut:
        return response
    return response._replace(usage=(response.usage or Usage())._replace(cut=cut))
