"""The results of a run as one typed tree: tasks and groups, their rows, and the number of each row.

Everything that reports, compares or plots reads this tree. results.json is the tree written down (format 3, `assay schema
results`); lm-eval's layout, with names that join metric and filter ("acc,none"), is an export (exchange/lm_eval.py).

    for entry, depth in results.walk():               # groups before their members
        for row in entry.rows:                        # also rows in which every document failed
            table.add(entry.alias, row.metric, row.filter, row.estimate, row.failed, depth=depth)

    row = results.row("gsm8k", ScoreKey("exact_match", "strict"))
    if row.estimate.value is None:
        print(row.estimate.reason)

A new column of the results table is one field of `Row` or `Estimate`, and one cell of the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from assay.records import ScoreKey

Bounds = tuple[float, float]
"""The least and the greatest value that a number can have; an end may be infinite."""
Interval = tuple[float | None, float | None]
"""The ends of an interval; None for an end that is open."""
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number computed from `n` documents, and how far it may be from that of all documents of their kind.

    `value` is None where there is no number; `reason` says why it, or its standard error, is missing.
    """

    value: float | None
    stderr: float | None = None
    interval: Interval | None = None
    n: int = 0
    reason: str = ""
    method: str = ""
    """The way the interval was made; empty where there is none."""
    df: float | None = None
    """Degrees of freedom of the interval, where it uses fewer than n - 1."""
    scale: Bounds | None = None
    """The least and the greatest value the number can have, where they are known."""
    unused_bounds: Bounds | None = None
    """Declared bounds that its scores are not within, so that the interval does not use them."""
    note: str = ""
    """What a reader should know about the number."""
    clusters: int | None = None
    """How many independent draws the documents are, where that is fewer than n."""
    named_values: Mapping[str, float] | None = None
    """Numbers by name, of an aggregation that returns several; `value` is None then."""

    def __float__(self) -> float:
        return float("nan") if self.value is None else self.value


class Share(NamedTuple):
    """How far a row of a task moves a row of a group: the slope."""

    task: str
    row: ScoreKey
    slope: float


@dataclass(frozen=True, slots=True)
class Row:
    """One number of a task or group: a metric over the answers that one filter leaves."""

    owner: str
    """The task or group."""
    metric: str
    filter: str
    estimate: Estimate
    failed: int = 0
    """Documents without a value in this row."""
    reasons: Mapping[str, int] = NOTHING
    """Why documents failed in this row alone, with their number."""
    is_incomplete: bool = False
    """Whether more documents failed than the run allows."""
    higher_is_better: bool | None = None
    failure_bounds: Bounds | None = None
    """The value if every failed document were wrong, and if every one were right; of shares alone."""
    tasks: int = 1
    """Of a group's row: how many tasks it is made of."""
    missing: Sequence[str] = ()
    """Of a group's row: members that have no such number."""
    chosen: Sequence[str] = ()
    """Of a group's row: the members it is made of, where it is of the best alone."""
    shares: Sequence[Share] | None = None
    """Of a group's row: how far it moves with each row of its tasks; None where that is not known."""
    noise: Mapping[str, float] | None = None
    """Of a row with repeats: the variance within and between documents."""
    reliability: Sequence[Mapping[str, Any]] = ()
    """The points of a reliability curve."""

    @property
    def key(self) -> ScoreKey:
        return ScoreKey(self.metric, self.filter)


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """The results of one task."""

    name: str
    alias: str
    rows: Sequence[Row] = ()
    documents: int = 0
    """Documents that were asked."""
    scored: int = 0
    original: int = 0
    """Documents of the split, before limits."""
    not_asked: int = 0
    failed: int = 0
    reasons: Mapping[str, int] = NOTHING
    is_incomplete: bool = False
    noticed: Mapping[str, int] = NOTHING
    remarks: Sequence[str] = ()
    audit: Mapping[str, Any] = NOTHING
    never_came: Sequence[str] = ()
    """Declared metrics that no document has a score of."""
    num_fewshot: int | None = None
    version: object = None
    config: Mapping[str, Any] = NOTHING


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """The results of one group or tag. `members` are the names of its tasks and groups, in their order."""

    name: str
    alias: str
    members: Sequence[str]
    rows: Sequence[Row] | None = None
    """None of a tag, and of a group that aggregates nothing."""
    size: int = 0
    """Documents scored in all its tasks."""
    version: str = ""
    metadata: Mapping[str, Any] = NOTHING
    skipped: Mapping[str, str] = NOTHING
    """Members left out, with the reason."""
    computed_by: str | None = None
    tasks: int = 0
    scored_tasks: int = 0
    not_run: Sequence[str] = ()
    incomplete_tasks: Sequence[str] = ()
    is_incomplete: bool = False
    num_fewshot: int | None = None


Entry = TaskEntry | GroupEntry


@dataclass(frozen=True)
class Results:
    """The results of a run: its tasks and groups by name, and what became of the run as a whole."""

    tasks: Mapping[str, TaskEntry]
    groups: Mapping[str, GroupEntry] = field(default_factory=dict)
    """Members come before the groups that contain them."""
    status: str = "complete"
    broken: Mapping[str, str] = NOTHING
    """Tasks that could not be run, each with the reason."""
    facts: Mapping[str, Any] = NOTHING
    """The run itself: model, options, times, usage, versions of libraries."""

    def walk(self) -> Iterator[tuple[Entry, int]]:
        """Yield every line of the tree with its depth: groups that are in no other first, each before its members."""
        for path in self.paths:
            yield self.entry(path[-1]), len(path) - 1

    def entry(self, name: str) -> Entry:
        """Return the task or group of this name."""
        return self.groups[name] if name in self.groups else self.tasks[name]

    def row(self, owner: str, key: ScoreKey) -> Row | None:
        """Return the row of a task or group; None where it has none of this metric and filter."""
        return self._rows.get((owner, key))

    @cached_property
    def _rows(self) -> Mapping[tuple[str, ScoreKey], Row]:
        entries = [*self.tasks.values(), *self.groups.values()]
        return {(entry.name, row.key): row for entry in entries for row in entry.rows or ()}

    @cached_property
    def paths(self) -> Sequence[tuple[str, ...]]:
        """The path to every line: top-level groups by name, each with its members below it; then tasks in no group."""
        inside = {member for group in self.groups.values() for member in group.members}
        top = sorted(name for name in self.groups if name not in inside)
        alone = sorted(name for name in self.tasks if name not in inside)
        return [*(path for name in top for path in self._below((name,))), *((name,) for name in alone)]

    def _below(self, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        group = self.groups.get(path[-1])
        for member in sorted(group.members) if group is not None else ():
            if member not in path and (member in self.groups or member in self.tasks):
                yield from self._below((*path, member))
