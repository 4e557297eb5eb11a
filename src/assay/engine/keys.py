"""Keys of requests: what identifies a request, so that its response is found again."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import orjson

from assay.models.protocol import PerParams, Samples
from assay.records import Generate, Loglikelihood, Params, Prompt, Request, prompt_text

MESSAGES = '[{"role"'
"""Start of a conversation's JSON, which its key hashes: a text with this start gets a distinct key."""


class Keys:
    """Keys for the requests of one model: a hash of its identity, the request kind, the exact text and every parameter.

    A sampled request adds its sample, repeat and node, since sending it again may give another answer.
    """

    def __init__(self, identity: str, samples: Samples = "if asked") -> None:
        self._samples = samples
        self._likelihood = hash_of(b"loglikelihood", identity.encode())
        self._rolling = hash_of(b"rolling", identity.encode())
        self._generate = hash_of(b"generate", identity.encode())
        self._context: tuple[Prompt | None, blake2b] = (None, self._likelihood)
        self._params = PerParams(self._written)

    def keyed(
        self, requests: Sequence[Request], sample: bytes, drawn: dict[bytes, int]
    ) -> tuple[list[bytes], list[Request]]:
        """Return the keys of a sample's requests, and the requests as they are sent: a sampled one has the id of its draw, which
        is counted in `drawn`. The key is empty where none can be made: the request has half a character."""
        keys: list[bytes] = []
        sent: list[Request] = []
        for request in requests:
            as_sent: Request = request
            try:
                if type(request) is Generate and self._params.of(request.params)[1]:
                    key, as_sent = self._drawn(request, sample, drawn)
                else:
                    key = self.key(request)
            except UnicodeEncodeError:
                key = b""
            keys.append(key)
            sent.append(as_sent)
        return keys, sent

    def _drawn(self, request: Generate, sample: bytes, drawn: dict[bytes, int]) -> tuple[bytes, Request]:
        key = self.sampled_key(request, sample)
        nth = count_draw(drawn, key)
        draw = b"\0".join((sample, "\0".join(request.node).encode(), b"%d" % nth))
        return nth_key(key, nth), request._replace(draw=draw)

    def key(self, request: Request) -> bytes:
        """Return the key of a deterministic request."""
        if isinstance(request, Loglikelihood):
            context, started = self._context
            if context is not request.context:
                started = self._likelihood.copy()
                _add_prompt(started, request.context)
                self._context = (request.context, started)
            state, text = started.copy(), request.continuation.encode()
            state.update(len(text).to_bytes(8) + text)  # `_add`, without a call for every choice
        elif isinstance(request, Generate):
            state = self._generated(request)
        else:
            state = self._rolling.copy()
            _add(state, request.text.encode())
        return state.digest()

    def sampled_key(self, request: Generate, sample: bytes) -> bytes:
        """Return the key of a request that is sampled for this sample."""
        state = self._generated(request)
        _add(state, sample, request.repeat.to_bytes(4))
        if request.node:
            _add(state, b"node", "\0".join(request.node).encode())
        return state.digest()

    def _generated(self, request: Generate) -> blake2b:
        state = self._generate.copy()
        _add(state, self._params.of(request.params)[0])
        _add_prompt(state, request.prompt)
        return state

    def _written(self, params: Params) -> tuple[bytes, bool]:
        """Return the parameters as bytes, and whether they sample."""
        text = orjson.dumps(dict(params), option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=repr)
        sampled = Generate("", params).is_sampled or self._samples == "always"
        return text, sampled or (self._samples == "unless greedy" and not _is_greedy(params))


def nth_key(key: bytes, nth: int) -> bytes:
    """Return the key of the n-th equal request of a sample, counted from 0: the first has the key itself."""
    return hash_of(b"nth", key, nth.to_bytes(4)).digest() if nth else key


def count_draw(drawn: dict[bytes, int], key: bytes) -> int:
    """Count an equal request of a sample; returns the number of those before it."""
    nth = drawn.get(key, 0)
    drawn[key] = nth + 1
    return nth


def _is_greedy(params: Mapping[str, object]) -> bool:
    """Whether the parameters ask a server for greedy decoding: without any, it is sent the temperature 0."""
    if params.get("do_sample") is False:
        return True
    if "temperature" not in params:
        return not params.get("do_sample")
    temperature = params["temperature"]
    return isinstance(temperature, int | float) and temperature == 0


def hash_of(*parts: bytes) -> blake2b:
    state = blake2b(digest_size=16)
    _add(state, *parts)
    return state


def _add(state: blake2b, *parts: bytes) -> None:
    for part in parts:
        state.update(len(part).to_bytes(8) + part)


def _add_prompt(state: blake2b, prompt: Prompt) -> None:
    """Hash a prompt: a text is its bytes, a conversation those of its JSON."""
    if not isinstance(prompt, str):
        _add(state, prompt_text(prompt).encode())
        return
    _add(state, prompt.encode())
    if prompt.startswith(MESSAGES):
        _add(state, b"text")
