"""A run as pages and reports show it: headline, tree of results, audit counts, usage and provenance.

Everything is read from the run folder; of a run in progress, as much as is written.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from assay.errors import Problem
from assay.evaluation.options import training_step
from assay.records import AnyJSON, JSONDict, JSONObject
from assay.redaction import redacted, redacted_text
from assay.report.time_text import time_left_text
from assay.results import NO_RESULTS, Estimate, GroupEntry, Results, Row, TaskEntry, tree_paths
from assay.runs.folder import LINK_OUTSIDE, RunError
from assay.runs.live import read_progress
from assay.runs.notes import Notes, read_notes
from assay.runs.results import failure_lines
from assay.runs.run import RUNNING, Run, mapping, number
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import StoredSample
from assay.tasks.audit import KINDS

SETTINGS = ("gen_kwargs", "limit", "sample", "num_fewshot", "repeats", "apply_chat_template", "system_instruction")
"""The settings that the line above a table names."""
UNREADABLE = "unreadable"
NO_RUN = "there is neither manifest nor results"


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
    audit: Mapping[str, int] | None = None
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
    def failures(self) -> str:
        """The number of failed documents, with `*` where the row is incomplete; empty for a complete group."""
        return "" if self.is_group and not self.incomplete else f"{self.failed:,}{'*' if self.incomplete else ''}"

    def failures_in(self, number: Row) -> str:
        """The same for one row."""
        return replace(self, failed=number.failed, incomplete=number.is_incomplete).failures

    def count(self, number: Row) -> str:
        """The number of documents of a result; for an incomplete group also the number of tasks."""
        n = number.estimate.n
        return f"{n:,} in {self.coverage}" if self.coverage else f"{n:,}"

    @property
    def main(self) -> Row | None:
        """The main result: of the scorer that the task names, else the first higher-is-better one with a value, else the first."""
        known = [row for row in self.numbers if row.estimate.value is not None]
        named = next((each for each in known if self.scorer and each.metric == self.scorer), None)
        return named or next((each for each in known if each.higher_is_better), known[0] if known else None)


@dataclass(frozen=True, slots=True)
class RunHeadline:
    """A run in one line of a list."""

    name: str
    path: Path
    model: str
    tasks: Sequence[str]
    status: str
    headline: Row | None
    headline_of: str
    n: int
    failed: int
    cost: float | None
    seconds: float | None
    created: float | None
    done: int | None = None
    expected: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    """Why the run cannot be read."""
    tags: Sequence[str] = ()
    note: str = ""

    @property
    def headline_n(self) -> int:
        """The number of samples of the headline; without one, of the run."""
        return self.headline.estimate.n if self.headline is not None else self.n

    @property
    def is_running(self) -> bool:
        return self.status == RUNNING


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
        return number(self.record.get("cost"))

    @property
    def time(self) -> float | None:
        """When it was written, by the clock of the machine that runs."""
        return number(self.record.get("time"))

    @property
    def rate(self) -> float | None:
        """Requests per second."""
        return number(mapping(self.record.get("requests")).get("rate"))

    @property
    def requests(self) -> tuple[int, int]:
        """Requests that are done, and those that are left."""
        counts = mapping(self.record.get("requests"))
        return _whole(counts.get("done")), _whole(counts.get("left"))

    @property
    def time_left(self) -> str:
        """The time left in words; empty where nothing is written yet."""
        unknown = self.record.get("unknown")
        kinds = tuple(map(str, unknown)) if isinstance(unknown, list) else ()
        return time_left_text(number(self.record.get("seconds_left")), kinds) if self.record else ""

    @property
    def waiting(self) -> float | None:
        """Seconds for which the model has been unreachable."""
        return number(self.record.get("waiting"))

    def lines(self, sizes: Mapping[str, int], done: Mapping[str, int]) -> list[ResultLine]:
        """Groups with their members below them, then ungrouped tasks; without a record, the tasks alone."""
        if not self.tasks:
            return [
                ResultLine((task,), task, False, (), None, "", size, done=done.get(task, 0))
                for task, size in sizes.items()
            ]
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
            below = [mapping(self.tasks.get(each)) for each in _tasks_below(name, members) if each in self.tasks]
            alias = str(mapping(self.record.get("aliases")).get(name) or name)
            size, done = (sum(_whole(each.get(key)) for each in below) for key in ("size", "documents"))
            return ResultLine(path, alias, True, (), None, "", size, done=done)
        own = mapping(self.tasks.get(name))
        if not own:
            return ResultLine(
                path, name, False, (), None, "", not_run=redacted_text(str(broken.get(name) or "unknown"))
            )
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
        number(written.get("value")),
        number(written.get("stderr")),
        _whole(written.get("n")),
        str(written.get("reason") or ""),
        None if low is None and high is None else (number(low), number(high)),
        method=str(written.get("method") or ""),
    )
    return Row(
        owner,
        str(written.get("metric")),
        str(written.get("filter")),
        estimate,
        higher_is_better=better if isinstance(better, bool) else None,
    )


def _tasks_below(name: str, members: Mapping[str, Sequence[str]]) -> set[str]:
    """The tasks in a group and in those inside of it."""
    names, waiting = set[str](), [name]
    while waiting:
        for each in members.get(waiting.pop(), ()):
            if each not in names:
                names.add(each)
                waiting.append(each)
    return names - {*members}


def _whole(value: AnyJSON) -> int:
    """A count, or 0 for another value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


