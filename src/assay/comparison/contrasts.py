"""Differences between two runs: of one number of a task, or of a group's number; and the rows of both, with their members."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from assay.comparison.pairing import Array, PairedTask, scoring_configs, shared_tasks, values
from assay.comparison.pairing import values as values_of
from assay.errors import ConfigError, did_you_mean, some
from assay.records import Floats, JSONObject, json_number, mapping
from assay.registry import Registry
from assay.results import names_below
from assay.runs.comparison import ComparedRow
from assay.runs.run import Run
from assay.score_keys import ScoreKey, spellings
from assay.scoring.declarations import Metric
from assay.scoring.metrics.registry import METRICS
from assay.statistics.aggregations import AGGREGATIONS, BOUNDS, MEANS, Aggregation, Values, over_repeats, within
from assay.statistics.influence import Influence, Spread
from assay.statistics.paired import (
    Contrast,
    PairedDifference,
    PairedValues,
    Significance,
    detectable,
    drawn_changes,
    paired_difference,
    reach,
    recomputed,
    spread_of_draws,
)
from assay.statistics.spread import draw_numbers, variance

M = TypeVar("M")
B = TypeVar("B")

ITERATIONS = 1000
"""Resamples, and exchanges, of numbers that must be computed anew."""

FIRST, OTHER = "the first run", "the other run"
UNPAIRED = "no document has a score in both runs"
ROUNDING = 1e-12
"""Documents whose differences are within this share of the scores count as equally different."""


@dataclass(frozen=True)
class ComparedTask:
    """A number of a task in both runs, on the documents that both scored; NaN where a run has none.

    `influence_a` and `influence_b` say how far each document moves it; without them `computed` is its difference, or `reason`
    why there is none. `scores_a` and `scores_b` are one number a document, where it has one. `missed` documents are in one of
    the runs and not scored in both; of rates `missed_a` and `missed_b` are what those scored that `only_a` and `only_b` count.
    `wide` is how far the numbers can be apart, and of a mean the scores, too. `is_alike`: every document scores the same in both.
    """

    task: str
    key: ScoreKey
    source: str
    documents: Any
    places: Any
    a: float
    b: float
    is_rate: bool = False
    only_a: int = 0
    only_b: int = 0
    clusters: Any = None
    influence_a: Any = None
    influence_b: Any = None
    scores_a: Any = None
    scores_b: Any = None
    computed: tuple[Contrast, Significance] | None = None
    reason: str = ""
    wide: float = math.inf
    is_mean: bool = False
    missed: int = 0
    missed_a: float = 0.0
    missed_b: float = 0.0
    is_alike: bool = False

    @property
    def n(self) -> int:
        return len(self.documents)

    @property
    def is_whole(self) -> bool:
        return not self.only_a and not self.only_b


class Part(NamedTuple):
    """A member of a number, and how far the number moves with it in either run."""

    member: ComparedTask
    slope_a: float = 1.0
    slope_b: float = 1.0


def member_of(task: PairedTask, key: ScoreKey, runs: tuple[Run, Run], clusters: Array | None) -> ComparedTask:
    """A number of a task in both runs, on the documents that both scored; as it is stored, with a reason, where that fails."""
    column_a, column_b = task.scores_a.values[key], task.scores_b.values[key]
    chosen = np.flatnonzero(column_a.present[task.places_a] & column_b.present[task.places_b])
    stored = values_of(runs[0], task.name)[key], values_of(runs[1], task.name_b)[key]
    member = ComparedTask(
        task=task.name,
        key=key,
        source=task.source,
        documents=task.documents[chosen],
        places=chosen,
        a=math.nan if stored[0] is None else stored[0],
        b=math.nan if stored[1] is None else stored[1],
        only_a=int(column_a.present.sum()) - len(chosen),
        only_b=int(column_b.present.sum()) - len(chosen),
        clusters=clusters[chosen] if clusters is not None else None,
        missed=len(column_a.present) + len(column_b.present) - len(task.places_a) - len(chosen),
    )
    aggregation = _shared_aggregation(task, key, runs)
    if isinstance(aggregation, str):
        return replace(member, reason=aggregation)
    if not len(chosen):
        return replace(member, reason=why_no_number(runs[1], task.name_b, key, OTHER) or UNPAIRED)
    a, b = column_a.at(task.places_a[chosen]), column_b.at(task.places_b[chosen])
    member = replace(
        member,
        a=float(aggregation.function(a)),
        b=float(aggregation.function(b)),
        is_rate=aggregation.name == "mean" and _is_right_or_wrong(a) and _is_right_or_wrong(b),
        is_alike=np.array_equal(a, b) if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else a == b,
    )
    member = replace(member, wide=_wide(aggregation, member, a, b), is_mean=aggregation.name in MEANS)
    if member.missed and member.is_rate:
        sums = [float(np.sum(each)) for each in (column_a.present_values, a, column_b.present_values, b)]
        member = replace(member, missed_a=sums[0] - sums[1], missed_b=sums[2] - sums[3])
    with_spread = _with_spread(member, aggregation, a, b)
    return with_spread if column_a.is_score else replace(with_spread, scores_a=None, scores_b=None)


def _shared_aggregation(task: PairedTask, key: ScoreKey, runs: tuple[Run, Run]) -> Aggregation | str:
    """How both runs make a number of the documents' scores; or why that is not known."""
    lacking = why_no_number(runs[0], task.name, key, FIRST)
    if lacking:
        return lacking
    mine, others = task.scores_a.values[key].present_values, task.scores_b.values[key].present_values
    if not len(mine):
        return "it is computed over all documents together, so no document has a score for it: look at the rows that have one"
    aggregation = aggregation_of(runs[0], task.name, key, mine)
    if aggregation is None:
        return "how its number follows from the documents' scores is not known: a function of the task computes it"
    stored = values_of(runs[1], task.name_b)[key]
    if stored is not None and len(others) and not _gives(aggregation, others, stored):
        return (
            f"the other run does not make its number of the documents' scores by {aggregation.name}, as the first does"
        )
    return aggregation


