"""One identity for cache, resume and doing nothing twice: the key of a request."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

import orjson

from assay.models.protocol import Samples
from assay.records import Generate, Loglikelihood, Prompt, Request, prompt_text

PARAMS = 1000
"""So many sets of parameters are remembered with their bytes."""
MESSAGES = '[{"role"'
"""How the JSON of a conversation begins, which its key is made of: a text that begins so has a key of its own."""


class Drawn(NamedTuple):
    """The key of a sampled request, and the one that version 0.1.0 stored its answer under, where that is another."""

    key: bytes
    earlier: bytes | None


class Keys:
    """Keys for the requests of one model: a hash of its identity, the kind, the exact text and every parameter.

    A sampled request belongs to its sample, repeat and node: asking again may give another answer, so it is told apart.
    """

    def __init__(self, identity: str, samples: Samples = "if asked") -> None:
        self._samples = samples
        self._likelihood = _hash(b"loglikelihood", identity.encode())
        self._rolling = _hash(b"rolling", identity.encode())
        self._generate = _hash(b"generate", identity.encode())
        self._context: tuple[Prompt | None, blake2b] = (None, self._likelihood)
        self._params: dict[int, tuple[object, bytes, bool]] = {}

    def key(self, request: Request) -> bytes:
        """The key of a request whose answer is the same for whoever asks."""
        if isinstance(request, Loglikelihood):
            context, started = self._context
            if context is not request.context:
                started = self._likelihood.copy()
                _add_prompt(started, request.context)
                self._context = (request.context, started)
            made = started.copy()
            _add(made, request.continuation.encode())
        elif isinstance(request, Generate):
            made = self._generated(request)
        else:
            made = self._rolling.copy()
            _add(made, request.text.encode())
        return made.digest()

    def drawn(self, request: Generate, sample: bytes) -> Drawn:
        """The key of a request that is sampled for this sample."""
        made = self._generated(request)
        earlier = None if request.is_sampled else made.digest()  # 0.1.0 knew no other way to be sampled, and no nodes
        _add(made, sample)
        _add(made, request.repeat.to_bytes(4))
        if request.node:
            earlier = earlier or made.digest()
            _add(made, b"node")
            _add(made, "\0".join(request.node).encode())
        return Drawn(made.digest(), earlier)

    def is_sampled(self, request: Generate) -> bool:
        """Whether the model may answer otherwise when it is asked again."""
        known = self._params.get(id(request.params))
        return known[2] if known is not None and known[0] is request.params else self._parameters(request)[1]

    def _generated(self, request: Generate) -> blake2b:
        made = self._generate.copy()
        _add(made, self._parameters(request)[0])
        _add_prompt(made, request.prompt)
        return made

    def _parameters(self, request: Generate) -> tuple[bytes, bool]:
        """The parameters as bytes, and whether they lead to a draw; the same object is looked at once."""
        known = self._params.get(id(request.params))
        if known is None or known[0] is not request.params:
            text = orjson.dumps(
                dict(request.params), option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=repr
            )
            if len(self._params) >= PARAMS:
                self._params.clear()
            sampled = request.is_sampled or self._samples == "always"
            sampled = sampled or (self._samples == "unless greedy" and not _is_greedy(request.params))
            known = self._params[id(request.params)] = (request.params, text, sampled)
        return known[1], known[2]


def nth_key(key: bytes, nth: int) -> bytes:
    """The key of the n-th equal request of a sample, counted from 0: the first has the key itself."""
    return _hash(b"nth", key, nth.to_bytes(4)).digest() if nth else key


def _is_greedy(params: Mapping[str, object]) -> bool:
    """Whether the parameters ask for the most likely tokens."""
    temperature = params.get("temperature")
    return params.get("do_sample") is False or (isinstance(temperature, int | float) and temperature == 0)


def _hash(*parts: bytes) -> blake2b:
    made = blake2b(digest_size=16)
    for part in parts:
        _add(made, part)
    return made


def _add(made: blake2b, part: bytes) -> None:
    made.update(len(part).to_bytes(8))
    made.update(part)


def _add_prompt(made: blake2b, prompt: Prompt) -> None:
    """The bytes of version 0.1, so that its answers are found: a conversation is its JSON."""
    if not isinstance(prompt, str):
        _add(made, prompt_text(prompt).encode())
        return
    _add(made, prompt.encode())
    if prompt.startswith(MESSAGES):
        _add(made, b"text")
