"""The results of a run as one typed tree: tasks and groups, their rows, and the number of each row.

Everything that reports, compares or plots reads this tree. results.json is the tree written down (format 3, `assay schema
results`); lm-eval's layout, with names that join metric and filter ("acc,none"), is an export (exchange/lm_eval.py).

    for entry, depth in results.walk():               # groups before their members
        for row in entry.rows:                        # also rows in which every document failed
            table.add(entry.alias, row.metric, row.filter, row.estimate, row.failed, depth=depth)

    row = results.row("gsm8k", ScoreKey("exact_match", "strict"))
    if row.estimate.value is None:
        print(row.estimate.reason)

`Estimate`, the record of a number, is that of statistics (assay/statistics/evidence.py).
A new column of the results table is one field of `Row` or `Estimate`, and one cell of the table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from assay.score_keys import ScoreKey
from assay.statistics.evidence import WRITTEN
from assay.statistics.evidence import Estimate as Estimate
from assay.statistics.evidence import Interval as Interval
from assay.statistics.evidence import keys as keys
from assay.statistics.influence import Bounds

ABOVE: Mapping[str, bool] = {"above": True}
"""Marks the field that has the name which results.json has above it."""
WITHIN: Mapping[str, bool] = {"within": True}
"""Marks a record whose fields results.json has among those around it."""
EVERY_DOCUMENT_FAILED = "every document failed in this row"


class Share(NamedTuple):
    """How far a row of a task moves a row of a group: the slope."""

    task: str
    row: ScoreKey
    slope: float


@dataclass(frozen=True, slots=True)
class ReliabilityPoint:
    """How often answers of about this confidence are right."""

    confidence: float
    accuracy: Estimate = field(metadata=keys("accuracy=value", "n", "interval"))


@dataclass(frozen=True, slots=True)
class Row:
    """One number of a task or group: a metric over the answers that one filter leaves."""

    owner: str = field(metadata=ABOVE)
    """The task or group."""
    metric: str
    filter: str
    estimate: Estimate = field(metadata=WITHIN)
    failed: int = 0
    """Documents without a value in this row."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why documents failed in this row alone, with their number."""
    is_incomplete: bool = False
    """Whether more documents failed than the run allows."""
    higher_is_better: bool | None = None
    failure_bounds: Bounds | None = None
    """The value if every failed document were wrong, and if every one were right; of shares alone."""
    lacks_number: bool = False
    """Whether a number was to be computed of it, and could not be: the run is incomplete without it."""
    tasks: int = 1
    """Of a group's row: how many tasks it is made of."""
    missing: Sequence[str] = ()
    """Of a group's row: members that have no such number."""
    chosen: Sequence[str] = ()
    """Of a group's row: the members it is made of, where it is of the best alone."""
    shares: Sequence[Share] | None = None
    """Of a group's row: how far it moves with each row of its tasks; None where that is not known."""
    noise: Mapping[str, float] | None = None
    """Of a row with repeats: the variance within and between documents; of a baseline also between runs."""
    reliability: Sequence[ReliabilityPoint] = ()
    """The points of a reliability curve."""
    labels: int | None = None
    """Of a judge's row that labels of people correct: how many documents have one."""
    tuning: float | None = None
    """How much such a row trusts the judge: λ of prediction-powered inference."""

    @property
    def key(self) -> ScoreKey:
        return ScoreKey(self.metric, self.filter)

    @property
    def numbers(self) -> Sequence["Row"]:
        """The row itself; where an aggregation returns several numbers, a row for each: `f1[macro]`, `f1[micro]`.

        What has one number a line reads these: tables, files, comparisons, trackers.
        """
        named = self.estimate.named_values
        if named is None:
            return [self]
        estimates = {name: replace(self.estimate, value=value, named_values=None) for name, value in named.items()}
        return [replace(self, metric=f"{self.metric}[{name}]", estimate=each) for name, each in estimates.items()]

    @property
    def is_lost(self) -> bool:
        """Whether every document failed in it, so that nothing was computed."""
        return self.estimate.value is None and self.estimate.reason == EVERY_DOCUMENT_FAILED

    @property
    def slopes(self) -> Mapping[tuple[str, ScoreKey], float] | None:
        """Of a group's row: how far it moves with each row of its tasks; None where that is not known."""
        return None if self.shares is None else {(share.task, share.row): share.slope for share in self.shares}


