"""Metrics of classification: what is right next to what was chosen, and for one class whether it was each of the two.

The names of classes are the words of the choices, or the answers that a filter leaves.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from assay.scoring.metrics.lm_eval import DeclaredMetric
from assay.scoring.results import CHOICE, GENERATE, MCResult
from assay.statistics.classes import AVERAGES, SCORES


class Hit(NamedTuple):
    """Of one document and one class: whether it was found, whether it was given, whether it was right."""

    found: int
    given: int
    right: int


def _hit(right: Any, given: Any, label: Any) -> Hit:
    return Hit(int(given == label == right), int(given == label), int(right == label))


def chosen_class(result: MCResult) -> tuple[str, str]:
    """The words of the right choice and of the likeliest."""
    if result.has_several:
        raise ValueError("a document of several right choices has no class")
    best = max(range(len(result.lls)), key=result.lls.__getitem__)
    return result.choices[result.target], result.choices[best]


def answered_class(references: Sequence[Any], prediction: Any) -> tuple[Any, Any]:
    """The reference and the answer."""
    if len(references) != 1:
        raise ValueError("a document of several references has no class")
    return references[0], prediction


def hit_of_choice(result: MCResult, *, label: str | int = 1) -> Hit:
    """Of one choice, by its number or its words; as in lm-eval's f1, the second where none is named."""
    right, given = chosen_class(result)
    wanted = result.choices[label] if isinstance(label, int) else label
    if wanted not in result.choices:
        raise ValueError(f"{wanted!r} is none of the choices")
    return _hit(right, given, wanted)


def hit_of_answer(references: Sequence[Any], prediction: Any, *, label: str) -> Hit:
    right, given = answered_class(references, prediction)
    return _hit(right, given, type(right)(label))


def _hits_of_choices(score: str) -> Callable[..., Mapping[str, Hit]]:
    def hits(result: MCResult, *, labels: Sequence[str] | None = None) -> Mapping[str, Hit]:
        right, given = chosen_class(result)
        return {class_name(score, label): _hit(right, given, label) for label in labels or result.choices}

    return hits


def _hits_of_answers(score: str) -> Callable[..., Mapping[str, Hit]]:
    def hits(references: Sequence[Any], prediction: Any, *, labels: Sequence[str]) -> Mapping[str, Hit]:
        right, given = answered_class(references, prediction)
        return {class_name(score, label): _hit(right, given, type(right)(label)) for label in labels}

    return hits


def class_name(score: str, label: object) -> str:
    """What the score of one class is called. A comma would be taken for the one before the name of the filter."""
    return f"{score}[{str(label).replace(',', ';')}]"


def _names(score: str) -> Callable[..., Sequence[str] | None]:
    def names(*, labels: Sequence[str] | None = None) -> Sequence[str] | None:
        _check(labels)
        return [class_name(score, label) for label in labels] if labels else None

    return names


def _one_name(*, label: object = None, labels: object = None) -> Sequence[str]:
    """No names but the metric's own; the labels are checked."""
    _check(None if label is None else [label])
    _check(labels)
    return ()


def _check(labels: object) -> None:
    """Labels are a list of words or numbers. An unquoted yes or no is none of them: YAML takes it for a truth."""
    if labels is None:
        return
    if not isinstance(labels, list | tuple) or not labels:
        raise ValueError(f"labels must be a list of classes, and are {labels!r}")
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, str | int):
            raise ValueError(f"{label!r} is no label: put it in quotes if it is a word")


CLASS_METRICS: dict[str, DeclaredMetric] = {
    **{
        score: DeclaredMetric({CHOICE: hit_of_choice, GENERATE: hit_of_answer}, f"class_{score}", gives=_one_name)
        for score in ("precision", "recall")
    },
    **{
        f"{score}_by_class": DeclaredMetric(
            {CHOICE: _hits_of_choices(score), GENERATE: _hits_of_answers(score)}, f"class_{score}", gives=_names(score)
        )
        for score in SCORES
    },
    **{
        f"{average}_{score}": DeclaredMetric(
            {CHOICE: chosen_class, GENERATE: answered_class}, f"{average}_{score}", gives=_one_name
        )
        for average in AVERAGES
        for score in SCORES
    },
}
