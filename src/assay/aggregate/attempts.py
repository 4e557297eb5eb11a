"""Aggregator metrics of several attempts at each problem: pass@k, pass^k, and how few attempts were needed.

`group_by` names the columns by which attempts at the same problem are known. pass@k and pass^k are means over problems of
what drawing k of a problem's attempts gives, so that more attempts make them sharper and not different.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.aggregate.collected import AggregatorMetric, NoResults, Tally, UnitResult
from assay.statistics.pass_at_k import pass_all_k, pass_at_k

STEP = ("mission_id", "step_id")
"""The columns that tell the steps of web agents apart."""
STEP_NUMBERS = (
    "step_efficiency", "total_steps", "first_attempt_correct", "retry_correct", "never_correct", "avg_retries_when_correct",
)  # fmt: skip


def problem_of(metadata: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    """Which problem an attempt is at."""
    for column in columns:
        if metadata.get(column) is None:
            raise ValueError(f"a unit result has no {column!r} in its metadata, by which attempts are grouped")
    return tuple(repr(metadata[column]) for column in columns)


def as_columns(written: str | list[Any] | None) -> tuple[str, ...]:
    return (written,) if isinstance(written, str) else tuple(map(str, written or ()))


@dataclass(kw_only=True)
class _Attempts(AggregatorMetric):
    """What pass@k and pass^k share."""

    k: int
    group_by: str | list[Any] | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, and is {self.k}")

    @property
    def columns(self) -> Sequence[str]:
        return as_columns(self.group_by)

    def lacks(self, columns: Collection[str]) -> tuple[str, str] | None:
        if self.k == 1 or self.group_by or set(STEP) <= set(columns):
            return None
        return (
            "must know which records are attempts at the same problem",
            "add `group_by:` with a column of the records",
        )


class _Tries:
    """Attempts and correct ones, by problem."""

    def __init__(self, columns: Sequence[str], k: int) -> None:
        self._columns, self._k = columns, k
        self._counts: dict[tuple[str, ...], list[int]] = {}

    def add(self, result: UnitResult) -> None:
        key = problem_of(result.metadata, self._columns or self._by_default(result.metadata))
        count = self._counts.setdefault(key or (str(len(self._counts)),), [0, 0])
        count[0] += 1
        count[1] += bool(result.correct)

    def _by_default(self, metadata: Mapping[str, Any]) -> Sequence[str]:
        if all(metadata.get(column) is not None for column in STEP):
            return STEP
        if self._k > 1:
            raise ValueError("which records are attempts at the same problem is not known: add `group_by:`")
        return ()

    def value(self) -> dict[str, Any]:
        raise NotImplementedError

    def means(self, name: str, chance: Any) -> dict[str, Any]:
        """By number of attempts the mean over problems; null where a problem has fewer, which is told."""
        if not self._counts:
            raise NoResults
        found: dict[str, Any] = {}
        for k in range(1, self._k + 1):
            few = sum(n < k for n, _ in self._counts.values())
            if few == len(self._counts):
                raise ValueError(f"{name}{k} needs {k} attempts at a problem, and none has as many")
            chances = [chance(n, correct, k) for n, correct in self._counts.values() if n >= k]
            found[f"{name}{k}"] = None if few else sum(chances) / len(chances)
            if few:
                found["note"] = f"{few} of {len(self._counts)} problems have fewer than {k} attempts"
        return found

    def rate(self) -> float:
        return sum(correct for _, correct in self._counts.values()) / sum(n for n, _ in self._counts.values())


class _AtLeastOne(_Tries):
    def value(self) -> dict[str, Any]:
        return self.means("pass@", pass_at_k)


class _All(_Tries):
    def value(self) -> dict[str, Any]:
        found = self.means("pass^", pass_all_k)
        return {"success_rate": self.rate(), **found}


@dataclass(kw_only=True)
class PassAtKMetric(_Attempts):
    """The probability that at least one of 1, 2, … k attempts at a problem is correct, without bias."""

    def numbers(self) -> Sequence[str]:
        return [f"pass@{k}" for k in range(1, self.k + 1)]

    def tally(self) -> Tally:
        return _AtLeastOne(self.columns, self.k)


@dataclass(kw_only=True)
class PassPowerKMetric(_Attempts):
    """The probability that all of 1, 2, … k attempts at a problem are correct, without bias; and the share of correct ones."""

    def numbers(self) -> Sequence[str]:
        return ["success_rate", *(f"pass^{k}" for k in range(1, self.k + 1))]

    def tally(self) -> Tally:
        return _All(self.columns, self.k)


@dataclass(kw_only=True)
class StepEfficiencyMetric(AggregatorMetric):
    """The mean over steps of 1, less `penalty_per_retry` for every retry before the first correct attempt; 0 without one.

    An attempt's number is `retry_number` in its metadata, or the digits at the end of `retry_id`, or its place in the step.
    """

    penalty_per_retry: float = 0.2
    group_by: str | list[Any] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.penalty_per_retry <= 1:
            raise ValueError(f"penalty_per_retry must lie between 0 and 1, and is {self.penalty_per_retry}")

    @property
    def columns(self) -> Sequence[str]:
        return as_columns(self.group_by) or STEP

    def numbers(self) -> Sequence[str]:
        return STEP_NUMBERS

    def tally(self) -> Tally:
        return StepTally(self.penalty_per_retry, self.columns)


class StepTally:
    """By step, the attempts so far and the number of the first correct one."""

    def __init__(self, penalty: float, columns: Sequence[str]) -> None:
        self._penalty, self._columns = penalty, columns
        self._attempts: dict[tuple[str, ...], int] = {}
        self._first: dict[tuple[str, ...], int] = {}

    def add(self, result: UnitResult) -> None:
        step = self.step(result.metadata)
        before = self._attempts.get(step, 0)
        self._attempts[step] = before + 1
        number = self.number(result.metadata, before)
        if result.correct:
            self._first[step] = min(number, self._first.get(step, number))

    def step(self, metadata: Mapping[str, Any]) -> tuple[str, ...]:
        return problem_of(metadata, self._columns)

    def number(self, metadata: Mapping[str, Any], before: int) -> int:
        found = retry_number(metadata)
        return before if found is None else found

    def value(self) -> dict[str, Any]:
        if not self._attempts:
            raise NoResults
        return self.told()

    def told(self) -> dict[str, Any]:
        retries, steps = list(self._first.values()), len(self._attempts)
        scores = [max(0.0, 1 - retry * self._penalty) for retry in retries]
        return {
            "step_efficiency": sum(scores) / steps if steps else 0.0,
            "total_steps": steps,
            "first_attempt_correct": sum(retry == 0 for retry in retries),
            "retry_correct": sum(retry > 0 for retry in retries),
            "never_correct": steps - len(retries),
            "avg_retries_when_correct": sum(retries) / len(retries) if retries else 0.0,
        }


def retry_number(metadata: Mapping[str, Any]) -> int | None:
    """The number of an attempt, where its metadata has one."""
    if metadata.get("retry_number") is not None:
        return int(metadata["retry_number"])
    found = re.search(r"_(\d+)$", str(metadata.get("retry_id") or ""))
    return int(found.group(1)) if found else None
