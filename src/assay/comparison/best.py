"""The best of several runs in a number of a task or group, and those not significantly worse: what a paper prints in bold."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from assay.comparison.pairing import pair_tasks, refuse_other_prompts, shared_tasks, values
from assay.comparison.rows import below, compared_members, paired_rows
from assay.results import Estimate, Row
from assay.runs.run import Run
from assay.score_keys import ScoreKey
from assay.statistics.paired import PairedDifference, holm, significance


class NumberKey(NamedTuple):
    """Names a number: that of a task or group, by a metric and a filter."""

    name: str
    row: ScoreKey


@dataclass(frozen=True, slots=True)
class Best:
    """Who is best in one number; runs by their labels.

    `best` are the best run and all that are not significantly worse than it, by a paired test over the documents that both have;
    by their standard errors alone where they are in `unpaired`. Runs in `untested` can be compared in neither way. Incomplete
    numbers are not compared. Without a direction, and with fewer than two numbers, no run is best.
    """

    best: frozenset[str] = frozenset()
    unpaired: frozenset[str] = frozenset()
    untested: frozenset[str] = frozenset()


def find_best(
    runs: Mapping[str, Run], numbers: Sequence[NumberKey], *, level: float, allow_different_prompts: bool
) -> dict[NumberKey, Best]:
    """Return for each number who is best. The p-values of one number are corrected for their count (Holm)."""
    known = {number: _complete_rows(runs, number) for number in numbers}
    leaders = {number: _leader(rows) if len(rows) > 1 else None for number, rows in known.items()}
    pairs: dict[tuple[str, str], list[NumberKey]] = defaultdict(list)
    for number, leader in leaders.items():
        if leader is not None:
            for label in known[number]:
                if label != leader:
                    pairs[leader, label].append(number)
    tests = {
        pair: _paired_tests(runs[pair[0]], runs[pair[1]], shared, allow_different_prompts=allow_different_prompts)
        for pair, shared in pairs.items()
    }
    best = {}
    for number, leader in leaders.items():
        if leader is None:
            best[number] = Best()
        else:
            paired = {label: tests.get((leader, label), {}).get(number) for label in known[number]}
            best[number] = _decide(known[number], leader, paired, 1 - level)
    return best


def _complete_rows(runs: Mapping[str, Run], number: NumberKey) -> dict[str, Row]:
    """The rows of the runs that have this number of all their documents."""
    rows = {}
    for label, run in runs.items():
        row = run.results.row(number.name, number.row)
        if row is not None and not row.is_incomplete and values(run, number.name).get(number.row) is not None:
            rows[label] = row
    return rows


def _leader(rows: Mapping[str, Row]) -> str | None:
    """The run with the best value; None where it is not known whether more or less is better."""
    directions = {row.higher_is_better for row in rows.values()}
    if len(directions) > 1 or directions == {None}:
        return None
    sign = 1.0 if directions == {True} else -1.0
    return max(rows, key=lambda label: sign * (rows[label].estimate.value or 0.0))


def _paired_tests(
    leader: Run, other: Run, numbers: Collection[NumberKey], *, allow_different_prompts: bool
) -> dict[NumberKey, PairedDifference]:
    """The tests of the numbers of which both runs have the documents' scores."""
    shared = set(shared_tasks(leader, other))
    named = [name for name, _ in numbers if name in shared or name in leader.members]
    tasks = set().union(*(below(leader, name, shared) for name in named))
    if not tasks & shared:
        return {}
    remarks: list[
        str
    ] = []  # what pairs leave out: `assay compare` prints them; a table of many pairs has no place for it
    pairs = pair_tasks(leader, other, tasks, remarks)
    if not allow_different_prompts:
        refuse_other_prompts(pairs, leader, other)
    tests = {}
    runs = (leader, other)
    for row in paired_rows(runs, compared_members(pairs, runs, None, remarks), remarks):
        number = NumberKey(row.name, row.key)
        contrast = row.contrast() if number in numbers else None
        if contrast is not None:
            tests[number] = PairedDifference(contrast.difference, p=significance(contrast).p)
    return tests


def _unpaired_test(leader: Estimate, other: Estimate) -> PairedDifference | None:
    """The test of two numbers as of other documents each, from their standard errors; None where one has none."""
    if leader.value is None or other.value is None:
        return None
    difference = other.value - leader.value
    if not difference:
        return PairedDifference(0.0, p=1.0)
    if leader.stderr is None or other.stderr is None or not math.hypot(leader.stderr, other.stderr) > 0:
        return None
    p = 2 * NormalDist().cdf(-abs(difference) / math.hypot(leader.stderr, other.stderr))
    return PairedDifference(difference, p=p)


def _decide(rows: Mapping[str, Row], leader: str, paired: Mapping[str, PairedDifference | None], alpha: float) -> Best:
    tests = {label: test for label, test in paired.items() if test is not None}
    unpaired = set()
    for label in rows:
        if label != leader and label not in tests:
            test = _unpaired_test(rows[leader].estimate, rows[label].estimate)
            if test is not None:
                tests[label] = test
                unpaired.add(label)
    corrected = dict(zip(tests, holm([1.0 if test.p is None else test.p for test in tests.values()]), strict=True))
    best = {leader}
    for label, test in tests.items():
        # on the documents that both have, a run may be better than the one with the best number
        is_less = (float(test) < 0) is (rows[leader].higher_is_better is True)
        if not (is_less and corrected[label] <= alpha):
            best.add(label)
    untested = set(rows) - set(tests) - {leader}
    return Best(frozenset(best), frozenset(unpaired), frozenset(untested))
