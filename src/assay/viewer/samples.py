"""Samples by DuckDB over Parquet: found, sorted, counted and paged without being loaded."""

import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from assay.config.source import digest
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import StoredSample
from assay.runs.samples.schema import Array, FileMetadata
from assay.score_keys import ScoreKey
from assay.statistics.influence import Bounds
from assay.viewer.query import PAGE, Condition, SampleQuery
from assay.viewer.sample_page import parse_json

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY = "64MB"
"""DuckDB's memory limit, beyond which it uses files: the viewer stays small beside the model that is evaluated."""
SqlValue = str | int | float | None
DatabaseRow = tuple[Any, ...]
REMEMBERED = 12
"""Cached lists of samples and derived values: turning a page does not search again."""
MAX_FILES = 3
"""Files whose metadata are held: those of a million samples take 13 MB, twice."""
FileStamp = tuple[int, int, int]
SNAPSHOTS = 8
"""Copies of the newest samples of a task in progress that are kept for pages that are being made."""
T = TypeVar("T")


class Database:
    """DuckDB in memory, restricted to files below one folder.

    It keeps the metadata of files, which take longer to read than a page of samples, and does not bound what they take: after some
    files there is a new one.
    """

    def __init__(self, folder: Path) -> None:
        from duckdb import Error

        self.errors: type[Exception] = Error
        """What a query raises."""
        self._folder = Path(tempfile.mkdtemp(prefix="assay-view-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._remembered: dict[Hashable, Any] = {}
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self._directories = [
            str(folder.resolve()), _escaped(folder), str(self._folder.resolve()), _escaped(self._folder)
        ]  # fmt: skip
        self._files: dict[Path, tuple[FileStamp, FileMetadata]] = {}
        self._connection = self._connected()

    def _connected(self) -> "DuckDBPyConnection":
        import duckdb

        connection = duckdb.connect(":memory:", config={"threads": "2", "memory_limit": MEMORY})
        for setting in (
            "autoinstall_known_extensions=false",
            "autoload_known_extensions=false",
            "preserve_insertion_order=false",
            f"temp_directory={_quoted_text(str(self._folder / 'spilled'))}",
            "global parquet_metadata_cache=true",
            f"allowed_directories=[{', '.join(_quoted_text(f'{each}/') for each in self._directories)}]",
            "enable_external_access=false",
            "lock_configuration=true",
        ):
            connection.execute(f"set {setting}")
        return connection

    def rows(self, query: str, parameters: Sequence[SqlValue] = ()) -> list[DatabaseRow]:
        """Run a query; user input is always a parameter, never part of the SQL. One at a time: each may take all the memory."""
        with self._turn, self._connection.cursor() as cursor:
            rows: list[DatabaseRow] = cursor.execute(query, list(parameters)).fetchall()
            return rows

    def numbers(self, query: str, parameters: Sequence[SqlValue]) -> Any:
        """Return the first column of a query as an array."""
        with self._turn, self._connection.cursor() as cursor:
            [column] = cursor.execute(query, list(parameters)).fetchnumpy().values()
            return column

    def rows_with_text(self, file: SampleFile, text: str) -> Array:
        """Return for each sample whether it contains a text."""
        with self._turn:
            return file.rows_with_text(text)

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value cached under this key, or compute it."""
        with self._lock:
            known = self._remembered.pop(key, None)
        value: T = known or make()
        with self._lock:
            self._remembered[key] = value
            while len(self._remembered) > REMEMBERED:
                self._remembered.pop(next(iter(self._remembered)))
        return value

    def samples(self, file: SampleFile) -> SampleFile:
        """Open a file of samples for queries: it shares its metadata with others who read it. One file too many, or a replaced one,
        needs a new connection."""
        status = file.path.stat()
        stamp = status.st_mtime_ns, status.st_size, status.st_ino
        with self._lock:
            known, metadata = self._files.get(file.path, (None, None))
            if known == stamp:
                file.use_metadata(metadata)
                return file
        metadata = file.metadata
        with self._lock:
            if known is not None or len(self._files) >= MAX_FILES:
                self._files, self._connection = {}, self._connected()
            self._files[file.path] = stamp, metadata
        return file

    def snapshot(self, path: Path) -> Path | None:
        """Return a copy of a file that its writer replaces every second: a page sees one state of it. None where it is missing."""
        try:
            stamp = path.stat().st_mtime_ns
            copy = self._folder / f"live-{digest(str(path).encode())[:16]}-{stamp}.parquet"
            if not copy.is_file():
                part = copy.with_suffix(f".{threading.get_ident()}")
                shutil.copyfile(path, part)
                part.replace(copy)
        except OSError:
            return None
        older = sorted(self._folder.glob(f"{copy.name.rpartition('-')[0]}-*.parquet"))[:-SNAPSHOTS]
        for each in older:
            each.unlink(missing_ok=True)
        return copy


class SamplesPage(NamedTuple):
    """A page of samples with the total number of matches."""

    rows: list[StoredSample]
    positions: list[int]
    total: int
    page: int

    @property
    def pages(self) -> int:
        return max(-(-self.total // PAGE), 1)


@dataclass(frozen=True)
class Samples:
    """The samples of a task. `metric` is the score that distinguishes wrong from right, `is_more_better` its direction.

    Where no direction is known, samples are listed and called right as if more were better.
    """

    database: Database
    stored: SampleFile
    metric: ScoreKey | None
    is_more_better: bool | None
    scale: Bounds | None = None
    """The least and the greatest value of that score, where they are known."""
    is_live: bool = False
    """Whether they are the newest samples of a task in progress: then the newest comes first."""

    @property
    def path(self) -> Path:
        return self.stored.path

    @property
    def size(self) -> int:
        """The number of samples."""
        return self.count(SampleQuery())

    @property
    def scores(self) -> list[ScoreKey]:
        """The scores that have a column."""
        return self.stored.score_keys

    def values(self, row: StoredSample) -> list[float | None]:
        """The scores of a sample, column by column."""
        return [value if isinstance(value := row.scores.get(key), int | float) else None for key in self.scores]

    def page(self, sample_query: SampleQuery) -> SamplesPage:
        """Return one page of the matching samples, the worst first by default."""
        total = self.count(sample_query)
        page = min(sample_query.page, max(-(-total // PAGE), 1))
        start = (page - 1) * PAGE
        numbers = self._numbers(sample_query, start, PAGE)
        return SamplesPage(self.read(numbers), list(range(start, start + len(numbers))), total, page)

    def count(self, sample_query: SampleQuery) -> int:
        """Count the matching samples."""
        if sample_query.text or sample_query.conditions:
            return len(self._searched(sample_query))
        where, values = self._where(sample_query)
        if not where:
            return self.stored.num_rows
        [[total]] = self.database.rows(f"select count(*) from {SOURCE} {where}", [self.file, *values])
        return int(total)

    def around(self, sample_query: SampleQuery, position: int) -> list[int]:
        """Return the documents before, at and after a position of the list; -1 where there is none."""
        start = max(position - 1, 0)
        documents = [row.doc_id for row in self.read(self._numbers(sample_query, start, 3 if position else 2))]
        documents = documents if position else [-1, *documents]
        return [*documents, -1, -1, -1][:3]

    def document(self, doc_id: int) -> StoredSample | None:
        """Return the sample of a document."""
        numbers = self.database.rows(
            f"select file_row_number from {SOURCE} where doc_id = ? limit 1", [self.file, doc_id]
        )
        rows = self.read([number for [number] in numbers])
        return rows[0] if rows else None

    def read(self, numbers: Sequence[int]) -> list[StoredSample]:
        """Read the samples at these row numbers, in this order; only the row groups that hold them are read."""
        return self.stored.at(numbers)

    def _numbers(self, sample_query: SampleQuery, start: int, count: int) -> list[int]:
        """The row numbers of the matching samples."""
        if sample_query.text or sample_query.conditions:
            return [int(number) for number in self._searched(sample_query)[start : start + count]]
        where, values = self._where(sample_query)
        limits = f"limit {int(count)} offset {int(start)}"
        query = f"select file_row_number from {SOURCE} {where} order by {self._order(sample_query)} {limits}"
        return [number for [number] in self.database.rows(query, [self.file, *values])]

    def _searched(self, sample_query: SampleQuery) -> Array:
        """The row numbers of all matching samples, where finding them reads every sample."""
        where, values = self._where(sample_query)
        query = f"select {NUMBER} from {SOURCE} {where} order by {self._order(sample_query)}"
        parameters = [self.file, *values]
        numbers = self.remember((query, *parameters), lambda: [self.database.numbers(query, parameters)])[0]
        return self._with_text(numbers, sample_query.text)

    def row_numbers(self, sample_query: SampleQuery) -> Array:
        """The row numbers of all matching samples, in the order of the file."""
        where, values = self._where(sample_query)
        query = f"select {NUMBER} from {SOURCE} {where} order by file_row_number"
        return self._with_text(self.database.numbers(query, [self.file, *values]), sample_query.text)

    def _with_text(self, numbers: Array, text: str) -> Array:
        """Those of the rows that contain a text."""
        if not text:
            return numbers
        has_text = self.remember(("text", text), lambda: [self.database.rows_with_text(self.stored, text)])[0]
        return numbers[has_text[numbers]]

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """Cache a value computed from this file until the file changes."""
        return self.database.remember((self.path, self.path.stat().st_mtime_ns, key), make)

    def _order(self, sample_query: SampleQuery) -> str:
        if sample_query.sort == "doc_id":
            return f"doc_id {'desc' if sample_query.descending else 'asc'}"
        if self.is_live and not sample_query.sort:
            return "file_row_number desc"
        chosen = ScoreKey.parse(sample_query.sort)
        key = chosen if chosen in self.scores else self.metric
        if key not in self.scores:
            return "file_row_number"
        ascending = (key != self.metric or self.is_more_better is not False) is not sample_query.descending
        return f"{quoted(str(key))} {'asc' if ascending else 'desc'} nulls last, file_row_number"

    def _where(self, sample_query: SampleQuery) -> tuple[str, list[SqlValue]]:
        """The where clause of a query, and its parameters; texts are searched apart."""
        parts: list[str] = []
        values: list[SqlValue] = []
        if sample_query.show == "failed":
            parts.append("failed is not null")
        elif sample_query.show != "all" and self.metric in self.scores:
            parts.append(self._is_right() if sample_query.show == "right" else f"not {self._is_right()}")
        if sample_query.audit:
            parts.append("list_contains(audit, ?)")
            values.append(sample_query.audit)
        for condition in sample_query.conditions:
            text, own = self._condition(condition)
            parts.append(text)
            values += own
        return ("where " + " and ".join(parts) if parts else ""), values

    def _is_right(self) -> str:
        """Above 0, as in `assay samples --wrong`; for lower-is-better metrics, 0 or less."""
        column = quoted(str(self.metric))
        return f"{column} > 0" if self.is_more_better is not False else f"{column} <= 0"

    def _condition(self, condition: Condition) -> tuple[str, list[SqlValue]]:
        term, own = self.term(condition.column)
        value = condition.value
        match condition.operator:
            case "empty":
                return f"coalesce(cast({term} as varchar), '') = ''", own
            case "has":
                return f"contains(lower(cast({term} as varchar)), ?)", [*own, value.lower()]
            case "lt" | "gt":
                sign = "<" if condition.operator == "lt" else ">"
                return f"try_cast({term} as double) {sign} try_cast(? as double)", [*own, value]
            case operator:
                same, values = _same(term, own, value)
                return (same if operator == "eq" else f"not coalesce({same}, false)"), values

    def term(self, column: str) -> tuple[str, list[SqlValue]]:
        """A column as an SQL expression, with its parameters."""
        kind, _, name = column.partition(".")
        if kind == "doc":
            return "try(json_extract_string(doc, ?))", [_pointer(name)]
        if kind == "answer":
            first = 'list_filter(answers, lambda a: a.filter = ?)[1]."values"[1]'
            kinds = [kind for kind in ("text", "json", "value") if f"answers.values.{kind}" in self.stored.leaves]
            terms = [f"cast({first}.{kind} as varchar)" for kind in kinds]
            return f"coalesce({', '.join([*terms, 'null'])})", [name] * len(terms)
        if kind == "score" and (key := ScoreKey.parse(name)) in self.scores:
            return quoted(str(key)), []
        return (quoted(column) if column in ("target", "audit", "failed", "doc_id", "prompt") else "null"), []

    def document_columns(self) -> list[str]:
        """The columns of the documents, taken from the first."""
        [[doc]] = self.database.rows(f"select doc from {SOURCE} limit 1", [self.file]) or [("{}",)]
        return list(parse_json(doc, {}))

    @property
    def file(self) -> str:
        """The file name as a query parameter."""
        return _escaped(self.path)


PLAIN_NUMBER, NO_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,15})?", re.ASCII), re.compile(r"(?is)[a-hj-mo-z].*", re.ASCII)
"""Texts that are certainly a number, such as `1`, and others that certainly cannot be one, such as `law`, and not `infinity`."""
NUMBER = "cast(file_row_number as integer)"
"""Half the memory of a list of row numbers."""
SOURCE = "read_parquet(?, file_row_number = true)"


def choose_metric(
    scores: Sequence[ScoreKey], main: Mapping[ScoreKey, bool | None]
) -> tuple[ScoreKey | None, bool | None]:
    """The score that distinguishes wrong from right, and whether higher is better: the first main metric that is stored."""
    chosen = next((key for key in main if key in scores), scores[0] if scores else None)
    return chosen, main.get(chosen) if chosen is not None else None


def _same(term: str, own: Sequence[SqlValue], value: str) -> tuple[str, list[SqlValue]]:
    """Whether a term has this value: as a text, or as a number. A term may be JSON to parse, so it is written once where one
    comparison has the answer of both."""
    as_text, as_number = f"cast({term} as varchar) = ?", f"try_cast({term} as double) = try_cast(? as double)"
    if PLAIN_NUMBER.fullmatch(value):
        return as_number, [*own, value]
    if NO_NUMBER.fullmatch(value):
        return as_text, [*own, value]
    return f"({as_text} or {as_number})", [*own, value, *own, value]


def quoted(name: str) -> str:
    """A column name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _quoted_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _escaped(path: Path) -> str:
    """A path with glob characters escaped."""
    return re.sub(r"([*?\[])", r"[\1]", str(path.resolve()))


def _pointer(*names: str) -> str:
    """A JSON pointer to a value."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)
