"""A tokenizer from a folder in Hugging Face's layout, without the model."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.config.source import digest
from assay.errors import ConfigError, Place, Problem
from assay.records import Message, messages_to_plain

KEPT = 500_000
"""So many tokens of texts are remembered: contexts come again with every choice."""


class Vocabulary:
    """Text to tokens, and conversations to text, as the model was trained."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.folder = folder
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._told: dict[str, Any] = _read(folder / "tokenizer_config.json")
        self._known: dict[str, list[int]] = {}
        self._held = 0

    @classmethod
    def load(cls, path: str) -> "Vocabulary":
        """The one of a folder; what is not there is told before anything is asked."""
        folder = Path(path).expanduser()
        if not (folder / "tokenizer.json").is_file():
            what = f"no tokenizer.json in {folder}"
            raise ConfigError([Problem(Place("model_args.tokenizer"), what, "give a folder in Hugging Face's layout")])
        return cls(folder)

    @cached_property
    def identity(self) -> str:
        return digest((self.folder / "tokenizer.json").read_bytes())

    @cached_property
    def end(self) -> int:
        """The token that ends a text."""
        return self._special("eos_token") or 0

    @cached_property
    def prefix(self) -> int:
        """What a text without a context is seen after: the token that begins a text, else the one that ends it."""
        begin = self._special("bos_token")
        return begin if begin is not None else self.end

    @property
    def max_length(self) -> int | None:
        found = self._told.get("model_max_length")
        return found if isinstance(found, int) and found < 10**9 else None

    def encode(self, text: str) -> list[int]:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._tokens(text)
            self._held += len(known)
            if self._held > KEPT:
                self._known, self._held = {text: known}, len(known)
        return known

    def _tokens(self, text: str) -> list[int]:
        """Without the offsets of each token, which take a third of the time and nobody reads."""
        [found] = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = found.ids
        return ids

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        from jinja2.sandbox import SandboxedEnvironment

        written = self._told.get("chat_template")
        if not isinstance(written, str):
            what, fix = "the tokenizer has no chat template", "leave out --apply_chat_template"
            raise ConfigError([Problem(Place(str(self.folder)), what, fix)])
        sandbox = SandboxedEnvironment(keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True)
        special = {key: self._text(key) for key in ("bos_token", "eos_token")}
        template = sandbox.from_string(written)
        plain = messages_to_plain(messages)
        return template.render(messages=plain, add_generation_prompt=add_generation_prompt, **special)

    def _text(self, key: str) -> str:
        found = self._told.get(key)
        return str(found.get("content", "")) if isinstance(found, dict) else str(found or "")

    def _special(self, key: str) -> int | None:
        found: int | None = self.tokenizer.token_to_id(self._text(key))
        return found


def _read(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found if isinstance(found, dict) else {}
