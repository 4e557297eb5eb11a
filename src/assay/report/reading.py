"""What a page or a report tells of a run: its head, its tree of numbers as rows, audit counts, what it took and comes from.

Everything is read from the folder of the run; of a run that is still going on, as much as is there.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.report.table import SETTINGS
from assay.runs.folder import MANIFEST, RESULTS, SAMPLES, RunError, read_manifest, read_results
from assay.runs.lease import is_held, progress
from assay.runs.links import LEADS_OUT, strays
from assay.runs.redact import redacted
from assay.runs.results import coverage, troubles
from assay.runs.stored import Row, SampleFile, sample_file
from assay.runs.versions import NAME as SCORINGS
from assay.tasks.audit import KINDS

RUNNING, UNREADABLE = "running", "unreadable"
NOTHING = "there is neither manifest nor results"


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a task or group: of a metric, on the answers that a filter leaves. Without a value, `reason` says why."""

    metric: str
    filter: str
    value: float | None
    stderr: float | None
    low: float | None
    high: float | None
    n: int
    higher_is_better: bool | None
    reason: str = ""
    several: Mapping[str, Any] | None = None
    failed: int | None = None
    """How many documents failed in this row; None in runs that do not say."""

    @property
    def key(self) -> str:
        """As results and columns of samples call it."""
        return f"{self.metric},{self.filter}"

    @property
    def is_share(self) -> bool:
        """Whether it lies between 0 and 1, with all its interval: then a bar of that length says it."""
        ends = [each for each in (self.value, self.low, self.high) if each is not None]
        return bool(ends) and all(0 <= each <= 1 for each in ends)


