"""Scorers by name: the registry, how one is made of what a task file says, and small ones for formats."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

from assay.config.task import FilterConfig, FilterStep, MetricConfig, ScorerConfig, TaskConfig
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.extension_points import ExtensionPoint
from assay.records import Params, UserFunction, UserValue
from assay.registry import Registry, refused
from assay.score_keys import metric_name_problem
from assay.scoring.scorer import (
    CONFIG,
    MEMBERS,
    CombinedScorer,
    GenerationScorer,
    LoglikelihoodScorer,
    PerplexityScorer,
    ProcessResultsScorer,
    Scorer,
    calls_models,
    is_batch,
    members_of,
    scores_itself,
    unused_hooks,
)
from assay.scoring.scorer_models import holds_model, makes_models
from assay.signatures import Accepted, Where, accepted
from assay.statistics.aggregations import AGGREGATIONS

S = TypeVar("S", bound=type[Scorer])


def _adopted(name: str, scorer: UserValue) -> type[Scorer]:
    kind = scorer_class(scorer)
    if kind is None:
        raise TypeError(f"{scorer!r:.60} must be a class derived from assay.Scorer")
    if vars(kind).get("name", kind.__name__) == kind.__name__:
        kind.name = name
    return kind


def scorer_class(thing: UserValue) -> type[Scorer] | None:
    """A class as one of scorers: of one that is not derived from ours and has `score_instances`, one that is; else None."""
    if not inspect.isclass(thing):
        return None
    if issubclass(thing, Scorer):
        return thing
    if not callable(getattr(thing, "score_instances", None)):
        return None
    return type(thing.__name__, (thing, Scorer), {"__module__": thing.__module__})


def create_scorer(kind: type[Scorer], config: TaskConfig | None, kwargs: Params) -> Scorer:
    """The scorer of a task with the parameters that its file gives: they, or the configuration, fill the first one."""
    takes = accepted(kind)
    first = _first_positional(kind, takes)
    if (first or takes.takes_more) and first not in (*kwargs, MEMBERS):
        return kind(config, **kwargs)
    return kind(**kwargs, **({"config": config} if "config" in takes.named and "config" not in kwargs else {}))


def _first_positional(kind: type[Scorer], takes: Accepted) -> str:
    """The parameter that the configuration fills; fields of a dataclass, or `scale: float = 1.0`, are those of a file."""
    first = next(iter(takes.positional), "")
    parameter = takes.named.get(first)
    has_value = parameter is not None and parameter.default is not None and parameter.default is not parameter.empty
    return "" if is_dataclass(kind) or (has_value and first not in CONFIG) else first


class _Scorers(Registry[type[Scorer], Scorer]):
    """Classes of scorers: the configuration of the task fills the first parameter, unless a file gives that one."""

    def accepts(self, member: type[Scorer] | UserFunction) -> Accepted:
        takes = accepted(member)
        named = {name: each for name, each in takes.named.items() if name not in CONFIG}
        first = _first_positional(member, takes) if isinstance(member, type) else ""
        if first in named and first != MEMBERS:
            named[first] = named[first].replace(default=None)
        return replace(takes, named=named)

    def refuse_shape(self, function: UserFunction, supplied: int) -> None:
        """A scorer that takes no configuration is given it afterwards."""

    def find(self, name: str, where: Where) -> type[Scorer]:
        if name in self:
            return self[name]
        try:
            return super().find(name, where)
        except ConfigError as error:
            [problem] = error.problems
            own = "; a class in a file beside the task is `!function file.Class`"
            raise ConfigError([replace(problem, fix=f"{problem.fix}{own}")]) from None

    def fix_for_missing(self, name: str, key: str) -> str:  # noqa: ARG002
        return f"write `kwargs: {{{key}: …}}`"


SCORER_REGISTRY = SCORERS = _Scorers(
    "scorer",
    {
        "llm_judge": "assay.scoring.judges:LLMJudgeScorer",
        "reward_model": "assay.scoring.judges:RewardModelScorer",
        "ensemble": "assay.scoring.combined:EnsembleScorer",
        "cross_filter": "assay.scoring.combined:CrossFilterScorer",
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
    build=lambda kind, config, **kwargs: create_scorer(kind, config, kwargs),
)
"""Scorers by name; `SCORER_REGISTRY["mine"] = Mine` registers one, by the name that seed 001 gives the registry."""


def register_scorer(name: str) -> Callable[[S], S]:
    """Make a class of scorers known by a name, which `scorer:` of a task may then say."""
    return SCORERS.register(name)


def make_scorer(written: UserValue, config: TaskConfig | None, place: Place) -> Scorer:
    """The scorer that a task names: an unknown name, a class that does not extend Scorer, or a wrong parameter is refused."""
    named: Any = written.type if isinstance(written, ScorerConfig) else written
    kwargs: Mapping[str, Any] = written.kwargs if isinstance(written, ScorerConfig) else {}
    kind = type(named) if isinstance(named, Scorer) else named if isinstance(named, str) else scorer_class(named)
    if kind is None:
        what = f"{getattr(named, '__name__', named)!r} is not a scorer"
        raise ConfigError.at(place, what, "name one, or a class derived from assay.Scorer")
    if not isinstance(kind, str) and inspect.isabstract(kind):
        fix = "define score, score_batch or score_instances in it, or derive it from GenerationScorer"
        raise ConfigError.at(place, f"scorer {kind.__name__!r} does not say how it scores", fix)
    called = kind if isinstance(kind, str) else kind.__name__
    if not isinstance(named, Scorer):
        scorer = SCORERS.bind(kind, _with_members(kwargs, config, place), place, config)
    elif kwargs:
        raise ConfigError.at(place, f"scorer {called!r} is made already, and takes no kwargs", "give its class")
    else:
        scorer = named
    if scorer.config is None or scorer is named:
        scorer.config = config
    scorer._parameters = kwargs
    scorer.asks = scorer.asks or calls_models(scorer)
    _check_scorer(scorer, called, place)
    if config is not None and config.output_type not in scorer.output_types:
        what = f"scorer {called!r} does not score {config.output_type}"
        raise ConfigError.at(place, what, f"it scores {', '.join(scorer.output_types)}")
    return scorer


SCORER_POINT = ExtensionPoint(
    Scorer,
    {
        "score": ("reference", "predictions"),
        "score_batch": ("results",),
        "score_instances": ("instances", "filter_name"),
        "get_metrics": ("filter_name",),
        "ask": ("result",),
        "questions": ("result",),
        "verdict": ("result", "responses"),
        "default_filters": (),
        "default_metrics": (),
        "_create_result": ("instances", "filter_name"),
        "_compute_metrics": ("result", "metrics"),
        "_compute_metric": ("result", "metric"),
    },
    (
        "name", "output_types", "asks", "asks_for", "model_roles", "cached", "version", "parallel", "needs_filters",
        "least_filters", "needs_columns", "gives", "bounds", "higher_is_better", "aggregations", "config",
        "_is_named",  # which we set on every class
    ),
    {
        "models": "name the models in `model_roles`, a mapping by role",
        "rows": "name the rows in `gives`",
        "aggregation": "write `aggregations`, a mapping from rows to the names of aggregations",
        "reduction": "write `reduction` beside the metric, or in `scorer: {type: …, reduction: …}`",
        "bind": "override get_metrics",
        "process_results": "write `process_results: !function …` in the task, or override score_instances",
    },
    may_yield=("ask", "questions", "score_batch"),
)  # fmt: skip
"""What users' classes of scorers may define. Some of the others were asked for by earlier versions."""


