"""Unit metrics: they compare the golden value of a record with the predicted one, and give a verdict with a score.

A unit metric is a class derived from UnitMetric, or a function of both values; `@unit_metric("name")` registers it.
"""

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TypeVar

from assay.dialect import OURS, Dialect
from assay.errors import ConfigError, Place, Problem, library_problem
from assay.graphs.spec import Record, Value
from assay.records import JSONDict, UserFunction, UserValue
from assay.registry import MetricRegistry, Registry, subclass_of
from assay.scoring.declarations import Metric
from assay.scoring.metrics.registry import METRICS
from assay.scoring.metrics.structured import ALONE
from assay.scoring.results import GENERATE
from assay.signatures import accepted, dress, give_parameters
from assay.statistics.influence import SHARE, Bounds

AT_MAX_TURNS = ("not_solved", "measure", "fail")
"""What the result of a record is whose agent still called tools at its last turn: wrong with the score 0, measured as it stands,
or failed, so that it is left out of the mean."""
NOT_GIVEN = float("nan")
"""A missing score, which then follows from the verdict. Compared by identity: another nan is a score that is not a number."""


def lost_result(reason: str) -> JSONDict:
    """The place of a result that a unit metric could not compute: neither right nor wrong."""
    return {"failed": reason}


def why_lost(cell: Value) -> str | None:
    """The reason where a column has no unit result because computing it failed.

    >>> why_lost(lost_result("no bbox")), why_lost({"correct": False, "failed": "twice"})
    ('no bbox', None)
    """
    is_lost = isinstance(cell, Mapping) and "failed" in cell and "correct" not in cell
    return str(cell["failed"]) if is_lost else None


@dataclass(frozen=True)
class UnitMetricResult:
    """The verdict about one record, what it is about, and its score: 1 or 0 unless the metric gives another."""

    correct: bool
    golden: JSONDict
    predicted: JSONDict
    metadata: JSONDict = field(default_factory=dict)
    score: float = NOT_GIVEN

    def __post_init__(self) -> None:
        if not (isinstance(self.golden, dict) and isinstance(self.predicted, dict)):
            name = "predicted" if isinstance(self.golden, dict) else "golden"
            raise ValueError(f"{name} must be a mapping, got {getattr(self, name)!r:.60}")
        score = float(self.correct) if self.score is NOT_GIVEN else float(self.score)
        if not math.isfinite(score):
            raise ValueError(f"a score must be a finite number, got {score}")
        object.__setattr__(self, "score", score)
        object.__setattr__(self, "correct", bool(self.correct))
        object.__setattr__(self, "metadata", self.metadata if isinstance(self.metadata, dict) else {})

    def to_dict(self) -> JSONDict:
        """Itself as JSON can say it: numbers that are not finite become null."""
        return {
            "correct": self.correct,
            "golden": finite(self.golden),
            "predicted": finite(self.predicted),
            "metadata": finite(self.metadata),
            "score": self.score,
        }

    @classmethod
    def from_dict(cls, written: Record) -> "UnitMetricResult":
        """The result that a mapping describes; one of SyGra has no score."""
        correct, score = bool(written.get("correct", False)), written.get("score")
        return cls(
            correct,
            dict(written.get("golden") or {}),
            dict(written.get("predicted") or {}),
            dict(written.get("metadata") or {}),
            float(correct) if score is None else float(score),
        )


_ALWAYS_FINITE = frozenset((str, bool, int, type(None)))


def finite(value: Value) -> Value:
    """A value without infinities, which JSON does not have, however deep."""
    if type(value) in _ALWAYS_FINITE:  # most of them: to ask what a text is not would take longer than all else
        return value
    if type(value) is dict:
        if _ALWAYS_FINITE.issuperset(map(type, value.values())):
            return dict(value)
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value


class MetricMetadata:
    """A metric's description of itself; further keys are accepted."""

    def __init__(self, **said: UserValue) -> None:
        self.name = said.get("name", "")
        self.display_name = said.get("display_name", self.name)
        self.description = said.get("description", "")
        self.range = said.get("range", (0.0, 1.0))
        self.higher_is_better = said.get("higher_is_better", True)
        self.metric_type = said.get("metric_type", "custom")
        self.__dict__.update(said)


