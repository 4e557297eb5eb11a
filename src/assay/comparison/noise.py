"""How wide an interval would be with other numbers of documents and repeats, from the noise of a run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from assay.runs.run import Run
from assay.score_keys import spellings
from assay.statistics.intervals import LEVEL, student
from assay.statistics.noise import Noise

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
