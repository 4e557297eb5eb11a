"""Agreement between judges: Krippendorff's alpha."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def krippendorff_alpha(values: Sequence[Any]) -> float:
    """Krippendorff's alpha of interval data: 1 where all agree, 0 where they agree as by chance, less where they do worse.

    A value is a document's list of units, and a unit the numbers that judges gave to one answer; None for a judge that
    gave none. A unit with one number says nothing about agreement.

    >>> round(krippendorff_alpha([[[1, 1]], [[2, 2]], [[3, 4]]]), 4)
    0.878
    """
    units = [_numbers(unit) for document in values for unit in document]
    paired = [unit for unit in units if len(unit) > 1]
    if not paired:
        raise ValueError("no answer has two verdicts")
    count = sum(map(len, paired))
    observed = sum(_differences(unit) / (len(unit) - 1) for unit in paired) / count
    expected = _differences(np.concatenate(paired)) / (count * (count - 1))
    if expected == 0:
        raise ValueError("all verdicts are the same, so that agreement cannot be told from chance")
    return 1 - observed / expected


def _numbers(unit: Sequence[Any]) -> Any:
    return np.array([each for each in unit if each is not None and not math.isnan(each)], dtype=np.float64)


def _differences(numbers: Any) -> float:
    """The sum of squared differences over all ordered pairs; from the centre, so that little is lost."""
    return float(2 * len(numbers) * ((numbers - numbers.mean()) ** 2).sum())
