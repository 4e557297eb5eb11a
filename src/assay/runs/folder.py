"""The folder of a run for writers: opened once, resumed by opening it again, never mixed with another run's; and its scorings."""

import errno
import json
import logging
import os
import platform
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

import orjson

from assay.config.source import digest
from assay.errors import AssayError, Place, Problem
from assay.records import AnyJSON, JSONDict, JSONObject
from assay.redaction import redact_manifest, redact_results
from assay.results import NO_RESULTS, Results
from assay.runs import journal, lease
from assay.runs.files import (
    CHECKSUM,
    make_folder,
    new_file,
    read_bytes,
    replace_file,
    replace_folder,
    sync_folder,
    verify_json,
    with_checksum,
)
from assay.runs.journal import NAME as JOURNAL
from assay.runs.journal import Journal, JournalError, read_header
from assay.runs.lease import NAME as LOCK
from assay.runs.lease import Lease
from assay.runs.results_json import decode, encode
from assay.runs.samples.records import SampleRecord, lm_eval_records
from assay.runs.samples.writer import SampleWriter, file_name, written_checksum
from assay.runs.validation import FORMAT, is_too_deep, other_format, wrong_manifest
from assay.safe_text import cut
from assay.similar import nearest

T = TypeVar("T")
JOURNALS = (JOURNAL, f"{JOURNAL}.zst")
SCORED = "scored"
WAS_CUT_OFF = "was_cut_off"
"""The key of the manifest of a run of which a process was killed or stopped before its end."""
CUT_OFF = ("running", "interrupted", "stopped")
"""Status of a run whose process was killed or stopped: what the server was asked in its last moment is not known."""
LINK_OUTSIDE = "is a link that leads out of the folder of the run, and links are not followed"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
MANIFEST, RESULTS, SAMPLES = "manifest.json", "results.json", "samples"
UPLOADED = "uploaded.json"
"""The checksums of all files of a run on object storage: its last object."""
CHECKSUMS = "checksums"
"""The key of a finished run's manifest with the checksums of its other files: none of them can be another run's."""


class RunError(AssayError):
    """A run's folder cannot be used."""


class NoRun(RunError):
    """A folder holds no run."""


class OtherFormat(RunError):
    """A run has another format than this version of assay reads."""


def no_run(path: Path, what: str = "the folder holds no run") -> Problem:
    """Return the problem of a path without a run: an archive must be unpacked first."""
    if path.suffix.lower() == ".zip" and path.is_file():
        return Problem(Place(str(path)), "this is an archive", f"unpack it: `assay import {path} -o FOLDER`")
    beside = {each.parent.name for each in path.parent.glob(f"*/{MANIFEST}")} if not path.exists() else set()
    near = nearest(path.name, beside, count=1, only_slips=True)
    fix = f"did you mean {path.parent / near[0]}?" if near else "name the folder that --output_path gave to `assay run`"
    return Problem(Place(str(path)), what, fix)


