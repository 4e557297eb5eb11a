"""Aggregations: the values of all documents to one number. Sums run from left to right, so that results can be equal to the bit."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import zip_longest
from typing import Any

import numpy as np

from assay.records import Floats, MetricValue, Params, UserFunction, UserValue
from assay.registry import Registry, must_be_callable
from assay.signatures import Accepted, accepted, typed_by_default
from assay.statistics.agreement import AGREEMENT_AGGREGATIONS
from assay.statistics.calibration import (
    BIASES,
    BRIER_SENTENCES,
    CALIBRATION_AGGREGATIONS,
    CurvePoint,
    reliability_curve,
)
from assay.statistics.classes import CLASS_AGGREGATIONS, CLASS_SENTENCES, MACRO_AVERAGES, binary_influence
from assay.statistics.influence import COUNT, PERCENT, SHARE, Bounds

Values = Sequence[MetricValue]
"""The values of one metric, in the order of documents."""


class Repeated(list[Any]):
    """The scores of a document's answers, where a filter leaves several: distinguished from a score that is a list."""


def total(values: Values) -> float:
    """The sum, from left to right in double precision, whatever the Python version makes of `sum`."""
    return float(np.cumsum(np.asarray(values, dtype=np.float64))[-1]) if len(values) else 0.0


def mean(values: Values) -> float:
    """The mean of the values."""
    return total(values) / len(values)


def median(values: Values) -> float:
    """The middle value; of an even number of values, the mean of the two in the middle."""
    return float(statistics.median(values))


def median_high(values: Values) -> float:
    """The middle value; of an even number of values, the greater of the two in the middle, as lm-eval has it."""
    return float(statistics.median_high(values))


def nanmean(values: Values) -> float:
    """The mean of the values that are not NaN."""
    return float(np.nanmean(values)) if len(values) and not np.all(np.isnan(values)) else math.nan


def perplexity(values: Values) -> float:
    """e to the negative mean of log-likelihoods."""
    return _exp(-mean(values))


def weighted_mean(values: Values) -> float:
    return total([above for above, _ in values]) / total([below for _, below in values])


def weighted_perplexity(values: Values) -> float:
    """e to the negative log-likelihoods over all units, such as words or bytes."""
    return _exp(-weighted_mean(values))


def error_rate(values: Values) -> float:
    """All edits over all units of the references."""
    if not any(below for _, below in values):
        raise ValueError("all references are empty, so that errors have no rate")
    return weighted_mean(values)


def bits_per_byte(values: Values) -> float:
    """Negative log-likelihoods in bits over all bytes."""
    return -weighted_mean(values) / math.log(2)


def _exp(power: float) -> float:
    try:
        return math.exp(power)
    except OverflowError:
        return math.inf


def brier_score(values: Values) -> float:
    """Mean squared distance of forecasts from what was right."""
    golds, predictions = zip(*values, strict=True)
    one_hot = np.eye(len(predictions[0]))[list(golds)]
    return float(np.mean(np.sum((np.array(predictions) - one_hot) ** 2, axis=1)))


def f1(values: Values) -> float:
    """F1 of two classes, as scikit-learn computes it."""
    from sklearn.metrics import f1_score

    golds, predictions = zip(*values, strict=True)
    return float(np.max(f1_score(golds, predictions)))


def matthews_corrcoef(values: Values) -> float:
    """Matthews' correlation coefficient, as scikit-learn computes it."""
    from sklearn.metrics import matthews_corrcoef as correlation

    golds, predictions = zip(*values, strict=True)
    return float(correlation(golds, predictions))


def bleu(values: Values) -> float:
    """BLEU of sacrebleu, of all documents at once."""
    import sacrebleu

    references, predictions = _streams(values)
    return float(sacrebleu.corpus_bleu(predictions, references).score)


def chrf(values: Values, word_order: int = 0) -> float:
    """chrF of sacrebleu, of all documents at once."""
    import sacrebleu

    references, predictions = _streams(values)
    return float(sacrebleu.corpus_chrf(predictions, references, word_order=word_order).score)


def chrf_with_words(values: Values) -> float:
    """chrF++ of sacrebleu, of all documents at once."""
    return chrf(values, word_order=2)


