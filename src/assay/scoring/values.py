"""The values that metrics, scorers and `process_results` return: numbers, or the reason that a row has none."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from assay.config.row_names import row_name_problem
from assay.records import Failed, exact, number
from assay.scoring.reductions import MetricReductions, Reduction
from assay.user_code import call_user_code


class Repeated(list[Any]):
    """The scores of a document's answers, where a filter leaves several: told apart from a score that is a list."""


def listed(value: Any) -> list[Any] | None:
    """The items of a list, a tuple or an array of one dimension; None of anything else."""
    if isinstance(value, list | tuple):
        return list(value)
    shape = getattr(value, "shape", ())
    return list(value) if type(value).__module__ == "numpy" and isinstance(shape, tuple) and len(shape) == 1 else None


def row_name(key: Any) -> str:
    """The name that a key of user code's means: mostly it is a text already."""
    return key if type(key) is str else str(exact(key))


def described(value: Any) -> str:
    """A value by its kind alone, so that equal mistakes have equal reasons and can be counted."""
    several = listed(value)
    if several is not None:
        return f"a list of {len(several)}"
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return "None" if value is None else f"a value of type {type(value).__name__!r}"


def best(values: Sequence[Any], *, higher_is_better: bool | None, metric: str) -> Any:
    """The best of a metric's values for several references: of values by name, each name for itself; of lists, each item.

    >>> best([{"a": 1.0, "b": 0.0}, {"a": 0.5, "b": 0.25}], higher_is_better=True, metric="m")
    {'a': 1.0, 'b': 0.25}
    """
    if not values:
        return Failed(f"scoring: metric {metric!r}: the document has no reference")
    if len(values) == 1:
        return values[0]
    if all(isinstance(each, Mapping) for each in values):
        if any(each.keys() != values[0].keys() for each in values):
            return Failed(f"scoring: metric {metric!r} returns different names for several references")
        return {
            key: best([each[key] for each in values], higher_is_better=higher_is_better, metric=metric)
            for key in values[0]
        }
    lists = [items for each in values if (items := _by_answer(each)) is not None]
    if len(lists) == len(values) and len(set(map(len, lists))) == 1:
        return [
            best(each, higher_is_better=higher_is_better, metric=metric) for each in map(list, zip(*lists, strict=True))
        ]
    numbers = [number(each) for each in values]
    odd = next((value for value, found in zip(values, numbers, strict=True) if found is None), values)
    if odd is not values:
        what = f"metric {metric!r} returns {described(odd)} for each of several references, of which none is the best"
        return Failed(f"scoring: {what} — return a number")
    comparable = [each for each in numbers if each is not None and not math.isnan(each)]
    chosen = min if higher_is_better is False else max
    return chosen(comparable) if comparable else math.nan


def _by_answer(value: Any) -> list[Any] | None:
    """What may be a value for each answer: a list, or numbers in a tuple or an array; other tuples are one value."""
    items = listed(value)
    is_list = isinstance(value, list) or (items is not None and all(number(each) is not None for each in items))
    return items if is_list else None


def usable(
    scores: Mapping[str, Any], answers: Any, filter_name: str, rules: "ScoreRules", *, by_answer: Collection[str] = ()
) -> Mapping[str, Any]:
    """Scores in which everything that no aggregation can take is the reason for that; lists have a score for each answer.

    `answers` are those that were scored. What an aggregation takes that does not average may be anything, but for the rows of
    `by_answer`: there a list may have such a value for each answer.
    """
    if _are_plain(scores, rules):
        return scores
    count = len(answers[0]) if len(answers) and isinstance(answers[0], list) else 1
    found: dict[str, Any] = {}
    for key, value in scores.items():
        name = row_name(key)
        problem = None if rules.lenient else row_name_problem(name)
        where = f"scoring: {name!r} of filter {filter_name!r}"
        if problem is not None:
            found[name] = Failed(f"scoring: a row cannot be named {name!r}: {problem[0]} — {problem[1]}")
        elif name in found:
            found[name] = Failed(f"{where} was returned twice, under names of different types")
        else:
            averaged = rules.is_averaged(name, filter_name)
            takes_nan = not averaged or rules.takes_nan(name, filter_name)
            made = _usable(value, count, averaged=averaged, by_answer=name in by_answer, takes_nan=takes_nan)
            found[name] = Failed(f"{where} {made}") if isinstance(made, _Unusable) else made
    return found


