"""The registry of metrics, with those of choices, likelihoods and classes. Names of lm-eval have the meaning of its 0.4.13.

A metric gives one value per document. Where the number of a task is not the mean of those values (perplexity, BLEU,
F1), the value is what its aggregation needs.
"""

import math
import re
import string
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

from assay.records import Answer, Document, Failed, UserFunction, UserValue
from assay.registry import Registry, must_be_callable
from assay.scoring.declarations import Metric
from assay.scoring.metrics.confidence import CONFIDENCE_METRICS
from assay.scoring.metrics.convention import Unfit, read_call
from assay.scoring.metrics.math_equal import MATH_METRICS
from assay.scoring.metrics.structured import STRUCTURED_METRICS
from assay.scoring.metrics.text import TEXT_METRICS
from assay.scoring.results import (
    CHOICE,
    GENERATE,
    LIKELIHOOD,
    OUT_OF_RANGE,
    ROLLING,
    LLResult,
    MCResult,
    Reference,
    References,
)
from assay.scoring.sandbox import CODE_METRICS
from assay.signatures import accepted
from assay.statistics.classes import AVERAGES, CLASS_SENTENCES, SCORES
from assay.statistics.influence import COUNT, LOGARITHM, SHARE
from assay.statistics.softmax import softmax


def _best(values: Sequence[float]) -> int:
    """The index of the largest; of several, the first."""
    return max(range(len(values)), key=values.__getitem__)


def acc(result: MCResult) -> float:
    """Whether the likeliest choice is the right one; of one text, whether it is the greedy answer."""
    return float(result.is_right(_best(result.lls)))


def acc_norm(result: MCResult) -> float:
    """acc, with log-likelihoods divided by the characters of each choice."""
    lengths = [float(len(choice)) for choice in result.choices]
    return float(result.is_right(_best(_divided(result.lls, lengths))))


def acc_bytes(result: MCResult) -> float:
    """acc, with log-likelihoods divided by the bytes of each choice."""
    return float(result.is_right(_best(_per_byte(result))))


def _divided(values: Sequence[float], lengths: Sequence[float]) -> list[float]:
    """Each value by its length; an empty choice, which lm-eval divides by zero, can only win with certainty."""
    return [
        value / length if length else (-math.inf if value < 0 else 0.0)
        for value, length in zip(values, lengths, strict=True)
    ]


def acc_mutual_info(result: MCResult) -> float:
    """acc, with each choice's log-likelihood without the question subtracted."""
    gains = [here - alone for here, alone in zip(result.lls, result.lls_unconditional, strict=True)]
    return float(_best(gains) == result.target)


def choice_exact_match(result: MCResult) -> float:
    """Whether the right choice is the greedy answer."""
    targets = result.target if result.has_several else [result.target]
    return float(any(result.is_greedy[target] for target in targets if target != OUT_OF_RANGE))


def gold_and_best(result: MCResult) -> tuple[Reference, int]:
    return result.target, _best(result.lls)


def brier_score(result: MCResult) -> tuple[Reference, list[float]]:
    return result.target, softmax(result.lls)


def gold_and_likelihoods(result: MCResult) -> tuple[Reference, Sequence[float]]:
    """The right choice and all log-likelihoods, for an aggregation that the task names."""
    return result.target, result.lls


def _of_one_choice(compute: Callable[[MCResult], float]) -> Callable[[MCResult], float | Failed]:
    """A metric of the right choice, which fails its row where there are several of them."""

    @wraps(compute)
    def computed(result: MCResult) -> float | Failed:
        if result.has_several:
            return Failed("scoring: the document has several right choices, and this metric is of one")
        return compute(result)

    return computed


@_of_one_choice
def logprob(result: MCResult) -> float:
    """Log-likelihood of the target."""
    return float(result.lls[result.target])


@_of_one_choice
def bits_per_byte_of_gold(result: MCResult) -> float:
    """Bits for each byte of the right choice; lower is better."""
    return float(-_per_byte(result)[result.target]) / math.log(2)


@_of_one_choice
def choice_logprob(result: MCResult) -> float:
    """Log of the right choice's share of the likelihood of all choices."""
    return log_share(result.lls, result.target)


