"""Decode fields into records by the types that the records declare. Every problem is collected; none hides another."""

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from assay.config.fields import Fields, Origin
from assay.config.option import YAMLMapping, YAMLValue, near_miss, yaml_fields
from assay.dialect import Dialect
from assay.errors import ConfigError, Place, Problem, did_you_mean, nearest
from assay.records import Function
from assay.redaction import Secret, SecretNumber
from assay.user_code import is_code

R = TypeVar("R")
Path = tuple[str | int, ...]
Decoded = Any
"""A value of the type that a record declares."""

WORDS = {
    "null": "nothing",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "map": "a mapping",
    "function": "a `!function`",
    "other": "something else",
}


MOST_UNKNOWN = 100
"""Unknown keys of one mapping that are reported one by one: a suggestion for each takes a millisecond."""


class ProblemCollector:
    """Collects problems at the places of one mapping's values."""

    def __init__(
        self,
        place: Callable[[Path, bool], Place],
        problems: list[Problem],
        *,
        dialect: Dialect,
        has_nulls: bool = False,
    ) -> None:
        self._place = place
        self.problems = problems
        self.dialect = dialect
        self.has_nulls = has_nulls

    def add(self, path: Path, what: str, fix: str = "", *, key: bool = False, serious: bool = True) -> None:
        self.problems.append(Problem(self._place(path, key), what, fix, serious))

    def mistyped(self, path: Path, value: YAMLValue, kind: str, readers: "Mapping[str, Read]") -> Decoded:
        """Report a value of the wrong type; returns the value to use instead.

        lm-eval checks no types. So in its files a null means the default, and one scalar in place of another is kept; other
        wrong types are refused there, too. With `has_nulls`, a null is as if its key were absent.
        """
        if kind == "null" and self.has_nulls:
            return DEFAULT
        expected = " or ".join(dict.fromkeys(WORDS[known] for known in readers if known != "null"))
        scalars = not {kind, *readers} & {"list", "map", "function", "other"}
        tolerated = self.dialect.accepts_invalid_values and (kind == "null" or scalars)
        shown = value.shown if isinstance(value, Secret | SecretNumber) else value
        what = f"{_name(path)} must be {expected}, got {_shown(shown, kind)}"
        self.add(path, what, _remedy(path, shown, kind, readers), serious=not tolerated)
        return value if tolerated and kind != "null" else DEFAULT

    def remark(self, path: Path, inner: Path, what: str, fix: str) -> None:
        """Report a problem that a field's check found in its value, or in a key inside it."""
        self.add((*path, *inner), what, fix, key=bool(inner), serious=not self.dialect.accepts_invalid_values)


Read = Callable[[Any, Path, ProblemCollector], Decoded]
"""Reads one value. A value that does not fit is reported, and DEFAULT returned; some dialects keep it."""

DEFAULT = object()
"""Marks an absent value."""


def decode(
    record: type[R], fields: Fields, problems: list[Problem], *, known: Sequence[str] = (), has_nulls: bool = False
) -> R | None:
    """Build the record that `fields` describe, or None if a required key is missing. Problems are added to the list.

    `known` are keys that are allowed in addition to those of the record, and not read here. With `has_nulls`, keys that
    are null are as absent ones.
    """
    report, before = _report_on(fields, problems, has_nulls=has_nulls), len(problems)
    values = _read_mapping(record, fields, (), report, known)
    if _missing(record, values, fields, (), report):
        return None
    try:
        return record(**values)
    except ConfigError as error:  # it also checks what Python code gives it
        problems += error.problems if len(problems) == before else ()
        return None


def check(record: type, fields: Fields, problems: list[Problem], *, known: Sequence[str] = ()) -> None:
    """Report the problems of the keys that are present; required keys may be missing."""
    _read_mapping(record, fields, (), _report_on(fields, problems), known)


def _report_on(fields: Fields, problems: list[Problem], *, has_nulls: bool = False) -> ProblemCollector:
    origins = [fields.origin(key) for key in fields] or [Origin("configuration")]

    def place(path: Path, key: bool) -> Place:
        return fields.place(*path, key=key) if path else origins[-1].place()

    return ProblemCollector(place, problems, dialect=fields.dialect, has_nulls=has_nulls)


