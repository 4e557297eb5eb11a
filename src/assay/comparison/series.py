"""Gates of a series of runs, such as the checkpoints of a training: each against the last ones before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.comparison.absolute import RunNumbers, decide_count, measure_value
from assay.comparison.compare import CompareOptions, measured_gates
from assay.comparison.gates import Measured, decide
from assay.comparison.packs import open_run
from assay.comparison.verdicts import parse_gates
from assay.runs.comparison import GateVerdict
from assay.statistics.intervals import LEVEL
from assay.statistics.sequences import spent_at


@dataclass(frozen=True)
class SeriesVerdict:
    """The verdict of a gate about one run of a series; for a difference, the run that it is to."""

    verdict: GateVerdict
    baseline: Path | None


def decide_next(
    run: Path, gates: Sequence[str], before: Sequence[Path], number: int, level: float = LEVEL
) -> list[SeriesVerdict]:
    """Decide the gates of the `number`-th look at a series: differences to each of the runs `before`, values and counts.

    However many looks there are, the chance of a wrong decision in any of them is 1 − level: the n-th spends α/(n(n + 1)) of it,
    for all its gates and all runs before together (Holm).
    """
    alpha = spent_at(number, 1 - level)
    parsed = parse_gates(gates)
    opened = open_run(run)
    numbers = RunNumbers(opened, False)
    places: list[Path | None] = []
    measured: list[Measured] = []
    for each in parsed:
        if each.kind == "value":
            own = measure_value(each, numbers)
            measured, places = [*measured, *own], [*places, *[None] * len(own)]
    relative = [each for each in parsed if each.kind == "difference"]
    for baseline in before if relative else ():
        rows, _ = measured_gates([baseline, run], CompareOptions(gates=relative, level=1 - alpha))
        own = [each for row in rows for each in row]
        measured, places = [*measured, *own], [*places, *[baseline] * len(own)]
    decided = decide(measured, 1 - alpha)
    counts = [SeriesVerdict(decide_count(each, opened), None) for each in parsed if each.kind == "count"]
    return [SeriesVerdict(verdict, place) for verdict, place in zip(decided, places, strict=True)] + counts
