"""The lines of a run as tables, pages and reports show them: of its results, or of its progress while it is at work."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from assay.number_text import time_left_text
from assay.records import AnyJSON, JSONObject, json_number, mapping
from assay.results import Estimate, GroupEntry, Results, Row, TaskEntry, names_below, tree_paths
from assay.runs.live import read_progress


@dataclass(frozen=True, slots=True)
class ResultLine:
    """A task or group at its place in the tree; `path` leads to it, itself last."""

    path: tuple[str, ...]
    alias: str
    is_group: bool
    numbers: Sequence[Row]
    shots: int | None
    version: str
    documents: int | None = None
    failed: int = 0
    incomplete: bool = False
    coverage: str = ""
    """For an incomplete group: how much of it was scored."""
    audit: Mapping[str, int] = field(default_factory=dict)
    done: int | None = None
    """For a run in progress: the number of answered documents."""
    note: str = ""
    """Why a task in progress has no number yet."""
    not_run: str = ""
    """Why the task could not be run."""
    scorer: str = ""
    """The scorer that the task names: its row is the main result."""

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def depth(self) -> int:
        return len(self.path) - 1

    @property
    def main(self) -> Row | None:
        """The main result: of the scorer that the task names, else the first higher-is-better one with a value, else the first."""
        known = [row for row in self.numbers if row.estimate.value is not None]
        named = next((each for each in known if self.scorer and each.metric == self.scorer), None)
        return named or next((each for each in known if each.higher_is_better), known[0] if known else None)


@dataclass(frozen=True, slots=True)
class LiveProgress:
    """The last record of a run in progress: what is done and left, and the provisional numbers of its tasks."""

    record: JSONObject = field(default_factory=dict)

    @property
    def tasks(self) -> JSONObject:
        return mapping(self.record.get("tasks"))

    @property
    def documents(self) -> int:
        return sum(_whole(mapping(each).get("documents")) for each in self.tasks.values())

    @property
    def failures(self) -> int:
        return sum(_whole(mapping(each).get("failures")) for each in self.tasks.values())

    @property
    def reasons(self) -> dict[str, int]:
        """The reasons of failures in all tasks, the most frequent first."""
        counted: Counter[str] = Counter()
        for each in self.tasks.values():
            counted.update({str(why): _whole(n) for why, n in mapping(mapping(each).get("reasons")).items()})
        return dict(counted.most_common())

    @property
    def cost(self) -> float | None:
        return json_number(self.record.get("cost"))

    @property
    def time(self) -> float | None:
        """When it was written, by the clock of the machine that runs."""
        return json_number(self.record.get("time"))

    @property
    def rate(self) -> float | None:
        """Requests per second."""
        return json_number(mapping(self.record.get("requests")).get("rate"))

    @property
    def requests_done(self) -> int:
        return _whole(mapping(self.record.get("requests")).get("done"))

    @property
    def requests_left(self) -> int:
        return _whole(mapping(self.record.get("requests")).get("left"))

    @property
    def time_left(self) -> str:
        """The time left in words; empty where nothing is written yet."""
        unknown = self.record.get("unknown")
        kinds = tuple(map(str, unknown)) if isinstance(unknown, list) else ()
        return time_left_text(json_number(self.record.get("seconds_left")), kinds) if self.record else ""

    @property
    def waiting(self) -> float | None:
        """Seconds for which the model has been unreachable."""
        return json_number(self.record.get("waiting"))

    def lines(self, sizes: Mapping[str, int]) -> list[ResultLine]:
        """Groups with their members below them, then ungrouped tasks; without a record, the tasks alone."""
        if not self.tasks:
            return [ResultLine((task,), task, False, (), None, "", size, done=0) for task, size in sizes.items()]
        members = {
            str(name): [str(each) for each in inside]
            for name, inside in mapping(self.record.get("groups")).items()
            if isinstance(inside, list)
        }
        broken = mapping(self.record.get("broken"))
        return [self._line(path, members) for path in tree_paths(members, {**self.tasks, **broken})]

    def _line(self, path: tuple[str, ...], members: Mapping[str, Sequence[str]]) -> ResultLine:
        name, broken = path[-1], mapping(self.record.get("broken"))
        if name in members:
            below = [
                mapping(self.tasks.get(each))
                for each in names_below(members, [name]) - {*members}
                if each in self.tasks
            ]
            alias = str(mapping(self.record.get("aliases")).get(name) or name)
            size, done = (sum(_whole(each.get(key)) for each in below) for key in ("size", "documents"))
            return ResultLine(path, alias, True, (), None, "", size, done=done)
        own = mapping(self.tasks.get(name))
        if not own:
            return ResultLine(path, name, False, (), None, "", not_run=str(broken.get(name) or "unknown"))
        written = own.get("numbers")
        numbers = [_provisional(name, mapping(each)) for each in written] if isinstance(written, list) else []
        note = "scored when all documents are answered" if own.get("is_scored_together") else ""
        return ResultLine(
            path, str(own.get("alias") or name).lstrip(" -"), False, numbers, None, "", _whole(own.get("size")),
            _whole(own.get("failures")), done=_whole(own.get("documents")), note=note,
        )  # fmt: skip

    def samples(self, task: str) -> int:
        """How many of its newest samples a task in progress shows."""
        return _whole(mapping(self.tasks.get(task)).get("samples"))


NOT_LIVE = LiveProgress()


def read_live(path: Path) -> LiveProgress:
    """The progress of a run that another process writes; of another version, or a damaged one, nothing."""
    return LiveProgress(read_progress(path))


def _provisional(owner: str, written: JSONObject) -> Row:
    ends = written.get("interval")
    low, high = ends if isinstance(ends, list) and len(ends) == 2 else (None, None)
    better = written.get("higher_is_better")
    estimate = Estimate(
        json_number(written.get("value")),
        json_number(written.get("stderr")),
        _whole(written.get("n")),
        str(written.get("reason") or ""),
        None if low is None and high is None else (json_number(low), json_number(high)),
        method=str(written.get("method") or ""),
    )
    return Row(
        owner,
        str(written.get("metric")),
        str(written.get("filter")),
        estimate,
        higher_is_better=better if isinstance(better, bool) else None,
    )


def _whole(value: AnyJSON) -> int:
    """A count, or 0 for another value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def result_lines(results: Results) -> list[ResultLine]:
    """Groups with their members below them, then ungrouped tasks, and last those that could not be run."""
    lines = [_result_line(results, path) for path in results.paths]
    listed = {line.name for line in lines}
    return lines + [_result_line(results, (task,)) for task in results.broken if task not in listed]


