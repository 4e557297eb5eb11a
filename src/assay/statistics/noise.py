"""Where the noise of a score comes from: from answer to answer within a document, and from document to document."""

from collections.abc import Sequence
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
    repeated = [np.asarray(each, dtype=np.float64) for each in repeats if len(each) > 1]
    if len(repeated) < 2 or not all(np.isfinite(each).all() for each in repeated):
        return None
    freedom = sum(len(each) - 1 for each in repeated)
    within = sum(float(((each - each.mean()) ** 2).sum()) for each in repeated) / freedom
    count = len(repeated) / sum(1 / len(each) for each in repeated)
    between = float(np.var([each.mean() for each in repeated], ddof=1)) - within / count
    return Noise(within, max(between, 0.0), count)
