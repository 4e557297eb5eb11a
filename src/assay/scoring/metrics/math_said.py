"""The clause of an answer that says its number: without denials, bounds, conditions and what is said to be wrong."""

import re
from fractions import Fraction

from assay.scoring.metrics.math_text import LEAD, LONGEST, boxed

# --- numbers that are more than their digits -------------------------------------------------------------------------

_SIZES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SIZE = rf"\s*(?:\\,|\\ |~)?\s*(?:\\(?:text|mathrm)\s*\{{\s*)?({'|'.join(_SIZES)})s?(?![A-Za-z])\s*\}}?"
_MULTIPLIED = re.compile(
    rf"(?<![\w.,^/}}])(\d{{1,15}}(?:,\d{{3}})*(?:\.\d{{1,15}})?)(\$|\\\)|\}}(?=\s+[a-z]))?{_SIZE}", re.IGNORECASE
)
_UNCLEAR = re.compile(rf"[\w)}}$\]]\s*(?:\\text\s*\{{)?\s*(?:{'|'.join(_SIZES)})s?(?![A-Za-z])", re.IGNORECASE)
_ASSIGNED = r"\$?\s*(?<![\w\\])([A-Za-z])\s*=\s*([-+]?[\w./\\{}^]*[\w}])\s*\$?"
_ASSIGNMENTS = re.compile(rf"{_ASSIGNED}(?:\s*(?:,|;|,?\s*and)\s*{_ASSIGNED})+(?!\s*[-+*/^=(]|\w)")
_SPACES = re.compile(r"[^\S\n]{2,}")
_ODDS = re.compile(r"(?<![\w.,])1 in (\d+)(?=[\s.!]*$)")


def in_figures(text: str) -> str:
    r"""A text with numbers for `7 thousand`, fractions for `1 in 7`, and named values in the order of their names.

    >>> in_figures("$1.5 million"), in_figures(r"$7$ hundred"), in_figures("y=3, x=-2"), in_figures("1 in 7")
    ('$1500000', '$700$', 'x = -2, y = 3', '1/7')
    """
    if len(text) > LONGEST:
        return text
    text = _SPACES.sub(" ", text)
    if "=" in text:
        text = _ASSIGNMENTS.sub(_sorted, text)
    return _ODDS.sub(r"1/\1", _MULTIPLIED.sub(_multiplied, text))


def _multiplied(match: re.Match[str]) -> str:
    number = Fraction(match[1].replace(",", "")) * _SIZES[match[3].lower()]
    whole = str(number) if number.denominator == 1 else f"{float(number)!r}"
    return f"{whole}{match[2] or ''}"


def _sorted(match: re.Match[str]) -> str:
    """Equations of several names, sorted by name; those of one name stay as they are."""
    pairs = re.findall(_ASSIGNED, match[0])
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names) or names == sorted(names) or len({name.islower() for name in names}) > 1:
        return match[0]
    listed = ", ".join(f"{name} = {value}" for name, value in sorted(pairs))
    return f"${listed}$" if "$" in match[0] else listed


# --- the clause that counts ------------------------------------------------------------------------------------------

