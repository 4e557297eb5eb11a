"""Aggregator metrics: the unit results of all records to the numbers of a report.

Each is a function of its parameters in a file that returns a Collation: what to read of one unit result, and the numbers that all
values make together.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from assay.graphs.spec import Record, Value
from assay.records import JSONDict
from assay.statistics.aggregations import AGGREGATIONS, Aggregation
from assay.statistics.classes import macro_influence, macro_score, score_of_counts
from assay.statistics.pass_at_k import pass_all_k, pass_at_k

if TYPE_CHECKING:
    from assay.graphs.sygra_classes import UnitMetricResult


class NumberEvidence(NamedTuple):
    """The aggregation behind a number and its values, one per unit result, from which its standard error follows."""

    aggregation: Aggregation
    values: Sequence[Value]


NO_RESULTS = "there are no unit results"
"""Why there is no number where there is nothing to aggregate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collation:
    """An aggregator metric with its parameters."""

    read: Callable[["UnitMetricResult"], Value]
    """Returns what is kept of one unit result: little, so that a million records fit into memory."""
    summarize: Callable[[Sequence[Value]], JSONDict]
    """Makes the numbers, by name, of the values of all unit results."""
    numbers: Sequence[str] | None = None
    """The names of the numbers; None where only the code that makes them knows."""
    columns: Sequence[str] = ()
    """The columns of the records that it reads in the metadata of unit results."""
    needs_groups: bool = False
    """Whether it must know which records are attempts at one problem, and no columns say it."""
    reads_ids: bool = False
    """Whether the ids of records say it, where they have some."""
    counts_nothing: bool = False
    """Whether it has numbers for no unit results at all."""
    higher_is_better: bool | None = None
    evidence: Callable[[Sequence[Value]], Mapping[str, NumberEvidence]] = lambda values: {}  # noqa: ARG005  # most have none
    """Returns the evidence of each number, by name, whose standard error follows from it."""

    def calculate(self, results: Sequence["UnitMetricResult"]) -> JSONDict:
        """Return the numbers of these unit results."""
        return self.aggregate([self.read(result) for result in results])

    def aggregate(self, values: Sequence[Value]) -> JSONDict:
        """Return the numbers of these values."""
        if not values and not self.counts_nothing:
            raise ValueError(NO_RESULTS)
        return self.summarize(values)


def is_correct(result: "UnitMetricResult") -> bool:
    return bool(result.correct)


def collate_values(name: str, read: Callable[["UnitMetricResult"], Value], aggregation: Aggregation) -> Collation:
    """An aggregation over what is read of unit results: one number, with its standard error."""

    def summarize(values: Sequence[Value]) -> JSONDict:
        number: Value = aggregation.function(values)
        return dict(number) if isinstance(number, Mapping) else {name: number}

    def evidence(values: Sequence[Value]) -> Mapping[str, NumberEvidence]:
        return {name: NumberEvidence(aggregation, values)}

    return Collation(read=read, summarize=summarize, numbers=(name,), evidence=evidence)


def accuracy(*, key: str | None = None) -> Collation:  # noqa: ARG001
    """The share of records that are correct. `key` changes nothing: SyGra's configurations write it."""
    return collate_values("accuracy", is_correct, AGGREGATIONS["mean"])


# --- attempts at problems -------------------------------------------------------------------------------------------------

REPEAT, REPEAT_OF = "repeat", "repeat_of"
"""The columns of a run with repeats: which repeat of a record it is, counted from 1, and the number of that record."""
STEP = ("mission_id", "step_id")
"""The columns that tell the steps of web agents apart."""
STEP_NUMBERS = (
    "step_efficiency", "total_steps", "first_attempt_correct", "retry_correct", "never_correct", "avg_retries_when_correct",
)  # fmt: skip
Columns = str | list[Value] | None


def _problem_of(metadata: Record, columns: Sequence[str]) -> tuple[str, ...]:
    """Which problem an attempt is at."""
    for column in columns:
        if metadata.get(column) is None:
            raise ValueError(f"a unit result has no {column!r} in its metadata, by which attempts are grouped")
    return tuple(repr(metadata[column]) for column in columns)


def _usual_columns(metadata: Record, k: int) -> Sequence[str]:
    """The columns by which attempts at one problem are known where none are named."""
    for columns in ((REPEAT_OF,), STEP, ("id",)):
        if all(metadata.get(column) is not None for column in columns):
            return columns
    if k > 1:
        raise ValueError("which records are attempts at the same problem is not known: add `group_by:`")
    return ()


def _as_columns(written: Columns) -> tuple[str, ...]:
    return (written,) if isinstance(written, str) else tuple(map(str, written or ()))


