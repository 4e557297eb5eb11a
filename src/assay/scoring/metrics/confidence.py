"""Metrics of what a model knows about its answers: the values that calibration, ROC curves and agreement are computed from."""

import math
from collections.abc import Callable, Sequence

from assay.records import Answer, UserValue
from assay.scoring.declarations import Metric
from assay.scoring.results import CHOICE, GENERATE, MCResult, Reference, References
from assay.statistics.agreement import KAPPA_WEIGHTS
from assay.statistics.calibration import BRIER_SENTENCES, likeliest
from assay.statistics.softmax import softmax

SURE = 1e300
"""The log-odds of a choice where no other has any likelihood."""


def confidence(result: MCResult) -> tuple[float, int]:
    """The share of the likeliest choice, and whether it is right."""
    share, best = likeliest(result.lls)
    return share, int(result.is_right(best))


def odds(result: MCResult) -> tuple[float, int]:
    """The log-odds of the likeliest choice, which differ where shares are all rounded to 1, and whether it is right."""
    best = max(range(len(result.lls)), key=result.lls.__getitem__)
    return log_odds(result.lls, best), int(result.is_right(best))


def log_odds(lls: Sequence[float], choice: int) -> float:
    """The logarithm of the likelihood of one choice over that of all others.

    >>> log_odds([-1.0, -900.0], 0)
    899.0
    """
    others = [value for place, value in enumerate(lls) if place != choice]
    highest = max(others, default=-math.inf)
    if lls[choice] == -math.inf or highest == -math.inf:
        return math.nan if lls[choice] == highest else math.copysign(SURE, lls[choice] - highest)
    return float(lls[choice] - highest - math.log(math.fsum(math.exp(value - highest) for value in others)))


def class_odds(result: MCResult, *, label: str | int | None = None) -> list[tuple[int, float]]:
    """Whether the right choice is the one with this label, and its log-odds: by default of the second of two choices, and of
    each of more."""
    right = _one_target(result)
    if label is None:
        places = [1] if len(result.choices) == 2 else [*range(len(result.choices))]
    elif label not in (result.choices if isinstance(label, str) else range(len(result.choices))):
        raise ValueError(f"label must be one of the choices, got {label!r}")
    else:
        places = [result.choices.index(label) if isinstance(label, str) else label]
    return [(int(right == place), log_odds(result.lls, place)) for place in places]


def forecast(result: MCResult) -> tuple[int, list[float]]:
    return _one_target(result), softmax(result.lls)


def chosen_place(result: MCResult) -> tuple[int, int]:
    """The places of the right choice and of the likeliest."""
    return _one_target(result), max(range(len(result.lls)), key=result.lls.__getitem__)


def _one_target(result: MCResult) -> int:
    if result.has_several:
        raise ValueError("the document has several right choices, and this metric is of one")
    return int(result.target)


def labels_of_answer(
    references: References, prediction: Answer, *, labels: Sequence[str | int] | None = None
) -> tuple[Reference, Answer]:
    """The reference and the answer; with `labels` their places in it."""
    right = _one_reference(references)
    if labels is None:
        return right, prediction
    known = [str(label) for label in labels]
    return _place(right, known, "reference"), _place(prediction, known, "answer")


def _place(label: Answer, known: Sequence[str], what: str) -> int:
    text = str(label).strip()
    if text not in known:
        raise ValueError(f"the {what} is none of the labels {', '.join(known)}")
    return known.index(text)


def numbers_of_answer(references: References, prediction: Answer) -> tuple[float, float]:
    """The numbers of the reference and of the answer."""
    return _number(_one_reference(references), "reference"), _number(prediction, "answer")


def _number(text: Answer, what: str) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"the {what} is not a number")
    return value


def _one_reference(references: References) -> Reference:
    if len(references) != 1:
        raise ValueError("the document has several references, and this metric is of one")
    return references[0]


def _checked(  # the parameters of all these metrics
    *, bins: UserValue = 1, equal_mass: UserValue = False, coverage: UserValue = 1.0, label: UserValue = None,
    labels: UserValue = None, weights: UserValue = "none",
) -> Sequence[str]:  # fmt: skip
    """No names but the metric's own; the parameters are checked."""
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise ValueError(f"bins must be 1 or more, got {bins!r}")
    if not isinstance(equal_mass, bool):
        raise ValueError(f"equal_mass must be true or false, got {equal_mass!r}")
    if isinstance(coverage, bool) or not isinstance(coverage, int | float) or not 0 < coverage <= 1:
        raise ValueError(f"coverage must be above 0 and at most 1, got {coverage!r}")
    if isinstance(label, bool):
        raise ValueError(f"a label must be a word or an integer, got {label!r}: put it in quotes if it is a word")
    if labels is not None and (
        not isinstance(labels, list | tuple) or len(set(map(str, labels))) < max(len(labels), 2)
    ):
        raise ValueError(f"labels must be a list of two or more different classes, got {labels!r}")
    if weights not in KAPPA_WEIGHTS:
        raise ValueError(f"weights must be {', '.join(KAPPA_WEIGHTS[:-1])} or {KAPPA_WEIGHTS[-1]}, got {weights!r}")
    return ()


def _choices(
    function: Callable[..., UserValue], aggregation: str, sentence: str, *, higher_is_better: bool = True
) -> Metric:
    return Metric({CHOICE: function}, aggregation, higher_is_better, gives=_checked, sentence=sentence)


CONFIDENCE_METRICS: dict[str, Metric] = {
    "ece": _choices(
        confidence,
        "ece",
        "Expected calibration error: confidence against accuracy, in bins; lower is better.",
        higher_is_better=False,
    ),
    "brier_reliability": _choices(
        forecast, "brier_reliability", BRIER_SENTENCES["brier_reliability"], higher_is_better=False
    ),
    "brier_resolution": _choices(forecast, "brier_resolution", BRIER_SENTENCES["brier_resolution"]),
    "brier_uncertainty": _choices(
        forecast, "brier_uncertainty", BRIER_SENTENCES["brier_uncertainty"], higher_is_better=False
    ),
    "selective_accuracy": _choices(odds, "selective_accuracy", "Accuracy on the most confident 80 % of the documents."),
    "risk_coverage_area": _choices(
        odds,
        "risk_coverage_area",
        "Mean share of wrong answers among the k most confident, over all k; lower is better.",
        higher_is_better=False,
    ),
    "roc_auc": _choices(class_odds, "roc_auc", "Area below the ROC curve."),
    "pr_auc": _choices(class_odds, "pr_auc", "Average precision: the area below the precision-recall curve."),
    "kappa": Metric(
        {CHOICE: chosen_place, GENERATE: labels_of_answer},
        "kappa",
        gives=_checked,
        sentence="Cohen's kappa: agreement of target and answer beyond chance.",
    ),
    "spearman": Metric(
        {CHOICE: chosen_place, GENERATE: numbers_of_answer},
        "spearman",
        gives=_checked,
        sentence="Rank correlation of target and answer.",
    ),
}
