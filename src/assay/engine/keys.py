"""Request keys: one identity for cache, resume and deduplication."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

import orjson

from assay.models.protocol import Samples
from assay.records import Generate, Loglikelihood, Prompt, Request, prompt_text

PARAMS = 1000
"""Number of parameter mappings whose bytes are remembered."""
MESSAGES = '[{"role"'
"""Start of a conversation's JSON, which its key hashes: a text with this start gets a distinct key."""


class SampledKey(NamedTuple):
    """The key of a sampled request, and the one of version 0.1.0 if it differs."""

    key: bytes
    earlier: bytes | None


class Keys:
    """Keys for the requests of one model: a hash of its identity, the request kind, the exact text and every parameter.

    A sampled request adds its sample, repeat and node, since sending it again may give another answer.
    """

    def __init__(self, identity: str, samples: Samples = "if asked") -> None:
        self._samples = samples
        self._likelihood = _hash(b"loglikelihood", identity.encode())
        self._rolling = _hash(b"rolling", identity.encode())
        self._generate = _hash(b"generate", identity.encode())
        self._context: tuple[Prompt | None, blake2b] = (None, self._likelihood)
        self._params: dict[int, tuple[object, bytes, bool]] = {}

    def key(self, request: Request) -> bytes:
        """Return the key of a deterministic request."""
        if isinstance(request, Loglikelihood):
            context, started = self._context
            if context is not request.context:
                started = self._likelihood.copy()
                _add_prompt(started, request.context)
                self._context = (request.context, started)
            state = started.copy()
            _add(state, request.continuation.encode())
        elif isinstance(request, Generate):
            state = self._generated(request)
        else:
            state = self._rolling.copy()
            _add(state, request.text.encode())
        return state.digest()

    def drawn(self, request: Generate, sample: bytes) -> SampledKey:
        """Return the key of a request that is sampled for this sample."""
        state = self._generated(request)
        earlier = None if request.is_sampled else state.digest()  # 0.1.0 had no other way to sample, and no nodes
        _add(state, sample)
        _add(state, request.repeat.to_bytes(4))
        if request.node:
            earlier = earlier or state.digest()
            _add(state, b"node")
            _add(state, "\0".join(request.node).encode())
        return SampledKey(state.digest(), earlier)

    def is_sampled(self, request: Generate) -> bool:
        """Whether the model may answer differently when the request is sent again."""
        known = self._params.get(id(request.params))
        return known[2] if known is not None and known[0] is request.params else self._parameters(request)[1]

    def _generated(self, request: Generate) -> blake2b:
        state = self._generate.copy()
        _add(state, self._parameters(request)[0])
        _add_prompt(state, request.prompt)
        return state

    def _parameters(self, request: Generate) -> tuple[bytes, bool]:
        """Return the parameters as bytes, and whether they sample; each mapping object is serialized once."""
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
    """Return the key of the n-th equal request of a sample, counted from 0: the first has the key itself."""
    return _hash(b"nth", key, nth.to_bytes(4)).digest() if nth else key


def _is_greedy(params: Mapping[str, object]) -> bool:
    """Whether the parameters ask for greedy decoding."""
    temperature = params.get("temperature")
    return params.get("do_sample") is False or (isinstance(temperature, int | float) and temperature == 0)


def _hash(*parts: bytes) -> blake2b:
    state = blake2b(digest_size=16)
    for part in parts:
        _add(state, part)
    return state


def _add(state: blake2b, part: bytes) -> None:
    state.update(len(part).to_bytes(8))
    state.update(part)


def _add_prompt(state: blake2b, prompt: Prompt) -> None:
    """Hash the bytes that version 0.1 hashed, so that its responses are found: a conversation is its JSON."""
    if not isinstance(prompt, str):
        _add(state, prompt_text(prompt).encode())
        return
    _add(state, prompt.encode())
    if prompt.startswith(MESSAGES):
        _add(state, b"text")