def kind_of(value: YAMLValue) -> str:
    """Return the YAML kind of a value: one of the keys of WORDS."""
    kind = _KINDS.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, Mapping):
        return "map"
    return "function" if is_code(value) else "other"


_KINDS: dict[type, str] = {
    type(None): "null", bool: "bool", int: "int", float: "float", str: "str", list: "list", tuple: "list",
    dict: "map", Function: "function", Secret: "str", SecretNumber: "int",
}  # fmt: skip


def _read_mapping(
    record: type, mapping: YAMLMapping, path: Path, report: ProblemCollector, known: Sequence[str] = ()
) -> dict[str, Decoded]:
    shape = shape_of(record)
    values: dict[str, Any] = {}
    rest: dict[str, object] = {}
    unknown: list[str] = []
    for key, value in mapping.items():
        slot, meant = shape.slots.get(key), None
        if slot is None:
            meant = _meant_required(shape, str(key), mapping)
            if meant is None and shape.rest is not None:
                _report_near_miss(key, record, (*path, key), report)
                _report_second(key, mapping.get(shape.rest), (*path, key), report)
                rest[key] = value
                continue
            if key in known:
                continue
            unknown.append(key)
            if len(unknown) > MOST_UNKNOWN:
                continue
            meant = meant or meant_key(record, str(key), mapping)
            fix = f"did you mean {meant!r}?" if meant else did_you_mean(str(key), [*shape.slots, *known])
            report.add((*path, key), f"unknown key {key!r}", fix, key=True)
        slot = slot or shape.slots.get(str(meant))  # what else is wrong is found with what is probably meant
        read = slot.read(value, (*path, key), report) if slot is not None else DEFAULT
        if slot is not None and read is not DEFAULT:
            values[slot.attribute] = read
    if len(unknown) > MOST_UNKNOWN:
        more = f"{len(unknown) - MOST_UNKNOWN} more unknown keys, the first is {unknown[MOST_UNKNOWN]!r}"
        report.add((*path, unknown[MOST_UNKNOWN]), more, "correct those above first, or take them out", key=True)
    if shape.rest is not None and rest:
        values[shape.rest] = {**(values.get(shape.rest) or {}), **rest}
    return values


def meant_key(record: type, key: str, mapping: YAMLMapping) -> str | None:
    """The absent key that an unknown one is a typo of: a required one, or any that is very like it."""
    shape = shape_of(record)
    near = _meant_required(shape, key, mapping) or near_miss(key, tuple(shape.slots))
    return near if near not in mapping else None


def _meant_required(shape: "Shape", key: str, mapping: YAMLMapping) -> str | None:
    absent = [name for name in shape.required if name not in mapping]
    return next((name for name in absent if nearest(name, [key], count=1)), None)


def _missing(
    record: type, values: Mapping[str, Decoded], mapping: YAMLMapping, path: Path, report: ProblemCollector
) -> bool:
    absent = [key for key, attribute in shape_of(record).required.items() if attribute not in values]
    for key in absent:
        if key in mapping and not (mapping[key] is None and report.has_nulls):  # its type is wrong, which was reported
            continue
        if not any(_meant_required(shape_of(record), str(other), mapping) == key for other in mapping):
            report.add(path, f"key {key!r} is missing", f"add `{key}:`")
    return bool(absent)


def _report_near_miss(key: str, record: type, path: Path, report: ProblemCollector) -> None:
    near = near_miss(str(key), tuple(shape_of(record).slots))
    if near:
        serious = not report.dialect.takes_misspelled_keys_for_parameters
        report.add(path, f"unknown key {key!r}", f"did you mean {near!r}?", key=True, serious=serious)


def _report_second(key: str, others: YAMLValue, path: Path, report: ProblemCollector) -> None:
    """Report a parameter that is also among those that are listed apart, as `kwargs`."""
    if isinstance(others, Mapping) and key in others:
        what, serious = f"{key!r} is given twice, here and in kwargs", not report.dialect.keeps_last_of_equal_keys
        report.add(path, what, "leave one of them out", key=True, serious=serious)


