"""Scorers over several scorers (`ensemble`: their weighted mean) or several filters (`cross_filter`: their agreement)."""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

from assay.config.task import FilterConfig, MetricConfig, TaskConfig
from assay.errors import did_you_mean
from assay.records import (
    Answer,
    Answers,
    Failed,
    MetricValue,
)
from assay.scoring.loop import add_rows
from assay.scoring.results import HookInput, Instance
from assay.scoring.scorer import CombinedScorer, Scorer, bind, bounds_of, is_batch, own_rows, score_alone, scores_itself
from assay.scoring.scores import BoundMetric, Repeated, ScoreDict, Scores
from assay.statistics.influence import SHARE, Bounds


class EnsembleScorer(CombinedScorer):
    """The weighted mean of several scorers' own scores, which are rows, too.

    A member without its own score counts with the task's metric, of which there must be one then.
    """

    name = "ensemble"

    def __init__(
        self, scorers: Sequence[Scorer], weights: Sequence[float] | None = None, *, config: TaskConfig | None = None
    ) -> None:
        super().__init__(config)
        self.scorers = list(scorers)
        self.weights = _weights(weights, len(self.scorers))
        for member in self.scorers:
            if is_batch(member):
                raise ValueError(f"{member.name!r} scores all documents at once, and cannot be one of several")
        self.asks = any(member.asks for member in self.scorers)
        self.needs_filters = tuple(name for member in self.scorers for name in member.needs_filters)
        self.needs_columns = tuple(name for member in self.scorers for name in member.needs_columns)
        self.least_filters = max(member.least_filters for member in self.scorers)
        self.gives = self._gives()
        self.bounds = self._bounds()
        self.aggregations = {
            self._row(number, row): aggregation
            for number, member in enumerate(self.scorers)
            for row, aggregation in member.aggregations.items()
        }

    def default_filters(self) -> tuple[FilterConfig, ...] | None:
        """Those of the first member that has some."""
        return next((filters for member in self.scorers if (filters := member.default_filters()) is not None), None)

    def default_metrics(self) -> tuple[MetricConfig, ...] | None:
        """Those of the members that are scored by metrics alone."""
        defaults: list[MetricConfig] = []
        for member in self.scorers:
            metrics = () if scores_itself(member) else member.default_metrics()
            if metrics is None:
                return None
            defaults += [metric for metric in metrics if metric not in defaults]
        return tuple(defaults)

    def score_instances(self, instances: HookInput, filter_name: str) -> Scores:
        if filter_name not in self._metrics and not self.asks:
            self._bind_by_itself(filter_name)
        return score_alone(self, instances, filter_name)

    def _bind_by_itself(self, filter_name: str) -> None:
        """Bind metrics without a run: those of its configuration, or of the first member that has one."""
        own = [member for member in self.scorers if not scores_itself(member) and member.config is not None]
        if self.config is None and own:
            self.config = own[0].config
        for member in own:
            if member.config is not self.config:
                member.get_metrics(filter_name)
        bind(self, filter_name, self.get_metrics(filter_name))

    def combine(
        self, rows: Sequence[Scores], metrics: Sequence[Sequence[BoundMetric]], own: Callable[[], Scores]
    ) -> ScoreDict:
        scores: dict[str, Any] = {}
        own_scores: list[Any] = []
        for number, (member, theirs) in enumerate(zip(self.scorers, rows, strict=True)):
            if scores_itself(member):
                add_rows(
                    scores,
                    {self._row(number, row): value for row, value in theirs.items()},
                    member.name,
                    self.task_dialect,
                )
                own_scores.append(_own_score(member, theirs))
            elif metrics[number]:
                add_rows(scores, theirs, member.name, self.task_dialect)
                own_scores.append(_own_score(member, theirs))
            else:
                own_scores.append(_own_score(member, own()))
        add_rows(scores, {self.name: _weighted_mean(own_scores, self.weights)}, self.name, self.task_dialect)
        return scores

    def _gives(self) -> tuple[str, ...] | None:
        """Its own row and those of the members, where all of these know theirs."""
        names = [self.name]
        for number, member in enumerate(self.scorers):
            rows = own_rows(member)
            if rows is None:
                return None
            names += [self._row(number, row) for row in rows]
        return tuple(names)

    def _bounds(self) -> dict[str, Bounds]:
        """Bounds of the members' rows, and of their mean where each of them declares some."""
        declared = [bounds_of(member) for member in self.scorers]
        rows = {self._row(number, row): each for number, own in enumerate(declared) for row, each in own.items()}
        own = [each.get(member.name) for member, each in zip(self.scorers, declared, strict=True)]
        known = [each for each in own if each is not None]
        if len(known) < len(own):
            return rows
        low, high = (sum(w * each[end] for w, each in zip(self.weights, known, strict=True)) for end in (0, 1))
        return {**rows, self.name: (low, high)}

    def _row(self, number: int, row: str) -> str:
        """The name of a member's row: as there, with a number behind it where the name of the member is taken."""
        names = [self.name, *(member.name for member in self.scorers)]
        before = names[: number + 1].count(names[number + 1])
        return f"{row}#{before + 1}" if before else row


