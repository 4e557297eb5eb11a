"""Numbers of tasks and groups: typed, and as the code of users sees them, which is by task a float for each `metric,filter`, and
`samples`, the number of documents.

Groups compute with `Estimate` by `ScoreKey`; only here these become floats by name, and back:

    def aggregate(self, group, task_results):                        # as the seeds' aggregators are written
        scores = [results["acc,none"] for results in task_results.values()]
        return {"acc,none": sum(scores) / len(scores)}
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from assay.config.group import GroupRules
from assay.records import Failed, UserValue, number
from assay.score_keys import STDERR, ScoreKey, filter_name_problem, metric_name_problem, split_rows, stderr_name
from assay.statistics.evidence import NO_EVIDENCE, USER_INTERVAL, Estimate, Evidence
from assay.statistics.influence import Influence
from assay.user_code import UserCodeError, call_user_code

LOG = logging.getLogger("assay.groups")
TaskResults = dict[str, dict[str, float]]
"""As aggregators, which may be a user's, are given them: by task (and by group, once it has numbers) the value of each
`metric,filter`; `samples` is how many documents it has."""
Rows = Mapping[ScoreKey, Estimate]
SAMPLES, LENGTH, NONE = "samples", "sample_len", "none"
CODE_FAILED = Evidence(code_failed=True)


class EstimatedFloat(float):
    """A number that user code computes with as with any float; `estimate` has its standard error."""

    __slots__ = ("estimate",)
    estimate: Estimate

    def __new__(cls, estimate: Estimate) -> "EstimatedFloat":
        value = super().__new__(cls, float(estimate))
        value.estimate = estimate
        return value


class MemberRows(NamedTuple):
    """The rows of a member, and how many documents it has."""

    rows: Rows
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
    if plain_number is None or plain_number != plain_number:
        return Estimate(None, None, n, f"{value!r:.40} is not a number")
    if error is None:
        return Estimate(plain_number, None, n, "a plain number has no standard error")
    return Estimate(plain_number, error, n, evidence=Evidence({Influence(source, (), None, error**2): 1.0}))


class Members:
    """The numbers of tasks and groups by name, from which those of a group are computed: each is read once for all groups."""

    def __init__(self, task_results: Mapping[str, Mapping[str, float]] | None = None) -> None:
        self._results: TaskResults = {
            name: {**own, SAMPLES: own[LENGTH]} if LENGTH in own and SAMPLES not in own else dict(own)
            for name, own in (task_results or {}).items()
        }
        self._members: dict[str, MemberRows] = {}
        self._owners: dict[int, tuple[str, Estimate]] | None = None

    def get(self, name: str) -> MemberRows | None:
        """A member's rows; None of one that has no numbers."""
        member = self._members.get(name)
        if member is None and name in self._results:
            member = self._members[name] = MemberRows.of(name, self._results[name])
        return member

    def of(self, names: Iterable[str]) -> dict[str, MemberRows]:
        """Those of these members that have numbers, by name."""
        return {name: member for name in names if (member := self.get(name)) is not None}

    def add(self, name: str, member: MemberRows) -> None:
        """Take in a task or group; another of that name is replaced."""
        self._members[name] = member
        self._results.pop(name, None)
        self._owners = None

    def results(self) -> TaskResults:
        """The numbers as the code of users is given them."""
        for name, member in self._members.items():
            if name not in self._results:
                self._results[name] = {**as_floats(member.rows), SAMPLES: member.documents}
        return dict(self._results)

    def owner(self, estimate: Estimate) -> tuple[str, Estimate] | None:
        """The member that an estimate, or the evidence behind it, is of; None where it is of none."""
        if self._owners is None:
            self._owners = {}
            for name, member in self.of({**self._results, **self._members}).items():
                for known in member.rows.values():
                    self._owners[id(known)] = self._owners[id(known.evidence)] = name, known
        if estimate.evidence in (NO_EVIDENCE, CODE_FAILED):
            return self._owners.get(id(estimate))
        return self._owners.get(id(estimate)) or self._owners.get(id(estimate.evidence))


def as_float(value: Any) -> Any:
    """The value that user code returned, which should be a number; an estimate as a float."""
    return EstimatedFloat(value) if isinstance(value, Estimate) else value


def as_floats(rows: Rows) -> dict[str, float]:
    """Rows as aggregators are given and return them."""
    return {str(key): EstimatedFloat(estimate) for key, estimate in rows.items()}


def known_floats(group: str, rows: Rows) -> dict[str, float]:
    """The rows that have a number, as users are given them; of the others a warning says why they are absent."""
    for key, row in rows.items():
        if row.value is None:
            LOG.warning("%s: %s: no number: %s", group, key, row.reason or "it is not a number")
    return as_floats({key: row for key, row in rows.items() if row.value is not None})


# --- what user code returns ---------------------------------------------------------------------------------------


