"""Functions in place of their names: a task's configuration made ready to be used."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from assay.records import Function

T = TypeVar("T")


def resolved(value: T, resolve: Callable[[Function], Any]) -> T:
    """The same value, with every function it names in place of the name. This runs helper code."""
    made: Any = value
    if isinstance(value, Function):
        made = resolve(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: new
            for field in dataclasses.fields(value)
            if (new := resolved(old := getattr(value, field.name), resolve)) is not old
        }
        made = dataclasses.replace(value, **changed) if changed else value
    elif isinstance(value, tuple):
        parts = tuple(resolved(part, resolve) for part in value)
        made = parts if any(new is not old for new, old in zip(parts, value, strict=True)) else value
    elif isinstance(value, list):
        listed = [resolved(part, resolve) for part in value]
        made = listed if any(new is not old for new, old in zip(listed, value, strict=True)) else value
    elif isinstance(value, Mapping):
        mapped = {key: resolved(part, resolve) for key, part in value.items()}
        made = mapped if any(mapped[key] is not value[key] for key in value) else value
    return made  # type: ignore[no-any-return]
