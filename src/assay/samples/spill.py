"""Rows that a function made of a whole split, kept on disk: they are not from a file that could be read again."""

import tempfile
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from assay.samples.rows import Row

MANY = 1000
"""Fewer rows than these stay in memory."""


class Spilled(Sequence[Row]):
    """Rows in a file without a name, which is gone with the process."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the rows
        self._ends = array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[Row]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        self._file.seek(self._ends[number])
        return orjson.loads(self._file.read(self._ends[number + 1] - self._ends[number]))

    def __del__(self) -> None:
        self._file.close()

    def add(self, line: bytes) -> None:
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