_MARKS = r"\$\$[^$]*\$\$|\$[^$\n]*\$|\\\((?:(?!\\\)).)*\\\)|\\\[(?:(?!\\\]).)*\\\]"
_SENTENCE = re.compile(rf"((?:{_MARKS}|\([^()\n]*\)|[^\n.?!;]|[.?!](?![\s*\"')]|$))+)([.?!;*\"')]*)\s*", re.DOTALL)
_TAGGED = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL | re.IGNORECASE)
_VOID = re.compile(
    r"\b(?:wrong|incorrect|mistaken|false|naive|tempting|intermediate|partial)\s+(?:final\s+)?(?:answer|result|value|solution)"
    r"|\banswer\s+(?:to|of|for|in)\s+(?:the\s+)?(?:parts?|question|step|previous|first|case)\b"
    r"|\banswer\s+(?:is|would\s+be)\s+(?:wrong|incorrect)\b",
    re.IGNORECASE,
)
"""Clauses that name an answer to something else, or one that is wrong."""
_CONDITION = re.compile(r"\b(?:if|unless|suppose|assuming)\b", re.IGNORECASE)
_GENERAL = re.compile(r"\bin general\b|\botherwise\b|\bin fact\b|\bactually\b", re.IGNORECASE)
_IN_BRACKETS = re.compile(r"\([^()]*\banswers?\b[^()]*\)", re.IGNORECASE)
_REJECTED = re.compile(r"\s*(?:no|nope|wrong|incorrect|not)\b", re.IGNORECASE)
_VERB = (
    r"(?:know|determine|conclude|solve|say|tell|answer|decide|compute|be\s+(?:determined|solved|found|concluded|known))"
)
_ABSTAINS = re.compile(
    rf"\b(?:can\s?not|can['’]t|could\s+not|couldn['’]t|unable\s+to|impossible\s+to|do\s+not|don['’]t|does\s+not|not\s+able\s+to)"
    rf"\s+(?:\w+\s+)?{_VERB}\b(?!\s+(?:\w+\s+){{0,2}}(?:directly|easily|simply|by\s+hand|exactly))"
    r"|\b(?:answer|value|result)\s+(?:is|remains)\s+(?:unknown|undetermined|unclear|not\s+known)\b|\bnot\s+enough\s+information\b",
    re.IGNORECASE,
)
_NOTHING = re.compile(
    r"\bno\s+(?:real\s+|valid\s+|such\s+|integer\s+)?(?:solutions?|answers?)\b|\bis\s+extraneous\b", re.IGNORECASE
)
_FORMULA = rf"(?:{_MARKS}|\([^()]*\)|[-+]?\d+(?:[.,]\d+)*(?:\s*/\s*\d+)?(?!\s*[+*/^=-]|\d))"
_LOWER = (
    r"more|less|fewer|greater|higher|lower|above|below|larger|smaller|over|under|better|longer|shorter|older|younger"
)
_DENIED = re.compile(
    r"(?:\b(?:not|never|neither|nor)(?:\s+(?:be|equal|equals|equal\s+to|the|exactly|quite|really))?"
    r"|\bthan(?:\s+or\s+equal\s+to)?|\bat\s+(?:most|least)|\bup\s+to|\b(?:exceed|exceeds|exceeding|under|below|above))"
    rf"\s+(?:[a-z]\s*=\s*)?{_FORMULA}"
    rf"|(?:{_FORMULA})\s*(?:[A-Za-z]+\s+)?or\s+(?:{_LOWER})\b"
    rf"|(?:{_FORMULA})\s+(?:is|are|was)\s+(?:an?|one|the|only\s+an?)\s+(?:\w+\s+)?bound\b"
    rf"|(?:{_FORMULA})\s+(?:fails?|is\s+(?:wrong|incorrect|extraneous)|does\s+not\s+(?:work|hold|satisfy))\b",
    re.IGNORECASE,
)
"""Formulas that are not the answer: denied, or a bound. Numbers among words: math_text."""
_BOUNDED = re.compile(rf"[\w)}}$\]]\s*(?:\\text\s*\{{)?\s*(?:[A-Za-z]+\s+)?or\s+(?:{_LOWER})\b", re.IGNORECASE)
_REASON = re.compile(r"\s*,?\s+(?:because|since|as|where|which|given|so|after|when|using|by|if)\b", re.IGNORECASE)
_STARTS = re.compile(
    r"[\s:*_`]*(?:(?:indeed|therefore|thus|simply|exactly|just|now|then|clearly|equal\s+to|given\s+by)\s+)?[\s:*_`]*(?=[-+$\\(\[{\d.√π])",
    re.IGNORECASE,
)
_HALF_MARKED = (
    (re.compile(r"(\$[^$]+\$)(\s*,?\s*or\s+)([-+]?\d[\d./]*\d|[-+]?\d)(?![\w$/^])"), r"\1\2$\3$"),
    (re.compile(r"(?<![\w$^/.])([-+]?\d[\d./]*\d|[-+]?\d)(\s*,?\s*or\s+)(\$[^$]+\$)"), r"$\1$\2\3"),
)
_WORD_NUMBER = (
    r"(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty|forty|fifty|sixty|seventy"
    r"|eighty|ninety|hundred|thousand|million|and|minus|negative)"
)
_REMARK = re.compile(
    rf"(?<=[\d}}$])\s+\((?:{_WORD_NUMBER}(?:[\s-]+{_WORD_NUMBER})*|(?:since|because|from|as)\s[^()]*)\)", re.IGNORECASE
)


