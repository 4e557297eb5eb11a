"""Paired comparisons against the truth: how often tests reject runs that are equally good, how often intervals hold the difference.

The grid: a task right or wrong on n documents of which a share is right for one run alone (`discordance`), with a true difference
of 0 or half of that; scores that are not rates; documents in clusters that win or lose together, five in each or ten clusters in
all; groups of five tasks with n to 2 n documents, by size and each alike; groups of two tasks over the same documents. A test
can reject only where enough documents differ: cells with fewer than 10 expected are not counted for its size (there it rejects
more rarely), and with fewer than 3 not for coverage (there intervals hold too often).
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np

from assay.comparison.contrasts import ComparedTask, Part, contrast
from assay.score_keys import ScoreKey
from assay.statistics.paired import Contrast, interval, mcnemar, significance
from bench import coverage
from bench.measure import Said

DATA_SETS = {"rate": 2000, "rate in clusters": 2000, "score": 1000, "score in clusters": 1000}
OF_GROUPS = 1000
SIZE, COVERAGE = (0.04, 0.06), (0.94, 0.96)
KINDS = ("rate", "score", "rate in clusters", "score in clusters", "rate in ten clusters", "score in ten clusters",
         "group by size", "group of equals", "group on shared documents")  # fmt: skip
OF_CLUSTER = 5
KEY = ScoreKey("acc", "none")


@dataclass(frozen=True, slots=True)
class Cell:
    """A point of the grid; `effect` is the true difference, of rates as a share of the discordance."""

    kind: str
    n: int
    p: float
    discordance: float
    effect: float

    def __str__(self) -> str:
        return f"{self.kind}, n = {self.n}, p = {self.p}, discordance {self.discordance}, effect {self.effect}"

    @property
    def truth(self) -> float:
        return self.effect * (0.3 if self.kind.startswith("score") else self.discordance)

    @property
    def differing(self) -> float:
        items = self.kind.startswith("group") and not self.kind.endswith("documents")
        return (7.5 * self.n if items else float(self.n)) / self.of_cluster * self.discordance

    @property
    def of_cluster(self) -> int:
        """How many documents are one draw."""
        return self.n // 10 if "ten clusters" in self.kind else OF_CLUSTER if "clusters" in self.kind else 1


@dataclass(frozen=True, slots=True)
class CoverageMeasurement:
    """How often intervals held the truth, one-sided bounds at either end did, and tests rejected at 5 %."""

    cell: Cell
    coverage: float
    above: float
    below: float
    rejected: float
    rejected_exactly: float


def cells() -> list[Cell]:
    """The declared grid."""
    rates = [
        Cell(kind, *place)
        for kind in ("rate", "group by size", "group of equals", "group on shared documents")
        for place in itertools.product((50, 100, 300, 1000), (0.5, 0.85), (0.05, 0.1, 0.2), (0.0, 0.5))
        if place[0] < 1000 or kind == "rate"
    ]
    scores = [Cell("score", n, 0.5, 1.0, effect) for n in (50, 100, 300) for effect in (0.0, 0.5)]
    clusters = [
        Cell(kind, n, 0.5, 0.3 if kind.startswith("rate") else 1.0, effect)
        for kind in ("rate in clusters", "score in clusters")
        for n in (150, 300, 1000)
        for effect in (0.0, 0.5)
    ]
    few = [
        Cell(kind, n, 0.5, 0.3 if kind.startswith("rate") else 1.0, effect)
        for kind in ("rate in ten clusters", "score in ten clusters")
        for n in (100, 300)
        for effect in (0.0, 0.5)
    ]
    return [*rates, *scores, *clusters, *few]


def rows() -> Iterator[Said]:
    """A line per kind for the size of its test, one for its intervals; then the means over all."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        every = list(pool.map(measured, cells()))
    for kind in KINDS:
        yield from lines(kind, [result for result in every if result.cell.kind == kind])
    yield from lines("all", every)
    yield from coverage.cluster_rows(int(os.environ.get("SETS", "1000")), paired=True)
    exact = [
        result.rejected_exactly for result in every if result.cell.kind == "rate" and _counts_for_size(result.cell)
    ]
    yield Said("size of McNemar's exact test without mid-p", _spread(exact), "why it is not used")


def lines(name: str, items: Sequence[CoverageMeasurement]) -> Iterator[Said]:
    sizes = [result.rejected for result in items if _counts_for_size(result.cell)]
    held = [result.coverage for result in items if result.cell.differing >= 3]
    bounds = [share for result in items if result.cell.differing >= 3 for share in (result.above, result.below)]
    yield Said(f"{name}: size of the test at 5 %", _spread(sizes), f"mean {SIZE[0]:.0%} to {SIZE[1]:.0%}")
    yield Said(f"{name}: coverage of 95 % intervals", _spread(held), f"mean {COVERAGE[0]:.0%} to {COVERAGE[1]:.0%}")
    yield Said(
        f"{name}: coverage of one-sided 95 % bounds", _spread(bounds), f"mean {COVERAGE[0]:.0%} to {COVERAGE[1]:.0%}"
    )


