"""Scores of a run that took long to compute: an SQLite file beside its responses."""

import sqlite3
from pathlib import Path

SCORES_FILE = "scores.sqlite"


class ScoreCache:
    """Scores by key. A file that cannot be read is begun again: what it held can be computed."""

    def __init__(self, folder: Path) -> None:
        path = folder / SCORES_FILE
        try:
            self._file = _opened(path)
        except sqlite3.DatabaseError:
            path.unlink(missing_ok=True)
            self._file = _opened(path)

    def get(self, key: bytes) -> bytes | None:
        row = self._file.execute("select value from scores where key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def add(self, key: bytes, value: bytes) -> None:
        self._file.execute("insert or ignore into scores values (?, ?)", (key, value))

    def close(self) -> None:
        self._file.close()


def _opened(path: Path) -> sqlite3.Connection:
    made = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    made.execute("pragma journal_mode = wal")
    made.execute("pragma synchronous = off")  # a score that is lost is computed again
    made.execute("create table if not exists scores (key blob primary key, value blob not null) without rowid")
    return made
