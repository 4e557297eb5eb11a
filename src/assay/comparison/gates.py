"""Gates: thresholds that people write, for a difference between runs, a number of one run or its counts, and what decides them."""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Literal

from assay.comparison.contrasts import (
    PairedRow,
    Part,
    Reach,
    aggregation_of,
    below,
    compared_members,
    lone_rows,
    paired_rows,
)
from assay.comparison.pairing import PairedTask, pair_tasks
from assay.errors import ConfigError, Place, nearest, some
from assay.records import JSONObject, json_number, mapping
from assay.results import Row, names_below
from assay.runs.comparison import GateKind, GateVerdict, Unit
from assay.runs.run import Run
from assay.score_keys import ScoreKey
from assay.statistics import paired
from assay.statistics.arrays import SIGNS
from assay.statistics.board import Board
from assay.statistics.evidence import USER_INTERVAL, Estimate, Evidence, with_evidence
from assay.statistics.influence import PERCENT, SHARE, Bounds, Spread
from assay.statistics.intervals import LEVEL, Decision, interval
from assay.statistics.paired import Contrast
from assay.statistics.sequences import without_difference
from assay.statistics.spread import MemberEstimate, smooth

_LEFT = r"\s*+(?P<metric>[^/<>=,\s]++)(?:,(?P<filter>[^<>=\s]++))?+\s*+(?P<sign>>=|<=|>|<)\s*+"
_RIGHT = (
    r"(?P<baseline>baseline\s*+(?P<plus>[+\-−])?+)?+\s*+\$?+(?P<number>[+\-−]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][+\-]?+\d++)?+)?+\s*+"
    r"(?P<unit>pp|%\s*+rel|rel|%\s*+of\s++(?:the\s++)?baseline|%|[smhdkM]|)\s*+"
)
# Nothing is read twice (`*+`): with spaces that four neighbours could share, a text of 200 characters took 0.7 s.
_WRITTEN = re.compile(_LEFT + _RIGHT)
GATE = Place("--gate")
FIX = "write it as 'acc > -0.5pp', 'mmlu/acc >= -1% rel', 'acc >= 99% of baseline' or 'word_perplexity < 0.05'"
FIX_VALUE = (
    "write it as 'acc >= 0.8', 'mmlu/acc > 75%', 'failed <= 1%', 'cost <= 5', 'time <= 10m' or 'acc >= baseline - 1pp'"
)
OF_WHAT = "write 'pp' for percentage points, or '% rel' for a share of the first run's value"
COUNTS = {
    "failed": "%",
    "truncated": "%",
    "empty": "%",
    "cost": "",
    "time": "smhd",
    "tokens": "kM",
}
"""Counts of a run that a gate may name, each with the units that its threshold may have."""
SIZES = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "k": 1_000, "M": 1_000_000}
Plain = Literal["difference", "value"]
"""The meaning of a threshold without a unit: a difference to the first run, or the number itself."""


@dataclass(frozen=True)
class Gate:
    """A condition for the top-level rows, or for the rows that a name selects: about a metric's difference to a baseline, its
    value, or a count of the run."""

    written: str
    name: str | None
    metric: str
    filter: str | None
    sign: str
    threshold: float
    unit: Unit
    kind: GateKind = "difference"

    @property
    def relative(self) -> bool:
        """Whether it is a share of the first run's value."""
        return self.unit in ("% rel", "% of baseline")

    @property
    def wants_more(self) -> bool:
        return self.sign.startswith(">")

    def lets(self, value: float) -> bool:
        """Whether a value is on the right side."""
        return SIGNS[self.sign](value, self.threshold)

    def on(self, scale: Bounds | None) -> "Gate":
        """The gate for a number of this scale: of one from 0 to 100, 25 % is 25."""
        return replace(self, threshold=self.threshold * 100, unit="") if self.unit == "%" and scale == PERCENT else self


