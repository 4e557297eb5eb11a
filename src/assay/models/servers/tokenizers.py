"""Tokenizers for models behind servers: a local folder, tiktoken, or the server's own."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from assay.config.source import digest
from assay.errors import ConfigError, Place, Problem
from assay.models.tokenizer import KEPT, Vocabulary
from assay.records import Message

KINDS = ("huggingface", "tiktoken", "remote")


class Words(Protocol):
    """Text to tokens as a model does it. `prefix` is what a text without a context is seen after."""

    @property
    def identity(self) -> str: ...
    @property
    def prefix(self) -> int: ...
    @property
    def max_length(self) -> int | None: ...
    def encode(self, text: str) -> list[int]: ...
    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str: ...


def load_words(tokenizer: str | None, kind: str | None, model: str) -> "Words | None":
    """The tokenizer that is meant; None where nobody names one."""
    if kind not in (None, "None", *KINDS):
        what = f"no kind of tokenizer named {kind!r}"
        raise ConfigError([Problem(Place("model_args.tokenizer_backend"), what, f"one of {', '.join(KINDS)}")])
    if kind == "tiktoken":
        return Tiktoken(tokenizer or model)
    if kind == "remote":
        return ServerWords()
    return Vocabulary.load(tokenizer) if tokenizer is not None else None


class Tiktoken:
    """An encoding of tiktoken, by its name or by the name of a model."""

    max_length: int | None = None

    def __init__(self, name: str) -> None:
        try:
            import tiktoken
        except ModuleNotFoundError:
            place = Place("model_args.tokenizer_backend")
            raise ConfigError([Problem(place, "tiktoken is not installed", "pip install tiktoken")]) from None
        try:
            known = name in tiktoken.list_encoding_names()
            self._encoding: Any = tiktoken.get_encoding(name) if known else tiktoken.encoding_for_model(name)
        except (KeyError, ValueError):
            what, fix = f"tiktoken knows no encoding for {name!r}", "name one: tokenizer=cl100k_base"
            raise ConfigError([Problem(Place("model_args.tokenizer"), what, fix)]) from None
        self.identity = f"tiktoken {self._encoding.name}"
        self.prefix = int(self._encoding.eot_token)

    def encode(self, text: str) -> list[int]:
        return list(self._encoding.encode(text, allowed_special="all"))

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:  # noqa: ARG002
        raise ConfigError([Problem(Place("apply_chat_template"), "tiktoken has no chat templates", "use openai-chat")])


class ServerWords:
    """The server's own tokenizer, by its `/tokenize`: texts are learned before they are encoded."""

    identity = "server"
    max_length: int | None = None

    def __init__(self) -> None:
        self._known: dict[str, list[int]] = {}
        self._held = 0
        self._ask: Callable[[str], Awaitable[list[int]]] | None = None
        self.prefix = 0

    async def start(self, ask: Callable[[str], Awaitable[list[int]]], first: int | None, empty: list[int]) -> None:
        """Begin: `ask` gives the tokens of a text. What a text begins with is told, or what the server puts before one."""
        self._ask = ask
        if first is None and not empty:
            what, fix = "the server does not say what a text begins with", "give custom_prefix_token_id"
            raise ConfigError([Problem(Place("model_args.tokenizer_backend"), what, fix)])
        self.prefix = first if first is not None else empty[0]
        self.identity = f"server {digest(repr(await ask('The quick brown fox, 123')).encode())}"

    async def learn(self, texts: Iterable[str]) -> None:
        if self._held > KEPT:
            self._known, self._held = {}, 0
        for text in texts:
            if text not in self._known:
                assert self._ask is not None, "the model is greeted before it is asked"
                self._known[text] = await self._ask(text)
                self._held += len(self._known[text])

    def encode(self, text: str) -> list[int]:
        return self._known[text]

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:  # noqa: ARG002
        raise ConfigError([Problem(Place("apply_chat_template"), "the server keeps its template", "use openai-chat")])
