"""A text that a local model writes: what is wanted of it, what is written, and when it ends."""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from assay.models.reasoning import split_thinking
from assay.models.tokens import cut_at_stop, stops_of
from assay.records import DEFAULT_MAX_GEN_TOKS, LIMITS, UNFINISHED, Failed, Generate, Text, Usage, limit_of

KNOWN = frozenset((*LIMITS, "until", "do_sample", "temperature", "top_p", "top_k"))
"""The parameters of a generation that are understood."""

Decode = Callable[[Sequence[int]], str]


class Writing:
    """A generation under way. Its random numbers are its own: the same for the same prompt and repeat, whatever else is
    written beside it."""

    def __init__(self, number: int, request: Generate, tokens: Sequence[int], think_end: str | None = None) -> None:
        params = request.params
        self.number, self.tokens, self._think_end = number, tokens, think_end
        self._stops = stops_of(params)
        self.left = limit_of(params) or DEFAULT_MAX_GEN_TOKS
        self.temperature = float(str(params.get("temperature") or 1.0)) if request.is_sampled else 0.0
        self.top_p = _number(params, "top_p", 1.0)
        self.top_k = int(_number(params, "top_k", 0))
        seed = hashlib.blake2b(f"{request.prompt}\0{request.repeat}".encode(), digest_size=8).digest()
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
        """Make it fit a model of so many tokens."""
        room = most - self.left
        if cuts and 0 < room < len(self.tokens):
            self.cut = len(self.tokens) - room
            self.tokens = self.tokens[self.cut :]
        if len(self.tokens) >= most:
            self.problem = f"{len(self.tokens)} tokens are more than the model's {most}"
        self.left = min(self.left, most - len(self.tokens))

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
            if token in ends:
                self.finish = "stop"
                break
            self.written.append(token)
            if len(self.written) - before >= self.left:
                self.finish = "length"
                break
        self.left -= len(self.written) - before
        if self._stops and self._stopped(decode(self.written)):
            self.written = self.written[: self._first_stop(before, decode)]
            self.finish = "stop"
        if self.finish:
            self._end(decode(self.written))

    def _stopped(self, text: str) -> bool:
        return cut_at_stop(self._answer(text), self._stops)[1]

    def _answer(self, text: str) -> str:
        return text if self._think_end is None else text.rpartition(self._think_end)[2]

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
        answer = self._answer(text)
        kept, stopped = cut_at_stop(answer, self._stops)
        self.text = text[: len(text) - len(answer)] + kept if stopped else text

    def response(self) -> Text | Failed:
        if self.problem:
            return Failed(self.problem)
        usage = Usage(len(self.tokens), len(self.written), self.seconds, cut=self.cut, stored=self.stored)
        if self._think_end is None:
            return Text(self.text, self.finish, usage=usage)
        thoughts, answer, ended = split_thinking(self.text, end=self._think_end)
        return Text(answer, self.finish if ended else UNFINISHED, thoughts, usage)


def _number(params: Mapping[str, object], key: str, default: float) -> float:
    found = params.get(key)
    return default if found is None else float(str(found))
