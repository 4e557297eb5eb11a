"""The formula in a text: rewritten as math-verify reads it rightly, and cut from the words around it."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

# --- the formula in a text -------------------------------------------------------------------------------------------
# Of a text that is not marked as LaTeX, math-verify takes the last number: 2 of `(1, 2)`. So formulas are marked before they
# are read.


_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_SIGNS = {
    "−": "-", "﹣": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "±": r"\pm ", "∓": r"\mp ", "、": ", ",
    "。": ".", "⩽": "≤", "⩾": "≥", "∩": r"\cap ", "º": "°", "˚": "°", "\u200b": "", "\ufeff": "", "\u2060": "",
}  # fmt: skip
_OTHER = re.compile(r"[^\x00-\x7f]")
_RAISED = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_LOWERED = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")


def plain(text: str) -> str:
    r"""A text with ASCII's digits and signs for those of other scripts, full width and print.

    >>> plain("（１２，٣）"), plain("x² − 2½"), plain("𝟏𝟎 × 10⁻³")
    ('(12,3)', 'x^{2} - 2\\frac{1}{2}', '10 \\times  10^{-3}')
    """
    if text.isascii():
        return text
    text = _RAISED.sub(lambda raised: f"^{{{''.join(map(_SUPERSCRIPTS.__getitem__, raised[0]))}}}", text)
    text = _LOWERED.sub(lambda lowered: f"_{{{''.join(map(_SUBSCRIPTS.__getitem__, lowered[0]))}}}", text)
    return _OTHER.sub(lambda other: _plain_letter(other[0]), text)


@cache
def _plain_letter(letter: str) -> str:
    if letter in _SIGNS:
        return _SIGNS[letter]
    kind = unicodedata.category(letter)
    if kind == "Nd":
        return str(unicodedata.decimal(letter))
    if kind == "Zs":
        return " "
    if "\uff01" <= letter <= "\uff5e" or "\U0001d400" <= letter <= "\U0001d7ff":
        return unicodedata.normalize("NFKC", letter)
    above, slash, below = unicodedata.normalize("NFKC", letter).partition("\u2044")
    return rf"\frac{{{above}}}{{{below}}}" if slash and above and below else letter


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
_SHORT = r"is|it|so|we|of|in|to|at|by|as|an|be|do|he|if|me|my|no|on|us|(?:km|cm|mm|kg|ft|mi)(?:\^\{?\d\}?|[²³])?"
_WORD = re.compile(
    rf"(?<![\\A-Za-z])(?<!\\begin\{{)(?<!\\end\{{)(?:[^\W\d_]{{3,}}|(?i:{_SHORT}))(?![A-Za-z])|[\u0400-\u1fff\u3040-\ud7ff]+"
)
_ARTICLE = re.compile(r"(?<![\w\\])(?:[aA]|I)(?=\s+[\w$])")
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|sf|normal)?|math(?:rm|bf|it|sf)|mbox|operatorname)\s*\{([^{}]*)\}")
_MARKS = (
    (_TEXT, r" \1"),
    (re.compile(r"\\!|\$|(?<!\\)\\[()\[\]]|m?\\(?:angle|triangle) ?"), ""),
    (re.compile(r"(?<!\\)\\[,;: ]|~|\\q?quad(?![A-Za-z])"), " "),
    (re.compile(r"\\(?:overline|overrightarrow|widehat|hat|vec) ?\{([A-Za-z]+)\}"), r"\1"),
    (re.compile(r" {2,}"), " "),
)
LEAD = re.compile(r"\banswers?\b[^.\n]{0,100}?(?:\bis\b|\bare\b|[:=])(?!\s*:)", re.IGNORECASE)
_PERCENT = r"\cdot\frac{1}{100}"
_PERCENT_WITHIN = re.compile(r"\\%\s*(\$\$?|\\[)\]])")
_NAME = re.compile(
    r"\s*\$?(?:[A-Za-z]'*\(-?\d+\)|P ?\([^=]*\)|(?:\\[dt]?frac|\\(?:angle|triangle|overline|widehat)"
    r"|[{}|:/$ ()]|[A-Z]'*(?:_(?:\{\w+\}|[A-Za-z\d]))?){3,})\s*"
)
"""Lengths, angles, areas and ratios of them, by the capital letters of their points."""
_MARKED_NUMBER = r"(?:\$|\\\(|\\\[)?\s*[-+]?(?<![\d.,])\d++(?:[.,]\d++)*+\s*%?\s*(?:\$|\\\)|\\\])?(?!\s*[+*/^=-])"
_NOT = re.compile(
    r"(?:\b(?:not|never|neither|nor)(?:\s+(?:be|equal|equals|equal to|the|exactly|quite|really))?"
    r"|\bthan(?:\s+or\s+equal\s+to)?|\bat\s+(?:most|least)|\bup\s+to|\b(?:exceed|exceeds|exceeding|under|below|above)"
    rf"|\bbetween\s+{_MARKED_NUMBER}\s+and)\s+{_MARKED_NUMBER}|{_MARKED_NUMBER}\s+(?:is|are|was|can|does|do|would|should)\s+not\b",
    re.IGNORECASE,
)
"""Numbers that are not the answer: denied, or a bound."""
_END = re.compile(r"\n|[.?!](?=\s|$)")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*|\.\d+")

_REWRITTEN: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\\\$|^\s*(?:≈|\\approx(?![a-z]))|\\\\\s*$"), ""),
    (re.compile(r"\s*\b(?:[Pp]er\s?cent(?:age)?|pct)\b|(?<!\\)%"), r"\\%"),
    (re.compile(r"\\f?boxed?\s+([\w.+-]+)|\\fbox(?=\{)"), lambda match: rf"\boxed{{{match[1]}}}" if match[1] else r"\boxed"),
    (re.compile(r"\\(?:text|math)(?:bf|it|rm|sf|normal)?\s*\{\s*([-+]?\d[\d.,]*)\s*\}"), r"\1"),
    (re.compile(r"(^|[$({=,])\s*\\text\s*\{([A-Za-z])\}"), r"\1 \2"),
    (re.compile(r"(?<![A-Za-z\\])negative infinity(?![A-Za-z])"), r"-\\infty "),
    (re.compile(r"(?<![A-Za-z\\])(?:positive )?[Ii]nfinity(?![A-Za-z])"), r"\\infty "),
    (re.compile(r"\{([^{}]*)\\over(?![A-Za-z])([^{}]*)\}"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\([dtc]?frac) ([A-Za-z]) ?([A-Za-z])(?![A-Za-z])"), r"\\\1{\2}{\3}"),
    (re.compile(r"\\sqrt ([A-Za-z])"), r"\\sqrt{\1}"),
    (re.compile(r"\\text\s*\{([^{}A-Za-z]*[()\[\]][^{}A-Za-z]*)\}"), r"\1"),
    (re.compile(r"(?<=\d) ?[€£¥₹¢](?!\w)|(?<!\w)[€£¥₹] ?(?=[-+]?[\d.])"), ""),
    (re.compile(r"^([-+]?\d[\d.,]*) m ?\^ ?\{?[23]\}?[. ]*$"), r"\1"),
    (re.compile(r"\b(?:can['’]t|cannot)\b"), "can not"),
    (re.compile(r"(?<=[A-Za-z])n['’]t(?![A-Za-z])"), " not"),
    (re.compile(r"(?<=[A-Za-z])['’](?:s|re|m|ve|ll|d)(?![A-Za-z])"), " "),
    (re.compile(r"(?:°|\^ ?\{? ?\\circ ?\}?) ?(?:[CF](?![A-Za-z])|\\(?:text|mathrm) ?\{ ?[CF] ?\})"), "°"),
    (re.compile(r"\\mathrm ?\{([ei])\}"), r"\1"),
    (re.compile("∞"), r"\\infty "),
    (re.compile(r"\\varnothing(?![A-Za-z])"), r"\\emptyset "),
    (re.compile(r"(?:^|(?<=[=($]))\s?[–—]\s?(?=\d)"), "-"),
    (re.compile(r"\\degree(?![A-Za-z])"), r"^\\circ "),
    (re.compile(r"\\(sin|cos|tan) ?\(?(\d+) ?(?:°|\^ ?\{? ?\\circ ?\}?) ?\)?"), r"\\\1(\\frac{\2\\pi}{180})"),
    (re.compile("∈"), r"\\in "),
    (re.compile(r"(?<=[)\]]) ?[U∪] ?(?=[(\[])"), r" \\cup "),
    (re.compile(r"(?<![A-Za-z\\])((?:arc)?(?:sin|cos|tan)|cot|sec|csc|log|ln|exp)(?= ?\(| [a-z0-9](?![A-Za-z]))"), r"\\\1"),
    (re.compile(r"(?<=\d) ?[x×] ?(?=10 ?\^)"), r"\\cdot "),
    (re.compile(r"(= ?-?\d[\d./]*) (?=[A-Za-z] ?=)"), r"\1, "),
    (re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])"), r"\\pi "),
    (re.compile(r"(?<![\w)}])\*\*|\*\*(?![\w({\\-])"), ""),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\^?\{?\\text\{ ?(?:st|nd|rd|th) ?\}\}?"), ""),
    (re.compile(r"√\s*\(([^()]*)\)|√\s*(\d+|[a-z])"), r"\\sqrt{\1\2}"),
    (re.compile(r"(?<![\d.])(\d+)\.(\d*)\\overline\{(\d+)\}"), lambda match: _repeating(*match.groups())),
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

    >>> rewritten("1e3"), rewritten("-2 3/4"), rewritten("1 234 567"), rewritten("2 3"), rewritten("50%")
    ('1\\cdot 10^{3}', '-2\\frac{3}{4}', '1234567', '2, 3', '50\\%')
    """
    text = re.sub(r"[^\S\n]+", " ", text)  # math-verify's patterns take minutes for a hundred thousand spaces
    if r"\\" in text and r"\begin" not in text:
        text = re.sub(r"\\\\(?=[A-Za-z])", r"\\", text)  # a backslash that was escaped once too often
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


