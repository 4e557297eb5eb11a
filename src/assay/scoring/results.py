"""Results and values: a document's answers next to what is right, the metrics that take them, and the values they return."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Never

from assay.dialect import OURS, Dialect
from assay.errors import Place, SelfExplanatory, some
from assay.records import (
    Answer,
    Answers,
    Failed,
    Likelihood,
    Loglikelihood,
    MetricValue,
    Params,
    Request,
    Response,
    Rolling,
    Sample,
    Text,
    UserValue,
    exact,
    number,
)
from assay.score_keys import metric_name_problem
from assay.scoring.reductions import MetricReductions, Reduction
from assay.statistics.aggregations import Repeated as Repeated
from assay.statistics.influence import Bounds
from assay.user_code import call_user_code

Scores = Mapping[str, MetricValue]
"""Values by row: one for the document, those of several answers (`Repeated`), or the failure of the row."""
ScoreDict = dict[str, MetricValue]
"""The same where rows are added."""
Reference = Any
"""A value that answers are compared with, from a column of data: usually text, or the index of a choice."""
References = Sequence[Reference]
"""All right answers of a document."""
ModelSpec = str | Params
"""A model as a task file writes it: its name, or `model` with `model_args`."""
ModelRoles = Mapping[str, ModelSpec | None]
"""By role the model that a scorer asks; None where the run names it."""
Filtered = Answers | Failed
"""The answers that a filter leaves of a document, or why there are none."""
StepInput = Any
"""The input of metrics and of `score`: a result, or what a user's class creates in its place."""
OUT_OF_RANGE = -100
"""A right answer that is none of the choices: lm-eval's number for it."""
CHOICE, LIKELIHOOD, ROLLING, GENERATE = "multiple_choice", "loglikelihood", "loglikelihood_rolling", "generate_until"


@dataclass(frozen=True, slots=True)
class Instance:
    """One request: `resps` are the raw responses to it, one per repeat; `filtered_resps` what each filter left of them.

    `target` is what an answer is compared with: one reference or several; of choices, the number of the right one.
    """

    doc: Mapping[str, Any]
    doc_id: int = 0
    args: tuple[Any, ...] = ()
    target: Any = None
    idx: int = 0
    resps: Sequence[Any] = ()
    filtered_resps: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    task_name: str = ""
    request_type: str = "generate_until"
    choices: Sequence[str] = ()

    @property
    def repeats(self) -> int:
        return len(self.resps)


class PartlyFiltered(dict[str, Answer]):
    """Answers by filter, where some filters failed: who looks at those, or at all of them, fails for the same reason."""

    def __init__(self, answers: Mapping[str, Answer], lost: Mapping[str, Failed]) -> None:
        super().__init__(answers)
        self._lost = lost

    def __missing__(self, name: str) -> Answer:
        raise SelfExplanatory(self._lost[name].reason) if name in self._lost else KeyError(name)

    def get(self, name: str, default: Answer = None) -> Answer:
        return self[name] if name in self or name in self._lost else default

    def _refuse(self) -> Never:
        raise SelfExplanatory(next(iter(self._lost.values())).reason)

    __iter__ = __len__ = keys = values = items = _refuse  # none of them can be complete


def sort_instances(instances: Sequence[Instance]) -> dict[int, list[Instance]]:
    """The instances of each document together, in the order of documents and of requests."""
    by_document: dict[int, list[Instance]] = {}
    for instance in sorted(instances, key=lambda each: (each.doc_id, each.idx)):
        by_document.setdefault(instance.doc_id, []).append(instance)
    return by_document


@dataclass(slots=True)
class Result:
    """A document with what is right about it; `scores` are those it was given, `instances` the requests it is of,
    `question` what was asked, where a scorer asks other models about it."""

    doc: Mapping[str, Any]
    target: Any
    scores: dict[str, Any] = field(default_factory=dict, kw_only=True)
    instances: Sequence[Instance] = field(default=(), kw_only=True)
    question: str = field(default="", kw_only=True)

    @property
    def results(self) -> list[Answer]:
        """Its answers."""
        return []


