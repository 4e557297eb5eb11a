"""Intervals by the formulas of textbooks, computed in another way than assay does."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats
from statsmodels.stats.proportion import proportion_confint


def bell_and_mccaffrey(scores: Sequence[float], labels: Sequence[Any]) -> tuple[float, float, float]:
    """The interval of a mean by the matrices of the textbook: deleting each cluster (CR3), and the moments of that."""
    numbers, clusters = np.array(scores), np.array(labels)
    names, sizes = np.unique(clusters, return_counts=True)
    without = np.array([numbers[clusters != name].mean() for name in names])
    error = math.sqrt((len(names) - 1) / len(names) * ((without - numbers.mean()) ** 2).sum())
    shares = sizes / sizes.sum()
    residuals = (np.eye(len(names)) - np.outer(shares, np.ones(len(names)))) / (1 - shares)[:, None]
    moments = (residuals * sizes) @ residuals.T
    freedom = float(np.trace(moments) ** 2 / (moments**2).sum())
    half = float(stats.t.ppf(0.975, freedom)) * error
    return numbers.mean() - half, numbers.mean() + half, freedom


def bounded(scores: Sequence[float], low: float = 0.0, high: float = 1.0, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval with as many documents as give the spread that scores and parts of documents at the bounds have together.

    statsmodels' Wilson; a quarter of a document at each bound, less where more than three documents carry the spread.
    """
    shares = (np.asarray(scores, dtype=float) - low) / (high - low)
    count, mean = len(shares), shares.mean()
    squares = (shares - mean) ** 2
    carriers = squares.sum() ** 2 / (squares**2).sum() if squares.any() else 0.0
    part = 0.25 * min(1.0, (3 / carriers) ** 2) if carriers else 0.25
    every, weights = np.append(shares, [0.0, 1.0]), np.append(np.ones(count), [part, part])
    middle = np.average(every, weights=weights)
    variance = (weights * (every - middle) ** 2).sum() / (weights.sum() - 1)
    narrower = stats.norm.ppf(0.5 + level / 2) / stats.t.ppf(0.5 + level / 2, count - 1)
    documents = count * middle * (1 - middle) / variance * narrower**2
    ends = proportion_confint(documents * mean, documents, alpha=1 - level, method="wilson")
    return low + (high - low) * ends[0], low + (high - low) * ends[1]
