"""The prompt fields of a task as functions of a row, with lm-eval 0.4.13's rules for what a rendered text means."""

import ast
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from assay.records import plain
from assay.samples.templates import RenderError, Row, template
from assay.user_code import place_of, user_code
from assay.writable import HALF, is_writable

Value = Callable[[Row], Any]
_UNREADABLE = (SyntaxError, ValueError, TypeError, MemoryError, RecursionError)
"""What reading a text as a Python literal may raise."""


def text_field(spec: object, columns: Collection[str], *, has_choices: bool) -> Value:
    """The question: a column as it is, a rendered text (a number where choices are numbered), or what a function says."""
    if callable(spec):
        return function_field("doc_to_text", spec)
    if isinstance(spec, str):
        return _column(spec) if spec in columns else _digits(spec) if has_choices else template(spec)
    return lambda row: spec  # noqa: ARG005  # a constant


def target_field(spec: object, columns: Collection[str], *, has_choices: bool) -> Value:
    """The answer: as the question; and a rendered `[...]` is a list of right answers."""
    if callable(spec):
        return function_field("doc_to_target", spec)
    if isinstance(spec, str):
        return _column(spec) if spec in columns else _answer(spec, has_choices=has_choices)
    constant = list(spec) if isinstance(spec, tuple) else spec
    return lambda row: constant  # noqa: ARG005


def choice_field(spec: object, columns: Collection[str]) -> Value:
    """The choices: a column, a list, the values of a mapping, or a rendered list."""
    if callable(spec):
        return function_field("doc_to_choice", spec)
    if isinstance(spec, str):
        return _column(spec) if spec in columns else _literal(spec)
    listed = list(spec.values()) if isinstance(spec, Mapping) else list(spec)  # type: ignore[call-overload]
    return lambda row: listed  # noqa: ARG005


def function_field(purpose: str, function: Callable[..., Any]) -> Value:
    """A user's function as a field: its errors are those of the document that it is called for, its values plain ones."""
    place = place_of(purpose, function)
    guard = user_code(place, RenderError)

    def call(*arguments: Any) -> Any:
        with guard:
            value = plain(function(*arguments))
        if not is_writable(value):
            raise RenderError(f"{place} returned {HALF}")
        return value

    return call


def plain_field(spec: str | None, columns: Collection[str] | None = None) -> Callable[[Row], str | None]:
    """A description or prefix: a column of the row, else a template. `columns` None means: as the row itself has them."""
    if not spec:
        return lambda row: spec  # noqa: ARG005
    render = template(spec)
    if columns is None:
        return lambda row: row[spec] if spec in row else render(row)
    return _column(spec) if spec in columns else render


def present(spec: object, columns: Collection[str], value: Value) -> Value:
    """As `value`, but a row that has nothing where the text should come from is told, and not written as "None"."""
    if not isinstance(spec, str):
        return value
    names = [spec] if spec in columns else [name for name in _DIRECTLY.findall(spec) if name in columns]
    if not names:
        return value

    def checked(row: Row) -> Any:
        for name in names:
            if row.get(name) is None:
                raise RenderError(f"the row has nothing in the column {name!r}")
        return value(row)

    return checked


_DIRECTLY = re.compile(r"\{\{-?\s*(\w+)\s*-?\}\}")


def _column(name: str) -> Value:
    def value(row: Row) -> Any:
        try:
            return row[name]
        except KeyError:
            raise RenderError(f"the row has no column {name!r}") from None

    return value


def _digits(spec: str) -> Value:
    render = template(spec)

    def value(row: Row) -> Any:
        text = render(row)
        return _number(text) if text.isdigit() else text

    return value


def _answer(spec: str, *, has_choices: bool) -> Value:
    render = template(spec)

    def value(row: Row) -> Any:
        text = render(row)
        if has_choices and text.isdigit():
            return _number(text)
        if len(text) >= 2 and text[0] == "[" and text[-1] == "]":
            try:
                return ast.literal_eval(text)
            except _UNREADABLE:
                return text
        return text

    return value


def _literal(spec: str) -> Value:
    render = template(spec)

    def value(row: Row) -> Any:
        text = render(row)
        try:
            return ast.literal_eval(text)
        except _UNREADABLE:
            raise RenderError(f"doc_to_choice must give a list, and gave {text[:80]!r}") from None

    return value


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # "²" is a digit and no number
        raise RenderError(f"{text!r} is taken for the number of a choice, and is none") from None
