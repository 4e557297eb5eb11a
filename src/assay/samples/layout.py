"""Question, choices and answer of a format, as templates.

The result is Jinja source again: a column stays a column, a template is set in as it is, a function is called under a
name of its own and its value handed in as a variable.
"""

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from assay.config.task import FormatConfig
from assay.errors import ConfigError, Place, Problem
from assay.records import Function

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
VARIABLES = ("_num_choices", "_choice_labels", "_choice_list_and", "_choice_list_or")
"""What the texts of a format may use; all of them speak of choices."""

Choices = str | Function | Mapping[str, object] | tuple[object, ...] | None


@dataclass(frozen=True, slots=True)
class ColumnOrText:
    """What a text without markup means: the column of that name where a row has it, else itself."""

    text: str

    def __call__(self, row: Mapping[str, object]) -> object:
        return row.get(self.text, self.text)


@dataclass(frozen=True, slots=True)
class Piece:
    """An expression, and what must be set before it can be used."""

    expression: str
    setting: str = ""

    @property
    def template(self) -> str:
        return self.setting + "{{ " + self.expression + " }}"


@dataclass(frozen=True, slots=True)
class Parts:
    """The pieces of one question. `listed` are the choices where they are the same for every row."""

    question: str
    target: Piece
    choices: str | None
    original_choices: Choices
    listed: tuple[object, ...] | None
    derived: Mapping[str, Function]


@dataclass(frozen=True, slots=True)
class Layout:
    """The prompt fields a format gives to a task, and the variables that functions must supply."""

    doc_to_text: str
    doc_to_target: str
    doc_to_choice: Choices
    derived: Mapping[str, Function]


def take_apart(text: object, choices: Choices, target: object, *, prefix: str, place: Place) -> Parts:
    """The pieces of a task's prompt fields; `prefix` keeps the names of its functions apart from others."""
    derived: dict[str, Function] = {}

    def named(value: object, name: str) -> str | None:
        if (
            isinstance(value, str)
            and not value.isidentifier()
            and "{" not in value
            and not value.strip().startswith("[")
        ):
            value = ColumnOrText(value)
        if isinstance(value, Function) or callable(value):
            derived[prefix + name] = value  # type: ignore[assignment]  # from Python, a plain callable serves as well
            return prefix + name
        return None

    for value in (text, target):
        if isinstance(value, tuple | list):
            raise _refusal(
                place, "a format takes one question and one answer, not a list of them", "ask without a format"
            )
    question = named(text, "_question")
    answer = named(target, "_target")
    listed = _listed(choices)
    if listed is not None:
        expression: str | None = json.dumps(list(listed), ensure_ascii=False)
    else:
        expression = named(choices, "_choices") or _list_expression(choices, place)
    return Parts(
        question=_template(text) if question is None else Piece(question).template,
        target=_piece(target) if answer is None else Piece(answer),
        choices=expression,
        original_choices=choices,
        listed=listed,
        derived=derived,
    )


def lay_out(parts: Parts, format: FormatConfig, place: Place) -> Layout:
    """The prompt fields for these pieces in this format."""
    is_choice = format.output_type == "multiple_choice"
    if parts.choices is None:
        if is_choice:
            raise _refusal(
                place, "a multiple-choice format needs doc_to_choice", "add doc_to_choice, or use generate or cot"
            )
        return Layout(_text(parts, format), parts.target.template, None, parts.derived)
    choice: Choices = None
    if is_choice:
        labels = "[" + _loop(parts, '"{{ ' + _label(format) + ' }}"', ", ") + "]"
        choice = parts.original_choices if format.choice_labels is None else labels
    return Layout(_text(parts, format), _target(parts, format), choice, parts.derived)


def _listed(choices: Choices) -> tuple[object, ...] | None:
    if isinstance(choices, Mapping):
        return tuple(choices.values())
    if isinstance(choices, str) and choices.strip().startswith("[") and "{" not in choices:
        return tuple(ast.literal_eval(choices.strip()))
    return tuple(choices) if isinstance(choices, tuple | list) else None


def _template(text: object) -> str:
    """A column or a template, as a template."""
    return Piece(text).template if isinstance(text, str) and text.isidentifier() else str(text)


_ONE_EXPRESSION = re.compile(r"\s*\{\{((?:(?!\}\}|\{\{).)*)\}\}\s*", re.DOTALL)


def _piece(value: object) -> Piece:
    """A column, a template, a number or a text, to be used in an expression."""
    if not isinstance(value, str):
        return Piece(repr(value))
    one = _ONE_EXPRESSION.fullmatch(value)
    if value.isidentifier() or one:
        return Piece(value if one is None else f"({one.group(1).strip()})")
    return Piece("_whole", "{% set _whole %}" + value + "{% endset %}")


