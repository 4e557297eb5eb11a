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
        self._position = 0

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[Row]:
        return map(orjson.loads, self.lines())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return orjson.loads(self._line(range(len(self))[index]))

    def _line(self, number: int) -> bytes:
        start, end = self._ends[number], self._ends[number + 1]
        if self._position != start:  # one after the other, they are read in large pieces
            self._file.seek(start)
        self._position = end
        return self._file.read(end - start)

    def lines(self) -> Iterator[bytes]:
        """The rows as they were put down."""
        return (self._line(number) for number in range(len(self)))

    def __del__(self) -> None:
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