def why_no_number(run: Run, name: str, key: ScoreKey, who: str) -> str:
    """Why a task or group of a run has no finite number of a row; empty where it has one. `who` names the run."""
    number = run.rows(name)[key].estimate
    if number.value is not None and math.isfinite(number.value):
        return ""
    return f"{who} has no number" + (f": {number.reason}" if number.reason else "")


def _wide(aggregation: Aggregation, member: ComparedTask, a: Values, b: Values) -> float:
    """How far two numbers can be apart: as far as their bounds are, if all scores are within these."""
    if member.is_rate:
        return 1.0
    low, high = aggregation.bounds or BOUNDS.get(aggregation.name, (-math.inf, math.inf))
    seen = [np.asarray(each, dtype=np.float64) for each in (a, b)] if aggregation.bounds is not None else []
    return high - low if all(low <= each.min() and each.max() <= high for each in seen) else math.inf


def _is_right_or_wrong(scores: Values) -> bool:
    numbers = np.asarray(scores)
    return numbers.dtype != object and numbers.ndim == 1 and bool(((numbers == 0) | (numbers == 1)).all())


def _with_spread(member: ComparedTask, aggregation: Aggregation, a: Values, b: Values) -> ComparedTask:
    member = replace(member, scores_a=_one_number(aggregation, a), scores_b=_one_number(aggregation, b))
    draws = len(a) if member.clusters is None else len(np.unique(member.clusters))
    if draws < 2:
        return replace(
            member, reason="one document has no spread" if member.n < 2 else "all documents are of one cluster"
        )
    if not math.isfinite(member.a) or not math.isfinite(member.b):
        return replace(member, reason="it is not a finite number")
    if aggregation.influence is not None:
        both = aggregation.influence(a), aggregation.influence(b)
        if len(both[0]) == len(a) == len(both[1]):
            return replace(member, influence_a=both[0], influence_b=both[1])
    iterations = min(ITERATIONS, aggregation.bootstrap_limit or ITERATIONS)
    clusters = member.clusters.tolist() if member.clusters is not None else None
    computed = recomputed(aggregation.function, PairedValues(list(a), list(b), clusters), iterations)
    return replace(member, computed=computed, reason="" if computed else f"no spread is known for {aggregation.name}")


