"""Turn documents into prompts: templates and columns fill the fields; description, examples and question follow one
another, as text or through a chat template. The rules for rendered texts are those of lm-eval 0.4.13."""

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, Protocol

from jinja2 import TemplateSyntaxError, UndefinedError

from assay.config.task import FewshotConfig, TaskConfig
from assay.dialect import OURS, Dialect
from assay.errors import ConfigError, SelfExplanatory
from assay.records import Function, Message, Prompt, Turn, plain
from assay.safe_text import cut
from assay.templates import COMPILE_ERRORS, RENDER_ERRORS, TASK_FILTERS, Sandbox, Undefined, reason
from assay.user_code import HALF, is_writable, place_of, user_code

Row = Mapping[str, Any]
Render = Callable[[Row], str]
Pool = Sequence[Row]
FieldValue = Any
"""The value of a prompt field: a text, a number, or a list, whatever the data or a user's function has."""
FieldSpec = str | int | float | Sequence[Any] | Mapping[str, Any] | Function | Callable[..., Any] | None
"""A prompt field as a task writes it: a column, a template, a constant, or a function."""
FieldFunction = Callable[[Row], FieldValue]
ChatTemplate = Callable[[tuple[Message, ...], bool], Prompt]
"""A model's chat template: messages, and whether to open the model's turn. A server model may keep messages."""


_LITERAL_ERRORS = (SyntaxError, ValueError, TypeError, MemoryError, RecursionError)
"""Errors of reading a text as a Python literal."""


class RenderError(SelfExplanatory, ValueError):
    """A template that cannot be rendered for a document."""


class UndefinedVariable(RenderError):
    """A template that names what a document does not have: the variable or attribute `name`."""

    def __init__(self, message: str, name: str, text: str) -> None:
        super().__init__(message)
        self.name, self.text = name, text


class TooSlow(RenderError):
    """A template that takes too long for a document: others may take as long."""


class InvalidTemplate(RenderError):
    """A text with invalid template syntax; `reason` is Jinja's message."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


_ENVIRONMENT = Sandbox(Undefined, TASK_FILTERS)


def is_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


@cache
def template(text: str) -> Render:
    """A function that renders a template for a document. A text without markup is constant."""
    if not is_template(text):
        return lambda row: text  # noqa: ARG005  # the shape of every template
    try:
        fill = _ENVIRONMENT.renderer(text, whole=True)
    except COMPILE_ERRORS as error:
        raise InvalidTemplate(f"{_error_text(error)} (in the template {_quote(text)})", _error_text(error)) from error
    usual = dict(_ENVIRONMENT.globals)

    def render(row: Row) -> str:
        try:
            rendered = fill({**usual, **row})
        except RENDER_ERRORS as error:
            raise _render_error(error, text) from error
        if not is_writable(rendered):
            raise RenderError(f"the template {_quote(text)} gave {HALF}")
        return rendered

    return render


_NAME = re.compile(r"^'(\w+)' is undefined|has no attribute '(\w+)'$")


def _render_error(error: BaseException, text: str) -> RenderError:
    what = reason(error)
    message = f"{what} (in the template {_quote(text)})"
    named = _NAME.search(what) if isinstance(error, UndefinedError) else None
    if named is not None:
        return UndefinedVariable(message, named[1] or named[2], text)
    return (TooSlow if isinstance(error, TimeoutError) else RenderError)(message)


def _error_text(error: BaseException) -> str:
    if isinstance(error, TemplateSyntaxError):
        return f"{error.message} (line {error.lineno} of the template)"
    return reason(error)


def _quote(text: str) -> str:
    return repr(cut(text, 80))


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


def filled_choice_field(spec: FieldSpec, columns: Collection[str]) -> FieldFunction:
    """The choices, with the templates inside a list or a mapping filled."""
    if callable(spec) or isinstance(spec, str):
        return choice_field(spec, columns)
    listed = list(spec.values()) if isinstance(spec, Mapping) else list(spec)  # type: ignore[arg-type]
    if not any(isinstance(item, str) and ("{{" in item or "{%" in item) for item in listed):
        return choice_field(spec, columns)
    filled = [template(item) if isinstance(item, str) else _constant(item) for item in listed]
    return lambda row: [fill(row) for fill in filled]


def written_choices(spec: FieldSpec) -> FieldFunction:
    """The choices of documents whose columns are not known yet: a text without markup is a column."""
    is_column = isinstance(spec, str) and not is_template(spec) and not spec.lstrip().startswith("[")
    return choice_field(spec, [str(spec)] if is_column else ())


def _constant(value: FieldValue) -> FieldFunction:
    return lambda row: value  # noqa: ARG005


def _indexed(target: FieldFunction, choices: FieldFunction) -> FieldFunction:
    """A target; digits in a text that is none of the choices are the index of one, as a template's are."""

    def value(row: Row) -> FieldValue:
        written = target(row)
        if not isinstance(written, str) or not written.isdecimal():
            return written
        return written if isinstance(options := choices(row), Collection) and written in options else int(written)

    return value


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
    render, column = template(spec), _column_value(spec)

    def text(row: Row) -> str | None:
        value = column(row)
        if value is not None and not isinstance(value, str):
            raise RenderError(f"the column {spec!r} must be a text to be in a prompt, got {value!r:.80}")
        return value

    if columns is None:
        return lambda row: text(row) if spec in row else render(row)
    return text if spec in columns else render


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