@dataclass(frozen=True, slots=True)
class Line:
    """A task or group where it stands in the tree; `path` is the way to it, itself last."""

    path: tuple[str, ...]
    alias: str
    is_group: bool
    numbers: Sequence[Number]
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

    def failures_in(self, number: Number) -> str:
        """The same of one row, where the run says it; else of the first alone."""
        if number.failed is None:
            return self.failures if number is self.numbers[0] else ""
        return replace(self, failed=number.failed).failures

    def count(self, number: Number) -> str:
        """How many documents a number is of; of an incomplete group also in how many tasks."""
        return f"{number.n:,} in {self.coverage}" if self.coverage else f"{number.n:,}"

    @property
    def main(self) -> Number | None:
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
    headline: Number | None
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
    """A run that was read; `results` are empty while it is going on, and where there is a `problem` with reading it."""

    def __init__(self, path: Path, name: str = "", *, follow_links: bool = True, problem: str = "") -> None:
        self.path, self.name = path, name or path.resolve().name
        stray = [] if follow_links else strays(path)
        self.problem = f"{stray[0]} {LEADS_OUT}" if stray else problem
        self.manifest, found = ({}, {}) if self.problem else self._files()
        if not (self.problem or self.manifest or found):
            self.problem = NOTHING
        self.status = self._status(found)
        self.results: Mapping[str, Any] = {} if self.status == RUNNING else found
        self.account: Mapping[str, Any] = _mapping(self.results.get("assay"))

    def _files(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Manifest and results; one that is damaged is the problem of this run, and no other's."""
        try:
            return read_manifest(self.path), read_results(self.path)
        except RunError as error:
            self.problem = "; ".join(f"{Path(each.place.file).name}: {each.what}" for each in error.problems)
            return {}, {}

    def _status(self, results: Mapping[str, Any]) -> str:
        if self.problem:
            return UNREADABLE
        written = self.manifest.get("status")
        if written == RUNNING and not is_held(self.path):
            return "stopped"
        if written is None and results:
            written = _mapping(results.get("assay")).get("status", "complete")
        return str(written or "unknown")

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many documents each task is asked about, as the manifest has it."""
        known = _mapping(self.manifest.get("tasks")) if self.manifest else {}
        return {task: int(_mapping(about).get("size") or 0) for task, about in known.items()}

    @cached_property
    def done(self) -> dict[str, int]:
        """Of a run that is going on: how many documents of each task have their answer."""
        return progress(self.path) if self.status == RUNNING else {}

    @cached_property
    def tasks(self) -> list[str]:
        """The names of its tasks."""
        return list(dict.fromkeys([*self.sizes, *_mapping(self.results.get("n-samples"))]))

    @cached_property
    def lines(self) -> list[Line]:
        """Groups with their members below them, then what is in no group."""
        if not self.results:
            return [
                Line((task,), task, False, (), None, "", size, done=self.done.get(task, 0))
                for task, size in self.sizes.items()
            ]
        return [self._line(path) for path in _paths(self.results)]

    def line(self, name: str) -> Line | None:
        """Where a task or group first stands."""
        return next((each for each in self.lines if each.name == name), None)

    def _line(self, path: tuple[str, ...]) -> Line:
        name, results = path[-1], self.results
        row = _mapping(results["results"].get(name))
        of_group = _mapping(_mapping(self.account.get("groups")).get(name))
        own = _mapping(_mapping(self.account.get("tasks")).get(name)) or of_group
        shots = _mapping(results.get("n-shot")).get(name)
        return Line(
            path,
            str(row.get("alias", name)).lstrip(" -"),
            name in _mapping(results.get("group_subtasks")),
            [*self._numbers(name, row)],
            shots if isinstance(shots, int) else None,
            str(_mapping(results.get("versions")).get(name, "")),
            own.get("documents", row.get("sample_len")),
            int(own.get("failed") or 0),
            bool(own.get("incomplete")),
            coverage(of_group),
            {kind: _mapping(told).get("count", 0) for kind, told in _mapping(own.get("audit")).items()},
        )

    def _numbers(self, name: str, row: Mapping[str, Any]) -> Iterator[Number]:
        several = {**_mapping(self.account.get("tasks")), **_mapping(self.account.get("groups"))}
        known = _mapping(_mapping(several.get(name)).get("rows"))
        better = _mapping(_mapping(self.results.get("higher_is_better")).get(name))
        for key in (each for each in row if "," in each):
            metric, _, filter_name = key.partition(",")
            if metric.endswith("_stderr") or metric == "bypass":
                continue
            told = _mapping(known.get(key))
            interval = told.get("interval") or (None, None)
            yield Number(
                metric,
                filter_name,
                _number(row[key]),
                _number(row.get(f"{metric}_stderr,{filter_name}")),
                _number(interval[0]),
                _number(interval[1]),
                int(
                    told["n"]
                    if "n" in told
                    else _mapping(row.get("sample_count")).get(key) or row.get("sample_len") or 0
                ),
                better.get(metric),
                str(told.get("reason", "")),
                row[key] if isinstance(row[key], Mapping) else None,
                told.get("failed"),
            )

    @cached_property
    def audit(self) -> dict[str, int]:
        """How many samples of all tasks deserve a look, by kind."""
        told = [_mapping(_mapping(each).get("audit")) for each in _mapping(self.account.get("tasks")).values()]
        return {kind: sum(_mapping(each.get(kind)).get("count", 0) for each in told) for kind in KINDS}

    @cached_property
    def troubles(self) -> list[str]:
        """What went wrong, a line each."""
        return troubles(self.account) if self.account.get("tasks") is not None else []

    @cached_property
    def head(self) -> Head:
        headline, of = self._headline()
        manifest, results = self.manifest or {}, self.results
        spent = _number(_mapping(self.account.get("account")).get("cost"))
        took = results.get("total_evaluation_time_seconds")
        begun = _number(manifest.get("created")) or _number(results.get("date"))
        return Head(
            self.name,
            self.path,
            self.model,
            list(dict.fromkeys(line.name for line in self.lines if line.depth == 0)),
            self.status,
            headline,
            of,
            sum(_mapping(each).get("effective", 0) for each in _mapping(results.get("n-samples")).values()),
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
        given = {**_mapping(self.results.get("config")), **_mapping((self.manifest or {}).get("options"))}
        told = redacted({key: given[key] for key in SETTINGS if given.get(key) not in (None, False, "", [], {})})
        return {key: text if len(text := str(value)) <= 60 else f"{text[:60]}…" for key, value in told.items()}

    def _headline(self) -> tuple[Number | None, str]:
        """The number of the first line that has one."""
        for line in self.lines:
            if line.main is not None:
                return line.main, line.alias
        return None, ""

    @cached_property
    def model(self) -> str:
        """The model under test, with what tells it from others of its kind."""
        config = _mapping(self.results.get("config"))
        noted = _mapping((self.manifest or {}).get("model"))
        name = str(config.get("model") or noted.get("name") or "?")
        args = _mapping(redacted(config.get("model_args") or noted.get("args") or {}))
        told = [args[key] for key in ("pretrained", "model", "path") if args.get(key)]
        return f"{name} {told[0]}" if told else name

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """What the run comes from, without secrets: command, spec, environment, identity of models, times."""
        wanted = ("command", "model", "roles", "spec", "options", "environment", "helper_files", "requests", "reason")
        noted = {key: self.manifest[key] for key in wanted if self.manifest and key in self.manifest}
        return dict(redacted(noted))

    def config(self, task: str) -> dict[str, Any]:
        """The settings of a task, without secrets."""
        return dict(redacted(_mapping(_mapping(self.results.get("configs")).get(task)), texts=False))

    def source(self, task: str) -> str:
        """A name for the documents of a task: of one source and number is one document. Empty where none is noted."""
        own = self.manifest or {}
        try:
            of = read_manifest(self.path.resolve().parent.parent) if "scored" in own else own
        except RunError:
            return ""
        return str(_mapping(of.get("tasks", {}).get(task)).get("source") or "")

    def graph(self, task: str) -> Mapping[str, Any]:
        """Nodes and edges of a task that is a graph; nothing for others."""
        return _mapping(self.config(task).get("graph_config"))

    def sample_file(self, task: str) -> Path | None:
        """The Parquet file with the samples of a task, where it is whole."""
        return sample_file(self.path, task) if task in self.tasks else None

    def samples(self, task: str) -> Iterator[Row]:
        """The samples of a task as they are written, one row group in memory at a time."""
        path = self.sample_file(task)
        return SampleFile(path).rows() if path is not None else iter(())


def find_runs(folder: Path) -> dict[str, Path]:
    """The runs below a folder, by their way from it: itself, if it is one. Scorings of a run stand behind it."""
    return {name or folder.resolve().name: path for name, path in _runs(folder, "", 6)}


def _runs(folder: Path, name: str, depth: int) -> Iterator[tuple[str, Path]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    names = {entry.name for entry in entries}
    is_run = MANIFEST in names or (RESULTS in names and SAMPLES in names)
    if is_run:
        yield name, folder
    for entry in entries:
        wanted = entry.name == SCORINGS if is_run else entry.name[:1] != "."
        if depth and wanted and entry.is_dir(follow_symlinks=False):
            yield from _runs(folder / entry.name, f"{name}/{entry.name}".lstrip("/"), depth - 1)


def worst_tasks(lines: Sequence[Line], count: int = 5) -> list[Line]:
    """The tasks with the lowest shares, the lowest first; those of which less is better tell nothing here."""
    found = {line.name: line for line in lines if not line.is_group and line.main is not None}
    shares = [line for line in found.values() if line.main and line.main.is_share and line.main.higher_is_better]
    return sorted(shares, key=lambda line: (line.main.value or 0.0) if line.main else 0.0)[:count]


def _paths(results: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The way to every line of the tree: groups that are in no other first, by name, each with its members below it."""
    members: Mapping[str, Sequence[str]] = _mapping(results.get("group_subtasks"))
    inside = {name for several in members.values() for name in several}

    def below(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        for member in sorted(members.get(path[-1], ())):
            if member not in path:
                yield from below((*path, member))

    for name in sorted(name for name in members if name not in inside):
        yield from below((name,))
    yield from ((name,) for name in sorted(results["results"]) if name not in members and name not in inside)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and value == value else None
