"""A judge's mean corrected by the labels that people gave to some of the documents: prediction-powered inference.

The value is that of PPI++ (Angelopoulos, Duchi and Zrnic 2023): the mean label, plus λ times how far the judge's mean over all
documents is from its mean over the labelled ones, with the λ of least variance, which is the slope of labels over verdicts. The
textbook interval holds the truth in 83–94 % of cases with 50 labels. Here the line is fitted again with pseudo-documents at the
four corners of labels and verdicts, as Price and Bonett (2004) add to shares, and Student's interval is around that fit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from assay.records import Floats
from assay.statistics.arrays import Scores, Side, array, numbered
from assay.statistics.arrays import estimate as estimate_of
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.influence import Bounds, Influence, Spread, clip_to_bounds
from assay.statistics.intervals import LEVEL, method, spread_of, student, with_interval, without_rounding

PSEUDO = 0.85
"""Pseudo-documents at each corner, of labels at the ends of the scale alone; a whole one is too much for shares near 1."""
LEAST, CARRIED = 0.25, 3.0
"""At least so many where all labels are alike; fewer by the square where more than so many documents carry their spread."""
WIDER = 1.06
"""An interval that is wider than that of the labels alone by this factor gives way to it: a strict rule would select by chance."""
USEFUL = 0.05
"""But not where verdicts explain so much of the labels' variance: labels alone are narrow when they are few of a kind by chance,
and then miss the truth in 20 to 60 % of cases."""
FEWEST = 4
"""Fewer labels say nothing about the judge: the judge is not used."""

Places = npt.NDArray[np.intp]


class Fit(NamedTuple):
    """A line of labels over verdicts, read at the judge's mean: the value, its slope, and how far each document moves it."""

    value: float
    slope: float
    contributions: Floats
    added: float
    """The variance that pseudo-documents add."""
    explained: float
    """The share of the labels' variance that the line explains."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Corrected(Estimate):
    """A corrected mean. `n` counts all documents with a verdict."""

    labels: int
    """How many documents have a label."""
    tuning: float
    """How much the judge counts: λ of prediction-powered inference."""
    judge: float
    """The mean of the verdicts."""
    alone: Estimate | None = None
    """That of the labels alone, where the judge adds nothing to it."""
    by_document: Floats = field(compare=False, repr=False)

    def finished(self, level: float, side: str) -> "Corrected":
        """The number with its interval, or the bound of one `side`, at this level."""
        if self.alone is not None:
            own = with_interval(self.alone, level, side)
            named = f"labels alone, {method(self.alone)}".rstrip(", ")
            return replace(self, interval=own.interval, method=named, df=own.df)
        spread = self.evidence.spread
        assert spread is not None, "it is of the labels alone otherwise"
        least, most = self.scale or (-math.inf, math.inf)
        half = student(level if side == "both" else 2 * level - 1, spread.freedom) * math.sqrt(spread.variance)
        low, high = max(self.center - half, least), min(self.center + half, most)
        ends = {"both": (low, high), "lower": (low, most), "upper": (least, high)}[side]
        return replace(self, interval=ends, method="ppi++", df=without_rounding(spread.freedom))

    @cached_property
    def for_contrasts(self) -> Floats:
        """A value per document with the same mean, as far apart as the interval is wide: for comparisons by document."""
        low, high, spread = self.low, self.high, self.evidence.spread
        around = self.by_document - self.by_document.mean()
        plain = math.sqrt(float((around**2).sum())) / len(around)
        if low is None or high is None or not plain:
            return self.by_document
        if self.alone is None and spread is not None:
            width = student(LEVEL, spread.freedom) * math.sqrt(spread.variance)
        else:
            width = (high - low) / 2
        wide: Floats = float(self) + around * max(width / (student(LEVEL, len(around) - 1) * plain), 1.0)
        return wide


def corrected(  # noqa: PLR0913  # verdicts and labels, and all that the interval depends on
    scores: Scores, labels: Scores, *, bounds: Bounds | None = (0.0, 1.0), clusters: Sequence[object] | None = None,
    level: float = LEVEL, side: Side = "both", source: str = "", documents: Sequence[int] | None = None,
) -> Corrected:  # fmt: skip
    """Estimate the mean label of all documents from a judge's score of each, and from labels of some: NaN where there is none.

    The labelled documents must be a random choice. `bounds` are those of the scale that both are on; `clusters` as of `estimate`.
    Noise of the judge, such as differing repeats of a verdict, is part of the spread of its scores.

    >>> verdicts = [1, 1, 0, 1, 0, 1, 1, 0, 1, 0, 1, 1] * 10
    >>> number = corrected(verdicts, [1, 1, 0, 0, 0, 1, 1, 0, 1, 0, 1, 1] * 2 + [float("nan")] * 96)
    >>> round(number.judge, 4), round(number.value, 4), round(number.tuning, 2), number.labels, number.method
    (0.6667, 0.5833, 0.7, 24, 'ppi++')
    """
    verdicts, people = array("scores", scores, missing=False), array("labels", labels, missing=True)
    if bounds is not None:
        verdicts, people = (np.asarray(clip_to_bounds(each, bounds)) for each in (verdicts, people))  # type: ignore[arg-type]
    chosen = np.flatnonzero(~np.isnan(people))
    _check(verdicts, people, chosen, bounds, clusters)
    numbers = range(len(verdicts)) if documents is None else documents
    kept = [clusters[place] for place in chosen.tolist()] if clusters is not None else None
    alone = estimate_of(people[chosen], bounds=bounds, clusters=kept, level=level, side=side)
    ties = np.asarray(numbered(clusters)) if clusters is not None else None
    number = None
    is_useful = len(chosen) < len(verdicts) and np.ptp(verdicts[chosen]) > 0
    if alone.draws >= FEWEST and alone.stderr is not None and is_useful:
        number, explained = _predicted(verdicts, people, chosen, bounds, ties)
        if explained < USEFUL and _width(number.finished(LEVEL, "both")) > WIDER * _width(with_interval(alone)):
            number = None
    if number is None:
        number = _of_labels(alone, verdicts, people, chosen)
    number = number.finished(level, side)
    if number.stderr is None:
        return number
    contributions = (number.by_document - float(number)) / len(verdicts)
    part = Influence(
        source, numbers, contributions, number.stderr**2, _as_numbers(clusters, ties), center=float(number)
    )
    part._spread = number.evidence.spread
    return replace(number, evidence=replace(number.evidence, parts={part: 1.0}))


def _as_numbers(clusters: Sequence[object] | None, ties: Places | None) -> list[int] | None:
    """The numbers of clusters as they are, so that those of other tasks are the same; other labels by their order."""
    if clusters is None or ties is None:
        return None
    own = [each for each in clusters if isinstance(each, int)]
    return own if len(own) == len(clusters) else ties.tolist()


def _predicted(
    verdicts: Floats, people: Floats, chosen: Places, bounds: Bounds | None, ties: Places | None
) -> tuple[Corrected, float]:
    """The corrected number, and how much of the labels' variance the verdicts explain."""
    plain = _line(verdicts, people, chosen, bounds, 0.0)
    wide = _line(verdicts, people, chosen, bounds, _pseudo(people[chosen], bounds))
    draws = len(chosen) if ties is None else len(np.unique(ties[chosen]))

    def by_draw(values: Floats) -> Floats:
        return values if ties is None else np.bincount(ties, weights=values)  # type: ignore[return-value]  # floats

    variance = float((by_draw(wide.contributions) ** 2).sum()) + wide.added
    if ties is not None:
        variance *= draws / (draws - 1)
    least, most = bounds or (-math.inf, math.inf)
    value, center = (min(max(each.value, least), most) for each in (plain, wide))
    count = len(verdicts)
    around = plain.contributions * math.sqrt(draws / (draws - 2))
    stderr = math.sqrt(float((by_draw(around) ** 2).sum()))
    number = Corrected(
        value,
        stderr,
        count,
        scale=bounds,
        evidence=Evidence(draws=draws, spread=Spread(variance, float(draws - 2), center), center=center),
        labels=len(chosen),
        tuning=plain.slope * (count - len(chosen)) / count,
        judge=float(verdicts.mean()),
        by_document=value + count * (around - around.mean()),
    )
    return number, wide.explained


