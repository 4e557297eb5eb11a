"""What the engine knows of a model."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from assay.records import Message, Prompt, Request, Response

Answered = Sequence[tuple[int, Response]]
"""Some of the responses to a batch, each with the number of its request; in whatever order they come."""


Samples = Literal["if asked", "unless greedy", "always"]
"""Where the parameters ask for it; unless they ask for greedy decoding; whatever they say, as of a model that takes no
temperature."""


@dataclass(frozen=True, slots=True)
class Can:
    """What a model can do. It is asked for nothing else, and a task that needs more is refused before the run."""

    generate: bool = True
    loglikelihood: bool = True
    rolling: bool = True
    chat: bool = False
    schema: bool = False
    """Whether it takes `response_format` with a JSON Schema."""
    tools: bool = False
    """Whether it takes `tools`, and says which it wants called."""
    named_templates: bool = False
    """Whether it may have several chat templates: `use_template` takes one by its name."""
    samples: Samples = "if asked"
    """When its texts are drawn."""


class Described(Protocol):
    """What is known of every model. `identity` changes when its answers may: it is part of the key of a response."""

    @property
    def name(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def can(self) -> Can: ...
    @property
    def max_length(self) -> int | None: ...

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> Prompt:
        """A conversation as the text the model was trained on; as it is, where a server has the template."""
        ...

    def count_tokens(self, text: str) -> int | None:
        """How many tokens a text has, where the model can tell."""
        ...


class Model(Described, Protocol):
    """A model that is asked in batches. `window` is how many requests it likes to hold at once, so that it can put
    together what belongs together."""

    @property
    def window(self) -> int: ...

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        """The responses to a batch, as they come. A request that cannot be answered gets a Failed."""
        ...


@runtime_checkable
class Remote(Described, Protocol):
    """A model somewhere else, asked one request at a time and many at once. Used as an async context while it is asked.

    `ask` raises a Trouble for what may pass; patience with it is the engine's. `ask_repeats` is for several requests that
    differ only in their repeat, and used where `answers_repeats`. `greet` finds out before a run whether it is there and
    who it is, `probe` during one. A request is asked
    `attempts` times at most. `estimate` is the most a request may cost, `cost` what a response did.
    """

    @property
    def concurrency(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def answers_repeats(self) -> bool: ...

    async def ask(self, request: Request) -> Response: ...
    async def ask_repeats(self, requests: Sequence[Request]) -> Sequence[Response]: ...
    def estimate(self, request: Request) -> float: ...
    def cost(self, response: Response) -> float | None: ...
    async def probe(self) -> bool: ...
    async def greet(self) -> None: ...
    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, *_: Any) -> Any: ...


AnyModel = Model | Remote
