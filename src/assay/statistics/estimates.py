"""A number and its standard error."""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from assay.errors import some
from assay.records import Failed, Floats, exact, number
from assay.statistics.aggregations import AGGREGATIONS, BOUNDS, MEANS, MEDIANS, Aggregation, Values, mean, total
from assay.statistics.classes import CLASS_AGGREGATIONS, every_pair
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.influence import SHARE, Bounds, Influence, Spread, with_pseudo_documents
from assay.statistics.intervals import RANKED, noted
from assay.user_code import call_user_code, place_of

LM_EVAL_BOOTSTRAPS = (
    "median_high",
    "matthews_corrcoef",
    "f1",
    "perplexity",
    "bleu",
    "chrf",
    "chrf++",
    "ter",
    "nanmean",
)
SLOW = ("bleu", "chrf", "chrf++", "ter")
"""Metrics of which lm-eval draws 100 resamples at most: by the metric's name, whatever its aggregation."""
CHUNK = 1000
FEW_OF_A_CLASS = 5
LITTLE_KNOWN = "the number is biased, and its interval too narrow"
"""Of a class with fewer documents little is known: macro F1 of rare classes held the truth in 42 to 89 % of intervals."""
Integers = npt.NDArray[np.int64]
StderrMethod = Literal["influence", "lm-eval"]
"""How standard errors are made: from influence values, else by a rescaled bootstrap; or in closed form for means alone, else by
lm-eval 0.4.13's bootstrap for its own aggregations. The latter knows no clusters and no biases."""


@np.errstate(invalid="ignore")  # inf less inf is NaN, and the reason says so
def estimate(
    aggregation: Aggregation | Callable[[Values], float],
    values: Values,
    *,
    bootstrap_iters: int,
    stderr: StderrMethod = "influence",
    metric: str = "",
    clusters: Sequence[int] | None = None,
) -> Estimate:
    """The number these values give, and how it would vary over other documents of the same kind.

    `clusters` says of each value which others were drawn with it; without it, each was drawn alone.
    """
    known = aggregation if isinstance(aggregation, Aggregation) else Aggregation("custom", aggregation)
    n = len(values)
    named = f"the aggregation {known.name!r}" if known is aggregation else place_of("the aggregation", aggregation)
    returned = call_user_code(named, known.function, values)
    if isinstance(returned, Failed):
        return Estimate(None, None, n, returned.reason)
    value = exact(returned)
    if isinstance(value, Mapping) and value and all(number(each) is not None for each in value.values()):
        numbers = {str(exact(name)): float(exact(each)) for name, each in value.items()}
        return Estimate(None, None, n, f"{named} gives several numbers", named_values=numbers)
    try:
        value = float(value)
    except (TypeError, ValueError, OverflowError):
        gave = f"a value of type {type(value).__name__!r}" if not isinstance(value, str | int) else f"{value!s:.60}"
        return Estimate(None, None, n, f"{named} returned {gave}, which is not a number")
    if math.isnan(value):
        lost = sum(each is None or (isinstance(each, float) and math.isnan(each)) for each in values)
        endless = sum(isinstance(each, float) and math.isinf(each) for each in values)
        reason = f"{lost} of {n} values are not numbers" if lost else f"{endless} of {n} values are infinite"
        return Estimate(None, None, n, reason if lost or endless else f"{named} returned NaN")
    if math.isinf(value) and stderr != "lm-eval":
        return Estimate(value, None, n, "an infinite number has no standard error")
    if n < 2 or not bootstrap_iters or bootstrap_iters < 0:
        return Estimate(value, None, n, "one document has no spread" if n < 2 else "bootstrap_iters is 0")
    draws = n if clusters is None else len(set(clusters))
    if draws < 2:
        return Estimate(
            value, None, n, "all documents are of one cluster, which has no spread", evidence=Evidence(draws=draws)
        )
    if stderr == "lm-eval":
        error = _lm_eval_stderr(known, values, min(bootstrap_iters, 100) if metric in SLOW else bootstrap_iters)
    else:
        error = _stderr(known, values, bootstrap_iters, clusters)
        if error is not None and not math.isfinite(error):
            return Estimate(value, None, n, "infinite values have no spread", evidence=Evidence(draws=draws))
    return Estimate(
        value, error, n, "" if error is not None else f"none is known for {known.name}", evidence=Evidence(draws=draws)
    )


