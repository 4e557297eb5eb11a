"""The runs below a folder, read once and again when their files change."""

import threading
from collections.abc import Sequence
from pathlib import Path

from assay.report.reading import RunSummary
from assay.runs.folder import MANIFEST, RESULTS
from assay.runs.labels import LABELS
from assay.runs.lease import NAME as LOCK
from assay.runs.notes import NOTES
from assay.runs.run import find_runs

Stamp = tuple[tuple[int, int], ...]
"""Size and modification time of the files that a summary is read from."""


class RunLibrary:
    """Finds runs by name. A name that is not below the folder finds nothing: no path is built from a request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, tuple[Stamp, RunSummary]] = {}
        self._lock = threading.Lock()

    def runs(self) -> list[RunSummary]:
        """Return all runs in their current state."""
        with self._lock:
            self._known = {name: self._read(name, path) for name, path in find_runs(self.folder).items()}
            return [summary for _, summary in self._known.values()]

    def run(self, name: str) -> RunSummary | None:
        """Return a run in its current state; None where there is no such run."""
        with self._lock:
            if name not in self._known:
                self._known = {each: self._read(each, path) for each, path in find_runs(self.folder).items()}
            if name not in self._known:
                return None
            self._known[name] = self._read(name, self._known[name][1].path)
            return self._known[name][1]

    def stamp(self, names: Sequence[str] = ()) -> str:
        """Return a text that changes when one of these runs does, or any run where none is named."""
        runs = [run for name in names if (run := self.run(name)) is not None] if names else self.runs()
        return f"{hash(tuple((run.name, run.status, run_stamp(run.path)) for run in runs)) & 0xFFFFFFFFFFFF:x}"

    def _read(self, name: str, path: Path) -> tuple[Stamp, RunSummary]:
        stamp, known = run_stamp(path), self._known.get(name)
        if known is not None and known[0] == stamp and not known[1].head.is_running:
            return known
        return stamp, read_run(path, name)


def read_run(path: Path, name: str) -> RunSummary:
    """Read a run for the pages. A damaged run is shown with its problem, beside the others."""
    try:
        summary = RunSummary(path, name, follow_links=False)
        summary.head, summary.remarks, summary.audit  # noqa: B018  # computed here, where an error is caught
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        return RunSummary(path, name, follow_links=False, problem=f"{type(error).__name__}: {error}")
    return summary


def run_stamp(path: Path) -> Stamp:
    """Return the stamp of a run, by which a change is noticed."""
    return tuple(_file_stamp(path / name) for name in (MANIFEST, RESULTS, LOCK, LABELS, NOTES))


def _file_stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:
        return (0, 0)
    return status.st_size, status.st_mtime_ns
