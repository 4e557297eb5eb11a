"""Rules about a run that is still to be made: gates, checked before any request, and `--stop_when`, a bar that is decided while
the documents are asked."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from assay.checks import Check, Level, refuse
from assay.comparison.compare import needs_baseline, parse_gates
from assay.comparison.contrasts import PairedRow
from assay.comparison.gates import ENDED, GATE, Gate, Plain, parse_gate, refuse_beyond, selected, suggestion
from assay.comparison.packs import open_run
from assay.comparison.pairing import PROMPT_OPTIONS, task_scores
from assay.comparison.planning import Aim, unknown_task
from assay.config.run import identity_of
from assay.errors import ConfigError, Place, Problem, collect, some
from assay.evaluation.estimates import shares
from assay.evaluation.manifest import task_digest
from assay.evaluation.prepare import PreparedRun
from assay.groups.aggregators import MeanAggregator
from assay.groups.group import Group
from assay.groups.results import bottom_up, group_numbers
from assay.records import JSONDict, number
from assay.results import TaskEntry
from assay.runs.folder import as_written
from assay.runs.run import Run
from assay.runs.samples.records import SampleRecord
from assay.runs.storage import shown_path, shown_place
from assay.score_keys import ScoreKey
from assay.scoring.metrics.registry import METRICS
from assay.statistics.aggregations import Aggregation, known_aggregation
from assay.statistics.influence import Bounds, clip_to_bounds
from assay.statistics.intervals import LEVEL, Decision
from assay.statistics.sequences import SequentialTest
from assay.tasks import Task
from assay.tasks.runnable import Runnable

SELECTION = ("limit", "sample", "samples", "start_index")
"""Options that choose documents."""


class GatedRun(NamedTuple):
    """A run that is to be made, the gates that it is asked about, and the run that it is compared with."""

    prepared: PreparedRun
    gates: Sequence[Gate]
    baseline: str | None
    is_series: bool
    """Whether the baselines are runs that come before it."""


def check_gates(
    prepared: PreparedRun, written: Sequence[str], baseline: str | None, *, is_series: bool = False
) -> None:
    """Refuse gates that this run cannot be asked about, and a baseline that it cannot be compared with. In a series, the
    baselines are runs that come before it."""
    about = GatedRun(prepared, parse_gates(written), baseline, is_series)
    refuse(GATE_CHECKS, about, Level.STATIC)
    refuse(GATE_CHECKS, about, Level.BOUND)


def _missing_baseline(about: GatedRun) -> Sequence[Problem]:
    if not about.is_series:
        needs_baseline(about.gates, about.baseline)
    return ()


def _refused_options(about: GatedRun) -> Iterator[Problem]:
    config, about_numbers = about.prepared.config, [gate for gate in about.gates if gate.kind != "count"]
    refused = {
        "shard": "a shard is a part of a run: merge all of them, then use `assay gate`",
        **({"predict_only": "without scores there is no number"} if about_numbers else {}),
        **({"stop_when": "a run that stops early decides by --stop_when alone"} if about_numbers else {}),
    }
    for option, reason in refused.items():
        if getattr(config, option):
            yield Problem(GATE, f"not with --{option}: {reason}", "leave out one of the two")


def _overwritten_baseline(about: GatedRun) -> Iterator[Problem]:
    """Find a baseline that is the folder, or the URL, that the run is written to."""
    output, baseline = about.prepared.config.output_path, about.baseline
    if output and baseline and shown_place(Path(output)) == shown_place(Path(baseline)):
        what = f"{shown_path(baseline)} is what this run is written to"
        yield Problem(Place("--baseline"), what, "give the run another --output_path")


def _wrong_gates(about: GatedRun) -> list[Problem]:
    """Find gates about what the run will not have, or what the baseline does not have."""
    prepared, gates = about.prepared, about.gates
    tasks = {each.task.name: each for each in prepared.tasks}
    members = {group.name: group.child_names for group in bottom_up(prepared.groups)}
    rows = rows_to_come(prepared, unknown_tasks(tasks, {gate.filter or "none" for gate in gates}))
    other = open_run(about.baseline) if about.baseline is not None else None
    problems: list[Problem] = []
    for gate in gates:
        collect(problems, _check, gate, rows, tasks, members)
        if other is not None and gate.kind == "difference":
            for row in collect(problems, selected, gate, rows, members, shared="") or ():
                collect(problems, check_baseline, (row.name, row.key), prepared, other, GATE)
    return problems


GATE_CHECKS: tuple[Check[GatedRun], ...] = (
    Check(Level.STATIC, _missing_baseline),
    Check(Level.STATIC, _refused_options),
    Check(Level.STATIC, _overwritten_baseline),
    Check(Level.BOUND, _wrong_gates),
)


def unknown_tasks(tasks: Mapping[str, Runnable], filters: Collection[str]) -> dict[str, TaskEntry]:
    """By name the results of tasks before their run: every number is one half. Where user code makes the scores, they have the
    declared metrics, for the filters that somebody names."""
    unknown = {}
    for name, task in tasks.items():
        keys = task.facts.rows
        if keys is None:
            keys = frozenset(ScoreKey(metric, named) for metric in task.higher_is_better() for named in filters)
        unknown[name] = unknown_task(name, keys, max(task.facts.size, 1), task.facts.source or name, Aim(mde=1.0))
    return unknown


def rows_to_come(prepared: PreparedRun, unknown: Mapping[str, TaskEntry]) -> list[PairedRow]:
    """The rows that the run will have, as far as that is known."""
    directions = {each.task.name: each.higher_is_better() for each in prepared.tasks}
    rows = [
        PairedRow("task", name, name, row.key, 0, directions[name].get(row.metric), None, None)
        for name, task in unknown.items()
        for row in task.rows
    ]
    for name, numbers in group_numbers(bottom_up(prepared.groups), unknown).items():
        rows += [PairedRow("group", name, name, key, 0, None, None, None) for key in numbers]
    return rows


def _check(
    gate: Gate, rows: Sequence[PairedRow], tasks: Mapping[str, Runnable], members: Mapping[str, Sequence[str]]
) -> None:
    if gate.kind == "count":
        if gate.name is not None and gate.name not in {*tasks, *members} and "*" not in gate.name:
            what = f"no task or group named {gate.name!r}"
            raise ConfigError.at(GATE, what, suggestion(gate.name, {*tasks, *members}))
        return
    for row in selected(gate, rows, members, shared=""):
        if gate.kind == "value" and row.name in tasks:
            scale = declared_bounds(tasks[row.name], row.key)
            refuse_beyond(gate.on(scale), scale, row.name)


def declared_bounds(task: Runnable, key: ScoreKey) -> Bounds | None:
    """The bounds of a number, where its metric declares them."""
    aggregation = known_aggregation(task.aggregation(key))
    if not isinstance(aggregation, Aggregation):
        return None
    known = aggregation.bounds
    if known is None and aggregation.name == "mean" and key.metric in METRICS:  # of a graph's unit metrics, say
        known = METRICS[key.metric].bounds
    return known if known is not None and not math.isnan(sum(known)) else None


def check_baseline(row: tuple[str, ScoreKey], prepared: PreparedRun, other: Run, place: Place) -> None:
    """Refuse a baseline that lacks a row, or that evaluated other documents of the row's task, or with other prompts."""
    name, key = row
    known = {*other.scored_tasks, *other.groups}
    if name not in known:
        what = f"the baseline {other.path} has no task or group {name!r}"
        raise ConfigError.at(place, what, suggestion(name, known))
    if other.results.row(name, key) is None:
        what = f"{name!r} has no {str(key)!r} in the baseline {other.path}"
        raise ConfigError.at(place, what, f"it has: {some([*map(str, other.rows(name))])}")
    for task in prepared.tasks:
        if task.task.name == name:
            _refuse_other_task(task, prepared, other, place)


