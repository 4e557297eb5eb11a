"""Filters: the steps they are made of, and pipelines of them. A step is made by a function whose parameters are its YAML keys.

A step takes the responses to one request (one per repeat) and the document, and returns cleaner ones. The meaning of
each is lm-eval 0.4.13's; `choice`, `think`, `json_path` and `math` are ours.
"""

import inspect
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from assay.config.task import FilterConfig, FilterStep
from assay.errors import ConfigError, Place, check_each, unknown_name
from assay.records import Answer, Document, Params, UserFunction, UserValue, plain
from assay.registry import Registry, must_be_callable, refused
from assay.scoring.declarations import Filter
from assay.signatures import AWAITED, Accepted, accepted, is_async, typed_by_default, unreturned

Step = Callable[[list[Answer], Document], list[Answer]]
"""The responses to one request (one per repeat) and the document, to cleaner responses."""

INVALID = "[invalid]"
"""A response in which nothing was found. lm-eval's word."""
UNFINISHED = "[unfinished thinking]"
"""A response that was still thinking when it ended. Later steps leave it as it is, so that it can be counted."""


def each(function: Callable[[Answer], Answer]) -> Step:
    """A step that does the same to every response."""

    def step(responses: list[Answer], doc: Document) -> list[Answer]:  # noqa: ARG001  # the shape of a step
        return [response if is_unfinished(response) else function(response) for response in responses]

    return step


def is_unfinished(response: Answer) -> bool:
    return isinstance(response, str) and response == UNFINISHED


def marks_in(answers: Answer, marks: Collection[str]) -> set[str]:
    """The marks like `[invalid]` among a document's answers, which may be in lists of lists."""
    found: set[str] = set()
    if isinstance(answers, str):
        if answers in marks:
            found.add(answers)
    elif isinstance(answers, list | tuple):
        for answer in answers:  # a loop without calls: it looks at every answer of every document
            if type(answer) is float or (type(answer) is tuple and answer and type(answer[0]) is float):
                continue  # a log-likelihood
            found |= marks_in(answer, marks)
    return found


NUMBER_AFTER_HASHES = r"#### (\-?[0-9\.\,]+)"


def noop() -> Step:
    """The responses as they are."""
    return lambda responses, doc: responses  # noqa: ARG005


def take_first() -> Step:
    """The first response alone."""
    return lambda responses, doc: responses[:1]  # noqa: ARG005


def take_first_k(*, k: int) -> Step:
    """The first k responses."""

    def step(responses: list[Answer], doc: Document) -> list[Answer]:  # noqa: ARG001
        if len(responses) < k:
            raise ValueError(f"take_first_k needs {k} responses, and there are {len(responses)}: raise `repeats`")
        return responses[:k]

    return step


def majority_vote() -> Step:
    """The response given most often; of several, the one that came first. Who has not finished thinking has no vote."""

    def step(responses: list[Answer], doc: Document) -> list[Answer]:  # noqa: ARG001
        voters = [response for response in responses if not is_unfinished(response)]
        return [Counter(voters or responses).most_common(1)[0][0]]

    return step


def remove_whitespace() -> Step:
    """Without white space around it."""
    return each(lambda response: response.strip())


def lowercase() -> Step:
    """In lower case."""
    return each(lambda response: response.lower())


def uppercase() -> Step:
    """In upper case."""
    return each(lambda response: response.upper())


def map_values(*, mapping_dict: Mapping[Any, Any] | None = None, default_value: Any = None) -> Step:
    """Replace a response by its value in a table."""
    table = dict(mapping_dict or {})
    return each(lambda response: table.get(response, default_value))


def regex(*, regex_pattern: str = NUMBER_AFTER_HASHES, group_select: int = 0, fallback: str = INVALID) -> Step:
    """The match of a pattern: of all matches the `group_select`-th, if there is one, of its groups the first with text."""
    pattern = re.compile(regex_pattern)

    def extract(response: Answer) -> str:
        matches = pattern.findall(response if isinstance(response, str) else "")
        try:
            return _selected(matches[group_select], fallback)
        except IndexError:
            return fallback

    return each(extract)


def _has(matches: Sequence[Any], number: int) -> bool:
    return -len(matches) <= number < len(matches)


