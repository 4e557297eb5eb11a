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


_UNFILLED = (
    TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, re.error, RecursionError, MemoryError,
)  # fmt: skip


_NO_TEMPLATE = (*_UNFILLED, SyntaxError)


class RenderError(SelfExplanatory, ValueError):
    """A template that a row cannot fill."""


class TemplateSlip(RenderError):
    """A text with markup that is no template, whatever the row; `reason` is what Jinja says of it."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def regex_replace(text: str, pattern: str, repl: str, count: int = 0) -> str:
    return re.sub(pattern, repl, text, count=count)


def letter_choices(choices: Sequence[object], sep: str = "\n", style: str = ". ") -> str:
    """The choices, each behind its letter (as in lm-eval 0.5)."""
    return sep.join(f"{chr(65 + number)}{style}{choice}" for number, choice in enumerate(choices))


def answer_key_to_index(key: object, labels: Sequence[object] | None = None) -> int:
    """The index that an answer key stands for: its place among the labels, else among the letters."""
    return list(labels).index(key) if labels is not None else ord(str(key).strip().upper()) - 65


_ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
_ENVIRONMENT.filters |= {
    "regex_replace": regex_replace, "letter_choices": letter_choices, "answer_key_to_index": answer_key_to_index,
}  # fmt: skip


def is_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


@cache
def template(text: str) -> Render:
    """A function that fills a template from a row. What has no markup is itself."""
    if not is_template(text):
        return lambda row: text  # noqa: ARG005  # the shape of every template
    try:
        compiled = _ENVIRONMENT.from_string(text)
    except _NO_TEMPLATE as error:
        raise TemplateSlip(f"{_told(error)} (in the template {_short(text)})", _told(error)) from error
    root, new_context, usual = compiled.root_render_func, compiled.new_context, dict(compiled.globals)

    def render(row: Row) -> str:
        try:
            # shared: Jinja would merge the same globals into every row, at three times the cost of the rendering
            made = "".join(root(new_context({**usual, **row}, shared=True)))
        except _UNFILLED as error:
            what = str(error) or type(error).__name__
            raise RenderError(f"{what} (in the template {_short(text)})") from error
        if not is_writable(made):
            raise RenderError(f"the template {_short(text)} gave {HALF}")
        return made

    return render


def _told(error: BaseException) -> str:
    if isinstance(error, TemplateSyntaxError):
        return f"{error.message} (line {error.lineno} of the template)"
    return str(error) or type(error).__name__


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")
