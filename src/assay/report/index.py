"""An index of the runs below a folder, so that ten thousand of them are listed without opening one.

The index is a file in the folder, written in one move, and never trusted over a run: an entry counts only while the folder of
the run and its files have the size and time that they had when it was read. It is rebuilt where it is missing, damaged or of
another version, and kept in the cache where the folder cannot be written.
"""

import gc
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson

from assay.catalog.index import no_collector
from assay.config.folders import cache_folder
from assay.config.source import digest
from assay.evaluation.options import training_step
from assay.records import AnyJSON
from assay.results import NO_RESULTS, Estimate, Row
from assay.runs.files import open_file
from assay.runs.folder import MANIFEST, RESULTS, SCORED
from assay.runs.labels import LABELS
from assay.runs.lease import NAME as LOCK
from assay.runs.lines import ResultLine
from assay.runs.notes import NOTES
from assay.runs.run import DEEPEST, RUNNING, Run, find_runs, holds_run
from assay.version import __version__

INDEX, FORMAT = ".assay-index", 5
STAMPED = (MANIFEST, RESULTS, LOCK, LABELS, NOTES, SCORED)
"""The files and the folder of a run that an entry depends on."""
READS = 4
"""How often a run is read whose files change meanwhile: the manifest of one state and the results of the next look damaged."""
FEW_RUNS = 100
"""So many runs are read whatever the time: a list of some runs is whole also on a busy machine."""
MOST_ROWS = 1 << 26
"""Bytes of the rows of one run in the file: of more, the run itself is read."""
MIN_RUNS = 20
"""Fewer runs are read faster than they are looked up, and leave no file in the folder."""
SAVE_SECONDS = 5.0
"""Time between two writes, however much changes."""
JUST_NOW = 50_000_000
"""Nanoseconds: a file that changed so shortly before it was read may have changed again without another time."""
DAMAGED = (ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
Stamp = list[int | str]


class IndexedRow(NamedTuple):
    """A number of a run: that of a task or group. A matrix has sixty thousand of them, so each is as it was written, and `row`
    is made where it is shown."""

    task: str
    alias: str
    is_group: bool
    depth: int
    is_main: bool
    written: Sequence[Any]

    @property
    def row(self) -> Row:
        return _row_of(self.written)


@dataclass(frozen=True, slots=True)
class IndexedRun:
    """A run as lists show it: what the index stores of it besides its rows."""

    name: str
    path: Path
    model: str
    tasks: Sequence[str]
    """The tasks and groups that are in no other group."""
    status: str
    headline: Row | None
    """The main result of its first line that has one."""
    headline_of: str
    n: int
    failed: int
    cost: float | None
    seconds: float | None
    created: float | None
    done: int | None
    """Of a run in progress: how many documents are answered, of how many."""
    expected: int | None
    settings: Mapping[str, str]
    problem: str
    """Why the run cannot be read."""
    tags: Sequence[str]
    note: str
    step: int | None
    """The training step in the name of the run, or of its model."""
    sources: Mapping[str, int]
    """By task, the checksum of the name of its data."""

    @property
    def headline_n(self) -> int:
        """The number of samples of the headline; without one, of the run."""
        return self.headline.estimate.n if self.headline is not None else self.n

    @property
    def is_running(self) -> bool:
        return self.status == RUNNING


@dataclass(slots=True)
class _Slot:
    """An entry with its stamp, and its rows as they were packed."""

    stamp: Stamp
    entry: IndexedRun
    rows: bytes


def read_run(path: Path, name: str) -> Run:
    """Read a run for pages, as it was at one moment: while a process writes its files, they are read again."""
    for _ in range(READS - 1):
        before = run_stamp(path)
        run = _read_once(path, name)
        if run_stamp(path) == before:
            return run
    return _read_once(path, name)


def _read_once(path: Path, name: str) -> Run:
    """Read a run. A damaged run is shown with its problem, beside the others."""
    try:
        run = Run.try_open(path, name, follow_links=False)
        index_run(run), run.remarks  # computed here, where an error is caught
    except DAMAGED as error:
        return _unreadable(path, name, error)
    return run


def _unreadable(path: Path, name: str, error: Exception) -> Run:
    return Run(path, {}, NO_RESULTS, name=name, problem=f"{type(error).__name__}: {error}")


class RunIndex:
    """The runs below a folder. `refresh` looks for changes; one thread at a time."""

    def __init__(self, folder: Path, read: Callable[[Path, str], Run] = read_run) -> None:
        self.folder, self._read = folder, read
        self.pending = 0
        """Number of runs that are found and not read yet."""
        self.paths: dict[str, Path] = {}
        self._slots: dict[str, _Slot] = {}
        self._changes, self._saved = 0, 0.0
        self._lock = threading.RLock()
        self._is_run = holds_run(folder)
        self._is_loaded = False

    def refresh(self, seconds: float | None = None) -> dict[str, IndexedRun]:
        """Return every run in its current state; with `seconds`, of the runs that are not in the index some are read, and more for
        so long only.
        """
        with self._lock:
            if not self._is_loaded:
                self._load()
            until = time.monotonic() + seconds if seconds is not None else None
            current = dict(self._find())
            self.paths = {name: path for name, (path, _) in current.items()}
            deleted = [name for name in self._slots if name not in current]
            for name in deleted:
                del self._slots[name]
            self._changes += len(deleted)
            self.pending = taken = 0
            for name, (path, is_current) in current.items():
                if is_current:
                    continue
                if until is not None and taken >= FEW_RUNS and time.monotonic() > until:
                    self.pending += 1
                    continue
                taken += 1
                self._put(name, path)
                self._save_now_and_then()  # what is read so far survives an interrupt
            self._save_now_and_then(is_last=seconds is None)
            return {name: self._slots[name].entry for name in current if name in self._slots}

    def path(self, name: str) -> Path | None:
        """The folder of a run; None where there is no such run. No path is built from a name."""
        with self._lock:
            if name not in self.paths:
                if not self._is_loaded:
                    self._load()
                self.paths = {each: path for each, (path, _) in self._find()}
            return self.paths.get(name)

    def rows(self, names: Sequence[str]) -> dict[str, list[IndexedRow]]:
        """The numbers of runs, of those that are in the index; where the file of the index is damaged, from the run itself."""
        with self._lock, no_collector():
            return {name: self._rows(name) for name in names if name in self._slots}

    def _rows(self, name: str) -> list[IndexedRow]:
        with suppress(*DAMAGED, zlib.error):
            return _unpack(self._slots[name].rows, MOST_ROWS)
        self._put(name, self._slots[name].entry.path)  # the file of the index is damaged: from the run itself
        return _unpack(self._slots[name].rows)

    # ---- looking for changes

    def _find(self) -> Iterator[tuple[str, tuple[Path, bool]]]:
        """Every run with whether its entry is current."""
        if self._is_run:
            for name, path in find_runs(self.folder).items():
                yield name, (path, self._is_current(name, str(path)))
            return
        yield from self._below(str(self.folder), "", DEEPEST)

    def _below(self, folder: str, name: str, depth: int) -> Iterator[tuple[str, tuple[Path, bool]]]:
        try:
            with os.scandir(folder) as entries:
                inside = [each.name for each in entries if each.name[:1] != "." and each.is_dir(follow_symlinks=False)]
        except OSError:
            return
        for each in sorted(inside):
            path, own = f"{folder}/{each}", f"{name}/{each}" if name else each
            if self._is_current(own, path):
                yield own, (self._slots[own].entry.path, True)
            elif holds_run(Path(path)):
                yield own, (Path(path), False)
            elif depth:
                yield from self._below(path, own, depth - 1)
                continue
            if depth > 1 and self._has_scorings(own, path):
                yield from self._below(f"{path}/{SCORED}", f"{own}/{SCORED}", depth - 2)

    def _has_scorings(self, name: str, path: str) -> bool:
        slot = self._slots.get(name)
        return SCORED in slot.stamp if slot is not None and slot.stamp else os.path.isdir(f"{path}/{SCORED}")  # noqa: PTH112

    def _is_current(self, name: str, path: str) -> bool:
        """Whether the entry of a run is that of the files as they are now; a run in progress is always read again."""
        slot = self._slots.get(name)
        if slot is None or not slot.stamp or slot.entry.status == RUNNING:
            return False
        try:
            status = os.stat(path)  # noqa: PTH116  # of ten thousand runs, pathlib takes twice as long
            stamp = slot.stamp
            if stamp[0] != status.st_mtime_ns or stamp[1] != status.st_ino:
                return False  # a file came, or went, or was replaced
            for at in range(2, len(stamp), 4):
                status = os.stat(f"{path}/{stamp[at]}")  # noqa: PTH116
                if [status.st_size, status.st_mtime_ns, status.st_ino] != stamp[at + 1 : at + 4]:
                    return False
        except OSError:
            return False
        return True

    def _put(self, name: str, path: Path) -> None:
        stamp = run_stamp(path)
        entry, rows = entry_of(self._read(path, name))
        was = self._slots.get(name)
        is_stored = not entry.is_running
        self._slots[name] = _Slot(stamp if is_stored and not _is_racy(stamp) else [], entry, rows)
        self._changes += is_stored or was is None or bool(was.stamp)

    # ---- the file

    def _load(self) -> None:
        self._is_loaded = True
        self._saved = time.monotonic()
        for place in () if self._is_run else self._places():
            with suppress(*DAMAGED), no_collector():
                with open_file(place) as file:
                    self._slots = dict(_read_slots(file, self.folder))
                gc.freeze()  # the entries stay: looking through ten thousand of them takes longer than listing them
                return

    def _places(self) -> Iterator[Path]:
        yield self.folder / INDEX
        with suppress(OSError):
            yield cache_folder() / "indexes" / digest(os.path.realpath(self.folder).encode())[:32]

    def _save_now_and_then(self, *, is_last: bool = False) -> None:
        is_due = is_last or time.monotonic() - self._saved > SAVE_SECONDS
        if self._changes and is_due:
            self.save()

    def save(self) -> None:
        """Write the index; in the cache where the folder cannot be written, and nowhere if that cannot be, either."""
        if self._is_run or len(self._slots) < MIN_RUNS:
            return
        with self._lock:
            self._saved, self._changes = time.monotonic(), 0
            for place in self._places():
                part = place.with_name(f"{place.name}.{os.getpid()}.{threading.get_ident()}.part")
                try:
                    place.parent.mkdir(parents=True, exist_ok=True) if place.parent != self.folder else None
                    self._write(part)
                    part.replace(place)
                except OSError:
                    with suppress(OSError):
                        part.unlink(missing_ok=True)
                    continue
                return

    def _write(self, part: Path) -> None:
        """Write the file: a line about it, the entries, and the rows of each at its place."""
        heads: list[list[Any]] = []
        at, kept = 0, {name: slot for name, slot in self._slots.items() if slot.stamp}
        for name, slot in kept.items():
            heads.append([name, slot.stamp, entry_json(slot.entry), at, len(slot.rows), zlib.crc32(slot.rows)])
            at += len(slot.rows)
        listed = orjson.dumps(heads, option=orjson.OPT_NON_STR_KEYS)
        about = {"format": FORMAT, "version": __version__, "bytes": len(listed), "crc32": zlib.crc32(listed)}
        with part.open("wb") as file:
            file.writelines([orjson.dumps(about), b"\n", listed, *(slot.rows for slot in kept.values())])


EMPTY = zlib.compress(b"[]", 1)


def _unpack(packed: bytes, most: int = 0) -> list[IndexedRow]:
    """Rows as they were packed; a ValueError where they have more than so many bytes."""
    unpacking = zlib.decompressobj()
    rows = unpacking.decompress(packed, most)
    if not unpacking.eof:
        raise ValueError(f"the rows of a run have more than {most:,} bytes")
    return [IndexedRow._make(row) for row in orjson.loads(rows)]


def _read_slots(file: BinaryIO, folder: Path) -> Iterator[tuple[str, _Slot]]:
    """The entries of a file; a ValueError where it is damaged, or of another version."""
    first = file.readline(1000)
    about = orjson.loads(first)
    if about.get("format") != FORMAT or about.get("version") != __version__:
        raise ValueError("of another version")
    left = os.fstat(file.fileno()).st_size - len(first)
    listed = file.read(min(max(about["bytes"], 0), left))
    if zlib.crc32(listed) != about["crc32"]:
        raise ValueError("damaged")
    packed = file.read()
    for name, stamp, entry, at, size, checksum in orjson.loads(listed):
        rows = packed[at : at + size]
        is_whole = zlib.crc32(rows) == checksum  # others are read from the run when they are needed
        yield name, _Slot(stamp, entry_from(entry, folder / name), rows if is_whole else b"")


def folder_stamp(path: Path) -> Stamp:
    """Time and number of a folder; empty where there is none. The time is that of the latest name that came or went."""
    try:
        status = path.stat()
    except OSError:
        return []
    return [status.st_mtime_ns, status.st_ino]


def run_stamp(path: Path) -> Stamp:
    """Time of the folder; name, size, time and number of each file that a summary is read from."""
    stamp = folder_stamp(path)
    if not stamp:
        return []
    for name in STAMPED:
        with suppress(OSError):
            status = (path / name).stat()
            stamp += [name, status.st_size, status.st_mtime_ns, status.st_ino]
    return stamp


def _is_racy(stamp: Stamp) -> bool:
    """Whether something changed just now."""
    times = [each for each in (*stamp[:1], *stamp[4::4]) if isinstance(each, int)]
    return any(0 <= time.time_ns() - each < JUST_NOW for each in times)


# ---- entries


def index_run(run: Run) -> IndexedRun:
    """Return what the index stores of a run."""
    headline_line = next((line for line in run.lines if line.main is not None), None)
    sources = {task: run.source(task) for task in run.tasks}
    return IndexedRun(
        name=run.name,
        path=run.path,
        model=run.model,
        tasks=list(dict.fromkeys(line.name for line in run.lines if line.depth == 0)),
        status=run.status,
        headline=headline_line.main if headline_line is not None else None,
        headline_of=headline_line.alias if headline_line is not None else "",
        n=run.scored,
        failed=run.failed,
        cost=run.cost,
        seconds=run.seconds,
        created=run.created,
        done=run.answered,
        expected=sum(run.sizes.values()) if run.is_running else None,
        settings=run.settings,
        problem=run.problem,
        tags=run.notes.tags,
        note=run.notes.note,
        step=training_step_of(run),
        sources={task: zlib.crc32(source.encode()) for task, source in sources.items() if source},
    )


def training_step_of(run: Run) -> int | None:
    """The training step in the name of a run, or of its model."""
    steps = (training_step(text) for text in (run.name, run.model))
    return next((step for step in steps if step is not None), None)


def entry_of(run: Run) -> tuple[IndexedRun, bytes]:
    """The entry of a run, and its rows; of a damaged one, the problem."""
    try:
        lines = {line.name: line for line in reversed(run.lines)}
        rows = [_row_json(line, row) for line in reversed(lines.values()) for row in line.numbers]
        return index_run(run), zlib.compress(orjson.dumps(rows, default=str, option=orjson.OPT_NON_STR_KEYS), 1)
    except DAMAGED as error:
        return index_run(_unreadable(run.path, run.name, error)), EMPTY


def _row_values(row: Row) -> list[AnyJSON]:
    number = row.estimate
    return [
        row.metric, row.filter, number.value, number.stderr, number.interval, number.n, row.higher_is_better, number.reason,
        row.failed, row.is_incomplete, number.method, row.owner,
    ]  # fmt: skip


def _row_of(written: Sequence[Any]) -> Row:
    metric, name, value, stderr, interval, n, better, reason, failed, is_incomplete, method, owner = written
    ends = None if interval is None else (interval[0], interval[1])
    estimate = Estimate(value, stderr, n, reason, ends, method)
    return Row(owner, metric, name, estimate, failed, is_incomplete=is_incomplete, higher_is_better=better)


def _row_json(line: ResultLine, row: Row) -> list[AnyJSON]:
    return [line.name, line.alias, line.is_group, line.depth, row is line.main, _row_values(row)]


STORED_FIELDS = tuple(each.name for each in fields(IndexedRun) if each.name not in ("path", "headline"))


def entry_json(entry: IndexedRun) -> list[AnyJSON]:
    """An entry as the file has it: its headline, and its other fields in their order."""
    headline = _row_values(entry.headline) if entry.headline is not None else None
    return [headline, *(getattr(entry, name) for name in STORED_FIELDS)]


def entry_from(written: Sequence[Any], path: Path) -> IndexedRun:
    """An entry that was written; a TypeError or ValueError where it is invalid."""
    headline, *values = written
    row = _row_of(headline) if headline is not None else None
    return IndexedRun(path=path, headline=row, **dict(zip(STORED_FIELDS, values, strict=True)))
