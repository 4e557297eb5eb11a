"""Names to trees of tasks and groups, each with its inherited settings, before any of them becomes an object."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from assay.catalog.conditions import ConditionError, holds
from assay.catalog.examine import DEFINING_KEYS, GROUP_KEYS, TASK_KEYS, empty_group_problems, is_legacy_task
from assay.catalog.include import NO_FIELDS, IncludeReader
from assay.catalog.index import CatalogEntry, Index
from assay.catalog.lm_eval_names import unknown_name
from assay.config.fields import Fields
from assay.errors import Place, Problem
from assay.records import Params

ALIASES = ("task_alias", "group_alias")
"""Keys that change how a thing is shown, not what it is."""
MAX_GROUP_DEPTH = 64
INVALID_CONDITION = "its condition is invalid"
DEFAULT_KEYS = tuple(key for key in TASK_KEYS if key not in (*GROUP_KEYS, "tag", "task_alias"))
"""The keys that tasks inherit from a group, or from a list that mentions one."""
OVERRIDE_KEYS = tuple(key for key in TASK_KEYS if key not in ("task", "tag"))
"""The keys of a task that a list may override."""

GroupTrail = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TaskNode:
    """A selected task: its fields with all defaults and overrides applied, and its format.

    `chosen_format` was requested outside the file (`task@format`) and is part of the task's name; `pristine` tasks
    have no settings from outside.
    """

    name: str
    fields: Fields
    registered: bool
    written_format: str | None = None
    chosen_format: str | None = None
    format_place: Place | None = None
    pristine: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class GroupNode:
    """A selected group with its members. One node may occur in several places of a selection."""

    name: str
    fields: Fields
    registered: bool
    children: tuple["CatalogNode", ...]
    chosen_format: str | None = None
    skipped: tuple[tuple[str, str], ...] = ()
    """Members whose condition is false, each with the condition."""
    undecided: tuple[tuple[str, str, Place], ...] = ()
    """Members that are listed although their condition is not decided, as there are no facts; each with the condition."""


CatalogNode = TaskNode | GroupNode


@dataclass(frozen=True, slots=True, eq=False)
class InheritedSettings:
    """Settings that a task inherits, weakest first; within each kind, the nearest to the task wins.

    `defaults` are keys of its groups, `overrides` those of the lists that mention it, `command` those of the command
    line. Of formats, the command line's wins, then the nearest.
    """

    defaults: Fields = field(default_factory=lambda: NO_FIELDS)
    overrides: Fields = field(default_factory=lambda: NO_FIELDS)
    command: Fields = field(default_factory=lambda: NO_FIELDS)
    format: str | None = None
    commanded_format: str | None = None
    format_place: Place | None = None

    def over(self, fields: Fields) -> Fields:
        """A registered task's fields with all of these applied over them."""
        return fields | self.defaults | self.overrides | self.command

    def around(self, fields: Fields) -> Fields:
        """An inline task's fields over all of these except the command line's."""
        return self.defaults | self.overrides | fields | self.command

    def below(self, defaults: Fields) -> "InheritedSettings":
        """The settings for the members of a group that has `defaults`."""
        return replace(self, defaults=self.defaults | defaults) if defaults else self

    def overridden(self, overrides: Fields, format: str | None, place: Place) -> "InheritedSettings":
        """The settings for a member that its list mentions, at `place`, with `overrides` or in a format."""
        if not overrides and format is None:
            return self
        where = place if format is not None and self.commanded_format is None else self.format_place
        return replace(self, overrides=self.overrides | overrides, format=format or self.format, format_place=where)

    @property
    def is_empty(self) -> bool:
        """Whether a task stays as registered: an alias changes how it is shown, not what it is."""
        return not any(key not in ALIASES for fields in (self.defaults, self.overrides, self.command) for key in fields)

    @property
    def chosen_format(self) -> str | None:
        return self.commanded_format or self.format


@dataclass(frozen=True, slots=True)
class MemberReference:
    """A name in a list, with the keys written beside it."""

    name: str
    place: Place
    written: Fields = field(default_factory=lambda: NO_FIELDS)

    @property
    def base(self) -> str:
        return self.name.partition("@")[0].removeprefix("tag:")

    @property
    def format(self) -> str | None:
        return self.name.partition("@")[2] or None

    @property
    def only_tag(self) -> bool:
        return self.name.startswith("tag:")


@dataclass(frozen=True, slots=True)
class ListedMember:
    """One item of a group's list, not expanded yet."""

    name: str
    expand: Callable[[], list[CatalogNode]]
    skipped: str = ""
    """Why it is left out, if it is."""
    undecided: tuple[tuple[str, str, Place], ...] = ()


