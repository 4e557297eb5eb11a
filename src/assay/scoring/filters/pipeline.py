"""A named way from raw responses to answers: steps in order."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay.config.task import FilterConfig, FilterStep
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.records import plain
from assay.registry import accepted, refused
from assay.scoring.filters.steps import FILTERS, Step

Doc = Mapping[str, Any]
Batch = Callable[[list[Any], list[Doc]], Iterable[Any]]
"""A step that sees every document of a task at once: lm-eval's interface for filters of one's own."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The steps of one filter. `single` says that one response is left at the end, and stands without a list around it."""

    name: str
    steps: tuple[tuple[Step | None, Batch | None], ...]
    single: bool

    @property
    def is_batch(self) -> bool:
        return any(batch is not None for _, batch in self.steps)

    def apply(self, responses: Sequence[list[Any]], doc: Doc) -> list[Any]:
        """The answers to a document's requests."""
        return [self._ended(answers) for answers in self.apply_to_all(responses, [doc] * len(responses))]

    def apply_to_all(self, responses: Sequence[list[Any]], docs: Sequence[Doc]) -> list[Any]:
        """The answers to many requests; `docs` has the document of each."""
        answers: list[Any] = list(responses)
        for step, batch in self.steps:
            if step is not None:
                answers = [step(each, doc) for each, doc in zip(answers, docs, strict=True)]
            elif batch is not None:
                answers = _answers_of(batch(answers, list(docs)), len(docs), self.name)
        return answers

    def _ended(self, answers: Any) -> Any:
        return answers[0] if self.single and isinstance(answers, list) else answers

    def apply_batch(self, responses: Sequence[list[Any]], docs: Sequence[Doc]) -> list[Any]:
        """As `apply_to_all`, with single answers standing by themselves."""
        return [self._ended(answers) for answers in self.apply_to_all(responses, docs)]


def _answers_of(made: Any, count: int, name: str) -> list[Any]:
    """What a filter of the user's returned: as many answers as there are requests, or it fails."""
    if isinstance(made, str | bytes | Mapping | Set) or not isinstance(made, Iterable):
        raise TypeError(
            f"filter {name!r} returned {type(made).__name__!r}, and must return a list with what is left of each"
        )
    answers = [plain(each) for each in made]
    if len(answers) != count:
        raise ValueError(f"filter {name!r} returned {len(answers)} answers for {count} requests")
    return answers


DEFAULT = FilterConfig(name="none", filter=(FilterStep(function="take_first"),))


def build_pipeline(
    config: FilterConfig, place: Callable[..., Place], more: Mapping[str, Callable[..., Any]] | None = None
) -> Pipeline:
    """The pipeline a task describes. `more` are filters that helper code has registered; `place(step, key)` is for errors."""
    steps: list[tuple[Step | None, Batch | None]] = []
    problems: list[Problem] = []
    for number, step in enumerate(config.filter):
        try:
            steps.append(_step(step, number, place, more or {}))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    single = bool(config.filter) and config.filter[-1].function == "take_first"
    return Pipeline(config.name, tuple(steps), single)


def _step(
    config: FilterStep, number: int, place: Callable[..., Place], more: Mapping[str, Callable[..., Any]]
) -> tuple[Step | None, Batch | None]:
    function, kwargs = config.function, dict(config.kwargs)

    def at(key: str) -> Place:
        return place(number, key or "function")

    if function == "custom":
        wanted = kwargs.pop("filter_fn", None)
        if not callable(wanted):
            raise _problem(place(number), "filter 'custom' needs filter_fn", "write `filter_fn: !function module.name`")
        return None, _from_user("custom", wanted, kwargs, at)
    if not isinstance(function, str):
        return None, _from_user(_named(function), function, kwargs, at)
    if function in more and function not in FILTERS:
        return None, _from_user(function, more[function], kwargs, at)
    if function not in FILTERS:
        fix = did_you_mean(function, [*FILTERS.names(), "custom", *more])
        raise _problem(at(""), f"no filter is called {function!r}", fix)
    if inspect.isclass(FILTERS[function]):
        return None, _from_user(function, FILTERS[function], kwargs, at)
    return FILTERS.bind(function, kwargs, at), None


def _named(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _from_user(name: str, function: Any, kwargs: Mapping[str, Any], at: Callable[[str], Place]) -> Batch:
    """A class with `apply(responses, docs)`, made with the parameters; a function of the two; or one that returns either."""
    takes = accepted(function, 0 if inspect.isclass(function) else 2)
    is_factory = bool(kwargs) and not inspect.isclass(function) and takes.lacking > 0
    problems = FILTERS.problems(name, accepted(function) if is_factory else takes, kwargs, at)
    if problems and (kwargs or inspect.isclass(function)):
        raise ConfigError(problems)
    with refused(at(""), f"filter {name!r} cannot be made", "correct its parameters"):
        makes = is_factory or inspect.isclass(function)
        made = function(**kwargs) if makes else partial(function, **kwargs) if kwargs else function
    apply = getattr(made, "apply", made)
    if not callable(apply):
        raise _problem(
            at(""), f"{function!r} is no filter", "name a class with `apply(resps, docs)`, or a function of both"
        )
    return apply


def _problem(place: Place, what: str, fix: str) -> ConfigError:
    return ConfigError([Problem(place, what, fix)])
