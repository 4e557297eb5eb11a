"""For scorers that take long: processes that score, and a cache of scores that were computed before.

Processes are made by forking, when the tasks are prepared and before there is a model, a connection or a thread: each
has the scorers as they are, helper code included, and only answers and scores travel. Where a system cannot fork, or has
one processor, scores are computed in this process.
"""

import ctypes
import inspect
import json
import os
import signal
import warnings
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

from assay.records import Answer, Failed, MetricValue, Params, UserValue
from assay.scoring.results import Reference
from assay.user_code import TIME_LIMIT, timed

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

ScoreInput = Any
"""The input of one score: reference and answers, with the document before them where all are scored at once."""
TOGETHER = 8
"""Answers that go to a process at once."""
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG: no process outlives a run that is killed."""


class ParallelScorer(Protocol):
    """The part of a scorer that a process needs."""

    @property
    def name(self) -> str: ...

    def score(self, reference: Reference, predictions: list[Answer]) -> MetricValue: ...


_SCORERS: list[ParallelScorer] = []
"""The scorers that a process was forked with."""


class Workers:
    """Processes for some scorers."""

    def __init__(self, scorers: Sequence[ParallelScorer], count: int | None = None) -> None:
        self._count = count if count is not None else len(os.sched_getaffinity(0)) if can_fork() else 1
        self._scorers = list(scorers)
        self._pool = self._started() if scorers and self._count > 1 and can_fork() else None

    def _started(self) -> "ProcessPoolExecutor":
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        pool = ProcessPoolExecutor(self._count, get_context("fork"), _begin, (os.getpid(),))
        _SCORERS[:] = self._scorers
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", DeprecationWarning
                )  # of threads: libraries may have some that do nothing yet
                pool.submit(int).result()
        finally:
            _SCORERS.clear()
        return pool

    def score(self, scorer: ParallelScorer, asked: Sequence[ScoreInput]) -> list[MetricValue]:
        """The scores of answers, in their order; or of each the failure that it is."""
        if self._pool is None:
            return [_guarded(scorer, *each) for each in asked]
        number = next(number for number, each in enumerate(self._scorers) if each is scorer)
        return list(self._pool.map(_score, [number] * len(asked), asked, chunksize=TOGETHER))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def can_fork() -> bool:
    """Whether this is a system where forking does no harm: Linux."""
    return hasattr(os, "fork") and hasattr(os, "sched_getaffinity")


def _begin(parent: int) -> None:
    """Prepare a process: Ctrl-C is left to the run, and the process ends with the run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _score(number: int, asked: ScoreInput) -> MetricValue:
    return _guarded(_SCORERS[number], *asked)


def _guarded(scorer: ParallelScorer, reference: Reference, predictions: list[Answer]) -> MetricValue:
    return timed(TIME_LIMIT, f"scoring: scorer {scorer.name!r}", scorer.score, reference, predictions)


class ScoreStore(Protocol):
    """Where scores are kept by key."""

    def get(self, key: bytes) -> bytes | None: ...
    def add(self, key: bytes, value: bytes) -> None: ...


class ScorerMemo:
    """The scores of one scorer. `identity` is its source, its version and its parameters: with another, all are computed anew."""

    def __init__(self, identity: str, store: ScoreStore) -> None:
        self._identity, self._store = identity, store

    def filled(
        self, asked: Sequence[ScoreInput], compute: Callable[[list[int]], Sequence[MetricValue]]
    ) -> list[MetricValue]:
        """The scores of everything asked; `compute` is given the numbers of those that are not known yet."""
        keys = [self._key(each) for each in asked]
        stored = [self._store.get(key) if key is not None else None for key in keys]
        missing = [number for number, known in enumerate(stored) if known is None]
        computed = dict(zip(missing, compute(missing), strict=True)) if missing else {}
        for number, value in computed.items():
            key, written = keys[number], _written(value)
            if key is not None and written is not None:
                self._store.add(key, written)
        return [computed[number] if known is None else json.loads(known) for number, known in enumerate(stored)]

    def _key(self, asked: ScoreInput) -> bytes | None:
        text = _written(asked)
        return blake2b(text, key=blake2b(self._identity.encode()).digest(), digest_size=16).digest() if text else None


def _written(value: MetricValue | ScoreInput) -> bytes | None:
    """A value as JSON, if it can be read back as what it was."""
    if isinstance(value, Failed):
        return None
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        return None
    return text.encode() if json.loads(text) == value else None


def identity_of(kind: type, until: type, version: str | int, kwargs: Params) -> str | None:
    """Everything the scores of a class depend on beside answers: its source and that of its bases, up to `until`.

    None where that is unknown.
    """
    try:
        sources = [inspect.getsource(each) for each in kind.__mro__[: kind.__mro__.index(until)]]
        return json.dumps([sources, version, dict(kwargs)], default=_source)
    except (OSError, TypeError):
        return None


def _source(value: UserValue) -> str:
    if not callable(value):
        raise TypeError("only functions have a source")
    return inspect.getsource(value)
