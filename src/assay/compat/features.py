"""The types of a data set's columns, and what Arrow makes of values: enough of Hugging Face's features for helper code.

A column that holds one kind of thing needs no Arrow, which is nearly every column: `kind_of` finds that out cheaply.
The rest goes through Arrow's own inference and casts, so that 1 beside 0.5 becomes 1.0 here as it does there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Union

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

Ignored = Any
"""Further arguments of Hugging Face's or lm-eval's function, which change nothing here."""
Cell = Any
"""A value of a column: a number, a text, a list, a mapping, whatever the rows hold."""
Feature = Union["Value", "ClassLabel", "List", "Anything", list["Feature"], dict[str, "Feature"]]
"""The type of a column."""
Kind = Any
"""The types in a column: a set of them, or of a column of lists a list of one kind, of mappings a tuple of (key, kind)."""

UNEVEN = frozenset(["uneven"])
"""The kind of mappings that do not all have the same keys in the same order."""
NONE = frozenset([type(None)])
SIMPLE = frozenset([str, int, float, bool, bytes, "uneven"])


class Features(dict[str, Feature]):
    """Types by column name."""

    @property
    def type(self) -> "pa.DataType":
        return arrow_type(dict(self))


@dataclass(repr=False)
class Value:
    """A plain value, by the name Arrow has for its type."""

    dtype: str
    id: str | None = None

    def __post_init__(self) -> None:
        import pyarrow as pa

        try:
            arrow = pa.type_for_alias(self.dtype)
        except ValueError:
            raise ValueError(f"{self.dtype!r} is not a type of Arrow") from None
        self.dtype = {"float": "float32", "double": "float64", "halffloat": "float16"}.get(str(arrow), str(arrow))

    def __repr__(self) -> str:
        return f"Value({self.dtype!r})"


@dataclass(repr=False)
class ClassLabel:
    """Numbers that stand for names."""

    num_classes: int | None = None
    names: list[str] = field(default_factory=list)
    names_file: str | None = None
    id: str | None = None
    dtype = "int64"

    def __post_init__(self) -> None:
        if self.names_file is not None:
            from pathlib import Path

            lines = Path(self.names_file).read_text(encoding="utf-8").splitlines()
            self.names = [line.strip() for line in lines if line.strip()]
        self.names = list(self.names) or [str(number) for number in range(self.num_classes or 0)]
        self.num_classes = len(self.names)

    def __repr__(self) -> str:
        return f"ClassLabel(names={self.names})"

    def str2int(self, values: str | Iterable[str]) -> int | list[int]:
        """The number of a name; a number written as text is itself."""
        return self._one(values) if isinstance(values, str) else [self._one(value) for value in values]

    def _one(self, text: str) -> int:
        for name in (text, text.strip()):
            if name in self.names:
                return self.names.index(name)
        number = int(text) if text.strip().lstrip("-").isdigit() else -1
        if not 0 <= number < len(self.names):
            raise ValueError(f"Invalid string class label {text}")
        return number

    def int2str(self, values: Any) -> Any:
        """The name of a number."""
        if not isinstance(values, int | np.integer):
            return [self.int2str(value) for value in values]
        if not 0 <= values < len(self.names):
            raise ValueError(f"Invalid integer class label {values}")
        return self.names[int(values)]


@dataclass(repr=False)
class List:
    """Lists of one type."""

    feature: Feature
    length: int = -1
    id: str | None = None

    def __repr__(self) -> str:
        return f"List({self.feature!r})" if self.length == -1 else f"List({self.feature!r}, length={self.length})"


class Anything:
    """A type that is only named, as that of images: values of it stay what they are."""

    def __init__(self, *_: Ignored, **__: Ignored) -> None: ...


def sequence(feature: Feature, length: int = -1, **_: Ignored) -> Feature:
    """Lists of one type; of mappings, a mapping of lists."""
    if isinstance(feature, dict):
        return {name: List(inner, length) for name, inner in feature.items()}
    return List(feature, length)


def arrow_type(feature: Feature) -> "pa.DataType | None":
    """Arrow's type for a feature, None where it has no fixed one."""
    import pyarrow as pa

    if isinstance(feature, Value):
        return pa.type_for_alias(feature.dtype)
    if isinstance(feature, ClassLabel):
        return pa.int64()
    if isinstance(feature, dict):
        inner = {name: arrow_type(each) for name, each in feature.items()}
        return None if None in inner.values() else pa.struct(inner)
    if isinstance(feature, List | list):
        element = arrow_type(feature.feature if isinstance(feature, List) else feature[0])
        return None if element is None else pa.list_(element)
    return None


