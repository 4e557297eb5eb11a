"""Write a run: its folder, the samples of each task as they are scored, and the results at the end."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from assay.config.run import RunConfig
from assay.dialect import dialect_of
from assay.evaluation.dispatch import RunProgress
from assay.evaluation.live import LiveRecord
from assay.evaluation.manifest import (
    config_section,
    facts,
    helper_digests,
    model_name,
    remembered,
    run_section,
    spec,
    task_facts,
)
from assay.evaluation.models import model_account, note_addresses
from assay.evaluation.prepare import Prepared, PreparedRun
from assay.evaluation.scoring import ScoredTasks, UsageSummary, scorer_memories
from assay.models.protocol import AnyModel, Remote
from assay.records import JSONDict
from assay.registry import USED
from assay.results import Results
from assay.runs.folder import MANIFEST, WAS_CUT_OFF, NoRun, RunError, RunFolder, as_written, git_state, open_run
from assay.runs.journal import Journal
from assay.runs.live import LiveFolder
from assay.runs.results import ManifestJSON
from assay.runs.run import Run, holds_run, output_folder, run_name, with_doubt
from assay.runs.samples.records import SampleRecord, lm_eval_records
from assay.runs.samples.writer import file_name
from assay.runs.storage import Announce, is_url, local_folder, uploaded, working_folder
from assay.tasks.documents import parse_shard
from assay.tasks.run import Keep, TaskRun
from assay.tasks.runnable import UNDER_TEST, Runnable
from assay.tasks.settings import Shard

DECIDED = ("pass", "fail")
"""Decisions of a rule that more documents cannot change."""
MakeTaskRun = Callable[[Runnable, Keep | None, Callable[[], None] | None], TaskRun]


class Evaluation(NamedTuple):
    """A finished run: its results, its folder where it has one, its tasks with their scores, and their samples where they
    are kept."""

    results: Results
    folder: Path | None
    tasks: Sequence[TaskRun]
    samples: "SampleLogs | None" = None


class OutputOptions(NamedTuple):
    """Options of a run's output: `notes` go into the manifest, samples into the results with `keep_samples`."""

    notes: Mapping[str, Any] = {}
    keep_samples: bool = False
    task_run: MakeTaskRun = TaskRun
    announce: Announce | None = None
    """Called with the place of the run, before the first request."""


@dataclass(frozen=True)
class RunOutput:
    """Where a run writes: the journal of its answers, and its folder where it has one."""

    prepared: PreparedRun
    model: AnyModel
    journal: Journal
    folder: RunFolder | None
    options: OutputOptions
    git: JSONDict | None
    """The state of the code around the run as it began."""
    live: LiveRecord | None = None
    samples: dict[str, list[SampleRecord]] = field(default_factory=dict)

    def task_run(self, task: Runnable) -> TaskRun:
        sinks: list[Keep] = []
        end = None
        if self.options.keep_samples:
            sinks.append(self.samples.setdefault(task.task.name, []).append)
        if self.folder is not None:
            written, end = folder_sinks(self.folder, self.prepared, task, self.live)
            sinks += written
        elif (files := task.files(None, self.prepared.started, file_label(task, self.prepared))) is not None:
            sinks.append(files.add)  # read by the post-processors of a graph
        return self.options.task_run(task, all_of(sinks), end)

    def beat(self, progress: RunProgress) -> None:
        """Renew the lease of the folder, and write the progress of the run."""
        if self.folder is not None:
            self.folder.beat_now_and_then()
        if self.live is not None:
            self.live(progress)

    def write(self, results: Results, scored: ScoredTasks) -> Evaluation:
        config, usage = self.prepared.config, scored.usage
        unread: Any = {name: partial(sample_log, config, name, kept) for name, kept in self.samples.items()}
        samples = SampleLogs(unread) if self.options.keep_samples else None
        complete = replace(
            _with_ending(results, config, usage),
            config=config_section(config, self.model),
            facts=run_section(config, self.model, self.prepared.started, self.git),
            **model_account(self.model),
        )
        if self.folder is None:
            return Evaluation(complete, None, scored.runs, samples)
        if usage.account.get("unanswered"):
            self.folder.manifest[WAS_CUT_OFF] = True
        self.folder.finish(complete, usage.requests)
        complete = replace(complete, usage=with_doubt(usage.account, self.folder.manifest))
        return Evaluation(complete, self.folder.path, scored.runs, samples)