_SHORT_CLAUSE = re.compile(
    r"(?:there (?:is|are)|it is|it will be|an?|the (?:function|equation|series|limit|answer|system|graph|number|curve) (?:is|has)?)"
    r" ?(?:an? )?((?!not\b|never\b)[^\W\d_]+(?: [^\W\d_]+){0,3})|(yes|no), (?:it|they) (?:is|are|does|do)(?: not)?"
)
"""Words said in a sentence that adds nothing to them."""


def said_words(text: str) -> set[str]:
    """The words that an answer may mean: all of it, its box, and what follows "the answer is"."""
    parts = [text, boxed(text)]
    if leads := list(LEAD.finditer(text)):
        parts.append(_END.split(text[leads[-1].end() :], maxsplit=1)[0])
    said = set(map(_plain, parts))
    return said | {clause[1] or clause[2] for each in said if (clause := _SHORT_CLAUSE.fullmatch(each))}


def answers_in(text: str) -> list[str]:
    """The texts that may be the answer in a text, the most certain last: all of it, its box, and what follows "the answer is"."""
    box = boxed(text)
    leads = list(LEAD.finditer(box))
    return [text, box, *(_END.split(box[lead.end() :].strip(), maxsplit=1)[0] for lead in leads[-1:])]


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
    bare = _TEXT.sub(r"\1", boxed(text)).strip(" \n$*`.,;:!?\"'")
    return re.sub(r"\s*,\s*", ", ", " ".join(bare.casefold().split()))


