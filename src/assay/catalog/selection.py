"""What the user asks for — names, globs, tags, `a::b` paths, `task@format`, files, folders — to nodes."""

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from assay.catalog.entries import Entry
from assay.catalog.examine import check_fields
from assay.catalog.expand import Expander, Reference
from assay.catalog.include import NO_FIELDS
from assay.catalog.nodes import GroupNode, Node, Settings
from assay.config.fields import Fields, Origin
from assay.errors import Place, Problem, nearest

Spec = str | Mapping[str, object] | Entry
"""One thing asked for: a name of any form, a whole configuration, or a file of the index."""

TASKS = Place("tasks")


@dataclass(frozen=True, slots=True)
class Selection:
    """What was selected, in order, and everything that was wrong on the way."""

    nodes: tuple[Node, ...]
    problems: tuple[Problem, ...]


def split_specs(specs: "str | os.PathLike[str] | Spec | Iterable[Spec]") -> list[Spec]:
    """The single things asked for: texts are split at commas and spaces, unless the whole text is a path that exists.

    >>> split_specs(["a, b", "c d"])
    ['a', 'b', 'c', 'd']
    """
    if isinstance(specs, os.PathLike):
        return [os.fspath(specs)]
    several = [specs] if isinstance(specs, str | Mapping | Entry) else list(specs)
    found: list[Spec] = []
    for spec in several:
        if not isinstance(spec, str):
            found.append(os.fspath(spec) if isinstance(spec, os.PathLike) else spec)
        elif looks_like_path(spec) and Path(spec).expanduser().exists():
            found.append(spec)
        else:
            found += [part for part in re.split(r"[,\s]+", spec) if part]
    return found


def looks_like_path(spec: str) -> bool:
    """Whether a text means a file or folder. A bare word never does, so nothing depends on the working directory.

    >>> looks_like_path("mmlu"), looks_like_path("./mmlu"), looks_like_path("my.yaml")
    (False, True, True)
    """
    return os.sep in spec or "/" in spec or spec.endswith((".yaml", ".yml")) or spec.startswith(("~", ".."))