class Sampler(Protocol):
    """Chooses examples for one document after the other, by their index in the pool."""

    def __call__(self, doc: Row, number: int) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class Chat:
    """Settings of a conversation, where there is one."""

    template: ChatTemplate | None = None
    multiturn: bool = True
    system: str | None = None


@dataclass(frozen=True, slots=True)
class Examples:
    """Few-shot examples: number, pool and sampler; `start` restarts its random stream."""

    number: int = 0
    pool: Pool = ()
    start: Callable[[], Sampler] | None = None


class Question(NamedTuple):
    """The prompts of one document, which share `prefix`, with its choices and target."""

    contexts: Sequence[Prompt]
    prefix: str
    choices: Sequence[str] | None
    target: Any
    dropped: int = 0
    """The number of examples left out to fit the context."""


_MAY_DRAW = ("doc_to_text", "doc_to_target", "doc_to_choice", "gen_prefix")
_FIELDS = {"question": "doc_to_text", "choices": "doc_to_choice", "target": "doc_to_target"}
"""The prompt fields by the ending of the variable names that a format gives them."""


class _Fields(NamedTuple):
    """The prompt fields as functions of the evaluated document, or of an example."""

    text: FieldFunction
    target: FieldFunction
    choice: FieldFunction | None
    prefix: Callable[[Row], str | None]


