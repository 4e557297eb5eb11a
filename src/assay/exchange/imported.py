"""Imported runs: their records, and the run folder written from them, with groups over their tasks."""

import hashlib
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import orjson

from assay.config.arguments import parse_arguments
from assay.config.group import GroupConfig
from assay.config.loader import load
from assay.config.source import digest
from assay.config.task import TaskConfig
from assay.dialect import OURS
from assay.errors import AssayError, ConfigError, Problem
from assay.evaluation.estimates import group_entry, put_together, with_failures, with_members, with_rows
from assay.evaluation.manifest import RUN_KEYS
from assay.groups.checks import MemberAnswers, group_problems, ready_group
from assay.groups.group import Group
from assay.groups.manager import GroupManager
from assay.groups.results import bottom_up, estimates_of, group_numbers
from assay.records import AnyJSON, Function, JSONDict, JSONObject
from assay.results import GroupEntry, Results, TaskEntry
from assay.runs.folder import RunFolder, environment, open_run
from assay.runs.results import plain
from assay.runs.results_json import decode, encode
from assay.runs.samples.records import SampleRecord
from assay.runs.samples.writer import SampleWriter
from assay.score_keys import ScoreKey, split_rows, stderr_name
from assay.scoring.metrics.registry import METRICS
from assay.statistics.aggregations import BOUNDS, AggregationOrFunction, within
from assay.statistics.board import Board
from assay.statistics.evidence import Estimate, Evidence, with_evidence
from assay.statistics.influence import Influence
from assay.statistics.intervals import with_interval
from assay.tasks.audit import Audit, kinds_of
from assay.tasks.task import Task

MAX_FAILED = 0.01
REPORTED_INTERVAL = "its interval follows from the reported standard error alone"
NO_NUMBER = "the source reports no number"
NAMED_VALUES = "the source reports numbers by name"


@dataclass(frozen=True, kw_only=True)
class ImportedTask:
    """An imported task: `samples` yields its samples in order, at every call; `reported` has the numbers of its results."""

    name: str
    samples: Callable[[], Iterator[SampleRecord]]
    reported: Mapping[ScoreKey, Estimate] = field(default_factory=dict)
    alias: str = ""
    repeats: int = 1
    original: int | None = None
    expected: int = 0
    """How many documents the source meant to ask, where that is more than there are samples."""
    ended: str = ""
    """Why the task did not finish, where the source reports it."""
    num_fewshot: int = 0
    version: object = "N/A"
    source: str = ""
    """A name for its data: documents of one source and number are the same document."""
    higher_is_better: Mapping[str, bool | None] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    multiple_targets: bool = False


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """A run of another program or of assay: tasks, groups, facts under lm-eval's names, and the files they come from."""

    format: str
    tasks: Sequence[ImportedTask]
    groups: Sequence[GroupEntry] = ()
    """With the numbers as they were reported, which have no intervals."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[Path] = ()
    finished: Results | None = None
    """The results of an assay run: its tasks and groups are stored as they were. No other program's are as complete."""


def reported_values(row: JSONObject) -> dict[ScoreKey, Estimate]:
    """Read the numbers of a row of lm-eval's results: `{"acc,none": 0.5, "acc_stderr,none": 0.1}`.

    >>> [(str(key), number.value, number.stderr) for key, number in reported_values({"acc,none": 0.5, "alias": "a"}).items()]
    [('acc,none', 0.5, None)]
    """
    reported = {}
    counts = row.get("sample_count")
    counts = counts if isinstance(counts, Mapping) else {}
    for key, value in split_rows(row):
        error, n = row.get(stderr_name(key)), counts.get(str(key))
        stderr, n = float(error) if is_number(error) else None, n if isinstance(n, int) else 0
        if is_number(value):
            reported[key] = Estimate(float(value), stderr, n=n, reason="" if value == value else NO_NUMBER)
        elif isinstance(value, Mapping) and value and all(map(is_number, value.values())):
            reported[key] = Estimate(None, None, n=n, reason=NAMED_VALUES, named_values=dict(value))
    return reported


