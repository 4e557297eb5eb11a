"""Samples by DuckDB over Parquet: found, sorted, counted and paged without being loaded."""

import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from assay.config.source import digest
from assay.runs.rows import Row
from assay.runs.stored import SampleFile
from assay.viewer.query import PAGE, Condition, Wish
from assay.viewer.sample_page import loads

MEMORY = "128MB"
"""What DuckDB may take: a server of pages stays small beside the model that is evaluated."""
TEXTS = {
    "prompt": "contains({lower}(prompt), ?)",
    "requests.messages.content":
        "len(list_filter(flatten(list_transform(requests, lambda r: r.messages)), lambda m: contains({lower}(m.content), ?))) > 0",
    "responses.text": "len(list_filter(flatten(responses), lambda r: contains({lower}(r.text), ?))) > 0",
    "target": "contains({lower}(target), ?)",
}  # fmt: skip
"""Where a text is looked for, and how: what was asked, what was answered, what would have been right."""
REMEMBERED = 12
"""Lists of samples, and what else was made of files, that are remembered: who turns a page does not search again."""
Made = TypeVar("Made")


class Database:
    """DuckDB without a file, which reads below one folder and nowhere else."""

    def __init__(self, folder: Path) -> None:
        import duckdb

        self._made = Path(tempfile.mkdtemp(prefix="assay-view-"))
        weakref.finalize(self, shutil.rmtree, self._made, ignore_errors=True)
        self._remembered: dict[object, Any] = {}
        self._lock = threading.Lock()
        self._connection = duckdb.connect(":memory:", config={"threads": "2", "memory_limit": MEMORY})
        for setting in (
            "autoinstall_known_extensions=false",
            "autoload_known_extensions=false",
            "preserve_insertion_order=false",
            f"allowed_directories=[{', '.join(_quoted_text(f'{each}/') for each in self._allowed(folder))}]",
            "enable_external_access=false",
            "lock_configuration=true",
        ):
            self._connection.execute(f"set {setting}")

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """What a query finds; every value that anybody wrote is a parameter, never part of the text."""
        with self._connection.cursor() as cursor:
            found: list[tuple[Any, ...]] = cursor.execute(query, list(parameters)).fetchall()
            return found

    def numbers(self, query: str, parameters: Sequence[Any]) -> Any:
        """The first column of what a query finds, as an array."""
        with self._connection.cursor() as cursor:
            [found] = cursor.execute(query, list(parameters)).fetchnumpy().values()
            return found.astype("int32")

    def remember(self, key: object, make: Callable[[], Made]) -> Made:
        """What is made, or was made before under this key: one of the latest."""
        with self._lock:
            known = self._remembered.pop(key, None)
        made: Made = known or make()
        with self._lock:
            self._remembered[key] = made
            while len(self._remembered) > REMEMBERED:
                self._remembered.pop(next(iter(self._remembered)))
        return made

    def _allowed(self, folder: Path) -> list[str]:
        return [str(folder.resolve()), _escaped(folder), str(self._made.resolve()), _escaped(self._made)]

    def samples(self, path: Path) -> SampleFile:
        """A file of samples that queries can read: whole, and in format 2. One of format 1 is written anew for them."""
        name = f"{digest(f'{path}{path.stat().st_mtime_ns}'.encode())}.parquet"
        made = self._made / name
        return SampleFile(made if made.is_file() else SampleFile(path).as_format_2(made))


