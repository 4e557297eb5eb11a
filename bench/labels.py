"""Judges corrected by labels, against the truth: how often intervals hold it, how wide they are, and a ranking put right.

The grid: 2,000 documents with a judge's score each, of which 50, 100 or 300 have a label; labels with a mean of .05 to .95 of the
scale; a judge that is up to 20 points too mild or too strict. Labels and verdicts are right or wrong (a good judge, a fair one, one
that is of no use), on a scale from 1 to 5, or any number between 0 and 1.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from assay.statistics import intervals
from assay.statistics.labels import corrected
from bench.measure import Said

DATA_SETS = int(os.environ.get("LABELS_DATA_SETS", "10000"))
DOCUMENTS = 2000
JUDGES = {"good verdicts": 0.9, "fair verdicts": 0.5, "useless verdicts": 0.0}
"""Of right and wrong: how much of the agreement that is possible beyond chance the judge has."""
WHOLE = ("good verdicts", "fair verdicts")
"""Kinds with every truth and bias; the others have every second one."""
TEXTBOOK = 1250
"""The published interval is computed for about so many data sets that differ, of each cell."""
KINDS = (*JUDGES, "scale 1 to 5", "0 to 1")
LABELS, TRUTHS, BIASES = (50, 100, 300), (0.05, 0.2, 0.5, 0.8, 0.95), (-0.2, -0.1, 0.0, 0.1, 0.2)


@dataclass(frozen=True, slots=True)
class Cell:
    """A point of the grid."""

    kind: str
    labels: int
    truth: float
    bias: float

    def __str__(self) -> str:
        return f"{self.kind}, {self.labels} labels, truth {self.truth}, bias {self.bias:+}"


class Measurement(NamedTuple):
    """How often the interval held the truth, of the textbook too; its mean width over that of labels alone; ends off the scale."""

    cell: Cell
    coverage: float
    textbook: float
    wider: float
    outside: int


def cells() -> list[Cell]:
    """The declared grid."""
    every = [Cell(*place) for place in itertools.product(KINDS, LABELS, TRUTHS, BIASES)]
    return [cell for cell in every if cell.kind in WHOLE or (cell.truth in TRUTHS[::2] and cell.bias in BIASES[::2])]


def rows() -> Iterator[Said]:
    """A line per number of labels and kind; then the mean of all, the worst cells, and the ranking."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        every = list(pool.map(measured, cells()))
    for labels, kind in itertools.product(LABELS, KINDS):
        own = [each for each in every if each.cell.labels == labels and each.cell.kind == kind]
        shown = f"{_range([each.coverage for each in own])}; textbook {_range([each.textbook for each in own])}"
        yield Said(f"{labels} labels, {kind}: coverage of 95 % intervals", shown, "every cell 92 % or more")
    whole = np.mean([each.coverage for each in every])
    yield Said("mean coverage", f"{whole:.1%} of {len(every)} cells, {DATA_SETS:,} data sets each", "94 to 97.5 %")
    worst = min(every, key=lambda each: each.coverage)
    yield Said("least coverage", f"{worst.coverage:.1%} ({worst.cell})", "92 % or more")
    widest = max(every, key=lambda each: each.wider)
    width = f"{_range([each.wider for each in every])}; the most: {widest.cell}"
    yield Said("mean width over that of labels alone", width, "never above 1.05")
    yield Said("intervals that leave the scale", str(sum(each.outside for each in every)), "none")
    yield ranking()


def _range(shares: Sequence[float]) -> str:
    return f"{np.mean(shares):.3f} ({min(shares):.3f} to {max(shares):.3f})"


def measured(cell: Cell, data_sets: int = DATA_SETS) -> Measurement:
    """What a cell shows, by the code that corrects judges; data sets of right and wrong that are alike are computed once."""
    if not hasattr(intervals.mid_p, "cache_info"):
        intervals.mid_p = lru_cache(100_000)(intervals.mid_p)
    random = np.random.default_rng(
        [KINDS.index(cell.kind), cell.labels, round(cell.truth * 100), round(cell.bias * 100) + 50]
    )
    held = textbook = outside = published = 0
    width = alone = 0.0
    for verdicts, labels, times, is_published in data(cell, data_sets, random):
        number = corrected(verdicts, labels)
        assert number.low is not None and number.high is not None, "every data set has an interval"
        held += times * (number.low <= cell.truth <= number.high)
        outside += times * (number.low < 0 or number.high > 1)
        width += times * (number.high - number.low)
        own = intervals_of_labels(labels)
        alone += times * (own[1] - own[0])
        if is_published:
            low, high = textbook_interval(verdicts, labels)
            textbook, published = textbook + times * bool(low <= cell.truth <= high), published + times
    return Measurement(cell, held / data_sets, textbook / published, width / alone, outside)


