"""Log-likelihoods from generation servers: through echoed prompts, prompt log-probabilities or the next token."""

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.models.conversations import sent_messages
from assay.models.protocol import PermanentError
from assay.models.servers.reading import (
    RequestBody,
    ServerObject,
    logprobs_of,
    most_likely,
    name_of,
    offsets_of,
    refuse_other_text,
    refuse_part,
    sglang_loglikelihood,
    sum_logprobs,
    token_count_mismatch,
    usage_of,
    vllm_loglikelihood,
)
from assay.models.tokenizer import ServerTokenizer, Tokenizer, encode_pair, rolling_windows
from assay.records import JSON, Failed, Likelihood, Prompt, Response, Usage

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
    length_source: str = ""
    """Where the context length is from, for messages."""
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
        total, usage, name = 0.0, Usage(), ""
        size = (self._max_prompt or 2048) - 1
        tokens = self.tokenizer.encode(text)
        for before, after in rolling_windows(tokens, self._first(self.tokenizer), size):
            part = await self._of_tokens(before, after, text if len(after) == len(tokens) else None)
            if not isinstance(part, Likelihood):
                return part
            total += part.value
            usage, name = _added(usage, part.usage), name or part.model
        return Likelihood(total, usage=usage, model=name)

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
                    f"{self.length_source}"
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
        top, usage, name = await self._next_tokens(context)
        target = continuation.strip() if self.chat else continuation
        for token, value in top.items():
            if (token.strip() if self.chat else token) == target:
                return Likelihood(value, value >= max(top.values()), usage, name)
        return Failed(f"{continuation!r} is not among the {len(top)} most likely tokens that the server reports")

    async def _next_tokens(self, context: Prompt) -> tuple[dict[str, float], Usage, str]:
        """Return the most likely next tokens, and the model's name; the first request is charged for them."""
        known = self._next.get(context)
        if known is not None:
            top, name = await asyncio.shield(known)
            return top, Usage(), name
        self._next[context] = waiting = asyncio.get_running_loop().create_future()
        if len(self._next) > SHARED:
            self._next.popitem(last=False)
        try:
            answer = await self.post(self._one(context))
            top, name = most_likely(answer), name_of(answer)
            waiting.set_result((top, name))
        finally:
            if not waiting.done():
                self._next.pop(context, None)
                error = sys.exc_info()[1]
                waiting.set_exception(error if isinstance(error, Exception) else ConnectionError("canceled"))
                waiting.exception()  # marks it as retrieved: there may be no waiter
        return top, usage_of(answer), name

    def _one(self, context: Prompt) -> RequestBody:
        common = {"max_tokens": 1, "temperature": 0}
        if self.chat:
            return {**common, "messages": sent_messages(context), "logprobs": True, "top_logprobs": TOP[True]}
        return {**common, "prompt": context, "logprobs": TOP[False]}


def _added(one: Usage, other: Usage | None) -> Usage:
    return one._replace(read=one.read + other.read, written=one.written + other.written) if other is not None else one
