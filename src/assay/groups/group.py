"""A group knows its members and its parents; a member may have several of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Union

from assay.config.fields import Fields
from assay.config.group import AggMetricConfig, GroupConfig
from assay.errors import ConfigError, Place, Problem
from assay.groups.task_results import Members, TaskResults, add_rows, guarded, known_floats, user_rows
from assay.records import Function
from assay.score_keys import ScoreKey
from assay.statistics.evidence import Estimate
from assay.user_code import is_overridden

if TYPE_CHECKING:
    from assay.groups.aggregators import Aggregator


class TaskLike(Protocol):
    """The part of a task that a group needs: a name, and methods to add it to groups and tags. Adding twice changes nothing."""

    @property
    def name(self) -> str: ...
    def add_to_group(self, group: Any) -> None: ...  # a Group of just this kind of task, which a Protocol cannot say
    def add_tag(self, tag: str) -> None: ...


TaskT = TypeVar("TaskT", bound=TaskLike)
MOST_WRITTEN = 60
"""Letters up to which a wrong value is named in an error, rather than its type."""
COMPUTING = ("compute_metrics", "own_metrics", "get_all_tasks")
"""Methods of a group that its numbers follow from, which a user may replace."""
Node = Union["Group[TaskT]", TaskT]


class Group(ABC, Generic[TaskT]):
    """A collection of tasks and groups under one name. Its kind says what may be added.

    name, alias:   the name in results, and in tables
    config:        its GroupConfig
    metadata:      `version`, `description`, and whatever else is said of it
    parents:       the groups it is in; `parent` is the first of them
    children:      its members, in order
    """

    def __init__(self, config: GroupConfig, parent: "Group[TaskT] | None" = None) -> None:
        kind = group_type(config.type) if config.type is not None else Group
        if kind is None or not isinstance(self, kind):
            what = f"its configuration has `type: {getattr(kind, '__name__', config.type)}`, and it is a {type(self).__name__}"
            raise ConfigError.at(f"group {config.group!r}", what, "make an object of that class, or leave `type` out")
        self.config = config
        self.fields = Fields({}, {})  # what its file says, with origins, where it comes from a file
        self.name = config.group
        self.alias = config.group_alias or config.group
        self.metadata: dict[str, object] = dict(config.metadata or {})
        self.parents: list[Group[TaskT]] = []
        self.children: list[Node[TaskT]] = []
        self.member_aliases: dict[str, str] = {}
        self.skipped: dict[str, str] = {}  # members left out, each with the condition that does not hold
        self.undecided: Sequence[
            tuple[str, str, Place]
        ] = ()  # members with a condition that was not decided, with its place
        self.directions: dict[str, bool | None] = {}  # by metric whether more is better, as its members say
        self.resolve: Callable[[Function], Any] | None = None  # loads the functions that its file names
        self._configured = self._configured_aggregator()
        self._aggregator = self._aggregator or self._configured
        if parent is not None:
            parent.add_child(self)

    _aggregator: "Aggregator | None" = None
    """The aggregator of its configuration, until a user, or the constructor of a user's class, sets another."""

    def _configured_aggregator(self) -> "Aggregator | None":
        """Make the aggregator of its configuration; None where that names a function that is not loaded."""
        from assay.groups.aggregators import AggregatorFactory  # aggregators know groups

        if any(isinstance(entry.aggregation, Function) for entry in self.config.aggregate_metric_list or ()):
            return None
        return AggregatorFactory.create_aggregator(self.config)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {len(self.children)} members)"

    @property
    def aggregator(self) -> "Aggregator":
        """The aggregator that computes its numbers: that of its configuration, or one that was set."""
        configured = self._configured
        if self._aggregator is None or (self._aggregator is configured and configured.config is not self.config):
            made = self._configured_aggregator() or self._with_functions()._configured_aggregator()
            self._configured = self._aggregator = made
        assert self._aggregator is not None
        return self._aggregator

    @aggregator.setter
    def aggregator(self, aggregator: "Aggregator") -> None:
        problem = aggregator_problem(self.name, aggregator)
        if problem is not None:
            raise ConfigError([problem])
        self._aggregator = aggregator

    @property
    def has_own_aggregator(self) -> bool:
        """Whether an aggregator was set, or a method on it, or a user's class defines it: then the numbers are not those of
        the configuration."""
        from assay.groups.aggregators import has_methods_set  # aggregators know groups

        if type(self).aggregator is not Group.aggregator:
            return True
        own = self._aggregator
        return own is not None and (own is not self._configured or has_methods_set(own))

    @property
    def computes_own_numbers(self) -> bool:
        """Whether a user's code replaced what computes its numbers: its aggregator, or one of these methods."""
        return self.has_own_aggregator or any(is_overridden(self, name, Group) for name in COMPUTING)

    @property
    def aggregated_entries(self) -> Sequence[AggMetricConfig]:
        """The entries that its numbers follow from; none where an aggregator that was set need not follow any."""
        from assay.groups.aggregators import follows_entries  # aggregators know groups

        if not self.has_own_aggregator:
            return self.config.aggregate_metric_list or ()
        aggregator = self.aggregator
        return aggregator.agg_metric_configs if follows_entries(aggregator) else ()

    def compute_metrics(self, task_results: TaskResults) -> dict[str, float]:
        """Its numbers, from those of its tasks: `{task: {"metric,filter": value, "samples": n}}`, or a run's `results`.

        A number that cannot be computed is absent, and a warning says why: a harmonic mean with a 0, a member that is NaN.
        """
        return known_floats(self.name, self._rows(Members(task_results)))

    def rows(self, members: Members) -> dict[ScoreKey, Estimate]:
        """Its numbers, also those that cannot be computed, each with the reason."""
        if is_overridden(self, "compute_metrics", Group):
            return user_rows(self.compute_metrics(members.results()), members, self.config.rules)
        return self._rows(members)

    def _rows(self, members: Members) -> dict[ScoreKey, Estimate]:
        """What fails loses its own rows: those of the aggregator, or of the group's scorer."""
        names = [entry.row_metric for entry in self.config.aggregate_metric_list or ()]
        aggregator = self.aggregator
        rows = guarded(partial(aggregator.estimates, self, members), names or [type(aggregator).__name__])
        scorer = getattr(self.config.group_scorer, "__name__", "group_scorer")
        add_rows(rows, guarded(partial(self.scorer_rows, members), [scorer]), self.config.rules)
        return rows

    def scorer_rows(self, members: Members) -> dict[ScoreKey, Estimate]:
        """The numbers of its `group_scorer`."""
        if self.config.group_scorer is None and not is_overridden(self, "own_metrics", Group):
            return {}
        return user_rows(self.own_metrics(members.results()), members, self.config.rules)

    def _with_functions(self) -> "Group[TaskT]":
        """This group with the functions that its file names. This runs helper code."""
        from assay.groups.checks import ready_group  # checks know groups

        if self.resolve is None:
            what = "it names a `!function` that is not loaded"
            raise ConfigError.at(f"group {self.name!r}", what, "give the function itself in its place")
        ready_group(self, self.resolve)
        return self

    def own_metrics(self, task_results: TaskResults) -> dict[str, float]:
        """The numbers that its `group_scorer`, a user's function, returns."""
        is_named = isinstance(self.config.group_scorer, Function)
        scorer = (self._with_functions() if is_named else self).config.group_scorer
        return {str(row): value for row, value in scorer(self, task_results).items()} if callable(scorer) else {}

    @abstractmethod
    def add_child(self, child: Node[TaskT], *, alias: str | None = None) -> None:
        """Take in a task or group, shown here under `alias`, and link it back. Adding twice is adding once."""

    @property
    def parent(self) -> "Group[TaskT] | None":
        """The first of the groups this one was added to. Set, it comes first; None takes it out of all."""
        return self.parents[0] if self.parents else None

    @parent.setter
    def parent(self, parent: "Group[TaskT] | None") -> None:
        others = [known for known in self.parents if known is not parent]
        self.parents = [] if parent is None else [parent, *others]

    @property
    def version(self) -> str:
        """The version that its metadata has."""
        return str(self.metadata.get("version", "N/A"))

    @property
    def child_names(self) -> list[str]:
        """The names of its members, in order."""
        return [child.name for child in self.children]

    def get_direct_children(self) -> list[Node[TaskT]]:
        """Its members, tasks and groups, without those below them."""
        return list(self.children)

    def get_all_tasks(self) -> list[TaskT]:
        """Every task below, each once, in the order met."""
        return self.get_subtasks()

    def get_all_groups(self) -> list["Group[TaskT]"]:
        """Every group below, each once, in the order met."""
        return [node for node in self._walk() if isinstance(node, Group) and node is not self]

    def get_subtasks(self, max_depth: int | None = None) -> list[TaskT]:
        """The tasks at most `max_depth` levels down, each once: 0 gives none, 1 the direct ones, None all."""
        return [node for node in self._walk(max_depth) if not isinstance(node, Group)]

    def depth(self) -> int:
        """Steps to the nearest group that is in no other: 0 there."""
        steps, level, seen = 0, [self], {id(self)}
        while all(group.parents for group in level):
            level = [parent for group in level for parent in group.parents if id(parent) not in seen]
            seen.update(map(id, level))
            steps += 1
        return steps

    def is_leaf(self) -> bool:
        """Whether it holds no groups."""
        return not any(isinstance(child, Group) for child in self.children)

    def traverse(self, visitor: Callable[[Node[TaskT]], None]) -> None:
        """Call `visitor` with this group, then with everything below, each once, in order."""
        for node in self._walk():
            visitor(node)

    def _walk(self, max_depth: int | None = None) -> Iterator[Node[TaskT]]:
        """This group and what is below, depth first, each once. The work list is explicit: nesting may be deep."""
        seen: dict[int, int] = {}
        waiting: list[tuple[Node[TaskT], int]] = [(self, 0)]
        while waiting:
            node, level = waiting.pop()
            met = seen.get(id(node))
            if met is None:
                yield node
            if met is not None and met <= level:
                continue
            seen[id(node)] = level  # met again on a shorter way: with a limit, more may be within reach
            if isinstance(node, Group) and (max_depth is None or level < max_depth):
                waiting += [(child, level + 1) for child in reversed(node.children)]


