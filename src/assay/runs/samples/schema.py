"""The schema of samples files: all columns, their Arrow types, and the union of two schemas.

A file leaves out columns and fields that none of its samples has. If a later row group has them, the file's schema grows.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import orjson

from assay.records import Usage
from assay.score_keys import ScoreKey, is_joined

INT, FLOAT, TRUTH, TEXT = "int64", "float64", "bool_", "string"
Type = str | list[Any] | dict[str, Any]
"""A type as SCHEMA has it: the name of a plain one, a list with the type of its items, or the fields of a struct."""
TOOL_CALL: dict[str, Type] = {"id": TEXT, "name": TEXT, "arguments": TEXT, "json": TEXT}
"""A tool call. `json` is the whole call where the other fields cannot hold it."""
MADE_CALL: dict[str, Type] = {
    "node": TEXT, "turn": INT, "name": TEXT, "arguments": TEXT, "result": TEXT, "error": TEXT, "tokens": INT, "seconds": FLOAT,
}  # fmt: skip
"""A tool call that an agent of a graph made. Arguments, and a result that is not a text, are JSON."""
MESSAGE: dict[str, Type] = {
    "role": TEXT, "content": TEXT, "name": TEXT, "tool_call_id": TEXT, "tool_calls": [TOOL_CALL],
    "media": [{"type": TEXT, "hash": TEXT}],
}  # fmt: skip
"""A message of a conversation. `media` is reserved: images and sounds by the hash of their bytes, stored in `media/`."""
USAGE: dict[str, Type] = {name: FLOAT if name == "seconds" else INT for name in Usage._fields}
RESPONSE: dict[str, Type] = {
    "text": TEXT, "value": FLOAT, "greedy": TRUTH, "failed": TEXT, "finish": TEXT, "reasoning": TEXT, "usage": USAGE,
    "tool_calls": [TOOL_CALL],
}  # fmt: skip
VERDICT: dict[str, Type] = {**RESPONSE, "role": TEXT, "question": TEXT}
"""The response of a model that a scorer asked, with its role and the question."""
ANSWER: dict[str, Type] = {"text": TEXT, "value": FLOAT, "greedy": TRUTH, "json": TEXT}
"""The answer of a filter: a text, a log-likelihood with or without its greediness, or anything else as JSON."""
VISIT: dict[str, Type] = {"node": TEXT, "responses": [INT]}
"""A node that the record of a graph visited, with the numbers of its responses."""
NOTICE: dict[str, Type] = {"what": TEXT, "count": INT}
FAILURE: dict[str, Type] = {"metric": TEXT, "filter": TEXT, "reason": TEXT}
REQUEST: dict[str, Type] = {"kind": TEXT, "prompt": TEXT, "messages": [MESSAGE], "continuation": TEXT, "params": TEXT}
FILTERED: dict[str, Type] = {"filter": TEXT, "values": [ANSWER]}
SCORE: dict[str, Type] = {"metric": TEXT, "filter": TEXT, "repeat": INT, "value": FLOAT, "json": TEXT}
REQUEST_COLUMNS: dict[str, Type] = {
    "doc_id": INT, "kind": TEXT, "dropped": INT, "doc": TEXT, "target": TEXT, "gold": TEXT, "choices": [TEXT], "prefix": TEXT,
    "prompt": TEXT,
    "requests": [REQUEST], "responses": [[RESPONSE]], "verdicts": [VERDICT], "trace": [VISIT],
    "noticed": [NOTICE], "tool_calls": [MADE_CALL], "state": TEXT,
}  # fmt: skip
"""The columns of documents, requests and responses: a run that is scored again has them as they were."""
SCORE_COLUMNS: dict[str, Type] = {
    "answers": [FILTERED], "failed": TEXT, "failures": [FAILURE], "audit": [TEXT], "other_scores": [SCORE],
}  # fmt: skip
"""The columns of answers and scores; beside them a float64 for every row of scores, named by the text of its key."""
SCHEMA = {**REQUEST_COLUMNS, **SCORE_COLUMNS}
ALWAYS = frozenset((
    "doc_id", "kind", "doc", "target", "gold", "choices", "prefix", "prompt", "requests", "responses", "answers", "failed", "audit",
))  # fmt: skip
"""Columns that every file has, also where they are empty."""
DICTIONARIES = ("kind", "prefix")
"""Columns that are read with every text once: pieces of prompts that many share are long."""
REPEATED = [
    "kind", "prefix", "target", "gold", "choices.list.element", "requests.list.element.kind", "requests.list.element.params",
    "requests.list.element.continuation", "requests.list.element.messages.list.element.role",
    "requests.list.element.messages.list.element.content", "answers.list.element.filter", "failed", "audit.list.element",
    "responses.list.element.list.element.finish", "other_scores.list.element.metric", "other_scores.list.element.filter",
]  # fmt: skip
"""Leaves that may say the same in many rows."""
ROW_NAMES = "assay.rows"
"""Where the metadata has the names of all rows of scores, in their order: a JSON list."""
Array = Any
ArrowTable = Any
ArrowSchema = Any
ArrowType = Any
ParquetFile = Any
FileMetadata = Any
"""Objects of pyarrow, which has no type stubs."""


@cache
def arrow_type(name: str) -> ArrowType:
    """The type of a column as pyarrow has it."""
    return type_of(SCHEMA[name])


def type_of(described: Type) -> ArrowType:
    import pyarrow as pa

    if isinstance(described, list):
        return pa.list_(type_of(described[0]))
    if isinstance(described, dict):
        return pa.struct([(name, type_of(inner)) for name, inner in described.items()])
    return getattr(pa, described)()


def union_schema(one: ArrowSchema, other: ArrowSchema, keys: Iterable[ScoreKey]) -> ArrowSchema:
    """The schema that has the columns and fields of both; `keys` are the rows of scores in their order."""
    import pyarrow as pa

    names = [name for name in SCHEMA if name in one.names or name in other.names]
    fields = [pa.field(name, _joined_fields(name, one, other)) for name in names]
    scores = [pa.field(name, pa.float64()) for name in map(str, keys) if name in one.names or name in other.names]
    return pa.schema([*fields, *scores])


def score_keys(schema: ArrowSchema) -> list[ScoreKey]:
    """The rows of scores, in their order."""
    names = (schema.metadata or {}).get(ROW_NAMES.encode())
    return [*map(ScoreKey.parse, orjson.loads(names))] if names is not None else score_columns(schema.names)


def score_columns(names: Iterable[str]) -> list[ScoreKey]:
    """The rows of scores that have a column."""
    return [ScoreKey.parse(name) for name in names if is_joined(name)]


def leaf_names(fields: ArrowSchema, way: str = "") -> Iterator[str]:
    """The ways to all values of a schema: names of columns and fields, without a word for lists."""
    from pyarrow import types

    for field in fields:
        kind = field.type
        while types.is_list(kind):
            kind = kind.value_type
        if types.is_struct(kind):
            yield from leaf_names(kind, f"{way}{field.name}.")
        else:
            yield way + field.name


def cast_table(arrays: Mapping[str, Array], schema: ArrowSchema) -> ArrowTable:
    """A table of that schema, which has all that the arrays have."""
    import pyarrow as pa

    size = len(arrays["doc_id"])
    columns = [
        _conformed(arrays[field.name], field.type) if field.name in arrays else pa.nulls(size, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def is_subtype(inner: ArrowType, whole: ArrowType) -> bool:
    """Whether a type is another with some of its fields, or the same."""
    from pyarrow import types

    if types.is_list(whole):
        return types.is_list(inner) and is_subtype(inner.value_type, whole.value_type)
    if types.is_struct(whole):
        known = {field.name: field.type for field in whole}
        return types.is_struct(inner) and all(
            field.name in known and is_subtype(field.type, known[field.name]) for field in inner
        )
    return bool(inner == whole)


def _joined_fields(name: str, one: ArrowSchema, other: ArrowSchema) -> ArrowType:
    there = [schema.field(name).type for schema in (one, other) if name in schema.names]
    return _joined_types(there[0], there[-1], arrow_type(name))


def _joined_types(one: ArrowType, other: ArrowType, whole: ArrowType) -> ArrowType:
    import pyarrow as pa
    from pyarrow import types

    if one == other:
        return one
    if types.is_list(whole):
        return pa.list_(_joined_types(one.value_type, other.value_type, whole.value_type))
    return pa.struct(_joined_inner(one, other, whole))


def _joined_inner(one: ArrowType, other: ArrowType, whole: ArrowType) -> Iterator[tuple[str, ArrowType]]:
    for field in whole:
        there = [each.field(field.name).type for each in (one, other) if each.get_field_index(field.name) >= 0]
        if there:
            yield field.name, _joined_types(there[0], there[-1], field.type)


def _conformed(array: Array, target: ArrowType) -> Array:
    import pyarrow as pa
    from pyarrow import types

    if array.type == target:
        return array
    if types.is_list(target):
        offsets, values, missing = list_buffers(array)
        return pa.ListArray.from_arrays(offsets, _conformed(values, target.value_type), mask=missing)
    fields = [
        _conformed(array.field(field.name), field.type)
        if array.type.get_field_index(field.name) >= 0
        else pa.nulls(len(array), field.type)
        for field in target
    ]
    return pa.StructArray.from_arrays(fields, fields=[*target], mask=array.is_null())


def list_buffers(array: Array) -> tuple[Array, Array, Array]:
    """Where the lists of an array begin in its flat values, those values, and which lists are missing (None: no one)."""
    import pyarrow.compute as pc

    offsets = array.offsets
    first = offsets[0].as_py() if len(offsets) else 0
    return (
        pc.subtract(offsets, first) if first else offsets,
        array.flatten(),
        array.is_null() if array.null_count else None,
    )
