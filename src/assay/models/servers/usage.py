"""Parts of a server's answer besides its text, read strictly: usage, finish reason, tool calls."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from assay.records import JSON, MOST_TOKENS, Usage

_NUMBERS = frozenset((int, float))


def token_count(value: JSON) -> int:
    """Return a reported number of tokens; 0 if it is invalid.

    >>> [token_count(value) for value in (12, 12.0, None, "12", [12], {}, -5, True, float('nan'), 1e300)]
    [12, 12, 0, 0, 0, 0, 0, 0, 0, 0]
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_TOKENS:
        return 0
    return int(value)


def usage_of(answer: Mapping[str, JSON]) -> Usage:
    """Return the usage in an answer of OpenAI's protocol."""
    reported = mapping_of(answer.get("usage"))
    details = mapping_of(reported.get("prompt_tokens_details"))
    return usage(reported.get("prompt_tokens"), reported.get("completion_tokens"), details.get("cached_tokens"))


def usage(read: JSON, written: JSON, stored: JSON = 0) -> Usage:
    """Return the usage of reported counts. No more can come from the cache than was read."""
    tokens = token_count(read)
    return Usage(tokens, token_count(written), stored=min(tokens, token_count(stored)))


def checked_usage(counts: Usage) -> Usage:
    """Return the usage if all its numbers are valid; invalid ones become 0."""
    if _NUMBERS.issuperset(map(type, counts)) and min(counts) >= 0 and max(counts) <= MOST_TOKENS:
        return counts
    checked = usage(counts.read, counts.written, counts.stored)
    return checked._replace(tries=token_count(counts.tries) or 1, cut=token_count(counts.cut))


def mapping_of(value: JSON) -> Mapping[str, JSON]:
    """Return a mapping unchanged; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def finish_of(value: JSON) -> str | None:
    """Return the finish reason, if there is one."""
    if value and not isinstance(value, str):
        raise TypeError(f"finish_reason must be text, got {type(value).__name__}")
    return value if isinstance(value, str) else None


ServerJSON = Any
"""JSON that a server sent. Nothing about it is certain: the parts that are read are checked, or fail the request."""
ServerObject = Mapping[str, ServerJSON]
"""A JSON object that a server sent."""
RequestBody = dict[str, Any]
"""JSON to send to a server. It may include a user's parameters."""


def tool_calls_of(value: ServerJSON) -> Sequence[ServerObject]:
    """Return the tool calls of a message: a list of mappings, each with a function's name and arguments."""
    if not value:
        return ()
    if not isinstance(value, list) or not all(_is_call(call) for call in value):
        raise TypeError("tool_calls must be a list of calls, each with the name and the arguments of a function")
    # as the journal will return it: infinite numbers are null; a TypeError if it cannot be stored (nested too deeply)
    stored: Sequence[ServerObject] = orjson.loads(orjson.dumps(value))
    return stored


def _is_call(call: JSON) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)
