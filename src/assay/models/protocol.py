"""The model protocol: what the engine knows of a model, and the errors a model raises."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Literal, Protocol, Self, TypeGuard, TypeVar, runtime_checkable

from assay.errors import AssayError
from assay.records import Message, Params, Prompt, Request, Response

Answered = Sequence[tuple[int, Response]]
"""Some of the responses to a batch, each with the number of its request, in any order."""


Samples = Literal["if asked", "unless greedy", "always"]
"""When responses are sampled: if the parameters ask for it; unless they ask for greedy decoding; always, for a model
without a temperature."""


@dataclass(frozen=True, slots=True)
class Can:
    """Capabilities of a model. A task that needs more is refused before the run."""

    generate: bool = True
    loglikelihood: bool = True
    rolling: bool = True
    chat: bool = False
    schema: bool = False
    """Whether it takes `response_format` with a JSON Schema."""
    tools: bool = False
    """Whether it takes `tools` and returns tool calls."""
    named_templates: bool = False
    """Whether it can have more than one chat template: `use_template` selects one by name."""
    samples: Samples = "if asked"
    """When its texts are sampled."""
    answer_in_thread: bool = False
    """Whether it may answer in a thread, so that its responses are scored and stored while it computes the next ones."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why this model cannot do what others of its backend can, by the name of the capability."""

    def why_not(self, need: str) -> str:
        """The reason why it lacks a capability, for the end of a sentence; empty where it is not known."""
        return f": {self.reasons[need]}" if need in self.reasons else ""


class Described(Protocol):
    """Properties of every model. `identity` changes when its answers may: it is part of every request key."""

    @property
    def name(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def can(self) -> Can: ...
    @property
    def max_length(self) -> int | None: ...

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> Prompt:
        """Render a conversation with the chat template; return it unchanged if the server has the template."""
        ...

    def count_tokens(self, text: str) -> int | None:
        """Return the number of tokens of a text; None if that is unknown."""
        ...


class Model(Described, Protocol):
    """A model that is asked in batches. `window` is the number of requests it should hold at once, to group them by
    prefix."""

    @property
    def window(self) -> int: ...

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        """Yield the responses to a batch as they come. A request that cannot be answered gets a Failed."""
        ...


@runtime_checkable
class Planning(Protocol):
    """A model that gets, several times a second, the seconds that the rest of the run takes at its present speed."""

    def expect(self, seconds: float) -> None: ...


@runtime_checkable
class Remote(Described, Protocol):
    """A model behind a server, which answers many requests concurrently. Used as an async context.

    `ask` raises a RetryableError for temporary failures; the engine retries, up to `attempts` times. `ask_repeats` answers
    requests that differ only in their repeat, if `answers_repeats`. `greet` identifies the model before a run, `probe`
    during one. `estimate` is the maximum cost of a request, `cost` the cost of a response.
    """

    @property
    def concurrency(self) -> int: ...
    @property
    def first_concurrency(self) -> int:
        """Requests at once with which a run begins."""
        ...

    @property
    def attempts(self) -> int: ...
    @property
    def answers_repeats(self) -> bool: ...
    @property
    def is_usage_bound(self) -> bool:
        """Whether the server may count fewer tokens than it generated."""
        ...

    async def ask(self, request: Request) -> Response: ...
    async def ask_repeats(self, requests: Sequence[Request]) -> Sequence[Response]: ...
    def estimate(self, request: Request) -> float: ...
    def cost(self, response: Response) -> float | None: ...
    async def probe(self) -> bool: ...
    async def greet(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class ModelLost(AssayError):
    """A local model can answer nothing more in this process. It ends the run, which the same command resumes."""


class ReplicaLostError(Exception):
    """A replica ended with requests in flight. With its whole `machine` no request can be the cause."""

    def __init__(self, reason: str, *, machine: bool = False) -> None:
        super().__init__(reason)
        self.machine = machine


class Replica(Protocol):
    """A copy of a model. It answers its batches one after the other, in the order of the calls."""

    @property
    def name(self) -> str: ...

    def answer(self, requests: Sequence[Request], *, reports_begin: bool = False) -> AsyncGenerator[Answered]:
        """Yield the responses to a batch as they come; raise a ReplicaLostError when the replica ends. Closing it early
        cancels the batch. With `reports_begin`, nothing is yielded once the model's turn has come, and the model only begins
        after that has arrived."""
        ...


class Replicated(Described, Protocol):
    """A model of which there are copies, in other processes. Used as an async context.

    `window` is the most requests that a copy should get in one batch, `expected` the number of copies there should be.
    """

    @property
    def expected(self) -> int: ...

    @property
    def window(self) -> int: ...

    def joined(self) -> AsyncIterator[Replica]:
        """Yield every replica that is ready, and each that joins later; raise an AssayError when all are lost for good."""
        ...

    @property
    def shares(self) -> bool:
        """Whether other runs wait for the places of replicas without work."""
        ...

    def release(self, replica: object) -> None:
        """End a replica that has no work left."""
        ...

    def close(self) -> None:
        """End the replicas; they are opened again when they are needed."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


AnyModel = Model | Remote | Replicated


class TokenizerAlone(Protocol):
    """The tokenizer and chat template of a model, opened without its weights.

    A backend whose class has `tokenizer_alone(**arguments)` gives one; the models of that class have these methods, too.
    """

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> Prompt: ...

    def count_tokens(self, text: str) -> int | None: ...

    def tokenizer_digest(self) -> str:
        """The same where the others return the same."""
        ...


def is_replicated(model: AnyModel) -> TypeGuard[Replicated]:
    """Whether a model has replicas; found without opening it."""
    return hasattr(type(model), "joined")


class RetryableError(Exception):
    """A request failed this time and may succeed the next; `retry_after` is the delay that the server asked for.

    `rate_limited`: the server wants fewer requests at once. `unreachable`: the connection failed. `unsent`: nothing was
    sent, so the request cannot be the cause. `malformed`: the answer is not of the protocol, which seldom passes.
    """

    def __init__(
        self,
        reason: str,
        *,
        retry_after: float | None = None,
        rate_limited: bool = False,
        unreachable: bool = False,
        unsent: bool = False,
        malformed: bool = False,
    ) -> None:
        super().__init__(reason)
        self.retry_after, self.rate_limited = retry_after, rate_limited
        self.unreachable, self.unsent, self.malformed = unreachable, unsent, malformed
        self.fix = ""
        """What to do about it, where that is known."""


class PermanentError(Exception):
    """The server refuses this request however often it is sent."""


MAX_PARAMS = 1000
"""Number of parameter mappings that are remembered."""
T = TypeVar("T")


class PerParams(Generic[T]):
    """Values computed from parameters, once for each mapping object: the requests of a task share a few."""

    __slots__ = ("_compute", "_known")

    def __init__(self, compute: Callable[[Params], T]) -> None:
        self._compute = compute
        self._known: dict[int, tuple[Params, T]] = {}

    def of(self, params: Params) -> T:
        known = self._known.get(id(params))
        if known is None or known[0] is not params:
            if len(self._known) >= MAX_PARAMS:
                self._known.clear()
            known = self._known[id(params)] = (params, self._compute(params))
        return known[1]