def _check_scorer(scorer: Scorer, named: str, place: Place) -> None:
    """Refuse a scorer whose methods cannot be called or are not asked for, or whose parts do not go together."""
    wrong = [*SCORER_POINT.problems(scorer), *unused_hooks(scorer), *_wrong_attributes(scorer)]
    problems = [Problem(place, f"scorer {named!r}: {what}", fix) for what, fix in wrong]
    if problems:
        raise ConfigError(problems)
    if scorer.asks and is_batch(scorer):
        what = f"scorer {named!r} asks other models and scores all documents at once"
        raise ConfigError.at(place, what, "let it do one of the two")
    if holds_model(scorer):
        what = f"scorer {named!r} holds a model, whose answers to plain calls no run would journal"
        raise ConfigError.at(place, what, "make it with assay.get_model('NAME,K=V'), which asks through the run")
    if makes_models(type(scorer)):
        what = f"scorer {named!r} makes a model when it scores, which is too late for the run to open it"
        raise ConfigError.at(place, what, "call get_model in __init__")
    for member in () if isinstance(scorer, CombinedScorer) else members_of(scorer):
        if is_batch(member) or (member.asks and not calls_models(member)):
            does = "scores all documents at once" if is_batch(member) else "asks other models"
            what = f"scorer {named!r} calls {member.name!r}, which {does}"
            raise ConfigError.at(place, what, "use `type: ensemble`, or leave that one out")