@dataclass(frozen=True, slots=True)
class AuditCount:
    """How many documents have a flag of the audit, and the first of them."""

    count: int
    ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """The results of one task."""

    name: str = field(metadata=ABOVE)
    alias: str
    rows: Sequence[Row] = field(default=(), metadata=WRITTEN)
    documents: int = field(default=0, metadata=WRITTEN)
    """Documents that were asked."""
    scored: int = field(default=0, metadata=WRITTEN)
    failed: int = field(default=0, metadata=WRITTEN)
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why documents failed, with their number."""
    is_incomplete: bool = False
    """Whether more documents failed than the run allows, or some were not asked."""
    not_asked: int = 0
    original: int | None = None
    """Documents of the split, before limits."""
    noticed: Mapping[str, int] = field(default_factory=dict)
    """What is to be known about answers, such as that they were cut off, with the number of documents."""
    remarks: Sequence[str] = ()
    audit: Mapping[str, AuditCount] = field(default_factory=dict)
    """By flag, such as `empty`, the documents that have it."""
    never_came: Sequence[str] = ()
    """Declared metrics that no document has a score of."""
    unscored: Sequence[str] = ()
    """The filters of a task that scores nothing, where lm-eval reports its metric `bypass`."""
    directions: Mapping[str, bool | None] = field(default_factory=dict)
    """By declared metric whether more is better."""
    num_fewshot: int | None = None
    version: object = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """The results of one group or tag. `members` are the names of its tasks and groups, in their order."""

    name: str = field(metadata=ABOVE)
    alias: str
    members: Sequence[str] = field(default=(), metadata=WRITTEN)
    rows: Sequence[Row] | None = field(default=None, metadata=WRITTEN)
    """None of a tag, and of a group that aggregates nothing."""
    size: int = 0
    """Documents scored in all its tasks."""
    is_incomplete: bool = False
    """Whether one of the tasks that its numbers are made of is incomplete, or was not run."""
    tasks: int = 0
    """Of an incomplete group: how many tasks its numbers are made of."""
    scored_tasks: int = 0
    failed: int = 0
    not_run: Sequence[str] = ()
    incomplete_tasks: Sequence[str] = ()
    directions: Mapping[str, bool | None] = field(default_factory=dict)
    """By metric whether more is better, where its members agree."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Members left out, with the reason."""
    computed_by: str | None = None
    """The class of the user's that computes the rows in place of the configuration: an aggregator that was set, or a group."""
    num_fewshot: int | None = None
    version: str = ""

    @property
    def coverage(self) -> str:
        """How much of the group was scored; nothing where that is all of it.

        >>> GroupEntry("g", "g", is_incomplete=True, tasks=57, scored_tasks=1).coverage
        '1 of 57 tasks'
        >>> GroupEntry("g", "g", is_incomplete=True, tasks=3, scored_tasks=3, incomplete_tasks=["a"]).coverage
        '1 of 3 tasks incomplete'
        """
        if not self.is_incomplete:
            return ""
        if self.scored_tasks < self.tasks:
            return f"{self.scored_tasks} of {self.tasks} tasks"
        return f"{len(self.incomplete_tasks)} of {self.tasks} tasks incomplete"


Entry = TaskEntry | GroupEntry


@dataclass(frozen=True)
class Results:
    """The results of a run: its tasks and groups by name, and what became of the run as a whole."""

    tasks: Mapping[str, TaskEntry]
    groups: Mapping[str, GroupEntry] = field(default_factory=dict, metadata=WRITTEN)
    """Members come before the groups that contain them."""
    status: str = field(default="complete", metadata=WRITTEN)
    broken: Mapping[str, str] = field(default_factory=dict)
    """Tasks that could not be run, each with the reason."""
    ended: str = ""
    """Why the run ended before its last document."""
    shard: Mapping[str, Any] = field(default_factory=dict)
    """Of a part of a run: which one, and the status of its documents."""
    stop_when: Mapping[str, Any] = field(default_factory=dict)
    """The decision of the rule that ended the run."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """Requests, retries, tokens, cost and seconds, by role and task, too."""
    servers: Mapping[str, Any] = field(default_factory=dict)
    """The servers that the run started."""
    fallbacks: Sequence[Mapping[str, Any]] = ()
    """Slower ways in which a local model computed after a failure."""
    imported: Sequence[str] = ()
    """The programs that the run was imported from."""
    rescored: Mapping[str, Any] = field(default_factory=dict)
    """Of a scoring: the samples and numbers that changed."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The options of the run, and the model's arguments."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The run itself: names of the model, times, versions."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known: the run has not written its results."""
        return not (self.tasks or self.groups or self.broken or self.config or self.facts)

    @property
    def failed(self) -> int:
        """How many documents failed, of all tasks."""
        return sum(task.failed for task in self.tasks.values())

    def walk(self) -> Iterator[tuple[Entry, int]]:
        """Yield every line of the tree with its depth: groups that are in no other first, each before its members."""
        for path in self.paths:
            entry = self.find(path[-1])
            if entry is not None:
                yield entry, len(path) - 1

    def entry(self, name: str) -> Entry:
        """Return the task or group of this name."""
        return self.groups[name] if name in self.groups else self.tasks[name]

    def find(self, name: str) -> Entry | None:
        """Return the task or group of this name; None where there is none."""
        return self.groups.get(name) or self.tasks.get(name)

    def row(self, owner: str, key: ScoreKey) -> Row | None:
        """Return the row of a task or group, or one of the numbers of a row; None where there is none of this metric and filter."""
        return self._rows.get((owner, key))

    @cached_property
    def _rows(self) -> Mapping[tuple[str, ScoreKey], Row]:
        entries: list[Entry] = [*self.tasks.values(), *self.groups.values()]
        rows = [row for entry in entries for stored in entry.rows or () for row in (stored, *stored.numbers)]
        return {(row.owner, row.key): row for row in rows}

    @cached_property
    def paths(self) -> Sequence[tuple[str, ...]]:
        """The path to every line: top-level groups by name, each with its members below it; then tasks in no group.

        Members without results, such as broken tasks, have a path, too.
        """
        members = {group.name: group.members for group in self.groups.values()}
        return list(tree_paths(members, self.tasks))


NO_RESULTS = Results({}, status="")
"""Of a run that has not written its results."""


def names_below(members: Mapping[str, Sequence[str]], names: Iterable[str]) -> set[str]:
    """The names of the tasks and groups that are in these groups, or in groups in them."""
    below, waiting = set[str](), [*names]
    while waiting:
        for member in members.get(waiting.pop(), ()):
            if member not in below:
                below.add(member)
                waiting.append(member)
    return below


def tree_paths(members: Mapping[str, Sequence[str]], tasks: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield the path to every line of a tree of groups, by name: groups in no other first, then tasks in no group."""
    inside = {member for names in members.values() for member in names}

    def below(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        for member in sorted(members.get(path[-1], ())):
            if member not in path:
                yield from below((*path, member))

    for name in sorted(name for name in members if name not in inside):
        yield from below((name,))
    yield from ((name,) for name in sorted(tasks) if name not in members and name not in inside)
