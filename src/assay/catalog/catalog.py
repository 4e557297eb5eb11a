"""The catalog: all roots, their names, and the selection of tasks and groups from them."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from assay.catalog.examine import check_fields
from assay.catalog.expand import Expander
from assay.catalog.include import IncludeReader
from assay.catalog.index import CatalogEntry, Index, index_root
from assay.catalog.roots import IncludePath, Root, all_roots
from assay.catalog.selection import CatalogSelection, Overrides, Selector, Spec, split_specs
from assay.config.fields import Fields
from assay.config.option import YAMLMapping
from assay.dialect import OURS, Dialect
from assay.errors import Problem
from assay.records import UserValue


class Catalog:
    """Every task, group, tag and format by name. No user code is executed, and no socket is opened.

    The index comes from the cache where files look unchanged. Selected files are read and compared with it by
    content: one that changed behind an unchanged stamp is noticed then, and the index rebuilt.
    """

    def __init__(
        self, include_path: IncludePath = None, *, include_defaults: bool = True, dialect: Dialect = OURS
    ) -> None:
        self.dialect = dialect
        self._roots = all_roots(include_path, include_defaults=include_defaults, dialect=dialect)
        self._stale: set[str] = set()
        self._reader = IncludeReader()

    @cached_property
    def index(self) -> Index:
        return Index([(root, index_root(root, stale=self._stale)) for root in self._roots])

    @property
    def roots(self) -> tuple[Root, ...]:
        return tuple(self._roots)

    def names(self, *kinds: str) -> list[str]:
        return self.index.names(*kinds)

    def match(self, patterns: Iterable[str]) -> list[str]:
        """Every name that matches one of the patterns, sorted; `glob@format` gives names with the format."""
        parts = [pattern.partition("@") for pattern in ([patterns] if isinstance(patterns, str) else patterns)]
        names = self.names("task", "group", "tag")
        return sorted(
            {f"{name}{at}{suffix}" for base, at, suffix in parts for name in names if fnmatchcase(name, base)}
        )

    def select(
        self,
        specs: UserValue,
        overrides: Overrides | None = None,
        *,
        facts: YAMLMapping | None = None,
        thorough: bool = False,
    ) -> CatalogSelection:
        """Select tasks and groups as nodes. Problems are collected, not raised: the caller decides which are fatal.

        `facts` decide the conditions of members. `thorough` checks files again that the index found valid, to collect their notes.
        """
        split = split_specs(specs)
        selection = self._select(split, overrides or {}, facts, thorough)
        if self._stale:
            del self.index
            selection = self._select(split, overrides or {}, facts, thorough)
            self._stale = set()
        return selection

    def read(
        self, entry: CatalogEntry, *, thorough: bool = False, index: Index | None = None
    ) -> tuple[Fields, list[Problem]]:
        """Read a file with its includes, and its problems."""
        index = index or self.index
        merged = self._reader.merged(entry.path, index.origins[entry.path].dialect_of(entry.path))
        changed = {path for path, digest in merged.files.items() if index.digest_of(path) != digest}
        self._stale |= changed
        problems = [*merged.problems]
        if thorough or entry.error or changed:
            problems += check_fields(merged.fields, entry.path)
        if any(entry in (clash.first, clash.second) for clash in index.clashes):
            problems += [
                clash.problem(self._reader.merged(clash.second.path, clash.dialect).fields)
                for clash in index.clashes
                if entry in (clash.first, clash.second)
            ]
        return merged.fields, problems

    def _select(
        self, specs: list[Spec], overrides: Overrides, facts: YAMLMapping | None, thorough: bool
    ) -> CatalogSelection:
        self._reader = IncludeReader()
        problems: list[Problem] = []

        def expander(index: Index) -> Expander:
            def read(entry: CatalogEntry) -> Fields:
                fields, wrong = self.read(entry, thorough=thorough, index=index)
                problems.extend(wrong)
                return fields

            return Expander(index, self._reader, read, facts)

        def beside(path: Path) -> Expander:
            index = self._index_beside(path)
            return expander(index) if index is not self.index else usual

        usual = expander(self.index)
        selection = Selector(usual, beside, overrides).select(specs)
        return CatalogSelection(selection.nodes, tuple(dict.fromkeys((*problems, *selection.problems))), selection.ways)

    def _index_beside(self, path: Path) -> Index:
        """The index extended by the folder of a file, or by a folder, selected by path: there its names win."""
        folder, meant = (path, None) if path.is_dir() else (path.parent, str(path))
        if any(folder == Path(r.path) or (r.deep and folder.is_relative_to(r.path)) for r in self._roots):
            doubled = any(meant in (clash.first.path, clash.second.path) for clash in self.index.clashes)
            return Index(self.index.parts, meant) if doubled else self.index
        root = Root(str(folder), "tasks", self.dialect, deep=path.is_dir())
        return Index([*self.index.parts, (root, index_root(root, stale=self._stale))], meant)
