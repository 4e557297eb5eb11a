"""How `math_equal` compares: whether two answers mean the same number, set or expression. Needs the extra `math`."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

from assay.scoring.metrics.math_said import in_figures, said
from assay.scoring.metrics.math_text import (
    FormulaParts,
    boxed,
    formulas,
    is_in_braces,
    joined_by,
    name_and_value,
    parts_of_answers,
    parts_of_target,
    plain,
    said_words,
    same_words,
    words_of,
)
from assay.scoring.metrics.math_units import same_base, same_moment, same_ratio, units_apart
from assay.user_code import clock_stopped, in_main_thread

Expression = Any
"""A parsed number, set or relation of sympy, which has no types."""
SECONDS = 5
"""Time limit of one comparison: some expressions never end."""
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
"""Errors that math-verify and sympy raise for texts that they cannot read."""
_COMMA = re.compile(r"-?(?!0*[1-9]\d{0,2},\d{3}$)\d+,\d+")
_POINT = re.compile(r"-?\d*\.\d+")


def compare(references: Sequence[str], prediction: str, digits: int, strict: bool) -> float:
    """1 where the answer equals a reference. If none is equal, and one cannot be read, that is a ValueError."""
    unread = ""
    with clock_stopped():
        response = in_figures(plain(prediction))
        for each in references:
            try:
                if _equal_named(in_figures(plain(each)), response, digits, strict):
                    return 1.0
            except _UnreadableTarget as error:
                unread = str(error)
    if unread:
        raise ValueError(f"math_equal: {unread}")
    return 0.0


class _UnreadableTarget(Exception):
    """A reference that nothing can be compared with."""


def _equal_named(right: str, response: str, digits: int, strict: bool) -> bool:
    """Whether values are equal, and their names where both have one."""
    (name, value), (other, actual) = name_and_value(right), name_and_value(response)
    return (not name or not other or name == other) and _equal(value, actual, digits, strict)


def _equal(right: str, response: str, digits: int, strict: bool) -> bool:
    if right.strip() == response.strip():
        return True
    words = words_of(right)
    if words is not None:
        return words in said_words(response)
    if parts := parts_of_target(right):
        return any(_same_parts(parts, each, digits, strict) for each in parts_of_answers(response))
    response = said(response)
    for compare in (same_moment, same_ratio, same_base):
        if (same := compare(right, response)) is not None:
            return same
    golds = _target(right if right.lstrip(" $").startswith("-") else _with_point(right, response))  # -2,5 are two roots
    apart = units_apart(right, response)
    if apart is None:
        return False
    try:
        answers = _parsed(_with_point(response, right))
        if apart != 1:
            answers = [_in_units(each, apart) for each in answers if _is_number(each.value)]
    except _unreadable():
        return False
    comparable = [pair for pair in product(golds, answers) if not _differ_in_kind(*pair)]
    return any(
        _same(gold.value, answer.value, digits, strict) or _same_range(gold, answer) for gold, answer in comparable
    )


def _with_point(text: str, other: str) -> str:
    """A decimal comma as a point, where the other number has a point: elsewhere `1,5` are two numbers."""
    bare, decimal = boxed(text).strip(" $."), boxed(other).strip(" $.")
    return bare.replace(",", ".") if _COMMA.fullmatch(bare) and _POINT.fullmatch(decimal) else text


@cache
def _unreadable() -> tuple[type[BaseException], ...]:
    from math_verify.errors import TimeoutException

    return (*_UNREADABLE, TimeoutException)


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


def _in_units(answer: _Read, apart: Fraction) -> _Read:
    from sympy import Rational

    return _Read(answer.value * Rational(apart.numerator, apart.denominator), answer.in_braces, answer.joined)


def _target(text: str) -> list[_Read]:
    try:
        expressions = _parsed(text)
    except _unreadable() as error:
        raise _UnreadableTarget(f"the target {text!r:.80} cannot be read: {type(error).__name__}") from None
    if not expressions:
        raise _UnreadableTarget(f"the target {text!r:.80} cannot be read as a number, set or expression")
    return expressions


def _parsed(text: str) -> list[_Read]:
    """The expression that a text means; nothing where none can be read."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    for formula in formulas(text):
        is_latex = formula.startswith("$") and formula.endswith(("$", "$%"))  # else the 2 of `(1, 2` would count
        kinds = [LatexExtractionConfig()] if is_latex else [LatexExtractionConfig(), ExprExtractionConfig()]
        parsed = parse(formula, kinds, parsing_timeout=_seconds(), raise_on_error=True)
        expressions = [each for each in parsed if not isinstance(each, str)]
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


