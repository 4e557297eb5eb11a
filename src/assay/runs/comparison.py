"""The records of a comparison: one row for each number that both runs have, and why the runs may differ."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from assay.results import Estimate, keys
from assay.runs.extensions import REPORT, ShownPlot, ShownTable
from assay.score_keys import ScoreKey
from assay.statistics.intervals import Decision
from assay.statistics.paired import PairedDifference

STAGES = ("data", "prompt", "sampling", "model", "filter", "scorer")
"""The stages of a number, in the order of the flow."""

Unit = Literal["pp", "% rel", "% of baseline", "%", ""]
GateKind = Literal["difference", "value", "count", "run"]
"""Kinds of gates: about a difference to another run, a number, a count of the run, or whether the run is complete."""
Says = Literal["better", "worse", "differs", "unclear", "same", "unknown"]


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A compared run: its folder, its label here, its model, its status, and when it was started."""

    folder: Path
    label: str
    model: str
    status: str
    created: float | None = None


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One number of a task or group in the first run (a) and in another (b), on the documents that both have.

    `run` is the number of the other one among the runs. `difference` is b minus a. A win is a document that b does better, in
    the metric's direction. `mde` is the least true difference that is detected with the requested power. `only_a` and `only_b`
    documents were scored in one run alone. `same` is what all documents have the same of, if any: `answers`, or only `scores`.
    `recovery` is b over a, where that was asked for.
    """

    kind: Literal["task", "group"]
    name: str
    alias: str
    metric: str
    filter: str
    run: int
    depth: int
    higher_is_better: bool | None
    a: float | None
    b: float | None
    difference: PairedDifference = field(
        metadata=keys("n", "stderr", "interval", "p", "test", "clusters", "reason", "difference=value")
    )
    p_holm: float | None = None
    wins: int | None = None
    losses: int | None = None
    ties: int | None = None
    mde: float | None = None
    only_a: int = 0
    only_b: int = 0
    verdict: Says = "unknown"
    same: Literal["answers", "scores", ""] = ""
    recovery: Estimate | None = field(
        default=None, metadata=keys("recovery=value", "recovery_low=low", "recovery_high=high")
    )

    def outcome(self, alpha: float) -> Says:
        """The outcome for b: for a task by its corrected p, for a group by its interval; `unclear` is not `equal`. Where
        no direction is declared, a significant difference is reported without one."""
        if self.same:
            return "same"
        sure = self.p_holm <= alpha if self.p_holm is not None else self.difference.excludes_zero
        change = self.difference.value
        if sure is None or change is None:
            return "unknown"
        if not sure:
            return "unclear"
        if self.higher_is_better is None:
            return "differs"
        return "better" if (change > 0) is self.higher_is_better else "worse"


@dataclass(frozen=True, slots=True)
class Flip:
    """A document that two runs score differently, with what was answered; `change` is b's score minus a's."""

    task: str
    doc_id: int
    metric: str
    filter: str
    run: int
    score_a: float
    score_b: float
    answer_a: str
    answer_b: str
    target: str
    question: str
    is_loss: bool | None
    """Whether b does worse; None where it is not known whether more is better."""
    doc_id_b: int | None = None
    question_b: str = ""
    """The prompt of b, where it differs."""

    @property
    def change(self) -> float:
        return self.score_b - self.score_a

    @property
    def direction(self) -> Literal["worse", "better", "lower", "higher"]:
        """How the document changed, in a word."""
        if self.is_loss is None:
            return "lower" if self.change < 0 else "higher"
        return "worse" if self.is_loss else "better"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that two runs do not share: at which stage, what it is, its two values, and the tasks it concerns."""

    stage: str
    what: str
    a: str
    b: str
    tasks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Attribution:
    """In what a run differs from the first, stage by stage; `first` is where a difference of numbers may begin."""

    run: int
    differences: Sequence[Difference]

    @property
    def first(self) -> str | None:
        stages = {each.stage for each in self.differences}
        return next((stage for stage in STAGES if stage in stages), None)


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The outcome of a gate for one row: `bound` is the end of the one-sided interval that decides, at `level`. `unit` is
    the gate's: `pp`, `% rel`, `%`, or nothing for the metric's own. Where its `kind` is not a difference, `difference` is
    the number itself."""

    gate: str
    name: str
    metric: str
    filter: str
    run: int
    decision: Decision
    difference: float | None
    bound: float | None
    threshold: float
    reason: str = ""
    unit: Unit = ""
    level: float = 0.95
    kind: GateKind = "difference"

    @property
    def row(self) -> str:
        """The row as people write it: without the filter where that says nothing, or is in the gate."""
        shown = self.filter and self.filter != "none" and f",{self.filter}" not in self.gate
        return f"{self.name} {ScoreKey(self.metric, self.filter)!s}" if shown else self.name


def decision_of(verdicts: Sequence[GateVerdict]) -> Decision | None:
    """The outcome of all gates: one failure fails them all, one that cannot be decided leaves them open."""
    decisions = {verdict.decision for verdict in verdicts}
    if not decisions:
        return None
    return "fail" if "fail" in decisions else "inconclusive" if "inconclusive" in decisions else "pass"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs, each of the others against the first."""

    runs: Sequence[ComparedRun]
    rows: Sequence[ComparedRow]
    attributions: Sequence[Attribution] = ()
    flips: Sequence[Flip] = ()
    verdicts: Sequence[GateVerdict] = ()
    notes: Sequence[str] = ()
    level: float = 0.95
    power: float = 0.8

    @property
    def table(self) -> ShownTable:
        """The rows for a reader: fits the terminal, is HTML in a notebook, and Markdown as `str`."""
        return REPORT.functions.table_of_comparison(self)

    def plot(self, *, metric: str | None = None) -> ShownPlot:
        """Draw the differences with their intervals: a notebook shows it, and `.save("out.svg")` writes it."""
        return REPORT.functions.plot_comparison(self, metric=metric)

    def __repr__(self) -> str:
        counts = {verdict: sum(row.verdict == verdict for row in self.rows) for verdict in ("better", "worse")}
        others = ", ".join(run.label for run in self.runs[1:])
        decided = f", gates: {self.decision}" if self.decision is not None else ""
        outcome = f"{len(self.rows)} rows, {counts['better']} better, {counts['worse']} worse"
        return f"<Comparison of {others} with {self.runs[0].label}: {outcome}{decided}>"

    def _repr_html_(self) -> str:
        return self.table._repr_html_()

    @property
    def decision(self) -> Decision | None:
        return decision_of(self.verdicts)
