"""Atomic writes that survive a power cut: synced before the rename, and the folder after; and records as json, jsonl, csv or
Parquet."""

import csv
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from assay.records import AnyJSON


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Sync a folder, where the system supports it."""
    if os.name == "posix":
        sync(path)


def replace_file(part: Path, path: Path) -> None:
    """Give a file that is written its name: after a power cut there is the old file or the whole new one."""
    sync(part)
    part.replace(path)
    sync_folder(path.parent)


def replace_folder(part: Path, path: Path) -> Path:
    """Rename a folder after syncing its content. An existing folder that is not empty is an OSError."""
    for folder, _, names in os.walk(part):
        for name in names:
            sync(Path(folder, name))
        sync_folder(Path(folder))
    renamed = part.rename(path)
    sync_folder(path.parent)
    return renamed


Records = Iterable[Mapping[str, Any]]
ROWS = 2000
"""Rows of a Parquet file that are held at a time."""


def write_sink(path: Path, kind: str, records: Records, encoding: str = "utf-8") -> None:
    """Write records in one move: a file is whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    WRITERS[kind](part, records, encoding)
    replace_file(part, path)


def _json(path: Path, records: Records, encoding: str) -> None:
    with path.open("w", encoding=encoding) as out:
        out.write("[")
        for number, record in enumerate(records):
            out.write((",\n" if number else "\n") + json.dumps(record, ensure_ascii=False, default=str))
        out.write("\n]\n")


def _jsonl(path: Path, records: Records, encoding: str) -> None:
    with path.open("w", encoding=encoding) as out:
        out.writelines(json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in records)


def _csv(path: Path, records: Records, encoding: str) -> None:
    """Write a table with the columns of the first record; values that are not plain are written as JSON."""
    with path.open("w", newline="", encoding=encoding) as out:
        writer: Any = None
        for record in records:
            if writer is None:
                writer = csv.DictWriter(out, list(record), extrasaction="ignore")
                writer.writeheader()
            writer.writerow({key: _cell(value) for key, value in record.items()})


def _parquet(path: Path, records: Records, encoding: str) -> None:  # noqa: ARG001  # the shape of a writer
    import pyarrow as pa
    from pyarrow import parquet

    writer: Any = None
    rows: list[dict[str, Any]] = []

    def flush() -> None:
        nonlocal writer
        table = pa.Table.from_pylist(rows, writer.schema if writer is not None else None)
        if writer is None:
            writer = parquet.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
        rows.clear()

    for record in records:
        rows.append({key: _cell(value) for key, value in record.items()})
        if len(rows) >= ROWS:
            flush()
    if rows or writer is None:
        flush()
    writer.close()


def _cell(value: AnyJSON) -> AnyJSON:
    plain = value is None or isinstance(value, str | int | float)
    return value if plain else orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


WRITERS: dict[str, Callable[[Path, Records, str], None]] = {
    "json": _json, "jsonl": _jsonl, "csv": _csv, "parquet": _parquet,
}  # fmt: skip
