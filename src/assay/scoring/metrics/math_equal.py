"""Whether two answers mean the same number, set or expression. Needs the extra `math`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

from assay.records import Answer
from assay.scoring.results import GENERATE, DeclaredMetric, References
from assay.user_code import clock_stopped, in_main_thread

# --- the formula in a text -------------------------------------------------------------------------------------------
# Of a text that is not marked as LaTeX, math-verify takes the last number: 2 of `(1, 2)`. So formulas are marked before they
# are read.


Expression = Any
"""A parsed number, set or relation of sympy, which has no types."""
LONGEST = 4000
"""Characters of a formula: what is longer is a model that did not stop, and takes math-verify minutes."""
_MARKED = ("$", r"\boxed", r"\(", r"\[")
_FUNCTIONS = (
    "sin",
    "cos",
    "tan",
    "cot",
    "sec",
    "csc",
    "log",
    "exp",
    "sqrt",
    "arcsin",
    "arccos",
    "arctan",
    "inf",
    "and",
)
_SHORT = r"is|it|so|we|of|in|to|at|by|as|an|be|do|he|if|me|my|no|on|us|(?:km|cm|mm|kg)(?:\^\{?\d\}?|[²³])?"
_WORD = re.compile(
    rf"(?<![\\A-Za-z])(?<!\\begin\{{)(?<!\\end\{{)(?:[^\W\d_]{{3,}}|(?i:{_SHORT}))(?![A-Za-z])|[\u0400-\u1fff\u3040-\ud7ff]+"
)
_ARTICLE = re.compile(r"(?<![\w\\])(?:[aA]|I)(?=\s+[\w$])")
_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_MARKS = (
    (_TEXT, r" \1"),
    (re.compile(r"\\!|\$|(?<!\\)\\[()\[\]]|m?\\(?:angle|triangle) ?"), ""),
    (re.compile(r"(?<!\\)\\[,;: ]|~|\\q?quad(?![A-Za-z])"), " "),
    (re.compile(r"\\(?:overline|overrightarrow|widehat|hat|vec) ?\{([A-Za-z]+)\}"), r"\1"),
    (re.compile(r" {2,}"), " "),
)
_LEAD = re.compile(r"\banswers?\b[^.\n]{0,100}?(?:\bis\b|\bare\b|[:=])(?!\s*:)", re.IGNORECASE)
_END = re.compile(r"\n|[.?!](?=\s|$)")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*|\.\d+")

_REWRITTEN: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\\(?=%)|\\\$"), ""),
    (re.compile(r"\s*\b[Pp]er\s?cent(?:age)?\b"), "%"),
    (re.compile(r"\\text\s*\{([^{}A-Za-z]*[()\[\]][^{}A-Za-z]*)\}"), r"\1"),
    (re.compile("∞"), r"\\infty "),
    (re.compile("∈"), r"\\in "),
    (re.compile(r"(?<=[)\]]) ?[U∪] ?(?=[(\[])"), r" \\cup "),
    (re.compile(r"(?<![A-Za-z\\])((?:arc)?(?:sin|cos|tan)|cot|sec|csc|log|ln|exp)(?= ?\()"), r"\\\1"),
    (re.compile(r"(?<=\d) ?[x×] ?(?=10 ?\^)"), r"\\cdot "),
    (re.compile(r"(= ?-?\d[\d./]*) (?=[A-Za-z] ?=)"), r"\1, "),
    (re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])"), r"\\pi "),
    (re.compile(r"(?<![\w)}])\*\*|\*\*(?![\w({\\-])"), ""),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\^?\{?\\text\{ ?(?:st|nd|rd|th) ?\}\}?"), ""),
    (re.compile(r"√\s*\(([^()]*)\)|√\s*(\d+|[a-z])"), r"\\sqrt{\1\2}"),
    (re.compile(r"(\d+)\.(\d*)\\overline\{(\d+)\}"), lambda match: _repeating(*match.groups())),
    (re.compile(r"(?<![\w.\\}])(\d+(?:\.\d+)?)[eE]([+-]?\d{1,3})(?![\w^]|\.\d)"), r"\1\\cdot 10^{\2}"),
    (re.compile(r"(?<![\d.,])\d{1,3}(?:(?: |\\,|\{,\})\d{3})+(?![\d/])"), lambda match: re.sub(r"\D", "", match[0])),
    (re.compile(r"(?<![\w.,}/^])(\d+) (\d+) ?/ ?(\d+)(?!\w|\.\d)"), r"\1\\frac{\2}{\3}"),
    (re.compile(r"(\\[A-Za-z]+ ?\d+ (?=\d))|(?<![\d._^{])(\d+(?:\.\d+)?) (?=\d)"), lambda match: match[1] or f"{match[2]}, "),
    (re.compile(r"(?<!\\)\{\{([^{},]*)\}\}"), r"{\1}"),
)  # fmt: skip
"""Rewrites of what math-verify misreads, in order: percent and currency behind a backslash, tuples marked as text,
signs, functions without a backslash, 1.5 x 10^3, equations side by side (A=1 B=2 is not A=B=2), bold and powers by stars, 6th,
decimals that repeat, 1e3, spaces between thousands, mixed numbers (2 3/4 is not 5/4), numbers side by side (2 3 is not 5), and
braces within braces, which are not sets."""


def rewritten(text: str) -> str:
    r"""A formula as math-verify reads it rightly.

    >>> rewritten("1e3"), rewritten("-2 3/4"), rewritten("1 234 567"), rewritten("2 3"), rewritten(r"50\%")
    ('1\\cdot 10^{3}', '-2\\frac{3}{4}', '1234567', '2, 3', '50%')
    """
    text = re.sub(r"[^\S\n]+", " ", text)  # math-verify's patterns take minutes for a hundred thousand spaces
    for pattern, replaced in _REWRITTEN:
        text = pattern.sub(replaced, text)
    return text


def _repeating(whole: str, once: str, again: str) -> str:
    """A decimal whose last digits repeat, as a fraction."""
    above = int(whole + once + again) - int(whole + once)
    return rf"\frac{{{above}}}{{{'9' * len(again) + '0' * len(once)}}}"


def words_of(text: str) -> str | None:
    r"""The words of a text that has nothing else, without case and marks; None where there is something to compute with.

    >>> words_of(r"\boxed{\text{No solution}}"), words_of(r"\text{June 20}"), words_of("x + 1"), words_of("5 apples")
    ('no solution', 'june 20', None, None)
    """
    bare = _plain(text)
    if _TEXT.fullmatch(text.strip(" \n$")) and len(re.findall(r"[^\W\d_]", bare)) > 1:
        return bare
    return None if re.search(r"[\d\\^_=<>+*/|{}\[\]∞√≤≥≠∅]", bare) or not _has_words(bare) else bare


def said_words(text: str) -> set[str]:
    """The words that an answer may mean: all of it, its box, and what follows "the answer is"."""
    parts = [text, _boxed(text)]
    if leads := list(_LEAD.finditer(text)):
        parts.append(_END.split(text[leads[-1].end() :], maxsplit=1)[0])
    return set(map(_plain, parts))


def answers_in(text: str) -> list[str]:
    """The texts that may be the answer in a text, the most certain last: all of it, its box, and what follows "the answer is"."""
    boxed = _boxed(text)
    leads = list(_LEAD.finditer(boxed))
    return [text, boxed, *(_END.split(boxed[lead.end() :].strip(), maxsplit=1)[0] for lead in leads[-1:])]


def unmarked(text: str) -> str:
    r"""A text without the marks of LaTeX that are not computed with.

    >>> unmarked(r"$3$\,\text{hours}"), unmarked(r"\angle ABC = 30"), unmarked(r"\overline{AB} = 5")
    ('3 hours', 'ABC = 30', 'AB = 5')
    """
    for pattern, replaced in _MARKS:
        text = pattern.sub(replaced, text)
    return text


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where the words of a text are, from and to, articles too."""
    words = (word.span() for word in _WORD.finditer(text) if word[0] not in _FUNCTIONS)
    return sorted([*words, *(word.span() for word in _ARTICLE.finditer(text))])


