"""A named way from raw responses to answers: steps in order."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from assay.config.task import FilterConfig, FilterStep
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.filters.steps import FILTERS, Step
from assay.records import plain

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
    steps = [_step(step, number, place, more or {}) for number, step in enumerate(config.filter)]
    single = bool(config.filter) and config.filter[-1].function == "take_first"
    return Pipeline(config.name, tuple(steps), single)


def _step(
    config: FilterStep, number: int, place: Callable[..., Place], more: Mapping[str, Callable[..., Any]]
) -> tuple[Step | None, Batch | None]:
    function, kwargs = config.function, dict(config.kwargs)
    if function == "custom":
        wanted = kwargs.pop("filter_fn", None)
        if not callable(wanted):
            raise _problem(place(number), "filter 'custom' needs filter_fn", "write `filter_fn: !function module.name`")
        return None, wanted
    if isinstance(function, str) and function in FILTERS:
        return bound(FILTERS[function], function, kwargs, lambda key: place(number, key)), None
    if isinstance(function, str):
        if function not in more:
            known = [*FILTERS, "custom", *more]
            raise _problem(
                place(number, "function"), f"no filter is called {function!r}", did_you_mean(function, known)
            )
        function = more[function]  # type: ignore[assignment]
    return None, _from_user(function, kwargs, place(number, "function"))


def bound(factory: Callable[..., Step], name: str, kwargs: Mapping[str, Any], place: Callable[[str], Place]) -> Step:
    """The step that a name and its parameters mean; a wrong or missing parameter is refused here, before any request."""
    parameters = inspect.signature(factory).parameters
    for key in kwargs:
        if key not in parameters:
            raise _problem(place(key), f"filter {name!r} has no parameter {key!r}", did_you_mean(key, parameters))
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in kwargs:
            raise _problem(place("function"), f"filter {name!r} needs the parameter {key!r}", f"add `{key}:`")
    try:
        return factory(**kwargs)
    except (TypeError, ValueError, OverflowError, LookupError, RecursionError, re.error) as error:
        raise _problem(
            place("function"), f"filter {name!r} cannot be made: {error}", "correct its parameters"
        ) from None


def _from_user(function: Any, kwargs: Mapping[str, Any], place: Place) -> Batch:
    """A class with `apply(responses, docs)`, made with the parameters; or a function of the two."""
    try:
        made = function(**kwargs) if inspect.isclass(function) or kwargs else function
    except TypeError as error:
        raise _problem(place, f"the filter cannot be made: {error}", "correct its parameters") from None
    apply = getattr(made, "apply", made)
    if not callable(apply):
        raise _problem(
            place, f"{function!r} is no filter", "name a class with `apply(resps, docs)`, or a function of both"
        )
    return apply  # type: ignore[no-any-return]


def _problem(place: Place, what: str, fix: str) -> ConfigError:
    return ConfigError([Problem(place, what, fix)])
