"""Scoring again what was answered before: definitions, answers, scores, numbers, a new version beside the old."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from assay.compat.prepare import prepare_to_score
from assay.config.arguments import parse_arguments
from assay.config.run import RunConfig
from assay.config.source import digest
from assay.errors import ConfigError, Place, Problem, some
from assay.evaluation.alter import altered, parse_filter, parse_metric
from assay.evaluation.answers import Answers, LoggedRun, StoredRun
from assay.evaluation.changes import Changes, Number, numbers
from assay.evaluation.conduct import fewer_collections
from assay.evaluation.definitions import Definitions, definitions
from assay.evaluation.graph_output import OutputFile
from assay.evaluation.graphs import graph_files
from assay.evaluation.outcome import outcome
from assay.evaluation.record import again
from assay.registry import load_plugins
from assay.runs.folder import MANIFEST, RESULTS, environment, new_scoring, publish_scoring, write_json
from assay.runs.redaction import redacted
from assay.runs.results import plain
from assay.runs.run import holds_run
from assay.runs.samples.reader import AnsweredSample
from assay.runs.samples.records import SampleRecord
from assay.runs.samples.writer import SampleWriter
from assay.runs.validation import FORMAT
from assay.tasks import Task
from assay.tasks.documents import parse_shard
from assay.tasks.preflight import ready_groups, refuse_unsafe
from assay.tasks.rescore import TaskFacts
from assay.tasks.run import TaskRun
from assay.tasks.settings import GraphSettings, Settings

SCORING = frozenset(
    ("filter_list", "metric_list", "process_results", "scorer", "metadata", "task_alias", "tag", "unsafe_code",
     "graph_post_process")
)  # fmt: skip
"""Keys of a task that concern what is made of answers; all others concern what was asked."""


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """What is to be scored again, and how: everything as it is defined today, where nothing is said."""

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
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scored:
    """A scoring: its results, where they lie, the numbers before and after, and what is to be said about it."""

    results: Mapping[str, Any]
    folder: Path
    numbers: Sequence[Number]
    remarks: Sequence[str]


def score(paths: str | Path | Sequence[str | Path], wanted: ScoreOptions | None = None) -> Scored:
    """Score the answers of a run, or of lm-eval's samples files, once more. The old scores are not touched."""
    wanted, paths = wanted or ScoreOptions(), [paths] if isinstance(paths, str | Path) else paths
    load_plugins(wanted.plugins)
    filters, metrics = [parse_filter(each) for each in wanted.filters], [parse_metric(each) for each in wanted.metrics]
    answers = _answers([Path(path) for path in paths], wanted)
    if not answers.names:
        what = "no task of this run has come to its end: there is nothing to score yet"
        raise ConfigError([Problem(Place(str(answers.folder)), what, "let it go on, by the same command")])
    config = answers.config if wanted.compat is None else replace(answers.config, compat=wanted.compat)
    found = definitions(answers, wanted.files, () if isinstance(answers, OutputFile) else wanted.tasks)
    refuse_unsafe(found.tasks.values(), confirmed=wanted.confirm_run_unsafe_code)
    tasks = {name: altered(task, filters, metrics) for name, task in found.tasks.items()}
    runs, broken, _ = ready(answers, found._replace(tasks=tasks), config)
    _refuse_stale(answers, runs)
    remarks = [*_remarks(answers, found, runs), *(f"not scored: {name}: {why}" for name, why in broken.items())]
    target = Path(wanted.output_path) if wanted.output_path is not None else answers.folder
    with new_scoring(target) as part:
        changes = Changes(part)
        files = graph_files(answers, runs, part, answers.created)
        with fewer_collections():
            for run in runs:
                _score_task(answers, run, part, changes)
        changes.write()
        results = outcome(runs, found.groups.values(), config, broken)
        for each in files:
            each.place_reports()
        several = numbers(answers.results, results, changes.rows)
        results = _completed(results, answers, changes, several)
        write_json(part / RESULTS, results)
        write_json(part / MANIFEST, _manifest(answers, wanted, results["assay"]["status"]))
        return Scored(results, publish_scoring(part), several, remarks)


class Ready(NamedTuple):
    """Tasks that can take answers; those that cannot, with why; and the helper code of all."""

    runs: list[TaskRun]
    broken: Mapping[str, str]
    helper_files: Sequence[Path]


def ready(answers: Answers, found: Definitions, config: RunConfig) -> Ready:
    """The tasks and the groups above them, ready to take answers."""
    settings = Settings(
        num_fewshot=config.num_fewshot,
        repeats=config.repeats,
        gen_kwargs=parse_arguments(config.gen_kwargs, "gen_kwargs"),
        limit=config.limit,
        sample=config.sample,
        samples=config.samples,  # type: ignore[arg-type]  # looked at when the run was made
        shard=parse_shard(config.shard),
        data_dir=config.data_dir,
        like_lm_eval=config.compat == "lm-eval",
        graphs=GraphSettings(like_sygra=config.compat == "sygra"),
    )
    facts = {name: _facts(answers, task) for name, task in found.tasks.items()}
    prepared = prepare_to_score(found.tasks.values(), settings, config, facts)
    ready_groups(found.groups.values(), prepared.tasks, prepared.resolve, lenient=settings.like_lm_eval)
    runs = [TaskRun(each) for each in prepared.tasks]
    return Ready(runs, {**answers.broken, **prepared.broken}, prepared.helper_files)


