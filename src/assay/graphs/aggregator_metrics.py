"""Aggregator metrics: the unit results of all records to what a report says of them.

An aggregator metric makes a tally, which looks at one unit result after the other and keeps only what it needs; a class
written for SyGra has `calculate`, which is given all of them at once.
"""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from assay.graphs.spec import Record, Value
from assay.graphs.sygra_classes import UnitMetricResult
from assay.records import JSONDict, UserFunction, UserValue
from assay.signatures import accepted, dress
from assay.statistics.aggregations import AGGREGATIONS, Aggregation
from assay.statistics.classes import macro_influence, macro_score, score_of_counts
from assay.statistics.pass_at_k import pass_all_k, pass_at_k
from assay.user_code import is_overridden


class Tally(Protocol):
    """An aggregation at work."""

    def add(self, result: UnitMetricResult) -> None: ...
    def value(self) -> JSONDict: ...


class NumberEvidence(NamedTuple):
    """The aggregation behind a number and its values, one per unit result, from which its standard error follows."""

    aggregation: Aggregation
    values: Sequence[Value]


class AllResults:
    """All unit results, for what must have them at once."""

    def __init__(self, metric: "AggregatorMetric") -> None:
        self._metric, self._results = metric, list[UnitMetricResult]()

    def add(self, result: UnitMetricResult) -> None:
        self._results.append(result)

    def value(self) -> JSONDict:
        return dict(self._metric.calculate(self._results))


class AggregatorMetric:
    """The class to derive an aggregator metric from. Override `tally`, or `calculate`.

    Its constructor's parameters are its YAML keys. `columns` are the columns of the records that it looks at: a report
    puts them into the metadata of the unit results.
    """

    def __init__(self, **config: UserValue) -> None:
        self.config = config

    @property
    def columns(self) -> Sequence[str]:
        return ()

    def lacks(self, columns: Collection[str]) -> tuple[str, str] | None:  # noqa: ARG002  # most need none
        """Return what is missing and the fix, where the metadata will have these columns; None if it can work."""
        return None

    def numbers(self) -> Sequence[str] | None:
        """The names of the numbers that it gives; None where only its code knows."""
        return None

    def tally(self) -> Tally:
        return AllResults(self)

    def evidence(self, tally: Tally) -> Mapping[str, NumberEvidence]:  # noqa: ARG002  # most have none
        """Return the evidence of each number, by name, where its standard error follows from it."""
        return {}

    def calculate(self, results: Sequence[UnitMetricResult]) -> JSONDict:
        """Return the numbers of these unit results."""
        if not is_overridden(self, "tally", AggregatorMetric):
            raise NotImplementedError(f"{type(self).__name__} has neither `tally` nor `calculate`")
        return tallied(self, results)

    def validate_config(self) -> None:
        """For classes written for SyGra, which call it in their constructors."""

    def get_metadata(self) -> Value:
        return None

    def get_metric_name(self) -> str:
        return str(getattr(getattr(self, "metadata", None), "name", "")) or type(self).__name__

    def _count_correct(self, results: Sequence[UnitMetricResult]) -> int:
        return sum(result.correct for result in results)

    def _safe_divide(self, numerator: float, denominator: float) -> float:
        return numerator / denominator if denominator else 0.0


class NoResults(ValueError):
    """There is nothing to aggregate, hence no number."""

    def __init__(self) -> None:
        super().__init__("there are no unit results")


def tallied(metric: AggregatorMetric, results: Iterable[UnitMetricResult]) -> JSONDict:
    tally = metric.tally()
    for result in results:
        tally.add(result)
    return tally.value()


def metric_of(name: str, function: UserFunction) -> type[AggregatorMetric]:
    """A function of all unit results, with keyword parameters, as a class. It gives a number or a mapping."""

    class FunctionAggregatorMetric(AggregatorMetric):
        def calculate(self, results: Sequence[UnitMetricResult]) -> JSONDict:
            numbers = function(results, **self.config)
            return dict(numbers) if isinstance(numbers, Mapping) else {name: numbers}

    return dress(FunctionAggregatorMetric, function, [accepted(function, 1)])


@dataclass(kw_only=True)
class AccuracyMetric(AggregatorMetric):
    """The share of records that are correct. `key` changes nothing: SyGra's configurations write it."""

    key: str | None = None

    def numbers(self) -> Sequence[str]:
        return ("accuracy",)

    def tally(self) -> Tally:
        return AccuracyTally()

    def evidence(self, tally: Tally) -> Mapping[str, NumberEvidence]:
        assert isinstance(tally, AccuracyTally)
        return {"accuracy": NumberEvidence(AGGREGATIONS["mean"], tally.verdicts.tolist())}


