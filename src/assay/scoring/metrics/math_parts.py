"""Targets of words and numbers in turn: `3 hours 20 minutes`, `June 20`, `less than 3`. No part of them alone is the answer."""

import re
from dataclasses import dataclass

from assay.scoring.metrics.math_text import LONGEST, answers_in, rewritten, unmarked, word_spans

_POWER = r"(?: ?\^ ?\{?\d\}?|[²³])?"
_UNIT = re.compile(
    rf"(?:(?:square|cubic|sq\.?|cu\.?) )?([^\W\d_]+)\.?{_POWER}(?: (?:celsius|fahrenheit|c|f))?"
    rf"(?: ?(?:/|per|an?|each) ?[^\W\d_]+{_POWER})?",
    re.IGNORECASE,
)
_NO_UNIT = re.compile(
    "january|february|march|april|may|june|july|august|september|october|november|december|am|pm|ago|late|early|above|below"
    "|north|south|east|west|left|right|more|less|fewer|mod|modulo|remainder|to|or|and"
    "|hundred|thousand|million|billion|trillion|dozen"
)
_NAMED = re.compile(
    r".*(?:[=:]|\b(?:is|are|was|were|be|get|gets|got|takes|took|has|have|equals"
    r"|about|approximately|around|roughly|exactly|usd|eur|gbp|inr))",
    re.DOTALL,
)
"""How the words before a formula end that only name it."""
_RELATIONS = (
    (re.compile(r"\\(?:leq?|leqslant)(?![A-Za-z])|<=|≤"), " ≤ "),
    (re.compile(r"\\(?:geq?|geqslant)(?![A-Za-z])|>=|≥"), " ≥ "),
    (re.compile(r"\\lt(?![A-Za-z])"), " < "),
    (re.compile(r"\\gt(?![A-Za-z])"), " > "),
    (re.compile(r"\\neq?(?![A-Za-z])|!=|≠"), " ≠ "),
)
_OPEN = re.compile(r"[<>≤≥≠](?!.*[<>])")
_CLOCK = re.compile(r"(?:(?<=\d) |(?<=:\d\d))[ap]\.?m$", re.IGNORECASE)
_BEHIND = re.compile(rf"{_POWER}(?: ?/ ?[A-Za-z]+{_POWER})?(?: ?[=:])?")
_SEGMENT = re.compile(r"([ ,;.]*(?:\b(?:and|or)\b)?[ ,;]*)(.*?)([ ,;.]*(?:\b(?:and|or)\b)?[ ,;.]*)")
_COMPUTED = re.compile(r"\d|\\[a-z]|[A-Za-z]\s*[-+*/^=<>≤≥]")


@dataclass(frozen=True, slots=True)
class FormulaParts:
    """A text as its formulas and the words around them: there is one more of the words, the first and last may be empty."""

    text: str
    words: tuple[str, ...]
    formulas: tuple[str, ...]


def parts_of_target(text: str) -> FormulaParts | None:
    r"""The parts of a target that is more than one formula; None where it is one formula, with or without a name and a unit.

    >>> parts_of_target("3 hours 20 minutes")
    FormulaParts(text='3hours20minutes', words=('', 'hours', 'minutes'), formulas=('3', '20'))
    >>> parts_of_target("20 minutes"), parts_of_target("Area = 5 square feet"), parts_of_target("x = 1 or x = 2")
    (None, None, None)
    """
    named = answers_in(text)[-1].rpartition("####")[2]
    if r"\boxed" in named or len(named) > LONGEST:
        return None
    found = _parts(named)
    if not found.formulas or not any(found.words):
        return None
    if len(found.formulas) > 1 or not _only_names(found.words[0]):
        return found
    behind = found.words[-1]
    unit = _UNIT.fullmatch(behind)
    return None if not behind or (unit and not _NO_UNIT.fullmatch(unit[1])) else found


def parts_of_answers(text: str) -> list[FormulaParts]:
    """What an answer may mean, in parts: all of it, its box, and what follows "the answer is"."""
    return [_parts(each) for each in dict.fromkeys(answers_in(text)) if len(each) <= LONGEST]


def same_words(target: FormulaParts, answer: FormulaParts) -> bool:
    """Whether an answer has as many formulas as its target and the same words around them. More words may name it."""
    if len(target.formulas) != len(answer.formulas) or target.words[1:] != answer.words[1:]:
        return False
    before, wanted = answer.words[0], target.words[0]
    return before == wanted or (before.endswith(wanted) and _only_names(before.removesuffix(wanted).strip()))


def _only_names(words: str) -> bool:
    return not words or _NAMED.fullmatch(words) is not None


def _parts(text: str) -> FormulaParts:
    """A text cut at its words. Powers and quotients of units belong to the words, a relation without a left side too."""
    bare = " ".join(unmarked(rewritten(text)).split()).strip(" .,;:!?\"'`*#")
    for pattern, sign in _RELATIONS:
        bare = pattern.sub(sign, bare).strip()
    words, formulas, start = [""], list[str](), 0
    for first, end in [*_cuts(bare), (len(bare), len(bare))]:
        between = bare[start:first]
        if (cut := _SEGMENT.fullmatch(between)) and _COMPUTED.search(cut[2]):
            words[-1] += f" {cut[1]}"
            formulas.append(cut[2])
            words.append(f"{cut[3]} ")
        else:
            words[-1] += f" {between} "
        words[-1] += bare[first:end]
        start = end
    return FormulaParts("".join(bare.casefold().split()), tuple(map(_folded, words)), tuple(formulas))


def _cuts(text: str) -> list[tuple[int, int]]:
    """Where the words of a text are, from and to."""
    opening = _OPEN.match(text)
    cuts = [opening.span()] if opening else []
    for first, end in word_spans(text):
        if not cuts or first >= cuts[-1][1]:
            behind = _BEHIND.match(text, end)
            cuts.append((first, behind.end() if behind else end))
    if clock := _CLOCK.search(text):
        cuts.append(clock.span())
    return cuts


def _folded(words: str) -> str:
    return " ".join(re.sub(r"[,;.]", " ", words.casefold().replace(".m", "m")).split())
