"""The metrics, each declared with what it looks at. The meaning is lm-eval 0.4.13's; what 0.5 adds has its own name.

A metric gives one value per document. Where the number of a task is not the mean of those values (perplexity, BLEU,
F1), the value is what its aggregation needs.
"""

import math
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from assay.records import Failed
from assay.scoring.reductions import MetricReductions
from assay.scoring.results import CHOICE, GENERATE, LIKELIHOOD, OUT_OF_RANGE, ROLLING, GenResult, LLResult, MCResult
from assay.scoring.values import Repeated as Repeated
from assay.statistics.softmax import softmax

MetricValue = Any
"""A metric's value for one document: a number, what an aggregation needs, or a mapping of several."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, ready to be used: `compute` takes a result and gives its value."""

    name: str
    compute: Callable[[Any], MetricValue]
    aggregation: str | Callable[..., Any] | None
    higher_is_better: bool | None
    reductions: MetricReductions
    gives: Sequence[str] | None = ()
    """The names of its values, where it gives several; None where they are only known from the data."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """What `fn` is to be given beside references and predictions: nothing, since parameters are in it already."""

    def fn(
        self, result: Any = None, *, references: Any = None, predictions: Sequence[Any] | None = None, **_: Any
    ) -> MetricValue:
        """The metric as a function: of a result, or of references and a prediction."""
        if result is not None:
            return self.compute(result)
        several = references if isinstance(references, list) else [references]
        return self.compute(GenResult({}, several, (predictions or [None])[0]))


@dataclass(frozen=True, slots=True)
class DeclaredMetric:
    """A metric as it stands in the table: a function per output type, whose keyword parameters are its YAML keys.

    `needs` is a library, `gives` takes the parameters and says the names of the values where there are several,
    `obstacle` is what keeps it from working on this machine and what would help, `runs_code` that it executes what the model wrote.
    """

    functions: Mapping[str, Callable[..., MetricValue]]
    aggregation: str | None = "mean"
    higher_is_better: bool = True
    needs: str | None = None
    gives: Callable[..., Sequence[str] | None] | None = None
    obstacle: Callable[[], tuple[str, str] | None] | None = None
    runs_code: bool = False


def _best(values: Sequence[float]) -> int:
    """The index of the largest; of several, the first."""
    return max(range(len(values)), key=values.__getitem__)


def acc(result: MCResult) -> float:
    return float(result.is_right(_best(result.lls)))


def acc_norm(result: MCResult) -> float:
    lengths = [float(len(choice)) for choice in result.choices]
    return float(result.is_right(_best(_divided(result.lls, lengths))))


def acc_bytes(result: MCResult) -> float:
    return float(result.is_right(_best(_per_byte(result))))


def _divided(values: Sequence[float], lengths: Sequence[float]) -> list[float]:
    """Each value by its length; an empty choice, which lm-eval divides by zero, can only win with certainty."""
    return [
        value / length if length else (-math.inf if value < 0 else 0.0)
        for value, length in zip(values, lengths, strict=True)
    ]


def acc_mutual_info(result: MCResult) -> float:
    gains = [here - alone for here, alone in zip(result.lls, result.lls_unconditional, strict=True)]
    return float(_best(gains) == result.target)


def choice_exact_match(result: MCResult) -> float:
    targets = result.target if result.has_several else [result.target]
    return float(any(result.is_greedy[target] for target in targets if target != OUT_OF_RANGE))


def gold_and_best(result: MCResult) -> tuple[Any, int]:
    return result.target, _best(result.lls)


def brier_score(result: MCResult) -> tuple[Any, list[float]]:
    return result.target, softmax(result.lls)


def gold_and_likelihoods(result: MCResult) -> tuple[Any, Sequence[float]]:
    return result.target, result.lls


def _of_one_choice(compute: Callable[[MCResult], float]) -> Callable[[MCResult], Any]:
    """A metric of the right choice, which fails its row where there are several of them."""

    @wraps(compute)
    def computed(result: MCResult) -> Any:
        if result.has_several:
            return Failed("scoring: the document has several right choices, and this metric is of one")
        return compute(result)

    return computed


@_of_one_choice
def logprob(result: MCResult) -> float:
    return float(result.lls[result.target])


@_of_one_choice
def bits_per_byte_of_gold(result: MCResult) -> float:
    return float(-_per_byte(result)[result.target]) / math.log(2)


@_of_one_choice
def choice_logprob(result: MCResult) -> float:
    return log_share(result.lls, result.target)


@_of_one_choice
def choice_prob_norm(result: MCResult) -> float:
    return math.exp(log_share(_per_byte(result), result.target))


@_of_one_choice
def choice_logprob_norm(result: MCResult) -> float:
    return log_share(_per_byte(result), result.target)


def _per_byte(result: MCResult) -> list[float]:
    return _divided(result.lls, [float(len(choice.encode())) for choice in result.choices])


def log_share(lls: Sequence[float], target: int) -> float:
    """The logarithm of the share that one likelihood has of all; -inf only where the likelihood is 0.

    It is not taken of the share itself, which underflows to 0 where the model is surest of another choice.

    >>> log_share([-1.0, -1000.0], 1)
    -999.0
    """
    if lls[target] == -math.inf:
        return -math.inf  # also where all are: no share of nothing
    best = _best(lls)
    others = math.fsum(math.exp(value - lls[best]) for place, value in enumerate(lls) if place != best)
    return float(lls[target] - lls[best] - math.log1p(others))


def greedy(result: LLResult) -> int:
    return int(result.is_greedy)


def value(result: LLResult) -> float:
    return result.value


def greedy_and_doc(result: LLResult) -> tuple[int, Mapping[str, Any]]:
    return int(result.is_greedy), result.doc


def best_and_doc(result: MCResult) -> tuple[int, Mapping[str, Any]]:
    return _best(result.lls), result.doc


def per_word(result: LLResult) -> tuple[float, int]:
    return result.value, len(re.split(r"\s+", result.target))


def per_byte(result: LLResult) -> tuple[float, int]:
    return result.value, len(result.target.encode())


def exact_match(
    references: Sequence[Any],
    prediction: Any,
    *,
    regexes_to_ignore: Sequence[str] | None = None,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    ignore_numbers: bool = False,
) -> float:
    """Whether the answer is one of the references, after both are made plainer in the ways asked for."""
    return _matching(regexes_to_ignore, ignore_case, ignore_punctuation, ignore_numbers)(references, prediction)


def _compiled(pattern: Any) -> "re.Pattern[str]":
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ValueError(f"regexes_to_ignore: {pattern!r:.60} is not a regular expression: {error}") from None


def _matching(
    regexes_to_ignore: Sequence[str] | None = None,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    ignore_numbers: bool = False,
) -> Callable[[Sequence[Any], Any], float]:
    """`exact_match` with its parameters looked at once: it is called millions of times."""
    patterns = [_compiled(pattern) for pattern in regexes_to_ignore or ()]
    removed = (string.punctuation if ignore_punctuation else "") + (string.digits if ignore_numbers else "")
    table = str.maketrans("", "", removed)

    def plain(text: Any) -> Any:
        for pattern in patterns:
            text = pattern.sub("", text)
        if ignore_case:
            text = text.lower()
        return text.translate(table) if removed else text

    def matches(references: Sequence[Any], prediction: Any) -> float:
        answer = plain(prediction)
        return 1.0 if any(plain(reference) == answer for reference in references) else 0.0

    def is_one_of(references: Sequence[Any], prediction: Any) -> float:
        return 1.0 if prediction in references else 0.0

    return matches if patterns or ignore_case or removed else is_one_of


exact_match.prepared = _matching  # type: ignore[attr-defined]


def pair(references: Sequence[Any], prediction: Any) -> tuple[Any, Any]:
    """Reference and answer, for what is computed over all documents at once."""
    return (references[0] if len(references) == 1 else list(references)), prediction


def nothing(*_: Any) -> None:
    """No value: for runs that only ask."""


LM_EVAL_METRICS: dict[str, DeclaredMetric] = {
    "acc": DeclaredMetric({CHOICE: acc, LIKELIHOOD: greedy}),
    "acc_norm": DeclaredMetric({CHOICE: acc_norm}),
    "acc_bytes": DeclaredMetric({CHOICE: acc_bytes}),
    "acc_all": DeclaredMetric({LIKELIHOOD: greedy_and_doc, CHOICE: best_and_doc}, "acc_all"),
    "acc_mutual_info": DeclaredMetric({CHOICE: acc_mutual_info}),
    "exact_match": DeclaredMetric({GENERATE: exact_match, CHOICE: choice_exact_match}),
    "brier_score": DeclaredMetric({CHOICE: brier_score}, "brier_score", False),
    "likelihood": DeclaredMetric({CHOICE: gold_and_likelihoods}, aggregation=None),
    "f1": DeclaredMetric({CHOICE: gold_and_best}, "f1", needs="sklearn"),
    "mcc": DeclaredMetric({CHOICE: gold_and_best}, "matthews_corrcoef", needs="sklearn"),
    "perplexity": DeclaredMetric({LIKELIHOOD: value}, "perplexity", False),
    "word_perplexity": DeclaredMetric({ROLLING: per_word}, "weighted_perplexity", False),
    "byte_perplexity": DeclaredMetric({ROLLING: per_byte}, "weighted_perplexity", False),
    "bits_per_byte": DeclaredMetric({ROLLING: per_byte}, "bits_per_byte", False),
    "bleu": DeclaredMetric({GENERATE: pair}, "bleu", needs="sacrebleu"),
    "chrf": DeclaredMetric({GENERATE: pair}, "chrf", needs="sacrebleu"),
    "chrf++": DeclaredMetric({GENERATE: pair}, "chrf++", needs="sacrebleu"),
    "ter": DeclaredMetric({GENERATE: pair}, "ter", False, needs="sacrebleu"),
    "bypass": DeclaredMetric({CHOICE: nothing, LIKELIHOOD: nothing, ROLLING: nothing, GENERATE: nothing}, "bypass"),
    # since lm-eval 0.5
    "exact_match_mc": DeclaredMetric({CHOICE: choice_exact_match}),
    "logprob": DeclaredMetric({CHOICE: logprob, LIKELIHOOD: value}),
    "bpb": DeclaredMetric({CHOICE: bits_per_byte_of_gold}, higher_is_better=False),
    "choice_logprob": DeclaredMetric({CHOICE: choice_logprob}),
    "choice_prob_norm": DeclaredMetric({CHOICE: choice_prob_norm}),
    "choice_logprob_norm": DeclaredMetric({CHOICE: choice_logprob_norm}),
}

DEFAULTS = {
    LIKELIHOOD: ("perplexity", "acc"),
    ROLLING: ("word_perplexity", "byte_perplexity", "bits_per_byte"),
    CHOICE: ("acc", "acc_norm"),
    GENERATE: ("exact_match",),
}
"""The metrics of a task that names none, by output type."""