@dataclass(slots=True)
class Prompter:
    """Builds prompts for one task. `config` has its functions resolved; `columns` are those of the data."""

    config: TaskConfig
    columns: Collection[str]
    examples: Examples = field(default_factory=Examples)
    chat: Chat = field(default_factory=Chat)
    multiple_inputs: bool = False
    fits: Callable[[Sequence[Prompt], Sequence[str] | None], bool] | None = None
    """Whether contexts with their choices fit; where given, examples are dropped until they do."""
    dialect: Dialect = OURS

    def __post_init__(self) -> None:
        self._own = self._fields(self.config)
        self._shot = self._fields(_fewshot_fields(self.config), own=False)
        self._description = plain_field(self.config.description)
        is_constant = not is_template(self.config.description or "")
        self._constant_system = self._system(self.config.description or "") if is_constant else None
        self._computed = {
            name: function_field(_FIELDS[name.rpartition("_")[2]], function)  # type: ignore[arg-type]  # resolved
            for name, function in self.config.derived.items()
        }
        self._turns: dict[int, list[Turn]] = {}
        self._prefixes: dict[tuple[Any, ...], str] = {}
        self.draws = self._may_draw()
        self.restart()

    def restart(self) -> None:
        """Restart the choice of examples, as for the first document."""
        self._choose = self.examples.start() if self.examples.start is not None else None

    def _may_draw(self) -> bool:
        shots = self.config.fewshot_config or FewshotConfig()
        fields = [getattr(each, key) for each in (self.config, shots) for key in _MAY_DRAW]
        texts = [self.config.description, *fields]
        drawing = any(callable(each) or (isinstance(each, str) and "random" in each) for each in texts)
        return self.examples.number > 0 or bool(self.config.derived) or drawing

    draws: bool = field(init=False)
    """Whether prompts depend on earlier documents: examples are drawn, and functions and templates may draw."""
    _own: _Fields = field(init=False)
    _shot: _Fields = field(init=False)
    _description: Callable[[Row], str | None] = field(init=False)
    _constant_system: list[list[Turn]] | None = field(init=False)
    """The system message, where the description is the same for every document that has no such column."""
    _computed: Mapping[str, FieldFunction] = field(init=False)
    _turns: dict[int, list[Turn]] = field(init=False)
    _prefixes: dict[tuple[Any, ...], str] = field(init=False)
    _choose: Sampler | None = field(init=False)

    def text(self, row: Row) -> FieldValue:
        return self._own.text(self._derived(row))

    def target(self, row: Row) -> FieldValue:
        return self._own.target(self._derived(row))

    def choices(self, row: Row) -> FieldValue:
        return self._own.choice(self._derived(row)) if self._own.choice is not None else None

    def gen_prefix(self, row: Row) -> str | None:
        return self._own.prefix(row)

    def pass_over(self, row: Row) -> None:
        """Draw for a skipped document as if it were evaluated, so that all others get the same prompts."""
        self._drawn(row)
        if self.multiple_inputs:
            self.text(row)  # the right answer, which is drawn after the question

    def question(self, row: Row) -> Question:
        """The prompts of a document, with its choices and its target."""
        target, choices, prefix, questions, before = self._drawn(row)
        delimiter = "" if self.multiple_inputs else self.config.target_delimiter
        turns = [question_turns(question, prefix, delimiter) for question in questions]
        dropped = 0
        contexts, start = self._contexts(before, turns, prefix)
        while self.fits is not None and any(map(_is_example, before)) and not self.fits(contexts, choices):
            before.pop(next(number for number, part in enumerate(before) if _is_example(part)))
            dropped += 1
            contexts, start = self._contexts(before, turns, prefix)
        return Question(contexts, start, choices, target, dropped)

    def _drawn(self, row: Row) -> tuple[FieldValue, FieldValue, str | None, Sequence[FieldValue], list[list[Turn]]]:
        """Target, choices, prefix, questions and preceding turns of a document, in lm-eval's order of drawing."""
        full = self._derived(row) if self._computed else row
        target, choices = self._own.target(full), self._own.choice(full) if self._own.choice is not None else None
        prefix = self._own.prefix(full) if self.config.gen_prefix else None
        questions: Sequence[Any] = choices or [] if self.multiple_inputs else [self._own.text(full)]
        is_usual = type(questions) is list and {*map(type, questions)} == {str}
        if not is_usual and not (
            hasattr(questions, "__iter__") and all(isinstance(question, str) for question in questions or [None])
        ):
            what = "doc_to_choice must be a list of texts" if self.multiple_inputs else "doc_to_text must be a text"
            raise RenderError(f"{what}, got {questions!r:.80}")
        return target, choices, prefix, questions, self._before(full)

    def _contexts(
        self, before: list[list[Turn]], questions: Sequence[list[Turn]], prefix: str | None
    ) -> tuple[list[Prompt], str]:
        """The prompt of each question, and their common prefix where it is known."""
        if self.chat.template is None:
            start = self._joined(before)
            return [start + as_text(turns) for turns in questions], start
        shared = [turn for part in before for turn in part]
        return [self._chatted([*shared, *turns], prefix) for turns in questions], ""

    def _chatted(self, turns: list[Turn], prefix: str | None) -> Prompt:
        messages = as_messages(turns) if self.chat.multiturn else as_single_turn(turns)
        assert self.chat.template is not None
        try:
            return self.chat.template(messages, not prefix)
        except ConfigError:
            raise
        except RENDER_ERRORS as error:
            raise RenderError(f"the chat template failed: {reason(error)}") from error

    def _before(self, row: Row) -> list[list[Turn]]:
        """System message and examples, which precede the question."""
        if self._constant_system is not None and self.config.description not in row:
            parts = [*self._constant_system]
        else:
            parts = self._system(self._description(row) or "")
        if self.examples.number > 0 and self._choose is not None:
            known = self._turns.get
            parts += [known(index) or self._example(index) for index in self._choose(row, self.examples.number)]
        return parts

    def _system(self, description: str) -> list[list[Turn]]:
        """The system message as a part of a prompt; none where there is no text."""
        system = join_texts(self.chat.system, description, self.config.fewshot_delimiter)
        is_alone = system and not description and self.chat.template is None and not system[-1].isspace()
        if is_alone and not self.dialect.puts_system_instruction_before_question:
            system += self.config.fewshot_delimiter
        return [[Turn("system", system)]] if system else []

    def _joined(self, parts: list[list[Turn]]) -> str:
        """The parts as one text; equal parts give the same text object, so that it is stored once."""
        key = tuple([id(part) if part[0].role != "system" else part[0].content for part in parts])
        known = self._prefixes.get(key)
        if known is None:
            known = "".join([as_text(part) for part in parts])
            if len(self._prefixes) < 64:
                self._prefixes[key] = known
        return known

    def _example(self, index: int) -> list[Turn]:
        turns = self._turns.get(index)
        if turns is None:
            turns = self._turns[index] = self._new_example(self.examples.pool[index])
        return turns

    def _new_example(self, row: Row) -> list[Turn]:
        full = self._derived(row)
        shot = _fewshot_fields(self.config)
        question, answer = self._shot.text(full), self._shot.target(full)
        choices = self._shot.choice(full) if self._shot.choice is not None else None
        if self.multiple_inputs and choices is not None:
            question, choices = _choice("doc_to_text", choices, question), None
        if not isinstance(question, str):
            raise RenderError(f"the question of an example must be a text, got {question!r:.80}")
        prefix = self._shot.prefix(row)
        text = _answer_text(answer, choices)
        return example_turns(question, text, prefix, shot.target_delimiter or "", shot.fewshot_delimiter or "")

    def _fields(self, config: TaskConfig | FewshotConfig, *, own: bool = True) -> _Fields:
        has_choices = self.config.doc_to_choice is not None
        choices = choice_field if self.dialect.sends_templates_in_lists else filled_choice_field
        choice = choices(config.doc_to_choice, self.columns) if config.doc_to_choice else None
        text = text_field(config.doc_to_text, self.columns, has_choices=has_choices)
        target = target_field(config.doc_to_target, self.columns, has_choices=has_choices)
        if not self.dialect.writes_none_for_null:
            text = required_columns(config.doc_to_text, self.columns, text)
            if self.config.process_results is None:
                target = required_columns(config.doc_to_target, self.columns, target)
        is_choice = choice is not None and self.config.output_type == "multiple_choice"
        if choice is not None and is_choice and not self.dialect.takes_digits_for_text:
            target = _indexed(target, choice)
        return _Fields(text, target, choice, plain_field(config.gen_prefix, self.columns if own else None))

    def _derived(self, row: Row) -> Row:
        """The document with the variables that functions compute for a format's templates."""
        if not self._computed:
            return row
        return {**row, **{name: function(row) for name, function in self._computed.items()}}


