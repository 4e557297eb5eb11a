"""Gates about one run alone: its numbers, by their one-sided bounds, and its counts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from assay.comparison.contrasts import aggregation_of
from assay.comparison.gate_text import GATE, Gate, suggestion
from assay.comparison.gates import ENDED, Ends, Measured, beyond_bounds, moved, selected, why_undecided
from assay.comparison.pairing import PairedTask, pair_tasks
from assay.comparison.rows import PairedRow, below, compared_members, lone_rows, paired_rows
from assay.errors import ConfigError, some
from assay.records import JSONObject, json_number, mapping
from assay.results import Row
from assay.runs.comparison import GateVerdict
from assay.runs.run import Run
from assay.score_keys import ScoreKey
from assay.statistics.board import Board
from assay.statistics.evidence import USER_INTERVAL, Estimate, Evidence, with_evidence
from assay.statistics.influence import PERCENT, SHARE, Bounds, Spread
from assay.statistics.intervals import LEVEL, Decision, interval
from assay.statistics.spread import MemberEstimate, smooth

BOOTSTRAPS = 1000
"""Resamples of a number that has no closed form."""
CLOSE = 1e-6


@dataclass(frozen=True)
class RunNumbers:
    """The rows of a run, each paired with itself, and its samples; estimates are rebuilt again, since a bound has its own level."""

    run: Run
    allow_incomplete: bool = False

    @cached_property
    def tasks(self) -> Mapping[str, PairedTask]:
        run = self.run
        paired = pair_tasks(run, run, set(run.scored_tasks), []) if run.scored_tasks else []
        return {task.name: task for task in paired}

    @cached_property
    def rows(self) -> Sequence[PairedRow]:
        both = self.run, self.run
        every = paired_rows(both, compared_members(list(self.tasks.values()), both, None, []), [])
        return [*every, *(replace(row, is_lone=False) for row in lone_rows(self.run, every))]

    def stored(self, row: PairedRow) -> Row:
        return self.run.rows(row.name)[row.key]

    def estimate(self, name: str, key: ScoreKey) -> Estimate:
        """A number with all that its bounds consist of: from the samples, or where these do not give it, as it is stored."""
        row = self.run.rows(name)[key]
        rebuilt = self._of_group(row) if row.slopes else self._of_task(name, key)
        value = math.nan if row.estimate.value is None else row.estimate.value
        if rebuilt is not None and math.isclose(float(rebuilt), value, rel_tol=CLOSE, abs_tol=1e-9):
            return rebuilt
        stored = row.estimate
        draws = stored.clusters or stored.n
        spread = Spread((stored.stderr or 0.0) ** 2, float(stored.df or max(draws - 1, 1)), value)
        evidence = Evidence(draws=draws, spread=spread)
        return Estimate(value, stored.stderr, stored.n, stored.reason, scale=stored.scale, evidence=evidence)

    def _of_task(self, name: str, key: ScoreKey) -> Estimate | None:
        task = self.tasks.get(name)
        column = task.scores_a.values.get(key) if task is not None else None
        if task is None or column is None or not column.is_score:
            return None
        values, documents = column.present_values, task.scores_a.documents[column.present].tolist()
        aggregation = aggregation_of(self.run, name, key, values) if len(values) else None
        if aggregation is None:
            return None
        board, column_name = Board(), task.scores_a.cluster_by
        clusters = task.scores_a.clusters(column_name) if column_name else None
        if clusters is not None:
            board.clusters = dict(zip(documents, clusters[column.present].tolist(), strict=True))
        return board.estimated(
            aggregation, list(values), documents, bootstrap_iters=BOOTSTRAPS,
            source=self.run.source(name) or name, metric=key.metric,
        )  # fmt: skip

    def _of_group(self, row: Row) -> Estimate | None:
        """From the shares of its tasks, if their samples give the numbers of all."""
        shares: Mapping[tuple[str, ScoreKey], float] = row.slopes or {}
        members: list[MemberEstimate] = []
        for task, key in shares:
            rebuilt = self._of_task(task, key)
            if rebuilt is None:
                return None
            members.append(MemberEstimate(task, rebuilt, rebuilt.n))
        value = math.nan if row.estimate.value is None else row.estimate.value
        rebuilt = replace(smooth(value, members, list(shares.values())), scale=row.estimate.scale)
        are_rates = all(member.estimate.evidence.is_rate for member in members)
        pooled = with_evidence(
            rebuilt, is_rate=True
        )  # by size, a share of all documents together; its stored interval shows which
        ends = interval(pooled) if are_rates and row.estimate.low is not None else None
        is_pooled = (
            ends is not None and row.estimate.low is not None and math.isclose(ends[0], row.estimate.low, rel_tol=CLOSE)
        )
        return pooled if is_pooled else rebuilt


def measure_value(gate: Gate, numbers: RunNumbers) -> list[Measured]:
    """Measure each number that a gate selects."""
    chosen = selected(gate, numbers.rows, numbers.run.members, shared="")
    return [_measured(gate.on(numbers.stored(row).estimate.scale), row, numbers) for row in chosen]


def _measured(gate: Gate, row: PairedRow, numbers: RunNumbers) -> Measured:
    stored = numbers.stored(row)
    refuse_beyond(gate, stored.estimate.scale, row.name)
    measured = Measured(gate, row, 1)
    if stored.estimate.value is None or not math.isfinite(stored.estimate.value):
        return replace(measured, reason=stored.estimate.reason or "there is no number")
    measured = replace(measured, difference=stored.estimate.value, reason=beyond_bounds(row, [numbers.run]))
    if measured.reason:
        return measured
    if not numbers.allow_incomplete:
        open_because = why_undecided(row, [numbers.run]) or _lacking(row, stored)
        if open_because:
            return replace(measured, reason=open_because)
    if stored.estimate.method == USER_INTERVAL:
        return replace(
            measured, ends=partial(_given_ends, stored.estimate), reason="by the interval that user code gave"
        )
    estimate = numbers.estimate(row.name, row.key)
    if interval(estimate, 0.9) is None:
        return replace(measured, reason=_why_no_bound(stored, estimate))
    missed = 0 if numbers.allow_incomplete or row.reason else sum(part.member.missed for part in row.parts)
    lower, upper = moved(row.parts, 0.0) if missed else (0.0, 0.0)
    least, most = stored.estimate.scale or (SHARE if estimate.evidence.is_rate else (-math.inf, math.inf))

    def ends(alpha: float) -> Ends:
        low, high = interval(estimate, 1 - 2 * alpha) or (math.nan, math.nan)
        return max(low + lower, least), min(high + upper, most)

    reason = f"assuming the worst for the {missed} documents without a score" if missed else ""
    return replace(measured, ends=ends, reason=reason)


def _given_ends(estimate: Estimate, alpha: float) -> Ends:
    """The ends that user code gave: each errs with half of 5 % at most, so they serve that alpha and larger ones."""
    if estimate.interval is None or alpha < (1 - LEVEL) / 2:
        return -math.inf, math.inf
    low, high = estimate.interval
    return -math.inf if low is None else low, math.inf if high is None else high


def _lacking(row: PairedRow, stored: Row) -> str:
    """Without samples, nothing says which scores the failed documents could have had."""
    if (row.parts and not row.reason) or not stored.failed:
        return ""
    return f"{stored.failed} documents failed, and how far they could move it is not known"


def _why_no_bound(stored: Row, estimate: Estimate) -> str:
    if stored.estimate.stderr is None:
        return f"it has no standard error{': ' + stored.estimate.reason if stored.estimate.reason else ''}"
    return estimate.reason or "all documents score alike, and nothing bounds how far others could"


def refuse_beyond(gate: Gate, scale: Bounds | None, name: str) -> None:
    """Refuse a threshold that the number cannot have: a percentage without its sign, mostly."""
    if gate.unit == "%" and scale is not None and not math.isfinite(scale[0] + scale[1]):
        what = f"{gate.written!r}: {gate.metric!r} of {name!r} is not a share"
        raise ConfigError.at(GATE, what, "write the number itself")
    if scale is None or scale[0] <= gate.threshold <= scale[1]:
        return
    shown = f"between {scale[0]:g} and {scale[1]:g}" if math.isfinite(scale[1]) else f"{scale[0]:g} or more"
    what = f"{gate.written!r}: {gate.metric!r} of {name!r} is {shown}"
    is_percentage = scale == SHARE and 1 < gate.threshold <= PERCENT[1]
    fix = f"write '{gate.threshold:g}%' for a share" if is_percentage else "give a threshold that it can have"
    raise ConfigError.at(GATE, what, fix)


# ---- counts


@dataclass(frozen=True)
class CountedNumber:
    """A count of a run, or why it is not known; `of` is how many documents it is a share of."""

    value: float | None
    of: int = 0
    reason: str = ""


def decide_count(gate: Gate, run: Run) -> GateVerdict:
    """Compare a count with the threshold of a gate. What a run still may add to it can only be too much."""
    count = _counted(gate, run)
    value = count.value
    if value is not None and gate.unit == "%":
        value = value / count.of if count.of else None
    decision: Decision = "inconclusive" if value is None else "pass" if gate.lets(value) else "fail"
    reason = count.reason if value is not None or count.reason else "there is no document"
    is_less = not gate.wants_more
    if decision == ("pass" if is_less else "fail") and run.status not in ENDED:
        decision, reason = "inconclusive", f"the run {run.path.name} is {run.status}"
    name = gate.name or run.path.resolve().name
    return GateVerdict(gate.written, name, gate.metric, "", 1, decision, value, None, gate.threshold, reason, gate.unit, 1.0,
                       "count")  # fmt: skip


def _counted(gate: Gate, run: Run) -> CountedNumber:
    tasks = _tasks(gate, run)
    if gate.metric == "time":
        if gate.name is not None:
            what = f"{gate.written!r}: the time is that of the whole run"
            raise ConfigError.at(GATE, what, "write 'time <= 10m'")
        return _seconds(gate, run)
    if gate.metric in ("cost", "tokens"):
        return _of_usage(gate, run, tasks)
    broken = sorted({*run.broken} & below(run, gate.name, {*tasks, *run.broken}) if gate.name else {*run.broken})
    if broken:
        return CountedNumber(None, reason=f"not run: {some(broken)}")
    return _of_documents(gate.metric, run, tasks)


def _tasks(gate: Gate, run: Run) -> list[str]:
    """The tasks that a count is about."""
    if gate.name is None:
        return run.scored_tasks
    known = {*run.tasks, *run.members}
    try:
        return sorted(below(run, gate.name, known) & {*run.tasks})
    except ConfigError:
        what = f"no task or group named {gate.name!r}"
        raise ConfigError.at(GATE, what, suggestion(gate.name, known)) from None


def _of_documents(kind: str, run: Run, tasks: Sequence[str]) -> CountedNumber:
    entries = [run.results.tasks[task] for task in tasks if task in run.results.tasks]
    if not entries or len(entries) < len(tasks):
        return CountedNumber(None, reason="the run does not say how many documents it has")
    documents = sum(entry.documents for entry in entries)
    if kind == "failed":
        return CountedNumber(sum(entry.failed for entry in entries), documents)
    if not all(kind in entry.audit for entry in entries):
        return CountedNumber(None, reason=f"the run does not say how many answers are {kind}")
    return CountedNumber(sum(entry.audit[kind].count for entry in entries), documents)


def _of_usage(gate: Gate, run: Run, tasks: Sequence[str]) -> CountedNumber:
    usage = run.usage
    by_task = mapping(usage.get("tasks"))
    parts: list[JSONObject] = [mapping(by_task.get(task)) for task in tasks] if gate.name else [usage]
    if gate.metric == "tokens":
        used = [mapping(each.get("tokens")) for each in parts]
        total = sum(int(each.get("in") or 0) + int(each.get("out") or 0) for each in used)
        return (
            CountedNumber(total)
            if total
            else CountedNumber(None, reason="the model does not say how many tokens it used")
        )
    costs = [json_number(each.get("cost")) for each in parts]
    without = [role for role, each in mapping(usage.get("roles")).items() if mapping(each).get("cost") is None]
    if without:
        return CountedNumber(None, reason=f"the cost of {some(without)} is not known: give prices in its arguments")
    if not costs or None in costs:
        return CountedNumber(None, reason="the cost is not known: give prices in --model_args")
    return CountedNumber(sum(each for each in costs if each is not None))


def _seconds(gate: Gate, run: Run) -> CountedNumber:
    """How long a run took. Of one that was resumed only the last part is known, and how long ago the first began."""
    seconds, started = (
        _as_float(run.results.facts.get(key)) for key in ("total_evaluation_time_seconds", "start_time")
    )
    created, finished = (json_number(run.manifest.get(key)) for key in ("created", "finished"))
    if seconds is None:
        return CountedNumber(None, reason="the run does not say how long it took")
    if started is None or created is None or finished is None or created >= started - 1:
        return CountedNumber(seconds)
    if gate.lets(seconds) == gate.lets(finished - created):
        return CountedNumber(seconds)
    return CountedNumber(
        None, reason=f"the run was resumed: it took between {seconds:.0f} and {finished - created:.0f} s"
    )


def _as_float(value: object) -> float | None:
    try:
        seconds = float(str(value))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None
