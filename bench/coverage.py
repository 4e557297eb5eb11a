"""How often intervals hold the truth, in worlds that are hard for them: `assay.statistics` and the formulas of version 0.1.

Bounded scores near their bounds, groups with small members, few clusters of unequal size, skewed scores. Every number comes from
the functions that a run uses; the same data are given to the formulas of 0.1, computed for all data sets at once.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from math import comb
from multiprocessing import get_context
from typing import Any

import numpy as np

from assay.statistics import Estimate, combine, compare, estimate
from assay.statistics.intervals import student
from bench.measure import Said

Array = Any
SIZES = (20, 50, 200)
Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of a cell: how often the interval held the truth, its mean width over that of the reference, and both by 0.1."""

    name: str
    held: float
    wider: float
    before: float
    at_edge: bool = False
    may_hold_always: bool = False


def summary(what: str, cells: Sequence[Coverage], expected: str) -> Said:
    held = [cell.held for cell in cells]
    worst = min(cells, key=lambda cell: cell.held)
    wide = [cell for cell in cells if not math.isnan(cell.wider)]
    said = f"mean {np.mean(held):.1%}, least {worst.held:.1%} ({worst.name}), most {max(held):.1%}; {len(cells)} cells"
    above = sum(cell.held > 0.99 and not cell.may_hold_always for cell in cells)
    if wide:
        most = max(wide, key=lambda cell: cell.wider)
        said += f"; widest {most.wider:.2f}× ({most.name})"
    before = [cell.before for cell in cells]
    earlier = f"0.1: mean {np.mean(before):.1%}, least {min(before):.1%}" if not math.isnan(before[0]) else "–"
    return Said(what, said + (f"; {above} above 99 %" if above else ""), expected, earlier)


# --- bounded scores: repeats and what is made of them, zero-inflated scores ------------------------------------------


def _by_right(kind: str) -> tuple[int, Array]:
    """Of a kind of score, the number of answers, and the score of a document by how many of them are right."""
    answers = 4 if kind == "mean of 4" else 8
    right = range(answers + 1)
    if kind.startswith("mean"):
        return answers, np.array([each / answers for each in right])
    k = int(kind[-1])
    ways = comb(answers, k)
    if kind.startswith("pass@"):
        return answers, np.array([1 - comb(answers - each, k) / ways for each in right])
    if kind.startswith("pass^"):
        return answers, np.array([comb(each, k) / ways for each in right])
    most = range(k // 2 + 1, k + 1)
    return answers, np.array([sum(comb(c, j) * comb(answers - c, k - j) for j in most) / ways for c in right])


KINDS = ("mean of 4", "mean of 8", "pass@2", "pass@4", "pass^2", "pass^4", "maj@5")
HARDNESS = {"all alike": None, "somewhat different": 4.0, "easy or hard": 0.6}
"""How documents differ: the sum of the parameters of the beta distribution of their chances."""


def bounded_cells() -> Iterator[tuple[str, Callable[[np.random.Generator, int, int], Array], float]]:
    """By cell its name, a function that draws data sets, and the true mean."""
    for hardness, total in HARDNESS.items():
        for p in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98):
            for kind in KINDS:
                answers, scores = _by_right(kind)
                chances = _chances(answers, p, total)
                truth = float(chances @ scores)
                if 0.006 <= truth <= 0.994:
                    yield f"{kind}, {hardness}, true {truth:.3f}", _drawing(scores, chances), truth
    for share in (0.05, 0.2, 0.5):
        yield f"0 but for {share:.0%}", _inflated(share, upside_down=False), share / 2
        yield f"1 but for {share:.0%}", _inflated(share, upside_down=True), 1 - share / 2


def _chances(answers: int, p: float, total: float | None) -> Array:
    """How likely each number of right answers is: binomial, or beta-binomial."""
    if total is None:
        return np.array([comb(answers, k) * p**k * (1 - p) ** (answers - k) for k in range(answers + 1)])
    a, b = p * total, (1 - p) * total

    def beta(x: float, y: float) -> float:
        return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)

    return np.array(
        [comb(answers, k) * math.exp(beta(k + a, answers - k + b) - beta(a, b)) for k in range(answers + 1)]
    )


def _drawing(scores: Array, chances: Array) -> Callable[[np.random.Generator, int, int], Array]:
    return lambda random, sets, n: scores[random.choice(len(scores), p=chances / chances.sum(), size=(sets, n))]


def _inflated(share: float, *, upside_down: bool) -> Callable[[np.random.Generator, int, int], Array]:
    def draw(random: np.random.Generator, sets: int, n: int) -> Array:
        drawn = (random.random((sets, n)) < share) * random.random((sets, n))
        return 1 - drawn if upside_down else drawn

    return draw