@dataclass(slots=True)
class MCResult(Result):
    """Choices with their log-likelihoods. `target` is the index of the right one, or a list where several are right."""

    choices: Sequence[str]
    lls: Sequence[float]
    is_greedy: Sequence[bool]
    lls_unconditional: Sequence[float] = ()

    @property
    def has_several(self) -> bool:
        return isinstance(self.target, list)

    @property
    def results(self) -> list[Answer]:
        """The likeliest choice."""
        return [self.choices[max(range(len(self.lls)), key=self.lls.__getitem__)]] if self.lls else []

    def is_right(self, choice: int) -> bool:
        return choice in self.target if isinstance(self.target, list) else choice == self.target

    @classmethod
    def from_instances(
        cls, instances: Sequence[Instance], filter_name: str | None = None, *, acc_mutual_info: bool = False
    ) -> "MCResult":
        """The result of a document's requests, one per choice; with `acc_mutual_info` as many more without context."""
        pairs = [_answer(instance, filter_name) for instance in instances]
        first, count = instances[0], len(instances) // 2 if acc_mutual_info else len(instances)
        choices = first.choices or [str(instance.args[1]) for instance in instances[:count]]
        lls, greedy = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        target = _right_choice(first.target, choices)
        return cls(first.doc, target, choices, lls[:count], greedy[:count], lls[count:], instances=instances)


@dataclass(slots=True)
class LLResult(Result):
    """One continuation, or one text as a whole, with its log-likelihood."""

    value: float
    is_greedy: bool

    @property
    def results(self) -> list[Answer]:
        return [self.value]

    @classmethod
    def from_instances(cls, instances: Sequence[Instance], filter_name: str | None = None) -> "LLResult":
        first = instances[0]
        answer = _answer(first, filter_name)
        value, greedy = answer if isinstance(answer, tuple | list) else (answer, False)
        return cls(first.doc, first.target, value, greedy, instances=instances)


@dataclass(slots=True)
class GenResult(Result):
    """Generated text: one answer, or a list of several where a filter leaves several. `target` are the references."""

    answer: Any
    repeats: int = 1
    any_counts: bool = False
    """Whether a user's metric is 1 where any reference has a value that is not 0, as lm-eval has it; else the best counts."""

    @property
    def references(self) -> list[Reference]:
        return self.target if isinstance(self.target, list) else [self.target]

    @property
    def results(self) -> list[Answer]:
        """The answers: a list, however many there are."""
        return self.answer if isinstance(self.answer, list) else [self.answer]

    @classmethod
    def from_instances(cls, instances: Sequence[Instance], filter_name: str | None = None) -> "GenResult":
        first = instances[0]
        return cls(first.doc, first.target, _answer(first, filter_name), first.repeats, instances=instances)


@dataclass(slots=True)
class Results:
    """A document's answers by filter, whatever its output type: what a `process_results` function is called with."""

    doc: Mapping[str, Any]
    results: Mapping[str, Any]
    instances: Sequence[Instance] = ()

    @classmethod
    def create(cls, instances: Sequence[Instance], filter_name: str) -> "Results":
        answers = [_answer(instance, filter_name) for instance in instances]
        return cls(instances[0].doc, {filter_name: answers if len(answers) > 1 else answers[0]}, instances)


def result_of(instances: Sequence[Instance], filter_name: str) -> Result:
    """The result that a document's requests call for."""
    kind = instances[0].request_type
    if kind == GENERATE:
        return GenResult.from_instances(instances, filter_name)
    if kind == CHOICE or (
        kind == LIKELIHOOD and (len(instances) > 1 or instances[0].choices)
    ):  # lm-eval asks so for choices
        doubled = len(instances) == 2 * len(instances[0].choices) > 0
        return MCResult.from_instances(instances, filter_name, acc_mutual_info=doubled)
    return LLResult.from_instances(instances, filter_name)


def with_answers(
    instances: Sequence[Instance], filters: Sequence[str], answers: Sequence[Filtered]
) -> Sequence[Instance]:
    """Instances with the answers that filters leave, where these are known."""
    if not answers:
        return instances
    named = {name: each for name, each in zip(filters, answers, strict=True) if not isinstance(each, Failed)}
    return without_lost(
        [
            replace(
                instance, filtered_resps={**instance.filtered_resps, **{name: named[name][number] for name in named}}
            )
            for number, instance in enumerate(instances)
        ],
        filters,
        answers,
    )


