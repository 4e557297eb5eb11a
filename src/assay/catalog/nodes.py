"""What a selection is: a tree of tasks and groups with all their settings, before any of them becomes an object."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from assay.catalog.include import NO_FIELDS
from assay.config.fields import Fields
from assay.errors import Place


@dataclass(frozen=True, slots=True, eq=False)
class TaskNode:
    """A task as it is reached: its fields with every default and override in place, and the format it is asked in.

    `chosen_format` was asked for from outside the file (`task@format`) and is part of what the task is called;
    `pristine` ones have nothing from outside: they are as their file says.
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
    """A group as it is reached, with its members. One node may stand in several places of a selection."""

    name: str
    fields: Fields
    registered: bool
    children: tuple["Node", ...]
    chosen_format: str | None = None
    skipped: tuple[tuple[str, str], ...] = ()
    """Members whose condition does not hold, each with it."""


Node = TaskNode | GroupNode


@dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """What comes down to a task from outside its file, weakest first; within each, what is nearest to the task wins.

    `defaults` are keys of the groups around it, `overrides` those of the lists that mention it, `command` those of the
    command line. Of formats, the one of the command line wins, then the nearest.
    """

    defaults: Fields = field(default_factory=lambda: NO_FIELDS)
    overrides: Fields = field(default_factory=lambda: NO_FIELDS)
    command: Fields = field(default_factory=lambda: NO_FIELDS)
    format: str | None = None
    commanded_format: str | None = None
    format_place: Place | None = None

    def over(self, fields: Fields) -> Fields:
        """A registered task's fields under all of these."""
        return fields | self.defaults | self.overrides | self.command

    def around(self, fields: Fields) -> Fields:
        """An inline task's fields over all of these but the command line's: what it says stands nearest to it."""
        return self.defaults | self.overrides | fields | self.command

    def below(self, defaults: Fields) -> "Settings":
        """The settings for the members of a group that has `defaults`."""
        return replace(self, defaults=self.defaults | defaults) if defaults else self

    def overridden(self, overrides: Fields, format: str | None, place: Place) -> "Settings":
        """The settings for a member that its list mentions, at `place`, with `overrides` or in a format."""
        if not overrides and format is None:
            return self
        where = place if format is not None and self.commanded_format is None else self.format_place
        return replace(self, overrides=self.overrides | overrides, format=format or self.format, format_place=where)

    @property
    def is_empty(self) -> bool:
        return not (self.defaults or self.overrides or self.command)

    @property
    def chosen_format(self) -> str | None:
        return self.commanded_format or self.format


def tasks_below(node: Node) -> Iterator[TaskNode]:
    """Every task of a tree, in order, as often as it stands there."""
    if isinstance(node, TaskNode):
        yield node
    else:
        for child in node.children:
            yield from tasks_below(child)
