"""Reasoning, kept apart from the answer."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.models.endings import FAULTS, end_for, with_reason
from assay.models.protocol import PermanentError
from assay.models.tokenizer import cut_at_stop
from assay.records import UNFINISHED, Failed, Message, Prompt, Text, Usage

START, END = "<think>", "</think>"


def split_thinking(text: str, start: str = START, end: str = END) -> tuple[str | None, str, bool]:
    """Split a text into its reasoning and the answer after it; the last value is whether the reasoning ended.

    >>> split_thinking("<think>2 + 2</think> 4")
    ('2 + 2', '4', True)
    >>> split_thinking("<think>2 +")
    ('2 +', '', False)
    """
    before, closing, after = text.rpartition(end)
    if closing:
        return before.replace(start, "", 1).strip(), after.lstrip(), True
    _, begun, thoughts = text.partition(start)
    return (thoughts, "", False) if begun else (None, text, True)


HIDDEN = "seventeen"
SHOWN = "It is eighteen."


def template_thinks(render: Callable[[tuple[Message, ...], bool], Prompt]) -> bool:
    """Whether a chat template is that of a model that thinks before it answers: it opens a block for that, or removes thinking
    from earlier turns; and it does not close the block, as it does where thinking is switched off."""
    question = Message("user", "Which number?")
    begun = render((question,), True)
    if not isinstance(begun, str):
        return False
    opened = begun.rpartition(question.content)[2]  # type: ignore[arg-type]  # a text
    if END in opened:
        return False
    turns = (question, Message("assistant", f"{START}{HIDDEN}{END}{SHOWN}"), question)
    rendered = str(render(turns, True))
    return START in opened or (SHOWN in rendered and HIDDEN not in rendered)


class Draft:
    """A response in progress: chunks of reasoning and of text, as bytes, since thousands are open at once.

    Reasoning within the text is enclosed in `tags`; stop strings apply to the answer alone. `most` is the maximum number
    of bytes. `tools`: whether tools were offered. How it ends is decided by the table of `endings`: `finish` is the reason
    as the server gives it, `fault` the sentence of something else that was wrong.
    """

    __slots__ = ("_answer", "_most", "_seen", "_stops", "_tags", "_text", "_thoughts", "_tools", "calls", "fault", "finish",
                 "has_content", "has_message", "is_stopped", "model", "pieces", "usage")  # fmt: skip

    def __init__(
        self,
        stops: Sequence[str] = (),
        tags: tuple[str, str] | None = None,
        most: int = sys.maxsize,
        *,
        tools: bool = False,
    ) -> None:
        self._text, self._thoughts = bytearray(), bytearray()
        self._most = most
        self._stops, self._tags, self._tools = stops, tags, tools
        self._seen = self._answer = 0
        self.pieces = 0
        self.finish: str | None = None
        self.fault = ""
        self.is_stopped = False
        """Whether a stop string was reached: what follows is not read."""
        self.has_content = False
        """Whether there was a text, even an empty one, or reasoning."""
        self.has_message = False
        """Whether a message began: without a text, that is an empty answer."""
        self.usage: Usage | None = None
        self.calls: Sequence[Mapping[str, Any]] = ()
        self.model = ""

    def add(self, text: str | None, thought: str | None = None) -> bool:
        """Add a chunk; return whether the answer reached a stop string."""
        self.pieces += 1
        if text is None and thought is None:
            return False
        if text is not None and not isinstance(text, str):  # a server may send any type
            raise TypeError(f"the text of an answer must be text, got {type(text).__name__}")
        self.has_content = True
        size = len(self._text) + len(self._thoughts) + len(text or "") + len(thought or "")
        if size > self._most:
            raise PermanentError(
                f"the answer has {size:,} characters: the tokens that were asked for cannot be so long"
            )
        if self.finish is not None and (text or thought):
            self.fail("text after the end")
        if thought:
            self._thoughts += thought.encode("utf-8", "replace")
        if not text:
            return False
        self._text += text.encode("utf-8", "replace")
        if not self._stops or (self._tags is not None and not self._is_answering(self._tags[1].encode())):
            self._seen = len(self._text)
            return False
        self.is_stopped = any(self._find_new(stop.encode()) >= 0 for stop in self._stops)
        self._seen = len(self._text)
        return self.is_stopped

    def fail(self, fault: str, detail: str = "") -> None:
        """Note a fault of the table, with what else is known of it; the first one counts."""
        self.fault = self.fault or f"{FAULTS[fault].sentence}{detail}"[:MAX_FAULT]

    @property
    def has_begun(self) -> bool:
        return bool(self._text or self._thoughts)

    @property
    def has_ended(self) -> bool:
        return self.finish is not None or bool(self.fault)

    def _is_answering(self, end: bytes) -> bool:
        """Whether the reasoning is over. If it is sent separately, it is when there is text."""
        if not self._answer and not self._thoughts:
            at = self._find_new(end)
            self._answer = at + len(end) if at >= 0 else 0
        return bool(self._answer or self._thoughts)

    def _find_new(self, part: bytes) -> int:
        """Find bytes in the text that were not there before the last chunk."""
        return self._text.find(part, max(self._answer, self._seen - len(part)))

    def whole(self) -> Text | Failed:
        """Return the finished response, or why there is none; raise a RetryableError where it should be asked again."""
        if self.fault:
            return Failed(self.fault)
        if self.calls and not self._tools:
            return Failed(f"{FAULTS['calls not offered'].sentence}: {_names(self.calls)}")
        end = end_for(self.finish)
        if end.outcome == "failed":
            return Failed(with_reason(end.sentence, self.finish))
        if end.finish == "tool_calls" and not self.calls:
            return Failed(with_reason(FAULTS["calls missing"].sentence, self.finish))
        if not self.has_content and not self.calls:
            if end.finish == "length":  # the provider keeps the reasoning to itself, and it took all tokens
                return Text("", UNFINISHED, None, self.usage, (), self.model)
            if not self.has_message and not self._is_known_empty:
                return Failed(with_reason(FAULTS["no text"].sentence, self.finish))
        return self._text_with(end.finish)

    @property
    def _is_known_empty(self) -> bool:
        """Whether the server counted no token but that of the end: some gateways leave an empty text out of a stream."""
        return self.usage is not None and self.usage.read > 0 and self.usage.written <= 1

    def _text_with(self, finish: str) -> Text:
        text = self._text.decode("utf-8", "replace")
        thoughts: str | None = self._thoughts.decode("utf-8", "replace") or None
        ended = not (thoughts is not None and not text and finish == "length")
        if self._tags is not None and thoughts is None:
            thoughts, text, ended = split_thinking(text, *self._tags)
            if thoughts is None and finish == "length":  # the prompt began the reasoning, and it never ended
                thoughts, text, ended = text, "", False
        answer, stopped = cut_at_stop(text, self._stops)
        finish = UNFINISHED if not ended else "stop" if stopped else finish
        return Text(answer, finish, thoughts, self.usage, self.calls, self.model)


MAX_FAULT = 300
"""Maximum characters of a sentence with what a server wrote."""


def _names(calls: Sequence[Mapping[str, Any]]) -> str:
    names = [str((call.get("function") or {}).get("name", "?")) for call in calls]
    return ", ".join(names)[:MAX_FAULT]