def _refuse_other_task(task: Runnable, prepared: PreparedRun, run: Run, place: Place) -> None:
    """Refuse another run whose documents, prompts or settings of a task are not those of the run to be made."""
    name, where = task.task.name, f"the run {run.path}"
    spec, mine = run.answers_manifest.get("spec", {}), as_written(identity_of(prepared.config))
    for option in SELECTION:
        if spec.get(option) not in (None, 0) and spec.get(option) != mine.get(option):
            what = f"{where} has only the documents of --{option} {spec[option]}"
            raise ConfigError.at(place, what, "use the same, or a whole run")
    changed = [option for option in PROMPT_OPTIONS if spec and spec.get(option) != mine.get(option)]
    if changed:
        what = f"{where} has other prompts: --{changed[0]} is not the same"
        raise ConfigError.at(place, what, "use the same, or another run")
    if run.source(name) not in ("", task.facts.source) or spec.get("tasks", {}).get(name) not in (
        None,
        task_digest(task),
    ):
        what = f"task {name!r} has other documents or settings in {where}"
        raise ConfigError.at(place, what, "evaluate that model again")


PLACE = Place("--stop_when")
FIX = "write it as 'acc > -1pp vs runs/main', 'mmlu/acc > -1% rel vs runs/main' or 'acc > 0.7'"
_WRITTEN = re.compile(r"(?P<gate>.*?)(?:\s+vs\s+(?P<run>\S.*?))?\s*")