@dataclasses.dataclass(frozen=True, slots=True)
class Slot:
    attribute: str
    read: Read


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The keys of a record: a slot for each, the required ones, and the attribute that takes the rest."""

    slots: Mapping[str, Slot]
    required: Mapping[str, str]
    rest: str | None


@cache
def shape_of(record: type) -> Shape:
    hints = typing.get_type_hints(record)
    slots, required, rest = {}, {}, None
    for item in yaml_fields(record):
        key = item.metadata.get("key") or item.name
        slots[key] = Slot(item.name, _reader(hints[item.name], item.metadata))
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            required[key] = item.name
        if item.metadata.get("rest"):
            rest = item.name
    return Shape(slots, required, rest)


def _reader(hint: Any, metadata: Mapping[str, Any]) -> Read:
    readers = _readers(hint)
    if metadata.get("many"):
        readers = _one_or_many(readers)
    check = metadata.get("check")

    def read(value: YAMLValue, path: Path, report: ProblemCollector) -> Decoded:
        kind = kind_of(value)
        reader = readers.get(kind)
        if reader is None:
            return report.mistyped(path, value, kind, readers)
        result = reader(value, path, report)
        if check is not None:
            for inner, what, fix in check(value):
                report.remark(path, inner, f"{_name(path)} {what}", fix)
        return result

    return read


def _readers(hint: Any) -> dict[str, Read]:
    """Return a reader for each YAML kind that a type accepts."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return {kind: read for part in arguments for kind, read in _readers(part).items()}
    if origin is typing.Literal:
        return {"str": _one_of(arguments)}
    if origin in (tuple, list):
        return {"list": _each(_reader(arguments[0], {}), arguments[0])}
    if origin is not None and issubclass(origin, Mapping):
        is_record = dataclasses.is_dataclass(arguments[1]) and arguments[1] is not Function
        return {"map": _by_name(_reader(arguments[1], {})) if is_record else _as_is}
    if hint is object:
        return dict.fromkeys(WORDS, _as_is)
    if dataclasses.is_dataclass(hint) and hint is not Function:
        return {"map": _nested(hint)}  # type: ignore[arg-type]  # is_dataclass of a type hint gives a type
    return dict.fromkeys(_SCALARS[hint], _as_is)


_SCALARS: dict[Any, tuple[str, ...]] = {
    type(None): ("null",),
    bool: ("bool",),
    int: ("int",),
    float: ("float", "int"),
    str: ("str",),
    Function: ("function",),
}


def _as_is(value: YAMLValue, path: Path, report: ProblemCollector) -> Decoded:  # noqa: ARG001  # the shape of every reader
    return value


def _one_or_many(readers: dict[str, Read]) -> dict[str, Read]:
    each = readers["list"]

    def alone(value: YAMLValue, path: Path, report: ProblemCollector) -> Decoded:
        single = ProblemCollector(
            lambda inner, key: report._place((*path, *inner[len(path) + 1 :]), key),
            report.problems,
            dialect=report.dialect,
            has_nulls=report.has_nulls,
        )
        return each([value], path, single)

    return {"str": alone, "map": alone, **readers}


def _one_of(options: tuple[str, ...]) -> Read:
    def read(value: str, path: Path, report: ProblemCollector) -> Decoded:
        if value not in options:
            report.add(
                path, f"{_name(path)} must be one of {', '.join(options)}, got {value!r}", did_you_mean(value, options)
            )
            return near_miss(value, options) or DEFAULT  # the rest is checked as what is probably meant
        return value

    return read


def _each(read: Read, item: Any) -> Read:
    def read_all(values: Sequence[YAMLValue], path: Path, report: ProblemCollector) -> Decoded:
        items = [read(value, (*path, number), report) for number, value in enumerate(values)]
        if read_all.record is not None and DEFAULT in items:  # type: ignore[attr-defined]
            items = items[: items.index(DEFAULT) + 1]  # those after it would be looked up at another place of the file
        fitting = tuple(item for item in items if item is not DEFAULT)
        return fitting if fitting or not items else DEFAULT

    read_all.record = item if dataclasses.is_dataclass(item) and item is not Function else None  # type: ignore[attr-defined]
    return read_all


