"""The index of all roots: their files, names and tags, cached on disk. A damaged cache is rebuilt."""

import gc
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from assay.catalog.cache import code_key, read_cached, write_cached
from assay.catalog.roots import Root
from assay.config.fields import Fields
from assay.config.source import DIGEST_LENGTH, digest
from assay.dialect import Dialect, dialect_of
from assay.errors import Place, Problem
from assay.records import JSON, AnyJSON

Kind = Literal["task", "group", "format", "template", "broken", "graph"]
"""A graph is a task; the kind `graph` is for one without a name, which is found by its path."""


class CatalogEntry(NamedTuple):
    """One file of the catalog: enough to list, search and select it; `error` is why it cannot be used.

    A tuple, not a dataclass: fourteen thousand of them are built before a warm `assay ls` prints a line.
    """

    kind: Kind
    name: str
    path: str
    tags: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    output_type: str = ""
    error: str = ""


Stamp = tuple[int, int]
"""Size and modification time, by which a change is noticed without reading the file."""
NOT_A_FILE: Stamp = (-1, 0)
"""The stamp of a missing or irregular file."""
_SKIPPED = ("__pycache__", "node_modules")


def scan(root: Root) -> dict[str, Stamp]:
    """Every file of a root whose name ends in yaml or yml, by path, with its stamp.

    Links to folders are followed after all real folders, and only to folders not visited yet: they may form a loop.
    """
    files: dict[str, Stamp] = {}
    visited: list[str] = []
    waiting, links = [root.path], list[str]()
    met: set[tuple[int, int]] = set()
    while waiting or links:
        if not waiting:
            met.update(map(_identity, visited))
            visited, link = [], links.pop()
            if _identity(link) in met:
                continue
            waiting.append(link)
        folder = waiting.pop()
        visited.append(folder)
        inner, linked = _read_folder(folder, files)
        waiting += inner if root.deep else []
        links += linked if root.deep else []
    return files


def _read_folder(folder: str, files: dict[str, Stamp]) -> tuple[list[str], list[str]]:
    """Add the files of one folder to `files`; returns its folders, and its links to folders."""
    inner: list[str] = []
    linked: list[str] = []
    try:
        # By its handle, not its path: the path of every file would be walked again from the root of the disk.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return inner, linked  # a folder that is not readable has no tasks for this user; the rest is indexed
    try:
        with os.scandir(handle) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(("yaml", "yml")) and not _is_dir(entry):
                    files[f"{folder}/{name}"] = _stamp(entry)
                elif name not in _SKIPPED and not name.startswith(".") and _is_dir(entry):
                    (linked if entry.is_symlink() else inner).append(f"{folder}/{name}")
    finally:
        os.close(handle)
    return inner, linked


