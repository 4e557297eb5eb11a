"""Finds tasks by name and makes them objects, with their groups around them."""

import os
import warnings
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, TypedDict, TypeVar

from assay.catalog.catalog import Catalog
from assay.catalog.examine import GROUP_KEYS, TASK_KEYS, without_followers
from assay.catalog.expand import CatalogNode, GroupNode, TaskNode
from assay.catalog.index import CatalogEntry
from assay.catalog.roots import IncludePath
from assay.catalog.selection import Overrides, Spec
from assay.config.decode import MOST_UNKNOWN, decode, meant_key
from assay.config.fields import Fields
from assay.config.group import GroupConfig
from assay.config.kinds import KINDS, kind_key
from assay.config.option import YAMLMapping, YAMLValue
from assay.config.task import FormatConfig, TaskConfig
from assay.dialect import OURS, Dialect, dialect_of, dialect_of_files
from assay.errors import ConfigError, Place, Problem, collect, uncheckable
from assay.groups import Group, StandardGroup
from assay.groups.checks import resolved_kind
from assay.groups.group import group_type
from assay.records import Function
from assay.registry import Registry
from assay.samples.formats import FORMATS, LM_EVALS_GENERATE, apply_format, choose_format, format_from_mapping
from assay.scoring.helper_code import Resolve
from assay.tasks.naming import Meaning, meanings
from assay.tasks.task import Task, set_group_rules
from assay.user_code import UserCodeError, user_code

Config = TypeVar("Config", TaskConfig, GroupConfig)
Loadable = Spec | Task | Group[Task]
HELPER_CODE: Registry[Callable[[], Any], Any] = Registry("helper code", {"modules": "assay.compat.modules:HelperCode"})
"""Loads the modules beside files; it is imported when the first is needed, and it needs tasks itself."""


class LoadedTasks(TypedDict):
    """The result of `load`: all tasks and groups by key, and for each group the keys of its direct members."""

    tasks: dict[str, Task]
    groups: dict[str, Group[Task]]
    group_map: dict[str, list[str]]


