"""Unit metrics: they compare the golden value of a record with the predicted one.

Each is a function `(golden, predicted, *, …)` of a record with its declaration, and gives a truth, a score, or a whole
UnitMetricResult. `@unit_metric("name")` registers one; a metric of tasks that scores answers is one, too, by its name.
"""

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import partial
from typing import Any, TypeVar

from assay.dialect import OURS, Dialect
from assay.errors import Place
from assay.graphs.spec import Record, Value
from assay.graphs.sygra_classes import MetricRegistry, UnitMetric, UnitMetricResult, as_mapping, declare_unit_class
from assay.records import Failed, JSONDict, UserFunction, UserValue
from assay.registry import AdaptedMembers, RegistryWithOthers, subclass_of
from assay.scoring.declarations import RECORD, Metric, prepared
from assay.scoring.metric_binding import refuse_unusable
from assay.scoring.metrics.convention import read_call
from assay.scoring.metrics.registry import METRICS
from assay.scoring.metrics.structured import ALONE
from assay.scoring.results import GENERATE, GenResult
from assay.signatures import Accepted, accepted, dress
from assay.statistics.influence import SHARE

JUDGED = "judged record"
"""The kind of answer that a metric scores which asks a model: its node does that."""
Compare = Callable[[Value, Value], Value]
"""A unit metric with its parameters."""


def judged(
    validator: str, golden: Value, predicted: Value, correct: bool, score: float | None = None, **metadata: Value
) -> UnitMetricResult:
    """The result of one of these metrics."""
    number = float(correct) if score is None else score
    about = {"validator": validator, **metadata}
    return UnitMetricResult(correct, as_mapping(golden), as_mapping(predicted), about, number)


def measure(compare: Compare, name: str, golden: Value, predicted: Value) -> UnitMetricResult:
    """Compare the values of a record: a metric gives a result, or a truth or score that stands for one; 1 is correct."""
    verdict = compare(golden, predicted)
    if isinstance(verdict, UnitMetricResult):
        return verdict
    correct = verdict if isinstance(verdict, bool) else float(verdict) >= 1
    return judged(name, golden, predicted, correct, float(verdict))


# --- what is compared -----------------------------------------------------------------------------------------------------


def read_side(value: Value, key: str | None, dialect: Dialect, *, whole: bool = False) -> Value:
    """The value of a side that is compared, or None: under `key`, else its lone `text`, or all of it.

    With `whole`, a mapping or a list is read as text, braces and all, as by SyGra.
    """
    if key is None and not whole:
        if isinstance(value, list | tuple):
            return value
        key = "text" if isinstance(value, Mapping) and [*value] == ["text"] else None
    if key is None or not isinstance(value, Mapping):
        return str(value) if value is not None or dialect.reads_missing_values_as_text else None
    return value.get(key, "") if dialect.reads_missing_values_as_text else value.get(key)


def read_golden(value: Value, key: str | None, dialect: Dialect, *, whole: bool = False) -> Value:
    """The right value; that there is none is an error of the data."""
    side = read_side(value, key, dialect, whole=whole)
    if side is None:
        where = f"no {key!r}" if key is not None and isinstance(value, Mapping) else "no value"
        raise ValueError(f"the golden value has {where}: {value!r:.80}")
    return side


def plain(text: str, *, case_sensitive: bool = False, normalize_whitespace: bool = True) -> str:
    """A text as it is compared.

    >>> plain("  New   York ")
    'new york'
    """
    spaced = " ".join(text.split()) if normalize_whitespace else text
    return spaced if case_sensitive else spaced.lower()


def plain_answer(side: Value, dialect: Dialect, **rules: bool) -> str | None:
    """The text of a predicted value as it is compared; None where there is none."""
    return None if side is None and not dialect.reads_missing_values_as_text else plain(str(side), **rules)


def read_texts(
    golden: Value,
    predicted: Value,
    key: str | None,
    dialect: Dialect,
    rules: Mapping[str, bool],
    *,
    whole: bool = False,
) -> tuple[list[str], str | None]:
    """The golden texts and the answer as they are compared: all texts of a golden list, unless the predicted value is a list,
    too, to be compared as a whole."""
    right, side = read_golden(golden, key, dialect, whole=whole), read_side(predicted, key, dialect, whole=whole)
    is_list = isinstance(right, list | tuple) and not whole and not isinstance(side, list | tuple)
    texts = (
        [plain(str(text), **rules) for text in right if text is not None] if is_list else [plain(str(right), **rules)]
    )
    if not texts:
        raise ValueError(f"the golden value has no text: {right!r:.80}")
    return texts, plain_answer(side, dialect, **rules)


def difference(golden: str, predicted: str, dialect: Dialect = OURS) -> SequenceMatcher[str]:
    """The two texts side by side; SyGra overlooks letters that are frequent in texts of 200 letters and more."""
    return SequenceMatcher(None, golden, predicted, autojunk=dialect.ignores_frequent_letters)


