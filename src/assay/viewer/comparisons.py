"""Comparisons that were made: they take a while, and pages are turned back to."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from assay.comparison.compare import compare
from assay.comparison.comparison import Comparison, Flip
from assay.errors import AssayError
from assay.runs.folder import SCORED as SCORED
from assay.runs.folder import refuse_links_outside
from assay.viewer.library import stamp_of

OF_EACH, OF_ONE = 5, 30
"""Flipped samples that are read, in each direction: of every task, and of one that is asked for."""
KEPT = 8
Key = tuple[tuple[Path, ...], tuple[object, ...], bool, str]


class Comparisons:
    """Comparisons by runs and options. One is made at a time: two at once would take twice the memory."""

    def __init__(self) -> None:
        self._known: dict[Key, Comparison] = {}
        self._lock = threading.Lock()

    def of(self, paths: tuple[Path, ...], *, different_prompts: bool) -> Comparison:
        """The comparison of these runs as they are now."""
        return self._made(paths, different_prompts, "")

    def of_task(self, paths: tuple[Path, ...], task: str, *, different_prompts: bool) -> Sequence[Flip]:
        """The flipped samples of one task; none where the runs cannot be compared in it."""
        try:
            return self._made(paths, different_prompts, task).flips
        except AssayError:
            return ()

    def _made(self, paths: tuple[Path, ...], different_prompts: bool, task: str) -> Comparison:
        key = (paths, tuple(map(stamp_of, paths)), different_prompts, task)
        with self._lock:
            known = self._known.pop(key, None)
            if known is None:
                _refuse_links(paths)
                known = compare(
                    paths,
                    tasks=[task] if task else (),
                    flips=OF_ONE if task else OF_EACH,
                    allow_different_prompts=different_prompts,
                )
                known = replace(known, flips=[flip for flip in known.flips if task in ("", flip.task)])
            while len(self._known) >= KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[key] = known
            return known


def _refuse_links(paths: Sequence[Path]) -> None:
    """See to it that runs are read from their folders only; a scoring is told more by the run that it lies in."""
    for path in paths:
        refuse_links_outside(path)
        if path.parent.name == SCORED:
            refuse_links_outside(path.parent.parent)