class Member(NamedTuple):
    """A row of a task that the number is made of: its weight in it, and its scores in the other run by document."""

    key: ScoreKey
    slope: float
    baseline: Mapping[int, float] = {}


def stop_rule(prepared: PreparedRun) -> "StopWhen | None":
    """The rule of a run, checked against its tasks and the other run; None where it has none."""
    written = prepared.config.stop_when
    if written is None:
        return None
    match = _WRITTEN.fullmatch(written)
    other = match["run"] if match else None
    plain: Plain = "value" if other is None else "difference"
    gate = parse_gate(match["gate"] if match else written, PLACE, FIX, plain)
    _refuse_options(prepared, gate, is_bar=other is None)
    members = _members(gate, prepared)
    bounds = _shared_bounds(members, prepared)
    gate = replace(gate.on(bounds), unit=gate.unit if other is not None else "")
    if other is not None:
        run = _opened(other)
        members = {name: _with_baseline(name, each, prepared, run) for name, each in members.items()}
    return StopWhen(Bar(written, gate, bounds, other), members)


@dataclass(frozen=True)
class Bar:
    """The demand of a rule on a document's score, or on its difference to that in the other run; larger is better in its test."""

    written: str
    gate: Gate
    bounds: Bounds
    other: str | None

    @property
    def _scale(self) -> float:
        """How often the other run's score is taken away: a share more or less of it for a relative bar."""
        return 0.0 if self.other is None else 1 + self.gate.threshold if self.gate.relative else 1.0

    def test(self, draws: int) -> SequentialTest:
        """The test of so many documents; a bar that nothing can reach, or miss, is refused."""
        low, high = self.bounds
        least, most = low - self._scale * high, high - self._scale * low
        bar = 0.0 if self.gate.relative else self.gate.threshold
        if not least < bar < most:
            number = "number" if self.other is None else "difference"
            what = f"{self.written!r} is decided before any document: the {number} is always from {least:g} to {most:g}"
            raise _refused(what, "write a bar that it may pass or miss" + ("" if self.other else ": 'acc > 0.7'"))
        return SequentialTest(bar if self.gate.wants_more else -bar, self.signed((least, most)), draws)

    def signed(self, ends: Bounds) -> Bounds:
        return ends if self.gate.wants_more else (-ends[1], -ends[0])

    def ends(self, own: float | None, before: float | None) -> Bounds:
        """The least and the greatest that a document may contribute: one number, unless a score is missing."""
        low, high = (own, own) if own is not None else self.bounds
        if self.other is None:
            return low, high
        least, most = (before, before) if before is not None else self.bounds
        return low - self._scale * most, high - self._scale * least


@dataclass
class Count:
    """The documents that were counted: how many, those that failed, and the mean of those that have a score (in both runs)."""

    documents: int = 0
    failed: int = 0
    weight: float = 0.0
    total: float = 0.0

    def add(self, weight: float, own: float | None, before: float | None) -> None:
        self.documents += 1
        self.failed += own is None
        if own is not None and before is not None:
            self.weight += weight
            self.total += weight * (own - before)

    @property
    def mean(self) -> float | None:
        return self.total / self.weight if self.weight else None