def is_number(value: AnyJSON) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def members_first(members: Mapping[str, Sequence[str]]) -> list[str]:
    """The groups among `members`, each after those it contains.

    >>> members_first({"all": ["some", "task_a"], "some": ["task_b"]})
    ['some', 'all']
    """
    ordered: dict[str, None] = {}

    def visit(name: str, above: tuple[str, ...] = ()) -> None:
        for member in members.get(name, ()):
            if member in members and member not in (*ordered, *above, name):
                visit(member, (*above, name))
        ordered.setdefault(name)

    for name in members:
        visit(name)
    return list(ordered)


class ImportTarget(NamedTuple):
    """The folder of an import: with `groups` of YAML files, moving another run aside with `force`."""

    folder: Path
    groups: Sequence[Path] = ()
    force: bool = False
    facts: Mapping[str, Any] = {}


def write_imported_run(runs: Sequence[ImportedRun], into: ImportTarget) -> Results:
    """Write imported runs as one run folder; returns its results."""
    runs = [_with_parsed_arguments(run) for run in runs]
    tasks = [task for run in runs for task in run.tasks]
    _refuse_doubled(tasks)
    files = {path.name: _content(path) for run in runs for path in run.files}
    spec: dict[str, Any] = {"model": _model(runs)["identity"], "imported": files}
    if into.groups:
        spec["groups"] = {path.name: _content(path) for path in into.groups if path.is_file()}
    facts = {**_facts(runs), **into.facts, "model": _model(runs), "environment": environment()}
    is_new = not into.folder.exists()
    try:
        with open_run(into.folder, spec, facts, force=into.force) as folder:
            return _fill(folder, runs, into)
    except (AssayError, AttributeError, KeyError, IndexError, TypeError, ValueError):
        if is_new:  # leave nothing behind of a failed import
            shutil.rmtree(into.folder, ignore_errors=True)
        raise


def _with_parsed_arguments(run: ImportedRun) -> ImportedRun:
    """A run with the arguments of its model as a mapping: others write them as they were given."""
    facts = {key: run.facts[key] for key in RUN_KEYS if key in run.facts}
    config = dict(run.facts.get("config") or {})
    config["model_args"] = plain(_arguments(config.get("model_args")))
    return replace(run, facts={**facts, "config": config})


def _arguments(written: AnyJSON) -> JSONDict:
    """Parse the arguments of a model; text that cannot be parsed stays whole."""
    try:
        return parse_arguments(written, "model_args")
    except (AssayError, TypeError, ValueError):
        return {"model_args": str(written)}


def _fill(folder: RunFolder, runs: Sequence[ImportedRun], into: ImportTarget) -> Results:
    written = [
        _write_task(task, into.folder / "samples", None if run.finished is None else run.finished.tasks[task.name])
        for run in runs
        for task in run.tasks
    ]
    folder.manifest["tasks"] = {task.entry.name: task.facts for task in written}
    tasks = {task.entry.name: task.entry for task in written}
    finished = [run.finished for run in runs if run.finished is not None]
    groups = {name: group for results in finished for name, group in _groups_of(results, tasks).items()}
    groups = groups_over_imports(into.groups, tasks, {**groups, **_reported_groups(runs, tasks)})
    broken = {name: why for results in finished for name, why in results.broken.items()}
    ended = [f"{task.name}: {task.ended}" for run in runs for task in run.tasks if task.ended]
    ended += [results.ended for results in finished if results.ended]
    results = put_together(tasks, groups, broken)
    results = replace(
        results,
        status="incomplete" if ended else results.status,
        ended="; ".join(ended),
        imported=sorted({run.format for run in runs}),
        **_run_facts(runs),
    )
    content = orjson.dumps(encode(results), default=str, option=orjson.OPT_NON_STR_KEYS)
    decode(orjson.loads(content))  # files of other programs may contain anything
    folder.finish(results, {})
    return results


def _refuse_doubled(tasks: Sequence[ImportedTask]) -> None:
    names = [task.name for task in tasks]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        what = f"more than one file has a task of the same name: {', '.join(doubled[:5])}"
        raise ConfigError.at("import", what, "import each into its own folder, and compare them")


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


class WrittenTask(NamedTuple):
    """A written task: its results, and its entry in the manifest."""

    entry: TaskEntry
    facts: Mapping[str, Any]


