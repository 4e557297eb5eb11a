"""Scorers by name: those that come along, and those that users add."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from assay.config.task import FilterConfig, FilterStep, MetricConfig, ScorerConfig, TaskConfig
from assay.errors import ConfigError, Place, Problem
from assay.registry import Accepted, Table, accepted
from assay.scoring.scorer import GenerationScorer, LoglikelihoodScorer, PerplexityScorer, ProcessResultsScorer, Scorer

S = TypeVar("S", bound=type[Scorer])


def _adopted(name: str, scorer: Any) -> type[Scorer]:
    if not (inspect.isclass(scorer) and issubclass(scorer, Scorer)):
        raise TypeError(f"{scorer!r:.60} must be a class derived from assay.Scorer")
    if "name" not in vars(scorer):
        scorer.name = name
    return scorer


class _Scorers(Table[type[Scorer], Scorer]):
    """Classes of scorers: the configuration of the task is supplied, whatever the parameter is called."""

    def accepts(self, member: Any) -> Accepted:
        if inspect.getattr_static(member, "create") is inspect.getattr_static(Scorer, "create"):
            return accepted(member, 1)
        takes = accepted(member)  # a class that makes itself may take anything first
        return replace(takes, named={name: each for name, each in takes.named.items() if name != "config"})

    def fix_for_missing(self, name: str, key: str) -> str:  # noqa: ARG002
        return f"write `kwargs: {{{key}: …}}`"


SCORER_REGISTRY = SCORERS = _Scorers(
    "scorer",
    {
        "llm_judge": "assay.scoring.judges.judge:LLMJudgeScorer",
        "reward_model": "assay.scoring.judges.reward:RewardModelScorer",
        "ensemble": "assay.scoring.ensemble:EnsembleScorer",
        "cross_filter": "assay.scoring.cross_filter:CrossFilterScorer",
        "first_token": "assay.scoring.named:FirstToken",
        "regex": "assay.scoring.named:Regex",
        "choice_match": "assay.scoring.named:ChoiceMatch",
        "generation": GenerationScorer,
        "loglikelihood": LoglikelihoodScorer,
        "perplexity": PerplexityScorer,
        "process_results": ProcessResultsScorer,
    },
    group="assay.scorers",
    supplied=("config",),
    adopt=_adopted,
    build=lambda kind, config, **kwargs: kind.create(config, **kwargs),
)
"""Scorers by name; `SCORER_REGISTRY["mine"] = Mine` registers one, by the name that seed 001 gives the table."""


def register_scorer(name: str) -> Callable[[S], S]:
    """Make a class of scorers known by a name, which `scorer:` of a task may then say."""
    return SCORERS.register(name)


_PLAIN_MATCH = (MetricConfig(name="exact_match", kwargs={"ignore_case": True, "ignore_punctuation": True}),)


class _Matching(GenerationScorer):
    """Compares what a filter leaves of an answer, without case and punctuation."""

    def steps(self) -> tuple[FilterStep, ...]:
        return ()

    def default_filters(self) -> tuple[FilterConfig, ...]:
        return (FilterConfig(name="none", filter=(*self.steps(), FilterStep(function="take_first"))),)

    def default_metrics(self) -> tuple[MetricConfig, ...]:
        return _PLAIN_MATCH


class FirstToken(_Matching):
    """The answer without white space around it, compared without case and punctuation."""

    def steps(self) -> tuple[FilterStep, ...]:
        return (FilterStep(function="remove_whitespace"),)


class Regex(_Matching):
    """What a pattern finds in the answer, compared without case and punctuation. Parameters are those of the filter."""

    def __init__(self, config: TaskConfig | None = None, **kwargs: Any) -> None:
        super().__init__(config)
        self._kwargs = kwargs

    def steps(self) -> tuple[FilterStep, ...]:
        return (FilterStep(function="regex", kwargs=self._kwargs),)


class ChoiceMatch(_Matching):
    """The answer as it is, compared without case and punctuation."""


def make_scorer(written: str | ScorerConfig | object, config: TaskConfig | None, place: Place) -> Scorer:
    """The scorer that a task names: an unknown name, a class that is none, or a wrong parameter is refused."""
    kind: Any = written.type if isinstance(written, ScorerConfig) else written
    kwargs: Mapping[str, Any] = written.kwargs if isinstance(written, ScorerConfig) else {}
    if not isinstance(kind, str) and not (inspect.isclass(kind) and issubclass(kind, Scorer)):
        raise _problem(place, f"{kind!r} is no scorer", "name one, or a class derived from assay.Scorer")
    made = SCORERS.bind(kind, kwargs, place, config)
    made.made_with(kwargs)
    named = kind if isinstance(kind, str) else kind.__name__
    if made.asks and made.is_batch:
        what = f"scorer {named!r} asks other models and scores all documents at once"
        raise _problem(place, what, "let it do one of the two")
    if config is not None and config.output_type not in made.output_types:
        what = f"scorer {named!r} does not score {config.output_type}"
        raise _problem(place, what, f"it scores {', '.join(made.output_types)}")
    return made


def _problem(place: Place, what: str, fix: str) -> ConfigError:
    return ConfigError([Problem(place, what, fix)])
