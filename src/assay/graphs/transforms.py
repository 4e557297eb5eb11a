"""Transforms of records before they are evaluated, by the names and parameters that SyGra gives them."""

import inspect
import re
from collections.abc import Sequence
from functools import partial

from assay.dialect import OURS
from assay.errors import ConfigError, Place, Problem
from assay.extension_points import ExtensionPoint
from assay.graphs.spec import Record, Value
from assay.records import JSONDict, UserValue
from assay.registry import Registry
from assay.signatures import parameter_problems


class DataTransform:
    """The class to derive a transform from: `transform` takes records and parameters, and gives records.

    `run_dialect` has the rules of the run; it is set before `transform` is called.
    """

    run_dialect = OURS

    @property
    def name(self) -> str:
        return type(self).__name__

    def transform(self, data: list[JSONDict], params: JSONDict) -> list[JSONDict]:
        raise NotImplementedError(f"{type(self).__name__} has no `transform`")

    def problems(self, params: Record, place: Place) -> list[Problem]:  # noqa: ARG002  # nothing is known
        """List the problems of parameters that show before the transform runs."""
        return []


TRANSFORM_POINT = ExtensionPoint(
    DataTransform,
    {"transform": ("data", "params")},
    ("name", "problems", "run_dialect"),
    may_yield=("transform",),
)


class _Checked(DataTransform):
    """A transform whose parameters are the keyword parameters of `rows`."""

    def rows(self, data: Sequence[JSONDict], **params: UserValue) -> list[JSONDict]:
        raise NotImplementedError

    def transform(self, data: list[JSONDict], params: JSONDict) -> list[JSONDict]:
        wrong = self.problems(params, Place(f"transform {self.name!r}"))
        if wrong:
            raise ConfigError(wrong)
        return self.rows(list(data), **_without_nulls(params))

    def problems(self, params: Record, place: Place) -> list[Problem]:
        return parameter_problems(partial(self.rows, []), _without_nulls(params), f"transform {self.name!r}", place)


def _without_nulls(params: Record) -> JSONDict:
    """Parameters without those that are null: they keep their defaults."""
    return {key: value for key, value in params.items() if value is not None}


class RenameFieldsTransform(_Checked):
    """Fields under other names. A name that is taken is given only with `overwrite`."""

    name = "rename_fields"

    def rows(self, data: Sequence[JSONDict], *, mapping: JSONDict, overwrite: bool = False) -> list[JSONDict]:  # type: ignore[override]
        renamed = [dict(record) for record in data]
        for record in renamed:
            for old, new in mapping.items():
                if old in record and (overwrite or new not in record):
                    record[new] = record.pop(old)
        return renamed


class AddNewFieldTransform(_Checked):
    """The same value in every record."""

    name = "add_new_field"

    def rows(self, data: Sequence[JSONDict], *, mapping: JSONDict) -> list[JSONDict]:  # type: ignore[override]
        return [{**record, **mapping} for record in data]


class AddRetryFieldsTransform(_Checked):
    """Adds the fields in which a graph counts its retries."""

    name = "add_retry_fields"

    def rows(  # type: ignore[override]
        self,
        data: Sequence[JSONDict],
        *,
        max_retries: int = 3,
        initial_retry_count: int = 0,
        original_current_user_text: str = "",
    ) -> list[JSONDict]:
        added = {
            "max_retries": max_retries,
            "curr_retries": initial_retry_count,
            "original_current_user_text": original_current_user_text,
        }
        return AddNewFieldTransform().rows(data, mapping=added)


class SkipRecords(_Checked):
    """All records but some: those of a `range` such as "[:10],[-10:]", or a `count` from the start and from the end."""

    name = "skip_records"

    def rows(  # type: ignore[override]
        self, data: Sequence[JSONDict], *, skip_type: str = "range", range: str = "", count: JSONDict | None = None
    ) -> list[JSONDict]:
        if skip_type == "count":
            known: JSONDict = count or {}
            start = int(known.get("from_start", known.get("from_begin")) or 0)
            return list(data[start : len(data) - int(known.get("from_end", 0))])
        if skip_type != "range":
            what = f"skip_type must be range or count, got {skip_type!r}"
            raise ConfigError.at(f"transform {self.name!r}", what, "use range or count")
        numbers = [number for number, _ in enumerate(data)]
        skipped = {number for part in _slices(range) for number in numbers[part]}
        return [record for number, record in enumerate(data) if number not in skipped]


def _slices(written: str) -> list[slice]:
    """The slices that a text such as "[:10],[-10:]" names."""
    slices = []
    for part in filter(None, (each.strip() for each in written.split(","))):
        bounds = re.fullmatch(r"\[\s*(-?\d*)\s*:\s*(-?\d*)\s*\]", part)
        if bounds is None:
            fix = "write [start:end], as in [:10],[-10:]"
            raise ConfigError.at("transform 'skip_records'", f"invalid range {part!r}", fix)
        start, end = (int(each) if each else None for each in bounds.groups())
        slices.append(slice(start, end))
    return slices


class CombineRecords(_Checked):
    """Neighbouring records as one: `combine` of them, then on by `shift`. `join_column` says for every column how,
    with $1 for its value in the first record, $2 in the second, and so on."""

    name = "combine_records"

    def rows(  # type: ignore[override]
        self,
        data: Sequence[JSONDict],
        *,
        combine: int = 1,
        shift: int = 1,
        skip: JSONDict | None = None,
        join_column: JSONDict | None = None,
    ) -> list[JSONDict]:
        if combine < 2:
            return list(data)
        if shift < 1:
            what = f"shift must be at least 1, got {shift}"
            raise ConfigError.at(f"transform {self.name!r}", what, "write `shift: 1`")
        rules: Record = join_column or {}
        start, left_out = int((skip or {}).get("from_beginning", 0)), int((skip or {}).get("from_end", 0))
        last = len(data) - left_out - combine
        starts = range(start, last if self.run_dialect.drops_last_window else last + 1, shift)
        windows = [data[at : at + combine] for at in starts]
        return [
            {column: _filled(str(rule), [record[column] for record in window]) for column, rule in rules.items()}
            for window in windows
        ]


def _filled(rule: str, values: Sequence[Value]) -> str:
    """A rule with its values in place of their numbers; a number without a record stays.

    >>> _filled("$1-$2 $3", ["a", "b"])
    'a-b $3'
    """
    return re.sub(
        r"\$(\d+)", lambda match: str(values[int(match[1]) - 1]) if 0 < int(match[1]) <= len(values) else match[0], rule
    )


def _adopted(name: str, thing: UserValue) -> type:
    if not (inspect.isclass(thing) and callable(getattr(thing, "transform", None))):
        raise TypeError(f"{name!r} must be a class with `transform(data, params)`, got {thing!r:.60}")
    return thing


TRANSFORMS: Registry[type, DataTransform] = Registry(
    "transform",
    {
        each.__name__: each
        for each in (RenameFieldsTransform, AddNewFieldTransform, SkipRecords, CombineRecords, AddRetryFieldsTransform)
    },
    group="assay.transforms",
    adopt=_adopted,
)
"""Names for `transform:` of a source; SyGra's dotted names work, too."""
