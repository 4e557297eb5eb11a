"""Reads a run folder. Nothing else opens manifest.json, results.json, samples or responses to read them.

Opening reads the manifest alone; everything else is read at its first use, and once. Imported runs, scorings of a
run (`RUN/scored/001`) and runs that have not finished have the same interface.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from assay.config.source import digest
from assay.errors import Place, Problem, did_you_mean, some
from assay.records import AnyJSON, JSONDict, JSONObject, json_number, mapping
from assay.results import NO_RESULTS, Entry, Results, Row, TaskEntry
from assay.runs import journal
from assay.runs.comparison import Comparison
from assay.runs.extensions import COMPARISON, REPORT, PlotKind, ReportOptions, ShownPlot, ShownTable
from assay.runs.folder import (
    CHECKSUMS,
    JOURNALS,
    LINK_OUTSIDE,
    MANIFEST,
    RESULTS,
    SAMPLES,
    WAS_CUT_OFF,
    NoRun,
    RunError,
    as_written,
    manifest_from_journal,
    no_run,
    read_manifest,
    read_results,
    refuse_links_outside,
)
from assay.runs.folder import SCORED as SCORINGS
from assay.runs.journal import JournaledResponse
from assay.runs.labels import TaskLabels, current_labels, read_labels, with_corrected_rows
from assay.runs.lease import is_held
from assay.runs.lines import NOT_LIVE, LiveProgress, ResultLine, read_live, result_lines
from assay.runs.notes import Notes, read_notes
from assay.runs.results import failure_lines
from assay.runs.samples.reader import SampleFile, sample_file
from assay.runs.samples.writer import file_name
from assay.runs.storage import local_folder, shown_path
from assay.safe_text import cut
from assay.score_keys import ScoreKey

if TYPE_CHECKING:
    import pyarrow as pa

RUNNING, STOPPED, COMPLETE, UNREADABLE = "running", "stopped", "complete", "unreadable"
NO_RUN = "there is neither manifest nor results"
SETTINGS = ("gen_kwargs", "limit", "sample", "num_fewshot", "repeats", "apply_chat_template", "system_instruction")
"""Options, besides model and tasks, that distinguish runs of a model."""
SCORE_TYPES = {
    "task": "string", "kind": "string", "metric": "string", "filter": "string", "value": "float64", "stderr": "float64",
    "low": "float64", "high": "float64", "n": "int64", "failed": "int64", "higher_is_better": "bool_",
    "incomplete": "bool_", "reason": "string",
}  # fmt: skip
"""The columns of scores, with their types in Arrow."""
DEEPEST = 6
"""Levels of folders below which no run is looked for."""


class Run:
    """A run folder, opened for reading."""

    def __init__(
        self, path: Path, manifest: JSONObject, results: Results | None = None, *, name: str = "", problem: str = ""
    ) -> None:
        self.path, self.manifest, self.problem = path, manifest, problem
        """Why the run cannot be read."""
        self._rows: dict[str, dict[ScoreKey, Row]] = {}
        if name:
            self.name = name
        if results is not None:
            self.results = self.written = results

    @classmethod
    def open(cls, path: str | Path, *, follow_links: bool = True) -> "Run":
        """Open the run in a folder or at a URL; a RunError where there is none, a damaged one, or one of another format.

        A lost manifest is rebuilt from the header of the journal. Without `follow_links`, a run with files outside of its
        folder is refused.
        """
        folder = local_folder(path)
        if not follow_links:
            refuse_links_outside(folder)
        manifest = read_manifest(folder) or manifest_from_journal(folder)
        if not manifest and not (folder / RESULTS).is_file():
            raise NoRun([no_run(folder)])
        return cls(folder, manifest)

    @classmethod
    def try_open(cls, path: Path, name: str = "", *, follow_links: bool = True) -> "Run":
        """Open a run to show it and read its results; one that cannot be read has a `problem`, and no results."""
        try:
            run = cls.open(path, follow_links=follow_links)
            run.name = name or run.name
            run.results  # noqa: B018  # read here, where a damaged file is reported
        except RunError as error:
            problem = "; ".join(_problem_text(path, problem) for problem in error.problems)
            return cls(path, {}, NO_RESULTS, name=name, problem=problem)
        return run

    @cached_property
    def name(self) -> str:
        """The name of its folder, if it was not given another."""
        return Path(os.path.realpath(self.path)).name  # of a loop of links, too

    def renamed(self, name: str) -> "Run":
        run = copy(self)
        run.name = name
        return run

    @cached_property
    def results(self) -> Results:
        """The results, with rows that labels correct; empty while a process works on the run."""
        if self.is_running:  # what an earlier process wrote is about to be replaced
            return NO_RESULTS
        if self.written.is_empty or not self.labels:
            return self.written
        return with_corrected_rows(self.written, COMPARISON.functions.corrected_rows(self))

    @cached_property
    def written(self) -> Results:
        """The results as the run wrote them."""
        return read_results(self.path, self._checksum(RESULTS))

    def _checksum(self, file: str) -> str:
        """The checksum that the manifest has for a file; empty while the run is at work."""
        return str(mapping(self.manifest.get(CHECKSUMS)).get(file, ""))

    @cached_property
    def answers_manifest(self) -> JSONObject:
        """The manifest of the run whose answers these are: of a scoring, that of the run above it."""
        if "scored" not in self.manifest:
            return self.manifest
        try:
            above = read_manifest(self.path.resolve().parent.parent)
        except RunError:
            return self.manifest
        return above if above and above.get("spec_digest") == self.manifest.get("of") else self.manifest

    @cached_property
    def status(self) -> str:
        """`running`, `stopped`, `interrupted`, `complete`, `incomplete` or `unreadable`; `unknown` where nothing is noted."""
        if self.problem:
            return UNREADABLE
        written = self.manifest.get("status")
        if written is None and self.written.is_empty:
            written = RUNNING if "spec" in self.manifest else "unknown"  # a manifest from the journal has no status
        if written == RUNNING:
            return RUNNING if is_held(self.path) else STOPPED
        return (self.written.status or COMPLETE) if written in (None, COMPLETE) else str(written)

    @property
    def is_running(self) -> bool:
        return self.status == RUNNING

    @property
    def has_finished(self) -> bool:
        """Whether it has results, and has not been started again since."""
        return (
            bool(self.manifest and (self.results.tasks or self.results.groups))
            and self.manifest.get("status") != RUNNING
        )

    def finished(self) -> "Run":
        """This run; a RunError where it has not finished."""
        if not self.manifest:
            raise NoRun([no_run(self.path)])
        if not self.has_finished:
            what = f"the run has not finished (status: {self.manifest.get('status', 'unknown')})"
            fix = "wait until it has" if self.is_running else "resume it with the same command"
            raise RunError.at(self.path, what, fix)
        return self

    def without_labels(self) -> "Run":
        """Return the run with the rows that it wrote, and no others."""
        run = Run(self.path, self.manifest, self.written)
        run.labels = {}
        return run

    # ---- tasks and groups

    @cached_property
    def tasks(self) -> list[str]:
        """The names of all requested tasks, with or without results."""
        return list(dict.fromkeys([*mapping(self.manifest.get("tasks")), *self.scored_tasks]))

    @property
    def scored_tasks(self) -> list[str]:
        """The names of the tasks that have results, in their order."""
        return list(self.results.tasks)

    @property
    def groups(self) -> list[str]:
        """The names of the groups that have numbers."""
        return [group.name for group in self.results.groups.values() if group.rows is not None]

    @property
    def members(self) -> Mapping[str, Sequence[str]]:
        """By group, tags included, the tasks and groups directly in it; a group comes before its members."""
        return {group.name: group.members for group in reversed([*self.results.groups.values()])}

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The number of documents of each task, from the manifest."""
        known = mapping(self.manifest.get("tasks"))
        return {task: int(mapping(about).get("size") or 0) for task, about in known.items()}

    @cached_property
    def live(self) -> LiveProgress:
        """Of a run in progress: its last record of progress."""
        return read_live(self.path) if self.is_running else NOT_LIVE

    @property
    def answered(self) -> int | None:
        """Of a run in progress: how many documents are answered."""
        return self.live.documents if self.is_running else None

    def facts(self, task: str) -> JSONObject:
        """The manifest's entry of a task: number of documents, repeats, a name for its data."""
        return mapping(mapping(self.answers_manifest.get("tasks")).get(task))

    def repeats(self, task: str) -> int:
        return int(self.facts(task).get("repeats") or 1)

    def source(self, task: str) -> str:
        """A name for the data of a task: documents of one source with one number are the same; empty where none is noted."""
        return str(self.facts(task).get("source") or "")

    def config(self, task: str) -> JSONObject:
        """The settings of a task; of one without results, and of a group, none."""
        entry = self._entry(task)
        return entry.config if isinstance(entry, TaskEntry) else {}

    def graph(self, task: str) -> JSONObject:
        """Nodes and edges of a graph task; empty for others."""
        return mapping(self.config(task).get("graph_config"))

    def alias(self, name: str) -> str:
        entry = self.results.find(name)
        return name if entry is None else entry.alias

    def higher_is_better(self, name: str) -> Mapping[str, bool | None]:
        """By metric, of a task or group."""
        entry = self._entry(name)
        return {} if entry is None else entry.directions

    def _entry(self, name: str) -> Entry | None:
        """The results of a task or group, None while it has none; a RunError where the run has none of this name."""
        written = self.written  # `results` are these with the rows that labels correct, which are made with this
        names = [*mapping(self.manifest.get("tasks")), *written.tasks, *written.groups, *written.broken]
        if name not in names:
            what = f"the run has no task or group named {name!r}"
            raise RunError.at(Place(str(self.path)), what, did_you_mean(name, names))
        return self.results.find(name)

    @property
    def model_name(self) -> str:
        """The name of the model: its backend, and its name there."""
        facts = self.results.facts
        names = dict.fromkeys((facts.get("model_source"), facts.get("model_name")))
        parts = [str(name) for name in names if name]
        return "/".join(parts) or str(self.results.config.get("model"))

    @cached_property
    def model(self) -> str:
        """The model under test as it was named, with the argument that identifies it."""
        config, noted = self.results.config, mapping(self.manifest.get("model"))
        return model_text(
            config.get("model") or noted.get("name") or "?", config.get("model_args") or noted.get("args")
        )

    @cached_property
    def settings(self) -> dict[str, str]:
        """The settings, besides model and tasks, that distinguish runs of a model."""
        options = {**self.results.config, **mapping(self.manifest.get("options"))}
        visible = {key: options[key] for key in SETTINGS if options.get(key) not in (None, False, "", [], {})}
        shown = {key: _plain_setting(value) for key, value in visible.items()}
        return {key: cut(text, 60) for key, text in shown.items()}

    @property
    def provenance(self) -> JSONDict:
        """The provenance: command, spec, environment, model fingerprints, times."""
        keys = ("command", "model", "roles", "spec", "options", "environment", "helper_files", "requests", "reason")
        return {key: self.manifest[key] for key in keys if key in self.manifest}

    @cached_property
    def notes(self) -> Notes:
        """The tags and the note that people gave to the run."""
        return read_notes(self.path)

    @property
    def created(self) -> float | None:
        """When the run began."""
        return json_number(self.manifest.get("created")) or json_number(self.results.facts.get("date"))

    @property
    def seconds(self) -> float | None:
        """How long the evaluation took."""
        took = self.results.facts.get("total_evaluation_time_seconds")
        return float(took) if isinstance(took, str | int | float) else None

    # ---- rows

    def rows(self, name: str) -> dict[ScoreKey, Row]:
        """The rows of a task or group, in their order; of several numbers by name, a row for each.

        A RunError where the run has no task or group of this name.
        """
        if name not in self._rows:
            entry = self._entry(name)
            rows = () if entry is None or entry.rows is None else entry.rows
            self._rows[name] = {number.key: number for row in rows for number in row.numbers}
        return self._rows[name]

    @cached_property
    def lines(self) -> list[ResultLine]:
        """Groups with their members below them, then ungrouped tasks; of a run in progress with provisional numbers."""
        if self.results.is_empty:
            return self.live.lines(self.sizes)
        return result_lines(self.results)

    def line(self, name: str) -> ResultLine | None:
        """The first line of a task or group."""
        return next((line for line in self.lines if line.name == name), None)

    # ---- failures and usage

    @property
    def scored(self) -> int:
        """How many documents were scored, of all tasks."""
        return sum(task.scored for task in self.results.tasks.values())

    @property
    def failed(self) -> int:
        """How many documents failed, of all tasks."""
        return self.results.failed or self.live.failures

    @cached_property
    def remarks(self) -> list[str]:
        """The problems of the run, one line each."""
        lost = [f"{task}: its samples are missing" for task in self.lost_samples]
        return [*lost, *([self.notes.problem] if self.notes.problem else []), *failure_lines(self.results)]

    @property
    def broken(self) -> Mapping[str, str]:
        """The tasks that could not be run, each with the reason."""
        return self.results.broken

    @property
    def usage(self) -> JSONObject:
        """Requests, retries, tokens, cost and seconds, by role and task, too; `at_least` so many where a process was cut off."""
        return with_doubt(self.results.usage, self.manifest)

    @property
    def cost(self) -> float | None:
        spent = json_number(self.usage.get("cost"))
        return self.live.cost if spent is None else spent

    @cached_property
    def labels(self) -> Mapping[str, TaskLabels]:
        """The labels that people gave, by task; those about other answers are left out."""
        return {task: current_labels(about, self.sample_file(task)) for task, about in read_labels(self.path).items()}

    # ---- samples and responses

    def sample_path(self, task: str) -> Path | None:
        """The Parquet file of a task's samples; None where it is not there, or not written to its end."""
        return sample_file(self.path, task)

    @property
    def lost_samples(self) -> list[str]:
        """The tasks whose samples were written to the end, and are missing."""
        return [
            task
            for task in self.tasks
            if self._checksum(f"{SAMPLES}/{file_name(task)}.parquet") and self.sample_path(task) is None
        ]

    def sample_file(self, task: str) -> SampleFile | None:
        """The samples of a task as records; None where they are not there."""
        path = self.sample_path(task)
        if path is None:
            return None
        return SampleFile(path, self.repeats(task), self._checksum(f"{SAMPLES}/{path.name}"))

    def sample_file_at(self, path: Path, task: str) -> SampleFile:
        """The samples of a task in another file: a copy of the newest ones of a run in progress."""
        return SampleFile(path, self.repeats(task))

    def sample_files(self) -> dict[str, SampleFile]:
        """Return the sample files by task, in the order of the results; a RunError where one is lost."""
        for task in self.lost_samples:
            fix = "restore them, or repeat the command of the run: it sends no request twice, and rewrites its samples"
            raise RunError.at(self.path, f"the samples of {task!r} are missing", fix)
        files = {task: self.sample_file(task) for task in self.scored_tasks}
        return {task: file for task, file in files.items() if file is not None}

    def samples(self, task: str, columns: Sequence[str] | None = None) -> "pa.Table":
        """The samples of a task as an Arrow table (docs/samples.md), one row for each document."""
        import pyarrow as pa

        tables = self._sample_tables(task, columns)
        return pa.concat_tables(tables, promote_options="default").replace_schema_metadata().unify_dictionaries()

    def sample_batches(self, task: str, columns: Sequence[str] | None = None) -> "Iterator[pa.RecordBatch]":
        """The same as record batches, one row group in memory at a time."""
        return (batch for table in self._sample_tables(task, columns) for batch in table.to_batches())

    def _sample_tables(self, task: str, columns: Sequence[str] | None) -> "Iterator[pa.Table]":
        file = self.sample_file(task)
        if file is None:
            what = f"no samples of a task named {task!r}"
            raise RunError.at(self.path, what, did_you_mean(task, self.tasks))
        known = file.names
        for unknown in (name for name in columns or () if name not in known):
            raise RunError.at(file.path, f"no column {unknown!r}", did_you_mean(unknown, known))
        chosen = known if columns is None else columns
        return (table.select([name for name in chosen if name in table.column_names]) for table in file.tables())

    def responses(self) -> Iterator[JournaledResponse]:
        """Every response in the journal, failures included; damaged lines are left out."""
        return journal.responses(self.path / journal.NAME)

    # ---- tables, comparisons, plots and reports: `report` and `comparison` register what makes them

    def scored_rows(self) -> Iterator[tuple[str, str, Row]]:
        """Every number: `task` or `group`, its name, and its row."""
        for kind, names in (("task", self.scored_tasks), ("group", self.groups)):
            yield from ((kind, name, row) for name in names for row in self.rows(name).values())

    def scores(self) -> "pa.Table":
        """The numbers of tasks and groups as an Arrow table, one row for each task, filter and metric."""
        import pyarrow as pa

        rows = [
            (name, kind, row.metric, row.filter, row.estimate.value, row.estimate.stderr, row.estimate.low,
             row.estimate.high, row.estimate.n, row.failed, row.higher_is_better, row.is_incomplete,
             row.estimate.reason or None)
            for kind, name, row in self.scored_rows()
        ]  # fmt: skip
        columns = zip(*rows, strict=True) if rows else ((),) * len(SCORE_TYPES)
        return pa.table(
            {
                name: pa.array(own, getattr(pa, kind)())
                for (name, kind), own in zip(SCORE_TYPES.items(), columns, strict=True)
            }
        )

    @property
    def table(self) -> ShownTable:
        """The results for a reader: fits the terminal, is HTML in a notebook, and Markdown as `str`."""
        return REPORT.functions.table_of_run(self)

    def compare(
        self, *others: str | os.PathLike[str], tasks: Sequence[str] = (), metrics: Sequence[str] = (),
        gates: Sequence[str] = (), allow_different_prompts: bool = False, level: float = 0.95,
    ) -> Comparison:  # fmt: skip
        """Compare other runs with this one, document by document; `assay.compare` has more options."""
        return COMPARISON.functions.compare(
            [self, *others], tasks=tasks, metrics=metrics, gates=gates,
            allow_different_prompts=allow_different_prompts, level=level,
        )  # fmt: skip

    def plot(self, kind: PlotKind = "intervals", *, tasks: Sequence[str] = (), metric: str | None = None) -> ShownPlot:
        """Draw the run: a notebook shows it, and `.save("out.svg")` writes it. `assay.plot` draws several runs."""
        return REPORT.functions.plot([self], kind, tasks=tasks, metric=metric)

    def report(self, path: str | os.PathLike[str], *, options: ReportOptions | None = None) -> Path:
        """Write a report of the run; the end of the name chooses HTML, Markdown, JSON or CSV."""
        return REPORT.functions.write_report([self], path, options=options)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        known = self.results.config.get("model") or mapping(self.manifest.get("model")).get("name")
        return f"<Run {shown_path(self.path)!r}: {known or 'unknown model'}, {some(self.tasks) or 'no tasks'}, {self.status}>"

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def model_with_arguments(results: Results) -> str:
    """The model of a run with its arguments."""
    args = results.config.get("model_args") or {}
    listed = ",".join(f"{key}={value}" for key, value in args.items()) if isinstance(args, Mapping) else str(args)
    name = str(results.config.get("model") or results.facts.get("model_name") or "?")
    return f"{name} ({listed})" if listed else name


