"""Progress of a run: a live display on a terminal, one line a minute in a log."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from assay.cli.output import echo_err
from assay.tasks.run import TRUNCATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import TaskID

    from assay.evaluation.dispatch import RunProgress
    from assay.tasks.run import TaskRun

LOG_SECONDS = 60.0


class Progress:
    """Called by the run as it advances; shows progress. A context manager, so that the terminal is restored."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._last = self._started
        self._display: Any = None
        self._unreachable = False
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> "Progress":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Display

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
            )
            self._display = Display(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True))
            self._display.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._display is not None:
            self._display.stop()

    def __call__(self, run: "RunProgress") -> None:
        if self._display is not None:
            self._show(run)
        elif time.monotonic() - self._last > LOG_SECONDS or self._is_news(run):
            self._last = time.monotonic()
            echo_err(self._line(run))

    def _is_news(self, run: "RunProgress") -> bool:
        """Return whether the model has just become unreachable or reachable: a log reports that at once."""
        unreachable = run.engine.unreachable_since is not None
        changed, self._unreachable = unreachable != self._unreachable, unreachable
        return changed

    def _show(self, run: "RunProgress") -> None:
        whole = self._bar("all tasks", sum(each.runnable.size for each in run.tasks))
        self._display.update(whole, completed=_done(run), note=self._note(run))
        for each in run.tasks:
            if 0 < each.board.documents < each.runnable.size:
                name = each.runnable.task.name
                self._display.update(
                    self._bar(name, each.runnable.size), completed=each.board.documents, note=_failure_counts([each])
                )
            elif each.runnable.task.name in self._bars:
                self._display.remove_task(self._bars.pop(each.runnable.task.name))

    def _bar(self, name: str, total: int) -> "TaskID":
        if name not in self._bars:
            self._bars[name] = self._display.add_task(name, total=total, note="")
        return self._bars[name]

    def _note(self, run: "RunProgress") -> str:
        rate = run.engine.counts.sent / max(time.monotonic() - self._started, 1e-9)
        since = run.engine.unreachable_since
        waiting = f"the model is unreachable: waiting for {time.monotonic() - since:.0f} s" if since is not None else ""
        return ", ".join(filter(None, (waiting, f"{rate:,.0f} requests/s", _failure_counts(run.tasks))))

    def _line(self, run: "RunProgress") -> str:
        total = sum(each.runnable.size for each in run.tasks)
        done, elapsed = _done(run), time.monotonic() - self._started
        left = elapsed / done * (total - done) if done else 0.0
        return f"{done} of {total} documents, {self._note(run)}, about {left / 60:.0f} min left"


def _failure_counts(tasks: "Sequence[TaskRun]") -> str:
    failed = sum(sum(each.board.failed.values()) for each in tasks)
    cut = sum(each.board.noticed[TRUNCATED] for each in tasks)
    return ", ".join(f"{count} {what}" for count, what in ((failed, "failed"), (cut, "cut off")) if count)


def _done(run: "RunProgress") -> int:
    return sum(each.board.documents for each in run.tasks)
