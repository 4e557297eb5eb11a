"""How a user's own metric is called: by the names of its parameters, read from its signature and never found out by trying.

`references` is given all references at once, `reference` one after the other, of which the best value counts; `prediction`
is one answer, `predictions` a list of one. A single parameter of another name is given lm-eval's pair of both.
"""

import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, get_args, get_origin

from assay.dialect import OURS, Dialect
from assay.records import (
    Answer,
    Failed,
    MetricValue,
    Params,
    UserFunction,
    UserValue,
    number,
)
from assay.scoring.results import GenResult, MCResult, Reference, References
from assay.scoring.scores import Repeated, as_list, describe
from assay.signatures import Accepted, accepted, read_signature, typed_by_default, unreturned
from assay.user_code import TIME_LIMIT, timed

Compute = Callable[[Any], MetricValue]
"""Computes the value of a metric from the result of a document."""
ScoreAnswer = Callable[[Any, Answer], MetricValue]
"""Compares one reference, or all, with an answer."""
Parameters = Mapping[str, inspect.Parameter]
GOLD, GOLDS, ANSWER, ANSWERS = "reference", "references", "prediction", "predictions"
ONE_SIDE = frozenset({
    "pred", "preds", "answer", "answers", "response", "responses", "output", "outputs", "completion", "generation", "hypothesis",
    "gold", "golds", "target", "targets", "ref", "refs", "label", "labels", "truth", "expected", "text", "doc",
})  # fmt: skip
"""Names of one side: a function of such a parameter alone does not expect a pair."""
NESTED = re.compile(r"(typing\.)?(list|sequence)\[\s*(typing\.)?(list|sequence)\b", re.IGNORECASE)
REMEDY = "name its parameters `references` (all at once) or `reference` (one by one), and `prediction`"


