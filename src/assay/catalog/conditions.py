"""Conditions of group members: `if: "model.params >= 7e9 and run.limit == None"`. Parsed, never executed."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from assay.config.run import RunConfig
from assay.errors import did_you_mean
from assay.records import Params, UserValue

COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda item, whole: item in whole, ast.NotIn: lambda item, whole: item not in whole,
}  # fmt: skip
MAX_LENGTH = 1000
FACTS = ("model", "run", "metadata")
"""The first word of every name: of the model and its arguments, of the options of the run, of --metadata."""
SLIPS = (
    (r"^\s*(if|when|unless)\b", "leave the first word out: `if:` is the key"),
    (r"\d\s*[BMKbmk]\b", "write numbers out: 7B is 7e9"),
    (r"(?<![<>=!])=(?!=)", "compare with =="),
    (r"&&|\|\|", "join conditions by `and` and `or`"),
    (r"\b(true|false|null|none)\b", "write True, False or None"),
)
"""Patterns of what is often written by mistake, each with how to write it."""


class Facts(Mapping[str, object]):
    """Facts of which some may be unknown; `remedies` says how the user can give those."""

    remedies: Mapping[str, str] = {}


class ConditionError(ValueError):
    """An invalid condition, or one with an unknown name; with how to correct it."""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(f"{what}; {fix}" if fix else what)
        self.what, self.fix = what, fix or 'write it like "model.params >= 7e9"'


def holds(condition: str, facts: Params) -> bool:
    """Whether a condition is true of these facts.

    >>> holds("model.params >= 7e9 and model.name != 'dummy'", {"model": {"params": 8e9, "name": "x"}})
    True
    >>> holds("model.size > 1", {"model": {"params": 8e9}})
    Traceback (most recent call last):
    ...
    assay.catalog.conditions.ConditionError: unknown name 'model.size'; use one of: params
    """
    value = _value(parsed(condition), facts)
    if not isinstance(value, bool):
        raise ConditionError(f"the condition must be true or false, got {value!r:.60}")
    return value


def parsed(condition: str) -> ast.expr:
    """Parse a condition; what is wrong with it whatever the facts are is a ConditionError.

    >>> ast.unparse(parsed("not run.limit==5"))
    'not run.limit == 5'
    >>> parsed("model_size > 7B")
    Traceback (most recent call last):
    ...
    assay.catalog.conditions.ConditionError: 'model_size > 7B' cannot be read; write numbers out: 7B is 7e9
    """
    slip = next((fix for pattern, fix in SLIPS if re.search(pattern, condition)), "")
    if len(condition) > MAX_LENGTH:
        raise ConditionError(f"a condition of {len(condition)} characters is too long", "split it over several members")
    try:
        tree = ast.parse(condition.strip(), mode="eval").body
        _check(tree, slip)
    except (SyntaxError, MemoryError):
        raise ConditionError(f"{condition!r:.60} cannot be read", slip) from None
    except RecursionError:
        raise ConditionError("the condition is nested too deep", "write it simpler") from None
    if isinstance(tree, ast.List | ast.Tuple) or (isinstance(tree, ast.Constant) and not isinstance(tree.value, bool)):
        raise ConditionError(f"{condition!r:.60} is neither true nor false")
    return tree


def _check(node: ast.AST, slip: str) -> None:
    """Refuse everything but names, literals, comparisons, `and`, `or`, `not`."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return
        case ast.Name() | ast.Attribute():
            _check_name(ast.unparse(node), slip)
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.BoolOp(values=parts):
            for part in parts:
                _check(part, slip)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            _check(inner, slip)
        case ast.Compare(left=left, ops=kinds, comparators=others):
            if not all(type(kind) in COMPARE for kind in kinds):
                raise ConditionError(
                    f"{ast.unparse(node)!r} is not supported", "compare with ==, !=, <, <=, >, >=, in or not in"
                )
            for part in (left, *others):
                _check(part, slip)
        case _:
            what = f"{ast.unparse(node)!r} is not supported"
            raise ConditionError(what, slip or "use names, numbers, texts, comparisons, and, or, not")


def _check_name(name: str, slip: str) -> None:
    first, _, rest = name.partition(".")
    if first not in FACTS or not rest:
        fix = slip or f"a name begins with {', '.join(f'{each}.' for each in FACTS)}, as in model.params"
        raise ConditionError(f"unknown name {name!r}", fix)


def refuse_unknown_options(condition: ast.expr) -> None:
    """Raise a ConditionError for `run.NAME` where no option of a run has that name."""
    known = [option.name for option in fields(RunConfig)]
    for node in ast.walk(condition):
        if not isinstance(node, ast.Attribute) or ast.unparse(node.value) != "run":
            continue
        if node.attr not in known:
            raise ConditionError(f"unknown name {ast.unparse(node)!r}", did_you_mean(node.attr, known))


def _value(node: ast.AST, facts: Params) -> UserValue:
    """Evaluate a part of a condition that was checked."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, facts) for item in items]
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return not _boolean(inner, facts)
        case ast.UnaryOp(operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.BoolOp(op=kind, values=parts):
            values = (_boolean(part, facts) for part in parts)
            return all(values) if isinstance(kind, ast.And) else any(values)
        case ast.Compare(left=left, ops=kinds, comparators=others):
            return _compare(left, kinds, others, facts)
    return _lookup(ast.unparse(node), facts)


def _boolean(node: ast.AST, facts: Params) -> bool:
    value = _value(node, facts)
    if not isinstance(value, bool):
        raise ConditionError(f"{ast.unparse(node)!r} must be true or false")
    return value


def _compare(left: ast.AST, kinds: list[ast.cmpop], others: list[ast.expr], facts: Params) -> bool:
    before = _value(left, facts)
    for kind, other in zip(kinds, others, strict=True):
        after = _value(other, facts)
        try:
            if not COMPARE[type(kind)](before, after):
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
            if isinstance(value, Facts) and part in value.remedies:
                raise ConditionError(f"{name!r} is not known of this model", value.remedies[part])
            raise ConditionError(f"unknown name {name!r}", did_you_mean(part, map(str, known)))
        value = value[part]
    return value
