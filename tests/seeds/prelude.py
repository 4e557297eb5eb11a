"""Stands before every block of the seeds 001 and 004: imports, and the six names that the documents use and never define."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from itertools import combinations
from typing import Any, Generic, TypeVar

import assay
from assay import (
    FilterConfig,
    GenResult,
    Instance,
    LoglikelihoodScorer,
    MCResult,
    MetricConfig,
    ProcessResultsScorer,
    Results,
    ScorerFactory,
    TaskConfig,
    get_model,
    load_reward_model,
)

ResultT = TypeVar("ResultT")


class Supplied:
    """The four of the six names that are methods."""

    def _weighted_average(self, results):
        """The weighted mean of the first row of each, answer by answer."""
        rows = [each if isinstance(each, dict) else each.scores for each in results]
        firsts = [next(iter(each.values())) for each in rows]
        answers = zip(*[each if isinstance(each, list) else [each] for each in firsts])
        return {"ensemble": [sum(w * s for w, s in zip(self.weights, row)) / sum(self.weights) for row in answers]}

    def _create_judge_prompt(self, generation, target):
        return f"{generation}, where {target} is right"

    def _compute_agreement(self, by_filter):
        pairs = list(combinations(by_filter.values(), 2))
        return sum(one == other for one, other in pairs) / len(pairs)

    def _compute_diversity(self, answers):
        every = [str(each) for each in (answers.values() if isinstance(answers, dict) else answers)]
        return len(set(every)) / len(every)


class Scorer(Supplied, assay.Scorer[ResultT]):
    pass


class GenerationScorer(Supplied, assay.GenerationScorer):
    pass
