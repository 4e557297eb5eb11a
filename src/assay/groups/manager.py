"""All groups and tasks of a hierarchy, and who belongs to whom."""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic

from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.config.group import GroupConfig
from assay.config.task import TaskConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.groups.group import Group, Node, StandardGroup, TaskT, group_type
from assay.groups.results import bottom_up
from assay.groups.rows import documents_of
from assay.groups.task_results import MemberRows, Members, known_floats
from assay.records import Params, UserValue


class GroupManager(Generic[TaskT]):
    """Holds groups and tasks by name and links them as their configurations say."""

    def __init__(self) -> None:
        self.groups: dict[str, Group[TaskT]] = {}
        self.tasks: dict[str, TaskT] = {}

    @property
    def root_groups(self) -> list[Group[TaskT]]:
        """The groups that are in no other, in the order they were registered."""
        return [group for group in self.groups.values() if not group.parents]

    def register_group(self, group: Group[TaskT]) -> None:
        """Know a group by its name; another of that name is replaced."""
        self.groups[group.name] = group

    def register_task(self, task: TaskT) -> None:
        """Know a task by its name, so that groups can have it as a member."""
        self.tasks[task.name] = task

    def build_hierarchy(self, config_dict: Mapping[str, GroupConfig | TaskConfig | Params]) -> None:
        """Make a group of each configuration, then link each to its members; an unknown member is an error.

        Configurations of tasks make none: `register_task` adds the tasks themselves.
        """
        configs = [
            group_config
            for name, config in config_dict.items()
            if not isinstance(config, TaskConfig)
            for group_config in _with_inner(_config(name, config))
        ]
        for config in configs:
            kind = group_type(config.type) if config.type is not None else StandardGroup
            if kind is None:
                what, fix = f"no kind of group named {config.type!r}", "import the class, or leave `type` out"
                raise ConfigError.at(f"group {config.group!r}", what, fix)
            self.register_group(kind(config))
        problems: list[Problem] = []
        for config in configs:
            self._link(self.groups[config.group], config, config_dict, problems)
        if problems:
            raise ConfigError(problems)

    def _link(
        self, group: Group[TaskT], config: GroupConfig, given: Mapping[str, object], problems: list[Problem]
    ) -> None:
        for member in config.task or ():
            name = member if isinstance(member, str) else _member_name(group.name, member)
            alias = None if isinstance(member, str) else member.get("task_alias", member.get("group_alias"))
            child = self.groups.get(str(name)) or self.tasks.get(str(name))
            if child is None:
                what, names = f"no task or group named {name!r}", (*self.groups, *self.tasks)
                fix = did_you_mean(str(name), [known for known in names if known != group.name])
                if isinstance(given.get(str(name)), TaskConfig):
                    what = f"the task {name!r} is not registered"
                    fix = "call `register_task(Task(config))` before `build_hierarchy`"
                problems.append(Problem(Place(f"group {group.name!r}"), what, fix))
            else:
                group.add_child(child, alias=alias if isinstance(alias, str) else None)

    def get_groups_for_task(self, task_name: str) -> list[Group[TaskT]]:
        """The groups that list a task."""
        return [group for group in self.groups.values() if any(child.name == task_name for child in group.children)]

    def get_tasks_for_group(self, group_name: str) -> list[TaskT]:
        """Every task below a group, each once."""
        group = self.groups.get(group_name)
        return group.get_all_tasks() if group is not None else []

    def traverse_hierarchy(self, visitor: Callable[[Node[TaskT]], None], root: Group[TaskT] | None = None) -> None:
        """Call `visitor` with every node below `root`, or below all roots, each once."""
        seen: set[int] = set()

        def visit_once(node: Node[TaskT]) -> None:
            if id(node) not in seen:
                seen.add(id(node))
                visitor(node)

        for group in [root] if root is not None else self.root_groups:
            group.traverse(visit_once)

    def compute_all_group_metrics(self, task_results: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
        """The numbers of every group: members first, so that a group may build on those of the groups in it."""
        members = Members(task_results)
        numbers: dict[str, dict[str, float]] = {}
        for group in bottom_up(self.groups.values()):
            rows = group.rows(members)
            numbers[group.name] = known_floats(group.name, rows)
            members.add(group.name, MemberRows(rows, documents_of(group, members)))
        return {name: numbers[name] for name in self.groups}


def _member_name(group: str, member: Params) -> UserValue:
    """The name of a member; of one written in place, with that of its group."""
    if "group" in member and "task" in member:
        return f"{group}::{member['group']}"
    return member.get("task", member.get("group"))


def _with_inner(config: GroupConfig) -> Iterator[GroupConfig]:
    """A group and the groups written in place in it."""
    yield config
    for member in config.task or ():
        if isinstance(member, Mapping) and "group" in member and "task" in member:
            inner = {key: value for key, value in member.items() if key not in ("group", "if")}
            yield from _with_inner(_config(f"{config.group}::{member['group']}", inner))


def _config(name: str, config: GroupConfig | Params) -> GroupConfig:
    if isinstance(config, GroupConfig):
        return config
    problems: list[Problem] = []
    group_config = decode(GroupConfig, Fields.of({"group": name, **config}, Origin(f"group {name!r}")), problems)
    if group_config is None or problems:
        raise ConfigError(problems)
    return group_config