def aggregation_of(run: Run, task: str, key: ScoreKey, values: Values) -> Aggregation | None:
    """Return the aggregation of a number: the task's, if it reproduces the stored number."""
    stored = values_of(run, task)[key]
    entries = [each for each in _metric_entries(run.config(task)) if each.get("name", each.get("metric")) == key.metric]
    written = [str(each.get("aggregation")) for each in entries]
    declared = [_member(METRICS, str(name)) for name in (*(each.get("metric") for each in entries), key.metric)]
    names = [*written, *(str(each.aggregation) for each in declared if each is not None), "mean"]
    for name in dict.fromkeys(names):
        known = _member(AGGREGATIONS, name)
        if known is None or stored is None:
            continue
        takes = AGGREGATIONS.accepts(known).named
        for each in entries:  # parameters of metric and aggregation are written side by side
            known = known.bound({key: value for key, value in each.items() if key in takes}) if takes else known
        by_repeat = over_repeats(known, 1, list)  # of repeats, each value is a list
        for aggregation in (known, by_repeat) if not known.of_numbers else (known,):
            if isinstance(aggregation, Aggregation) and _gives(aggregation, values, stored):
                return _within(aggregation, run, task, key, [each for each in declared if each is not None])
    return None


def _within(aggregation: Aggregation, run: Run, task: str, key: ScoreKey, declared: Sequence[Metric]) -> Aggregation:
    """The aggregation with the bounds that the run notes; of a number without an interval, with those of its metric."""
    row = run.results.row(task, key)
    noted = (
        row.estimate.scale
        if row is not None and row.estimate.method
        else next((each.bounds for each in declared), None)
    )
    bounded = within(aggregation, noted)
    return bounded if isinstance(bounded, Aggregation) else aggregation


def _metric_entries(config: JSONObject) -> list[Mapping[str, Any]]:
    """The entries of a task's metric_list and of those of its filters."""
    lists = [part.get("metric_list") for part in scoring_configs(config)]
    return [
        each for entries in lists if isinstance(entries, list | tuple) for each in entries if isinstance(each, Mapping)
    ]


def _member(registry: Registry[M, B], name: str) -> M | None:
    """Return the entry of a registry; stored numbers can be compared even if their plug-in cannot be loaded."""
    try:
        return registry.get(name)
    except ConfigError:
        return None


def _gives(aggregation: Aggregation, values: Values, stored: float) -> bool:
    try:
        return math.isclose(float(aggregation.function(values)), stored, rel_tol=1e-9, abs_tol=1e-12)
    except (TypeError, ValueError, ArithmeticError, LookupError, ImportError):
        return False


def _one_number(aggregation: Aggregation, values: Values) -> "Floats | None":
    """Reduce each document's score to one number: for a pair of labels whether they agree, for a likelihood that of a unit."""
    if isinstance(values, np.ndarray) or all(isinstance(value, int | float) for value in values):
        return np.asarray(values, dtype=np.float64)
    if aggregation.by_repeat:
        return None
    if aggregation.name in ("weighted_perplexity", "bits_per_byte"):
        return np.array([-above / below if below else math.nan for above, below in values])
    if aggregation.name == "brier_score" and aggregation.influence is not None:
        return aggregation.influence(values)
    if aggregation.name in ("f1", "matthews_corrcoef"):
        return np.array([float(gold == answer) for gold, answer in values])
    return None


def contrast(parts: Sequence[Part], a: float, b: float, scale: float = 1.0) -> Contrast | None:
    """Return b minus `scale` times a, with each document's contribution; None where a member's documents are unknown."""
    if any(part.member.influence_a is None for part in parts):
        return _without_documents(parts, a, b, scale)
    drawn, owned, all_rates = [], [], all(part.member.is_rate for part in parts)
    for part in parts:
        member, slope = part.member, (part.slope_a + part.slope_b) / 2
        moved = _moved(part, scale)
        wide = _reach(part) if scale == 1.0 and member.is_mean and not all_rates else math.inf
        drawn.append(drawn_changes(moved, member.source, member.documents, member.clusters, wide))
        owned.append((moved - moved.mean() + slope * (member.b - scale * member.a)) / member.n)
    influences = _by_draw(drawn, owned)
    difference, plain = b - scale * a, variance(dict.fromkeys(drawn, 1.0))
    return Contrast(
        difference,
        influences + (difference - sum(float(own.sum()) for own in owned)) / len(influences),
        plain,
        documents=sum(part.member.n for part in parts),
        draws=len(influences),
        tasks=len(parts),
        unit=_unit(parts, drawn),
        spread=spread_of_draws(drawn, plain),
        wide=sum(map(_reach, parts)) if scale == 1.0 else math.inf,
        has_clusters=any(part.member.clusters is not None for part in parts),
    )