def paths_of(spec: str) -> list[Path]:
    """The files and folders a path means; a pattern may mean several."""
    path = Path(spec).expanduser()
    if path.exists() or not glob.has_magic(spec):
        return [path.resolve()]
    return [Path(found).resolve() for found in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207  # patterns may be absolute


class Selector:
    """Selects from one state of the catalog."""

    def __init__(self, expander: Expander, overrides: Mapping[str, Mapping[str, object]]) -> None:
        self.expander = expander
        self.index = expander.index
        self.problems = expander.problems
        self._overrides = overrides
        self._unused = set(overrides)

    def select(self, specs: Iterable[Spec]) -> Selection:
        nodes = [node for spec in specs for node in self._spec(spec)]
        for name in sorted(self._unused):
            fix = (
                f"did you mean {near[0]!r}?"
                if (near := nearest(name, self._overrides)) and near[0] != name
                else "name what is loaded"
            )
            self.problems.append(Problem(Place("overrides"), f"{name!r} was not asked for", fix))
        return Selection(tuple(nodes), tuple(dict.fromkeys(self.problems)))

    def _spec(self, spec: Spec) -> list[Node]:
        if isinstance(spec, str):
            base, _, asked = spec.partition("@")
            settings = Settings(command=self._command(spec), commanded_format=asked or None)
            if looks_like_path(base):
                return [node for path in paths_of(base) for node in self._path(path, settings)]
            if "::" in base:
                return self._descend(base.split("::"), settings)
            return self._name(base, settings)
        if isinstance(spec, Entry):
            return self.expander.entry(spec, Settings())
        fields = Fields.of(dict(spec), Origin("configuration"))
        wrong = check_fields(fields)
        self.problems += wrong
        if any(problem.serious for problem in wrong) or not ("task" in fields or "group" in fields):
            if not wrong:
                self.problems.append(Problem(Place("configuration"), "needs `task` or `group`", "give it a name"))
            return []
        return self.expander.inline(fields, Settings())

    def _command(self, spec: str) -> Fields:
        if spec not in self._overrides:
            return NO_FIELDS
        self._unused.discard(spec)
        return Fields.of(self._overrides[spec], Origin(f"overrides[{spec!r}]"))

    def _name(self, name: str, settings: Settings) -> list[Node]:
        if not glob.has_magic(name):
            return self.expander.named(Reference(name, TASKS), settings)
        found = self.matching(name)
        if not found:
            near = nearest(name.strip("*?"), self.index.names("task", "group", "tag"))
            fix = "did you mean " + ", ".join(near) + "?" if near else "`assay ls` lists every name"
            self.problems.append(Problem(TASKS, f"no name matches {name!r}", fix))
        return [node for each in found for node in self.expander.named(Reference(each, TASKS), settings)]

    def matching(self, pattern: str) -> list[str]:
        """The names that a pattern matches, sorted; `tag:` patterns match tags alone."""
        if pattern.startswith("tag:"):
            return [f"tag:{tag}" for tag in sorted(self.index.tags) if fnmatchcase(tag, pattern.removeprefix("tag:"))]
        return [name for name in self.index.names("task", "group", "tag") if fnmatchcase(name, pattern)]

    def _descend(self, steps: list[str], settings: Settings) -> list[Node]:
        """What a path through groups leads to; only the branch it takes is expanded."""
        top = self.index.named.get(steps[0])
        if top is None or top.kind != "group":
            if top is None:
                return self.expander.named(Reference(steps[0], TASKS), settings)
            self.problems.append(
                Problem(TASKS, f"{steps[0]!r} is a {top.kind}, not a group", f"ask for {steps[0]!r} alone")
            )
            return []
        fields = self.expander.read(top)
        members = list(self.expander.members(fields, top.name, settings, (top.name,)))
        found = [member for member in members if _is_called(member.name, steps[1])]
        if not found:  # perhaps a task that a tag in the list stands for
            found = [member for member in members if member.name.removeprefix("tag:") in self.index.tags]
        nodes = [node for member in found for node in member.expand()]
        return list(self._within(nodes, steps[1:], top.name))

    def _within(self, nodes: Iterable[Node], steps: list[str], parent: str) -> Iterator[Node]:
        there = list(nodes)
        matched = [node for node in there if _is_called(node.name, steps[0])]
        if not matched:
            near = nearest(steps[0], [node.name.rpartition("::")[2] for node in there])
            fix = "did you mean " + ", ".join(near) + "?" if near else f"`assay show {parent}` draws its members"
            self.problems.append(Problem(TASKS, f"{parent!r} has no member {steps[0]!r}", fix))
        for node in matched:
            if len(steps) == 1:
                yield node
            elif isinstance(node, GroupNode):
                yield from self._within(node.children, steps[1:], node.name)
            else:
                self.problems.append(
                    Problem(TASKS, f"{node.name!r} is a task and has no members", "end the path there")
                )

    def _path(self, path: Path, settings: Settings) -> list[Node]:
        """What a file holds; or of a folder, whatever no group of that folder contains."""
        if path.is_dir():
            inside = [entry for entry in self.index.named.values() if Path(entry.path).is_relative_to(path)]
            members = {name for entry in inside for name in entry.members}
            chosen = [entry for entry in inside if entry.name not in members]
            self.problems += [
                _broken(entry.error) for entry in self.index.broken if Path(entry.path).is_relative_to(path)
            ]
            if not chosen:
                self.problems.append(
                    Problem(Place(str(path)), "no task or group in this folder", "see `assay validate` for it")
                )
        else:
            chosen = [entry for entry in self.index.entries() if entry.path == str(path)]
            self.problems += [_broken(entry.error) for entry in chosen if entry.kind == "broken"]
            chosen = [entry for entry in chosen if entry.kind in ("task", "group")]
            if not chosen and not self.problems:
                what = "there is no such file" if not path.exists() else "the file holds no task or group"
                self.problems.append(Problem(Place(str(path)), what, "give a YAML file with `task` or `group`"))
        return [node for entry in chosen for node in self.expander.entry(entry, settings)]


def _is_called(name: str, pattern: str) -> bool:
    """Whether a node or member is what a step of a path says: by its full name, or by the last part of it."""
    bare = name.partition("@")[0].removeprefix("tag:")
    return fnmatchcase(bare, pattern) or fnmatchcase(bare.rpartition("::")[2], pattern)


def _broken(error: str) -> Problem:
    place, _, what = error.partition(": ")
    return Problem(Place(place), what)