def _list_expression(choices: Choices, place: Place) -> str | None:
    if choices is None:
        return None
    piece = _piece(choices)
    if piece.setting:
        fix = "give doc_to_choice as a column, a list, a function or one `{{ expression }}`"
        raise _refusal(place, "doc_to_choice is a template of several parts, which a format cannot take apart", fix)
    return piece.expression


def _text(parts: Parts, format: FormatConfig) -> str:
    """The whole question; what speaks of choices is left out where there are none."""

    def usable(text: str | None) -> str:
        return "" if text is None or (parts.choices is None and any(name in text for name in VARIABLES)) else text

    lines = [usable(format.instruction) + (format.question_prefix or "") + parts.question]
    if parts.choices is not None and format.choice_labels is not None and not _are_labels(parts.listed, format):
        lines.append(_loop(parts, "{{ " + _label(format) + " }}. {{ _choice }}", format.choice_delimiter))
    lines += [text for text in (usable(format.answer_instruction), usable(format.answer_prompt)) if text]
    text = format.section_separator.join(lines)
    return _settings(text, parts, format) + text


def _are_labels(listed: tuple[object, ...] | None, format: FormatConfig) -> bool:
    """Whether the choices are mere letters, so that the question itself must say what they stand for."""
    return listed is not None and format.choice_labels == "letters" and list(listed) == list(ALPHABET[: len(listed)])


def _label(format: FormatConfig) -> str:
    """The expression for the label of the choice that a loop is at; its words where choices have no label."""
    if format.choice_labels is None:
        return "_choice"
    if format.choice_labels == "numbers":
        return "loop.index"
    if isinstance(format.choice_labels, tuple | list):
        return f"{json.dumps(list(format.choice_labels), ensure_ascii=False)}[loop.index0]"
    return _LETTERS


_LETTERS = f'("{ALPHABET}"[loop.index0 // 26 - 1] if loop.index0 >= 26 else "") ~ "{ALPHABET}"[loop.index0 % 26]'
"""The letter of the choice that a loop is at; after Z comes AA."""


def _loop(parts: Parts, body: str, delimiter: str) -> str:
    between = "{% if not loop.last %}" + delimiter + "{% endif %}"
    return "{% for _choice in " + str(parts.choices) + " %}" + body + between + "{% endfor %}"


def _settings(text: str, parts: Parts, format: FormatConfig) -> str:
    """What must be set before a text that uses some of VARIABLES."""

    def joined(last: str) -> str:
        return _loop(parts, "{{ " + _label(format) + " }}", '{{ "' + last + '" if loop.revindex == 2 else ", " }}')

    settings = {
        "_num_choices": "{% set _num_choices = " + str(parts.choices) + " | length %}",
        "_choice_labels": "{% set _choice_labels %}" + joined(", ") + "{% endset %}",
        "_choice_list_and": "{% set _choice_list_and %}" + joined(" and ") + "{% endset %}",
        "_choice_list_or": "{% set _choice_list_or %}" + joined(" or ") + "{% endset %}",
    }
    return "".join(setting for name, setting in settings.items() if name in text)


def _target(parts: Parts, format: FormatConfig) -> str:
    """The index of the right choice; or, to be generated, its label, or its words where choices have no label.

    A target is an index if it is a number, else one of the choices, else an index in digits, else a label. One that is
    none of these is an error when it is rendered: never the first choice.
    """
    labels = _label(format) if format.choice_labels is not None else _LETTERS
    labelled = "{% if (" + labels + ") | string == _t | string %}{% set _n.i = loop.index0 %}{% endif %}"
    index = (
        "{% set _n = namespace(i=-1) %}"
        "{% if _t is boolean and _t in _c or _t is string and _t in _c %}{% set _n.i = _c.index(_t) %}"
        "{% elif _t is number or _t is boolean %}{% set _n.i = _t | int %}"
        "{% elif _t in _c %}{% set _n.i = _c.index(_t) %}"
        "{% elif _t is string and _t.isdigit() %}{% set _n.i = _t | int %}"
        "{% else %}{% for _choice in _c %}" + labelled + "{% endfor %}{% endif %}"
    )
    head = (
        parts.target.setting + "{% set _c = " + str(parts.choices) + " %}{% set _t = " + parts.target.expression + " %}"
    )
    known = "{% if _n.i >= 0 and _n.i < _c | length %}"
    unknown = "{% else %}{{ the_target_is_none_of_the_choices }}{% endif %}"
    if format.output_type == "multiple_choice":
        return head + index + known + "{{ _n.i }}" + unknown
    chosen = "{% if loop.index0 == _n.i %}{{ " + _label(format) + " }}{% endif %}"
    return head + index + known + "{% for _choice in _c %}" + chosen + "{% endfor %}" + unknown


def _refusal(place: Place, what: str, fix: str) -> ConfigError:
    return ConfigError([Problem(place, what, fix)])
