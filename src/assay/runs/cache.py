"""SQLite caches: responses shared by runs, under their journal keys; and scores that take long to compute."""

import logging
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from assay.errors import AssayError
from assay.records import Failed, Response, Usage
from assay.runs.journal import Journal, from_line, to_line

FILE = "responses.sqlite"
LOCK_TIMEOUT = 60.0
"""Seconds that a write waits for another process."""
TOGETHER = 256
FLUSH_SECONDS = 1.0
DAY = 86_400
_TABLE = """create table if not exists responses
(key blob primary key, model text not null, response blob not null, written real not null, used real not null) without rowid"""


class CacheError(AssayError):
    """The cache cannot be used."""


class CachedModel(NamedTuple):
    """The size and age of a cache's responses for one model."""

    model: str
    responses: int
    bytes: int
    written: float
    used: float


class Cache:
    """A folder with responses of models. Keys hold the model's identity: no model is ever given another's answer."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = _opened(folder / FILE, "normal", _TABLE)
        except (OSError, sqlite3.Error) as error:
            fix = "name a folder that can be written, on a disk of this machine"
            raise CacheError.at(folder, f"the cache cannot be opened: {error}", fix) from None
        self._new: list[tuple[bytes, str, bytes, float, float]] = []
        self._flushed = time.monotonic()
        self._used: list[tuple[float, bytes]] = []
        self.damaged = 0
        """Responses that could not be read, and were taken out."""

    def get(self, key: bytes) -> Response | None:
        row = self._file.execute("select response from responses where key = ?", (key,)).fetchone()
        if row is None:
            return None
        try:
            response = from_line(_verified(key, row[0]))
        except (ValueError, TypeError):
            self._file.execute("delete from responses where key = ?", (key,))
            self.damaged += 1
            return None
        self._used.append((time.time(), key))
        return response

    def add(self, model: str, answered: Sequence[tuple[bytes, Response]]) -> None:
        now = time.time()
        self._new += [(k, model, _sealed(k, to_line(r)), now, now) for k, r in answered if not isinstance(r, Failed)]
        if len(self._new) + len(self._used) >= TOGETHER or time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what has gathered; what another process wrote first stays."""
        self._flushed = time.monotonic()
        if self._new or self._used:
            self._file.execute("begin immediate")
            self._file.executemany("insert or ignore into responses values (?, ?, ?, ?, ?)", self._new)
            self._file.executemany("update responses set used = ? where key = ?", self._used)
            self._file.execute("commit")
            self._new, self._used = [], []

    def shelves(self) -> list[CachedModel]:
        """List the content by model."""
        rows = self._file.execute(
            "select model, count(*), coalesce(sum(length(response)), 0), min(written), max(used) from responses"
            " group by model order by model"
        )
        return [CachedModel(*row) for row in rows]

    def prune(self, *, model: str | None = None, unused_days: float | None = None) -> int:
        """Delete responses of a model, or unused for some days; all of them where neither is given."""
        before = time.time() - unused_days * DAY if unused_days is not None else None
        condition = "(? is null or model = ?) and (? is null or used < ?)"
        deleted = self._file.execute(
            f"delete from responses where {condition}", (model, model, before, before)
        ).rowcount
        self._file.execute("vacuum")
        return deleted

    def close(self) -> None:
        try:
            with suppress(sqlite3.Error):
                self.flush()
            if self.damaged:
                what = "1 damaged response" if self.damaged == 1 else f"{self.damaged} damaged responses"
                logging.getLogger("assay").warning("the cache held %s: requested again", what)
        finally:
            self._file.close()


class CachedJournal:
    """A journal with a cache behind it: cached responses of other runs are journaled like new ones.

    `names` are the names of the roles' models in the cache. Responses that the run had before are given to the cache first: a
    process that was killed may have ended before it wrote them.
    """

    def __init__(self, journal: Journal, cache: Cache, names: Mapping[str, str]) -> None:
        self._journal, self._cache, self._names = journal, cache, names
        self._is_broken = False
        for key, role, response in journal.earlier():
            if role in names:
                self._guarded(cache.add, names[role], [(key, response)])

    def find(self, keys: Sequence[bytes]) -> Mapping[bytes, Response]:
        known = self._journal.find(keys)
        for key in keys:
            response: Response | None = self._guarded(self._cache.get, key) if key and key not in known else None
            if response is not None and not isinstance(response, Failed):
                cut = response.usage.cut if response.usage is not None else 0
                known[key] = response._replace(usage=Usage(cut=cut) if cut else None)  # paid by the run that asked
                self._journal.add([(key, known[key])])
        return known

    def add(self, answered: Sequence[tuple[bytes, Response]], role: str) -> None:
        self._journal.add(answered, role)
        self._guarded(self._cache.add, self._names[role], answered)

    def claim(self, key: bytes) -> bool:
        return self._journal.claim(key)

    @property
    def own(self) -> Journal:
        """Where tool calls and finished records go: never into the cache."""
        return self._journal

    def paid(self) -> Iterator[tuple[str, Response]]:
        return self._journal.paid()

    def sync(self) -> None:
        self._journal.sync()
        self._guarded(self._cache.flush)

    def _guarded(self, do: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the cache; if that fails, warn once and continue the run without the cache."""
        if self._is_broken:
            return None
        try:
            return do(*arguments)
        except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
            self._is_broken = True
            logging.getLogger("assay").warning(
                "the cache cannot be used any more: %s; the run continues without it", error
            )
            return None


_SEAL = b',"c":"%08x"'
_SEALED = len(_SEAL % 0)


def _sealed(key: bytes, line: bytes) -> bytes:
    """A line with a checksum of it and its key: SQLite has none for what it stores."""
    return line + _SEAL % zlib.crc32(key + line)


def _verified(key: bytes, stored: bytes) -> bytes:
    """The line that was sealed; a ValueError where it is damaged."""
    line, seal = stored[:-_SEALED], stored[-_SEALED:]
    if seal != _SEAL % zlib.crc32(key + line):
        raise ValueError("its content does not match its checksum")
    return line


SCORES_FILE = "scores.sqlite"
_SCORES = "create table if not exists scores (key blob primary key, value blob not null) without rowid"


def _with_crc(key: bytes, value: bytes) -> bytes:
    return value + zlib.crc32(key + value).to_bytes(4)


class ScoreCache:
    """Scores by key. A file that cannot be read is begun again: what it held can be computed."""

    def __init__(self, folder: Path) -> None:
        path = folder / SCORES_FILE
        try:
            self._file = _opened(path, "off", _SCORES)  # a score that is lost is computed again
        except sqlite3.DatabaseError:
            path.unlink(missing_ok=True)
            self._file = _opened(path, "off", _SCORES)

    def get(self, key: bytes) -> bytes | None:
        """The score of a key, if its checksum is right."""
        with suppress(sqlite3.Error, TypeError):
            row = self._file.execute("select value from scores where key = ?", (key,)).fetchone()
            if row is not None and row[0] == _with_crc(key, row[0][:-4]):
                return bytes(row[0][:-4])
        return None

    def add(self, key: bytes, value: bytes) -> None:
        with suppress(sqlite3.Error):
            self._file.execute("insert or replace into scores values (?, ?)", (key, _with_crc(key, value)))

    def close(self) -> None:
        self._file.close()


def _opened(path: Path, synchronous: str, table: str) -> sqlite3.Connection:
    """Open a database; one that cannot be used is closed again."""
    connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("pragma journal_mode = wal")
        connection.execute(f"pragma synchronous = {synchronous}")
        connection.execute(table)
    except sqlite3.Error:
        connection.close()
        raise
    return connection