def with_draws(
    value: Estimate,
    aggregation: Aggregation | Callable[[Values], float],
    values: Values,
    documents: Sequence[int],
    source: str,
    clusters: Sequence[int] | None = None,
) -> Estimate:
    """The number with what is known of its draws: how far each document moves it, or only its variance."""
    if not isinstance(aggregation, Aggregation):
        aggregation = Aggregation("", aggregation)
    named, declared = aggregation.name, aggregation.bounds
    is_rate = named == "mean" and declared in (None, SHARE) and set(values) <= {0, 1}
    note = "" if is_rate or declared is None or value.value is None else _beyond(values, declared)
    unused = declared if note else None
    bounds = SHARE if is_rate else declared if declared is not None and not note else BOUNDS.get(named)
    note = note or _few_of_a_class(aggregation, values)
    draws, is_power = value.evidence.draws, named.endswith("perplexity")
    stderr = value.stderr
    if stderr is None or value.value is None:
        evidence = Evidence(draws=draws, is_rate=is_rate, is_power=is_power)
        return replace(value, scale=bounds, note=note, unused_bounds=unused, evidence=evidence)
    influence = aggregation.influence(values) if aggregation.influence is not None else None
    if influence is None or len(influence) != len(values):
        known, spread = Influence(source, documents, None, stderr**2, clusters), None
    else:
        weights = aggregation.weights(values) if aggregation.weights is not None else None
        bounded = bounds if named in MEANS else None
        known = Influence.of_mean(source, documents, influence, clusters, bounds=bounded, weights=weights)
        spread = _of_areas(named, value, values, known) or _with_rare_classes(aggregation, value, values)
    ranked = sorted(values) if named in MEDIANS and value.draws == len(values) >= RANKED else None
    evidence = Evidence({known: 1.0}, draws, is_rate, is_power, spread, ranked=ranked)
    return noted(replace(value, scale=bounds, note=note, unused_bounds=unused, evidence=evidence))


def _of_areas(name: str, value: Estimate, values: Values, known: Influence) -> Spread | None:
    """The spread of an area under a curve: a mean over documents of the rarer kind, so as many say how far it may be off, and parts
    of documents at the bounds count as for scores. None of other numbers."""
    if name not in ("roc_auc", "pr_auc") or value.draws < len(values):
        return None
    kinds = np.asarray(values, dtype=np.float64)[..., 0].reshape(len(values), -1)
    rarest = float(np.minimum(kinds.sum(axis=0), (1 - kinds).sum(axis=0)).min())
    plain = Spread((value.stderr or 0.0) ** 2, max(rarest - 1, 1.0), float(value))
    return with_pseudo_documents(plain, rarest, known.carriers(), SHARE) if rarest > 1 else plain


def _with_rare_classes(aggregation: Aggregation, value: Estimate, values: Values) -> Spread | None:
    """The spread of a number over classes, if each combination of classes is seen once more in all, and no less than the plain one:
    of a rare class, what was not seen may be seen in others. None of other numbers."""
    is_of_classes = aggregation.name == "f1" or aggregation.name in CLASS_AGGREGATIONS
    if not is_of_classes or aggregation.by_repeat or aggregation.influence is None or value.draws < len(values):
        return None
    cells = every_pair(aggregation.name, values)
    if not cells:
        return None
    influence = aggregation.influence([*values] * len(cells) + [*cells])  # of each, one in so many documents
    smoothed, plain = float(np.var(influence)) / len(values), (value.stderr or 0.0) ** 2
    return Spread(max(smoothed, plain), len(values) - 1.0, float(value))


