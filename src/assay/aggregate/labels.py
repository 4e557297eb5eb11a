"""Precision, recall and F1 of unit results: by class, and their plain mean over all classes, as scikit-learn's `macro`.

The class of a record is a text of its golden value, that of the answer a text of the predicted one. Classes are told apart
as the unit metric tells texts apart: without regard to case and white space unless it says that these count. An answer
that is correct is of the golden class, however it is spelled; one without a class is of none.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.aggregate.collected import AggregatorMetric, NoResults, Tally, UnitResult


class ClassTally:
    """How often each class was right, was given, and was found, in the order in which classes are first right."""

    def __init__(self, name: str, golden_key: str | None, predicted_key: str, labels: Sequence[Any] | None) -> None:
        self._name, self._predicted_key, self._labels = name, predicted_key, labels
        self._golden_key, self._must_be_right = golden_key or predicted_key, golden_key is not None
        self._right, self._given, self._found = Counter[str](), Counter[str](), Counter[str]()
        self._spelled: dict[str, str] = {}
        self._counts: Mapping[str, Any] = {}

    def add(self, result: UnitResult) -> None:
        self._counts = result.metadata
        right, given = result.golden.get(self._golden_key), result.predicted.get(self._predicted_key)
        if right is None and (self._must_be_right or given is None):
            raise ValueError(f"a golden value has no {self._golden_key!r}: {dict(result.golden)!r:.80}")
        if right is not None and self._class(right) not in self._right:
            self._spelled[self._class(right)] = str(right)
        if right is not None:
            self._right[self._class(right)] += 1
        answered = right if result.correct and right is not None else given
        if answered is not None:
            self._spelled.setdefault(self._class(answered), str(answered))
            self._given[self._class(answered)] += 1
            self._found[self._class(answered)] += bool(result.correct)

    def _class(self, value: Any) -> str:
        text = str(value)
        if self._counts.get("normalize_whitespace") is not False:
            text = " ".join(text.split())
        return text if self._counts.get("case_sensitive") else text.lower()

    def value(self) -> dict[str, Any]:
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
        return {label: self._spelled[label] for label in dict.fromkeys([*self._right, *self._given])}

    def _score(self, label: str) -> float:
        found, given, right = self._found[label], self._given[label], self._right[label]
        if self._name == "f1_score":
            return 2 * found / (given + right) if given + right else 0.0
        below = given if self._name == "precision" else right
        return found / below if below else 0.0


def _check(labels: list[Any] | None, **keys: str | None) -> None:
    for name, key in keys.items():
        if key == "":
            raise ValueError(f"{name} is empty")
    if labels is not None and not labels:
        raise ValueError("labels must name a class")


@dataclass(kw_only=True)
class PrecisionMetric(AggregatorMetric):
    """Of the answers of each class, the share that is correct. `labels` are the classes that count, else all that occur.

    Without `golden_key`, the classes of golden values are looked for under the same key, and may be missing.
    """

    predicted_key: str
    golden_key: str | None = None
    labels: list[Any] | None = None

    def __post_init__(self) -> None:
        _check(self.labels, predicted_key=self.predicted_key, golden_key=self.golden_key)

    def tally(self) -> Tally:
        return ClassTally("precision", self.golden_key, self.predicted_key, self.labels)


@dataclass(kw_only=True)
class RecallMetric(AggregatorMetric):
    """Of the records of each class, the share that is correct."""

    golden_key: str
    predicted_key: str | None = None
    labels: list[Any] | None = None

    def __post_init__(self) -> None:
        _check(self.labels, predicted_key=self.predicted_key, golden_key=self.golden_key)

    def tally(self) -> Tally:
        return ClassTally("recall", self.golden_key, self.predicted_key or self.golden_key, self.labels)


@dataclass(kw_only=True)
class F1ScoreMetric(AggregatorMetric):
    """The harmonic mean of precision and recall of each class; their average is the mean over classes."""

    golden_key: str
    predicted_key: str
    labels: list[Any] | None = None

    def __post_init__(self) -> None:
        _check(self.labels, predicted_key=self.predicted_key, golden_key=self.golden_key)

    def tally(self) -> Tally:
        return ClassTally("f1_score", self.golden_key, self.predicted_key, self.labels)