class TaskManager:
    """Knows every task, group and tag, and loads what is asked for.

    `include_path` adds folders to those bundled, of an installed lm_eval and of plug-ins (`include_defaults`).
    `metadata` is handed to every task and group; `facts` are what conditions of members speak of.
    `compat` is that of the run: with "lm-eval", every folder is read as lm-eval's own.
    """

    def __init__(
        self,
        verbosity: str | None = None,
        include_path: IncludePath = None,
        include_defaults: bool = True,
        metadata: YAMLMapping | None = None,
        compat: str | None = None,
        facts: YAMLMapping | None = None,
    ) -> None:
        if verbosity is not None:
            warnings.warn("`verbosity` has no effect: configure logging instead", DeprecationWarning, stacklevel=2)
        self.catalog = Catalog(include_path, include_defaults=include_defaults, dialect=dialect_of_files(compat))
        self.facts = facts
        self.compat = compat
        self.metadata = dict(metadata or {})

    def __repr__(self) -> str:
        counts = [f"{len(self.catalog.names(kind)):,} {kind}s" for kind in ("task", "group", "tag")]
        return f"<TaskManager: {', '.join(counts)}>"

    def with_facts(self, facts: YAMLMapping) -> "TaskManager":
        """The manager with what conditions of members speak of; itself, where it was told that."""
        if self.facts is not None:
            return self
        manager = copy(self)  # with the same catalog: its index takes long to make
        manager.facts = facts
        return manager

    @property
    def all_tasks(self) -> list[str]:
        """Every name that can be run: tasks, groups and tags."""
        return self.catalog.names("task", "group", "tag")

    @property
    def all_groups(self) -> list[str]:
        """The names of all groups."""
        return self.catalog.names("group")

    @property
    def all_subtasks(self) -> list[str]:
        """The names of all tasks."""
        return self.catalog.names("task")

    @property
    def all_tags(self) -> list[str]:
        """The names of all tags."""
        return self.catalog.names("tag")

    @cached_property
    def _formats(self) -> "KnownFormats":
        return KnownFormats(self.catalog, dialect_of(self.compat))

    @property
    def formats(self) -> Mapping[str, FormatConfig]:
        """Every format that `task@format` can name: the built-in ones and those of YAML files that are whole."""
        return self._formats.whole

    @property
    def format_problems(self) -> Sequence[Problem]:
        """Problems of the formats in YAML files. A broken one concerns only tasks that ask for it."""
        return self._formats.problems

    @property
    def broken_formats(self) -> Mapping[str, Sequence[Problem]]:
        return self._formats.broken

    def match_tasks(self, task_list: Iterable[str]) -> list[str]:
        """The names that the given names and globs match, sorted; those that match nothing are absent."""
        return self.catalog.match(task_list)

    def load(
        self,
        specs: "Loadable | Iterable[Loadable]",
        overrides: Overrides | None = None,
    ) -> LoadedTasks:
        """Load what is asked for, or raise a ConfigError with everything that is wrong with it."""
        single = isinstance(specs, str | Mapping | CatalogEntry | Task | Group | os.PathLike)
        listed: list[Any] = [specs] if single else list(specs)  # type: ignore[arg-type]
        objects = [spec for spec in listed if isinstance(spec, Task | Group)]
        names = [spec for spec in listed if not isinstance(spec, Task | Group)]
        loaded, problems = self.attempt(names, overrides, resolve=self.resolve)
        if any(problem.serious for problem in problems):
            raise ConfigError([problem for problem in problems if problem.serious])
        loaded_objects = _flat(objects)
        empty = [group for group in loaded_objects["groups"].values() if not group.children]
        if empty:
            fix = "add tasks or groups to it with add_child"
            raise ConfigError([Problem(Place(f"group {g.name!r}"), "the group has no members", fix) for g in empty])
        return LoadedTasks(
            tasks={**loaded["tasks"], **loaded_objects["tasks"]},
            groups={**loaded["groups"], **loaded_objects["groups"]},
            group_map={**loaded["group_map"], **loaded_objects["group_map"]},
        )

    def attempt(
        self,
        specs: YAMLValue,
        overrides: Overrides | None = None,
        *,
        thorough: bool = False,
        resolve: Resolve | None = None,
    ) -> tuple[LoadedTasks, list[Problem]]:
        """Return the tasks that load and all problems; `thorough` checks again what the index found right, and returns
        tasks with wrong values, too, so that nothing hides what else is wrong with them.

        With `resolve`, groups can load the functions that they name, and are of the class that they name.
        """
        selection = self.catalog.select(specs, overrides, facts=self.facts, thorough=thorough)
        problems = list(selection.problems)
        known = meanings(selection.nodes, selection.ways)
        builder = _Builder(self, known, problems, resolve, thorough=thorough)
        built = [builder.build(node) for node in selection.nodes]
        return _flat(item for item in built if item is not None), without_followers(problems)

    @cached_property
    def resolve(self) -> Resolve:
        """Returns the objects that groups name with `!function`; each module is executed once."""
        resolve: Resolve = HELPER_CODE["modules"]().resolve
        return resolve

    def list_all_tasks(self, list_groups: bool = True, list_tags: bool = True, list_subtasks: bool = True) -> str:
        """Markdown tables of all names."""
        named = self.catalog.index.named
        tables = []
        if list_groups:
            tables.append(_markdown(("Group", "Config Location"), [(n, named[n].path) for n in self.all_groups]))
        if list_tags:
            tables.append(_markdown(("Tag",), [(tag,) for tag in self.all_tags]))
        if list_subtasks:
            rows = [(name, named[name].path, named[name].output_type) for name in self.all_subtasks]
            tables.append(_markdown(("Task", "Config Location", "Output Type"), rows))
        return "\n" + "".join(table + "\n\n" for table in tables)


