"""What metrics look at: a document's answers next to what is right."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.records import Sample
from assay.scoring.instance import Instance

OUT_OF_RANGE = -100
"""A right answer that is none of the choices: lm-eval's number for it."""
CHOICE, LIKELIHOOD, ROLLING, GENERATE = "multiple_choice", "loglikelihood", "loglikelihood_rolling", "generate_until"


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
    def results(self) -> list[Any]:
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
    def results(self) -> list[Any]:
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
        return cls(first.doc, first.target, choices, lls[:count], greedy[:count], lls[count:], instances=instances)


@dataclass(slots=True)
class LLResult(Result):
    """One continuation, or one text as a whole, with its log-likelihood."""

    value: float
    is_greedy: bool

    @property
    def results(self) -> list[Any]:
        return [self.value]

    @classmethod
    def from_instances(cls, instances: Sequence[Instance], filter_name: str | None = None) -> "LLResult":
        first = instances[0]
        found = _answer(first, filter_name)
        value, greedy = found if isinstance(found, tuple | list) else (found, False)
        return cls(first.doc, first.target, value, greedy, instances=instances)


@dataclass(slots=True)
class GenResult(Result):
    """What was generated: one answer, or a list of several where a filter leaves several. `target` are the references."""

    answer: Any
    repeats: int = 1
    any_counts: bool = False
    """Whether a user's metric is 1 where any reference has a value that is not 0, as lm-eval has it; else the best counts."""

    @property
    def references(self) -> list[Any]:
        return self.target if isinstance(self.target, list) else [self.target]

    @property
    def results(self) -> list[Any]:
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
        several = [_answer(instance, filter_name) for instance in instances]
        return cls(instances[0].doc, {filter_name: several if len(several) > 1 else several[0]}, instances)


def result_of(instances: Sequence[Instance], filter_name: str) -> Result:
    """The result that a document's requests call for."""
    kind = instances[0].request_type
    if kind == GENERATE:
        return GenResult.from_instances(instances, filter_name)
    if kind == CHOICE:
        doubled = len(instances) == 2 * len(instances[0].choices) > 0
        return MCResult.from_instances(instances, filter_name, acc_mutual_info=doubled)
    return LLResult.from_instances(instances, filter_name)


def _answer(instance: Instance, filter_name: str | None) -> Any:
    found = instance.filtered_resps
    return found[filter_name] if filter_name is not None and filter_name in found else instance.resps[0]


# --- from samples ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResultBuilder:
    """How the right answers of a task are read: by its output type, and by what its documents have."""

    output_type: str
    has_choices: bool = False
    multiple_targets: bool = False
    like_lm_eval: bool = False

    def result(self, sample: Sample, answers: Sequence[Any]) -> Result:
        """What the metrics of this output type look at."""
        if self.output_type == GENERATE:
            any_counts = self.like_lm_eval and self.multiple_targets
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

    def target(self, sample: Sample, answers: Sequence[Any]) -> Any:
        """What the answers to a sample are compared with."""
        if self.output_type == GENERATE:
            return self._references(sample, answers[0])
        return self.gold(sample) if self.output_type == CHOICE else sample.target

    def gold(self, sample: Sample) -> Any:
        """The index of the right choice."""
        choices = sample.choices or ()
        gold = gold_index(sample.gold, choices)
        if not self.like_lm_eval and is_none_of(gold, choices):
            raise ValueError(f"the right answer, {sample.gold!r:.80}, is none of the {len(choices)} choices")
        return gold

    def _references(self, sample: Sample, answer: Any) -> list[Any]:
        """The right answers, each of the type that the answer has."""
        gold = sample.gold
        if self.has_choices and sample.choices is not None and isinstance(gold, int):
            gold = sample.choices[gold]
        elif self.multiple_targets:
            several = list(gold) if isinstance(gold, list | tuple) else [gold]
            is_text = isinstance(answer[0] if isinstance(answer, list) and answer else answer, str)
            return (
                several
                if self.like_lm_eval or not is_text
                else [str(n) if type(n) in (int, float) else n for n in several]
            )
        one = answer[0] if isinstance(answer, list) and answer else answer
        if one is not None and type(gold) is not type(one):
            gold = type(one)(gold)
        return [gold]

    def but(self, **changes: Any) -> "ResultBuilder":
        return replace(self, **changes)


def gold_index(gold: Any, choices: Sequence[str]) -> Any:
    """The index of the right choice, by index or by words; OUT_OF_RANGE where there is no such choice."""
    if isinstance(gold, list):
        return [each if each < len(choices) else OUT_OF_RANGE for each in gold]
    if isinstance(gold, str):
        return choices.index(gold) if gold in choices else OUT_OF_RANGE
    if isinstance(gold, int | float) and not isinstance(gold, bool):
        return gold if gold < len(choices) else OUT_OF_RANGE
    return int(gold) if isinstance(gold, bool) else OUT_OF_RANGE


def is_none_of(gold: Any, choices: Sequence[str]) -> bool:
    """Whether the index of a right choice, or one of several, means no choice: then there is nothing to be right about."""
    several = gold if isinstance(gold, list) else [gold]
    return not several or any(not 0 <= each < len(choices) for each in several)