def without_lost(
    instances: Sequence[Instance], filters: Sequence[str], answers: Sequence[Filtered]
) -> Sequence[Instance]:
    """Instances that refuse to show the answers of filters that failed."""
    lost = {name: each for name, each in zip(filters, answers, strict=True) if isinstance(each, Failed)}
    if not lost:
        return instances
    return [replace(each, filtered_resps=PartlyFiltered(each.filtered_resps, lost)) for each in instances]


def _answer(instance: Instance, filter_name: str | None) -> Answer:
    filtered = instance.filtered_resps
    return filtered[filter_name] if filter_name is not None and filter_name in filtered else instance.resps[0]


def raw(request: Request, response: Response) -> Answer:
    """A response as filters and helper code see it: a text, a pair of log-likelihood and greedy, or a log-likelihood."""
    if isinstance(response, Text):
        return response.text
    assert isinstance(response, Likelihood), "failures never come this far"
    return response.value if isinstance(request, Rolling) else (response.value, response.greedy)


def calls_without_text(responses: Sequence[Response]) -> str:
    """Why answers cannot be scored, if one of them is tool calls alone: it is no empty text. Empty where all have text."""
    calls = [
        response.calls
        for response in responses
        if type(response) is Text and response.calls and not response.text.strip()
    ]
    if not calls:
        return ""
    names = dict.fromkeys(str(call["function"]["name"]) for own in calls for call in own)
    count = "the answer is" if len(responses) == 1 else f"{len(calls)} of {len(responses)} answers are"
    what = f"{count} a call of a tool without text ({some(list(names))}), and metrics of a task score text"
    return f"{what} — leave out `tools` or give `tool_choice: none`; graphs score calls of tools"


def grouped(requests: Iterable[Request], responses: Sequence[Response], repeats: int) -> list[list[Answer]]:
    """The responses of each request together: plans ask a request `repeats` times in a row."""
    pairs = zip(requests, responses, strict=True)
    values: list[Answer] = [
        response[:2] if type(request) is Loglikelihood and type(response) is Likelihood else raw(request, response)
        for request, response in pairs
    ]
    if repeats == 1:
        return [[value] for value in values]
    return [values[start : start + repeats] for start in range(0, len(values), repeats)]


# --- from samples ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResultBuilder:
    """Builds results: reads the right answers of a task by its output type and the fields of its documents."""

    output_type: str
    has_choices: bool = False
    multiple_targets: bool = False
    dialect: Dialect = OURS

    def result(self, sample: Sample, answers: Answers) -> Result:
        """The result that metrics of this output type take."""
        if self.output_type == GENERATE:
            any_counts = self.multiple_targets and self.dialect.counts_any_right_reference
            return GenResult(sample.doc, self._references(sample, answers[0]), answers[0], any_counts=any_counts)
        if self.output_type == CHOICE:
            choices = sample.choices or ()
            lls, greedy = [answer[0] for answer in answers], [answer[1] for answer in answers]
            count = len(choices)
            alone = lls[count:] if len(lls) == 2 * count else ()
            return MCResult(sample.doc, self.gold(sample), choices, lls[:count], greedy[:count], alone)
        if self.output_type == LIKELIHOOD:
            return LLResult(sample.doc, sample.target, answers[0][0], answers[0][1])
        return LLResult(sample.doc, sample.target, answers[0], False)

    def target(self, sample: Sample, answers: Answers) -> Reference:
        """The reference that answers to a sample are compared with."""
        if self.output_type == GENERATE:
            return self._references(sample, answers[0])
        return self.gold(sample) if self.output_type == CHOICE else sample.target

    def gold(self, sample: Sample) -> Reference:
        """The index of the right choice."""
        choices = sample.choices or ()
        gold = gold_index(sample.gold, choices)
        if not self.dialect.scores_zero_without_right_choice and is_none_of(gold, choices):
            raise ValueError(f"the right answer, {sample.gold!r:.80}, is none of the {len(choices)} choices")
        return gold

    def _references(self, sample: Sample, answer: Answer) -> list[Reference]:
        """The right answers, each of the type that the answer has."""
        gold = sample.gold
        if self.has_choices and sample.choices is not None and isinstance(gold, int):
            gold = sample.choices[gold]
        elif self.multiple_targets:
            golds = list(gold) if isinstance(gold, list | tuple) else [gold]
            is_text = isinstance(answer[0] if isinstance(answer, list) and answer else answer, str)
            if not is_text or self.dialect.compares_numbers_with_texts:
                return golds
            return [str(gold) if type(gold) in (int, float) else gold for gold in golds]
        one = answer[0] if isinstance(answer, list) and answer else answer
        if one is not None and type(gold) is not type(one):
            gold = type(one)(gold)
        return [gold]

    def but(self, *, multiple_targets: bool) -> "ResultBuilder":
        return replace(self, multiple_targets=multiple_targets)