class RunSummary:
    """A run for pages and reports; `results` are empty while it is running, and where it has a `problem`."""

    def __init__(
        self, path: Path, name: str = "", *, follow_links: bool = True, problem: str = "", run: Run | None = None
    ) -> None:
        self.path, self.name = path, name or Path(os.path.realpath(path)).name  # of a loop of links, too
        opened = (run or Run(path, {}, NO_RESULTS), problem) if run or problem else _open(path, follow_links)
        self.run, self.problem = opened
        self.status = UNREADABLE if self.problem else self.run.status
        self.manifest = self.run.manifest
        self.results: Results = NO_RESULTS if self.status == RUNNING else self.run.results
        self.done = self.run.done
        self.live = read_live(path) if self.status == RUNNING else NOT_LIVE

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The number of documents of each task, from the manifest."""
        known = mapping(self.manifest.get("tasks"))
        return {task: int(mapping(about).get("size") or 0) for task, about in known.items()}

    @property
    def tasks(self) -> list[str]:
        """The names of its tasks."""
        return self.run.tasks

    @cached_property
    def lines(self) -> list[ResultLine]:
        """Groups with their members below them, then ungrouped tasks."""
        if self.results.is_empty:
            return self.live.lines(self.sizes, self.done)
        lines = [self._line(path) for path in self.results.paths]
        listed = {line.name for line in lines}
        return lines + [self._line((task,)) for task in self.run.broken if task not in listed]

    def line(self, name: str) -> ResultLine | None:
        """The first line of a task or group."""
        return next((each for each in self.lines if each.name == name), None)

    def _line(self, path: tuple[str, ...]) -> ResultLine:
        name = path[-1]
        not_run = redacted_text(str(self.run.broken.get(name, "")))
        entry = self.results.find(name)
        if entry is None:
            return ResultLine(path, name, False, (), None, "", audit={}, not_run=not_run)
        line = ResultLine(
            path,
            entry.alias.lstrip(" -"),
            isinstance(entry, GroupEntry),
            list(entry.rows or ()),
            entry.num_fewshot,
            str(entry.version),
            entry.documents if isinstance(entry, TaskEntry) else (entry.size if entry.rows is not None else None),
            entry.failed,
            entry.is_incomplete,
            not_run=not_run,
        )
        if isinstance(entry, GroupEntry):
            return replace(line, coverage=entry.coverage, audit={})
        audit = {flag: documents.count for flag, documents in entry.audit.items()}
        return replace(line, audit=audit, scorer=_scorer_name(entry.config.get("scorer")))

    @cached_property
    def audit(self) -> dict[str, int]:
        """The number of samples with each audit flag, over all tasks."""
        audits = [task.audit for task in self.results.tasks.values()]
        return {flag: sum(audit[flag].count for audit in audits if flag in audit) for flag in KINDS}

    @cached_property
    def remarks(self) -> list[str]:
        """The problems of the run, one line each."""
        lost = [f"{task}: its samples are missing" for task in self.run.lost_samples]
        lost += [self.notes.problem] if self.notes.problem else []
        return lost + failure_lines(self.results)

    @cached_property
    def notes(self) -> Notes:
        """The tags and the note that people gave to the run."""
        return read_notes(self.path)

    @cached_property
    def head(self) -> RunHeadline:
        headline, of = self._headline()
        manifest, results = self.manifest, self.results
        spent = None if results.is_empty else number(self.run.usage.get("cost"))
        took = results.facts.get("total_evaluation_time_seconds")
        begun = number(manifest.get("created")) or number(results.facts.get("date"))
        return RunHeadline(
            self.name,
            self.path,
            self.model,
            list(dict.fromkeys(line.name for line in self.lines if line.depth == 0)),
            self.status,
            headline,
            of,
            sum(task.scored for task in results.tasks.values()),
            results.failed or self.live.failures,
            spent if spent is not None else self.live.cost,
            float(took) if isinstance(took, str | int | float) else None,
            begun,
            max(sum(self.done.values()), self.live.documents) if self.status == RUNNING else None,
            sum(self.sizes.values()) if self.status == RUNNING else None,
            self.settings,
            self.problem,
            self.notes.tags,
            self.notes.note,
        )

    @cached_property
    def settings(self) -> dict[str, str]:
        """The settings, besides model and tasks, that distinguish runs of a model; redacted."""
        options = {**self.results.config, **mapping(self.manifest.get("options"))}
        visible = redacted({key: options[key] for key in SETTINGS if options.get(key) not in (None, False, "", [], {})})
        shown = {key: _plain(value) for key, value in visible.items()}
        return {key: text if len(text) <= 60 else f"{text[:60]}…" for key, text in shown.items()}

    def _headline(self) -> tuple[Row | None, str]:
        """The main result of the first line that has one."""
        for line in self.lines:
            if line.main is not None:
                return line.main, line.alias
        return None, ""

    @cached_property
    def model(self) -> str:
        """The model under test, with the argument that identifies it."""
        config = self.results.config
        noted = mapping(self.manifest.get("model"))
        name = str(config.get("model") or noted.get("name") or "?")
        args = mapping(redacted(config.get("model_args") or noted.get("args") or {}))
        identifying = [args[key] for key in ("pretrained", "model", "path") if args.get(key)]
        return f"{name} {identifying[0]}" if identifying else name

    @cached_property
    def provenance(self) -> JSONDict:
        """The provenance, redacted: command, spec, environment, model fingerprints, times."""
        keys = ("command", "model", "roles", "spec", "options", "environment", "helper_files", "requests", "reason")
        entries = {key: self.manifest[key] for key in keys if key in self.manifest}
        return dict(redacted(entries))

    def config(self, task: str) -> JSONDict:
        """The settings of a task, redacted."""
        return dict(redacted(self.run.config(task), texts=False))

    def source(self, task: str) -> str:
        """Identifies the documents of a task: equal source and number mean the same document. Empty where it is
        unknown.
        """
        return self.run.source(task)

    def graph(self, task: str) -> JSONObject:
        """Nodes and edges of a graph task; empty for others."""
        return mapping(self.config(task).get("graph_config"))

    def sample_file(self, task: str) -> SampleFile | None:
        """The samples of a task, where they are complete."""
        return self.run.sample_file(task) if task in self.tasks else None

    def samples(self, task: str) -> Iterator[StoredSample]:
        """The stored samples of a task, one row group in memory at a time."""
        file = self.sample_file(task)
        return file.rows() if file is not None else iter(())


def _plain(value: AnyJSON) -> str:
    """A value of a setting as people write it: 60 rather than 60.0.

    >>> _plain(60.0), _plain(0.5), _plain("x")
    ('60', '0.5', 'x')
    """
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _open(path: Path, follow_links: bool) -> tuple[Run, str]:
    """Open a run and read its results; returns it with its problem, which concerns this run only."""
    try:
        run = Run.open(path, follow_links=follow_links)
        run.results  # noqa: B018  # read here, where a damaged file is reported
    except RunError as error:
        return Run(path, {}, NO_RESULTS), "; ".join(_problem_text(path, each) for each in error.problems)
    return run, ""


def _problem_text(path: Path, problem: Problem) -> str:
    file = Path(problem.place.file)
    if problem.what == LINK_OUTSIDE:
        return f"{file.relative_to(path)} {problem.what}"
    return NO_RUN if file == path else f"{file.name}: {problem.what}"


def _scorer_name(written: AnyJSON) -> str:
    """The name of the scorer that a task's settings have: a text, or a mapping with its type."""
    return str(written.get("type") or "") if isinstance(written, Mapping) else str(written or "")


def worst_tasks(lines: Sequence[ResultLine], count: int = 5) -> list[ResultLine]:
    """The tasks with the lowest shares, the lowest first; only higher-is-better metrics count."""
    by_name = {line.name: line for line in lines if not line.is_group and line.main is not None}
    mains = {name: line.main for name, line in by_name.items() if line.main is not None}
    shares = [name for name, row in mains.items() if row.estimate.is_share and row.higher_is_better]
    lowest = sorted(shares, key=lambda name: mains[name].estimate.value or 0.0)
    return [by_name[name] for name in lowest[:count]]


def step_of(reading: RunSummary) -> int | None:
    """The training step in the name of a run, or of its model."""
    steps = (training_step(text) for text in (reading.name, reading.model))
    return next((step for step in steps if step is not None), None)
