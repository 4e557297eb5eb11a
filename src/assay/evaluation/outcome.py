"""The numbers of every task and group, from scores that have all come in."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.config.run import RunConfig
from assay.groups.group import Group
from assay.groups.results import bottom_up, counted_tasks, group_numbers
from assay.records import Estimate, ScoreKey
from assay.runs.results import GroupResult, Share, TaskResult, accounts, lm_eval_results
from assay.statistics.aggregations import Aggregation
from assay.statistics.intervals import interval
from assay.tasks.run import TaskRun


def outcome(
    runs: Sequence[TaskRun], groups: Iterable[Group[Any]], config: RunConfig, broken: Mapping[str, str]
) -> dict[str, Any]:
    """Results in lm-eval's layout, with our own account beside them under `assay`."""
    like_lm_eval = config.compat == "lm-eval"
    tasks = {run.runnable.task.name: task_result(run, config.bootstrap_iters or 0, like_lm_eval) for run in runs}
    ordered = bottom_up(groups)
    numbers = group_numbers(ordered, tasks, like_lm_eval=like_lm_eval)
    made = [group_result(group, tasks, numbers[group.name]) for group in ordered]
    account = accounts(list(tasks.values()), made, broken, config.max_failed, interval)
    return {**lm_eval_results(list(tasks.values()), made), "assay": account}


def task_result(run: TaskRun, bootstrap_iters: int, like_lm_eval: bool) -> TaskResult:
    task, runnable = run.runnable.task, run.runnable
    source = runnable.source or task.name

    def estimated(aggregation: Aggregation, values: Sequence[Any], documents: Sequence[int]) -> Estimate:
        return run.board.estimated(
            aggregation, values, documents, bootstrap_iters=bootstrap_iters, like_lm_eval=like_lm_eval, source=source
        )

    estimates = run.board.estimates(
        runnable.aggregation, bootstrap_iters=bootstrap_iters, like_lm_eval=like_lm_eval, source=source
    )
    return TaskResult(
        name=task.name,
        alias=task.alias,
        rows={**runnable.conclude(estimated), **estimates},
        scored=run.board.scored,
        documents=run.board.documents,
        expected=runnable.size,
        failed=run.board.failed,
        failures=run.board.failures(runnable.parents),
        noticed=run.board.noticed,
        original=runnable.original,
        num_fewshot=runnable.num_fewshot,
        version=runnable.version,
        higher_is_better=runnable.higher_is_better(),
        config=runnable.described(),
        audit=run.audit.told(),
    )


def group_result(
    group: Group[Any], tasks: Mapping[str, TaskResult], numbers: Mapping[ScoreKey, Estimate]
) -> GroupResult:
    entries = group.config.aggregate_metric_list or ()
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
                better := group.directions.get(each.metric_name)
                if each.higher_is_better is None
                else each.higher_is_better
            )
            is not None
        },
        shares=shares(tasks, numbers),
    )


def shares(tasks: Mapping[str, TaskResult], numbers: Mapping[ScoreKey, Estimate]) -> dict[ScoreKey, list[Share]]:
    """Of which numbers of tasks each number of a group is made, where that is known: so that runs can be compared later,
    without the definitions of their groups."""
    known = {
        draws: (name, key) for name, task in tasks.items() for key, row in task.rows.items() for draws in row.parts
    }
    return {
        key: [Share(*known[draws], slope) for draws, slope in row.parts.items()]
        for key, row in numbers.items()
        if row.parts and all(draws in known for draws in row.parts)
    }
