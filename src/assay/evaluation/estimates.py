"""Estimate the metrics of every task and group from the scores of all samples: the entries of the results."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from assay.dialect import dialect_of
from assay.evaluation.prepare import Prepared
from assay.groups.group import Group
from assay.groups.results import bottom_up, counted_metric, counted_tasks, estimates_of, group_numbers
from assay.records import MetricValue
from assay.results import (
    EVERY_DOCUMENT_FAILED,
    GroupEntry,
    ReliabilityPoint,
    Results,
    Row,
    Share,
    TaskEntry,
)
from assay.runs.results import plain
from assay.score_keys import BYPASS, ScoreKey
from assay.statistics.aggregations import AGGREGATIONS, Aggregation, AggregationOrFunction
from assay.statistics.board import Board, RowFailures
from assay.statistics.calibration import CurvePoint
from assay.statistics.estimates import StderrMethod
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.influence import Bounds
from assay.statistics.intervals import interval
from assay.statistics.noise import Noise, noise_of
from assay.tasks import Task
from assay.tasks.run import TaskRun

AggregationOf = Callable[[ScoreKey], AggregationOrFunction | None]
Numbers = Mapping[ScoreKey, Estimate]


def estimate(prepared: Prepared, runs: Sequence[TaskRun]) -> Results:
    """The results of all tasks and groups."""
    config = prepared.config
    has_lm_evals = dialect_of(config.compat).has_lm_evals_standard_errors
    stderr: StderrMethod = "lm-eval" if has_lm_evals else "influence"
    tasks = {}
    for run in runs:
        task = task_entry(run, config.bootstrap_iters or 0, stderr, config.max_failed)
        tasks[task.name] = task
    ordered = bottom_up(prepared.groups)
    numbers = group_numbers(() if config.predict_only else ordered, tasks)
    groups: dict[str, GroupEntry] = {}
    for group in ordered:
        groups[group.name] = group_entry(group, numbers.get(group.name), tasks, groups)
    return put_together(tasks, groups, prepared.broken)


def put_together(
    tasks: Mapping[str, TaskEntry], groups: Mapping[str, GroupEntry], broken: Mapping[str, str]
) -> Results:
    """The tree of these entries; its status is "incomplete" where a document failed or was not asked, or a number is missing."""
    has_problem = bool(broken)
    for task in tasks.values():
        has_problem |= bool(task.failed or task.not_asked or any(row.lacks_number for row in task.rows))
    for group in groups.values():
        has_problem |= any(row.lacks_number for row in group.rows or ())
    return Results(tasks, groups, status="incomplete" if has_problem else "complete", broken=dict(broken))


# ---- tasks


def task_entry(run: TaskRun, bootstrap_iters: int, stderr: StderrMethod, max_failed: float) -> TaskEntry:
    """The results of a task: the numbers that a graph computes from all of its records, then those of its metrics."""
    task, runnable, board = run.runnable.task, run.runnable, run.board
    facts = runnable.facts
    source = facts.source or task.name

    def estimated(aggregation: Aggregation, values: Sequence[MetricValue], documents: Sequence[int]) -> Estimate:
        return board.estimated(
            aggregation, values, documents, bootstrap_iters=bootstrap_iters, stderr=stderr, source=source
        )

    estimates = board.estimates(runnable.aggregation, bootstrap_iters=bootstrap_iters, stderr=stderr, source=source)
    numbers = {**runnable.conclude(estimated), **estimates}
    entry = TaskEntry(
        name=task.name,
        alias=task.alias,
        scored=board.scored,
        not_asked=max(facts.size - board.documents, 0),
        original=facts.original,
        noticed=dict(sorted(board.noticed.items())),
        remarks=[*facts.remarks, *([facts.copies] if facts.copies and not run.differ else ())],
        audit=run.audit.by_flag(),
        directions=dict(runnable.higher_is_better()),
        num_fewshot=facts.num_fewshot,
        version=facts.version,
        config=plain(runnable.described()),
    )
    failures = board.failures(runnable.parents, facts.listed_rows)
    entry = with_failures(entry, board, max_failed)
    return with_rows(entry, board, numbers, failures, runnable.aggregation, max_failed)


def with_failures(entry: TaskEntry, board: Board, max_failed: float) -> TaskEntry:
    """A task's entry with its documents that were asked and failed. More failures than the run allows leave it incomplete."""
    failed = board.failed.total()
    return replace(
        entry,
        documents=board.documents,
        failed=failed,
        reasons=dict(sorted(board.failed.items())),
        is_incomplete=entry.is_incomplete or bool(entry.not_asked) or failed > max_failed * max(board.documents, 1),
    )


