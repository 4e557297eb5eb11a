"""What the engine knows of a model."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from assay.records import Request, Response

Message = dict[str, str]
Answered = Sequence[tuple[int, Response]]
"""Some of the responses to a batch, each with the number of its request; in whatever order they come."""


@dataclass(frozen=True, slots=True)
class Can:
    """What a model can do. It is asked for nothing else, and a task that needs more is refused before the run."""

    generate: bool = True
    loglikelihood: bool = True
    rolling: bool = True
    chat: bool = False


class Model(Protocol):
    """A model. `window` is how many requests it likes to hold at once, so that it can put together what belongs together.

    `identity` changes when its answers may: it is part of the key under which a response is kept.
    """

    @property
    def name(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def can(self) -> Can: ...
    @property
    def window(self) -> int: ...
    @property
    def max_length(self) -> int | None: ...

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        """The responses to a batch, as they come. A request that cannot be answered gets a Failed."""
        ...

    def chat_template(self, messages: list[Message], add_generation_prompt: bool) -> str:
        """A conversation as the text the model was trained on."""
        ...

    def count_tokens(self, text: str) -> int | None:
        """How many tokens a text has, where the model can tell."""
        ...
