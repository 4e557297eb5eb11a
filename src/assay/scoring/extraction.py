"""Steps of filters that find a value in JSON or a mathematical answer in a text."""

import json
import re
from collections.abc import Iterator

from assay.records import Answer, AnyJSON
from assay.scoring.declarations import Filter
from assay.scoring.filters import INVALID, Step, each

_PART = re.compile(r"""\.?([^.\[\]"'\s][^.\[\]"']*)|\[(-?\d+)\]|\[(?:"([^"]*)"|'([^']*)')\]""")


_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)


_BEGINNING = re.compile(r"""\{(?=\s*["}])|\[(?=\s*[\[{"\]\d\-tfn])""")


_TRIES = 1000
"""Brackets of one response that are tried as the beginning of JSON: a text can be nothing but brackets."""


_MISSING = object()


def json_path(*, path: str, fallback: str = INVALID) -> Step:
    """Extract the value at a path (`answer.steps[0].value`) of the JSON in the response, also within a fence or a sentence.

    Of several JSON values the first that has the path counts. A text is given as it is, everything else as JSON.
    """
    keys = _keys(path)

    def value(response: Answer) -> str:
        for value_in_text in _values(response if isinstance(response, str) else ""):
            there = _follow(value_in_text, keys)
            if there is not _MISSING:
                return there if isinstance(there, str) else json.dumps(there, ensure_ascii=False)
        return fallback

    return each(value)


def _keys(path: str) -> list[str | int]:
    """The steps of a path: names, and numbers in brackets. The `$` that JSONPath begins with may be there."""
    rest, keys = path.removeprefix("$"), list[str | int]()
    while rest:
        match = _PART.match(rest)
        if match is None:
            raise ValueError(f"invalid path {path!r}: write it like a.b[0].c")
        name, number, *quoted = match.groups()
        keys.append(int(number) if number is not None else next(text for text in (name, *quoted) if text is not None))
        rest = rest[match.end() :]
    return keys


def _values(text: str) -> Iterator[Answer]:
    """Every JSON value in a text: all of it, the content of fences, and what begins at a bracket."""
    decoder = json.JSONDecoder(strict=False)
    for whole in (text, *_FENCED.findall(text)):
        try:
            yield decoder.decode(whole)
        except (ValueError, RecursionError):
            continue
    at = 0
    for _ in range(_TRIES):
        bracket = _BEGINNING.search(text, at)
        if bracket is None:
            return
        try:
            value, at = decoder.raw_decode(text, bracket.start())
            yield value
        except (ValueError, RecursionError):
            at = bracket.end()


def _follow(value: AnyJSON, keys: list[str | int]) -> Answer:
    for key in keys:
        by_name = isinstance(key, str) and isinstance(value, dict) and key in value
        by_number = isinstance(key, int) and isinstance(value, list) and -len(value) <= key < len(value)
        if not by_name and not by_number:
            return _MISSING
        value = value[key]
    return value


_NUMBER = r"(?:(?<![\w)])[-+])?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:/\d+|[eE][-+]?\d+)?"


_SAID = re.compile(r"(?:\banswer(?:\s+is\b)?\s*(?:[:=]|(?<=is))|####)[ \t]*(?=\S)", re.IGNORECASE)


_TERM = r"\s*[-+−±(\[√]*\s*(?:[\d\\]|(?![aAI]\s+[A-Za-z]{2})[A-Za-z]\b)"


_MORE = rf"%?\s*(?:(?:[A-Za-z]?\s*(?:[-+*/^=<>≤≥≠×·÷:]|[<>]=|\\[a-z]+)|,|;|\b(?:and|or)\b){_TERM}|\d)"
"""Marks a number as the beginning of a formula or list: 1 of `1 < x`, `1, 2`, `1 or 2`, `1 3/4` is not the answer."""


_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)")


_AROUND = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"))


def math(*, fallback: str = INVALID) -> Step:
    r"""The final answer of a calculation: the content of the last `\boxed{}`, else after "the answer is" or `####`,
    else the last number. A number loses its currency sign and the commas between thousands."""

    def answer(response: Answer) -> str:
        text = response if isinstance(response, str) else ""
        for candidate in (_boxed(text), _said(text), _last_number(text)):
            if candidate:
                return candidate
        return fallback

    return each(answer)


def _boxed(text: str) -> str:
    r"""The content of the last `\boxed{}` that is closed."""
    boxes = {match.end() for match in _BOX.finditer(text)}
    opened: list[int] = []
    last = (-1, -1)
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened and (start := opened.pop()) in boxes:
            last = max(last, (start, brace.start()))
    return _bare(text[last[0] + 1 : last[1]]) if last[0] >= 0 else ""


def _said(text: str) -> str:
    """The answer after the last "the answer is": its number where it begins with one and not with a formula."""
    last = next(reversed(list(_SAID.finditer(text))), None)
    if last is None:
        return ""
    bare = _bare(re.split(r"[.!?](?:\s|$)|\n", text[last.end() :])[0])
    number = re.match(rf"[$€£]?({_NUMBER})(?=\s|[,;%)]|$)(?!{_MORE})", bare)
    return _bare(number[1]) if number else bare


def _last_number(text: str) -> str:
    return _bare(next(reversed(re.findall(_NUMBER, text)), ""))


def _bare(text: str) -> str:
    """Without signs around it; a number without those within it, too."""
    text = text.strip().rstrip(".").strip()
    for left, right in _AROUND:
        if text.startswith(left) and text.endswith(right) and len(text) >= len(left) + len(right):
            text = text[len(left) : len(text) - len(right)].strip()
    plain = text.lstrip("$€£").replace(r"\$", "").replace(r"\,", "").replace(",", "")
    return plain if re.fullmatch(r"[-+]?(?:\d+\.?\d*|\.\d+)", plain) and _grouped(text) else text


def _grouped(text: str) -> bool:
    """Whether commas, if there are any, precede groups of three digits: 1,2 are two numbers."""
    return "," not in text or re.search(r"^\D*\d{1,3}(?:(?:\\?,)\d{3})+(?!\d)", text) is not None


JSON_PATH, MATH = Filter(json_path, leaves="value"), Filter(math)