def with_rows(
    entry: TaskEntry, board: Board, numbers: Numbers, failures: Mapping[ScoreKey, RowFailures],
    aggregation: AggregationOf, max_failed: float,
) -> TaskEntry:  # fmt: skip
    """A task's entry with a row for each number, then those in which every document failed."""
    lost = Estimate(None, None, 0, EVERY_DOCUMENT_FAILED)
    rows = []
    for key in dict.fromkeys((*numbers, *failures)):
        if key.metric == BYPASS:
            continue
        number = numbers.get(key, lost)
        row = Row(
            entry.name,
            key.metric,
            key.filter,
            as_reported(number),
            failed=entry.failed,
            is_incomplete=entry.is_incomplete,
            lacks_number=key in numbers and number.value is None and number.named_values is None,
            higher_is_better=entry.directions.get(key.metric),
            failure_bounds=failure_bounds(number, entry) if entry.failed else None,
        )
        own = failures.get(key)  # None of numbers that a graph computes from all of its records
        if own is not None:
            is_incomplete = own.documents > max_failed * max(entry.documents, 1)
            row = replace(row, failed=own.documents, reasons=dict(own.reasons), is_incomplete=is_incomplete)
        if key in board.columns:
            row = replace(row, noise=noise(board, key), reliability=reliability(board, key, aggregation, number))
        rows.append(row)
    never_came = sorted(set(entry.directions) - {key.metric for key in numbers}) if entry.scored else ()
    unscored = [key.filter for key in numbers if key.metric == BYPASS]
    return replace(entry, rows=rows, never_came=never_came, unscored=unscored)


def as_reported(number: Estimate) -> Estimate:
    """The number as results have it: with degrees of freedom where the interval uses fewer than n - 1."""
    freedom = number.df
    if freedom is None:
        return number
    return replace(number, df=round(freedom, 3) if freedom < number.n - 1 else None)


def failure_bounds(number: Estimate, entry: TaskEntry) -> Bounds | None:
    """For shares: what the number would be if all that failed were wrong, and if all were right."""
    value = number.value
    if value is None or not 0 <= value <= 1 or not number.n:
        return None
    lost = min(entry.failed, max(entry.documents - number.n, 0))  # a document may have failed in other rows alone
    whole = number.n + lost
    return value * number.n / whole, (value * number.n + lost) / whole


def noise(board: Board, key: ScoreKey) -> Mapping[str, float] | None:
    """The sources of a row's noise, where it has repeats that are numbers."""
    repeats = board.columns[key].repeats
    if not repeats or not _are_numbers(repeats):
        return None
    found: Noise | None = noise_of(repeats)
    return None if found is None else found._asdict()


def _are_numbers(repeats: Sequence[Sequence[MetricValue]]) -> bool:
    return isinstance(repeats[0][0], int | float) and all(
        isinstance(score, int | float) for scores in repeats for score in scores
    )


def reliability(
    board: Board, key: ScoreKey, aggregation_of: AggregationOf, number: Estimate
) -> Sequence[ReliabilityPoint]:
    """The points of the reliability curve that a number sums up, each with the interval of its accuracy."""
    aggregation = aggregation_of(key)
    known = AGGREGATIONS.get(aggregation) if isinstance(aggregation, str) else aggregation
    if not isinstance(known, Aggregation) or known.curve is None or number.value is None:
        return ()
    return [_with_interval(point) for point in known.curve(board.columns[key].values)]


def _with_interval(point: CurvePoint) -> ReliabilityPoint:
    error = math.sqrt(point.accuracy * (1 - point.accuracy) / point.n)
    ends = interval(Estimate(point.accuracy, error, point.n, evidence=Evidence(is_rate=True)))
    return ReliabilityPoint(point.confidence, Estimate(point.accuracy, n=point.n, interval=ends))


# ---- groups


