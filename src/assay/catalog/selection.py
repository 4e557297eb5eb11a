"""Selection of tasks and groups: names, globs, tags, `a::b` paths, `task@format`, files and folders to nodes."""

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from assay.catalog.examine import check_fields
from assay.catalog.expand import CatalogNode, Expander, GroupNode, InheritedSettings, MemberReference
from assay.catalog.include import NO_FIELDS
from assay.catalog.index import CatalogEntry
from assay.catalog.lm_eval_names import unmatched
from assay.config.fields import Fields, Origin
from assay.errors import ConfigError, Place, Problem, nearest
from assay.records import Params, UserValue

Overrides = Mapping[str, Params]
"""Changed keys of the tasks that a spec selects, by the spec as written."""
Spec = str | Mapping[str, object] | CatalogEntry
"""One requested item: a name of any form, a configuration, or an entry of the index."""

TASKS_PLACE = Place("tasks")
GRAPH_FILE = "graph_config.yaml"
_SYGRA_NAME = re.compile(r"[\w-]+(?:[./][\w-]+)*/?")
"""A task as SyGra names it: `tasks.eval.a.b`, `eval/a/b`, `a`."""


@dataclass(frozen=True, slots=True)
class CatalogSelection:
    """The selected nodes in order, and all problems.

    `ways` gives, by the id of a node, the group it was requested through: `a` for `a::b`.
    """

    nodes: tuple[CatalogNode, ...]
    problems: tuple[Problem, ...]
    ways: Mapping[int, str] = field(default_factory=dict)


def split_specs(specs: UserValue) -> list[Spec]:
    """Split requested names at commas and spaces, unless the whole text is an existing path.

    >>> split_specs(["a, b", "c d"])
    ['a', 'b', 'c', 'd']
    """
    listed = [specs] if isinstance(specs, str | Mapping | CatalogEntry | os.PathLike) else specs
    if not isinstance(listed, Iterable):
        raise no_spec(specs, TASKS_PLACE)
    split: list[Spec] = []
    for spec in listed:
        if isinstance(spec, os.PathLike):
            split.append(f"{os.fspath(spec)}" if os.sep in os.fspath(spec) else f".{os.sep}{os.fspath(spec)}")
        elif isinstance(spec, str):
            split += (
                [spec] if looks_like_path(spec) and _path_exists(spec) else [p for p in re.split(r"[,\s]+", spec) if p]
            )
        elif isinstance(spec, Mapping | CatalogEntry):
            split.append(spec)
        else:
            raise no_spec(spec, TASKS_PLACE)
    return split


def no_spec(written: UserValue, place: Place) -> ConfigError:
    """The refusal of something that can be no task."""
    what = f"tasks must be names, paths or configurations, not {type(written).__name__}"
    return ConfigError.at(place, what, "write `tasks: [name]`, and a name that looks like a number in quotes")


def looks_like_path(spec: str) -> bool:
    """Whether a text is a file or folder. A bare word never is, so nothing depends on the working directory.

    >>> looks_like_path("mmlu"), looks_like_path("./mmlu"), looks_like_path("my.yaml"), looks_like_path(".")
    (False, True, True, True)
    """
    is_file = spec.endswith((".yaml", ".yml"))
    return os.sep in spec or "/" in spec or is_file or spec.startswith("~") or spec in (".", "..")


def _path_exists(spec: str) -> bool:
    try:
        return Path(spec).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