@_of_one_choice
def choice_prob_norm(result: MCResult) -> float:
    """The right choice's share, with log-likelihoods divided by the bytes of each choice."""
    return math.exp(log_share(_per_byte(result), result.target))


@_of_one_choice
def choice_logprob_norm(result: MCResult) -> float:
    """choice_logprob, with log-likelihoods divided by the bytes of each choice."""
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


def greedy_and_doc(result: LLResult) -> tuple[int, Document]:
    return int(result.is_greedy), result.doc


def best_and_doc(result: MCResult) -> tuple[int, Document]:
    return _best(result.lls), result.doc


def per_word(result: LLResult) -> tuple[float, int]:
    return result.value, len(re.split(r"\s+", result.target))


def per_byte(result: LLResult) -> tuple[float, int]:
    return result.value, len(result.target.encode())


def exact_match(
    references: References,
    prediction: Answer,
    *,
    regexes_to_ignore: Sequence[str] | None = None,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    ignore_numbers: bool = False,
) -> float:
    """Whether the answer is one of the references, after both are made plainer in the ways asked for."""
    return _matching(regexes_to_ignore, ignore_case, ignore_punctuation, ignore_numbers)(references, prediction)


def _compiled(pattern: str) -> "re.Pattern[str]":
    try:
        return re.compile(pattern)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"regexes_to_ignore: {pattern!r:.60} is not a regular expression: {error}") from None


def _matching(
    regexes_to_ignore: Sequence[str] | None = None,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    ignore_numbers: bool = False,
) -> Callable[[References, Answer], float]:
    """`exact_match` with its parameters looked at once: it is called millions of times."""
    patterns = [_compiled(pattern) for pattern in regexes_to_ignore or ()]
    removed = (string.punctuation if ignore_punctuation else "") + (string.digits if ignore_numbers else "")
    table = str.maketrans("", "", removed)

    def plain(text: Answer) -> Answer:
        for pattern in patterns:
            text = pattern.sub("", text)
        if ignore_case:
            text = text.lower()
        return text.translate(table) if removed else text

    def matches(references: References, prediction: Answer) -> float:
        answer = plain(prediction)
        return 1.0 if any(plain(reference) == answer for reference in references) else 0.0

    def is_one_of(references: References, prediction: Answer) -> float:
        return 1.0 if prediction in references else 0.0

    return matches if patterns or ignore_case or removed else is_one_of


exact_match.prepared = _matching  # type: ignore[attr-defined]


def pair(references: References, prediction: Answer) -> tuple[Reference | References, Answer]:
    """Reference and answer, for what is computed over all documents at once."""
    return (references[0] if len(references) == 1 else list(references)), prediction


def nothing(*_: UserValue) -> None:
    """No value: for runs that only ask."""


