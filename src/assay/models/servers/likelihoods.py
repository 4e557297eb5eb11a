"""Log-likelihoods from generation servers: through echoed prompts, prompt log-probabilities or the next token.

Every value is checked: an invalid one fails its document and is never a number.
"""

import asyncio
import re
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.models.conversations import sent_messages
from assay.models.protocol import PermanentError
from assay.models.servers.usage import RequestBody, ServerObject, usage, usage_of
from assay.models.tokenizer import ServerTokenizer, Tokenizer, encode_pair, rolling_windows
from assay.records import JSON, Failed, Likelihood, Prompt, Response, Usage

ROUNDING = 1e-3
"""Tolerance for a log-probability above 0."""
LOST = "\ufffd"
"""Replacement character for bytes that are not a character."""
SPACES = str.maketrans({"\u0120": " ", "\u2581": " ", "\u010a": "\n", "\u0109": "\t"})
LONGEST_TOKEN = 32
ANOTHER_TOKENIZER = "the server reports other tokens than were sent: check that the tokenizer is this model's"


def checked_logprob(value: JSON) -> float:
    """Return a log-probability: a number, at most 0 but for rounding. Minus infinity is valid: the token is impossible."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= ROUNDING:
        raise PermanentError(f"the server reports the log-probability {value!r:.40}: it must be a number of at most 0")
    return float(value)


def logprobs_of(answer: ServerObject) -> ServerObject:
    """Return the log-probabilities of an answer; raise if its lists differ in length."""
    logprobs = answer["choices"][0].get("logprobs")
    if not isinstance(logprobs, Mapping) or not isinstance(logprobs.get("token_logprobs"), list):
        raise PermanentError("the server reports no log-probabilities (logprobs, token_logprobs)")
    names = ("token_logprobs", "top_logprobs", "tokens", "text_offset")
    lengths = {name: len(logprobs[name]) for name in names if isinstance(logprobs.get(name), list)}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{count} {name}" for name, count in lengths.items())
        raise PermanentError(f"the server reports lists of different lengths: {shown}")
    return logprobs


def sum_logprobs(answer: ServerObject, logprobs: ServerObject, start: int, end: int) -> Response:
    """Return the log-likelihood of tokens; greedy if each was the most likely."""
    tops = logprobs.get("top_logprobs")
    if not isinstance(tops, list) or not all(isinstance(top, Mapping) and top for top in tops[start:end]):
        raise PermanentError("the server reports no most likely tokens (top_logprobs)")
    values = [checked_logprob(value) for value in logprobs["token_logprobs"][start:end]]
    greedy = all(value >= _largest(top.values()) for value, top in zip(values, tops[start:end], strict=True))
    return Likelihood(float(sum(values)), greedy, usage_of(answer))


def most_likely(answer: ServerObject) -> dict[str, float]:
    """Return the log-probabilities of the most likely next tokens, by their text."""
    logprobs = answer["choices"][0].get("logprobs")
    if not isinstance(logprobs, Mapping):
        raise PermanentError("the server reports no log-probabilities (logprobs)")
    if "content" in logprobs:
        return {
            _text(each["token"]): checked_logprob(each["logprob"]) for each in logprobs["content"][0]["top_logprobs"]
        }
    return {_text(text): checked_logprob(value) for text, value in logprobs["top_logprobs"][0].items()}


def vllm_loglikelihood(answer: ServerObject, tokens: Sequence[int], start: int) -> Likelihood:
    """Return the log-likelihood from vLLM's `prompt_logprobs`: for each position its token and the most likely one."""
    logprobs = answer["choices"][0].get("prompt_logprobs")
    if not isinstance(logprobs, list):
        raise PermanentError("the server reports no log-probabilities of prompts (prompt_logprobs)")
    if len(logprobs) != len(tokens):
        raise PermanentError(token_count_mismatch(len(logprobs), len(tokens)))
    total, greedy = 0.0, True
    for at in range(start, len(tokens)):
        entries = logprobs[at]
        if not isinstance(entries, Mapping) or str(tokens[at]) not in entries:
            raise PermanentError(ANOTHER_TOKENIZER)
        entry = entries[str(tokens[at])]
        value = _listed(entry)
        rank = entry.get("rank") if isinstance(entry, Mapping) else None
        is_first = rank == 1 if rank is not None else value >= max(_listed(each) for each in entries.values())
        total, greedy = total + value, greedy and is_first
    return Likelihood(total, greedy, usage_of(answer))


def token_count_mismatch(reported: int, sent: int) -> str:
    """Return the message for an answer with another number of tokens than were sent."""
    return f"the server reports {reported} tokens for {sent} that were sent: check that the tokenizer is this model's"