def _groups_of(results: Results, tasks: Mapping[str, TaskEntry]) -> dict[str, GroupEntry]:
    """The groups of an assay run whose tasks are all imported; members come before the groups that contain them."""
    members = {group.name: group.members for group in results.groups.values()}
    missing = results.tasks.keys() - tasks.keys()
    return {name: group for name, group in results.groups.items() if not missing.intersection(_below(name, members))}


def _write_task(task: ImportedTask, folder: Path, finished: TaskEntry | None) -> WrittenTask:
    """Write the samples of a task; returns its results, which of an assay run are `finished`.

    A task that ended early is incomplete, even with samples.
    """
    board, audit, data = Board(), Audit(), hashlib.sha256()
    counts: Counter[ScoreKey] = Counter()
    writer = SampleWriter(folder, task.name)
    try:
        for record in task.samples():
            kinds = record.audit or kinds_of(record, lambda: task.higher_is_better)
            writer.add(record._replace(audit=kinds))
            audit.note(record.sample.doc_id, kinds)
            _note(board, counts, record)
            data.update(orjson.dumps(record.sample.doc, default=str, option=orjson.OPT_NON_STR_KEYS))
        writer.end()
    finally:
        writer.abandon()
    writer.place()
    source = task.source or data.hexdigest()[:32]
    computed = board.estimates(_aggregation, bootstrap_iters=1, source=source)
    if finished is None:
        entry = _scored_entry(task, board, audit, counts, computed)
    else:
        rows = [
            replace(row, estimate=_with_evidence(row.estimate, computed.get(row.key), source)) for row in finished.rows
        ]
        entry = replace(finished, rows=rows)
    return WrittenTask(
        entry,
        {
            "size": entry.documents + entry.not_asked,
            "original": entry.original,
            "repeats": task.repeats,
            "num_fewshot": entry.num_fewshot,
            "multiple_targets": task.multiple_targets,
            "source": source,
        },
    )


def _scored_entry(
    task: ImportedTask,
    board: Board,
    audit: Audit,
    counts: Mapping[ScoreKey, int],
    computed: Mapping[ScoreKey, Estimate],
) -> TaskEntry:
    """The results of a task of another program: its documents are counted, and its numbers are those that it reports."""
    entry = TaskEntry(
        name=task.name,
        alias=task.alias or task.name,
        scored=max(counts.values(), default=0),
        is_incomplete=bool(task.ended),
        not_asked=max(task.expected - board.documents, 0),
        original=task.original if task.original is not None else board.documents,
        audit=audit.by_flag(),
        directions=dict(task.higher_is_better),
        num_fewshot=task.num_fewshot,
        version=task.version,
        config=plain(task.config),
    )
    entry = with_failures(entry, board, MAX_FAILED)
    numbers = _with_reported(computed, counts, task)
    return with_rows(entry, board, numbers, board.failures({}), _aggregation, MAX_FAILED)


def _with_evidence(stored: Estimate, computed: Estimate | None, source: str) -> Estimate:
    """A finished number with evidence, for groups over it: that of its documents, where they make the same standard error; it
    may be of clusters, or none, and only its standard error is known then."""
    is_same = computed is not None and _is_close(computed.value, stored.value)
    if computed is not None and is_same and _is_close(computed.stderr, stored.stderr):
        return replace(stored, evidence=computed.evidence)
    return replace(stored, evidence=_reported_estimate(stored, stored.n, source).evidence)


def _is_close(left: float | None, right: float | None) -> bool:
    return left is not None and right is not None and math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)


def _note(board: Board, counts: Counter[ScoreKey], record: SampleRecord) -> None:
    """Count the scores of a sample; only numbers can be averaged, and other values stay with the sample."""
    board.documents += 1
    if record.failed and not board.fail_rows(record.scores):
        board.fail(record.failed)
    for scores in record.scores:
        counts.update(ScoreKey(metric, scores.filter) for metric in scores.values)
        values = {metric: value for metric, value in scores.values.items() if isinstance(value, int | float)}
        board.add(record.sample.doc_id, scores._replace(values=values))


