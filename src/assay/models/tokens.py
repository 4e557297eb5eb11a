"""Text to tokens at the joint of context and continuation: lm-eval's rules, in one place for all local models."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Encode = Callable[[str], list[int]]


def joined(context: str, continuation: str) -> tuple[str, str]:
    """A context and what follows it, with the white space between them."""
    spaces = len(context) - len(context.rstrip())
    return (context[:-spaces], context[-spaces:] + continuation) if spaces else (context, continuation)


def encode_pair(encode: Encode, context: str, continuation: str, prefix_token: int) -> tuple[list[int], list[int]]:
    """The tokens of a context and of what follows it. White space at the joint belongs to the continuation.

    The continuation is what the whole has beyond the context: a token may begin before the joint and end after it. It
    never comes out empty where its text is not.
    """
    context, continuation = joined(context, continuation)
    if not context:
        tokens = encode(continuation)
        return ([prefix_token], tokens) if not tokens or tokens[0] != prefix_token else (tokens[:1], tokens[1:])
    whole, before = encode(context + continuation), encode(context)
    joint = len(before)
    if len(whole) <= joint and continuation:  # one token spans the joint: go back to where both still agree
        joint = next((n for n, (a, b) in enumerate(zip(whole, before, strict=False)) if a != b), len(whole) - 1)
    return (whole[:joint], whole[joint:]) if joint else ([prefix_token], whole)


def rolling_windows(tokens: Sequence[int], prefix_token: int, size: int) -> Iterator[tuple[list[int], list[int]]]:
    """A long text in windows of at most `size` tokens, each with the context it is seen in; no token counts twice.

    The first begins behind the prefix token; a later one sees as much of what came before as fits.
    """
    if not tokens:
        return
    first = min(size, len(tokens))
    yield [prefix_token], list(tokens[:first])
    done = first
    while done < len(tokens):
        end = min(done + size, len(tokens))
        start = max(0, end - size - 1)
        yield list(tokens[start:done]), list(tokens[done:end])
        done = end


def cut_at_stop(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The text before the first stop that occurs in it, and whether one does."""
    found = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    return (text[: min(found)], True) if found else (text, False)


def stops_of(params: Mapping[str, object]) -> list[str]:
    """The texts at which a generation ends."""
    until: Any = params.get("until") or ()
    return [until] if isinstance(until, str) else [str(stop) for stop in until if stop]
