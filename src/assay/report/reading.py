"""What a page or a report tells of a run: its head, its tree of numbers as rows, audit counts, what it took and comes from.

Everything is read from the folder of the run; of a run that is still going on, as much as is there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.errors import Problem
from assay.report.table import SETTINGS
from assay.runs.folder import LINK_OUTSIDE, RunError
from assay.runs.redaction import redacted
from assay.runs.results import coverage, failure_lines, result_paths
from assay.runs.run import RUNNING, ResultRow, Run, mapping, number
from assay.runs.samples.reader import StoredSample
from assay.tasks.audit import KINDS

UNREADABLE = "unreadable"
NOTHING = "there is neither manifest nor results"


@dataclass(frozen=True, slots=True)
class Line:
    """A task or group where it stands in the tree; `path` is the way to it, itself last."""

    path: tuple[str, ...]
    alias: str
    is_group: bool
    numbers: Sequence[ResultRow]
    shots: int | None
    version: str
    documents: int | None = None
    failed: int = 0
    incomplete: bool = False
    coverage: str = ""
    """Of a group of which not all was scored: how much was."""
    audit: Mapping[str, int] | None = None
    done: int | None = None
    """Of a run that is going on: how many documents have their answer."""

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def depth(self) -> int:
        return len(self.path) - 1

    @property
    def failures(self) -> str:
        """How many documents failed, with `*` where the row is incomplete; nothing of a group that is complete."""
        return "" if self.is_group and not self.incomplete else f"{self.failed:,}{'*' if self.incomplete else ''}"

    def failures_in(self, number: ResultRow) -> str:
        """The same of one row."""
        return replace(self, failed=number.failed, incomplete=number.is_incomplete).failures

    def count(self, number: ResultRow) -> str:
        """How many documents a number is of; of an incomplete group also in how many tasks."""
        return f"{number.n:,} in {self.coverage}" if self.coverage else f"{number.n:,}"

    @property
    def main(self) -> ResultRow | None:
        """The number that stands for it: the first that has a value and of which more is better, else the first."""
        known = [each for each in self.numbers if each.value is not None]
        return next((each for each in known if each.higher_is_better), known[0] if known else None)


@dataclass(frozen=True, slots=True)
class Head:
    """A run in one line of a list."""

    name: str
    path: Path
    model: str
    tasks: Sequence[str]
    status: str
    headline: ResultRow | None
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

    @property
    def headline_n(self) -> int:
        """How many samples the headline is of; without one, how many there are."""
        return self.headline.n if self.headline is not None else self.n

    @property
    def is_running(self) -> bool:
        return self.status == RUNNING


class RunReading:
    """A run as pages and reports show it; `results` are empty while it is going on, and where there is a `problem` with it."""

    def __init__(self, path: Path, name: str = "", *, follow_links: bool = True, problem: str = "") -> None:
        self.path, self.name = path, name or path.resolve().name
        self.run, self.problem = _opened(path, follow_links) if not problem else (Run(path, {}, {}), problem)
        self.status = UNREADABLE if self.problem else self.run.status
        self.manifest = self.run.manifest
        self.results: Mapping[str, Any] = {} if self.status == RUNNING else self.run.results
        self.account: Mapping[str, Any] = mapping(self.results.get("assay"))
        self.done = self.run.done

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many documents each task is asked about, as the manifest has it."""
        known = mapping(self.manifest.get("tasks"))
        return {task: int(mapping(about).get("size") or 0) for task, about in known.items()}

    @property
    def tasks(self) -> list[str]:
        """The names of its tasks."""
        return self.run.tasks

    @cached_property
    def lines(self) -> list[Line]:
        """Groups with their members below them, then what is in no group."""
        if not self.results:
            return [
                Line((task,), task, False, (), None, "", size, done=self.done.get(task, 0))
                for task, size in self.sizes.items()
            ]
        return [self._line(path) for path in result_paths(self.results)]

    def line(self, name: str) -> Line | None:
        """Where a task or group first stands."""
        return next((each for each in self.lines if each.name == name), None)

    def _line(self, path: tuple[str, ...]) -> Line:
        name, results, own = path[-1], self.results, self.run.summary(path[-1])
        shots = mapping(results.get("n-shot")).get(name)
        return Line(
            path,
            self.run.alias(name).lstrip(" -"),
            name in self.run.members,
            list(self.run.rows(name).values()),
            shots if isinstance(shots, int) else None,
            str(mapping(results.get("versions")).get(name, "")),
            own.get("documents", mapping(results["results"].get(name)).get("sample_len")),
            int(own.get("failed") or 0),
            bool(own.get("incomplete")),
            coverage(mapping(mapping(self.account.get("groups")).get(name))),
            {kind: mapping(told).get("count", 0) for kind, told in mapping(own.get("audit")).items()},
        )

    @cached_property
    def audit(self) -> dict[str, int]:
        """How many samples of all tasks deserve a look, by kind."""
        told = [mapping(mapping(each).get("audit")) for each in mapping(self.account.get("tasks")).values()]
        return {kind: sum(mapping(each.get(kind)).get("count", 0) for each in told) for kind in KINDS}

    @cached_property
    def troubles(self) -> list[str]:
        """What went wrong, a line each."""
        return failure_lines(self.account) if self.account.get("tasks") is not None else []

    @cached_property
    def head(self) -> Head:
        headline, of = self._headline()
        manifest, results = self.manifest, self.results
        spent = number(self.run.usage.get("cost")) if results else None
        took = results.get("total_evaluation_time_seconds")
        begun = number(manifest.get("created")) or number(results.get("date"))
        return Head(
            self.name,
            self.path,
            self.model,
            list(dict.fromkeys(line.name for line in self.lines if line.depth == 0)),
            self.status,
            headline,
            of,
            sum(mapping(each).get("effective", 0) for each in mapping(results.get("n-samples")).values()),
            int(self.account.get("failed") or 0),
            spent,
            float(took) if isinstance(took, str | int | float) else None,
            begun,
            sum(self.done.values()) if self.status == RUNNING else None,
            sum(self.sizes.values()) if self.status == RUNNING else None,
            self.settings,
            self.problem,
        )

    @cached_property
    def settings(self) -> dict[str, str]:
        """What was asked for beside model and tasks, that tells one run of a model from another; without secrets."""
        given = {**mapping(self.results.get("config")), **mapping(self.manifest.get("options"))}
        told = redacted({key: given[key] for key in SETTINGS if given.get(key) not in (None, False, "", [], {})})
        return {key: text if len(text := str(value)) <= 60 else f"{text[:60]}…" for key, value in told.items()}

    def _headline(self) -> tuple[ResultRow | None, str]:
        """The number of the first line that has one."""
        for line in self.lines:
            if line.main is not None:
                return line.main, line.alias
        return None, ""

    @cached_property
    def model(self) -> str:
        """The model under test, with what tells it from others of its kind."""
        config = mapping(self.results.get("config"))
        noted = mapping(self.manifest.get("model"))
        name = str(config.get("model") or noted.get("name") or "?")
        args = mapping(redacted(config.get("model_args") or noted.get("args") or {}))
        told = [args[key] for key in ("pretrained", "model", "path") if args.get(key)]
        return f"{name} {told[0]}" if told else name

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """What the run comes from, without secrets: command, spec, environment, identity of models, times."""
        wanted = ("command", "model", "roles", "spec", "options", "environment", "helper_files", "requests", "reason")
        noted = {key: self.manifest[key] for key in wanted if key in self.manifest}
        return dict(redacted(noted))

    def config(self, task: str) -> dict[str, Any]:
        """The settings of a task, without secrets."""
        return dict(redacted(self.run.config(task), texts=False))

    def source(self, task: str) -> str:
        """A name for the documents of a task: of one source and number is one document. Empty where none is noted."""
        return self.run.source(task)

    def graph(self, task: str) -> Mapping[str, Any]:
        """Nodes and edges of a task that is a graph; nothing for others."""
        return mapping(self.config(task).get("graph_config"))

    def sample_path(self, task: str) -> Path | None:
        """The Parquet file with the samples of a task, where it is whole."""
        return self.run.sample_path(task) if task in self.tasks else None

    def samples(self, task: str) -> Iterator[StoredSample]:
        """The samples of a task as they are written, one row group in memory at a time."""
        file = self.run.sample_file(task) if task in self.tasks else None
        return file.rows() if file is not None else iter(())


def _opened(path: Path, follow_links: bool) -> tuple[Run, str]:
    """A run with its results read, and what is wrong with it: that is the problem of this run, and no other's."""
    try:
        run = Run.open(path, follow_links=follow_links)
        run.results  # noqa: B018  # read here, where a damaged file is told
    except RunError as error:
        return Run(path, {}, {}), "; ".join(_told(path, each) for each in error.problems)
    return run, ""


def _told(path: Path, problem: Problem) -> str:
    file = Path(problem.place.file)
    if problem.what == LINK_OUTSIDE:
        return f"{file.relative_to(path)} {problem.what}"
    return NOTHING if file == path else f"{file.name}: {problem.what}"


def worst_tasks(lines: Sequence[Line], count: int = 5) -> list[Line]:
    """The tasks with the lowest shares, the lowest first; those of which less is better tell nothing here."""
    found = {line.name: line for line in lines if not line.is_group and line.main is not None}
    shares = [line for line in found.values() if line.main and line.main.is_share and line.main.higher_is_better]
    return sorted(shares, key=lambda line: (line.main.value or 0.0) if line.main else 0.0)[:count]
