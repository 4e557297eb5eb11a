"""Tokenizers of transformers by lm-eval's rules: a text begins with the BOS token at most once.

Texts with a common prefix are tokenized from where they differ. A tokenizer that first splits a text into words, from left
to right and without lookbehind, produces the same tokens after a gap between two words whatever precedes it. So the tokens
of a prefix are computed once, and those of each text from the prefix's last gap on. Every prefix is checked for this.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.config.source import digest
from assay.errors import ConfigError, did_you_mean
from assay.models.local.chat_templates import apply_chat_template
from assay.models.local.prefixes import shared_prefixes
from assay.models.tokenizer import encode_pair, joined
from assay.records import Message, messages_to_plain

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.pre_tokenizers import PreTokenizer
    from transformers import PreTrainedTokenizerBase

EncodeMany = Callable[[Sequence[str]], list[list[int]]]

GAP = re.compile(r"(?<=[A-Za-z0-9])[ \n](?=[A-Za-z0-9])")
MARGIN = 24
"""Minimum number of letters after a gap: text further away cannot change the tokens before it."""
REACH = 200
"""Number of letters at the end of a prefix that are searched for a gap."""
SPLITTERS = frozenset((
    "Split", "ByteLevel", "Whitespace", "WhitespaceSplit", "Digits", "Punctuation", "BertPreTokenizer"
))  # fmt: skip
NORMALIZERS = frozenset(("NFC", "NFKC", "Lowercase"))


class PrefixCut(NamedTuple):
    """Where a prefix is cut, and its tokens before that."""

    at: int
    before: list[int]


def splits_words(tokenizer: "Backend") -> bool:
    """Whether a tokenizer splits words first: by its configuration, and on an example."""
    config = json.loads(tokenizer.to_str())
    splitters = _parts(config.get("pre_tokenizer"), "pretokenizers")
    normalizers = _parts(config.get("normalizer"), "normalizers")
    return (
        bool(splitters)
        and all(each["type"] in SPLITTERS and not each.get("add_prefix_space") for each in splitters)
        and not any("(?<" in str(each.get("pattern")) for each in splitters)
        and all(each["type"] in NORMALIZERS for each in normalizers)
        and not config["model"].get("dropout")
        and _splits(tokenizer.pre_tokenizer, "ab cd\nef 12 gh\n3 i")
    )


def _splits(splitter: "PreTokenizer", text: str) -> bool:
    starts = {start for _, (start, _) in splitter.pre_tokenize_str(text)}
    return all(starts & {gap.start(), gap.start() + 1} for gap in GAP.finditer(text))


def prefix_cuts(heads: Sequence[str], tokens: Sequence[list[int]], bare: EncodeMany) -> list[PrefixCut | None]:
    """Return where prefixes with these tokens can be cut, if anywhere; `bare` encodes without BOS and EOS."""
    gaps = [_gap(head) for head in heads]
    tails = iter(bare([head[gap:] for head, gap in zip(heads, gaps, strict=True) if gap]))
    encoded: list[PrefixCut | None] = []
    for gap, known in zip(gaps, tokens, strict=True):
        tail = next(tails) if gap else []
        holds = bool(tail) and known[-len(tail) :] == tail
        encoded.append(PrefixCut(gap, known[: -len(tail)]) if holds else None)
    return encoded


def encode_shared(texts: Iterable[str], encode: EncodeMany, bare: EncodeMany) -> dict[str, list[int]]:
    """Encode texts, many of which share a prefix."""
    by_letters = sorted((text.encode("utf-32-le"), text) for text in dict.fromkeys(texts))
    heads: list[str] = []
    head_of: list[int] = []
    for shared, run in shared_prefixes([letters for letters, _ in by_letters]):
        head_of += [len(heads)] * len(run)
        heads.append(by_letters[len(head_of) - 1][1][: shared if len(run) > 1 else None])
    cuts = prefix_cuts(heads, encode(heads), bare)
    texts_of = [(text, cuts[head]) for (_, text), head in zip(by_letters, head_of, strict=True)]
    whole = [text for text, cut in texts_of if cut is None]
    encoded = dict(zip(whole, encode(whole), strict=True))
    behind = [(text, cut) for text, cut in texts_of if cut is not None]
    tails = bare([text[cut.at :] for text, cut in behind])
    encoded.update((text, cut.before + tail) for (text, cut), tail in zip(behind, tails, strict=True))
    return encoded


def _gap(head: str) -> int:
    """Start of the last gap between words that is far enough from the end; 0 if there is none."""
    start = max(len(head) - REACH, 0)
    last = 0
    for gap in GAP.finditer(head, start, max(len(head) - MARGIN, start)):
        last = gap.start()
    return last


def _parts(config: Any, key: str) -> list[dict[str, Any]]:
    if config is None:
        return []
    return [part for each in config[key] for part in _parts(each, key)] if config["type"] == "Sequence" else [config]


class HFTokenizer:
    """A transformers tokenizer. `add_bos` sets whether texts get special tokens; None leaves it to the tokenizer.

    The EOS token is left out, since a continuation follows; except with `ends`, for the input of an encoder.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        add_bos: bool | None = None,
        prefix_token: int | None = None,
        *,
        ends: bool = False,
    ) -> None:
        self._tokenizer, self._add_bos = tokenizer, add_bos
        self.is_fast = bool(getattr(tokenizer, "is_fast", False))
        if self.is_fast:
            tokenizer.backend_tokenizer.no_truncation()
            tokenizer.backend_tokenizer.no_padding()
        self.end: int | None = tokenizer.eos_token_id
        self.prefix = _first(prefix_token, tokenizer.bos_token_id, tokenizer.eos_token_id, 0)
        self._begin: int | None = tokenizer.bos_token_id
        self._beginning = str(tokenizer.decode([self._begin])) if self._begin is not None else ""
        self._cuts_end = False
        if not ends and self.end is not None:
            self._cuts_end = self._encoded(["a"], True)[0][-1:] == [self.end]
        self._splits_words = self.is_fast and splits_words(tokenizer.backend_tokenizer)
        self._specials = {str(tokenizer.decode([number])): number for number in tokenizer.all_special_ids}
        self._shown: int | None = None
        self._known: dict[str, list[int]] = {}
        self._pairs: dict[tuple[str, str], tuple[list[int], list[int]]] = {}

    def prime(self, texts: Iterable[str], pairs: Iterable[tuple[str, str]] = ()) -> None:
        """Tokenize many texts and pairs of context and continuation at once, for the calls of `encode` and `pair` that
        follow; earlier ones are forgotten."""
        unique = list(dict.fromkeys(joined(*pair) for pair in pairs))
        self._known, self._pairs = {}, {}
        heads = [*texts, *(context for context, _ in unique if context)]
        for special in (False, True):
            here = [text for text in heads if self._is_special(text) is special]
            self._known.update(self._encode_texts(here, special))
            self._pair([pair for pair in unique if pair[0] and self._is_special(pair[0]) is special], special)

    def _encode_texts(self, texts: Sequence[str], special: bool) -> dict[str, list[int]]:
        if self._splits_words:
            return encode_shared(texts, partial(self._encoded, special=special), partial(self._encoded, special=False))
        once = list(dict.fromkeys(texts))
        return dict(zip(once, self._encoded(once, special), strict=True))

    def _pair(self, pairs: Sequence[tuple[str, str]], special: bool) -> None:
        """Tokenize continuations of contexts whose tokens are known."""
        heads = list(dict.fromkeys(context for context, _ in pairs))
        encode, bare = partial(self._encoded, special=special), partial(self._encoded, special=False)
        cuts: Sequence[PrefixCut | None] = [None] * len(heads)
        if self._splits_words:
            cuts = prefix_cuts(heads, [self._known[head] for head in heads], bare)
        at = {head: cut or PrefixCut(0, []) for head, cut in zip(heads, cuts, strict=True)}
        for is_whole in (True, False):
            some = [pair for pair in pairs if (at[pair[0]].at == 0) is is_whole]
            tails = (encode if is_whole else bare)([(context + rest)[at[context].at :] for context, rest in some])
            for (context, rest), tail in zip(some, tails, strict=True):
                known = self._known[context]
                joint = len(known) - len(at[context].before)
                if len(tail) > joint and tail[:joint] == known[len(known) - joint :]:
                    self._pairs[context, rest] = (known, tail[joint:])

    def pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Return the tokens of a context and of its continuation."""
        context, continuation = joined(context, continuation)
        known = self._pairs.get((context, continuation))
        return known if known is not None else encode_pair(self.encode, context, continuation, self.prefix)

    def encode(self, text: str) -> list[int]:
        known = self._known.get(text)
        if known is None:
            [known] = self._encoded([text], self._is_special(text))
        return known

    def encode_whole(self, text: str) -> list[int]:
        """Encode without BOS: the text is scored from its first token on."""
        encoded = self.encode(text)
        return encoded[1:] if encoded and encoded[0] == self._begin else encoded

    def encode_bare(self, text: str) -> list[int]:
        """Encode without special tokens."""
        [encoded] = self._encoded([text], False)
        return encoded

    def special(self, texts: Iterable[str]) -> frozenset[int]:
        """Return the special tokens among these texts: decoded texts do not contain them."""
        return frozenset(self._specials[text] for text in texts if text in self._specials)

    def show(self, token: str | int) -> str:
        """Keep a token in decoded texts even if it is special; return its text."""
        if isinstance(token, str):
            self._shown = self._specials.get(token)
            return token
        self._shown = token
        return str(self._tokenizer.decode([token]))

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode tokens without special ones, except the one that is shown."""
        if self._shown is None or self._shown not in tokens:
            return self._decoded(tokens)
        at = list(tokens).index(self._shown)
        shown = str(self._tokenizer.decode([self._shown]))
        return self._decoded(tokens[:at]) + shown + self.decode(tokens[at + 1 :])

    def _decoded(self, tokens: Sequence[int]) -> str:
        if self.is_fast:
            return str(self._tokenizer.backend_tokenizer.decode(list(tokens), skip_special_tokens=True))
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def chat_template(
        self, messages: tuple[Message, ...], add_generation_prompt: bool, name: str | None, **extra: Any
    ) -> str:
        """Render a conversation. If the template refuses system messages, they are left out, as in lm-eval."""
        from jinja2 import TemplateError

        arguments = {"chat_template": name, "add_generation_prompt": add_generation_prompt} | extra
        arguments |= {} if add_generation_prompt else {"continue_final_message": True}
        try:
            return apply_chat_template(self._tokenizer, messages_to_plain(messages), arguments)
        except TemplateError:
            without_system = messages_to_plain([message for message in messages if message.role != "system"])
            return apply_chat_template(self._tokenizer, without_system, arguments)

    def check_template(self, name: str | None) -> None:
        """Raise a ConfigError if the chat template does not exist."""
        known = self._tokenizer.chat_template
        if not known:
            what, fix = "the tokenizer has no chat template", "leave out --apply_chat_template"
        elif name is None and isinstance(known, dict) and "default" not in known:
            what, fix = "the tokenizer has several chat templates", f"name one: {', '.join(known)}"
        elif name is not None and not (isinstance(known, dict) and name in known):
            names = list(known) if isinstance(known, dict) else []
            what = f"the tokenizer has no chat template {name!r}"
            fix = did_you_mean(name, names) if names else "its only template has no name: leave the name out"
        else:
            return
        raise ConfigError.at("apply_chat_template", what, fix)

    def written(self) -> str:
        """All that tokens and rendered conversations depend on."""
        own = self._tokenizer
        tokens = own.backend_tokenizer.to_str() if self.is_fast else repr(sorted(own.get_vocab().items()))
        specials = sorted(own.special_tokens_map.items())
        return f"{type(own).__name__} {tokens} {specials} {own.chat_template!r} {self._add_bos} {self._cuts_end}"

    def _is_special(self, text: str) -> bool:
        """Whether a text gets special tokens: not if it already starts with BOS."""
        begins = bool(self._beginning) and text.startswith(self._beginning)
        return not begins and self._add_bos is not False

    def _encoded(self, texts: Sequence[str], special: bool) -> list[list[int]]:
        if not texts:
            return []
        if self.is_fast:  # without offsets, which are not used
            encoded = self._tokenizer.backend_tokenizer.encode_batch_fast(list(texts), add_special_tokens=special)
            token_lists = [each.ids for each in encoded]
        else:
            token_lists = [self._tokenizer.encode(text, add_special_tokens=special) for text in texts]
        return [tokens[:-1] for tokens in token_lists] if special and self._cuts_end else token_lists


