"""Usage of a run: requests, tokens, cost and latency, by task and by model role."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

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
    seconds: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, usage: Usage, cost: float | None) -> None:
        self.requests += 1
        self.read += usage.read
        self.written += usage.written
        self.stored += usage.stored
        self.retries += usage.tries - 1
        self.seconds.append(usage.seconds)
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost

    def add_name(self, name: str) -> None:
        """Count a response of another model; a server may give every response another name."""
        known = name if name in self.other_models or len(self.other_models) < MAX_NAMES else "others"
        self.other_models[known] = self.other_models.get(known, 0) + 1

    def to_json(self) -> dict[str, JSON]:
        """Return the totals as stored in results.json."""
        if self.is_local and self.read:
            return self._local_to_json()
        ordered = sorted(self.seconds)
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

    def _local_to_json(self) -> dict[str, JSON]:
        """Include the tokens that were computed and not reused from another request's prefix."""
        computed = self.read - self.stored + self.written
        return {
            "requests": self.requests,
            "failed": self.failed,
            "retries": self.retries,
            "tokens": {"in": self.read, "out": self.written, "in_from_cache": self.stored, "computed": computed},
            "device_seconds": round(sum(self.seconds), 3),
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

    def add(self, task: str, role: str, response: Response, cost: float | None) -> None:
        for totals in (
            self.tasks.setdefault(task, UsageTotals()),
            self.roles.setdefault(role, UsageTotals()),
            self.total,
        ):
            totals.is_local = role in self.local if not totals.requests else totals.is_local and role in self.local
            if isinstance(response, Failed):
                totals.failed += 1
            elif response.usage is not None:
                totals.add(response.usage, cost)
                if isinstance(response, Text | Likelihood) and response.model:
                    totals.add_name(response.model)

    def to_json(self) -> dict[str, JSON]:
        """Return the usage as stored in results.json; empty if nothing was counted."""
        if not self.total.requests and not self.total.failed:
            return {}
        roles: dict[str, JSON] = {name: totals.to_json() for name, totals in self.roles.items()}
        tasks: dict[str, JSON] = {name: totals.to_json() for name, totals in self.tasks.items()}
        return {**self.total.to_json(), **({"roles": roles} if len(roles) > 1 else {}), "tasks": tasks}