class Expander:
    """Expands names into nodes. Problems are collected in `problems`; the rest is still expanded."""

    def __init__(
        self,
        index: Index,
        reader: IncludeReader,
        read: Callable[[CatalogEntry], Fields],
        facts: Params | None = None,
    ) -> None:
        self.index = index
        self.problems: list[Problem] = []
        self._reader = reader
        self.read = read
        self.facts = facts
        self._known: dict[tuple[str, InheritedSettings], CatalogNode | None] = {}

    def named(
        self, reference: MemberReference, settings: InheritedSettings, trail: GroupTrail = ()
    ) -> list[CatalogNode]:
        """Expand a name: a task, a group, or the tasks of a tag."""
        entry = None if reference.only_tag else self.index.named.get(reference.base)
        if entry is not None:
            node = self._of_entry(entry, reference, settings, trail)
            return [node] if node is not None else []
        if reference.base in self.index.tags:
            below = settings.overridden(reference.written.only(DEFAULT_KEYS), reference.format, reference.place)
            tagged = [MemberReference(name, reference.place) for name in self.index.tags[reference.base]]
            return [node for reference in tagged for node in self.named(reference, below, trail)]
        self._not_found(reference)
        return []

    def entry(self, entry: CatalogEntry, settings: InheritedSettings) -> list[CatalogNode]:
        """Expand one file."""
        node = self._of_entry(entry, MemberReference(entry.name, Place(entry.path)), settings, ())
        return [node] if node is not None else []

    def inline(self, fields: Fields, settings: InheritedSettings) -> list[CatalogNode]:
        """Expand a mapping given in place of a name: it means what it means in a group's list."""
        members = self._written(self._with_includes(fields), "", settings, ())
        return [node for member in members for node in member.expand()]

    def members(
        self, fields: Fields, parent: str, settings: InheritedSettings, trail: GroupTrail
    ) -> Iterator[ListedMember]:
        """The members of a group, in order."""
        below = settings.below(fields.only(DEFAULT_KEYS))
        listed = fields.get("task")
        items = listed if isinstance(listed, list | tuple) else [listed] if listed is not None else []
        for number, item in enumerate(items):
            if isinstance(item, str):
                place = partial(fields.place, "task", *([number] if items is listed else []))
                yield ListedMember(item, partial(self._listed, item, place, below, trail))
            elif isinstance(item, Mapping):
                written = self._with_includes(Fields.of(item, fields.origin("task").within("task", number)))
                reason = self._left_out(written)
                if reason:
                    yield ListedMember(str(written.get("task", written.get("group"))), list, reason)
                    continue
                for member in self._written(written.without("if"), parent, below, trail):
                    yield replace(member, undecided=self._undecided(member.name, written))

    def _left_out(self, written: Fields) -> str:
        """Why a member with a condition is left out; empty where it is not, or where there are no facts."""
        if "if" not in written or self.facts is None:
            return ""
        try:
            condition = str(written["if"])
            return "" if holds(condition, self.facts) else f"`if: {condition}` is false"
        except ConditionError as error:
            self.problems.append(Problem(written.place("if"), f"invalid condition: {error.what}", error.fix))
            return INVALID_CONDITION

    def _undecided(self, name: str, written: Fields) -> tuple[tuple[str, str, Place], ...]:
        """The condition of a member, where there are no facts to decide it."""
        is_decided = "if" not in written or self.facts is not None
        return () if is_decided else ((name, str(written["if"]), written.place("if")),)

    def _listed(
        self, name: str, place: Callable[[], Place], settings: InheritedSettings, trail: GroupTrail
    ) -> list[CatalogNode]:
        # A place is looked up only where something is wrong: a group may list ten thousand names.
        known = name in self.index.named and name not in trail
        return self.named(MemberReference(name, Place("?") if known and "@" not in name else place()), settings, trail)

    def _written(
        self, written: Fields, parent: str, settings: InheritedSettings, trail: GroupTrail
    ) -> Iterator[ListedMember]:
        key = "group" if "group" in written and not is_legacy_task(written) else "task"
        if not isinstance(written.get(key), str):
            return  # reported when the file was checked
        reference = MemberReference(str(written[key]), written.place(key), written)
        if key == "group" and "task" in written:
            name = f"{parent}::{reference.base}" if parent else reference.base
            yield ListedMember(reference.base, partial(self._group, name, written, settings, trail, registered=False))
        elif key == "task" and not self._is_known(reference) and any(own in written for own in DEFINING_KEYS):
            yield ListedMember(reference.base, partial(self._inline_task, reference, parent, settings))
        else:
            yield ListedMember(reference.name, partial(self.named, reference, settings, trail))

    def _is_known(self, reference: MemberReference) -> bool:
        return reference.base in self.index.named or reference.base in self.index.tags

    def _of_entry(
        self, entry: CatalogEntry, reference: MemberReference, settings: InheritedSettings, trail: GroupTrail
    ) -> CatalogNode | None:
        if entry.name in trail:
            loop = " → ".join((*trail[trail.index(entry.name) :], entry.name))
            self.problems.append(
                Problem(reference.place, f"groups contain each other in a circle: {loop}", "take one member out")
            )
            return None
        is_group = entry.kind == "group"
        overrides = reference.written.only(DEFAULT_KEYS if is_group else OVERRIDE_KEYS)
        below = settings.overridden(overrides, reference.format, reference.place)
        key = (entry.path, below)
        if key not in self._known:
            if is_group:
                groups = self._group(entry.name, self.read(entry), below, trail, registered=True)
                self._known[key] = groups[0] if groups else None
            else:
                self._known[key] = self._task_entry(entry, below)
        node = self._known[key]
        return _with_mentioned_keys(node, reference.written) if isinstance(node, GroupNode) else node

    def _task_entry(self, entry: CatalogEntry, settings: InheritedSettings) -> CatalogNode:
        fields = self.read(entry)
        suffix = str(fields.get("task", "")).partition("@")[2]
        asked = settings.chosen_format
        return TaskNode(
            name=entry.name,
            fields=settings.over(fields),
            registered=True,
            written_format=suffix or None,
            chosen_format=asked,
            format_place=settings.format_place if asked else fields.place("task") if suffix else None,
            pristine=settings.is_empty,
        )

    def _group(
        self, name: str, fields: Fields, settings: InheritedSettings, trail: GroupTrail, *, registered: bool
    ) -> list[CatalogNode]:
        if len(trail) >= MAX_GROUP_DEPTH:
            what = f"groups are nested more than {MAX_GROUP_DEPTH} deep"
            self.problems.append(Problem(fields.place("group"), what, "flatten them"))
            return []
        members = list(self.members(fields, name, settings, (*trail, name)))
        if not any(member.skipped == INVALID_CONDITION for member in members):  # which is reported
            self.problems += empty_group_problems(fields, [(member.name, member.skipped) for member in members])
        children = [node for member in members for node in member.expand()]
        skipped = tuple((member.name, member.skipped) for member in members if member.skipped)
        undecided = tuple(condition for member in members for condition in member.undecided)
        return [GroupNode(name, fields, registered, tuple(children), settings.chosen_format, skipped, undecided)]

    def _inline_task(self, reference: MemberReference, parent: str, settings: InheritedSettings) -> list[CatalogNode]:
        name = f"{parent}::{reference.base}" if parent else reference.base
        fields = settings.around(reference.written)
        chosen = settings.commanded_format or reference.format or settings.format
        place = settings.format_place if settings.commanded_format else reference.place
        return [TaskNode(name, fields, registered=False, chosen_format=chosen, format_place=place)]

    def _with_includes(self, written: Fields) -> Fields:
        if "include" not in written:
            return written
        merged = self._reader.within(written)
        self.problems += merged.problems
        return merged.fields | written.without("include")

    def _not_found(self, reference: MemberReference) -> None:
        broken = next((entry for entry in self.index.broken if entry.name == reference.base), None)
        if broken is not None:
            self.problems.append(
                Problem(reference.place, f"{reference.base!r} is broken: {broken.error}", "correct that file")
            )
            return
        problem = unknown_name(self.index, reference.base, reference.place, only_tag=reference.only_tag)
        if "group" in reference.written:
            problem = replace(problem, fix=f"{problem.fix}; or list the members of a new group under `task:`")
        elif reference.written:
            problem = replace(problem, fix=f"{problem.fix}; or give an inline task its dataset_path")
        self.problems.append(problem)


def _with_mentioned_keys(node: GroupNode, written: Fields) -> GroupNode:
    """A group with the alias, metadata or aggregation from the list that mentions it."""
    own = written.only([key for key in GROUP_KEYS if key not in ("group", "task")])
    if "task_alias" in written:
        own = own | Fields({"group_alias": written["task_alias"]}, {"group_alias": written.origin("task_alias")})
    return replace(node, fields=node.fields | own) if own else node
