"""`assay score`: the flow with stored answers. The new scores are a version beside the old, with what changed."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

from assay.config.source import digest
from assay.errors import ConfigError, grouped, some
from assay.evaluation.answers import StoredAnswers, StoredRun
from assay.evaluation.definitions import (
    Definitions,
    load_definitions,
    parse_filter,
    parse_metric,
    refuse_unread,
    with_metrics,
)
from assay.evaluation.flow import finish
from assay.evaluation.graph_output import OutputFile
from assay.evaluation.manifest import again
from assay.evaluation.prepare import Prepared, prepare_to_score
from assay.evaluation.scoring import ScoredTasks, replay, scorer_memories, scorer_processes
from assay.evaluation.verdicts import JournaledVerdicts, names_other_models, refuse_unseen
from assay.evaluation.writing import file_label
from assay.graphs.output import GraphFiles
from assay.records import AnyJSON, JSONDict, MetricValue
from assay.registry import load_plugins
from assay.results import Entry, Results
from assay.runs.folder import environment, new_scoring, publish_scoring, write_results
from assay.runs.results import ManifestJSON, plain, tasks_text
from assay.runs.run import holds_run
from assay.runs.samples.reader import ReplayedSample
from assay.runs.samples.records import SampleRecord
from assay.runs.samples.writer import SampleWriter
from assay.runs.validation import FORMAT
from assay.score_keys import ScoreKey
from assay.tasks.preflight import refuse_unsafe
from assay.tasks.run import TaskRun
from assay.tasks.runnable import Runnable

CHANGES = "changes.jsonl"
LISTED = 20
SCORING = frozenset(
    ("filter_list", "metric_list", "process_results", "scorer", "metadata", "task_alias", "tag", "unsafe_code",
     "graph_post_process")
)  # fmt: skip
"""Keys of a task that concern the scoring of answers; all others concern the requests."""


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """Which tasks to score again, and how; by default all, as they are defined today."""

    tasks: Sequence[str] = ()
    filters: Sequence[str] = ()
    metrics: Sequence[str] = ()
    files: Sequence[str] = ()
    include_path: Sequence[str] = ()
    plugins: Sequence[str] = ()
    include_defaults: bool = True
    compat: Literal["lm-eval", "sygra"] | None = None
    output_path: str | None = None
    confirm_run_unsafe_code: bool = False
    facts: ManifestJSON = field(default_factory=dict)


class RowChange(NamedTuple):
    """A row before and after, and how many documents changed their score. None where the row does not exist."""

    name: str
    key: ScoreKey
    before: float | None
    after: float | None
    changed: int

    @property
    def row(self) -> str:
        return str(self.key)

    def as_json(self) -> JSONDict:
        return {"name": self.name, "row": self.row, "before": self.before, "after": self.after, "changed": self.changed}


@dataclass
class SampleChanges:
    """The samples whose scores changed, each written as a line of JSON.

    A sample changed when a row of both scorings has another value, or when it failed in only one of them.
    """

    folder: Path
    documents: dict[str, list[int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    rows: Counter[tuple[str, ScoreKey]] = field(default_factory=Counter)
    _waiting: dict[int, ReplayedSample] = field(default_factory=dict)
    _lines: list[bytes] = field(default_factory=list)

    def expect(self, stored: ReplayedSample) -> None:
        """Remember the scores of a sample until it is scored again."""
        self._waiting[stored.sample.doc_id] = stored

    def compare(self, task: str, kept: SampleRecord) -> None:
        """Record what changed about a sample."""
        difference = _difference(self._waiting.pop(kept.sample.doc_id), kept)
        if not difference:
            return
        self.counts[task] += 1
        named = self.documents.setdefault(task, [])
        if len(named) < LISTED:
            named.append(kept.sample.doc_id)
        scores = difference.pop("scores", {})
        self.rows.update((task, key) for key in scores)
        if scores:
            difference["scores"] = {str(key): values for key, values in scores.items()}
        self._lines.append(orjson.dumps({"task": task, "doc_id": kept.sample.doc_id, **difference}) + b"\n")
        if len(self._lines) >= 1000:
            self.write()

    def write(self) -> None:
        """Write the lines that are waiting."""
        with (self.folder / CHANGES).open("ab") as file:
            file.writelines(self._lines)
        self._lines = []

    def as_json(self) -> JSONDict:
        return {task: {"count": count, "ids": self.documents[task]} for task, count in self.counts.items()}


@dataclass(frozen=True)
class Rescored:
    """A scoring of stored answers: its results, its folder, every row before and after, and remarks for the user."""

    results: Results
    folder: Path
    numbers: Sequence[RowChange]
    remarks: Sequence[str]


def score_answers(answers: StoredAnswers, options: ScoreOptions) -> Rescored:
    """Score stored answers again. The old scores are not touched."""
    load_plugins(options.plugins)
    filters, metrics = (
        [parse_filter(each) for each in options.filters],
        [parse_metric(each) for each in options.metrics],
    )
    if not answers.names:
        what = "no task of this run has finished: nothing to score yet"
        raise ConfigError.at(answers.folder, what, "repeat the command of the run to resume it, then score it")
    config = answers.config if options.compat is None else replace(answers.config, compat=options.compat)
    loaded = load_definitions(answers, options.files, () if isinstance(answers, OutputFile) else options.tasks)
    refuse_unsafe(loaded.tasks.values(), confirmed=options.confirm_run_unsafe_code)
    unread = refuse_unread(loaded.tasks.values(), filters)
    tasks = {name: with_metrics(task, filters, metrics) for name, task in loaded.tasks.items()}
    prepared = prepare_to_score(answers, loaded._replace(tasks=tasks), config)
    verdicts = JournaledVerdicts.of(answers)
    _refuse_stale(answers, prepared.tasks, verdicts)
    target = Path(options.output_path) if options.output_path is not None else answers.folder
    with scorer_processes(prepared.scorers), _score_cache(answers, prepared), new_scoring(target) as part:
        remarks = [*unread, *_remarks(answers, loaded, prepared)]
        output = ScoringOutput(answers, prepared, options, part, remarks, SampleChanges(part), verdicts)
        return finish(prepared, replay(output.read, done=output.close), output)


def _score_cache(answers: StoredAnswers, prepared: Prepared) -> AbstractContextManager[None]:
    """The scores that the run computed, for scorers that cache them; answers of other programs have no such folder."""
    if not isinstance(answers, StoredRun) or not os.access(answers.folder, os.W_OK):
        return nullcontext()
    return scorer_memories(prepared.scorers, answers.folder)


class _OpenTask(NamedTuple):
    """The files of the task whose answers are being scored."""

    writer: SampleWriter
    samples: Callable[[], Iterator[ReplayedSample]]


@dataclass(frozen=True)
class ScoringOutput:
    """A new version of a run's scores: samples, what changed about them, results and manifest."""

    answers: StoredAnswers
    prepared: Prepared
    options: ScoreOptions
    folder: Path
    remarks: Sequence[str]
    changes: SampleChanges
    verdicts: JournaledVerdicts | None = None
    reports: list[GraphFiles] = field(default_factory=list)
    _open: dict[str, _OpenTask] = field(default_factory=dict)

    def task_run(self, task: Runnable) -> TaskRun:
        name = task.task.name
        file = self.answers.file(task) if isinstance(self.answers, StoredRun) else None
        if isinstance(self.answers, StoredRun) and file is not None:
            samples = partial(self.answers.read, file, task)
        else:
            samples = partial(self.answers.samples, task)
        writer = SampleWriter(self.folder / "samples", name, file.request_arrays if file is not None else None)
        self._open[name] = _OpenTask(writer, samples)
        report = task.files(self.folder, self.answers.created, file_label(task, self.prepared))
        if isinstance(report, GraphFiles):
            self.reports.append(report)

        def keep(kept: SampleRecord) -> None:
            self._open[name].writer.add(kept)
            self.changes.compare(name, kept)
            if report is not None:
                report.add(kept)

        return TaskRun(task, keep)

    def read(self, task: Runnable) -> Iterator[ReplayedSample]:
        """The stored samples of a task; the scores of each are compared with its new ones."""
        verdicts = self.verdicts if _asks(task) else None
        changed = _changed_scoring(self.answers, task) if verdicts is not None else ()
        for stored in self._open[task.task.name].samples():
            self.changes.expect(stored)
            yield stored if verdicts is None else verdicts.completed(task, stored, changed)

    def close(self, task: Runnable) -> None:
        """Put the samples of a task in place; nothing of it stays open: a run may have more tasks than a process files."""
        writer = self._open.pop(task.task.name).writer
        writer.end()
        writer.place()

    def write(self, results: Results, scored: ScoredTasks) -> Rescored:  # noqa: ARG002  # the shape of an output
        self.changes.write()
        for report in self.reports:
            report.place_reports()
        numbers = row_changes(self.answers.results, results, self.changes.rows)
        complete = _completed(results, self.answers, self.changes, numbers)
        write_results(self.folder, complete, _manifest(self.answers, self.options, complete.status))
        return Rescored(complete, publish_scoring(self.folder), numbers, self.remarks)


