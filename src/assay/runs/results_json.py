"""results.json, format 3: the tree of results (assay/results.py) as JSON, with its schema.

Everything here is made from the fields of the records: a new field is written, read, checked and in the schema of `assay schema
results` without a line in this file. What a reader of the file sees:

- Tasks and groups are mappings by name; the rows of each are a list, with the fields of their number among their own.
- A field that says nothing is left out, but for those that every row has: value, stderr, interval, n.
- An infinite number, and an open end of bounds, is null.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from assay.records import AnyJSON, JSONDict, JSONObject
from assay.results import Results
from assay.runs.validation import FORMAT, RESULTS_PARTS, is_too_deep, must_be

FieldValue = Any
"""A value of a field of a record: of any type that a field has."""
FieldType = Any
"""The type of a field, as its annotation says."""
Decode = Callable[[AnyJSON, str], FieldValue]
"""Makes a value of a field from its JSON; the text is the name of the task or group that it is inside of."""


class Malformed(ValueError):
    """A part of results.json that is not as it is written; `path` leads to it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.path: list[str] = []

    def __str__(self) -> str:
        path = "".join(f".{part}" for part in reversed(self.path))
        return f"{path or 'it'} {self.args[0]}".removeprefix(".")


class Codec(NamedTuple):
    """How a type is written, read and described."""

    encode: Callable[[FieldValue], AnyJSON]
    decode: Decode
    schema: JSONObject


def encode(results: Results) -> JSONDict:
    """The content of results.json."""
    content: JSONDict = {"format": FORMAT, **_encoded(_layout_of(Results), results)}
    for name in ("tasks", "groups"):  # what is short comes first
        content[name] = content.pop(name)
    return content


def decode(content: JSONObject) -> Results:
    """Read the content of results.json; a Malformed where it is not as `encode` writes it."""
    results: Results = codec_of(Results).decode(content, "")
    wrong = RESULTS_PARTS(content)
    if wrong:
        raise _at(wrong)
    return results


def schema() -> JSONDict:
    """The JSON Schema of results.json."""
    own = codec_of(Results).schema
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "results.json of a run of assay",
        "type": "object",
        "required": ["format", *own["required"]],
        "properties": {"format": {"const": FORMAT}, **own["properties"]},
    }


def _at(wrong: str) -> Malformed:
    """A problem of a check, which has its path in front: `.usage.tokens must be a mapping`."""
    path, _, what = wrong.partition(" ")
    error = Malformed(what)
    error.path = path.removeprefix(".").split(".")[::-1]
    return error


def _must(kind: str, value: AnyJSON) -> Malformed:
    return Malformed(must_be(kind, value))


# ---- plain values


def _decode_text(value: AnyJSON, owner: str) -> str:  # noqa: ARG001  # the shape of a decoder
    if type(value) is not str:
        raise _must("a text", value)
    return value


def _decode_truth(value: AnyJSON, owner: str) -> bool:  # noqa: ARG001
    if type(value) is not bool:
        raise _must("true or false", value)
    return value


def _decode_count(value: AnyJSON, owner: str) -> int:  # noqa: ARG001
    if type(value) is not int or value < 0:
        raise _must("a whole number from 0 on", value)
    return value


def _decode_number(value: AnyJSON, owner: str) -> float:  # noqa: ARG001
    if type(value) is float or type(value) is int:
        if math.isfinite(value):
            return value
    elif value is None:
        return math.nan
    raise _must("a number", value)


def _encode_number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _as_it_is(value: FieldValue) -> FieldValue:
    return value


def _decode_anything(value: AnyJSON, owner: str) -> AnyJSON:  # noqa: ARG001
    return value


PLAIN: Mapping[object, Codec] = {
    str: Codec(_as_it_is, _decode_text, {"type": "string"}),
    bool: Codec(_as_it_is, _decode_truth, {"type": "boolean"}),
    int: Codec(_as_it_is, _decode_count, {"type": "integer", "minimum": 0}),
    float: Codec(_encode_number, _decode_number, {"type": ["number", "null"]}),
    Any: Codec(_as_it_is, _decode_anything, {}),
    object: Codec(_as_it_is, _decode_anything, {}),
}


# ---- types of several values


