"""One identity for cache, resume and doing nothing twice: the key of a request."""

from hashlib import blake2b

import orjson

from assay.records import Generate, Loglikelihood, Request

PARAMS = 1000
"""So many sets of parameters are remembered with their bytes."""


class Keys:
    """Keys for the requests of one model: a hash of its identity, the kind, the exact text and every parameter.

    A sampled request belongs to its sample and repeat: asking again may give another answer, so it is told apart.
    """

    def __init__(self, identity: str) -> None:
        self._likelihood = _hash(b"loglikelihood", identity.encode())
        self._rolling = _hash(b"rolling", identity.encode())
        self._generate = _hash(b"generate", identity.encode())
        self._context: tuple[str | None, blake2b] = (None, self._likelihood)
        self._params: dict[int, tuple[object, bytes, bool]] = {}

    def key(self, request: Request, sample: bytes) -> bytes:
        if isinstance(request, Loglikelihood):
            context, started = self._context
            if context is not request.context:
                started = self._likelihood.copy()
                _add(started, request.context.encode())
                self._context = (request.context, started)
            made = started.copy()
            _add(made, request.continuation.encode())
        elif isinstance(request, Generate):
            made = self._generate.copy()
            params, sampled = self._parameters(request)
            _add(made, params)
            _add(made, request.prompt.encode())
            if sampled:
                _add(made, sample)
                _add(made, request.repeat.to_bytes(4))
        else:
            made = self._rolling.copy()
            _add(made, request.text.encode())
        return made.digest()

    def _parameters(self, request: Generate) -> tuple[bytes, bool]:
        """The parameters as bytes; the same object is looked at once."""
        known = self._params.get(id(request.params))
        if known is None or known[0] is not request.params:
            text = orjson.dumps(
                dict(request.params), option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=repr
            )
            if len(self._params) >= PARAMS:
                self._params.clear()
            known = self._params[id(request.params)] = (request.params, text, request.is_sampled)
        return known[1], known[2]


def _hash(*parts: bytes) -> blake2b:
    made = blake2b(digest_size=16)
    for part in parts:
        _add(made, part)
    return made


def _add(made: blake2b, part: bytes) -> None:
    made.update(len(part).to_bytes(8))
    made.update(part)
