"""How much a run may take: money, time, failures. At the end of one, nothing more is sent and the run ends cleanly."""

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Budget:
    """Limits, and what is used of them. `ended` says which was reached; money counts before it is spent."""

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
        """Whether to stop; the reason is kept."""
        if not self.ended and self.seconds is not None and time.monotonic() - self._started >= self.seconds:
            self.ended = f"max_time: {self.seconds:g} s are over"
        return bool(self.ended)

    def reserve(self, estimate: float) -> bool:
        """Set money aside for a request. One that does not fit may fit when others have cost less than was set aside;
        where there are no others, that is the end."""
        if self.cost is None or self._spent + self._reserved + estimate <= self.cost:
            self._reserved += estimate
            self._open += 1
            return True
        if not self._open and not self.ended:
            self.ended = (
                f"max_cost: {self._spent:.4f} of {self.cost:g} are spent, and the next request may cost {estimate:.4f}"
            )
        return False

    def settle(self, estimate: float, cost: float) -> None:
        """What was set aside became a price."""
        self._reserved -= estimate
        self._open -= 1
        self._spent += cost

    def pay(self, cost: float) -> None:
        """Something was spent in an earlier part of the run."""
        self._spent += cost

    def fail(self) -> None:
        self._failed += 1
        if self.failures is not None and self._failed >= self.failures and not self.ended:
            self.ended = f"max_failures: {self._failed} requests have failed"