def _is_dir(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads to itself


def _identity(folder: str) -> tuple[int, int]:
    try:
        status = os.stat(folder)  # noqa: PTH116  # as below
    except OSError:
        return (-1, -1)
    return (status.st_dev, status.st_ino)


def stamps(paths: Iterable[str]) -> dict[str, Stamp]:
    """The stamps of files outside a root."""
    return {path: _stamp(path) for path in paths}


def is_config(path: str) -> bool:
    """Whether a file can define a task; others are only included."""
    return path.endswith((".yaml", ".yml"))


def _stamp(file: "os.DirEntry[str] | str") -> Stamp:
    try:
        status = os.stat(file) if isinstance(file, str) else file.stat()  # noqa: PTH116  # 14,000 Path objects cost more
    except OSError:
        return NOT_A_FILE
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else NOT_A_FILE


@dataclass(frozen=True)
class Snapshot:
    """The stored index of one root: its files and their includes elsewhere, with stamps; and the entries.

    `digests` are those of all these files in this order, joined. `made_from` lists for each entry the numbers of its
    files, unparsed: a listing does not need it.
    """

    below: Mapping[str, Stamp]
    elsewhere: Mapping[str, Stamp]
    entries: Sequence[CatalogEntry]
    digests: str
    made_from: bytes

    @cached_property
    def paths(self) -> list[str]:
        return [*self.below, *self.elsewhere]

    @cached_property
    def number(self) -> dict[str, int]:
        return {path: number for number, path in enumerate(self.paths)}

    def digest_of(self, path: str) -> str | None:
        """The digest of a file when it was read; None for a file that was not."""
        start = self.number.get(path, -1) * DIGEST_LENGTH
        return self.digests[start : start + DIGEST_LENGTH].strip() if start >= 0 else None

    def sources(self) -> Iterator[dict[str, str]]:
        """For each entry, the files it was read from, itself first, with their digests."""
        for numbers in json.loads(self.made_from):
            yield {path: self.digest_of(path) or "" for path in map(self.paths.__getitem__, numbers)}

    @classmethod
    def of(
        cls,
        below: Mapping[str, Stamp],
        elsewhere: Mapping[str, Stamp],
        entries: Sequence[tuple[CatalogEntry, Mapping[str, str]]],
    ) -> "Snapshot":
        """Build a snapshot from entries, each with the files it was read from."""
        number = {path: index for index, path in enumerate([*below, *elsewhere])}
        digests = {path: digest for _, files in entries for path, digest in files.items()}
        joined = "".join(digests.get(path, "").ljust(DIGEST_LENGTH) for path in number)
        made_from = json.dumps([[number[path] for path in files] for _, files in entries], separators=(",", ":"))
        return cls(below, elsewhere, tuple(entry for entry, _ in entries), joined, made_from.encode())


def load_snapshot(root: Root) -> Snapshot | None:
    """Load the snapshot of a root; None where there is no valid one."""
    body = read_cached(_cache_name(root))
    if body is None:
        return None
    front, digests, made_from = body.split(b"\n")
    return _unpack(json.loads(front), digests.decode(), made_from, root)


def save_snapshot(root: Root, snapshot: Snapshot) -> None:
    front = json.dumps(_pack(snapshot, root), separators=(",", ":")).encode()
    write_cached(_cache_name(root), b"\n".join([front, snapshot.digests.encode(), snapshot.made_from]))


def _cache_name(root: Root) -> str:
    """The root with the code that builds and checks entries: no index outlives its rules, and other rules have another one."""
    here = os.path.dirname(__file__)  # noqa: PTH120  # on the way of every command
    code = code_key(here, f"{here}/../config")
    rules = [[*dialect.rules()] for dialect in (root.dialect, dialect_of(None, is_lm_evals_file=True))]
    return digest(json.dumps([root.path, rules, root.deep, code]).encode()) + ".json"


def _pack(snapshot: Snapshot, root: Root) -> list[JSON]:
    """The snapshot as columns, with paths relative to the root: it loads without a Python loop over files."""
    kinds, names, paths, *rest = (
        zip(*snapshot.entries, strict=True) if snapshot.entries else [()] * len(CatalogEntry._fields)
    )
    number = {path: index for index, path in enumerate(snapshot.below)}
    below: list[JSON] = [[path[len(root.path) + 1 :] for path in snapshot.below], *_columns(snapshot.below)]
    elsewhere: list[JSON] = [list(snapshot.elsewhere), *_columns(snapshot.elsewhere)]
    return [below, elsewhere, [kinds, names, [number[path] for path in paths], *rest]]


def _unpack(front: list[AnyJSON], digests: str, made_from: bytes, root: Root) -> Snapshot:
    (inner, *below), (outer, *elsewhere), (kinds, names, at, tags, members, *rest) = front
    paths = list(map(f"{root.path}/".__add__, inner))
    columns = (kinds, names, map(paths.__getitem__, at), map(tuple, tags), map(tuple, members), *rest)
    return Snapshot(
        below=dict(zip(paths, zip(*below, strict=True), strict=True)),
        elsewhere=dict(zip(outer, zip(*elsewhere, strict=True), strict=True)),
        entries=tuple(map(CatalogEntry._make, zip(*columns, strict=True))),
        digests=digests,
        made_from=made_from,
    )


def _columns(stamps: Mapping[str, Stamp]) -> list[list[int]]:
    return [[size for size, _ in stamps.values()], [time for _, time in stamps.values()]]


def index_root(root: Root, *, stale: Iterable[str] = ()) -> Snapshot:
    """Return the current snapshot of a root: from the cache where files are unchanged, else read again.

    `stale` are files known to have changed although their stamp does not show it.
    """
    with no_collector():
        known = load_snapshot(root)
        files = scan(root)
    changed = set(stale)
    if known is not None:
        if not changed and known.below == files and known.elsewhere == stamps(known.elsewhere):
            return known
        changed |= _changed(known, files)
    snapshot = _rebuild(root, known, files, changed)
    save_snapshot(root, snapshot)
    return snapshot


def _changed(known: Snapshot, files: Mapping[str, Stamp]) -> set[str]:
    """The files that are new, removed or changed."""
    before = {**known.below, **known.elsewhere}
    now = {**stamps(known.elsewhere), **files}
    return {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}


def _rebuild(root: Root, known: Snapshot | None, files_below: Mapping[str, Stamp], changed: set[str]) -> Snapshot:
    """Build the snapshot after a change: entries of changed files are built again, the rest is kept."""
    # The modules that check files are not imported where the cache is valid.
    from assay.catalog.examine import examine
    from assay.catalog.include import IncludeReader

    kept = _unchanged(known, changed) if known is not None else {}
    reader = IncludeReader()
    entries: list[tuple[CatalogEntry, Mapping[str, str]]] = []
    with no_collector():
        for path in sorted(path for path in files_below if is_config(path)):
            if path in kept:
                entries.append(kept[path])
            else:
                entry, merged = examine(path, reader, root.dialect_of(path))
                entries.append((entry, merged.files))
    elsewhere = stamps({path for _, files in entries for path in files if path not in files_below})
    return Snapshot.of(files_below, elsewhere, entries)


def _unchanged(known: Snapshot, changed: set[str]) -> dict[str, tuple[CatalogEntry, Mapping[str, str]]]:
    """The entries whose files are all unchanged, by path, each with those files."""
    pairs = zip(known.entries, known.sources(), strict=True)
    return {entry.path: (entry, files) for entry, files in pairs if changed.isdisjoint(files)}


@contextmanager
def no_collector() -> Iterator[None]:
    """Pause the garbage collector: an index is many small objects that stay alive."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True, slots=True)
class NameClash:
    """Two files of one root with the same name; the first counts, as in lm-eval."""

    first: CatalogEntry
    second: CatalogEntry
    dialect: Dialect

    def problem(self, fields: Fields | None = None) -> Problem:
        """Return the problem; `fields` of the second file give the exact place."""
        what = f"{self.second.kind} {self.second.name!r} is also defined in {self.first.path}"
        keeps_first = self.dialect.keeps_first_of_equal_files
        fix = "the first one counts, as in lm-eval" if keeps_first else "rename one of them"
        here = (
            fields is not None
            and self.second.kind in fields
            and fields.place(self.second.kind).file == self.second.path
        )
        place = fields.place(self.second.kind) if here and fields is not None else Place(self.second.path)
        return Problem(place, what, fix, serious=not keeps_first)


class Index:
    """All names of all roots. Within a root the first file with a name counts, across roots the last root.

    `meant` is a file selected by its path: its names win over all others.
    """

    def __init__(self, parts: Sequence[tuple[Root, Snapshot]], meant: str | None = None) -> None:
        self.parts = parts
        self._meant = meant
        self.named: dict[str, CatalogEntry] = {}
        self.formats: dict[str, CatalogEntry] = {}
        self.broken: list[CatalogEntry] = []
        self.graphs: list[CatalogEntry] = []
        self.clashes: list[NameClash] = []
        for root, snapshot in parts:
            self._add(root, snapshot)

    def _add(self, root: Root, snapshot: Snapshot) -> None:
        own: dict[tuple[bool, str], CatalogEntry] = {}
        for entry in snapshot.entries:
            if entry.kind == "broken":
                self.broken.append(entry)
            elif entry.kind == "graph":
                self.graphs.append(entry)
            elif entry.kind != "template":
                first = own.setdefault((entry.kind == "format", entry.name), entry)
                if first is not entry and self._meant in (first.path, entry.path):
                    own[entry.kind == "format", entry.name] = first if first.path == self._meant else entry
                elif first is not entry:
                    self.clashes.append(NameClash(first, entry, root.dialect_of(entry.path)))
        for (is_format, name), entry in own.items():
            (self.formats if is_format else self.named)[name] = entry

    @cached_property
    def tags(self) -> dict[str, list[str]]:
        """The tasks of each tag, sorted."""
        by_tag: dict[str, list[str]] = {}
        for entry in self.named.values():
            for tag in entry.tags:
                by_tag.setdefault(tag, []).append(entry.name)
        return {tag: sorted(set(names)) for tag, names in by_tag.items()}

    @cached_property
    def parents(self) -> dict[str, list[str]]:
        """The groups whose lists mention each name, sorted."""
        by_member: dict[str, list[str]] = {}
        for entry in self.named.values():
            for member in dict.fromkeys(entry.members):
                by_member.setdefault(member, []).append(entry.name)
        return {name: sorted(groups) for name, groups in by_member.items()}

    def groups_of(self, name: str) -> list[str]:
        """The groups that list a name, or one of its tags, sorted."""
        entry = self.named.get(name)
        mentioned = (name, *(entry.tags if entry is not None else ()))
        return sorted({group for each in mentioned for group in self.parents.get(each, [])})

    @cached_property
    def origins(self) -> dict[str, Root]:
        """The root of each file."""
        return {entry.path: root for root, snapshot in self.parts for entry in snapshot.entries}

    def entries(self) -> Iterator[CatalogEntry]:
        """Every file of every root, of any kind."""
        return (entry for _, snapshot in self.parts for entry in snapshot.entries)

    def names(self, *kinds: str) -> list[str]:
        """The names of these kinds (task, group, tag), sorted; a tag with the name of a task or group is left out."""
        chosen = {name for name, entry in self.named.items() if entry.kind in kinds}
        if "tag" in kinds:
            chosen |= self.tags.keys() - self.named.keys()
        return sorted(chosen)

    def digest_of(self, path: str) -> str | None:
        """The digest of a file when it was indexed."""
        return next((known for _, part in self.parts if (known := part.digest_of(path)) is not None), None)

    @cached_property
    def included(self) -> set[str]:
        """The files that others include."""
        return {path for _, part in self.parts for files in part.sources() for path in list(files)[1:]}