class Found(NamedTuple):
    """A page of samples with how many there are in all."""

    rows: list[Row]
    positions: list[int]
    total: int
    page: int

    @property
    def pages(self) -> int:
        return max(-(-self.total // PAGE), 1)


@dataclass(frozen=True)
class Samples:
    """The samples of a task. `metric` is the column that tells wrong from right, `is_more_better` which way."""

    database: Database
    stored: SampleFile
    metric: str
    is_more_better: bool

    @property
    def path(self) -> Path:
        return self.stored.path

    @property
    def columns(self) -> list[str]:
        """The columns of the file."""
        return self.stored.names

    @property
    def scores(self) -> list[str]:
        """The columns of scores."""
        return [name for name in self.columns if "," in name]

    def values(self, row: Row) -> list[float | None]:
        """The scores of a sample, column by column."""
        return [value if isinstance(value := row.scores.get(name), int | float) else None for name in self.scores]

    def page(self, wish: Wish) -> Found:
        """The samples that are wanted, a page of them: the worst first where nothing else is asked for."""
        total = self.count(wish)
        page = min(wish.page, max(-(-total // PAGE), 1))
        start = (page - 1) * PAGE
        numbers = self._numbers(wish, start, PAGE)
        return Found(self.read(numbers), list(range(start, start + len(numbers))), total, page)

    def count(self, wish: Wish) -> int:
        """How many samples are wanted."""
        if wish.text or wish.conditions:
            return len(self._searched(wish))
        where, values = self._where(wish)
        [[total]] = self.database.rows(f"select count(*) from {SOURCE} {where}", [self.file, *values])
        return int(total)

    def around(self, wish: Wish, position: int) -> list[int]:
        """The documents before, at and behind a position of the list: -1 where there is none."""
        start = max(position - 1, 0)
        found = [row.doc_id for row in self.read(self._numbers(wish, start, 3 if position else 2))]
        found = found if position else [-1, *found]
        return [*found, -1, -1, -1][:3]

    def document(self, doc_id: int) -> Row | None:
        """The sample of a document."""
        found = self.database.rows(
            f"select file_row_number from {SOURCE} where doc_id = ? limit 1", [self.file, doc_id]
        )
        rows = self.read([number for [number] in found])
        return rows[0] if rows else None

    def read(self, numbers: Sequence[int]) -> list[Row]:
        """The samples at these places in the file, in this order: only the row groups that hold them are read."""
        return self.stored.at(numbers)

    def _numbers(self, wish: Wish, start: int, count: int) -> list[int]:
        """The places in the file of the samples that are wanted: texts are not looked at but to find them."""
        if wish.text or wish.conditions:
            return [int(number) for number in self._searched(wish)[start : start + count]]
        where, values = self._where(wish)
        query = f"select file_row_number from {SOURCE} {where} order by {self._order(wish)} limit {int(count)} offset {int(start)}"
        return [number for [number] in self.database.rows(query, [self.file, *values])]

    def _searched(self, wish: Wish) -> Any:
        """The places of all samples that are wanted, where finding them takes a look at every one."""
        where, values = self._where(wish)
        query = f"select file_row_number from {SOURCE} {where} order by {self._order(wish)}"
        parameters = [self.file, *values]
        return self.remember((query, *parameters), lambda: [self.database.numbers(query, parameters)])[0]

    def remember(self, key: object, make: Callable[[], Made]) -> Made:
        """What is made of this file, once as long as it does not change."""
        return self.database.remember((self.path, self.path.stat().st_mtime_ns, key), make)

    def _order(self, wish: Wish) -> str:
        if wish.sort == "doc_id":
            return f"doc_id {'desc' if wish.descending else 'asc'}"
        column = wish.sort if wish.sort in self.scores else self.metric
        if column not in self.scores:
            return "file_row_number"
        ascending = (self.is_more_better if column == self.metric else True) is not wish.descending
        return f"{quoted(column)} {'asc' if ascending else 'desc'} nulls last, file_row_number"

    def _where(self, wish: Wish) -> tuple[str, list[Any]]:
        """The condition of a query, and the values in it."""
        parts: list[str] = []
        values: list[Any] = []
        if wish.text:
            text = wish.text.lower()
            lower = "lower" if text != text.upper() else ""  # signs have no case
            where = {leaf: how.format(lower=lower) for leaf, how in TEXTS.items() if leaf in self.stored.leaves}
            parts.append(f"({' or '.join(where.values())})")
            values += [_in_json(text) if leaf == "target" else text for leaf in where]
        if wish.show == "failed":
            parts.append("failed is not null")
        elif wish.show != "all" and self.metric in self.scores:
            parts.append(self._is_right() if wish.show == "right" else f"not {self._is_right()}")
        if wish.audit:
            parts.append("list_contains(audit, ?)")
            values.append(wish.audit)
        for condition in wish.conditions:
            text, own = self._condition(condition)
            parts.append(text)
            values += own
        return ("where " + " and ".join(parts) if parts else ""), values

    def _is_right(self) -> str:
        """Above 0, as `assay samples --wrong` has it; where less is better, 0 is the best there is."""
        return f"{quoted(self.metric)} > 0" if self.is_more_better else f"{quoted(self.metric)} <= 0"

    def _condition(self, condition: Condition) -> tuple[str, list[Any]]:
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
                sign = "=" if operator == "eq" else "is distinct from"
                same = f"(cast({term} as varchar) = ? or try_cast({term} as double) = try_cast(? as double))"
                return (same if sign == "=" else f"not coalesce({same}, false)"), [*own, value, *own, value]

    def term(self, column: str) -> tuple[str, list[Any]]:
        """A column as a query has it, with the values in that."""
        kind, _, name = column.partition(".")
        if kind == "doc":
            return "try(json_extract_string(doc, ?))", [_pointer(name)]
        if kind == "answer":
            first = 'list_filter(answers, lambda a: a.filter = ?)[1]."values"[1]'
            kinds = [kind for kind in ("text", "json", "value") if f"answers.values.{kind}" in self.stored.leaves]
            terms = [f"cast({first}.{kind} as varchar)" for kind in kinds]
            return f"coalesce({', '.join([*terms, 'null'])})", [name] * len(terms)
        if kind == "score" and name in self.scores:
            return quoted(name), []
        return (quoted(column) if column in ("target", "audit", "failed", "doc_id", "prompt") else "null"), []

    def document_columns(self) -> list[str]:
        """The columns that documents have, by the first of them."""
        [[doc]] = self.database.rows(f"select doc from {SOURCE} limit 1", [self.file]) or [("{}",)]
        return list(loads(doc, {}))

    @property
    def file(self) -> str:
        """The file as a query has it."""
        return _escaped(self.path)


SOURCE = "read_parquet(?, file_row_number = true)"


def score_columns(columns: Sequence[str], main: Mapping[str, bool | None]) -> tuple[str, bool]:
    """The column that tells wrong from right, and whether more of it is better: the first of the main ones that is there."""
    for name, better in main.items():
        if name in columns:
            return name, better is not False
    first = next((name for name in columns if "," in name), "")
    return first, True


def quoted(name: str) -> str:
    """A name of a column in a query."""
    return '"' + name.replace('"', '""') + '"'


def _quoted_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _escaped(path: Path) -> str:
    """A path in which no sign stands for others."""
    return re.sub(r"([*?\[])", r"[\1]", str(path.resolve()))


def _pointer(*names: str) -> str:
    """Where a value stands in JSON, as a JSON pointer."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)


def _in_json(text: str) -> str:
    """A text as it is written inside of JSON."""
    import orjson

    return orjson.dumps(text).decode()[1:-1]