def paths_of(spec: str) -> list[Path]:
    """The files and folders of a path or pattern. An invalid path raises OSError."""
    try:
        path = Path(spec).expanduser()
        if path.exists() or not glob.has_magic(spec):
            return [path.resolve()]
        return [Path(match).resolve() for match in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207
    except (ValueError, RuntimeError) as error:
        raise OSError(str(error)) from error


class Selector:
    """Selects from one state of the catalog. `beside` gives an expander that also knows the files beside a path."""

    def __init__(self, expander: Expander, beside: Callable[[Path], Expander], overrides: Overrides) -> None:
        self.expander = expander
        self.index = expander.index
        self.problems = expander.problems
        self.ways: dict[int, str] = {}
        self._beside = beside
        self._overrides = overrides
        self._unused = set(overrides)

    def select(self, specs: Iterable[Spec]) -> CatalogSelection:
        nodes = [node for spec in specs for node in self._spec(spec)]
        for name in sorted(self._unused):
            self.problems.append(Problem(Place("overrides"), f"{name!r} is not selected", "use a selected name"))
        return CatalogSelection(tuple(nodes), tuple(dict.fromkeys(self.problems)), self.ways)

    def _spec(self, spec: Spec) -> list[CatalogNode]:
        if isinstance(spec, str):
            return self._text(spec)
        if isinstance(spec, CatalogEntry):
            return self.expander.entry(spec, InheritedSettings())
        fields = Fields.of(dict(spec), Origin("configuration"))
        wrong = check_fields(fields)
        self.problems += wrong
        if any(problem.serious for problem in wrong) or not ("task" in fields or "group" in fields):
            if not wrong:
                fix = "write 'tag:NAME' for the tasks of a tag" if "tag" in fields else "give it a name"
                self.problems.append(Problem(Place("configuration"), "needs `task` or `group`", fix))
            return []
        return self.expander.inline(fields, InheritedSettings())

    def _text(self, spec: str) -> list[CatalogNode]:
        base, at, asked = spec.partition("@")
        if at and (not asked or "::" in asked):
            fix = "write the format last: `group::task@format`" if asked else "write `name@format`, or the name alone"
            self.problems.append(Problem(TASKS_PLACE, f"{spec!r} has no format after '@'", fix))
            return []
        settings = InheritedSettings(command=self._command(spec), commanded_format=asked or None)
        graph = self._graph(base)
        if graph is not None:
            return self._file_or_folder(graph, settings)
        if looks_like_path(base):
            return self._path(base, settings)
        if "::" in base:
            return self._descend(base.split("::"), settings)
        return self._name(base, settings)

    def _graph(self, base: str) -> Path | None:
        """The graph file that a SyGra task name means, where nothing else has that name."""
        if base in self.index.named or base in self.index.tags or (looks_like_path(base) and _path_exists(base)):
            return None
        return graph_file(base, [root.path for root, _ in self.index.parts if root.origin == "include_path"])

    def _command(self, spec: str) -> Fields:
        if spec not in self._overrides:
            return NO_FIELDS
        self._unused.discard(spec)
        fields = Fields.of(self._overrides[spec], Origin(f"overrides[{spec!r}]"))
        return fields.without("task", "group")

    def _name(self, name: str, settings: InheritedSettings) -> list[CatalogNode]:
        if not glob.has_magic(name):
            return self.expander.named(MemberReference(name, TASKS_PLACE), settings)
        names = self.matching(name)
        if not names:
            self.problems.append(unmatched(self.index, name, TASKS_PLACE))
        return [node for each in names for node in self.expander.named(MemberReference(each, TASKS_PLACE), settings)]

    def matching(self, pattern: str) -> list[str]:
        """The names that match a pattern, sorted; `tag:` patterns match tags only."""
        if pattern.startswith("tag:"):
            return [f"tag:{tag}" for tag in sorted(self.index.tags) if fnmatchcase(tag, pattern.removeprefix("tag:"))]
        return [name for name in self.index.names("task", "group", "tag") if fnmatchcase(name, pattern)]

    def _descend(self, steps: list[str], settings: InheritedSettings) -> list[CatalogNode]:
        """Select a path through groups. A step may skip levels: `mmlu::mmlu_anatomy` also matches below a subgroup."""
        starts = self._name(steps[0], settings)
        is_tag = steps[0].startswith("tag:") or (steps[0] not in self.index.named and steps[0] in self.index.tags)
        if is_tag:
            return self._below(starts, steps[1:], steps[0])
        nodes: list[CatalogNode] = []
        for start in starts:
            if isinstance(start, GroupNode):
                nodes += self._below(start.children, steps[1:], start.name, quiet=len(starts) > 1)
            elif not glob.has_magic(steps[0]):
                self.problems.append(
                    Problem(TASKS_PLACE, f"{steps[0]!r} is a task, not a group", f"ask for {steps[0]!r} alone")
                )
                return []
        if len(starts) > 1 and not nodes:
            self._nothing(
                f"no member below {steps[0]!r} is named {'::'.join(steps[1:])!r}", steps[-1], _own_names(starts)
            )
        return list({id(node): node for node in nodes}.values())

    def _below(
        self, nodes: Iterable[CatalogNode], steps: list[str], parent: str, *, quiet: bool = False
    ) -> list[CatalogNode]:
        there = list(nodes)
        matched = _matching_nodes(there, steps[0])
        if not matched and not quiet:
            otherwise = f"`assay show {parent}` draws its members"
            self._nothing(f"{parent!r} has no member {steps[0]!r}", steps[0], _own_names(there), otherwise)
        selected: list[CatalogNode] = []
        for node in matched:
            if len(steps) == 1:
                self.ways.setdefault(id(node), parent)
                selected.append(node)
            elif isinstance(node, GroupNode):
                selected += self._below(node.children, steps[1:], node.name, quiet=quiet or len(matched) > 1)
            else:
                self.problems.append(
                    Problem(TASKS_PLACE, f"{node.name!r} is a task and has no members", "end the path there")
                )
        if len(steps) > 1 and len(matched) > 1 and not selected and not quiet:
            self._nothing(f"no member below {parent!r} is named {'::'.join(steps)!r}", steps[-1], _own_names(matched))
        return selected

    def _path(self, written: str, settings: InheritedSettings) -> list[CatalogNode]:
        """Select the tasks of files and folders; a pattern may match several."""
        try:
            paths = paths_of(written)
            nodes = [node for path in paths for node in self._file_or_folder(path, settings)]
        except OSError as error:
            self.problems.append(
                Problem(Place(written), f"cannot be opened: {error.strerror or error}", "check the path")
            )
            return []
        if not paths:
            self.problems.append(Problem(Place(written), "no file matches this pattern", "check the path"))
        return nodes

    def _file_or_folder(self, path: Path, settings: InheritedSettings) -> list[CatalogNode]:
        if not path.exists():
            self.problems.append(Problem(Place(str(path)), "there is no such file", "check the path"))
            return []
        expander = self._beside(path)
        if path.is_dir():
            inside = [e for e in expander.index.entries() if Path(e.path).is_relative_to(path)]
            if (path / GRAPH_FILE).is_file():  # its subgraphs are below it
                own = str(path / GRAPH_FILE)
                inside = [e for e in inside if e.path == own or not e.path.endswith(f"/{GRAPH_FILE}")]
            chosen = list(_top_entries(inside))
        else:
            chosen = [entry for entry in expander.index.entries() if entry.path == str(path)]
        for entry in chosen:
            if entry.kind in ("broken", "format"):
                expander.read(entry)  # collects its problems
        usable = [entry for entry in chosen if entry.kind in ("task", "group", "graph")]
        if not chosen or (not usable and path.is_file() and chosen[0].kind == "template"):
            what = "the file holds no task or group" if path.is_file() else "no task or group in this folder"
            is_run = (path / "manifest.json").is_file()
            fix = f"it holds a run: `assay runs show {path}`" if is_run else "give YAML files with `task` or `group`"
            expander.problems.append(Problem(Place(str(path)), what, fix))
        nodes = [node for entry in usable for node in expander.entry(entry, settings)]
        if expander.problems is not self.problems:
            self.problems += expander.problems
        return nodes

    def _nothing(
        self, what: str, name: str, known: Iterable[str], otherwise: str = "`assay ls` lists every name"
    ) -> None:
        near = nearest(name, known)
        self.problems.append(Problem(TASKS_PLACE, what, f"did you mean {', '.join(near)}?" if near else otherwise))


def _top_entries(entries: list[CatalogEntry]) -> Iterator[CatalogEntry]:
    """The entries that no group among them contains; and all groups of a cycle."""
    named = {entry.name: entry for entry in entries if entry.kind in ("task", "group")}
    members = {name for entry in named.values() for name in entry.members}
    tops = [
        entry
        for entry in entries
        if entry.kind in ("broken", "format", "graph") or (entry.name in named and entry.name not in members)
    ]
    reached: set[str] = set()
    waiting = [entry.name for entry in tops if entry.name in named]
    while waiting:
        name = waiting.pop()
        if name in named and name not in reached:
            reached.add(name)
            waiting += named[name].members
    yield from tops
    yield from (entry for name, entry in named.items() if name not in reached)


def _matching_nodes(nodes: list[CatalogNode], pattern: str) -> list[CatalogNode]:
    """The nodes that match a step of a path: members of that name, else deeper ones; `name#2` is the second."""
    name, _, number = pattern.partition("#")
    matched = [node for node in nodes if _matches(node.name, name)]
    if not matched:
        matched = [node for node in _breadth_first(nodes) if _matches(node.name, name)]
    unique = list({id(node): node for node in matched}.values())
    return unique[int(number) - 1 : int(number)] if number.isdigit() else unique


def _own_names(nodes: Iterable[CatalogNode]) -> list[str]:
    """The names of nodes and of those below, without the groups that they are written in."""
    return list(dict.fromkeys(node.name.rpartition("::")[2] for node in _breadth_first(nodes)))


def _breadth_first(nodes: Iterable[CatalogNode]) -> Iterator[CatalogNode]:
    """Nodes and all below them, level by level."""
    level, seen = list(nodes), set[int]()
    while level:
        new = [node for node in level if id(node) not in seen]
        seen |= {id(node) for node in new}
        yield from new
        level = [child for node in new if isinstance(node, GroupNode) for child in node.children]


def _matches(name: str, pattern: str) -> bool:
    """Whether a node matches a step of a path, by its full name or the last part of it."""
    return fnmatchcase(name, pattern) or fnmatchcase(name.rpartition("::")[2], pattern)


def graph_file(name: str, folders: Sequence[str]) -> Path | None:
    """Find the graph file of a task by SyGra's name: below the current folder or one of `folders`, with or without `tasks`."""
    if not _SYGRA_NAME.fullmatch(name):
        return None
    inside = Path(*re.split(r"[./]", name))
    for start in (Path.cwd(), *map(Path, folders)):
        short = Path(*inside.parts[1:]) if inside.parts[0] == "tasks" else inside
        for way in (inside, Path("tasks") / inside, short):
            if (start / way / GRAPH_FILE).is_file():
                return (start / way / GRAPH_FILE).resolve()
    return None
