"""Atomic writes that survive a power cut: synced before the rename, and the folder after; and records as json, jsonl, csv or
Parquet."""

import csv
import errno
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from assay.records import AnyJSON

UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EBADF)
"""Errors of a folder that cannot be synced: on some network disks, and one that may be written and not read."""


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading; one that is not regular, such as a FIFO or a device that never ends, is an OSError."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return file


def read_bytes(path: Path) -> bytes:
    """Return the content of a file."""
    with open_file(path) as file:
        return file.read()


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Sync a folder, where the system supports it."""
    try:
        sync(path)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise


def make_folder(path: Path) -> None:
    """Make a folder, and those above it: their names survive a power cut."""
    if not path.is_dir():
        make_folder(path.parent) if path.parent != path else None
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def rename_file(part: Path, path: Path) -> None:
    """Give a file that is written its name, which survives a power cut when its folder is synced, too."""
    sync(part)
    part.replace(path)


def replace_file(part: Path, path: Path) -> None:
    """Give a file that is written its name: after a power cut there is the old file or the whole new one."""
    rename_file(part, path)
    sync_folder(path.parent)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A name to write a file under. The file gets its own name when it is whole; of one that cannot be written nothing is left, and
    one that was there stays."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        replace_file(part, path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def replace_folder(part: Path, path: Path) -> Path:
    """Rename a folder after syncing its content. An existing folder that is not empty is an OSError."""
    for folder, _, names in os.walk(part):
        for name in names:
            sync(Path(folder, name))
        sync_folder(Path(folder))
    renamed = part.rename(path)
    sync_folder(path.parent)
    return renamed


CHECKSUM = "crc32"
"""The last key of manifest.json and results.json: the CRC32 of all that comes before it."""
_SEAL = b',\n  "crc32": "%08x"\n}\n'
_SEALED = re.compile(rb',\n  ".{5}": ".{8}"\n\}\n', re.DOTALL)  # also one whose own bytes are damaged


def with_checksum(indented: bytes) -> bytes:
    """Indented JSON of a mapping, with its checksum."""
    inside = indented.removesuffix(b"\n}")
    return inside + _SEAL % zlib.crc32(inside)


def verify_json(data: bytes) -> str:
    """Return the checksum of such JSON; a ValueError if it does not match. JSON that another program wrote has none: then
    it is empty."""
    size = len(_SEAL % 0)
    inside, seal = data[:-size], data[-size:]
    if not _SEALED.fullmatch(seal):
        return ""
    if seal != _SEAL % zlib.crc32(inside):
        raise ValueError("its content does not match its checksum")
    return seal[-12:-4].decode()


Records = Iterable[Mapping[str, Any]]
ROWS = 2000
"""Rows of a Parquet file that are held at a time."""


def write_sink(path: Path, kind: str, records: Records, encoding: str) -> None:
    """Write records in one move: a file is whole or not there."""
    make_folder(path.parent)
    with new_file(path) as part:
        WRITERS[kind](part, records, encoding)


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