def stored_answers(paths: Sequence[Path], options: ScoreOptions) -> StoredAnswers | None:
    """The answers in the folder of a run, or in the output of a graph; None where the files are of another program."""
    folder = paths[0] if len(paths) == 1 and paths[0].is_dir() else None
    if folder is not None and (holds_run(folder) or not any(folder.glob("samples_*.jsonl"))):
        return StoredRun.of(folder, options.include_path)
    return OutputFile.of(paths, {**loading_options(options), "include_path": list(options.include_path) or None})


def loading_options(options: ScoreOptions) -> JSONDict:
    """The options of a run that say which tasks are loaded, of those of a scoring."""
    return {
        "tasks": list(options.tasks),
        "include_defaults": options.include_defaults,
        "compat": options.compat,
    }


def _completed(results: Results, answers: StoredAnswers, changes: SampleChanges, rows: Sequence[RowChange]) -> Results:
    before, status = answers.results, results.status
    shard = {**before.shard, "status": status} if before.shard else {}
    if answers.absent or before.status == "partial":
        status = "partial"
    rescored = {
        "changed": changes.as_json(),
        "numbers": [row.as_json() for row in rows if row.before != row.after],
    }
    return again(replace(results, status=status, shard=shard, rescored=rescored), before)


def _manifest(answers: StoredAnswers, options: ScoreOptions, status: str) -> ManifestJSON:
    chosen = {
        "filters": options.filters,
        "metrics": options.metrics,
        "tasks": options.tasks,
        "plugins": options.plugins,
    }
    files = {file: digest(Path(file).read_bytes()) for file in options.files}
    of = answers.manifest.get("spec_digest") if isinstance(answers, StoredRun) else None
    return {
        "format": FORMAT,
        "created": time.time(),
        **options.facts,
        "scored": {
            **{key: list(value) for key, value in chosen.items() if value},
            **({"with": files} if files else {}),
        },
        "of": of,
        "environment": environment(),
        "status": status,
    }