def _beyond(values: Values, bounds: Bounds) -> str:
    """A note if values are not within the bounds that their metric declares; NaN is none of them."""
    low, high = np.nanmin(values), np.nanmax(values)
    if bounds[0] <= low and high <= bounds[1]:
        return ""
    said = f"scores from {low:g} to {high:g} are not within the declared bounds, {bounds[0]:g} to {bounds[1]:g}"
    return f"{said}: its interval does not use them"


def _few_of_a_class(aggregation: Aggregation, values: Values) -> str:
    """A note if a class has so few documents that its share of a number over classes is hardly known."""
    if aggregation.by_repeat:
        return ""
    if aggregation.name not in CLASS_AGGREGATIONS or aggregation.name.startswith("micro_"):
        return ""
    if aggregation.name.startswith("class_"):
        own = sum(actual for _, _, actual in values)
        return f"its class has {own} documents: {LITTLE_KNOWN}" if own < FEW_OF_A_CLASS else ""
    labels = getattr(aggregation.function, "keywords", {}).get("labels")
    counts = Counter(gold for gold, _ in values)
    few = [f"{label!r} {counts[label]}" for label in labels or counts if counts[label] < FEW_OF_A_CLASS]
    return f"classes with fewer than {FEW_OF_A_CLASS} documents ({some(few)}): {LITTLE_KNOWN}" if few else ""


def mean_stderr(values: Values) -> float:
    """The sample standard deviation over the root of n."""
    return sample_deviation(values) / math.sqrt(len(values))


def sample_deviation(values: Values) -> float:
    centre = mean(values)
    numbers = np.asarray(values, dtype=np.float64)
    return math.sqrt(total(((numbers - centre) ** 2).tolist()) / (len(values) - 1))


def _stderr(aggregation: Aggregation, values: Values, iterations: int, clusters: Sequence[int] | None) -> float | None:
    """From influence values where they are known; else by bootstrap, rescaled for what a resample lacks in spread."""
    if aggregation.name == "bypass":
        return None
    if aggregation.influence is not None:
        influence = aggregation.influence(values)
        if clusters is None:
            return mean_stderr(influence) if len(influence) > 1 else None  # type: ignore[arg-type]  # read once, as a sequence
        if len(influence) == len(values):
            return math.sqrt(Influence.of_mean("", (), influence, clusters).variance)
    n, limit = len(values if clusters is None else set(clusters)), aggregation.bootstrap_limit or 1000
    spread = call_user_code("bootstrap", bootstrap, aggregation, values, min(iterations, limit), clusters)
    return None if isinstance(spread, Failed) else spread * math.sqrt(n / (n - 1))


def _lm_eval_stderr(aggregation: Aggregation, values: Values, iterations: int) -> float | None:
    """As lm-eval 0.4.13: closed form for means, its own bootstrap for a few, nothing for the rest."""
    if aggregation.name in ("mean", "acc_all"):
        return _stderr(aggregation, values, iterations, None)
    if aggregation.name not in LM_EVAL_BOOTSTRAPS:
        return None
    return bootstrap(aggregation, values, iterations)


def bootstrap(
    aggregation: Aggregation, values: Values, iterations: int, clusters: Sequence[int] | None = None
) -> float:
    """The spread of the number over resamples; the draws are lm-eval's, number for number, but for clusters."""
    fast = _FAST.get(aggregation.name) if not aggregation.by_repeat else None
    prepared = fast[0](values) if fast is not None else None
    results: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a resample without one of the classes, say
        drawn = resamples(len(values), iterations) if clusters is None else whole_clusters(clusters, iterations)
        for indices in drawn:
            if fast is not None:
                results += fast[1](prepared, indices)
            else:
                results += [aggregation.function([values[i] for i in row]) for row in indices.tolist()]
    return sample_deviation(results)