class UnitMetric:
    """The class to derive a unit metric from. Override `compare`, of one record, or `evaluate`, of several.

    Its constructor's parameters are its YAML keys. `run_dialect` has the rules of the run; it is set before `evaluate` is called.
    """

    run_dialect = OURS
    runs_code = False
    compares_texts = False
    asks = False
    """Whether it asks a model: then its node does that, and `compare` is not called."""
    higher_is_better = True
    bounds: Bounds | None = None
    """The least and the greatest score of a record, where that is known."""
    at_max_turns: str | None = None
    """One of AT_MAX_TURNS; by default not_solved, and measure where less is better."""

    def __init__(self, **config: UserValue) -> None:
        self.config = config

    @property
    def needs_golden(self) -> bool:
        """Whether it compares with golden values."""
        return True

    def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
        raise NotImplementedError(f"{type(self).__name__} has neither `compare` nor `evaluate`")

    def evaluate(self, golden: list[Value], predicted: list[Value]) -> list[UnitMetricResult]:
        """The verdict about each record."""
        if len(golden) != len(predicted):
            raise ValueError(f"there are {len(golden)} golden and {len(predicted)} predicted values")
        return [self.compare(right, answer) for right, answer in zip(golden, predicted, strict=True)]

    def validate_config(self) -> None:
        """For classes written for SyGra, which call it in their constructors."""

    def get_metadata(self) -> MetricMetadata:
        return MetricMetadata(name=self.get_metric_name(), description=inspect.getdoc(type(self)) or "")

    def get_metric_name(self) -> str:
        return str(getattr(getattr(self, "metadata", None), "name", "")) or type(self).__name__


def metric_of(name: str, function: UserFunction) -> type[UnitMetric]:
    """A function of golden and predicted values as a class. It gives a verdict, a score, or a whole result."""

    class FunctionUnitMetric(UnitMetric):
        def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
            verdict = function(golden, predicted, **self.config)
            if isinstance(verdict, UnitMetricResult):
                return verdict
            correct = verdict if isinstance(verdict, bool) else float(verdict) >= 1
            return UnitMetricResult(
                correct, as_mapping(golden), as_mapping(predicted), {"validator": name}, float(verdict)
            )

    dress(FunctionUnitMetric, function, name)
    return FunctionUnitMetric


def as_mapping(value: Value) -> JSONDict:
    """A value as a result holds it: a mapping as it is, anything else as its text."""
    return dict(value) if isinstance(value, Mapping) else {"text": value}


DIRECTIONS = ("up", "down", "left", "right")


def plain(text: str, *, case_sensitive: bool = False, normalize_whitespace: bool = True) -> str:
    """A text as it is compared.

    >>> plain("  New   York ")
    'new york'
    """
    spaced = " ".join(text.split()) if normalize_whitespace else text
    return spaced if case_sensitive else spaced.lower()


def difference(golden: str, predicted: str, dialect: Dialect = OURS) -> SequenceMatcher[str]:
    """The two texts side by side; SyGra overlooks letters that are frequent in texts of 200 letters and more."""
    return SequenceMatcher(None, golden, predicted, autojunk=dialect.ignores_frequent_letters)


class ComparingMetric(UnitMetric):
    """The base of these metrics: it reads the golden and the predicted value."""

    bounds = SHARE
    compares_texts = True

    def reads_whole(self) -> bool:
        """Whether a mapping or a list is read as text, braces and all, as by SyGra; else a lone `text` in it is the text."""
        return self.run_dialect.compares_whole_mappings

    def golden(self, value: Value, key: str | None) -> Value:
        """The right value; that there is none is an error of the data."""
        side = self._read(value, key)
        if side is None:
            where = f"no {key!r}" if key is not None and isinstance(value, Mapping) else "no value"
            raise ValueError(f"the golden value has {where}: {value!r:.80}")
        return side

    def references(self, golden: Value, predicted: Value) -> Sequence[Value]:
        """The golden texts: those of a list, unless the predicted value is a list, too, to be compared as a whole."""
        if self.reads_whole() or not isinstance(golden, list | tuple) or isinstance(predicted, list | tuple):
            return (golden,)
        texts = [each for each in golden if each is not None]
        if not texts:
            raise ValueError(f"the golden value has no text: {golden!r:.80}")
        return texts

    def predicted(self, value: Value, key: str | None) -> Value:
        """The predicted value, or None."""
        return self._read(value, key)

    def _read(self, value: Value, key: str | None) -> Value:
        if key is None and not self.reads_whole():
            if isinstance(value, list | tuple):
                return value
            key = "text" if isinstance(value, Mapping) and [*value] == ["text"] else None
        if key is None or not isinstance(value, Mapping):
            return str(value) if value is not None or self.run_dialect.reads_missing_values_as_text else None
        return value.get(key, "") if self.run_dialect.reads_missing_values_as_text else value.get(key)

    def result(
        self, correct: bool, golden: Value, predicted: Value, metadata: Record, score: float | None = None
    ) -> UnitMetricResult:
        said = {"validator": self.validator, **metadata}
        number = float(correct) if score is None else score
        return UnitMetricResult(correct, as_mapping(golden), as_mapping(predicted), said, number)

    validator = ""
    """The name in the metadata of its results."""