def _counts_for_size(cell: Cell) -> bool:
    return not cell.effect and cell.differing >= 10


def _spread(shares: Sequence[float]) -> str:
    if not shares:
        return "–"
    return f"{np.mean(shares):.3f} ({min(shares):.3f} to {max(shares):.3f} in {len(shares)} cells)"


def measured(cell: Cell, data_sets: int | None = None) -> CoverageMeasurement:
    """What a cell shows, by the code that compares runs."""
    random = np.random.default_rng(
        [cell.n, round(cell.p * 100), round(cell.discordance * 100), round(cell.effect * 10)]
    )
    data_sets = data_sets or DATA_SETS.get(cell.kind, OF_GROUPS)
    held = above = below = rejected = exactly = 0
    for _ in range(data_sets):
        parts = data_set(cell, random)
        contrasted = contrast(
            parts, sum(p.slope_a * p.member.a for p in parts), sum(p.slope_b * p.member.b for p in parts)
        )
        assert contrasted is not None, "influence values are given"
        both, one_sided = interval(contrasted, 0.95), interval(contrasted, 0.90)
        if both is not None and one_sided is not None:
            held += both[0] <= cell.truth <= both[1]
            above, below = above + (cell.truth <= one_sided[1]), below + (one_sided[0] <= cell.truth)
        if not cell.effect:
            rejected += significance(contrasted).p <= 0.05
            exactly += cell.kind == "rate" and _exact(contrasted) <= 0.05
    shares = [count / data_sets for count in (held, above, below, rejected, exactly)]
    return CoverageMeasurement(cell, *shares)


def _exact(contrasted: Contrast) -> float:
    """McNemar's p without mid-p: what is counted by half there is counted whole."""
    from math import comb

    changes = np.round(np.asarray(contrasted.contributions) * contrasted.documents)
    plus, minus = int((changes > 0).sum()), int((changes < 0).sum())
    n, few = plus + minus, min(plus, minus)
    return 1.0 if plus == minus else min(1.0, mcnemar(plus, minus) + comb(n, few) / 2**n)


def data_set(cell: Cell, random: np.random.Generator) -> list[Part]:
    """Both runs' scores on new documents."""
    if not cell.kind.startswith("group"):
        return [Part(_member(cell, "t", cell.n, random))]
    if cell.kind.endswith("documents"):
        return _twice(cell, random)
    sizes = [round(cell.n * (1 + step / 4)) for step in range(5)]
    slopes = [size / sum(sizes) for size in sizes] if cell.kind.endswith("size") else [0.2] * 5
    return [
        Part(_member(cell, f"t{k}", n, random), slope, slope)
        for k, (n, slope) in enumerate(zip(sizes, slopes, strict=True))
    ]


def _twice(cell: Cell, random: np.random.Generator) -> list[Part]:
    """Two tasks on the same documents: where one differs, the other does in four of five cases, and the same way."""
    one = _member(cell, "t", cell.n, random)
    a, b = _rates(cell, cell.n, random, None)
    same = random.random(cell.n) < 0.8
    a, b = np.where(same, one.influence_a, a), np.where(same, one.influence_b, b)
    other = replace(one, task="u", a=float(a.mean()), b=float(b.mean()), influence_a=a, influence_b=b)
    return [Part(one, 0.5, 0.5), Part(other, 0.5, 0.5)]


def _member(cell: Cell, name: str, n: int, random: np.random.Generator) -> ComparedTask:
    clusters = np.arange(n) // cell.of_cluster if cell.of_cluster > 1 else None
    if cell.kind.startswith("score"):
        a, b = _scores(cell, n, random)
    else:
        a, b = _rates(cell, n, random, clusters)
    return ComparedTask(name, KEY, name, np.arange(n), np.arange(n), float(a.mean()), float(b.mean()),
                  not cell.kind.startswith("score"), 0, 0, clusters, a, b)  # fmt: skip


def _rates(
    cell: Cell, n: int, random: np.random.Generator, clusters: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Right or wrong: the same for both runs, but for the discordant documents. Clusters win or lose together."""
    a = (random.random(n) < cell.p).astype(float)
    differs = random.random(n) < cell.discordance
    chance = random.random(n) if clusters is None else random.random(int(clusters.max()) + 1)[clusters]
    wins = chance < (1 + cell.effect) / 2
    return np.where(differs, ~wins, a).astype(float), np.where(differs, wins, a).astype(float)


def _scores(cell: Cell, n: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores of either run around that of the document, with long tails; in clusters they move together."""
    common = random.normal(0, 1, n)
    one, other = random.exponential(1, n), random.exponential(1, n)
    if "clusters" in cell.kind:
        shifts = random.normal(0, 1, -(-n // cell.of_cluster))
        other = other + shifts[np.arange(n) // cell.of_cluster]
    return common + one, common + other + cell.truth