def _with_reported(
    rows: Mapping[ScoreKey, Estimate], counts: Mapping[ScoreKey, int], task: ImportedTask
) -> dict[ScoreKey, Estimate]:
    """Return the reported numbers. Those that are the mean over documents get the estimate computed from the documents, if the
    source reports no other standard error."""
    estimates: dict[ScoreKey, Estimate] = {}
    for row in dict.fromkeys((*counts, *task.reported)):
        computed, reported = rows.get(row), task.reported.get(row)
        is_mean = computed is not None and (
            reported is None
            or (
                _is_close(computed.value, reported.value)
                and (reported.stderr is None or _is_close(computed.stderr, reported.stderr))
            )
        )
        if computed is not None and is_mean:
            estimates[row] = computed
        elif reported is not None:
            number = _reported_estimate(reported, counts.get(row, 0), task.source or task.name)
            is_power = row.metric.endswith("perplexity")
            evidence = replace(number.evidence, is_power=is_power)
            bounds = BOUNDS.get("perplexity" if is_power else row.metric)
            estimates[row] = _with_noted_interval(replace(number, scale=bounds, evidence=evidence))
    return estimates


def _with_noted_interval(reported: Estimate) -> Estimate:
    """A reported number with its interval; a note says what that is made of, if no documents or counts make it."""
    number = with_interval(reported)
    return number if number.interval is None or number.method == "mid-p" else replace(number, note=REPORTED_INTERVAL)


def _aggregation(row: ScoreKey) -> AggregationOrFunction | None:
    """The mean, with the bounds of the metric of this name."""
    return within(None, METRICS[row.metric].bounds) if row.metric in METRICS else None


def _reported_estimate(reported: Estimate, n: int, source: str) -> Estimate:
    reason = reported.reason or ("" if reported.stderr is not None else "not reported by the source")
    parts = {Influence(source, (), None, reported.stderr**2): 1.0} if reported.stderr is not None else {}
    return replace(reported, n=n, reason=reason, evidence=Evidence(parts))


def _reported_groups(runs: Sequence[ImportedRun], tasks: Mapping[str, TaskEntry]) -> dict[str, GroupEntry]:
    """The results of groups as their sources report them."""
    reported = [group for run in runs for group in run.groups]
    members = {group.name: group.members for group in reported}
    entries: dict[str, GroupEntry] = {}
    for group in reported:
        below = _below(group.name, members)
        numbers = _reported_numbers(group, below, tasks) or None
        entries[group.name] = with_members(replace(group, rows=None), numbers, below, tasks, entries)
    return entries


def _reported_numbers(
    group: GroupEntry, below: Sequence[str], tasks: Mapping[str, TaskEntry]
) -> dict[ScoreKey, Estimate]:
    numbers = {}
    for row in group.rows or ():
        reported = row.estimate
        own = _members_rows(row.key, [estimates_of(tasks[name]) for name in below if name in tasks])
        n = reported.n or _counted(float(reported), own)
        is_rate = bool(own) and n == sum(each.n for each in own) and all(each.evidence.is_rate for each in own)
        number = _reported_estimate(reported, n, group.name)
        numbers[row.key] = _with_noted_interval(with_evidence(number, tasks=max(len(own), 1), is_rate=is_rate))
    return numbers


def _members_rows(row: ScoreKey, tasks: Sequence[Mapping[ScoreKey, Estimate]]) -> list[Estimate]:
    """Return the rows of tasks that a group's number may consist of. Filters joined by + belong to different members; where
    a member has more than one of them, the choice is unknown, and the list is empty."""
    filters = {row.filter, *row.filter.split("+")}
    candidates = [
        [each for key, each in rows.items() if key.metric == row.metric and key.filter in filters] for rows in tasks
    ]
    return [] if any(len(own) > 1 for own in candidates) else [each for own in candidates for each in own]


def _counted(value: float, own: Sequence[Estimate]) -> int:
    """How many documents a number is of: all those of its members, if it is their mean, by documents or by members."""
    n = sum(each.n for each in own)
    if not n:
        return 0
    means = (sum(float(each) * each.n for each in own) / n, sum(map(float, own)) / len(own))
    return n if any(math.isclose(value, mean, rel_tol=1e-6, abs_tol=1e-9) for mean in means) else 0


def _below(name: str, members: Mapping[str, Sequence[str]]) -> list[str]:
    """The tasks below a group, each once."""
    tasks: dict[str, None] = {}
    for member in members.get(name, ()):
        tasks.update(dict.fromkeys(_below(member, members) if member in members else [member]))
    return list(tasks)