@dataclass(kw_only=True)
class ExactMatchMetric(ComparingMetric):
    """Whether two texts are equal, apart from case and the amount of white space unless these shall count.

    `key` is the key of the text in a mapping; without it, its lone `text`, or else the whole value. Of a list of golden
    texts any may be the right one.
    """

    key: str | None = None
    case_sensitive: bool = False
    normalize_whitespace: bool = True

    validator = "exact_match"

    def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
        side, answer = self.predicted(predicted, self.key), self._text(self.predicted(predicted, self.key))
        texts = [self._text(each) for each in self.references(self.golden(golden, self.key), side)]
        right = answer if answer in texts else texts[0]
        return self.result(
            right == answer,
            golden,
            predicted,
            {
                "golden_text": right,
                "predicted_text": answer,
                "case_sensitive": self.case_sensitive,
                "normalize_whitespace": self.normalize_whitespace,
            },
        )

    def _text(self, value: Value) -> str | None:
        if value is None and not self.run_dialect.reads_missing_values_as_text:
            return None
        return plain(str(value), case_sensitive=self.case_sensitive, normalize_whitespace=self.normalize_whitespace)


@dataclass(kw_only=True)
class FuzzyMatchMetric(ComparingMetric):
    """Whether two texts are alike: the share of letters in matching runs, which is the score, reaches `threshold`.

    `key` and lists of golden texts are as of `exact_match`.
    """

    key: str | None = None
    threshold: float = 0.8
    case_sensitive: bool = False
    normalize_whitespace: bool = True

    validator = "fuzzy_match"

    def reads_whole(self) -> bool:
        return False  # SyGra has no such metric

    def __post_init__(self) -> None:
        _check_share("threshold", self.threshold)

    def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
        side, answer = self.predicted(predicted, self.key), self._text(self.predicted(predicted, self.key))
        texts = [self._text(each) for each in self.references(self.golden(golden, self.key), side)]
        ratios = [0.0 if answer is None else difference(str(each), answer).ratio() for each in texts]
        alike = max(ratios)
        right = texts[ratios.index(alike)]
        said = {"golden_text": right, "predicted_text": answer, "similarity_score": alike, "threshold": self.threshold}
        return self.result(answer is not None and alike >= self.threshold, golden, predicted, said, alike)

    def _text(self, value: Value) -> str | None:
        if value is None:
            return None
        return plain(str(value), case_sensitive=self.case_sensitive, normalize_whitespace=self.normalize_whitespace)


@dataclass(kw_only=True)
class TypedValueMatchMetric(ComparingMetric):
    """Whether a typed text is the right one, or at least so much like it as `fuzzy_match_threshold` says."""

    golden_text_key: str = "text"
    predicted_text_key: str = "text"
    fuzzy_match_threshold: float = 0.8
    case_sensitive: bool = False

    validator = "typed_value_match"

    def __post_init__(self) -> None:
        _check_share("fuzzy_match_threshold", self.fuzzy_match_threshold)

    def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
        target, answer = self.golden(golden, self.golden_text_key), self.predicted(predicted, self.predicted_text_key)
        right = plain(str(target), case_sensitive=self.case_sensitive)
        if answer is None and not self.run_dialect.reads_missing_values_as_text:
            return self.result(False, golden, predicted, {"golden_text": right, "predicted_text": None})
        typed = plain(str(answer), case_sensitive=self.case_sensitive)
        matcher = difference(right, typed, self.run_dialect)
        alike = matcher.ratio()
        said = {
            "golden_text": right,
            "predicted_text": typed,
            "exact_match": right == typed,
            "similarity_score": alike,
            "fuzzy_match": alike >= self.fuzzy_match_threshold,
            "differences": [
                {"operation": kind, "golden": right[a:b], "predicted": typed[c:d]}
                for kind, a, b, c, d in matcher.get_opcodes()
                if kind != "equal"
            ],
        }
        return self.result(right == typed or alike >= self.fuzzy_match_threshold, golden, predicted, said, alike)


