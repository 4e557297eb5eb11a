"""Templates: Jinja in its sandbox, each compiled once."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError
from jinja2.sandbox import SandboxedEnvironment

from assay.errors import SelfExplanatory
from assay.writable import HALF, is_writable

Row = Mapping[str, Any]
Render = Callable[[Row], str]


_RENDER_ERRORS = (
    TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, re.error, RecursionError, MemoryError,
)  # fmt: skip


_COMPILE_ERRORS = (*_RENDER_ERRORS, SyntaxError)


class RenderError(SelfExplanatory, ValueError):
    """A template that cannot be rendered for a document."""


class InvalidTemplate(RenderError):
    """A text with invalid template syntax; `reason` is Jinja's message."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def regex_replace(text: str, pattern: str, repl: str, count: int = 0) -> str:
    return re.sub(pattern, repl, text, count=count)


def letter_choices(choices: Sequence[object], sep: str = "\n", style: str = ". ") -> str:
    """The choices, each with its letter (as in lm-eval 0.5)."""
    return sep.join(f"{chr(65 + number)}{style}{choice}" for number, choice in enumerate(choices))


def answer_key_to_index(key: object, labels: Sequence[object] | None = None) -> int:
    """The index of an answer key: its position among the labels, else in the alphabet."""
    return list(labels).index(key) if labels is not None else ord(str(key).strip().upper()) - 65


_ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
_ENVIRONMENT.filters |= {
    "regex_replace": regex_replace, "letter_choices": letter_choices, "answer_key_to_index": answer_key_to_index,
}  # fmt: skip


def is_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


@cache
def template(text: str) -> Render:
    """A function that renders a template for a document. A text without markup is constant."""
    if not is_template(text):
        return lambda row: text  # noqa: ARG005  # the shape of every template
    try:
        compiled = _ENVIRONMENT.from_string(text)
    except _COMPILE_ERRORS as error:
        raise InvalidTemplate(f"{_error_text(error)} (in the template {_quote(text)})", _error_text(error)) from error
    root, new_context, usual = compiled.root_render_func, compiled.new_context, dict(compiled.globals)

    def render(row: Row) -> str:
        try:
            # shared: Jinja would merge the same globals into every row, at three times the cost of the rendering
            rendered = "".join(root(new_context({**usual, **row}, shared=True)))
        except _RENDER_ERRORS as error:
            what = str(error) or type(error).__name__
            raise RenderError(f"{what} (in the template {_quote(text)})") from error
        if not is_writable(rendered):
            raise RenderError(f"the template {_quote(text)} gave {HALF}")
        return rendered

    return render


def _error_text(error: BaseException) -> str:
    if isinstance(error, TemplateSyntaxError):
        return f"{error.message} (line {error.lineno} of the template)"
    return str(error) or type(error).__name__


def _quote(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")