@cache
def codec_of(kind: FieldType) -> Codec:
    """The codec of a type."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin: FieldType = get_origin(kind)
    inner: Sequence[FieldType] = get_args(kind)
    if origin in (Union, UnionType):
        [own] = [each for each in inner if each is not NoneType]
        return _optional(codec_of(own))
    if origin is tuple and tuple(inner) == (float, float):
        return BOUNDS
    if origin is tuple:
        return _fixed(tuple(codec_of(each) for each in inner), {"type": "array"})
    if origin is Mapping:
        return _mapping(codec_of(inner[1]))
    if origin is Sequence:
        return _sequence(codec_of(inner[0]))
    if is_dataclass(kind):
        return _record(kind)
    hints = get_type_hints(kind)  # of a NamedTuple, which is an array
    return _fixed(tuple(codec_of(each) for each in hints.values()), {"description": kind.__doc__}, kind)


def _optional(own: Codec) -> Codec:
    def encode(value: FieldValue) -> AnyJSON:
        return None if value is None else own.encode(value)

    def decode(value: AnyJSON, owner: str) -> FieldValue:
        return None if value is None else own.decode(value, owner)

    kind = own.schema.get("type")
    if isinstance(kind, str):
        return Codec(encode, decode, {**own.schema, "type": [kind, "null"]})
    return Codec(encode, decode, own.schema if kind is not None else {"anyOf": [own.schema, {"type": "null"}]})


def _decode_open(value: AnyJSON, owner: str) -> JSONObject:  # noqa: ARG001
    """A mapping that may hold anything: readers go down by calling themselves, and not without end."""
    if type(value) is not dict:
        raise _must("a mapping", value)
    if is_too_deep(value):
        raise Malformed("is nested too deeply")
    return value


def _mapping(own: Codec) -> Codec:
    def encode(value: Mapping[str, FieldValue]) -> AnyJSON:
        return {key: own.encode(inner) for key, inner in value.items()}

    def decode(value: AnyJSON, owner: str) -> FieldValue:  # noqa: ARG001
        if type(value) is not dict:
            raise _must("a mapping", value)
        decoded = {}
        for key, inner in value.items():
            try:
                decoded[key] = own.decode(inner, key)
            except Malformed as error:
                error.path.append(key)
                raise
        return decoded

    if own is PLAIN[Any]:
        return Codec(dict, _decode_open, {"type": "object"})
    return Codec(encode, decode, {"type": "object", "additionalProperties": own.schema})


def _sequence(own: Codec) -> Codec:
    def encode(value: Sequence[FieldValue]) -> AnyJSON:
        return [own.encode(inner) for inner in value]

    def decode(value: AnyJSON, owner: str) -> FieldValue:
        if type(value) is not list:
            raise _must("a list", value)
        decoded = []
        for place, inner in enumerate(value):
            try:
                decoded.append(own.decode(inner, owner))
            except Malformed as error:
                error.path.append(str(place))
                raise
        return decoded

    return Codec(encode, decode, {"type": "array", "items": own.schema})


def _fixed(parts: Sequence[Codec], about: JSONObject, make: Callable[..., FieldValue] | None = None) -> Codec:
    """An array with one value of each type: a pair, or a NamedTuple."""

    def encode(value: Sequence[FieldValue]) -> AnyJSON:
        return [part.encode(inner) for part, inner in zip(parts, value, strict=True)]

    def decode(value: AnyJSON, owner: str) -> FieldValue:
        if type(value) is not list or len(value) != len(parts):
            raise _must(f"a list of {len(parts)} values", value)
        decoded = [part.decode(inner, owner) for part, inner in zip(parts, value, strict=True)]
        return tuple(decoded) if make is None else make(*decoded)

    items = [part.schema for part in parts]
    return Codec(
        encode, decode, {**about, "type": "array", "prefixItems": items, "items": False, "minItems": len(parts)}
    )


def _decode_bounds(value: AnyJSON, owner: str) -> tuple[float, float]:
    low, high = _PAIR.decode(value, owner)
    return -math.inf if math.isnan(low) else low, math.inf if math.isnan(high) else high


_PAIR = _fixed((PLAIN[float], PLAIN[float]), {"description": "The least and the greatest; null for an open end."})
BOUNDS = Codec(_PAIR.encode, _decode_bounds, _PAIR.schema)


# ---- records


class _RecordLayout(NamedTuple):
    """The fields of a record: those that are written, those that come from the name above, and those of a record within."""

    codecs: Mapping[str, Codec]
    defaults: Mapping[str, object]
    needed: frozenset[str]
    above: Sequence[str]
    within: Mapping[str, "_RecordLayout"]
    """A record within, at most one."""
    make: Callable[..., FieldValue]
    decoders: Mapping[str, Decode]
    inner_decoders: Mapping[str, Decode]
    inner_needed: frozenset[str]
    inner_names: Mapping[str, str]
    """By key the field of the record within, where its keys are named; else empty, and they are all of its fields."""


@cache
def _layout_of(kind: FieldType) -> _RecordLayout:
    hints = get_type_hints(kind)
    own: list[Field[FieldValue]] = [each for each in fields(kind) if not each.metadata]
    own += [each for each in fields(kind) if each.metadata.get("always")]
    names = [each.name for each in fields(kind) if each in own]
    defaults = {each.name: _default(each) for each in own if not each.metadata.get("always") and _has_default(each)}
    codecs = {name: codec_of(hints[name]) for name in names}
    held = [each for each in fields(kind) if each.metadata.get("within") or "keys" in each.metadata]
    within = {each.name: _layout_of(hints[each.name]) for each in held}
    inner_names: Mapping[str, str] = {key: name for each in held for key, name in each.metadata.get("keys", {}).items()}
    inner_decoders = {name: decode for layout in within.values() for name, decode in layout.decoders.items()}
    inner_needed = frozenset(name for layout in within.values() for name in layout.needed)
    if inner_names:
        inner_decoders = {key: inner_decoders[name] for key, name in inner_names.items()}
    return _RecordLayout(
        codecs,
        defaults,
        frozenset(each.name for each in own if not _has_default(each)),
        [each.name for each in fields(kind) if each.metadata.get("above")],
        within,
        kind,
        {name: codec.decode for name, codec in codecs.items()},
        inner_decoders,
        inner_needed,
        inner_names,
    )


def _has_default(each: "Field[FieldValue]") -> bool:
    return each.default is not MISSING or each.default_factory is not MISSING


def _default(each: "Field[FieldValue]") -> FieldValue:
    return each.default if each.default is not MISSING else {}


def _record(kind: FieldType) -> Codec:
    plan = _layout_of(kind)

    def decode(value: AnyJSON, owner: str) -> FieldValue:
        if type(value) is not dict:
            raise _must("a mapping", value)
        return _decoded(plan, value, owner)

    return Codec(lambda value: _encoded(plan, value), decode, _record_schema(plan))


def _encoded(plan: _RecordLayout, value: FieldValue) -> JSONDict:
    content: JSONDict = {}
    for name in value.__dataclass_fields__:
        if name in plan.within:
            inner = _encoded(plan.within[name], getattr(value, name))
            content |= {key: inner[field] for key, field in plan.inner_names.items()} if plan.inner_names else inner
        elif name in plan.codecs:
            own = getattr(value, name)
            if name not in plan.defaults or not _says_nothing(own, plan.defaults[name]):
                content[name] = plan.codecs[name].encode(own)
    return content


def _says_nothing(value: FieldValue, default: FieldValue) -> bool:
    """Whether a value is its field's default: an empty list is, for an empty tuple."""
    if isinstance(default, tuple | dict):
        return not value
    return value is default or (type(value) is type(default) and value == default)


