"""How helper code is reached: the functions that task files name, the metrics and filters that it registers."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Never, TypeVar

from assay.errors import ConfigError, Place
from assay.records import Document, Function, UserFunction

Resolve = Callable[[Function], Any]
"""Returns the object that a `!function` names."""


@dataclass(frozen=True, slots=True)
class RegisteredMetric:
    """A metric of helper code's, with what it was registered with: that counts where a task says nothing."""

    function: UserFunction
    aggregation: UserFunction | None
    higher_is_better: bool | None
    reduction: str | UserFunction | None = None


def no_dotted(name: str, folder: str | None, place: Place) -> Never:  # noqa: ARG001  # the shape of a resolver
    raise ConfigError.at(place, f"{name} cannot be loaded here", "run the task with `assay run`")


@dataclass(frozen=True, slots=True)
class Helpers:
    """How helper code is reached: what a `!function` is, how rows look to it, and what it calls by name.

    The package `compat` supplies these.
    """

    resolve: Resolve
    as_dataset: Callable[[Sequence[Document]], Any]
    find_metric: Callable[[str], UserFunction | None]
    filters: Callable[[], Mapping[str, UserFunction]]
    metrics: Mapping[str, RegisteredMetric] = field(default_factory=dict)
    aggregations: Mapping[str, UserFunction] = field(default_factory=dict)
    reductions: Mapping[str, UserFunction] = field(default_factory=dict)
    dotted: Callable[[str, str | None, Place], Any] = no_dotted
    """The object of a dotted name, as graph files have them; with the folder of the file, and the place of the name."""
    definition: Callable[[str, Place], Any] | None = None
    """Finds the definition of another task by its name, as subgraphs are; None if they are not looked at."""


T = TypeVar("T")


def resolve_functions(value: T, resolve: Resolve) -> T:
    """The same value, with every function it names in place of the name. This runs helper code."""
    result: Any = value
    if isinstance(value, Function):
        result = resolve(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: new
            for field in dataclasses.fields(value)
            if (new := resolve_functions(old := getattr(value, field.name), resolve)) is not old
        }
        result = dataclasses.replace(value, **changed) if changed else value
    elif isinstance(value, tuple):
        parts = tuple(resolve_functions(part, resolve) for part in value)
        result = parts if any(new is not old for new, old in zip(parts, value, strict=True)) else value
    elif isinstance(value, list):
        listed = [resolve_functions(part, resolve) for part in value]
        result = listed if any(new is not old for new, old in zip(listed, value, strict=True)) else value
    elif isinstance(value, Mapping):
        mapped = {key: resolve_functions(part, resolve) for key, part in value.items()}
        result = mapped if any(mapped[key] is not value[key] for key in value) else value
    return result  # type: ignore[no-any-return]
