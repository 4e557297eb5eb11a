"""`assay gate`: what a run must show, alone and against a baseline, decided together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.comparison.absolute import RunNumbers, decide_count, measure_value
from assay.comparison.compare import CompareOptions, check_shares, measured_gates
from assay.comparison.conditions import FIX_VALUE, GATE, Gate, parse_gate
from assay.comparison.gates import decide
from assay.comparison.packs import open_run
from assay.errors import ConfigError, Problem, some
from assay.runs.comparison import GateVerdict, decision_of
from assay.runs.results import failure_lines
from assay.runs.run import COMPLETE, Run
from assay.runs.storage import shown_path
from assay.statistics.intervals import LEVEL, Decision

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
    gates: list[Gate] = []
    problems: list[Problem] = []
    for each in written:
        try:
            gates.append(parse_gate(each, GATE, FIX_VALUE, plain="value"))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return gates


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
    opened = open_run(run)
    numbers, notes = RunNumbers(opened, allow_incomplete), list[str]()
    _refuse_ambiguous(parsed, numbers)
    measured = {place: measure_value(each, numbers) for place, each in enumerate(parsed) if each.kind == "value"}
    relative = {place: each for place, each in enumerate(parsed) if each.kind == "difference"}
    if baseline is not None:
        options = CompareOptions(gates=list(relative.values()), other_prompts=allow_different_prompts,
                                 incomplete=allow_incomplete, level=level)  # fmt: skip
        relative_rows, notes = measured_gates([Path(baseline), Path(run)], options)
        measured |= dict(zip(relative, relative_rows, strict=True))
    decided = decide([each for place in sorted(measured) for each in measured[place]], level)
    verdicts: list[GateVerdict] = []
    for place, each in enumerate(parsed):
        if each.kind == "count":
            verdicts.append(decide_count(each, opened))
        else:
            own, decided = decided[: len(measured[place])], decided[len(measured[place]) :]
            verdicts += own
            notes += _direction(each, opened, own)
    if not allow_incomplete:
        verdicts += _about_the_run(opened, verdicts)
    return GateReport(
        Path(run), opened.status, verdicts, Path(baseline) if baseline is not None else None, notes, level
    )


def _refuse_ambiguous(gates: Sequence[Gate], numbers: RunNumbers) -> None:
    for each in gates:
        own = [row for row in numbers.rows if row.key.metric == each.metric]
        if each.kind == "count" and own:
            what = f"{each.written!r}: {each.metric!r} is a count of every run, and a metric of {own[0].name!r}"
            raise ConfigError.at(GATE, what, f"write {str(own[0].key)!r} for the metric")


def _direction(gate: Gate, run: Run, verdicts: Sequence[GateVerdict]) -> list[str]:
    """A note about a gate that asks for a worse number."""
    better = {run.higher_is_better(verdict.name).get(verdict.metric) for verdict in verdicts}
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
