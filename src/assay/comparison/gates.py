"""Gates: thresholds for a difference, and what missing documents mean for them."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from assay.comparison.contrasts import Part, Reach
from assay.comparison.gate_text import COUNTS, GATE, Gate, suggestion
from assay.comparison.rows import PairedRow, below
from assay.errors import ConfigError, Place, some
from assay.results import names_below
from assay.runs.comparison import GateVerdict
from assay.runs.run import Run
from assay.score_keys import ScoreKey
from assay.statistics.intervals import Decision
from assay.statistics.paired import Contrast, interval
from assay.statistics.sequences import without_difference

Ends = tuple[float, float]


@dataclass(frozen=True)
class GateEvidence:
    """The input of a gate: the numbers of two runs, the second being the `number`-th of all."""

    rows: Sequence[PairedRow]
    runs: tuple[Run, Run]
    number: int
    allow_incomplete: bool = False

    @property
    def has_one_model(self) -> bool:
        """Whether the models of both runs have the same fingerprint, those of scorers too."""
        mine, others = (run.answers_manifest.get("spec", {}) for run in self.runs)
        return bool(mine.get("model")) and all(mine.get(key) == others.get(key) for key in ("model", "roles"))


@dataclass(frozen=True)
class Measured:
    """A gate for one row, before it is decided: the difference in its units, and its one-sided bounds by alpha.
    Without bounds it is `known`, or `reason` says why it cannot be. `needed`: how many documents would decide it, by alpha."""

    gate: Gate
    row: PairedRow
    number: int
    difference: float | None = None
    ends: Callable[[float], Ends] | None = None
    reason: str = ""
    known: Decision = "inconclusive"
    needed: Callable[[float], str] | None = None

    def verdict(self, alpha: float) -> GateVerdict:
        """Decide at this alpha."""
        decision, bound = (self.known, None) if self.ends is None else _decided(self.gate, self.ends(alpha))
        gate, reason = self.gate, self.reason
        shift = 1.0 if gate.unit == "% of baseline" else 0.0
        shown = [None if each is None else each + shift for each in (self.difference, bound)]
        if decision == "inconclusive" and self.needed is not None:
            reason = "; ".join(filter(None, [reason, self.needed(alpha)]))
        return GateVerdict(
            gate.written, self.row.name, *self.row.key, self.number, decision, shown[0], shown[1],
            gate.threshold + shift, reason, gate.unit, 1 - alpha, gate.kind,
        )  # fmt: skip


def measure(gate: Gate, evidence: GateEvidence) -> list[Measured]:
    """Measure each row that a gate selects. A row that only the first run has is undecided: a run that lacks
    a task or a group passes no gate."""
    return [_measured(gate, row, evidence) for row in selected(gate, evidence.rows, evidence.runs[0].members)]


def decide(measured: Sequence[Measured], level: float) -> list[GateVerdict]:
    """Decide all gates of a comparison together, so that the chance of one wrong decision among them is what the level says
    (Holm): each at alpha over the number of those that are not decided yet."""
    open_ones = [place for place, each in enumerate(measured) if each.ends is not None]
    verdicts = {place: each.verdict(1 - level) for place, each in enumerate(measured) if each.ends is None}
    while open_ones:
        tried = {place: measured[place].verdict((1 - level) / len(open_ones)) for place in open_ones}
        decided = {place: each for place, each in tried.items() if each.decision != "inconclusive"}
        verdicts |= decided or tried
        open_ones = [place for place in open_ones if place not in decided] if decided else []
    return [verdicts[place] for place in range(len(measured))]


def selected(
    gate: Gate,
    rows: Sequence[PairedRow],
    members: Mapping[str, Sequence[str]],
    shared: str = "shared ",
    place: Place = GATE,
) -> list[PairedRow]:
    """The rows that a gate is about: those that both runs have, and those of the first that the other lacks. `members` are
    those of groups."""
    of_filter = [row for row in rows if gate.filter in (None, row.key.filter)]
    of_metric = [row for row in of_filter if row.key.metric == gate.metric]
    if (
        not of_metric
    ):  # one that gives several numbers: all of them, or `f1[macro]` where they are not known, as before a run
        whole, bracket, _ = gate.metric.partition("[")
        of_metric = [
            row for row in of_filter if (row.key.metric == whole if bracket else row.key.metric.startswith(f"{whole}["))
        ]
    if not of_metric:
        known = {row.key.metric for row in rows} | ({*COUNTS} if not shared else set())
        wrong = gate.metric if gate.metric not in known else str(ScoreKey(gate.metric, str(gate.filter)))
        fix = suggestion(wrong, known if gate.metric not in known else {str(row.key) for row in rows})
        if shared and gate.metric in COUNTS:
            fix = f"`assay gate RUN '{gate.written}'` is about counts of one run"
        raise ConfigError.at(place, f"no {shared}metric named {wrong!r}", fix)
    if gate.name is None:
        both = _top_level([row for row in of_metric if not row.is_lone], members)
        return [*both, *(row for row in _top_level(of_metric, members) if row.is_lone)]
    matching = [row for row in of_metric if row.name == gate.name or fnmatchcase(row.name, gate.name)]
    if not matching:
        names = {row.name for row in of_metric}
        what = f"no {shared}task or group named {gate.name!r} has {gate.metric!r}"
        raise ConfigError.at(place, what, suggestion(gate.name, names))
    return matching


def _top_level(rows: Sequence[PairedRow], tree: Mapping[str, Sequence[str]]) -> list[PairedRow]:
    """Return the rows that are below no other row of the metric: the headline."""
    under = names_below(tree, {row.name for row in rows})
    return [row for row in rows if row.name not in under]


def _decided(gate: Gate, ends: Ends) -> tuple[Decision, float]:
    """Return the decision and the bound that decides it."""
    safe, open_end = ends if gate.wants_more else (ends[1], ends[0])
    if gate.lets(safe):
        return "pass", safe
    return ("inconclusive", safe) if gate.lets(open_end) else ("fail", open_end)


def _measured(gate: Gate, row: PairedRow, evidence: GateEvidence) -> Measured:
    """The difference in the gate's units with its one-sided bounds; or why it cannot be decided."""
    measured = Measured(gate, row, evidence.number)
    if row.a is None or row.b is None:
        return replace(measured, reason=row.reason or "there is no number")
    if beyond := beyond_bounds(row, evidence.runs):
        return replace(measured, reason=beyond)
    scale = 1 + gate.threshold if gate.relative else 1.0
    if gate.relative and row.a <= 0:
        return replace(measured, reason="a difference relative to 0 or less means nothing")
    contrast: Contrast | None = row.contrast(scale)
    if contrast is None:
        return replace(measured, reason=row.reason or "its spread is known for absolute differences only")
    open_because = "" if evidence.allow_incomplete else why_undecided(row, evidence.runs)
    if open_because:
        return replace(measured, reason=open_because)
    unit, shift = (row.a, gate.threshold) if gate.relative else (1.0, 0.0)
    measured = replace(measured, difference=contrast.difference / unit + shift)
    missed = 0 if evidence.allow_incomplete else sum(part.member.missed for part in row.parts)
    lower, upper = moved(row.parts, scale) if missed else (0.0, 0.0)
    reason = f"assuming the worst for the {missed} documents not scored in both runs" if missed else ""
    if row.noise is not None:
        reason = "; ".join(filter(None, [reason, f"with the noise between {row.noise.runs} runs"]))
    if row.is_alike:
        return _alike(replace(measured, reason=reason), row, evidence, (lower / unit, upper / unit))
    if interval(contrast, 0.9) is None:
        return replace(measured, reason="all documents differ alike")

    def ends(alpha: float) -> Ends:
        low, high = interval(contrast, 1 - 2 * alpha) or (math.nan, math.nan)
        return (low + lower) / unit + shift, (high + upper) / unit + shift

    return replace(measured, ends=ends, reason=reason)