def sglang_loglikelihood(answer: ServerObject, targets: Sequence[int]) -> Response:
    """Return the log-likelihood from SGLang's list: the last tokens of the prompt, each with its log-probability and id."""
    meta = answer["meta_info"]
    lists = [meta[key] for key in ("input_token_logprobs", "input_top_logprobs")]
    if not all(isinstance(each, list) and len(each) >= len(targets) for each in lists) or len(lists[0]) != len(
        lists[1]
    ):
        raise PermanentError(ANOTHER_TOKENIZER)
    tokens, tops = (each[len(each) - len(targets) :] for each in lists)
    if not all(each[1] in (token, 0) for each, token in zip(tokens, targets, strict=True)):  # 0: the very last one
        raise PermanentError(ANOTHER_TOKENIZER)
    if not all(isinstance(top, list) and top for top in tops):
        raise PermanentError("the server reports no most likely tokens (input_top_logprobs)")
    values = [checked_logprob(each[0]) for each in tokens]
    greedy = all(value >= _largest(each[0] for each in top) for value, top in zip(values, tops, strict=True))
    used = usage(meta.get("prompt_tokens"), meta.get("completion_tokens"), meta.get("cached_tokens"))
    return Likelihood(float(sum(values)), greedy, used)


def offsets_of(logprobs: ServerObject) -> Sequence[int] | None:
    """Return the text offset of each token; None if the server reports none or, like SGLang, -1 for all."""
    offsets = logprobs.get("text_offset")
    if not isinstance(offsets, list):
        return None
    if not all(isinstance(offset, int) and not isinstance(offset, bool) for offset in offsets):
        raise PermanentError("the server reports text offsets that are not integers (text_offset)")
    return None if any(offset < 0 for offset in offsets) else offsets


def refuse_part(logprobs: ServerObject, offsets: Sequence[int], text: str) -> None:
    """Refuse log-probabilities that end before the text does."""
    tokens = logprobs.get("tokens")
    if not offsets or offsets[-1] >= len(text) or not isinstance(tokens, list) or not isinstance(tokens[-1], str):
        return
    if text.isascii() and offsets[-1] + len(tokens[-1]) < len(text.rstrip()):
        raise PermanentError("the server reports log-probabilities of only a part of the text")


def refuse_other_text(answer: ServerObject, logprobs: ServerObject, sent: str, *, is_exact: bool) -> None:
    """Refuse an answer about another text than was sent, by its `text` and `tokens`.

    White space may differ, and what a tokenizer makes of half a character. Where tokens were sent (`is_exact` is false),
    special tokens may be missing, and the spelling of single tokens is not checked.
    """
    echoed, spelled = answer["choices"][0].get("text") or "", _spelled(logprobs.get("tokens"))
    if not isinstance(echoed, str):
        raise PermanentError(f"the text of an answer must be text, got {type(echoed).__name__}")
    if echoed.startswith(sent) or not (echoed or (spelled and is_exact)):
        return
    if any(text and _is_same(sent, text, is_exact=is_exact) for text in (echoed, spelled)):
        return
    is_last = bool(spelled) and not is_exact and echoed.strip() == str(logprobs["tokens"][-1]).strip()
    is_short = not spelled and len(echoed) < min(LONGEST_TOKEN, len(sent) / 2)
    if not is_last and not is_short:  # otherwise it is the one generated token
        raise PermanentError(f"the server echoed a different text than was sent: {(echoed or spelled)[:60]!r}")


def _spelled(tokens: JSON) -> str:
    """Join tokens to a text, with white space for the marks of tokenizers; empty if they are ids."""
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        return ""
    return "" if tokens and tokens[-1].startswith("token_id:") else "".join(tokens).translate(SPACES)


def _is_same(sent: str, text: str, *, is_exact: bool) -> bool:
    ours, theirs = ("".join(each.replace(LOST, "").split()) for each in (sent, text))
    if not theirs or ours in theirs:
        return True
    return (not is_exact or LOST in text) and _shared(ours, theirs) >= 0.5


def _shared(ours: str, theirs: str) -> float:
    """The share of pieces of the shorter text that the other one has."""
    ours, theirs = (re.sub(r"\W+", "", text.casefold()) or text for text in (ours, theirs))
    size = 5 if min(len(ours), len(theirs)) >= 40 else min(2, len(ours), len(theirs))
    one, other = ({text[at : at + size] for at in range(len(text) - size + 1)} for text in (ours, theirs))
    return len(one & other) / min(len(one), len(other))