def ter(values: Values) -> float:
    """Translation edit rate of sacrebleu, of all documents at once."""
    import sacrebleu

    references, predictions = _streams(values)
    return float(sacrebleu.corpus_ter(predictions, references).score)


def _streams(values: Values) -> tuple[list[tuple[str, ...]], list[str]]:
    """References as sacrebleu wants them: a stream for the first of each document, and so on; None for no more."""
    references = [[reference] if isinstance(reference, str) else list(reference) for reference, _ in values]
    predictions = [prediction if isinstance(prediction, str) else prediction[0] for _, prediction in values]
    return list(zip_longest(*references)), predictions


def acc_all(values: Values) -> float:
    """The share of questions of which every answer was judged rightly."""
    return mean(_all_right(values))


def _all_right(values: Values) -> list[bool]:
    """By question, from judgements with their documents: those of MultiRC, where a document is one answer."""
    questions: dict[tuple[object, object], bool] = {}
    for judged, doc in values:
        question = doc["idx"]["paragraph"], doc["idx"]["question"]
        questions[question] = questions.get(question, True) and (doc["label"] == 1) == judged
    return list(questions.values())


def krippendorff_alpha(values: Values) -> float:
    """Krippendorff's alpha of interval data: 1 where all agree, 0 where they agree as by chance, less where they do worse.

    A value is a document's list of units, and a unit the numbers that judges gave to one answer; None for a judge that
    gave none. A unit with one number says nothing about agreement.

    >>> round(krippendorff_alpha([[[1, 1]], [[2, 2]], [[3, 4]]]), 4)
    0.878
    """
    units = [_numbers(unit) for document in values for unit in document]
    paired = [unit for unit in units if len(unit) > 1]
    if not paired:
        raise ValueError("no answer has two verdicts")
    count = sum(map(len, paired))
    observed = sum(_differences(unit) / (len(unit) - 1) for unit in paired) / count
    expected = _differences(np.concatenate(paired)) / (count * (count - 1))
    if expected == 0:
        raise ValueError("all verdicts are the same, so that agreement cannot be distinguished from chance")
    return 1 - observed / expected


def _numbers(unit: Sequence[float | None]) -> Floats:
    return np.array([each for each in unit if each is not None and not math.isnan(each)], dtype=np.float64)


def _differences(numbers: Floats) -> float:
    """The sum of squared differences over all ordered pairs; from the center, so that little precision is lost."""
    return float(2 * len(numbers) * ((numbers - numbers.mean()) ** 2).sum())


