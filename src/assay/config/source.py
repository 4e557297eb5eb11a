"""One YAML file: its values, and the place of each of them."""

import errno
import hashlib
import os
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

from assay.dialect import OURS, Dialect
from assay.errors import Place, Problem

MAX_BYTES = 64 * 2**20
"""Maximum size of a YAML file."""


class Source:
    """The content of one file. `problems` are those of its text; the value is None if it cannot be read.

    Places are computed on demand: most files have no problem to report.
    """

    def __init__(self, file: str, data: bytes, *, dialect: Dialect = OURS) -> None:
        from assay.config.loader import load  # the YAML library is not imported when the index suffices

        self.file = file
        self.data = data
        self.dialect = dialect
        self.value: object
        self.problems: tuple[Problem, ...]
        self.value, self.problems = load(data, file, dialect)

    @cached_property
    def digest(self) -> str:
        return digest(self.data)

    def place(self, path: Sequence[str | int] = (), *, key: bool = False) -> Place:
        """Locate the value at `path`, or with `key` its key; the nearest value around it where it has no place."""
        from assay.config.loader import locate

        line, column = locate(self._root, path, key=key)
        return Place(self.file, line, column)

    def word_place(self, path: Sequence[str | int], word: str) -> Place:
        """Locate a word inside the text at `path`."""
        from assay.config.loader import locate_word

        return Place(self.file, *locate_word(self._root, self.data, path, word))

    @property
    def _root(self) -> Any:
        return _composed(self.data)


@lru_cache(maxsize=8)
def _composed(data: bytes) -> Any:
    """The nodes of a YAML file with their marks. Places are asked for file by file, and nodes take a hundred times the memory
    of their text: those of a run's thousands of files are not kept."""
    from assay.config.loader import compose

    return compose(data)


def read_bytes(path: str) -> bytes:
    """Return the content of a file, or one byte more than a YAML file may have; a pipe or device is an OSError."""
    if not os.path.isfile(path) and not os.path.isdir(path) and os.path.exists(path):  # noqa: PTH110, PTH112, PTH113  # hot
        raise OSError(errno.EINVAL, "it is a pipe or device", path)
    with open(path, "rb") as file:  # noqa: PTH123  # hot: once per file of a catalog
        return file.read(MAX_BYTES + 1) if os.fstat(file.fileno()).st_size > MAX_BYTES else file.read()


DIGEST_LENGTH = 32


def digest(data: bytes) -> str:
    """Hash bytes to a short name."""
    return hashlib.blake2b(data, digest_size=DIGEST_LENGTH // 2).hexdigest()