def _weights(weights_or_none: Sequence[float] | None, count: int) -> list[float]:
    """The share of each member, all of them together 1."""
    if not count:
        raise ValueError("an ensemble needs a scorer")
    weights = [1.0] * count if weights_or_none is None else list(weights_or_none)
    if len(weights) != count:
        raise ValueError(f"there are {count} scorers and {len(weights)} weights")
    if not all(isinstance(each, int | float) and 0 <= each < float("inf") for each in weights) or not any(weights):
        raise ValueError(f"weights must be numbers of 0 or more, not all 0, got {weights}")
    return [each / sum(weights) for each in weights]


def _own_score(member: Scorer, scores: Scores) -> MetricValue:
    if member.name in scores:
        return scores[member.name]
    if len(scores) != 1:
        raise ValueError(
            f"scorer {member.name!r} must return one score, or one named {member.name!r}, got {sorted(scores)}"
        )
    return next(iter(scores.values()))


def _weighted_mean(scores: Sequence[MetricValue], weights: Sequence[float]) -> MetricValue:
    """The mean; answer by answer where members score every answer. A member without a score leaves none."""
    failed = next((each for each in scores if isinstance(each, Failed)), None)
    if failed is not None:
        return failed
    counts = {len(each) for each in scores if isinstance(each, Repeated)}
    if not counts:
        return sum(weight * each for weight, each in zip(weights, scores, strict=True))
    if len(counts) > 1:
        raise ValueError("the scorers score different numbers of answers")
    every = [each if isinstance(each, Repeated) else [each] * max(counts) for each in scores]
    return Repeated([sum(w * s for w, s in zip(weights, row, strict=True)) for row in zip(*every, strict=True)])


class CrossFilterScorer(Scorer[Scores]):
    """Compares what the filters of a task leave: the share of pairs that agree, and how many different answers there are.

    Of all filters, or of those that `filters` names. Where they leave several answers, each is looked at by itself.
    """

    name = "cross_filter"
    least_filters = 2
    gives = ("filter_agreement", "filter_diversity")
    bounds = SHARE

    def __init__(self, task_config: TaskConfig | None = None, filters: Sequence[str] = ()) -> None:
        super().__init__(task_config)
        if len(filters) == 1 or len(set(filters)) != len(filters):
            raise ValueError("filters must name two filters or more, each once")
        self.needs_filters = tuple(filters)

    def default_metrics(self) -> tuple[MetricConfig, ...]:
        return ()

    def score_instances(self, instances: HookInput, filter_name: str) -> Scores:
        result = self._create_result(instances, filter_name)
        scores = self._compute_metrics(result, self.get_metrics(filter_name))
        answers = _answers(instances, self.needs_filters or tuple(instances[0].filtered_resps))
        scores["filter_agreement"] = sum(map(agreement, answers)) / len(answers)
        scores["filter_diversity"] = sum(map(diversity, answers)) / len(answers)
        return scores


def agreement(answers: Answers) -> float:
    """The share of pairs of filters that leave the same answer.

    >>> agreement(["4", "4", "5"])
    0.3333333333333333
    """
    pairs = list(combinations(answers, 2))
    return sum(bool(one == other) for one, other in pairs) / len(pairs)


def diversity(answers: Answers) -> float:
    """How many different answers there are, as a share of the filters.

    >>> diversity(["4", "4", "5", "6"])
    0.75
    """
    different: list[Any] = []
    for answer in answers:
        if answer not in different:
            different.append(answer)
    return len(different) / len(answers)


def _answers(instances: Sequence[Instance], filters: Sequence[str]) -> list[list[Answer]]:
    """The answers of the filters, side by side: of every request; of every answer where all leave equally many."""
    answers: list[list[Any]] = []
    for instance in instances:
        missing = [name for name in filters if name not in instance.filtered_resps]
        if missing:
            raise LookupError(f"no filter {missing[0]!r}: {did_you_mean(missing[0], instance.filtered_resps)}")
        left = [instance.filtered_resps[name] for name in filters]
        lengths = {len(each) if isinstance(each, list) else -1 for each in left}
        answers += (
            map(list, zip(*left, strict=True)) if len(lengths) == 1 and lengths != {-1} and 0 not in lengths else [left]
        )
    return answers