def bounded_coverage(sets: int, number: int) -> Iterator[Coverage]:
    """Of the cell of that number, for every size."""
    random = np.random.default_rng([20, number])
    name, draw, truth = list(bounded_cells())[number]
    for n in SIZES:
        data = draw(random, sets, n)
        numbers = [estimate(row, bounds=(0, 1)) for row in data]
        ends = np.array([(each.low, each.high) for each in numbers])
        inside = (ends >= 0).all() and (ends <= 1).all()
        assert inside, f"{name}: an interval leaves its bounds"
        middle = float(((data > 0) & (data < 1)).mean()) * n
        yield Coverage(
            f"{name}, n {n}",
            _held(ends, truth),
            float(np.ptp(ends, axis=1).mean() / _known_width(data, truth)),
            _held(_student(data), truth),
            at_edge=min(truth, 1 - truth) * n < 5,
            may_hold_always=middle < 2,
        )


def _held(ends: Array, truth: float) -> float:
    return float(((ends[:, 0] <= truth + 1e-12) & (truth - 1e-12 <= ends[:, 1])).mean())


def _student(data: Array) -> Array:
    """Student's, and Wilson's where all scores are 0 or 1, as 0.1 had it."""
    n, means = data.shape[1], data.mean(axis=1)
    half = student(0.95, n - 1) * data.std(axis=1, ddof=1) / math.sqrt(n)
    plain = np.stack([means - half, means + half], axis=1)
    only = ((data == 0) | (data == 1)).all(axis=1)
    weight = np.where(half > 0, n - 1.0, float(n))
    return np.where(only[:, None], wilson(means, weight), plain)


def wilson(p: Array, n: Array) -> Array:
    centre = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * np.sqrt(np.maximum(p * (1 - p) / n + Z * Z / (4 * n * n), 0))
    return np.stack([centre - half, centre + half], axis=1)


def _known_width(data: Array, truth: float) -> float:
    """The mean width of Wilson's interval if the spread of the world were known."""
    weight = data.shape[1] * truth * (1 - truth) / float(data.var())
    return float(np.ptp(wilson(data.mean(axis=1), np.full(len(data), weight)), axis=1).mean())


# --- groups ----------------------------------------------------------------------------------------------------------

GROUPS: Mapping[str, tuple[Sequence[int], Sequence[float]]] = {
    "10 and 1,000 documents, .1 and .9": ([10, 1000], [0.1, 0.9]),
    "10 and 1,000, .9 and .1": ([10, 1000], [0.9, 0.1]),
    "10 and 1,000, .5 and .8": ([10, 1000], [0.5, 0.8]),
    "20 and 500, .98 and .5": ([20, 500], [0.98, 0.5]),
    "20 and 500, .02 and .9": ([20, 500], [0.02, 0.9]),
    "5 × 30, .95": ([30] * 5, [0.95] * 5),
    "5 × 30, .5": ([30] * 5, [0.5] * 5),
    "20 × 50, .98": ([50] * 20, [0.98] * 20),
    "57 × 100, .2 to .9": ([100] * 57, np.linspace(0.2, 0.9, 57).tolist()),
}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "unweighted mean": {"how": "mean", "by_size": False},
    "difference": {"how": "difference"},
    "weighted sum": {"how": "weighted_sum"},
    "median": {"how": "median"},
    "harmonic mean": {"how": "harmonic", "by_size": False},
    "geometric mean": {"how": "geometric", "by_size": False},
}


@cache
def _rate(right: int, n: int) -> Estimate:
    return estimate((np.arange(n) < right).astype(float))


def groups_of(way: str) -> list[str]:
    is_bent = way in ("harmonic mean", "geometric mean")
    least, most = (2, 2) if way == "difference" else (57 if is_bent else 0, 1000)
    return [name for name, (sizes, _) in GROUPS.items() if least <= len(sizes) <= most]


def group_coverage(way: str, sets: int, name: str) -> Iterator[Coverage]:
    sizes, rates = GROUPS[name]
    random, p = np.random.default_rng([len(name), len(sizes)]), np.array(rates)
    weights = 0.5 + random.random(len(sizes))
    right = random.binomial(sizes, p, size=(sets, len(sizes)))
    options = {**WAYS[way], **({"weights": weights.tolist()} if way == "weighted sum" else {})}
    truth = _true_number(way, p, weights)
    numbers = [combine([_rate(int(k), n) for k, n in zip(row, sizes, strict=True)], **options) for row in right]
    known = np.array([each.low is not None for each in numbers])
    ends = np.array([(each.low, each.high) for each in numbers if each.low is not None], dtype=float)
    before = _group_of_0_1(way, right / np.array(sizes), np.array(sizes), weights)
    now_right = 0.94 <= _held(before, truth) <= 0.965 if before is not None else False
    wider = float(np.ptp(ends, axis=1).mean() / np.ptp(before[known], axis=1).mean()) if now_right else math.nan
    yield Coverage(
        name, _held(ends, truth), wider, _held(before, truth) if before is not None else math.nan,
        may_hold_always=True,
    )  # fmt: skip