def parse_gate(written: str, place: Place = GATE, fix: str = FIX, plain: Plain = "difference") -> Gate:
    """A gate from `[NAME/]METRIC[,FILTER] > THRESHOLD`, where the threshold is a number with or without a unit,
    `baseline - NUMBER`, or `99% of baseline`.

    >>> gate = parse_gate("mmlu/acc > -0.5pp")
    >>> gate.name, gate.metric, gate.sign, gate.threshold, gate.relative
    ('mmlu', 'acc', '>', -0.005, False)
    >>> parse_gate("acc >= 99% of baseline").threshold, parse_gate("acc > 75%", plain="value").threshold
    (-0.010000000000000009, 0.75)
    """
    gate = _read_gate(written, place, fix, plain)
    if not math.isfinite(gate.threshold):
        raise ConfigError.at(place, f"{written!r}: the threshold must be a finite number", fix)
    return gate


def _read_gate(written: str, place: Place, fix: str, plain: Plain) -> Gate:
    name, slash, condition = written.rpartition("/")
    match = _WRITTEN.fullmatch(condition) if name.strip() or not slash else None
    if match is None or not (match["number"] or (match["baseline"] and not match["plus"])):
        raise ConfigError.at(place, f"invalid gate {written!r:.200}", fix)
    number = float((match["number"] or "0").replace("−", "-"))
    unit = re.sub(r"\s+", " ", match["unit"]).replace("% rel", "%rel")
    gate = Gate(written.strip(), name.strip() or None, match["metric"], match["filter"], match["sign"], number, "")
    if plain == "value" and gate.metric in COUNTS and gate.filter is None:
        return _count(gate, unit, is_relative=bool(match["baseline"]) or len(unit) > 1, place=place)
    if unit in SIZES:
        what = f"{written!r}: {gate.metric!r} does not have the unit {unit!r}"
        raise ConfigError.at(place, what, fix)
    if match["baseline"]:
        if match["number"] and (not match["plus"] or match["number"][0] in "+-−"):
            raise ConfigError.at(place, f"invalid gate {written!r}", "write 'acc >= baseline - 1pp'")
        number = -number if match["plus"] in ("-", "−") else number
        if "of" in unit or unit == "%":
            raise ConfigError.at(place, f"{written!r} does not say of what it is a percentage", OF_WHAT)
    if "of" in unit:
        return replace(gate, threshold=number / 100 - 1, unit="% of baseline")
    if unit in ("pp", "%rel", "rel") or match["baseline"] or plain == "difference":
        if unit == "%":
            raise ConfigError.at(place, f"{written!r} does not say of what it is a percentage", OF_WHAT)
        share = number / 100 if unit in ("pp", "%rel") else number
        return replace(gate, threshold=share, unit="% rel" if unit.endswith("rel") else "pp" if unit == "pp" else "")
    return replace(gate, threshold=number / 100 if unit == "%" else number, unit="%" if unit else "", kind="value")


def _count(gate: Gate, unit: str, *, is_relative: bool, place: Place) -> Gate:
    """A gate about a count of the run: documents or a share of them, money, seconds, tokens."""
    known = COUNTS[gate.metric]
    if is_relative or unit not in ("", *known):
        units = f"a number, or one with {' or '.join(known)}" if known else "a number without a unit"
        raise ConfigError.at(place, f"{gate.written!r}: the threshold of {gate.metric!r} is {units}", FIX_VALUE)
    if "%" in known and not unit and gate.threshold % 1:
        what = f"{gate.written!r}: {gate.metric!r} is a number of documents"
        raise ConfigError.at(place, what, f"write '{gate.threshold * 100:g}%' for a share of them")
    if unit == "%":
        return replace(gate, threshold=gate.threshold / 100, unit="%", kind="count")
    return replace(gate, threshold=gate.threshold * SIZES.get(unit, 1), kind="count")


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """The nearest name, and all that there are.

    >>> suggestion("accc", ["acc", "f1"])
    "did you mean 'acc'? There are: acc, f1"
    """
    names = sorted(set(known))
    near = nearest(wrong, names, count=1)
    listed = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return (f"did you mean {near[0]!r}? " if near else "") + (f"There are: {listed}" if names else "there is none")


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
    if paired.interval(contrast, 0.9) is None:
        return replace(measured, reason="all documents differ alike")

    def ends(alpha: float) -> Ends:
        low, high = paired.interval(contrast, 1 - 2 * alpha) or (math.nan, math.nan)
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
    return [_measured_value(gate.on(numbers.stored(row).estimate.scale), row, numbers) for row in chosen]


def _measured_value(gate: Gate, row: PairedRow, numbers: RunNumbers) -> Measured:
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