def gold_index(gold: Reference, choices: Sequence[str]) -> Reference:
    """The index of the right choice, by index or by words; OUT_OF_RANGE where there is no such choice."""
    if isinstance(gold, list):
        return [each if each < len(choices) else OUT_OF_RANGE for each in gold]
    if isinstance(gold, str):
        return choices.index(gold) if gold in choices else OUT_OF_RANGE
    if isinstance(gold, int | float) and not isinstance(gold, bool):
        return gold if gold < len(choices) else OUT_OF_RANGE
    return int(gold) if isinstance(gold, bool) else OUT_OF_RANGE


def _right_choice(target: Reference, choices: Sequence[str]) -> Reference:
    """The index of the right choice of instances that a user made: by index or by words, with or without spaces around."""
    if target == OUT_OF_RANGE:
        return target
    by_words = isinstance(target, str) and target not in choices
    gold = gold_index(target.strip(), [each.strip() for each in choices]) if by_words else gold_index(target, choices)
    if is_none_of(gold, choices):
        raise ValueError(f"the right answer, {target!r:.80}, is none of the {len(choices)} choices")
    return gold


def is_none_of(gold: Reference, choices: Sequence[str]) -> bool:
    """Whether the index of a right choice, or one of several, means no choice: then there is nothing to be right about."""
    golds = gold if isinstance(gold, list) else [gold]
    return not golds or any(not 0 <= each < len(choices) for each in golds)


def listed(value: MetricValue) -> list[MetricValue] | None:
    """The items of a list, a tuple or an array of one dimension; None of anything else."""
    if isinstance(value, list | tuple):
        return list(value)
    shape = getattr(value, "shape", ())
    return list(value) if type(value).__module__ == "numpy" and isinstance(shape, tuple) and len(shape) == 1 else None


def score_name(key: MetricValue) -> str:
    """The name that a key of user code's means: mostly it is a text already."""
    return key if type(key) is str else str(exact(key))


def described(value: MetricValue) -> str:
    """A value by its kind alone, so that equal mistakes have equal reasons and can be counted."""
    values = listed(value)
    if values is not None:
        return f"a list of {len(values)}"
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return "None" if value is None else f"a value of type {type(value).__name__!r}"


def usable(
    scores: Scores, answers: Answer, filter_name: str, rules: "ScoreRules", *, by_answer: Collection[str] = ()
) -> Scores:
    """Scores with a failure in place of every value that its aggregation cannot take; a list has a score for each answer.

    `answers` are those that were scored. For an aggregation that does not average, a value may be anything; in the rows of
    `by_answer`, a list may have such a value for each answer.
    """
    if _are_plain(scores, rules):
        return scores
    count = len(answers[0]) if len(answers) and isinstance(answers[0], list) else 1
    checked: dict[str, Any] = {}
    for key, value in scores.items():
        name = score_name(key)
        problem = None if rules.dialect.accepts_any_row_name else metric_name_problem(name)
        where = f"scoring: {name!r} of filter {filter_name!r}"
        if problem is not None:
            checked[name] = Failed(f"scoring: a row cannot be named {name!r}: {problem[0]} — {problem[1]}")
        elif name in checked:
            checked[name] = Failed(f"{where} was returned twice, under names of different types")
        else:
            averaged = rules.is_averaged(name, filter_name)
            takes_nan = rules.takes_nan(name, filter_name)
            value_or_reason = _usable(value, count, averaged=averaged, by_answer=name in by_answer, takes_nan=takes_nan)
            checked[name] = (
                Failed(f"{where} {value_or_reason}") if isinstance(value_or_reason, _Unusable) else value_or_reason
            )
    return checked


def _are_plain(scores: Scores, rules: "ScoreRules") -> bool:
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


