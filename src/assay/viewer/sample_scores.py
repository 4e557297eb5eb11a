"""What a sample itself scored: a number, also where a metric keeps for it what only all samples together make a number of."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from assay.config.row_names import row_key

LARGEST = 1e300
"""What is beyond it, or no number at all, is not shown as one."""


class UnitResult(NamedTuple):
    """What a unit metric says of the outcome of a graph: what it should have been, and what it is."""

    metric: str
    is_correct: bool
    golden: Any
    predicted: Any


def own_number(metric: str, value: Any) -> float | None:
    """The number of a sample; None where there is none to be had of it alone.

    >>> own_number("acc", 1.0), own_number("brier_score", [0, [0.75, 0.25]]), own_number("byte_perplexity", [0.0, 9])
    (1.0, 0.125, 1.0)
    """
    if isinstance(value, bool | int | float):
        return float(value) if abs(value) < LARGEST else None
    if not isinstance(value, list) or len(value) != 2:
        return None
    first, second = value
    if metric == "brier_score" and isinstance(first, int) and isinstance(second, list):
        shares = [float(share) for share in second] if _are_numbers(second) else []
        return math.fsum((share - (place == first)) ** 2 for place, share in enumerate(shares)) if shares else None
    if metric not in ("word_perplexity", "byte_perplexity", "bits_per_byte") or not _are_numbers(value) or second <= 0:
        return None
    nats = -float(first) / float(second)
    if metric == "bits_per_byte":
        return nats / math.log(2)
    return math.exp(nats) if nats < math.log(LARGEST) else None


def own_numbers(scores: Mapping[str, Any], names: Sequence[str]) -> list[float | None]:
    """The numbers of a sample under these names: metric and filter."""
    return [own_number(row_key(name).metric, scores.get(name)) for name in names]


def _are_numbers(several: Sequence[Any]) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) and abs(each) < LARGEST for each in several)


def unit_results(answers: Any) -> list[UnitResult]:
    """What unit metrics wrote into the outcomes of a graph."""
    outcomes = [each for left in answers.values() for each in left] if isinstance(answers, Mapping) else []
    return [
        UnitResult(
            name.removesuffix("_result"), told["correct"] is True, _plain(told["golden"]), _plain(told["predicted"])
        )
        for outcome in outcomes
        if isinstance(outcome, Mapping)
        for name, told in outcome.items()
        if isinstance(told, Mapping) and {"correct", "golden", "predicted"} <= set(told)
    ]


def _plain(value: Any) -> Any:
    """What a mapping of one key holds: the key says nothing."""
    return next(iter(value.values())) if isinstance(value, Mapping) and len(value) == 1 else value