class StopWhen:
    """The rule of a run: after each document it says whether the bar is passed or missed."""

    def __init__(self, bar: Bar, members: Mapping[str, Member]) -> None:
        self.bar, self.members = bar, members
        self.decision: Decision = "inconclusive"
        self._count, self._of, self._largest = Count(), 0, 1.0
        self._weights: dict[str, float] = {}
        self._test = bar.test(1)  # refuses a bar that nothing can reach, before the run

    def begin(self, draws: Sequence[Sequence[str]]) -> None:
        counts = Counter(task for draw in draws for task in draw)
        self._weights = {task: self.members[task].slope / count for task, count in counts.items()}
        self._largest = max((sum(self._weights[task] for task in draw) for draw in draws), default=1.0)
        self._of, self._test = counts.total(), self.bar.test(len(draws))

    def __call__(self, samples: Sequence[tuple[str, SampleRecord]]) -> str:
        weight = sum(self._weights[task] for task, _ in samples)
        ends = [(self._weights[task], self._ends(task, record)) for task, record in samples]
        low, high = self.bar.signed(
            (sum(own * each[0] for own, each in ends), sum(own * each[1] for own, each in ends))
        )
        self.decision = self._test.add(low / weight, high / weight, weight / self._largest)
        return self.reason() if self.decision != "inconclusive" else ""

    def _ends(self, task: str, record: SampleRecord) -> Bounds:
        member, (least, most) = self.members[task], self.bar.bounds
        own = _score(record, member.key)
        if own is not None:
            [own] = clip_to_bounds([own], self.bar.bounds)
        if own is not None and not least <= own <= most:
            what = f"task {task!r} has a score of {own:g}, which is not between {least:g} and {most:g}"
            raise _refused(what, "correct the bounds that its metric declares")
        before = 0.0 if self.bar.other is None else member.baseline.get(record.sample.doc_id)
        self._count.add(self._weights[task], own, before)
        return self.bar.ends(own, before)

    def reason(self) -> str:
        return f"stop_when: {self.bar.written}: {self.decision} after {self._count.documents} of {self._of} documents"

    def outcome(self) -> JSONDict:
        """The decision for results.json. Of a relative bar there is no interval: its test is about the difference to the bar."""
        bar, counted = self.bar, self._count
        return {
            "rule": bar.written,
            "decision": self.decision,
            "documents": counted.documents,
            "of": self._of,
            "failed": counted.failed,
            "value": counted.mean,
            "interval": None if bar.gate.relative else [*bar.signed(self._test.interval())],
            "threshold": bar.gate.threshold,
            "unit": bar.gate.unit,
            "level": LEVEL,
            "baseline": bar.other,
        }


def _score(record: SampleRecord, key: ScoreKey) -> float | None:
    """The document's score in a row; None where it failed."""
    for scores in record.scores:
        if scores.filter == key.filter and key.metric not in scores.failed:
            value = number(scores.values.get(key.metric))
            return value if value is not None and math.isfinite(value) else None
    return None


def _refuse_options(prepared: PreparedRun, gate: Gate, *, is_bar: bool) -> None:
    config = prepared.config
    if is_bar and gate.kind == "difference":
        what = f"{gate.written!r} has the unit {gate.unit!r} of a difference, and names no run"
        raise _refused(what, "add 'vs RUN', or write the bar as the number itself: 'acc > 0.7'")
    if config.shard is not None:
        raise _refused("a shard cannot decide for all documents", "leave out --shard, or --stop_when")
    if config.predict_only:
        raise _refused("without scores there is nothing to decide", "leave out --predict_only, or --stop_when")
    if prepared.broken:
        raise _refused(f"not all tasks can be run: {some(list(prepared.broken))}", "correct them, or leave them out")


def _refused(what: str, fix: str) -> ConfigError:
    return ConfigError.at(PLACE, what, fix)


