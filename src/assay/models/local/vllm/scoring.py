"""Log-likelihoods from an engine that was made to generate: which prompts are needed, and what their answers say.

vLLM reads nothing from its cache of prefixes for a prompt whose log-probabilities are asked. A continuation of one token is
therefore read off the token that would be generated: the prompt is the context alone, shared by all choices of a question.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Scores = tuple[float, bool]
"""A log-likelihood, and whether each of its tokens was the likeliest."""
Generate = Callable[[Sequence[Sequence[int]], Sequence[Mapping[str, Any]]], Sequence[Any]]
"""Takes prompts in tokens and for each the sampling parameters; gives the engine's outputs in that order."""

TOP = 20
"""How many of the likeliest tokens are asked for: as many as an engine gives without being told to give more."""
AT_ONCE = 1 << 18
"""Prompt tokens of one call: an object is made of each of them."""
BARE = {"temperature": 0.0, "max_tokens": 1, "detokenize": False}


class Piece(NamedTuple):
    """Some tokens, of which the last `length` are asked about."""

    tokens: tuple[int, ...]
    length: int


def score(pieces: Sequence[Piece], generate: Generate, *, names_tokens: bool) -> Iterator[list[tuple[int, Scores]]]:
    """The scores of pieces, each with its number, a call of the engine at a time.

    `names_tokens`: the engine can be asked about tokens by their numbers. Where it cannot, those that are not among the
    likeliest are asked about as longer ones are: no value is made up.
    """
    short = [number for number, piece in enumerate(pieces) if piece.length == 1 and len(piece.tokens) > 1]
    left: list[int] = []
    for found, missed in _generated(pieces, short, generate, names_tokens=names_tokens):
        left += missed
        yield found
    known = set(short) - set(left)
    yield from _prompted(pieces, [number for number in range(len(pieces)) if number not in known], generate)


def _generated(
    pieces: Sequence[Piece], numbers: Sequence[int], generate: Generate, *, names_tokens: bool
) -> Iterator[tuple[list[tuple[int, Scores]], list[int]]]:
    """One-token continuations from the next token's log-probabilities: those found, and the numbers of the others."""
    contexts: dict[tuple[int, ...], list[int]] = {}
    for number in numbers:
        contexts.setdefault(pieces[number].tokens[:-1], []).append(number)
    for several in _calls(sorted(contexts, key=lambda context: (-len(context), context))):
        wanted = [sorted({pieces[number].tokens[-1] for number in contexts[context]}) for context in several]
        asked = [_next_token(tokens, names_tokens=names_tokens) for tokens in wanted]
        found: list[tuple[int, Scores]] = []
        missed: list[int] = []
        for context, output in zip(several, generate(several, asked), strict=True):
            said, values = output.outputs[0].token_ids[0], output.outputs[0].logprobs[0]
            for number in contexts[context]:
                token = pieces[number].tokens[-1]
                if token in values:
                    found.append((number, (float(values[token].logprob), token == said)))
                else:
                    missed.append(number)
        yield found, missed


def _next_token(tokens: Sequence[int], *, names_tokens: bool) -> Mapping[str, Any]:
    if names_tokens and len(tokens) <= TOP:
        return {**BARE, "logprob_token_ids": tokens}
    return {**BARE, "logprobs": TOP}


def _prompted(
    pieces: Sequence[Piece], numbers: Sequence[int], generate: Generate
) -> Iterator[list[tuple[int, Scores]]]:
    """The others from the log-probabilities of prompts; equal prompts are asked once."""
    prompts: dict[tuple[int, ...], list[int]] = {}
    for number in numbers:
        prompts.setdefault(pieces[number].tokens, []).append(number)
    for several in _calls(sorted(prompts, key=lambda prompt: (-len(prompt), prompt))):
        outputs = generate(several, [{**BARE, "prompt_logprobs": 1}] * len(several))
        yield [
            (number, _summed(tokens, output.prompt_logprobs, pieces[number].length))
            for tokens, output in zip(several, outputs, strict=True)
            for number in prompts[tokens]
        ]


def _summed(tokens: Sequence[int], logprobs: Sequence[Any], length: int) -> Scores:
    total, greedy = 0.0, True
    for at in range(len(tokens) - length, len(tokens)):
        values = logprobs[at]
        value = float(values[tokens[at]].logprob)
        total += value
        greedy = greedy and value >= max(each.logprob for each in values.values())
    return total, greedy


def _calls(prompts: Sequence[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """Prompts in calls that are not too large."""
    call: list[tuple[int, ...]] = []
    held = 0
    for prompt in prompts:
        if call and held + len(prompt) > AT_ONCE:
            yield call
            call, held = [], 0
        call.append(prompt)
        held += len(prompt)
    if call:
        yield call
