"""The scores of one task as they come in: a list per metric and filter, and what failed."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.aggregate.estimate import estimate
from assay.aggregate.functions import AGGREGATIONS, Aggregation
from assay.records import Estimate, ScoreKey


@dataclass(slots=True)
class Board:
    """Values by metric and filter, one per document that was scored, in the order of the documents."""

    values: dict[ScoreKey, list[Any]] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)
    noticed: Counter[str] = field(default_factory=Counter)
    documents: int = 0

    def add(self, filter: str, values: Mapping[str, Any]) -> None:
        for metric, value in values.items():
            row = ScoreKey(metric, filter)
            if row in self.values:
                self.values[row].append(value)
            else:
                self.values[row] = [value]

    def fail(self, reason: str) -> None:
        self.failed[reason] += 1

    @property
    def scored(self) -> int:
        """How many documents have a value: the most that any metric has."""
        return max((len(values) for values in self.values.values()), default=0)

    def estimates(
        self,
        aggregation: Callable[[str], Aggregation | Callable[..., Any] | None],
        *,
        bootstrap_iters: int,
        like_lm_eval: bool,
    ) -> dict[ScoreKey, Estimate]:
        """The number of each row. A metric nobody declared an aggregation for is averaged."""
        return {
            row: estimate(
                _known(aggregation(row.metric)),
                values,
                bootstrap_iters=bootstrap_iters,
                like_lm_eval=like_lm_eval,
                metric=row.metric,
            )
            for row, values in self.values.items()
        }


def _known(aggregation: Aggregation | Callable[..., Any] | None) -> Aggregation | Callable[..., Any]:
    """The aggregation; one of our own functions that somebody hands back is recognised."""
    if aggregation is None:
        return AGGREGATIONS["mean"]
    return next((each for each in AGGREGATIONS.values() if each.function is aggregation), aggregation)


def undeclared(board: Board, declared: Iterable[str]) -> list[str]:
    """The metrics that came without an aggregation of their own."""
    return sorted({row.metric for row in board.values} - set(declared))
