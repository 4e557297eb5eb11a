"""Faults of servers, as data: one line a kind. `bench.fault_server` acts by them, `bench.under_fire` and the tests count what
they do to a run.

A kind is what a server does, step by step, once it has read a request about a document: `answer()` sends the right answer,
`answer(text=…, finish=…)` sends it changed. The request before the run and everything without a document is answered well.
Every document is `question N`, and its only right answer is `answer N`; what is scored and says something else is wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

JUNK = "answer 999"
"""An answer that no document has."""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer before it is written in a protocol. `finish` is a word of OpenAI's; `more` are keys beside the choices, and
    `choice` keys of the choice itself (Anthropic: of the message)."""

    text: str | None = None
    """None: the right answer."""
    finish: str | None = "stop"
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    refusal: str | None = None
    after: str = ""
    """Text after the end: of a further event, or a further choice or block."""
    more: Mapping[str, Any] | None = None
    choice: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a server does.

    answer: sends `said` as a whole HTTP response. begin: sends it without its last `missing` bytes. drip: sends its body a
    piece every `seconds`, for ever. ping: sends events without text every `seconds`, for ever (a space each where nothing is
    streamed). raw: sends bytes. wait: does nothing for `seconds`. close, reset: ends the connection.
    """

    does: Literal["answer", "begin", "drip", "ping", "raw", "wait", "close", "reset"]
    said: Said = Said()
    seconds: float = 0.0
    data: bytes = b""
    missing: int = 0
    headers: Mapping[str, str] | None = None


def answer(headers: Mapping[str, str] | None = None, **changes: Any) -> Step:
    return Step("answer", Said(**changes), headers=headers)


def begin(missing: int) -> Step:
    return Step("begin", missing=missing)


def wait(seconds: float) -> Step:
    return Step("wait", seconds=seconds)


def raw(data: bytes) -> Step:
    return Step("raw", data=data)


CLOSE, RESET = Step("close"), Step("reset")
STRAY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
Expected = Literal["right", "failed", "either"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: its steps at each document that it is for (every `each`-th), and what must become of them.

    `apart`: each kind has a run of its own, since it is about what one connection does to the next document.
    """

    steps: tuple[Step, ...]
    expected: Expected = "either"
    each: int = 1
    apart: bool = False


def kind(*steps: Step, expected: Expected = "either", each: int = 1) -> Kind:
    return Kind(steps, expected, each)


def apart(*steps: Step, expected: Expected = "either", each: int = 1) -> Kind:
    return Kind(steps, expected, each, apart=True)


CONNECTIONS: dict[str, Kind] = {
    "sound": apart(answer(), expected="right"),
    # answers that nobody asked for
    "late response": apart(answer(), wait(0.03), answer(text=JUNK), expected="right"),
    "late response, sooner": apart(answer(), wait(0.003), answer(text=JUNK), expected="right"),
    "late response, later": apart(answer(), wait(0.2), answer(text=JUNK), expected="right"),
    "late response, now and then": apart(answer(), wait(0.03), answer(text=JUNK), expected="right", each=5),
    "late copy of the answer": apart(answer(), wait(0.03), answer(), expected="right"),
    "two responses at once": apart(answer(), answer(text=JUNK), expected="right"),
    "half a response behind it": apart(answer(), raw(STRAY[:40]), wait(0.03), raw(STRAY[40:]), expected="right"),
    "line ends behind it": apart(answer(), raw(b"\r\n\r\n"), expected="right"),
    "junk behind it": apart(answer(), wait(0.01), raw(b"\0\1GARBAGE")),
    "408 on an idle connection": apart(answer(), wait(0.05), raw(TIMED_OUT), CLOSE, expected="right"),
    # connections that end
    "closed behind each answer": apart(answer(), CLOSE, expected="right"),
    "closed a little later": apart(answer(), wait(0.02), CLOSE, expected="right"),
    "reset behind each answer": apart(answer(), wait(0.01), RESET, expected="right"),
    "keep-alive of a second": apart(answer({"Keep-Alive": "timeout=1, max=100"}), wait(1.0), CLOSE, expected="right"),
    "closed in the answer": apart(begin(5), CLOSE),
    "reset in the answer": apart(begin(5), RESET),
    "closed before the answer": apart(CLOSE),
    # answers without an end
    "drip of the answer": apart(Step("drip", seconds=0.05), expected="failed"),
    "signs of life": apart(Step("ping", seconds=0.05), expected="failed"),
    "bytes of a head": apart(raw(b"HTTP/1.1 200 OK\r\n"), Step("drip", seconds=0.05, data=b"X-A: b\r\n"), expected="failed"),
    "informational responses": apart(Step("drip", seconds=0.05, data=b"HTTP/1.1 102 Processing\r\n\r\n"), expected="failed"),
    "no answer": apart(wait(60.0), expected="failed"),
}  # fmt: skip
"""Faults of connections and of time."""