@dataclass(kw_only=True)
class ActionWithinBboxMetric(ComparingMetric):
    """Whether a point is in a box {x, y, width, height}, its edges included, or at most `tolerance` beside it."""

    predicted_x_key: str = "x"
    predicted_y_key: str = "y"
    golden_bbox_key: str = "bbox"
    tolerance: float = 0.0

    validator = "action_within_bbox"

    def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
        box = self.golden(golden, self.golden_bbox_key)
        sides = {
            side: _number(box.get(side)) if isinstance(box, Mapping) else None for side in ("x", "y", "width", "height")
        }
        left, top, width, height = sides.values()
        if left is None or top is None or width is None or height is None:
            raise ValueError(
                f"the golden {self.golden_bbox_key!r} must be a box of x, y, width and height, got {box!r:.80}"
            )
        x = _number(self.predicted(predicted, self.predicted_x_key))
        y = _number(self.predicted(predicted, self.predicted_y_key))
        within = (
            x is not None
            and y is not None
            and left - self.tolerance <= x <= left + width + self.tolerance
            and top - self.tolerance <= y <= top + height + self.tolerance
        )
        keys = {"predicted_x_key": self.predicted_x_key, "predicted_y_key": self.predicted_y_key}
        said = {**keys, "golden_bbox_key": self.golden_bbox_key, "predicted_x": x, "predicted_y": y}
        return self.result(within, golden, predicted, said)


@dataclass(kw_only=True)
class ScrollDirectionMetric(ComparingMetric):
    """Whether the direction is the right one: up, down, left or right."""

    golden_direction_key: str = "direction"
    predicted_direction_key: str = "direction"

    validator = "scroll_direction"

    def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
        right = self.golden(golden, self.golden_direction_key)
        answer = self.predicted(predicted, self.predicted_direction_key)
        if right not in DIRECTIONS and not self.run_dialect.reads_missing_values_as_text:
            raise ValueError(f"the golden direction must be one of {', '.join(DIRECTIONS)}, got {right!r:.40}")
        said = {"golden_direction": right, "predicted_direction": answer}
        return self.result(right == answer and right in DIRECTIONS, golden, predicted, said)


@dataclass(kw_only=True)
class ScrollAmountMetric(ComparingMetric):
    """Whether an amount is at most `tolerance_percent` from the right one; where that is 0, at most `scroll_threshold`."""

    golden_amount_key: str = "amount"
    predicted_amount_key: str = "amount"
    tolerance_percent: float = 20.0
    scroll_threshold: float = 10.0

    validator = "scroll_amount"

    def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
        written = self.golden(golden, self.golden_amount_key)
        right, answer = _number(written), _number(self.predicted(predicted, self.predicted_amount_key))
        if right is None:
            raise ValueError(f"the golden {self.golden_amount_key!r} must be a number, got {written!r:.60}")
        apart = None if answer is None else abs(right - answer)
        percent = None if apart is None or right == 0 else apart / abs(right) * 100
        if apart is None:
            near = False
        elif percent is None:
            near = apart <= self.scroll_threshold
        else:
            near = percent <= self.tolerance_percent
        said = {
            "is_valid": near,
            "difference": apart,
            "difference_percent": percent,
            "tolerance_used": self.tolerance_percent,
            "scroll_threshold": self.scroll_threshold,
            "golden_scroll_amount": right,
            "predicted_scroll_amount": answer,
        }
        return self.result(near, golden, predicted, said)