def model_text(name: AnyJSON, args: AnyJSON) -> str:
    """A model by its name, and the argument that identifies it."""
    known = mapping(args or {})
    identifying = [str(known[key]) for key in ("pretrained", "model", "path") if known.get(key)]
    return " ".join([str(name), *identifying[:1]]).strip()


def _problem_text(path: Path, problem: Problem) -> str:
    file = Path(problem.place.file)
    if problem.what == LINK_OUTSIDE:
        return f"{file.relative_to(path)} {problem.what}"
    return NO_RUN if file == path else f"{file.name}: {problem.what}"


def _plain_setting(value: AnyJSON) -> str:
    """A value of a setting as people write it: 60 rather than 60.0.

    >>> _plain_setting(60.0), _plain_setting(0.5), _plain_setting("x")
    ('60', '0.5', 'x')
    """
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def finished_run(folder: str | Path) -> Run:
    """Open a finished run, or a scoring of one with the facts of the run that it scores; a RunError where it has not finished."""
    run = Run.open(folder).finished()
    return Run(run.path, {**run.answers_manifest, CHECKSUMS: {}, **run.manifest}, run.results)


def holds_run(folder: Path) -> bool:
    """Whether a folder holds a run, as far as the names in it say."""
    try:
        return _is_run({entry.name for entry in os.scandir(folder)})
    except OSError:
        return False