def _has_bounds(value: Expression) -> bool:
    """Whether it is a list in which something is an inequality."""
    from sympy import FiniteSet

    return isinstance(value, FiniteSet) and any(map(_is_more, value.args))


def _is_more(value: Expression) -> bool:
    """Whether it is a set, tuple, interval, matrix or relation. `x = 3` is not: that says a number."""
    from math_verify.grader import is_equation
    from sympy import MatrixBase, Set, Tuple
    from sympy.logic.boolalg import Boolean

    return isinstance(value, Set | Tuple | MatrixBase) or (isinstance(value, Boolean) and not is_equation(value))


def _same(gold: Expression, answer: Expression, digits: int, strict: bool) -> bool:
    if _is_huge(gold) or _is_huge(answer):
        return bool(gold == answer)
    has_sign = _number_of(gold) is not gold, _number_of(answer) is not answer
    if has_sign[0] != has_sign[1] and _verified(_number_of(gold), _number_of(answer), digits, strict):
        return True  # 12.5% is 12.5 and 0.125
    if _verified(gold, answer, digits, strict):
        return True
    ours, theirs = _chain(gold), _chain(answer)[::-1]  # 3 > x > 1 is 1 < x < 3
    return 1 < len(ours) == len(theirs) and all(
        _same(one, other, digits, strict) for one, other in zip(ours, theirs, strict=True)
    )


def _verified(gold: Expression, answer: Expression, digits: int, strict: bool) -> bool:
    """Whether math-verify takes them for equal, in time, and they are."""
    from math_verify import verify

    gold, answer = _in_order(_as_decimal(gold, answer), answer), _as_decimal(answer, gold)
    try:
        return (
            verify(
                gold,
                answer,
                digits,
                strict=strict,
                allow_set_relation_comp=_is_range(gold),
                timeout_seconds=_seconds(),
                raise_on_error=True,
            )
            and _are_near(gold, answer, digits)
            and _have_same_variables(gold, answer)
        )
    except _UNREADABLE:
        _check(gold)
    except _unreadable():
        pass  # it took too long
    return False


def _have_same_variables(gold: Expression, answer: Expression) -> bool:
    """Whether two equations are about the same: math-verify takes those without solutions for equal."""
    from sympy.core.relational import Relational

    are_relations = isinstance(gold, Relational) and isinstance(answer, Relational)
    return not are_relations or gold.free_symbols == answer.free_symbols or _is_range(gold)


def _is_range(value: Expression) -> bool:
    """Whether it is an interval, or several, of a variable or alone: 0 < x < 5 says the same."""
    from sympy import Eq, Interval, Union

    return isinstance(value.rhs if isinstance(value, Eq) else value, Interval | Union)


def _same_range(gold: _Read, answer: _Read) -> bool:
    """Whether both are inequalities or intervals that hold for the same numbers: `x < 1 or x > 3` is a union."""
    ours, theirs = _range(gold), _range(answer)
    if ours is None or theirs is None or (ours[1] and theirs[1] and ours[1] != theirs[1]):
        return False
    return bool(ours[0] == theirs[0])


def _range(read: _Read) -> tuple[Expression, set[Expression]] | None:
    """The numbers for which one of several inequalities holds, or all of them, with their variable."""
    from sympy import And, FiniteSet, Or
    from sympy.core.relational import Relational

    value = read.value
    if _is_range(value):
        return value, set()
    parts = _chain(value) or (list(value.args) if isinstance(value, FiniteSet) else [])
    joined = "and" if _chain(value) else read.joined
    variables = set(value.free_symbols)
    if len(parts) < 2 or not joined or len(variables) != 1 or not all(isinstance(each, Relational) for each in parts):
        return None
    simple = [each for each in parts if each.lhs in variables or each.rhs in variables]
    if len(simple) < len(parts):
        return None
    return (And(*parts) if joined == "and" else Or(*parts)).as_set(), variables


def _chain(value: Expression) -> list[Expression]:
    """The relations of `1 < x < 3`, in the order in which they are written."""
    from sympy import And

    return list(getattr(value, "_unsorted_args", value.args)) if isinstance(value, And) else []


def _as_decimal(number: Expression, other: Expression) -> Expression:
    """An integer as a decimal where the other is one: sympy rounds 10 to 10, which it does not take for 10.0."""
    from sympy import Float, Integer

    is_wanted = isinstance(number, Integer) and isinstance(other, Float)
    return Float(number, precision=other._prec) if is_wanted else number


