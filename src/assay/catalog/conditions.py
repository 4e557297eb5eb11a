"""Conditions of members: `if: "model.params >= 7e9 and run.limit == None"`. A small language, read and never executed."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from assay.errors import did_you_mean

COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda item, whole: item in whole, ast.NotIn: lambda item, whole: item not in whole,
}  # fmt: skip
LONGEST = 1000


class ConditionError(ValueError):
    """A condition that cannot be read, or that speaks of something unknown."""


def holds(condition: str, facts: Mapping[str, Any]) -> bool:
    """Whether a condition is true of these facts.

    >>> holds("model.params >= 7e9 and model.name != 'dummy'", {"model": {"params": 8e9, "name": "x"}})
    True
    >>> holds("model.size > 1", {"model": {"params": 8e9}})
    Traceback (most recent call last):
    ...
    assay.catalog.conditions.ConditionError: nothing is known of 'model.size'; use one of: params
    """
    if len(condition) > LONGEST:
        raise ConditionError(f"a condition of {len(condition)} characters is too long")
    try:
        tree = ast.parse(condition.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConditionError(f"it cannot be read: {error}") from None
    try:
        found = _value(tree.body, facts)
    except RecursionError:
        raise ConditionError("it is nested too deep") from None
    if not isinstance(found, bool):
        raise ConditionError(f"it is neither true nor false, but {found!r:.60}")
    return found


def _value(node: ast.AST, facts: Mapping[str, Any]) -> Any:
    """What a part of a condition means: names, literals, comparisons, `and`, `or`, `not`; nothing else is understood."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, facts) for item in items]
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return not _truth(inner, facts)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.BoolOp(op=kind, values=parts):
            several = (_truth(part, facts) for part in parts)
            return all(several) if isinstance(kind, ast.And) else any(several)
        case ast.Compare(left=left, ops=kinds, comparators=others):
            return _compared(left, kinds, others, facts)
        case ast.Name() | ast.Attribute():
            return _fact(ast.unparse(node), facts)
    raise ConditionError(
        f"{ast.unparse(node)!r} is not understood; use names, numbers, texts, comparisons, and, or, not"
    )


def _truth(node: ast.AST, facts: Mapping[str, Any]) -> bool:
    found = _value(node, facts)
    if not isinstance(found, bool):
        raise ConditionError(f"{ast.unparse(node)!r} is neither true nor false")
    return found


def _compared(left: ast.AST, kinds: list[ast.cmpop], others: list[ast.expr], facts: Mapping[str, Any]) -> bool:
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
            raise ConditionError(f"{before!r:.40} and {after!r:.40} cannot be compared so") from None
        before = after
    return True


def _fact(name: str, facts: Mapping[str, Any]) -> Any:
    """A fact by its dotted name."""
    found: Any = facts
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            known = found if isinstance(found, Mapping) else ()
            raise ConditionError(f"nothing is known of {name!r}; {did_you_mean(part, map(str, known))}")
        found = found[part]
    return found