def _largest(values: Iterable[JSON]) -> float:
    return max(checked_logprob(value) for value in values)


def _listed(entry: JSON) -> float:
    return checked_logprob(entry.get("logprob") if isinstance(entry, Mapping) else entry)


def _text(token: JSON) -> str:
    if not isinstance(token, str):
        raise PermanentError(f"the server reports the token {token!r:.40}: it must be text")
    return token


Post = Callable[[Mapping[str, JSON]], Awaitable[ServerObject]]
TOP = {True: 20, False: 5}
"""Number of top log-probabilities requested: in chat, in completions."""
NO_OFFSETS = "the server reports no text offsets: give tokenizer=FOLDER"
SHARED = 4096
"""Number of contexts whose next tokens are remembered: the choices of a question share one."""


@dataclass(slots=True)
class LoglikelihoodClient:
    """Request log-likelihoods from a `source`: `echo`ed prompts, vLLM's `prompt` log-probabilities, SGLang's `/generate`
    (`sglang`), or the `generated` token's for one-token answers.

    `cut`: a text that is too long is truncated on the left instead of failing.
    """

    source: str | None
    tokenizer: Tokenizer | None
    chat: bool = False
    cut: bool = False
    prefix: int | None = None
    max_length: int | None = None
    post: Post = field(init=False)
    post_generate: Post = field(init=False)
    """Posts to SGLang's `/generate`."""
    _next: "OrderedDict[Prompt, asyncio.Future[Any]]" = field(default_factory=OrderedDict)

    async def of(self, context: Prompt, continuation: str) -> Response:
        """Return the log-likelihood of a continuation after a context."""
        try:
            return await self._continued(context, continuation)
        except PermanentError as refused:
            return Failed(str(refused))

    async def rolling(self, text: str) -> Response:
        """Return the log-likelihood of a whole text."""
        try:
            return await self._rolling(text)
        except PermanentError as refused:
            return Failed(str(refused))

    async def _continued(self, context: Prompt, continuation: str) -> Response:
        if self.source == "generated":
            return await self._one_token(context, continuation)
        assert isinstance(context, str), "rendered by the template"
        if self.tokenizer is None:
            return await self._of_text(context, continuation)
        before, after = await self._pair(self.tokenizer, context, continuation)
        return await self._of_tokens(before, after, context + continuation)

    async def _rolling(self, text: str) -> Response:
        """Score a long text in windows."""
        if self.tokenizer is None:
            answer, logprobs, offsets = await self._echo_with_offsets(text)
            return sum_logprobs(answer, logprobs, 1, sum(offset < len(text) for offset in offsets))
        if isinstance(self.tokenizer, ServerTokenizer):
            await self.tokenizer.learn([text])
        total, usage = 0.0, Usage()
        size = (self._max_prompt or 2048) - 1
        tokens = self.tokenizer.encode(text)
        for before, after in rolling_windows(tokens, self._first(self.tokenizer), size):
            part = await self._of_tokens(before, after, text if len(after) == len(tokens) else None)
            if not isinstance(part, Likelihood):
                return part
            total += part.value
            usage = _added(usage, part.usage)
        return Likelihood(total, usage=usage)

    def _first(self, tokenizer: Tokenizer) -> int:
        return self.prefix if self.prefix is not None else tokenizer.prefix

    async def _pair(self, tokenizer: Tokenizer, context: str, continuation: str) -> tuple[list[int], list[int]]:
        if isinstance(tokenizer, ServerTokenizer):
            spaces = len(context) - len(context.rstrip())
            await tokenizer.learn(
                {context.rstrip(), context + continuation, context[len(context) - spaces :] + continuation}
            )
        return encode_pair(tokenizer.encode, context, continuation, self._first(tokenizer))

    async def _of_tokens(self, before: Sequence[int], after: Sequence[int], text: str | None) -> Response:
        """Return the log-likelihood of tokens after others. `text` is the text of all of them, if known."""
        whole, cut = [*before, *after], 0
        if self._max_prompt is not None and len(whole) > self._max_prompt:
            if not self.cut or len(after) >= self._max_prompt:
                return Failed(
                    f"{len(whole)} tokens plus one generated token exceed the model's context length of {self.max_length}"
                )
            cut = len(whole) - self._max_prompt
            whole = whole[cut:]
        response = await self._read(whole, len(whole) - len(after), text if not cut else None)
        if isinstance(response, Likelihood) and response.usage is not None and cut:
            return response._replace(usage=response.usage._replace(cut=cut))
        return response

    async def _read(self, whole: list[int], start: int, text: str | None) -> Response:
        """Return the log-likelihood of the tokens from `start` on."""
        if self.source == "prompt":
            return vllm_loglikelihood(await self._prompt(whole), whole, start)
        if self.source == "sglang":
            return sglang_loglikelihood(await self._from(whole, start), whole[start:])
        answer = await self._echo(whole)
        logprobs = logprobs_of(answer)
        count = len(logprobs["token_logprobs"])
        if count not in (len(whole), len(whole) + 1):
            return Failed(token_count_mismatch(count, len(whole)))
        if text is not None:
            refuse_other_text(answer, logprobs, text, is_exact=False)
        return sum_logprobs(answer, logprobs, start, len(whole))

    async def _of_text(self, context: str, continuation: str) -> Response:
        """Score without a tokenizer, by the server's text offsets."""
        if not context:
            return Failed("a text without a context needs a tokenizer: give tokenizer=FOLDER")
        answer, logprobs, offsets = await self._echo_with_offsets(context + continuation)
        # white space belongs to the continuation, as elsewhere
        start, end = len(context.rstrip()), len(context + continuation)
        inside = [n for n, offset in enumerate(offsets) if start <= offset < end]
        if not inside:
            return Failed(f"no token begins within {continuation!r:.40}: give tokenizer=FOLDER")
        if len(inside) != inside[-1] - inside[0] + 1:
            return Failed("the server reports text offsets that are not in ascending order (text_offset)")
        return sum_logprobs(answer, logprobs, inside[0], inside[-1] + 1)

    async def _echo_with_offsets(self, text: str) -> tuple[ServerObject, ServerObject, Sequence[int]]:
        """Return the answer to an echoed text, its log-probabilities, and the text offset of each token."""
        answer = await self._echo(text)
        logprobs = logprobs_of(answer)
        offsets = offsets_of(logprobs)
        if offsets is None:
            raise PermanentError(NO_OFFSETS)
        refuse_other_text(answer, logprobs, text, is_exact=True)
        refuse_part(logprobs, offsets, text)
        return answer, logprobs, offsets

    @property
    def _max_prompt(self) -> int | None:
        """Maximum prompt length: one token more is generated, since servers refuse to generate none."""
        return self.max_length - 1 if self.max_length is not None else None

    async def _echo(self, prompt: str | list[int]) -> ServerObject:
        return await self.post({"prompt": prompt, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1})

    async def _prompt(self, prompt: list[int]) -> ServerObject:
        return await self.post({"prompt": prompt, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1})

    async def _from(self, prompt: list[int], start: int) -> ServerObject:
        """Request SGLang's log-probabilities from a token on, so that its prefix cache serves the rest."""
        asked = {"return_logprob": True, "logprob_start_len": start - 1, "top_logprobs_num": 1}
        params = {"max_new_tokens": 1, "temperature": 0}
        return await self.post_generate({"input_ids": prompt, "sampling_params": params, **asked})

    # one token

    async def _one_token(self, context: Prompt, continuation: str) -> Response:
        """Score a one-token choice by the most likely next tokens: one request for all choices."""
        top, usage = await self._next_tokens(context)
        target = continuation.strip() if self.chat else continuation
        for token, value in top.items():
            if (token.strip() if self.chat else token) == target:
                return Likelihood(value, value >= max(top.values()), usage)
        return Failed(f"{continuation!r} is not among the {len(top)} most likely tokens that the server reports")

    async def _next_tokens(self, context: Prompt) -> tuple[dict[str, float], Usage]:
        """Return the most likely next tokens; the first request is charged for them."""
        known = self._next.get(context)
        if known is not None:
            return await asyncio.shield(known), Usage()
        self._next[context] = waiting = asyncio.get_running_loop().create_future()
        if len(self._next) > SHARED:
            self._next.popitem(last=False)
        try:
            answer = await self.post(self._one(context))
            top = most_likely(answer)
            waiting.set_result(top)
        finally:
            if not waiting.done():
                self._next.pop(context, None)
                error = sys.exc_info()[1]
                waiting.set_exception(error if isinstance(error, Exception) else ConnectionError("canceled"))
                waiting.exception()  # marks it as retrieved: there may be no waiter
        return top, usage_of(answer)

    def _one(self, context: Prompt) -> RequestBody:
        common = {"max_tokens": 1, "temperature": 0}
        if self.chat:
            return {**common, "messages": sent_messages(context), "logprobs": True, "top_logprobs": TOP[True]}
        return {**common, "prompt": context, "logprobs": TOP[False]}


def _added(one: Usage, other: Usage | None) -> Usage:
    return one._replace(read=one.read + other.read, written=one.written + other.written) if other is not None else one
