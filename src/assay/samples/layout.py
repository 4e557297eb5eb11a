"""Question, choices and target of a format, as templates.

The result is Jinja source: a column stays a column, a template is inserted as it is, a function is called under a
unique name and its value passed as a variable.
"""

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from assay.config.task import FormatConfig
from assay.errors import ConfigError, Place
from assay.records import Function

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
VARIABLES = ("_num_choices", "_choice_labels", "_choice_list_and", "_choice_list_or")
"""Variables for the texts of a format; all of them describe choices."""

Choices = str | Function | Mapping[str, object] | tuple[object, ...] | None
Constants = tuple[object, ...]
"""The choices of a task that are the same for every document."""


@dataclass(frozen=True, slots=True)
class ColumnOrText:
    """A text without markup: the column of that name where a document has it, else the text."""

    text: str

    def __call__(self, row: Mapping[str, object]) -> object:
        return row.get(self.text, self.text)


@dataclass(frozen=True, slots=True)
class TemplateExpression:
    """An expression, and the statement that must precede it."""

    expression: str
    setting: str = ""

    @property
    def template(self) -> str:
        return self.setting + "{{ " + self.expression + " }}"


@dataclass(frozen=True, slots=True)
class PromptParts:
    """The parts of one question. `listed` are the choices where they are constant."""

    question: str
    target: TemplateExpression
    choices: str | None
    original_choices: Choices
    listed: Constants | None
    derived: Mapping[str, Function]


@dataclass(frozen=True, slots=True)
class PromptLayout:
    """The prompt fields that a format gives to a task, and the variables that functions must supply."""

    doc_to_text: str
    doc_to_target: str
    doc_to_choice: Choices
    derived: Mapping[str, Function]


def prompt_parts(text: object, choices: Choices, target: object, *, prefix: str, place: Place) -> PromptParts:
    """Split a task's prompt fields into parts; `prefix` keeps the names of its functions unique."""
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
            raise ConfigError.at(
                place, "a format takes one question and one answer, not a list of them", "ask without a format"
            )
    question = named(text, "_question")
    answer = named(target, "_target")
    listed = _constant_choices(choices)
    if listed is not None:
        expression: str | None = json.dumps(list(listed), ensure_ascii=False)
    else:
        expression = named(choices, "_choices") or _list_expression(choices, place)
    return PromptParts(
        question=_template(text) if question is None else TemplateExpression(question).template,
        target=_expression(target) if answer is None else TemplateExpression(answer),
        choices=expression,
        original_choices=choices,
        listed=listed,
        derived=derived,
    )


def prompt_layout(parts: PromptParts, format: FormatConfig, place: Place) -> PromptLayout:
    """Build the prompt fields from these parts in this format."""
    is_choice = format.output_type == "multiple_choice"
    if parts.choices is None:
        if is_choice:
            raise ConfigError.at(
                place, "a multiple-choice format needs doc_to_choice", "add doc_to_choice, or use generate or cot"
            )
        return PromptLayout(_question_template(parts, format), parts.target.template, None, parts.derived)
    choice: Choices = None
    if is_choice:
        labels = "[" + _loop_over_choices(parts, '"{{ ' + _label(format) + ' }}"', ", ") + "]"
        choice = parts.original_choices if format.choice_labels is None else labels
    return PromptLayout(_question_template(parts, format), _target_template(parts, format), choice, parts.derived)


def _constant_choices(choices: Choices) -> Constants | None:
    if isinstance(choices, Mapping):
        return tuple(choices.values())
    if isinstance(choices, str) and choices.strip().startswith("[") and "{" not in choices:
        return tuple(ast.literal_eval(choices.strip()))
    return tuple(choices) if isinstance(choices, tuple | list) else None


def _template(text: object) -> str:
    """A column or a template, as a template."""
    return TemplateExpression(text).template if isinstance(text, str) and text.isidentifier() else str(text)


