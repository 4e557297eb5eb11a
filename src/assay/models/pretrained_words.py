"""A tokenizer of transformers': text to tokens with the beginning of a text once, conversations to text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.config.source import digest
from assay.errors import ConfigError, Place, Problem
from assay.models.protocol import Message
from assay.models.vocabulary import KEPT


class PretrainedWords:
    """The tokenizer of a folder, or of a name at the hub.

    Where the tokenizer begins texts with a token of its own (`add_bos_token` None), or is told to, every text has that token
    once: also one that brings it along in writing, as chat templates do. No other token is added.
    """

    def __init__(  # noqa: PLR0913  # what tokenizers are told
        self, name: str, *, revision: str | None = None, trust_remote_code: bool = False, is_fast: bool = True,
        add_bos_token: bool | None = None, prefix: int | None = None, template: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        from transformers import AutoTokenizer

        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(
                name, revision=revision, trust_remote_code=trust_remote_code, use_fast=is_fast
            )
        except (OSError, ValueError) as error:
            what = f"there is no tokenizer in {name}: {str(error).strip().splitlines()[0]}"
            raise ConfigError(
                [Problem(Place("model_args.tokenizer"), what, "name a folder, or a name at the hub")]
            ) from None
        self._begin: int | None = self.tokenizer.bos_token_id
        self._written = self.tokenizer.bos_token or ""
        self._begins = self._begin is not None and (self._begins_itself() if add_bos_token is None else add_bos_token)
        self._template = dict(template or {})
        self._prefix = prefix
        self._known: dict[str, list[int]] = {}
        self._held = 0

    def _begins_itself(self) -> bool:
        return bool(self.tokenizer.encode("a", add_special_tokens=True)[:1] == [self._begin])

    @property
    def prefix(self) -> int:
        """What a text without a context is seen after: what was told, the token that begins a text, the one that ends it."""
        found = next(
            (each for each in (self._prefix, self._begin, self.tokenizer.eos_token_id) if each is not None), None
        )
        return int(found) if found is not None else 0

    def encode(self, text: str) -> list[int]:
        """The tokens of a text as the model is to see it."""
        known = self._known.get(text)
        if known is None:
            begins = self._begins and not (self._written and text.startswith(self._written))
            known = self._known[text] = [*([self._begin] if begins else []), *self.bare(text)]  # type: ignore[list-item]
            self._held += len(known)
            if self._held > KEPT:
                self._known, self._held = {text: known}, len(known)
        return known

    def bare(self, text: str) -> list[int]:
        """The tokens that stand in the text itself."""
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return found

    def chat_template(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        """A conversation as text; an answer that was begun is gone on with."""
        if not self.tokenizer.chat_template:
            what, fix = "the tokenizer has no chat template", "leave out --apply_chat_template"
            raise ConfigError([Problem(Place("apply_chat_template"), what, fix)])
        made: str = self.tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt, **self._template,
        )  # fmt: skip
        return made

    @property
    def identity(self) -> str:
        """A name for how it cuts texts."""
        told = (self._begins, self.prefix, sorted(self.tokenizer.get_vocab().items()))
        return digest(repr(told).encode())


def folder_of(name: str, revision: str | None) -> Path:
    """Where a model lies: the folder itself, or what the hub has of that name, brought here."""
    if Path(name).expanduser().is_dir():
        return Path(name).expanduser()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, ignore_patterns=["*.pth", "original/*", "*.gguf"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        what = f"{name!r} is no folder here, and the hub does not give it: {str(error).strip().splitlines()[0]}"
        raise ConfigError([Problem(Place("model_args.pretrained"), what, "check the name, or give a folder")]) from None
