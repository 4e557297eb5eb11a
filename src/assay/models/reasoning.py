"""What a model thinks, kept apart from what it answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.models.tokens import cut_at_stop
from assay.records import UNFINISHED, Text, Usage

START, END = "<think>", "</think>"


def split_thinking(text: str, start: str = START, end: str = END) -> tuple[str | None, str, bool]:
    """The thoughts in a text, the answer behind them, and whether the thinking has come to its end.

    >>> split_thinking("<think>2 + 2</think> 4")
    ('2 + 2', '4', True)
    >>> split_thinking("<think>2 +")
    ('2 +', '', False)
    """
    before, found, after = text.rpartition(end)
    if found:
        return before.replace(start, "", 1).strip(), after.lstrip(), True
    _, begun, thoughts = text.partition(start)
    return (thoughts, "", False) if begun else (None, text, True)


class Draft:
    """An answer under way: pieces of thought and of text, as bytes, since thousands of them are open at once.

    Thinking in the text itself stands between `tags`; stops are for the answer alone.
    """

    __slots__ = ("_answer", "_seen", "_stops", "_tags", "_text", "_thoughts", "calls", "finish", "pieces", "usage")

    def __init__(self, stops: Sequence[str] = (), tags: tuple[str, str] | None = None) -> None:
        self._text, self._thoughts = bytearray(), bytearray()
        self._stops, self._tags = stops, tags
        self._seen = self._answer = 0
        self.pieces = 0
        self.finish: str | None = None
        self.usage: Usage | None = None
        self.calls: Sequence[Mapping[str, Any]] = ()

    def add(self, text: str | None, thought: str | None = None) -> bool:
        """Take a piece; whether the answer has come to a stop."""
        self.pieces += 1
        if text is not None and not isinstance(text, str):  # a server's word
            raise TypeError(f"the text of an answer must be text, got {type(text).__name__}")
        if thought:
            self._thoughts += thought.encode("utf-8", "replace")
        if not text:
            return False
        self._text += text.encode("utf-8", "replace")
        if not self._stops or (self._tags is not None and not self._is_answering(self._tags[1].encode())):
            self._seen = len(self._text)
            return False
        found = any(self._new(stop.encode()) >= 0 for stop in self._stops)
        self._seen = len(self._text)
        return found

    @property
    def has_begun(self) -> bool:
        return bool(self._text or self._thoughts)

    def _is_answering(self, end: bytes) -> bool:
        """Whether the thinking is over. Where it stands apart, it is when there is text."""
        if not self._answer and not self._thoughts:
            at = self._new(end)
            self._answer = at + len(end) if at >= 0 else 0
        return bool(self._answer or self._thoughts)

    def _new(self, wanted: bytes) -> int:
        """Where something stands in the text, unless it stood there before the last piece."""
        return self._text.find(wanted, max(self._answer, self._seen - len(wanted)))

    def whole(self) -> Text:
        """The response it became."""
        text = self._text.decode("utf-8", "replace")
        thoughts: str | None = self._thoughts.decode("utf-8", "replace") or None
        ended = not (thoughts is not None and not text and self.finish == "length")
        if self._tags is not None and thoughts is None:
            thoughts, text, ended = split_thinking(text, *self._tags)
            if thoughts is None and self.finish == "length":  # the prompt began the thinking, and it never ended
                thoughts, text, ended = text, "", False
        answer, stopped = cut_at_stop(text, self._stops)
        finish = UNFINISHED if not ended else "stop" if stopped else self.finish
        return Text(answer, finish, thoughts, self.usage, self.calls)