@dataclass
class RunFolder:
    """A run on disk. `spec` is all that results depend on: a folder holds one."""

    path: Path
    spec: Mapping[str, Any]
    lease: Lease
    journal: Journal
    manifest: dict[str, Any]
    resumed: bool = False
    keepers: list["SampleSink | SampleWriters"] = field(default_factory=list)

    def keeper(self, task: str, log: bool, doc_ids: Callable[[int, int], int]) -> "SampleWriters":
        """Writers of a task's samples: Parquet, and optionally lm-eval's lines."""
        parquet = SampleWriter(self.path / SAMPLES, task)
        lines = LineWriter(self.path / f"samples_{file_name(task)}.jsonl", doc_ids) if log else None
        writers = SampleWriters([parquet, lines] if lines is not None else [parquet], parquet)
        self.keepers.append(writers)
        return writers

    _beaten: float = 0.0

    def beat_now_and_then(self) -> None:
        """Record that the run is alive, at most once a second."""
        if time.monotonic() - self._beaten > 1.0:
            self.lease.beat()
            self._warn_of_loss()
            self._beaten = time.monotonic()

    _is_lost: bool = False

    def _warn_of_loss(self) -> None:
        """Say once that another program took away what this run stores: its numbers are right, and it cannot be resumed."""
        if not self._is_lost and (what := self.journal.loss):
            self._is_lost, self.manifest["lost"] = True, f"{JOURNAL} was {what} during the run"
            logging.getLogger("assay").warning(
                "%s was %s during the run: the numbers are right, and a resumed run asks again for what is lost — keep other"
                " programs away from the folder of a run",
                self.path / JOURNAL,
                what,
            )

    def finish(self, results: Results, requests: Mapping[str, int]) -> None:
        """Put samples, results and manifest in place."""
        self._warn_of_loss()
        for keeper in self.keepers:
            keeper.place()
        if not self._is_lost:
            self.journal.compress()
        ended = {"status": results.status, "requests": requests, "finished": time.time()}
        write_results(self.path, results, {**self.manifest, **ended})

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Close the folder; record why the run stopped early, and report a full disk as such."""
        try:
            for keeper in self.keepers:
                keeper.abandon()
            if error is not None:
                status = "interrupted" if isinstance(error, KeyboardInterrupt) else "stopped"
                with suppress(OSError):
                    reason = {"status": status, "reason": str(error) or status}
                    write_manifest(self.path, {**self.manifest, **reason})
        finally:
            self.journal.close()
            self.lease.release()
        if isinstance(error, OSError) and (problem := self._unwritable(error)) is not None:
            raise RunError([problem]) from error

    def _unwritable(self, error: OSError) -> Problem | None:
        """The problem of a full disk, or of something in the place of a file; None for errors of other files."""
        place, what = error.filename2 or error.filename or "", f"the run cannot be written: {error.strerror or error}"
        rest = "and repeat the command: it resumes from the last written response"
        if error.errno in NO_ROOM:
            return Problem(Place(str(self.path)), what, f"free some space {rest}")
        if error.errno == errno.ENOENT:
            what = "files of the run were removed while it was written"
            return Problem(
                Place(str(self.path)), what, "keep other programs away from its folder, and repeat the command"
            )
        is_ours = str(place).startswith(f"{self.path}{os.sep}")
        return Problem(Place(str(place)), what, f"remove what is in its place {rest}") if is_ours else None


class SampleSink(Protocol):
    """A file of samples: written while a task is at work, whole when it has ended, in place when the run has."""

    def add(self, record: SampleRecord) -> None: ...
    def end(self) -> None: ...
    def place(self) -> None: ...
    def abandon(self) -> None: ...


class SampleWriters:
    """The files of one task's samples."""

    def __init__(self, writers: Sequence[SampleSink], parquet: SampleWriter) -> None:
        self._writers, self.parquet = writers, parquet
        self.adders: list[Callable[[SampleRecord], object]] = [writer.add for writer in writers]
        """What takes every sample."""
        self._ended = False

    def end(self) -> None:
        """Write what is left: nothing of the task's samples is held in memory from then on."""
        if not self._ended:
            self._ended = True
            for writer in self._writers:
                writer.end()

    def place(self) -> None:
        """Give the files their names."""
        self.end()
        for writer in self._writers:
            writer.place()

    def abandon(self) -> None:
        """Let go of files that were never finished."""
        for writer in self._writers:
            with suppress(OSError):
                writer.abandon()


class LineWriter:
    """Samples as lm-eval writes them, one line each; filter by filter, as there."""

    def __init__(
        self,
        path: Path,
        doc_ids: Callable[[int, int], int],
        records: Callable[[SampleRecord, int], Iterable[JSONObject]] = lm_eval_records,
    ) -> None:
        self.path = path
        self._doc_ids = doc_ids
        self._records = records
        self._parts: dict[str, Any] = {}
        self._number = 0

    def add(self, kept: SampleRecord) -> None:
        for record in self._records(kept, self._doc_ids(self._number, kept.sample.doc_id)):
            part = self._parts.get(record["filter"])
            if part is None:
                part = self._parts[record["filter"]] = self._part(len(self._parts)).open("wb")
            part.write(orjson.dumps(_as_logged(record), default=str, option=orjson.OPT_NON_STR_KEYS) + b"\n")
        self._number += 1

    def end(self) -> None:
        for part in self._parts.values():
            part.close()
        with self._part("whole").open("wb") as whole:
            for number in range(len(self._parts)):
                with self._part(number).open("rb") as part:
                    shutil.copyfileobj(part, whole)
                self._part(number).unlink()

    def place(self) -> None:
        replace_file(self._part("whole"), self.path)

    def abandon(self) -> None:
        """Leave nothing of a file that was not finished."""
        for part in self._parts.values():
            with suppress(OSError):
                part.close()
        for name in ("whole", *range(len(self._parts))):
            self._part(name).unlink(missing_ok=True)

    def _part(self, name: AnyJSON) -> Path:
        return self.path.with_name(f"{self.path.name}.{name}.part")