def _is_run(names: set[str]) -> bool:
    return MANIFEST in names or not names.isdisjoint(JOURNALS) or (RESULTS in names and SAMPLES in names)


def runs_in(folder: Path) -> list[Path]:
    """The runs directly in a folder, by name."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return []
    return [folder / name for name in names if holds_run(folder / name)]


def find_runs(folder: Path) -> dict[str, Path]:
    """The runs below a folder, by their path from it: itself, if it is one. Scorings of a run come behind it."""
    return {name or folder.resolve().name: path for name, path in _runs(folder, "", DEEPEST)}


def _runs(folder: Path, name: str, depth: int) -> Iterator[tuple[str, Path]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    is_run = _is_run({entry.name for entry in entries})
    if is_run:
        yield name, folder
    for entry in entries:
        is_searched = entry.name == SCORINGS if is_run else entry.name[:1] != "."
        if depth and is_searched and entry.is_dir(follow_symlinks=False):
            yield from _runs(folder / entry.name, f"{name}/{entry.name}".lstrip("/"), depth - 1)


def with_doubt(account: JSONObject, manifest: JSONObject) -> JSONObject:
    """The usage of a run, marked where a process of it was killed or stopped: nobody knows what the server was asked in its last
    moment. A model on this machine charges nothing for that."""
    is_in_doubt = manifest.get(WAS_CUT_OFF) and account and "device_seconds" not in account
    return {**account, "at_least": True} if is_in_doubt else account


def output_folder(runs_dir: Path, spec: JSONObject, model: str, tasks: Sequence[str]) -> Path:
    """Return the folder of the latest unfinished run with this spec that no process holds, else a new one."""
    written_spec = as_written(spec)
    unfinished = [
        (manifest.get("created") or 0.0, path)
        for path, manifest in _manifests(runs_dir)
        if manifest.get("spec") == written_spec and manifest.get("status") != COMPLETE and not is_held(path)
    ]
    return max(unfinished)[1] if unfinished else new_folder(runs_dir, model, tasks)


def new_folder(runs_dir: Path, model: str, tasks: Sequence[str]) -> Path:
    """A folder that is not there yet, named after the day, the model and the tasks.

    >>> new_folder(Path("runs"), "org/llama 3", ["mmlu", "gsm8k"]).name[11:]
    'llama_3-mmlu-and-1-more'
    """
    name = "-".join([time.strftime("%Y-%m-%d"), _described(model, tasks)])
    names = (name, *(f"{name}-{number}" for number in range(2, 1_000_000)))
    return next(path for each in names if not (path := runs_dir / each).exists())


def run_name(spec: JSONObject, model: str, tasks: Sequence[str]) -> str:
    """The name of a run in a folder of runs that the user chose: the same for the same run, and no other run's.

    >>> run_name({"limit": 5}, "org/llama 3", ["mmlu", "gsm8k"])[:-8]
    'llama_3-mmlu-and-1-more-'
    """
    return f"{_described(model, tasks)}-{digest(orjson.dumps(as_written(spec), option=orjson.OPT_SORT_KEYS))[:8]}"


def _described(model: str, tasks: Sequence[str]) -> str:
    more = f"-and-{len(tasks) - 1}-more" if len(tasks) > 1 else ""
    return "-".join(part for part in (_plain(Path(model).name), _plain(tasks[0] if tasks else "") + more) if part)


def _manifests(runs_dir: Path) -> Iterator[tuple[Path, JSONObject]]:
    """The runs directly below a folder that can be read, each with its manifest."""
    for path in runs_in(runs_dir):
        with suppress(RunError):
            yield path, Run.open(path).manifest


def _plain(text: str) -> str:
    """Text that is safe in the name of a folder, and not too long: names have at most 255 bytes."""
    safe = re.sub(r"[^\w.@#+-]+", "_", text).strip("._-")[:40]
    return safe.encode()[:80].decode(errors="ignore")
