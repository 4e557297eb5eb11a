"""Columns of samples that have fewer fields than others of the same file: types joined, and arrays brought to a type.

A file leaves out what none of its samples has. A later row group may have it, and then the file gets it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from assay.runs.samples.encode import ROW_NAMES, SCHEMA, arrow_type


def union_schema(one: Any, other: Any, rows: Iterable[str]) -> Any:
    """The schema that has the columns and fields of both; `rows` are the names of scores in their order."""
    import pyarrow as pa

    names = [name for name in SCHEMA if name in one.names or name in other.names]
    fields = [pa.field(name, _joined_fields(name, one, other)) for name in names]
    scores = [pa.field(name, pa.float64()) for name in rows if name in one.names or name in other.names]
    return pa.schema([*fields, *scores])


def row_names(schema: Any) -> list[str]:
    """The names of the rows of scores, in their order."""
    found = (schema.metadata or {}).get(ROW_NAMES.encode())
    return orjson.loads(found) if found is not None else [name for name in schema.names if "," in name]


def leaf_names(fields: Any, way: str = "") -> Iterator[str]:
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


def cast_table(arrays: Mapping[str, Any], schema: Any) -> Any:
    """A table of that schema, which has all that the arrays have."""
    import pyarrow as pa

    size = len(arrays["doc_id"])
    columns = [
        _conformed(arrays[field.name], field.type) if field.name in arrays else pa.nulls(size, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def is_subtype(inner: Any, whole: Any) -> bool:
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


def _joined_fields(name: str, one: Any, other: Any) -> Any:
    there = [schema.field(name).type for schema in (one, other) if name in schema.names]
    return _joined_types(there[0], there[-1], arrow_type(name))


def _joined_types(one: Any, other: Any, whole: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    if one == other:
        return one
    if types.is_list(whole):
        return pa.list_(_joined_types(one.value_type, other.value_type, whole.value_type))
    return pa.struct(_joined_inner(one, other, whole))


def _joined_inner(one: Any, other: Any, whole: Any) -> Iterator[tuple[str, Any]]:
    for field in whole:
        there = [each.field(field.name).type for each in (one, other) if each.get_field_index(field.name) >= 0]
        if there:
            yield field.name, _joined_types(there[0], there[-1], field.type)


def _conformed(array: Any, wanted: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    if array.type == wanted:
        return array
    if types.is_list(wanted):
        offsets, values, missing = list_buffers(array)
        return pa.ListArray.from_arrays(offsets, _conformed(values, wanted.value_type), mask=missing)
    fields = [
        _conformed(array.field(field.name), field.type)
        if array.type.get_field_index(field.name) >= 0
        else pa.nulls(len(array), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(fields, fields=[*wanted], mask=array.is_null())


def list_buffers(array: Any) -> tuple[Any, Any, Any]:
    """Where the lists of an array begin in its flat values, those values, and which lists are missing (None: no one)."""
    import pyarrow.compute as pc

    offsets = array.offsets
    first = offsets[0].as_py() if len(offsets) else 0
    return (
        pc.subtract(offsets, first) if first else offsets,
        array.flatten(),
        array.is_null() if array.null_count else None,
    )