def _of_labels(alone: Estimate, verdicts: Floats, people: Floats, chosen: Places) -> Corrected:
    count, value = len(people), float(alone)
    by_document = np.full(count, value)
    n = max(len(chosen), 2)
    by_document[chosen] += count / n * (people[chosen] - value) * math.sqrt(n / (n - 1))
    spread = spread_of(alone) if alone.stderr is not None else None
    return Corrected(
        value,
        alone.stderr,
        count,
        alone.reason,
        scale=alone.scale,
        evidence=Evidence(draws=alone.draws, spread=spread, center=alone.center),
        labels=len(chosen),
        tuning=0.0,
        judge=float(verdicts.mean()),
        alone=alone,
        by_document=by_document,
    )


def _line(verdicts: Floats, people: Floats, chosen: Places, bounds: Bounds | None, pseudo: float) -> Fit:
    """Fit labels over verdicts, with so many pseudo-documents at each corner of the bounds, and read it at the judge's mean."""
    ends = bounds if bounds is not None and math.isfinite(bounds[0] + bounds[1]) else (0.0, 0.0)
    x = np.concatenate([verdicts[chosen], [ends[0], ends[0], ends[1], ends[1]]])
    y = np.concatenate([people[chosen], [ends[0], ends[1], ends[0], ends[1]]])
    weights = np.concatenate([np.ones(len(chosen)), np.full(4, pseudo)])
    whole, mean = weights.sum(), verdicts.mean()
    x_mean, y_mean = (weights * x).sum() / whole, (weights * y).sum() / whole
    across = (weights * (x - x_mean) ** 2).sum()
    is_flat = across <= 1e-12 * max(1.0, x_mean * x_mean) * whole
    slope = 0.0 if is_flat else float((weights * (x - x_mean) * (y - y_mean)).sum() / across)
    pulls = 1 / whole + (0.0 if is_flat else (mean - x_mean) / across) * (x - x_mean)
    moved = pulls * (y - y_mean - slope * (x - x_mean))
    contributions = slope * (verdicts - mean) / len(verdicts)
    contributions[chosen] += moved[: len(chosen)]
    up = float((weights * (y - y_mean) ** 2).sum())
    explained = slope**2 * float(across) / up if up else 0.0
    added = float(pseudo * (moved[-4:] ** 2).sum())
    return Fit(float(y_mean + slope * (mean - x_mean)), slope, contributions, added, explained)