def _alike(measured: Measured, row: PairedRow, evidence: GateEvidence, lost: Ends) -> Measured:
    """A gate for runs that score alike: it holds for the same model. Of another one, so many documents without a difference
    bound the share of those that differ, and the gate holds if the margin is wider."""
    gate, n = measured.gate, sum(part.member.n for part in row.parts)
    if evidence.has_one_model and lost == (0.0, 0.0):
        decision: Decision = "pass" if gate.lets(0.0) else "fail"
        return replace(measured, known=decision, reason="same model, and no document differs")
    reach = Reach.of(row.parts)
    if not math.isfinite(reach.whole):
        return replace(measured, reason="no document differs, and nothing bounds how far others could")
    unit = row.a if gate.relative and row.a is not None else 1.0
    margin = (-gate.threshold if gate.wants_more else gate.threshold) * unit / reach.whole

    def ends(alpha: float) -> Ends:
        bound = reach.whole * without_difference(alpha, reach.draw / reach.whole) / unit
        return -bound + lost[0], bound + lost[1]

    def needed(alpha: float) -> str:
        if not 0 < margin < 1 or lost != (0.0, 0.0):
            return ""
        enough = n * reach.draw / reach.whole * math.log(alpha) / math.log1p(-margin)
        return f"{math.floor(enough) + 1} would decide it"

    reason = "; ".join(filter(None, [f"none of {n} documents differs", measured.reason]))
    return replace(measured, ends=ends, needed=needed, reason=reason)


