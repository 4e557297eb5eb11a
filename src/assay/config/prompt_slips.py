"""Checks for texts of a task that would be sent literally by mistake."""

import re
from collections.abc import Iterator, Mapping

from assay.config.option import Remark

_FUNCTION = re.compile(r"\s*!function\b\s*(\S*)|\s*function\s+([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)\s*$")
_ONE_EXPRESSION = re.compile(r"\s*\{\{-?((?:(?!\}\}|\{\{).)*?)-?\}\}\s*", re.DOTALL)


def quoted_function(value: object) -> Iterator[Remark]:
    """Find a `!function` in quotes, or without its exclamation mark: YAML reads it as text."""
    found = _FUNCTION.match(value) if isinstance(value, str) else None
    if found is not None:
        what = f"is the text {value!r:.80}, not a function"
        yield (), what, f"write it without quotes: !function {found[1] or found[2] or 'module.name'}"


def prompt_slips(value: object) -> Iterator[Remark]:
    """Find mistakes in a question, an answer or choices: a function in quotes, templates inside a list."""
    yield from quoted_function(value)
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, tuple | list) else ()
    for at, item in items:
        yield from (((at,), f"has an item that {what}", fix) for _, what, fix in quoted_function(item))
        if isinstance(item, str) and _has_markup(item):
            what = f"has the item {item!r:.60}, but templates inside a list are not filled in"
            texts = list(value.values()) if isinstance(value, Mapping) else list(value)  # type: ignore[call-overload]
            yield (at,), what, f"write one template that returns the list: {_as_template(texts)}"
            return


def literal_slips(value: object) -> Iterator[Remark]:
    """Find mistakes in a delimiter: it is not a template."""
    yield from quoted_function(value)
    if isinstance(value, str) and _has_markup(value):
        yield (), f"is {value!r:.60}, but a delimiter is not filled in", "write the characters themselves"


def _has_markup(text: str) -> bool:
    return "{{" in text or "{%" in text


def _as_template(items: list[object]) -> str:
    """Join a list of templates into one, if each is a single expression or plain text.

    >>> _as_template(["{{a}}", "{{ b.c }}", "none"])
    '"{{[a, b.c, \\'none\\']}}"'
    """
    found = [_ONE_EXPRESSION.fullmatch(item) if isinstance(item, str) else None for item in items]
    if not all(
        one or not (isinstance(item, str) and _has_markup(item)) for one, item in zip(found, items, strict=True)
    ):
        return '"{{[a, b]}}"'
    return (
        '"{{['
        + ", ".join(one[1].strip() if one else repr(item) for one, item in zip(found, items, strict=True))
        + ']}}"'
    )
