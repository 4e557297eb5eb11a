"""A generation of a local model: its parameters, its tokens so far, and when it ends."""

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from assay.config.task import GenerationParams
from assay.models.reasoning import split_thinking
from assay.models.tokenizer import cut_at_stop, stops_of
from assay.records import DEFAULT_MAX_GEN_TOKS, LIMITS, UNFINISHED, Failed, Generate, Text, Usage, limit_of

NAN_LOGITS = "the model's logits are not numbers (NaN)"
NO_TOKEN = -1
"""Placeholder for a token that cannot be chosen: the logits are NaN or infinite."""
GENERATION_PARAMETERS = frozenset((*LIMITS, "until", "do_sample", "temperature", "top_p", "top_k"))
"""Generation parameters that local models support."""

Decode = Callable[[Sequence[int]], str]


class Generation:
    """A generation in progress. Its random numbers depend only on its prompt, repeat and draw, not on the batch."""

    def __init__(
        self,
        number: int,
        request: Generate,
        tokens: Sequence[int],
        think_end: str | None = None,
        ends: frozenset[int] = frozenset(),
    ) -> None:
        """`ends` are tokens that end this text, in addition to those that end every text."""
        params = request.params
        self.number, self.tokens, self._think_end, self._ends = number, tokens, think_end, ends
        self._stops = stops_of(params)
        self.left = limit_of(params) or DEFAULT_MAX_GEN_TOKS
        self.temperature = _number(params, "temperature", 1.0) if request.is_sampled else 0.0
        self.top_p = _number(params, "top_p", 1.0)
        self.top_k = int(_number(params, "top_k", 0))
        self._request = request
        self.written: list[int] = []
        unknown = sorted(key for key, value in params.items() if key not in GENERATION_PARAMETERS and value is not None)
        self.problem = f"unsupported generation parameter {unknown[0]!r}" if unknown else ""
        self.finish = ""
        self.text = ""
        self.cut = 0
        self.stored = 0
        self.seconds = 0.0

    @cached_property
    def _random(self) -> np.random.Generator:
        seed = hashlib.blake2b(self._request.seed_bytes, digest_size=8).digest()
        return np.random.default_rng(int.from_bytes(seed))

    @property
    def size(self) -> int:
        """Maximum length of prompt and text, in tokens."""
        return len(self.tokens) + self.left

    def fit(self, length: int, cuts: bool) -> None:
        """Shorten prompt and limit to a context length shared by both; set `problem` if the prompt is too long."""
        self._cut(length - self.left, cuts)
        if len(self.tokens) >= length:
            self.problem = f"{len(self.tokens)} tokens exceed the model's context length of {length}"
        self.left = min(self.left, length - len(self.tokens))

    def fit_apart(self, length: int, cuts: bool) -> None:
        """Shorten prompt and limit for a model with separate lengths for input and output."""
        self._cut(length, cuts)
        if len(self.tokens) > length:
            self.problem = f"{len(self.tokens)} tokens exceed the model's context length of {length}"
        self.left = min(self.left, length)

    def _cut(self, room: int, cuts: bool) -> None:
        if cuts and 0 < room < len(self.tokens):
            self.cut = len(self.tokens) - room
            self.tokens = self.tokens[self.cut :]

    def restart(self) -> None:
        """Restart from the prompt."""
        self.left += len(self.written)
        self.written = []
        self.__dict__.pop("_random", None)

    def uniforms(self, count: int) -> Sequence[float]:
        """Return the next random numbers from 0 to 1, one per token."""
        drawn: list[float] = self._random.random(count).tolist()
        return drawn

    def take(self, tokens: Sequence[int], ends: frozenset[int], decode: Decode) -> None:
        """Add tokens up to the end of the text."""
        before = len(self.written)
        for token in tokens:
            if token == NO_TOKEN:
                self.problem = NAN_LOGITS
                break
            if token in ends or token in self._ends:
                self.finish = "stop"
                break
            self.written.append(token)
            if len(self.written) - before >= self.left:
                self.finish = "length"
                break
        self.left -= len(self.written) - before
        if self._stops and self._may_stop(before, decode) and self._stopped(decode(self.written)):
            self.written = self.written[: self._first_stop(before, decode)]
            self.finish, self.problem = "stop", ""
        if self.finish:
            self._end(decode(self.written))

    def _may_stop(self, before: int, decode: Decode) -> bool:
        """Whether a stop string ends in the tokens from `before` on: they are decoded with as many before them as it can
        have begun in, so that a long text is not decoded again and again."""
        reach = 8 + 2 * max(len(stop.encode()) for stop in self._stops)
        text = decode(self.written[max(before - reach, 0) :])
        return any(stop in text for stop in self._stops)

    def _stopped(self, text: str) -> bool:
        """Whether the answer contains a stop string; those in the thinking do not count."""
        return cut_at_stop(self._parts(text)[1], self._stops)[1]

    def _parts(self, text: str) -> tuple[str, str]:
        """Split a text into the thinking, with its end token, and the answer."""
        if self._think_end is None:
            return "", text
        thoughts, end, answer = text.partition(self._think_end)
        return thoughts + end, answer

    def _first_stop(self, low: int, decode: Decode) -> int:
        """Smallest number of tokens whose text contains a stop string, by bisection."""
        low, high = low + 1, len(self.written)
        while low < high:
            middle = (low + high) // 2
            if self._stopped(decode(self.written[:middle])):
                high = middle
            else:
                low = middle + 1
        return low

    def _end(self, text: str) -> None:
        thoughts, answer = self._parts(text)
        self.text = thoughts + cut_at_stop(answer, self._stops)[0]

    def response(self) -> Text | Failed:
        if self.problem:
            return Failed(self.problem)
        usage = Usage(len(self.tokens), len(self.written), self.seconds, cut=self.cut, stored=self.stored)
        if self._think_end is None:
            return Text(self.text, self.finish, usage=usage)
        thoughts, answer, ended = split_thinking(self.text, end=self._think_end)
        if thoughts is None and self.finish == "length":  # the prompt began the thinking, and it never ended
            thoughts, answer, ended = answer, "", False
        if thoughts is None:
            answer = cut_at_stop(answer, self._stops)[0]
        return Text(answer, self.finish if ended else UNFINISHED, thoughts, usage)


def _number(params: GenerationParams, key: str, default: float) -> float:
    value = params.get(key)
    return default if value is None else float(str(value))