def _as_logged(record: JSONObject) -> JSONDict:
    """A record in the shape of lm-eval's files: arguments by number, responses as texts."""
    named = {
        f"gen_args_{n}": {f"arg_{m}": value for m, value in enumerate(each)}
        for n, each in enumerate(record["arguments"])
    }
    return {
        **record,
        "target": str(record["target"]),
        "arguments": named,
        "resps": _as_texts(record["resps"]),
        "filtered_resps": _as_texts(record["filtered_resps"]),
    }


def _as_texts(value: AnyJSON) -> AnyJSON:
    return [_as_texts(each) for each in value] if isinstance(value, list | tuple) else str(value)


def as_written(spec: JSONObject) -> JSONDict:
    """A spec, options or arguments as they are read back from a manifest: without secrets."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    written: dict[str, Any] = orjson.loads(orjson.dumps(redact_manifest(spec), default=str, option=options))
    return written


def open_run(path: Path, spec: JSONObject, facts: JSONObject, *, force: bool) -> RunFolder:
    """The folder of a run: new, or of the same run, which is resumed. Another run's folder is refused, or moved aside."""
    spec = as_written(spec)
    try:
        make_folder(path)
        known = _known(path, force)
        if known is not None and known.get("spec") != spec:
            if not force:
                raise RunError([_other_run(path, known.get("spec") or {}, spec)])
            Lease(path).release()  # not from under a run that is going on
            path.rename(_aside(path))
            make_folder(path)
            known = None
        elif known is None and not _has_journal(path) and any(not _is_ours(entry) for entry in path.iterdir()):
            raise RunError.at(path, "the folder contains other files and no run", "choose a new folder")
        _refuse_foreign_journal(path, known or {})
        held = Lease(path)
        was_cut_off = known is not None and known.get("status") in CUT_OFF
        passing = ("reason", "status", "requests", "finished", CHECKSUMS)  # written at the end of a run
        manifest = {key: value for key, value in (known or {}).items() if key not in passing} or {
            "format": FORMAT,
            "created": time.time(),
            **as_written(facts),
            "spec": spec,
            "spec_digest": digest(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)),
        }
        if was_cut_off:
            manifest[WAS_CUT_OFF] = True
        write_manifest(path, {**manifest, "status": "running"})
        responses = Journal(path / journal.NAME, manifest)
        if responses.damaged:
            manifest["damaged_lines"] = manifest.get("damaged_lines", 0) + responses.damaged
        return RunFolder(path, spec, held, responses, manifest, resumed=known is not None)
    except OSError as error:
        what = f"the folder of the run cannot be written: {error.strerror or error}"
        raise RunError.at(path, what, "choose another --output_path") from error


def _refuse_foreign_journal(path: Path, manifest: JSONObject) -> None:
    """Refuse a journal that another run began: its answers may be those of other requests."""
    mine = manifest.get("spec_digest")
    theirs = (read_header(path / JOURNAL) or {}).get("spec_digest") if mine else mine
    if theirs not in (None, mine):
        fix = "restore the journal of this run; or remove it, and the requests are sent again"
        raise RunError.at(path / JOURNAL, "the responses are those of another run", fix)


def _has_journal(path: Path) -> bool:
    """Whether answers are there: their keys hold the model and the request, so no other run can take them for its own."""
    return any((path / name).is_file() for name in (journal.NAME, f"{journal.NAME}.zst"))


def _aside(path: Path) -> Path:
    """A name for an old run that nothing has yet."""
    name = f"{path.name}.old-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (name, *(f"{name}-{number}" for number in range(2, 10_000)))
    return next(path.with_name(each) for each in names if not path.with_name(each).exists())


def is_moved_aside(name: str) -> bool:
    """Whether a run has the name of one that `--force` moved aside, or is a scoring of one.

    >>> is_moved_aside("a/first.old-20261116-201500"), is_moved_aside("x.old-20261116-201500-2/scored/001"), is_moved_aside("older")
    (True, True, False)
    """
    return ".old-" in name and any(re.fullmatch(r".+\.old-\d{8}-\d{6}(-\d+)?", part) for part in name.split("/"))


def _is_ours(entry: Path) -> bool:
    """Whether a file is what a run leaves that ended before it had a manifest."""
    return entry.name in (lease.NAME, journal.NAME, UPLOADED) or entry.name == f".{MANIFEST}.part"


def _other_run(path: Path, before: JSONObject, now: JSONObject) -> Problem:
    fix = "choose another --output_path, or --force to move the old run aside"
    return Problem(Place(str(path)), f"the folder holds another run ({difference(before, now)})", fix)