# --- the metrics ----------------------------------------------------------------------------------------------------------


def exact_match(
    golden: Value,
    predicted: Value,
    *,
    key: str | None = None,
    case_sensitive: bool = False,
    normalize_whitespace: bool = True,
    dialect: Dialect = OURS,
) -> UnitMetricResult:
    """Whether two texts are equal, apart from case and the amount of white space unless these shall count.

    `key` is the key of the text in a mapping; without it, its lone `text`, or else the whole value. Of a list of golden
    texts any may be the right one.
    """
    rules = {"case_sensitive": case_sensitive, "normalize_whitespace": normalize_whitespace}
    texts, answer = read_texts(golden, predicted, key, dialect, rules, whole=dialect.compares_whole_mappings)
    right = answer if answer in texts else texts[0]
    return judged("exact_match", golden, predicted, right == answer, golden_text=right, predicted_text=answer, **rules)


def _fuzzy_match(
    *,
    key: str | None = None,
    threshold: float = 0.8,
    case_sensitive: bool = False,
    normalize_whitespace: bool = True,
    dialect: Dialect = OURS,
) -> Compare:
    """Whether two texts are alike: the share of letters in matching runs, which is the score, reaches `threshold`.

    `key` and lists of golden texts are as of `exact_match`.
    """
    _check_share("threshold", threshold)
    rules = {"case_sensitive": case_sensitive, "normalize_whitespace": normalize_whitespace}

    def compare(golden: Value, predicted: Value) -> UnitMetricResult:
        texts, answer = read_texts(golden, predicted, key, dialect, rules)
        ratios = [0.0 if answer is None else difference(text, answer).ratio() for text in texts]
        alike = max(ratios)
        right = texts[ratios.index(alike)]
        about = {"golden_text": right, "predicted_text": answer, "similarity_score": alike, "threshold": threshold}
        correct = answer is not None and alike >= threshold
        return judged("fuzzy_match", golden, predicted, correct, alike, **about)

    return compare


def _typed_value_match(
    *,
    golden_text_key: str = "text",
    predicted_text_key: str = "text",
    fuzzy_match_threshold: float = 0.8,
    case_sensitive: bool = False,
    dialect: Dialect = OURS,
) -> Compare:
    """Whether a typed text is the right one, or at least so much like it as `fuzzy_match_threshold` says."""
    _check_share("fuzzy_match_threshold", fuzzy_match_threshold)
    name = "typed_value_match"

    def compare(golden: Value, predicted: Value) -> UnitMetricResult:
        right = plain(str(read_golden(golden, golden_text_key, dialect)), case_sensitive=case_sensitive)
        side = read_side(predicted, predicted_text_key, dialect)
        typed = plain_answer(side, dialect, case_sensitive=case_sensitive)
        if typed is None:
            return judged(name, golden, predicted, False, golden_text=right, predicted_text=None)
        matcher = difference(right, typed, dialect)
        alike = matcher.ratio()
        about = {
            "golden_text": right,
            "predicted_text": typed,
            "exact_match": right == typed,
            "similarity_score": alike,
            "fuzzy_match": alike >= fuzzy_match_threshold,
            "differences": [
                {"operation": kind, "golden": right[a:b], "predicted": typed[c:d]}
                for kind, a, b, c, d in matcher.get_opcodes()
                if kind != "equal"
            ],
        }
        return judged(name, golden, predicted, right == typed or alike >= fuzzy_match_threshold, alike, **about)

    return compare


def action_within_bbox(  # noqa: PLR0913  # the keys of a file
    golden: Value,
    predicted: Value,
    *,
    predicted_x_key: str = "x",
    predicted_y_key: str = "y",
    golden_bbox_key: str = "bbox",
    tolerance: float = 0.0,
    dialect: Dialect = OURS,
) -> UnitMetricResult:
    """Whether a point is in a box {x, y, width, height}, its edges included, or at most `tolerance` beside it."""
    box = read_golden(golden, golden_bbox_key, dialect)
    sides = [_number(box.get(side)) if isinstance(box, Mapping) else None for side in ("x", "y", "width", "height")]
    left, top, width, height = sides
    if left is None or top is None or width is None or height is None:
        raise ValueError(f"the golden {golden_bbox_key!r} must be a box of x, y, width and height, got {box!r:.80}")
    x, y = (_number(read_side(predicted, key, dialect)) for key in (predicted_x_key, predicted_y_key))
    within = (
        x is not None
        and y is not None
        and left - tolerance <= x <= left + width + tolerance
        and top - tolerance <= y <= top + height + tolerance
    )
    about: JSONDict = {
        "predicted_x_key": predicted_x_key,
        "predicted_y_key": predicted_y_key,
        "golden_bbox_key": golden_bbox_key,
        "predicted_x": x,
        "predicted_y": y,
    }
    return judged("action_within_bbox", golden, predicted, within, **about)