def selection_note(step: FilterStep) -> str:
    """Say that `group_select` counts matches, where it finds nothing or looks like the number of a group; else "".

    >>> selection_note(FilterStep(function="regex", kwargs={"regex_pattern": "Answer: (.*)", "group_select": 1}))
    'group_select 1 is the match number 2 in the answer, not the group 1 of the pattern'
    >>> selection_note(FilterStep(function="regex", kwargs={"regex_pattern": "^[a-z]", "group_select": 1}))
    'group_select 1 never finds anything: the pattern matches once at most'
    """
    written, number = step.kwargs.get("regex_pattern", NUMBER_AFTER_HASHES), step.kwargs.get("group_select", 0)
    if step.function not in ("regex", "multi_choice_regex") or type(number) is not int or number in (0, -1):
        return ""
    try:
        pattern = re.compile(str(written))
    except (re.error, OverflowError, RecursionError):
        return ""  # refused by its filter
    if _ANCHORED.search(pattern.pattern) and not pattern.flags & re.MULTILINE and "|" not in pattern.pattern:
        return f"group_select {number} never finds anything: the pattern matches once at most"
    if number < 0 or not pattern.groups:
        return ""
    return (
        f"group_select {number} is the match number {number + 1} in the answer, not the group {number} of the pattern"
    )


_ANCHORED = re.compile(r"^(?:\(\?\w+\))?(?:\^|\\A)|(?<!\\)(?:\$|\\Z)$")


def _selected(match: str | tuple[str, ...], fallback: str) -> str:
    if isinstance(match, tuple):
        match = next((group for group in match if group), fallback)
    return str(match).strip()


def regex_pos(*, regex_pattern: str = r"\['(.*?)'\]", group_select: int = 0, fallback: Any = None) -> Step:  # noqa: ARG001
    """The tags of pairs written as ('token', 'TAG'). The pattern is accepted and, as in lm-eval, not used."""
    instead = ["invalid"] if fallback is None else fallback

    def tags(response: Answer) -> list[str]:
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

    def step(responses: list[Answer], doc: Document) -> list[Answer]:
        words, letters = _choice_patterns(doc["choices"], plain)
        by_words = {plain(choice.strip()): f"({chr(65 + n)})" for n, choice in enumerate(doc["choices"])}
        letter_of = {chr(65 + number): f"({chr(65 + number)})" for number in range(len(by_words))}

        def letter(response: Answer) -> str:
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


def _match(
    pattern: re.Pattern[str], response: Answer, group_select: int, table: Mapping[str, str] | None = None
) -> str:
    matches = pattern.findall(response if isinstance(response, str) else "")
    if not _has(matches, group_select):
        return ""
    match = _selected(matches[group_select], "")
    return (table or {}).get(match, match)


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
        labeled = re.findall(r"\b(PER|LOC|ORG|DATE):\s*([^$]+)", text)
        entities = [(label, entity.strip()) for label, listed in labeled for entity in listed.split(",")]
        return " $ ".join(f"{label.lower()}: {entity}" for label, entity in entities if entity.lower() != "none")

    return each(spans)


# --- after the thinking ---------------------------------------------------------------------------------------------


def think(*, start: str = "<think>", end: str = "</think>", begun: bool = False) -> Step:
    """Keep the text after the thinking. Thinking that has no end leaves `[unfinished thinking]`, which is counted.

    `begun`: the prompt has opened the tag already, so that an answer without the closing one is unfinished, too.
    """
    if not start or not end:
        raise ValueError("start and end must not be empty")

    def answer(response: Answer) -> Answer:
        if not isinstance(response, str):
            return response
        _, closing, rest = response.rpartition(end)
        if start in rest or (begun and not closing):
            return UNFINISHED
        return rest.lstrip() if closing else response

    return each(answer)


def _adopted(name: str, thing: UserValue) -> Filter:
    """A filter, or a user's function or class as one, of which nothing is declared."""
    if isinstance(thing, Filter):
        must_be_callable(name, thing.function)
        return thing
    return Filter(must_be_callable(name, thing), keeps=None, reads=None, leaves=None)


class _Filters(Registry[Filter, Step]):
    def accepts(self, member: Filter | UserFunction) -> Accepted:
        return accepted(member.function if isinstance(member, Filter) else member)


FILTERS = _Filters(
    "filter",
    {
        "noop": Filter(noop, reads="any"),
        "take_first": Filter(take_first, keeps="one", reads="any"),
        "take_first_k": Filter(take_first_k, keeps="k", reads="any"),
        "majority_vote": Filter(majority_vote, keeps="one", reads="any"),
        "remove_whitespace": Filter(remove_whitespace),
        "lowercase": Filter(lowercase),
        "uppercase": Filter(uppercase),
        "map": Filter(map_values, leaves="value"),
        "regex": Filter(regex),
        "regex_pos": Filter(regex_pos, leaves="value"),
        "multi_choice_regex": Filter(multi_choice_regex),
        "format_span": Filter(format_span),
        "choice": "assay.scoring.stated_choice:CHOICE_FILTER",
        "think": Filter(think),
        "json_path": "assay.scoring.extraction:JSON_PATH",
        "math": "assay.scoring.extraction:MATH",
    },
    group="assay.filters",
    adopt=_adopted,
)
"""Functions of their parameters that return a step, with what they declare; or lm-eval's classes with `apply(resps, docs)`."""
UNKNOWN = Filter(noop, keeps=None, reads=None, leaves=None)
"""What is known of a filter that is code of a user's."""


