"""The names of all roots: what each stands for, and which files had to be read again to know it."""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from assay.catalog import cache
from assay.catalog.cache import Snapshot
from assay.catalog.entries import Entry, examine
from assay.catalog.include import Reader
from assay.catalog.roots import Root
from assay.catalog.scan import Stamp, is_config, scan, stamps
from assay.errors import Place, Problem


def indexed(root: Root, *, stale: Iterable[str] = ()) -> Snapshot:
    """The snapshot of a root as it is now: from the cache where files are unchanged, else read again.

    `stale` are files known to have changed although their stamp does not show it.
    """
    known = cache.load(root)
    found = scan(root)
    if known is not None:
        changed = _changed(known, found) | set(stale)
        if not changed:
            return known
        snapshot = _reread(root, known, found, changed)
    else:
        snapshot = _reread(root, Snapshot({}, {}, ()), found, set())
    cache.save(root, snapshot)
    return snapshot


def _changed(known: Snapshot, found: Mapping[str, Stamp]) -> set[str]:
    """The files that are new, gone or different. One that is no task and that nobody includes does not count."""
    elsewhere = stamps(path for path in known.stamps if path not in found)
    new = {path for path in found if path not in known.stamps and is_config(path)}
    return new | {path for path, stamp in known.stamps.items() if found.get(path, elsewhere.get(path)) != stamp}


def _reread(root: Root, known: Snapshot, found: Mapping[str, Stamp], changed: set[str]) -> Snapshot:
    kept = {entry.path: entry for entry in known.entries if changed.isdisjoint(entry.files)}
    reader = Reader()
    entries: list[Entry] = []
    digests: dict[str, str] = {}
    with _no_collector():
        for path in sorted(path for path in found if is_config(path)):
            entry = kept.get(path)
            if entry is None:
                entry, merged = examine(path, reader, lenient=root.is_lenient(path))
                digests.update(merged.files)
            else:
                digests.update((file, known.digests[file]) for file in entry.files)
            entries.append(entry)
    outside = stamps(path for path in digests if path not in found)
    return Snapshot({**{path: found[path] for path in digests if path in found}, **outside}, digests, tuple(entries))


@contextmanager
def _no_collector() -> Iterator[None]:
    """A cold build makes millions of small objects and no garbage cycles worth a walk over all of them."""
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

    def problem(self) -> Problem:
        what = f"{self.second.kind} {self.second.name!r} is also defined in {self.first.path}"
        fix = "the first one counts, as in lm-eval" if self.lenient else "rename one of them"
        return Problem(Place(self.second.path), what, fix, serious=not self.lenient)


class Index:
    """All names of all roots. Within a root the first file with a name counts, across roots the last root."""

    def __init__(self, parts: Sequence[tuple[Root, Snapshot]]) -> None:
        self.parts = parts
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
            elif entry.kind != "template":
                first = own.setdefault((entry.kind == "format", entry.name), entry)
                if first is not entry:
                    self.clashes.append(Clash(first, entry, root.is_lenient(entry.path)))
        for (is_format, name), entry in own.items():
            (self.formats if is_format else self.named)[name] = entry

    @cached_property
    def tags(self) -> dict[str, list[str]]:
        """The tasks that carry each tag, sorted."""
        found: dict[str, list[str]] = {}
        for entry in self.named.values():
            for tag in dict.fromkeys(entry.tags):
                found.setdefault(tag, []).append(entry.name)
        return {tag: sorted(names) for tag, names in found.items()}

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

    def digest(self, path: str) -> str | None:
        """The digest a file had when it was indexed."""
        return next((found for _, snapshot in self.parts if (found := snapshot.digests.get(path)) is not None), None)
