"""Scorers by name: those that come along, and those that users add."""

import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, TypeVar

from assay.config.task import FilterConfig, FilterStep, MetricConfig, ScorerConfig, TaskConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.scorers.scorer import GenerationScorer, LoglikelihoodScorer, PerplexityScorer, ProcessResultsScorer, Scorer

S = TypeVar("S", bound=type[Scorer])


class Registry(MutableMapping[str, type[Scorer]]):
    """Scorer classes by name. Writing `SCORER_REGISTRY["mine"] = Mine` registers one; only classes of scorers are taken.

    `later` are those that are loaded when somebody asks for them, as `module:Class`.
    """

    def __init__(self, later: Mapping[str, str]) -> None:
        self._known: dict[str, type[Scorer] | str] = dict(later)

    def __setitem__(self, name: str, scorer: type[Scorer]) -> None:
        if not (inspect.isclass(scorer) and issubclass(scorer, Scorer)):
            raise TypeError(f"{scorer!r} is no class of scorers: derive it from assay.Scorer")
        if "name" not in vars(scorer):
            scorer.name = name
        self._known[name] = scorer

    def __getitem__(self, name: str) -> type[Scorer]:
        found = self._known[name]
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            loaded: type[Scorer] = getattr(import_module(module), attribute)
            self._known[name] = found = loaded
        return found

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


SCORER_REGISTRY = Registry({
    "llm_judge": "assay.scorers.judge:LLMJudgeScorer",
    "reward_model": "assay.scorers.reward:RewardModelScorer",
    "ensemble": "assay.scorers.ensemble:EnsembleScorer",
    "cross_filter": "assay.scorers.cross_filter:CrossFilterScorer",
})  # fmt: skip


def register_scorer(name: str) -> Callable[[S], S]:
    """Make a class of scorers known by a name, which `scorer:` of a task may then say."""

    def register(scorer: S) -> S:
        SCORER_REGISTRY[name] = scorer
        return scorer

    return register


_PLAIN_MATCH = (MetricConfig(name="exact_match", kwargs={"ignore_case": True, "ignore_punctuation": True}),)


class _Matching(GenerationScorer):
    """Compares what a filter leaves of an answer, without case and punctuation."""

    def steps(self) -> tuple[FilterStep, ...]:
        return ()

    def default_filters(self) -> tuple[FilterConfig, ...]:
        return (FilterConfig(name="none", filter=(*self.steps(), FilterStep(function="take_first"))),)

    def default_metrics(self) -> tuple[MetricConfig, ...]:
        return _PLAIN_MATCH


@register_scorer("first_token")
class FirstToken(_Matching):
    """The answer without white space around it, compared without case and punctuation."""

    def steps(self) -> tuple[FilterStep, ...]:
        return (FilterStep(function="remove_whitespace"),)


@register_scorer("regex")
class Regex(_Matching):
    """What a pattern finds in the answer, compared without case and punctuation. Parameters are those of the filter."""

    def __init__(self, config: TaskConfig | None = None, **kwargs: Any) -> None:
        super().__init__(config)
        self._kwargs = kwargs

    def steps(self) -> tuple[FilterStep, ...]:
        return (FilterStep(function="regex", kwargs=self._kwargs),)


@register_scorer("choice_match")
class ChoiceMatch(_Matching):
    """The answer as it is, compared without case and punctuation."""


SCORER_REGISTRY["generation"] = GenerationScorer
SCORER_REGISTRY["loglikelihood"] = LoglikelihoodScorer
SCORER_REGISTRY["perplexity"] = PerplexityScorer
SCORER_REGISTRY["process_results"] = ProcessResultsScorer


def make_scorer(written: str | ScorerConfig | object, config: TaskConfig | None, place: Place) -> Scorer:
    """The scorer that a task names: an unknown name, a class that is none, or a wrong parameter is refused."""
    kind: Any = written.type if isinstance(written, ScorerConfig) else written
    kwargs: Mapping[str, Any] = written.kwargs if isinstance(written, ScorerConfig) else {}
    if isinstance(kind, str):
        if kind not in SCORER_REGISTRY:
            raise _problem(place, f"no scorer is called {kind!r}", did_you_mean(kind, SCORER_REGISTRY))
        kind = SCORER_REGISTRY[kind]
    if not (inspect.isclass(kind) and issubclass(kind, Scorer)):
        raise _problem(place, f"{kind!r} is no scorer", "name one, or a class derived from assay.Scorer")
    _check(kind, kwargs, place)
    try:
        made: Scorer = kind.create(config, **kwargs)
        made.made_with(kwargs)
    except (TypeError, ValueError) as error:
        raise _problem(place, f"scorer {kind.__name__} cannot be made: {error}", "correct its parameters") from None
    if made.asks and made.is_batch:
        what = f"scorer {_named(kind)!r} asks other models and scores all documents at once"
        raise _problem(place, what, "let it do one of the two")
    if config is not None and config.output_type not in made.output_types:
        what = f"scorer {_named(kind)!r} does not score {config.output_type}"
        raise _problem(place, what, f"it scores {', '.join(made.output_types)}")
    return made


def _check(kind: type[Scorer], kwargs: Mapping[str, Any], place: Place) -> None:
    parameters = list(inspect.signature(kind).parameters.values())
    if inspect.getattr_static(kind, "create") is inspect.getattr_static(
        Scorer, "create"
    ):  # the first is the configuration, whatever its name
        parameters = (
            parameters[1:] if parameters and parameters[0].kind is not parameters[0].KEYWORD_ONLY else parameters
        )
    parameters = [each for each in parameters if each.name != "config"]
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return
    known = [each.name for each in parameters]
    for key in kwargs:
        if key not in known:
            what = f"scorer {_named(kind)!r} has no parameter {key!r}"
            raise _problem(place, what, did_you_mean(key, known) if known else "it takes none")
    for each in parameters:
        if each.default is each.empty and each.name not in kwargs and each.kind is not each.VAR_POSITIONAL:
            what = f"scorer {_named(kind)!r} needs the parameter {each.name!r}"
            raise _problem(place, what, f"write `kwargs: {{{each.name}: …}}`")


def _named(kind: type[Scorer]) -> str:
    return next((name for name, known in SCORER_REGISTRY.items() if known is kind), kind.__name__)


def _problem(place: Place, what: str, fix: str) -> ConfigError:
    return ConfigError([Problem(place, what, fix)])