def _true_number(way: str, p: Array, weights: Array) -> float:
    numbers = {
        "unweighted mean": p.mean(), "difference": p[0] - p[-1], "weighted sum": weights @ p, "median": np.median(p),
        "harmonic mean": 1 / np.mean(1 / p), "geometric mean": np.exp(np.log(p).mean()),
    }  # fmt: skip
    return float(numbers[way])


def _group_of_0_1(way: str, rates: Array, sizes: Array, weights: Array) -> Array | None:
    """The interval of 0.1: Wilson's of the mean by its plain error, Student's of other numbers; none of a median, which it drew."""
    if way == "median":
        return None
    errors = rates * (1 - rates) / (sizes - 1)
    positive = np.maximum(rates, 1e-9)
    value, slopes = {
        "unweighted mean": lambda: (rates.mean(axis=1), np.full_like(rates, 1 / rates.shape[1])),
        "difference": lambda: (rates[:, 0] - rates[:, -1], np.array([[1.0, -1.0]]) * np.ones_like(rates[:, :2])),
        "weighted sum": lambda: (rates @ weights, weights * np.ones_like(rates)),
        "harmonic mean": lambda: (
            h := 1 / np.mean(1 / positive, axis=1),
            (h[:, None] / positive) ** 2 / rates.shape[1],
        ),
        "geometric mean": lambda: (
            g := np.exp(np.log(positive).mean(axis=1)),
            g[:, None] / positive / rates.shape[1],
        ),
    }[way]()
    variance = (slopes**2 * errors).sum(axis=1)
    if way == "unweighted mean":
        total = float(sizes.sum())
        return wilson(value, np.where(variance > 0, value * (1 - value) / np.maximum(variance, 1e-300), total))
    half = student(0.95, float(sizes.sum() - len(sizes))) * np.sqrt(variance)
    return np.stack([value - half, value + half], axis=1)


# --- few clusters ----------------------------------------------------------------------------------------------------

CLUSTERS = (5, 10, 20, 50)
TOGETHER = 0.3
"""The correlation of documents of one cluster."""


def _clustered(random: np.random.Generator, clusters: int, p: float | None) -> tuple[Array, Array]:
    """Scores and clusters of geometric size: normal around 0, or right with the chance of the cluster."""
    sizes = random.geometric(0.1, size=clusters)
    labels = np.repeat(np.arange(clusters), sizes)
    if p is None:
        shared = random.normal(size=clusters)[labels]
        return math.sqrt(TOGETHER) * shared + math.sqrt(1 - TOGETHER) * random.normal(size=len(labels)), labels
    total = (1 - TOGETHER) / TOGETHER
    chances = random.beta(p * total, (1 - p) * total, size=clusters)[labels]
    return (random.random(len(labels)) < chances).astype(float), labels


@dataclass(slots=True)
class _Counted:
    sets: int = 0
    held: int = 0
    lower: int = 0
    agreed: int = 0
    before: int = 0
    before_lower: int = 0


def cluster_coverage(sets: int, clusters: int, *, paired: bool) -> Iterator[tuple[Coverage, Coverage, float]]:
    """By cell: two-sided intervals, one-sided bounds, and how often p and interval agree."""
    for p in (None, 0.5) if not paired else (None,):
        random, counted = np.random.default_rng([clusters, paired]), _Counted()
        for _ in range(sets):
            _count(counted, *_clustered(random, clusters, p), truth=p or 0.0, paired=paired)
        name = f"{clusters} clusters, {'scores' if p is None else 'rates'}"
        n = counted.sets
        yield (
            Coverage(name, counted.held / n, math.nan, counted.before / n, may_hold_always=True),
            Coverage(name, counted.lower / n, math.nan, counted.before_lower / n, may_hold_always=True),
            counted.agreed / n,
        )


