"""Rows from files: json, jsonl, csv, parquet. What can be read row by row is never held as a whole."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import orjson

Row = Mapping[str, Any]

MISSING = frozenset((
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
))  # fmt: skip
"""Cells of a csv file that say there is nothing, as pandas has it."""


class DataError(ValueError):
    """Data that is not there or cannot be read; says which, and what to do."""


class Rows(Sequence[Row]):
    """The rows of one split. Reading from the start is cheap; picking one reads up to it, unless all are in memory."""

    def __init__(
        self, files: Sequence[Path], options: Mapping[str, Any] | None = None, *, as_table: bool = False
    ) -> None:
        self.files, self.as_table = files, as_table
        self.options = dict(options or {})

    def __iter__(self) -> Iterator[Row]:
        columns = dict.fromkeys(self.columns)
        widened = self._survey.widened if self.as_table else ()
        for row in self._read():
            for name in widened:
                if type(row.get(name)) is int:
                    row[name] = float(row[name])
            yield row if row.keys() == columns.keys() else {**columns, **row}

    def __len__(self) -> int:
        return self._survey.size

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]

    @property
    def columns(self) -> tuple[str, ...]:
        return self._survey.columns

    @cached_property
    def _all(self) -> list[Row]:
        return list(self)

    @cached_property
    def _survey(self) -> "Survey":
        """One look at everything before anything is used: a row that cannot be read is found now."""
        kinds: dict[str, set[type]] = {}
        count = 0
        for row in self._read():
            count += 1
            for name, value in row.items():
                if name in kinds:
                    kinds[name].add(type(value))
                else:
                    kinds[name] = {type(value)}
        return Survey(count, tuple(kinds), tuple(name for name, of in kinds.items() if {int, float} <= of))

    def _read(self) -> Iterator[dict[str, Any]]:
        for file in self.files:
            yield from read_file(file, self.options)


class Survey(NamedTuple):
    """What rows have in common: every column that any has; those of whole and other numbers, which a table makes the latter."""

    size: int
    columns: tuple[str, ...]
    widened: tuple[str, ...]


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
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark, as some editors put it
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
    long = next((number for number, line in enumerate(lines, 1) if len(line) > len(names)), None)
    if long is not None:
        raise DataError(f"{file}: row {long} has more cells than there are columns ({len(names)})")
    columns = [_typed(column) for column in zip_longest(*lines, fillvalue="")] if lines else []
    columns += [[None] * len(lines)] * (len(names) - len(columns))
    yield from (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _typed(column: Iterable[str]) -> list[Any]:
    """A column of texts as whole numbers, numbers or truths where all of it are such; what says that it is missing is None.

    Whole numbers with a gap among them become numbers, as with pandas, which lm-eval's data library reads with.
    """
    texts = list(column)
    present = [text for text in texts if text not in MISSING]
    readers = (int, float, _truth) if len(present) == len(texts) else (float, _truth)
    for read in readers if present else ():
        try:
            values = iter([read(text) for text in present])
            return [None if text in MISSING else next(values) for text in texts]
        except ValueError:
            continue
    return [None if text in MISSING else text for text in texts]


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