def _by_name(read: Read) -> Read:
    """Reads a mapping of records."""

    def read_all(values: YAMLMapping, path: Path, report: ProblemCollector) -> Decoded:
        records: dict[str, Decoded] = {}
        for name, value in values.items():
            if value in (None, {}):
                report.add((*path, name), f"{name} is empty", "add its keys")
            elif (record := read(value, (*path, name), report)) is not DEFAULT:
                records[str(name)] = record
        return records

    return read_all


def _nested(record: type) -> Read:
    def read(value: YAMLMapping, path: Path, report: ProblemCollector) -> Decoded:
        values = _read_mapping(record, value, path, report)
        return DEFAULT if _missing(record, values, value, path, report) else record(**values)

    read.record = record  # type: ignore[attr-defined]
    return read


def _name(path: Path) -> str:
    key = next((str(step) for step in reversed(path) if isinstance(step, str)), "the value")
    return f"an entry of {key}" if path and isinstance(path[-1], int) else key


def _shown(value: YAMLValue, kind: str) -> str:
    if kind in ("null", "list", "map", "function"):
        return WORDS[kind]
    if kind == "other":
        return f"the {type(value).__name__} {value}"
    return {"str": "the text ", "bool": ""}.get(kind, "the number ") + (
        repr(value) if kind == "str" else str(value).lower()
    )


def _remedy(path: Path, value: YAMLValue, kind: str, readers: Mapping[str, Read]) -> str:
    if kind == "other" and type(value).__module__ not in ("builtins", "datetime"):
        return "give a function or a class" if "function" in readers else "write what YAML can hold"
    if "str" in readers and kind in ("bool", "int", "float", "other"):
        return f"YAML reads this as {_shown(value, kind)}; put it in quotes"
    if kind == "null":
        return "give it a value or delete the key"
    if kind == "str" and "function" in readers:
        return "write `!function module.name`"
    if kind == "str" and ("int" in readers or "bool" in readers):
        return (
            "write it without quotes"
            if str(value).strip().lower() in _PLAIN or _is_number(str(value))
            else "correct the value"
        )
    if kind in ("str", "int", "float") and ("map" in readers or "list" in readers):
        return _wrapped(path, value, readers)
    if kind == "map" and "list" in readers:
        return "begin it with `- `: it is an entry of a list"
    if kind == "list" and "map" in readers:
        return (
            f"write `{path[-1]}: {{version: 1.0}}`"
            if path[-1:] == ("metadata",)
            else "write `key: value` in place of `- value`"
        )
    return "write one value in its place" if kind in ("list", "map") else ""


def _wrapped(path: Path, value: YAMLValue, readers: Mapping[str, Read]) -> str:
    """How a text or number is written where a mapping or list is needed: under the key that the mapping needs."""
    key = str(path[-1]) if path else ""
    record = getattr(readers.get("map") or readers["list"], "record", None)
    needed = next(iter(shape_of(record).required), None) if record is not None else None
    of = next((str(step) for step in reversed(path) if isinstance(step, str)), "")
    if of == "prompt" and needed is None:  # messages
        message = f"user: {json.dumps(str(value), ensure_ascii=False)}"
        return f"write `- {message}`" if path and isinstance(path[-1], int) else f"write `{key}: [{{{message}}}]`"
    inner = f"{needed}: {value}" if needed is not None else f"{'version' if key == 'metadata' else 'key'}: {value}"
    if "map" in readers:
        return f"write `- {inner}`" if path and isinstance(path[-1], int) else f"write `{key}: {{{inner}}}`"
    return f"write `{key}: [{{{inner}}}]`" if needed is not None else f"write `{key}: [{value}]`"


_PLAIN = {"true", "false", "yes", "no", "on", "off"}


def _is_number(text: str) -> bool:
    return text.strip().lstrip("+-").replace(".", "", 1).isdigit()
