"""Runs on object storage, at any URL that fsspec opens: copied to this machine to be read or continued, uploaded in the end.

A run is always written to a local folder first: its journal must be synced after every response, which no object storage
can. The last object of an upload is `uploaded.json`, with the checksums of all others: an upload that broke off, and an
object that was truncated, are noticed by whoever reads the run.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import file_digest
from pathlib import Path, PurePosixPath
from typing import Any

from assay.config.folders import RUNS_DIR, cache_folder, runs_folder
from assay.config.source import digest
from assay.errors import ConfigError, Problem, installing
from assay.redaction import conceal, without_queries
from assay.runs.files import make_folder, new_file
from assay.runs.folder import MANIFEST, RESULTS, NoRun, RunError, staging_folder
from assay.runs.folder import UPLOADED as INDEX
from assay.runs.lease import NAME as LOCK
from assay.runs.lease import is_held
from assay.user_code import user_code

SYNCED = ".{}.synced.json"
"""The name of a file beside a local copy: the objects, and the copy's checksums, when it was last equal to the storage."""
COPIES, REMOTE = "copies", "remote"
_URL = re.compile(r"([a-z][a-z0-9+.-]+(?:::[a-z0-9+.-]+)*):/+(?=[^/])")
_SAFE = re.compile(r"[^\w.@#+=-]+")
FLAT = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "memory", "hf"}
"""Storages without folders; in some, making one would make a bucket."""
TOKENS = (
    "ETag",
    "etag",
    "md5",
    "md5Hash",
    "content_md5",
    "checksum",
    "LastModified",
    "last_modified",
    "mtime",
    "created",
)
"""The facts of an object that change when it is written again, by the names that storages have for them."""
Tokens = Mapping[str, str]
Announce = Callable[[str], None]


