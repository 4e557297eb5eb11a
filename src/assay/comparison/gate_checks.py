"""Gates of a run that is still to be made: checked against its tasks and the baseline before any request."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from assay.checks import Check, Level, refuse
from assay.comparison.gate_text import GATE, Gate, suggestion
from assay.comparison.gates import selected
from assay.comparison.packs import open_run
from assay.comparison.pairing import PROMPT_OPTIONS
from assay.comparison.planning import Aim, unknown_task
from assay.comparison.rows import PairedRow
from assay.comparison.run_gates import refuse_beyond
from assay.comparison.verdicts import needs_baseline, parse_gates
from assay.config.run import identity_of
from assay.errors import ConfigError, Place, Problem, collect, some
from assay.evaluation.manifest import task_digest
from assay.evaluation.prepare import PreparedRun
from assay.groups.results import bottom_up, group_numbers
from assay.results import TaskEntry
from assay.runs.folder import as_written
from assay.runs.run import Run
from assay.runs.storage import shown_path, shown_place
from assay.score_keys import ScoreKey
from assay.scoring.metrics.registry import METRICS
from assay.statistics.aggregations import Aggregation, known_aggregation
from assay.statistics.influence import Bounds
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
