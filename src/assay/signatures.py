"""Signatures of callables, read here alone: which parameters a file may set, and whether something can be called as it will be.

Keyword parameters are YAML keys: names and types of all of them are checked, and a stand-in has the signature of its source.
"""

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from assay.errors import Place, Problem, did_you_mean, nearest
from assay.records import Params, UserFunction, UserValue

Signature = inspect.Signature
REQUIRED = inspect.Parameter.empty
"""The default of a parameter that has none."""
Where = Place | Callable[[str], Place]
"""Location of an entry in a file, or a function that returns it for each parameter ("": the entry itself)."""


def location(where: Where, key: str = "") -> Place:
    return where(key) if callable(where) else where


@dataclass(frozen=True, slots=True)
class Accepted:
    """Parameters of a callable that a file may set: those that its caller does not supply.

    `lacking` counts supplied arguments that it cannot take; `instead` has fixes for unknown names.
    """

    named: Mapping[str, inspect.Parameter]
    takes_any: bool = False
    lacking: int = 0
    instead: Mapping[str, str] = field(default_factory=dict)
    unreturned: tuple[str, str] | None = None
    """Why a call does not give the value, and the fix."""
    positional: Sequence[str] = ()
    """All that it takes by position, also those that its caller supplies."""
    takes_more: bool = False
    """Whether it takes any number of arguments by position."""
    required: Sequence[str] = ()
    """Parameters without a default, also those that its caller supplies."""


def accepted(function: UserFunction, supplied: int = 0) -> Accepted:
    """Return the parameters of a callable after the first `supplied` ones. Without a readable signature it accepts anything.

    >>> list(accepted(lambda references, prediction, *, weight=0.5: 0, 2).named)
    ['weight']
    """
    try:
        parameters = [*read_signature(function).parameters.values()]
    except (TypeError, ValueError):
        return Accepted({}, takes_any=True)
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    taken = {each.name for each in positional[:supplied]}
    kinds = {each.kind for each in parameters}
    named = {
        each.name: each
        for each in parameters
        if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD) and each.name not in taken
    }
    takes_more = inspect.Parameter.VAR_POSITIONAL in kinds
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return Accepted(
        named,
        inspect.Parameter.VAR_KEYWORD in kinds,
        0 if takes_more else max(0, supplied - len(positional)),
        unreturned=unreturned(function),
        positional=[each.name for each in positional],
        takes_more=takes_more,
        required=[each.name for each in parameters if each.default is REQUIRED and each.kind not in variable],
    )


def is_async(function: UserFunction) -> bool:
    """Whether calling it gives a coroutine or an async generator."""
    called: Any = (function, getattr(type(function), "__call__", None))  # noqa: B004  # an object may have an async call
    return any(map(inspect.iscoroutinefunction, called)) or inspect.isasyncgenfunction(function)


AWAITED = "is async, and is called without await", "write `def` in place of `async def`"
"""The problem of an async function, and its fix."""
YIELDED = "yields, and must return its value", "write `return` in place of `yield`"


def unreturned(function: UserFunction) -> tuple[str, str] | None:
    """Why a call does not give the value, but a coroutine or a generator, and the fix."""
    if is_async(function):
        return AWAITED
    called: Any = (function, getattr(type(function), "__call__", None))  # noqa: B004  # as above
    return YIELDED if any(map(inspect.isgeneratorfunction, called)) else None


def names_only(takes: Accepted) -> Accepted:
    """Drop the types: lm-eval's files write `"true"` for true, and mean what lm-eval does with it."""
    named = {key: each.replace(annotation=each.empty) for key, each in takes.named.items()}
    return replace(takes, named=named)


def typed_by_default(takes: Accepted) -> Accepted:
    """Take the type of a number or a truth without annotation from its default: such functions are users'."""
    named = dict(takes.named)
    for key, each in takes.named.items():
        if each.annotation is each.empty and isinstance(each.default, bool | int | float):
            named[key] = each.replace(annotation=bool if isinstance(each.default, bool) else float)
    return replace(takes, named=named)


def parameter_problems(
    function: UserFunction, params: Params, what: str, where: Where, supplied: int = 0
) -> list[Problem]:
    """List all problems of parameters by a signature: unknown, missing, or of a wrong type.

    >>> def scaled(*, factor: float): ...
    >>> for problem in parameter_problems(scaled, {"facter": 2}, "metric 'scaled'", Place("a.yaml", 3, 1)): print(problem)
    a.yaml:3:1: metric 'scaled' has no parameter 'facter' — did you mean 'factor'?
    a.yaml:3:1: metric 'scaled' needs the parameter 'factor' — add `factor:`
    """
    misfit = f"{what} must take {supplied} arguments by position", "correct its signature"
    return problems_of(accepted(function, supplied), params, (what, "parameter", line_to_add), where, misfit)


def line_to_add(key: str) -> str:
    return f"add `{key}:`"


Subject = tuple[str, str, Callable[[str], str]]
"""The subject of a message, its word for a parameter, and the fix for a missing one."""


def problems_of(
    takes: Accepted, params: Params, subject: Subject, where: Where, misfit: tuple[str, str]
) -> list[Problem]:
    """List the problems of a callable and its parameters; `misfit` is that of one which cannot take what its caller supplies,
    with the fix."""
    problems = list(_wrong_parameters(takes, params, subject, where))
    if takes.unreturned is not None:
        what, fix = takes.unreturned
        problems.append(Problem(location(where), f"{subject[0]} {what}", fix))
    if takes.lacking:
        problems.append(Problem(location(where), *misfit))
    return problems