def user_rows(returned: UserValue, members: Members, rules: GroupRules) -> dict[ScoreKey, Estimate]:
    """The rows that user code returned, with checked names and values: a row that is wrong has a reason instead of a number."""
    if not isinstance(returned, Mapping):
        kind = type(returned).__name__
        raise UserCodeError(
            f"user code must return a mapping of rows to numbers, and returned a value of type {kind!r}"
        )
    rows: dict[ScoreKey, Estimate] = {}
    for written, value in returned.items():
        key, wrong = ScoreKey.parse(str(written)), None
        if rules.row_names == "checked":
            wrong = metric_name_problem(key.metric) or filter_name_problem(key.filter)
        if wrong is None:
            add_rows(rows, {key: as_estimate(value, owner=members.owner)}, rules)
        else:
            reason = f"a row cannot be named {written!r}: {wrong[0]} — {wrong[1]}"
            rows[ScoreKey(key.metric.removesuffix(STDERR) or "unnamed", NONE)] = failed_estimate(reason)
    return rows


def add_rows(rows: dict[ScoreKey, Estimate], more: Rows, rules: GroupRules) -> None:
    """Add rows to those of a group, of which none may have the same name."""
    for key, row in more.items():
        is_taken = key in rows and rules.equal_rows == "error"
        rows[key] = failed_estimate("two numbers of the group have this name — rename one of them") if is_taken else row


Owner = Callable[[Estimate], tuple[str, Estimate] | None]


def as_estimate(value: UserValue, n: int = 0, owner: Owner = lambda _: None) -> Estimate:
    """The number of a group that user code returned; a failed one where that is no number. `owner` finds the member that an
    estimate is of."""
    if isinstance(value, EstimatedFloat | Estimate):
        returned = value.estimate if isinstance(value, EstimatedFloat) else value
        member = owner(returned)
        return _checked(returned if member is None else _without_error_of(*member, returned, n))
    plain_number = number(value)
    if plain_number is None:
        return failed_estimate(f"a user function returned a value of type {type(value).__name__!r}, not a number")
    if plain_number != plain_number:
        return failed_estimate("a user function returned NaN")
    return Estimate(plain_number, None, n, "returned by a user function")


def _without_error_of(name: str, member: Estimate, returned: Estimate, n: int) -> Estimate:
    """A number of a member that user code returned as the group's.

    The greatest of the members comes with the error of that member. That it was chosen from several is not in it, so of the
    group's number nothing is known but what the code itself computed.
    """
    if returned.value is None:
        return returned
    stderr = None if returned.stderr == member.stderr else returned.stderr
    interval = None if returned.interval == member.interval else returned.interval
    documents = n if returned.n == member.n else returned.n
    reason = "" if stderr is not None else f"user code returned the number of {name}, whose error is not the group's"
    return Estimate(returned.value, stderr, documents, reason, interval, note=returned.note)


def _checked(estimate: Estimate) -> Estimate:
    """An estimate that user code may have made by hand."""
    odd = next((name for name, fits in FITS.items() if not fits(getattr(estimate, name))), None)
    if odd is not None:
        return failed_estimate(f"a user function returned an Estimate whose `{odd}` is {getattr(estimate, odd)!r:.40}")
    if estimate.value is None and not estimate.reason:
        return failed_estimate("a user function returned no number, and no reason for it")
    if type(estimate.n) is not int or estimate.n < 0:
        return failed_estimate(f"a user function returned n = {estimate.n!r}, which is no count of documents")
    error = number(estimate.stderr)
    if estimate.stderr is not None and (error is None or not 0 <= error < math.inf):
        reason = f"a user function returned {estimate.stderr!r} as its standard error"
        return replace(estimate, stderr=None, reason=reason)
    return estimate if estimate.interval is None else _with_user_interval(estimate, estimate.interval)


def _is_text(value: UserValue) -> bool:
    return isinstance(value, str)


def _is_number_or_none(value: UserValue) -> bool:
    return value is None or number(value) is not None


def _is_pair_or_none(value: UserValue) -> bool:
    return value is None or (isinstance(value, tuple) and len(value) == 2 and all(map(_is_number_or_none, value)))


FITS: Mapping[str, Callable[[UserValue], bool]] = {
    "reason": _is_text,
    "method": _is_text,
    "note": _is_text,
    "df": _is_number_or_none,
    "clusters": _is_number_or_none,
    "scale": _is_pair_or_none,
    "unused_bounds": _is_pair_or_none,
}
"""What the fields of an Estimate must be: others could be written to results.json, and not be read again."""


def _with_user_interval(estimate: Estimate, written: UserValue) -> Estimate:
    """An estimate with the interval that user code gave: two ends in their order around its number, of which one that is None is
    open. With another one, nothing that the code says of the number's error is believed."""
    if isinstance(written, list | tuple) and len(written) == 2:
        low, high = map(number, written)
        known = [end for end in (low, estimate.value, high) if end is not None]
        is_number = [end == end for end in known]
        if len(known) == 1 + sum(end is not None for end in written) and all(is_number) and known == sorted(known):
            return replace(estimate, interval=(low, high), method=USER_INTERVAL)
    reason = f"a user function returned {written!r:.60} as the interval of {estimate.value!r}"
    return replace(estimate, stderr=None, interval=None, reason=reason)


def failed_estimate(reason: str) -> Estimate:
    """The number of a row whose code failed, and why."""
    return Estimate(None, None, 0, reason, evidence=CODE_FAILED)


def guarded(compute: Callable[[], dict[ScoreKey, Estimate]], names: Iterable[str]) -> dict[ScoreKey, Estimate]:
    """Rows with these names; if computing them fails, each without a number and with the reason."""
    rows = call_user_code("", compute)
    if isinstance(rows, Failed):
        return {ScoreKey(name, NONE): failed_estimate(rows.reason) for name in names}
    return rows
