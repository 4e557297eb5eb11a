"""Documents from json, jsonl, csv and parquet files, read one by one; and those of a function, spilled to disk."""

import csv
import json
import math
import re
import stat
import sys
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from functools import cached_property
from hashlib import blake2b
from itertools import chain, count, zip_longest
from pathlib import Path
from typing import IO, Any, NamedTuple, overload

import orjson

from assay.dialect import OURS, Dialect
from assay.errors import SelfExplanatory
from assay.records import plain
from assay.user_code import HALF, is_writable

Row = Mapping[str, Any]
FreshRow = dict[str, Any]
"""A document that was just read and is not shared yet."""
ReaderOptions = Mapping[str, Any]
"""Options of a file reader, as `dataset_kwargs` has them."""
Cell = str | int | float | bool | None
"""The value of a csv cell."""
MISSING = frozenset((
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
))  # fmt: skip
"""Cells of a csv file that are missing values for pandas."""
SIGNED, UNSIGNED = (-(2**63), 2**63 - 1), (0, 2**64 - 1)
"""The integers that a column of a table can hold, signed or unsigned."""
_LARGE, _DIGITS = 2.0**63, 25
"""Floats from here on may have been integers in JSON; longer ones are texts before Python refuses to read them."""
SPILL_FROM = 1000
"""Fewer documents than this stay in memory."""
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,20}", re.ASCII)
_PANDAS_INTEGER = re.compile(r"[ \t\n\v\f\r]*[+-]?[0-9]+[ \t\n\v\f\r]*", re.ASCII)
_PANDAS_FLOAT = re.compile(
    r"[ \t\n\v\f\r]*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?)[ \t\n\v\f\r]*",
    re.ASCII | re.IGNORECASE,
)


class DataError(SelfExplanatory, ValueError):
    """Missing or unreadable data; the message says how to fix it."""


class HubError(DataError):
    """Data that the hub would have, and that cannot be had from here."""


def as_rows(returned: Any, subject: str) -> Sequence[Row]:
    """The documents that a user's function returned; `subject` begins the error message."""
    if isinstance(returned, str | bytes | Mapping) or not isinstance(returned, Iterable):
        raise DataError(f"{subject} {type(returned).__name__}, and must return a list of rows, or a data set")
    rows = returned if hasattr(returned, "__len__") and hasattr(returned, "__getitem__") else list(returned)
    if isinstance(rows, list | tuple):
        odd = next((row for row in rows if not isinstance(row, Mapping)), None)
        if odd is not None:
            raise DataError(f"{subject} a list with {odd!r:.60} in it, and every row must be a mapping")
        half = next((number for number, row in enumerate(rows) if not is_writable(row)), None)
        if half is not None:
            raise DataError(f"{subject} {HALF} in the row {half}")
    return plain_rows(rows)  # type: ignore[no-any-return]


def plain_rows(rows: Any) -> Any:
    """Documents without numpy's numbers and texts; data sets of libraries have none."""
    return [plain(row) for row in rows] if isinstance(rows, list | tuple) else rows


def typed(value: Any) -> Any:
    """A value as every loader returns it: a text, a number, a truth, None, or lists and mappings of them.

    NaN is None; dates, times, decimals with places and integers beyond 64 bits are the texts that they print as.

    >>> typed([float("nan"), date(2020, 1, 31), Decimal("1.50"), Decimal("7"), 10**20, b"caf\\xc3\\xa9", 0.1])
    [None, '2020-01-31', '1.50', 7, '100000000000000000000', 'café', 0.1]
    """
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, int) and not isinstance(value, bool):
        return value if SIGNED[0] <= value <= UNSIGNED[1] else str(value)
    if isinstance(value, list | tuple):
        return type(value)(map(typed, value)) if type(value) in (list, tuple) else value
    if isinstance(value, Mapping):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value  # an image, say
    if isinstance(value, Decimal):
        if value.is_nan():
            return None
        return typed(int(value)) if value.is_finite() and value.as_tuple().exponent == 0 else str(value)
    if isinstance(value, date | time | timedelta):
        return None if str(value) == "NaT" else str(value)
    return value