_ONE_EXPRESSION = re.compile(r"\s*\{\{((?:(?!\}\}|\{\{).)*)\}\}\s*", re.DOTALL)


def _expression(value: object) -> TemplateExpression:
    """A column, a template, a number or a text, as an expression."""
    if not isinstance(value, str):
        return TemplateExpression(repr(value))
    one = _ONE_EXPRESSION.fullmatch(value)
    if value.isidentifier() or one:
        return TemplateExpression(value if one is None else f"({one.group(1).strip()})")
    return TemplateExpression("_whole", "{% set _whole %}" + value + "{% endset %}")


def _list_expression(choices: Choices, place: Place) -> str | None:
    if choices is None:
        return None
    piece = _expression(choices)
    if piece.setting:
        fix = "give doc_to_choice as a column, a list, a function or one `{{ expression }}`"
        raise ConfigError.at(
            place, "doc_to_choice is a template with several expressions, which a format cannot split", fix
        )
    return piece.expression


def _question_template(parts: PromptParts, format: FormatConfig) -> str:
    """The whole question; texts about choices are left out where there are none."""

    def usable(text: str | None) -> str:
        return "" if text is None or (parts.choices is None and any(name in text for name in VARIABLES)) else text

    lines = [usable(format.instruction) + (format.question_prefix or "") + parts.question]
    if parts.choices is not None and format.choice_labels is not None and not _are_labels(parts.listed, format):
        lines.append(_loop_over_choices(parts, "{{ " + _label(format) + " }}. {{ _choice }}", format.choice_delimiter))
    lines += [text for text in (usable(format.answer_instruction), usable(format.answer_prompt)) if text]
    text = format.section_separator.join(lines)
    return _set_variables(text, parts, format) + text


def _are_labels(listed: Constants | None, format: FormatConfig) -> bool:
    """Whether the choices are plain letters, so that the question itself must explain them."""
    return listed is not None and format.choice_labels == "letters" and list(listed) == list(ALPHABET[: len(listed)])


def _label(format: FormatConfig) -> str:
    """The expression for the label of the loop's choice; its text where choices have no label."""
    if format.choice_labels is None:
        return "_choice"
    if format.choice_labels == "numbers":
        return "loop.index"
    if isinstance(format.choice_labels, tuple | list):
        return f"{json.dumps(list(format.choice_labels), ensure_ascii=False)}[loop.index0]"
    return _LETTERS


_LETTERS = f'("{ALPHABET}"[loop.index0 // 26 - 1] if loop.index0 >= 26 else "") ~ "{ALPHABET}"[loop.index0 % 26]'
"""The letter of the loop's choice; after Z comes AA."""


def _loop_over_choices(parts: PromptParts, body: str, delimiter: str) -> str:
    between = "{% if not loop.last %}" + delimiter + "{% endif %}"
    return "{% for _choice in " + str(parts.choices) + " %}" + body + between + "{% endfor %}"


def _set_variables(text: str, parts: PromptParts, format: FormatConfig) -> str:
    """The statements that set the VARIABLES used in a text."""

    def joined(last: str) -> str:
        return _loop_over_choices(
            parts, "{{ " + _label(format) + " }}", '{{ "' + last + '" if loop.revindex == 2 else ", " }}'
        )

    settings = {
        "_num_choices": "{% set _num_choices = " + str(parts.choices) + " | length %}",
        "_choice_labels": "{% set _choice_labels %}" + joined(", ") + "{% endset %}",
        "_choice_list_and": "{% set _choice_list_and %}" + joined(" and ") + "{% endset %}",
        "_choice_list_or": "{% set _choice_list_or %}" + joined(" or ") + "{% endset %}",
    }
    return "".join(setting for name, setting in settings.items() if name in text)


def _target_template(parts: PromptParts, format: FormatConfig) -> str:
    """The index of the right choice; for generation its label, or its text where choices have no label.

    A target is an index if it is a number, else one of the choices, else an index in digits, else a label. Any other
    target is an error when it is rendered, never the first choice.
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
