"""How many documents or repeats it takes to see a difference of a given size between two models on the same documents.

A document's score is its own mean plus chance from answer to answer. The difference of two models on one document then has the
variance of the difference of its means, and that of the answers over the number of repeats: more repeats reduce the latter only.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from assay.comparison.contrasts import PairedRow, Part, compared_members, paired_rows
from assay.comparison.pairing import PairedTask, TaskScores, pair_tasks, values
from assay.errors import ConfigError, did_you_mean
from assay.groups.group import Group, TaskT
from assay.groups.results import bottom_up, group_numbers
from assay.results import Row, TaskEntry
from assay.runs.run import Run
from assay.score_keys import ScoreKey, spellings
from assay.statistics.aggregations import Aggregation, AggregationOrFunction, known_aggregation
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.influence import Influence
from assay.statistics.intervals import LEVEL, student
from assay.statistics.noise import Noise
from assay.statistics.paired import documents_needed, effect_found, smoothed

RATE = "a rate"
WORST = 0.25
"""The variance of a rate of one half: no rate has more."""


@dataclass(frozen=True, slots=True)
class Aim:
    """The effect to detect, and how reliably. `correlation` is that of two models' scores on a document, where no run has it."""

    mde: float
    power: float = 0.8
    alpha: float = 0.05
    repeats: int = 1
    correlation: float = 0.5


@dataclass(frozen=True, slots=True)
class ScoreSpread:
    """The variance of one document's difference between two models: of its means, and of its answers with one repeat."""

    documents: float
    answers: float = 0.0

    def of(self, repeats: int) -> float:
        return self.documents + self.answers / repeats


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of a task or group: `needed` of its `documents`; with all of them `mde` is detected, and `repeats_needed`
    repeats of each suffice where that is so."""

    name: str
    metric: str
    documents: int | None
    needed: int
    mde: float | None
    repeats_needed: int | None
    spread: ScoreSpread

    @property
    def is_enough(self) -> bool | None:
        return None if self.documents is None else self.needed <= self.documents


def plan(name: str, metric: str, documents: int | None, spread: ScoreSpread, aim: Aim) -> Planned:
    """Plan one number."""
    needed = documents_needed(spread.of(aim.repeats), aim.mde, aim.power, aim.alpha)
    if documents is None or documents < 1:
        return Planned(name, metric, documents, needed, None, None, spread)
    reached = effect_found(spread.of(aim.repeats), documents, aim.power, aim.alpha)
    return Planned(name, metric, documents, needed, reached, _repeats(documents, spread, aim), spread)


def _repeats(documents: int, spread: ScoreSpread, aim: Aim) -> int | None:
    """How many repeats of all documents would do; None where no number of them does."""
    bearable = documents * (aim.mde / effect_found(1.0, 1, aim.power, aim.alpha)) ** 2
    if spread.documents + spread.answers <= bearable:
        return 1
    return math.ceil(spread.answers / (bearable - spread.documents)) if bearable > spread.documents else None


def assumed(aim: Aim) -> ScoreSpread:
    """Assume a rate of one half, and two models that agree as their correlation implies."""
    return ScoreSpread(2 * WORST * (1 - aim.correlation))


def may_be_rate(aggregation: AggregationOrFunction | None) -> bool:
    """Whether a number is the mean of scores that may be right or wrong: a perplexity is not, nor are scores with other bounds."""
    known = known_aggregation(aggregation)
    return isinstance(known, Aggregation) and known.name == "mean" and known.bounds in (None, (0.0, 1.0))


def unknown_task(name: str, keys: Iterable[ScoreKey], size: int, source: str, aim: Aim) -> TaskEntry:
    """The results of a task of which nothing is known but how many documents it has: its numbers are rates of one half."""
    variance = assumed(aim).documents / size
    rows = []
    for key in keys:
        parts = {Influence(source, range(size), None, variance): 1.0}
        number = Estimate(0.5, math.sqrt(variance), size, evidence=Evidence(parts))
        rows.append(Row(name, key.metric, key.filter, number))
    return TaskEntry(name, name, rows, documents=size, scored=size)


def planned_from_tasks(tasks: Mapping[str, TaskEntry], groups: Iterable[Group[TaskT]], aim: Aim) -> list[Planned]:
    """Plan groups and tasks without earlier runs. A group's number is computed as in a run: by size or with equal weights,
    and with errors that add up where tasks share documents. One without a number or an error is skipped."""
    ordered = bottom_up(groups)
    numbers = group_numbers(ordered, tasks)
    first = {name: next(iter(rows.values()), None) for name, rows in numbers.items()}
    spreads = {
        name: (each.n, each.stderr**2) for name, each in first.items() if each is not None and each.stderr is not None
    }
    plans = [plan(name, RATE, n, ScoreSpread(n * variance), aim) for name, (n, variance) in reversed(spreads.items())]
    return plans + [plan(name, RATE, task.scored, assumed(aim), aim) for name, task in tasks.items()]


def planned_from_runs(runs: Sequence[Run], names: Sequence[str], metric: str | None, aim: Aim) -> list[Planned]:
    """Plan the tasks and groups of a run from its spread, or from that of its differences to a second run: each by its first
    number whose spread is known.

    Documents are paired, clustered and shared between tasks as in a comparison; a single run is compared with nothing.
    """
    if metric is not None:
        known = {spelling for name in names for key in values(runs[0], name) for spelling in spellings(key)}
        if metric not in known:
            what = f"no metric named {metric!r}"
            raise ConfigError.at("--metric", what, did_you_mean(metric, known))
    both = runs[0], runs[-1]
    tasks = {task.name: task for task in pair_tasks(*both, _below(runs[0], names), [])}
    every = paired_rows(both, compared_members(list(tasks.values()), both, None, []), [])
    plans: dict[str, Planned] = {}
    for row in every:
        if row.name in names and row.name not in plans and (metric is None or metric in spellings(row.key)):
            known_spread = _spread(row, tasks, len(runs), aim)
            if known_spread is not None:
                spread, documents = known_spread
                plans[row.name] = plan(row.name, row.key.metric, documents, spread, aim)
    return [plans[name] for name in names if name in plans]


def _below(run: Run, names: Sequence[str]) -> set[str]:
    """The tasks that these names are, or are made of."""
    parts = [row.slopes or () for name in names for row in run.rows(name).values()]
    return {*names, *(task for part in parts for task, _ in part)}


def _spread(row: PairedRow, tasks: Mapping[str, PairedTask], runs: int, aim: Aim) -> tuple[ScoreSpread, int] | None:
    """The spread of a document's difference, and how many documents there are; None where it is not known."""
    contrast = row.contrast(1.0 if runs == 2 else 0.0)
    if contrast is None:
        return None
    if runs == 1:
        # right or wrong differ by half as much as one more and one less
        contrast = replace(contrast, unit=contrast.unit / 2)
    n, whole = contrast.documents, 2.0 if runs == 1 else 1.0
    answers = [_answers(part, tasks[part.member.task], runs) for part in row.parts]
    chance = sum(within / repeats for pairs in answers for within, repeats in pairs)
    between = max(0.0, smoothed(contrast)[1] ** 2 - chance) * (1.0 if runs == 2 else 2 * (1 - aim.correlation))
    return ScoreSpread(n * between, n * whole * sum(within for pairs in answers for within, _ in pairs)), n