class _Builder:
    """Nodes to objects: one object per meaning, however often it is selected."""

    def __init__(
        self,
        manager: TaskManager,
        known: Mapping[int, Meaning],
        problems: list[Problem],
        resolve: Resolve | None,
        *,
        thorough: bool,
    ) -> None:
        self.manager = manager
        self.resolve = resolve
        self.thorough = thorough
        self.meanings = known
        self.problems = problems
        self.built: dict[int, Task | Group[Task] | None] = {}

    def build(self, node: CatalogNode) -> Task | Group[Task] | None:
        meaning = self.meanings[id(node)]
        if id(meaning) not in self.built:
            self.built[id(meaning)] = None
            try:
                with user_code("cannot be checked"):  # a file may say anything: the others are loaded
                    self.built[id(meaning)] = (
                        self._group(node, meaning) if isinstance(node, GroupNode) else self._task(node, meaning)
                    )
            except ConfigError as error:
                self.problems += error.problems
            except UserCodeError as error:
                file = file_of(node.fields)
                if not any(known.serious and known.place.file == file for known in self.problems):  # which may be why
                    self.problems.append(uncheckable(file, str(error)))
        return self.built[id(meaning)]

    def _task_of_kind(self, node: TaskNode, marking: str, meaning: Meaning) -> Task:
        if node.chosen_format is not None:
            what = f"a {KINDS[marking].name} has no formats: {node.name}@{node.chosen_format}"
            raise ConfigError.at(node.format_place or node.fields.place(marking), what, "name it without a format")
        task = Task.from_kind(node.fields, name=meaning.key, problems=self.problems if self.thorough else None)
        task.config = self._with_metadata(task.config)
        task.alias = _alias(meaning, "task_alias") or meaning.key
        return task

    def _task(self, node: TaskNode, meaning: Meaning) -> Task | None:
        marking = kind_key(node.fields)
        if marking is not None:
            return self._task_of_kind(node, marking, meaning)
        wrong: list[Problem] = []
        config = decode(TaskConfig, node.fields, wrong, known=BESIDE_TASK)
        fields = _as_meant(node.fields) if wrong and self.thorough else node.fields
        chosen = collect(wrong, self._format, node, fields)
        self.problems += wrong
        if config is None or (any(problem.serious for problem in wrong) and not self.thorough):
            return None
        change = apply_format(config, chosen, any_output="output_type" not in fields) if chosen is not None else None
        task = Task(self._with_metadata(change.config if change else config), name=meaning.key, fields=fields)
        task.notes = change.notes if change else ()
        task.format = (
            node.chosen_format or node.written_format or chosen.format if change and chosen is not None else None
        )
        task.alias = _alias(meaning, "task_alias") or (
            meaning.key if node.registered else meaning.key.rpartition("::")[2]
        )
        return task

    def _format(self, node: TaskNode, fields: Fields) -> FormatConfig | None:
        """The format of a task: the one asked for, else that of its file, else none."""
        asked = node.chosen_format or node.written_format
        if asked in self.manager.broken_formats and asked not in self.manager.formats:
            raise ConfigError(self.manager.broken_formats[str(asked)])
        return choose_format(fields, asked, self.manager.formats, node.format_place)

    def _with_metadata(self, config: Config) -> Config:
        """The configuration of a task or group, with the manager's metadata over its own."""
        if not self.manager.metadata:
            return config
        own = config.metadata if isinstance(config.metadata, Mapping) else {}
        return replace(config, metadata={**own, **self.manager.metadata})

    def _group(self, node: GroupNode, meaning: Meaning) -> Group[Task] | None:
        own = [key for key in node.fields if key in GROUP_KEYS]
        wrong: list[Problem] = []
        config = decode(GroupConfig, node.fields.only(own), wrong)
        members = [(child, self.build(child)) for child in node.children]
        self.problems += wrong
        if config is None or (any(problem.serious for problem in wrong) and not self.thorough):
            return None
        config = self._with_metadata(config)
        if isinstance(config.type, Function) and self.resolve is not None:
            config = replace(config, type=resolved_kind(config.type, self.resolve))  # type: ignore[arg-type]  # resolved
        group = self._new_group(self._kind(config, node), config)
        group.resolve = self.resolve
        group.name, group.fields = meaning.key, node.fields
        set_group_rules(group, OURS)
        group.skipped, group.undecided = dict(node.skipped), node.undecided
        group.alias = _alias(meaning, "group_alias") or (
            meaning.key if node.registered else meaning.key.rpartition("::")[2]
        )
        for child, member in members:
            if member is not None:
                key = "group_alias" if isinstance(child, GroupNode) else "task_alias"
                alias = child.fields.get(key)
                group.add_child(member, alias=alias if isinstance(alias, str) else None)
        return group

    @staticmethod
    def _new_group(kind: type[StandardGroup[Task]], config: GroupConfig) -> Group[Task]:
        try:
            return kind(config)
        except ConfigError:  # an aggregator is wrong: `group_problems` says so, with its place in the file
            group = kind(replace(config, aggregate_metric_list=None))
            group.config = config
            return group

    def _kind(self, config: GroupConfig, node: GroupNode) -> type[StandardGroup[Task]]:
        """The class of a group. One that a `!function` names is known when helper code is run."""
        kind = group_type(config.type) if config.type is not None else StandardGroup
        if kind is None:
            fix = "give the name of a subclass of StandardGroup that is imported, or !function module.Class"
            raise ConfigError.at(node.fields.place("type"), f"no kind of group named {config.type!r}", fix)
        return kind


