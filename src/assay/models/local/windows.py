"""Log-likelihood requests as pairs of tokens, and the scores of the pairs as responses.

A text longer than the context length is scored in windows, and its response is their sum. A context that is too long is
truncated on the left with `over_length=truncate`, and fails otherwise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from assay.models.local.generation import NAN_LOGITS
from assay.models.tokenizer import Encode, rolling_windows
from assay.records import Failed, Likelihood, Loglikelihood, Request, Response, Rolling, Usage

Pair = tuple[int, Sequence[int], Sequence[int]]
"""A number, the tokens of a context and those of its continuation."""
INFINITE = "the model's log-likelihood is infinite"


@dataclass(slots=True)
class _Open:
    """A request with outstanding windows."""

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
    """Turn requests into pairs, and the scores of pairs into responses."""

    encode: Encode
    pair: Callable[[str, str], tuple[list[int], list[int]]]
    """Tokenizes a context and its continuation."""
    prefix_token: int
    max_length: int
    cuts: bool
    is_counted: bool = True
    """Whether responses report usage."""
    _of_pair: dict[int, _Open] = field(default_factory=dict)
    _pairs: int = 0

    def pairs(self, number: int, request: Request) -> list[Pair] | Response:
        """Return the pairs of a request, numbered consecutively; or its response if it needs none."""
        return self._opened(number, self._windows(request))

    def pairs_of(self, number: int, context: list[int], continuation: list[int]) -> list[Pair] | Response:
        """Return the pair of an encoder-decoder request: each side may have the full context length."""
        return self._opened(number, [(context, continuation)], is_encoder_decoder=True)

    def _opened(
        self, number: int, windows: list[tuple[list[int], list[int]]], *, is_encoder_decoder: bool = False
    ) -> list[Pair] | Response:
        windows = [(context, continuation) for context, continuation in windows if continuation]
        if not windows:
            return Likelihood(0.0, True)
        opened = _Open(number, len(windows))
        pairs: list[Pair] = []
        for context, continuation in windows:
            cut = len(context) + (0 if is_encoder_decoder else len(continuation) - 1) - self.max_length
            if len(continuation) > self.max_length or (cut > 0 and not (self.cuts and cut < len(context))):
                length = len(context) + len(continuation)
                return Failed(f"{length} tokens exceed the model's context length of {self.max_length}")
            opened.cut += max(cut, 0)
            pairs.append((self._pairs + len(pairs), context[cut:] if cut > 0 else context, continuation))
        for name, _, _ in pairs:
            self._of_pair[name] = opened
        self._pairs += len(pairs)
        return pairs

    def add(
        self, pair: int, value: float, greedy: bool, *, usage: Usage = Usage(), problem: str = ""  # noqa: B008  # a tuple
    ) -> list[tuple[int, Response]]:  # fmt: skip
        """Add the score of a pair; return the response if it is complete."""
        opened = self._of_pair.pop(pair)
        if opened.windows <= 0:
            return []
        if not value < math.inf:
            problem = problem or (NAN_LOGITS if math.isnan(value) else INFINITE)
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
        if tokens and tokens[0] == self.prefix_token:  # one BOS token only
            tokens = tokens[1:]
        return list(rolling_windows(tokens, self.prefix_token, self.max_length))
