"""The scores of one document: checked for what their aggregation takes, and those of several answers reduced to one."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from assay.dialect import OURS, Dialect
from assay.errors import Place
from assay.records import Answer, Answers, Failed, MetricValue, UserValue, exact, number
from assay.score_keys import metric_name_problem
from assay.scoring.reductions import MetricReductions, Reduction
from assay.scoring.results import GenResult, Reference, StepInput
from assay.statistics.aggregations import Repeated as Repeated
from assay.statistics.influence import Bounds
from assay.user_code import call_user_code

Scores = Mapping[str, MetricValue]
"""Values by row: one for the document, those of several answers (`Repeated`), or the failure of the row."""
ScoreDict = dict[str, MetricValue]
"""The same where rows are added."""


@dataclass(frozen=True, slots=True)
class BoundMetric:
    """A metric of a task, ready to be used: `compute` takes a result and gives its value."""

    name: str
    compute: Callable[[Any], MetricValue]
    aggregation: str | Callable[..., Any] | None
    higher_is_better: bool | None
    reductions: MetricReductions
    gives: Sequence[str] | None = ()
    """The names of its values, where it gives several; None where they are only known from the data."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `fn`: none, since parameters are bound already."""
    of: str = ""
    """The metric that it is, where `name` is that of its row."""
    sees_references: bool = False
    """Whether a user's function is given all references at once: their order must not matter."""
    place: Place = Place("metric_list")
    """Its location in the task's file."""
    bounds: Bounds | None = None
    """The least and the greatest score of a document, where they are known."""
    needs: Sequence[str] = ()
    """The modules of libraries that it and its aggregation import when they are first used."""

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows of its values, as far as they are known before documents are scored."""
        return tuple(self.gives or (self.name,))

    def added_rows(self, names: Sequence[str] = ()) -> list[str]:
        """The rows that its reductions add; `names` are those of its values, where documents have shown them."""
        return [
            added_row(self.name, row, reduction) for row in names or self.rows for reduction in self.reductions.added
        ]

    def fn(
        self,
        result: StepInput = None,
        *,
        references: Reference = None,
        predictions: Answers | None = None,
        **_: UserValue,
    ) -> MetricValue:
        """The metric as a function: of a result, or of references and a prediction."""
        if isinstance(result, list):  # lm-eval's form: a reference and an answer
            references, predictions = result[0], result[1:]
        elif result is not None:
            return self.compute(result)
        targets = references if isinstance(references, list) else [references]
        return self.compute(GenResult({}, targets, (predictions or [None])[0]))


def score_name(key: MetricValue) -> str:
    """The name that a key of user code's means: mostly it is a text already."""
    return key if type(key) is str else str(exact(key))


def as_list(value: MetricValue) -> list[MetricValue] | None:
    """The items of a list, a tuple or an array of one dimension; None of anything else."""
    if isinstance(value, list | tuple):
        return list(value)
    shape = getattr(value, "shape", ())
    return list(value) if type(value).__module__ == "numpy" and isinstance(shape, tuple) and len(shape) == 1 else None


def describe(value: MetricValue) -> str:
    """A value by its kind alone, so that equal mistakes have equal reasons and can be counted."""
    items = as_list(value)
    if items is not None:
        return f"a list of {len(items)}"
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return "None" if value is None else f"a value of type {type(value).__name__!r}"


# --- what an aggregation takes ---------------------------------------------------------------------------------------


class RowRule(NamedTuple):
    """What the aggregation of a row takes: whether scores must be numbers, and whether NaN, elsewhere a failure, is one."""

    is_averaged: bool
    takes_nan: bool = False


class ScoreRules(NamedTuple):
    """The checks of a task's scores: `row` gives the rule of a row and a filter."""

    row: Callable[[str, str], RowRule]
    dialect: Dialect = OURS


class _Unusable(Exception):
    """Why a value cannot be a score."""


def check_scores(
    scores: ScoreDict, answers: Answers, filter_name: str, rules: ScoreRules, by_answer: Collection[str] = ()
) -> ScoreDict:
    """Scores with a failure in place of every value that its aggregation cannot take; a list has a score for each answer.

    `answers` are those that were scored. For an aggregation that does not average, a value may be anything; in the rows of
    `by_answer`, a list may have such a value for each answer.
    """
    if _are_plain(scores, rules):
        return scores
    count = len(answers[0]) if len(answers) and isinstance(answers[0], list) else 1
    checked: ScoreDict = {}
    for key, value in scores.items():
        name = score_name(key)
        problem = None if rules.dialect.accepts_any_row_name else metric_name_problem(name)
        where = f"scoring: {name!r} of filter {filter_name!r}"
        if problem is not None:
            checked[name] = Failed(f"scoring: a row cannot be named {name!r}: {problem[0]} — {problem[1]}")
        elif name in checked:
            checked[name] = Failed(f"{where} was returned twice, under names of different types")
        elif isinstance(value, Failed):
            checked[name] = value
        else:
            is_averaged, takes_nan = rules.row(name, filter_name)
            try:
                if is_averaged:
                    checked[name] = _numbers(value, count, takes_nan=takes_nan)
                else:
                    checked[name] = _anything(value, count if name in by_answer else None, takes_nan=takes_nan)
            except _Unusable as error:
                checked[name] = Failed(f"{where} {error}")
    return checked


