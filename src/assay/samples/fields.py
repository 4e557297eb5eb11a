"""The prompt fields of a task as functions of a document, with lm-eval 0.4.13's rules for rendered texts."""

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from assay.records import Function, plain
from assay.samples.templates import RenderError, Row, template
from assay.user_code import place_of, user_code
from assay.writable import HALF, is_writable

FieldValue = Any
"""The value of a prompt field: a text, a number, or a list, whatever the data or a user's function has."""
FieldSpec = str | int | float | Sequence[Any] | Mapping[str, Any] | Function | Callable[..., Any] | None
"""A prompt field as a task writes it: a column, a template, a constant, or a function."""
FieldFunction = Callable[[Row], FieldValue]
_LITERAL_ERRORS = (SyntaxError, ValueError, TypeError, MemoryError, RecursionError)
"""Errors of reading a text as a Python literal."""


def text_field(spec: FieldSpec, columns: Collection[str], *, has_choices: bool) -> FieldFunction:
    """The question: a column, a rendered text (a number where choices are numbered), or a function's value."""
    if callable(spec):
        return function_field("doc_to_text", spec)
    if isinstance(spec, str):
        return _column_value(spec) if spec in columns else _number_or_text(spec) if has_choices else template(spec)
    return lambda row: spec  # noqa: ARG005  # a constant


def target_field(spec: FieldSpec, columns: Collection[str], *, has_choices: bool) -> FieldFunction:
    """The target, by the rules of the question; a rendered `[...]` is a list of targets."""
    if callable(spec):
        return function_field("doc_to_target", spec)
    if isinstance(spec, str):
        return _column_value(spec) if spec in columns else _target_value(spec, has_choices=has_choices)
    constant = list(spec) if isinstance(spec, tuple) else spec
    return lambda row: constant  # noqa: ARG005


def choice_field(spec: FieldSpec, columns: Collection[str]) -> FieldFunction:
    """The choices: a column, a list, the values of a mapping, or a rendered list."""
    if callable(spec):
        return function_field("doc_to_choice", spec)
    if isinstance(spec, str):
        return _column_value(spec) if spec in columns else _list_value(spec)
    listed = list(spec.values()) if isinstance(spec, Mapping) else list(spec)  # type: ignore[arg-type]
    return lambda row: listed  # noqa: ARG005


def function_field(purpose: str, function: Callable[..., Any]) -> FieldFunction:
    """A user's function as a field: its errors belong to the document, its values become plain ones."""
    place = place_of(purpose, function)
    guard = user_code(place, RenderError)

    def call(*arguments: FieldValue) -> FieldValue:
        with guard:
            value = plain(function(*arguments))
        if not is_writable(value):
            raise RenderError(f"{place} returned {HALF}")
        return value

    return call


def plain_field(spec: str | None, columns: Collection[str] | None = None) -> Callable[[Row], str | None]:
    """A description or prefix: a column, else a template. With `columns` None, the document decides."""
    if not spec:
        return lambda row: spec  # noqa: ARG005
    render = template(spec)
    if columns is None:
        return lambda row: row[spec] if spec in row else render(row)
    return _column_value(spec) if spec in columns else render


def required_columns(spec: FieldSpec, columns: Collection[str], value: FieldFunction) -> FieldFunction:
    """Like `value`, but a document without a value in the column is an error instead of the text "None"."""
    if not isinstance(spec, str):
        return value
    names = [spec] if spec in columns else [name for name in _PLAIN_VARIABLE.findall(spec) if name in columns]
    if not names:
        return value

    def checked(row: Row) -> FieldValue:
        for name in names:
            if row.get(name) is None:
                raise RenderError(f"the document has no value in the column {name!r}")
        return value(row)

    return checked


_PLAIN_VARIABLE = re.compile(r"\{\{-?\s*(\w+)\s*-?\}\}")


def _column_value(name: str) -> FieldFunction:
    def value(row: Row) -> FieldValue:
        try:
            return row[name]
        except KeyError:
            raise RenderError(f"the document has no column {name!r}") from None

    return value


def _number_or_text(spec: str) -> FieldFunction:
    render = template(spec)

    def value(row: Row) -> FieldValue:
        text = render(row)
        return _choice_index(text) if text.isdigit() else text

    return value


def _target_value(spec: str, *, has_choices: bool) -> FieldFunction:
    render = template(spec)

    def value(row: Row) -> FieldValue:
        text = render(row)
        if has_choices and text.isdigit():
            return _choice_index(text)
        if len(text) >= 2 and text[0] == "[" and text[-1] == "]":
            try:
                return ast.literal_eval(text)
            except _LITERAL_ERRORS:
                return text
        return text

    return value


def _list_value(spec: str) -> FieldFunction:
    render = template(spec)

    def value(row: Row) -> FieldValue:
        text = render(row)
        try:
            return ast.literal_eval(text)
        except _LITERAL_ERRORS:
            raise RenderError(f"doc_to_choice must be a list, got {text[:80]!r}") from None

    return value


def _choice_index(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # "²" is a digit and no number
        raise RenderError(f"{text!r} is not the index of a choice") from None
