"""Names in YAML to things in Python: one table per kind, with an error that names the typo.

The keyword parameters of a function or class are its YAML keys: what is written is checked against its signature.
"""

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

from assay.errors import ConfigError, Place, Problem, did_you_mean, installing

T = TypeVar("T")


class Table(Mapping[str, T]):
    """What a kind of name can mean. Built-ins are given; plug-ins call `add`."""

    def __init__(self, kind: str, members: Mapping[str, T]) -> None:
        self.kind = kind
        self._members = dict(members)

    def __getitem__(self, name: str) -> T:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def add(self, name: str, member: T) -> T:
        """`member`, now known by `name`; a name that is taken by something else is refused."""
        if self._members.get(name, member) is not member:
            problem = Problem(Place(f"{self.kind} {name!r}"), "this name is taken", "choose another name")
            raise ConfigError([problem])
        self._members[name] = member
        return member

    def find(self, name: str, place: Place) -> T:
        """The member called `name`, or an error at `place` with the nearest names."""
        if name not in self._members:
            raise ConfigError([Problem(place, f"no {self.kind} is called {name!r}", did_you_mean(name, self))])
        return self._members[name]


class MetricRegistry(Generic[T]):
    """Classes of metrics by name, with the methods that SyGra's registries have.

    `own` are those that come along. Users add theirs, and may replace what they added, never what comes along.
    """

    def __init__(self, kind: str, base: type[T], own: Mapping[str, type[T]]) -> None:
        self.kind, self.base = kind, base
        self._own = own
        self._added: dict[str, type[T]] = {}

    def register(self, name: str, metric_class: type[T]) -> None:
        """Make a class known by a name."""
        if not (inspect.isclass(metric_class) and issubclass(metric_class, self.base)):
            raise TypeError(f"{metric_class!r} is no {self.kind}: derive it from {self.base.__name__}")
        if name in self._own:
            what = "this name is taken by one that comes along"
            raise ConfigError([Problem(Place(f"{self.kind} {name!r}"), what, "choose another name")])
        self._added[name] = metric_class

    def get_metric(self, name: str, **params: Any) -> T:
        """A metric with its parameters; a wrong name or parameter is refused."""
        return self.make(name, params, Place(f"{self.kind} {name!r}"))

    def make(self, name: str, params: Mapping[str, Any], place: Place) -> T:
        """The same, where errors tell the place at which it was written."""
        found = self._find(name, place)
        problems = parameter_problems(found, params, f"{self.kind} {name!r}", place)
        if problems:
            raise ConfigError(problems)
        try:
            return found(**params)
        except ConfigError as error:
            raise ConfigError(replace(problem, place=place) for problem in error.problems) from None
        except (TypeError, ValueError, LookupError) as error:
            what = f"{self.kind} {name!r} cannot be made: {error}"
            raise ConfigError([Problem(place, what, "correct its parameters")]) from error

    def get_metric_class(self, name: str) -> type[T]:
        return self._find(name, Place(f"{self.kind} {name!r}"))

    def _find(self, name: str, place: Place) -> type[T]:
        for known in (self._added, self._own):
            if name in known:
                return known[name]
        fix = did_you_mean(str(name), self.list_metrics())
        raise ConfigError([Problem(place, f"no {self.kind} is called {name!r}", fix)])

    def has_metric(self, name: str) -> bool:
        return name in self._added or name in self._own

    def list_metrics(self) -> list[str]:
        """All names, sorted."""
        return sorted({*self._added, *self._own})

    def unregister(self, name: str) -> bool:
        """Whether there was such a metric that a user added; now there is none."""
        return self._added.pop(name, None) is not None

    def clear(self) -> None:
        """Forget what users added."""
        self._added.clear()

    def get_metrics_info(self) -> dict[str, dict[str, str]]:
        """By name, the class and the module it is from."""
        known = {name: self.get_metric_class(name) for name in self.list_metrics()}
        return {name: {"class": found.__name__, "module": found.__module__} for name, found in known.items()}


def library_problem(library: str | None, what: str, place: Place) -> Problem | None:
    """That a library which `what` needs is not installed, and how to get it."""
    if library is None or find_spec(library) is not None:
        return None
    packages = {"sklearn": "scikit-learn", "rouge_score": "rouge-score", "math_verify": "math-verify"}
    fix = installing("math" if library == "math_verify" else "metrics")
    return Problem(place, f"{what} needs {packages.get(library, library)}, which is not installed", fix)


def parameter_problems(
    function: Callable[..., Any], params: Mapping[str, Any], what: str, place: Place
) -> list[Problem]:
    """What is wrong with parameters by the signature of what they are for: unknown, missing, or of another type.

    One that takes any parameter cannot be checked here.

    >>> def scaled(*, factor: float): ...
    >>> for problem in parameter_problems(scaled, {"facter": 2}, "metric 'scaled'", Place("a.yaml", 3, 1)): print(problem)
    a.yaml:3:1: metric 'scaled' has no parameter 'facter' — did you mean 'factor'?
    a.yaml:3:1: metric 'scaled' needs the parameter 'factor' — add `factor:`
    """
    signature = list(read_signature(function).parameters.values())
    if any(each.kind is each.VAR_KEYWORD for each in signature):
        return []
    known = {each.name: each for each in signature if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)}
    problems = []
    for key, value in params.items():
        if key not in known:
            fix = did_you_mean(str(key), known) if known else "it takes none"
            problems.append(Problem(place, f"{what} has no parameter {key!r}", fix))
        elif not _fits(value, known[key].annotation):
            kind = getattr(known[key].annotation, "__name__", str(known[key].annotation))
            problems.append(Problem(place, f"{what}: {key!r} cannot be {value!r}", f"it must be of type {kind}"))
    for key, each in known.items():
        if each.default is each.empty and key not in params:
            problems.append(Problem(place, f"{what} needs the parameter {key!r}", f"add `{key}:`"))
    return problems


def read_signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature, with annotations that are written as text made types where their names are known."""
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:
        return inspect.signature(function)


def dress(made: type, function: Callable[..., Any], name: str) -> None:
    """Give a class that was made of a function its name, its words, and its keyword parameters."""
    signature = read_signature(function)
    taken = [each for each in signature.parameters.values() if each.kind in (each.KEYWORD_ONLY, each.VAR_KEYWORD)]
    made.__signature__ = signature.replace(parameters=taken)  # type: ignore[attr-defined]
    made.__name__ = made.__qualname__ = getattr(function, "__name__", name)
    made.__doc__, made.__module__ = inspect.getdoc(function), function.__module__


def _fits(value: object, hint: Any) -> bool:
    """Whether a value from a file is of the type that a signature says; a type we do not read fits anything."""
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    kind = get_origin(hint) or hint
    return isinstance(value, kind) if inspect.isclass(kind) and kind is not inspect.Parameter.empty else True