class StandardGroup(Group[TaskT]):
    """A group of tasks and groups. The links go both ways, and never in a circle."""

    def add_child(self, child: Node[TaskT], *, alias: str | None = None) -> None:
        if isinstance(child, Group):
            self._refuse_circle(child)
        elif not hasattr(child, "add_to_group"):
            raise TypeError(f"group {self.name!r} takes tasks and groups, not {type(child).__name__}")
        if alias is not None:
            self.member_aliases[child.name] = alias
        if not any(known is child for known in self.children):
            self.children.append(child)
        if not isinstance(child, Group):
            child.add_to_group(self)
        elif not any(known is self for known in child.parents):
            child.parents.append(self)

    def _refuse_circle(self, child: Group[TaskT]) -> None:
        way = _way(child, self)
        if way is not None:
            what = "groups contain each other in a circle: " + " → ".join([self.name, *way])
            raise ConfigError.at(f"group {self.name!r}", what, "take one member out")


def _way(start: Group[TaskT], end: Group[TaskT]) -> list[str] | None:
    """The names on the shortest way down from one group to another; None where there is none."""
    ways, seen = [[start]], {id(start)}
    while ways:
        way = ways.pop(0)
        if way[-1] is end:
            return [group.name for group in way]
        for child in way[-1].children:
            if isinstance(child, Group) and id(child) not in seen:
                seen.add(id(child))
                ways.append([*way, child])
    return None