DIRECTIONS = ("up", "down", "left", "right")


def scroll_direction(
    golden: Value,
    predicted: Value,
    *,
    golden_direction_key: str = "direction",
    predicted_direction_key: str = "direction",
    dialect: Dialect = OURS,
) -> UnitMetricResult:
    """Whether the direction is the right one: up, down, left or right."""
    right = read_golden(golden, golden_direction_key, dialect)
    answer = read_side(predicted, predicted_direction_key, dialect)
    if right not in DIRECTIONS and not dialect.reads_missing_values_as_text:
        raise ValueError(f"the golden direction must be one of {', '.join(DIRECTIONS)}, got {right!r:.40}")
    correct = right == answer and right in DIRECTIONS
    about = {"golden_direction": right, "predicted_direction": answer}
    return judged("scroll_direction", golden, predicted, correct, **about)


def scroll_amount(  # noqa: PLR0913  # the keys of a file
    golden: Value,
    predicted: Value,
    *,
    golden_amount_key: str = "amount",
    predicted_amount_key: str = "amount",
    tolerance_percent: float = 20.0,
    scroll_threshold: float = 10.0,
    dialect: Dialect = OURS,
) -> UnitMetricResult:
    """Whether an amount is at most `tolerance_percent` from the right one; where that is 0, at most `scroll_threshold`."""
    written = read_golden(golden, golden_amount_key, dialect)
    right, answer = _number(written), _number(read_side(predicted, predicted_amount_key, dialect))
    if right is None:
        raise ValueError(f"the golden {golden_amount_key!r} must be a number, got {written!r:.60}")
    apart = None if answer is None else abs(right - answer)
    percent = None if apart is None or right == 0 else apart / abs(right) * 100
    is_near = percent <= tolerance_percent if percent is not None else apart is not None and apart <= scroll_threshold
    about = {
        "is_valid": is_near,
        "difference": apart,
        "difference_percent": percent,
        "tolerance_used": tolerance_percent,
        "scroll_threshold": scroll_threshold,
        "golden_scroll_amount": right,
        "predicted_scroll_amount": answer,
    }
    return judged("scroll_amount", golden, predicted, is_near, **about)