def _wrong_parameters(takes: Accepted, params: Params, subject: Subject, where: Where) -> Iterator[Problem]:
    what, word, add = subject
    at = partial(location, where)
    for key, value in params.items():
        known = takes.named.get(key)
        if known is None and not takes.takes_any:
            near = did_you_mean(str(key), takes.named) if takes.named else "it takes none"
            yield Problem(at(str(key)), f"{what} has no {word} {key!r}", takes.instead.get(key, near))
        elif known is not None and not _fits(value, known.annotation):
            quoted = "; put it in quotes" if not isinstance(value, str) and _fits(str(value), known.annotation) else ""
            fix = f"{_near_choice(value, known.annotation)}it must be {_described(known.annotation)}{quoted}"
            yield Problem(at(key), f"{what}: {key!r} cannot be {value!r:.80}", fix)
    for key, each in takes.named.items():
        if each.default is each.empty and key not in params:
            yield Problem(at(""), f"{what} needs the {word} {key!r}", add(key))


def read_signature(function: UserFunction) -> Signature:
    """Return the signature, with text annotations resolved to types if their names are known."""
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, AttributeError, SyntaxError):
        return inspect.signature(function)


def argument_names(function: UserFunction) -> frozenset[str]:
    """Return the names of all parameters of a callable; none without a readable signature."""
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return frozenset()


def defaults(function: UserFunction) -> dict[str, UserValue]:
    """Return the parameters of a callable that have a default, with it."""
    parameters = inspect.signature(function).parameters
    return {name: each.default for name, each in parameters.items() if each.default is not REQUIRED}


def hints(function: UserFunction) -> list[UserValue]:
    """Return the annotations of all parameters of a callable, in their order."""
    return [each.annotation for each in read_signature(function).parameters.values()]


def method_problem(method: UserFunction, count: int, *, may_yield: bool = False) -> str | None:
    """Why a method cannot be called with so many arguments."""
    if inspect.isgeneratorfunction(method) and not may_yield:
        return YIELDED[0]
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        return "is async, and is called without waiting"
    takes = accepted(method, count)
    more = [name for name, each in takes.named.items() if each.default is each.empty]
    if takes.lacking or more:
        return f"must take {count} argument{'s' if count > 1 else ''}"
    return None


def can_take(function: UserFunction, count: int) -> bool:
    """Whether a callable can be called with so many arguments by position; one without a readable signature can."""
    takes = accepted(function, count)
    return not takes.lacking and {*takes.required} <= {*takes.positional[:count]}


def give_signature(stand_in: type, init: UserFunction) -> None:
    """Give what stands for a class the signature of its `__init__`."""
    with suppress(ValueError):  # it lacks `self`
        stand_in.__signature__ = inspect.signature(partial(init, None))  # type: ignore[attr-defined]


def with_options(function: UserFunction, options: Mapping[str, tuple[UserValue, UserValue]]) -> UserFunction:
    """Return a function whose signature lists options, each with type and default, in place of `**options`."""
    known = inspect.signature(function)
    first = [each for each in known.parameters.values() if each.kind is not each.VAR_KEYWORD]
    further = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]
    function.__signature__ = known.replace(parameters=[*first, *further])  # type: ignore[attr-defined]
    return function


W = TypeVar("W", bound=Callable[..., Any])


def dress(wrapper: W, like: UserFunction, takes: Sequence[Accepted], supplied: Sequence[str] = ()) -> W:
    """Give a wrapper the name and docstring of what it wraps; it takes `supplied` by position, and the parameters of a file."""
    kinds = inspect.Parameter
    by_position = [kinds(name, kinds.POSITIONAL_ONLY) for name in supplied]
    named = {name: each.replace(kind=kinds.KEYWORD_ONLY) for known in takes for name, each in known.named.items()}
    others = [kinds("others", kinds.VAR_KEYWORD)] if any(known.takes_any for known in takes) else []
    wrapper.__signature__ = Signature([*by_position, *named.values(), *others])  # type: ignore[attr-defined]
    wrapper.__name__ = wrapper.__qualname__ = str(getattr(like, "__name__", type(like).__name__))
    wrapper.__doc__, wrapper.__module__ = inspect.getdoc(like), like.__module__
    return wrapper


def _fits(value: UserValue, hint: UserValue) -> bool:
    """Whether a value from a file has the annotated type; types that are not checked fit anything."""
    if hint is Any or hint is inspect.Parameter.empty:
        return True
    if hint is None:
        return value is None
    if get_origin(hint) is Literal:
        return any(type(value) is type(each) and value == each for each in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    kind = get_origin(hint) or hint
    return isinstance(value, kind) if inspect.isclass(kind) else True


def _near_choice(value: UserValue, hint: UserValue) -> str:
    """Suggest the choice nearest to a misspelled value.

    >>> _near_choice("ecoh", Literal["echo", "prompt"]), _near_choice(3, int | None)
    ("did you mean 'echo'? ", '')
    """
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    near = nearest(value, map(str, choices), 1) if isinstance(value, str) else []
    return f"did you mean {near[0]!r}? " if near else ""


def _described(hint: UserValue) -> str:
    """Describe a type in a message.

    >>> _described(int | None), _described(Literal["a", "b"])
    ('of type int or None', "one of 'a', 'b'")
    """
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if get_origin(hint) in (Union, types.UnionType):
        names = [_described(each).removeprefix("of type ") for each in get_args(hint)]
        return "of type " + " or ".join("None" if each == "NoneType" else each for each in names)
    return "of type " + str(getattr(hint, "__name__", hint))