def _reach(part: Part) -> float:
    """How far a member can move a difference."""
    slope = abs(part.slope_a + part.slope_b) / 2
    return slope * part.member.wide if slope else 0.0


def _moved(part: Part, scale: float = 1.0) -> Floats:
    """How far each document moves a difference. Where all move it alike but for rounding, other documents change nothing."""
    a, b = (
        scale * part.slope_a * np.asarray(part.member.influence_a),
        part.slope_b * np.asarray(part.member.influence_b),
    )
    moved = b - a
    is_noise = np.ptp(moved) <= ROUNDING * max(np.abs(a).max(), np.abs(b).max())
    return np.zeros_like(moved) if is_noise else moved


def _unit(parts: Sequence[Part], drawn: Sequence[Influence]) -> float:
    """How far one draw moves a rate; 0 for other numbers."""
    if not all(part.member.is_rate for part in parts):
        return 0.0
    can = [np.full(part.member.n, abs(part.slope_a + part.slope_b) / 2 / part.member.n) for part in parts]
    does = [_moved(part) / part.member.n for part in parts]
    return reach(_by_draw(drawn, can), _by_draw(drawn, does), sum(part.member.n for part in parts))


class Reach(NamedTuple):
    """How far documents can move a difference: all of them together, and the draw that moves it furthest."""

    whole: float
    draw: float

    @classmethod
    def of(cls, parts: Sequence[Part]) -> "Reach":
        """From the bounds of the members' scores; infinite where one has none."""
        slopes = [abs(part.slope_a + part.slope_b) / 2 * _largest_change(part.member) for part in parts]
        if not math.isfinite(sum(slopes)):
            return cls(math.inf, math.inf)
        can = [np.full(part.member.n, slope / part.member.n) for part, slope in zip(parts, slopes, strict=True)]
        owners = [Influence(part.member.source, part.member.documents, own, clusters=part.member.clusters)
                  for part, own in zip(parts, can, strict=True)]  # fmt: skip
        return cls(sum(slopes), float(_by_draw(owners, can).max()))


def _largest_change(member: ComparedTask) -> float:
    """How far the score of a document can change."""
    return 1.0 if member.is_rate else member.wide


def _by_draw(drawn: Sequence[Influence], owned: Sequence[Floats]) -> Floats:
    """Sum the contributions of each document, or each cluster, of one source over all tasks that contain it."""
    by_source: dict[str, list[tuple[Influence, Any]]] = defaultdict(list)
    for draws, own in zip(drawn, owned, strict=True):
        by_source[draws.source].append((draws, own))
    sums = []
    for members in by_source.values():
        if len(members) == 1 and members[0][0].clusters is None:
            sums.append(members[0][1])
            continue
        numbers = np.concatenate(draw_numbers([draws for draws, _ in members]))
        place = np.unique(numbers, return_inverse=True)[1]
        sums.append(np.bincount(place, weights=np.concatenate([own for _, own in members])))
    return np.concatenate(sums)


def _without_documents(parts: Sequence[Part], a: float, b: float, scale: float) -> Contrast | None:
    """A difference of which only the variance is known: that of its members, at most as large as their documents allow."""
    if scale != 1.0 or any(part.member.influence_a is None and part.member.computed is None for part in parts):
        return None
    drawn: dict[Influence, float] = {}
    for member, slope_a, slope_b in parts:
        if member.computed is not None:
            known = Influence(member.source, member.documents, None, member.computed[0].variance, member.clusters)
            drawn[known] = (slope_a + slope_b) / 2
        else:
            moved = _moved(Part(member, slope_a, slope_b))
            drawn[Influence.of_mean(member.source, member.documents, moved, member.clusters)] = 1.0
    by_source: dict[str, list[Influence]] = defaultdict(list)
    for each in drawn:
        by_source[each.source].append(each)
    draws = sum(len(np.unique(np.concatenate(draw_numbers(parts_of_source)))) for parts_of_source in by_source.values())
    alone = parts[0].member.computed if len(parts) == 1 else None
    return Contrast(
        b - a,
        None,
        variance(drawn),
        sum(part.member.n for part in parts),
        draws,
        len(parts),
        wide=sum(map(_reach, parts)),
        own_test=alone[1] if alone is not None else None,
    )


Runs = tuple[Run, Run]
Known = Mapping[tuple[str, ScoreKey], ComparedTask]
"""The tasks' numbers in both runs; tasks by their names in the first run."""
SCORE_AGAIN = "how it follows from its tasks is not noted; `assay score RUN` notes it"