def resamples(n: int, iterations: int) -> Iterator[Integers]:
    """Rows of n indices, a block at a time: what `random.Random(block).choices` draws, in one go for a block."""
    chunk = min(CHUNK, iterations)
    rows = max(1, min(chunk, 2_000_000 // n))
    for block in range(iterations // chunk):
        stream = np.random.RandomState([block])  # seeded as random.Random(block) is: init_by_array of one word
        for start in range(0, chunk, rows):
            size = min(rows, chunk - start)
            yield np.floor(stream.random_sample(size * n) * n).astype(np.int64).reshape(size, n)


def whole_clusters(clusters: Sequence[int], iterations: int) -> Iterator[Integers]:
    """Resample by resample the indices of all values of as many clusters as there are, drawn with replacement."""
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    place = np.array([numbers[cluster] for cluster in clusters])
    ordered, sizes = np.argsort(place, kind="stable"), np.bincount(place)
    starts = np.cumsum(sizes) - sizes
    for rows in resamples(len(sizes), iterations):
        for row in rows:
            drawn = sizes[row]
            within = np.arange(drawn.sum()) - np.repeat(np.cumsum(drawn) - drawn, drawn)
            yield ordered[np.repeat(starts[row], drawn) + within][None, :]


def _as_array(values: Values) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _row_means(numbers: Floats, indices: Integers) -> Floats:
    means: Floats = np.cumsum(numbers[indices], axis=1)[:, -1] / indices.shape[1]
    return means


def _perplexities(numbers: Floats, indices: Integers) -> list[float]:
    perplexity = AGGREGATIONS["perplexity"].function
    return [perplexity([value]) for value in _row_means(numbers, indices).tolist()]


def _medians(numbers: Floats, indices: Integers) -> list[float]:
    return np.median(numbers[indices], axis=1).tolist()  # type: ignore[no-any-return]


def _high_medians(numbers: Floats, indices: Integers) -> list[float]:
    middle = indices.shape[1] // 2
    return np.partition(numbers[indices], middle, axis=1)[:, middle].tolist()  # type: ignore[no-any-return]


def _cells(values: Values) -> tuple[Integers, int]:
    """Each pair (right, given) as one number, and how many labels there are."""
    labels = sorted({label for both in values for label in both}, key=repr)
    place = {label: number for number, label in enumerate(labels)}
    return np.array([place[gold] * len(labels) + place[predicted] for gold, predicted in values]), len(labels)


def _correlations(prepared: tuple[Integers, int], indices: Integers) -> list[float]:
    """Matthews' coefficient of each resample, from its table of counts."""
    cells, k = prepared
    results = []
    for row in indices:
        table = np.bincount(cells[row], minlength=k * k).reshape(k, k).astype(np.float64)
        golds, predicted, n = table.sum(axis=1), table.sum(axis=0), table.sum()
        together = np.trace(table) * n - np.dot(golds, predicted)
        spread = (n**2 - np.dot(predicted, predicted)) * (n**2 - np.dot(golds, golds))
        results.append(float(together / np.sqrt(spread)) if spread else 0.0)
    return results


def _is_one(values: Values) -> tuple[Floats, Floats]:
    """Whether the right and the given class is 1: of two classes, as F1 takes them."""
    actual, predicted = (np.array([each == 1 for each in side], dtype=np.float64) for side in zip(*values, strict=True))
    return actual, predicted


def _f1_scores(prepared: tuple[Floats, Floats], indices: Integers) -> list[float]:
    """F1 of each resample, as scikit-learn divides; 0 where nothing is of the class."""
    actual, predicted = prepared
    correct, below = (actual * predicted)[indices].sum(axis=1), (actual + predicted)[indices].sum(axis=1)
    return np.divide(2 * correct, below, out=np.zeros_like(below), where=below > 0).tolist()  # type: ignore[no-any-return]


_FAST: dict[str, tuple[Callable[[Values], Any], Callable[[Any, Any], Sequence[float]]]] = {
    "perplexity": (_as_array, _perplexities),
    "median": (_as_array, _medians),
    "median_high": (_as_array, _high_medians),
    "matthews_corrcoef": (_cells, _correlations),
    "f1": (_is_one, _f1_scores),
}
"""Aggregations whose resamples are computed without building each of them as a list."""
