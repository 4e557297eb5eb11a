"""Parquet files, read a few documents at a time: a small file may unpack to more than fits into memory."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from pyarrow import ArrowException, compute, parquet, types

from assay.samples.rows import DataError, TableSurvey, refuse_pipe

BATCH, FIRST, BATCH_BYTES = 1024, 16, 16 << 20
"""Number of documents that are read at a time, of those read first, and the memory that they may take."""
PAGE_BYTES, PAGE_RATIO = 1 << 28, 1000
"""Documents that are decompressed at once may take so many bytes, or so many times their size in the file."""
CHECKED_BYTES = 1 << 28
"""Size in memory up to which files are checked before use."""


def batches(file: Path) -> Iterator[Any]:
    """The tables that a Parquet file consists of: so many documents at a time that they fit into memory."""
    with reported_errors(file), parquet.ParquetFile(file) as table:
        about, size, count = table.metadata, BATCH, 0
        for group in range(about.num_row_groups):
            rows, held = about.row_group(group).num_rows, about.row_group(group).total_byte_size
            _refuse_bomb(file, about.row_group(group))
            size = _fitting(size, rows, held)
            if group == 0:  # a text that is repeated is stored once: only the first documents show how large they are
                for first in islice(table.iter_batches(min(size, FIRST), row_groups=[group]), 1):
                    size = _fitting(size, first.num_rows, first.nbytes)
            for batch in table.iter_batches(size, row_groups=[group]):
                count += batch.num_rows
                step = _fitting(batch.num_rows, 1, _longest(batch))
                for start in range(0, batch.num_rows, step):
                    yield batch if step >= batch.num_rows else batch.slice(start, step)
                size = _fitting(size, batch.num_rows, batch.nbytes)
        if count != about.num_rows:  # the library does not notice
            raise ValueError(f"it says that it has {about.num_rows} documents, and has {count}")


def _longest(batch: Any) -> int:
    """An upper bound of what a document takes in columns that hold each of their values once."""
    return sum(column.dictionary.nbytes for column in batch.columns if types.is_dictionary(column.type))


def _refuse_bomb(file: Path, group: Any) -> None:
    """Refuse documents that unpack together to far more than the file: a page of them is decompressed at once.

    The size of each column would say more, but asking a damaged file for a column ends the process.
    """
    packed = file.stat().st_size
    page = group.total_byte_size * min(1, BATCH / max(group.num_rows, 1))
    if page > PAGE_BYTES and page > PAGE_RATIO * packed:
        size = f"{group.total_byte_size / 1e9:.1f} GB"
        raise DataError(
            f"{file}: its {packed} bytes would unpack to {size} — write it with fewer documents in a row group"
        )


def _fitting(size: int, rows: int, held: int) -> int:
    """At most `size` documents, fewer where they are as large as those in a table of so many rows and bytes."""
    return max(1, min(size, BATCH_BYTES * rows // held)) if held and rows else size


@contextmanager
def reported_errors(file: Path) -> Iterator[None]:
    """Report what the library cannot read as an error of the data, with its file."""
    try:
        yield
    except DataError:
        raise
    except (ArrowException, ValueError, OverflowError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of what is in the file
            raise
        raise DataError(f"{file}: not a readable Parquet file: {error} — write it again") from error


def survey(files: Sequence[Path]) -> TableSurvey:
    """The size and columns of Parquet files, as they declare them. What is inside is checked up to CHECKED_BYTES."""
    size, columns, left = 0, dict[str, set[str]](), CHECKED_BYTES
    for file in files:
        try:
            rows, schema, left = _examined(file, left)
        except OSError as error:
            raise DataError(f"{file}: {error.strerror or error}") from error
        size += rows
        for field in schema if rows else ():
            kind = "integer" if types.is_integer(field.type) else "float" if types.is_floating(field.type) else ""
            columns.setdefault(field.name, set()).add(kind)
    widened = tuple(name for name, kinds in columns.items() if {"integer", "float"} <= kinds)
    return TableSurvey(size, tuple(columns), widened)


def _examined(file: Path, left: int) -> tuple[int, Any, int]:
    """The number of rows and the schema of a file of which so many bytes are checked, and the bytes left for others."""
    refuse_pipe(file)
    with reported_errors(file), parquet.ParquetFile(file) as table:
        rows, schema = table.metadata.num_rows, table.schema_arrow
    twice = next((name for name, times in Counter(schema.names).items() if times > 1), None)
    if twice is not None:
        raise DataError(f"{file}: two columns are named {twice!r} — give each column a unique name")
    for batch in batches(file) if left > 0 else ():
        left -= batch.nbytes
        if left <= 0:
            break
        with reported_errors(file):
            batch.validate(full=True)
    return rows, schema, left


def needs_typing(table: Any) -> bool:
    """Whether a table of Arrow has more than texts, integers, truths and numbers: only then `typed` looks at each value."""
    for field in table.schema:
        if types.is_float32(field.type) or types.is_float64(field.type):
            if compute.any(compute.is_nan(table.column(field.name))).as_py():
                return True
        elif not _is_json_type(field.type):
            return True
    return False


def _is_json_type(kind: Any) -> bool:
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _is_json_type(kind.value_type)
    if types.is_struct(kind):
        return all(_is_json_type(field.type) for field in kind)
    is_text = types.is_string(kind) or types.is_large_string(kind)
    return bool(is_text or types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind))