def _plain(text: str) -> str:
    bare = _TEXT.sub(r"\1", _boxed(text)).strip(" \n$*`.,;:!?\"'")
    return re.sub(r"\s*,\s*", ", ", " ".join(bare.casefold().split()))


def formulas(text: str) -> list[str]:
    """The texts in which math-verify finds the formula of an answer: the first that it can read counts."""
    text = _boxed(rewritten(text))
    if _is_marked(text):
        leads = list(_LEAD.finditer(text))
        named = text[leads[-1].end() :] if leads else ""
        if r"\boxed" in text or _is_marked(named) or not _between_words(named):
            return [text]
        text = text[leads[-1].start() :]
    formula = _of_sentence(text) if _has_words(_TEXT.sub("", text)) else text
    if len(formula) > LONGEST:
        return []
    formula = formula.strip("#").rstrip(" \n.,;:?`\"'").lstrip(" \n,;:`\"'=")
    # prose has a currency before its number, or a sign behind it that LaTeX does not know
    return [f"${formula}$", formula] if len(_NUMBER.findall(formula)) == 1 and _is_bare(formula) else [f"${formula}$"]


def is_in_braces(text: str) -> bool:
    r"""Whether a set is written as one: with the braces that LaTeX shows, or with plain ones around all of it."""
    bare = text.strip()
    return r"\{" in bare or r"\lbrace" in bare or (bare.startswith("{") and bare.endswith("}"))


