"""Differences between two runs: of one number of a task, or of a group's number."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from assay.comparison.pairing import Array, PairedTask, scoring_configs
from assay.comparison.pairing import values as values_of
from assay.errors import ConfigError
from assay.records import Floats, JSONObject
from assay.registry import Registry
from assay.runs.run import Run
from assay.score_keys import ScoreKey
from assay.scoring.declarations import Metric
from assay.scoring.metrics.registry import METRICS
from assay.statistics.aggregations import AGGREGATIONS, BOUNDS, MEANS, Aggregation, Values, over_repeats, within
from assay.statistics.influence import Influence
from assay.statistics.paired import (
    Contrast,
    PairedValues,
    Significance,
    drawn_changes,
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
