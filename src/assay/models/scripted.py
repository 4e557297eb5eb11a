"""Models without weights: user functions from request to response, and the dummy."""

import dis
import hashlib
import inspect
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from assay.config.source import digest
from assay.models.conversations import answer_rendered
from assay.models.protocol import Answered, Can
from assay.records import (
    Failed,
    Generate,
    Likelihood,
    Loglikelihood,
    Message,
    Request,
    Response,
    Rolling,
    Text,
    messages_to_plain,
)
from assay.signatures import defaults
from assay.user_code import UserCodeError, describe_error, is_overridden, user_code

PIECE_SECONDS = 0.001
METHODS = ("answer", "chat_template", "count_tokens", "_answer", "_respond", "_scripted")
"""The methods that a run calls, and those that these call."""


class Scripted:
    """A model made of functions. It can do what it has a function for; an exception in a function fails the request.

    `chat_template` renders messages, given as mappings. Without one, functions receive conversations as a tuple of
    messages.

    >>> model = Scripted(generate=lambda prompt, params, repeat: prompt.upper())
    >>> model.can.generate, model.can.loglikelihood
    (True, False)
    """

    def __init__(
        self,
        generate: Callable[[Any, dict[str, object], int], str] | None = None,
        loglikelihood: Callable[[Any, str], tuple[float, bool]] | None = None,
        loglikelihood_rolling: Callable[[str], float] | None = None,
        chat_template: Callable[[list[dict[str, Any]], bool], str] | None = None,
        *,
        name: str = "scripted",
        identity: str | None = None,
    ) -> None:
        self._generate, self._loglikelihood, self._rolling = generate, loglikelihood, loglikelihood_rolling
        self._template = chat_template
        self.name = name
        self._given = identity or _identity(generate, loglikelihood, loglikelihood_rolling)
        self.can = Can(
            generate is not None,
            loglikelihood is not None,
            loglikelihood_rolling is not None,
            chat_template is not None,
        )
        self.window = 4096
        self.max_length: int | None = None

    @property
    def identity(self) -> str:
        """What was given, or the digest of its functions; with methods of a subclass or set on this object: its answers are
        theirs."""
        methods = [getattr(self, name) for name in METHODS if is_overridden(self, name, Scripted)]
        return f"{self._given} {_identity(*methods)}" if methods else self._given

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        return (
            self._answer(requests)
            if self._template is None
            else answer_rendered(requests, self.chat_template, self._answer)
        )

    async def _answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        """Yield the responses of every millisecond: those of a slow script one by one, of a fast one together."""
        ready: list[tuple[int, Response]] = []
        due = time.perf_counter() + PIECE_SECONDS
        for number, request in enumerate(requests):
            ready.append((number, self._respond(request)))
            if time.perf_counter() >= due:
                yield ready
                ready = []
                due = time.perf_counter() + PIECE_SECONDS
        yield ready

    def _respond(self, request: Request) -> Response:
        try:
            with user_code("the script"):
                return self._scripted(request)
        except UserCodeError as error:  # a script replaces a model: its exception is the model's failure
            return Failed(describe_error(error.__cause__ or error))

    def _scripted(self, request: Request) -> Response:
        if isinstance(request, Loglikelihood) and self._loglikelihood is not None:
            return Likelihood(*self._loglikelihood(request.context, request.continuation))
        if isinstance(request, Generate) and self._generate is not None:
            return Text(self._generate(request.prompt, dict(request.params), request.repeat))
        if not isinstance(request, Generate | Loglikelihood) and self._rolling is not None:
            return Likelihood(self._rolling(request.text))
        return Failed(f"the scripted model has no function for {type(request).__name__}")

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        assert self._template is not None, "checked before the run"
        return self._template(messages_to_plain(messages), add_generation_prompt)

    def count_tokens(self, text: str) -> int | None:  # noqa: ARG002  # a script has no tokens
        return None


def _identity(*functions: Callable[..., object] | None) -> str:
    """Digest of the functions' source, or of the bytecode of one without. A callable without either is identified by its
    `repr`: where that has a memory address, no run resumes on it."""
    parts = [_code(function) if function is not None else "" for function in functions]
    return f"scripted {digest(repr(parts).encode())}"


def _code(function: Callable[..., object], seen: frozenset[object] = frozenset()) -> str:
    """The source of a function, or what else identifies it, with what it captured: two of one source may answer otherwise."""
    code = getattr(function, "__code__", None)
    try:
        written = inspect.getsource(function)
    except (OSError, TypeError):
        written = repr((code.co_code, code.co_consts)) if code is not None else repr(function)
    captured = _captured(function, seen | {code}) if code is not None and code not in seen else {}
    return repr((written, captured)) if captured else written


def _captured(function: Any, seen: frozenset[object]) -> dict[str, str]:
    """Texts, numbers and functions from around a function, and its defaults, by name. Other objects may have an address in
    their `repr`, and a variable that the function itself changes is a count, say: a model that is made again is the same."""
    changed = {step.argval for step in dis.get_instructions(function.__code__) if step.opname == "STORE_DEREF"}
    values = inspect.getclosurevars(function).nonlocals
    known = {name: value for name, value in values.items() if name not in changed}
    known |= defaults(function)
    return {
        name: _code(value, seen) if inspect.isfunction(value) else repr(value)
        for name, value in known.items()
        if inspect.isfunction(value) or isinstance(value, str | bytes | int | float)
    }


class Dummy:
    """Pseudo-random log-likelihoods, the same every time; generations are always "lol", as in lm-eval."""

    name = "dummy"
    identity = "dummy 1"
    can = Can(chat=True)
    window = 4096
    max_length: int | None = None

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        return answer_rendered(requests, self.chat_template, self._answer)

    async def _answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        responses: list[tuple[int, Response]] = []
        for number, request in enumerate(requests):
            if isinstance(request, Generate):
                responses.append((number, Text("lol")))
                continue
            text = request.text if isinstance(request, Rolling) else f"{request.context}\0{request.continuation}"
            drawn = int.from_bytes(hashlib.sha256(text.encode()).digest()[:6]) / 2**48
            responses.append((number, Likelihood(-drawn, False)))
        yield responses

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        text = "".join(f"<|{message['role']}|>\n{message['content']}\n" for message in messages_to_plain(messages))
        return text + "<|assistant|>\n" if add_generation_prompt else text.rstrip("\n")

    def count_tokens(self, text: str) -> int | None:
        return len(text.split())


class NoModel(Dummy):
    """The model under test of a run that has none: its graphs ask other models, or none."""

    can = Can(generate=False, loglikelihood=False, rolling=False)

    def __init__(self, name: str) -> None:
        self.name = name
        self.identity = f"nobody {name}"
