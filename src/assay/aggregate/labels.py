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

    def __init__(self, name: str, golden_key: str, predicted_key: str, labels: Sequence[Any] | None) -> None:
        self._name, self._golden_key, self._predicted_key, self._labels = name, golden_key, predicted_key, labels
        self._right, self._given, self._found = Counter[str](), Counter[str](), Counter[str]()
        self._spelled: dict[str, str] = {}
        self._counts: Mapping[str, Any] = {}

    def add(self, result: UnitResult) -> None:
        self._counts = result.metadata
        right = self._class(result.golden.get(self._golden_key))
        if right is None:
            raise ValueError(f"a golden value has no {self._golden_key!r}: {dict(result.golden)!r:.80}")
        if right not in self._right:
            self._spelled[right] = str(result.golden[self._golden_key])
        given = right if result.correct else self._class(result.predicted.get(self._predicted_key))
        self._right[right] += 1
        self._found[right] += bool(result.correct)
        if given is not None:
            self._spelled.setdefault(given, str(result.predicted.get(self._predicted_key)))
            self._given[given] += 1

    def _class(self, value: Any) -> str | None:
        if value is None:
            return None
        text = str(value)
        if self._counts.get("normalize_whitespace") is not False:
            text = " ".join(text.split())
        return text if self._counts.get("case_sensitive") else text.lower()

    def value(self) -> dict[str, Any]:
        if not self._right:
            raise NoResults
        scores = {spelled: self._score(label) for label, spelled in self._classes().items()}
        return {
            f"average_{self._name}": sum(scores.values()) / len(scores),
            f"{self._name}_per_class": scores,
        }

    def _classes(self) -> dict[str, str]:
        """The classes that count, each as it is spelled: those that were right, then those that were only given."""
        if self._labels is not None:
            return {str(self._class(label)): str(label) for label in self._labels}
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
    """Of the answers of each class, the share that is correct. `labels` are the classes that count, else all that occur."""

    predicted_key: str
    golden_key: str | None = None
    labels: list[Any] | None = None

    def __post_init__(self) -> None:
        _check(self.labels, predicted_key=self.predicted_key, golden_key=self.golden_key)

    def tally(self) -> Tally:
        return ClassTally("precision", self.golden_key or self.predicted_key, self.predicted_key, self.labels)


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
