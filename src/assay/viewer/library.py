"""The runs below a folder, read once and again when their files change."""

import threading
from collections.abc import Sequence
from pathlib import Path

from assay.report.reading import RunReading
from assay.runs.folder import MANIFEST, RESULTS
from assay.runs.lease import NAME as LOCK
from assay.runs.run import find_runs

Stamp = tuple[tuple[int, int], ...]
"""Size and time of change of the files that a reading comes from."""


class Library:
    """Runs by name. A name that was not found below the folder leads nowhere: no path is made of what a request says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, tuple[Stamp, RunReading]] = {}
        self._lock = threading.Lock()

    def runs(self) -> list[RunReading]:
        """All runs, as they are now."""
        with self._lock:
            found = find_runs(self.folder)
            self._known = {name: self._read(name, path) for name, path in found.items()}
            return [reading for _, reading in self._known.values()]

    def run(self, name: str) -> RunReading | None:
        """A run as it is now; None where there is none of that name."""
        with self._lock:
            if name not in self._known:
                self._known = {each: self._read(each, path) for each, path in find_runs(self.folder).items()}
            if name not in self._known:
                return None
            self._known[name] = self._read(name, self._known[name][1].path)
            return self._known[name][1]

    def stamp(self, names: Sequence[str] = ()) -> str:
        """A word that changes when one of these runs does, or when any does."""
        runs = [run for name in names if (run := self.run(name)) is not None] if names else self.runs()
        return f"{hash(tuple((run.name, run.status, stamp_of(run.path)) for run in runs)) & 0xFFFFFFFFFFFF:x}"

    def _read(self, name: str, path: Path) -> tuple[Stamp, RunReading]:
        stamp, known = stamp_of(path), self._known.get(name)
        if known is not None and known[0] == stamp and not known[1].head.is_running:
            return known
        return stamp, reading(path, name)


def reading(path: Path, name: str) -> RunReading:
    """A run as pages show it. Whatever is wrong with one, it is told in its place, and the others are shown."""
    try:
        found = RunReading(path, name, follow_links=False)
        found.head, found.troubles, found.audit  # noqa: B018  # worked out here, where it may go wrong
    except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        return RunReading(path, name, follow_links=False, problem=f"{type(error).__name__}: {error}")
    return found


def stamp_of(path: Path) -> Stamp:
    """What tells whether a run has changed."""
    return tuple(_stamp(path / name) for name in (MANIFEST, RESULTS, LOCK))


def _stamp(file: Path) -> tuple[int, int]:
    try:
        told = file.stat()
    except OSError:
        return (0, 0)
    return told.st_size, told.st_mtime_ns
