"""Where the noise of a score comes from: from answer to answer within a document, and from document to document."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np


class Noise(NamedTuple):
    """Variance of a score within documents, over repeats, and of documents' own means between them."""

    within: float
    between: float
    repeats: float

    def per_document(self, repeats: float) -> float:
        """The variance of a document's mean score with so many repeats."""
        return self.between + self.within / repeats


def noise_of(repeats: Sequence[Sequence[float]]) -> Noise | None:
    """Components of the variance of scores, a list for each document; None without two documents that have two each.

    The analysis of variance with one factor: unequal numbers of repeats count by their harmonic mean.

    >>> noise_of([[0, 1], [1, 1], [0, 0]])
    Noise(within=0.16666666666666666, between=0.16666666666666669, repeats=2.0)
    """
    chosen = [each for each in repeats if len(each) > 1]
    counts = np.fromiter(map(len, chosen), np.float64, len(chosen))
    scores = np.fromiter(chain.from_iterable(chosen), np.float64)
    if len(chosen) < 2 or not np.isfinite(scores).all():
        return None
    document = np.repeat(np.arange(len(chosen)), counts.astype(np.intp))
    means = np.bincount(document, weights=scores) / counts
    within = float(((scores - means[document]) ** 2).sum() / (counts - 1).sum())
    count = len(chosen) / float((1 / counts).sum())
    return Noise(within, max(float(np.var(means, ddof=1)) - within / count, 0.0), count)
