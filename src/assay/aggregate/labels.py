"""Precision, recall and F1 of unit results: by class, and their plain mean over all classes, as scikit-learn's `macro`.

The class of a record is a text of its golden value, that of the answer a text of the predicted one. Classes are told apart
as the unit metric tells texts apart: without regard to case and white space unless it says that these count. An answer
that is correct is of the golden class, however it is spelled; one without a class is of none.
"""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay.aggregate.collected import AggregatorMetric, Evidence, NoResults, Tally, UnitResult
from assay.statistics.aggregations import Aggregation
from assay.statistics.classes import macro_influence, macro_score, score_of_counts


class ClassTally:
    """How often each class was right, was given, and was found, in the order in which classes are first right."""

    def __init__(self, name: str, golden_key: str | None, predicted_key: str, labels: Sequence[Any] | None) -> None:
        self._name, self._predicted_key, self._labels = name, predicted_key, labels
        self._golden_key, self._must_be_right = golden_key or predicted_key, golden_key is not None
        self._right, self._given, self._found = Counter[str](), Counter[str](), Counter[str]()
        self._spelled: dict[str, str] = {}
        self._counts: Mapping[str, Any] = {}
        self._numbers: dict[str, int] = {}
        self._seen = array("q"), array("q"), array("b")

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
        self._note(right, answered, bool(result.correct))

    def _note(self, right: Any, answered: Any, correct: bool) -> None:
        """Keep a record as two numbers of classes and a verdict: enough to tell how far it moves the averages."""
        for column, value in zip(self._seen, (right, answered), strict=False):
            column.append(-1 if value is None else self._numbers.setdefault(self._class(value), len(self._numbers)))
        self._seen[2].append(correct)

    def evidence(self) -> Evidence:
        """The records, with what makes an average of them."""
        counted = {label: number for number, label in enumerate(self._classes())}
        places = [counted.get(label, -1) for label in self._numbers]
        right, given, correct = self._seen
        values = [
            (places[golden] if golden >= 0 else -1, places[answer] if answer >= 0 else -1, verdict)
            for golden, answer, verdict in zip(right, given, correct, strict=True)
        ]
        function = partial(macro_score, score=_SCORE[self._name], classes=len(counted))
        influence = partial(macro_influence, score=_SCORE[self._name], classes=len(counted))
        return Evidence(Aggregation(f"average_{self._name}", function, influence), values)

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
        return score_of_counts(_SCORE[self._name], found, given, right)


_SCORE = {"precision": "precision", "recall": "recall", "f1_score": "f1"}
"""The word of `statistics` for each of SyGra's."""


class _OfClasses(AggregatorMetric):
    """What the three share."""

    @property
    def of(self) -> str:
        raise NotImplementedError

    def numbers(self) -> Sequence[str]:
        return (f"average_{self.of}",)

    def evidence(self, tally: Tally) -> Mapping[str, Evidence]:
        assert isinstance(tally, ClassTally)
        return {f"average_{self.of}": tally.evidence()}


def _check(labels: list[Any] | None, **keys: str | None) -> None:
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
    labels: list[Any] | None = None

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
    labels: list[Any] | None = None

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
    labels: list[Any] | None = None

    @property
    def of(self) -> str:
        return "f1_score"

    def __post_init__(self) -> None:
        _check(self.labels, predicted_key=self.predicted_key, golden_key=self.golden_key)

    def tally(self) -> Tally:
        return ClassTally("f1_score", self.golden_key, self.predicted_key, self.labels)
