"""Filters as classes, which helper code subclasses: lm-eval's names over our steps."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from assay.filters.steps import INVALID, NUMBER_AFTER_HASHES, multi_choice_regex, regex


class Filter:
    """A filter that sees the responses and documents of a whole task."""

    def __init__(self, **kwargs: Any) -> None:
        """Subclasses take what they need."""

    def apply(self, resps: Iterable[Any], docs: Sequence[dict[str, Any]]) -> Iterable[Any]:  # noqa: ARG002
        return resps


class RegexFilter(Filter):
    """The match of a pattern in each response."""

    def __init__(
        self, regex_pattern: str = NUMBER_AFTER_HASHES, group_select: int = 0, fallback: str = INVALID
    ) -> None:
        super().__init__()
        self.regex_pattern = regex_pattern
        self.regex = re.compile(regex_pattern)
        self.group_select = group_select
        self.fallback = fallback

    def apply(self, resps: Iterable[Any], docs: Sequence[dict[str, Any]]) -> list[list[str]]:  # noqa: ARG002
        step = regex(regex_pattern=self.regex_pattern, group_select=self.group_select, fallback=self.fallback)
        return [step(list(responses), {}) for responses in resps]


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

    def apply(self, resps: Iterable[Any], docs: Sequence[dict[str, Any]]) -> list[list[str]]:
        step = multi_choice_regex(
            regex_pattern=self.regex_pattern,
            group_select=self.group_select,
            fallback=self.fallback,
            ignore_case=self.ignore_case,
            ignore_punctuation=self.ignore_punctuation,
            regexes_to_ignore=self.regexes_to_ignore,
        )
        return [step(list(responses), doc) for responses, doc in zip(resps, docs, strict=True)]


class WhitespaceFilter(Filter):
    """Without white space around."""

    def apply(self, resps: Iterable[Any], docs: Sequence[dict[str, Any]]) -> list[list[str]]:  # noqa: ARG002
        return [[response.strip() for response in responses] for responses in resps]


class TakeFirstFilter(Filter):
    def apply(self, resps: Iterable[Any], docs: Sequence[dict[str, Any]]) -> list[Any]:  # noqa: ARG002
        return [responses[0] for responses in resps]
