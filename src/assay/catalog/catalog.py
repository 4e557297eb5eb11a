"""The catalog: all roots, their names, and what a request for some of them selects."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from assay.catalog.examine import check_fields
from assay.catalog.expand import Expander
from assay.catalog.include import Reader
from assay.catalog.index import Entry, Index, indexed
from assay.catalog.roots import IncludePath, Root, all_roots
from assay.catalog.selection import Selection, Selector, Spec, split_specs
from assay.config.fields import Fields
from assay.errors import Problem

Overrides = Mapping[str, Mapping[str, object]]
"""Keys and values for what a spec selects, by the spec as it was written."""


class Catalog:
    """Every task, group, tag and format that can be named. Nothing of it is executed, and no socket is opened.

    The index comes from the cache where files look unchanged. The files of what is selected are read and compared with
    it by content: one that changed behind an unchanged stamp is noticed then, and the index corrected.
    """

    def __init__(
        self, include_path: IncludePath = None, *, include_defaults: bool = True, lenient: bool = False
    ) -> None:
        self.lenient = lenient
        self.facts: Mapping[str, object] | None = None
        self._roots = all_roots(include_path, include_defaults=include_defaults, lenient=lenient)
        self._stale: set[str] = set()
        self._reader = Reader()

    @cached_property
    def index(self) -> Index:
        return Index([(root, indexed(root, stale=self._stale)) for root in self._roots])

    @property
    def roots(self) -> tuple[Root, ...]:
        return tuple(self._roots)

    def names(self, *kinds: str) -> list[str]:
        return self.index.names(*kinds)

    def match(self, patterns: Iterable[str]) -> list[str]:
        """Every name that one of the patterns matches, sorted; `glob@format` gives names with the format."""
        wanted = [pattern.partition("@") for pattern in ([patterns] if isinstance(patterns, str) else patterns)]
        names = self.names("task", "group", "tag")
        return sorted({f"{name}{at}{asked}" for base, at, asked in wanted for name in names if fnmatchcase(name, base)})

    def select(self, specs: object, overrides: Overrides | None = None, *, thorough: bool = False) -> Selection:
        """What is asked for, as nodes. A problem is collected, not raised: the caller decides what it stops.

        `thorough` looks again at what the index found right, for the sake of its notes.
        """
        wanted = split_specs(specs)
        selection = self._select(wanted, overrides or {}, thorough)
        if self._stale:
            del self.index
            selection = self._select(wanted, overrides or {}, thorough)
            self._stale = set()
        return selection

    def read(self, entry: Entry, *, thorough: bool = False, index: Index | None = None) -> tuple[Fields, list[Problem]]:
        """All that a file says, includes merged in, and what is wrong with it."""
        index = index or self.index
        merged = self._reader.merged(entry.path, lenient=index.origins[entry.path].is_lenient(entry.path))
        changed = {path for path, digest in merged.files.items() if index.digest_of(path) != digest}
        self._stale |= changed
        problems = [*merged.problems]
        if thorough or entry.error or changed:
            problems += check_fields(merged.fields, entry.path)
        if any(entry in (clash.first, clash.second) for clash in index.clashes):
            problems += [
                clash.problem(self._reader.merged(clash.second.path, lenient=clash.lenient).fields)
                for clash in index.clashes
                if entry in (clash.first, clash.second)
            ]
        return merged.fields, problems

    def _select(self, wanted: list[Spec], overrides: Overrides, thorough: bool) -> Selection:
        self._reader = Reader()
        problems: list[Problem] = []

        def expander(index: Index) -> Expander:
            def read(entry: Entry) -> Fields:
                fields, wrong = self.read(entry, thorough=thorough, index=index)
                problems.extend(wrong)
                return fields

            return Expander(index, self._reader, read, self.facts)

        def beside(path: Path) -> Expander:
            index = self._index_beside(path)
            return expander(index) if index is not self.index else usual

        usual = expander(self.index)
        selection = Selector(usual, beside, overrides).select(wanted)
        return Selection(selection.nodes, tuple(dict.fromkeys((*problems, *selection.problems))), selection.ways)

    def _index_beside(self, path: Path) -> Index:
        """The index with what lies beside a file, or in a folder, that was asked for by path: there, it wins."""
        folder, meant = (path, None) if path.is_dir() else (path.parent, str(path))
        if any(folder == Path(r.path) or (r.deep and folder.is_relative_to(r.path)) for r in self._roots):
            doubled = any(meant in (clash.first.path, clash.second.path) for clash in self.index.clashes)
            return Index(self.index.parts, meant) if doubled else self.index
        root = Root(str(folder), "tasks", lenient=self.lenient, deep=path.is_dir())
        return Index([*self.index.parts, (root, indexed(root, stale=self._stale))], meant)