def declared(step: FilterStep) -> Filter:
    """What is known of a step before it is made."""
    return FILTERS[step.function] if isinstance(step.function, str) and step.function in FILTERS else UNKNOWN


# --- pipelines ------------------------------------------------------------------------------------------------------


Batch = Callable[[list[Answer], list[Document]], Iterable[Answer]]
"""A step that sees every document of a task at once: lm-eval's interface for a user's filters."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The steps of one filter: without any, responses stay as they are.

    `single`: one response is left at the end, and is returned without a list around it.
    """

    name: str
    steps: tuple[tuple[Step | None, Batch | None], ...] = ()
    single: bool = False
    selects: tuple[str, int] | None = None
    """The step that takes some of the repeats and leaves the others out, with how many it takes."""
    only_takes_first: bool = False
    """Whether it has no other step than `take_first`, as most have."""

    @property
    def is_batch(self) -> bool:
        return any(batch is not None for _, batch in self.steps)

    def apply(self, responses: Sequence[list[Answer]], doc: Document) -> list[Answer]:
        """The answers to a document's requests."""
        if self.only_takes_first and all(responses):
            return [answers[0] for answers in responses]
        return [self._ended(answers) for answers in self.apply_to_all(responses, [doc] * len(responses))]

    def apply_to_all(self, responses: Sequence[list[Answer]], docs: Sequence[Document]) -> list[Answer]:
        """The answers to many requests; `docs` has the document of each."""
        answers: list[Any] = list(responses)
        by_user = False
        for step, batch in self.steps:
            if step is not None:
                if by_user:
                    _check_lists(answers, self.name)
                answers = [step(each, doc) for each, doc in zip(answers, docs, strict=True)]
            elif batch is not None:
                answers = _answers_of(batch(answers, list(docs)), len(docs), self.name)
            by_user = batch is not None
        return answers

    def _ended(self, answers: Answer) -> Answer:
        if not (self.single and isinstance(answers, list)):
            return answers
        if not answers:
            raise ValueError("the filter leaves no answer")
        return answers[0]

    def apply_batch(self, responses: Sequence[list[Answer]], docs: Sequence[Document]) -> list[Answer]:
        """As `apply_to_all`, with single answers standing by themselves."""
        return [self._ended(answers) for answers in self.apply_to_all(responses, docs)]


def _answers_of(returned: Any, count: int, name: str) -> list[Answer]:
    """Check the answers that a user's filter returned: as many as there are requests, else an error."""
    if isinstance(returned, str | bytes | Mapping | Set) or not isinstance(returned, Iterable):
        raise TypeError(
            f"filter {name!r} returned {type(returned).__name__!r}: it must return a list with one answer for each request"
        )
    answers = [plain(each) for each in returned]
    if len(answers) != count:
        raise ValueError(f"filter {name!r} returned {len(answers)} answers for {count} requests")
    return answers


def _check_lists(answers: Sequence[Answer], name: str) -> None:
    """Refuse a user's filter that returned something else than lists before a step that takes lists: of a text, the first
    letter would be scored."""
    odd = [each for each in answers if isinstance(each, str | bytes | Mapping) or not isinstance(each, Iterable)]
    if odd:
        what = f"filter {name!r} returned a value of type {type(odd[0]).__name__!r} for a request"
        raise TypeError(f"{what}, and the step after it takes a list of answers — return [answer]")


DEFAULT = FilterConfig(name="none", filter=(FilterStep(function="take_first"),))


ENDS = ("take_first", "take_first_k", "noop")
"""Steps by which a filter says how many answers it leaves, so that no `take_first` is added after them."""


def text_step(config: FilterConfig) -> str:
    """The first step that reads text, which log-likelihoods are not; empty where only user code may do so."""
    return next((str(step.function) for step in config.filter if declared(step).reads == "text"), "")


def leaves_text(config: FilterConfig) -> bool:
    """Whether what a filter leaves of text is text: no step makes values of it, nor may do so."""
    return all(declared(step).leaves == "text" for step in config.filter)


