"""A model that knows nothing: for trying a set-up without one. Unlike lm-eval's it says the same thing every time."""

import hashlib
from collections.abc import AsyncIterator, Sequence

from assay.models.conversations import in_text
from assay.models.protocol import Answered, Can
from assay.records import Generate, Likelihood, Loglikelihood, Message, Request, Response, Text, messages_to_plain


class Dummy:
    """Log-likelihoods that look random and are not; generations that are always "lol", as lm-eval's dummy's are."""

    name = "dummy"
    identity = "dummy 1"
    can = Can(chat=True)
    window = 4096
    max_length: int | None = None

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        return in_text(requests, self.chat_template, self._answer)

    async def _answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        yield [(number, _respond(request)) for number, request in enumerate(requests)]

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        text = "".join(f"<|{message['role']}|>\n{message['content']}\n" for message in messages_to_plain(messages))
        return text + "<|assistant|>\n" if add_generation_prompt else text.rstrip("\n")

    def count_tokens(self, text: str) -> int | None:
        return len(text.split())


class Nobody(Dummy):
    """Stands for the model under test in a run that has none: its graphs ask their own models, or nobody."""

    can = Can(generate=False, loglikelihood=False, rolling=False)

    def __init__(self, name: str) -> None:
        self.name = name
        self.identity = f"nobody {name}"


def _respond(request: Request) -> Response:
    if isinstance(request, Generate):
        return Text("lol")
    text = f"{request.text}\0{request.continuation}" if isinstance(request, Loglikelihood) else request.text
    return Likelihood(-int.from_bytes(hashlib.sha256(text.encode()).digest()[:6]) / 2**48, False)