def group_entry(
    group: Group[Task], numbers: Numbers | None, tasks: Mapping[str, TaskEntry], groups: Mapping[str, GroupEntry]
) -> GroupEntry:
    """The results of a group; `numbers` is None in a run that scores nothing."""
    entries = () if numbers is None else group.config.aggregate_metric_list or ()
    directions: dict[str, bool | None] = {}
    for entry in entries:
        better = entry.higher_is_better
        if better is None:
            better = group.directions.get(entry.metric_name, group.directions.get(counted_metric(entry) or ""))
        if better is not None:
            directions[entry.row_metric] = better
    own = GroupEntry(
        name=group.name,
        alias=group.alias,
        members=list(group.child_names),
        size=sum(tasks[task.name].scored for task in group.get_all_tasks() if task.name in tasks),
        directions=directions,
        metadata=plain(group.metadata),
        skipped=dict(group.skipped),
        computed_by=computed_by(group),
        version=group.version,
    )
    return with_members(own, numbers if entries or numbers else None, counted_tasks(group), tasks, groups)


def computed_by(group: Group[Task]) -> str | None:
    """The class of the user's that computes a group's numbers, in place of its configuration."""
    if not group.computes_own_numbers:
        return None
    return type(group.aggregator if group.has_own_aggregator else group).__name__


def with_members(
    entry: GroupEntry, numbers: Numbers | None, counted: Sequence[str], tasks: Mapping[str, TaskEntry],
    groups: Mapping[str, GroupEntry],
) -> GroupEntry:  # fmt: skip
    """A group's entry with what follows from its members, which come before it, and with a row for each number.

    `counted` are the tasks that its numbers are made of.
    """
    members = [groups.get(name) or tasks.get(name) for name in entry.members]
    directions = _common_directions([member.directions for member in members if member is not None])
    entry = replace(
        entry, directions=directions | dict(entry.directions), num_fewshot=_common_shots(entry.metadata, members)
    )
    run = [name for name in counted if name in tasks]
    incomplete = [name for name in run if tasks[name].is_incomplete]
    if incomplete or len(run) < len(counted):
        entry = replace(
            entry,
            is_incomplete=True,
            tasks=len(counted),
            scored_tasks=sum(1 for name in run if tasks[name].scored or not tasks[name].is_incomplete),
            failed=sum(tasks[name].failed for name in run),
            not_run=[name for name in counted if name not in tasks],
            incomplete_tasks=incomplete,
        )
    return entry if numbers is None else replace(entry, rows=_group_rows(entry, numbers, shares(tasks, numbers)))


def _group_rows(entry: GroupEntry, numbers: Numbers, shares_by_row: Mapping[ScoreKey, Sequence[Share]]) -> list[Row]:
    return [
        Row(
            entry.name,
            key.metric,
            key.filter,
            as_reported(number),
            failed=entry.failed,
            is_incomplete=entry.is_incomplete,
            lacks_number=number.evidence.code_failed,
            higher_is_better=entry.directions.get(key.metric),
            tasks=number.evidence.tasks,
            missing=list(number.evidence.missing),
            chosen=list(number.evidence.chosen),
            shares=shares_by_row.get(key),
        )
        for key, number in numbers.items()
    ]


def _common_shots(metadata: Mapping[str, object], members: Sequence[TaskEntry | GroupEntry | None]) -> int | None:
    """The number of examples of a group: its own, or that of its members where they agree."""
    own = metadata.get("num_fewshot")
    if isinstance(own, int):
        return own
    numbers = {None if member is None else member.num_fewshot for member in members}
    return numbers.pop() if len(numbers) == 1 else None


def _common_directions(members: Sequence[Mapping[str, bool | None]]) -> dict[str, bool | None]:
    """By metric whether more is better; None where members do not agree."""
    merged: dict[str, bool | None] = {}
    for directions in members:
        for metric, direction in directions.items():
            merged[metric] = direction if merged.get(metric, direction) == direction else None
    return merged


def shares(tasks: Mapping[str, TaskEntry], numbers: Numbers) -> dict[ScoreKey, list[Share]]:
    """The task rows that each group row is made of, where that is known: runs can be compared later without the
    definitions of their groups."""
    known = {
        draws: (name, key)
        for name, task in tasks.items()
        for key, number in estimates_of(task).items()
        for draws in number.evidence.parts
    }
    return {
        key: [Share(*known[draws], slope) for draws, slope in row.evidence.parts.items()]
        for key, row in numbers.items()
        if row.evidence.parts and all(draws in known for draws in row.evidence.parts)
    }
