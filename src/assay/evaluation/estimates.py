"""Estimate the metrics of every task and group from the scores of all samples."""

import math
from collections.abc import Callable, Mapping, Sequence

from assay.dialect import dialect_of
from assay.evaluation.prepare import Prepared
from assay.groups.group import Group
from assay.groups.results import MemberResult, bottom_up, counted_metric, counted_tasks, group_numbers
from assay.groups.rows import FailedRow
from assay.records import JSONDict, MetricValue
from assay.results import ReliabilityPoint, Results, Share
from assay.runs.results import GroupResult, TaskResult, results_tree
from assay.score_keys import ScoreKey
from assay.statistics.aggregations import AGGREGATIONS, Aggregation, AggregationOrFunction
from assay.statistics.board import Board
from assay.statistics.calibration import CurvePoint
from assay.statistics.estimates import StderrMethod
from assay.statistics.influence import Estimate
from assay.statistics.intervals import interval
from assay.statistics.noise import noise_of
from assay.tasks import Task
from assay.tasks.run import TaskRun


def estimate(prepared: Prepared, runs: Sequence[TaskRun]) -> Results:
    """The results of all tasks and groups."""
    config = prepared.config
    has_lm_evals = dialect_of(config.compat).has_lm_evals_standard_errors
    stderr: StderrMethod = "lm-eval" if has_lm_evals else "influence"
    tasks = {run.runnable.task.name: task_result(run, config.bootstrap_iters or 0, stderr) for run in runs}
    ordered = bottom_up(prepared.groups)
    scored = () if config.predict_only else ordered
    numbers = group_numbers(scored, tasks)
    groups = [group_result(group, tasks, numbers.get(group.name)) for group in ordered]
    return results_tree(list(tasks.values()), groups, prepared.broken, config.max_failed, interval)


def task_result(run: TaskRun, bootstrap_iters: int, stderr: StderrMethod) -> TaskResult:
    task, runnable = run.runnable.task, run.runnable
    source = runnable.source or task.name

    def estimated(aggregation: Aggregation, values: Sequence[MetricValue], documents: Sequence[int]) -> Estimate:
        return run.board.estimated(
            aggregation, values, documents, bootstrap_iters=bootstrap_iters, stderr=stderr, source=source
        )

    estimates = run.board.estimates(runnable.aggregation, bootstrap_iters=bootstrap_iters, stderr=stderr, source=source)
    return TaskResult(
        name=task.name,
        alias=task.alias,
        rows={**runnable.conclude(estimated), **estimates},
        scored=run.board.scored,
        documents=run.board.documents,
        expected=runnable.size,
        failed=run.board.failed,
        failures=run.board.failures(runnable.parents, runnable.listed_rows),
        noticed=run.board.noticed,
        original=runnable.original,
        num_fewshot=runnable.num_fewshot,
        version=runnable.version,
        higher_is_better=runnable.higher_is_better(),
        config=runnable.described(),
        audit=run.audit.by_flag(),
        remarks=runnable.remarks(differ=run.differ),
        details=row_details(run.board, runnable.aggregation, estimates),
    )


def row_details(
    board: Board,
    aggregation_of: Callable[[ScoreKey], AggregationOrFunction | None],
    estimates: Mapping[ScoreKey, Estimate],
) -> dict[ScoreKey, JSONDict]:
    """Of rows with repeats the sources of their noise, and the curves that numbers sum up."""
    details: dict[ScoreKey, JSONDict] = {}
    for key, number in estimates.items():
        aggregation = aggregation_of(key)
        known = AGGREGATIONS.get(aggregation) if isinstance(aggregation, str) else aggregation
        noise = noise_of(number.repeats) if number.repeats and _are_numbers(number.repeats) else None
        curve = known.curve if isinstance(known, Aggregation) and not math.isnan(number) else None
        details[key] = {
            **({"noise": noise._asdict()} if noise is not None else {}),
            **({"reliability": _points(curve(board.columns[key].values))} if curve is not None else {}),
        }
    return {key: each for key, each in details.items() if each}


def _are_numbers(repeats: Sequence[Sequence[MetricValue]]) -> bool:
    return isinstance(repeats[0][0], int | float) and all(
        isinstance(score, int | float) for each in repeats for score in each
    )


def _points(curve: Sequence[CurvePoint]) -> list[ReliabilityPoint]:
    """The points of a reliability curve, each with the interval of its accuracy."""
    errors = [math.sqrt(each.accuracy * (1 - each.accuracy) / each.n) for each in curve]
    shares = [Estimate(each.accuracy, error, each.n, is_rate=True) for each, error in zip(curve, errors, strict=True)]
    return [ReliabilityPoint(*each, interval(share)) for each, share in zip(curve, shares, strict=True)]


def group_result(
    group: Group[Task], tasks: Mapping[str, TaskResult], numbers: Mapping[ScoreKey, Estimate] | None
) -> GroupResult:
    """The result of a group; `numbers` is None in a run that scores nothing."""
    entries = () if numbers is None else group.config.aggregate_metric_list or ()
    numbers = numbers or {}
    return GroupResult(
        name=group.name,
        alias=group.alias,
        members=group.child_names,
        tasks=counted_tasks(group),
        rows=numbers if entries or numbers else None,
        size=sum(tasks[task.name].scored for task in group.get_all_tasks() if task.name in tasks),
        version=group.version,
        metadata=group.metadata,
        skipped=group.skipped,
        higher_is_better={
            each.row_name: better
            for each in entries
            if (
                better := group.directions.get(each.metric_name, group.directions.get(counted_metric(each) or ""))
                if each.higher_is_better is None
                else each.higher_is_better
            )
            is not None
        },
        shares=shares(tasks, numbers),
        failed={key: row.reason for key, row in numbers.items() if isinstance(row, FailedRow)},
        computed_by=computed_by(group),
    )


def computed_by(group: Group[Task]) -> str | None:
    """The class of the user's that computes a group's numbers, in place of its configuration."""
    if not group.computes_own_numbers:
        return None
    return type(group.aggregator if group.has_own_aggregator else group).__name__


def shares(tasks: Mapping[str, MemberResult], numbers: Mapping[ScoreKey, Estimate]) -> dict[ScoreKey, list[Share]]:
    """The task rows that each group row is made of, where that is known: runs can be compared later without the
    definitions of their groups."""
    known = {
        draws: (name, key) for name, task in tasks.items() for key, row in task.rows.items() for draws in row.parts
    }
    return {
        key: [Share(*known[draws], slope) for draws, slope in row.parts.items()]
        for key, row in numbers.items()
        if row.parts and all(draws in known for draws in row.parts)
    }