def bypass(values: Values) -> float:  # noqa: ARG001  # nothing was scored
    """No number: for runs that only ask."""
    return 999


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A way to one number. `influence` gives a value per document whose mean varies as the number does, where known."""

    name: str
    function: Callable[[Values], float]
    influence: Callable[[Values], Floats] | None = None
    bootstrap_limit: int | None = None
    needs: str | None = None
    of_numbers: bool = False
    """Whether the values must be numbers; else they are what a metric made for it."""
    weights: Callable[[Values], Floats] | None = None
    """Weight of each document in the number, where they differ: long documents count for more in a perplexity by words."""
    bounds: Bounds | None = None
    """Bounds of the values, where a metric declares them, and so of their mean."""
    by_repeat: bool = False
    """Whether a value may have one for each repeat: see `over_repeats`."""
    curve: Callable[[Values], Sequence[CurvePoint]] | None = None
    """The reliability curve that the number sums up, where it does."""
    bias: Callable[[Values], float] | None = None
    """How much too large the number is to be expected of so few documents, where that matters."""
    sentence: str = ""
    """The sentence for `assay ls`, where several share a function: else it is the first line of its docstring."""

    def __call__(self, values: Values) -> float:
        return self.function(values)

    def bound(self, kwargs: Params) -> "Aggregation":
        """The same with parameters."""
        influence = partial(self.influence, **kwargs) if self.influence is not None else None
        curve = partial(self.curve, **kwargs) if self.curve is not None else None
        bias = partial(self.bias, **kwargs) if self.bias is not None else None
        return replace(self, function=partial(self.function, **kwargs), influence=influence, curve=curve, bias=bias)


AggregationOrFunction = Aggregation | UserFunction
"""An aggregation of the registry, or a function of the values from user code."""
BOUNDS: Mapping[str, Bounds] = {
    "perplexity": (1.0, math.inf),
    **{name: bounds for name, (_, _, bounds) in (CALIBRATION_AGGREGATIONS | AGREEMENT_AGGREGATIONS).items()},
    "error_rate": (0.0, math.inf),
    "weighted_perplexity": (1.0, math.inf),
    "bits_per_byte": COUNT,
    "brier_score": (0.0, 2.0),
    "f1": SHARE,
    "matthews_corrcoef": (-1.0, 1.0),
    "bleu": PERCENT,
    "chrf": PERCENT,
    "chrf++": PERCENT,
    "ter": COUNT,
    "acc_all": SHARE,
    "krippendorff_alpha": (-math.inf, 1.0),
    **dict.fromkeys(CLASS_AGGREGATIONS, SHARE),
    **dict.fromkeys(MACRO_AVERAGES, SHARE),
}
"""Bounds of the numbers of an aggregation: likelihoods are at most 1, shares are between 0 and 1."""


def _present(values: Values) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    return numbers[~np.isnan(numbers)]


def _perplexity_influence(values: Values) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    return -perplexity(values) * numbers


def _ratio_influence(values: Values) -> Floats:
    above, below = (np.asarray(column, dtype=np.float64) for column in zip(*values, strict=True))
    influence: Floats = (above - weighted_mean(values) * below) / below.mean()
    return influence


def _ratio_weights(values: Values) -> Floats:
    return np.asarray([below for _, below in values], dtype=np.float64)


def _brier_influence(values: Values) -> Floats:
    golds, predictions = zip(*values, strict=True)
    influence: Floats = np.sum((np.array(predictions) - np.eye(len(predictions[0]))[list(golds)]) ** 2, axis=1)
    return influence


def _adopted(name: str, thing: UserValue) -> Aggregation:
    """An aggregation, or a function of all values as one."""
    if isinstance(thing, Aggregation):
        return thing
    function: Callable[[Values], float] = must_be_callable(name, thing)
    AGGREGATIONS.refuse_shape(function, 1)
    return Aggregation(name, function)


class _Aggregations(Registry[Aggregation, Aggregation]):
    def accepts(self, member: Aggregation | UserFunction) -> Accepted:
        if isinstance(member, Aggregation):
            return accepted(member.function, 1)
        return typed_by_default(accepted(member, 1))


AGGREGATIONS = _Aggregations(
    "aggregation",
    {
        each.name: each
        for each in (
            Aggregation("mean", mean, lambda values: np.asarray(values, dtype=np.float64), of_numbers=True),
            Aggregation("median", median, of_numbers=True),
            Aggregation("median_high", median_high, of_numbers=True),
            Aggregation("nanmean", nanmean, influence=_present, of_numbers=True),
            Aggregation("perplexity", perplexity, influence=_perplexity_influence, of_numbers=True),
            Aggregation(
                "weighted_perplexity",
                weighted_perplexity,
                lambda v: -weighted_perplexity(v) * _ratio_influence(v),
                weights=_ratio_weights,
            ),
            Aggregation(
                "bits_per_byte", bits_per_byte, lambda v: -_ratio_influence(v) / math.log(2), weights=_ratio_weights
            ),
            Aggregation("brier_score", brier_score, influence=_brier_influence),
            Aggregation("f1", f1, binary_influence, needs="sklearn.metrics"),
            Aggregation("matthews_corrcoef", matthews_corrcoef, needs="sklearn.metrics"),
            Aggregation("bleu", bleu, bootstrap_limit=100, needs="sacrebleu"),
            Aggregation("chrf", chrf, bootstrap_limit=100, needs="sacrebleu"),
            Aggregation("chrf++", chrf_with_words, bootstrap_limit=100, needs="sacrebleu"),
            Aggregation("ter", ter, bootstrap_limit=100, needs="sacrebleu"),
            Aggregation("acc_all", acc_all, influence=lambda values: np.asarray(_all_right(values), dtype=np.float64)),
            *(
                Aggregation(name, function, influence, sentence=CLASS_SENTENCES[name])
                for name, (function, influence) in CLASS_AGGREGATIONS.items()
            ),
            *(
                Aggregation(
                    name,
                    function,
                    influence,
                    curve=reliability_curve if name == "ece" else None,
                    bias=BIASES.get(name),
                    sentence=BRIER_SENTENCES.get(name, ""),
                )
                for name, (function, influence, _) in (CALIBRATION_AGGREGATIONS | AGREEMENT_AGGREGATIONS).items()
            ),
            Aggregation("error_rate", error_rate, _ratio_influence, weights=_ratio_weights),
            Aggregation("krippendorff_alpha", krippendorff_alpha),
            Aggregation("bypass", bypass),
        )
    },
    group="assay.aggregations",
    supplied=("values",),
    adopt=_adopted,
    build=lambda aggregation, **params: aggregation.bound(params) if params else aggregation,
)


MEANS = ("mean", "nanmean")
MEDIANS = ("median", "median_high")
BETWEEN = (*MEANS, *MEDIANS)
"""Aggregations whose number is between the least and the greatest value."""


def within(aggregation: AggregationOrFunction | None, bounds: Bounds | None) -> AggregationOrFunction | None:
    """The aggregation of values with these bounds."""
    known = known_aggregation(aggregation)
    if bounds is None or not isinstance(known, Aggregation) or known.name not in BETWEEN:
        return aggregation
    return replace(known, bounds=bounds)


def known_aggregation(aggregation: AggregationOrFunction | None) -> AggregationOrFunction:
    """The aggregation; the mean if none is given, and the registry's entry if helper code passes back one of its functions."""
    if aggregation is None:
        return AGGREGATIONS["mean"]
    if isinstance(aggregation, Aggregation):
        return aggregation
    return next((each for each in AGGREGATIONS.values() if each.function is aggregation), aggregation)


