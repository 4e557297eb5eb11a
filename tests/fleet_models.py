"""Models for tests of fleets, in a plug-in file: replicas import it by its path."""

import os
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from assay.errors import Place, Problem
from assay.models.protocol import Answered, Can, ModelLost
from assay.plugins import model
from assay.records import Generate, Likelihood, Message, Request, Response, Text


class Slow:
    """Answers one request at a time: `seconds` each, five times as long in the replica that first makes the file `slow`."""

    can = Can()
    max_length = None
    window = 4096
    name = "fleet-slow"
    identity = "fleet-slow"

    def __init__(self, seconds: float = 0.02, slow: str = "", threads: int = 1) -> None:  # a replica takes so many CPUs
        self.seconds = seconds
        if slow:
            try:
                Path(slow).open("x").close()
                self.seconds *= 5
            except FileExistsError:
                pass

    async def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        for number, request in enumerate(requests):
            if self.seconds:
                time.sleep(self.seconds)
            yield [(number, self.respond(request))]

    def respond(self, request: Request) -> Response:
        return Text(f"{len(request.text)}") if isinstance(request, Generate) else Likelihood(-float(len(request.text)))

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        return "\n".join(str(message.content) for message in messages)

    def count_tokens(self, text: str) -> int | None:
        return len(text.split())


class Poison(Slow):
    """Its process ends when it is asked about a text with the word; `is_lost`: as that of a GPU that failed."""

    name = identity = "fleet-poison"

    def __init__(self, word: str, is_lost: bool = False) -> None:
        super().__init__(0.0)
        self.word, self.is_lost = word, is_lost

    def respond(self, request: Request) -> Response:
        if self.word in request.text + getattr(request, "continuation", ""):
            if self.is_lost:
                raise ModelLost([Problem(Place("model"), "CUDA error: device-side assert triggered")])
            os._exit(1)
        return super().respond(request)


class Drifting(Slow):
    """Each process has other weights."""

    name = "fleet-drifting"

    def __init__(self) -> None:
        super().__init__(0.0)
        self.identity = f"drifting {os.getpid()}"


class Instant(Slow):
    """Answers a whole window at once."""

    name = identity = "fleet-instant"

    def __init__(self) -> None:
        super().__init__(0.0)

    async def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        for start in range(0, len(requests), 256):
            yield [(start + n, self.respond(each)) for n, each in enumerate(requests[start : start + 256])]


for each in (Slow, Poison, Drifting, Instant):
    model(each.name)(each)