LM_EVAL_METRICS: dict[str, Metric] = {
    "acc": Metric({CHOICE: acc, LIKELIHOOD: greedy}, bounds=SHARE),
    "acc_norm": Metric({CHOICE: acc_norm}, bounds=SHARE),
    "acc_bytes": Metric({CHOICE: acc_bytes}, bounds=SHARE),
    "acc_all": Metric(
        {LIKELIHOOD: greedy_and_doc, CHOICE: best_and_doc},
        "acc_all",
        sentence="Whether all answers to one question are judged rightly, as in MultiRC.",
    ),
    "acc_mutual_info": Metric({CHOICE: acc_mutual_info}, bounds=SHARE),
    "exact_match": Metric({GENERATE: exact_match, CHOICE: choice_exact_match}, bounds=SHARE),
    "brier_score": Metric(
        {CHOICE: brier_score},
        "brier_score",
        False,
        sentence="Squared distance of the shares of the choices from the right one; lower is better.",
    ),
    "likelihood": Metric({CHOICE: gold_and_likelihoods}, aggregation=None),
    "f1": Metric(
        {CHOICE: gold_and_best},
        "f1",
        needs="sklearn.metrics",
        sentence="F1 of the second of two choices, as in lm-eval.",
    ),
    "mcc": Metric(
        {CHOICE: gold_and_best},
        "matthews_corrcoef",
        needs="sklearn.metrics",
        sentence="Matthews' correlation coefficient.",
    ),
    "perplexity": Metric(
        {LIKELIHOOD: value},
        "perplexity",
        False,
        sentence="e to the mean negative log-likelihood of the targets; lower is better.",
    ),
    "word_perplexity": Metric(
        {ROLLING: per_word},
        "weighted_perplexity",
        False,
        sentence="Perplexity for each word of a text; lower is better.",
    ),
    "byte_perplexity": Metric(
        {ROLLING: per_byte},
        "weighted_perplexity",
        False,
        sentence="Perplexity for each byte of a text; lower is better.",
    ),
    "bits_per_byte": Metric(
        {ROLLING: per_byte},
        "bits_per_byte",
        False,
        sentence="Bits that the model needs for each byte of a text; lower is better.",
    ),
    "bleu": Metric(
        {GENERATE: pair}, "bleu", needs="sacrebleu", sentence="BLEU of sacrebleu, of all documents at once."
    ),
    "chrf": Metric(
        {GENERATE: pair},
        "chrf",
        needs="sacrebleu",
        sentence="chrF of sacrebleu: character n-grams, of all documents at once.",
    ),
    "chrf++": Metric(
        {GENERATE: pair},
        "chrf++",
        needs="sacrebleu",
        sentence="chrF++ of sacrebleu: characters and words, of all documents at once.",
    ),
    "ter": Metric(
        {GENERATE: pair},
        "ter",
        False,
        needs="sacrebleu",
        sentence="Translation edit rate of sacrebleu, of all documents at once; lower is better.",
    ),
    "bypass": Metric({CHOICE: nothing, LIKELIHOOD: nothing, ROLLING: nothing, GENERATE: nothing}, "bypass"),
    # since lm-eval 0.5
    "exact_match_mc": Metric({CHOICE: choice_exact_match}, bounds=SHARE),
    "logprob": Metric({CHOICE: logprob, LIKELIHOOD: value}, bounds=LOGARITHM),
    "bpb": Metric({CHOICE: bits_per_byte_of_gold}, higher_is_better=False, bounds=COUNT),
    "choice_logprob": Metric({CHOICE: choice_logprob}, bounds=LOGARITHM),
    "choice_prob_norm": Metric({CHOICE: choice_prob_norm}, bounds=SHARE),
    "choice_logprob_norm": Metric({CHOICE: choice_logprob_norm}, bounds=LOGARITHM),
}

DEFAULTS = {
    LIKELIHOOD: ("perplexity", "acc"),
    ROLLING: ("word_perplexity", "byte_perplexity", "bits_per_byte"),
    CHOICE: ("acc", "acc_norm"),
    GENERATE: ("exact_match",),
}
"""The metrics of a task that names none, by output type."""


class Hit(NamedTuple):
    """Of one document and one class: whether it is predicted correctly, predicted, and actual."""

    correct: int
    predicted: int
    actual: int


def _hit(right: Reference, answer: Answer, label: str | int) -> Hit:
    return Hit(int(answer == label == right), int(answer == label), int(right == label))


def chosen_class(result: MCResult) -> tuple[str, str]:
    """The words of the right choice and of the likeliest."""
    if result.has_several:
        raise ValueError("a document of several right choices has no class")
    best = max(range(len(result.lls)), key=result.lls.__getitem__)
    return result.choices[result.target], result.choices[best]


def answered_class(references: References, prediction: Answer) -> tuple[Reference, Answer]:
    """The reference and the answer."""
    if len(references) != 1:
        raise ValueError("a document of several references has no class")
    return references[0], prediction


def hit_of_choice(result: MCResult, *, label: str | int = 1) -> Hit:
    """Of one choice, by its number or its words; as in lm-eval's f1, the second where none is named."""
    right, answer = chosen_class(result)
    class_label = result.choices[label] if isinstance(label, int) else label
    if class_label not in result.choices:
        raise ValueError(f"label must be one of the choices, got {class_label!r}")
    return _hit(right, answer, class_label)


def hit_of_answer(references: References, prediction: Answer, *, label: str) -> Hit:
    right, answer = answered_class(references, prediction)
    return _hit(right, answer, type(right)(label))


def _hits_of_choices(score: str) -> Callable[..., Mapping[str, Hit]]:
    def hits(result: MCResult, *, labels: Sequence[str] | None = None) -> Mapping[str, Hit]:
        right, answer = chosen_class(result)
        return {class_name(score, label): _hit(right, answer, label) for label in labels or result.choices}

    return hits


