"""Tokenizers without the model: a folder in Hugging Face's layout, tiktoken, or the server's; lm-eval's rules for tokens."""

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

from jinja2 import TemplateError

from assay.config.source import digest
from assay.config.task import GenerationParams
from assay.errors import ConfigError, Place
from assay.records import JSON, Message, messages_to_plain
from assay.templates import COMPILE_ERRORS, Sandbox, reason

MAX_REMEMBERED = 500_000
"""Number of tokens remembered with their texts: a context comes again with every choice."""


NO_PREFIX = -1
"""In place of the prefix token where it is not known."""


class FolderTokenizer:
    """The tokenizer and chat template of a folder in Hugging Face's layout."""

    def __init__(self, folder: Path) -> None:
        import tokenizers

        self.folder = folder
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._config: dict[str, JSON] = _read(folder / "tokenizer_config.json")
        self._known: dict[str, list[int]] = {}
        self._held = 0

    @classmethod
    def load(cls, path: str) -> "FolderTokenizer":
        """Load the tokenizer of a folder; raise a ConfigError if there is none."""
        folder = Path(path).expanduser()
        if not (folder / "tokenizer.json").is_file():
            what = f"no tokenizer.json in {folder}"
            raise ConfigError.at("model_args.tokenizer", what, "give a folder in Hugging Face's layout")
        return cls(folder)

    @cached_property
    def identity(self) -> str:
        return digest((self.folder / "tokenizer.json").read_bytes())

    @cached_property
    def end(self) -> int:
        """The EOS token."""
        return self._special("eos_token") or 0

    @cached_property
    def prefix(self) -> int:
        """The token before a text without context: BOS, else EOS."""
        begin = self._special("bos_token")
        return begin if begin is not None else self.end

    @property
    def max_length(self) -> int | None:
        length = self._config.get("model_max_length")
        return length if isinstance(length, int) and length < 10**9 else None

    def encode(self, text: str) -> list[int]:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._tokens(text)
            self._held += len(known)
            if self._held > MAX_REMEMBERED:
                self._known, self._held = {text: known}, len(known)
        return known

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, with the special ones."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=False))

    def _tokens(self, text: str) -> list[int]:
        """Encode without offsets, which take a third of the time and are not used."""
        [encoding] = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        source = self._config.get("chat_template")
        if not isinstance(source, str):
            what, fix = "the tokenizer has no chat template", "leave out --apply_chat_template"
            raise ConfigError.at(self.folder, what, fix)
        special = {key: self._text(key) for key in ("bos_token", "eos_token")}
        values = {"messages": messages_to_plain(messages), "add_generation_prompt": add_generation_prompt, **special}
        try:
            return _renderer(source)(values)
        except COMPILE_ERRORS as error:
            raise TemplateError(reason(error)) from error

    def count_tokens(self, text: str) -> int | None:
        return len(self.encode(text))

    def tokenizer_digest(self) -> str:
        return digest(f"{self.tokenizer.to_str()} {json.dumps(self._config, sort_keys=True)}".encode())

    def _text(self, key: str) -> str:
        token = self._config.get(key)
        return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")

    def _special(self, key: str) -> int | None:
        number: int | None = self.tokenizer.token_to_id(self._text(key))
        return number


@cache
def _renderer(source: str) -> Callable[[Mapping[str, Any]], str]:
    return Sandbox(trim=True).renderer(source)


def _read(path: Path) -> dict[str, JSON]:
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return config if isinstance(config, dict) else {}


Encode = Callable[[str], list[int]]


def joined(context: str, continuation: str) -> tuple[str, str]:
    """Move white space at the end of the context to the continuation."""
    spaces = len(context) - len(context.rstrip())
    return (context[:-spaces], context[-spaces:] + continuation) if spaces else (context, continuation)


def encode_pair(encode: Encode, context: str, continuation: str, prefix_token: int) -> tuple[list[int], list[int]]:
    """Return the tokens of a context and of its continuation. White space at the joint belongs to the continuation.

    The continuation is the whole minus the context: a token may begin before the joint and end after it. It is never
    empty unless its text is.
    """
    context, continuation = joined(context, continuation)
    if not context:
        tokens = encode(continuation)
        return ([prefix_token], tokens) if not tokens or tokens[0] != prefix_token else (tokens[:1], tokens[1:])
    whole, before = encode(context + continuation), encode(context)
    joint = len(before)
    if len(whole) <= joint and continuation:  # one token spans the joint: go back to where both still agree
        joint = next((n for n, (a, b) in enumerate(zip(whole, before, strict=False)) if a != b), len(whole) - 1)
    return (whole[:joint], whole[joint:]) if joint else ([prefix_token], whole)


