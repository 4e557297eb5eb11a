"""The documents that a number varies with: how far each of them moves it."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from assay.records import Floats, exact

PSEUDO = 0.25
"""Pseudo-documents at each bound of a bounded score, when the spread for its interval is estimated: documents that score
otherwise than all that were seen may exist. A whole one at each bound covers too often, none far too seldom."""
CARRIED = 3.0
"""Where more documents than this carry the spread it is known, and pseudo-documents fade by the square of the ratio."""

ROUNDED = 1e-14
"""Scores that differ by less than so much of their mean differ by rounding."""

CELLS, DRAWS = 256, 10_000
"""Scores that differ by less than one of so many parts of their scale are alike; so many draws give the interval where most are."""
CLOSE = 1e-9
"""Scores beyond their bounds by less than so much of the distance between these are there by rounding."""

Bounds = tuple[float, float]
"""The least and the greatest value that a score, or a number made of scores, can have."""
SHARE: Bounds = (0.0, 1.0)
PERCENT: Bounds = (0.0, 100.0)
COUNT: Bounds = (0.0, math.inf)
LOGARITHM: Bounds = (-math.inf, 0.0)
"""Bounds of the logarithm of a probability."""


def read_bounds(written: object) -> Bounds:
    """The bounds that a user declares; a ValueError says what is wrong with others.

    >>> read_bounds([0, 1])
    (0.0, 1.0)
    """
    ends = [exact(each) for each in written] if isinstance(written, list | tuple) else []
    numbers = [each for each in ends if isinstance(each, int | float)]
    if len(ends) != 2 or len(numbers) != 2 or not numbers[0] < numbers[1]:
        raise ValueError(f"bounds must be the least and the greatest score, such as [0, 1], got {written!r:.60}")
    return float(numbers[0]), float(numbers[1])


def clip_to_bounds(values: Sequence[Any], bounds: Bounds) -> Sequence[Any]:
    """The values with those on a bound that rounding put beyond it; as they are if one is further beyond, or no number.

    >>> clip_to_bounds([0.5, 1.0000000000000002], (0, 1)), clip_to_bounds([0.5, 1.1], (0, 1))
    ([0.5, 1.0], [0.5, 1.1])
    """
    import numpy as np

    try:
        scores = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):  # None, or a list for each document
        return values
    low, high = bounds
    close = CLOSE * (high - low if math.isfinite(high - low) else 1.0)
    is_beyond = (scores < low) | (scores > high)
    if not is_beyond.any() or (scores < low - close).any() or (scores > high + close).any():
        return values
    inside: list[float] = np.clip(scores, low, high).tolist()
    return inside


class Spread(NamedTuple):
    """Variance of a number for its interval, its degrees of freedom, and the value shrunken towards the middle of the bounds."""

    variance: float
    freedom: float
    shrunk: float


class Influence:
    """Influence of every document on a number: the sum of the squared values is the number's variance.

    Documents of one `source` with the same number are one draw, wherever they occur; with `clusters`, so are the documents
    of a cluster, and their sums are squared. If only the variance is known, there are no values. `center` and `bounds` are
    those of a bounded mean; `weights` those of a weighted one, by document.
    """

    __slots__ = (
        "_drawn",
        "_spread",
        "_third",
        "bounds",
        "center",
        "clusters",
        "contributions",
        "documents",
        "source",
        "variance",
        "weights",
    )

    def __init__(  # noqa: PLR0913  # all that is known of the draws of a number
        self, source: str, documents: Sequence[int], contributions: "Floats | None", variance: float | None = None,
        clusters: Sequence[int] | None = None, *, center: float = 0.0, bounds: Bounds | None = None,
        weights: "Floats | None" = None,
    ) -> None:  # fmt: skip
        self.source, self.documents, self.contributions, self.clusters = source, documents, contributions, clusters
        self.center, self.bounds, self.weights = center, bounds, weights
        self.variance: float = float((self.by_draw() ** 2).sum()) if variance is None else variance
        self._spread: Spread | None = None
        self._third: float | None = None
        self._drawn: Floats | None = None

    @classmethod
    def of_mean(  # a mean, and all that its error depends on
        cls, source: str, documents: Sequence[int], values: Floats, clusters: Sequence[int] | None = None, *,
        bounds: Bounds | None = None, weights: "Floats | None" = None,
    ) -> "Influence":  # fmt: skip
        """Influence on the mean of one value per document, with the small-sample factor √(g/(g−1)) of CR1."""
        count, center = len(values) if clusters is None else len(set(clusters)), values.mean()
        around = values - center
        if (abs(around) <= ROUNDED * abs(center)).all():  # 0.3 and 0.1 + 0.2 are the same score
            around = around * 0.0
        contributions = around / (len(values) * math.sqrt((count - 1) / count))
        return cls(
            source, documents, contributions, clusters=clusters, center=float(center), bounds=bounds, weights=weights
        )

    @property
    def count(self) -> int:
        """Number of independent draws."""
        return len(self.documents if self.clusters is None else set(self.clusters))

    def by_draw(self) -> Floats:
        """Influence of every draw: of a document, or summed over a cluster."""
        assert self.contributions is not None, "only the variance is known"
        return self._by_draw(self.contributions)

    def _by_draw(self, values: Floats) -> Floats:
        if self.clusters is None:
            return values
        import numpy as np

        return np.bincount(np.unique(self.clusters, return_inverse=True)[1], weights=values)  # type: ignore[return-value]  # floats

    def third_moment(self) -> float:
        """The sum of the cubes of the draws' influence: 0 where values are even around their mean."""
        if self._third is None:
            drawn = self.by_draw() if self.contributions is not None else None
            self._third = float((drawn * drawn * drawn).sum()) if drawn is not None else 0.0
        return self._third

    def spread(self) -> Spread:
        """Variance for intervals: from leave-one-draw-out residuals where draws count differently (CR3), with the degrees of
        freedom of Bell and McCaffrey, and of a bounded score with pseudo-documents at its bounds."""
        if self._spread is None:
            self._spread = self._with_pseudo_documents(*self._left_out())
        return self._spread

    def _left_out(self) -> tuple[float, float]:
        count = self.count
        if self.contributions is None or count < 2 or (self.clusters is None and self.weights is None):
            return self.variance, float(max(count - 1, 1))
        import numpy as np

        sizes = self._by_draw(np.ones(len(self.contributions)) if self.weights is None else np.abs(self.weights))
        shares = sizes / sizes.sum() if sizes.sum() > 0 else np.full(count, 1 / count)
        if np.ptp(shares) < 1e-12 or shares.max() > 1 - 1e-9:
            return self.variance, float(count - 1)
        stretched = 1 / (1 - shares)
        variance = ((count - 1) / count) ** 2 * float(((self.by_draw() * stretched) ** 2).sum())
        own, crossed = stretched**2 * (shares - shares**2), (stretched * shares) ** 2
        squares = float((own**2).sum() + crossed.sum() ** 2 - (crossed**2).sum())
        return variance, min(float(own.sum()) ** 2 / squares, float(count - 1))

    def _with_pseudo_documents(self, variance: float, freedom: float) -> Spread:
        count = float(self.count)
        if self.weights is not None and self.clusters is None:
            count = float(self.weights.sum()) ** 2 / float((self.weights**2).sum())
        if self.bounds is None or self.contributions is None or count < 2:
            return Spread(variance, freedom, self.center)
        spread = with_pseudo_documents(Spread(variance, freedom, self.center), count, self.carriers(), self.bounds)
        return spread._replace(variance=max(spread.variance, float(self.means_if_alike().var())))

    def means_if_alike(self) -> Floats:
        """Where most scores are alike and none of the bounds: means under the Bayesian bootstrap, with half a document at each
        bound, in their order. What carries the spread is not what is missing then; parts of documents that fade as more
        documents carry it left out the truth in up to 31 % of cases. A single 0 elsewhere."""
        import numpy as np

        if self._drawn is None:
            self._drawn = np.zeros(1)
            low, high = self.bounds or (-math.inf, math.inf)
            if (
                self.contributions is None
                or not math.isfinite(high - low)
                or self.clusters is not None
                or self.weights is not None
            ):
                return self._drawn
            scores = self.center + self.contributions * math.sqrt(self.count * (self.count - 1))
            cells = np.round((scores - low) / (high - low) * CELLS)
            kinds, own, counts = np.unique(cells, return_inverse=True, return_counts=True)
            if 2 * counts.max() > len(scores) and 0 < kinds[counts.argmax()] < CELLS:
                values = [*(np.bincount(own, weights=scores) / counts), low, high]
                shares = np.random.Generator(np.random.SFC64(0)).standard_gamma(
                    [*counts, 0.5, 0.5], (DRAWS, len(values))
                )
                self._drawn = np.sort(shares @ values / shares.sum(axis=1))
        return self._drawn

    def carriers(self) -> float:
        """By how many draws the variance is carried: all of them if each moves the number as far."""
        squares = self.by_draw() ** 2
        return float(squares.sum()) ** 2 / float((squares**2).sum()) if squares.any() else 0.0


def with_pseudo_documents(plain: Spread, count: float, carriers: float, bounds: Bounds) -> Spread:
    """The spread of a mean of so many scores, and of a part of a document at each bound. `carriers` is by how many documents the
    spread is carried: all of them if each is as far from the mean, n over the kurtosis in general."""
    low, high = bounds
    if not math.isfinite(low + high):
        return plain
    variance, freedom, center = plain
    pseudo = PSEUDO * (min(1.0, (CARRIED / carriers) ** 2) if carriers else 1.0)
    shrunk = (count * center + pseudo * (low + high)) / (count + 2 * pseudo)
    total = variance * count * (count - 1) + count * (center - shrunk) ** 2
    total += pseudo * ((shrunk - low) ** 2 + (high - shrunk) ** 2)
    return Spread(total / (count + 2 * pseudo - 1) / count, freedom, shrunk)
