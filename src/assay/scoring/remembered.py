"""Scores that were computed before, found again by all that they depend on: for scorers that take long."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

from assay.records import Failed


class ScoreStore(Protocol):
    """Where scores are kept by key."""

    def get(self, key: bytes) -> bytes | None: ...
    def add(self, key: bytes, value: bytes) -> None: ...


class ScoreCache:
    """The scores of one scorer. `identity` is its source, its version and its parameters: with another, all are computed anew."""

    def __init__(self, identity: str, store: ScoreStore) -> None:
        self._identity, self._store = identity, store

    def filled(self, asked: Sequence[Any], compute: Callable[[list[int]], Sequence[Any]]) -> list[Any]:
        """The scores of everything asked; `compute` is given the numbers of those that nobody knows yet."""
        keys = [self._key(each) for each in asked]
        found = [self._store.get(key) if key is not None else None for key in keys]
        missing = [number for number, known in enumerate(found) if known is None]
        made = dict(zip(missing, compute(missing), strict=True)) if missing else {}
        for number, value in made.items():
            key, written = keys[number], _written(value)
            if key is not None and written is not None:
                self._store.add(key, written)
        return [made[number] if known is None else json.loads(known) for number, known in enumerate(found)]

    def _key(self, asked: Any) -> bytes | None:
        text = _written(asked)
        return blake2b(text, key=blake2b(self._identity.encode()).digest(), digest_size=16).digest() if text else None


def _written(value: Any) -> bytes | None:
    """A value as JSON, if it can be read back as what it was."""
    if isinstance(value, Failed):
        return None
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        return None
    return text.encode() if json.loads(text) == value else None


def identity_of(kind: type, until: type, version: object, kwargs: Mapping[str, Any]) -> str | None:
    """What the scores of a class depend on beside answers: its source and that of what it is derived from, up to `until`.

    None where that cannot be told.
    """
    try:
        sources = [inspect.getsource(each) for each in kind.__mro__[: kind.__mro__.index(until)]]
        return json.dumps([sources, version, dict(kwargs)], default=_source)
    except (OSError, TypeError):
        return None


def _source(value: object) -> str:
    if not callable(value):
        raise TypeError("only functions have a source")
    return inspect.getsource(value)
