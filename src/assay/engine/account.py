"""What a run took: requests, tokens, money, seconds, by task and by model."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.records import Failed, Response, Usage

PERCENTILES = (50, 90, 99)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which so many of a hundred lie, between two in proportion. numpy's own would import its masked arrays.

    >>> percentile([1, 2, 3, 4], 50)
    2.5
    """
    place = percent / 100 * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@dataclass(slots=True)
class Spent:
    """What some requests took. Of a local model, seconds are those of its device; of another, those until the answer."""

    is_local: bool = False
    requests: int = 0
    failed: int = 0
    read: int = 0
    written: int = 0
    stored: int = 0
    retries: int = 0
    cost: float | None = None
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

    def told(self) -> dict[str, Any]:
        """As results have it."""
        if self.is_local and self.read:
            return self._told_locally()
        at = [percentile(sorted(self.seconds), each) for each in PERCENTILES] if self.seconds else ()
        return {
            "requests": self.requests,
            "failed": self.failed,
            "retries": self.retries,
            "tokens": {"in": self.read, "out": self.written, **({"in_from_cache": self.stored} if self.stored else {})},
            **({"cost": self.cost} if self.cost is not None else {}),
            **(
                {"seconds": {f"p{p}": round(float(v), 4) for p, v in zip(PERCENTILES, at, strict=True)}}
                if self.seconds
                else {}
            ),
        }

    def _told_locally(self) -> dict[str, Any]:
        """With how many of the tokens were computed, and not taken from what was computed for others."""
        computed = self.read - self.stored + self.written
        return {
            "requests": self.requests,
            "failed": self.failed,
            "retries": self.retries,
            "tokens": {"in": self.read, "out": self.written, "in_from_cache": self.stored, "computed": computed},
            "device_seconds": round(sum(self.seconds), 3),
        }


@dataclass(slots=True)
class Account:
    """Everything that was paid for in a run, each response once, by who asked first and by the role that answered.
    `local` are the roles of models on this machine."""

    local: frozenset[str] = frozenset()
    tasks: dict[str, Spent] = field(default_factory=dict)
    roles: dict[str, Spent] = field(default_factory=dict)
    whole: Spent = field(default_factory=Spent)

    def add(self, task: str, role: str, response: Response, cost: float | None) -> None:
        for spent in (self.tasks.setdefault(task, Spent()), self.roles.setdefault(role, Spent()), self.whole):
            spent.is_local = role in self.local if not spent.requests else spent.is_local and role in self.local
            if isinstance(response, Failed):
                spent.failed += 1
            elif response.usage is not None:
                spent.add(response.usage, cost)

    def told(self) -> Mapping[str, Any]:
        """As results have it: empty where nothing was counted."""
        if not self.whole.requests and not self.whole.failed:
            return {}
        several = {"roles": {name: spent.told() for name, spent in self.roles.items()}} if len(self.roles) > 1 else {}
        return {**self.whole.told(), **several, "tasks": {name: spent.told() for name, spent in self.tasks.items()}}