def _of_attempts(
    k: int, group_by: Columns, numbers: Sequence[str], summarize: Callable[[Sequence[tuple[int, int]]], JSONDict]
) -> Collation:
    """Means over problems; `summarize` is given how many attempts there were at each, and how many were correct."""
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    columns = _as_columns(group_by)

    def read(result: "UnitMetricResult") -> tuple[tuple[str, ...], bool]:
        return _problem_of(result.metadata, columns or _usual_columns(result.metadata, k)), bool(result.correct)

    def count(values: Sequence[tuple[tuple[str, ...], bool]]) -> JSONDict:
        # without columns, every record is a problem of its own
        problems = [key or (str(number),) for number, (key, _) in enumerate(values)]
        correct = Counter(problem for problem, (_, is_right) in zip(problems, values, strict=True) if is_right)
        return summarize([(n, correct[problem]) for problem, n in Counter(problems).items()])

    return Collation(
        read=read,
        summarize=count,
        numbers=numbers,
        columns=columns,
        needs_groups=k > 1 and not columns,
        reads_ids=not columns,
    )


def _mean_chances(
    name: str, chance: Callable[[int, int, int], float], most: int, counts: Sequence[tuple[int, int]]
) -> JSONDict:
    """By number of attempts the mean over problems; null, with a reason, where a problem has fewer."""
    means: JSONDict = {}
    for k in range(1, most + 1):
        few = sum(n < k for n, _ in counts)
        if few == len(counts):
            raise ValueError(f"{name}{k} needs {k} attempts at a problem, and none has as many")
        chances = [chance(n, correct, k) for n, correct in counts if n >= k]
        means[f"{name}{k}"] = None if few else sum(chances) / len(chances)
        if few:
            means["note"] = f"{few} of {len(counts)} problems have fewer than {k} attempts"
    return means


def chance_of_one(*, k: int, group_by: Columns = None) -> Collation:
    """The probability that at least one of 1, 2, … k attempts at a problem is correct, without bias."""
    numbers = [f"pass@{n}" for n in range(1, k + 1)]
    return _of_attempts(k, group_by, numbers, partial(_mean_chances, "pass@", pass_at_k, k))


def chance_of_all(*, k: int, group_by: Columns = None) -> Collation:
    """The probability that all of 1, 2, … k attempts at a problem are correct, without bias; and the share of correct ones."""

    def summarize(counts: Sequence[tuple[int, int]]) -> JSONDict:
        rate = sum(correct for _, correct in counts) / sum(n for n, _ in counts)
        return {"success_rate": rate, **_mean_chances("pass^", pass_all_k, k, counts)}

    return _of_attempts(k, group_by, ["success_rate", *(f"pass^{n}" for n in range(1, k + 1))], summarize)


def step_efficiency(
    *,
    penalty_per_retry: float = 0.2,
    group_by: Columns = None,
    key: str | None = None,  # noqa: ARG001  # SyGra's configurations write it
) -> Collation:
    """The mean over steps of 1, less `penalty_per_retry` for every retry before the first correct attempt; 0 without one.

    An attempt's number is `retry_number` in its metadata, or the digits at the end of `retry_id`, or its place in the step.
    """
    if not 0 <= penalty_per_retry <= 1:
        raise ValueError(f"penalty_per_retry must be between 0 and 1, got {penalty_per_retry}")
    columns = _as_columns(group_by) or STEP
    return Collation(
        read=lambda result: (_problem_of(result.metadata, columns), retry_number(result.metadata), is_correct(result)),
        summarize=partial(summarize_steps, penalty_per_retry),
        numbers=STEP_NUMBERS,
        columns=columns,
    )


def retry_number(metadata: Record) -> int | None:
    """The number of an attempt, where its metadata has one."""
    if metadata.get("retry_number") is not None:
        return int(metadata["retry_number"])
    match = re.search(r"_(\d+)$", str(metadata.get("retry_id") or ""))
    return int(match.group(1)) if match else None


def summarize_steps(penalty: float, values: Sequence[tuple[tuple[str, ...], int | None, bool]]) -> JSONDict:
    """The numbers of attempts at steps: each with its step, its number, else it is counted, and whether it is correct."""
    attempts, first = Counter[tuple[str, ...]](), dict[tuple[str, ...], int]()
    for step, retry, is_right in values:
        number = attempts[step] if retry is None else retry
        attempts[step] += 1
        if is_right:
            first[step] = min(number, first.get(step, number))
    retries, steps = list(first.values()), len(attempts)
    scores = [max(0.0, 1 - retry * penalty) for retry in retries]
    return {
        "step_efficiency": sum(scores) / steps if steps else 0.0,
        "total_steps": steps,
        "first_attempt_correct": sum(retry == 0 for retry in retries),
        "retry_correct": sum(retry > 0 for retry in retries),
        "never_correct": steps - len(retries),
        "avg_retries_when_correct": sum(retries) / len(retries) if retries else 0.0,
    }


# --- classes --------------------------------------------------------------------------------------------------------------