class TagGroup(StandardGroup[TaskT]):
    """The tasks that carry a tag: flat, without numbers."""

    def __init__(self, tag_name: str, description: str | None = None) -> None:
        super().__init__(GroupConfig(group=tag_name, group_alias=description or tag_name, metadata={"type": "tag"}))

    def add_child(self, child: Node[TaskT], *, alias: str | None = None) -> None:
        if isinstance(child, Group):
            raise TypeError(f"tag {self.name!r} cannot contain the group {child.name!r}: tags hold tasks only")
        if not any(known is child for known in self.children):
            self.children.append(child)
        if alias is not None:
            self.member_aliases[child.name] = alias
        child.add_tag(self.name)


def aggregator_problem(group: str, value: object) -> Problem | None:
    """The problem of what a user set as a group's aggregator, where it is none."""
    from assay.groups.aggregators import Aggregator  # aggregators know groups

    if isinstance(value, Aggregator):
        return None
    written = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
    if len(written) > MOST_WRITTEN:
        written = f"a value of type {type(value).__name__!r}"
    what = f"the aggregator must be an instance of a subclass of assay.Aggregator, got {written}"
    fix = "write `group.aggregator = MyAggregator(group.config)`, or CustomAggregator(group.config, function)"
    return Problem(Place(f"group {group!r}"), what, fix)


def group_type(written: str | Function | type) -> type[StandardGroup[Any]] | None:
    """The kind of group that is meant: the class itself, or the class of that name, wherever it is defined.

    A function that is not loaded yet means a StandardGroup.
    """
    if isinstance(written, type):
        return written if issubclass(written, Group) else None  # type: ignore[return-value]  # any kind of group
    kinds: list[type[StandardGroup[Any]]] = [StandardGroup]
    for kind in kinds:  # grows as it goes
        if kind.__name__ == written or isinstance(written, Function):
            return kind
        kinds += kind.__subclasses__()
    return None
