"""The means of groups as lm-eval 0.4.13 makes them: weighted by all scored documents, with a pooled standard error."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from assay.config.group import AggMetricConfig
from assay.groups.task_results import MemberRows
from assay.score_keys import ScoreKey
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.influence import Influence


def weighted_mean(scores: Sequence[Estimate], *, by_size: bool) -> float:
    """The members' values, each as often as it has documents, or each once; summed from left to right."""
    weights = [score.n if by_size else 1 for score in scores]
    above = 0.0
    for score, weight in zip(scores, weights, strict=True):
        above += float(score) * weight
    return above / sum(weights)


def pooled_stderr(scores: Sequence[Estimate], *, by_size: bool) -> float | None:
    """The error as lm-eval 0.4.13 writes it: for means by size the pooled error, which also counts the spread between sizes."""
    errors = [score.stderr for score in scores if score.stderr is not None]
    if len(errors) < len(scores):
        return None
    if not by_size:
        return math.sqrt(sum(error**2 for error in errors)) / len(errors)
    sizes = [score.n for score in scores]
    if sum(sizes) == len(sizes):
        return None
    variance = sum((size - 1) * error**2 * size for size, error in zip(sizes, errors, strict=True)) / (
        sum(sizes) - len(sizes)
    )
    return math.sqrt(variance / sum(sizes))


def pooled_means(
    entries: Sequence[AggMetricConfig], tasks: Sequence[str], known: Mapping[str, MemberRows]
) -> dict[ScoreKey, Estimate]:
    """The rows of a group by its entries, from those of the tasks below it; tasks without the metric are left out."""
    rows: dict[ScoreKey, Estimate] = {}
    for entry in entries:
        for filter_name in _filters(entry, known):
            key = ScoreKey(entry.metric_name, filter_name)
            estimates = {
                name: replace(known[name].rows[key], n=known[name].documents)
                for name in tasks
                if name in known and key in known[name].rows
            }
            if estimates:
                rows[key] = _pooled(estimates, tasks, by_size=entry.by_size is not False)
    return rows


def _pooled(estimates: Mapping[str, Estimate], tasks: Sequence[str], *, by_size: bool) -> Estimate:
    """A group's number from those of its tasks that have one."""
    scores = list(estimates.values())
    return Estimate(
        weighted_mean(scores, by_size=by_size),
        pooled_stderr(scores, by_size=by_size),
        sum(score.n for score in scores),
        evidence=Evidence(
            _parts(scores, by_size=by_size), missing=tuple(task for task in tasks if task not in estimates)
        ),
    )


def _parts(scores: Sequence[Estimate], *, by_size: bool) -> dict[Influence, float]:
    """The draws that a mean of tasks depends on; none where that is not known of all."""
    weights = [score.n if by_size else 1 for score in scores]
    whole = sum(weights)
    if not whole or not all(score.evidence.parts for score in scores):
        return {}
    pairs = zip(scores, weights, strict=True)
    return {draws: weight / whole for score, weight in pairs for draws in score.evidence.parts}


def _filters(entry: AggMetricConfig, known: Mapping[str, MemberRows]) -> list[str]:
    if isinstance(entry.filters, str):
        return [entry.filters]
    if entry.filters is not None:
        return list(entry.filters)
    rows = [key for member in known.values() for key in member.rows]
    return sorted({key.filter for key in rows if key.metric == entry.metric_name})