class Unfit(ValueError):
    """Why a function cannot be a metric, and the fix."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class MetricCall:
    """How one function is called. Without a name for the answer it is given `pair`, a list of reference and answer."""

    function: UserFunction
    gold: str = GOLDS
    answer: str = ANSWERS
    pair: str = ""
    sees_repeats: bool = False
    """Whether it is called once for all answers of a document, `predictions=[[…]]`."""
    takes: Accepted = Accepted({}, takes_any=True)
    """The parameters that a file may set."""

    @property
    def sees_references(self) -> bool:
        """Whether it is given all references at once, so that their order must not matter."""
        return self.gold == GOLDS

    @property
    def is_called_by_lm_eval(self) -> bool:
        """Whether lm-eval could call it: with a pair, or with `references` and `predictions`."""
        return bool(self.pair) or (self.gold, self.answer) == (GOLDS, ANSWERS)

    def computing(self, kwargs: Params, named: str, *, higher_is_better: bool | None) -> Compute:
        """The metric of a result: called for each answer; where it is called for each reference, the best value counts."""
        score = self._scoring(kwargs)
        if self.pair or self.gold == GOLD:
            score = _best_reference(score, named, higher_is_better)
        else:
            score = _with_references(score, named)
        if self.sees_repeats:
            return lambda result: score(result.references, result.results)
        return of_answers(score, _single)

    def by_each_reference(self, kwargs: Params, named: str, *, higher_is_better: bool | None) -> Compute:
        """The metric of a result, called as lm-eval does it: for each reference, with all answers of a document in one."""
        score = self._scoring(kwargs) if self.pair else _by_names(self.function, kwargs)

        def compute(result: GenResult) -> MetricValue:
            scores = [score(reference, result.answer) for reference in result.references]
            if result.any_counts:
                return 1.0 if any(each[named] if isinstance(each, Mapping) else each for each in scores) else 0.0
            return best(scores, higher_is_better=higher_is_better, metric=named)

        return compute

    def for_one_reference(self) -> "MetricCall":
        """The same for a metric that wants lists of one reference and one answer."""
        return replace(self, gold=GOLD, function=_of_lists(self.function))

    def _scoring(self, kwargs: Params) -> ScoreAnswer:
        function, gold, answer_name, pair = self.function, self.gold, self.answer, self.pair
        if pair:
            return lambda reference, answer: function([reference, answer], **kwargs)
        as_list = answer_name == ANSWERS
        if as_list:
            return lambda reference, answer: function(**{gold: reference, answer_name: [answer]}, **kwargs)
        return lambda reference, answer: function(**{gold: reference, answer_name: answer}, **kwargs)


def read_call(function: UserFunction, written: Collection[str] = (), *, dialect: Dialect = OURS) -> MetricCall:
    """Read how a metric wants to be called; `written` are the parameters that a file sets. What cannot be one raises `Unfit`.

    >>> read_call(lambda references, prediction, *, weight=0.5: 0).answer, read_call(lambda items: 0).pair
    ('prediction', 'items')
    """
    refuse_kind(function)
    try:
        parameters = read_signature(function).parameters
    except (TypeError, ValueError):
        return MetricCall(function)
    takes = typed_by_default(accepted(function))
    known = {name for name in (GOLD, GOLDS, ANSWER, ANSWERS) if name in takes.named}
    if not known or (len(known) == 1 and dialect.calls_metrics_as_lm_eval):
        return _without_names(function, parameters, takes, written, dialect)
    gold = next((name for name in (GOLDS, GOLD) if name in known), "")
    answer = next((name for name in (ANSWER, ANSWERS) if name in known), "")
    if not answer or not gold:
        lacking = ANSWER if gold else GOLDS
        others = [name for name in _required(parameters, written) if name not in known]
        what = f"it takes {_listed([gold or answer, *others])}, and none is named `{lacking}`"
        raise Unfit(what, f"call {others[0]!r} `{lacking}`" if others else f"add a parameter `{lacking}`")
    own = {name: each for name, each in takes.named.items() if name not in (gold, answer)}
    nested = answer == ANSWERS and _is_nested(parameters[ANSWERS].annotation)
    if gold == GOLDS and answer == ANSWERS and _is_nested(parameters[GOLDS].annotation):
        function = _of_reference_lists(function)
    return MetricCall(function, gold, answer, "", nested, replace(takes, named=own))


def _without_names(
    function: UserFunction, parameters: Parameters, takes: Accepted, written: Collection[str], dialect: Dialect
) -> MetricCall:
    """A function with none of the known names: lm-eval's, of a pair, or one that takes any name."""
    kinds = {each.kind for each in parameters.values()}
    positional = [
        n for n, each in parameters.items() if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    required = _required(parameters, written)
    if GOLDS in required and GOLDS not in takes.named:
        raise Unfit("its parameters cannot be given by name", "remove the `/` from its signature")
    if len(required) > 1:
        what = f"it takes {_listed(required)}: which is the reference, and which the answer, is unknown"
        raise Unfit(what, REMEDY)
    is_one_side = bool(required) and (required[0] in ONE_SIDE or required[0] not in positional[:1])
    if is_one_side and not dialect.calls_metrics_as_lm_eval:
        raise Unfit(f"it takes {required[0]!r} alone, and would be given the pair [reference, answer]", REMEDY)
    if not required and takes.takes_any:
        return MetricCall(function, takes=takes)
    free = [name for name in positional if name not in written]
    if not free and inspect.Parameter.VAR_POSITIONAL not in kinds:
        raise Unfit("it takes neither a reference nor an answer", REMEDY)
    own = {name: each for name, each in takes.named.items() if name not in positional[:1]}
    return MetricCall(function, "", "", free[0] if free else "items", False, replace(takes, named=own))


def refuse_kind(function: UserFunction) -> None:
    """Refuse what returns no value when it is called: coroutines, generators, classes."""
    wrong = unreturned(function)
    if wrong is not None:
        raise Unfit(f"it {wrong[0]}", wrong[1])
    if inspect.isclass(function) and not getattr(function, "is_unknown", False):
        raise Unfit("it is a class", "name a function, or an object that can be called")


def _required(parameters: Parameters, written: Collection[str]) -> list[str]:
    """The parameters that have no default and no value in the file."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind not in variable and name not in written
    ]


def _listed(names: Sequence[str]) -> str:
    return f"({', '.join(names)})"


def _is_nested(hint: UserValue) -> bool:
    """Whether `predictions` is annotated as a list of lists: then it wants all answers of a document at once.

    >>> _is_nested(list[list[str]]), _is_nested(list[str]), _is_nested("List[List[str]]")
    (True, False, True)
    """
    if isinstance(hint, str):
        return NESTED.match(hint.strip()) is not None
    lists = (list, Sequence)
    return get_origin(hint) in lists and any((get_origin(inner) or inner) in lists for inner in get_args(hint))


def of_answers(score: ScoreAnswer, single: Callable[[MetricValue], MetricValue] | None = None) -> Compute:
    """A metric of references and an answer as one of results; of several answers it gives the score of each.

    `single` makes a number of what a user's metric returns for one of them.
    """

    def compute(result: GenResult) -> MetricValue:
        answer = result.answer
        if not isinstance(answer, list):
            return score(result.references, answer)
        if not answer:
            raise ValueError("the filter leaves no answer")
        scores = [score(result.references, each) for each in answer]
        return Repeated(scores if single is None else map(single, scores))

    return compute


def of_choice(compute: Compute) -> Compute:
    """A metric of text as one of choices: the answer is the likeliest choice, the references are the right ones."""

    def computed(result: MCResult) -> MetricValue:
        targets = result.target if result.has_several else [result.target]
        return compute(GenResult(result.doc, [result.choices[each] for each in targets], result.results[0]))

    return computed


def _single(value: MetricValue) -> MetricValue:
    """The number of a list of one: the value of the only answer that the metric was given."""
    items = as_list(value)
    return items[0] if items is not None and len(items) == 1 and number(items[0]) is not None else value


def _best_reference(score: ScoreAnswer, named: str, higher_is_better: bool | None) -> ScoreAnswer:
    def best_score(references: References, answer: Answer) -> MetricValue:
        scores = [score(reference, answer) for reference in references]
        return best(scores, higher_is_better=higher_is_better, metric=named)

    return best_score


def _with_references(score: ScoreAnswer, named: str) -> ScoreAnswer:
    """The references are a copy: what one metric does to them, the next does not see."""

    def scored(references: References, answer: Answer) -> MetricValue:
        if not references:
            return Failed(f"scoring: metric {named!r}: the document has no reference")
        return score(list(references), answer)

    return scored


def _by_names(function: UserFunction, kwargs: Params) -> ScoreAnswer:
    return lambda reference, answer: function(references=[reference], predictions=[answer], **kwargs)


def _of_reference_lists(function: UserFunction) -> UserFunction:
    """A function that takes a list of references for each answer, as `evaluate` hands them over."""

    @wraps(function)
    def called(*, references: Sequence[Reference], predictions: Sequence[Answer], **kwargs: UserValue) -> MetricValue:
        return function(references=[list(references)], predictions=predictions, **kwargs)

    return called


def _of_lists(function: UserFunction) -> UserFunction:
    def called(*, reference: Reference, predictions: Sequence[Answer], **kwargs: UserValue) -> MetricValue:
        return function(references=[reference], predictions=predictions, **kwargs)

    return called


# --- the order of references -----------------------------------------------------------------------------------------


def depends_on_order(compute: Compute, result: GenResult) -> tuple[MetricValue, MetricValue] | None:
    """The two different values of a metric for the references as they are and reversed; None where it gives one value.

    One that raises, gives no number, or gives another value when it is asked again is left to the run.
    """
    turned = replace(result, target=result.references[::-1])
    first, other = _tried(compute, result), _tried(compute, turned)
    if first is None or other is None or _same(first, other):
        return None
    again = _tried(compute, result)
    return (first, other) if again is not None and _same(first, again) else None


def _tried(compute: Compute, result: GenResult) -> MetricValue:
    value = timed(TIME_LIMIT, "", compute, result)
    if isinstance(value, Mapping):
        numbers = {str(key): number(each) for key, each in value.items()}
        return None if None in numbers.values() else numbers
    return None if isinstance(value, Failed) else number(_single(value))


def _same(one: MetricValue, other: MetricValue) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, Mapping) or isinstance(other, Mapping):
        return False
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(one) and math.isnan(other))


def best(values: Sequence[MetricValue], *, higher_is_better: bool | None, metric: str) -> MetricValue:
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
    odd = next((value for value, plain in zip(values, numbers, strict=True) if plain is None), values)
    if odd is not values:
        what = f"metric {metric!r} returns {describe(odd)} for each of several references, of which none is the best"
        return Failed(f"scoring: {what} — return a number")
    comparable = [each for each in numbers if each is not None and not math.isnan(each)]
    chosen = min if higher_is_better is False else max
    return chosen(comparable) if comparable else math.nan


def _by_answer(value: MetricValue) -> list[MetricValue] | None:
    """The items that may be a value for each answer: a list, or numbers in a tuple or an array; other tuples are one value."""
    items = as_list(value)
    is_list = isinstance(value, list) or (items is not None and all(number(each) is not None for each in items))
    return items if is_list else None