class ClassedResult(NamedTuple):
    """The classes of a unit result as they are spelled, and how its metric compares texts."""

    golden: str | None
    answer: str | None
    is_correct: bool
    is_case_sensitive: bool
    keeps_spaces: bool

    def fold(self, spelled: str) -> str:
        """A class as it is compared."""
        text = spelled if self.keeps_spaces else " ".join(spelled.split())
        return text if self.is_case_sensitive else text.lower()


one_of_equals = lru_cache(maxsize=4096)(ClassedResult)
"""Equal results are one object: a million records have few different ones."""


def _read_classes(
    golden_key: str, predicted_key: str, must_be_golden: bool, result: "UnitMetricResult"
) -> ClassedResult:
    golden, predicted = result.golden.get(golden_key), result.predicted.get(predicted_key)
    if golden is None and (must_be_golden or predicted is None):
        raise ValueError(f"a golden value has no {golden_key!r}: {dict(result.golden)!r:.80}")
    answer = golden if result.correct and golden is not None else predicted
    return one_of_equals(
        None if golden is None else str(golden),
        None if answer is None else str(answer),
        bool(result.correct),
        bool(result.metadata.get("case_sensitive")),
        result.metadata.get("normalize_whitespace") is False,
    )


NumberedResult = tuple[int, int, bool]
"""The numbers of the right and the given class, -1 for none of those that count, and whether the answer is correct."""


def number_classes(
    values: Sequence[ClassedResult], labels: list[Value] | None
) -> tuple[Sequence[str], Mapping[ClassedResult, NumberedResult]]:
    """Return the classes that count, as they are spelled: those that were right, then those only given, unless `labels` names
    them; and each different result by their numbers."""
    distinct, classes = dict.fromkeys(values), dict[str, str]()
    for side in ("golden", "answer"):
        for value in distinct:
            text = getattr(value, side)
            if text is not None:
                classes.setdefault(value.fold(text), text)
    if not classes:
        raise ValueError(NO_RESULTS)
    if labels is not None:
        classes = {values[-1].fold(str(label)): str(label) for label in labels}
    places = {label: place for place, label in enumerate(classes)}

    def place_of(value: ClassedResult, text: str | None) -> int:
        return -1 if text is None else places.get(value.fold(text), -1)

    return [*classes.values()], {
        value: (place_of(value, value.golden), place_of(value, value.answer), value.is_correct) for value in distinct
    }


_SCORE = {"precision": "precision", "recall": "recall", "f1_score": "f1"}
"""SyGra's names of scores, and those of `statistics`."""


def _of_classes(name: str, golden_key: str | None, predicted_key: str, labels: list[Value] | None) -> Collation:
    """A score of each class, and its mean over classes."""
    for parameter, key in (("golden_key", golden_key), ("predicted_key", predicted_key)):
        if key == "":
            raise ValueError(f"{parameter} is empty")
    if labels is not None and not labels:
        raise ValueError("labels must name a class")
    score, average = _SCORE[name], f"average_{name}"

    def summarize(values: Sequence[ClassedResult]) -> JSONDict:
        classes, numbered = number_classes(values, labels)
        right, given, hits = Counter[int](), Counter[int](), Counter[int]()
        for value, count in Counter(values).items():
            golden, answer, is_hit = numbered[value]
            right[golden] += count
            given[answer] += count
            hits[answer] += count * is_hit
        scores = {
            spelled: score_of_counts(score, hits[place], given[place], right[place])
            for place, spelled in enumerate(classes)
        }
        return {average: sum(scores.values()) / len(scores), f"{name}_per_class": scores}

    def evidence(values: Sequence[ClassedResult]) -> Mapping[str, NumberEvidence]:
        classes, numbered = number_classes(values, labels)
        function = partial(macro_score, score=score, classes=len(classes))
        influence = partial(macro_influence, score=score, classes=len(classes))
        aggregation = Aggregation(average, function, influence)
        return {average: NumberEvidence(aggregation, [numbered[value] for value in values])}

    read = partial(_read_classes, golden_key or predicted_key, predicted_key, golden_key is not None)
    return Collation(read=read, summarize=summarize, numbers=(average,), evidence=evidence)


def precision(*, predicted_key: str, golden_key: str | None = None, labels: list[Value] | None = None) -> Collation:
    """Of the answers of each class, the share that is correct. `labels` are the classes that count, else all that occur.

    Without `golden_key`, the classes of golden values are looked for under the same key, and may be missing.
    """
    return _of_classes("precision", golden_key, predicted_key, labels)


def recall(*, golden_key: str, predicted_key: str | None = None, labels: list[Value] | None = None) -> Collation:
    """Of the records of each class, the share that is correct."""
    return _of_classes("recall", golden_key, golden_key if predicted_key is None else predicted_key, labels)


def f1_score(*, golden_key: str, predicted_key: str, labels: list[Value] | None = None) -> Collation:
    """The harmonic mean of precision and recall of each class; their average is the mean over classes."""
    return _of_classes("f1_score", golden_key, predicted_key, labels)
