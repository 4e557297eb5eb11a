"""JSON Schema of configuration records, for editors, from the declarations that decoding uses."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from assay.config.option import yaml_fields
from assay.records import Function

Schema = dict[str, object]


def json_schema(record: type, title: str, *more: type) -> Schema:
    """Build the schema of a file with the keys of `record`, and those of the `more` records."""
    body = _record(record)
    for other in more:
        extra = _record(other)["properties"]
        body["properties"] = {**typing.cast(Schema, extra), **typing.cast(Schema, body["properties"])}
    include = {
        "description": "Files whose keys are included; keys of this file win.",
        "type": ["string", "array", "object"],
    }
    properties = {"include": include, **typing.cast(Schema, body["properties"])}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **body, "properties": properties}


def _record(record: type) -> Schema:
    hints = typing.get_type_hints(record)
    properties: Schema = {}
    required, open_ended = [], False
    for item in yaml_fields(record):
        key = item.metadata.get("key") or item.name
        properties[key] = {
            "description": item.metadata.get("doc", ""),
            **_type(hints[item.name], many=bool(item.metadata.get("many"))),
        }
        open_ended = open_ended or bool(item.metadata.get("rest"))
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            required.append(key)
    body: Schema = {"type": "object", "description": (record.__doc__ or "").split("\n")[0], "properties": properties}
    if required:
        body["required"] = required
    return {**body, "additionalProperties": open_ended}


def _type(hint: Any, *, many: bool = False) -> Schema:
    options = _options(hint)
    if many:
        options += [typing.cast(Schema, option["items"]) for option in options if "items" in option]
    unique = [option for number, option in enumerate(options) if option not in options[:number]]
    return unique[0] if len(unique) == 1 else {"anyOf": unique}


def _options(hint: Any) -> list[Schema]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return [option for part in arguments for option in _options(part)]
    if origin is typing.Literal:
        return [{"enum": list(arguments)}]
    if origin in (tuple, list):
        return [{"type": "array", "items": _type(arguments[0])}]
    if origin is not None and issubclass(origin, Mapping):
        return [{"type": "object"}]
    if dataclasses.is_dataclass(hint) and hint is not Function:
        return [_record(typing.cast(type, hint))]
    return [dict(SCALARS[hint])]


SCALARS: dict[Any, Schema] = {
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    Function: {"type": "string", "description": "Written `!function module.name`."},
    object: {},
}
"""The schema of each type of single values."""
