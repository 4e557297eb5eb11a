"""Counts of a task's requests, for its progress; and the rule that stops a task whose first requests or documents fail alike."""

import logging
import re
from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass, field

from assay.models.servers.remedies import OF_A_TEXT
from assay.records import Failed

FIRST_REQUESTS = 20
"""Number of first requests of a task which, all failed for one permanent reason, stop it; and of first documents, whose code or
scores failed."""
DOCUMENTS = "(documents)"
"""Stands for a role where documents are counted: no role can have this name."""
VARYING = re.compile(r"\d[\d,.]*|'[^']*'|\"[^\"]*\"")
"""Parts of a reason that differ from request to request."""


class TemporaryFailure(Failed):
    """A failure that may pass: retries were spent on it."""

    __slots__ = ()


Asks = tuple[tuple[str, int], ...]
"""The numbers of a plan's requests by role, step by step."""


def _zeros() -> defaultdict[str, int]:
    return defaultdict(int)


@dataclass(slots=True)
class TaskCounts:
    """Plans of a task, and its requests by role: asked for, known from before, answered now, and those of ended plans."""

    started: int = 0
    ended: int = 0
    asked: defaultdict[str, int] = field(default_factory=_zeros)
    known: defaultdict[str, int] = field(default_factory=_zeros)
    received: defaultdict[str, int] = field(default_factory=_zeros)
    of_ended: defaultdict[str, int] = field(default_factory=_zeros)
    steps: dict[Asks, Asks] = field(default_factory=dict)
    """The numbers of requests that steps of plans have: plans share one object."""


@dataclass(slots=True)
class EarlyStop:
    """Stops a task when its first requests to a role all fail for one permanent reason, or its first documents: broken code
    is not paid for a thousand times. `stopped` has the reason by task, for the documents that are not asked; `is_new` until the
    engine has seen it."""

    is_off: bool = False
    stopped: dict[str, str] = field(default_factory=dict)
    is_new: bool = False
    _first: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    """By task and role the reason of its failures and their number; 0 where the rule is out of the question."""

    def fail(self, of: tuple[str, str], failed: Failed, answered: Container[tuple[str, str]]) -> None:
        """Count a failed request of a task and role; `answered` has those that gave an answer."""
        if self.is_off or of[0] in self.stopped or of in answered:
            return
        if self._is_last_straw(of, failed.reason, may_stop=is_permanent(failed)):
            to = "" if of[1] == "model" else f" to the role {of[1]!r}"
            self._stop(of[0], f"requests{to}", failed.reason)

    def end_document(self, task: str, reason: str) -> None:
        """Count a document of a task that failed for a reason, though all its requests were answered; or that did not."""
        of = (task, DOCUMENTS)
        if self.is_off or task in self.stopped:
            return
        if not reason:
            self._first[of] = ("", 0)
        elif self._is_last_straw(of, reason, may_stop=True):
            self._stop(task, "documents", reason)

    def _is_last_straw(self, of: tuple[str, str], failed: str, *, may_stop: bool) -> bool:
        reason = VARYING.sub("#", failed)
        before, number = self._first.get(of, (reason, 0))
        is_alike = may_stop and before == reason and (number > 0 or of not in self._first)
        self._first[of] = (reason, number + 1 if is_alike else 0)
        return is_alike and number + 1 == FIRST_REQUESTS

    def _stop(self, task: str, things: str, reason: str) -> None:
        self.stopped[task] = f"not asked, since the first {FIRST_REQUESTS} {things} failed: {reason}"
        self.is_new = True
        logging.getLogger("assay").warning(
            "task %r stops: its first %d %s failed for one reason: %s; the other tasks continue, and the same command asks again",
            task, FIRST_REQUESTS, things, reason,
        )  # fmt: skip


def is_permanent(failed: Failed) -> bool:
    """Whether a failure is the server's refusal of such requests: nothing that may pass, and nothing about one text.

    >>> is_permanent(Failed("HTTP 400: unknown field")), is_permanent(Failed("HTTP 400: blocked by our content policy"))
    (True, False)
    """
    reason = failed.reason
    is_refusal = reason.startswith(("HTTP 4", "HTTP 3", "the server ", "no model "))
    return is_refusal and not isinstance(failed, TemporaryFailure) and OF_A_TEXT.search(reason) is None
