"""Softmax: log-likelihoods to shares."""

import math
from collections.abc import Sequence


def softmax(values: Sequence[float]) -> list[float]:
    """Return each value's share of the likelihood of all; NaN where no value is finite.

    >>> softmax([0.0, 0.0]), softmax([-1000.0, -1000.0, -math.inf])
    ([0.5, 0.5], [0.5, 0.5, 0.0])
    """
    highest = max(values)
    powers = [math.exp(value - highest) for value in values]
    total = sum(powers)
    return [power / total for power in powers]