def _members(gate: Gate, prepared: PreparedRun) -> dict[str, Member]:
    """The rows of tasks that the number is made of, by task."""
    tasks = {each.task.name: each for each in prepared.tasks}
    groups = {group.name: group for group in bottom_up(prepared.groups)}
    unknown = unknown_tasks(tasks, [gate.filter or "none"])
    below = {name: group.child_names for name, group in groups.items()}
    chosen = selected(gate, rows_to_come(prepared, unknown), below, shared="", place=PLACE)
    names = list(dict.fromkeys(row.name for row in chosen))
    if len(names) > 1:
        what = f"the run has several tasks and no group above all: {some(names)}"
        raise _refused(what, "name a task or group: 'mmlu/acc > 0.7'")
    if len(chosen) > 1:
        shown = sorted(str(row.key) for row in chosen)
        raise _refused(
            f"{names[0]!r} has {gate.metric!r} for several filters: {some(shown)}", f"write {shown[0]!r}, say"
        )
    [row] = chosen
    members = {row.name: Member(row.key, 1.0)}
    if row.kind == "group":
        members = _of_group(row.key, groups[row.name], unknown, list(groups.values()))
    for name in members:
        if tasks[name].is_batch:
            raise _refused(f"task {name!r} is scored when all of its documents are there", "leave out --stop_when")
    others = [name for name in tasks if name not in members]
    if others:
        fix = "leave those out of --tasks, or name a metric that all have"
        raise _refused(f"it would stop {some(others)} as well, which {gate.written!r} is not about", fix)
    return members


def _of_group(
    key: ScoreKey, group: Group[Task], unknown: Mapping[str, TaskEntry], groups: Sequence[Group[Task]]
) -> dict[str, Member]:
    """The weights of tasks in a group's mean, from a trial in which every task scores one half."""
    number = group_numbers(groups, unknown)[group.name][key]
    parts = shares(unknown, {key: number}).get(key, [])
    with_means = all(map(_has_means, [group, *group.get_all_groups()]))
    if not with_means or not parts or len({part.task for part in parts}) < len(parts):
        raise _refused(
            f"{key.metric!r} of the group {group.name!r} is not a mean of its tasks", "name one of its tasks"
        )
    return {part.task: Member(part.row, part.slope) for part in parts}


def _has_means(group: Group[Task]) -> bool:
    """Whether the numbers of a group are means of its members."""
    if group.has_own_aggregator:
        return type(group.aggregator) is MeanAggregator
    return all(entry.aggregation == "mean" for entry in group.config.aggregate_metric_list or ())


def _shared_bounds(members: Mapping[str, Member], prepared: PreparedRun) -> Bounds:
    """The least and the greatest score: a decision at any time needs them."""
    tasks = {each.task.name: each for each in prepared.tasks}
    bounds = {_bounds(tasks[name], member.key) for name, member in members.items()}
    if len(bounds) > 1:
        raise _refused(f"the tasks have scores within different bounds: {sorted(bounds)}", "name one of the tasks")
    return bounds.pop()


def _bounds(task: Runnable, key: ScoreKey) -> Bounds:
    name = task.task.name
    aggregation = known_aggregation(task.aggregation(key))
    if not isinstance(aggregation, Aggregation) or aggregation.name != "mean":
        how = aggregation.name if isinstance(aggregation, Aggregation) else "a function of the task"
        raise _refused(f"{str(key)!r} of task {name!r} is not a mean over documents but {how}", "name another metric")
    known = declared_bounds(task, key)
    if known is None or not math.isfinite(known[1] - known[0]):
        fix = "declare them in metric_list, as `bounds: [0, 1]`, or name another metric"
        raise _refused(f"the scores of {str(key)!r} of task {name!r} have no bounds", fix)
    return known


def _opened(folder: str) -> Run:
    run = open_run(folder)
    if run.status not in ENDED:
        raise _refused(f"the run {folder} is {run.status}", "resume it, or name one that is complete")
    return run


def _with_baseline(name: str, member: Member, prepared: PreparedRun, run: Run) -> Member:
    """The member with its scores in the other run, whose documents and prompts are the same."""
    task = next(each for each in prepared.tasks if each.task.name == name)
    check_baseline((name, member.key), prepared, run, PLACE)
    where = f"the run {run.path}"
    if run.source(name) != task.facts.source:
        raise _refused(f"task {name!r} has other documents or settings in {where}", "evaluate that model again")
    scores = task_scores(run, name)
    if scores is None:
        raise _refused(f"the samples of task {name!r} are not in {where}", "name another run")
    column = scores.values[member.key]
    known = zip(scores.documents[column.present].tolist(), column.present_values, strict=True)
    return member._replace(baseline={doc: float(score) for doc, score in known})
