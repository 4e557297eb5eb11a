"""`option` declares one YAML key of a configuration record: its sentence, its default and its checks."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from assay.errors import nearest

if TYPE_CHECKING:
    from assay.config.run import RunOption


class _Nothing(Mapping[str, Any]):
    """The empty mapping. It is immutable, so every record may share it, and it can be copied and pickled."""

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"


NOTHING: Mapping[str, Any] = _Nothing()
R = TypeVar("R")
YAMLValue = object
"""A value of a YAML file or of an option before it is checked: a Python caller may give anything."""
YAMLMapping = Mapping[str, YAMLValue]
"""The keys and values of a YAML file, or of a part of it, before they are checked."""

Remark = tuple[tuple[str | int, ...], str, str]
"""The path inside a value, the problem, and how to fix it."""
Check = Callable[[YAMLValue], Iterable[Remark]]
"""Finds the problems of a value that has the right type."""


MAX_REPEATS = 100_000
"""Repeats of a request: all of a document's are in memory at once, and published studies use a tenth of it."""


def at_least(least: int, most: int | None = None) -> Check:
    """The check of a number that has bounds."""

    def check(value: YAMLValue) -> Iterator[Remark]:
        if isinstance(value, int | float) and value < least:
            yield (), f"must be at least {least}, got {value}", ""
        elif isinstance(value, int | float) and most is not None and value > most:
            yield (), f"must be at most {most}, got {value}", "ask for less"

    return check


def option(  # noqa: PLR0913  # one keyword for each thing that a field declares
    doc: str,
    default: YAMLValue = MISSING,
    *,
    key: str | None = None,
    many: bool = False,
    rest: bool = False,
    check: Check | None = None,
    run: "RunOption | None" = None,
) -> Any:
    """Declare a dataclass field that is a YAML key.

    doc:   one sentence for the schema, the reference page and `--help`
    key:   the name in YAML where Python cannot have it (`class`)
    many:  one value may be written without the list around it
    rest:  collects every key that no other field claims
    check: yields the problems of a value that has the right type
    run:   for options of a run: its flag, and its part in the run's identity (config/run.py)
    """
    metadata = {"doc": doc, "key": key, "many": many, "rest": rest, "check": check, "run": run}
    if default is MISSING:
        return field(metadata=metadata)
    if default is NOTHING:
        return field(default_factory=lambda: NOTHING, metadata=metadata)
    return field(default=default, metadata=metadata)


def with_keys(record: type[R]) -> type[R]:
    """The record with its keys, and the sentence of each, in its docstring: `help` shows them."""
    keys = "\n".join(f"    {each.metadata['key'] or each.name}: {each.metadata['doc']}" for each in yaml_fields(record))
    record.__doc__ = f"{record.__doc__}\n\n{keys}\n"
    return record


def yaml_fields(record: type) -> list[Field[YAMLValue]]:
    """List the fields of a record that are keys in YAML."""
    return [item for item in fields(record) if "doc" in item.metadata]


def yaml_keys(record: type) -> tuple[str, ...]:
    """List the names of those keys."""
    return tuple(item.metadata["key"] or item.name for item in yaml_fields(record))


@cache
def near_miss(key: str, options: tuple[str, ...]) -> str | None:
    """Find the option that `key` is a typo of, where unknown keys are allowed; None if there is no near match."""
    from difflib import SequenceMatcher

    near = nearest(key, options, count=1)
    return near[0] if near and SequenceMatcher(None, key, near[0]).ratio() >= 0.8 else None