def _answers(part: Part, task: PairedTask, runs: int) -> list[tuple[float, float]]:
    """Return by run how much the answers add to the variance of a number with one repeat, and the number of repeats."""
    weighted = [(task.scores_a, part.slope_a), (task.scores_b, part.slope_b)][:runs]
    answers = []
    for scores, slope in weighted:
        repeated = _repeated(scores, part.member.key)
        if repeated:
            within = float(np.mean([np.var(each, ddof=1) for each in repeated]))
            answers.append((slope**2 * within / part.member.n, float(np.mean([len(each) for each in repeated]))))
    return answers


def _repeated(scores: TaskScores, key: ScoreKey) -> list[list[float]]:
    """The scores of every answer, of the documents that have several."""
    repeats = [each.get(key, []) for part in scores.file.columns(["repeats"]) for each in part["repeats"]]
    return [each for each in repeats if len(each) > 1 and all(isinstance(score, int | float) for score in each)]


REPEATS = (1, 2, 4, 8)
MANY = 1e9
"""Degrees of freedom at which Student's distribution is the normal one."""


@dataclass(frozen=True, slots=True)
class NoiseRow:
    """The noise of a task's score and the half-width of its interval now; `needed` has, by repeats, the documents for the wanted
    half-width.

    `between` is the variance between documents, `within` that between answers to one document; without repeats it is part of
    `between`, and None.
    """

    name: str
    metric: str
    n: int
    half_width: float
    between: float
    within: float | None
    repeats: float
    needed: Mapping[int, int]


def noise_rows(run: Run, metrics: Mapping[str, str], half_width: float) -> list[NoiseRow]:
    """The metric of each of these tasks, by name, where its standard error is known."""
    rows = []
    for name, metric in metrics.items():
        known = [row for key, row in run.rows(name).items() if metric in spellings(key) and name in run.results.tasks]
        row = next((row for row in known if row.estimate.stderr and row.estimate.n > 1), None)
        if row is None or row.estimate.stderr is None:
            continue
        stored = row.noise
        noise = Noise(stored["within"], stored["between"], stored["repeats"]) if stored else None
        total = row.estimate.n * row.estimate.stderr**2  # of a document, with all that clusters add
        reach = student(LEVEL, MANY)
        needed = {}
        for repeats in REPEATS if noise is not None else (1,):
            own = total if noise is None else total * _share(noise, repeats)
            needed[repeats] = max(2, math.ceil(own * (reach / half_width) ** 2))
        rows.append(NoiseRow(
            name, row.metric, row.estimate.n, reach * row.estimate.stderr, total if noise is None else noise.between,
            noise.within if noise is not None else None, noise.repeats if noise is not None else 1.0, needed,
        ))  # fmt: skip
    return rows


def _share(noise: Noise, repeats: int) -> float:
    """The variance with so many repeats as a share of that with the repeats of the run."""
    now = noise.per_document(noise.repeats)
    return noise.per_document(repeats) / now if now else 1.0