def inferred(values: Sequence[Cell]) -> Feature:
    """The feature of values, as Arrow infers it; where it can make nothing of them, one that is only named."""
    column = _array(values)
    return Anything() if column is None else _feature(column.type)


def _feature(type_: "pa.DataType") -> Feature:
    import pyarrow as pa

    if pa.types.is_struct(type_):
        return {each.name: _feature(each.type) for each in type_}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return List(_feature(type_.value_type))
    return Value(str(type_))


def plain(value: Cell) -> Cell:
    """A value as it comes back from Arrow: lists for tuples, sets and arrays, Python's numbers for numpy's."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def plain_list(values: Iterable[Cell]) -> list[Cell]:
    """A column as a list, whatever kind of sequence it comes in."""
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def copied(value: Cell) -> Cell:
    """A value that may be written to without the first one's noticing."""
    if type(value) is list:
        return [copied(inner) if type(inner) in (list, dict) else inner for inner in value]
    if type(value) is dict:
        return {key: copied(inner) if type(inner) in (list, dict) else inner for key, inner in value.items()}
    return value


def complete(rows: Sequence[dict[str, Cell]], names: Sequence[str]) -> None:
    """Give mappings of one column the same keys in every row, None where one had not: they are one type to Arrow."""
    for name in names:
        keys = [row[name].keys() for row in rows if isinstance(row[name], dict)]
        if keys and any(each != keys[0] for each in keys):
            every = dict.fromkeys(key for each in keys for key in each)
            for row in rows:
                if isinstance(row[name], dict):
                    row[name] = {**every, **row[name]}


def kind_of(values: Sequence[Cell]) -> Kind:
    """The types of the values and, of lists and mappings, of what is in them."""
    types = frozenset(map(type, values)) - NONE
    if types == {list}:
        return [kind_of(list(chain.from_iterable(filter(None, values))))]
    if types == {dict}:
        present = [value for value in values if value is not None]
        keys = list(present[0])
        if any(list(value) != keys for value in present):
            return UNEVEN
        return tuple((key, kind_of([value[key] for value in present])) for key in keys)
    return types


def _sets(kind: Kind) -> Iterator[frozenset[type | str]]:
    if isinstance(kind, frozenset):
        yield kind
        return
    for inner in kind if isinstance(kind, list) else [inner for _, inner in kind]:
        yield from _sets(inner)


def _plain_column(values: Sequence[Cell]) -> tuple[list[Cell], Kind]:
    kind = kind_of(values)
    if all(each <= SIMPLE for each in _sets(kind)):
        return list(values), kind
    column = plain(list(values))
    return column, kind_of(column)


def strictly_typed(values: Sequence[Cell]) -> list[Cell]:
    """A column given whole, as `from_list` takes it: Arrow must find one type, and every mapping gets all keys."""
    column, kind = _plain_column(values)
    if all(len(each) < 2 and each != UNEVEN for each in _sets(kind)):
        return column
    import pyarrow as pa

    return list(pa.array(column).to_pylist())


def typed(values: Sequence[Cell]) -> list[Cell]:
    """A column that `map` adds: numbers of one type where Arrow can, and what it cannot take as it is."""
    column, kind = _plain_column(values)
    kinds = list(_sets(kind))
    if UNEVEN in kinds or all(len(each) < 2 for each in kinds):
        return column
    array = _array(column)
    return column if array is None else list(array.to_pylist())


