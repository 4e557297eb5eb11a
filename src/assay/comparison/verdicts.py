"""`assay gate` and `assay watch`: what a run must show, alone and against baselines, decided together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from assay.comparison.compare import CompareOptions, check_shares, measured_gates
from assay.comparison.gates import (
    FIX_VALUE,
    GATE,
    Gate,
    Measured,
    RunNumbers,
    decide,
    decide_count,
    measure_value,
    parse_gate,
)
from assay.comparison.packs import open_run
from assay.errors import ConfigError, check_each, some
from assay.runs.comparison import GateVerdict, decision_of
from assay.runs.results import failure_lines
from assay.runs.run import COMPLETE, Run
from assay.runs.storage import shown_path
from assay.score_keys import ScoreKey
from assay.statistics.intervals import LEVEL, Decision
from assay.statistics.sequences import spent_at

WHOLE = "the whole run"
"""The name of the verdict about a run that is not complete."""


@dataclass(frozen=True)
class GateReport:
    """The verdicts of all gates of a run."""

    run: Path
    status: str
    verdicts: Sequence[GateVerdict]
    baseline: Path | None = None
    notes: Sequence[str] = ()
    level: float = LEVEL

    @property
    def decision(self) -> Decision:
        decision = decision_of(self.verdicts)
        assert decision is not None, "there is a gate"
        return decision


def parse_gates(written: Sequence[str]) -> list[Gate]:
    """The gates of a command, every problem at once."""
    return check_each(lambda gate: parse_gate(gate, GATE, FIX_VALUE, plain="value"), written)


def needs_baseline(gates: Sequence[Gate], baseline: str | Path | None) -> None:
    """Refuse a gate about a difference where there is nothing that it could be to, and a baseline that no gate is about."""
    relative = [gate for gate in gates if gate.kind == "difference"]
    if relative and baseline is None:
        what = f"{relative[0].written!r} is about a difference to a baseline, and there is none"
        raise ConfigError.at(GATE, what, "add --baseline RUN, or give the number itself: 'acc >= 0.8'")
    if baseline is not None and not relative:
        what = f"no gate is about a difference to {shown_path(baseline)}"
        raise ConfigError.at(GATE, what, "write one as 'acc >= baseline - 1pp', or leave out --baseline")


def gate(
    run: str | Path,
    gates: Sequence[str],
    *,
    baseline: str | Path | None = None,
    level: float = LEVEL,
    allow_incomplete: bool = False,
    allow_different_prompts: bool = False,
) -> GateReport:
    """Decide what a run must show: about its numbers (`acc >= 0.8`), its counts (`failed <= 1%`), and with a baseline about
    differences to it (`acc >= baseline - 1pp`). A run that is not complete passes only what says so."""
    check_shares(level)
    parsed = parse_gates(gates)
    if not parsed:
        raise ConfigError.at(GATE, "there is no gate", FIX_VALUE)
    needs_baseline(parsed, baseline)
    opened, baselines = open_run(run), [Path(baseline)] if baseline is not None else []
    options = CompareOptions(other_prompts=allow_different_prompts, incomplete=allow_incomplete, level=level)
    numbers = RunNumbers(opened, allow_incomplete)
    _refuse_ambiguous(parsed, numbers)
    rows, notes = measured_rows(numbers, parsed, baselines, options)
    decided = list(zip(rows, decide([row.measured for row in rows], level), strict=True))
    verdicts: list[GateVerdict] = []
    for condition in parsed:
        if condition.kind == "count":
            verdicts.append(decide_count(condition, opened))
        else:
            about_it = [verdict for row, verdict in decided if row.gate is condition]
            verdicts += about_it
            notes += _direction(condition, opened, about_it)
    if not allow_incomplete:
        verdicts += _about_the_run(opened, verdicts)
    return GateReport(Path(run), opened.status, verdicts, baselines[0] if baselines else None, notes, level)


class GateRow(NamedTuple):
    """A row that a gate is about, and the baseline that its difference is to."""

    gate: Gate
    baseline: Path | None
    measured: Measured


def measured_rows(
    numbers: RunNumbers, gates: Sequence[Gate], baselines: Sequence[Path], options: CompareOptions
) -> tuple[list[GateRow], list[str]]:
    """The rows of all gates about numbers: of the run alone, and against each baseline; and notes about the baselines."""
    notes: list[str] = []
    rows = [GateRow(gate, None, row) for gate in gates if gate.kind == "value" for row in measure_value(gate, numbers)]
    relative = [gate for gate in gates if gate.kind == "difference"]
    for baseline in baselines if relative else ():
        by_gate, noted = measured_gates((baseline, numbers.run), replace(options, gates=relative))
        rows += [
            GateRow(gate, baseline, row) for gate, measured in zip(relative, by_gate, strict=True) for row in measured
        ]
        notes += noted
    return rows, notes


@dataclass(frozen=True)
class SeriesVerdict:
    """The verdict of a gate about one run of a series; for a difference, the run that it is to."""

    verdict: GateVerdict
    baseline: Path | None


def decide_next(
    run: Path, gates: Sequence[str], before: Sequence[Path], number: int, level: float = LEVEL
) -> list[SeriesVerdict]:
    """Decide the gates of the `number`-th look at a series: differences to each of the runs `before`, values and counts.

    However many looks there are, the chance of a wrong decision in any of them is 1 − level: the n-th spends α/(n(n + 1)) of it,
    for all its gates and all runs before together (Holm).
    """
    alpha, parsed, opened = spent_at(number, 1 - level), parse_gates(gates), open_run(run)
    rows, _ = measured_rows(RunNumbers(opened), parsed, before, CompareOptions(level=1 - alpha))
    decided = decide([row.measured for row in rows], 1 - alpha)
    counts = [SeriesVerdict(decide_count(gate, opened), None) for gate in parsed if gate.kind == "count"]
    return [SeriesVerdict(verdict, row.baseline) for verdict, row in zip(decided, rows, strict=True)] + counts


def _refuse_ambiguous(gates: Sequence[Gate], numbers: RunNumbers) -> None:
    for each in gates:
        own = [row for row in numbers.rows if row.key.metric == each.metric]
        if each.kind == "count" and own:
            what = f"{each.written!r}: {each.metric!r} is a count of every run, and a metric of {own[0].name!r}"
            raise ConfigError.at(GATE, what, f"write {str(own[0].key)!r} for the metric")


def _direction(gate: Gate, run: Run, verdicts: Sequence[GateVerdict]) -> list[str]:
    """A note about a gate that asks for a worse number."""
    rows = [run.results.row(verdict.name, ScoreKey(verdict.metric, verdict.filter)) for verdict in verdicts]
    better = {row.higher_is_better for row in rows if row is not None}
    if better == {not gate.wants_more}:
        better_way = "lower" if gate.wants_more else "higher"
        return [f"{gate.written}: {better_way} is better for {gate.metric}; the gate asks for the opposite"]
    return []


def _about_the_run(run: Run, verdicts: Sequence[GateVerdict]) -> list[GateVerdict]:
    """A run that is not complete does not pass silently. Failed documents are all right if a gate about them passes."""
    if run.status in (COMPLETE, "unknown"):
        return []
    only_failed = run.status == "incomplete" and not run.broken and not _lacks_numbers(run)
    allowed = [
        each
        for each in verdicts
        if each.kind == "count" and each.metric == "failed" and each.name == run.path.resolve().name
    ]
    if only_failed and any(each.decision == "pass" for each in allowed):
        return []
    lines = [each.removeprefix("incomplete: ") for each in failure_lines(run.results)]
    reason = f"is {run.status}" + (f": {some(lines)}" if lines else "")
    reason += "; 'failed <= 1%' allows some documents to fail" if only_failed else ""
    reason += "; --allow_incomplete decides all the same"
    return [GateVerdict("complete", WHOLE, "complete", "", 1, "inconclusive", None, None, 0.0, reason, "", 1.0, "run")]


def _lacks_numbers(run: Run) -> bool:
    lacks_rows = any(row.lacks_number for _, _, row in run.scored_rows())
    return lacks_rows or any(task.not_asked for task in run.results.tasks.values())
