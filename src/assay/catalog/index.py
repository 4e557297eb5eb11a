"""The names of all roots: what each stands for, and which files had to be read again to know it."""

import gc
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from assay.catalog.cache import keep, recall, stamp_of
from assay.catalog.roots import Root
from assay.config.fields import Fields
from assay.config.source import DIGEST_LENGTH, digest
from assay.errors import Place, Problem

Kind = Literal["task", "group", "format", "template", "broken", "graph"]
"""A graph is a task; this kind is for one without a name, which is found by where it lies."""


class Entry(NamedTuple):
    """One file of the catalog; `error` says why it cannot be used.

    A tuple, not a dataclass: fourteen thousand of them are made before a warm `assay ls` can print a line.
    """

    kind: Kind
    name: str
    path: str
    tags: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    output_type: str = ""
    error: str = ""


Stamp = tuple[int, int]
"""Size and time of change: what tells, without reading, that a file is as it was."""
GONE: Stamp = (-1, 0)
"""The stamp of what is not there or is no regular file."""
_SKIPPED = ("__pycache__", "node_modules")


def scan(root: Root) -> dict[str, Stamp]:
    """Every file of a root whose name ends in yaml or yml, by path, with its stamp.

    Links to folders are followed after all real folders, and only to folders not met yet: they may form a loop.
    """
    found: dict[str, Stamp] = {}
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
        inner, linked = _read_folder(folder, found)
        waiting += inner if root.deep else []
        links += linked if root.deep else []
    return found


def _read_folder(folder: str, found: dict[str, Stamp]) -> tuple[list[str], list[str]]:
    """Add the files of one folder to `found`; returns the folders in it, and the links to folders."""
    inner: list[str] = []
    linked: list[str] = []
    try:
        # By its handle, not its path: the path of every file would be walked again from the root of the disk.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return inner, linked  # a folder that may not be read has no tasks for this user; the rest goes on
    try:
        with os.scandir(handle) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(("yaml", "yml")) and not _is_dir(entry):
                    found[f"{folder}/{name}"] = _stamp(entry)
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
    """The stamps of files that are not below a root."""
    return {path: _stamp(path) for path in paths}


def is_config(path: str) -> bool:
    """Whether a file can hold a task of its own; others are only ever included."""
    return path.endswith((".yaml", ".yml"))


def _stamp(file: "os.DirEntry[str] | str") -> Stamp:
    try:
        status = os.stat(file) if isinstance(file, str) else file.stat()  # noqa: PTH116  # 14,000 Path objects cost more
    except OSError:
        return GONE
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else GONE


@dataclass(frozen=True)
class Snapshot:
    """The index of one root as it was: the files below it and those elsewhere, with stamps; and what each holds.

    `digests` are those of all these files in this order, joined. `made_from` says for each entry the numbers of the
    files it was made from: as it lies on disk, because a listing never asks.
    """

    below: Mapping[str, Stamp]
    elsewhere: Mapping[str, Stamp]
    entries: Sequence[Entry]
    digests: str
    made_from: bytes

    @cached_property
    def paths(self) -> list[str]:
        return [*self.below, *self.elsewhere]

    @cached_property
    def number(self) -> dict[str, int]:
        return {path: number for number, path in enumerate(self.paths)}

    def digest_of(self, path: str) -> str | None:
        """The digest a file had when it was read; None of a file that was not."""
        start = self.number.get(path, -1) * DIGEST_LENGTH
        return self.digests[start : start + DIGEST_LENGTH].strip() if start >= 0 else None

    def sources(self) -> Iterator[dict[str, str]]:
        """For each entry, the files it was made from, itself first, with their digests."""
        for numbers in json.loads(self.made_from):
            yield {path: self.digest_of(path) or "" for path in map(self.paths.__getitem__, numbers)}

    @classmethod
    def of(
        cls, below: Mapping[str, Stamp], elsewhere: Mapping[str, Stamp], made: Sequence[tuple[Entry, Mapping[str, str]]]
    ) -> "Snapshot":
        """A snapshot of entries, each given with the files it was made from."""
        number = {path: index for index, path in enumerate([*below, *elsewhere])}
        digests = {path: digest for _, files in made for path, digest in files.items()}
        joined = "".join(digests.get(path, "").ljust(DIGEST_LENGTH) for path in number)
        made_from = json.dumps([[number[path] for path in files] for _, files in made], separators=(",", ":"))
        return cls(below, elsewhere, tuple(entry for entry, _ in made), joined, made_from.encode())


