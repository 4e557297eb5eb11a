"""Softmax over the last axis, shifted by the maximum so that large values do not overflow."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]


def softmax(values: Sequence[float] | Floats) -> Floats:
    """Return the probabilities that are proportional to the exponentials of `values`.

    >>> softmax([0.0, 0.0]).tolist()
    [0.5, 0.5]
    """
    return softmax_in_place(np.array(values, dtype=float))


def softmax_in_place(scores: Floats) -> Floats:
    """Replace scores by their softmax, without a copy: attention does this in every layer."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def log_softmax(logits: Floats) -> Floats:
    """Return the logarithms of the softmax."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))  # type: ignore[no-any-return]
