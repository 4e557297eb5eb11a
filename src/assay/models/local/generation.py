"""A text that a local model writes: what is wanted of it, what is written, and when it ends."""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from assay.models.reasoning import split_thinking
from assay.models.tokens import cut_at_stop, stops_of
from assay.records import DEFAULT_MAX_GEN_TOKS, LIMITS, UNFINISHED, Failed, Generate, Text, Usage, limit_of

NOT_NUMBERS = "the model's logits are not numbers (NaN)"
NO_TOKEN = -1
"""Stands where a token would have been chosen from logits that are not numbers."""
KNOWN = frozenset((*LIMITS, "until", "do_sample", "temperature", "top_p", "top_k"))
"""The parameters of a generation that are understood."""

Decode = Callable[[Sequence[int]], str]


class Writing:
    """A generation under way. Its random numbers are its own: the same for the same prompt, repeat and draw, whatever
    else is written beside it."""

    def __init__(
        self,
        number: int,
        request: Generate,
        tokens: Sequence[int],
        think_end: str | None = None,
        ends: frozenset[int] = frozenset(),
    ) -> None:
        """`ends` are tokens that end this text, beside those that end every text."""
        params = request.params
        self.number, self.tokens, self._think_end, self._ends = number, tokens, think_end, ends
        self._stops = stops_of(params)
        self.left = limit_of(params) or DEFAULT_MAX_GEN_TOKS
        self.temperature = _number(params, "temperature", 1.0) if request.is_sampled else 0.0
        self.top_p = _number(params, "top_p", 1.0)
        self.top_k = int(_number(params, "top_k", 0))
        seed = hashlib.blake2b(request.seed_bytes, digest_size=8).digest()
        self._seed = int.from_bytes(seed)
        self._random = np.random.default_rng(self._seed)
        self.written: list[int] = []
        unknown = sorted(key for key, value in params.items() if key not in KNOWN and value is not None)
        self.problem = f"this model does not know the parameter {unknown[0]!r}" if unknown else ""
        self.finish = ""
        self.text = ""
        self.cut = 0
        self.stored = 0
        self.seconds = 0.0

    @property
    def size(self) -> int:
        """The tokens it may come to."""
        return len(self.tokens) + self.left

    def fit(self, most: int, cuts: bool) -> None:
        """Make it fit a model that can hold so many tokens, the prompt's and those it writes."""
        self._cut(most - self.left, cuts)
        if len(self.tokens) >= most:
            self.problem = f"{len(self.tokens)} tokens are more than the model's {most}"
        self.left = min(self.left, most - len(self.tokens))

    def fit_apart(self, most: int, cuts: bool) -> None:
        """The same for a model that reads so many tokens, and writes so many others."""
        self._cut(most, cuts)
        if len(self.tokens) > most:
            self.problem = f"{len(self.tokens)} tokens are more than the model's {most}"
        self.left = min(self.left, most)

    def _cut(self, room: int, cuts: bool) -> None:
        if cuts and 0 < room < len(self.tokens):
            self.cut = len(self.tokens) - room
            self.tokens = self.tokens[self.cut :]

    def restart(self) -> None:
        """Begin again from the prompt."""
        self.left += len(self.written)
        self.written = []
        self._random = np.random.default_rng(self._seed)

    def uniforms(self, count: int) -> Sequence[float]:
        """The next random numbers from 0 to 1, for a token each."""
        drawn: list[float] = self._random.random(count).tolist()
        return drawn

    def take(self, tokens: Sequence[int], ends: frozenset[int], decode: Decode) -> None:
        """Take the next tokens, up to where the text ends."""
        before = len(self.written)
        for token in tokens:
            if token == NO_TOKEN:
                self.problem = NOT_NUMBERS
                break
            if token in ends or token in self._ends:
                self.finish = "stop"
                break
            self.written.append(token)
            if len(self.written) - before >= self.left:
                self.finish = "length"
                break
        self.left -= len(self.written) - before
        if self._stops and self._stopped(decode(self.written)):
            self.written = self.written[: self._first_stop(before, decode)]
            self.finish, self.problem = "stop", ""
        if self.finish:
            self._end(decode(self.written))

    def _stopped(self, text: str) -> bool:
        """Whether there is a stop in the answer; while the model thinks, there is none."""
        return cut_at_stop(self._parts(text)[1], self._stops)[1]

    def _parts(self, text: str) -> tuple[str, str]:
        """What was thought, with what ends it; and the answer."""
        if self._think_end is None:
            return "", text
        thoughts, end, answer = text.partition(self._think_end)
        return thoughts + end, answer

    def _first_stop(self, low: int, decode: Decode) -> int:
        """The fewest tokens whose text has a stop in it, found by halving."""
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


def _number(params: Mapping[str, object], key: str, default: float) -> float:
    found = params.get(key)
    return default if found is None else float(str(found))
