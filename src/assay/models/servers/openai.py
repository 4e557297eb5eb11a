"""Servers that speak OpenAI's protocol: generation, by completions or in conversations."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from functools import partial
from typing import Any, Literal

from assay.errors import ConfigError, Place, Problem
from assay.models.conversations import sent_messages, written_request
from assay.models.protocol import Can
from assay.models.reasoning import Draft
from assay.models.servers.http import Refused, said
from assay.models.servers.likelihoods import Likelihoods
from assay.models.servers.providers import rules_for
from assay.models.servers.served import OWN, Connection, Served, seed_of, stops_of, temperature_of
from assay.models.servers.tokenizers import ServerWords, load_words
from assay.models.servers.usage import finish_of, token_count, tool_calls_of, usage_of
from assay.records import (
    UNFINISHED,
    Failed,
    Generate,
    Loglikelihood,
    Message,
    Prompt,
    Request,
    Response,
    Trouble,
    Usage,
)

OverLength = Literal["error", "truncate"]


class OpenAIServer(Served):
    """What completions and conversations share: everything but where they are asked and how a prompt is written."""

    public = "https://api.openai.com/v1"
    variables = ("OPENAI_API_KEY",)
    endings = ("/chat/completions", "/completions")
    path = ""

    def __init__(
        self, model: str, connection: Connection | None, *, n: bool, likelihoods: Likelihoods, **telling: Any
    ) -> None:
        super().__init__(model, connection, likelihoods=likelihoods.way, cut=likelihoods.cut, **telling)
        self._rules = rules_for(self.model, self.urls[0])
        self.samples = "always" if "temperature" in self._rules.refuses else self.samples
        self.thinks = self.thinks or self._rules.thinks
        self.answers_repeats = n
        self._likelihoods = likelihoods
        self.cuts = likelihoods.cut
        likelihoods.post, likelihoods.post_generate = self._post, partial(self._beside, "/generate")
        likelihoods.max_length = self.max_length

    async def generate(self, request: Generate) -> Response:
        return (await self._generate([request]))[0]

    async def ask_repeats(self, requests: Sequence[Request]) -> Sequence[Response]:
        """The repeats of a question in one request; a server that ignores how many were asked for is not asked so again."""
        generate = [request for request in requests if isinstance(request, Generate)]
        found: list[Response] = []
        with self._told_plainly(), suppress(Refused):  # several at once, perhaps: one by one it will say why
            found = await self._generate(generate)
        if len(found) < len(requests):
            self.answers_repeats = False
            found = [*found, *await super().ask_repeats(requests[len(found) :])]
        return found[: len(requests)]

    async def respond(self, request: Request) -> Response:
        if isinstance(request, Generate):
            return await self.generate(request)
        if isinstance(request, Loglikelihood):
            return await self._likelihoods.of(request.context, request.continuation)
        return await self._likelihoods.rolling(request.text)

    async def _generate(self, requests: Sequence[Generate]) -> list[Response]:
        params, limit = requests[0].params, self.limit(requests[0].params)
        stops = stops_of(params)
        prompt, cut = self._fitting(requests[0], limit)
        if isinstance(prompt, Failed):
            return [prompt] * len(requests)
        body = {
            "model": self.model,
            **self._asked(prompt),
            **self._parameters(requests, limit, stops),
        }
        drafts = [Draft(stops, self.tags) for _ in requests]
        if self.is_streamed(limit) and "tools" not in params:
            await self._stream(body, drafts)
        else:
            _fill(drafts, await self.http.post(self.path, body))
        return [_ended(draft, cut) for draft in drafts if draft.usage is not None]

    async def _stream(self, body: Mapping[str, Any], drafts: Sequence[Draft]) -> None:
        """Take pieces as they come, until all answers have ended: by themselves, or at a stop."""
        options = {"stream": True, "stream_options": {"include_usage": True}}
        open_ones = set(range(len(drafts)))
        async with aclosing(self.http.stream(self.path, {**body, **options})) as events:  # type: ignore[type-var]
            async for event in events:
                if _is_whole(event):
                    _fill(drafts, event)
                    return
                open_ones -= _take(drafts, event)
                if not open_ones:
                    break
        came = [draft for draft in drafts if draft.finish is not None]
        if not came or any(draft.finish is None and draft.has_begun for draft in drafts):
            raise Trouble("the answer broke off: the stream ended before the answer did")
        for draft in came:
            draft.usage = draft.usage or Usage()
        if not open_ones:  # left at a stop, before the server said what it took: what came is all that is known
            came[0].usage = Usage(written=sum(draft.pieces for draft in drafts))

    def _parameters(self, requests: Sequence[Generate], limit: int | None, stops: Sequence[str]) -> dict[str, Any]:
        """The parameters in the server's words. Stops are for the answer: where a model thinks, the server does not know."""
        params = requests[0].params
        said = {
            "temperature": temperature_of(params),
            **{key: value for key, value in params.items() if key not in OWN},
        }
        if limit is not None:
            said["max_tokens"] = limit
        if stops and self.tags is None:
            said["stop"] = list(stops)
        if self.connection.seed is not None:
            said["seed"] = seed_of(requests[0], self.connection.seed)
        if len(requests) > 1:
            said["n"] = len(requests)
        return self._rules.applied(said)

    def _asked(self, prompt: Prompt | list[int]) -> dict[str, Any]:
        raise NotImplementedError

    def _fitting(self, request: Generate, limit: int | None) -> tuple[Prompt | list[int] | Failed, int]:  # noqa: ARG002
        """A prompt that is not too long, and how many tokens were left out. Where nobody counts, the server says so."""
        return request.prompt, 0

    async def _post(self, body: Mapping[str, Any]) -> Any:
        return await self.http.post(self.path, {"model": self.model, **body})

    async def _beside(self, path: str, body: Mapping[str, Any]) -> Any:
        """Ask what a server offers beside the protocol."""
        return await self.http.post(f"/..{path}" if self._place.endswith("/v1") else path, body)


