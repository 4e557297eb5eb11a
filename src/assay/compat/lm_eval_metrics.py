"""Lm-eval 0.5's metrics as those of helper code: classes over all documents, and functions of log-likelihoods.

@register_metric("gap", output_type="multiple_choice")
class Gap(CorpusMetric):
    def __call__(self, references, predictions): ...     # the value of a document
    def aggregation(self, items): ...                    # the number of all values
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from assay.records import Floats, MetricValue, Params, UserFunction, UserValue
from assay.scoring.helper_code import RegisteredMetric
from assay.scoring.results import GENERATE, LLResult, MCResult, Reference
from assay.signatures import accepted, dress

AnswersT = TypeVar("AnswersT")
ValueT = TypeVar("ValueT")


class CorpusMetric(ABC, Generic[AnswersT, ValueT]):
    """A metric of all documents: a value for each, and the number of all values."""

    @abstractmethod
    def __call__(self, references: UserValue, predictions: AnswersT) -> ValueT:
        """The value of a document."""

    @abstractmethod
    def aggregation(self, items: Sequence[ValueT]) -> float:
        """The number of all values."""

    def reduce(self, references: Sequence[UserValue], predictions: Sequence[ValueT], **kwargs: UserValue) -> ValueT:  # noqa: ARG002
        """The value of a document with several answers: that of the first, where a subclass calls it."""
        return predictions[0]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric by its parts."""

    name: str
    fn: UserFunction
    kwargs: Params = field(default_factory=dict)
    aggregation: UserFunction | None = None
    higher_is_better: bool = True
    output_type: set[str] = field(default_factory=lambda: {"multiple_choice"})
    reduction: UserFunction | None = None

    def compute(self, *args: UserValue, **kwargs: UserValue) -> MetricValue:
        return self.fn(*args, **{**self.kwargs, **kwargs})


@dataclass(frozen=True, slots=True)
class LLResults:
    """The log-likelihoods of a document's choices, or of its one text."""

    results: Sequence[tuple[float, bool]]
    lls: Floats
    is_greedy: Sequence[bool]
    targets: Reference
    ctx: str = ""
    choices: Sequence[str] = ()
    lls_mutual_info: Floats = field(default_factory=lambda: np.array([]))

    @classmethod
    def of(cls, result: MCResult | LLResult) -> "LLResults":
        ctx = str(result.instances[0].args[0]) if result.instances else ""
        if isinstance(result, LLResult):
            pair = (result.value, result.is_greedy)
            return cls([pair], np.array([result.value]), [result.is_greedy], 0, ctx, [str(result.target)])
        lls, alone = np.array(result.lls), np.array(result.lls_unconditional)
        pairs = list(zip(result.lls, result.is_greedy, strict=True))
        gains = lls - alone if len(alone) else alone
        return cls(pairs, lls, result.is_greedy, result.target, ctx, result.choices, gains)

    def char_len(self) -> Floats:
        return np.array([float(len(choice)) for choice in self.choices])

    def byte_len(self, count_bytes: Callable[[str], float] = lambda text: len(text.encode())) -> Floats:
        return np.array([float(count_bytes(choice)) for choice in self.choices])

    def word_len(self, count_words: Callable[[str], float] = lambda text: len(re.split(r"\s+", text))) -> Floats:
        return np.array([float(count_words(choice)) for choice in self.choices])


def adapt_metric(
    item: UserFunction,
    aggregation: UserFunction | None,
    higher_is_better: bool | None,
    reduction: str | None,
    output_type: str | Sequence[str],
) -> RegisteredMetric:
    """The metric of a function, or of a class with `aggregation` and `reduce`; of likelihoods as a function of the result."""
    function, reduce = item, reduction
    if isinstance(item, type) and hasattr(item, "aggregation") and hasattr(item, "reduce"):
        function = item()
        aggregation = function.aggregation
        reduce = function.reduce if item.reduce is not CorpusMetric.reduce else None
    if GENERATE not in ([output_type] if isinstance(output_type, str) else output_type):
        function = of_result(function)
    return RegisteredMetric(function, aggregation, higher_is_better, reduce)


def of_result(function: UserFunction) -> UserFunction:
    """A function of the right choice and LLResults as one of a result."""

    def score(result: MCResult | LLResult, **params: UserValue) -> MetricValue:
        known = LLResults.of(result)
        return function(known.targets, known, **params)

    return dress(score, function, [accepted(function, 2)], ("result",))