NO_SPREAD = {True: "no document differs", False: "all documents differ alike"}
LONE = "the other run has no such number, or no samples of it"


class RunNoise(NamedTuple):
    """The variance between whole runs of the baseline, beyond that of single answers, and how many runs it is known from."""

    variance: float
    runs: int

    @classmethod
    def of(cls, run: Run, name: str, key: ScoreKey) -> "RunNoise | None":
        """As a baseline of several runs has it."""
        row = run.results.row(name, key)
        noise = mapping(row.noise if row is not None else None)
        variance, runs = json_number(noise.get("between_runs")), int(noise.get("runs") or 0)
        return cls(variance, runs) if variance and runs > 1 else None

    def added(self, plain: Contrast, scale: float) -> Contrast:
        """The difference of another run to the mean of these: one more draw of a run, and the mean of as many."""
        more, own = (
            self.variance * (1 + scale**2 / self.runs),
            plain.spread.variance if plain.spread else plain.variance,
        )
        total = own + more
        freedom = total**2 / (own**2 / plain.freedom + more**2 / (self.runs - 1))
        return replace(plain, contributions=None, variance=plain.variance + more, spread=Spread(total, freedom, 0.0))


@dataclass(frozen=True)
class PairedRow:
    """A number of a task or group in both runs; `reason` explains why its spread is unknown.
    A lone one is in the first run alone."""

    kind: Literal["task", "group"]
    name: str
    alias: str
    key: ScoreKey
    depth: int
    better: bool | None
    a: float | None
    b: float | None
    parts: Sequence[Part] = ()
    reason: str = ""
    is_lone: bool = False
    noise: RunNoise | None = None

    @property
    def is_alike(self) -> bool:
        """Whether every document scores the same in both runs."""
        return bool(self.parts) and all(part.member.is_alike for part in self.parts)

    def contrast(self, scale: float = 1.0) -> Contrast | None:
        if self.reason or not self.parts or self.a is None or self.b is None:
            return None
        plain = contrast(self.parts, self.a, self.b, scale)
        return plain if plain is None or self.noise is None else self.noise.added(plain, scale)


def compared_members(tasks: Sequence[PairedTask], runs: Runs, cluster_by: str | None, notes: list[str]) -> Known:
    """Every number of the tasks that both runs have."""
    members: dict[tuple[str, ScoreKey], ComparedTask] = {}
    clustered = [(task, _clusters(task, cluster_by or runs[0].config(task.name).get("cluster_by"))) for task in tasks]
    if cluster_by is not None:
        _check_clusters(cluster_by, clustered, notes)
    for task, clusters in clustered:
        mine, others = values(runs[0], task.name), values(runs[1], task.name_b)
        _note_lone(task.name, mine, others, notes)
        for key in mine:
            if key in others:
                members[task.name, key] = member_of(task, key, runs, clusters)
    return members


def _clusters(task: PairedTask, column: str | None) -> Array | None:
    """The draw of each paired document; None where each is its own."""
    clusters = task.scores_a.clusters(str(column)) if column else None
    return None if clusters is None else clusters[task.places_a]


def _check_clusters(column: str, clustered: Sequence[tuple[PairedTask, Array | None]], notes: list[str]) -> None:
    without = [task.name for task, clusters in clustered if clusters is None]
    if len(without) == len(clustered):
        from orjson import loads

        docs = [loads(row.doc) for task, _ in clustered for row in task.scores_a.some([0]).values()]
        fix = did_you_mean(column, {name for doc in docs for name in doc})
        raise ConfigError.at("--cluster_by", f"no document has a column {column!r}", fix)
    if without:
        notes.append(f"no column {column!r}, so each document is its own cluster: {some(without)}")


def paired_rows(runs: Runs, known: Known, notes: list[str]) -> list[PairedRow]:
    """The shared numbers in the order of the table: groups with their members below them, then the other tasks."""
    rows: list[PairedRow] = []
    seen: set[str] = set()
    tasks = {name for name, _ in known}
    for entry, depth in runs[0].results.walk():
        name = entry.name
        if name in seen:
            continue
        seen.add(name)
        if name in tasks:
            rows += _task_rows(name, depth, runs, known)
        elif name in runs[0].groups and name in runs[1].groups:
            _note_lone(name, values(runs[0], name), values(runs[1], name), notes)
            rows += _group_rows(name, depth, runs, known)
    groups = {*runs[0].groups, *runs[1].groups}
    alone = sorted(groups - ({*runs[0].groups} & {*runs[1].groups}))
    if alone:
        notes.append(f"only one of the runs has the group {some(alone)}")
    return rows


