"""The means of groups as lm-eval 0.4.13 makes them: weighted by all scored documents, with a pooled standard error."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from assay.config.group import AggMetricConfig
from assay.groups.task_results import MemberRows
from assay.score_keys import ScoreKey
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.influence import Influence


class TaskScore(NamedTuple):
    """One task's number for a row of a group: its value, standard error and number of documents."""

    value: float
    stderr: float | None
    size: int


class GroupScore(NamedTuple):
    """A group's number."""

    value: float
    stderr: float | None
    size: int
    missing: Sequence[str] = ()


def weighted_mean(scores: Sequence[TaskScore], *, by_size: bool) -> float:
    """The members' values, each as often as it has documents, or each once; summed from left to right."""
    weights = [score.size if by_size else 1 for score in scores]
    above = 0.0
    for score, weight in zip(scores, weights, strict=True):
        above += score.value * weight
    return above / sum(weights)


def pooled_stderr(scores: Sequence[TaskScore], *, by_size: bool) -> float | None:
    """The error as lm-eval 0.4.13 writes it: for means by size the pooled error, which also counts the spread between sizes."""
    errors = [score.stderr for score in scores if score.stderr is not None]
    if len(errors) < len(scores):
        return None
    if not by_size:
        return math.sqrt(sum(error**2 for error in errors)) / len(errors)
    sizes = [score.size for score in scores]
    if sum(sizes) == len(sizes):
        return None
    variance = sum((size - 1) * error**2 * size for size, error in zip(sizes, errors, strict=True)) / (
        sum(sizes) - len(sizes)
    )
    return math.sqrt(variance / sum(sizes))


def mean_of_tasks(tasks: Sequence[str], scores_by_task: Mapping[str, TaskScore], *, by_size: bool) -> GroupScore | None:
    """The group's number from those of its tasks that have one; None where none has."""
    scores = [scores_by_task[task] for task in tasks if task in scores_by_task]
    if not scores:
        return None
    error = pooled_stderr(scores, by_size=by_size)
    missing = tuple(task for task in tasks if task not in scores_by_task)
    return GroupScore(weighted_mean(scores, by_size=by_size), error, sum(score.size for score in scores), missing)


def pooled_means(
    entries: Sequence[AggMetricConfig], tasks: Sequence[str], known: Mapping[str, MemberRows]
) -> dict[ScoreKey, Estimate]:
    """The rows of a group by its entries, from those of the tasks below it; tasks without the metric are left out."""
    rows: dict[ScoreKey, Estimate] = {}
    for entry in entries:
        for filter_name in _filters(entry, known):
            key = ScoreKey(entry.metric_name, filter_name)
            estimates = {name: known[name].rows[key] for name in tasks if name in known and key in known[name].rows}
            scores = {
                name: TaskScore(float(estimate), estimate.stderr, known[name].documents)
                for name, estimate in estimates.items()
            }
            by_size = entry.by_size is not False
            score = mean_of_tasks(tasks, scores, by_size=by_size)
            if score is not None:
                parts = _parts(estimates, scores, by_size=by_size)
                evidence = Evidence(parts, missing=tuple(score.missing))
                rows[key] = Estimate(score.value, score.stderr, score.size, evidence=evidence)
    return rows


def _parts(rows: Mapping[str, Estimate], scores: Mapping[str, TaskScore], *, by_size: bool) -> dict[Influence, float]:
    """The draws that a mean of tasks depends on; none where that is not known of all."""
    weights = {name: score.size if by_size else 1 for name, score in scores.items()}
    whole = sum(weights.values())
    if not whole or not all(row.evidence.parts for row in rows.values()):
        return {}
    return {draws: weights[name] / whole for name, row in rows.items() for draws in row.evidence.parts}


def _filters(entry: AggMetricConfig, known: Mapping[str, MemberRows]) -> list[str]:
    if isinstance(entry.filters, str):
        return [entry.filters]
    if entry.filters is not None:
        return list(entry.filters)
    rows = [key for member in known.values() for key in member.rows]
    return sorted({key.filter for key in rows if key.metric == entry.metric_name})