def _boxed(text: str) -> str:
    r"""The content of the one `\boxed{}` of a text, also where it is not closed; the text itself where there are more or none."""
    _, box, content = text.partition(r"\boxed")
    if not box or r"\boxed" in content or not content.lstrip().startswith("{"):
        return text
    depth = 0
    for brace in re.finditer(r"\\.|[{}]", content, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0 and brace[0] == "}":
            content = content[: brace.start()]
            break
    return content.lstrip().removeprefix("{").strip(" $")


def joined_by(text: str) -> str:
    """The word between the parts of a list, "and" or "or"; nothing where there is neither, or both."""
    words = {word.casefold() for word in re.findall(r"(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])", text, re.IGNORECASE)}
    return words.pop() if len(words) == 1 else ""


def _is_marked(text: str) -> bool:
    return any(mark in text.replace(r"\$", "") for mark in _MARKED)


def _of_sentence(text: str) -> str:
    """The formula that a sentence names as its answer, else its last one; nothing where it has none."""
    leads = list(_LEAD.finditer(text))
    if leads and (named := _between_words(text[leads[-1].end() :])):
        return named[0]
    computed = [part for part in _between_words(text) if re.search(r"\d|\\[a-z]|[A-Za-z]\s*[-+*/^=<>≤≥]", part)]
    return computed[-1] if computed else ""


def _between_words(text: str) -> list[str]:
    """The parts between the words of a text."""
    parts = re.split(rf"{_END.pattern}|{_ARTICLE.pattern}|\x00", _WORD.sub(_cut, _TEXT.sub(r" \1 ", text)))
    stripped = (re.sub(r"^\W*\b(?:and|or)\b|\b(?:and|or)\b\W*$", "", part.strip(" ,;:*`\"'")) for part in parts)
    return [part.strip(" ,;:=") for part in stripped if re.search(r"[\w\\∞∅]", part)]


def _cut(word: re.Match[str]) -> str:
    return word[0] if word[0] in _FUNCTIONS else "\x00"


def _has_words(text: str) -> bool:
    """Whether a text is more than a formula: `xy` is a product, `yes` and `no` are not."""
    return any(word[0] not in _FUNCTIONS for word in _WORD.finditer(text))


def _is_bare(formula: str) -> bool:
    """Whether nothing in a formula makes more of its number: no bracket, relation, list or variable."""
    return re.search(r"[()\[\]{}<>=,;:≤≥≠\\^_/|+*A-Za-z]", formula) is None


# --- targets of words and numbers in turn, such as `3 hours 20 minutes` ----------------------------------------------


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
    parts = _parts(named)
    if not parts.formulas or not any(parts.words):
        return None
    if len(parts.formulas) > 1 or not _only_names(parts.words[0]):
        return parts
    behind = parts.words[-1]
    unit = _UNIT.fullmatch(behind)
    return None if not behind or (unit and not _NO_UNIT.fullmatch(unit[1])) else parts


def parts_of_answers(text: str) -> list[FormulaParts]:
    """The readings of an answer, in parts: all of it, its box, and what follows "the answer is"."""
    return [_parts(each) for each in dict.fromkeys(answers_in(text)) if len(each) <= LONGEST]


def same_words(target: FormulaParts, answer: FormulaParts) -> bool:
    """Whether an answer has as many formulas as its target and the same words around them. More words may name it."""
    if len(target.formulas) != len(answer.formulas) or target.words[1:] != answer.words[1:]:
        return False
    before, expected = answer.words[0], target.words[0]
    return before == expected or (before.endswith(expected) and _only_names(before.removesuffix(expected).strip()))


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


# --- comparing -------------------------------------------------------------------------------------------------------


SECONDS = 5
"""Time limit of one comparison: some expressions never end."""
_UNREADABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""Errors that math-verify and sympy raise for texts that they cannot read."""


def math_equal(references: References, prediction: Answer, *, digits: int = 6, strict: bool = True) -> float:
    r"""Whether the answer equals a reference, by computing with both: 0.5, 1/2 and \frac{2}{4} are the same.

    Numbers are compared to so many digits after the point. `strict`: variables must have the same names.
    An answer that cannot be read is wrong; a reference that cannot be read is a failure.
    """
    from math_verify.errors import TimeoutException

    unread = ""
    try:
        with clock_stopped():
            for each in map(str, references):
                try:
                    if _equal(each, str(prediction), digits, strict):
                        return 1.0
                except _UnreadableTarget as error:
                    unread = str(error)
    except TimeoutException as error:
        raise TimeoutError(f"math_equal: {error}") from None
    if unread:
        raise ValueError(f"math_equal: {unread}")
    return 0.0


class _UnreadableTarget(Exception):
    """A reference that nothing can be compared with."""


def _equal(right: str, response: str, digits: int, strict: bool) -> bool:
    if right.strip() == response.strip():
        return True
    words = words_of(right)
    if words is not None:
        return words in said_words(response)
    if parts := parts_of_target(right):
        return any(_same_parts(parts, each, digits, strict) for each in parts_of_answers(response))
    golds = _target(right)
    try:
        answers = _parsed(response)
    except _UNREADABLE:
        return False
    comparable = [pair for pair in product(golds, answers) if not _differ_in_kind(*pair)]
    return any(_same(gold.value, answer.value, digits, strict) for gold, answer in comparable)


def _same_parts(target: FormulaParts, answer: FormulaParts, digits: int, strict: bool) -> bool:
    """Whether an answer has the text of its target, or the same words with equal formulas between them."""
    if target.text == answer.text:
        return True
    try:
        return same_words(target, answer) and all(
            _equal(one, other, digits, strict) for one, other in zip(target.formulas, answer.formulas, strict=True)
        )
    except _UnreadableTarget:
        return False  # such a part equals its own text only


@dataclass(frozen=True, slots=True)
class _Read:
    """An expression, with what math-verify does not keep of its text: the braces of a set, and whether all or one of it holds."""

    value: Any
    in_braces: bool
    joined: str


def _target(text: str) -> list[_Read]:
    try:
        expressions = _parsed(text)
    except _UNREADABLE as error:
        raise _UnreadableTarget(f"the target {text!r:.80} cannot be read: {type(error).__name__}") from None
    if not expressions:
        raise _UnreadableTarget(f"the target {text!r:.80} cannot be read as a number, set or expression")
    return expressions


def _parsed(text: str) -> list[_Read]:
    """The expression that a text means; nothing where none can be read."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    for formula in formulas(text):
        is_latex = formula.startswith("$") and formula.endswith("$")  # else the 2 of `(1, 2` would count
        kinds = [LatexExtractionConfig()] if is_latex else [LatexExtractionConfig(), ExprExtractionConfig()]
        parsed = parse(formula, kinds, parsing_timeout=_seconds(), raise_on_error=True)
        expressions = [each for each in parsed if not isinstance(each, str)]
        if expressions:
            return [_Read(each, is_in_braces(text), joined_by(text)) for each in expressions]
    return []


def _differ_in_kind(gold: _Read, answer: _Read) -> bool:
    """Whether one is a number and the other more than a number, one a set and the other in order, or one "and" and the other "or".

    math-verify takes a number for the set that has only that number, and all lists for sets.
    """
    from sympy import Interval, Tuple

    one, other = gold.value, answer.value
    if (_is_number(one) and _is_more(other)) or (_is_more(one) and _is_number(other)):
        return True
    if gold.joined and answer.joined and gold.joined != answer.joined and _has_bounds(one):
        return True
    in_order = (Interval, Tuple)
    return (gold.in_braces and isinstance(other, in_order)) or (answer.in_braces and isinstance(one, in_order))


def _has_bounds(value: Expression) -> bool:
    """Whether it is a list in which something is an inequality."""
    from sympy import FiniteSet

    return isinstance(value, FiniteSet) and any(map(_is_more, value.args))


def _is_number(value: Expression) -> bool:
    from sympy import Expr

    return isinstance(value, Expr) and bool(value.is_number)


def _is_more(value: Expression) -> bool:
    """Whether it is a set, tuple, interval, matrix or relation. `x = 3` is not: that says a number."""
    from math_verify.grader import is_equation
    from sympy import MatrixBase, Set, Tuple
    from sympy.logic.boolalg import Boolean

    return isinstance(value, Set | Tuple | MatrixBase) or (isinstance(value, Boolean) and not is_equation(value))


def _same(gold: Expression, answer: Expression, digits: int, strict: bool) -> bool:
    from math_verify import verify

    gold, answer = _in_order(_as_decimal(gold, answer), answer), _as_decimal(answer, gold)
    try:
        if verify(gold, answer, digits, strict=strict, timeout_seconds=_seconds(), raise_on_error=True):
            return True
    except _UNREADABLE:
        _check(gold)
    ours, theirs = _chain(gold), _chain(answer)[::-1]  # 3 > x > 1 is 1 < x < 3
    return 1 < len(ours) == len(theirs) and all(
        _same(one, other, digits, strict) for one, other in zip(ours, theirs, strict=True)
    )


def _chain(value: Expression) -> list[Expression]:
    """The relations of `1 < x < 3`, in the order in which they are written."""
    from sympy import And

    return list(getattr(value, "_unsorted_args", value.args)) if isinstance(value, And) else []


def _as_decimal(number: Expression, other: Expression) -> Expression:
    """An integer as a decimal where the other is one: sympy rounds 10 to 10, which it does not take for 10.0."""
    from sympy import Float, Integer

    is_wanted = isinstance(number, Integer) and isinstance(other, Float)
    return Float(number, precision=other._prec) if is_wanted else number


def _in_order(gold: Expression, answer: Expression) -> Expression:
    """A list as a tuple where the answer is one: math-verify would take both for sets."""
    from sympy import FiniteSet, Interval, Tuple

    is_wanted = isinstance(gold, FiniteSet) and isinstance(answer, Interval | Tuple)
    return Tuple(*getattr(gold, "_unsorted_args", gold.args)) if is_wanted else gold


def _check(gold: Expression) -> None:
    """Raise where nothing can be compared with a reference, itself included: then it is not the answer that is at fault."""
    from math_verify import verify

    try:
        verify(gold, gold, timeout_seconds=_seconds(), raise_on_error=True)
    except _UNREADABLE as error:
        raise _UnreadableTarget(f"nothing can be compared with the target: {error!s:.100}") from None


def _seconds() -> int | None:
    return SECONDS if in_main_thread() else None


MATH_METRICS: dict[str, DeclaredMetric] = {"math_equal": DeclaredMetric({GENERATE: math_equal}, needs="math_verify")}
