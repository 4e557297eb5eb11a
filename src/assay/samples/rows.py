"""Rows from files: json, jsonl, csv, parquet. What can be read row by row is never held as a whole."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

Row = Mapping[str, Any]


class DataError(ValueError):
    """Data that is not there or cannot be read; says which, and what to do."""


class Rows(Sequence[Row]):
    """The rows of one split. Reading from the start is cheap; picking one reads up to it, unless all are in memory."""

    def __init__(self, files: Sequence[Path], options: Mapping[str, Any] | None = None) -> None:
        self.files = files
        self.options = dict(options or {})

    def __iter__(self) -> Iterator[Row]:
        columns = dict.fromkeys(self.columns)
        for row in self._read():
            yield row if row.keys() == columns.keys() else {**columns, **row}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(next(iter(self._read()), {}))

    @cached_property
    def _all(self) -> list[Row]:
        return list(self)

    @cached_property
    def _length(self) -> int:
        if "_all" in self.__dict__:
            return len(self._all)
        if all(file.suffix == ".jsonl" for file in self.files):
            return sum(_count_lines(file) for file in self.files)
        return sum(1 for _ in self._read())

    def _read(self) -> Iterator[dict[str, Any]]:
        for file in self.files:
            yield from read_file(file, self.options)


def read_file(file: Path, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of one file, by its suffix."""
    reader = {".jsonl": _jsonl, ".json": _json, ".csv": _csv, ".tsv": _csv, ".parquet": _parquet}.get(file.suffix)
    if reader is None:
        raise DataError(f"{file}: cannot read files of this kind; use jsonl, json, csv or parquet")
    try:
        yield from reader(file, options)
    except OSError as error:
        raise DataError(f"{file}: {error.strerror or error}") from error


def _jsonl(file: Path, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:  # noqa: ARG001  # the shape of a reader
    loads = orjson.loads
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.isspace():
                continue
            try:
                row = loads(line)
            except orjson.JSONDecodeError as error:
                raise DataError(f"{file}:{number}: not valid JSON: {error}") from None
            if not isinstance(row, dict):
                raise DataError(f"{file}:{number}: a row must be an object, and this is {type(row).__name__}")
            yield row


def _json(file: Path, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        whole = orjson.loads(file.read_bytes())
    except orjson.JSONDecodeError:
        yield from _jsonl(file, options)  # lines of JSON are often called .json, too
        return
    if options.get("field"):
        whole = whole[options["field"]]
    if isinstance(whole, dict):
        if all(isinstance(column, list) for column in whole.values()):
            yield from (dict(zip(whole, values, strict=True)) for values in zip(*whole.values(), strict=True))
            return
        whole = [whole]
    if not all(isinstance(row, dict) for row in whole):
        raise DataError(f"{file}: must hold a list of objects")
    yield from whole


def _csv(file: Path, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    delimiter = options.get("delimiter") or options.get("sep") or ("\t" if file.suffix == ".tsv" else ",")
    with file.open(newline="", encoding=options.get("encoding") or "utf-8-sig") as text:
        lines = [line for line in csv.reader(text, delimiter=delimiter) if line]
    names = options.get("column_names") or options.get("names")
    if not names:
        names, lines = lines[0] if lines else [], lines[1:]
    elif "header" in options and options["header"] is not None:
        lines = lines[1:]
    columns = [_typed(column) for column in zip(*lines, strict=True)] if lines else []
    yield from (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _typed(column: Iterable[str]) -> list[Any]:
    """A column of texts as whole numbers, numbers or truths where all of it are such; what is empty is None."""
    texts = list(column)
    present = [text for text in texts if text != ""]
    for read in (int, float, _truth):
        try:
            if present:
                for text in present:
                    read(text)
                return [None if text == "" else read(text) for text in texts]
        except ValueError:
            continue
    return [None if text == "" else text for text in texts]


def _truth(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _parquet(file: Path, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:  # noqa: ARG001
    from pyarrow import parquet

    with parquet.ParquetFile(file) as table:
        for batch in table.iter_batches(batch_size=1024):
            yield from batch.to_pylist()


def digest_file(file: Path) -> str:
    """A name for the content of a file."""
    made = blake2b(digest_size=16)
    with file.open("rb") as data:
        while block := data.read(1 << 20):
            made.update(block)
    return made.hexdigest()


def _count_lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for line in lines if not line.isspace())