def _wrong_attributes(scorer: Scorer) -> Iterator[tuple[str, str]]:
    """What is wrong with the attributes of a scorer, and how to correct it."""
    for name in ("needs_filters", "needs_columns", "output_types", "gives"):
        if isinstance(getattr(scorer, name), str):
            yield f"{name} is a text, and must be several", f"write `{name} = ({getattr(scorer, name)!r},)`"
    better: object = scorer.higher_is_better
    if not isinstance(better, bool | None):
        yield f"higher_is_better cannot be {better!r:.60}", "write True or False"
    for row, name in scorer.aggregations.items():
        if name not in AGGREGATIONS:
            yield f"aggregations: no aggregation of {row!r} named {name!r:.60}", did_you_mean(str(name), AGGREGATIONS)
    problem = metric_name_problem(scorer.name)
    if problem is not None and scores_itself(scorer):
        yield f"a row cannot be named {scorer.name!r}: {problem[0]}", problem[1]


Entry = TypeVar("Entry", FilterConfig, MetricConfig)


def returned_entries(scorer: Scorer, method: str, kind: type[Entry], place: Place) -> Sequence[Entry] | None:
    """What `default_filters` or `default_metrics` of a scorer returns, which a user's class may define."""
    with refused(place, f"scorer {scorer.name!r}: {method} raised an error", "correct it"):
        entries: Sequence[Entry] | None = getattr(scorer, method)()
    wrong = [entry for entry in entries or () if not isinstance(entry, kind)]
    if wrong:
        what = f"scorer {scorer.name!r}: {method} returned {wrong[0]!r:.60}, and must return {kind.__name__} objects"
        raise ConfigError.at(place, what, f"write `{kind.__name__}(name=…)`")
    return entries


def _with_members(kwargs: Params, config: TaskConfig | None, place: Place) -> Params:
    """Parameters with scorers in place of their names."""
    members = kwargs.get(MEMBERS)
    if members is None:
        return kwargs
    if not isinstance(members, list | tuple):
        raise ConfigError.at(
            place, f"scorers cannot be {members!r:.60}", "write a list of names, or of {type:, kwargs:}"
        )
    return {**kwargs, MEMBERS: [_member(each, config, number, place) for number, each in enumerate(members)]}


def _member(written: UserValue, config: TaskConfig | None, number: int, place: Place) -> Scorer:
    if isinstance(written, Scorer):
        return written
    if isinstance(written, Mapping):
        if set(written) - {"type", "kwargs"} or "type" not in written:
            raise ConfigError.at(
                place, f"entry {number + 1} of scorers has no type", "it must be a name or {type:, kwargs:}"
            )
        written = ScorerConfig(type=written["type"], kwargs=written.get("kwargs") or {})
    return make_scorer(written, config, Place(f"scorer.kwargs.scorers[{number}]"))


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
    """The choice that the answer states, compared without case and punctuation; with `whole` all of the answer."""

    def __init__(self, config: TaskConfig | None = None, whole: bool = False) -> None:
        super().__init__(config)
        self._whole = whole

    def steps(self) -> tuple[FilterStep, ...]:
        listed = self.config.listed if self.config is not None else None
        if self._whole or (listed is None and self.task_dialect.takes_whole_answer_for_first_token):
            return (FilterStep(function="remove_whitespace"),)
        kwargs = {} if listed is None else {"choices": listed.choices, "labels": listed.labels}
        return FilterStep(function="think"), FilterStep(function="choice", kwargs=kwargs)


class Regex(_Matching):
    """The match of a pattern in the answer, compared without case and punctuation. Parameters are those of the filter."""

    def __init__(self, task_config: TaskConfig | None = None, **kwargs: UserValue) -> None:
        super().__init__(task_config)
        self._kwargs = kwargs

    def steps(self) -> tuple[FilterStep, ...]:
        return (FilterStep(function="regex", kwargs=self._kwargs),)


class ChoiceMatch(_Matching):
    """The answer as it is, compared without case and punctuation."""