class UploadError(RunError):
    """A run could not be uploaded; it is complete in `folder`."""

    folder: Path


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a URL, also one that was taken for a path, which leaves it one slash.

    >>> is_url("s3://bucket/run"), is_url(Path("s3://bucket/run")), is_url("runs/a:b"), is_url("C:/runs")
    (True, True, False, False)
    """
    return _URL.match(os.fspath(path)) is not None


def refuse_url(path: str | os.PathLike[str], place: str = "") -> None:
    """Refuse a URL where a file of this machine is written: it would become the name of a folder here."""
    if is_url(path):
        shown = without_queries(url_of(path))
        what = f"{shown} is a URL, and this is written on this machine"
        fix = "write it here, and copy it there with the tool of the storage; runs: assay runs push RUN URL"
        raise ConfigError.at(place or shown, what, fix)


def url_of(path: str | os.PathLike[str]) -> str:
    """Return a URL with its slashes.

    >>> url_of(Path("s3://bucket/run")), url_of(Path("file:///tmp/run/"))
    ('s3://bucket/run', 'file:///tmp/run')
    """
    scheme, _, rest = os.fspath(path).partition(":/")
    before = "///" if scheme == "file" else "//"
    return f"{scheme}:{before}{rest.strip('/')}"


@dataclass(frozen=True)
class Storage:
    """A folder on a storage. Every call of its library reports errors as a RunError about the URL, without secrets."""

    url: str

    @property
    def shown(self) -> str:
        return without_queries(self.url)

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            fix = installing("object-storage")
            raise ConfigError.at(self.shown, "a URL needs fsspec, which is not installed", fix) from None
        try:
            files, root = url_to_fs(self.url)
        except ImportError as error:
            fix = f"{installing('object-storage')} for s3://; for others install that library"
            raise ConfigError.at(self.shown, conceal(without_queries(str(error))), fix) from None
        except ValueError as error:
            what = conceal(without_queries(str(error)))
            raise ConfigError.at(self.shown, what, "such as s3://bucket/folder") from None
        return files, str(root).rstrip("/")

    def error(self, reason: str) -> RunError:
        """An error of the storage, with its probable remedy."""
        kinds = {
            "PermissionError": "your credentials must allow to list, read and write there",
            "NoCredentials": "set the credentials of the storage, such as AWS_ACCESS_KEY_ID",
            "FileNotFoundError": "check the URL: the bucket must exist",
        }
        fix = next(
            (text for name, text in kinds.items() if name in reason), "check the URL, the network and your rights"
        )
        return RunError.at(self.shown, reason, fix)

    def _calls(self, what: str) -> user_code:
        return user_code(what, self.error)

    def listing(self) -> dict[str, str]:
        """Every object below the URL, by its name from there, with a text that changes when it is written again."""
        files, root = self._opened
        with self._calls("cannot be listed"):
            files.invalidate_cache()
            try:
                objects: Mapping[str, Mapping[str, Any]] = files.find(root, detail=True)
            except FileNotFoundError:
                if "/" in root.strip("/"):
                    files.ls(root.strip("/").partition("/")[0])  # a missing bucket is not an empty folder
                return {}
        names = {
            str(path).lstrip("/").removeprefix(root.lstrip("/")).strip("/"): about for path, about in objects.items()
        }
        return {name: _token(about) for name, about in names.items() if _is_safe(name)}

    def read(self, name: str) -> bytes:
        """The content of a small object; empty where there is none."""
        files, root = self._opened
        with self._calls(f"{name} cannot be read"):
            try:
                return bytes(files.cat_file(f"{root}/{name}"))
            except FileNotFoundError:
                return b""

    def download(self, name: str, target: Path) -> None:
        files, root = self._opened
        make_folder(target.parent)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        with self._calls(f"{name} cannot be downloaded"):
            try:
                files.get_file(f"{root}/{name}", str(part))
                part.replace(target)
            finally:
                with suppress(OSError):
                    part.unlink()

    def upload(self, name: str, source: Path) -> None:
        files, root = self._opened
        with self._calls(f"{name} cannot be uploaded"):
            self._make_folders(name)
            files.put_file(str(source), f"{root}/{name}")

    def write(self, name: str, content: bytes) -> None:
        files, root = self._opened
        with self._calls(f"{name} cannot be written"):
            self._make_folders(name)
            files.pipe_file(f"{root}/{name}", content)

    def remove(self, name: str) -> None:
        files, root = self._opened
        with self._calls(f"{name} cannot be removed"), suppress(FileNotFoundError):
            files.rm_file(f"{root}/{name}")

    def _make_folders(self, name: str) -> None:
        files, root = self._opened
        protocols = {files.protocol} if isinstance(files.protocol, str) else set(files.protocol)
        if protocols.isdisjoint(FLAT):
            files.makedirs(str(PurePosixPath(f"{root}/{name}").parent), exist_ok=True)

    def is_object(self) -> bool:
        """Whether the URL is that of a single object, such as a file of `assay pack`."""
        files, root = self._opened
        with self._calls("cannot be read"):
            return bool(files.isfile(root))

    def index(self) -> dict[str, str]:
        """The checksums of an upload; empty where there is none, or one has begun."""
        return _checksums(self.read(INDEX))


def _token(about: Mapping[str, Any]) -> str:
    return "|".join([str(about.get("size")), *(f"{key}={about[key]}" for key in TOKENS if about.get(key) is not None)])


def _is_safe(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and ".." not in parts and not name.startswith("/") and "\\" not in name


def _checksums(content: bytes) -> dict[str, str]:
    try:
        files = json.loads(content or b"{}").get("files", {})
    except (ValueError, AttributeError):
        return {}
    return {str(name): str(checksum) for name, checksum in files.items()} if isinstance(files, dict) else {}


# ---- reading


def local_folder(path: str | os.PathLike[str], names: Iterable[str] | None = None) -> Path:
    """A path; of a URL a copy in the cache folder that is as the storage is now, of a folder or of a file of `assay pack`. With
    `names`, only files of these names."""
    if not is_url(path):
        return Path(path)
    storage = Storage(url_of(path))
    target = _folder_of(storage.url, cache_folder() / COPIES)
    there = storage.listing()
    if not there and storage.url.lower().endswith(".zip") and storage.is_object():
        above, _, name = storage.url.rpartition("/")
        Storage(above).download(name, target)
        _write_synced(target, storage, {}, None)
        return target
    if not there:
        raise NoRun.at(storage.shown, "there is no run at this URL", "check the URL, and your rights")
    if set(there) == {INDEX}:
        what = "a run has begun to be written here, and nothing of it is uploaded yet"
        raise NoRun.at(storage.shown, what, "wait for its end, or resume it with its command")
    if names is not None:
        there = {name: token for name, token in there.items() if PurePosixPath(name).name in (*names, INDEX)}
    _copy(storage, there, target, is_whole=names is None)
    return target


def _folder_of(url: str, above: Path) -> Path:
    name = _SAFE.sub("_", url.partition("?")[0].rpartition("/")[2])[:60] or "run"  # a query may be a signature
    return above / digest(url.encode())[:12] / name


def _copy(storage: Storage, there: Tokens, target: Path, *, is_whole: bool = True) -> None:
    """Make a local folder equal to the storage: what has not changed stays, and nothing is put in place that is not as it was
    uploaded."""
    before = _read_synced(target)
    stale = [name for name, token in there.items() if before.get(name) != token or not (target / name).is_file()]
    make_folder(target.parent)
    with staging_folder(target.parent) as part:
        for name in stale:
            storage.download(name, part / name)
        fetched = {name: (part if name in set(stale) else target) / name for name in there}
        wrong = [name for name in _wrong(fetched, set(stale)) if is_whole or name in there]
        if wrong:
            more = f"; and {len(wrong) - 1} more" if wrong[1:] else ""
            what = f"{wrong[0]} is missing, or not as it was uploaded{more}"
            fix = "if the run is being uploaded, wait; else upload it again: assay runs push FOLDER URL --force"
            raise RunError.at(storage.shown, what, fix)
        for name in stale:
            make_folder((target / name).parent)
            (part / name).replace(target / name)
    for name in before.keys() - there.keys() if is_whole else ():
        with suppress(OSError):
            (target / name).unlink()
    _write_synced(target, storage, {**({} if is_whole else before), **there}, _index_of(target) if is_whole else None)


def _wrong(fetched: Mapping[str, Path], new: set[str]) -> Iterator[str]:
    """The files that are not as an upload's index says; every run below the folder may have one."""
    for name in fetched:
        inside = PurePosixPath(name)
        if inside.name == INDEX:
            for listed, checksum in _checksums(fetched[name].read_bytes()).items():
                file = (inside.parent / listed).as_posix()
                if file not in fetched or (not new.isdisjoint((file, name)) and _checksum(fetched[file]) != checksum):
                    yield file


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _synced(target: Path) -> dict[str, Any]:
    try:
        content = json.loads(_synced_file(target).read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _synced_file(target: Path) -> Path:
    return target.resolve().with_name(SYNCED.format(target.resolve().name))


def _read_synced(target: Path) -> dict[str, str]:
    return dict(_synced(target).get("files") or {})


def _write_synced(target: Path, storage: Storage, tokens: Tokens, checksums: Tokens | None) -> None:
    """Record the objects of the storage; without `checksums`, the local copy may have more than they."""
    if not target.is_file():
        make_folder(target)
    known = _synced(target).get("checksums") or {} if checksums is None else dict(checksums)
    file = _synced_file(target)
    with new_file(file) as part:
        part.write_text(json.dumps({"url": storage.shown, "files": dict(tokens), "checksums": known}))


# ---- writing


def working_folder(url: str) -> Path:
    """The local folder that a run at a URL is written to: below the folder of runs, so that it outlives a failed upload."""
    above = runs_folder()
    return _folder_of(url_of(url), Path(RUNS_DIR if is_url(above) else above) / REMOTE)


@contextmanager
def uploaded(path: str | os.PathLike[str], announce: Announce | None = None) -> Iterator[Path]:
    """The local folder of a run that is written there; one at a URL is fetched before, and uploaded after, however it ends."""
    if not is_url(path):
        yield Path(path)
        return
    storage, say = Storage(url_of(path)), announce or (lambda _: None)
    folder = working_folder(storage.url)
    fetch(storage, folder, say)
    has_ended = False
    try:
        yield folder
        has_ended = True
    finally:
        if not has_ended and _files(folder) and not is_held(folder) and not _is_unchanged(folder):
            _upload_rest(storage, folder, say)
    say(f"uploading to {storage.shown} …")
    count = push(folder, storage.url)
    say(f"uploaded: {storage.shown} ({count} files; the local copy is in {folder})")


def _upload_rest(storage: Storage, folder: Path, say: Announce) -> None:
    """Upload what a run has that ended early; its own error is the one that is raised."""
    try:
        say(f"uploading what is there to {storage.shown} …")
        push(folder, storage.url)
        say("uploaded: the same command resumes it, on any machine")
    except (RunError, OSError) as error:
        logging.getLogger("assay").error("%s", error)


def shown_place(folder: Path) -> str:
    """Where a run that was written can be found: its URL, without secrets, or its folder."""
    return _url_shown(folder) or str(folder.resolve())


def _shown_parts(folder: Path) -> tuple[str, ...]:
    """The parts of the place of a run, of which labels are made; no line ends in them."""
    return PurePosixPath(shown_place(folder).replace("\n", "⏎")).parts


def short_names(folders: Iterable[Path]) -> list[str]:
    """Name runs by the shortest ends of their paths that differ; a run that is named twice has the same name twice."""
    parts = [_shown_parts(folder) for folder in folders]
    length = 1
    while len({part[-length:] for part in parts}) < len(set(parts)):
        length += 1
    return ["/".join(part[-length:]) for part in parts]


def shown_path(path: str | os.PathLike[str]) -> str:
    """A run as it was named: its URL, without secrets, also where its copy is read; else the path as it is."""
    return _url_shown(Path(path)) or os.fspath(path)


def _url_shown(path: Path) -> str | None:
    if is_url(path):
        return without_queries(url_of(path))
    is_copy = path.parent.parent.name in (COPIES, REMOTE)
    return str(_synced(path).get("url") or "") or None if is_copy else None


def check_storage(*paths: str | None) -> None:
    """Refuse URLs that cannot be opened: before a model is loaded."""
    for path in paths:
        if path is not None and is_url(path):
            Storage(url_of(path)).listing()


def fetch(storage: Storage, folder: Path, say: Announce) -> None:
    """Make the local folder of a run what its URL has, unless it has more; a URL that cannot be written is refused now."""
    there = storage.listing()
    before = _read_synced(folder)
    mine = _files(folder)
    if not mine or (there != before and _is_unchanged(folder)):
        if any(name != INDEX for name in there):
            say(f"{storage.shown}: a run is there, and is continued; {len(there)} files are fetched to {folder}")
        _copy(storage, there, folder)
    elif there != before:
        what = f"the run there has changed since its copy in {folder} was made, and so has the copy"
        fix = f"assay runs push {folder} URL with another URL; then remove the folder, and repeat the command"
        raise RunError.at(storage.shown, what, fix)
    else:
        say(f"{storage.shown}: continued from its copy in {folder}")
    if INDEX not in there:
        storage.write(INDEX, b'{"files": {}}')
    _write_synced(folder, storage, storage.listing(), None)


def push(folder: Path, url: str, *, force: bool = False) -> int:
    """Upload a run: the files that have changed, then the list of all; returns their number. The local copy stays."""
    storage = Storage(url_of(url))
    try:
        return _push(storage, folder, force)
    except RunError as error:
        again = f"the run is in {folder}; upload it again: assay runs push {folder} {storage.shown}"
        failed = UploadError([Problem(each.place, each.what, f"{each.fix}; {again}") for each in error.problems])
        failed.folder = folder
        raise failed from error


def _push(storage: Storage, folder: Path, force: bool) -> int:
    if is_held(folder):
        raise RunError.at(folder, "the run is in progress", "wait for its end")
    there, known = storage.listing(), _read_synced(folder)
    if not force and any(name != INDEX and known.get(name) != token for name, token in there.items()):
        what = "another run is there, or another copy of this one was uploaded since"
        raise RunError.at(storage.shown, what, "choose another URL, or --force to replace it")
    mine, listed = _index_of(folder), storage.index()
    changed = [
        name for name, each in mine.items() if force or listed.get(name) != each or not _has_size(there, folder, name)
    ]
    for name in changed:
        storage.upload(name, folder / name)
    for name in there.keys() - mine.keys() - {INDEX}:
        storage.remove(name)
    storage.write(INDEX, json.dumps({"files": mine}, indent=1).encode())
    now = storage.listing()
    short = [name for name in mine if not _has_size(now, folder, name)]
    if short:
        what = f"{short[0]} is not there as it was uploaded"
        raise RunError.at(storage.shown, what, "check the storage")
    _write_synced(folder, storage, now, mine)
    return len(changed)


def _has_size(there: Tokens, folder: Path, name: str) -> bool:
    return there.get(name, "").partition("|")[0] == str((folder / name).stat().st_size)


def _files(folder: Path) -> list[str]:
    """The files of a run that are uploaded: all but its lock, and files that are not written to their end."""
    names = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        is_ours = path.name not in (LOCK, INDEX) and not path.name.endswith(".part")
        if is_ours and path.is_file() and not path.is_symlink() and not any(".part" in part for part in inside.parts):
            names.append(inside.as_posix())
    return names


def _index_of(folder: Path) -> dict[str, str]:
    return {name: _checksum(folder / name) for name in _files(folder)}


def _is_unchanged(folder: Path) -> bool:
    """Whether a local copy is as it was when it was last equal to the storage."""
    return bool(_synced(folder).get("checksums") == _index_of(folder))


HEADS = (MANIFEST, RESULTS)
"""The files that a list of runs is made of."""


def write_beside(output: str, name: str, content: bytes) -> str:
    """Write a file into a folder of runs, or at its URL; returns the folder, to be shown."""
    if is_url(output):
        storage = Storage(url_of(output))
        storage.write(name, content)
        return storage.shown
    make_folder(Path(output))
    with new_file(Path(output) / name) as part:
        part.write_bytes(content)
    return str(Path(output).resolve())
