"""Questions about likelihoods as pairs of tokens, and the numbers of the pairs as answers.

A text that is longer than the model is asked about in windows, and its answer is their sum. A context that is too long
loses its beginning where the model was told so, and fails otherwise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from assay.models.local.generation import NOT_NUMBERS
from assay.models.tokens import Encode, rolling_windows
from assay.records import Failed, Likelihood, Loglikelihood, Request, Response, Rolling, Usage

Pair = tuple[int, Sequence[int], Sequence[int]]
"""A number, a context and its continuation."""
BEYOND_NUMBERS = "the model's log-likelihood is beyond all numbers (inf)"


@dataclass(slots=True)
class _Open:
    """A request whose windows are not all there."""

    number: int
    windows: int
    value: float = 0.0
    greedy: bool = True
    read: int = 0
    stored: int = 0
    seconds: float = 0.0
    cut: int = 0


@dataclass(slots=True)
class Windows:
    """Takes requests, gives pairs; takes the numbers of pairs, gives responses."""

    encode: Encode
    pair: Callable[[str, str], tuple[list[int], list[int]]]
    """The tokens of a context and of what follows it."""
    prefix_token: int
    max_length: int
    cuts: bool
    is_counted: bool = True
    """Whether responses say what they took."""
    _of_pair: dict[int, _Open] = field(default_factory=dict)
    _pairs: int = 0

    def pairs(self, number: int, request: Request) -> list[Pair] | Response:
        """The pairs of a request, numbered on; or its answer, where it has one already."""
        return self._opened(number, self._windows(request))

    def pairs_of(self, number: int, context: list[int], continuation: list[int]) -> list[Pair] | Response:
        """The same for the tokens of two texts that stand apart: each may be as long as the model is."""
        return self._opened(number, [(context, continuation)], apart=True)

    def _opened(
        self, number: int, made: list[tuple[list[int], list[int]]], *, apart: bool = False
    ) -> list[Pair] | Response:
        made = [(context, continuation) for context, continuation in made if continuation]
        if not made:
            return Likelihood(0.0, True)
        opened = _Open(number, len(made))
        pairs: list[Pair] = []
        for context, continuation in made:
            cut = len(context) + (0 if apart else len(continuation) - 1) - self.max_length
            if len(continuation) > self.max_length or (cut > 0 and not (self.cuts and cut < len(context))):
                length = len(context) + len(continuation)
                return Failed(f"{length} tokens are more than the model's {self.max_length}")
            opened.cut += max(cut, 0)
            pairs.append((self._pairs + len(pairs), context[cut:] if cut > 0 else context, continuation))
        for name, _, _ in pairs:
            self._of_pair[name] = opened
        self._pairs += len(pairs)
        return pairs

    def land(
        self, pair: int, value: float, greedy: bool, *, usage: Usage = Usage(), problem: str = ""  # noqa: B008  # a tuple
    ) -> list[tuple[int, Response]]:  # fmt: skip
        """Take the number of a pair; the response that is now complete, if one is."""
        opened = self._of_pair.pop(pair)
        if opened.windows <= 0:
            return []
        if not value < math.inf:
            problem = problem or (NOT_NUMBERS if math.isnan(value) else BEYOND_NUMBERS)
        if problem:
            opened.windows = 0
            return [(opened.number, Failed(problem))]
        opened.value += value
        opened.greedy &= greedy
        opened.read, opened.stored = opened.read + usage.read, opened.stored + usage.stored
        opened.seconds += usage.seconds
        opened.windows -= 1
        return [] if opened.windows else [(opened.number, Likelihood(opened.value, opened.greedy, self._usage(opened)))]

    def _usage(self, opened: _Open) -> Usage | None:
        if self.is_counted:
            return Usage(opened.read, 0, opened.seconds, cut=opened.cut, stored=opened.stored)
        return Usage(cut=opened.cut) if opened.cut else None

    def _windows(self, request: Request) -> list[tuple[list[int], list[int]]]:
        if isinstance(request, Loglikelihood):
            return [self.pair(request.text, request.continuation)]
        assert isinstance(request, Rolling)
        tokens = self.encode(request.text)
        if tokens and tokens[0] == self.prefix_token:  # what begins a text is there once
            tokens = tokens[1:]
        return list(rolling_windows(tokens, self.prefix_token, self.max_length))