class AccuracyTally:
    """Counts correct records."""

    def __init__(self) -> None:
        self.verdicts = array("b")

    def add(self, result: UnitMetricResult) -> None:
        self.verdicts.append(bool(result.correct))

    def value(self) -> JSONDict:
        if not self.verdicts:
            raise NoResults
        return {"accuracy": sum(self.verdicts) / len(self.verdicts)}


REPEAT, REPEAT_OF = "repeat", "repeat_of"
"""The columns of a run with repeats: which repeat of a record it is, counted from 1, and the number of that record."""
STEP = ("mission_id", "step_id")
"""The columns that tell the steps of web agents apart."""
STEP_NUMBERS = (
    "step_efficiency", "total_steps", "first_attempt_correct", "retry_correct", "never_correct", "avg_retries_when_correct",
)  # fmt: skip


def problem_of(metadata: Record, columns: Sequence[str]) -> tuple[str, ...]:
    """Which problem an attempt is at."""
    for column in columns:
        if metadata.get(column) is None:
            raise ValueError(f"a unit result has no {column!r} in its metadata, by which attempts are grouped")
    return tuple(repr(metadata[column]) for column in columns)


def as_columns(written: str | list[Value] | None) -> tuple[str, ...]:
    return (written,) if isinstance(written, str) else tuple(map(str, written or ()))


@dataclass(kw_only=True)
class _Attempts(AggregatorMetric):
    """The base of pass@k and pass^k: means over problems of the chance that k drawn attempts have.

    More attempts make them sharper and not different. `group_by` names the columns by which attempts at one problem are known.
    """

    k: int
    group_by: str | list[Value] | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")

    @property
    def columns(self) -> Sequence[str]:
        return as_columns(self.group_by)

    def lacks(self, columns: Collection[str]) -> tuple[str, str] | None:
        if self.k == 1 or self.group_by or REPEAT_OF in columns or set(STEP) <= set(columns):
            return None
        return (
            "must know which records are attempts at the same problem",
            "add `group_by:` with a column of the records, or --repeats to the run",
        )


class _Tries:
    """Attempts and correct ones, by problem."""

    def __init__(self, columns: Sequence[str], k: int) -> None:
        self._columns, self._k = columns, k
        self._counts: dict[tuple[str, ...], list[int]] = {}

    def add(self, result: UnitMetricResult) -> None:
        key = problem_of(result.metadata, self._columns or self._by_default(result.metadata))
        count = self._counts.setdefault(key or (str(len(self._counts)),), [0, 0])
        count[0] += 1
        count[1] += bool(result.correct)

    def _by_default(self, metadata: Record) -> Sequence[str]:
        if metadata.get(REPEAT_OF) is not None:
            return (REPEAT_OF,)
        if all(metadata.get(column) is not None for column in STEP):
            return STEP
        if metadata.get("id") is not None:
            return ("id",)
        if self._k > 1:
            raise ValueError("which records are attempts at the same problem is not known: add `group_by:`")
        return ()

    def value(self) -> JSONDict:
        raise NotImplementedError

    def means(self, name: str, chance: Callable[[int, int, int], float]) -> JSONDict:
        """By number of attempts the mean over problems; null, with a reason, where a problem has fewer."""
        if not self._counts:
            raise NoResults
        means: JSONDict = {}
        for k in range(1, self._k + 1):
            few = sum(n < k for n, _ in self._counts.values())
            if few == len(self._counts):
                raise ValueError(f"{name}{k} needs {k} attempts at a problem, and none has as many")
            chances = [chance(n, correct, k) for n, correct in self._counts.values() if n >= k]
            means[f"{name}{k}"] = None if few else sum(chances) / len(chances)
            if few:
                means["note"] = f"{few} of {len(self._counts)} problems have fewer than {k} attempts"
        return means

    def rate(self) -> float:
        return sum(correct for _, correct in self._counts.values()) / sum(n for n, _ in self._counts.values())


class _AtLeastOne(_Tries):
    def value(self) -> JSONDict:
        return self.means("pass@", pass_at_k)


class _All(_Tries):
    def value(self) -> JSONDict:
        means = self.means("pass^", pass_all_k)
        return {"success_rate": self.rate(), **means}


@dataclass(kw_only=True)
class PassAtKMetric(_Attempts):
    """The probability that at least one of 1, 2, … k attempts at a problem is correct, without bias."""

    def numbers(self) -> Sequence[str]:
        return [f"pass@{k}" for k in range(1, self.k + 1)]

    def tally(self) -> Tally:
        return _AtLeastOne(self.columns, self.k)