def _decoded(plan: _RecordLayout, content: Mapping[str, AnyJSON], owner: str) -> FieldValue:
    arguments: dict[str, FieldValue] = dict.fromkeys(plan.above, owner)
    inner: dict[str, FieldValue] = {}
    name = ""
    try:
        for (
            name,
            written,
        ) in content.items():  # a run has many rows, and a row says little: other fields are not looked for
            if (decode := plan.decoders.get(name)) is not None:
                arguments[name] = decode(written, owner)
            elif (decode := plan.inner_decoders.get(name)) is not None:
                inner[plan.inner_names.get(name, name)] = decode(written, owner)
        missing = (plan.needed - arguments.keys()) | (plan.inner_needed - inner.keys())
        if missing:
            name = min(missing)
            raise Malformed("is missing")
    except Malformed as error:
        error.path.append(name)
        raise
    for field_name, layout in plan.within.items():
        arguments[field_name] = layout.make(**inner)
    return plan.make(**arguments)


def _record_schema(plan: _RecordLayout) -> JSONDict:
    properties = {name: codec.schema for name, codec in plan.codecs.items()}
    required = [name for name in plan.codecs if name not in plan.defaults]
    for inner in plan.within.values():
        own = _record_schema(inner)
        written = {key: own["properties"][name] for key, name in plan.inner_names.items()} or own["properties"]
        properties |= written
        required += [key for key in written if plan.inner_names.get(key, key) in own["required"]]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