def rolling_windows(tokens: Sequence[int], prefix_token: int, size: int) -> Iterator[tuple[list[int], list[int]]]:
    """Split a long text into windows of at most `size` tokens, each with its context; no token counts twice.

    The first follows the prefix token; a later one has as much of the text before it as fits.
    """
    if not tokens:
        return
    first = min(size, len(tokens))
    yield [prefix_token], list(tokens[:first])
    done = first
    while done < len(tokens):
        end = min(done + size, len(tokens))
        start = max(0, end - size - 1)
        yield list(tokens[start:done]), list(tokens[done:end])
        done = end


def cut_at_stop(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """Return the text before the first stop string, and whether there is one."""
    places = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


def stops_of(params: GenerationParams) -> list[str]:
    """Return the stop strings of generation parameters."""
    until: Any = params.get("until") or ()
    return [until] if isinstance(until, str) else [str(stop) for stop in until if stop]


TOKENIZER_BACKENDS = ("huggingface", "tiktoken", "remote")


class Tokenizer(Protocol):
    """Text to tokens as the model does it. `prefix` is the token before a text without context."""

    @property
    def identity(self) -> str: ...
    @property
    def prefix(self) -> int: ...
    @property
    def max_length(self) -> int | None: ...
    def encode(self, text: str) -> list[int]: ...
    def decode(self, tokens: Sequence[int]) -> str: ...
    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str: ...


def load_tokenizer(tokenizer: str | None, kind: str | None, model: str) -> "Tokenizer | None":
    """Load the tokenizer that the arguments name; None if they name none."""
    if kind not in (None, "None", *TOKENIZER_BACKENDS):
        what = f"no tokenizer backend named {kind!r}"
        raise ConfigError.at("model_args.tokenizer_backend", what, f"use {', '.join(TOKENIZER_BACKENDS)}")
    if kind == "tiktoken":
        return TiktokenTokenizer(tokenizer or model)
    if kind == "remote":
        return ServerTokenizer()
    return FolderTokenizer.load(tokenizer) if tokenizer is not None else None


class TiktokenTokenizer:
    """A tiktoken encoding, by its name or by the name of a model."""

    max_length: int | None = None

    def __init__(self, name: str) -> None:
        try:
            import tiktoken
        except ModuleNotFoundError:
            place = Place("model_args.tokenizer_backend")
            raise ConfigError.at(place, "tiktoken is not installed", "pip install tiktoken") from None
        try:
            known = name in tiktoken.list_encoding_names()
            self._encoding: Any = tiktoken.get_encoding(name) if known else tiktoken.encoding_for_model(name)
        except (KeyError, ValueError):
            what, fix = f"no tiktoken encoding for {name!r}", "name one: tokenizer=cl100k_base"
            raise ConfigError.at("model_args.tokenizer", what, fix) from None
        self.identity = f"tiktoken {self._encoding.name}"
        self.prefix = int(self._encoding.eot_token)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._encoding.decode(tokens))

    def encode(self, text: str) -> list[int]:
        return list(self._encoding.encode(text, allowed_special="all"))

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:  # noqa: ARG002
        raise ConfigError.at("apply_chat_template", "tiktoken has no chat templates", "use openai-chat")


class ServerTokenizer:
    """The server's tokenizer, through its `/tokenize`: texts are fetched with `learn` before they are encoded."""

    identity = "server"
    max_length: int | None = None

    def __init__(self) -> None:
        self._known: dict[str, list[int]] = {}
        self._held = 0
        self._ask: Callable[[str], Awaitable[list[int]]] | None = None
        self.prefix = NO_PREFIX

    async def start(self, ask: Callable[[str], Awaitable[list[int]]], first: int | None, empty: list[int]) -> None:
        """Start with `ask`, which returns the tokens of a text; `first` or the first of `empty` becomes the prefix token. A model
        without BOS has none, which only a text without context needs: the server does not tell its EOS."""
        self._ask = ask
        self.prefix = first if first is not None else next(iter(empty), NO_PREFIX)
        self.identity = f"server {digest(repr(await ask('The quick brown fox, 123')).encode())}"

    async def learn(self, texts: Iterable[str]) -> None:
        if self._held > MAX_REMEMBERED:
            self._known, self._held = {}, 0
        for text in texts:
            if text not in self._known:
                assert self._ask is not None, "the model is identified before it is asked"
                self._known[text] = await self._ask(text)
                self._held += len(self._known[text])

    def encode(self, text: str) -> list[int]:
        return self._known[text]

    def decode(self, tokens: Sequence[int]) -> str:  # noqa: ARG002
        """Return no text: the server is not asked for it."""
        return ""

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:  # noqa: ARG002
        raise ConfigError.at("apply_chat_template", "the server does not share its chat template", "use openai-chat")