@dataclass(kw_only=True)
class PassPowerKMetric(_Attempts):
    """The probability that all of 1, 2, … k attempts at a problem are correct, without bias; and the share of correct ones."""

    def numbers(self) -> Sequence[str]:
        return ["success_rate", *(f"pass^{k}" for k in range(1, self.k + 1))]

    def tally(self) -> Tally:
        return _All(self.columns, self.k)


@dataclass(kw_only=True)
class StepEfficiencyMetric(AggregatorMetric):
    """The mean over steps of 1, less `penalty_per_retry` for every retry before the first correct attempt; 0 without one.

    An attempt's number is `retry_number` in its metadata, or the digits at the end of `retry_id`, or its place in the step.
    """

    penalty_per_retry: float = 0.2
    group_by: str | list[Value] | None = None
    key: str | None = None
    """No effect: SyGra's configurations write it."""

    def __post_init__(self) -> None:
        if not 0 <= self.penalty_per_retry <= 1:
            raise ValueError(f"penalty_per_retry must be between 0 and 1, got {self.penalty_per_retry}")

    @property
    def columns(self) -> Sequence[str]:
        return as_columns(self.group_by) or STEP

    def numbers(self) -> Sequence[str]:
        return STEP_NUMBERS

    def tally(self) -> Tally:
        return StepTally(self.penalty_per_retry, self.columns)


class StepTally:
    """By step, the attempts so far and the number of the first correct one."""

    def __init__(self, penalty: float, columns: Sequence[str]) -> None:
        self._penalty, self._columns = penalty, columns
        self._attempts: dict[tuple[str, ...], int] = {}
        self._first: dict[tuple[str, ...], int] = {}

    def add(self, result: UnitMetricResult) -> None:
        step = self.step(result.metadata)
        before = self._attempts.get(step, 0)
        self._attempts[step] = before + 1
        number = self.number(result.metadata, before)
        if result.correct:
            self._first[step] = min(number, self._first.get(step, number))

    def step(self, metadata: Record) -> tuple[str, ...]:
        return problem_of(metadata, self._columns)

    def number(self, metadata: Record, before: int) -> int:
        retry = retry_number(metadata)
        return before if retry is None else retry

    def value(self) -> JSONDict:
        if not self._attempts:
            raise NoResults
        return self.summary()

    def summary(self) -> JSONDict:
        retries, steps = list(self._first.values()), len(self._attempts)
        scores = [max(0.0, 1 - retry * self._penalty) for retry in retries]
        return {
            "step_efficiency": sum(scores) / steps if steps else 0.0,
            "total_steps": steps,
            "first_attempt_correct": sum(retry == 0 for retry in retries),
            "retry_correct": sum(retry > 0 for retry in retries),
            "never_correct": steps - len(retries),
            "avg_retries_when_correct": sum(retries) / len(retries) if retries else 0.0,
        }


def retry_number(metadata: Record) -> int | None:
    """The number of an attempt, where its metadata has one."""
    if metadata.get("retry_number") is not None:
        return int(metadata["retry_number"])
    match = re.search(r"_(\d+)$", str(metadata.get("retry_id") or ""))
    return int(match.group(1)) if match else None


