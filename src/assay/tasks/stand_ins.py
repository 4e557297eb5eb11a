"""Stand-ins for user code that is not loaded: they may be anything, with the signature that the source of their module shows."""

from typing import Any

from assay.catalog.functions import check_function, written_definition
from assay.errors import ConfigError
from assay.records import Function, UserFunction, UserValue
from assay.scoring.scorer import GenerationScorer, Scorer
from assay.signatures import give_signature


class Unloaded:
    """A class of user code, or what it makes: a filter, a transform, a post-processor, a function."""

    is_unknown = True

    def __init__(self, *_: Any, **__: Any) -> None:
        self.__name__ = "function"

    def apply(self, *arguments: Any) -> Any:
        return arguments[0]

    process = transform = apply

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


class UnloadedScorer(Unloaded, Scorer):
    """A class that may be a scorer."""

    score_instances = GenerationScorer.score_instances

    def __init__(self, *_: Any, **__: Any) -> None:
        Scorer.__init__(self, None)
        self.__name__ = "function"


class _AnyMethod(type):
    """Classes that have every method that a file names."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: {}


class UnloadedMethods(Unloaded, metaclass=_AnyMethod):
    """A class whose methods a file names."""


def unloaded_class(function: Function) -> type:
    """Return the stand-in for a class, or for a name of which the source does not show what it is."""
    written = written_definition(function)
    kind = type(function.name, (Unloaded if written is not None and written.is_plain else UnloadedScorer,), {})
    if written is not None and written.like is not None:
        kind.is_unknown = False  # type: ignore[attr-defined]
        give_signature(kind, written.like)
    return kind


def unloaded_function(function: Function) -> UserFunction:
    """Return the stand-in for a function: its calls return itself."""
    written = written_definition(function)
    if written is not None and written.like is not None and not written.is_class:
        return written.like

    def stand_in(*_: UserValue, **__: UserValue) -> UserFunction:
        return stand_in

    stand_in.__name__ = function.name
    return stand_in


def is_written_function(function: Function) -> bool:
    """Whether the source of a module shows that a name is a function."""
    written = written_definition(function)
    return written is not None and not written.is_class


def stand_in(function: Function) -> UserFunction:
    """Return the stand-in for a function or class."""
    return unloaded_function(function) if is_written_function(function) else unloaded_class(function)


def stand_in_of_module(function: Function) -> UserFunction:
    """Return the stand-in for a function or class; refuse one that its module does not have."""
    problem = check_function(function)
    if problem is not None:
        raise ConfigError([problem])
    return stand_in(function)