def _remarks(answers: StoredAnswers, loaded: Definitions, prepared: Prepared) -> list[str]:
    """Groups and tasks that are left out, and definitions that differ from those of the run."""
    remarks = [f"left out: {name}: {why}" for name, why in loaded.left_out.items()]
    if isinstance(answers, OutputFile) and answers.asked is None:
        remarks.append(
            f"{answers.path.name}: an output lacks the records that failed; the results cover the others only"
        )
    if answers.absent:
        remarks.append(f"not finished, not scored: {', '.join(answers.absent[:5])}")
    if answers.left_out:
        remarks.append(f"the run was made elsewhere; the paths it names are not used: {some(answers.left_out)}")
    for task in prepared.tasks if isinstance(answers, StoredRun) else ():
        keys = [key for key in changed_keys(answers, task) if key not in SCORING]
        if keys:
            remarks.append(
                f"{task.task.name}: {', '.join(keys)} changed since the run; the answers belong to the old definition"
            )
    broken = grouped(prepared.broken.items())
    return [*remarks, *(f"not scored: {tasks_text(names)}: {why}" for names, why in broken)]


def _refuse_stale(answers: StoredAnswers, tasks: Sequence[Runnable], verdicts: JournaledVerdicts | None) -> None:
    """Refuse answers that judges have not seen: their stored verdicts are about the answers of the old filters.

    Where there is a journal, verdicts are found in it by request: only what a judge was never asked is refused, later.
    """
    for task in tasks:
        if not _asks(task):
            continue
        stale = _changed_scoring(answers, task)
        earlier = answers.results.tasks.get(task.task.name)
        before = earlier.config if earlier is not None else {}
        if stale and (verdicts is None or names_other_models(task, before)):
            refuse_unseen(task, f"{' and '.join(stale)} changed")


def _changed_scoring(answers: StoredAnswers, task: Runnable) -> list[str]:
    """The keys that changed of those which say what judges are asked about an answer."""
    is_ours = isinstance(answers, StoredRun) and not answers.is_imported
    changed = changed_keys(answers, task) if is_ours else ["scorer"]
    return [key for key in ("filter_list", "scorer") if key in changed]


def _asks(task: Runnable) -> bool:
    return any(scorer.asks for scorer in task.facts.scorers)


def changed_keys(answers: StoredAnswers, task: Runnable) -> list[str]:
    """The keys of a task that changed since it was run, as far as that is known."""
    now = plain(task.described())
    earlier = answers.results.tasks.get(task.task.name)
    if earlier is None or not earlier.config:
        return []
    before = earlier.config
    return [key for key in {**now, **before} if now.get(key) != before.get(key)]


def _difference(before: ReplayedSample, kept: SampleRecord) -> JSONDict:
    difference: dict[str, Any] = {}
    if before.failed != kept.failed:
        difference["failed"] = [before.failed or None, kept.failed or None]
    old = before.scores
    new = {ScoreKey(metric, each.filter): value for each in kept.scores for metric, value in each.values.items()}
    changed = {
        key: [old[key], _plain(value)]
        for key, value in new.items()
        if key in old and value != old[key] and _plain(value) != old[key]
    }
    if changed:
        difference["scores"] = changed
    return difference


def _plain(value: MetricValue) -> AnyJSON:
    """A value as it would be read back."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    return orjson.loads(orjson.dumps(value, default=str, option=options))


def row_changes(before: Results, after: Results, changed: Mapping[tuple[str, ScoreKey], int]) -> list[RowChange]:
    """Every row of either results, groups first."""
    groups = [group for group in after.groups.values() if group.rows is not None]
    rows: list[RowChange] = []
    entries: list[Entry] = [*groups, *after.tasks.values()]
    for entry in entries:
        earlier = before.find(entry.name)
        old, new = _values(earlier), _values(entry)
        rows += [
            RowChange(entry.name, key, old.get(key), new.get(key), changed.get((entry.name, key), 0))
            for key in dict.fromkeys((*old, *new))
        ]
    return rows


def _values(entry: Entry | None) -> dict[ScoreKey, float | None]:
    rows = () if entry is None or entry.rows is None else entry.rows
    return {number.key: number.estimate.value for row in rows if not row.is_lost for number in row.numbers}
