"""Scorers by name: a filter and metrics that go together, for tasks and formats that name none of their own."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from assay.config.task import FilterConfig, FilterStep, MetricConfig, ScorerConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean


class Defaults(NamedTuple):
    """What a scorer stands for where a task says nothing else."""

    filters: tuple[FilterConfig, ...]
    metrics: tuple[MetricConfig, ...]


_PLAIN_MATCH = (MetricConfig(name="exact_match", kwargs={"ignore_case": True, "ignore_punctuation": True}),)


def _defaults(*steps: FilterStep) -> Defaults:
    return Defaults((FilterConfig(name="none", filter=(*steps, FilterStep(function="take_first"))),), _PLAIN_MATCH)


def first_token() -> Defaults:
    """The answer without white space around it, compared without case and punctuation."""
    return _defaults(FilterStep(function="remove_whitespace"))


def regex(**kwargs: Any) -> Defaults:
    """What a pattern finds in the answer, compared without case and punctuation. Parameters are those of the filter."""
    return _defaults(FilterStep(function="regex", kwargs=kwargs))


def choice_match() -> Defaults:
    """The answer as it is, compared without case and punctuation."""
    return _defaults()


SCORERS: dict[str, Callable[..., Defaults]] = {"first_token": first_token, "regex": regex, "choice_match": choice_match}


def scorer_defaults(written: str | ScorerConfig, place: Place) -> Defaults:
    """What the scorer of a task stands for; an unknown name or parameter is refused."""
    name: Any = written if isinstance(written, str) else written.type
    kwargs: Mapping[str, Any] = {} if isinstance(written, str) else written.kwargs
    if name not in SCORERS:
        raise ConfigError([Problem(place, f"no scorer is called {name!r}", did_you_mean(str(name), SCORERS))])
    parameters = inspect.signature(SCORERS[name]).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for key in kwargs:
        if not takes_any and key not in parameters:
            raise ConfigError(
                [Problem(place, f"scorer {name!r} has no parameter {key!r}", did_you_mean(key, parameters))]
            )
    return SCORERS[name](**kwargs)
