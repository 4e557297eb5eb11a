"""Full-text search in a file of samples: the rows whose prompt, messages, responses or target contain a text.

Only the fields with texts are read. A database over Parquet reads the whole column `responses`, with its usage and log-likelihoods:
of a million samples, that takes five times as long.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import orjson

from assay.runs.samples.schema import Array, FileMetadata

SEARCHED = ("prompt", "requests.messages.content", "responses.text", "target")
BATCH_BYTES = 300_000
"""Size of the texts of a field that a thread holds; at least those of one row group."""
THREADS = 2


def rows_with_text(path: Path, metadata: FileMetadata, text: str) -> Array:
    """Return for each row of a file of format 2 whether one of its texts contains this one; upper and lower case are the same."""
    import numpy as np
    from pyarrow import parquet

    columns = {column: _pattern(leaf, text) for leaf, column in _columns(metadata).items()}
    batches, has_text = [*_batches(metadata, columns)], np.zeros(metadata.num_rows, bool)

    def search(number: int) -> None:
        file = parquet.ParquetFile(path, metadata=metadata)
        for batch in batches[number::THREADS]:
            for column, pattern in columns.items():
                table = file.read_row_groups(batch.groups, columns=[column], use_threads=False)
                start = batch.start
                for chunk in table.column(0).chunks:
                    has_text[start : start + len(chunk)][_rows(chunk, pattern)] = True
                    start += len(chunk)

    with ThreadPoolExecutor(THREADS, thread_name_prefix="search") as pool:
        list(pool.map(search, range(THREADS)))
    return has_text


def _pattern(leaf: str, text: str) -> str:
    """A text as the field has it: a target is JSON."""
    return orjson.dumps(text).decode()[1:-1] if leaf == "target" else text


def _columns(metadata: FileMetadata) -> dict[str, str]:
    """The fields that are searched, with their columns in the file."""
    leaves = {path.replace(".list.element", ""): path for path in _paths(metadata)}
    return {leaf: leaves[leaf] for leaf in SEARCHED if leaf in leaves}


def _paths(metadata: FileMetadata) -> list[str]:
    """The columns of a file. Those of its first row group: `metadata.schema` and `metadata` hold each other in memory."""
    first = metadata.row_group(0) if metadata.num_row_groups else None
    return [first.column(number).path_in_schema for number in range(first.num_columns)] if first is not None else []


class _Batch(NamedTuple):
    """Row groups that are read together, and the number of their first row."""

    groups: list[int]
    start: int


def _batches(metadata: FileMetadata, columns: Mapping[str, str]) -> Iterator[_Batch]:
    """The row groups of a file, as many together as their texts allow."""
    searched = [number for number, path in enumerate(_paths(metadata)) if path in columns]
    batch, size, start = _Batch([], 0), 0, 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        own = max((group.column(each).total_uncompressed_size for each in searched), default=0)
        if batch.groups and size + own > BATCH_BYTES:
            yield batch
            batch, size = _Batch([], start), 0
        batch.groups.append(number)
        size, start = size + own, start + group.num_rows
    if batch.groups:
        yield batch


def _rows(texts: Array, pattern: str) -> Array:
    """The rows with a text that contains the pattern; a row has one text, or lists of lists of them."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    rows = None
    while not pa.types.is_string(texts.type) and not pa.types.is_large_string(texts.type):
        if pa.types.is_list(texts.type):
            parents = compute.list_parent_indices(texts)
            rows = parents if rows is None else rows.take(parents)
            texts = compute.list_flatten(texts)
        else:
            texts = compute.struct_field(texts, [0])  # the only one that was read
    matches = compute.indices_nonzero(compute.match_substring(texts, pattern, ignore_case=True))
    numbers = matches if rows is None else rows.take(matches)
    # the first `to_numpy` of a process imports pandas, which takes as long as the search
    return np.frombuffer(numbers.buffers()[1], np.int64, len(numbers)) if len(numbers) else []
