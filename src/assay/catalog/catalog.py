"""The catalog: all roots, their names, and what a request for some of them selects."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from assay.catalog.entries import Entry
from assay.catalog.examine import check_fields
from assay.catalog.expand import Expander
from assay.catalog.include import Reader
from assay.catalog.index import Index, indexed
from assay.catalog.roots import IncludePath, Root, all_roots
from assay.catalog.selection import Selection, Selector, Spec, looks_like_path, paths_of, split_specs
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
        """Every name that one of the patterns matches, sorted."""
        patterns = list(patterns)
        return [name for name in self.names("task", "group", "tag") if any(fnmatchcase(name, p) for p in patterns)]

    def select(
        self, specs: Spec | Iterable[Spec], overrides: Overrides | None = None, *, thorough: bool = False
    ) -> Selection:
        """What is asked for, as nodes. A problem is collected, not raised: the caller decides what it stops.

        `thorough` looks again at what the index found right, for the sake of its notes.
        """
        wanted = split_specs(specs)
        self._add_roots_for(wanted)
        selection = self._select(wanted, overrides or {}, thorough)
        if self._stale:
            del self.index
            selection = self._select(wanted, overrides or {}, thorough)
            self._stale = set()
        return selection

    def read(self, entry: Entry, *, thorough: bool = False) -> tuple[Fields, list[Problem]]:
        """All that a file says, includes merged in, and what is wrong with it."""
        merged = self._reader.merged(entry.path, lenient=self.index.origins[entry.path].is_lenient(entry.path))
        changed = {path for path, digest in merged.files.items() if self.index.digest_of(path) != digest}
        self._stale |= changed
        problems = [*merged.problems]
        if thorough or entry.error or changed:
            problems += check_fields(merged.fields)
        problems += [clash.problem() for clash in self.index.clashes if entry in (clash.first, clash.second)]
        return merged.fields, problems

    def _select(self, wanted: list[Spec], overrides: Overrides, thorough: bool) -> Selection:
        self._reader = Reader()
        problems: list[Problem] = []

        def read(entry: Entry) -> Fields:
            fields, wrong = self.read(entry, thorough=thorough)
            problems.extend(wrong)
            return fields

        selection = Selector(Expander(self.index, self._reader, read), overrides).select(wanted)
        return Selection(selection.nodes, tuple(dict.fromkeys((*problems, *selection.problems))))

    def _add_roots_for(self, wanted: list[Spec]) -> None:
        """Files and folders that are named by path join the roots, and with them what lies beside them."""
        for spec in wanted:
            if isinstance(spec, str) and looks_like_path(spec.partition("@")[0]):
                for path in paths_of(spec.partition("@")[0]):
                    self._add_root_of(path)

    def _add_root_of(self, path: Path) -> None:
        folder = path if path.is_dir() else path.parent
        known = any(
            Path(root.path) == folder or (root.deep and folder.is_relative_to(root.path)) for root in self._roots
        )
        if folder.is_dir() and not known:
            self._roots.append(Root(str(folder), "tasks", lenient=self.lenient, deep=path.is_dir()))
            self.__dict__.pop("index", None)