BESIDE_TASK = ("group", "task_list", "include")
"""Keys that a task file may have, and that are not the task's."""


def _as_meant(fields: Fields) -> Fields:
    """A task's fields with misspelled keys as they are probably meant: then nothing is reported to be missing for a slip."""
    unknown = [key for key in fields if key not in TASK_KEYS and key not in BESIDE_TASK]
    for key in unknown[:MOST_UNKNOWN]:
        meant = meant_key(TaskConfig, key, fields)
        fields = fields.renamed(key, meant) if meant is not None else fields
    return fields


def file_of(fields: Fields) -> str:
    """The file that a task or group is written in."""
    return next((fields.place(key).file for key in ("task", "group", *fields) if key in fields), "configuration")


def _alias(meaning: Meaning, key: str) -> str | None:
    """The name to show: the one alias all places agree on."""
    aliases = {alias for node in meaning.nodes if isinstance(alias := node.fields.get(key), str)}
    return aliases.pop() if len(aliases) == 1 else None


def _flat(items: Iterable[Task | Group[Task]]) -> LoadedTasks:
    loaded = LoadedTasks(tasks={}, groups={}, group_map={})

    def collect(node: Task | Group[Task]) -> None:
        if isinstance(node, Group):
            loaded["groups"][node.name] = node
            loaded["group_map"][node.name] = node.child_names
        else:
            loaded["tasks"][node.name] = node

    for item in items:
        if isinstance(item, Group):
            item.traverse(collect)
        else:
            collect(item)
    return loaded


def _markdown(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("|" + "|".join(cells) + "|" for cells in lines)


class KnownFormats:
    """`whole` can be asked for; `broken` says of the others what is wrong. A format may start from any other."""

    def __init__(self, catalog: Catalog, dialect: Dialect) -> None:
        self._fields: dict[str, Fields] = {}
        built_in = {"generate": LM_EVALS_GENERATE} if dialect.has_lm_evals_generate_format else {}
        self.whole: MutableMapping[str, FormatConfig] = ChainMap(built_in, FORMATS)
        self.broken: dict[str, list[Problem]] = {}
        for name, entry in sorted(catalog.index.formats.items()):
            fields, problems = catalog.read(entry, thorough=True)
            if name in set(FORMATS):
                problems.append(Problem(fields.place("format"), f"format {name!r} is built in", "choose another name"))
            serious = [problem for problem in problems if problem.serious]
            if serious:
                self.broken[name] = serious
            else:
                self._fields[name] = fields
        for name in self._fields:
            self._settle(name, ())

    @property
    def problems(self) -> list[Problem]:
        return [problem for problems in self.broken.values() for problem in problems]

    def _settle(self, name: str, chain: tuple[str, ...]) -> None:
        """Make a format, and first the one it starts from."""
        if name in self.whole or name in self.broken or name not in self._fields:
            return
        fields = self._fields[name]
        base = fields.get("type", "mcqa")
        if name in chain or base == name:
            loop = " → ".join((*chain[chain.index(name) :], name) if name in chain else (name, name))
            what = f"formats start from each other in a circle: {loop}"
            self.broken[name] = [Problem(fields.place("type"), what, "let one start from a built-in format")]
            return
        self._settle(str(base), (*chain, name))
        if name in self.broken:
            return
        if base in self.broken:
            what = f"format {base!r}, which it starts from, is broken"
            self.broken[name] = [Problem(fields.place("type"), what, "correct that one")]
            return
        try:
            self.whole[name] = replace(format_from_mapping(fields, self.whole, default="mcqa"), format=name)
        except ConfigError as error:
            self.broken[name] = list(error.problems)
