"""Log-likelihoods from generation servers: through echoed prompts, prompt log-probabilities or the next token."""

import asyncio
import math
import re
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from assay.models.conversations import sent_messages
from assay.models.protocol import PermanentError, RetryableError
from assay.models.servers.reading import (
    RequestBody,
    ServerObject,
    fitted_offsets,
    forced_logprob,
    logprobs_of,
    mapping_of,
    most_likely,
    name_of,
    offsets_of,
    refuse_other_text,
    refuse_part,
    sglang_loglikelihood,
    sum_logprobs,
    token_count_mismatch,
    usage,
    usage_of,
    vllm_loglikelihood,
)
from assay.models.tokenizer import NO_PREFIX, ServerTokenizer, Tokenizer, encode_pair, rolling_windows
from assay.records import JSON, Failed, Likelihood, Prompt, Response, Usage

Post = Callable[[Mapping[str, JSON]], Awaitable[ServerObject]]
CANDIDATES = (1000, 100, 20, 5)
"""Numbers of most likely tokens to ask for: the first that the server allows. llama.cpp has thousands, vLLM and chats 20,
OpenAI's completions 5."""
NO_OFFSETS = "the server reports no text offsets: give tokenizer=FOLDER"
FORCE = 1e6
"""Added to the logit of a token that must be generated."""
TOO_MANY_CANDIDATES = re.compile(r"HTTP (?:4(?:00|22): .*logprob|500: )", re.DOTALL | re.IGNORECASE)
"""A refusal that is about the number of candidates; some servers break at more than there are tokens."""
SHARED = 4096
"""Number of contexts whose next tokens are remembered: the choices of a question share one."""


@dataclass(slots=True)
class LoglikelihoodClient:
    """Request log-likelihoods from a `source`: `echo`ed prompts, vLLM's `prompt` log-probabilities, SGLang's `/generate`
    (`sglang`), llama.cpp's `/completion` (`llamacpp`), or the `generated` token's for one-token answers.

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
    post_native: Post = field(init=False)
    """Posts to the path of SGLang or llama.cpp outside of the protocol."""
    _allowed: int = 0
    """Which of CANDIDATES the server has not refused."""
    _has_answered: bool = False
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
        if before[0] == NO_PREFIX:
            return Failed(
                "a text without context follows the BOS token, and the server's /tokenize adds none: give custom_prefix_token_id"
                " (of models without BOS the id of EOS), or tokenizer=FOLDER"
            )
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
        if self.source == "llamacpp":
            return await self._forced(whole, start)
        answer = await self._echo(whole)
        logprobs = logprobs_of(answer)
        count = len(logprobs["token_logprobs"])
        if count not in (len(whole), len(whole) + 1):
            return Failed(token_count_mismatch(count, len(whole)))
        if text is not None:
            refuse_other_text(answer, logprobs, text, is_exact=False, decoded=partial(self._decoded, whole))
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
        offsets = fitted_offsets(logprobs, offsets, text)
        refuse_part(logprobs, offsets, text)
        return answer, logprobs, offsets

    def _decoded(self, tokens: list[int]) -> str:
        """Return what the tokenizer makes of tokens: some have no capital letters, others no unknown ones."""
        return self.tokenizer.decode(tokens) if self.tokenizer is not None else ""

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
        return await self.post_native({"input_ids": prompt, "sampling_params": params, **asked})

    async def _forced(self, whole: list[int], start: int) -> Response:
        """Make llama.cpp generate each token behind those before it: a bias decides what it takes, and the log-probability that
        it reports is that of the model. Its cache has what came before, so a step costs one token."""
        total, is_greedy, used = 0.0, True, Usage()
        for at in range(start, len(whole)):
            answer = await self.post_native(
                {"prompt": whole[:at], "n_predict": 1, "n_probs": 1, "temperature": 0, "samplers": [], "cache_prompt": True,
                 "logit_bias": [[whole[at], FORCE]], "stream": False}
            )  # fmt: skip
            value, is_first = forced_logprob(answer, whole[at], at)
            total, is_greedy = total + value, is_greedy and is_first
            stored = mapping_of(answer.get("timings")).get("cache_n")
            used = _added(used, usage(answer.get("tokens_evaluated"), answer.get("tokens_predicted"), stored))
        return Likelihood(total, is_greedy, used)

    # one token

    async def _one_token(self, context: Prompt, continuation: str) -> Response:
        """Score a one-token choice by the most likely next tokens: one request for all choices. For one that is not among them
        there is an upper bound: the least likely of them, or a token with which the choice begins."""
        top, used, name = await self._next_tokens(context)
        target = continuation.strip() if self.chat else continuation
        value = top.get(target)
        if value is not None:
            return Likelihood(value, value >= max(top.values()), used, name)
        begun = [top[target[:end]] for end in range(1, len(target)) if target[:end] in top and target[:end].strip()]
        bound = max(math.nextafter(min(top.values()), -math.inf), *begun, -math.inf)
        return Likelihood(bound, False, used, name, is_bound=True)

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
            answer = await self._candidates(context)
            top, name = self._by_text(most_likely(answer)), name_of(answer)
            waiting.set_result((top, name))
        finally:
            if not waiting.done():
                self._next.pop(context, None)
                error = sys.exc_info()[1]
                waiting.set_exception(error if isinstance(error, Exception) else ConnectionError("canceled"))
                waiting.exception()  # marks it as retrieved: there may be no waiter
        return top, usage_of(answer), name

    def _by_text(self, top: Mapping[str, float]) -> dict[str, float]:
        """Tokens by the text that choices are compared with: in a chat without the space before it, the likeliest of two."""
        if not top:
            raise PermanentError("the server reports no log-probabilities (top_logprobs)")
        if not self.chat:
            return dict(top)
        ranked = sorted(top.items(), key=lambda item: item[1])
        return {token.strip(): value for token, value in ranked}

    async def _candidates(self, context: Prompt) -> ServerObject:
        """Ask for the next token with as many candidates as the server allows."""
        while True:
            tried = self._allowed
            try:
                answer = await self.post(self._one(context, CANDIDATES[tried]))
            except (PermanentError, RetryableError) as refused:
                if tried < self._allowed:  # another request found out first
                    continue
                if self._has_answered or tried + 1 == len(CANDIDATES) or not TOO_MANY_CANDIDATES.search(str(refused)):
                    raise
                self._allowed = max(self._allowed, tried + 1)
            else:
                self._has_answered = True
                return answer

    def _one(self, context: Prompt, count: int) -> RequestBody:
        common = {"max_tokens": 1, "temperature": 0}
        if self.chat:
            return {**common, "messages": sent_messages(context), "logprobs": True, "top_logprobs": count}
        return {**common, "prompt": context, "logprobs": count}


def _added(one: Usage, other: Usage | None) -> Usage:
    if other is None:
        return one
    return one._replace(
        read=one.read + other.read, written=one.written + other.written, stored=one.stored + other.stored
    )