def said(text: str) -> str:
    """The part of an answer from which its formula is taken; nothing where it denies all of them or abstains.

    >>> said("The answer is $7$. Check: $7 + 7 = 14$."), said("x = 7 is extraneous, so there is no solution.")
    ('The answer is $7$', '')
    >>> said("The answer is 8. A common wrong answer is 7."), said("7 or fewer"), said("5 + 6 = 11")
    ('The answer is 8', '', '5 + 6 = 11')
    """
    if len(text) > LONGEST:
        return text
    text = _SPACES.sub(" ", text)
    if tagged := _TAGGED.findall(text):
        text = tagged[-1]
    if r"\boxed" in text:
        box = boxed(text)
        behind = text[text.rfind(box) + len(box) :][:30] if box is not text else ""
        bare = _REMARK.sub("", f"{box}{behind}")
        return "" if _BOUNDED.search(bare) or _UNCLEAR.search(bare) else text
    if not re.search(r"[A-Za-z]{2}", text):
        return text
    text = _DENIED.sub(" \x00 ", _REMARK.sub("", text))
    for pattern, marked in _HALF_MARKED:
        text = pattern.sub(marked, text)
    clause = _clause(text)
    return "" if _BOUNDED.search(clause) or _UNCLEAR.search(clause) else clause.replace("\x00", "").strip()


def _clause(text: str) -> str:
    """The clause that names the answer, with its lead; else the text without clauses that do not count."""
    sentences = _counted(text)
    leads = [place for place, (sentence, _) in enumerate(sentences) if LEAD.search(sentence)]
    last = leads[-1] if leads else -1
    abstains = [place for place, (sentence, _) in enumerate(sentences) if _ABSTAINS.search(sentence)]
    if abstains and abstains[-1] >= last:
        return ""
    if sentences and last < 0 and _NOTHING.search(sentences[-1][0]):
        return ""
    rest = " ".join(sentence + end for sentence, end in sentences) if len(sentences) < _count(text) else text
    if not leads:
        return rest
    lead = list(LEAD.finditer(sentences[last][0]))[-1]
    named = sentences[last][0][lead.end() :]
    behind = sentences[last + 1][0] if not named.strip(" :*_`") and last + 1 < len(sentences) else ""
    named = _STARTS.sub("", named + behind, count=1) if _STARTS.match(named + behind) else ""
    if not re.search(r"[\d\\$]", named):
        is_denied = "\x00" in sentences[last][0][lead.end() :]
        return " ".join(sentence + end for sentence, end in sentences[last + 1 :]) if is_denied else rest
    reason = _REASON.search(named)
    return f"The answer is {named[: reason.start()] if reason else named}"


def _count(text: str) -> int:
    return sum(1 for _ in _SENTENCE.finditer(text))


def _counted(text: str) -> list[tuple[str, str]]:
    """The sentences of a text and how they end, without those that are about something else."""
    text = _IN_BRACKETS.sub("", text) if LEAD.search(_IN_BRACKETS.sub("", text)) else text
    sentences = [(match[1], match[2]) for match in _SENTENCE.finditer(text)]
    kept = [
        (sentence, end)
        for place, (sentence, end) in enumerate(sentences)
        if not _VOID.search(sentence)
        and not ("?" in end and place + 1 < len(sentences) and _REJECTED.match(sentences[place + 1][0]))
    ]
    conditional = [pair for pair in kept if LEAD.search(pair[0]) and _CONDITION.search(pair[0])]
    others = [pair for pair in kept if pair not in conditional]
    is_said_again = any(LEAD.search(sentence) or _GENERAL.search(sentence) for sentence, _ in others)
    return others if conditional and is_said_again else kept