def _are_plain(scores: Scores, rules: ScoreRules) -> bool:
    """Whether there is nothing to look at: names that will do, and numbers, as nearly always."""
    any_name = rules.dialect.accepts_any_row_name
    for name, value in scores.items():
        kind = type(value)
        if kind is not float and not (kind is int and -(2**53) <= value <= 2**53):
            return False
        if value != value:  # NaN, in less time than math.isnan takes
            return False
        if type(name) is not str or not (any_name or metric_name_problem(name) is None):
            return False
    return True


def _anything(value: MetricValue, count: int | None, *, takes_nan: bool) -> MetricValue:
    """A value for an aggregation that does not average; a list of `count` has one for each answer."""
    if not takes_nan and _holds_nan(value):
        raise _Unusable("holds NaN, and its aggregation takes numbers")
    return as_repeated(value) if type(value) is list and len(value) == count else exact(value)


def _numbers(value: MetricValue, count: int, *, takes_nan: bool) -> MetricValue:
    """A number, or one for each of `count` answers."""
    items = as_list(value)
    if items is None:
        plain = _number(value, takes_nan=takes_nan)
        if plain is None:
            raise _Unusable(f"is {describe(value)}, and must be a number")
        return plain
    if len(items) != count:
        answers = "1 answer" if count == 1 else f"{count} answers"
        raise _Unusable(f"is a list of {len(items)} for {answers} — return a number, or one for each answer")
    numbers = [_number(item, takes_nan=takes_nan) for item in items]
    if None in numbers:
        raise _Unusable(f"is {describe(items[numbers.index(None)])} for an answer, and must be a number")
    return as_repeated(numbers)


def _holds_nan(value: MetricValue) -> bool:
    """Whether a value is NaN, or a pair or a list with NaN in it: the shares of choices that have no likelihood, say."""
    if isinstance(value, list | tuple):
        return any(map(_holds_nan, value))
    return isinstance(value, float) and math.isnan(value)


def _number(value: MetricValue, *, takes_nan: bool) -> int | float | None:
    plain = number(value)
    return None if plain is None or (math.isnan(plain) and not takes_nan) else plain


# --- several answers -------------------------------------------------------------------------------------------------


def as_repeated(values: list[MetricValue]) -> MetricValue:
    """The scores of several answers, marked as such; that of one answer alone."""
    return Repeated(values) if len(values) > 1 else values[0]


def by_answer(value: MetricValue, answers: Answers, name: str) -> MetricValue:
    """Mark the value of a scorer's own function: a list has a score for every answer, and is marked as what it is."""
    if not isinstance(value, list) or isinstance(value, Repeated):
        return value
    if len(value) != len(answers):
        what = f"a score for each of {len(answers)} answers was expected, and there are {len(value)}"
        return Failed(f"scoring: {name!r}: {what}")
    if any(as_list(item) is not None for item in value):
        return Failed(f"scoring: {name!r}: a number was expected for each answer, and there are lists")
    return as_repeated(value)


def by_name(values: Sequence[Scores], metric: str) -> Scores:
    """The values by name of each answer, as the values of all answers by name."""
    if any(not isinstance(value, Mapping) or value.keys() != values[0].keys() for value in values):
        return {metric: Failed(f"scoring: metric {metric!r} returns different names for several answers")}
    return {key: Repeated([value[key] for value in values]) for key in values[0]}


def added_row(source: str, row: str, reduction: str) -> str:
    """The row that a reduction adds for one of the rows of a metric or scorer.

    >>> added_row("exact_match", "exact_match", "pass@2"), added_row("rouge", "rouge1", "max")
    ('pass@2', 'max(rouge1)')
    """
    return reduction if row == source else f"{reduction}({row})"


def reduce_row(source: str, row: str, value: MetricValue, reductions: MetricReductions, answers: Answers) -> ScoreDict:
    """The rows that a score makes: its own, and those of the reductions of its repeats. `source` is its metric or scorer."""
    repeats: Sequence[MetricValue]
    if isinstance(value, Repeated):
        repeats, repeated_answers = value, answers[0] if isinstance(answers[0], list) else answers
    else:
        repeats, repeated_answers = [value], answers
    rows = {row: _reduce(row, reductions.plain, repeats, answers) if len(repeats) > 1 else repeats[0]}
    for name, reduction in reductions.added.items():
        added = added_row(source, row, name)
        rows[added] = _reduce(added, reduction, repeats, repeated_answers)
    return rows


def _reduce(row: str, reduction: Reduction, repeats: Sequence[MetricValue], answers: Answer) -> MetricValue:
    failed = next((score for score in repeats if isinstance(score, Failed)), None)
    if failed is not None:
        return failed
    return call_user_code(f"scoring: {row!r}", reduction, repeats, answers)
