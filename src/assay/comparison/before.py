"""Gates of a run that is still to be made: checked against its tasks and the baseline before any request."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from assay.comparison.absolute import refuse_beyond
from assay.comparison.conditions import GATE, Gate, suggestion
from assay.comparison.gates import selected
from assay.comparison.packs import open_run
from assay.comparison.planning import Aim, unknown_task
from assay.comparison.rows import PairedRow
from assay.comparison.stopping import refuse_other_task
from assay.comparison.verdicts import needs_baseline, parse_gates
from assay.errors import ConfigError, Problem, some
from assay.evaluation.prepare import PreparedRun
from assay.groups.results import bottom_up, group_numbers
from assay.runs.run import Run
from assay.runs.storage import shown_path, shown_place
from assay.score_keys import ScoreKey
from assay.scoring.metrics.registry import METRICS
from assay.statistics.aggregations import Aggregation, known_aggregation
from assay.statistics.influence import Bounds
from assay.tasks.runnable import Runnable


def check_gates(
    prepared: PreparedRun, written: Sequence[str], baseline: str | None, *, is_series: bool = False
) -> None:
    """Refuse gates that this run cannot be asked about, and a baseline that it cannot be compared with. In a series, the
    baselines are runs that come before it."""
    gates = parse_gates(written)
    if not is_series:
        needs_baseline(gates, baseline)
    _refuse_options(prepared, gates)
    _refuse_same(prepared.config.output_path, baseline)
    tasks = {each.task.name: each for each in prepared.tasks}
    groups = bottom_up(prepared.groups)
    members = {group.name: group.child_names for group in groups}
    rows, other = [*_rows(prepared, tasks)], open_run(baseline) if baseline is not None else None
    problems: list[Problem] = []
    for gate in gates:
        try:
            _check(gate, rows, tasks, members)
            if other is not None and gate.kind == "difference":
                _check_baseline(selected(gate, rows, members, shared=""), tasks, prepared, other)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)


def _refuse_options(prepared: PreparedRun, gates: Sequence[Gate]) -> None:
    config, about_numbers = prepared.config, [gate for gate in gates if gate.kind != "count"]
    refused = {
        "shard": "a shard is a part of a run: merge all of them, then use `assay gate`",
        **({"predict_only": "without scores there is no number"} if about_numbers else {}),
        **({"stop_when": "a run that stops early decides by --stop_when alone"} if about_numbers else {}),
    }
    for option, reason in refused.items():
        if getattr(config, option):
            raise ConfigError.at(GATE, f"not with --{option}: {reason}", "leave out one of the two")


def _refuse_same(output: str | None, baseline: str | None) -> None:
    """Refuse a baseline that is the folder, or the URL, that the run is written to."""
    if output and baseline and shown_place(Path(output)) == shown_place(Path(baseline)):
        what = f"{shown_path(baseline)} is what this run is written to"
        raise ConfigError.at("--baseline", what, "give the run another --output_path")


def _rows(prepared: PreparedRun, tasks: Mapping[str, Runnable]) -> Iterator[PairedRow]:
    """The rows that the run will have, as far as that is known."""
    trial = {}
    for name, task in tasks.items():
        keys = task.rows()
        if keys is None:  # user code makes the scores: of the declared metrics
            keys = frozenset(ScoreKey(metric, "none") for metric in task.higher_is_better())
        trial[name] = unknown_task(name, keys, max(task.size, 1), task.source or name, Aim(mde=1.0))
        for key in keys:
            yield PairedRow("task", name, name, key, 0, task.higher_is_better().get(key.metric), None, None)
    for name, numbers in group_numbers(bottom_up(prepared.groups), trial).items():
        for key in numbers:
            yield PairedRow("group", name, name, key, 0, None, None, None)


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
            scale = _scale(tasks[row.name], row.key)
            refuse_beyond(gate.on(scale), scale, row.name)


def _scale(task: Runnable, key: ScoreKey) -> Bounds | None:
    """The bounds of a number, where its metric declares them."""
    aggregation = known_aggregation(task.aggregation(key))
    if not isinstance(aggregation, Aggregation):
        return None
    known = aggregation.bounds
    if known is None and aggregation.name == "mean" and key.metric in METRICS:
        known = METRICS[key.metric].bounds
    return known if known is not None and not math.isnan(sum(known)) else None


def _check_baseline(
    rows: Sequence[PairedRow], tasks: Mapping[str, Runnable], prepared: PreparedRun, other: Run
) -> None:
    for row in rows:
        known = {*other.scored_tasks, *other.groups}
        if row.name not in known:
            what = f"the baseline {other.path} has no task or group {row.name!r}"
            raise ConfigError.at(GATE, what, suggestion(row.name, known))
        if row.key not in other.rows(row.name):
            what = f"{row.name!r} has no {str(row.key)!r} in the baseline {other.path}"
            raise ConfigError.at(GATE, what, f"it has: {some([*map(str, other.rows(row.name))])}")
        if row.name in tasks:
            refuse_other_task(tasks[row.name], prepared, other, GATE)