ERROR = {"error": {"type": "api_error", "message": "out of memory"}}
NO_TEXT = {"text": None, "message": {"role": "assistant", "content": None}, "content": [{"type": "text", "text": None}]}
CALLED = {"function_call": {"name": "look_up", "arguments": "{}"}}
ENDS: dict[str, Kind] = {
    "filtered, with a part of the text": kind(answer(text="answ", finish="content_filter"), expected="failed"),
    "filtered, with all of the text": kind(answer(finish="content_filter"), expected="failed"),
    "refused": kind(answer(finish="refusal"), expected="failed"),
    "refused in words": kind(answer(refusal="I will not")),  # of a chat alone
    "paused": kind(answer(finish="pause_turn"), expected="failed"),
    "ended for a function call": kind(answer(finish="function_call"), expected="failed"),
    "ended for a call that is missing": kind(answer(finish="tool_calls")),  # log-likelihoods have no calls
    "a tool call that was not offered": kind(answer(calls=[("look_up", {"q": "x"})])),  # completions have none
    "a call as before tools": kind(
        answer(choice={"message": {"role": "assistant", "content": JUNK, **CALLED}, "delta": CALLED})
    ),
    "aborted": kind(answer(finish="abort"), expected="failed"),
    "an error beside the answer": kind(answer(text="answ", more=ERROR), expected="failed"),
    "an error of the choice": kind(answer(text="answ", choice=ERROR), expected="failed"),
    "text after the end": kind(answer(after=JUNK)),
    "no text": kind(answer(choice=NO_TEXT)),
    "no reason": kind(answer(finish=None), expected="right"),
    "an empty reason": kind(answer(finish=""), expected="right"),
    "an unknown reason": kind(answer(finish="banana"), expected="right"),
}
"""Faults in how an answer ends."""

KINDS = {**CONNECTIONS, **ENDS}

Encode = Callable[[Said, str], Any]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to ask: a backend with arguments, and the protocol of its path."""

    backend: str
    protocol: Literal["chat", "completions", "echo", "anthropic"]
    stream: bool = False
    asks: Literal["text", "choices", "judge", "graph"] = "text"


WAYS: dict[str, Way] = {
    "chat": Way("openai-chat", "chat"),
    "chat, streamed": Way("openai-chat", "chat", stream=True),
    "completions": Way("openai", "completions"),
    "completions, streamed": Way("openai", "completions", stream=True),
    "log-likelihoods": Way("openai", "echo", asks="choices"),
    "anthropic": Way("anthropic", "anthropic"),
    "anthropic, streamed": Way("anthropic", "anthropic", stream=True),
    "judge": Way("openai-chat", "chat", asks="judge"),
    "judge, streamed": Way("openai-chat", "chat", stream=True, asks="judge"),
    "graph": Way("openai-chat", "chat", asks="graph"),
    "graph, streamed": Way("openai-chat", "chat", stream=True, asks="graph"),
    "litellm": Way("litellm", "chat"),
}
