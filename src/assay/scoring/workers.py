"""Processes that score, for scorers that keep a processor busy.

They are made by forking, when the tasks are prepared and before there is a model, a connection or a thread of ours: each
has the scorers as they are, helper code included, and only answers and scores travel. Where a system cannot fork, or has
one processor, scores are computed in this process.
"""

import ctypes
import os
import signal
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

from assay.scoring.clock import TIME_LIMIT, timed

TOGETHER = 8
"""Answers that go to a process at once."""
DIE_WITH_PARENT = 1
"""What the system is told, so that nothing is left behind when a run is killed: PR_SET_PDEATHSIG."""


class ParallelScorer(Protocol):
    """What a process needs of a scorer."""

    @property
    def name(self) -> str: ...

    def score(self, reference: Any, predictions: list[Any]) -> Any: ...


_SCORERS: list[ParallelScorer] = []
"""What a process has been made with."""


class Workers:
    """Processes for some scorers."""

    def __init__(self, scorers: Sequence[ParallelScorer], count: int | None = None) -> None:
        self._count = count if count is not None else len(os.sched_getaffinity(0)) if can_fork() else 1
        self._scorers = list(scorers)
        self._pool = self._started() if scorers and self._count > 1 and can_fork() else None

    def _started(self) -> Any:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        made = ProcessPoolExecutor(self._count, get_context("fork"), _begin, (os.getpid(),))
        _SCORERS[:] = self._scorers
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", DeprecationWarning
                )  # of threads: libraries may have some that do nothing yet
                made.submit(int).result()
        finally:
            _SCORERS.clear()
        return made

    def score(self, scorer: ParallelScorer, asked: Sequence[Sequence[Any]]) -> list[Any]:
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
    """A process at its beginning: Ctrl-C is for the run, which ends it, and so does the end of the run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _score(number: int, asked: Sequence[Any]) -> Any:
    return _guarded(_SCORERS[number], *asked)


def _guarded(scorer: ParallelScorer, reference: Any, predictions: list[Any]) -> Any:
    return timed(TIME_LIMIT, f"scoring: scorer {scorer.name!r}", scorer.score, reference, predictions)
