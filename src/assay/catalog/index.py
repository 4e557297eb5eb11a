"""The names of all roots: what each stands for, and which files had to be read again to know it."""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from assay.catalog import cache
from assay.catalog.cache import Snapshot
from assay.catalog.entries import Entry
from assay.catalog.roots import Root
from assay.catalog.scan import Stamp, is_config, scan, stamps
from assay.config.fields import Fields
from assay.errors import Place, Problem


def indexed(root: Root, *, stale: Iterable[str] = ()) -> Snapshot:
    """The snapshot of a root as it is now: from the cache where files are unchanged, else read again.

    `stale` are files known to have changed although their stamp does not show it.
    """
    with _no_collector():
        known = cache.load(root)
        found = scan(root)
    changed = set(stale)
    if known is not None:
        if not changed and known.below == found and known.elsewhere == stamps(known.elsewhere):
            return known
        changed |= _changed(known, found)
    snapshot = _reread(root, known, found, changed)
    cache.save(root, snapshot)
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