@contextmanager
def open_output(prepared: PreparedRun, models: Mapping[str, AnyModel], options: OutputOptions) -> Iterator[RunOutput]:
    """Open the folder of a run, which resumes it where it is the same run; without a folder, answers stay in memory."""
    config, model = prepared.config, models[UNDER_TEST]
    if config.output_path is None and config.runs_dir is None:
        with closing(Journal(None)) as journal:
            yield RunOutput(prepared, model, journal, None, options, git_state())
        return
    run_spec = spec(config, models, prepared.tasks, prepared.helper_files)
    noted = {**_noted(prepared, models), **options.notes}
    with uploaded(_place(config, run_spec, model), options.announce) as path:
        folder = open_run(path, run_spec, noted, force=config.force)
        note_addresses(folder, models)
        if options.announce is not None:
            options.announce(_opening(folder))
        live = LiveFolder(folder.path)
        with folder, scorer_memories(prepared.scorers, folder.path):
            try:
                record = LiveRecord(live, prepared, prepared.started)
                yield RunOutput(prepared, model, folder.journal, folder, options, noted["environment"]["git"], record)
            finally:
                live.remove()


def _opening(folder: RunFolder) -> str:
    """Where a run is written, and whether it is resumed."""
    known = f" (resumed: {len(folder.journal):,} responses are there)" if folder.resumed else ""
    return f"run folder: {folder.path}{known}"


def is_resumed(prepared: PreparedRun, models: Mapping[str, AnyModel]) -> bool:
    """Whether the folder of a run that asks a server holds a run already."""
    config = prepared.config
    if not any(isinstance(model, Remote) for model in models.values()):
        return False
    if config.output_path is None and config.runs_dir is None:
        return False
    run_spec = spec(config, models, prepared.tasks, prepared.helper_files)
    place = _place(config, run_spec, models[UNDER_TEST])
    if is_url(place) and holds_run(working_folder(place)):  # one that is not uploaded yet
        return True
    try:
        return holds_run(local_folder(place, [MANIFEST]))
    except NoRun:
        return False


def decided_before(prepared: PreparedRun, models: Mapping[str, AnyModel]) -> Evaluation | None:
    """The same run, where its folder has the decision of its rule already."""
    config = prepared.config
    if config.output_path is None and config.runs_dir is None:
        return None
    run_spec = spec(config, models, prepared.tasks, prepared.helper_files)
    try:
        path = local_folder(_place(config, run_spec, models[UNDER_TEST]))
        run = Run.open(path)
        decided = run.results.stop_when if run.has_finished else {}
    except RunError:  # none, or a damaged one: what it had decided is worked out again
        return None
    is_this = decided.get("rule") == config.stop_when and decided.get("decision") in DECIDED
    is_this = is_this and run.manifest.get("spec") == as_written(run_spec)
    return Evaluation(run.results, path, ()) if is_this else None


def _noted(prepared: PreparedRun, models: Mapping[str, AnyModel]) -> ManifestJSON:
    """The facts of a run that its manifest records beside its spec."""
    code = helper_digests(prepared.helper_files)
    return {
        **facts(prepared.config, models),
        **remembered(prepared.config, prepared.manager),
        "tasks": {task.task.name: task_facts(task) for task in prepared.tasks},
        **({"helper_files": code} if code else {}),
        **({"plugins": dict(USED)} if USED else {}),
    }


def _place(config: RunConfig, run_spec: ManifestJSON, model: AnyModel) -> str:
    """The folder or URL that the user named, else one in `runs_dir`: always the same, or a new one if that is the default."""
    if config.output_path is not None:
        return config.output_path
    assert config.runs_dir is not None, "one of the two is given"
    name, tasks = model_name(config, model), [str(task) for task in config.tasks]
    if config.keep_finished and not is_url(config.runs_dir):
        return str(output_folder(Path(config.runs_dir), run_spec, name, tasks))
    return f"{config.runs_dir.rstrip('/') or '/'}/{run_name(run_spec, name, tasks)}"


