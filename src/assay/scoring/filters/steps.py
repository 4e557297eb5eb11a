"""The steps a filter is made of. Each is a function of its parameters, which are its YAML keys, and returns the step.

A step takes the responses to one request (one per repeat) and the document, and returns cleaner ones. The meaning of
each is lm-eval 0.4.13's; those it does not have are in `extract`.
"""

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from assay.registry import Table, must_be_callable
from assay.scoring.filters.extract import json_path, math, think
from assay.scoring.filters.step import INVALID as INVALID
from assay.scoring.filters.step import Step as Step
from assay.scoring.filters.step import each, is_unfinished

NUMBER_AFTER_HASHES = r"#### (\-?[0-9\.\,]+)"


def noop() -> Step:
    """The responses as they are."""
    return lambda responses, doc: responses  # noqa: ARG005


def take_first() -> Step:
    """The first response alone."""
    return lambda responses, doc: responses[:1]  # noqa: ARG005


def take_first_k(*, k: int) -> Step:
    """The first k responses."""

    def step(responses: list[Any], doc: Mapping[str, Any]) -> list[Any]:  # noqa: ARG001
        if len(responses) < k:
            raise ValueError(f"take_first_k needs {k} responses, and there are {len(responses)}: raise `repeats`")
        return responses[:k]

    return step


def majority_vote() -> Step:
    """The response given most often; of several, the one that came first. Who has not finished thinking has no vote."""

    def step(responses: list[Any], doc: Mapping[str, Any]) -> list[Any]:  # noqa: ARG001
        voters = [response for response in responses if not is_unfinished(response)]
        return [Counter(voters or responses).most_common(1)[0][0]]

    return step


def remove_whitespace() -> Step:
    """Without white space around it."""
    return each(lambda response: response.strip())


def lowercase() -> Step:
    return each(lambda response: response.lower())


def uppercase() -> Step:
    return each(lambda response: response.upper())


def map_values(*, mapping_dict: Mapping[Any, Any] | None = None, default_value: Any = None) -> Step:
    """What a table has for it."""
    table = dict(mapping_dict or {})
    return each(lambda response: table.get(response, default_value))


def regex(*, regex_pattern: str = NUMBER_AFTER_HASHES, group_select: int = 0, fallback: str = INVALID) -> Step:
    """The match of a pattern: of all matches the `group_select`-th, of its groups the first that is not empty."""
    pattern = re.compile(regex_pattern)

    def extract(response: Any) -> str:
        matches = pattern.findall(response if isinstance(response, str) else "")
        return _selected(matches[group_select], fallback) if matches else fallback

    return each(extract)


def _selected(match: Any, fallback: str) -> str:
    if isinstance(match, tuple):
        match = next((group for group in match if group), fallback)
    return str(match).strip()


def regex_pos(*, regex_pattern: str = r"\['(.*?)'\]", group_select: int = 0, fallback: Any = None) -> Step:  # noqa: ARG001
    """The tags of pairs written as ('token', 'TAG'). The pattern is accepted and, as in lm-eval, not used."""
    instead = ["invalid"] if fallback is None else fallback

    def tags(response: Any) -> list[str]:
        pairs = re.findall(r"\('([^']*)', '([^']*)'\)", response) if isinstance(response, str) else response
        return [tag for _, tag in pairs] or instead

    return each(tags)


def multi_choice_regex(
    *,
    regex_pattern: str = NUMBER_AFTER_HASHES,
    group_select: int = 0,
    fallback: str = INVALID,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    regexes_to_ignore: Sequence[str] | None = None,
) -> Step:
    """The letter of a choice, as (A): by a pattern, else by the words of a choice of the document, else after a colon."""
    pattern = re.compile(regex_pattern)
    plain = _plainer(ignore_case, ignore_punctuation, regexes_to_ignore)

    def step(responses: list[Any], doc: Mapping[str, Any]) -> list[Any]:
        words, letters = _choice_patterns(doc["choices"], plain)
        by_words = {plain(choice.strip()): f"({chr(65 + n)})" for n, choice in enumerate(doc["choices"])}
        letter_of = {chr(65 + number): f"({chr(65 + number)})" for number in range(len(by_words))}

        def letter(response: Any) -> str:
            return (
                _match(pattern, response, group_select)
                or _match(words, plain(response) if isinstance(response, str) else "", group_select, by_words)
                or _match(letters, response, group_select, letter_of)
                or fallback
            )

        return each(letter)(responses, doc)

    return step


def _choice_patterns(choices: Sequence[str], plain: Callable[[str], str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    # Longest first: a choice that begins another choice must not be found inside it.
    escaped = sorted((re.escape(plain(choice.strip())) for choice in choices), key=len, reverse=True)
    letters = "|".join(chr(65 + number) for number in range(len(choices)))
    return re.compile("|".join(escaped)), re.compile(rf":[\s]*({letters})")


def _match(pattern: re.Pattern[str], response: Any, group_select: int, table: Mapping[str, str] | None = None) -> str:
    matches = pattern.findall(response if isinstance(response, str) else "")
    if not matches:
        return ""
    found = _selected(matches[group_select], "")
    return (table or {}).get(found, found)


def _plainer(ignore_case: bool, ignore_punctuation: bool, patterns: Sequence[str] | None) -> Callable[[str], str]:
    def plain(text: str) -> str:
        for pattern in patterns or ():
            text = re.sub(pattern, "", text)
        if ignore_case:
            text = text.lower()
        return text.translate(_punctuation()) if ignore_punctuation else text

    return plain


@cache
def _punctuation() -> dict[int, None]:
    """Every sign of punctuation that Unicode knows."""
    return dict.fromkeys(code for code in range(sys.maxunicode) if unicodedata.category(chr(code)).startswith("P"))


_LABELS = {
    "person": "PER", "location": "LOC", "organization": "ORG", "counties": "LOC", "places": "LOC", "people": "PER",
    "persons": "PER", "company": "ORG", "country": "LOC", "continent": "LOC", "time": "DATE", "date": "DATE",
    "per": "PER", "loc": "LOC", "org": "ORG",
}  # fmt: skip


def format_span() -> Step:
    """Named entities as `label: entity $ label: entity`, with one word for each kind of label."""

    def spans(response: str) -> str:
        text = response.lower()
        for word, label in _LABELS.items():
            text = re.sub(rf"\b{re.escape(word)}\s*:", f"{label}:", text)
        text = "$".join(text.split("$$")).rstrip("$").replace("\n", "$").strip()
        found = re.findall(r"\b(PER|LOC|ORG|DATE):\s*([^$]+)", text)
        entities = [(label, entity.strip()) for label, several in found for entity in several.split(",")]
        return " $ ".join(f"{label.lower()}: {entity}" for label, entity in entities if entity.lower() != "none")

    return each(spans)


FILTERS: Table[Callable[..., Step], Step] = Table(
    "filter",
    {
        "noop": noop,
        "take_first": take_first,
        "take_first_k": take_first_k,
        "majority_vote": majority_vote,
        "remove_whitespace": remove_whitespace,
        "lowercase": lowercase,
        "uppercase": uppercase,
        "map": map_values,
        "regex": regex,
        "regex_pos": regex_pos,
        "multi_choice_regex": multi_choice_regex,
        "format_span": format_span,
        "think": think,
        "json_path": json_path,
        "math": math,
    },
    group="assay.filters",
    adopt=must_be_callable,
)
"""Functions of their parameters that return a step; a class of a user has lm-eval's `apply(resps, docs)`."""
