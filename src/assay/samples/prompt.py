"""Prompts of documents: description, examples, question; as text, or through a chat template."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from assay.config.task import FewshotConfig, TaskConfig
from assay.records import Message, Prompt, Turn
from assay.samples.fewshot import Pool, Sampler
from assay.samples.fields import (
    FieldFunction,
    FieldValue,
    choice_field,
    function_field,
    plain_field,
    required_columns,
    target_field,
    text_field,
)
from assay.samples.templates import RenderError, Row

ChatTemplate = Callable[[tuple[Message, ...], bool], Prompt]
"""A model's chat template: messages, and whether to open the model's turn. A server model may keep messages."""


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
    strict: bool = False
    """Whether a missing value is an error; lm-eval writes "None" there."""

    def __post_init__(self) -> None:
        self._own = self._fields(self.config)
        self._shot = self._fields(_fewshot_fields(self.config), own=False)
        self._description = plain_field(self.config.description)
        self._computed = {
            name: function_field(_FIELDS[name.rpartition("_")[2]], function)  # type: ignore[arg-type]  # resolved
            for name, function in self.config.derived.items()
        }
        self._turns: dict[int, list[Turn]] = {}
        self._prefixes: dict[tuple[Any, ...], str] = {}
        self.restart()

    def restart(self) -> None:
        """Restart the choice of examples, as for the first document."""
        self._choose = self.examples.start() if self.examples.start is not None else None

    _own: _Fields = field(init=False)
    _shot: _Fields = field(init=False)
    _description: Callable[[Row], str | None] = field(init=False)
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

    @property
    def draws(self) -> bool:
        """Whether prompts depend on earlier documents: examples are drawn, and functions and templates may draw."""
        shots = self.config.fewshot_config or FewshotConfig()
        fields = [getattr(each, key) for each in (self.config, shots) for key in _MAY_DRAW]
        texts = [self.config.description, *fields]
        drawing = any(callable(each) or (isinstance(each, str) and "random" in each) for each in texts)
        return self.examples.number > 0 or bool(self.config.derived) or drawing

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
        full = self._derived(row)
        target, choices = self._own.target(full), self._own.choice(full) if self._own.choice is not None else None
        prefix = self._own.prefix(full)
        questions: Sequence[Any] = choices or [] if self.multiple_inputs else [self._own.text(full)]
        if not all(isinstance(question, str) for question in questions or [None]):
            raise RenderError(f"doc_to_text must be a text, got {questions!r:.80}")
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
        return self.chat.template(messages, not prefix)

    def _before(self, row: Row) -> list[list[Turn]]:
        """System message and examples, which precede the question."""
        description = self._description(row) or ""
        system = join_texts(self.chat.system, description, self.config.fewshot_delimiter)
        parts = [[Turn("system", system)]] if system else []
        if self.examples.number > 0 and self._choose is not None:
            parts += [self._example(index) for index in self._choose(row, self.examples.number)]
        return parts

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
            question, choices = choices[question], None
        if not isinstance(question, str):
            raise RenderError(f"the question of an example must be a text, got {question!r:.80}")
        prefix = self._shot.prefix(row)
        text = _answer_text(answer, choices)
        return example_turns(question, text, prefix, shot.target_delimiter or "", shot.fewshot_delimiter or "")

    def _fields(self, config: TaskConfig | FewshotConfig, *, own: bool = True) -> _Fields:
        has_choices = self.config.doc_to_choice is not None
        choice = choice_field(config.doc_to_choice, self.columns) if config.doc_to_choice else None
        text = text_field(config.doc_to_text, self.columns, has_choices=has_choices)
        target = target_field(config.doc_to_target, self.columns, has_choices=has_choices)
        if self.strict:
            text = required_columns(config.doc_to_text, self.columns, text)
            if self.config.process_results is None:
                target = required_columns(config.doc_to_target, self.columns, target)
        return _Fields(
            text=text,
            target=target,
            choice=choice,
            prefix=plain_field(config.gen_prefix, self.columns if own else None),
        )

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
        for name in (
            "doc_to_text",
            "doc_to_choice",
            "doc_to_target",
            "gen_prefix",
            "fewshot_delimiter",
            "target_delimiter",
        )
    }
    return FewshotConfig(**own)


def _answer_text(answer: FieldValue, choices: Sequence[str] | None) -> str | None:
    """The text of an example's answer: for an index the choice, for several targets the first."""
    if choices and isinstance(answer, int):
        return choices[answer]
    if isinstance(answer, list):
        answer = answer[0] if answer else None
        if choices and isinstance(answer, int):
            return choices[answer]
    return answer if answer is None or isinstance(answer, str) else str(answer)


def join_texts(before: str | None, after: str | None, delimiter: str) -> str:
    """Both texts, with the delimiter between them unless there is white space or a side is missing.

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
