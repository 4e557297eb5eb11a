"""The choice that an answer in words states: by its label or its text, in a sentence, after reasoning, in bold.

Labels and texts of choices become one sign each; patterns then find statements ("the answer is C", "C is correct", C
alone in a line). Choices that are negated, or that others state, are removed first. The last statement counts; one
that names two choices is a hedge.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from assay.records import Answer, Document
from assay.scoring.declarations import Filter
from assay.scoring.filters import INVALID, Step, is_unfinished

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_BARE, _SURE, _TEXT, _MOST = 0xE000, 0xE800, 0xF000, 0x800
"""Private signs: the first choice by its bare label, by a label in brackets or after "option", and by its text."""
_NOT = "\uf8ff"
"""Stands for a negated choice."""
_OTHER = chr(_TEXT + _MOST - 1)
"""Stands for something that is not among the choices: "blue or something darker"."""
_OBEDIENT = re.compile(
    r"(?:.*[.!] )?[\s*_`>]*(?:(?:so|thus|therefore|hence),? )?(?:the )?(?:best |correct |final |right )?answer(?: is|:)"
    r"[\s:*_`]*[(\[\"']*([^\W_]+)[)\]\"']*[*_`]*\.?[*_`]*",
    re.IGNORECASE,
)
"""A last line that states a label and nothing else, as the prompt of `generate` demands; most answers do."""
_HEAD, _TAIL = 500, 2000
"""Characters of an answer that are looked at: its statement is where it begins or ends."""


def choice(*, choices: Any = None, labels: Any = "letters", fallback: str = INVALID) -> Step:
    """The label of the choice that the answer states in words, and its text where `labels` is null; a hedge does not match.

    `choices` is written as doc_to_choice, `labels` as choice_labels of a format. Without `choices`, letters are looked
    for, and an answer without any is left as it is.
    """
    if not (labels is None or labels in ("letters", "numbers") or isinstance(labels, list | tuple)):
        raise ValueError(f"labels must be letters, numbers, a list or null, got {labels!r}")

    def step(responses: list[Answer], doc: Document) -> list[Answer]:
        listed = choices(doc) if callable(choices) else doc[choices] if isinstance(choices, str) else choices
        texts = [str(text) for text in listed or ()]
        names = labels_of(labels, len(texts))

        def stated(response: Answer) -> Answer:
            if not isinstance(response, str) or is_unfinished(response):
                return response if isinstance(response, str) else fallback
            number = stated_choice(response, names, texts, weak=bool(texts))
            if number is None:
                return fallback if texts else stated_text(response)
            return names[number] if names else texts[number]

        return [stated(response) for response in responses]

    return step


def labels_of(written: str | Sequence[object] | None, count: int) -> list[str]:
    """The labels of so many choices, by `choice_labels` of a format; of 0 choices, all there may be."""
    if written == "letters":  # after Z comes AA
        return [(ALPHABET[n // 26 - 1] if n >= 26 else "") + ALPHABET[n % 26] for n in range(count or 26)]
    if written == "numbers":
        return [str(number) for number in range(1, 1 + (count or 9))]
    return [str(label) for label in written or ()][: count or None]


def stated_choice(answer: str, labels: Sequence[str], texts: Sequence[str] = (), *, weak: bool = True) -> int | None:
    """The number of the choice that an answer states; None where it states none, or more than one.

    `weak`: a bare label with which a clause begins counts, and so does a choice that is mentioned alone.

    >>> colors = ("red", "blue", "green")
    >>> [stated_choice(each, "ABC", colors) for each in ("The best answer is B.", "(c)", "Not A, but B", "A or B", "A dog")]
    [1, 2, 1, None, None]
    """
    if len(answer) > _HEAD + _TAIL:
        answer = f"{answer[:_HEAD]}\n{answer[-_TAIL:]}"
    obedient = _OBEDIENT.fullmatch(answer.rstrip(" \n*_`").rpartition("\n")[2])
    bare = (obedient[1] if obedient else answer.strip(" \t\r\n.,:;!?*_`\"'()[]")).casefold()
    exact = [number for number, label in enumerate(labels) if label.casefold() == bare]
    if len(exact) == 1:
        return exact[0]
    signed = _QUESTION.sub(" ", _signed(_plain(answer), tuple(labels[: _MOST - 1]), texts[: _MOST - 1]))
    stated = _last(list(_statements(signed)), weak=weak)
    if stated is None and weak:
        stated = {_number(sign) for sign in _MENTION.findall(signed)}
    return min(stated) if stated and len(stated) == 1 and stated != {_number(_OTHER)} else None


def stated_text(answer: str) -> str:
    """The answer after the last "the answer is", else all of it.

    >>> stated_text("Well. The best answer is **blue**."), stated_text(" a dog ")
    ('blue', 'a dog')
    """
    said = re.findall(r"(?i)\banswer(?:\s+is\b|\s*:)[\s:]*([^\n]*[^\s.])", _plain(answer))
    return str(said[-1]) if said else answer.strip()


# --- choices become signs -------------------------------------------------------------------------------------------

_BOX = re.compile(r"(?is)\\(?:boxed|fbox)\s*\{((?:[^{}]|\{[^{}]*\})*)\}|<answer>(.*?)(?:</answer>|$)")
_MARKUP = re.compile(
    r"\\\w+\s*\{([^{}]*)\}|[*`$]+|(?<!\w)_+|_+(?!\w)|</\w+>|<\|\w+\|>|<(?:b|i|u|em|strong|code|p|br)/?>|^[ \t]*(?:#+|[-•>])[ \t]+",
    re.MULTILINE,
)
_QUOTES = str.maketrans("’‘“”", "''\"\"")


def _plain(text: str) -> str:
    """The text without markup and private signs; a box is a statement."""
    text = re.sub(r"[\ue000-\uf8ff]", "", unicodedata.normalize("NFKC", text).translate(_QUOTES))
    text = _BOX.sub(lambda box: f"\nanswer: {box[1] or box[2] or ''}\n", text)
    return re.sub(r"[^\S\n]+", " ", _MARKUP.sub(lambda mark: mark[1] or "", text))


class _Mention(NamedTuple):
    start: int
    end: int
    sign: str


def _signed(answer: str, labels: tuple[str, ...], texts: Sequence[str]) -> str:
    """The answer in small letters, with a sign for each choice; the longest mention wins where two overlap."""
    small = answer.lower()
    small = small if len(small) == len(answer) else answer
    mentions = [*_by_text(small, labels, texts), *_by_label(answer, labels, texts)]
    taken: list[_Mention] = []
    for each in sorted(mentions, key=lambda each: (each.start - each.end, each.start)):
        if all(each.end <= other.start or other.end <= each.start for other in taken):
            taken.append(each)
    pieces, at = list[str](), 0
    for each in sorted(taken):
        pieces += [small[at : each.start], each.sign]
        at = each.end
    text = _PAIR.sub(_united, "".join([*pieces, small[at:]]))
    text = _ALL_BUT.sub(lambda match: f"{match[1]} is correct", _OR_ELSE.sub(f"\\1{_OTHER}", text))
    for pattern in (_COMPARED, _EXCEPTED, _NEGATED, _REFUTED, _LIKEWISE, _REPORTED, _COUNTERFACTUAL):
        text = pattern.sub(lambda match: re.sub(_SIGN, _NOT, match[0]), text)
    return text


def _by_text(small: str, labels: Sequence[str], texts: Sequence[str]) -> Iterator[_Mention]:
    """The texts of choices, as whole words; a text that is a label, too, is the label."""
    known = {label.casefold() for label in labels}
    for text, number in _spellings(tuple(texts)):
        at = small.find(text) if text not in known else -1
        while at >= 0:
            if not _continues(small, at, at + len(text)):
                yield _Mention(at, at + len(text), chr(_TEXT + number))
            at = small.find(text, at + 1)


@lru_cache(maxsize=256)
def _spellings(texts: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """How each choice may be written: as it is, without its article, with and without the comma before the last "and"."""
    plain = [re.sub(r"\s+", " ", _plain(text)).strip(" .,;:").lower() for text in texts]
    others: dict[str, set[int]] = {}
    for number, text in enumerate(plain):
        variants = {re.sub(r"^(?:the|an?) (?=\w{3})", "", text)}
        variants |= {re.sub(r",? (and|or) ", joined, text) for joined in (r", \1 ", r" \1 ")}
        for variant in variants:
            others.setdefault(variant, set()).add(number)
    written = [(text, number) for number, text in enumerate(plain) if text]
    return (*written, *((text, min(of)) for text, of in others.items() if len(of) == 1 and text not in plain))


def _continues(text: str, start: int, end: int) -> bool:
    """Whether these letters or digits are a part of a longer word or number."""
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    if text[start].isdigit() and re.search(r"[-−$]$|\d[.,/]$", before):
        return True
    if text[end - 1].isdigit() and re.match(r"%|[.,/]\d", after):
        return True
    return (text[start].isalnum() and before[-1:].isalnum()) or (text[end - 1].isalnum() and after[:1].isalnum())


_NAMED = r"(?:options?|choices?|answers?|letter|number|alternative|candidate|statement)"
_CALLED = re.compile(
    rf"\b(?:is|be|are|it's|that's|{_NAMED}|say|pick|choose|select|with|for)[:\s]*[\"'(]*$|[:=>→]\s*[\"'(]*$"
)
_AFTER = re.compile(
    r"\s*(?:$|[.,;:!?()\]\n\"'/&|—–]|-\s|(?:is|isn't|was|are|would|because|since|as|and|or|but|not|due|given|which|for|"
    r"with|in|from|based|instead|rather|over|fits|here|seems|looks|can|cannot|can't|could|might|may|must|doesn't|does|"
    r"nor|vs|it|best)\b)"
)  # fmt: skip


@lru_cache(maxsize=256)
def _label_pattern(labels: tuple[str, ...]) -> re.Pattern[str]:
    word = r"A-Za-z0-9_\u00c0-\u024f"
    written = "|".join(map(re.escape, sorted({*labels}, key=len, reverse=True)))
    return re.compile(rf"(?<![{word}.\\])(?<![{word}]['\-])(?:{written})(?![{word}]|['\-.][{word}])", re.IGNORECASE)


def _by_label(answer: str, labels: tuple[str, ...], texts: Sequence[str]) -> Iterator[_Mention]:
    numbers = {label.casefold(): number for number, label in reversed([*enumerate(labels)])}
    numbers |= {label: number for number, label in enumerate(labels)}
    for match in _label_pattern(labels).finditer(answer) if labels else ():
        start, end = match.span()
        number = numbers.get(match[0], numbers.get(match[0].casefold()))
        if number is None:
            continue
        before = answer[max(0, start - 40) : start].lower()
        opened, closed = before[-1:] in tuple("([{<"), answer[end : end + 1] in tuple(")]}>")
        if opened and closed:
            if re.search(rf"{_NAMED}\W$|(?:^|\W)\W$", before):  # f(A) is a function's value
                yield _Mention(start - 1, end + 1, chr(_SURE + number))
        elif _is_label(match[0], before, answer[end : end + 80], texts[number] if number < len(texts) else ""):
            is_sure = len(match[0]) > 1 or closed or re.search(rf"\b{_NAMED}\s*$", before)
            yield _Mention(start, end, chr((_SURE if is_sure else _BARE) + number))


def _is_label(label: str, before: str, after: str, text: str) -> bool:
    """Whether a letter or number is meant as a label: not an article, a variable, an amount, or a letter of a name."""
    if re.match(r"\s*[=+*^×<>~%]", after) or re.search(
        r"[+*^×<~−]\s*$|(?<!answer)(?<!\bans)(?<!\bis)(?<=\w)\s?=\s*$", before
    ):
        return False
    if label.isdigit() and re.search(r"[\d.,$€£#−-]$", before):
        return False
    own = text.strip() and after.lstrip(" ).:,-–—=\"'(").lower().startswith(text.strip().lower())
    if own or (len(label) > 1 and not label.isdigit()) or re.match(r"\)", after):
        return True
    if label in "AI" or label.isdigit():
        return _AFTER.match(after) is not None
    if label.islower() and label.isascii():
        begins = re.search(r"(?:^|[\n.:;!?,])\W*$", before) is not None
        return _AFTER.match(after) is not None and (begins or _CALLED.search(before) is not None)
    return True


# --- statements -----------------------------------------------------------------------------------------------------

_SIGN = "[\ue000-\uf7ff]"
_MENTION = re.compile("[\ue800-\uf7ff]")
_QUESTION = re.compile(r"[^.!?\n]*\?")
_PAIR = re.compile(
    rf"({_SIGN})([\s).:,=\"'(\[–—-]{{0,4}}(?:(?:which is|i\.e\.|that is)\s(?:{_NAMED}\s)?)?)({_SIGN})(\)?)"
)
"""A choice by its label and its text, which are one mention: `C) blue`, `blue (C)`."""
_WORDS = (
    "the|a|an|my|our|your|final|best|correct|right|most|likely|probably|clearly|definitely|certainly|obviously|simply|"
    "just|only|be|isn't|is|are|was|it's|it|that's|that|this|option|options|choice|choices|answer|answers|letter|number|"
    "statement|alternative|candidate|one|either|both|between|still|therefore|thus|then|hence|so|actually|indeed|maybe|"
    "perhaps|possibly|also|to|with|for|would|must|should|could|might|may|i'd|i'll|i|we|say|choose|pick|select|go|think|"
    "believe|guess|as|labeled|labelled|marked|by|here|of|among|accurate|appropriate|suitable|sure|but|rather|wait|no|"
    "sorry|hmm|okay|ok|well|yes|correction|mean|instead|follows|going|conclude|conclusion|in|not|neither|nor|"
    "otherwise"
)
_BEFORE = frozenset(
    [
        *_WORDS.split("|"),
        "and",
        "or",
        "because",
        "since",
        "while",
        "whereas",
        "if",
        "although",
        "though",
        "says",
        "however",
        "when",
        "reflection",
        "thought",
        "thoughts",
        "consideration",
        "balance",
        "now",
    ]
)
_FILL = rf"(?:[\s:=,>\"'(\[{{<…→–—-]|{_NOT}|\b(?:{_WORDS})\b){{0,30}}+"
_LIST = (
    rf"(?>{_SIGN}[)\]]?(?:(?:[\s/&|(]|,(?!\s*{_SIGN}\s+(?:is|was|isn't|has|does)\b)|\b(?:or|and|both|either|maybe|perhaps|possibly|even|also|versus|vs|{_NAMED})\b|"
    rf"\bbut (?:it )?(?:also|maybe|possibly|perhaps|could be|might be|may be)\b)++{_SIGN}[)\]]?)*)"
)
_ROW = (
    rf"(?>{_SIGN}[)\]]?(?: \([^()\n]{{0,60}}\))?(?:(?:[ /&|]|,(?!\s*{_SIGN}\s+(?:is|was|isn't|has|does)\b)|"
    rf"\n(?=(?:or|and) )|\b(?:or|and|both|either|even|also|versus|vs|{_NAMED})\b)++{_SIGN}[)\]]?(?: \([^()\n]{{0,60}}\))?)*)"
)
"""Choices in a row, in one line: what is said of one in the next line or in brackets is not said of all."""
_THEN_NO_IF = r"(?!\s*if\b)"
_THEN_NO_VERB = (
    r"(?!\s*(?:'s\s|\b(?:if|is|are|was|were|has|have|had|does|do|did|would|could|might|may|can|says?|means?|refers?|"
    r"describes?|contains?|seems?|looks?|shows?)\b))"
)
_COMPARED = re.compile(
    rf"\b(?:between|among|out of|of) {_SIGN}(?:,? (?:and|or) {_SIGN}|, {_SIGN}(?=,? (?:and|or)))+(?=,)"
)
_NOT_FILL = (
    r"(?:[ \"'(\[]|\b(?:be|been|is|it's|it|that|this|the|a|an|think|thought|believe|say|choose|pick|select|go|with|for|"
    r"options?|choices?|answers?|letter|either|any|of|really|quite|necessarily|correct|right|best|likely|both|all)\b)*+"
)
_NEGATED = re.compile(
    r"(?:\b(?:not(?! only\b)|never|neither|nor|cannot|except|excluding|unlike|than|instead of|over|exclud(?:e|es|ed|ing)|"
    r"none|eliminat(?:e|es|ed|ing)|rul(?:e|es|ed|ing) out|reject(?:s|ed|ing)?|dismiss(?:es|ed|ing)?|discard(?:s|ed|ing)?)\b|n't\b|"
    rf"\b(?:incorrect|wrong) {_NAMED}(?:\s*(?:are|is|:|-))?|"
    rf"(?:\A|(?<=[\n.;!])|(?<=[.;!] ))(?:wrong|incorrect|false|eliminated|excluded|ruled out)\s*[:–—-](?=\W*{_SIGN}))"
    rf"{_NOT_FILL}(?>{_SIGN}\)?(?:\s*(?:,|,?\s*(?:\b(?:or|nor|and)\b|[/&]))\s*(?:{_NAMED}\s+)?{_SIGN}\)?)*)"
)
_ADVERB = (
    r"(?:\s*\b(?:clearly|definitely|obviously|simply|also|therefore|thus|probably|likely|both|all|certainly|just|hence|"
    r"actually|really|somewhat|very|quite|indeed|surely|still|the|a|an|my|our|one|equally|too|most|final)\b)*+\s*"
)
_WRONG = (
    r"(?:incorrect|wrong|false\b|invalid|eliminated|excluded|ruled out|out\b|unlikely|impossible|implausible|inaccurate|"
    r"untrue|irrelevant)"
)
_REFUTED = re.compile(
    rf"(?:(?:{_SIGN}[)\]]?\n)++(?=(?:both |all )?are\b)|{_ROW})"
    rf"(?:{_ADVERB}(?:\b(?:is|are|was|were|can be|could be|would be|seems?|looks?|must be)\b|'s\b|[:(–—-])"
    rf"{_ADVERB}(?:not\b(?!{_NOT_FILL}{_NOT})|never\b|{_WRONG}|"
    r"(?<=too )\w|less\b|no\s*(?:[.,;!)\n]|$))|"
    r"\s*(?:isn't|aren't|wasn't|doesn't|don't|does not|do not|can't|cannot|could not|couldn't|fails?|lacks?)\b)"
)
_LIKEWISE = re.compile(
    rf"{_NOT}[^.!?\n;\ue000-\uf7ff]{{0,40}}\b(?:(?:as|so|nor|neither) (?:is|are|was|were|do|does|can)|as well as) "
    rf"(?:{_NAMED} )?{_ROW}"
)
"""Choices of which the same is said as of one that is negated: "D is wrong, as are A and B"."""
_BUT = (
    rf"\b(?:everything|anything|all|every|each|any)\b(?: (?:of|the|others?|one|{_NAMED})){{0,3}},? "
    rf"(?:but|except(?: for)?|other than|besides|apart from) (?:{_NAMED} )?({_ROW})"
)
_ALL_BUT = re.compile(
    rf"{_BUT},?(?:{_ADVERB}\b(?:is|are|was|were|can be|could be|must be)\b{_ADVERB}{_WRONG}|"
    r"\s*(?:fails?|(?:does|do)(?:n't| not) \w+)\b)"
)
_EXCEPTED = re.compile(_BUT)
_OR_ELSE = re.compile(rf"({_SIGN}[)\]]? or )(?!(?:not|so|else)\b)[\w'-]+(?: [\w'-]+){{0,4}}(?=\s*(?:[.!;\n]|\Z))")
_SAY = r"(?:say|think|choose|pick|select|go (?:with|for)|guess|believe|assume|argue|claim|prefer|answer|suggest|give|expect)s?"
_SAID = r"(?:said|thought|chosen?|picked|selected|gone (?:with|for)|went (?:with|for)|guessed|believed|assumed|leaned towards?)"
_REPORTED = re.compile(
    r"(?:\b(?:(?:many|most|some|several|other|few)(?: (?!(?:i|we|but|so|and|cases|part)\b)[\w'-]+){0,3}|people|students|"
    r"others|they|everyone|someone|one (?:might|could|would|may))(?: (?:would|might|may|could|will|often|also|still|tend to|"
    rf"wrongly))* (?:{_SAY}|{_SAID})|"
    rf"\bi(?:'d| had| was| have|'ve)? (?:(?:going|about|tempted|inclined|ready|thinking) to {_SAY}|tempted by|"
    rf"(?:nearly|almost|originally|initially|first|at first) {_SAID})|"
    rf"\b(?:originally|initially|at first),? i(?:'d| had)? {_SAID})\b:?{_NOT_FILL}{_ROW}"
)
"""Choices that others would state, or that the answer gave up."""
_COUNTERFACTUAL = re.compile(
    rf"\bif\b(?! (?:i|you|(?:we|one) (?:had|were) to)\b)[^.!?\n;]{{1,120}}?\b(?:were|was|had)\b[^.!?\n;\ue000-\uf7ff]{{1,120}}?"
    rf"(?:\bwould\b{_NOT_FILL}(?=[\ue000-\uefff]){_ROW}|(?=[\ue000-\uefff]){_ROW}\s+would\b)|"
    rf"(?=[\ue000-\uefff]){_ROW}\s+would\b[^.!?\n;,\ue000-\uf7ff]{{1,40}}\bif\b"
)
_NOUN = r"\b(?:ans(?:wers?)?|options?|choices?|response|pick|selection|solution|conclusion|guess|bet|verdict)\b"
_CUES = {
    "noun": rf"{_NOUN}(?:\([^)]*\)|[^.!?\n:;\ue000-\uf7ff]){{0,60}}?"
    r"(?:\b(?:is|are|was|be)\b|'s\b|:|=|→|->|[–—-](?=\s))",
    "named": r"\bans(?:wer)?\b",
    "verb": r"\b(?:cho(?:ose|osing|se)|prefer|pick(?:ing)?|select(?:ing)?|go(?:ing)? (?:with|for)|opt(?:ing)? for|"
    r"settl(?:e|ing) (?:on|for))\b",
    "loose": r"\b(?:say|guess|lean(?:ing)?(?: towards?| to)?|think|thought|believe|conclude|leav(?:es?|ing)(?: us with| only)?|"
    r"points? to|corresponds? to|match(?:es)?|gets?|gives?|(?:we|only) ha(?:ve|s)|left with|(?:left|remains|remaining(?: \w+)?) is|"
    r"(?:it|that|this|which|must|should)"
    r"(?:'?s| is| was| be| (?:must|would|should|could|might|may|has to|can)(?: also)? be)|so|therefore|thus|hence|consequently|"
    r"accordingly|finally|overall|ultimately)\b|=>|→|∴",
}  # fmt: skip
_FORWARD = re.compile(
    "|".join(
        rf"(?P<{name}>(?:{cue}){_FILL}{_LIST}{_THEN_NO_IF if name == 'noun' else _THEN_NO_VERB})"
        for name, cue in _CUES.items()
    )
)
_SUBJECT = re.compile(
    rf"{_LIST}(?:{_ADVERB}(?:(?:\b(?:is|are|was|must be|would be|should be|has to be|could be|might be|may be|seems?|looks?|"
    rf"appears?)\b|'s\b|[:(=–—-])(?: to be)?)?{_ADVERB}(?:\b(?:best|correct|right|true|valid|accurate|answers?|choices?|"
    r"options?|fits?|better|works|least (?:wrong|bad|incorrect|unlikely|implausible)|"
    r"only (?:\w+ ){0,2}(?:that|which|one|option|choice|answer)|"
    r"makes (?:the most )?sense|appropriate|yes)\b|\bit\b(?=\s*(?:is|[.,!\n]|$))|[✓✅])|"
    r"\s+is\s*(?=[.!,;\n]|$))(?=(?P<more>[^.!?\n]{0,12}))"
)
_LINE = re.compile(rf"^[ \"'(\[]*{_LIST}[ .,:;!\"')\]]*$", re.MULTILINE)
_CLAUSE = re.compile(
    rf"(?:^|[.!?;\n]|(?<=[–—,]))\s*+(?P<lead>(?:\b(?:or|and|alternatively)\b|{_FILL})*+){_LIST}"
    rf"(?P<rest>[\s,)]*\b(?:because|since|as|due|given|for|based)\b|\s*(?=[.,;!)\n—–(]|-\s|$)|(?<=[)\]]))"
)
_END = re.compile(rf"(?<=[^\ue000-\uf8ff)\s][:,–—])\s*{_LIST}\s*(?:[.!\n]|\Z)")
_DOES = re.compile(
    rf"(?:\A|[.!?;\n]|, (?:but|while|whereas)\b|\bonly\b|"
    rf"{_NOT}[^.!?;\n\ue000-\uf7ff]{{0,30}},)\s*(?:(?:only|but|{_NAMED}) )*{_ROW} (?:does|do)(?=\s*(?:[.!;\n]|\Z))"
)
_IF = re.compile(
    r"\b(?:if|unless|assuming)\b(?! (?:i|we|you|one|forced|pressed)\b)(?!.*\b(?:so|therefore|thus|hence|but|however)\b)[^.!?;\n]*\Z"
)
_UNSURE = re.compile(
    r"\b(?:could|might|may|maybe|perhaps|possibly|also|alternatively|equally|too|or|as well|otherwise)\b"
)
_CORRECTED = re.compile(r"\b(?:wait|actually|no|sorry|correction|i mean|rather|on second thought)\b")


class _Statement(NamedTuple):
    """Choices that an answer states at a place. `rank`: 0 as its answer, 1 in passing, 2 and 3 where a clause begins, with and
    without a mark."""

    end: int
    start: int
    rank: int
    choices: frozenset[int]
    is_unsure: bool = False
    is_line: bool = False


def _number(sign: str) -> int:
    return (ord(sign) - _BARE) % _MOST


def _united(pair: re.Match[str]) -> str:
    first, between, second, closing = pair.groups()
    kinds = {(ord(sign) - _BARE) // _MOST for sign in (first, second)}
    if _number(first) != _number(second) or 2 not in kinds or len(kinds) == 1:
        return pair[0]
    return (chr(_SURE + _number(first))) + ("" if "(" in between else closing)


def _statements(text: str) -> Iterator[_Statement]:
    for match in _FORWARD.finditer(text):
        sentence = text[max(0, match.start() - 20) : match.end()]
        by_text = all(ord(sign) >= _TEXT for sign in re.findall(_SIGN, match[0]))
        rank = 1 if match.lastgroup == "loose" and by_text and not _CORRECTED.search(sentence) else 0
        yield _statement(match, rank, is_unsure=_UNSURE.search(re.split(r"[.!?\n]", sentence)[-1]) is not None)
    for match in _SUBJECT.finditer(text):
        before = re.search(r"([^\W\d_]+) $", text[max(0, match.start() - 20) : match.start()])
        if before is not None and before[1] not in _BEFORE and ord(match[0][0]) < _SURE:
            continue  # "plan B is better"
        yield _statement(match, 0, is_unsure=_UNSURE.search(match[0] + match["more"]) is not None)
    for match in _CLAUSE.finditer(text):
        said = re.search(r"\w", match["lead"]) or match["rest"].strip(" ,)")
        is_marked = ord(re.findall(_SIGN, match[0])[0]) >= _SURE
        yield _statement(
            match, 0 if said else 2 if is_marked else 3, is_unsure=_UNSURE.search(match["lead"]) is not None
        )
    for pattern in (_LINE, _END, _DOES):
        for match in pattern.finditer(text):
            by_text = all(ord(sign) >= _TEXT for sign in re.findall(_SIGN, match[0]))
            yield _statement(match, 1 if by_text and pattern is _END else 0, is_line=pattern is _LINE)


def _statement(match: re.Match[str], rank: int, *, is_unsure: bool = False, is_line: bool = False) -> _Statement:
    signs = list(re.finditer(_SIGN, match[0]))
    start, end = match.start() + signs[0].start(), match.start() + signs[-1].end()
    is_unsure = is_unsure or _IF.search(match.string, max(0, start - 100), start) is not None
    return _Statement(end, start, rank, frozenset(_number(sign[0]) for sign in signs), is_unsure, is_line)


def _last(statements: list[_Statement], *, weak: bool) -> set[int] | None:
    """The choices of the last statement of the best rank, with those before it where it is unsure."""
    statements = _without_lists(sorted(statements))
    for rank in range(4 if weak else 3):
        ranked = [each for each in statements if each.rank == rank]
        if not ranked:
            continue
        stated = set(ranked[-1].choices)
        if rank >= 2:
            return stated.union(*(each.choices for each in ranked))
        at = statements.index(ranked[-1])
        while at > 0 and statements[at].is_unsure:
            at -= 1
            stated |= statements[at].choices
        return stated
    return None


def _without_lists(statements: list[_Statement]) -> list[_Statement]:
    """Without lines that only list the choices, one after the other, if there is anything else."""
    listed = {each for each in statements if each.is_line and len(each.choices) > 1}
    inside = {each for each in statements if any(one.start <= each.start and each.end <= one.end for one in listed)}
    return [each for each in statements if each not in inside] or [*listed]


CHOICE_FILTER = Filter(choice)
