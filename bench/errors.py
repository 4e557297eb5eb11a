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

from assay.records import Estimate
from assay.statistics.intervals import interval
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
class Found:
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
        every = [found for several in pool.map(measured, cells) for found in several]
    names = list(dict.fromkeys(found.aggregator for found in every))
    for name in names:
        yield errors_row(name, [found for found in every if found.aggregator == name])
    single = [(n, p, single_coverage(n, p)) for n in SIZES for p in RATES]
    yield coverage_row("a single task, exactly", [(f"n = {n}, p = {p}", n, share) for n, p, share in single])
    for name in names:
        own = [(str(found.cell), found.cell.n, found.coverage) for found in every if found.aggregator == name]
        yield coverage_row(name, own)
    yield coverage_row("all aggregators", [(f"{f.aggregator}, {f.cell}", f.cell.n, f.coverage) for f in every])


def measured(cell: Cell, data_sets: int | None = None, draws: int = DRAWS) -> list[Found]:
    """What a cell shows, for each aggregator."""
    made = world(cell.clustering, cell.n, cell.p, of_k=cell.of_k)
    random = np.random.default_rng([cell.n, round(cell.p * 10), CLUSTERINGS.index(cell.clustering), cell.of_k])
    spreads = {
        name: float(np.nanstd(values)) for name, values in true_numbers(made, drawn(made, draws, random)).items()
    }
    centre = {name: float(values[0]) for name, values in true_numbers(made, expected(made)).items()}
    several = estimated(made, random, data_sets or DATA_SETS[cell.n])
    found = []
    for name, estimates in several.items():
        errors = [each.stderr for each in estimates if each.stderr is not None]
        ends = [both for each in estimates if (both := interval(each)) is not None]
        inside = sum(low <= centre[name] <= high for low, high in ends) / len(ends)
        ratio = math.fsum(errors) / len(errors) / spreads[name]
        found.append(Found(name, cell, ratio, inside, len(estimates) - len(errors), len(estimates)))
    return found


def estimated(made: World, random: np.random.Generator, data_sets: int) -> dict[str, list[Estimate]]:
    """For each aggregator its number in every data set."""
    several: dict[str, list[Estimate]] = {name: [] for name in truths(made)}
    for _ in range(data_sets):
        numbers = group_estimates(made, data_set(made, random))
        for name, each in several.items():
            each.append(numbers[name])
    return several


def errors_row(name: str, several: Sequence[Found]) -> Said:
    worst = max(several, key=lambda found: abs(math.log(found.ratio)))
    outside = [found for found in several if not RATIO[0] <= found.ratio <= RATIO[1]]
    undefined, data_sets = sum(found.undefined for found in several), sum(found.data_sets for found in several)
    said = f"{worst.ratio:.3f} ({worst.cell})"
    if undefined:
        said += f"; {undefined} of {data_sets} data sets are not defined"
    if outside:
        more = "; ".join(f"{found.ratio:.3f} ({found.cell})" for found in outside if found is not worst)
        said += f"; missed in {len(outside)} of {len(several)} cells" + (f", also {more}" if more else "")
    return Said(f"{name}: mean standard error over true spread, worst of {len(several)} cells", said, "0.95–1.05")


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
        seen = Estimate(share, math.sqrt(share * (1 - share) / (n - 1)), n, is_rate=True)
        ends = interval(seen)
        if ends is not None and ends[0] <= p <= ends[1]:
            ways = math.lgamma(n + 1) - math.lgamma(right + 1) - math.lgamma(n - right + 1)
            inside.append(math.exp(ways + right * math.log(p) + (n - right) * math.log(1 - p)))
    return math.fsum(inside)
