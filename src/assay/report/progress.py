"""Progress of a run: one live line on a terminal, one line a minute in a log; in a notebook, which keeps all that is written, one
line that is rewritten, and more rarely with time."""

import shutil
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from assay.evaluation.time_left import TimeLeft, time_left_of
from assay.number_text import format_duration, format_money, time_left_text
from assay.safe_text import printable
from assay.tasks.run import TRUNCATED

if TYPE_CHECKING:
    from assay.evaluation.dispatch import RunProgress
    from assay.tasks.run import TaskRun

LOG_SECONDS = 60.0
NOTEBOOK_WIDTH = 100
"""Columns of the line: the width of a notebook is unknown."""
BAR, MIN_BAR = 24, 6
"""Width of the bar, and the width below which it is left out."""
MAX_NAME = 28


class Progress:
    """Called by the run as it advances; shows progress. A context manager, so that the terminal is restored."""

    def __init__(self, *, from_python: bool = False) -> None:
        self._started = self._last = time.monotonic()
        self._display: Any = None
        self._unreachable = False
        self._in_notebook = from_python and "ipykernel" in sys.modules and not sys.stderr.isatty()

    def __enter__(self) -> "Progress":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._display = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
            self._display.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._display is not None:
            self._display.stop()
        if self._in_notebook and self._last > self._started:
            sys.stderr.write("\n")

    def __call__(self, run: "RunProgress") -> None:
        left = time_left_of(run)  # called also where nothing is shown: it measures what is recent
        if self._display is not None:
            from rich.text import Text  # a name may have brackets, which are not markup

            line = terminal_line(run, left, shutil.get_terminal_size().columns - 1)
            self._display.update(Text(line, no_wrap=True))
        elif self._in_notebook:
            now = time.monotonic()
            if now - self._last >= max(1.0, (self._last - self._started) / 100):
                self._last = now
                sys.stderr.write(f"\r{terminal_line(run, left, NOTEBOOK_WIDTH):{NOTEBOOK_WIDTH}}")
                sys.stderr.flush()
        elif time.monotonic() - self._last > LOG_SECONDS or self._is_news(run):
            self._last = time.monotonic()
            sys.stderr.write(f"{printable(log_line(run, left))}\n")

    def _is_news(self, run: "RunProgress") -> bool:
        """Return whether the model has just become unreachable or reachable: a log reports that at once."""
        unreachable = run.engine.unreachable_since is not None
        changed, self._unreachable = unreachable != self._unreachable, unreachable
        return changed


def log_line(run: "RunProgress", left: TimeLeft) -> str:
    """All there is to say about the progress of a run."""
    total = sum(each.runnable.facts.size for each in run.tasks)
    documents = f"{sum(each.board.documents for each in run.tasks)} of {total} documents"
    parts = [_task_in_work(run), _waiting(run), documents, _requests(left), f"{left.rate:,.0f} requests/s"]
    return ", ".join(filter(None, (*parts, *_counts(run), time_left_text(left.seconds, left.unknown))))


def terminal_line(run: "RunProgress", left: TimeLeft, width: int) -> str:
    """The same in at most `width` columns: what matters least is left out."""
    name, time_part = _task_in_work(run)[:MAX_NAME], time_left_text(left.seconds, left.unknown)
    parts = [_requests(left), _waiting(run), *_counts(run), f"{left.rate:,.0f}/s", time_part]
    short = time_part.partition(" (")[0]
    for kept in (parts, [*parts[:-2], time_part], [*parts[:-2], short], [parts[0], short], [short]):
        note = ", ".join(filter(None, kept))
        free = width - len(name) - len(note) - 2
        if free >= MIN_BAR:
            share = left.done / max(left.done + left.left, 1)
            length = min(BAR, free - 1)
            return f"{name} {'━' * round(share * length)}{'╌' * (length - round(share * length))} {note}"
        if free >= 0:
            return f"{name} {note}"
    return note[:width]


def _requests(left: TimeLeft) -> str:
    return f"{left.done:,} of {left.done + left.left:,}{'+' if left.unknown else ''} requests"


def _task_in_work(run: "RunProgress") -> str:
    """The first task that has begun and not ended."""
    counts = run.engine.task_counts
    names = (each.runnable.task.name for each in run.tasks if each.board.documents < each.runnable.facts.size)
    return next((name for name in names if name in counts), "")


def _waiting(run: "RunProgress") -> str:
    since = run.engine.unreachable_since
    return (
        f"the model is unreachable: waiting for {format_duration(round(time.monotonic() - since))}"
        if since is not None
        else ""
    )


def _counts(run: "RunProgress") -> list[str]:
    """Replicas that are ready, failed documents, answers that were cut off, and the cost so far."""
    tasks: Sequence[TaskRun] = run.tasks
    failed = sum(sum(each.board.failed.values()) for each in tasks)
    cut = sum(each.board.noticed[TRUNCATED] for each in tasks)
    cost = run.engine.usage.total.cost
    counted = [f"{count} {what}" for count, what in ((failed, "failed"), (cut, "cut off")) if count]
    ready = [
        f"{number} {'replica' if number == 1 else 'replicas'}{'' if role == 'model' else f' of {role}'}"
        for role, number in run.engine.replicas.items()
    ]
    return [*ready, *counted, *([f"cost {format_money(cost)}"] if cost is not None else [])]
