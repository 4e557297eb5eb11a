"""Downloads: the filtered samples of a task as Parquet, CSV or JSON Lines, streamed one row group at a time."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from typing import Any

from assay.records import AnyJSON, JSONDict
from assay.runs.samples.schema import ArrowTable
from assay.safe_text import spreadsheet_cell
from assay.viewer.query import SampleQuery
from assay.viewer.sample_page import as_text, parse_json
from assay.viewer.samples import Samples

JSON_COLUMNS = ("doc", "target", "gold")


def download(samples: Samples, query: SampleQuery, kind: str) -> Iterator[bytes]:
    """The samples that a query finds, in the order of the file. They are found before the first byte is sent."""
    numbers = samples.row_numbers(query)
    return DOWNLOADS[kind][1](samples.stored.selected(numbers), samples)


def file_name(run: str, task: str, kind: str) -> str:
    """The name that a browser gives to a download.

    >>> file_name("a/b c", "sums", "csv")
    'a_b_c-sums.csv'
    """
    return f"{re.sub(r'[^A-Za-z0-9.-]+', '_', run)}-{re.sub(r'[^A-Za-z0-9.-]+', '_', task)}.{kind}"


def _parquet(tables: Iterator[ArrowTable], samples: Samples) -> Iterator[bytes]:
    import pyarrow as pa
    from pyarrow import parquet

    sink = _Pipe()
    writer: Any = None
    for table in tables:
        writer = writer or parquet.ParquetWriter(pa.PythonFile(sink, mode="w"), table.schema, compression="zstd")
        writer.write_table(table)
        yield sink.taken()
    if writer is None:  # nothing matches: a table without rows
        empty = samples.stored.empty_table()
        writer = parquet.ParquetWriter(pa.PythonFile(sink, mode="w"), empty.schema, compression="zstd")
    writer.close()
    yield sink.taken()


class _Pipe(io.RawIOBase):
    """A file that is written to its end, and read as it grows."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        return len(part)

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _records(table: ArrowTable) -> Iterator[JSONDict]:
    for row in table.to_pylist():
        yield {key: parse_json(value, None) if key in JSON_COLUMNS else value for key, value in row.items()}


def _jsonl(tables: Iterator[ArrowTable], _: Samples) -> Iterator[bytes]:
    for table in tables:
        yield b"".join(_line(record) for record in _records(table))


def _line(record: JSONDict) -> bytes:
    return as_text(record).encode("utf-8", "backslashreplace") + b"\n"


def _csv(tables: Iterator[ArrowTable], samples: Samples) -> Iterator[bytes]:
    """One line for each sample: what people look at. A cell that a spreadsheet would take for a formula begins with `'`."""
    names = ["doc_id", "prompt", "response", "target", *map(str, samples.scores), "failed", "audit", "answers", "doc"]
    yield _csv_lines([names])
    for table in tables:
        yield _csv_lines([[_cell(value) for value in _csv_row(record, samples)] for record in _records(table)])


def _csv_row(record: JSONDict, samples: Samples) -> list[AnyJSON]:
    texts = [each.get("text") for repeats in record.get("responses") or () for each in repeats or ()]
    answers = {each["filter"]: [_value(value) for value in each["values"]] for each in record.get("answers") or ()}
    return [
        record["doc_id"], record["prompt"], next((text for text in texts if text is not None), None), record.get("target"),
        *(record.get(str(key)) for key in samples.scores), record.get("failed"), ", ".join(record.get("audit") or ()), answers,
        record.get("doc"),
    ]  # fmt: skip


def _value(answer: JSONDict) -> AnyJSON:
    return next((answer[key] for key in ("text", "json", "value") if answer.get(key) is not None), None)


def _cell(value: AnyJSON) -> AnyJSON:
    if value is None or isinstance(value, int | float):
        return value
    return spreadsheet_cell(as_text(value))


def _csv_lines(rows: list[list[AnyJSON]]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    return out.getvalue().encode("utf-8", "backslashreplace")


DOWNLOADS: dict[str, tuple[str, Callable[[Iterator[ArrowTable], Samples], Iterator[bytes]]]] = {
    "parquet": ("application/vnd.apache.parquet", _parquet),
    "csv": ("text/csv", _csv),
    "jsonl": ("application/x-ndjson", _jsonl),
}
"""By the ending of the URL the type of the file, and the function that writes it."""