class TypedRows(Sequence[Row]):
    """The documents of a data set of a library, each with the types of `typed`."""

    def __init__(self, rows: Sequence[Row], columns: Sequence[str]) -> None:
        self._rows, self.columns = rows, tuple(columns)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return map(typed, self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        row: Row = typed(self._rows[index])
        return row


class FileOptions(NamedTuple):
    """How files are read: the task's reader options; the dialect, by which values are typed; for csv, which columns are
    text or numbers because they are so in other files; for JSON, whether there are integers beyond 64 bits, for which the
    quick parser gives floats.
    """

    options: ReaderOptions
    dialect: Dialect = OURS
    has_large: bool = False
    as_text: frozenset[str] = frozenset()
    as_numbers: frozenset[str] = frozenset()


class Rows(Sequence[Row]):
    """The documents of one split. Iterating streams them; indexing loads all into memory."""

    def __init__(self, files: Sequence[Path], options: ReaderOptions | None = None, *, dialect: Dialect = OURS) -> None:
        self.files, self.dialect = files, dialect
        self._has_large = False
        self._reading = FileOptions(options or {}, dialect)

    def __iter__(self) -> Iterator[Row]:
        columns = dict.fromkeys(self.columns)
        widened = self._survey.widened if self.dialect.gives_columns_one_type else ()
        for row in self._read():
            for name in widened:
                if type(row.get(name)) is int:
                    row[name] = float(row[name])
            yield row if row.keys() == columns.keys() else {**columns, **row}

    def __len__(self) -> int:
        return self._survey.size

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._all[index]

    @property
    def columns(self) -> tuple[str, ...]:
        return self._survey.columns

    @cached_property
    def _all(self) -> list[Row]:
        return list(self)

    @cached_property
    def _survey(self) -> "TableSurvey":
        """Read everything once before use: an unreadable document is found now."""
        if self.files and all(file.suffix == ".parquet" for file in self.files):
            from assay.samples.parquet import survey

            return survey(self.files)
        kinds: dict[str, set[type]] = {}
        count, large = 0, _LARGE
        keeps_digits = not self.dialect.rounds_large_integers
        for row in self._read():
            count += 1
            for name, value in row.items():
                kind = type(value)
                if kind is float and keeps_digits and not -large < value < large:
                    self._has_large = True  # it may be an integer whose digits are lost
                if name in kinds:
                    kinds[name].add(kind)
                else:
                    kinds[name] = {kind}
        return TableSurvey(count, tuple(kinds), tuple(name for name, of in kinds.items() if {int, float} <= of))

    def _read(self) -> Iterator[FreshRow]:
        reading = self._agreed._replace(has_large=True) if self._has_large else self._agreed
        return chain.from_iterable(read_file(file, reading) for file in self.files)

    @cached_property
    def _agreed(self) -> FileOptions:
        """A column of several csv files is text where it is text in one of them, else numbers where it is so in one."""
        tables = [file for file in self.files if file.suffix in (".csv", ".tsv")]
        if len(tables) < 2 or self.dialect.reads_csv_as_pandas:
            return self._reading
        as_text, as_numbers = set(), set()
        for row in (row for file in tables for row in read_file(file, self._reading)):
            for name, value in row.items():
                if isinstance(value, int | float):
                    as_numbers.add(name)
                elif value is not None and value not in MISSING:
                    as_text.add(name)
        return self._reading._replace(as_text=frozenset(as_text), as_numbers=frozenset(as_numbers - as_text))


class TableSurvey(NamedTuple):
    """Size and columns of a split, and the columns with both integers and floats, which a table makes floats."""

    size: int
    columns: tuple[str, ...]
    widened: tuple[str, ...]


def read_file(file: Path, reading: FileOptions) -> Iterator[FreshRow]:
    """The documents of one file, by its suffix. Every problem with it is a DataError."""
    reader = {".jsonl": _jsonl, ".json": _json, ".csv": _csv, ".tsv": _csv, ".parquet": _parquet}.get(file.suffix)
    if reader is None:
        raise DataError(f"{file}: cannot read files of this kind; use jsonl, json, csv or parquet")
    try:
        refuse_pipe(file)
        if reader is not _parquet:
            _check_text(file, reading.options)
        yield from reader(file, reading)
    except OSError as error:
        raise DataError(f"{file}: {error.strerror or error}") from error
    except UnicodeError as error:
        raise DataError(
            f"{file}: {error} — write it in UTF-8, or give its encoding, as in encoding: latin-1"
        ) from error


def _check_text(file: Path, options: ReaderOptions) -> None:
    """Refuse reader options of other types than text, and a file that begins like a binary one."""
    for name in ("encoding", "delimiter", "sep", "field"):
        if not isinstance(options.get(name), str | None):
            raise DataError(f"{file}: dataset_kwargs.{name} must be text, got {options[name]!r:.60}")
    names = options.get("column_names") or options.get("names") or ()
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{file}: dataset_kwargs.column_names must be a list of texts, got {names!r:.60}")
    with file.open("rb") as data:
        if not options.get("encoding") and b"\0" in data.read(512):
            raise DataError(
                f"{file}: a binary file, or text that is not UTF-8 — write it in UTF-8, or give its encoding"
            )


def _jsonl(file: Path, reading: FileOptions) -> Iterator[FreshRow]:
    loads = _loads_slowly if reading.has_large else orjson.loads
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark, as some editors put it
            if line.isspace():
                continue
            try:
                row = loads(line)
            except ValueError as error:
                row = _with_nan(line, error)
                if row is None:
                    raise DataError(f"{file}:{number}: not valid JSON: {error}") from None
            if not isinstance(row, dict):
                raise DataError(f"{file}:{number}: a row must be an object, got {type(row).__name__}")
            yield row


def _json(file: Path, reading: FileOptions) -> Iterator[FreshRow]:
    data = file.read_bytes()
    try:
        whole = (_loads_slowly if reading.has_large else orjson.loads)(data)
    except ValueError as error:
        whole = _with_nan(data, error)
        if whole is None:
            yield from _jsonl(file, reading)  # lines of JSON are often called .json, too
            return
    field = reading.options.get("field")
    if field:
        if not isinstance(whole, dict) or field not in whole:
            has = f"; it has: {', '.join(whole)}" if isinstance(whole, dict) else ""
            raise DataError(f"{file}: has no field {field!r}, which dataset_kwargs.field names{has}")
        whole = whole[field]
    if isinstance(whole, dict):
        columns = list(whole.values())
        if all(isinstance(column, list) for column in columns):
            if len(set(map(len, columns))) > 1:
                raise DataError(f"{file}: its columns differ in length; give every row as an object")
            yield from (dict(zip(whole, values, strict=True)) for values in zip(*columns, strict=True))
            return
        whole = [whole]
    if not isinstance(whole, list) or not all(isinstance(row, dict) for row in whole):
        raise DataError(f"{file}: must hold a list of objects")
    yield from whole


def _loads_slowly(data: bytes) -> Any:
    """JSON with NaN, which is None, and integers beyond 64 bits, which are texts."""
    text = data.decode("utf-8-sig")
    return typed(json.loads(text, parse_int=lambda digits: digits if len(digits) > _DIGITS else int(digits)))


def _with_nan(data: bytes, error: ValueError) -> Any:
    """JSON with NaN and Infinity, as Python writes them, or too large a number; None where something else is wrong."""
    try:
        return _loads_slowly(data) if b"NaN" in data or b"Infinity" in data or "infinity" in str(error) else None
    except (ValueError, RecursionError):
        return None


def _csv(file: Path, reading: FileOptions) -> Iterator[FreshRow]:
    names, lines = _csv_lines(file, reading)
    cells = [list(column) for column in zip_longest(*lines, fillvalue="")] if lines else []
    columns = [_csv_column(name, column, reading) for name, column in zip(names, cells, strict=False)]
    columns += [[None] * len(lines)] * (len(names) - len(columns))
    yield from (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _csv_column(name: str, column: Sequence[str], reading: FileOptions) -> Sequence[Cell]:
    if reading.dialect.reads_csv_as_pandas:
        return csv_values_as_pandas(column)
    return csv_texts(column) if name in reading.as_text else csv_values(column, as_numbers=name in reading.as_numbers)


def _csv_lines(file: Path, reading: FileOptions) -> tuple[Sequence[str], list[list[str]]]:
    """The column names, and the cells of every line as text."""
    options = reading.options
    delimiter = options.get("delimiter") or options.get("sep") or ("\t" if file.suffix == ".tsv" else ",")
    csv.field_size_limit(sys.maxsize)  # a cell may hold a book
    try:
        with file.open(newline="", encoding=options.get("encoding") or "utf-8-sig") as text:
            lines = [line for line in csv.reader(text, delimiter=delimiter) if line]
    except csv.Error as error:
        raise DataError(f"{file}: not a table: {error}") from error
    except LookupError as error:
        raise DataError(f"{file}: {error}; give one that Python knows, as in encoding: latin-1") from error
    except TypeError as error:  # about its length
        raise DataError(f"{file}: {error}; it is given as {delimiter!r}") from error
    names = options.get("column_names") or options.get("names")
    if not names:
        names, lines = lines[0] if lines else [], lines[1:]
        names = column_names_as_pandas(names) if reading.dialect.reads_csv_as_pandas else names
    elif "header" in options and options["header"] is not None:
        lines = lines[1:]
    twice = next((name for name, times in Counter(names).items() if name and times > 1), None)
    if twice is not None:
        raise DataError(f"{file}: two columns are named {twice!r} — give each column a unique name")
    long = next((number for number, line in enumerate(lines, 1) if len(line) > len(names)), None)
    if long is not None:
        raise DataError(f"{file}: row {long} has more cells than there are columns ({len(names)})")
    return names, lines


def refuse_pipe(file: Path) -> None:
    """Refuse a pipe, which would be waited for without end, and a device, which may never end."""
    mode = file.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise DataError(f"{file}: a pipe, socket or device cannot be read twice — copy its content to a file")


def _parquet(file: Path, reading: FileOptions) -> Iterator[FreshRow]:
    from assay.samples.parquet import batches, needs_typing, reported_errors

    for batch in batches(file):
        with reported_errors(file):
            rows = batch.to_pylist()
        is_plain = reading.dialect.keeps_python_objects or not needs_typing(batch)
        yield from rows if is_plain else map(typed, rows)


def file_digest(file: Path) -> str:
    """The digest of a file's content."""
    hasher = blake2b(digest_size=16)
    try:
        refuse_pipe(file)
        with file.open("rb") as data:
            while block := data.read(1 << 20):
                hasher.update(block)
    except OSError as error:
        raise DataError(f"{file}: {error.strerror or error}") from error
    return hasher.hexdigest()


def csv_values(column: Sequence[str], *, as_numbers: bool = False) -> Sequence[Cell]:
    """A column as numbers where all cells are numbers, else as texts.

    Cells like `007`, `1.50`, `1e3` or `true` keep their column text: printed again, the value would be another text,
    and so would a prompt or target made of it. In a column of numbers, missing values are None; in a column of texts
    only an empty cell is, for `NA` may be a country. `as_numbers`: other files have numbers in this column, so it is
    numeric also where every cell is missing.

    >>> csv_values(["7", "12", "NA"]), csv_values(["1", "2.5"]), csv_values(["007", "12"]), csv_values(["NA", "ZA", ""])
    ([7, 12, None], [1, 2.5], ['007', '12'], ['NA', 'ZA', None])
    """
    present = [text for text in column if text not in MISSING]
    if not present and not as_numbers:
        return csv_texts(column)
    try:
        numbers = iter([_number(text) for text in present])
    except ValueError:
        return csv_texts(column)
    return [None if text in MISSING else next(numbers) for text in column]


def csv_texts(column: Sequence[str]) -> list[str | None]:
    """A column as texts; an empty cell is None."""
    return [text or None for text in column]


def csv_values_as_pandas(column: Sequence[str]) -> Sequence[Cell]:
    """The column as pandas parses it, which lm-eval's and SyGra's data is read with.

    Integers with a missing value become floats, and `007` becomes 7.

    >>> csv_values_as_pandas(["007", "12"]), csv_values_as_pandas(["7", ""])
    ([7, 12], [7.0, None])
    """
    present = [text for text in column if text not in MISSING]
    if present and all(map(_PANDAS_INTEGER.fullmatch, present)):
        try:
            numbers = [int(text) for text in present]
        except ValueError:  # more digits than Python converts
            return _untyped_as_pandas(column)
        if not _in_range(numbers, SIGNED):  # a gap would need floats, which cannot hold them
            return numbers if len(present) == len(column) and _in_range(numbers, UNSIGNED) else list(column)
        return _first_readable(column, (int,) if len(present) == len(column) else (float,))
    return _first_readable(column, (_float_of_pandas, _bool_of_pandas))


def column_names_as_pandas(header: Sequence[str]) -> list[str]:
    """Unique column names: pandas numbers repeated and empty ones.

    >>> column_names_as_pandas(["a", "a", "", "b", "a"])
    ['a', 'a.1', 'Unnamed: 2', 'b', 'a.2']
    """
    named = [name or f"Unnamed: {at}" for at, name in enumerate(header)]
    unique: list[str] = []
    for name in named:
        free = (f"{name}.{number}" for number in count(1))
        unique.append(next(new for new in free if new not in named and new not in unique) if name in unique else name)
    return unique


def _untyped_as_pandas(column: Sequence[str]) -> list[str | None]:
    return [None if text in MISSING else text for text in column]


def _first_readable(column: Sequence[str], readers: Sequence[Callable[[str], Cell]]) -> Sequence[Cell]:
    """The column by the first reader that can read all of its cells; texts where none can."""
    present = [text for text in column if text not in MISSING]
    for read in readers if present else ():
        try:
            values = iter([read(text) for text in present])
        except ValueError:
            continue
        return [None if text in MISSING else next(values) for text in column]
    return _untyped_as_pandas(column)


def _number(text: str) -> int | float:
    """The number whose canonical form is this text."""
    if _INTEGER.fullmatch(text):
        whole = int(text)
        if _in_range([whole], SIGNED) or _in_range([whole], UNSIGNED):
            return whole
        raise ValueError(text)
    number = float(text)
    if repr(number) != text or not math.isfinite(number):
        raise ValueError(text)
    return number


def _float_of_pandas(text: str) -> float:
    if _PANDAS_FLOAT.fullmatch(text) is None:
        raise ValueError(text)
    return float(text)


def _bool_of_pandas(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _in_range(numbers: Sequence[int], bounds: tuple[int, int]) -> bool:
    return all(bounds[0] <= number <= bounds[1] for number in numbers)


class SpilledRows(Sequence[Row]):
    """Documents in a file: a named one, or a temporary one, which is deleted with the process."""

    def __init__(self, columns: Sequence[str], path: Path | None = None) -> None:
        self.columns = tuple(columns)
        self._file: IO[bytes] = tempfile.TemporaryFile() if path is None else path.open("w+b")  # noqa: SIM115  # lives as long as the rows
        self._ends = array("q", [0])
        self._position = 0

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[Row]:
        return map(orjson.loads, self.lines())

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        row: Row = orjson.loads(self._line(range(len(self))[index]))
        return row

    def _line(self, number: int) -> bytes:
        start, end = self._ends[number], self._ends[number + 1]
        if self._position != start:  # one after the other, they are read in large pieces
            self._file.seek(start)
        self._position = end
        return self._file.read(end - start)

    def lines(self) -> Iterator[bytes]:
        """The documents as they were written."""
        return (self._line(number) for number in range(len(self)))

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # it could be opened
            self.close()

    def close(self) -> None:
        self._file.close()

    def add(self, line: bytes) -> None:
        end = self._ends[-1]
        if self._position != end:
            self._file.seek(end)
        self._file.write(line)
        self._position = end + len(line)
        self._ends.append(self._position)


def spill_rows(rows: Sequence[Row]) -> Sequence[Row]:
    """The same documents, on disk where there are many; unchanged where one would not survive JSON."""
    if len(rows) < SPILL_FROM:
        return rows
    spilled: SpilledRows | None = None
    for row in rows:
        plain = dict(row)
        try:
            line = orjson.dumps(plain)
        except TypeError:
            return rows
        if orjson.loads(line) != plain:
            return rows
        if spilled is None:
            spilled = SpilledRows(tuple(plain))
        spilled.add(line)
    return spilled if spilled is not None else rows