def _pseudo(labels: Floats, bounds: Bounds | None) -> float:
    """How many pseudo-documents are at each corner: fewer, the further the labels are from being at the ends of the scale alone."""
    if bounds is None or not math.isfinite(bounds[0] + bounds[1]):
        return 0.0
    around = (labels - labels.mean()) ** 2
    room = (labels.mean() - bounds[0]) * (bounds[1] - labels.mean())
    if not around.any() or room <= 0:
        return PSEUDO if np.isin(labels, bounds).all() else PSEUDO * LEAST
    carriers = float(around.sum() ** 2 / (around**2).sum())
    at_ends = min(float(around.mean() / room), 1.0)
    return PSEUDO * max(at_ends**2, LEAST * min(1.0, (CARRIED / carriers) ** 2))


def _width(number: Estimate) -> float:
    low, high = number.low, number.high
    return math.inf if low is None or high is None else high - low


def _check(
    verdicts: Floats, people: Floats, chosen: Places, bounds: Bounds | None, clusters: Sequence[object] | None
) -> None:
    if verdicts.ndim != 1 or verdicts.shape != people.shape:
        raise ValueError(
            f"labels: one per document is needed, NaN where there is none; got {len(people)} for {len(verdicts)}"
        )
    if not len(chosen):
        raise ValueError("labels: no document has one")
    if clusters is not None and len(clusters) != len(verdicts):
        raise ValueError(f"clusters: {len(clusters)} for {len(verdicts)} scores")
    for name, numbers in (("scores", verdicts), ("labels", people[chosen])):
        if bounds is not None and not (bounds[0] <= numbers.min() and numbers.max() <= bounds[1]):
            raise ValueError(f"bounds: {name} from {numbers.min():g} to {numbers.max():g} are not within {bounds}")
