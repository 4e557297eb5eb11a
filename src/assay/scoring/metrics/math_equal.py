"""Whether two answers mean the same number, set or expression. Needs the extra `math`."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from assay.scoring.clock import clock_stopped, in_main_thread
from assay.scoring.metrics.lm_eval import DeclaredMetric
from assay.scoring.metrics.math_parts import FormulaParts, parts_of_answers, parts_of_target, same_words
from assay.scoring.metrics.math_text import formulas, is_in_braces, joined_by, said_words, words_of
from assay.scoring.results import GENERATE

SECONDS = 5
"""What one comparison may take: some expressions never end."""
_UNREADABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What math-verify and sympy raise for texts that they cannot make sense of."""


def math_equal(references: Sequence[Any], prediction: Any, *, digits: int = 6, strict: bool = True) -> float:
    r"""Whether the answer equals a reference, by computing with both: 0.5, 1/2 and \frac{2}{4} are the same.

    Numbers are compared to so many digits after the point. `strict`: variables must have the same names.
    An answer that cannot be read is wrong; a reference that cannot be read is a failure.
    """
    from math_verify.errors import TimeoutException

    unread = ""
    try:
        with clock_stopped():
            for each in map(str, references):
                try:
                    if _equal(each, str(prediction), digits, strict):
                        return 1.0
                except _UnreadableTarget as error:
                    unread = str(error)
    except TimeoutException as error:
        raise TimeoutError(f"math_equal: {error}") from None
    if unread:
        raise ValueError(f"math_equal: {unread}")
    return 0.0


class _UnreadableTarget(Exception):
    """A reference that nothing can be compared with."""


def _equal(right: str, given: str, digits: int, strict: bool) -> bool:
    if right.strip() == given.strip():
        return True
    words = words_of(right)
    if words is not None:
        return words in said_words(given)
    if parts := parts_of_target(right):
        return any(_same_parts(parts, each, digits, strict) for each in parts_of_answers(given))
    golds = _target(right)
    try:
        answers = _parsed(given)
    except _UNREADABLE:
        return False
    comparable = [pair for pair in product(golds, answers) if not _differ_in_kind(*pair)]
    return any(_same(gold.value, answer.value, digits, strict) for gold, answer in comparable)


def _same_parts(target: FormulaParts, answer: FormulaParts, digits: int, strict: bool) -> bool:
    """Whether an answer has the text of its target, or the same words with equal formulas between them."""
    if target.text == answer.text:
        return True
    try:
        return same_words(target, answer) and all(
            _equal(one, other, digits, strict) for one, other in zip(target.formulas, answer.formulas, strict=True)
        )
    except _UnreadableTarget:
        return False  # such a part equals its own text only


@dataclass(frozen=True, slots=True)
class _Read:
    """An expression, with what math-verify does not keep of its text: the braces of a set, and whether all or one of it holds."""

    value: Any
    in_braces: bool
    joined: str


def _target(text: str) -> list[_Read]:
    try:
        found = _parsed(text)
    except _UNREADABLE as error:
        raise _UnreadableTarget(f"the target {text!r:.80} cannot be read: {type(error).__name__}") from None
    if not found:
        raise _UnreadableTarget(f"the target {text!r:.80} cannot be read as a number, set or expression")
    return found


def _parsed(text: str) -> list[_Read]:
    """The expression that a text means; nothing where none can be read."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    for formula in formulas(text):
        is_latex = formula.startswith("$") and formula.endswith("$")  # else the 2 of `(1, 2` would count
        kinds = [LatexExtractionConfig()] if is_latex else [LatexExtractionConfig(), ExprExtractionConfig()]
        found = parse(formula, kinds, parsing_timeout=_seconds(), raise_on_error=True)
        expressions = [each for each in found if not isinstance(each, str)]
        if expressions:
            return [_Read(each, is_in_braces(text), joined_by(text)) for each in expressions]
    return []


def _differ_in_kind(gold: _Read, answer: _Read) -> bool:
    """Whether one is a number and the other more than a number, one a set and the other in order, or one "and" and the other "or".

    math-verify takes a number for the set that has only that number, and all lists for sets.
    """
    from sympy import Interval, Tuple

    one, other = gold.value, answer.value
    if (_is_number(one) and _is_more(other)) or (_is_more(one) and _is_number(other)):
        return True
    if gold.joined and answer.joined and gold.joined != answer.joined and _has_bounds(one):
        return True
    in_order = (Interval, Tuple)
    return (gold.in_braces and isinstance(other, in_order)) or (answer.in_braces and isinstance(one, in_order))


def _has_bounds(value: Any) -> bool:
    """Whether it is a list in which something is an inequality."""
    from sympy import FiniteSet

    return isinstance(value, FiniteSet) and any(map(_is_more, value.args))


def _is_number(value: Any) -> bool:
    from sympy import Expr

    return isinstance(value, Expr) and bool(value.is_number)


def _is_more(value: Any) -> bool:
    """Whether it is a set, tuple, interval, matrix or relation. `x = 3` is not: that says a number."""
    from math_verify.grader import is_equation
    from sympy import MatrixBase, Set, Tuple
    from sympy.logic.boolalg import Boolean

    return isinstance(value, Set | Tuple | MatrixBase) or (isinstance(value, Boolean) and not is_equation(value))


def _same(gold: Any, answer: Any, digits: int, strict: bool) -> bool:
    from math_verify import verify

    gold, answer = _in_order(_as_decimal(gold, answer), answer), _as_decimal(answer, gold)
    try:
        if verify(gold, answer, digits, strict=strict, timeout_seconds=_seconds(), raise_on_error=True):
            return True
    except _UNREADABLE:
        _check(gold)
    ours, theirs = _chain(gold), _chain(answer)[::-1]  # 3 > x > 1 is 1 < x < 3
    return 1 < len(ours) == len(theirs) and all(
        _same(one, other, digits, strict) for one, other in zip(ours, theirs, strict=True)
    )


def _chain(value: Any) -> list[Any]:
    """The relations of `1 < x < 3`, in the order in which they are written."""
    from sympy import And

    return list(getattr(value, "_unsorted_args", value.args)) if isinstance(value, And) else []


def _as_decimal(number: Any, other: Any) -> Any:
    """An integer as a decimal where the other is one: sympy rounds 10 to 10, which it does not take for 10.0."""
    from sympy import Float, Integer

    is_wanted = isinstance(number, Integer) and isinstance(other, Float)
    return Float(number, precision=other._prec) if is_wanted else number


def _in_order(gold: Any, answer: Any) -> Any:
    """A list as a tuple where the answer is one: math-verify would take both for sets."""
    from sympy import FiniteSet, Interval, Tuple

    is_wanted = isinstance(gold, FiniteSet) and isinstance(answer, Interval | Tuple)
    return Tuple(*getattr(gold, "_unsorted_args", gold.args)) if is_wanted else gold


def _check(gold: Any) -> None:
    """Raise where nothing can be compared with a reference, itself included: then it is not the answer that is at fault."""
    from math_verify import verify

    try:
        verify(gold, gold, timeout_seconds=_seconds(), raise_on_error=True)
    except _UNREADABLE as error:
        raise _UnreadableTarget(f"nothing can be compared with the target: {error!s:.100}") from None


def _seconds() -> int | None:
    return SECONDS if in_main_thread() else None


MATH_METRICS: dict[str, DeclaredMetric] = {"math_equal": DeclaredMetric({GENERATE: math_equal}, needs="math_verify")}
