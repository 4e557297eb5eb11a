"""Parts of a server's answer that are not its text, read strictly: usage, the reason it ended, calls of tools."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from assay.records import MOST_TOKENS, Usage

_NUMBERS = frozenset((int, float))


def token_count(value: Any) -> int:
    """A number of tokens as a server reports it; 0 for whatever is none.

    >>> [token_count(value) for value in (12, 12.0, None, "12", [12], {}, -5, True, float('nan'), 1e300)]
    [12, 12, 0, 0, 0, 0, 0, 0, 0, 0]
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_TOKENS:
        return 0
    return int(value)


def usage_of(answer: Mapping[str, Any]) -> Usage:
    """What a server of OpenAI's protocol says that an answer took."""
    told = mapping_of(answer.get("usage"))
    details = mapping_of(told.get("prompt_tokens_details"))
    return usage(told.get("prompt_tokens"), told.get("completion_tokens"), details.get("cached_tokens"))


def usage(read: Any, written: Any, stored: Any = 0) -> Usage:
    """Usage of counts as they were reported. No more can have been stored than was read."""
    tokens = token_count(read)
    return Usage(tokens, token_count(written), stored=min(tokens, token_count(stored)))


def counted(given: Usage) -> Usage:
    """Usage as it is, where all of it are numbers that can be; what is none counts for nothing."""
    if _NUMBERS.issuperset(map(type, given)) and min(given) >= 0 and max(given) <= MOST_TOKENS:
        return given
    checked = usage(given.read, given.written, given.stored)
    return checked._replace(tries=token_count(given.tries) or 1, cut=token_count(given.cut))


def mapping_of(value: Any) -> Mapping[str, Any]:
    """A mapping as it is; an empty one for whatever is none."""
    return value if isinstance(value, Mapping) else {}


def finish_of(value: Any) -> str | None:
    """The reason why an answer ended, where one is given."""
    if value and not isinstance(value, str):
        raise TypeError(f"finish_reason must be text, got {type(value).__name__}")
    return value if isinstance(value, str) else None


def tool_calls_of(value: Any) -> Sequence[Mapping[str, Any]]:
    """The calls of tools in a message: a list of mappings, each of a function with a name and arguments."""
    if not value:
        return ()
    if not isinstance(value, list) or not all(_is_call(call) for call in value):
        raise TypeError("tool_calls must be a list of calls, each with the name and the arguments of a function")
    orjson.dumps(value)  # a TypeError where it could not be written down: nested too deeply
    return value


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)