def _count(counted: _Counted, scores: Array, labels: Array, *, truth: float, paired: bool) -> None:
    zeros = np.zeros(len(scores))
    sides: Sequence[Any] = ("both", "lower")
    if paired:
        both, lower = (compare(zeros, scores, clusters=labels.tolist(), side=side) for side in sides)
        agrees = (both.p is not None and both.p < 0.05) == (both.low is not None and not both.low <= 0 <= both.high)
    else:
        both, lower = (estimate(scores, clusters=labels.tolist(), side=side) for side in sides)
        agrees = True
    if both.low is None or both.high is None or lower.low is None:
        return
    groups = int(labels.max()) + 1
    sums = np.bincount(labels, weights=scores - scores.mean())
    error = math.sqrt(groups / (groups - 1) * float((sums**2).sum())) / len(scores)
    counted.sets += 1
    counted.held += both.low <= truth <= both.high
    counted.lower += lower.low <= truth
    counted.agreed += agrees
    counted.before += abs(scores.mean() - truth) <= student(0.95, groups - 1) * error
    counted.before_lower += scores.mean() - student(0.9, groups - 1) * error <= truth


def cluster_rows(sets: int, *, paired: bool) -> Iterator[Said]:
    what = "paired difference" if paired else "task"
    cells = measured([partial(cluster_coverage, sets, clusters, paired=paired) for clusters in CLUSTERS])
    for few in (True, False):
        chosen = [cell for cell in cells if cell[0].name.startswith("5 ") == few]
        least = "≥ 92 %" if few else "≥ 93 %"
        named = "5 clusters" if few else "10, 20, 50 clusters"
        yield summary(f"{what}, {named} of geometric size: 95 % intervals", [cell[0] for cell in chosen], least)
        yield summary(f"{what}, {named}: one-sided 95 % bounds", [cell[1] for cell in chosen], least)
    if paired:
        yield Said(
            "clusters: p and interval agree, least of all cells", f"{min(cell[2] for cell in cells):.2%}", "≥ 99 %"
        )


# --- skewed scores ---------------------------------------------------------------------------------------------------

SKEWED: Mapping[str, tuple[Callable[[np.random.Generator, tuple[int, int]], Array], float]] = {
    "exponential": (lambda random, shape: random.exponential(size=shape), 1.0),
    "lognormal, σ 1": (lambda random, shape: random.lognormal(0, 1, shape), math.exp(0.5)),
    "lognormal, σ 1.5": (lambda random, shape: random.lognormal(0, 1.5, shape), math.exp(1.125)),
}


def skewed_coverage(sets: int, name: str) -> Iterator[Coverage]:
    random = np.random.default_rng([21, len(name)])
    draw, truth = SKEWED[name]
    for n in SIZES:
        data = draw(random, (sets, n))
        ends = np.array([(each.low, each.high) for each in map(estimate, data)])
        before = _student(data)
        wider = float(np.ptp(ends, axis=1).mean() / np.ptp(before, axis=1).mean())
        yield Coverage(f"{name}, n {n}", _held(ends, truth), wider, _held(before, truth), may_hold_always=True)


def measured(parts: Sequence[Callable[[], Iterator[Any]]]) -> list[Any]:
    """The cells of all parts, computed in a process for each core; one that is slow is begun first."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        return [cell for cells in pool.map(_cells, parts) for cell in cells]


def _cells(part: Callable[[], Iterator[Any]]) -> list[Any]:
    return list(part())


def rows(sets: int = int(os.environ.get("SETS", "1000"))) -> Iterator[Said]:
    """The lines of tasks and groups, over so many data sets in each cell."""
    cells = measured([partial(bounded_coverage, sets, number) for number in range(len(list(bounded_cells())))])
    yield summary(f"bounded scores, n 20, 50, 200; {sets} data sets", cells, "every cell ≥ 92 %, mean 94–97.5 %")
    for name, edge, limit in (("far from", False, 1.25), ("near", True, 1.75)):
        near = [cell for cell in cells if cell.at_edge == edge]
        widest = max(near, key=lambda cell: cell.wider)
        above = sum(cell.wider > limit for cell in near)
        said = f"{widest.wider:.2f}× ({widest.name}); {above} of {len(near)} cells above {limit}×"
        yield Said(f"bounded scores {name} their bounds: widest over the one of a known spread", said, f"≤ {limit}×")
    for way in WAYS:
        some = max(200, sets // 4) if way == "median" else sets
        expected = "≥ 93 %" if way.endswith("ic mean") else "≥ 92 %, ≤ 1.15× where 0.1 was right"
        of_way = measured([partial(group_coverage, way, some, name) for name in reversed(groups_of(way))])
        yield summary(f"groups: {way}; {some} data sets", of_way, expected)
    yield from cluster_rows(sets, paired=False)
    skewed = measured([partial(skewed_coverage, sets, name) for name in SKEWED])
    yield summary("skewed scores without bounds, n 20, 50, 200", skewed, "adjusted, or a note")
