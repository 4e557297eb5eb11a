"""Standard errors and intervals against the truth: simulated data sets in worlds of which everything is known.

The grid: n documents in the smallest of five members (the largest has 2 n) and an expected score around p (0.4 logits to
either side), for each kind of clustering. The truth is the spread of the number over 20,000 draws of all documents; what
is judged is the mean of the standard errors over all data sets. Where a harmonic or geometric mean is not defined, since a
member is 0, a data set is left out on either side and counted.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.intervals import interval
from bench import coverage
from bench.measure import Said
from bench.worlds import (
    CLUSTERINGS,
    World,
    data_set,
    drawn,
    expected,
    group_estimates,
    true_numbers,
    truths,
    world,
)

SIZES = (30, 100, 1000)
RATES = (0.1, 0.5, 0.9)
DRAWS = 20_000
DATA_SETS = {30: 1000, 100: 1000, 1000: 500}
RATIO = (0.95, 1.05)
COVERAGE = (0.94, 0.96)
LEAST = 0.92
UNDEFINED = Estimate(None, None, 0)
"""A mean that a member of 0 leaves without a value."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A point of the grid."""

    clustering: str
    n: int
    p: float
    of_k: bool

    def __str__(self) -> str:
        return f"{self.clustering}, n = {self.n}, p = {self.p}"


@dataclass(frozen=True, slots=True)
class ErrorMeasurement:
    """What was found for an aggregator there: mean standard error over true spread, coverage, data sets without a number."""

    aggregator: str
    cell: Cell
    ratio: float
    coverage: float
    undefined: int
    data_sets: int


def rows() -> Iterator[Said]:
    """A line per aggregator for its errors, one for its intervals; then those of a single task, and of all."""
    cells = [
        Cell(*place) for place in itertools.product(CLUSTERINGS, sorted(SIZES, reverse=True), RATES, (False, True))
    ]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        every = [result for items in pool.map(measured, cells) for result in items]
    names = list(dict.fromkeys(result.aggregator for result in every))
    for name in names:
        yield errors_row(name, [result for result in every if result.aggregator == name])
    single = [(n, p, single_coverage(n, p)) for n in SIZES for p in RATES]
    yield coverage_row("a single task, exactly", [(f"n = {n}, p = {p}", n, share) for n, p, share in single])
    for name in names:
        own = [(str(result.cell), result.cell.n, result.coverage) for result in every if result.aggregator == name]
        yield coverage_row(name, own)
    yield from coverage.rows()
    yield coverage_row("all aggregators", [(f"{f.aggregator}, {f.cell}", f.cell.n, f.coverage) for f in every])


def measured(cell: Cell, data_sets: int | None = None, draws: int = DRAWS) -> list[ErrorMeasurement]:
    """What a cell shows, for each aggregator."""
    small_world = world(cell.clustering, cell.n, cell.p, of_k=cell.of_k)
    random = np.random.default_rng([cell.n, round(cell.p * 10), CLUSTERINGS.index(cell.clustering), cell.of_k])
    spreads = {
        name: float(np.nanstd(values))
        for name, values in true_numbers(small_world, drawn(small_world, draws, random)).items()
    }
    centre = {name: float(values[0]) for name, values in true_numbers(small_world, expected(small_world)).items()}
    items = estimated(small_world, random, data_sets or DATA_SETS[cell.n])
    result = []
    for name, estimates in items.items():
        errors = [each.stderr for each in estimates if each.stderr is not None]
        ends = [both for each in estimates if (both := interval(each)) is not None]
        inside = sum(low <= centre[name] <= high for low, high in ends) / len(ends)
        ratio = math.fsum(errors) / len(errors) / spreads[name]
        result.append(ErrorMeasurement(name, cell, ratio, inside, len(estimates) - len(errors), len(estimates)))
    return result


def estimated(world: World, random: np.random.Generator, data_sets: int) -> dict[str, list[Estimate]]:
    """For each aggregator its number in every data set."""
    items: dict[str, list[Estimate]] = {name: [] for name in truths(world)}
    for _ in range(data_sets):
        numbers = group_estimates(world, data_set(world, random))
        for name, each in items.items():
            each.append(numbers.get(name, UNDEFINED))
    return items


def errors_row(name: str, items: Sequence[ErrorMeasurement]) -> Said:
    worst = max(items, key=lambda measurement: abs(math.log(measurement.ratio)))
    outside = [measurement for measurement in items if not RATIO[0] <= measurement.ratio <= RATIO[1]]
    undefined, data_sets = (
        sum(measurement.undefined for measurement in items),
        sum(measurement.data_sets for measurement in items),
    )
    said = f"{worst.ratio:.3f} ({worst.cell})"
    if undefined:
        said += f"; {undefined} of {data_sets} data sets are not defined"
    if outside:
        more = "; ".join(
            f"{measurement.ratio:.3f} ({measurement.cell})" for measurement in outside if measurement is not worst
        )
        said += f"; missed in {len(outside)} of {len(items)} cells" + (f", also {more}" if more else "")
    return Said(f"{name}: mean standard error over true spread, worst of {len(items)} cells", said, "0.95–1.05")


def coverage_row(name: str, cells: Sequence[tuple[str, int, float]]) -> Said:
    """The mean over cells (what, n, share inside), and the least where n is 100 or more."""
    mean = math.fsum(share for _, _, share in cells) / len(cells)
    where, _, least = min((cell for cell in cells if cell[1] >= 100), key=lambda cell: cell[2])
    said = f"{mean:.2%}; least {least:.2%} ({where})"
    if not COVERAGE[0] <= mean <= COVERAGE[1] or least < LEAST:
        said += "; missed"
    return Said(f"{name}: 95 % intervals that hold the truth", said, "94–96 %, ≥ 92 % for n ≥ 100")


def single_coverage(n: int, p: float) -> float:
    """How often the interval of a share of n documents holds p: summed over all that may be seen."""
    inside = []
    for right in range(n + 1):
        share = right / n
        seen = Estimate(share, math.sqrt(share * (1 - share) / (n - 1)), n, evidence=Evidence(is_rate=True))
        ends = interval(seen)
        if ends is not None and ends[0] <= p <= ends[1]:
            ways = math.lgamma(n + 1) - math.lgamma(right + 1) - math.lgamma(n - right + 1)
            inside.append(math.exp(ways + right * math.log(p) + (n - right) * math.log(1 - p)))
    return math.fsum(inside)