def answers_left(config: FilterConfig, repeats: int) -> int | None:
    """How many of a document's answers a filter leaves; None where only user code knows."""
    for step in config.filter:
        keeps, k = declared(step).keeps, step.kwargs.get("k")
        if keeps == "one":
            return 1
        if keeps is None:
            return None
        if keeps == "k" and isinstance(k, int):
            repeats = min(repeats, k)
    return repeats


def without_first(config: FilterConfig) -> FilterConfig:
    """The filter, leaving all answers to a request and not the first one alone."""
    return replace(config, filter=tuple(step for step in config.filter if step.function != "take_first"))


def build_pipeline(
    config: FilterConfig, place: Callable[..., Place], more: Mapping[str, UserFunction] | None = None
) -> Pipeline:
    """The pipeline a task describes. `more` are filters that helper code has registered; `place(step, key)` is for errors."""
    steps = check_each(lambda step: _step(step[1], step[0], place, more or {}), enumerate(config.filter))
    single = bool(config.filter) and config.filter[-1].function == "take_first"
    only_takes_first = single and len(config.filter) == 1
    return Pipeline(config.name, tuple(steps), single, _selection(config), only_takes_first)


def _selection(config: FilterConfig) -> tuple[str, int] | None:
    """The first step that keeps the first repeats and leaves the others out; None where one before it looks at all of them."""
    for step in config.filter:
        keeps, k = declared(step).keeps, step.kwargs.get("k")
        if step.function == "take_first":
            return "take_first", 1
        if keeps == "k" and isinstance(k, int):
            return str(step.function), k
        if keeps != "all":  # a vote, or code of a user's
            return None
    return None


def _step(
    config: FilterStep, number: int, place: Callable[..., Place], more: Mapping[str, UserFunction]
) -> tuple[Step | None, Batch | None]:
    function, kwargs = config.function, dict(config.kwargs)

    def at(key: str) -> Place:
        return place(number, key or "function")

    if function == "custom":
        filter_fn = kwargs.pop("filter_fn", None)
        if not callable(filter_fn):
            raise ConfigError.at(
                place(number), "filter 'custom' needs filter_fn", "write `filter_fn: !function module.name`"
            )
        return None, _from_user("custom", filter_fn, kwargs, at)
    if not isinstance(function, str):
        return None, _from_user(_named(function), function, kwargs, at)
    if function in more and function not in FILTERS:
        return None, _from_user(function, more[function], kwargs, at)
    if function not in FILTERS:
        raise ConfigError([unknown_name("filter", function, [*FILTERS.names(), "custom", *more], at(""))])
    if inspect.isclass(FILTERS[function].function):
        return None, _from_user(function, FILTERS[function].function, kwargs, at)
    step: UserValue = FILTERS.bind(function, kwargs, at)
    if not callable(step):
        what = f"filter {function!r} returned {step!r:.60}, which cannot be called"
        raise ConfigError.at(at(""), what, "return a function (responses, doc) -> responses")
    wrong = unreturned(step)
    if wrong is not None:
        raise ConfigError.at(at(""), f"filter {function!r} returned a function that {wrong[0]}", wrong[1])
    return step, None


def _named(function: UserValue) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _from_user(name: str, function: Any, kwargs: Params, at: Callable[[str], Place]) -> Batch:
    """A class with `apply(responses, docs)`, made with the parameters; a function of the two; or one that returns either."""
    if not callable(function):  # an object of such a class
        function = getattr(function, "apply", function)
    takes = typed_by_default(accepted(function, 0 if inspect.isclass(function) else 2))
    is_factory = bool(kwargs) and not inspect.isclass(function) and takes.lacking > 0
    problems = FILTERS.problems(name, accepted(function) if is_factory else takes, kwargs, at)
    if problems and (kwargs or inspect.isclass(function)):
        raise ConfigError(problems)
    with refused(at(""), f"filter {name!r} cannot be made", "correct its parameters"):
        makes = is_factory or inspect.isclass(function)
        step = function(**kwargs) if makes else partial(function, **kwargs) if kwargs else function
    apply = getattr(step, "apply", step)
    if not callable(apply):
        raise ConfigError.at(
            at(""), f"unsupported filter {function!r}", "name a class with `apply(resps, docs)`, or a function of both"
        )
    called = accepted(apply, 2)
    if is_async(apply):  # it may yield: what it makes is a list of answers
        raise ConfigError.at(at(""), f"filter {name!r} {AWAITED[0]}", AWAITED[1])
    if called.lacking:
        what = f"filter {name!r} cannot be called: it must take (resps, docs) by position"
        raise ConfigError.at(at(""), what, "give it both: lists of responses, and their documents")
    return apply
