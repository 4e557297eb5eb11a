"""Servers that speak OpenAI's protocol: completions, chat, and log-likelihoods through echoed prompts."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from assay.config.source import digest
from assay.errors import ConfigError, Place, Problem
from assay.models.http import Http, Refused
from assay.models.protocol import Can, Message
from assay.models.rules import rules_for
from assay.models.tokens import encode_pair, rolling_windows
from assay.models.vocabulary import Vocabulary
from assay.records import (
    DEFAULT_MAX_GEN_TOKS,
    Failed,
    Generate,
    Likelihood,
    Loglikelihood,
    Request,
    Response,
    Text,
    Trouble,
)  # fmt: skip

PUBLIC = "https://api.openai.com/v1"
GREETING = "The quick brown fox jumps over the lazy"
ENDINGS = ("/chat/completions", "/completions")
MESSAGES = '[{"role"'
"""How a prompt begins that is a conversation: messages travel as JSON."""


class OpenAI:
    """A model behind such a server. `chat` chooses its conversations instead of its completions."""

    def __init__(  # noqa: PLR0913  # lm-eval's arguments, by its names
        self, model: str, base_url: str | Sequence[str] = PUBLIC, *, chat: bool = False, num_concurrent: int = 32,
        timeout: float = 300.0, api_key: str | None = None, tokenizer: str | None = None, max_length: int | None = None,
        max_gen_toks: int = DEFAULT_MAX_GEN_TOKS, seed: int | None = None, header: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        urls = [base_url] if isinstance(base_url, str) else list(base_url)
        self.name = "openai-chat" if chat else "openai"
        self._urls = [url.rstrip("/").removesuffix(ENDINGS[0]).removesuffix(ENDINGS[1]) for url in urls]
        self._path = ENDINGS[0] if chat else ENDINGS[1]
        self._model, self._chat, self._seed, self._most = model, chat, seed, max_gen_toks
        self._rules = rules_for(model, self._urls[0])
        self._words = Vocabulary.load(tokenizer) if tokenizer is not None else None
        self.concurrency = num_concurrent
        self.max_length = max_length or (self._words.max_length if self._words is not None else None)
        self.can = Can(generate=True, loglikelihood=not chat, rolling=not chat, chat=chat or self._words is not None)
        key = api_key or os.environ.get("OPENAI_API_KEY")
        headers = {**({"Authorization": f"Bearer {key}"} if key else {}), **(header or {})}
        self._http = Http(self._urls, headers, timeout, num_concurrent)
        self._greeted: str | None = None
        self.tokens = {"in": 0, "out": 0}

    @property
    def identity(self) -> str:
        """The address, the name, and what it said to a greeting: another model behind them is another identity."""
        words = self._words.identity if self._words is not None else ""
        return f"{self.name} {' '.join(self._urls)} {self._model} {words} {digest(str(self._greeted).encode())}"

    async def __aenter__(self) -> "OpenAI":
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.__aexit__()

    async def ask(self, request: Request) -> Response:
        """The response to one request."""
        try:
            if isinstance(request, Generate):
                return await self._generate(request)
            if isinstance(request, Loglikelihood):
                return await self._likelihood(request.context, request.continuation)
            return await self._rolling(request.text)
        except Refused as refused:
            return Failed(str(refused))
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise Trouble(f"the answer is not of the protocol: {type(error).__name__}: {error}") from error

    async def probe(self) -> bool:
        """Whether it can be reached, and is who it was: another model in its place ends the run."""
        try:
            found = await self._said()
        except (Trouble, Refused):
            return False
        if self._greeted is not None and found != self._greeted:
            raise RuntimeError(f"another model answers at {self._urls[0]} than before: nothing of it was mixed in")
        return True

    def chat_template(self, messages: list[Message], add_generation_prompt: bool) -> str:
        if self._chat:
            return json.dumps(messages, ensure_ascii=False)
        assert self._words is not None, "checked before the run"
        return self._words.chat_template(messages, add_generation_prompt)

    def count_tokens(self, text: str) -> int | None:
        return len(self._words.encode(text)) if self._words is not None else None

    # generation

    async def _generate(self, request: Generate) -> Response:
        body = {**self._prompt(request.prompt), **self._parameters(request.params)}
        answer = await self._post(body)
        choice = answer["choices"][0]
        text = choice["message"]["content"] if self._chat else choice["text"]
        if text is None:
            return Failed("the server answered without a text")
        return Text(_cut(text, body.get("stop") or ()), choice.get("finish_reason"))

    def _prompt(self, prompt: str) -> dict[str, Any]:
        if not self._chat:
            return {"prompt": prompt}
        messages = json.loads(prompt) if prompt.startswith(MESSAGES) else [{"role": "user", "content": prompt}]
        return {"messages": messages}

    def _parameters(self, params: Mapping[str, object]) -> dict[str, Any]:
        """The parameters in the server's words."""
        more = {key: value for key, value in params.items() if key not in OWN}
        limit = next((params[key] for key in LIMITS if params.get(key) is not None), self._most)
        until = params.get("until") or ()
        stops = [until] if isinstance(until, str) else [str(stop) for stop in until]  # type: ignore[attr-defined]
        sampled = params.get("do_sample") is not False
        temperature = params.get("temperature", 1.0 if params.get("do_sample") else 0.0) if sampled else 0.0
        said = {"max_tokens": limit, "temperature": temperature, "stop": [stop for stop in stops if stop], **more}
        return self._rules.applied({**said, **({"seed": self._seed} if self._seed is not None else {})})

    # log-likelihoods

    async def _likelihood(self, context: str, continuation: str) -> Response:
        if self._words is None:
            return await self._likelihood_of_text(context, continuation)
        before, after = encode_pair(self._words.encode, context, continuation, self._words.prefix)
        return await self._likelihood_of_tokens(before, after)

    async def _likelihood_of_tokens(self, before: Sequence[int], after: Sequence[int]) -> Response:
        whole = [*before, *after]
        if self.max_length is not None and len(whole) > self.max_length:
            return Failed(f"{len(whole)} tokens are more than the model's {self.max_length}")
        found = (await self._echo(whole))["choices"][0]["logprobs"]
        return _summed(found, len(before), len(whole))

    async def _likelihood_of_text(self, context: str, continuation: str) -> Response:
        """Without a tokenizer: the server says where in the text each token begins."""
        found = (await self._echo(context + continuation))["choices"][0]["logprobs"]
        offsets = found.get("text_offset")
        if offsets is None:
            return Failed("the server does not say where tokens begin: give tokenizer=FOLDER")
        end = len(context + continuation)
        inside = [n for n, offset in enumerate(offsets) if len(context) <= offset < end]
        return _summed(found, inside[0], inside[-1] + 1) if inside else Likelihood(0.0, True)

    async def _rolling(self, text: str) -> Response:
        if self._words is None:
            found = (await self._echo(text))["choices"][0]["logprobs"]
            count = sum(offset < len(text) for offset in found["text_offset"])
            return _summed(found, 1, count)
        total = 0.0
        size = (self.max_length or 2048) - 1
        for before, after in rolling_windows(self._words.encode(text), self._words.prefix, size):
            part = await self._likelihood_of_tokens(before, after)
            if not isinstance(part, Likelihood):
                return part
            total += part.value
        return Likelihood(total)

    async def _echo(self, prompt: str | list[int]) -> Any:
        return await self._post({"prompt": prompt, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1})

    async def _post(self, body: Mapping[str, Any]) -> Any:
        answer = await self._http.post(self._path, {"model": self._model, **body})
        used = answer.get("usage") or {}
        self.tokens["in"] += used.get("prompt_tokens") or 0
        self.tokens["out"] += used.get("completion_tokens") or 0
        return answer

    # who it is

    async def greet(self) -> None:
        """Ask something before anything counts: what it says is part of who it is."""
        async with self:
            try:
                self._greeted = await self._said()
            except Refused as refused:
                fix = f"is {self._model!r} the model's name at {self._urls[0]}, and is the key right?"
                raise ConfigError([Problem(Place("model"), str(refused), fix)]) from None

    async def _said(self) -> str:
        """What it says to a greeting, word for word."""
        said = await self._generate(Generate(GREETING, {"max_gen_toks": 5, "do_sample": False, "until": []}))
        return said.text if isinstance(said, Text) else str(said)


OWN = ("until", "max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens", "do_sample", "temperature")
LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


def _cut(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop: not every server leaves it out."""
    ends = [text.find(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else text


def _summed(found: Mapping[str, Any], start: int, end: int) -> Likelihood:
    """The log-likelihood of some tokens; greedy where each of them was the likeliest."""
    values = found["token_logprobs"][start:end]
    tops = (found.get("top_logprobs") or [None] * end)[start:end]
    greedy = all(top is None or value >= max(top.values()) for value, top in zip(values, tops, strict=True))
    return Likelihood(float(sum(values)), greedy)
