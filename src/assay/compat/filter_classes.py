"""Filters as classes, which helper code subclasses: lm-eval's names over our steps."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from assay.config.option import YAMLMapping, YAMLValue
from assay.records import Document, UserFunction
from assay.scoring.filters import FILTERS, INVALID, NUMBER_AFTER_HASHES, Step, multi_choice_regex, regex

if TYPE_CHECKING:
    from assay.compat.task_base import Instance


Answers = Iterable[Any]
"""For each document of a task its answers, or the one that the steps before left."""


class Filter:
    """A filter that sees the responses and documents of a whole task."""

    def __init__(self, **kwargs: YAMLValue) -> None:
        """Subclasses take what they need."""

    def apply(self, resps: Answers, docs: Sequence[Document]) -> Answers:  # noqa: ARG002
        return resps


class SteppedFilter(Filter):
    """A filter that does one of our steps to each list of responses; subclasses name it, or make it from their parameters."""

    function = ""

    def step(self) -> Step:
        return FILTERS[self.function]()

    def apply(self, resps: Answers, docs: Sequence[Document]) -> Answers:  # noqa: ARG002
        step = self.step()
        return [step(list(responses), {}) for responses in resps]


class RegexFilter(SteppedFilter):
    """The match of a pattern in each response."""

    def __init__(
        self, regex_pattern: str = NUMBER_AFTER_HASHES, group_select: int = 0, fallback: str = INVALID
    ) -> None:
        super().__init__()
        self.regex_pattern = regex_pattern
        self.regex = re.compile(regex_pattern)
        self.group_select = group_select
        self.fallback = fallback

    def step(self) -> Step:
        return regex(regex_pattern=self.regex_pattern, group_select=self.group_select, fallback=self.fallback)


class MultiChoiceRegexFilter(RegexFilter):
    """The letter of a choice."""

    def __init__(
        self,
        regex_pattern: str = NUMBER_AFTER_HASHES,
        group_select: int = 0,
        fallback: str = INVALID,
        ignore_case: bool = False,
        ignore_punctuation: bool = False,
        regexes_to_ignore: list[str] | None = None,
    ) -> None:
        super().__init__(regex_pattern, group_select, fallback)
        self.ignore_case = ignore_case
        self.ignore_punctuation = ignore_punctuation
        self.regexes_to_ignore = regexes_to_ignore

    def step(self) -> Step:
        return multi_choice_regex(
            regex_pattern=self.regex_pattern,
            group_select=self.group_select,
            fallback=self.fallback,
            ignore_case=self.ignore_case,
            ignore_punctuation=self.ignore_punctuation,
            regexes_to_ignore=self.regexes_to_ignore,
        )

    def apply(self, resps: Answers, docs: Sequence[Document]) -> Answers:
        step = self.step()
        return [step(list(responses), doc) for responses, doc in zip(resps, docs, strict=True)]


class WhitespaceFilter(Filter):
    """Without white space around."""

    def apply(self, resps: Answers, docs: Sequence[Document]) -> list[list[str]]:  # noqa: ARG002
        return [[response.strip() for response in responses] for responses in resps]


class TakeFirstFilter(Filter):
    def apply(self, resps: Answers, docs: Sequence[Document]) -> Answers:  # noqa: ARG002
        return [responses[0] for responses in resps]


class POSFilter(SteppedFilter):
    """The tags of pairs written as ('token', 'TAG')."""

    def __init__(
        self, regex_pattern: str = r"\['(.*?)'\]", group_select: int = 0, fallback: list[str] | None = None
    ) -> None:
        super().__init__()
        self.regex_pattern = regex_pattern
        self.regex = re.compile(regex_pattern)
        self.group_select = group_select
        self.fallback = ["invalid"] if fallback is None else fallback

    def step(self) -> Step:
        return FILTERS["regex_pos"](fallback=self.fallback)


class TakeKFilter(SteppedFilter):
    """The first k responses."""

    def __init__(self, *, k: int, **kwargs: YAMLValue) -> None:
        super().__init__(**kwargs)
        self.k = k

    def step(self) -> Step:
        return FILTERS["take_first_k"](k=self.k)


class MajorityVoteFilter(SteppedFilter):
    """The response given most often."""

    function = "majority_vote"


class LowercaseFilter(SteppedFilter):
    function = "lowercase"


class UppercaseFilter(SteppedFilter):
    function = "uppercase"


class MapFilter(SteppedFilter):
    """The entry of a table for each response."""

    def __init__(self, mapping_dict: Mapping[str, YAMLValue] | None = None, default_value: YAMLValue = None) -> None:
        super().__init__()
        self.mapping_dict = {} if mapping_dict is None else mapping_dict
        self.default_value = default_value

    def step(self) -> Step:
        return FILTERS["map"](mapping_dict=self.mapping_dict, default_value=self.default_value)


class SPANFilter(SteppedFilter):
    """Named entities, with one word for each kind of label."""

    function = "format_span"


class CustomFilter(Filter):
    """A function of the responses and documents of a whole task."""

    def __init__(self, *, filter_fn: UserFunction, **kwargs: YAMLValue) -> None:
        super().__init__(**kwargs)
        self.filter_fn = filter_fn

    def apply(self, resps: Answers, docs: Sequence[Document]) -> Answers:
        answers: Answers = self.filter_fn(resps, docs)
        return answers


CLASSES: dict[str, type[Filter]] = {
    "custom": CustomFilter,
    "regex": RegexFilter,
    "regex_pos": POSFilter,
    "remove_whitespace": WhitespaceFilter,
    "multi_choice_regex": MultiChoiceRegexFilter,
    "take_first": TakeFirstFilter,
    "take_first_k": TakeKFilter,
    "majority_vote": MajorityVoteFilter,
    "lowercase": LowercaseFilter,
    "uppercase": UppercaseFilter,
    "map": MapFilter,
    "format_span": SPANFilter,
}


@dataclass
class FilterEnsemble:
    """Filters in order under one name, which leave what they make of each instance with it."""

    name: str
    filters: list[Callable[[], Filter]]

    def apply(self, instances: "Sequence[Instance]") -> None:
        answers: Iterable[Any] = [instance.resps for instance in instances]
        docs = [instance.doc for instance in instances]
        for make in self.filters:
            answers = make().apply(answers, docs)
        for instance, answer in zip(instances, answers, strict=True):
            instance.filtered_resps[self.name] = answer


def build_ensemble(
    filter_name: str,
    components: Iterable[tuple[str | UserFunction, YAMLMapping | None]],
    find: Callable[[str | UserFunction], Callable[..., Filter]],
) -> FilterEnsemble:
    """The filters that names and parameters mean."""
    return FilterEnsemble(filter_name, [partial(find(name), **(kwargs or {})) for name, kwargs in components])