ENDED = ("complete", "incomplete", "unknown")
"""The statuses of a run that sent all its requests; an imported run's may be unknown."""
MOST = 0.01
"""The share of documents that may be lacking where nothing bounds what they could have scored."""
ALLOW = "--allow_incomplete decides all the same"


def why_undecided(row: PairedRow, runs: Sequence[Run]) -> str:
    """Explain why a gate cannot be decided on this row, regardless of its documents; empty where it can."""
    for run in runs:
        if run.status not in ENDED:
            return f"the run {run.path.name} is {run.status}; {ALLOW}"
        if row.kind == "group":
            group = run.results.groups.get(row.name)
            not_run = group.not_run if group is not None else ()
            broken = run.broken.keys() & below(run, row.name, {row.name}) | {*not_run}
            if broken:
                return f"not run in {run.path.name}: {some(sorted(broken))}; {ALLOW}"
    for member in (part.member for part in row.parts):
        lacking = max(_not_asked(run, member.task) for run in runs)
        if lacking:
            return f"{member.task}: {lacking} documents were not asked; {ALLOW}"
        if not member.is_rate and member.missed > MOST * (member.n + member.missed):
            where = " in both runs" if len(runs) > 1 else ""
            whole = member.n + member.missed
            return f"{member.task}: {member.missed} of {whole} documents are not scored{where}; {ALLOW}"
    return ""


def beyond_bounds(row: PairedRow, runs: Sequence[Run]) -> str:
    """Explain that a row has scores beyond declared bounds: which of the two is wrong nobody knows, so nothing is decided."""
    wanted = {(row.name, row.key), *((part.member.task, part.member.key) for part in row.parts)}
    for run, (name, key) in itertools.product(runs, sorted(wanted)):
        stored = run.results.row(name, key)
        if stored is not None and stored.estimate.unused_bounds is not None:
            return f"{name}: {stored.estimate.note}; correct the bounds, or the metric"
    return ""


def _not_asked(run: Run, task: str) -> int:
    entry = run.results.tasks.get(task)
    return 0 if entry is None else entry.not_asked


def moved(parts: Sequence[Part], scale: float = 1.0) -> tuple[float, float]:
    """How far documents not scored in both runs could move `b - scale · a` down and up: for rates, if all unknown scores were
    wrong, or all right."""
    low = high = 0.0
    for member, slope_a, slope_b in parts:
        if member.is_rate and member.missed:
            whole = member.n + member.missed
            for slope, own, sum_known, known in (
                (slope_b, member.b, member.missed_b, member.only_b),
                (-scale * slope_a, member.a, member.missed_a, member.only_a),
            ):
                if_wrong = slope * (sum_known - member.missed * own) / whole
                if_right = if_wrong + slope * (member.missed - known) / whole
                low, high = low + min(if_wrong, if_right), high + max(if_wrong, if_right)
    return low, high