def _facts(runs: Sequence[ImportedRun]) -> JSONDict:
    """Return the manifest's facts, so that the run can be scored again: tasks and groups are looked up by name."""
    names = [
        name for run in runs for name in [*(task.name for task in run.tasks), *(group.name for group in run.groups)]
    ]
    return {
        "imported": sorted({run.format for run in runs}),
        "options": {"tasks": names, "include_defaults": True},
    }


def _model(runs: Sequence[ImportedRun]) -> JSONDict:
    """Describe the model as far as its source does: a name does not identify a model."""
    names = list(dict.fromkeys(_model_name(run.facts) for run in runs))
    name = " and ".join(names)
    arguments = runs[0].facts["config"]["model_args"]
    return {"name": name, "identity": f"told: {name} {digest(orjson.dumps(arguments, default=str))}", "args": arguments}


def _model_name(facts: JSONObject) -> str:
    return str(facts.get("model_name") or facts.get("config", {}).get("model") or "unknown")


def _run_facts(runs: Sequence[ImportedRun]) -> JSONDict:
    """Return the facts about a run, under lm-eval's names: of the first, as the others have the same model."""
    first, now = runs[0].facts, time.time()
    facts = {key: first[key] for key in RUN_KEYS if key in first}
    return {"config": first.get("config", {}), "facts": {"date": now, **facts, "model_name": _model(runs)["name"]}}


def groups_over_imports(
    files: Sequence[Path], tasks: Mapping[str, TaskEntry], reported: Mapping[str, GroupEntry]
) -> dict[str, GroupEntry]:
    """Add the groups of YAML files, computed from the numbers of their members; nested ones come first.

    Members are tasks, or groups that were `reported`, whose own numbers stay unchanged.
    """
    if not files:
        return dict(reported)
    manager: GroupManager[Task] = GroupManager()
    known = {each.name: GroupConfig(group=each.name, task=tuple(each.members)) for each in reported.values()}
    for task in tasks.values():
        manager.register_task(Task(TaskConfig(task=task.name, task_alias=task.alias), name=task.name))
    manager.build_hierarchy({**known, **dict(_read_group_file(file, known) for file in files)})
    ordered = [group for group in bottom_up(manager.groups.values()) if group.name not in known]
    answers = {name: MemberAnswers(frozenset(estimates_of(task)), {}) for name, task in tasks.items()}
    problems: list[Problem] = []
    for group in ordered:
        wrong = group_problems(group, _refuse_function, answers)
        problems += wrong
        if not wrong:
            ready_group(group, _refuse_function)
            group.directions = _directions(group, tasks)
    if problems:
        raise ConfigError(problems)
    numbers = group_numbers(ordered, tasks)
    groups = dict(reported)
    for group in ordered:
        groups[group.name] = group_entry(group, numbers[group.name], tasks, groups)
    return groups


def _read_group_file(file: Path, known: Iterable[str]) -> tuple[str, JSONObject]:
    """Read the name and the settings of the group in a file."""
    try:
        value, problems = load(file.read_bytes(), str(file), OURS)
    except OSError as error:
        raise ConfigError.at(file, f"cannot be read: {error.strerror}", "name a YAML file") from None
    if problems:
        raise ConfigError(problems)
    if not isinstance(value, dict) or not isinstance(value.get("group"), str):
        raise ConfigError.at(file, "defines no group", "give a file with `group:` and `task:`")
    name = value["group"]
    if name in known:
        what = f"the runs have a group {name!r} already"
        raise ConfigError.at(file, what, "give it another name")
    return name, {key: each for key, each in value.items() if key != "group"}


def _refuse_function(function: Function) -> AnyJSON:
    what, fix = (
        f"{function} cannot be used here",
        "use an aggregation that has a name, or `assay score RUN --with FILE`",
    )
    raise ConfigError.at(function.place, what, fix)


def _directions(group: Group[Any], tasks: Mapping[str, TaskEntry]) -> dict[str, bool | None]:
    """By metric whether more is better, where the members agree."""
    directions: dict[str, bool | None] = {}
    for task in group.get_all_tasks():
        for metric, better in tasks[task.name].directions.items():
            directions[metric] = better if directions.get(metric, better) == better else None
    return directions