def _facts(answers: Answers, task: Task) -> TaskFacts:
    facts = answers.facts(task.name)
    return facts if task.graph is None else facts._replace(first=answers.record(task.name))


def feed(samples: Iterable[AnsweredSample], run: TaskRun, each: Callable[[AnsweredSample], None] | None = None) -> None:
    """Hand a task what was answered to it, in the order of its documents; `each` is shown every sample first."""
    for number, stored in enumerate(samples):
        if each is not None:
            each(stored)
        run.end(number, stored.sample, stored.responses)
    run.finish()


def _answers(paths: Sequence[Path], wanted: ScoreOptions) -> Answers:
    one = paths[0] if len(paths) == 1 and paths[0].is_dir() else None
    if one is not None and (holds_run(one) or not any(one.glob("samples_*.jsonl"))):
        return StoredRun.of(one, wanted.include_path)
    options = {
        "tasks": list(wanted.tasks),
        "include_path": list(wanted.include_path) or None,
        "include_defaults": wanted.include_defaults,
        "compat": wanted.compat,
    }
    return OutputFile.of(paths, options) or LoggedRun.of(paths, options)


def _score_task(answers: Answers, run: TaskRun, part: Path, changes: Changes) -> None:
    name = run.runnable.task.name
    file = answers.file(run.runnable) if isinstance(answers, StoredRun) else None
    samples = (
        answers.read(file, run.runnable) if isinstance(answers, StoredRun) and file else answers.samples(run.runnable)
    )
    writer = SampleWriter(part / "samples", name, file.request_arrays if file is not None else None)

    records = run.keep

    def keep(kept: SampleRecord) -> None:
        writer.add(kept)
        changes.compare(name, kept)
        if records is not None:
            records(kept)

    run.keep = keep
    feed(samples, run, changes.expect)
    writer.end()
    writer.place()


def _completed(
    results: Mapping[str, Any], answers: Answers, changes: Changes, several: Sequence[Number]
) -> dict[str, Any]:
    account, before = {**results["assay"]}, answers.results.get("assay", {})
    if "shard" in before:
        account["shard"] = {**before["shard"], "status": account["status"]}
    if answers.absent or before.get("status") == "partial":
        account["status"] = "partial"
    account["scored"] = {
        "changed": changes.told(),
        "numbers": [number.written() for number in several if number.before != number.after],
    }
    return {**results, **again(answers.results), "assay": account}


def _manifest(answers: Answers, wanted: ScoreOptions, status: str) -> dict[str, Any]:
    asked = {"filters": wanted.filters, "metrics": wanted.metrics, "tasks": wanted.tasks, "plugins": wanted.plugins}
    files = {file: digest(Path(file).read_bytes()) for file in wanted.files}
    of = answers.manifest.get("spec_digest") if isinstance(answers, StoredRun) else None
    return {
        "format": FORMAT,
        "created": time.time(),
        **wanted.facts,
        "scored": {**{key: list(value) for key, value in asked.items() if value}, **({"with": files} if files else {})},
        "of": of,
        "environment": environment(),
        "status": status,
    }


def _remarks(answers: Answers, found: Definitions, runs: Sequence[TaskRun]) -> list[str]:
    """What is worth knowing: groups and tasks left out, and definitions that are not those of the run."""
    said = [f"left out: {name}: {why}" for name, why in found.left_out.items()]
    if isinstance(answers, OutputFile) and answers.asked is None:
        said.append(f"{answers.path.name}: records that failed are not in an output: the numbers are of those that are")
    if answers.absent:
        said.append(f"not finished: {', '.join(answers.absent[:5])}: the run has not come to their end")
    if answers.left_out:
        said.append(f"the run was made elsewhere: what it names is not used: {some(answers.left_out)}")
    for run in runs if isinstance(answers, StoredRun) else ():
        asked = [key for key in changed_keys(answers, run) if key not in SCORING]
        if asked:
            name = run.runnable.task.name
            said.append(f"{name}: {', '.join(asked)} changed since the run: the answers are to what it said then")
    return said


def _refuse_stale(answers: Answers, runs: Sequence[TaskRun]) -> None:
    """Verdicts are on the answers that filters left then: what judges were not asked about cannot be scored without them."""
    for run in runs:
        if not any(scorer.asks for scorer in run.runnable.scorers()):
            continue
        changed = changed_keys(answers, run) if isinstance(answers, StoredRun) else ["scorer"]
        stale = [key for key in ("filter_list", "scorer") if key in changed]
        if stale:
            what = f"a scorer asks other models, which were not asked about this: {' and '.join(stale)} changed"
            fix = "run it again, with --use_cache DIR for what was asked before"
            raise ConfigError([Problem(Place(f"task {run.runnable.task.name!r}"), what, fix)])


def changed_keys(answers: Answers, run: TaskRun) -> list[str]:
    """What a task says otherwise than when it was run, as far as that is known."""
    now, then = (
        redacted(plain(run.runnable.described()), texts=False),
        answers.results.get("configs", {}).get(run.runnable.task.name),
    )
    return [key for key in {**now, **then} if now.get(key) != then.get(key)] if then is not None else []
