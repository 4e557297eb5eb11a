"""Conditions of group members: `if: "model.params >= 7e9 and run.limit == None"`. Parsed, never executed."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from assay.errors import did_you_mean
from assay.records import Params, UserValue

COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda item, whole: item in whole, ast.NotIn: lambda item, whole: item not in whole,
}  # fmt: skip
MAX_LENGTH = 1000


class ConditionError(ValueError):
    """An invalid condition, or one with an unknown name."""


def holds(condition: str, facts: Params) -> bool:
    """Whether a condition is true of these facts.

    >>> holds("model.params >= 7e9 and model.name != 'dummy'", {"model": {"params": 8e9, "name": "x"}})
    True
    >>> holds("model.size > 1", {"model": {"params": 8e9}})
    Traceback (most recent call last):
    ...
    assay.catalog.conditions.ConditionError: unknown name 'model.size'; use one of: params
    """
    if len(condition) > MAX_LENGTH:
        raise ConditionError(f"a condition of {len(condition)} characters is too long")
    try:
        tree = ast.parse(condition.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConditionError(f"it cannot be parsed: {error}") from None
    try:
        value = _value(tree.body, facts)
    except RecursionError:
        raise ConditionError("it is nested too deep") from None
    if not isinstance(value, bool):
        raise ConditionError(f"the condition must be true or false, got {value!r:.60}")
    return value


def _value(node: ast.AST, facts: Params) -> UserValue:
    """Evaluate a part of a condition: names, literals, comparisons, `and`, `or`, `not`; anything else is an error."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, facts) for item in items]
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return not _boolean(inner, facts)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.BoolOp(op=kind, values=parts):
            values = (_boolean(part, facts) for part in parts)
            return all(values) if isinstance(kind, ast.And) else any(values)
        case ast.Compare(left=left, ops=kinds, comparators=others):
            return _compare(left, kinds, others, facts)
        case ast.Name() | ast.Attribute():
            return _lookup(ast.unparse(node), facts)
    raise ConditionError(
        f"{ast.unparse(node)!r} is not supported; use names, numbers, texts, comparisons, and, or, not"
    )


def _boolean(node: ast.AST, facts: Params) -> bool:
    value = _value(node, facts)
    if not isinstance(value, bool):
        raise ConditionError(f"{ast.unparse(node)!r} must be true or false")
    return value


def _compare(left: ast.AST, kinds: list[ast.cmpop], others: list[ast.expr], facts: Params) -> bool:
    before = _value(left, facts)
    for kind, other in zip(kinds, others, strict=True):
        after = _value(other, facts)
        compare = COMPARE.get(type(kind))
        if compare is None:
            raise ConditionError("compare with ==, !=, <, <=, >, >=, in or not in")
        try:
            if not compare(before, after):
                return False
        except TypeError:
            raise ConditionError(f"{before!r:.40} and {after!r:.40} cannot be compared") from None
        before = after
    return True


def _lookup(name: str, facts: Params) -> UserValue:
    """Look up a fact by its dotted name."""
    value: Any = facts
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            known = value if isinstance(value, Mapping) else ()
            raise ConditionError(f"unknown name {name!r}; {did_you_mean(part, map(str, known))}")
        value = value[part]
    return value
