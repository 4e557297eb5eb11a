"""Results as the code of users sees them: by task a float for each `metric,filter`, and `samples`, the number of documents.

Groups compute with `Estimate`; only here it becomes a float and back:

    def aggregate(self, group, task_results):                        # as the seeds' aggregators are written
        scores = [results["acc,none"] for results in task_results.values()]
        return {"acc,none": sum(scores) / len(scores)}
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from assay.records import UserValue, number
from assay.score_keys import ScoreKey, split_rows, stderr_name
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.influence import Influence

TaskResults = Mapping[str, Mapping[str, float]]
"""As aggregators, which may be a user's, are given them: by task (and by group, once it has numbers) the value of each
`metric,filter`; `samples` is how many documents it has."""
SAMPLES, LENGTH = "samples", "sample_len"
CODE_FAILED = Evidence(code_failed=True)


class EstimatedFloat(float):
    """A number that user code computes with as with any float; `estimate` has its standard error."""

    __slots__ = ("estimate",)
    estimate: Estimate

    def __new__(cls, estimate: Estimate) -> "EstimatedFloat":
        value = super().__new__(cls, float(estimate))
        value.estimate = estimate
        return value


def as_float(value: Any) -> Any:
    """The value that user code returned, which should be a number; an estimate as a float."""
    return EstimatedFloat(value) if isinstance(value, Estimate) else value


def as_floats(rows: Mapping[ScoreKey, Estimate]) -> dict[str, float]:
    """Rows as aggregators are given and return them."""
    return {str(key): EstimatedFloat(estimate) for key, estimate in rows.items()}


def as_estimate(value: UserValue, n: int = 0) -> Estimate:
    """The number of a group that user code returned; a failed one where that is no number."""
    if isinstance(value, EstimatedFloat):
        return value.estimate
    if isinstance(value, Estimate):
        return _checked(value)
    plain_number = number(value)
    if plain_number is None:
        return failed_estimate(f"a user function returned a value of type {type(value).__name__!r}, not a number")
    if plain_number != plain_number:
        return failed_estimate("a user function returned NaN")
    return Estimate(plain_number, None, n, "returned by a user function")


def _checked(estimate: Estimate) -> Estimate:
    """An estimate that user code may have made by hand."""
    if estimate.value is None and not estimate.reason:
        return failed_estimate("a user function returned no number, and no reason for it")
    if type(estimate.n) is not int or estimate.n < 0:
        return failed_estimate(f"a user function returned n = {estimate.n!r}, which is no count of documents")
    error = number(estimate.stderr)
    if estimate.stderr is not None and (error is None or not 0 <= error < math.inf):
        reason = f"a user function returned {estimate.stderr!r} as its standard error"
        return replace(estimate, stderr=None, reason=reason)
    return estimate


def failed_estimate(reason: str) -> Estimate:
    """The number of a row whose code failed, and why."""
    return Estimate(None, None, 0, reason, evidence=CODE_FAILED)


class MemberRows(NamedTuple):
    """The rows of a member, and how many documents it has."""

    rows: Mapping[ScoreKey, Estimate]
    documents: int

    @classmethod
    def of(cls, name: str, results: Mapping[str, Any]) -> "MemberRows":
        """From what an aggregator is given of a member: its rows with `samples`, or the entry of a run's `results`."""
        documents = int(results.get(SAMPLES, results.get(LENGTH, 1)))
        counts = results.get("sample_count") or {}
        rows = {}
        for key, value in split_rows(results):
            if isinstance(value, EstimatedFloat):
                rows[key] = value.estimate
            elif isinstance(value, Estimate):
                rows[key] = value
            else:
                n, stderr = counts.get(str(key), documents), results.get(stderr_name(key))
                rows[key] = _reported(value, stderr, n, f"{name} {key}")
        return cls(rows, documents)


def _reported(value: UserValue, stderr: UserValue, n: int, source: str) -> Estimate:
    """A number with the standard error that is reported beside it."""
    plain_number, error = number(value), number(stderr)
    if plain_number is None:
        return Estimate(None, None, n, f"{value!r:.40} is not a number")
    if error is None:
        return Estimate(plain_number, None, n, "a plain number has no standard error")
    return Estimate(plain_number, error, n, evidence=Evidence({Influence(source, (), None, error**2): 1.0}))


class SizedResults(dict[str, Mapping[str, float]]):
    """Results whose entries have `samples`: all groups share them."""


def with_sizes(results: TaskResults) -> SizedResults:
    """Results with `samples` where a run's `results` call it `sample_len`."""
    if isinstance(results, SizedResults):
        return results
    return SizedResults(
        (name, {**own, SAMPLES: own[LENGTH]} if LENGTH in own and SAMPLES not in own else own)
        for name, own in results.items()
    )
