"""Rows that a function made of a whole split, kept on disk: they are not from a file that could be read again."""

import tempfile
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import orjson

from assay.samples.rows import Row

MANY = 1000
"""Fewer rows than these stay in memory."""


class Spilled(Sequence[Row]):
    """Rows in a file: one of its own, or one without a name, which is gone with the process."""

    def __init__(self, columns: Sequence[str], path: Path | None = None) -> None:
        self.columns = tuple(columns)
        self._file: IO[bytes] = tempfile.TemporaryFile() if path is None else path.open("w+b")  # noqa: SIM115  # lives as long as the rows
        self._ends = array("q", [0])
        self._at_end = True

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[Row]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return orjson.loads(self._line(range(len(self))[index]))

    def _line(self, number: int) -> bytes:
        self._at_end = False
        self._file.seek(self._ends[number])
        return self._file.read(self._ends[number + 1] - self._ends[number])

    def lines(self) -> Iterator[bytes]:
        """The rows as they were put down."""
        return (self._line(number) for number in range(len(self)))

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def add(self, line: bytes) -> None:
        if not self._at_end:
            self._file.seek(0, 2)
            self._at_end = True
        self._file.write(line)
        self._ends.append(self._ends[-1] + len(line))


def spilled(rows: Sequence[Row]) -> Sequence[Row]:
    """The same rows, on disk where there are many; as they are where one would not come back as it went."""
    if len(rows) < MANY:
        return rows
    made: Spilled | None = None
    for row in rows:
        plain = dict(row)
        try:
            line = orjson.dumps(plain)
        except TypeError:
            return rows
        if orjson.loads(line) != plain:
            return rows
        if made is None:
            made = Spilled(tuple(plain))
        made.add(line)
    return made if made is not None else rows