class OpenAIChat(OpenAIServer):
    """A server that speaks OpenAI's protocol: conversations. Log-likelihoods only of one-token answers, if asked for."""

    name = "openai-chat"
    path = "/chat/completions"

    def __init__(
        self, model: str | None = None, connection: Connection | None = None, *, pretrained: str | None = None,
        n: bool = True, likelihoods: Literal["generated"] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            _named(model, pretrained), connection, n=n, likelihoods=Likelihoods(likelihoods, None, chat=True)
        )
        self.can = Can(
            generate=True, loglikelihood=likelihoods is not None, rolling=False, chat=True, schema=True, tools=True,
            samples=self.samples,
        )  # fmt: skip

    def _asked(self, prompt: Prompt | list[int]) -> dict[str, Any]:
        assert not isinstance(prompt, list)
        return {"messages": sent_messages(prompt)}


class OpenAI(OpenAIServer):
    """A server that speaks OpenAI's protocol: completions, and log-likelihoods of prompts."""

    name = "openai"
    path = "/completions"

    def __init__(  # noqa: PLR0913  # lm-eval's arguments, by its names
        self, model: str | None = None, connection: Connection | None = None, *, pretrained: str | None = None,
        tokenizer: str | None = None, tokenizer_backend: str | None = None, custom_prefix_token_id: int | None = None,
        likelihoods: Literal["echo", "prompt", "sglang", "generated"] = "echo", over_length: OverLength = "error",
        truncate: bool = False, n: bool = True,
    ) -> None:  # fmt: skip
        named = _named(model, pretrained)
        words = load_words(tokenizer, tokenizer_backend, named)
        if likelihoods == "sglang" and words is None:
            what, fix = (
                "SGLang does not say where in a text tokens begin",
                "give tokenizer=FOLDER, or tokenizer_backend=remote",
            )
            raise ConfigError([Problem(Place("model_args.likelihoods"), what, fix)])
        cut = truncate or over_length == "truncate"
        way = Likelihoods(likelihoods, words, cut=cut, prefix=custom_prefix_token_id)
        super().__init__(named, connection, n=n, likelihoods=way, prefix=custom_prefix_token_id)
        if words is None:
            self.remarks["loglikelihood"] = (
                f"{self.name}: without a tokenizer the server must say where in a text each token begins, and log-likelihoods"
                " may differ a little from lm-eval's; give tokenizer=FOLDER, or tokenizer_backend=remote or tiktoken"
            )
        self._words, self._first = words, custom_prefix_token_id
        self.max_length = way.max_length = self.max_length or (words.max_length if words is not None else None)
        self.can = Can(chat=words is not None, rolling=likelihoods != "generated", samples=self.samples)

    def _identified(self, address: str | None, said: str | None) -> str:
        return f"{super()._identified(address, said)} {self._words.identity if self._words is not None else ''}"

    async def __aenter__(self) -> "OpenAI":
        await super().__aenter__()
        async with AsyncExitStack() as undo:  # nothing stays open where the tokenizer cannot be reached
            undo.push_async_callback(self.__aexit__)
            if isinstance(self._words, ServerWords):
                with self._told_plainly():
                    await self._words.start(self._tokens, self._first, await self._tokens("", special=True))
            undo.pop_all()
        return self

    async def greet(self) -> None:
        await super().greet()
        if self.max_length is None:
            async with self.http:
                self.max_length = self._likelihoods.max_length = _told_length(
                    await self.http.get("/models"), self.model
                )

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        if self._words is None:
            what, fix = (
                f"{self.name} has no chat template without a tokenizer",
                "give tokenizer=FOLDER, or use openai-chat",
            )
            raise ConfigError([Problem(Place("model_args.tokenizer"), what, fix)])
        return self._words.chat_template(messages, add_generation_prompt)

    async def respond(self, request: Request) -> Response:
        if isinstance(request, Loglikelihood) and not isinstance(request.context, str):
            written = written_request(request, self.chat_template)
            return written if isinstance(written, Failed) else await super().respond(written)
        return await super().respond(request)

    def count_tokens(self, text: str) -> int | None:
        known = self._words is not None and not isinstance(self._words, ServerWords)
        return len(self._words.encode(text)) if known and self._words is not None else None

    def limit(self, params: Mapping[str, object]) -> int | None:
        """Completions of some servers end after sixteen tokens where nothing is said: so something is."""
        found = super().limit(params)
        return found if found is not None or self.max_length is None else max(self.max_length // 2, 1)

    def _asked(self, prompt: Prompt | list[int]) -> dict[str, Any]:
        return {"prompt": prompt}

    def _fitting(self, request: Generate, limit: int | None) -> tuple[Prompt | list[int] | Failed, int]:
        written = written_request(request, self.chat_template)
        if isinstance(written, Failed):
            return written, 0
        prompt = written.text
        if self.max_length is None or len(prompt.encode()) + (limit or 0) <= self.max_length:
            return prompt, 0
        if self._words is None or isinstance(self._words, ServerWords):
            return prompt, 0
        tokens, room = self._words.encode(prompt), self.max_length - (limit or 0)
        if len(tokens) <= room:
            return prompt, 0
        if not self.cuts or room <= 0:
            return Failed(
                f"{len(tokens)} tokens and {limit} to be generated are more than the model's {self.max_length}"
            ), 0
        return tokens[-room:], len(tokens) - room

    async def _tokens(self, text: str, special: bool = False) -> list[int]:
        """How the server itself cuts a text: its /tokenize stands beside the protocol."""
        body = {"model": self.model, "prompt": text, "add_special_tokens": special}
        try:
            found = (await self._beside("/tokenize", body))["tokens"]
        except Refused as refused:
            what, fix = f"the server does not tokenize: {refused}", "give tokenizer=FOLDER"
            raise ConfigError([Problem(Place("model_args.tokenizer_backend"), what, fix)]) from None
        if not isinstance(found, list) or not all(type(token) is int and token >= 0 for token in found):
            raise TypeError("the tokens of a text must be a list of whole numbers")
        return found


def _named(model: str | None, pretrained: str | None) -> str:
    found = model or pretrained
    if not found:
        what = "a model behind a server needs the argument 'model'"
        raise ConfigError([Problem(Place("model_args"), what, "add model=… to --model_args")])
    return found


def _take(drafts: Sequence[Draft], event: Mapping[str, Any]) -> set[int]:
    """Put an event of a stream where it belongs; which answers have come to a stop with it."""
    if event.get("error"):
        raise Trouble(f"the server stopped: {said(json.dumps(event['error']))}")
    stopped: set[int] = set()
    for choice in _choices(event):
        number, delta = choice.get("index") or 0, choice.get("delta")
        if delta is not None and not isinstance(delta, dict):
            raise TypeError(f"delta must be a mapping, got {type(delta).__name__}")
        delta = delta or choice
        if not 0 <= number < len(drafts):
            raise IndexError(f"an answer {number} was not asked for")
        if delta.get("refusal"):
            raise Refused(f"the model refuses: {delta['refusal']}"[:300])
        draft = drafts[number]
        content = delta.get("content")
        if draft.add(content if content is not None else delta.get("text"), _thought(delta)):
            stopped.add(number)
        draft.finish = "stop" if number in stopped else finish_of(choice.get("finish_reason")) or draft.finish
    if event.get("usage"):
        drafts[0].usage = usage_of(event)
    return stopped


def _is_whole(event: Any) -> bool:
    """Whether an answer came at once although a stream was asked for."""
    return any("message" in choice for choice in _choices(event))


def _choices(event: Any) -> Sequence[Any]:
    """The pieces in an event of a stream; the one that tells the usage has none."""
    found = event.get("choices")
    if found is not None and not isinstance(found, list):
        raise TypeError(f"choices must be a list, got {type(found).__name__}")
    return found or ()


def _thought(message: Mapping[str, Any]) -> str | None:
    found = message.get("reasoning_content") or message.get("reasoning")
    return found if isinstance(found, str) else None


def _fill(drafts: Sequence[Draft], answer: Any) -> None:
    if not answer["choices"]:
        raise Trouble("the answer has no choices")
    for draft, choice in zip(drafts, answer["choices"], strict=False):
        message = choice.get("message") or choice
        text, thought, finish = (
            message.get("content", message.get("text")),
            _thought(message),
            finish_of(choice.get("finish_reason")),
        )
        if message.get("refusal"):
            raise Refused(f"the model refuses: {message['refusal']}"[:300])
        draft.calls = tool_calls_of(message.get("tool_calls"))
        if text is None and thought is None and finish != "length" and not draft.calls:
            raise Refused(f"the server answered without a text (finish_reason: {finish})")
        draft.add(text, thought)
        is_silent = text is None and thought is None and not draft.calls
        draft.finish, draft.usage = UNFINISHED if is_silent else finish, Usage()
    drafts[0].usage = usage_of(answer)


def _ended(draft: Draft, cut: int) -> Response:
    made = draft.whole()
    if made.finish == "content_filter" and not made.text:
        return Failed("the provider's filter kept the answer back (finish_reason: content_filter)")
    return made._replace(usage=(made.usage or Usage())._replace(cut=cut)) if cut else made


def _told_length(models: Any, name: str) -> int | None:
    """How long a text may be, where the server says so in its list of models."""
    rows = models.get("data") if isinstance(models, dict) else None
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and row.get("id") == name and token_count(row.get("max_model_len")):
            return token_count(row["max_model_len"])
    return None
