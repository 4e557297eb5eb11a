"""Objects of users' classes that all records of a graph share: what one record leaves in them, the next one finds.

A class of tools is instantiated once. A database in `self` is then that of all records, in the order in which they happen to
run, and every score looks fine. It is not known whether a change is a cache or a database, so nothing is refused: class and
attribute are reported beside the numbers.
"""

import logging
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from itertools import count
from pathlib import Path
from random import Random
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

from assay.records import UserValue

MOST_VALUES = 2_000
"""Values of an attribute that are compared, which takes about a millisecond; of a larger one, those at its beginning."""
_SCALARS = (bool, int, float, complex, str, bytes, type(None))
_WITHOUT_STATE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


class SharedObject:
    """An object that all records share. `changes` is asked at the end of each record."""

    def __init__(self, instance: object) -> None:
        self._instance, self._before = instance, dict(_digests(instance))
        self._first: str | None = None
        self._changed: list[str] = []

    def changes(self, record: str) -> list[str]:
        """The attributes that have changed, as `Class.name`, if an earlier record had the object, too."""
        if self._first in (None, record):
            self._first = record
            return []
        if not self._changed:
            now = dict(_digests(self._instance))
            names = [name for name in {**self._before, **now} if self._before.get(name) != now.get(name)]
            self._changed = [f"{type(self._instance).__name__}.{name}" for name in names]
            if self._changed:
                self._warn(names)
        return self._changed

    def _warn(self, names: list[str]) -> None:
        kind = type(self._instance)
        file = Path(getattr(sys.modules.get(kind.__module__), "__file__", None) or kind.__module__).name
        logging.getLogger("assay").warning(
            "the class %s (%s) keeps state from record to record, in %s: scores may depend on the order of the records — keep it"
            " in the state, or in a context variable, of which each record has its own value",
            kind.__qualname__, file, " and ".join(f"self.{name}" for name in names),
        )  # fmt: skip


def _digests(instance: object) -> Iterator[tuple[str, int]]:
    """Yield each attribute with a digest of its value; values that a class computes once and keeps are left out."""
    attributes: dict[str, UserValue] = {}
    computed_once: set[str] = set()
    for kind in reversed(type(instance).__mro__[:-1]):
        for name, value in list(vars(kind).items()):
            if isinstance(value, cached_property):
                computed_once.add(name)
            elif not (name.startswith("__") or isinstance(value, _WITHOUT_STATE) or hasattr(type(value), "__get__")):
                attributes[name] = value
    own = {name: value for name, value in _attributes(instance).items() if name not in computed_once}
    for name, value in {**attributes, **own}.items():
        yield name, _digest(value, [MOST_VALUES], set())


def _attributes(instance: object) -> dict[str, UserValue]:
    """The attributes of an object itself, in its slots, too; nothing of its own code runs."""
    attributes: dict[str, UserValue] = {}
    for kind in reversed(type(instance).__mro__):
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with suppress(AttributeError):
                if not name.startswith("__"):
                    attributes[name] = object.__getattribute__(instance, name)
    with suppress(AttributeError):
        attributes |= object.__getattribute__(instance, "__dict__")
    return attributes


def _digest(value: UserValue, left: list[int], above: set[int]) -> int:
    """A number that differs where the value does; nothing of the value's own code runs. `left` is how many values may still be
    looked at, `above` are the values that this one is part of."""
    left[0] -= 1
    if isinstance(value, _SCALARS):
        return hash((type(value), value))
    if left[0] < 0 or id(value) in above or isinstance(value, _WITHOUT_STATE):
        return id(value)
    within = above | {id(value)}
    if isinstance(value, dict):
        pairs = [(_digest(key, left, within), _digest(inner, left, within)) for key, inner in list(dict.items(value))]
        return hash((len(pairs), *pairs))
    if isinstance(value, list | tuple | deque):
        return hash((type(value), *(_digest(inner, left, within) for inner in _items(value))))
    if isinstance(value, set | frozenset):
        return hash(frozenset(_digest(inner, left, within) for inner in _items(value)))
    known = _known_state(value)
    parts = sorted((name, _digest(inner, left, within)) for name, inner in _attributes(value).items())
    return hash((id(value), known, *parts))


def _items(value: UserValue) -> list[UserValue]:
    """The items of a list, tuple, deque or set, as the built-in class has them; another thread may change it meanwhile."""
    kind = next(kind for kind in type(value).__mro__ if kind.__module__ in ("builtins", "collections"))
    return list(kind.__iter__(value))  # type: ignore[attr-defined]  # all of those classes have it


def _known_state(value: UserValue) -> UserValue:
    """What is known of objects that keep their state outside Python: random numbers, counters, arrays, SQLite's databases."""
    if isinstance(value, Random):
        return value.getstate()
    if isinstance(value, count):
        return repr(value)
    with suppress(Exception):
        if type(value).__module__ == "sqlite3":
            return getattr(value, "total_changes", None)
        if type(value).__module__ in ("array", "numpy", "builtins") and hasattr(value, "__len__"):
            return hash(bytes(value))  # type: ignore[call-overload]  # arrays of numbers and bytearrays
    return None