def _first(*tokens: int | None) -> int:
    return next((token for token in tokens if token is not None), 0)


class TokenizedModel:
    """The methods of a model that need only its tokenizer."""

    _tokenizer: HFTokenizer
    _template: str | None
    _template_args: dict[str, Any]

    def _set_tokenizer(
        self,
        tokenizer: HFTokenizer,
        template: str | None = None,
        template_args: Mapping[str, Any] | None = None,
        thinks: bool | None = None,
    ) -> None:
        self._tokenizer, self._template = tokenizer, template
        self._template_args = {**(template_args or {}), **({} if thinks is None else {"enable_thinking": thinks})}

    @classmethod
    def _alone(cls, tokenizer: HFTokenizer, arguments: Mapping[str, Any]) -> "TokenizedModel":
        """The tokenizer of a model with these arguments, without the model."""
        alone = TokenizedModel()
        named = [arguments.get(key) for key in ("chat_template", "chat_template_args", "enable_thinking")]
        alone._set_tokenizer(tokenizer, *named)
        return alone

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        self._tokenizer.check_template(self._template)
        return self._tokenizer.chat_template(messages, add_generation_prompt, self._template, **self._template_args)

    def use_template(self, name: str) -> None:
        """Select one of the tokenizer's chat templates by name."""
        self._tokenizer.check_template(name)
        self._template = name

    def count_tokens(self, text: str) -> int | None:
        return len(self._tokenizer.encode(text))

    def tokenizer_digest(self) -> str:
        return digest(f"{self._tokenizer.written()} {self._template!r} {self._template_args!r}".encode())