def _number(value: Value) -> float | None:
    """The number that a value says, or None."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")


OWN_UNIT_METRICS: dict[str, type[UnitMetric]] = {
    "exact_match": ExactMatchMetric,
    "fuzzy_match": FuzzyMatchMetric,
    "action_within_bbox": ActionWithinBboxMetric,
    "typed_value_match": TypedValueMatchMetric,
    "scroll_direction": ScrollDirectionMetric,
    "scroll_amount": ScrollAmountMetric,
}


AGENT_METRICS = {
    name: f"assay.graphs.agent_metrics:{kind}Metric"
    for name, kind in (
        ("tool_called", "ToolCalled"),
        ("tool_order", "ToolOrder"),
        ("no_forbidden_tool", "NoForbiddenTool"),
        ("agent_turns", "Turns"),
        ("agent_cost", "Cost"),
    )
} | {"llm_judge": "assay.graphs.judge_node:JudgeMetric"}
"""Those of agents and judges, imported when they are used."""
TOLERANCE = 1e-9
"""Distance from the best score that still counts as correct: sums of fractions are not exact."""


def gives_a_number(declared: Metric) -> bool:
    """Whether a metric gives one number for one answer."""
    is_mean = GENERATE in declared.functions and declared.aggregation == "mean"
    return is_mean and (declared.gives is None or declared.gives() == ())


def adapted(name: str, declared: Metric) -> type[UnitMetric]:
    """A metric of assay as a class of unit metrics, with its parameters, `key` and `threshold`."""
    function = declared.functions[GENERATE]
    best = (100.0 if name in ALONE else 1.0) if declared.higher_is_better else 0.0

    class OfAnswer(UnitMetric):
        runs_code, higher_is_better, bounds = declared.runs_code, declared.higher_is_better, declared.bounds

        def __init__(self, *, key: str | None = "text", threshold: float = best, **params: UserValue) -> None:
            super().__init__(key=key, threshold=threshold, **params)
            self.key, self.threshold = key, threshold
            problem = library_problem(declared.needs, f"unit metric {name!r}", Place(f"unit metric {name!r}"))
            obstacle = declared.obstacle() if declared.obstacle is not None else None
            if obstacle is not None:
                problem = Problem(Place(f"unit metric {name!r}"), f"cannot work here: {obstacle[0]}", obstacle[1])
            if problem is not None:
                raise ConfigError([problem])
            prepared: UserFunction | None = getattr(function, "prepared", None)
            self._score = prepared(**params) if prepared is not None else _bound(function, params)

        def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
            right, answer = _value(golden, self.key), _value(predicted, self.key)
            if right is None:
                raise ValueError(f"the golden value has no {self.key!r}: {golden!r:.80}")
            references = [*map(_as_text, right if isinstance(right, list | tuple) else [right])]
            score = float(self._score(references, "" if answer is None else _as_text(answer)))
            above, below = score >= self.threshold - TOLERANCE, score <= self.threshold + TOLERANCE
            correct = answer is not None and (above if declared.higher_is_better else below)
            said = {"validator": name, "threshold": self.threshold}
            return UnitMetricResult(correct, as_mapping(golden), as_mapping(predicted), said, score)

    OfAnswer.__name__ = OfAnswer.__qualname__ = f"Unit_{name}"
    OfAnswer.__doc__ = function.__doc__
    give_parameters(OfAnswer, accepted(OfAnswer).named, accepted(function, 2).named)
    return OfAnswer


def _bound(function: UserFunction, params: Record) -> UserFunction:
    return lambda references, answer: function(references, answer, **params)


def _as_text(value: Value) -> str:
    """A value as a model would write it: lists and mappings as JSON, which rankings and schemas read."""
    is_json = isinstance(value, list | tuple | Mapping)
    return json.dumps(value, ensure_ascii=False, default=str) if is_json else str(value)


def _value(value: Value, key: str | None) -> Value:
    return value.get(key) if key is not None and isinstance(value, Mapping) else value


ADAPTED_METRICS: dict[str, type[UnitMetric]] = {
    name: adapted(name, declared) for name, declared in {**METRICS, **ALONE}.items() if gives_a_number(declared)
}


Decorated = TypeVar("Decorated", bound=UserFunction)


def _adopted(name: str, thing: UserValue) -> type[UnitMetric]:
    """A class of unit metrics, or a function of golden and predicted values as one."""
    return subclass_of(UnitMetric)(name, metric_of(name, thing) if inspect.isroutine(thing) else thing)


UNIT_METRICS: Registry[type[UnitMetric], UnitMetric] = Registry(
    "unit metric", {**ADAPTED_METRICS, **OWN_UNIT_METRICS, **AGENT_METRICS}, group="assay.unit_metrics", adopt=_adopted
)
UnitMetricRegistry = MetricRegistry(UNIT_METRICS)
"""The same by SyGra's name, with its methods."""


def unit_metric(name: str) -> Callable[[Decorated], Decorated]:
    """Make a class or function known as a unit metric by a name.

    A class is derived from UnitMetric. A function takes what is right, what was predicted, and keyword parameters, and
    gives a verdict, a score (of which 1 is correct), or a UnitMetricResult.
    """
    return UNIT_METRICS.register(name)
