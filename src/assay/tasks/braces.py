"""Columns in single braces, as Python's texts have them: a template does not fill them in.

Braces mean much else: sets, LaTeX, JSON, a place for the model to fill in. Only a name that is a column's, or nearly, is a slip.
"""

import re
from collections.abc import Collection, Sequence

from assay.samples.templates import is_template

Slip = tuple[str, str]
"""What is wrong, and how to fix it."""
LEAST = 3
"""Letters of a name in braces: `{a}` and `{x}` are sets and formulas."""

_BRACES = re.compile(r"(?<![\w\\{}^])\{\s*(([A-Za-z_]\w*)(?:\.\w+|\[[^\]\s{}]+\])*)\s*\}(?!\})")
_MARKUP = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_FORMULA = re.compile(r"[\\$^]")


def unfilled(text: str, columns: Collection[str], least: int = LEAST) -> Slip | None:
    """What is wrong with a text that has a column in single braces; None where it has none.

    In a template only a column that it does not use otherwise is taken for a slip, and only one that is written rightly.
    Names of less than `LEAST` letters must be at least of `least`, and stand in a text that has nothing of a formula.

    >>> unfilled("Q: {questoin}", ["question"])[1]
    "did you mean {{question}}? If the braces themselves are meant, write {{ '{questoin}' }}"
    >>> unfilled("{x | x > 3} and \\frac{abc}{abc}", ["abc", "x"]), unfilled("{{question}} {question}", ["question"])
    (None, None)
    """
    if text in columns:
        return None
    used = " ".join(_MARKUP.findall(text)) if is_template(text) else ""
    for whole, name in _BRACES.findall(_MARKUP.sub(" ", text)):
        if len(name) < LEAST and (len(name) < least or used or _FORMULA.search(text)):
            continue
        meant = _column(name, columns, exactly=bool(used) or len(name) < LEAST)
        if meant is None or re.search(rf"\b{re.escape(meant)}\b", used):
            continue
        fix = f"write {{{{{whole}}}}}" if meant == name else f"did you mean {{{{{meant}{whole[len(name) :]}}}}}?"
        stop = "; if" if meant == name else " If"
        return (
            f"{{{whole}}} is not filled in",
            f"{fix}{stop} the braces themselves are meant, write {{{{ '{{{whole}}}' }}}}",
        )
    return None


def unfilled_items(items: Sequence[object], columns: Collection[str]) -> Slip | None:
    """The same of the items of a list, which are not filled in at all.

    >>> unfilled_items(["{one}", "{two}"], ["one", "two"])
    ('{one} is not filled in', 'write one template that gives the list: "{{[one, two]}}"')
    """
    found = [unfilled(item, columns) if isinstance(item, str) else None for item in items]
    wrong = next((slip for slip in found if slip is not None), None)
    if wrong is None:
        return None
    named = [
        _BRACES.fullmatch(item) if isinstance(item, str) and slip else None
        for item, slip in zip(items, found, strict=True)
    ]
    listed = ", ".join(one[1] if one else repr(item) for one, item in zip(named, items, strict=True))
    return wrong[0], f'write one template that gives the list: "{{{{[{listed}]}}}}"'


def _column(name: str, columns: Collection[str], *, exactly: bool) -> str | None:
    """The column that a name is, or is one slip away from."""
    if name in columns or exactly:
        return name if name in columns else None
    return next((column for column in columns if is_one_slip(name.casefold(), column.casefold())), None)


def is_one_slip(one: str, other: str) -> bool:
    """Whether one letter less, more, other or in another place makes a word of another; or nothing at all.

    >>> [is_one_slip("questoin", word) for word in ("question", "questoin", "questoins", "quest")]
    [True, True, True, False]
    """
    if abs(len(one) - len(other)) > 1:
        return False
    start = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    a, b = one[start:], other[start:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
