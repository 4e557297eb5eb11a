"""Turns of a conversation: how a prompt is put together, and how it is written as text or as messages."""

from collections.abc import Sequence

from assay.records import Message, Turn


def joined(before: str | None, after: str | None, delimiter: str) -> str:
    """Both texts, with the delimiter between them unless there is white space at the joint or a side is missing.

    >>> joined("Be brief.", "Answer:", " "), joined("Be brief. ", "Answer:", " "), joined(None, "Answer:", " ")
    ('Be brief. Answer:', 'Be brief. Answer:', 'Answer:')
    """
    if not before or not after:
        return before or after or ""
    return before + delimiter + after if needs_delimiter(before, after) else before + after


def needs_delimiter(before: str, after: str) -> bool:
    return before != "" and not (before[-1].isspace() or after[:1].isspace())


def question_turns(question: str, prefix: str | None, delimiter: str) -> list[Turn]:
    """The evaluated question, and the words put into the model's mouth where there are some."""
    if not prefix:
        return [Turn("user", question)]
    suffix = delimiter if needs_delimiter(question, prefix) else ""
    return [Turn("user", question, suffix), Turn("assistant", prefix)]


def example_turns(question: str, answer: str | None, prefix: str | None, delimiter: str, end: str) -> list[Turn]:
    """A few-shot example: a question with its answer, behind the prefix where there is one."""
    if answer is None or answer == "":
        return question_turns(question, prefix, delimiter)
    suffix = delimiter if not prefix or needs_delimiter(question, prefix) else ""
    return [Turn("user", question, suffix), Turn("assistant", joined(prefix, answer, " "), end)]


def as_text(turns: Sequence[Turn]) -> str:
    """The conversation as one text."""
    return "".join([turn.content + turn.suffix for turn in turns])


def as_messages(turns: Sequence[Turn]) -> tuple[Message, ...]:
    """The conversation as messages, a turn each."""
    return tuple([Message(turn.role, turn.content) for turn in turns])


def as_single_turn(turns: Sequence[Turn]) -> tuple[Message, ...]:
    """The conversation as one message of the user, around which only system and prefilled answer stand by themselves."""
    first = [turns[0]] if turns[0].role == "system" else []
    last = [turns[-1]] if turns[-1].role == "assistant" else []
    middle = list(turns[len(first) : len(turns) - len(last)])
    middle[-1] = middle[-1]._replace(suffix="")
    return as_messages([*first, Turn("user", as_text(middle)), *last])
