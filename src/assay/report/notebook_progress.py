"""Progress of a run that was started from Python: one line that is rewritten in a notebook, else as `assay run` shows it."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from assay.evaluation.time_left import time_left_of
from assay.report.progress import Progress, terminal_line

if TYPE_CHECKING:
    from assay.evaluation.dispatch import RunProgress

WIDTH = 100
"""Columns of the line: the width of a notebook is unknown."""


class NotebookProgress:
    """Called by the run as it advances; a notebook keeps all that is written, so the line becomes rarer with time."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._next = self._started + 1.0

    def __enter__(self) -> "NotebookProgress":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._next > self._started + 1.0:
            sys.stderr.write("\n")

    def __call__(self, run: "RunProgress") -> None:
        left = time_left_of(run)  # called also where nothing is written: it measures what is recent
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + max(1.0, (now - self._started) / 100)
        line = terminal_line(run, left, WIDTH)
        sys.stderr.write(f"\r{line:{WIDTH}}")
        sys.stderr.flush()


def shown_progress() -> Progress | NotebookProgress:
    """The progress display that fits where Python runs."""
    return NotebookProgress() if "ipykernel" in sys.modules and not sys.stderr.isatty() else Progress()
