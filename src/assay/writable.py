"""Check whether text can be encoded as UTF-8: Python strings may contain lone surrogates, which cannot."""

from collections.abc import Mapping
from typing import Any

HALF = "text with half a character (a lone surrogate)"


def is_writable(value: Any) -> bool:
    """Whether all text in a value can be written as UTF-8.

    >>> is_writable(["é", {"a": 5}]), is_writable({"a": ["x\\ud800"]})
    (True, False)
    """
    if isinstance(value, str):
        return value.isascii() or _encodes(value)
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(is_writable, value))
    if isinstance(value, Mapping):
        return all(map(is_writable, value)) and all(map(is_writable, value.values()))
    return True


def written(text: str) -> str:
    """Return text that can be encoded as UTF-8, with lone surrogates escaped.

    >>> written("x\\ud800")
    'x\\\\ud800'
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