def over_repeats(
    aggregation: AggregationOrFunction, repeats: int, kind: type[list[MetricValue]] = Repeated
) -> AggregationOrFunction:
    """The aggregation of values of which each may have one per repeat: its mean over the repeats.

    Resamples draw a document with all its repeats. There are fewer of them where each takes as long as `repeats` do.

    >>> over_repeats(lambda pairs: float(len(pairs)), 2)([Repeated([("a", "a"), ("a", "b")]), Repeated([("c", "c"), ("c", "c")])])
    2.0
    """
    if not isinstance(aggregation, Aggregation):
        return wraps(aggregation)(partial(_mean_over_repeats, aggregation, kind))
    influence, limit = aggregation.influence, aggregation.bootstrap_limit
    return replace(
        aggregation,
        function=partial(_mean_over_repeats, aggregation.function, kind),
        influence=partial(_influence_over_repeats, influence, kind) if influence is not None else None,
        bootstrap_limit=max(50, limit // repeats) if limit is not None else None,
        by_repeat=True,
        curve=None,
        bias=None,
    )


def _mean_over_repeats(function: UserFunction, kind: type[list[MetricValue]], values: Values) -> MetricValue:
    numbers = [function(each) for each in _by_repeat(values, kind)]
    if len(numbers) == 1:
        return numbers[0]
    if all(isinstance(each, Mapping) for each in numbers):
        return {name: mean([each[name] for each in numbers]) for name in numbers[0]}
    return mean(numbers)


def _influence_over_repeats(
    influence: Callable[[Values], Floats], kind: type[list[MetricValue]], values: Values
) -> Floats:
    mean_influence: Floats = np.mean([influence(each) for each in _by_repeat(values, kind)], axis=0)
    return mean_influence


def _by_repeat(values: Values, kind: type[list[MetricValue]]) -> list[Values]:
    """The values of the first repeat of all documents, of the second, and so on; a value without repeats is in each."""
    counts = {len(each) for each in values if type(each) is kind}
    if len(counts) > 1:
        raise ValueError(f"documents have {min(counts)} to {max(counts)} answers, so no repeat has one of each")
    each_repeat = range(counts.pop() if counts else 1)
    return [[each[at] if type(each) is kind else each for each in values] for at in each_repeat]