def _is_example(part: Sequence[Turn]) -> bool:
    return part[0].role != "system"


def _fewshot_fields(config: TaskConfig) -> FewshotConfig:
    """The few-shot settings, with the task's own as defaults."""
    shots = config.fewshot_config or FewshotConfig()
    own: Mapping[str, Any] = {
        name: getattr(shots, name) if getattr(shots, name) is not None else getattr(config, name)
        for name in (*_MAY_DRAW, "fewshot_delimiter", "target_delimiter")
    }
    return FewshotConfig(**own)


def _answer_text(answer: FieldValue, choices: Sequence[str] | None) -> str | None:
    """The text of an example's answer: for an index the choice, for several targets the first."""
    if isinstance(answer, list):
        answer = answer[0] if answer else None
    if choices and isinstance(answer, int):
        answer = _choice("doc_to_target", choices, answer)
    return answer if answer is None or isinstance(answer, str) else str(answer)


def _choice(key: str, choices: Any, index: FieldValue) -> Any:
    try:
        return choices[index]
    except (LookupError, TypeError):
        raise RenderError(f"{key}: {index!r:.40} in an example is not the index of a choice: {choices!r:.60}") from None


def join_texts(before: str | None, after: str | None, delimiter: str) -> str:
    """Both texts, with the delimiter between them unless there is white space at the joint or a side is missing.

    >>> join_texts("Be brief.", "Answer:", " "), join_texts("Be brief. ", "Answer:", " "), join_texts(None, "Answer:", " ")
    ('Be brief. Answer:', 'Be brief. Answer:', 'Answer:')
    """
    if not before or not after:
        return before or after or ""
    return before + delimiter + after if needs_delimiter(before, after) else before + after


def needs_delimiter(before: str, after: str) -> bool:
    return before != "" and not (before[-1].isspace() or after[:1].isspace())


def question_turns(question: str, prefix: str | None, delimiter: str) -> list[Turn]:
    """The evaluated question, and the prefilled answer where there is one."""
    if not prefix:
        return [Turn("user", question)]
    suffix = delimiter if needs_delimiter(question, prefix) else ""
    return [Turn("user", question, suffix), Turn("assistant", prefix)]


def example_turns(question: str, answer: str | None, prefix: str | None, delimiter: str, end: str) -> list[Turn]:
    """A few-shot example: a question with its answer, after the prefix where there is one."""
    if answer is None or answer == "":
        return question_turns(question, prefix, delimiter)
    suffix = delimiter if not prefix or needs_delimiter(question, prefix) else ""
    return [Turn("user", question, suffix), Turn("assistant", join_texts(prefix, answer, " "), end)]


def as_text(turns: Sequence[Turn]) -> str:
    """The conversation as one text."""
    return "".join([turn.content + turn.suffix for turn in turns])


def as_messages(turns: Sequence[Turn]) -> tuple[Message, ...]:
    """The conversation as messages, one per turn."""
    return tuple([Message(turn.role, turn.content) for turn in turns])


def as_single_turn(turns: Sequence[Turn]) -> tuple[Message, ...]:
    """The conversation as one user message; only system message and prefilled answer stay separate."""
    first = [turns[0]] if turns[0].role == "system" else []
    last = [turns[-1]] if turns[-1].role == "assistant" else []
    middle = list(turns[len(first) : len(turns) - len(last)])
    middle[-1] = middle[-1]._replace(suffix="")
    return as_messages([*first, Turn("user", as_text(middle)), *last])