def formulas(text: str) -> list[str]:
    """The texts in which math-verify finds the formula of an answer: the first that it can read counts."""
    text = boxed(rewritten(text))
    if _is_marked(text):
        text = text if r"\boxed" in text else _NOT.sub(" ", text)
        leads = list(LEAD.finditer(text))
        named = text[leads[-1].end() :] if leads else ""
        if r"\boxed" in text or _is_marked(named) or not _between_words(named):
            return [_PERCENT_WITHIN.sub(r"\1\\%", text)]
        text = text[leads[-1].start() :]
    formula = _of_sentence(text) if _has_words(_TEXT.sub("", text)) else text
    if len(formula) > LONGEST:
        return []
    formula = formula.strip("#").rstrip(" \n.,;:?`\"'").lstrip(" \n,;:`\"'=")
    # prose has a currency before its number, or a sign behind it that LaTeX does not know
    is_prose = len(_NUMBER.findall(formula)) == 1 and _is_bare(formula)
    return [_as_latex(formula), formula] if is_prose else [_as_latex(formula)]


def _as_latex(formula: str) -> str:
    """A formula between the marks of LaTeX. A percent sign is read behind them only."""
    number, sign, behind = formula.partition(r"\%")
    if sign and not behind.strip() and "=" not in number:
        return f"${number.strip()}$%"
    return f"${formula.replace(sign, _PERCENT) if sign else formula}$"


def is_in_braces(text: str) -> bool:
    r"""Whether a set is written as one: with the braces that LaTeX shows, or with plain ones around all of it."""
    bare = text.strip()
    return r"\{" in bare or r"\lbrace" in bare or (bare.startswith("{") and bare.endswith("}"))


def boxed(text: str) -> str:
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


def name_and_value(text: str) -> tuple[str, str]:
    r"""The sides of an equation whose left side is a name, such as a length; else nothing and the text.

    >>> name_and_value(r"\frac{NO}{BO} = 7"), name_and_value("f(2)=3"), name_and_value("2x + z = 1"), name_and_value("x = 1")
    (('\\frac{NO}{BO}', '7'), ('f(2)', '3'), ('', '2x + z = 1'), ('', 'x = 1'))
    """
    name, equals, value = text.partition("=")
    if not equals or "=" in value or not _NAME.fullmatch(name):
        return "", text
    return "".join(name.replace("$", "").split()), value.strip(" $")


def _is_marked(text: str) -> bool:
    return any(mark in text.replace(r"\$", "") for mark in _MARKED)


def _of_sentence(text: str) -> str:
    """The formula that a sentence names as its answer, else its last one; nothing where it has none."""
    leads = list(LEAD.finditer(text))
    if leads and (named := _between_words(text[leads[-1].end() :])):
        return named[0]
    computed = [part for part in _between_words(text) if re.search(r"\d|\\[a-z]|[A-Za-z]\s*[-+*/^=<>≤≥]", part)]
    return computed[-1] if computed else ""


def _between_words(text: str) -> list[str]:
    """The parts between the words of a text."""
    parts = re.split(
        rf"{_END.pattern}|{_ARTICLE.pattern}|\x00", _WORD.sub(_cut, _NOT.sub("\x00", _TEXT.sub(r" \1 ", text)))
    )
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
NO_UNIT = re.compile(
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
    return None if not behind or (unit and not NO_UNIT.fullmatch(unit[1])) else parts


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
