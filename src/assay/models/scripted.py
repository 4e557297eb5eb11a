"""Models without weights: user functions from request to response, and the dummy."""

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
    Text,
    messages_to_plain,
)
from assay.user_code import UserCodeError, user_code

PIECE_SECONDS = 0.001
METHODS = ("answer", "chat_template", "count_tokens")
"""The methods that a run calls."""


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
        """What was given, or the digest of its functions; with methods that were set on this object: its answers are theirs."""
        methods = [vars(self)[name] for name in METHODS if name in vars(self)]
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
            return Failed(f"{type(error.__cause__).__name__}: {error.__cause__}")

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
    parts = []
    for function in functions:
        code = getattr(function, "__code__", None)
        try:
            parts.append(inspect.getsource(function) if function is not None else "")
        except (OSError, TypeError):
            parts.append(repr((code.co_code, code.co_consts)) if code is not None else repr(function))
    return f"scripted {digest(repr(parts).encode())}"


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
        yield [(number, _respond(request)) for number, request in enumerate(requests)]

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


def _respond(request: Request) -> Response:
    if isinstance(request, Generate):
        return Text("lol")
    text = f"{request.text}\0{request.continuation}" if isinstance(request, Loglikelihood) else request.text
    return Likelihood(-int.from_bytes(hashlib.sha256(text.encode()).digest()[:6]) / 2**48, False)