def _are_plain(scores: Mapping[str, Any], rules: "ScoreRules") -> bool:
    """Whether there is nothing to look at: names that will do, and numbers, as nearly always."""
    lenient = rules.lenient
    for name, value in scores.items():
        kind = type(value)
        if kind is not float and not (kind is int and -(2**53) <= value <= 2**53):
            return False
        if value != value:  # NaN, in less time than math.isnan takes
            return False
        if type(name) is not str or not (lenient or row_name_problem(name) is None):
            return False
    return True


class ScoreRules(NamedTuple):
    """What is asked of scores: `is_averaged` says of a row and a filter whether they must be numbers.

    `lenient` rules take every name. NaN is a failure, but for rows of which `takes_nan` says that their aggregation takes it.
    """

    is_averaged: Callable[[str, str], bool]
    lenient: bool = False
    takes_nan: Callable[[str, str], bool] = lambda metric, filter_name: False  # noqa: ARG005


class _Unusable(str):
    """Why a value is no score."""

    __slots__ = ()


def _usable(value: Any, count: int, *, averaged: bool, by_answer: bool, takes_nan: bool) -> Any:
    if isinstance(value, Failed):
        return value
    if not averaged:
        of_answers = by_answer and type(value) is list and len(value) == count
        return as_repeated(value) if of_answers else exact(value)
    several = listed(value)
    if several is None:
        found = _number(value, takes_nan=takes_nan)
        return found if found is not None else _Unusable(f"is {described(value)}, and must be a number")
    if len(several) != count:
        answers = "1 answer" if count == 1 else f"{count} answers"
        return _Unusable(f"is a list of {len(several)} for {answers} — return a number, or one for each answer")
    numbers = [_number(each, takes_nan=takes_nan) for each in several]
    odd = [each for each, known in zip(several, numbers, strict=True) if known is None]
    if odd:
        return _Unusable(f"is {described(odd[0])} for an answer, and must be a number")
    return as_repeated(numbers)


def _number(value: Any, *, takes_nan: bool) -> int | float | None:
    found = number(value)
    return None if found is None or (math.isnan(found) and not takes_nan) else found


def as_repeated(values: list[Any]) -> Any:
    """The scores of several answers, marked as such; that of one answer alone."""
    return Repeated(values) if len(values) > 1 else values[0]


def by_answer(value: Any, answers: Sequence[Any], name: str) -> Any:
    """What a scorer's own function returned: a list has a score for every answer, and is marked as what it is."""
    if not isinstance(value, list) or isinstance(value, Repeated):
        return value
    if len(value) != len(answers):
        what = f"a score for each of {len(answers)} answers was expected, and there are {len(value)}"
        return Failed(f"scoring: {name!r}: {what}")
    if any(listed(each) is not None for each in value):
        return Failed(f"scoring: {name!r}: a number was expected for each answer, and there are lists")
    return as_repeated(value)


def by_name(several: Sequence[Mapping[str, Any]], metric: str) -> Mapping[str, Any]:
    """The values by name of each answer, as the values of all answers by name."""
    if any(not isinstance(each, Mapping) or each.keys() != several[0].keys() for each in several):
        return {metric: Failed(f"scoring: metric {metric!r} returns different names for several answers")}
    return {key: Repeated([each[key] for each in several]) for key in several[0]}


def reduced_rows(name: str, value: Any, reductions: MetricReductions, answers: Any) -> dict[str, Any]:
    """The rows that a score makes: its own, and those of the reductions of its repeats."""
    if not isinstance(value, Repeated):
        repeats, given = [value], answers
    else:
        repeats, given = value, answers[0] if isinstance(answers[0], list) else answers
    rows = {name: _reduced(name, reductions.plain, repeats, answers) if len(repeats) > 1 else repeats[0]}
    return rows | {row: _reduced(row, reduce, repeats, given) for row, reduce in reductions.added.items()}


def _reduced(row: str, reduce: Reduction, repeats: Sequence[Any], answers: Any) -> Any:
    failed = next((each for each in repeats if isinstance(each, Failed)), None)
    if failed is not None:
        return failed
    return call_user_code(f"scoring: {row!r}", reduce, repeats, answers)