def _in_order(gold: Expression, answer: Expression) -> Expression:
    """A list as a tuple where the answer is one: math-verify would take both for sets."""
    from sympy import FiniteSet, Interval, Tuple

    is_wanted = isinstance(gold, FiniteSet) and isinstance(answer, Interval | Tuple)
    return Tuple(*getattr(gold, "_unsorted_args", gold.args)) if is_wanted else gold


def _check(gold: Expression) -> None:
    """Raise where nothing can be compared with a reference, itself included: then it is not the answer that is at fault."""
    from math_verify import verify

    try:
        verify(gold, gold, timeout_seconds=_seconds(), raise_on_error=True)
    except _UNREADABLE as error:
        raise _UnreadableTarget(f"nothing can be compared with the target: {error!s:.100}") from None


def _seconds() -> int | None:
    return SECONDS if in_main_thread() else None


# --- numbers that math-verify compares too freely, or never ends to compare -------------------------------------------

_MOST_DIGITS = 10_000
"""Numbers with more digits are not computed with: they equal only what is written in the same way."""
_MOST_TERMS = 10_000
_MOST_FACTORS = 60
"""Highest power of a sum that is multiplied out."""


def _is_number(value: Expression) -> bool:
    from sympy import Expr

    return isinstance(value, Expr) and bool(value.is_number)


def _number_of(value: Expression) -> Expression:
    """A value without its percent sign."""
    from math_verify.grader import get_pct_val

    return get_pct_val(value, value)


def _are_near(gold: Expression, answer: Expression, digits: int) -> bool:
    """Whether values that math-verify takes for equal may be: it takes all small numbers for 0."""
    ours, theirs = _numbers_in(gold), _numbers_in(answer)
    return len(ours) != len(theirs) or all(
        _is_near(one, other, digits) for one, other in zip(ours, theirs, strict=True)
    )


def _numbers_in(value: Expression) -> list[Expression]:
    """The numbers of a tuple, set or matrix in ascending order; none where something in it is not a number."""
    from sympy import FiniteSet, Interval, MatrixBase, Symbol, Tuple
    from sympy.core.relational import Relational

    if _is_number(value):
        return [value]
    parts: list[Expression] = list(value) if isinstance(value, MatrixBase) else []
    if isinstance(value, Interval):
        parts = value.args[:2]
    elif isinstance(value, FiniteSet | Tuple):
        parts = value.args
    elif isinstance(value, Relational) and isinstance(value.lhs, Symbol):
        parts = [value.rhs]
    nested = [_numbers_in(part) for part in parts]
    return sorted((number for each in nested for number in each), key=_place) if all(nested) else []


def _place(number: Expression) -> tuple[float, float]:
    place = complex(number.evalf())
    return place.real, place.imag


def _is_near(one: Expression, other: Expression, digits: int) -> bool:
    """Whether numbers differ by less than the last digit that counts; of those below 1/1000, so many digits as of 1/1000."""
    return _differs_little(one, other, digits) or _differs_little(_number_of(one), _number_of(other), digits)


def _differs_little(one: Expression, other: Expression, digits: int) -> bool:
    if one == other or not (one.is_finite and other.is_finite):
        return True
    apart, size = abs((one - other).evalf(30)), max(abs(one.evalf(15)), abs(other.evalf(15)))
    return bool(apart <= 10.0**-digits * min(1, 1000 * size) * 1.000001)


def _is_huge(value: Expression) -> bool:
    """Whether a number in a value has too many digits to compute with, or a sum in it too many terms."""
    return _digits(value) > _MOST_DIGITS


def _digits(value: Expression) -> float:
    """About how many digits the largest number in a value has; infinite where a sum has too many terms."""
    from sympy import Add, Pow, Product, Rational, Sum, factorial

    if isinstance(value, Rational):
        return float(max(value.p.bit_length(), value.q.bit_length()) * 0.30103)
    args = [_digits(each) for each in getattr(value, "args", ()) if hasattr(each, "args")]
    most = max(args, default=0.0)
    if isinstance(value, Sum | Product):
        ends = [end for limit in value.limits for end in limit.args[1:] if _is_number(end) and end.is_finite]
        return math.inf if any(_digits(end) > math.log10(_MOST_TERMS) for end in ends) else most
    if isinstance(value, Pow):
        power = abs(complex(value.exp.evalf())) if args[1] < 20 and _is_number(value.exp) else 10 ** min(args[1], 300)
        many = isinstance(value.base, Add) and bool(value.base.free_symbols) and power > _MOST_FACTORS
        return math.inf if many else max(most, args[0] * power)
    if isinstance(value, factorial):
        size = 10 ** min(most, 300)
        return max(most, size * math.log10(size + 1))
    return most