def difference(before: JSONObject, now: JSONObject) -> str:
    """Describe briefly how two specs differ; empty where they are equal."""
    differing = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    return "; ".join(_difference(key, before.get(key), now.get(key)) for key in differing[:4])


def _difference(key: str, there: AnyJSON, here: AnyJSON) -> str:
    """Describe a difference; for mappings, such as the tasks with their settings and data, by the keys that differ."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        names = sorted(name for name in {*there, *here} if there.get(name) != here.get(name))
        return f"{key}: {', '.join(names[:5])} changed" + (f", and {len(names) - 5} more" if len(names) > 5 else "")
    return f"{key}: {_short(there)} there, {_short(here)} here"


def _short(value: AnyJSON) -> str:
    return cut(json.dumps(value, ensure_ascii=False), 60)


def _known(path: Path, force: bool) -> JSONDict | None:
    """The manifest that a folder has already. One that is lost or damaged is taken from the header of the journal; without
    that, a damaged one is as good as another run's where that is moved aside."""
    try:
        manifest = read_manifest(path)
    except OtherFormat:
        if not force:
            raise
        return {"spec": None}
    except RunError:
        manifest = manifest_from_journal(path)
        if not manifest and not force:
            raise
        return manifest or {"spec": None}
    return manifest or manifest_from_journal(path) or None


def manifest_from_journal(path: Path) -> JSONDict:
    """The manifest that a run began with, from the header of its journal; empty where there is none."""
    try:
        manifest = read_header(path / journal.NAME)
    except JournalError as error:
        raise OtherFormat(error.problems) from None
    except OSError:
        return {}
    if manifest is None or wrong_manifest(manifest):
        return {}
    logging.getLogger("assay").warning("%s: lost or damaged; restored from the journal", path / MANIFEST)
    return redact_manifest(manifest)


def read_manifest(folder: Path) -> JSONDict:
    """Read and check the manifest of a run, without secrets that others wrote; empty where there is none. A damaged one is a
    RunError. For `Run.open` and for writers only: readers open a Run."""

    def check(content: JSONDict) -> JSONDict:
        what = wrong_manifest(content)
        if what:
            raise ValueError(what)
        return redact_manifest(content)

    fix = "restore a copy of it, or choose another folder for a new run"
    return _read_checked(folder / MANIFEST, check, "", fix) or {}


def read_results(folder: Path, checksum: str = "") -> Results:
    """Read and check the results of a run, without secrets that others wrote; empty where there are none. Damaged ones, or those
    with another checksum than the manifest has for them, are a RunError."""
    fix = "repeat the command of the run: it sends no request twice, and rewrites its results"
    return _read_checked(folder / RESULTS, _decode_results, checksum, fix) or NO_RESULTS


def _decode_results(content: AnyJSON) -> Results:
    """Read the content of results.json; what is not as it should be, which `decode` says, is not walked before."""
    is_usual = isinstance(content, dict) and not is_too_deep(content)
    return decode(redact_results(content) if is_usual else content)


def _read_checked(path: Path, decode: Callable[[JSONDict], T], checksum: str, fix: str) -> T | None:
    """Read a file, and make of its content what `decode` does; a ValueError says what is wrong. None where there is no file."""
    try:
        data = read_bytes(path)
        content = orjson.loads(data)
        if what := other_format(content):
            raise OtherFormat([Problem(Place(str(path)), what, "use the version of assay that wrote it")])
        known = verify_json(data)
        if isinstance(content, dict):
            content.pop(CHECKSUM, None)
        decoded = decode(content)
        if not (known and checksum and known != checksum):
            return decoded
        what = f"{MANIFEST} has another checksum for it, so one of them is of another run"
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        what = error.strerror or str(error)
    except orjson.JSONDecodeError as error:
        what = f"it is not JSON ({error})"
    except ValueError as error:
        what = str(error)
    raise RunError.at(path, f"the file is damaged: {what}", fix)


def write_json(path: Path, value: JSONObject) -> None:
    """Write a file in one move; what cannot be JSON is written as text."""
    _write(path, _indented(value) + b"\n")


def write_checked(path: Path, value: JSONObject) -> None:
    """Write a file in one move, with its checksum."""
    _write(path, with_checksum(_indented(value)))


def write_manifest(folder: Path, manifest: JSONObject) -> None:
    """Write the manifest of a run, without secrets."""
    write_checked(folder / MANIFEST, redact_manifest(manifest))


