"""Results: the requests and answers of a document next to what is right about it, as metrics, scorers and helper code see them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Never, Self

from assay.dialect import OURS, Dialect
from assay.errors import SelfExplanatory, some
from assay.records import (
    Answer,
    Answers,
    Failed,
    Likelihood,
    Loglikelihood,
    Params,
    Request,
    Response,
    Rolling,
    Sample,
    Text,
    arguments,
)

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
HookInput = Any
"""What a run gives to a method that a user's class may define: its own annotation holds, as the seeds write it, such as
`list[Instance]` or `MetricConfig`."""
OUT_OF_RANGE = -100
"""A right answer that is none of the choices: lm-eval's number for it."""
CHOICE, LIKELIHOOD, ROLLING, GENERATE = "multiple_choice", "loglikelihood", "loglikelihood_rolling", "generate_until"


@dataclass(slots=True)
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
    filtered_resps: dict[str, Any] = field(default_factory=dict)
    task_name: str = ""
    request_type: str = "generate_until"
    choices: Sequence[str] = ()

    @property
    def repeats(self) -> int:
        return len(self.resps)


class AnsweredSample(NamedTuple):
    """A sample with its responses: for each request, one per repeat, as filters see them; and what scorers asked about it."""

    sample: Sample
    responses: Sequence[list[Any]]
    verdicts: Sequence[Response] = ()
    """The responses to what scorers asked, in the order they asked."""
    question: str = ""
    """The question, without examples and instructions around it; known where scorers ask about it."""
    filtered: Mapping[str, Sequence[Any]] = MappingProxyType({})
    """By filter, answers that are filtered already."""
    instances: Sequence[Instance] = ()
    """The requests of the document, where it is made of them."""
    without_text: str = ""
    """Why an answer has nothing that filters and metrics look at, where one has not: empty otherwise."""


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
    ) -> Self:
        """The result of a document's requests, one per choice; with `acc_mutual_info` as many more without context."""
        first, count = instances[0], len(instances) // 2 if acc_mutual_info else len(instances)
        choices = first.choices or [str(instance.args[1]) for instance in instances[:count]]
        answers = [_answer(instance, filter_name) for instance in instances]
        result = cls.of(first.doc, _right_choice(first.target, choices), choices, answers)
        result.instances = instances
        return result

    @classmethod
    def of(cls, doc: Mapping[str, Any], target: Reference, choices: Sequence[str], answers: Answers) -> Self:
        """The result of answers: a pair of log-likelihood and greedy for each choice, or two."""
        lls, greedy = map(list, zip(*answers, strict=True))
        count = len(choices)
        return cls(doc, target, choices, lls[:count], greedy[:count], lls[count:])


@dataclass(slots=True)
class LLResult(Result):
    """One continuation, or one text as a whole, with its log-likelihood."""

    value: float
    is_greedy: bool

    @property
    def results(self) -> list[Answer]:
        return [self.value]

    @classmethod
    def from_instances(cls, instances: Sequence[Instance], filter_name: str | None = None) -> Self:
        first = instances[0]
        answer = _answer(first, filter_name)
        value, is_greedy = answer if isinstance(answer, tuple | list) else (answer, False)
        return cls(first.doc, first.target, value, is_greedy, instances=instances)


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
    def from_instances(cls, instances: Sequence[Instance], filter_name: str | None = None) -> Self:
        first = instances[0]
        return cls(first.doc, first.target, _answer(first, filter_name), first.repeats, instances=instances)


@dataclass(slots=True)
class Results:
    """A document's answers by filter, whatever its output type: what a `process_results` function is called with."""

    doc: Mapping[str, Any]
    results: Mapping[str, Any]
    instances: Sequence[Instance] = ()

    @classmethod
    def create(cls, instances: Sequence[Instance], filter_name: str) -> Self:
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
    calls = []
    for response in responses:  # without a call for each document: most are log-likelihoods
        if type(response) is Text and response.calls and not response.text.strip():
            calls.append(response.calls)  # noqa: PERF401
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
    return [values[start : start + repeats] for start in range(0, len(values), repeats)]


# --- from samples ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ResultBuilder:
    """Builds results: reads the right answers of a task by its output type and the fields of its documents."""

    output_type: str
    has_choices: bool = False
    multiple_targets: bool = False
    """Whether a list of targets means several right answers: documents show it, so it is set when they are there."""
    dialect: Dialect = OURS

    def result(self, sample: Sample, answers: Answers) -> Result:
        """The result that metrics of this output type take."""
        if self.output_type == CHOICE:
            return MCResult.of(sample.doc, self.gold(sample), sample.choices or (), answers)
        if self.output_type == GENERATE:
            any_counts = self.multiple_targets and self.dialect.counts_any_right_reference
            return GenResult(sample.doc, self._references(sample, answers[0]), answers[0], any_counts=any_counts)
        value, is_greedy = answers[0] if self.output_type == LIKELIHOOD else (answers[0], False)
        return LLResult(sample.doc, sample.target, value, is_greedy)

    def target(self, sample: Sample, answers: Answers) -> Reference:
        """The reference that answers to a sample are compared with."""
        if self.output_type == GENERATE:
            return self._references(sample, answers[0])
        return self.gold(sample) if self.output_type == CHOICE else sample.target

    def gold(self, sample: Sample) -> Reference:
        """The index of the right choice."""
        gold, choices = sample.gold, sample.choices or ()
        index = choices.index(gold) if type(gold) is str and gold in choices else gold
        if type(index) is int and 0 <= index < len(choices):  # as nearly always
            return index
        gold = gold_index(gold, choices)
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


def instances_of(
    document: AnsweredSample, reading: ResultBuilder, answers: Mapping[str, Filtered], task: str
) -> list[Instance]:
    """The requests of a document as instances, with what filters leave; answers of one that failed they refuse to show."""
    lost = {name: left for name, left in answers.items() if isinstance(left, Failed)}
    copies = []
    for number, instance in enumerate(document.instances or _requests(document, reading, answers, task)):
        filtered = dict(instance.filtered_resps)
        for name, left in answers.items():
            if not isinstance(left, Failed):
                filtered[name] = left[number]
        copies.append(replace(instance, filtered_resps=PartlyFiltered(filtered, lost) if lost else filtered))
    return copies


def _requests(
    document: AnsweredSample, reading: ResultBuilder, answers: Mapping[str, Filtered], task: str
) -> Iterator[Instance]:
    """The requests of a document of a run. Targets get the type of the first filter's answers."""
    sample, responses = document.sample, document.responses
    target = reading.target(sample, next(left for left in answers.values() if not isinstance(left, Failed)))
    if isinstance(target, list) and len(target) == 1 and reading.output_type == GENERATE:
        [target] = target
    step = max(1, len(sample.requests) // max(1, len(responses)))
    for number, request in enumerate(sample.requests[::step]):
        yield Instance(
            doc=sample.doc,
            doc_id=sample.doc_id,
            args=arguments(request),
            target=target,
            idx=number,
            resps=responses[number],
            task_name=task,
            request_type=reading.output_type,
            choices=tuple(sample.choices or ()),
        )
