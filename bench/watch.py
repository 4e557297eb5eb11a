"""False alarms of `assay watch`: trainings of 50 checkpoints that are equally good, each gated against the last three.

Every checkpoint answers each document right or wrong by its own draw, with the chance of that document, so that checkpoints
differ in documents and not in truth. The gate is `acc >= baseline`, the least favorable one that must not fail, and
`acc > -1pp`. Contrasts, bounds and decisions are those of the product; only the reading of runs is left out.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from assay.comparison.contrasts import PairedRow
from assay.comparison.gates import Gate, Measured, decide, parse_gate
from assay.records import Floats
from assay.score_keys import ScoreKey
from assay.statistics.paired import interval, paired_contrast
from assay.statistics.sequences import spent_at
from bench.measure import Said

TRAININGS, FEW = 1000, 100
CHECKPOINTS = 50
LAST = 3
LEVEL = 0.95
ROW = PairedRow("task", "t", "t", ScoreKey("acc", "none"), 0, True, None, None)


def is_alarmed(random: np.random.Generator, documents: int, gate: str, *, spends: bool) -> bool:
    """Whether a training without any change alarms at least once."""
    chances = random.beta(2, 1, size=documents)
    right = (random.random((CHECKPOINTS, documents)) < chances) * 1.0
    parsed = parse_gate(gate)
    for number in range(1, CHECKPOINTS):
        alpha = spent_at(number, 1 - LEVEL) if spends else 1 - LEVEL
        measured = [_measured(parsed, right[each], right[number]) for each in range(max(0, number - LAST), number)]
        if any(each.decision == "fail" for each in decide(measured, 1 - alpha)):
            return True
    return False


def _measured(gate: Gate, before: Floats, after: Floats) -> Measured:
    contrast = paired_contrast(before, after, None, is_rate=True)
    measured = Measured(gate, ROW, 1, contrast.difference)
    return replace(measured, ends=lambda alpha: interval(contrast, 1 - 2 * alpha) or (-1.0, 1.0))


def rows() -> Iterator[Said]:
    """The share of trainings with a false alarm, by the number of documents; and without the spending of the level."""
    for documents in (100, 500, 2000):
        for gate in ("acc >= baseline", "acc > -1pp"):
            shares = []
            for spends, trainings in ((True, TRAININGS), (False, FEW)):
                random = np.random.default_rng([documents, len(gate)])
                alarms = [is_alarmed(random, documents, gate, spends=spends) for _ in range(trainings)]
                shares.append(np.mean(alarms))
            shown = f"{shares[0]:.2%} of trainings (each look at 5 %: {shares[1]:.0%})"
            yield Said(f"{CHECKPOINTS} equal checkpoints, {documents} documents, {gate}: false alarms", shown, "≤ 5 %")
