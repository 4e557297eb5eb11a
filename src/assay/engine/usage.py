"""Usage of a run: requests, tokens, cost and latency, by task and by model role."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from assay.records import JSON, Failed, Likelihood, Response, Text, Usage

PERCENTILES = (50, 90, 99)
MAX_NAMES = 20
"""Number of names of other models that are counted one by one."""


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Percentile by linear interpolation. numpy's own would import its masked arrays.

    >>> percentile([1, 2, 3, 4], 50)
    2.5
    """
    place = percent / 100 * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@dataclass(slots=True)
class UsageTotals:
    """Totals over some requests. Seconds are device time for a local model, latency for a server."""

    is_local: bool = False
    requests: int = 0
    failed: int = 0
    read: int = 0
    written: int = 0
    stored: int = 0
    retries: int = 0
    cost: float | None = None
    other_models: dict[str, int] = field(default_factory=dict)
    """Number of responses by the name that the server gave the model, if it was not the one that was asked for."""

    def add(self, usage: Usage, cost: float | None) -> None:
        self.requests += 1
        self.read += usage.read
        self.written += usage.written
        self.stored += usage.stored
        self.retries += usage.tries - 1
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost

    def add_name(self, name: str) -> None:
        """Count a response of another model; a server may give every response another name."""
        known = name if name in self.other_models or len(self.other_models) < MAX_NAMES else "others"
        self.other_models[known] = self.other_models.get(known, 0) + 1

    def to_json(self, seconds: Iterable[float]) -> dict[str, JSON]:
        """Return the totals as stored in results.json; `seconds` are those of the requests."""
        if self.is_local and self.read:
            return self._local_to_json(seconds)
        ordered = sorted(seconds)
        latency: dict[str, JSON] = {f"p{p}": round(float(percentile(ordered, p)), 4) for p in PERCENTILES if ordered}
        return {
            "requests": self.requests,
            "failed": self.failed,
            "retries": self.retries,
            "tokens": {"in": self.read, "out": self.written, **({"in_from_cache": self.stored} if self.stored else {})},
            **({"cost": self.cost} if self.cost is not None else {}),
            **({"seconds": latency} if latency else {}),
            **({"other_models": dict(self.other_models)} if self.other_models else {}),
        }

    def _local_to_json(self, seconds: Iterable[float]) -> dict[str, JSON]:
        """Include the tokens that were computed and not reused from another request's prefix."""
        computed = self.read - self.stored + self.written
        return {
            "requests": self.requests,
            "failed": self.failed,
            "retries": self.retries,
            "tokens": {"in": self.read, "out": self.written, "in_from_cache": self.stored, "computed": computed},
            "device_seconds": round(sum(seconds), 3),
        }


@dataclass(slots=True)
class RunUsage:
    """Usage of a whole run, each response once: by the task that asked first and by the role that answered.

    `local` are the roles of models on this machine.
    """

    local: frozenset[str] = frozenset()
    tasks: dict[str, UsageTotals] = field(default_factory=dict)
    roles: dict[str, UsageTotals] = field(default_factory=dict)
    total: UsageTotals = field(default_factory=UsageTotals)
    seconds: "dict[tuple[str, str], array[float]]" = field(default_factory=dict)
    """By task and role the seconds of each request: the only thing here that grows with them."""
    unanswered: int = 0
    """Requests that were canceled in flight: what they took is not known."""
    bound: frozenset[str] = frozenset()
    """Roles whose servers may count fewer tokens than they generated."""

    def add(self, task: str | None, role: str, response: Response, cost: float | None) -> None:
        """Count a response; without a task one that no document needs any more."""
        usage = None if isinstance(response, Failed) else response.usage
        if usage is not None:
            seconds = self.seconds.get((task or "", role))
            if seconds is None:
                seconds = self.seconds[task or "", role] = array("d")
            seconds.append(usage.seconds)
        is_local = role in self.local
        for totals in self._totals(task, role):
            totals.is_local = is_local and (totals.is_local or not totals.requests)
            if usage is not None:
                totals.add(usage, cost)
                if isinstance(response, Text | Likelihood) and response.model:
                    totals.add_name(response.model)
            elif isinstance(response, Failed):
                totals.failed += 1

    def _totals(self, task: str | None, role: str) -> tuple[UsageTotals, ...]:
        """The totals that a response of a role to a task counts in."""
        if role not in self.roles:
            self.roles[role] = UsageTotals()
        if task is None:
            return self.roles[role], self.total
        if task not in self.tasks:
            self.tasks[task] = UsageTotals()
        return self.tasks[task], self.roles[role], self.total

    def to_json(self) -> dict[str, JSON]:
        """Return the usage as stored in results.json; empty if nothing was counted."""
        if not self.total.requests and not self.total.failed and not self.unanswered:
            return {}
        roles: dict[str, JSON] = {
            name: {**totals.to_json(self._of(1, name)), **({"at_least": True} if name in self.bound else {})}
            for name, totals in sorted(self.roles.items())
        }
        tasks: dict[str, JSON] = {
            name: totals.to_json(self._of(0, name)) for name, totals in sorted(self.tasks.items())
        }
        return {
            **self.total.to_json(chain.from_iterable(self.seconds.values())),
            **({"unanswered": self.unanswered} if self.unanswered else {}),
            **({"at_least": True} if self.unanswered or self.bound else {}),
            **({"roles": roles} if len(roles) > 1 else {}),
            "tasks": tasks,
        }

    def _of(self, part: int, name: str) -> Iterator[float]:
        """The seconds of one task (part 0) or role (part 1)."""
        return chain.from_iterable(seconds for key, seconds in self.seconds.items() if key[part] == name)