def load(root: Root) -> Snapshot | None:
    """The snapshot of a root, or None where there is none that can be trusted."""
    body = recall(_name(root), _rules())
    if body is None:
        return None
    front, digests, made_from = body.split(b"\n")
    return _unpack(json.loads(front), digests.decode(), made_from, root)


def save(root: Root, snapshot: Snapshot) -> None:
    front = json.dumps(_pack(snapshot, root), separators=(",", ":")).encode()
    keep(_name(root), _rules(), b"\n".join([front, snapshot.digests.encode(), snapshot.made_from]))


def _name(root: Root) -> str:
    return digest(json.dumps([root.path, root.lenient, root.deep]).encode()) + ".json"


def _rules() -> str:
    """Changes whenever the code that makes or judges entries changes, so that no index outlives its rules."""
    here = os.path.dirname(__file__)  # noqa: PTH120  # on the way of every command
    return stamp_of(*sorted(entry.path for folder in (here, f"{here}/../config") for entry in os.scandir(folder)))


def _pack(snapshot: Snapshot, root: Root) -> list[object]:
    """Columns, not rows, and paths without what they share: read back without a line of Python for each file."""
    kinds, names, paths, *rest = zip(*snapshot.entries, strict=True) if snapshot.entries else [()] * len(Entry._fields)
    number = {path: index for index, path in enumerate(snapshot.below)}
    below = [[path[len(root.path) + 1 :] for path in snapshot.below], *_columns(snapshot.below)]
    elsewhere = [list(snapshot.elsewhere), *_columns(snapshot.elsewhere)]
    return [below, elsewhere, [kinds, names, [number[path] for path in paths], *rest]]


def _unpack(front: list[Any], digests: str, made_from: bytes, root: Root) -> Snapshot:
    (inner, *below), (outer, *elsewhere), (kinds, names, at, tags, members, *rest) = front
    paths = list(map(f"{root.path}/".__add__, inner))
    columns = (kinds, names, map(paths.__getitem__, at), map(tuple, tags), map(tuple, members), *rest)
    return Snapshot(
        below=dict(zip(paths, zip(*below, strict=True), strict=True)),
        elsewhere=dict(zip(outer, zip(*elsewhere, strict=True), strict=True)),
        entries=tuple(map(Entry._make, zip(*columns, strict=True))),
        digests=digests,
        made_from=made_from,
    )


def _columns(stamps: Mapping[str, Stamp]) -> list[list[int]]:
    return [[size for size, _ in stamps.values()], [time for _, time in stamps.values()]]


def indexed(root: Root, *, stale: Iterable[str] = ()) -> Snapshot:
    """The snapshot of a root as it is now: from the cache where files are unchanged, else read again.

    `stale` are files known to have changed although their stamp does not show it.
    """
    with _no_collector():
        known = load(root)
        found = scan(root)
    changed = set(stale)
    if known is not None:
        if not changed and known.below == found and known.elsewhere == stamps(known.elsewhere):
            return known
        changed |= _changed(known, found)
    snapshot = _reread(root, known, found, changed)
    save(root, snapshot)
    return snapshot


def _changed(known: Snapshot, found: Mapping[str, Stamp]) -> set[str]:
    """The files that are new, gone or different."""
    before = {**known.below, **known.elsewhere}
    now = {**stamps(known.elsewhere), **found}
    return {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}


def _reread(root: Root, known: Snapshot | None, found: Mapping[str, Stamp], changed: set[str]) -> Snapshot:
    """The snapshot after a change: what was made from files that changed is made again, the rest is kept."""
    # What judges files is not loaded where the cache answers.
    from assay.catalog.examine import examine
    from assay.catalog.include import Reader

    kept = _unchanged(known, changed) if known is not None else {}
    reader = Reader()
    made: list[tuple[Entry, Mapping[str, str]]] = []
    with _no_collector():
        for path in sorted(path for path in found if is_config(path)):
            if path in kept:
                made.append(kept[path])
            else:
                entry, merged = examine(path, reader, lenient=root.is_lenient(path))
                made.append((entry, merged.files))
    elsewhere = stamps({path for _, files in made for path in files if path not in found})
    return Snapshot.of(found, elsewhere, made)


