"""The unit metrics that come along: texts that match, and what an agent does on a screen.

Parameters and meaning are SyGra's. What differs: a golden value that is missing or unreadable is an error and no verdict,
a predicted one is wrong and never matches something else that is missing; the score says how near the prediction came.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from assay.graphs.unit import UnitMetric, UnitMetricResult, as_mapping

DIRECTIONS = ("up", "down", "left", "right")


def plain(text: str, *, case_sensitive: bool = False, normalize_whitespace: bool = True) -> str:
    """A text as it is compared.

    >>> plain("  New   York ")
    'new york'
    """
    spaced = " ".join(text.split()) if normalize_whitespace else text
    return spaced if case_sensitive else spaced.lower()


def difference(golden: str, predicted: str, *, like_sygra: bool = False) -> SequenceMatcher[str]:
    """The two texts side by side; SyGra overlooks letters that are frequent in texts of 200 letters and more."""
    return SequenceMatcher(None, golden, predicted, autojunk=like_sygra)


class _Comparing(UnitMetric):
    """What the metrics have in common: how they read a value of one side."""

    def golden(self, value: Any, key: str | None) -> Any:
        """The right value; that there is none is an error of the data."""
        found = self._read(value, key)
        if found is None:
            where = f"no {key!r}" if key is not None and isinstance(value, Mapping) else "no value"
            raise ValueError(f"the golden value has {where}: {value!r:.80}")
        return found

    def predicted(self, value: Any, key: str | None) -> Any:
        """The predicted value, or None."""
        return self._read(value, key)

    def _read(self, value: Any, key: str | None) -> Any:
        if key is None or not isinstance(value, Mapping):
            return str(value) if value is not None or self.like_sygra else None
        return value.get(key, "") if self.like_sygra else value.get(key)

    def result(
        self, correct: bool, golden: Any, predicted: Any, metadata: Mapping[str, Any], score: float | None = None
    ) -> UnitMetricResult:
        said = {"validator": self.validator, **metadata}
        number = float(correct) if score is None else score
        return UnitMetricResult(correct, as_mapping(golden), as_mapping(predicted), said, number)

    validator = ""
    """What its results call it."""


@dataclass(kw_only=True)
class ExactMatchMetric(_Comparing):
    """Whether two texts are equal, apart from case and the amount of white space unless these shall count.

    `key` is where the text stands in a mapping; without it, the whole value is taken as text.
    """

    key: str | None = None
    case_sensitive: bool = False
    normalize_whitespace: bool = True

    validator = "exact_match"

    def compare(self, golden: Any, predicted: Any) -> UnitMetricResult:
        right, given = self._text(self.golden(golden, self.key)), self._text(self.predicted(predicted, self.key))
        return self.result(
            right == given,
            golden,
            predicted,
            {
                "golden_text": right,
                "predicted_text": given,
                "case_sensitive": self.case_sensitive,
                "normalize_whitespace": self.normalize_whitespace,
            },
        )

    def _text(self, value: Any) -> str | None:
        if value is None and not self.like_sygra:
            return None
        return plain(str(value), case_sensitive=self.case_sensitive, normalize_whitespace=self.normalize_whitespace)


@dataclass(kw_only=True)
class FuzzyMatchMetric(_Comparing):
    """Whether two texts are alike: the share of letters in matching runs, which is the score, reaches `threshold`."""

    key: str | None = None
    threshold: float = 0.8
    case_sensitive: bool = False
    normalize_whitespace: bool = True

    validator = "fuzzy_match"

    def __post_init__(self) -> None:
        _check_share("threshold", self.threshold)

    def compare(self, golden: Any, predicted: Any) -> UnitMetricResult:
        right, given = self._text(self.golden(golden, self.key)), self._text(self.predicted(predicted, self.key))
        alike = 0.0 if given is None else difference(str(right), given).ratio()
        said = {"golden_text": right, "predicted_text": given, "similarity_score": alike, "threshold": self.threshold}
        return self.result(given is not None and alike >= self.threshold, golden, predicted, said, alike)

    def _text(self, value: Any) -> str | None:
        if value is None:
            return None
        return plain(str(value), case_sensitive=self.case_sensitive, normalize_whitespace=self.normalize_whitespace)


@dataclass(kw_only=True)
class TypedValueMatchMetric(_Comparing):
    """Whether a typed text is the right one, or at least so much like it as `fuzzy_match_threshold` says."""

    golden_text_key: str = "text"
    predicted_text_key: str = "text"
    fuzzy_match_threshold: float = 0.8
    case_sensitive: bool = False

    validator = "typed_value_match"

    def __post_init__(self) -> None:
        _check_share("fuzzy_match_threshold", self.fuzzy_match_threshold)

    def compare(self, golden: Any, predicted: Any) -> UnitMetricResult:
        wanted, given = self.golden(golden, self.golden_text_key), self.predicted(predicted, self.predicted_text_key)
        right = plain(str(wanted), case_sensitive=self.case_sensitive)
        if given is None and not self.like_sygra:
            return self.result(False, golden, predicted, {"golden_text": right, "predicted_text": None})
        typed = plain(str(given), case_sensitive=self.case_sensitive)
        matcher = difference(right, typed, like_sygra=self.like_sygra)
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
class ActionWithinBboxMetric(_Comparing):
    """Whether a point lies in a box {x, y, width, height}, its edges included, or at most `tolerance` beside it."""

    predicted_x_key: str = "x"
    predicted_y_key: str = "y"
    golden_bbox_key: str = "bbox"
    tolerance: float = 0.0

    validator = "action_within_bbox"

    def compare(self, golden: Any, predicted: Any) -> UnitMetricResult:
        box = self.golden(golden, self.golden_bbox_key)
        sides = {
            side: _number(box.get(side)) if isinstance(box, Mapping) else None for side in ("x", "y", "width", "height")
        }
        left, top, width, height = sides.values()
        if left is None or top is None or width is None or height is None:
            raise ValueError(f"the golden {self.golden_bbox_key!r} is no box of x, y, width and height: {box!r:.80}")
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
class ScrollDirectionMetric(_Comparing):
    """Whether the direction is the right one: up, down, left or right."""

    golden_direction_key: str = "direction"
    predicted_direction_key: str = "direction"

    validator = "scroll_direction"

    def compare(self, golden: Any, predicted: Any) -> UnitMetricResult:
        right = self.golden(golden, self.golden_direction_key)
        given = self.predicted(predicted, self.predicted_direction_key)
        if right not in DIRECTIONS and not self.like_sygra:
            raise ValueError(f"the golden direction {right!r:.40} is none of {', '.join(DIRECTIONS)}")
        said = {"golden_direction": right, "predicted_direction": given}
        return self.result(right == given and right in DIRECTIONS, golden, predicted, said)


@dataclass(kw_only=True)
class ScrollAmountMetric(_Comparing):
    """Whether an amount is at most `tolerance_percent` from the right one; where that is 0, at most `scroll_threshold`."""

    golden_amount_key: str = "amount"
    predicted_amount_key: str = "amount"
    tolerance_percent: float = 20.0
    scroll_threshold: float = 10.0

    validator = "scroll_amount"

    def compare(self, golden: Any, predicted: Any) -> UnitMetricResult:
        written = self.golden(golden, self.golden_amount_key)
        right, given = _number(written), _number(self.predicted(predicted, self.predicted_amount_key))
        if right is None:
            raise ValueError(f"the golden {self.golden_amount_key!r} is no number: {written!r:.60}")
        apart = None if given is None else abs(right - given)
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
            "predicted_scroll_amount": given,
        }
        return self.result(near, golden, predicted, said)


def _number(value: Any) -> float | None:
    """The number that a value says, or None."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, and is {value}")


OWN_UNIT_METRICS: dict[str, type[UnitMetric]] = {
    "exact_match": ExactMatchMetric,
    "fuzzy_match": FuzzyMatchMetric,
    "action_within_bbox": ActionWithinBboxMetric,
    "typed_value_match": TypedValueMatchMetric,
    "scroll_direction": ScrollDirectionMetric,
    "scroll_amount": ScrollAmountMetric,
}
