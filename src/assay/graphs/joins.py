"""Records of several sources put together, in SyGra's ways."""

import random
from collections.abc import Sequence
from typing import Any

from assay.graphs.spec import SourceConfig
from assay.samples.rows import DataError

Record = dict[str, Any]


def joined(sources: Sequence[SourceConfig], tables: Sequence[Sequence[Any]]) -> list[Record]:
    """One list of records: below each other (`vstack`), or beside the primary ones, with columns called `alias->column`."""
    kinds = [source.join_type for source in sources]
    if any(source.alias is None for source in sources) or None in kinds:
        raise DataError("data_config.source: every one of several sources needs alias and join_type")
    if set(kinds) == {"vstack"}:
        shared = set.intersection(*({*table[0]} if table else set[str]() for table in tables))
        return [{key: row[key] for key in row if key in shared} for table in tables for row in table]
    if "vstack" in kinds or kinds.count("primary") != 1:
        raise DataError("data_config.source: exactly one of several sources is primary, or all are vstack")
    at = kinds.index("primary")
    made = [_named(row, sources[at]) for row in tables[at]]
    for source, table in zip(sources, tables, strict=True):
        if source.join_type != "primary":
            made = _beside(made, sources[at], source, [_named(row, source) for row in table])
    return made


def _named(row: Record, source: SourceConfig) -> Record:
    return {f"{source.alias}->{key}": value for key, value in row.items()}


def _beside(made: list[Record], primary: SourceConfig, source: SourceConfig, others: list[Record]) -> list[Record]:
    if not others:
        raise DataError(f"data_config.source: {source.alias!r} has no records to join")
    if source.join_type == "cross":
        return [{**row, **other} for row in made for other in others]
    if source.join_type == "sequential":
        return [{**row, **others[number % len(others)]} for number, row in enumerate(made)]
    if source.join_type == "random":
        drawn = random.Random(f"join {source.alias}")
        return [{**row, **drawn.choice(others)} for row in made]
    if not source.primary_key or not source.join_key:
        raise DataError(f"data_config.source: {source.alias!r} needs primary_key and join_key")
    left, right = f"{primary.alias}->{source.primary_key}", f"{source.alias}->{source.join_key}"
    for key, row in ((left, made[0] if made else {left: None}), (right, others[0])):
        if key not in row:
            raise DataError(f"data_config.source: there is no column {key!r} to join by; there are: {', '.join(row)}")
    found: dict[Any, list[Record]] = {}
    for other in others:
        found.setdefault(other[right], []).append(other)
    nothing = [dict.fromkeys(others[0])]
    return [{**row, **other} for row in made for other in found.get(row[left], nothing)]
