"""`--stop_when` against the truth: how often a run passes that should not, with a look after every document, and how many documents
a clear case needs.

False passes: the true value is the bar itself, the least favorable one that must not pass. Documents: the true value is beyond the
bar by twice the difference that `assay plan` calls detectable at 80 %, on either side. The sequential test is that of the product;
a run that never decides counts with all of its documents.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from assay.comparison.planning import Aim, ScoreSpread, plan
from assay.statistics.influence import Bounds
from assay.statistics.sequences import SequentialTest
from bench.measure import Said

RUNS = 10_000
EARLY = 0.1
"""A share of the documents: decisions before it are early."""
Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, float], Floats]
"""One document of each of many runs, with this mean."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A kind of score with the variance of a document's, the bar, and how many documents a run has."""

    name: str
    n: int
    bar: float
    variance: float
    draw: Draw
    bounds: Bounds = (-1.0, 1.0)
    is_used_for_documents: bool = True

    def __str__(self) -> str:
        return f"{self.name}, n = {self.n}"

    @property
    def detectable(self) -> float:
        planned = plan("", "", self.n, ScoreSpread(self.variance), Aim(mde=0.01))
        assert planned.mde is not None
        return planned.mde


@dataclass(frozen=True, slots=True)
class Outcome:
    """Shares of runs that passed and failed, passed early, and the mean share of the documents that they took."""

    passed: float
    failed: float
    early: float
    documents: float


def flips(discordance: float) -> Draw:
    """Right and wrong in two runs: a share of the documents is right in one alone."""
    return lambda random, runs, mean: _signs(random.random(runs), discordance, mean)


def _signs(chance: Floats, discordance: float, mean: float) -> Floats:
    plus = (discordance + mean) / 2
    return (chance < plus) * 1.0 - ((chance >= plus) & (chance < discordance))


def rate(random: np.random.Generator, runs: int, mean: float) -> Floats:
    return (random.random(runs) < mean) * 1.0


def skewed(random: np.random.Generator, runs: int, mean: float) -> Floats:
    """Scores of which most are near 0 or 1."""
    return random.beta(mean / 2, (1 - mean) / 2, size=runs)


def repeats(random: np.random.Generator, runs: int, mean: float) -> Floats:
    """Differences of means of 4 repeats, of documents that are easy or hard for both models."""
    own = random.uniform(0.1, 0.9, size=runs)
    better = np.clip(own + mean, 0, 1)
    return (random.binomial(4, better) - random.binomial(4, own)) / 4


def cells() -> list[Cell]:
    paired = [
        Cell(f"difference, {discordance:.0%} differ", n, -0.01, discordance, flips(discordance))
        for n, discordance in ((200, 0.25), (500, 0.1), (1000, 0.05), (1000, 0.25), (2000, 0.1), (3000, 0.03))
    ]
    bars = [
        Cell(f"rate against {bar}", n, bar, bar * (1 - bar), rate, (0.0, 1.0), is_used_for_documents=bar < 0.99)
        for n, bar in ((200, 0.5), (1000, 0.7), (1000, 0.9), (1000, 0.99))
    ]
    scores = [
        Cell("score near 0 or 1 against 0.8", 500, 0.8, 0.8 * 0.2 / 1.5, skewed, (0.0, 1.0)),
        Cell("difference of 4 repeats", 500, -0.02, 0.098, repeats),
    ]
    return [*paired, *bars, *scores]


def simulated(cell: Cell, mean: float, runs: int = RUNS) -> Outcome:
    """Runs with a true mean, looked at after every document until both sides of all are decided, or none is left."""
    random = np.random.default_rng([crc32(str(cell).encode()), round(1e6 * (mean + 1))])
    test = SequentialTest(cell.bar, cell.bounds, cell.n)
    at = np.full(runs, cell.n)
    passed, failed = np.zeros(runs, bool), np.zeros(runs, bool)
    for number in range(1, cell.n + 1):
        test.count(cell.draw(random, runs, mean))
        ended = passed | failed
        passed |= (test.capital("pass") >= 1 / test.alpha) & ~ended
        failed |= (test.capital("fail") >= 1 / test.alpha) & ~ended & ~passed
        at[(passed | failed) & ~ended] = number
        if (passed | failed).all():
            break
    early = passed & (at <= EARLY * cell.n)
    return Outcome(float(passed.mean()), float(failed.mean()), float(early.mean()), float((at / cell.n).mean()))


GROUP = ((0.9, 100), (0.3, 300))
"""Rates and sizes of two tasks: their mean is 0.45 by size, and 0.6 if they count alike."""


def group_passes(by_size: bool, runs: int = RUNS) -> float:
    """The share of runs of a group that pass its true mean. The order is random, and how many documents each task has is not: what
    comes late is what came seldom before."""
    random = np.random.default_rng([4, by_size])
    rates, sizes = (np.array(column) for column in zip(*GROUP, strict=True))
    weights = np.ones(2) if by_size else sizes.min() / sizes
    order = random.permuted(np.tile(np.repeat([0, 1], sizes), (runs, 1)), axis=1)
    bar = float((rates * sizes).sum() / sizes.sum() if by_size else rates.mean())
    test, passed = SequentialTest(bar, (0.0, 1.0), int(sizes.sum())), np.zeros(runs, bool)
    for task in order.T:
        test.count((random.random(runs) < rates[task]) * 1.0, weight=weights[task])
        passed |= test.capital("pass") >= 1 / test.alpha
    return float(passed.mean())


def rows() -> Iterator[Said]:
    """A line per cell for false decisions at the bar, one per cell for documents beyond it; then the worst of each."""
    wrong, took = [], []
    for cell in cells():
        outcome = simulated(cell, cell.bar)
        wrong.append(outcome.passed)
        shown = f"{outcome.passed:.2%} pass ({outcome.early:.2%} early), {outcome.failed:.2%} fail"
        yield Said(f"{cell}: at the bar", shown, "≤ 5 % pass")
    for by_size in (True, False):
        wrong.append(group_passes(by_size))
        name = f"group of two tasks, {'by size' if by_size else 'each alike'}, n = 400: at the bar"
        yield Said(name, f"{wrong[-1]:.2%} pass", "≤ 5 % pass")
    for cell in (each for each in cells() if each.is_used_for_documents):
        far = 2 * cell.detectable
        above, below = simulated(cell, cell.bar + far), simulated(cell, cell.bar - far)
        took += [above.documents, below.documents]
        shown = f"{above.documents:.0%} of the documents ({above.passed:.1%} pass)"
        shown += f"; as far below {below.documents:.0%} ({below.failed:.1%} fail)"
        yield Said(f"{cell}: {100 * far:.1f}pp above the bar", shown, "≤ 40 %")
    yield Said(f"all: false passes in {RUNS:,} runs each", f"at most {max(wrong):.2%}", "≤ 5 %")
    yield Said("all: documents at twice what is detectable", f"{np.mean(took):.0%}, at most {max(took):.0%}", "≤ 40 %")
    yield from _at_once()


def _at_once() -> Iterator[Said]:
    """The same at the detectable difference itself, where a fixed number of documents has a power of 80 %."""
    cell = cells()[3]
    outcome = simulated(cell, cell.bar + cell.detectable)
    shown = f"{outcome.passed:.0%} pass, after {outcome.documents:.0%} of the documents in the mean"
    yield Said(f"{cell}: {100 * cell.detectable:.1f}pp above the bar, as detectable", shown, "for information")
