"""Secrets stay at the door: what is written down of a command or of arguments has none."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "***"
_SECRET = r"(?:api[_-]?key|apikey|key|token|secret|passw(?:or)?d|pwd|auth(?:orization)?|credentials?|bearer)"
_NAME = re.compile(rf"(?:^|[_\-.]){_SECRET}s?$", re.IGNORECASE)
_PAIR = re.compile(rf"((?:^|[\s,;&?{{\"'_\-.]){_SECRET}s?[\"']?\s*[=:]\s*[\"']?)([^\s,;&\"'}}]+)", re.IGNORECASE)
_URL_USER = re.compile(r"(\w+://)[^/\s@]+@")
_KNOWN = re.compile(r"\b(?:sk|hf|ghp|gho|xox[abp])[-_][A-Za-z0-9_\-]{8,}")
_BEARER = re.compile(r"(Bearer\s+)\S+", re.IGNORECASE)

NOT_SECRET = frozenset((
    "prefix_token_id", "think_start_token", "think_end_token", "custom_prefix_token_id", "add_bos_token", "eot_token",
    "bos_token", "eos_token", "pad_token",
    "golden_key", "predicted_key", "input_key", "output_key", "output_keys", "primary_key", "join_key",
))  # fmt: skip
"""Arguments of models and keys of graphs that only sound like a secret."""


def redacted_text(text: str) -> str:
    """A text without keys, passwords in URLs and what is named like a secret.

    >>> redacted_text("model=x,api_key=abc123,base_url=http://me:pw@host/v1")
    'model=x,api_key=***,base_url=http://***@host/v1'
    """
    text = _URL_USER.sub(rf"\1{HIDDEN}@", text)
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    text = _PAIR.sub(rf"\1{HIDDEN}", text)
    return _KNOWN.sub(HIDDEN, text)


def redacted(value: Any, name: str = "", *, texts: bool = True) -> Any:
    """A value without secrets; `name` is what it is called. Without `texts`, names alone tell: a prompt may speak of keys."""
    if name and name not in NOT_SECRET and _NAME.search(name) and not _is_numbers(value):
        return HIDDEN
    if isinstance(value, Mapping):
        return {str(key): redacted(inner, _called(str(key), name), texts=texts) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(inner, texts=texts) for inner in value]
    return redacted_text(value) if isinstance(value, str) and texts else value


def _is_numbers(value: Any) -> bool:
    """Whether a value is a number, or holds nothing but numbers: counts of tokens are no secret, whatever they are called."""
    if isinstance(value, Mapping):
        return all(map(_is_numbers, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_numbers, value))
    return isinstance(value, int | float | None)


def _called(key: str, within: str) -> str:
    """What a value is called: the `key` among the `params` of a metric is a name in a record."""
    return "" if (within, key) == ("params", "key") else key


def redacted_command(arguments: Sequence[str]) -> list[str]:
    """A command line without secrets: also where a flag and its value stand apart."""
    hidden, made = False, []
    for argument in arguments:
        made.append(HIDDEN if hidden else redacted_text(argument))
        name = argument.lstrip("-")
        hidden = (
            argument.startswith("--") and "=" not in argument and bool(_NAME.search(name)) and name not in NOT_SECRET
        )
    return made