class ClassTally:
    """How often each class was right, was given, and was found, in the order in which classes are first right."""

    def __init__(self, name: str, golden_key: str | None, predicted_key: str, labels: Sequence[Value] | None) -> None:
        self._name, self._predicted_key, self._labels = name, predicted_key, labels
        self._golden_key, self._must_be_right = golden_key or predicted_key, golden_key is not None
        self._right, self._predicted, self._hits = Counter[str](), Counter[str](), Counter[str]()
        self._spelled: dict[str, str] = {}
        self._counts: Record = {}
        self._numbers: dict[str, int] = {}
        self._seen = array("q"), array("q"), array("b")

    def add(self, result: UnitMetricResult) -> None:
        self._counts = result.metadata
        right, predicted = result.golden.get(self._golden_key), result.predicted.get(self._predicted_key)
        if right is None and (self._must_be_right or predicted is None):
            raise ValueError(f"a golden value has no {self._golden_key!r}: {dict(result.golden)!r:.80}")
        if right is not None and self._class(right) not in self._right:
            self._spelled[self._class(right)] = str(right)
        if right is not None:
            self._right[self._class(right)] += 1
        answered = right if result.correct and right is not None else predicted
        if answered is not None:
            self._spelled.setdefault(self._class(answered), str(answered))
            self._predicted[self._class(answered)] += 1
            self._hits[self._class(answered)] += bool(result.correct)
        self._note(right, answered, bool(result.correct))

    def _note(self, right: Value, answered: Value, correct: bool) -> None:
        """Keep a record as two numbers of classes and a verdict: enough for its influence on the averages."""
        for column, value in zip(self._seen, (right, answered), strict=False):
            column.append(-1 if value is None else self._numbers.setdefault(self._class(value), len(self._numbers)))
        self._seen[2].append(correct)

    def evidence(self) -> NumberEvidence:
        """The records, with what makes an average of them."""
        counted = {label: number for number, label in enumerate(self._classes())}
        places = [counted.get(label, -1) for label in self._numbers]
        right, predicted, correct = self._seen
        values = [
            (places[golden] if golden >= 0 else -1, places[answer] if answer >= 0 else -1, verdict)
            for golden, answer, verdict in zip(right, predicted, correct, strict=True)
        ]
        function = partial(macro_score, score=_SCORE[self._name], classes=len(counted))
        influence = partial(macro_influence, score=_SCORE[self._name], classes=len(counted))
        return NumberEvidence(Aggregation(f"average_{self._name}", function, influence), values)

    def _class(self, value: Value) -> str:
        text = str(value)
        if self._counts.get("normalize_whitespace") is not False:
            text = " ".join(text.split())
        return text if self._counts.get("case_sensitive") else text.lower()

    def value(self) -> JSONDict:
        if not self._spelled:
            raise NoResults
        scores = {spelled: self._score(label) for label, spelled in self._classes().items()}
        return {
            f"average_{self._name}": sum(scores.values()) / len(scores),
            f"{self._name}_per_class": scores,
        }

    def _classes(self) -> dict[str, str]:
        """The classes that count, each as it is spelled: those that were right, then those that were only given."""
        if self._labels is not None:
            return {self._class(label): str(label) for label in self._labels}
        return {label: self._spelled[label] for label in dict.fromkeys([*self._right, *self._predicted])}

    def _score(self, label: str) -> float:
        hits, predicted, right = self._hits[label], self._predicted[label], self._right[label]
        return score_of_counts(_SCORE[self._name], hits, predicted, right)


_SCORE = {"precision": "precision", "recall": "recall", "f1_score": "f1"}
"""SyGra's names of scores, and those of `statistics`."""


class _OfClasses(AggregatorMetric):
    """The base of precision, recall and F1."""

    @property
    def of(self) -> str:
        raise NotImplementedError

    def numbers(self) -> Sequence[str]:
        return (f"average_{self.of}",)

    def evidence(self, tally: Tally) -> Mapping[str, NumberEvidence]:
        assert isinstance(tally, ClassTally)
        return {f"average_{self.of}": tally.evidence()}


def _check(labels: list[Value] | None, **keys: str | None) -> None:
    for name, key in keys.items():
        if key == "":
            raise ValueError(f"{name} is empty")
    if labels is not None and not labels:
        raise ValueError("labels must name a class")


@dataclass(kw_only=True)
class PrecisionMetric(_OfClasses):
    """Of the answers of each class, the share that is correct. `labels` are the classes that count, else all that occur.

    Without `golden_key`, the classes of golden values are looked for under the same key, and may be missing.
    """

    predicted_key: str
    golden_key: str | None = None
    labels: list[Value] | None = None

    @property
    def of(self) -> str:
        return "precision"

    def __post_init__(self) -> None:
        _check(self.labels, predicted_key=self.predicted_key, golden_key=self.golden_key)

    def tally(self) -> Tally:
        return ClassTally("precision", self.golden_key, self.predicted_key, self.labels)


@dataclass(kw_only=True)
class RecallMetric(_OfClasses):
    """Of the records of each class, the share that is correct."""

    golden_key: str
    predicted_key: str | None = None
    labels: list[Value] | None = None

    @property
    def of(self) -> str:
        return "recall"

    def __post_init__(self) -> None:
        _check(self.labels, predicted_key=self.predicted_key, golden_key=self.golden_key)

    def tally(self) -> Tally:
        return ClassTally("recall", self.golden_key, self.predicted_key or self.golden_key, self.labels)


@dataclass(kw_only=True)
class F1ScoreMetric(_OfClasses):
    """The harmonic mean of precision and recall of each class; their average is the mean over classes."""

    golden_key: str
    predicted_key: str
    labels: list[Value] | None = None

    @property
    def of(self) -> str:
        return "f1_score"

    def __post_init__(self) -> None:
        _check(self.labels, predicted_key=self.predicted_key, golden_key=self.golden_key)

    def tally(self) -> Tally:
        return ClassTally("f1_score", self.golden_key, self.predicted_key, self.labels)
