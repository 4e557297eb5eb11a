"""The runs below a folder: an index for lists, and those that a page shows."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from assay.comparison.compare import compare
from assay.errors import AssayError
from assay.report.index import IndexedRow, IndexedRun, RunIndex, Stamp, folder_stamp, read_run, run_stamp
from assay.runs.comparison import Comparison, Flip
from assay.runs.folder import MANIFEST, RESULTS, SAMPLES, SCORED, refuse_links_outside
from assay.runs.lease import is_held
from assay.runs.live import LIVE, PROGRESS
from assay.runs.run import Run
from assay.viewer.events import RunState

OPEN = 24
"""Number of runs that are held open."""
FIRST_SECONDS, STEP_SECONDS = 0.4, 0.25
"""How long a page waits for runs that are not in the index; the rest is read in steps meanwhile."""


class RunLibrary:
    """Finds runs by name. A name that is not below the folder finds nothing: no path is built from a request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = RunIndex(folder)
        self._open: OrderedDict[str, tuple[Stamp, Run]] = OrderedDict()
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None

    @property
    def pending(self) -> int:
        """Number of runs that are not read yet."""
        return self.index.pending

    def runs(self) -> list[IndexedRun]:
        """Return all runs in their current state, as far as they are read."""
        entries = list(self.index.refresh(FIRST_SECONDS).values())
        with self._lock:
            if self.index.pending and (self._reader is None or not self._reader.is_alive()):
                self._reader = threading.Thread(target=self._read_rest, name="run index", daemon=True)
                self._reader.start()
        return entries

    def _read_rest(self) -> None:
        while self.index.pending:
            self.index.refresh(STEP_SECONDS)
        self.index.save()

    def read_all(self) -> None:
        """Read every run, however long it takes: a program asks once, and would not see that some are missing."""
        self.index.refresh()

    def stamps(self, names: Sequence[str]) -> list[Stamp]:
        """The state of the files that pages of runs are made of: it differs where one was replaced, removed or renamed."""
        paths = [self.index.path(name) for name in names]
        return [
            [*run_stamp(path), *folder_stamp(path / SAMPLES), *folder_stamp(path / LIVE)] if path is not None else []
            for path in paths
        ]

    def rows(self, names: Sequence[str]) -> dict[str, list[IndexedRow]]:
        """The numbers of runs."""
        return self.index.rows(names)

    def run(self, name: str) -> Run | None:
        """Return a run in its current state; None where there is no such run."""
        path = self.index.path(name)
        if path is None:
            return None
        stamp = run_stamp(path)
        with self._lock:
            known = self._open.get(name)
            if known is not None and known[0] == stamp and not known[1].is_running:
                self._open.move_to_end(name)
                return known[1]
        if not stamp:
            return None
        run = read_run(path, name)
        with self._lock:
            self._open[name] = stamp, run
            while len(self._open) > OPEN:
                self._open.popitem(last=False)
        return run

    def state(self, name: str) -> RunState:
        """The state of a run, or of all runs where none is named, by the times of a few files."""
        if not name:
            runs = self.runs()
            text = str([self.pending, *((run.name, run.status, run.done, run.n) for run in runs)])
            return RunState(_short(text), bool(self.pending) or any(run.is_running for run in runs))
        path = self.index.path(name)
        if path is None:
            return RunState("-", False)
        is_running = is_held(path)
        files = [_file_stamp(path / LIVE / PROGRESS), _file_stamp(path / MANIFEST), _file_stamp(path / RESULTS)]
        return RunState(_short(str((files, is_running))), is_running)


def _short(text: str) -> str:
    return f"{hash(text) & 0xFFFFFFFFFFFF:x}"


def _file_stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:
        return (0, 0)
    return status.st_size, status.st_mtime_ns


FLIPS_PER_TASK, FLIPS_OF_ONE_TASK = 5, 30
"""Flipped samples read in each direction: of every task, and of one task when its page is opened."""
MAX_CACHED = 8
CacheKey = tuple[tuple[Path, ...], tuple[object, ...], bool, str]


class ComparisonCache:
    """Caches comparisons by runs and options. One is computed at a time: two at once would take twice the memory."""

    def __init__(self) -> None:
        self._known: dict[CacheKey, Comparison] = {}
        self._lock = threading.Lock()

    def of(self, paths: tuple[Path, ...], *, different_prompts: bool) -> Comparison:
        """Return the comparison of these runs in their current state."""
        return self._compare(paths, different_prompts, "")

    def of_task(self, paths: tuple[Path, ...], task: str, *, different_prompts: bool) -> Sequence[Flip]:
        """Return the flipped samples of one task; empty where the runs cannot be compared."""
        try:
            return self._compare(paths, different_prompts, task).flips
        except AssayError:
            return ()

    def _compare(self, paths: tuple[Path, ...], different_prompts: bool, task: str) -> Comparison:
        key = (paths, tuple(tuple(run_stamp(path)) for path in paths), different_prompts, task)
        with self._lock:
            known = self._known.pop(key, None)
            if known is None:
                _refuse_links(paths)
                known = compare(
                    paths,
                    tasks=[task] if task else (),
                    flips=FLIPS_OF_ONE_TASK if task else FLIPS_PER_TASK,
                    allow_different_prompts=different_prompts,
                )
                known = replace(known, flips=[flip for flip in known.flips if task in ("", flip.task)])
            while len(self._known) >= MAX_CACHED:
                self._known.pop(next(iter(self._known)))
            self._known[key] = known
            return known


def _refuse_links(paths: Sequence[Path]) -> None:
    """Refuse links that lead out of the run folders; a re-scored run also reads the run it belongs to."""
    for path in paths:
        refuse_links_outside(path)
        if path.parent.name == SCORED:
            refuse_links_outside(path.parent.parent)