def write_results(folder: Path, results: Results, manifest: JSONObject) -> None:
    """Write the results of a run, and then its manifest, with the checksums of the results and of all samples; without secrets."""
    if (folder / SAMPLES).is_dir():
        sync_folder(folder / SAMPLES)  # once, however many files were given their names
    data = with_checksum(_indented(redact_results(encode(results))))
    _write(folder / RESULTS, data)
    files = sorted(path for path in (folder / SAMPLES).glob("*.parquet") if path.is_file())
    samples = {f"{SAMPLES}/{path.name}": written_checksum(path)[1] for path in files}
    write_manifest(folder, {**manifest, CHECKSUMS: {RESULTS: verify_json(data), **samples}})


def _indented(value: JSONObject) -> bytes:
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    return orjson.dumps(value, default=str, option=options)


def _write(path: Path, data: bytes) -> None:
    with new_file(path) as part:
        part.write_bytes(data)


def environment() -> JSONDict:
    """Describe the environment of a run: versions, the state of the code around it, the machine."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": dict(_installed_versions()),
        "git": git_state(),
    }


@cache  # reading them takes an eighth of a small run
def _installed_versions() -> Mapping[str, str]:
    packages = ("assay", "numpy", "pyarrow", "jinja2", "torch", "transformers", "tokenizers", "datasets", "sacrebleu")
    versions = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def git_state() -> JSONDict | None:
    """Return the commit of the working directory and whether it has changes; None outside of a repository."""
    # else it would write the index, and leave its lock behind where the time is over
    command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "(initial)")
    return None if commit == "(initial)" else {"commit": commit, "dirty": any(line[:1] != "#" for line in lines)}


def is_writable(path: Path) -> bool:
    """Whether a folder can be made or written there."""
    existing = next((each for each in (path, *path.parents) if each.exists()), None)
    return existing is not None and os.access(existing, os.W_OK)


def is_outside(folder: Path, file: Path) -> bool:
    """Whether a file is outside of the folder: it, or a folder above it, is a link."""
    return not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))  # `resolve` raises at a loop


def links_outside(folder: Path) -> list[str]:
    """List the files and samples of a run that are links out of its folder. Only links are resolved: there may be many files."""
    return [name for name in _links(folder) if is_outside(folder, folder / name)]


def _links(folder: Path) -> Iterator[str]:
    yield from (name for name in (MANIFEST, RESULTS, LOCK, SAMPLES, *JOURNALS) if (folder / name).is_symlink())
    try:
        entries = list(os.scandir(folder / SAMPLES))
    except OSError:
        return
    yield from (f"{SAMPLES}/{entry.name}" for entry in entries if entry.is_symlink())


def refuse_links_outside(folder: Path) -> None:
    """Refuse a run with files outside of its folder."""
    links = links_outside(folder)
    if links:
        raise RunError.at(folder / links[0], LINK_OUTSIDE, "put the file itself there")


def scorings(folder: Path) -> list[Path]:
    """The scorings of a run, the latest last."""
    folders = (folder / SCORED).glob("[0-9]*") if (folder / SCORED).is_dir() else ()
    return sorted((path for path in folders if path.name.isdecimal()), key=lambda path: int(path.name))


@contextmanager
def new_scoring(folder: Path) -> Iterator[Path]:
    """A folder to write a scoring into. When all went well `publish_scoring` gives it its number; else nothing is left of it."""
    make_folder(folder / SCORED)
    with staging_folder(folder / SCORED) as part:
        yield part


@contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """A new folder in another one, called after this process; it is taken away in the end if it was not given another name.

    What processes of this machine left that were killed is taken away, too.
    """
    host = re.sub(r"[^\w.]", "_", socket.gethostname())
    for left in folder.glob(".part-*"):
        if _is_stale(left, host):
            shutil.rmtree(left, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=f".part-{host}-{os.getpid()}-", dir=folder))
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _is_stale(part: Path, host: str) -> bool:
    """Whether the process of this machine that made a staging folder is dead; of other machines nothing is known."""
    owner = part.name.removeprefix(f".part-{host}-").partition("-")[0]
    return owner.isdecimal() and not _lives(int(owner))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return True


def publish_scoring(part: Path) -> Path:
    """Give a scoring the next free number, however many are written at once."""
    part.chmod(0o755)
    while True:
        there = scorings(part.parent.parent)
        target = part.with_name(f"{int(there[-1].name) + 1 if there else 1:03}")
        try:
            return replace_folder(part, target)
        except OSError:
            if not target.exists():
                raise