def _result_line(results: Results, path: tuple[str, ...]) -> ResultLine:
    name = path[-1]
    not_run = str(results.broken.get(name, ""))
    entry = results.find(name)
    if entry is None:
        return ResultLine(path, name, False, (), None, "", not_run=not_run)
    line = ResultLine(
        path,
        entry.alias.lstrip(" -"),
        isinstance(entry, GroupEntry),
        [number for row in entry.rows or () for number in row.numbers],
        entry.num_fewshot,
        str(entry.version),
        entry.documents if isinstance(entry, TaskEntry) else (entry.size if entry.rows is not None else None),
        entry.failed,
        entry.is_incomplete,
        not_run=not_run,
    )
    if isinstance(entry, GroupEntry):
        return replace(line, coverage=entry.coverage)
    audit = {flag: documents.count for flag, documents in entry.audit.items()}
    return replace(line, audit=audit, scorer=_scorer_name(entry.config.get("scorer")))


def _scorer_name(written: AnyJSON) -> str:
    """The name of the scorer that a task's settings have: a text, or a mapping with its type."""
    return str(written.get("type") or "") if isinstance(written, Mapping) else str(written or "")


def worst_tasks(lines: Sequence[ResultLine], count: int = 5) -> list[ResultLine]:
    """The tasks with the lowest shares, the lowest first; metrics count of which more is known to be better."""
    by_name = {line.name: line for line in lines if not line.is_group and line.main is not None}
    mains = {name: line.main for name, line in by_name.items() if line.main is not None}
    shares = [name for name, row in mains.items() if row.estimate.is_share and row.higher_is_better]
    lowest = sorted(shares, key=lambda name: mains[name].estimate.value or 0.0)
    return [by_name[name] for name in lowest[:count]]
