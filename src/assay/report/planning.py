"""How many documents or repeats it takes to see a difference of a given size between two models on the same documents.

A document's score is its own mean plus chance from answer to answer. The difference of two models on one document then has the
variance of the difference of its means, and that of the answers over the number of repeats: more repeats mend the latter alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from assay.aggregate.paired import documents_needed, effect_found
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.records import ScoreKey
from assay.report.contrasts import aggregation_of
from assay.report.run_scores import RunScores

WORST = 0.25
"""The variance of a rate of one half: no rate has more."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What is to be seen, and how surely. `correlation` is that of two models' scores on a document, where no run tells it."""

    mde: float
    power: float = 0.8
    alpha: float = 0.05
    repeats: int = 1
    correlation: float = 0.5


@dataclass(frozen=True, slots=True)
class Spread:
    """The variance of one document's difference between two models: of its means, and of its answers if asked once."""

    documents: float
    answers: float = 0.0

    def of(self, repeats: int) -> float:
        return self.documents + self.answers / repeats


@dataclass(frozen=True, slots=True)
class Planned:
    """What a task or group takes: `needed` of its `documents`; with all of them `mde` is found, and `repeats_needed` repeats
    of each would do where that is so."""

    name: str
    metric: str
    documents: int | None
    needed: int
    mde: float | None
    repeats_needed: int | None
    spread: Spread

    @property
    def is_enough(self) -> bool | None:
        return None if self.documents is None else self.needed <= self.documents


def plan(name: str, metric: str, documents: int | None, spread: Spread, aim: Aim) -> Planned:
    """What one number takes."""
    needed = documents_needed(spread.of(aim.repeats), aim.mde, aim.power, aim.alpha)
    if documents is None or documents < 1:
        return Planned(name, metric, documents, needed, None, None, spread)
    reached = effect_found(spread.of(aim.repeats), documents, aim.power, aim.alpha)
    return Planned(name, metric, documents, needed, reached, _repeats(documents, spread, aim), spread)


def _repeats(documents: int, spread: Spread, aim: Aim) -> int | None:
    """How many repeats of all documents would do; None where no number of them does."""
    bearable = documents * (aim.mde / effect_found(1.0, 1, aim.power, aim.alpha)) ** 2
    if spread.documents + spread.answers <= bearable:
        return 1
    return math.ceil(spread.answers / (bearable - spread.documents)) if bearable > spread.documents else None


def assumed(aim: Aim) -> Spread:
    """For a rate of which nothing is known: one half, and two models that agree as far as their correlation says."""
    return Spread(2 * WORST * (1 - aim.correlation))


def planned_from_runs(runs: Sequence[RunScores], names: Sequence[str], metric: str | None, aim: Aim) -> list[Planned]:
    """What the tasks and groups of a run take, by the spread in it, or by that of its differences to a second run."""
    if metric is not None:
        known = {
            told for name in names for key in runs[0].rows(name) for told in (key.metric, f"{key.metric},{key.filter}")
        }
        if metric not in known:
            what = f"no metric of these is called {metric!r}"
            raise ConfigError([Problem(Place("--metric"), what, did_you_mean(metric, known))])
    found = []
    for name in names:
        rows = [key for key in runs[0].rows(name) if metric in (None, key.metric, f"{key.metric},{key.filter}")]
        made = _planned(runs, name, rows[0], aim) if rows else None
        if made is not None:
            found.append(made)
    return found


def _planned(runs: Sequence[RunScores], name: str, key: ScoreKey, aim: Aim) -> Planned | None:
    if name in runs[0].tasks:
        known = _spread(runs, name, key, aim)
        return plan(name, key.metric, known[1], known[0], aim) if known is not None else None
    members = {part: (_spread(runs, *part, aim), slope) for part, slope in (runs[0].shares(name, key) or {}).items()}
    whole = [(spread, slope) for spread, slope in members.values() if spread is not None]
    if not whole or len(whole) < len(members):
        return None
    n = sum(documents for (_, documents), _ in whole)
    shares = [(spread, n * slope**2 / documents) for (spread, documents), slope in whole]
    joined = Spread(sum(s.documents * w for s, w in shares), sum(s.answers * w for s, w in shares))
    return plan(name, key.metric, n, joined, aim)


def _spread(runs: Sequence[RunScores], task: str, key: ScoreKey, aim: Aim) -> tuple[Spread, int] | None:
    """The spread of a document's difference, and how many documents there are; None where it is not known."""
    scored = [_scored(run, task, key) for run in runs]
    known = [each for each in scored if each is not None]
    if len(known) < len(scored):
        return None
    if len(known) == 1:
        between = max(0.0, known[0].variance - known[0].within / known[0].repeats)
        return Spread(2 * between * (1 - aim.correlation), 2 * known[0].within), len(known[0].influence)
    shared = sorted(known[0].influence.keys() & known[1].influence.keys())
    if len(shared) < 2:
        return None
    differences = [known[1].influence[each] - known[0].influence[each] for each in shared]
    chance = sum(each.within / each.repeats for each in known)
    between = max(0.0, _variance(differences, is_rate=all(each.is_rate for each in known), least=-1.0) - chance)
    return Spread(between, sum(each.within for each in known)), len(shared)


@dataclass(frozen=True, slots=True)
class _Scored:
    """How far each document moves a number, and the mean variance of the scores of one document's answers."""

    influence: Mapping[int, float]
    within: float
    repeats: float
    is_rate: bool

    @property
    def variance(self) -> float:
        return _variance(list(self.influence.values()), is_rate=self.is_rate)


def _variance(values: Sequence[float], *, is_rate: bool, least: float = 0.0) -> float:
    """The variance of one document's score or difference. Of rates half a document is added to either side, so that a few
    documents that score alike do not promise that all others will."""
    if not is_rate:
        return float(np.var(values, ddof=1))
    ends = (1.0, least)
    n = len(values) + 1
    mean = (sum(values) + sum(ends) / 2) / n
    return (sum((value - mean) ** 2 for value in values) + sum((end - mean) ** 2 for end in ends) / 2) / n


def _scored(run: RunScores, task: str, key: ScoreKey) -> _Scored | None:
    scores = run.scores(task)
    if scores is None or key not in scores.values:
        return None
    values = scores.values[key]
    aggregation = aggregation_of(run, task, key, values)
    present = [(document, v) for document, v in zip(scores.documents.tolist(), values, strict=True) if v is not None]
    if aggregation is None or aggregation.influence is None or len(present) < 2:
        return None
    influence = aggregation.influence([value for _, value in present])
    if len(influence) != len(present):
        return None
    several = _answers(scores, key)
    within = float(np.mean([np.var(each, ddof=1) for each in several])) if several else 0.0
    repeats = float(np.mean([len(each) for each in several])) if several else 1.0
    return _Scored(
        {document: float(moved) for (document, _), moved in zip(present, influence, strict=True)},
        within,
        repeats,
        is_rate=aggregation.name == "mean" and all(value in (0, 1) for _, value in present),
    )


def _answers(scores: Any, key: ScoreKey) -> list[list[float]]:
    """The scores of every answer, of the documents that have several."""
    name = f"{key.metric},{key.filter},repeats"
    found = [
        orjson.loads(text).get(name) or []
        for part in scores.file.columns(["scores"])
        for text in part["scores"]
        if name in text
    ]
    return [each for each in found if len(each) > 1 and all(isinstance(score, int | float) for score in each)]