def _note_lone(name: str, mine: Collection[ScoreKey], others: Collection[ScoreKey], notes: list[str]) -> None:
    """Note the numbers of a task or group that only one of the runs has."""
    lone = [str(key) for key in dict.fromkeys((*mine, *others)) if key not in mine or key not in others]
    if lone:
        notes.append(f"{name}: only one of the runs has {some(lone)}")


def lone_rows(run: Run, shared: Sequence[PairedRow]) -> list[PairedRow]:
    """Return the rows of the first run that the other lacks: they cannot be compared, and a gate must know."""
    known = {(row.name, row.key) for row in shared}
    rows = []
    for name, depth in {entry.name: depth for entry, depth in run.results.walk()}.items():
        kind: Literal["task", "group"] = "group" if name in run.groups else "task"
        for key, value in values(run, name).items():
            if (name, key) not in known:
                better = run.rows(name)[key].higher_is_better
                rows.append(PairedRow(kind, name, run.alias(name), key, depth, better, value, None, (), LONE, True))
    return rows


def _task_rows(name: str, depth: int, runs: Runs, known: Known) -> Iterator[PairedRow]:
    for (task, key), member in known.items():
        if task == name:
            a, b = (None if math.isnan(number) else number for number in (member.a, member.b))
            better, alias = runs[0].rows(name)[key].higher_is_better, runs[0].alias(name)
            noise = RunNoise.of(runs[0], name, key)
            yield PairedRow("task", name, alias, key, depth, better, a, b, (Part(member),), member.reason, noise=noise)


def _group_rows(name: str, depth: int, runs: Runs, known: Known) -> Iterator[PairedRow]:
    others = values(runs[1], name)
    for key, row in runs[0].rows(name).items():
        if key not in others:
            continue
        parts, a, b, reason = _group_parts(name, key, runs, known)
        noise = RunNoise.of(runs[0], name, key)
        alias, better = runs[0].alias(name), row.higher_is_better
        yield PairedRow("group", name, alias, key, depth, better, a, b, parts, reason, noise=noise)


def _group_parts(
    name: str, key: ScoreKey, runs: Runs, known: Known
) -> tuple[Sequence[Part], float | None, float | None, str]:
    """Return the members of a group's number, and its two values on the documents that both runs have."""
    a, b = values(runs[0], name)[key], values(runs[1], name)[key]
    shares = runs[0].rows(name)[key].slopes, runs[1].rows(name)[key].slopes
    lacking = why_no_number(runs[0], name, key, FIRST) or why_no_number(runs[1], name, key, OTHER)
    if lacking:
        return (), a, b, lacking
    if shares[0] is None or shares[1] is None:
        unknown = runs[0 if shares[0] is None else 1].rows(name)[key]
        return (), a, b, unknown.estimate.reason or SCORE_AGAIN
    mine = {other: name for name, other in shared_tasks(*runs).items()}
    slopes_a, slopes_b = shares[0], {(mine.get(task, task), row): slope for (task, row), slope in shares[1].items()}
    wrong = [f"{task} {row.metric}" for task, row in slopes_a.keys() ^ slopes_b.keys()]
    if wrong:
        return (), a, b, f"its members are not the same in both runs: {some(sorted(wrong))}"
    lost = [f"{task}: not compared" for task, row in slopes_a if (task, row) not in known]
    members = {share: known[share] for share in slopes_a if share in known}
    lost += [f"{member.task}: {member.reason}" for member in members.values() if member.reason]
    if lost:
        return (), a, b, some(lost)
    parts = [Part(member, slopes_a[share], slopes_b[share]) for share, member in members.items()]
    if all(part.member.is_whole for part in parts):
        return parts, a, b, ""
    shared = _on_shared_documents(parts)
    if shared is None:
        return (
            (),
            None,
            None,
            "runs with other documents: only means and sums of groups are compared on those they share",
        )
    return (
        shared,
        sum(part.slope_a * part.member.a for part in shared),
        sum(part.slope_b * part.member.b for part in shared),
        "",
    )