def _hits_of_answers(score: str) -> Callable[..., Mapping[str, Hit]]:
    def hits(references: References, prediction: Answer, *, labels: Sequence[str]) -> Mapping[str, Hit]:
        right, answer = answered_class(references, prediction)
        return {class_name(score, label): _hit(right, answer, type(right)(label)) for label in labels}

    return hits


def class_name(score: str, label: str | int) -> str:
    """The name of the score of one class. A comma would be taken for the one before the name of the filter."""
    return f"{score}[{str(label).replace(',', ';')}]"


def _names(score: str) -> Callable[..., Sequence[str] | None]:
    def names(*, labels: Sequence[str] | None = None) -> Sequence[str] | None:
        _check(labels)
        return [class_name(score, label) for label in labels] if labels else None

    return names


def _one_name(*, label: UserValue = None, labels: UserValue = None) -> Sequence[str]:
    """No names but the metric's own; the labels are checked."""
    _check(None if label is None else [label])
    _check(labels)
    return ()


def _check(labels: UserValue) -> None:
    """Labels are a list of words or numbers. An unquoted yes or no is none of them: YAML takes it for a truth."""
    if labels is None:
        return
    if not isinstance(labels, list | tuple) or not labels:
        raise ValueError(f"labels must be a list of classes, got {labels!r}")
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, str | int):
            raise ValueError(f"a label must be a word or an integer, got {label!r}: put it in quotes if it is a word")


CLASS_METRICS: dict[str, Metric] = {
    **{
        score: Metric(
            {CHOICE: hit_of_choice, GENERATE: hit_of_answer}, f"class_{score}", gives=_one_name, sentence=sentence
        )
        for score, sentence in (
            ("precision", "Share of the answers with one label that are right."),
            ("recall", "Share of the documents with one label that are answered so."),
        )
    },
    **{
        f"{score}_by_class": Metric(
            {CHOICE: _hits_of_choices(score), GENERATE: _hits_of_answers(score)},
            f"class_{score}",
            gives=_names(score),
            sentence=f"{score.capitalize()} of each class, one row each.",
        )
        for score in SCORES
    },
    **{
        f"{average}_{score}": Metric(
            {CHOICE: chosen_class, GENERATE: answered_class},
            f"{average}_{score}",
            gives=_one_name,
            sentence=CLASS_SENTENCES[f"{average}_{score}"],
        )
        for average in AVERAGES
        for score in SCORES
    },
}


def _adopted(name: str, thing: UserValue) -> Metric:
    """A metric, or a function of references and a prediction as one."""
    declared = thing if isinstance(thing, Metric) else Metric({GENERATE: must_be_callable(name, thing)})
    for output_type, function in declared.functions.items():
        if output_type == GENERATE:
            _refuse_unfit(name, function)
        else:
            METRICS.refuse_shape(function, 1)
    return declared


def _refuse_unfit(name: str, function: UserFunction) -> None:
    """Refuse a function that no task could call; the parameters after the first may be set in a file."""
    try:
        read_call(function, list(accepted(function, 1).named))
    except Unfit as error:
        what = f"{name!r} cannot be used as metric, which must take (references, prediction, …): {error}"
        raise TypeError(f"{what} — {error.fix}") from None


READ_EVERY_LIKELIHOOD = frozenset({
    "brier_score", "likelihood", "logprob", "bpb", "choice_logprob", "choice_prob_norm", "choice_logprob_norm",
    "ece", "brier_reliability", "brier_resolution", "brier_uncertainty", "selective_accuracy", "risk_coverage_area", "roc_auc",
    "pr_auc", "ndcg", "mrr", "recall_at_k", "precision_at_k",
})  # fmt: skip
"""Metrics of choices that depend on more than which choice is the likeliest."""

METRICS: Registry[Metric, Callable[[Any], Any]] = Registry(
    "metric",
    {
        **LM_EVAL_METRICS,
        **TEXT_METRICS,
        **MATH_METRICS,
        **CLASS_METRICS,
        **CONFIDENCE_METRICS,
        **STRUCTURED_METRICS,
        **CODE_METRICS,
    },
    group="assay.metrics",
    supplied=("references", "prediction"),
    adopt=_adopted,
)