def _number(value: Value) -> float | None:
    """The number that a value says, or None."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")


# --- metrics of tasks as unit metrics, and the other way ------------------------------------------------------------------

TOLERANCE = 1e-9
"""Distance from the best score that still counts as correct: sums of fractions are not exact."""


def of_answers(name: str, metric: Metric) -> Metric | None:
    """A metric of a task's answers as a unit metric, with its parameters, `key` and `threshold`; None where it gives no number
    for one answer."""
    declared = ALONE.get(name, metric)
    is_mean = GENERATE in declared.functions and declared.aggregation == "mean"
    if not is_mean or (declared.gives is not None and declared.gives() != ()):
        return None
    function, (least, most) = declared.functions[GENERATE], declared.bounds or (0.0, 1.0)
    best = least if not declared.higher_is_better else most if math.isfinite(most) else 1.0
    call = read_call(function)

    def prepare(*, key: str | None = "text", threshold: float = best, **params: UserValue) -> Compare:
        refuse_unusable(declared, f"unit metric {name!r}", Place(f"unit metric {name!r}"))
        score = _scoring(name, declared, params)

        def compare(golden: Value, predicted: Value) -> UnitMetricResult:
            right, answer = (
                side.get(key) if key is not None and isinstance(side, Mapping) else side for side in (golden, predicted)
            )
            if right is None:
                raise ValueError(f"the golden value has no {key!r}: {golden!r:.80}")
            references = [*map(_as_text, right if isinstance(right, list | tuple) else [right])]
            number = float(score(references, "" if answer is None else _as_text(answer)))
            above, below = number >= threshold - TOLERANCE, number <= threshold + TOLERANCE
            correct = answer is not None and (above if declared.higher_is_better else below)
            return judged(name, golden, predicted, correct, number, threshold=threshold)

        return compare

    own = replace(accepted(prepare), takes_any=False)
    unit = prepared(prepare, [own, call.takes], like=function)
    return replace(declared, functions={RECORD: unit})


def _scoring(name: str, declared: Metric, params: Record) -> Compare:
    """The score of an answer beside its references, by a metric that is called as in tasks."""
    function = declared.functions[GENERATE]
    if hasattr(function, "prepared"):
        bound: Compare = function.prepared(**params)
        return bound
    compute = read_call(function, params).computing(params, name, higher_is_better=declared.higher_is_better)

    def score(references: Sequence[str], answer: str) -> Value:
        value = compute(GenResult({}, references, answer))
        if isinstance(value, Failed):
            raise ValueError(value.reason)
        return value

    return score


def _as_text(value: Value) -> str:
    """A value as a model would write it: lists and mappings as JSON, which rankings and schemas read."""
    is_json = isinstance(value, list | tuple | Mapping)
    return json.dumps(value, ensure_ascii=False, default=str) if is_json else str(value)


def task_metric(name: str) -> Metric | None:
    """The unit metric of a name as a metric of tasks: golden is the target, predicted the answer, and the row its score."""
    declared = UNIT_METRICS.get(name)
    if declared is None or RECORD not in declared.functions:
        return None

    def prepare(**params: UserValue) -> Compare:
        compare = bind(declared, OURS, **params)

        def score(references: Sequence[Value], answer: Value) -> float:
            golden = as_mapping(references[0] if len(references) == 1 else list(references))
            predicted = as_mapping(answer)
            return measure(compare, name, golden, predicted).score

        return score

    function = declared.functions[RECORD]
    by_names = prepared(prepare, [UNIT_METRICS.accepts(declared)], like=function, supplied=("references", "prediction"))
    return replace(declared, functions={GENERATE: by_names})


# --- names ----------------------------------------------------------------------------------------------------------------


class _UnitMetrics(RegistryWithOthers[Metric, Compare, Metric]):
    """With the metrics of tasks that score answers."""

    def accepts(self, member: Metric) -> Accepted:
        [function] = member.functions.values()
        takes = accepted(function, 2 if RECORD in member.functions else 0)
        return replace(
            takes, named={name: each for name, each in takes.named.items() if each.annotation is not Dialect}
        )


def bind(declared: Metric, dialect: Dialect = OURS, /, **params: UserValue) -> Compare:
    """A unit metric with its parameters; the rules of the run are the one of them that is annotated as `Dialect`."""
    function: Any
    [function] = declared.functions.values()
    known = accepted(function).named
    rules = {name: dialect for name, each in known.items() if each.annotation is Dialect}
    bound: Compare = getattr(function, "prepared", partial(partial, function))(**params, **rules)
    return bound


def _declared(name: str, thing: UserValue) -> Metric:
    """A declaration, or a function of golden and predicted values or a class of unit metrics as one."""
    if isinstance(thing, Metric):
        return thing
    if not inspect.isroutine(thing):
        return declare_unit_class(name, subclass_of(UnitMetric)(name, thing))
    UNIT_METRICS.refuse_shape(thing, 2)
    return Metric({RECORD: thing})


AGENT_METRICS = ("tool_called", "tool_order", "no_forbidden_tool", "agent_turns", "agent_cost")
UNIT_METRICS = _UnitMetrics(
    "unit metric",
    {
        "exact_match": Metric({RECORD: exact_match}, bounds=SHARE),
        "fuzzy_match": Metric({RECORD: prepared(_fuzzy_match)}, bounds=SHARE),
        "action_within_bbox": Metric({RECORD: action_within_bbox}, bounds=SHARE),
        "typed_value_match": Metric({RECORD: prepared(_typed_value_match)}, bounds=SHARE),
        "scroll_direction": Metric({RECORD: scroll_direction}, bounds=SHARE),
        "scroll_amount": Metric({RECORD: scroll_amount}, bounds=SHARE),
        **{name: f"assay.graphs.agent_metrics:{name.upper()}" for name in AGENT_METRICS},
        "llm_judge": "assay.graphs.judge_node:LLM_JUDGE",
    },
    AdaptedMembers(METRICS, of_answers),
    group="assay.unit_metrics",
    adopt=_declared,
    build=bind,
)


def unit_class(name: str, declared: Metric) -> type[UnitMetric]:
    """The class that stands for a unit metric in SyGra's registry."""

    class DeclaredUnitMetric(UnitMetric):
        higher_is_better, bounds = declared.higher_is_better, declared.bounds

        def __init__(self, **config: UserValue) -> None:
            super().__init__(**config)
            self._compare = bind(declared, OURS, **config)

        def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
            return measure(self._compare, name, golden, predicted)

    [function] = declared.functions.values()
    return dress(DeclaredUnitMetric, function, [UNIT_METRICS.accepts(declared)])


UnitMetricRegistry = MetricRegistry(UNIT_METRICS, unit_class)
"""The same by SyGra's name, with its methods."""
Decorated = TypeVar("Decorated", bound=UserFunction)


def unit_metric(name: str) -> Callable[[Decorated], Decorated]:
    """Make a class or function known as a unit metric by a name.

    A class is derived from UnitMetric. A function takes what is right, what was predicted, and keyword parameters, and
    gives a verdict, a score (of which 1 is correct), or a UnitMetricResult.
    """
    return UNIT_METRICS.register(name)
