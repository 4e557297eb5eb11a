"""Records as JSON: their values by key, and the schema of them.

A record that holds another one, such as an `Estimate`, names the keys that JSON has of it among its own (`keys`).
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from assay.config.schema import SCALARS, Schema
from assay.records import JSONDict

Hint = Any
"""A type, as annotations have it."""


@cache
def _paths(record: type) -> Mapping[str, Mapping[str, Callable[[Any], Any]] | None]:
    """By field the attributes of its value that are written, by key; None for the value itself."""
    paths = {item.name: item.metadata.get("keys") for item in dataclasses.fields(record)}
    return {
        name: None if inner is None else {key: attrgetter(path) for key, path in inner.items()}
        for name, inner in paths.items()
    }


def json_keys(record: type) -> list[str]:
    """The keys that JSON has of such a record."""
    return [key for name, inner in _paths(record).items() for key in ([name] if inner is None else inner)]


def json_values(record: object) -> JSONDict:
    """The values of a record by the keys that JSON has; those of a field that is None are None.

    >>> from assay.results import Estimate, keys
    >>> @dataclasses.dataclass
    ... class Standing:
    ...     name: str
    ...     number: Estimate | None = dataclasses.field(metadata=keys("value", "least=low"))
    >>> json_values(Standing("a", Estimate(0.5, interval=(0.4, 0.6)))), json_values(Standing("b", None))
    ({'name': 'a', 'value': 0.5, 'least': 0.4}, {'name': 'b', 'value': None, 'least': None})
    """
    values: JSONDict = {}
    kind: type = type(record)
    for name, attributes in _paths(kind).items():
        value = getattr(record, name)
        if attributes is None:
            values[name] = value
        elif value is None:
            values |= dict.fromkeys(attributes)
        else:
            for key, attribute in attributes.items():
                values[key] = attribute(value)
    return values


def type_schema(hint: Hint) -> Schema:
    """Build the schema of any type of records that are written: every key is required, and more may come."""
    options = _written_options(hint)
    return options[0] if len(options) == 1 else {"anyOf": options}


def _written_options(hint: Hint) -> list[Schema]:
    origin: Hint = typing.get_origin(hint)
    arguments: Sequence[Hint] = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return [option for part in arguments for option in _written_options(part)]
    if origin is typing.Literal:
        return [{"enum": list(arguments)}]
    if origin is not None and issubclass(origin, Mapping):
        return [{"type": "object", "additionalProperties": type_schema(arguments[1])}]
    if origin is not None:
        return [{"type": "array", "items": type_schema(arguments[0])}]
    if dataclasses.is_dataclass(hint):
        properties = {key: type_schema(inner) for key, inner in _key_types(hint)}
        about = (hint.__doc__ or "").split("\n\n")[0]
        return [
            {
                "type": "object",
                "description": " ".join(about.split()),
                "properties": properties,
                "required": [*properties],
            }
        ]
    return [dict(SCALARS[hint])]


def _key_types(record: Hint) -> Iterator[tuple[str, Hint]]:
    """The keys that JSON has of a record, each with its type."""
    hints = typing.get_type_hints(record)
    for item in dataclasses.fields(record):
        hint = hints[item.name]
        if "keys" not in item.metadata:
            yield item.name, hint
            continue
        kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not types.NoneType]
        for key, path in item.metadata["keys"].items():
            inner = _attribute_type(kinds[0], path)
            yield key, inner if hint is kinds[0] else inner | None


def _attribute_type(kind: Hint, path: str) -> Hint:
    for name in path.split("."):
        attribute = getattr(kind, name, None)
        getter = attribute.fget if isinstance(attribute, property) else None
        kind = typing.get_type_hints(kind)[name] if getter is None else typing.get_type_hints(getter)["return"]
    return kind