def _unchanged(known: Snapshot, changed: set[str]) -> dict[str, tuple[Entry, Mapping[str, str]]]:
    """The entries whose files are all as they were, by path, each with those files."""
    pairs = zip(known.entries, known.sources(), strict=True)
    return {entry.path: (entry, files) for entry, files in pairs if changed.isdisjoint(files)}


@contextmanager
def _no_collector() -> Iterator[None]:
    """An index is many small objects that stay: nothing for a collector but walks over all of them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Clash:
    """Two files of one root that claim one name; the first is meant, as in lm-eval."""

    first: Entry
    second: Entry
    lenient: bool

    def problem(self, fields: Fields | None = None) -> Problem:
        """What to say of it; `fields` of the second file give the exact place."""
        what = f"{self.second.kind} {self.second.name!r} is also defined in {self.first.path}"
        fix = "the first one counts, as in lm-eval" if self.lenient else "rename one of them"
        here = (
            fields is not None
            and self.second.kind in fields
            and fields.place(self.second.kind).file == self.second.path
        )
        place = fields.place(self.second.kind) if here and fields is not None else Place(self.second.path)
        return Problem(place, what, fix, serious=not self.lenient)


class Index:
    """All names of all roots. Within a root the first file with a name counts, across roots the last root.

    `meant` is a file that was asked for by its path: its names are its own, whoever else has them.
    """

    def __init__(self, parts: Sequence[tuple[Root, Snapshot]], meant: str | None = None) -> None:
        self.parts = parts
        self._meant = meant
        self.named: dict[str, Entry] = {}
        self.formats: dict[str, Entry] = {}
        self.broken: list[Entry] = []
        self.clashes: list[Clash] = []
        for root, snapshot in parts:
            self._add(root, snapshot)

    def _add(self, root: Root, snapshot: Snapshot) -> None:
        own: dict[tuple[bool, str], Entry] = {}
        for entry in snapshot.entries:
            if entry.kind == "broken":
                self.broken.append(entry)
            elif entry.kind not in ("template", "graph"):
                first = own.setdefault((entry.kind == "format", entry.name), entry)
                if first is not entry and self._meant in (first.path, entry.path):
                    own[entry.kind == "format", entry.name] = first if first.path == self._meant else entry
                elif first is not entry:
                    self.clashes.append(Clash(first, entry, root.is_lenient(entry.path)))
        for (is_format, name), entry in own.items():
            (self.formats if is_format else self.named)[name] = entry

    @cached_property
    def tags(self) -> dict[str, list[str]]:
        """The tasks that carry each tag, sorted."""
        found: dict[str, list[str]] = {}
        for entry in self.named.values():
            for tag in entry.tags:
                found.setdefault(tag, []).append(entry.name)
        return {tag: sorted(set(names)) for tag, names in found.items()}

    @cached_property
    def parents(self) -> dict[str, list[str]]:
        """The groups whose lists mention each name, sorted."""
        found: dict[str, list[str]] = {}
        for entry in self.named.values():
            for member in dict.fromkeys(entry.members):
                found.setdefault(member, []).append(entry.name)
        return {name: sorted(groups) for name, groups in found.items()}

    def groups_of(self, name: str) -> list[str]:
        """The groups that list a name, or a tag that it carries, sorted."""
        entry = self.named.get(name)
        mentioned = (name, *(entry.tags if entry is not None else ()))
        return sorted({group for each in mentioned for group in self.parents.get(each, [])})

    @cached_property
    def origins(self) -> dict[str, Root]:
        """The root each file was found in."""
        return {entry.path: root for root, snapshot in self.parts for entry in snapshot.entries}

    def entries(self) -> Iterator[Entry]:
        """Every file of every root, whatever it holds."""
        return (entry for _, snapshot in self.parts for entry in snapshot.entries)

    def names(self, *kinds: str) -> list[str]:
        """The names of these kinds (task, group, tag), sorted; a tag called like a task or group is left out."""
        wanted = {name for name, entry in self.named.items() if entry.kind in kinds}
        if "tag" in kinds:
            wanted |= self.tags.keys() - self.named.keys()
        return sorted(wanted)

    def digest_of(self, path: str) -> str | None:
        """The digest that a file had when it was indexed."""
        return next((found for _, part in self.parts if (found := part.digest_of(path)) is not None), None)

    @cached_property
    def included(self) -> set[str]:
        """The files that others include."""
        return {path for _, part in self.parts for files in part.sources() for path in list(files)[1:]}