def typed_as_before(values: Sequence[Cell], before: Sequence[Cell], feature: Feature | None = None) -> list[Cell]:
    """A column that `map` changes: of the type it had, if its values can be; else of the type they have.

    Text that reads as a number becomes one in a column of numbers, but no number becomes text.
    """
    if isinstance(feature, ClassLabel):
        return cast(values, feature)
    column, kind = _plain_column(values)
    if feature is None and kind == kind_of(before) and all(len(each) < 2 and each != UNEVEN for each in _sets(kind)):
        return column
    target = arrow_type(feature) if feature is not None else getattr(_array(before), "type", None)
    array = _array(column)
    if target is not None and array is not None and _may_become(array.type, target):
        again = _cast_or_none(_with_keys(column, target), target)
        if again is not None:
            return again
    return typed(column)


def cast(values: Sequence[Cell], feature: Feature) -> list[Cell]:
    """The values as a feature asks; what cannot be is an error of Arrow's, as in the library."""
    column = _numbered(plain(list(values)), feature)
    target = arrow_type(feature)
    if target is None:
        return list(column)
    import pyarrow as pa

    return list(pa.array(_with_keys(column, target)).cast(target).to_pylist())


def _numbered(values: Sequence[Cell], feature: Feature) -> Sequence[Cell]:
    """A column with the numbers of class labels in place of their names, wherever the feature has labels."""
    if isinstance(feature, ClassLabel):
        return [feature.str2int(value) if isinstance(value, str) else value for value in values]
    if isinstance(feature, List | list):
        inner = feature.feature if isinstance(feature, List) else feature[0]
        return [value if value is None else _numbered(value, inner) for value in values]
    if isinstance(feature, Mapping):
        return [
            value if value is None else {name: _numbered([value.get(name)], feature[name])[0] for name in feature}
            for value in values
        ]
    return values


def _array(values: Sequence[Cell]) -> "pa.Array | None":
    """The values as Arrow has them, None where it cannot."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None


def _cast_or_none(values: Sequence[Cell], target: "pa.DataType") -> list[Cell] | None:
    # `pa.array(values, target)` would do both at once, and silently cut 1.5 to 1 inside lists
    import pyarrow as pa

    try:
        return list(pa.array(values).cast(target).to_pylist())
    except pa.ArrowException:
        return None


def _with_keys(values: Sequence[Cell], target: "pa.DataType") -> list[Cell]:
    """The values, their mappings with the keys of a type of Arrow's in its order: what a cast needs."""
    import pyarrow as pa

    if pa.types.is_struct(target) and any(isinstance(value, dict) for value in values):
        types = {each.name: each.type for each in target}
        return [
            {name: _with_keys([value.get(name)], inner)[0] for name, inner in types.items()} if value else value
            for value in values
        ]
    if pa.types.is_list(target) and pa.types.is_nested(target.value_type):
        return [_with_keys(value, target.value_type) if isinstance(value, list) else value for value in values]
    return list(values)


def _may_become(source: "pa.DataType", target: "pa.DataType") -> bool:
    """Whether `map` lets one type become the other: no number becomes text, no mapping loses a key."""
    import pyarrow as pa

    if pa.types.is_null(source):
        return True
    if pa.types.is_struct(source) or pa.types.is_struct(target):
        if not (pa.types.is_struct(source) and pa.types.is_struct(target)):
            return False
        before = {each.name: each.type for each in target}
        return all(each.name in before and _may_become(each.type, before[each.name]) for each in source)
    if pa.types.is_list(source) or pa.types.is_list(target):
        both = pa.types.is_list(source) and pa.types.is_list(target)
        return both and _may_become(source.value_type, target.value_type)
    return bool(pa.types.is_string(source) or not pa.types.is_string(target))