def _with_ending(results: Results, config: RunConfig, usage: UsageSummary) -> Results:
    """Results with the status of the run as a whole, its shard, and the usage of its answers."""
    status, ended = results.status, ""
    if usage.ended and any(task.not_asked for task in results.tasks.values()):
        status, ended = "partial", usage.ended
    shard: dict[str, Any] = {}
    if config.shard is not None:
        shard = {"part": config.shard, "status": status, **({"ended": ended} if ended else {})}
        status = "partial"
    return replace(results, status=status, ended=ended, shard=shard, stop_when=usage.decided, usage=usage.account)


def folder_sinks(
    folder: RunFolder, prepared: Prepared, task: Runnable, live: LiveRecord | None = None
) -> tuple[list[Keep], Callable[[], None]]:
    """Return the functions that write the samples of a task into a run's folder, and one to call after the last."""
    name, config = task.task.name, prepared.config
    keeper = folder.keeper(name, config.log_samples, partial(logged_id, config, name))
    if live is not None:
        live.follow(name, keeper.parquet)
    files = task.files(folder.path, folder.manifest["created"], file_label(task, prepared))
    if files is None:
        return keeper.adders, keeper.end
    folder.keepers.append(files)
    return [*keeper.adders, files.add], keeper.end


def all_of(sinks: Sequence[Keep]) -> Keep | None:
    """One callable for all of them; None where there are none."""
    if len(sinks) > 1:
        return lambda kept: [sink(kept) for sink in sinks]
    return sinks[0] if sinks else None


def file_label(task: Runnable, prepared: Prepared) -> str:
    """The prefix of a graph's files: the run's name, and the task's where the run has more than one graph."""
    names = [prepared.config.run_name or "", task.task.name if prepared.has_several_graphs else ""]
    return "".join(f"{file_name(name)}_" for name in names if name)


def sample_log(config: RunConfig, task: str, kept: Sequence[SampleRecord]) -> list[JSONDict]:
    """The samples of a task as lm-eval logs them: filter by filter."""
    records = [list(lm_eval_records(k, logged_id(config, task, n, k.sample.doc_id))) for n, k in enumerate(kept)]
    filters = max(map(len, records), default=0)
    return [by_filter[number] for number in range(filters) for by_filter in records if number < len(by_filter)]


class SampleLogs(dict[str, list[JSONDict]]):
    """The samples of tasks as lm-eval logs them. Those of a task are made when they are read first: most callers read none.

    Until then a task has the function that makes them; whatever reads a dict by its methods sees lists, also `json`, `pickle`
    and `dict` itself.
    """

    def __getitem__(self, task: str) -> list[JSONDict]:
        samples = super().__getitem__(task)
        if isinstance(samples, partial):
            samples = self[task] = samples()
        return samples

    def __iter__(self) -> Iterator[str]:  # one of our own: without it `dict` and `**` would copy what is inside
        return super().__iter__()

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[type, tuple[dict[str, list[JSONDict]]]]:
        return dict, (dict(self),)

    get, items, values = Mapping.get, Mapping.items, Mapping.values  # type: ignore[assignment]
    pop, popitem, setdefault = MutableMapping.pop, MutableMapping.popitem, MutableMapping.setdefault
    __eq__, __ne__ = Mapping.__eq__, object.__ne__


def logged_id(config: RunConfig, task: str, number: int, doc_id: int) -> int:
    """The id that a document is logged under: its own; or lm-eval's, which counts `samples` in the order given."""
    requested: Any = (config.samples or {}).get(task)
    if not requested or not dialect_of(config.compat).numbers_documents_by_request:
        return doc_id
    return nth_requested(requested, number, parse_shard(config.shard))


def nth_requested(requested: Sequence[int], number: int, shard: Shard | None) -> int:
    """Requested document index of the n-th sample of this shard."""
    return int(requested[number if shard is None else shard.number - 1 + number * shard.of])