def intervals_of_labels(labels: np.ndarray) -> tuple[float, float]:
    from assay.statistics import estimate

    number = estimate(labels[~np.isnan(labels)], bounds=(0.0, 1.0))
    assert number.low is not None and number.high is not None, "there are labels"
    return number.low, number.high


def textbook_interval(verdicts: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """PPI++ as it is published: the normal interval, with a λ between 0 and 1."""
    has = ~np.isnan(labels)
    y, f, rest = labels[has], verdicts[has], verdicts[~has]
    n, more = len(y), len(rest)
    spread = np.var(verdicts, ddof=1)
    tuning = float(np.clip(np.cov(y, f, ddof=0)[0, 1] / ((1 + n / more) * spread), 0, 1)) if spread else 0.0
    value = tuning * rest.mean() + (y - tuning * f).mean()
    half = 1.96 * np.sqrt(tuning**2 * np.var(rest) / more + np.var(y - tuning * f) / n)
    return value - half, value + half


def data(cell: Cell, data_sets: int, random: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray, int, bool]]:
    """Verdicts on all documents, labels on the first of them, how many data sets are the same, and whether the published interval
    is computed for it."""
    if cell.kind not in JUDGES:
        for number in range(data_sets):
            yield *_scores(cell, random), 1, number < TEXTBOOK
        return
    judge = min(max(cell.truth + cell.bias, 0.0), 1.0)
    both = cell.truth * judge + JUDGES[cell.kind] * (min(cell.truth, judge) - cell.truth * judge)
    chances = np.clip([both, judge - both, cell.truth - both, 1 - cell.truth - judge + both], 0, 1)
    tables = random.multinomial(cell.labels, chances / chances.sum(), data_sets)
    others = random.binomial(DOCUMENTS - cell.labels, judge, data_sets)
    different, counts = np.unique(np.column_stack([tables, others]), axis=0, return_counts=True)
    step = max(1, len(different) // TEXTBOOK)
    for number, (table, times) in enumerate(zip(different, counts, strict=True)):
        verdicts, labels = np.zeros(DOCUMENTS), np.full(DOCUMENTS, np.nan)
        verdicts[: cell.labels] = np.repeat([1, 1, 0, 0], table[:4])
        labels[: cell.labels] = np.repeat([1, 0, 1, 0], table[:4])
        verdicts[cell.labels : cell.labels + table[4]] = 1
        yield verdicts, labels, int(times), number % step == 0


def _scores(cell: Cell, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """People's scores have the mean of the cell exactly; the judge's are off by the bias and by chance, within the scale."""
    steps = 4 if cell.kind == "scale 1 to 5" else 0
    people = random.beta(4 * cell.truth, 4 * (1 - cell.truth), DOCUMENTS)
    people = random.binomial(steps, people) / steps if steps else people
    judge = np.clip(people + cell.bias + random.normal(0, 0.15, DOCUMENTS), 0, 1)
    judge = np.rint(judge * steps) / steps if steps else judge
    return judge, np.where(np.arange(DOCUMENTS) < cell.labels, people, np.nan)


MODELS = {"plain": (0.70, 0.00), "wordy": (0.62, 0.16), "terse": (0.76, -0.10)}
"""By model the share of answers that people like, and how much the judge adds because of their length."""


def ranking(labels: int = 300) -> Said:
    """A judge that likes long answers ranks the worst model first; labels put that right."""
    random = np.random.default_rng(7)
    raw, right = {}, {}
    for name, (share, bias) in MODELS.items():
        people = random.random(DOCUMENTS) < share
        flipped = random.random(DOCUMENTS) < abs(bias) / (1 - share if bias > 0 else share)
        judge = np.where(flipped, bias > 0, people).astype(float)
        chosen = np.isin(np.arange(DOCUMENTS), random.choice(DOCUMENTS, labels, replace=False))
        number = corrected(judge, np.where(chosen, people, np.nan))
        raw[name], right[name] = float(judge.mean()), float(number)
    before, after = (" > ".join(f"{each} {values[each]:.2f}" for each in sorted(values, key=values.__getitem__, reverse=True))
                     for values in (raw, right))  # fmt: skip
    true = " > ".join(sorted(MODELS, key=lambda each: MODELS[each][0], reverse=True))
    return Said(f"ranking by the judge, and by {labels} labels each", f"{before}; corrected: {after}", true)
