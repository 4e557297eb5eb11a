"""Softmax, shifted by the largest value so that nothing overflows: of a few log-likelihoods, and of arrays in place."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.records import Floats

AnyFloats = npt.NDArray[np.floating[Any]]
"""Floats of any precision."""


def softmax(values: Sequence[float]) -> list[float]:
    """Return each value's share of the likelihood of all; NaN where no value is finite.

    >>> softmax([0.0, 0.0]), softmax([-1000.0, -1000.0, -math.inf])
    ([0.5, 0.5], [0.5, 0.5, 0.0])
    """
    highest = max(values)
    powers = [math.exp(value - highest) for value in values]
    total = sum(powers)
    return [power / total for power in powers]


def softmax_in_place(scores: AnyFloats) -> AnyFloats:
    """Replace scores by their softmax over the last axis, without a copy: attention does this in every layer.

    >>> softmax_in_place(np.array([[0.0, 0.0]])).tolist()
    [[0.5, 0.5]]
    """
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def log_softmax(logits: Floats) -> Floats:
    """Return the logarithms of the softmax over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))  # type: ignore[no-any-return]