class ScoreRules(NamedTuple):
    """Checks of scores: `is_averaged` says of a row and a filter whether they must be numbers.

    NaN is a failure, but for rows of which `takes_nan` says that their aggregation takes it.
    """

    is_averaged: Callable[[str, str], bool]
    dialect: Dialect = OURS
    takes_nan: Callable[[str, str], bool] = lambda metric, filter_name: False  # noqa: ARG005


class _Unusable(str):
    """The reason that a value cannot be a score."""

    __slots__ = ()


def _usable(value: MetricValue, count: int, *, averaged: bool, by_answer: bool, takes_nan: bool) -> MetricValue:
    if isinstance(value, Failed):
        return value
    if not averaged:
        if not takes_nan and _holds_nan(value):
            return _Unusable("holds NaN, and its aggregation takes numbers")
        of_answers = by_answer and type(value) is list and len(value) == count
        return as_repeated(value) if of_answers else exact(value)
    items = listed(value)
    if items is None:
        plain = _number(value, takes_nan=takes_nan)
        return plain if plain is not None else _Unusable(f"is {described(value)}, and must be a number")
    if len(items) != count:
        answers = "1 answer" if count == 1 else f"{count} answers"
        return _Unusable(f"is a list of {len(items)} for {answers} — return a number, or one for each answer")
    numbers = [_number(each, takes_nan=takes_nan) for each in items]
    odd = [each for each, known in zip(items, numbers, strict=True) if known is None]
    if odd:
        return _Unusable(f"is {described(odd[0])} for an answer, and must be a number")
    return as_repeated(numbers)


def _holds_nan(value: MetricValue) -> bool:
    """Whether a value is NaN, or a pair or a list with NaN in it: the shares of choices that have no likelihood, say."""
    if isinstance(value, list | tuple):
        return any(map(_holds_nan, value))
    return isinstance(value, float) and math.isnan(value)


def _number(value: MetricValue, *, takes_nan: bool) -> int | float | None:
    plain = number(value)
    return None if plain is None or (math.isnan(plain) and not takes_nan) else plain


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
    if any(listed(each) is not None for each in value):
        return Failed(f"scoring: {name!r}: a number was expected for each answer, and there are lists")
    return as_repeated(value)


def by_name(values: Sequence[Scores], metric: str) -> Scores:
    """The values by name of each answer, as the values of all answers by name."""
    if any(not isinstance(each, Mapping) or each.keys() != values[0].keys() for each in values):
        return {metric: Failed(f"scoring: metric {metric!r} returns different names for several answers")}
    return {key: Repeated([each[key] for each in values]) for key in values[0]}


def added_row(source: str, row: str, reduction: str) -> str:
    """The row that a reduction adds for one of the rows of a metric or scorer.

    >>> added_row("exact_match", "exact_match", "pass@2"), added_row("rouge", "rouge1", "max")
    ('pass@2', 'max(rouge1)')
    """
    return reduction if row == source else f"{reduction}({row})"


def reduced_rows(name: str, value: MetricValue, reductions: MetricReductions, answers: Answer) -> ScoreDict:
    """The rows that a score makes: its own, and those of the reductions of its repeats."""
    if not isinstance(value, Repeated):
        repeats, repeated_answers = [value], answers
    else:
        repeats, repeated_answers = value, answers[0] if isinstance(answers[0], list) else answers
    rows = {name: _reduced(name, reductions.plain, repeats, answers) if len(repeats) > 1 else repeats[0]}
    return rows | {row: _reduced(row, reduce, repeats, repeated_answers) for row, reduce in reductions.added.items()}


def _reduced(row: str, reduce: Reduction, repeats: Sequence[MetricValue], answers: Answer) -> MetricValue:
    failed = next((each for each in repeats if isinstance(each, Failed)), None)
    if failed is not None:
        return failed
    return call_user_code(f"scoring: {row!r}", reduce, repeats, answers)


# --- metrics ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoundMetric:
    """A metric, ready to be used: `compute` takes a result and gives its value."""

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
    place: Place | None = None
    """Its location in the task's file."""
    bounds: Bounds | None = None
    """The least and the greatest score of a document, where they are known."""

    def added_rows(self, names: Sequence[str] = ()) -> list[str]:
        """The rows that its reductions add; `names` are those of its values, where documents have shown them."""
        rows = names or self.gives or (self.name,)
        return [added_row(self.name, row, reduction) for row in rows for reduction in self.reductions.added]

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
