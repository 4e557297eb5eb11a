"""Log-likelihoods from servers that were made to generate: what their protocols offer, read as what was asked."""

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.models.conversations import sent_messages
from assay.models.servers.http import Refused
from assay.models.servers.logprobs import (
    likeliest,
    logprobs_of,
    miscounted,
    of_generate,
    of_prompt,
    offsets_of,
    refuse_other_text,
    refuse_part,
    summed,
)
from assay.models.servers.tokenizers import ServerWords, Words
from assay.models.servers.usage import usage_of
from assay.models.tokens import encode_pair, rolling_windows
from assay.records import Failed, Likelihood, Prompt, Response, Usage

Post = Callable[[Mapping[str, Any]], Awaitable[Any]]
TOP = {True: 20, False: 5}
"""How many of the likeliest tokens are asked for: in conversations, in completions."""
NO_OFFSETS = "the server does not say where tokens begin: give tokenizer=FOLDER"
SHARED = 4096
"""Contexts of which the likeliest next tokens are remembered: the choices of a question share one."""


@dataclass(slots=True)
class Likelihoods:
    """`way` is how: `echo`ed prompts, vLLM's `prompt` log-probabilities, SGLang's own `/generate` (`sglang`), or of one-token
    answers the `generated` token's.

    `cut`: a text that is longer than the model loses its beginning instead of failing.
    """

    way: str | None
    words: Words | None
    chat: bool = False
    cut: bool = False
    prefix: int | None = None
    max_length: int | None = None
    post: Post = field(init=False)
    post_generate: Post = field(init=False)
    """Asks SGLang's `/generate`."""
    _next: "OrderedDict[Prompt, asyncio.Future[Any]]" = field(default_factory=OrderedDict)

    async def of(self, context: Prompt, continuation: str) -> Response:
        """How likely is a continuation after a context?"""
        try:
            return await self._continued(context, continuation)
        except Refused as refused:
            return Failed(str(refused))

    async def rolling(self, text: str) -> Response:
        """How likely is a whole text?"""
        try:
            return await self._rolling(text)
        except Refused as refused:
            return Failed(str(refused))

    async def _continued(self, context: Prompt, continuation: str) -> Response:
        if self.way == "generated":
            return await self._one_token(context, continuation)
        assert isinstance(context, str), "the template has written it"
        if self.words is None:
            return await self._of_text(context, continuation)
        before, after = await self._pair(self.words, context, continuation)
        return await self._of_tokens(before, after, context + continuation)

    async def _rolling(self, text: str) -> Response:
        """A long text is taken in windows."""
        if self.words is None:
            answer, found, offsets = await self._placed(text)
            return summed(answer, found, 1, sum(offset < len(text) for offset in offsets))
        if isinstance(self.words, ServerWords):
            await self.words.learn([text])
        total, usage = 0.0, Usage()
        size = (self._room or 2048) - 1
        tokens = self.words.encode(text)
        for before, after in rolling_windows(tokens, self._first(self.words), size):
            part = await self._of_tokens(before, after, text if len(after) == len(tokens) else None)
            if not isinstance(part, Likelihood):
                return part
            total += part.value
            usage = _added(usage, part.usage)
        return Likelihood(total, usage=usage)

    def _first(self, words: Words) -> int:
        return self.prefix if self.prefix is not None else words.prefix

    async def _pair(self, words: Words, context: str, continuation: str) -> tuple[list[int], list[int]]:
        if isinstance(words, ServerWords):
            spaces = len(context) - len(context.rstrip())
            await words.learn(
                {context.rstrip(), context + continuation, context[len(context) - spaces :] + continuation}
            )
        return encode_pair(words.encode, context, continuation, self._first(words))

    async def _of_tokens(self, before: Sequence[int], after: Sequence[int], text: str | None) -> Response:
        """How likely are tokens after others? `text` is what all of them are, where that is known."""
        whole, cut = [*before, *after], 0
        if self._room is not None and len(whole) > self._room:
            if not self.cut or len(after) >= self._room:
                return Failed(f"{len(whole)} tokens and one to come are more than the model's {self.max_length}")
            cut = len(whole) - self._room
            whole = whole[cut:]
        made = await self._read(whole, len(whole) - len(after), text if not cut else None)
        if isinstance(made, Likelihood) and made.usage is not None and cut:
            return made._replace(usage=made.usage._replace(cut=cut))
        return made

    async def _read(self, whole: list[int], start: int, text: str | None) -> Response:
        """How likely are the tokens from `start` on, in the way of this server?"""
        if self.way == "prompt":
            return of_prompt(await self._prompt(whole), whole, start)
        if self.way == "sglang":
            return of_generate(await self._from(whole, start), whole[start:])
        answer = await self._echo(whole)
        found = logprobs_of(answer)
        count = len(found["token_logprobs"])
        if count not in (len(whole), len(whole) + 1):
            return Failed(miscounted(count, len(whole)))
        if text is not None:
            refuse_other_text(answer, found, text, is_exact=False)
        return summed(answer, found, start, len(whole))

    async def _of_text(self, context: str, continuation: str) -> Response:
        """Without a tokenizer: the server says where in the text each token begins."""
        if not context:
            return Failed("a text without a context needs to be cut into tokens here: give tokenizer=FOLDER")
        answer, found, offsets = await self._placed(context + continuation)
        # white space belongs to what follows, as elsewhere
        start, end = len(context.rstrip()), len(context + continuation)
        inside = [n for n, offset in enumerate(offsets) if start <= offset < end]
        if not inside:
            return Failed(f"no token begins within {continuation!r:.40}: give tokenizer=FOLDER")
        if len(inside) != inside[-1] - inside[0] + 1:
            return Failed("the server reports places of tokens that are out of order (text_offset)")
        return summed(answer, found, inside[0], inside[-1] + 1)

    async def _placed(self, text: str) -> tuple[Any, Mapping[str, Any], Sequence[int]]:
        """The answer to a text that is echoed, its log-probabilities, and where in the text each token begins."""
        answer = await self._echo(text)
        found = logprobs_of(answer)
        offsets = offsets_of(found)
        if offsets is None:
            raise Refused(NO_OFFSETS)
        refuse_other_text(answer, found, text, is_exact=True)
        refuse_part(found, offsets, text)
        return answer, found, offsets

    @property
    def _room(self) -> int | None:
        """How many tokens a prompt may have: one more is generated, since servers will not do with none."""
        return self.max_length - 1 if self.max_length is not None else None

    async def _echo(self, prompt: str | list[int]) -> Any:
        return await self.post({"prompt": prompt, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1})

    async def _prompt(self, prompt: list[int]) -> Any:
        return await self.post({"prompt": prompt, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1})

    async def _from(self, prompt: list[int], start: int) -> Any:
        """SGLang tells of tokens from one on, and what stands before it it may have read already."""
        asked = {"return_logprob": True, "logprob_start_len": start - 1, "top_logprobs_num": 1}
        params = {"max_new_tokens": 1, "temperature": 0}
        return await self.post_generate({"input_ids": prompt, "sampling_params": params, **asked})

    # one token

    async def _one_token(self, context: Prompt, continuation: str) -> Response:
        """The log-probability of a choice of one token, among those the model might say next: one request for all choices."""
        top, usage = await self._likeliest(context)
        wanted = continuation.strip() if self.chat else continuation
        for said, value in top.items():
            if (said.strip() if self.chat else said) == wanted:
                return Likelihood(value, value >= max(top.values()), usage)
        return Failed(f"{continuation!r} is not among the {len(top)} likeliest tokens that the server tells of")

    async def _likeliest(self, context: Prompt) -> tuple[dict[str, float], Usage]:
        """The likeliest next tokens; whoever asks first pays for them."""
        known = self._next.get(context)
        if known is not None:
            return await asyncio.shield(known), Usage()
        self._next[context] = waiting = asyncio.get_running_loop().create_future()
        if len(self._next) > SHARED:
            self._next.popitem(last=False)
        try:
            answer = await self.post(self._one(context))
            top = likeliest(answer)
            waiting.set_result(top)
        finally:
            if not waiting.done():
                self._next.pop(context, None)
                error = sys.exc_info()[1]
                waiting.set_exception(error if isinstance(error, Exception) else ConnectionError("given up"))
                waiting.exception()  # nobody may have waited
        return top, usage_of(answer)

    def _one(self, context: Prompt) -> dict[str, Any]:
        common = {"max_tokens": 1, "temperature": 0}
        if self.chat:
            return {**common, "messages": sent_messages(context), "logprobs": True, "top_logprobs": TOP[True]}
        return {**common, "prompt": context, "logprobs": TOP[False]}


def _added(one: Usage, other: Usage | None) -> Usage:
    return one._replace(read=one.read + other.read, written=one.written + other.written) if other is not None else one