def _on_shared_documents(parts: Sequence[Part]) -> list[Part] | None:
    """Return the weights of members for fewer documents; None where the influences are not weights."""
    wholes = [(part.member.n + part.member.only_a, part.member.n + part.member.only_b) for part in parts]
    if _alike([(p.slope_a, p.slope_b) for p in parts]):
        return list(parts)
    of_a, of_b = sum(a for a, _ in wholes), sum(b for _, b in wholes)
    by_size = [(p.slope_a, a / of_a) for p, (a, _) in zip(parts, wholes, strict=True)]
    by_size += [(p.slope_b, b / of_b) for p, (_, b) in zip(parts, wholes, strict=True)]
    if not _alike(by_size):
        return None
    n = sum(part.member.n for part in parts)
    return [Part(part.member, part.member.n / n, part.member.n / n) for part in parts]


def _alike(pairs: Sequence[tuple[float, float]]) -> bool:
    return all(math.isclose(x, y, rel_tol=1e-9) for x, y in pairs)


def selected_rows(rows: Sequence[PairedRow], run: Run, tasks: Sequence[str], metrics: Sequence[str]) -> list[PairedRow]:
    """Select rows: tasks and groups by name or glob, with all below them; metrics by name."""
    selected = rows
    if tasks:
        names = set().union(*(below(run, pattern, {row.name for row in rows}) for pattern in tasks))
        selected = [row for row in selected if row.name in names]
    known = {name for row in rows for name in spellings(row.key)}
    for metric in metrics:
        if metric not in known:
            raise ConfigError.at("--metrics", f"no shared metric named {metric!r}", did_you_mean(metric, known))
    if metrics:
        selected = [each for each in selected if spellings(each.key) & set(metrics)]
    return list(selected)


def placed_rows(rows: Sequence[PairedRow], run: Run) -> list[PairedRow]:
    """The rows with their depth below the groups that have rows: others are not there to be indented under."""
    shown = {row.name for row in rows}
    depths: dict[str, int] = {}
    for path in run.results.paths:
        depths.setdefault(path[-1], sum(name in shown for name in path[:-1]))
    return [replace(row, depth=depths.get(row.name, row.depth)) for row in rows]


def below(run: Run, pattern: str, names: set[str]) -> set[str]:
    """Return the names that a pattern matches, and all below them."""
    tree = run.members
    matching = [name for name in {*names, *tree} if name == pattern or fnmatchcase(name, pattern)]
    if not matching:
        fix = did_you_mean(pattern, names | {*tree})
        raise ConfigError.at("--tasks", f"no shared task or group named {pattern!r}", fix)
    return {*matching, *names_below(tree, matching)}


def compared_row(row: PairedRow, run: int, level: float, power: float, *, has_same_answers: bool) -> ComparedRow:
    """Compute the row of the comparison from a paired row."""
    members = [part.member for part in row.parts]
    contrast, (wins, losses, ties) = row.contrast(), _counts(row)
    if contrast is not None:
        difference = paired_difference(contrast, level)
        reason = row.reason or (NO_SPREAD[row.is_alike] if difference.interval is None else "")
        difference = replace(difference, reason=reason)
    else:
        value = row.b - row.a if row.a is not None and row.b is not None else None
        difference = PairedDifference(value, n=sum(member.n for member in members), reason=row.reason)
    return ComparedRow(
        kind=row.kind,
        name=row.name,
        alias=row.alias,
        metric=row.key.metric,
        filter=row.key.filter,
        run=run,
        depth=row.depth,
        higher_is_better=row.better,
        a=row.a,
        b=row.b,
        difference=difference,
        wins=wins,
        losses=losses,
        ties=ties,
        mde=detectable(contrast, power, level) if contrast is not None else None,
        only_a=sum(member.only_a for member in members),
        only_b=sum(member.only_b for member in members),
        same=("answers" if has_same_answers else "scores") if row.is_alike else "",
    )


def _counts(row: PairedRow) -> tuple[int | None, int | None, int | None]:
    """How many documents the other run does better, worse and just as well; without a direction the last alone is known."""
    if not row.parts or any(part.member.scores_a is None or part.member.scores_b is None for part in row.parts):
        return None, None, None
    change = np.concatenate([part.member.scores_b - part.member.scores_a for part in row.parts])
    up, down = int((change > 0).sum()), int((change < 0).sum())
    same = len(change) - up - down
    if row.better is None:
        return None, None, same
    return (up, down, same) if row.better else (down, up, same)
