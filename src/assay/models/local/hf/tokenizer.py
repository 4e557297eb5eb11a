"""Texts to tokens and back with a tokenizer of transformers, by lm-eval's rules: what begins a text is there exactly once."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.models.local.shared_tokens import Cut, cuts, encode_alike, splits_words
from assay.models.tokens import encode_pair, joined
from assay.records import Message, messages_to_plain


class Words:
    """A tokenizer. `add_bos` says whether texts get what begins and ends them; nothing said, it is as the tokenizer likes.
    What ends a text is left out, since something follows it; but for texts that are read before another is written."""

    def __init__(
        self, tokenizer: Any, add_bos: bool | None = None, prefix_token: int | None = None, *, ends: bool = False
    ) -> None:
        self._tokenizer, self._add_bos = tokenizer, add_bos
        self.is_fast = bool(getattr(tokenizer, "is_fast", False))
        if self.is_fast:
            tokenizer.backend_tokenizer.no_truncation()
            tokenizer.backend_tokenizer.no_padding()
        self.end: int | None = tokenizer.eos_token_id
        self.prefix = _first(prefix_token, tokenizer.bos_token_id, tokenizer.eos_token_id, 0)
        self._begin: int | None = tokenizer.bos_token_id
        self._beginning = tokenizer.decode([self._begin]) if self._begin is not None else ""
        self._cuts_end = False
        if not ends and self.end is not None:
            self._cuts_end = self._encoded(["a"], True)[0][-1:] == [self.end]
        self._splits_words = self.is_fast and splits_words(tokenizer.backend_tokenizer)
        self._specials = {str(tokenizer.decode([number])): number for number in tokenizer.all_special_ids}
        self._shown: int | None = None
        self._known: dict[str, list[int]] = {}
        self._pairs: dict[tuple[str, str], tuple[list[int], list[int]]] = {}

    def prime(self, texts: Iterable[str], pairs: Iterable[tuple[str, str]] = ()) -> None:
        """Turn many texts into tokens at once, and contexts with their continuations: they are asked for soon, and those
        before are not again."""
        several = list(dict.fromkeys(joined(*pair) for pair in pairs))
        self._known, self._pairs = {}, {}
        heads = [*texts, *(context for context, _ in several if context)]
        for special in (False, True):
            here = [text for text in heads if self._is_special(text) is special]
            self._known.update(self._alike(here, special))
            self._pair([pair for pair in several if pair[0] and self._is_special(pair[0]) is special], special)

    def _alike(self, texts: Sequence[str], special: bool) -> dict[str, list[int]]:
        if self._splits_words:
            return encode_alike(texts, partial(self._encoded, special=special), partial(self._encoded, special=False))
        once = list(dict.fromkeys(texts))
        return dict(zip(once, self._encoded(once, special), strict=True))

    def _pair(self, pairs: Sequence[tuple[str, str]], special: bool) -> None:
        """The tokens of contexts, which are known, and of what follows them."""
        heads = list(dict.fromkeys(context for context, _ in pairs))
        encode, bare = partial(self._encoded, special=special), partial(self._encoded, special=False)
        found: Sequence[Cut | None] = [None] * len(heads)
        if self._splits_words:
            found = cuts(heads, [self._known[head] for head in heads], bare)
        at = {head: cut or Cut(0, []) for head, cut in zip(heads, found, strict=True)}
        for is_whole in (True, False):
            some = [pair for pair in pairs if (at[pair[0]].at == 0) is is_whole]
            tails = (encode if is_whole else bare)([(context + rest)[at[context].at :] for context, rest in some])
            for (context, rest), tail in zip(some, tails, strict=True):
                known = self._known[context]
                joint = len(known) - len(at[context].before)
                if len(tail) > joint and tail[:joint] == known[len(known) - joint :]:
                    self._pairs[context, rest] = (known, tail[joint:])

    def pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """The tokens of a context, and those of what follows it."""
        context, continuation = joined(context, continuation)
        known = self._pairs.get((context, continuation))
        return known if known is not None else encode_pair(self.encode, context, continuation, self.prefix)

    def encode(self, text: str) -> list[int]:
        known = self._known.get(text)
        if known is None:
            [known] = self._encoded([text], self._is_special(text))
        return known

    def encode_whole(self, text: str) -> list[int]:
        """Without what begins a text: it is asked about from its first token on."""
        made = self.encode(text)
        return made[1:] if made and made[0] == self._begin else made

    def encode_bare(self, text: str) -> list[int]:
        """Without anything that begins or ends a text."""
        [made] = self._encoded([text], False)
        return made

    def special(self, texts: Iterable[str]) -> frozenset[int]:
        """Those of these texts that are a special token each, as tokens: decoded texts do not have them."""
        return frozenset(self._specials[text] for text in texts if text in self._specials)

    def show(self, token: str | int) -> str:
        """Have a token in decoded texts even if it is a special one; what it looks like there."""
        if isinstance(token, str):
            self._shown = self._specials.get(token)
            return token
        self._shown = token
        return str(self._tokenizer.decode([token]))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones but for one that is shown."""
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
        """A conversation as text. Where a template refuses a system message, its words go without one, as lm-eval's do."""
        from jinja2 import TemplateError

        given = {"chat_template": name, "add_generation_prompt": add_generation_prompt} | extra
        given |= {} if add_generation_prompt else {"continue_final_message": True}
        try:
            return str(self._tokenizer.apply_chat_template(messages_to_plain(messages), tokenize=False, **given))
        except TemplateError:
            spoken = messages_to_plain([message for message in messages if message.role != "system"])
            return str(self._tokenizer.apply_chat_template(spoken, tokenize=False, **given))

    def check_template(self, name: str | None) -> None:
        """Refuse a template that is not there."""
        known = self._tokenizer.chat_template
        if not known:
            what, fix = "the tokenizer has no chat template", "leave out --apply_chat_template"
        elif name is None and isinstance(known, dict) and "default" not in known:
            what, fix = "the tokenizer has several chat templates", f"name one: {', '.join(known)}"
        elif name is not None and not (isinstance(known, dict) and name in known):
            names = list(known) if isinstance(known, dict) else []
            what = f"the tokenizer has no chat template {name!r}"
            fix = did_you_mean(name, names) if names else "it has one without a name: leave the name out"
        else:
            return
        raise ConfigError([Problem(Place("apply_chat_template"), what, fix)])

    def _is_special(self, text: str) -> bool:
        """Whether a text gets what begins and ends it: not if it begins so already."""
        begins = bool(self._beginning) and text.startswith(self._beginning)
        return not begins and self._add_bos is not False

    def _encoded(self, texts: Sequence[str], special: bool) -> list[list[int]]:
        if not texts:
            return []
        if self.is_fast:  # without the offsets of each token, which nobody reads
            made = self._tokenizer.backend_tokenizer.encode_batch_fast(list(texts), add_special_tokens=special)
            found = [each.ids for each in made]
        else:
            found = [self._tokenizer.encode(text, add_special_tokens=special) for text in texts]
        return [tokens[:-1] for tokens in found] if special and self._cuts_end else found


def _first(*tokens: int | None) -> int:
    return next((token for token in tokens if token is not None), 0)


class Spoken:
    """What a model does with its tokenizer alone."""

    _words: Words
    _template: str | None
    _template_args: dict[str, Any]

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        self._words.check_template(self._template)
        return self._words.chat_template(messages, add_generation_prompt, self._template, **self._template_args)

    def use_template(self, name: str) -> None:
        """Take one of the tokenizer's templates by its name."""
        self._words.check_template(name)
        self._template = name

    def count_tokens(self, text: str) -> int | None:
        return len(self._words.encode(text))
