"""SyGra's own definitions, for dialects that have them: kept as they are, so that its numbers can be reproduced.

Precision averages over predicted classes, recall over golden ones, and the average F1 is the harmonic mean of these two
averages; labels are compared as they are written; pass@k takes all records for attempts at one problem, and pass^k is a
power of their rate; a step without a name is the step "unknown"; of nothing, everything is 0.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from assay.dialect import Dialect
from assay.graphs.aggregator_metrics import (
    STEP,
    STEP_NUMBERS,
    ClassedResult,
    Collation,
    is_correct,
    one_of_equals,
    retry_number,
    summarize_steps,
)
from assay.graphs.spec import Record
from assay.graphs.sygra_classes import UnitMetricResult
from assay.records import JSONDict
from assay.statistics.classes import f1_of_rates
from assay.statistics.pass_at_k import pass_at_k


def _average(values: Collection[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _of_verdicts(numbers: Sequence[str], summarize: Callable[[Sequence[bool]], JSONDict]) -> Collation:
    return Collation(read=is_correct, summarize=summarize, numbers=numbers, counts_nothing=True)


def accuracy(*, key: str | None = None) -> Collation:  # noqa: ARG001
    """The share of correct records; 0 of none."""
    return _of_verdicts(("accuracy",), lambda values: {"accuracy": _average(values)})


def _rates(values: Sequence[ClassedResult], side: str) -> Mapping[str, float]:
    """By label the share of its records that are correct."""
    count, correct = Counter[str](), Counter[str]()
    for value, times in Counter(values).items():
        label = getattr(value, side)
        if label is not None:
            count[label] += times
            correct[label] += times * value.is_correct
    return {label: correct[label] / times for label, times in count.items()}


def _of_classes(
    name: str,
    golden_key: str | None,
    predicted_key: str | None,
    summarize: Callable[[Sequence[ClassedResult]], tuple[float, Mapping[str, float]]],
) -> Collation:
    def read(result: UnitMetricResult) -> ClassedResult:
        golden, answer = (
            str(side[key]) if key in side else None
            for side, key in ((result.golden, golden_key), (result.predicted, predicted_key))
        )
        return one_of_equals(golden, answer, result.correct, True, True)

    def name_numbers(values: Sequence[ClassedResult]) -> JSONDict:
        average, by_class = summarize(values)
        return {f"average_{name}": average, f"{name}_per_class": by_class}

    return Collation(read=read, summarize=name_numbers, numbers=(f"average_{name}",), counts_nothing=True)


def _of_side(side: str, values: Sequence[ClassedResult]) -> tuple[float, Mapping[str, float]]:
    rates = _rates(values, side)
    return _average(rates.values()), rates


def precision(*, predicted_key: str) -> Collation:
    """By predicted class, and the mean over these."""
    return _of_classes("precision", None, predicted_key, partial(_of_side, "answer"))


def recall(*, golden_key: str) -> Collation:
    """By golden class, and the mean over these."""
    return _of_classes("recall", golden_key, None, partial(_of_side, "golden"))


def f1_score(*, predicted_key: str, golden_key: str) -> Collation:
    """By class; the average is the harmonic mean of average precision and average recall."""

    def summarize(values: Sequence[ClassedResult]) -> tuple[float, Mapping[str, float]]:
        (mean_precision, precisions), (mean_recall, recalls) = _of_side("answer", values), _of_side("golden", values)
        labels = dict.fromkeys([*precisions, *recalls])
        by_class = {label: f1_of_rates(precisions.get(label, 0.0), recalls.get(label, 0.0)) for label in labels}
        return f1_of_rates(mean_precision, mean_recall), by_class

    return _of_classes("f1_score", golden_key, predicted_key, summarize)


def chance_of_one(*, k: int) -> Collation:
    """Of all records together."""
    sizes = {f"pass@{size}": size for size in range(1, k + 1)}

    def summarize(values: Sequence[bool]) -> JSONDict:
        n, correct = len(values), sum(values)
        return {name: pass_at_k(n, correct, size) if size <= n else 0.0 for name, size in sizes.items()}

    return _of_verdicts((*sizes,), summarize)


def chance_of_all(*, k: int) -> Collation:
    """Powers of the rate of correct records."""
    sizes = {"success_rate": 1, **{f"pass^{size}": size for size in range(1, k + 1)}}
    return _of_verdicts((*sizes,), lambda values: {name: _average(values) ** size for name, size in sizes.items()})


def step_efficiency(*, penalty_per_retry: float = 0.2, key: str | None = None) -> Collation:  # noqa: ARG001
    """Steps without a name are one step; attempts without a number are first ones."""

    def step(metadata: Record) -> tuple[str, ...]:
        return tuple(str(metadata.get(column, "unknown")) for column in STEP)

    return Collation(
        read=lambda result: (step(result.metadata), retry_number(result.metadata) or 0, is_correct(result)),
        summarize=partial(summarize_steps, penalty_per_retry),
        numbers=STEP_NUMBERS,
        counts_nothing=True,
    )


def sygra_aggregators(dialect: Dialect) -> dict[str, Callable[..., Collation]]:
    """Return the aggregator metrics that a dialect defines as SyGra does, by name."""
    metrics: dict[str, Callable[..., Collation]] = {}
    if dialect.scores_nothing_as_zero:
        metrics["accuracy"] = accuracy
    if dialect.averages_classes_as_sygra:
        metrics |= {"precision": precision, "recall": recall, "f1_score": f1_score}
    if dialect.pools_attempts:
        metrics |= {"pass@k": chance_of_one, "pass_at_k": chance_of_one, "pass^k": chance_of_all}
    if dialect.takes_unnamed_steps_for_one:
        metrics["step_efficiency"] = step_efficiency
    return metrics
