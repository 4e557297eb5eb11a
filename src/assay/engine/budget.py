"""The budget of a run: cost, time, failures. When one is spent, nothing more is sent and the run ends cleanly."""

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Budget:
    """Limits and how much of each is used. `ended` names the limit that was reached; cost is reserved before it is spent."""

    cost: float | None = None
    seconds: float | None = None
    failures: int | None = None
    ended: str = ""
    _spent: float = 0.0
    _reserved: float = 0.0
    _open: int = 0
    _failed: int = 0
    _started: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        """Whether a limit is reached; stores which."""
        if not self.ended and self.seconds is not None and time.monotonic() - self._started >= self.seconds:
            self.ended = f"max_time: {self.seconds:g} s elapsed"
        return bool(self.ended)

    def reserve(self, estimate: float) -> bool:
        """Reserve the cost of a request; return whether it fits. One that does not may fit when others cost less than
        reserved; with no others in flight the budget is spent."""
        if self.cost is None or self._spent + self._reserved + estimate <= self.cost:
            self._reserved += estimate
            self._open += 1
            return True
        if not self._open and not self.ended:
            self.ended = (
                f"max_cost: {self._spent:.4f} of {self.cost:g} spent, and the next request may cost {estimate:.4f}"
            )
        return False

    def settle(self, estimate: float, cost: float) -> None:
        """Replace a reserved estimate by the actual cost."""
        self._reserved -= estimate
        self._open -= 1
        self._spent += cost

    def pay(self, cost: float) -> None:
        """Count cost from an earlier part of the run."""
        self._spent += cost

    def fail(self) -> None:
        self._failed += 1
        if self.failures is not None and self._failed >= self.failures and not self.ended:
            self.ended = f"max_failures: {self._failed} requests failed"
