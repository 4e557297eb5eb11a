r"""The formula in a text: the part of an answer that is to be computed with, written so that math-verify reads it as people do.

Of a text that is not marked as LaTeX math-verify takes the last number: 2 of `(1, 2)`. So formulas are marked before they are read.
"""

import re
from collections.abc import Callable

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
    (re.compile(r"(\d+)\.(\d*)\\overline\{(\d+)\}"), lambda found: _repeating(*found.groups())),
    (re.compile(r"(?<![\w.\\}])(\d+(?:\.\d+)?)[eE]([+-]?\d{1,3})(?![\w^]|\.\d)"), r"\1\\cdot 10^{\2}"),
    (re.compile(r"(?<![\d.,])\d{1,3}(?:(?: |\\,|\{,\})\d{3})+(?![\d/])"), lambda found: re.sub(r"\D", "", found[0])),
    (re.compile(r"(?<![\w.,}/^])(\d+) (\d+) ?/ ?(\d+)(?!\w|\.\d)"), r"\1\\frac{\2}{\3}"),
    (re.compile(r"(\\[A-Za-z]+ ?\d+ (?=\d))|(?<![\d._^{])(\d+(?:\.\d+)?) (?=\d)"), lambda found: found[1] or f"{found[2]}, "),
    (re.compile(r"(?<!\\)\{\{([^{},]*)\}\}"), r"{\1}"),
)  # fmt: skip
"""What math-verify misreads, in the order in which it is rewritten: percent and currency behind a backslash, tuples marked as text,
signs, functions without a backslash, 1.5 x 10^3, equations side by side (A=1 B=2 is not A=B=2), bold and powers by stars, 6th,
decimals that repeat, 1e3, spaces between thousands, mixed numbers (2 3/4 is not 5/4), numbers side by side (2 3 is not 5), and
braces within braces, which are no set."""


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
    r"""What stands in the one `\boxed{}` of a text, also where it is not closed; the text itself where there are more or none."""
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
    """What stands between the words of a text."""
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
