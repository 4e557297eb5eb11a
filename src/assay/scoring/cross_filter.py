"""What several filters leave of the same responses: do they find the same answer?"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from assay.config.task import MetricConfig, TaskConfig
from assay.errors import did_you_mean
from assay.scoring.instance import Instance
from assay.scoring.scorer import Scorer, Scores


class CrossFilterScorer(Scorer):
    """Compares what the filters of a task leave: the share of pairs that agree, and how many different answers there are.

    Of all filters, or of those that `filters` names. Where they leave several answers, each is looked at by itself.
    """

    name = "cross_filter"
    least_filters = 2
    gives = ("filter_agreement", "filter_diversity")

    def __init__(self, config: TaskConfig | None = None, filters: Sequence[str] = ()) -> None:
        super().__init__(config)
        if len(filters) == 1 or len(set(filters)) != len(filters):
            raise ValueError("filters must name two filters or more, each once")
        self.needs_filters = tuple(filters)

    def default_metrics(self) -> tuple[MetricConfig, ...]:
        return ()

    def score_instances(self, instances: Sequence[Instance], filter_name: str) -> Scores:
        result = self._create_result(instances, filter_name)
        scores = self._compute_metrics(result, self.get_metrics(filter_name))
        several = _answers(instances, self.needs_filters or tuple(instances[0].filtered_resps))
        scores["filter_agreement"] = sum(map(agreement, several)) / len(several)
        scores["filter_diversity"] = sum(map(diversity, several)) / len(several)
        return scores


def agreement(answers: Sequence[Any]) -> float:
    """The share of pairs of filters that leave the same answer.

    >>> agreement(["4", "4", "5"])
    0.3333333333333333
    """
    pairs = list(combinations(answers, 2))
    return sum(bool(one == other) for one, other in pairs) / len(pairs)


def diversity(answers: Sequence[Any]) -> float:
    """How many different answers there are, as a share of the filters.

    >>> diversity(["4", "4", "5", "6"])
    0.75
    """
    different: list[Any] = []
    for answer in answers:
        if answer not in different:
            different.append(answer)
    return len(different) / len(answers)


def _answers(instances: Sequence[Instance], filters: Sequence[str]) -> list[list[Any]]:
    """What the filters leave, side by side: of every request; of every answer where all leave equally many."""
    found: list[list[Any]] = []
    for instance in instances:
        missing = [name for name in filters if name not in instance.filtered_resps]
        if missing:
            raise LookupError(f"no filter {missing[0]!r}: {did_you_mean(missing[0], instance.filtered_resps)}")
        left = [instance.filtered_resps[name] for name in filters]
        lengths = {len(each) if isinstance(each, list) else -1 for each in left}
        found += (
            map(list, zip(*left, strict=True)) if len(lengths) == 1 and lengths != {-1} and 0 not in lengths else [left]
        )
    return found
