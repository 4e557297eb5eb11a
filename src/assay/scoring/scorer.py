"""The classes that users derive scorers from, as seeds 001 and 004 write them, and how one becomes a step of the scoring loop.

A user's scorer extends one of three things: the defaults (`default_filters`, `default_metrics`), the score of a document
(`score`), or those of all documents at once (`score_batch`). The loop around it is never written again.

This is the only file that asks what a class defines: `scorer_step` reads it once, and the loop knows parts of steps alone.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from assay.config.task import FilterConfig, MetricConfig, TaskConfig
from assay.dialect import OURS, Dialect
from assay.extension_points import names_read
from assay.records import (
    Answer,
    Answers,
    Document,
    Failed,
    MetricValue,
    Params,
    Request,
    Response,
    Sample,
    UserValue,
)
from assay.scoring.filters import Pipeline
from assay.scoring.loop import ScorePart, ScoringStep, metric_parts, plan_rows
from assay.scoring.metric_binding import bind_configured, bind_one
from assay.scoring.reductions import MetricReductions
from assay.scoring.results import (
    CHOICE,
    GENERATE,
    LIKELIHOOD,
    ROLLING,
    AnsweredSample,
    Filtered,
    GenResult,
    HookInput,
    Instance,
    LLResult,
    MCResult,
    ModelRoles,
    Reference,
    Result,
    ResultBuilder,
    Results,
    StepInput,
    instances_of,
    result_of,
)
from assay.scoring.scorer_models import RUN, OnlyInRun, ScorerModel, asked_in_turn, globals_used, models_of
from assay.scoring.scorer_models import Unscored as Unscored
from assay.scoring.scores import BoundMetric, Repeated, ScoreDict, Scores, added_row, by_answer, describe, score_name
from assay.scoring.verdicts import Asks, replay
from assay.scoring.workers import ScoreInput, ScorerMemo, ScoreWorkers, Workers, identity_of
from assay.statistics.influence import Bounds, read_bounds
from assay.user_code import is_overridden, place_of

CreateResult = Callable[[HookInput, str], StepInput]
"""The method `_create_result` of a scorer or a task."""
ProcessResults = Callable[[Document, list[Answer]], Scores | None]
"""A task's function `process_results(doc, results)`."""

if TYPE_CHECKING:  # there, type variables have defaults already: `Scorer` alone scores to anything
    from typing_extensions import TypeVar as TypeVarWithDefault

    ResultT = TypeVarWithDefault("ResultT", default=Any)
else:
    ResultT = TypeVar("ResultT")

NOTHING: Mapping[str, Any] = MappingProxyType({})
CONFIG = ("task_config", "config")
"""Parameters of a scorer that are its task's configuration, which no file gives."""
MEMBERS = "scorers"
"""The parameter of scorers that are made of others: a file names them."""
HOOKS = (
    "score", "score_batch", "ask", "questions", "verdict", "default_filters", "default_metrics", "get_metrics",
    "_create_result", "_compute_metrics", "_compute_metric",
)  # fmt: skip
"""Methods of which one is enough to make a class a scorer: `score_instances` follows from them."""


class Scorer(ABC, Generic[ResultT]):
    """Scores a document's answers with the metrics of the filter they come from."""

    name: ClassVar[str] = "score"
    """The row of what `score` gives: what it was registered as, else the name of its class."""
    output_types: ClassVar[tuple[str, ...]] = (GENERATE, CHOICE, LIKELIHOOD, ROLLING)
    asks: bool = False
    """Whether it asks other models."""
    asks_for: ClassVar[str] = "generate"
    """The capability those models need: generate, loglikelihood or rolling."""
    model_roles: ModelRoles = NOTHING
    """Those models, by role: as `--model_role` has them, or None where the run must name one."""
    cached: ClassVar[bool] = False
    """Whether its scores are cached beside the run by everything they depend on: for scorers that take long."""
    version: ClassVar[str | int] = 1
    """Change it when cached scores are outdated although the source of the class is the same."""
    parallel: ClassVar[bool] = False
    """Whether `score` keeps a processor busy: then it is computed in several processes, for all documents at the end."""
    needs_filters: tuple[str, ...] = ()
    """Filters of the task that it looks at beside its own."""
    least_filters: int = 1
    """How many filters there must be."""
    needs_columns: tuple[str, ...] = ()
    """Columns of the task's documents that it reads."""
    gives: tuple[str, ...] | None = None
    """Rows beside those of the metrics, where they are known before the run."""
    bounds: Bounds | Mapping[str, Bounds] | None = None
    """The least and the greatest score that it gives, or those of each row: intervals stay within them."""
    higher_is_better: bool | None = None  # in its own rows; None where that is unknown
    aggregations: Mapping[str, str] = NOTHING
    """By row that it adds the name of its aggregation, where that is not the mean."""

    # what the task gives it
    config: TaskConfig | None = None
    task_dialect: Dialect = OURS
    """The rules that its task is scored by."""
    _metrics: Mapping[str, Sequence[BoundMetric]] = NOTHING
    """By filter, metrics that can be called."""
    _parameters: Params = NOTHING
    """What the task's file gives its constructor: cached scores depend on it."""
    own_reductions: MetricReductions = MetricReductions()
    """The reductions of the rows that it adds itself."""
    # what the run gives it
    _memory: ScorerMemo | None = None
    """Scores that were computed before."""
    _workers: ScoreWorkers | None = None
    """The processes that a parallel one computes in."""
    _parents: dict[str, str]
    """Of values that came in a mapping, the metric that gave them: see `ScoringStep`."""
    _is_named: ClassVar[bool] = False
    """Whether a class, or one that it is derived from, says its `name`."""

    def __init__(self, task_config: TaskConfig | None = None, *, config: TaskConfig | None = None) -> None:
        self.config = task_config if task_config is not None else config

    def __init_subclass__(cls, **kwargs: UserValue) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            cls._is_named = not cls.__module__.startswith("assay.")  # a class derived from ours has its own name
        elif not cls._is_named:
            cls.name = cls.__name__
        has_hook = any(getattr(cls, hook) is not getattr(Scorer, hook) for hook in HOOKS)
        if has_hook and cls.score_instances is Scorer.score_instances:
            cls.score_instances = score_by_hooks  # type: ignore[assignment,method-assign]  # what the others inherit

    # methods that subclasses override

    def default_filters(self) -> tuple[FilterConfig, ...] | None:
        """The filters of a task that names none."""
        return None

    def default_metrics(self) -> tuple[MetricConfig, ...] | None:
        """The metrics of a task that names none; those of its output type where this is None, too."""
        asks_itself = self.asks and not calls_models(self)
        return () if has_score(self) or is_batch(self) or asks_itself else None

    def score(self, reference: Reference, predictions: list[Answer]) -> MetricValue:
        """The score of a document's answers: a number, a list with one for each answer, or several by name."""
        raise NotImplementedError

    def score_batch(self, results: Sequence[Result]) -> Sequence[MetricValue]:
        """The scores of all documents of a task, in their order; each as `score` gives it."""
        raise NotImplementedError

    def questions(self, result: Result) -> Sequence[Request]:
        """The requests to other models about a document's answers, where `asks` is true."""
        raise NotImplementedError

    def verdict(self, result: Result, responses: Sequence[Response]) -> MetricValue:
        """The score of a document from what they responded: as `score` gives it. What cannot be read raises an error."""
        raise NotImplementedError

    def ask(self, result: Result) -> Generator[Sequence[Request], Sequence[Response], MetricValue]:
        """Yields what it asks other models about a document's answers, and returns the score; `questions` are asked at once."""
        responses = yield self.questions(result)
        return self.verdict(result, responses)

    @abstractmethod
    def score_instances(self, instances: HookInput, filter_name: str) -> ResultT:
        """Score the requests of one document by what a filter left of their responses."""
        raise NotImplementedError

    def get_metrics(self, filter_name: str) -> Sequence[HookInput]:
        """The metrics for a filter: its own, else the task's."""
        if filter_name not in self._metrics:  # without a run
            bind_alone(self, filter_name, bind_configured(self, filter_name))
        return self._metrics[filter_name]

    def _create_result(self, instances: HookInput, filter_name: str) -> StepInput:
        return result_of(instances, filter_name)

    def _compute_metrics(self, result: StepInput, metrics: HookInput) -> ScoreDict:
        """The rows of metrics, and those of `score`; of generated text a list, with a value for each answer."""
        return compute_rows(self, result, metrics)

    def _compute_metric(self, result: StepInput, metric: HookInput) -> MetricValue:
        return metric.compute(result)


class ResultScorer(Scorer[ResultT]):
    """Scores the result that the requests of a document call for."""

    def score_instances(self, instances: HookInput, filter_name: str) -> ResultT:
        return score_by_hooks(self, instances, filter_name)  # type: ignore[no-any-return]  # of these instances


class GenerationScorer(ResultScorer[GenResult]):
    """Scores generated text against references: each answer of a document with each metric."""

    output_types = (GENERATE,)


class LoglikelihoodScorer(ResultScorer[MCResult]):
    """Scores choices and continuations by their log-likelihoods."""

    output_types = (CHOICE, LIKELIHOOD)


class PerplexityScorer(ResultScorer[LLResult]):
    """Scores whole texts by their log-likelihood."""

    output_types = (ROLLING,)


class ProcessResultsScorer(Scorer[Scores]):
    """Hands a document and its answers to a function of the task's own; what that returns are the scores."""

    def __init__(
        self,
        task_config: TaskConfig | None = None,
        process_results_fn: ProcessResults | None = None,
    ) -> None:
        super().__init__(task_config)
        function = process_results_fn or (task_config.process_results if task_config is not None else None)
        if not callable(function):
            raise TypeError("ProcessResultsScorer needs a function process_results(doc, results)")
        self.process_results_fn: ProcessResults = function

    def score_instances(self, instances: HookInput, filter_name: str) -> Scores:
        result = Results.create(instances, filter_name)
        answers = result.results[filter_name]
        return dict(self.process_results_fn(result.doc, answers if len(instances) > 1 else [answers]) or {})


class CombinedScorer(Scorer[Scores]):
    """A scorer made of others: `combine` computes its rows from theirs."""

    scorers: Sequence[Scorer]

    def combine(
        self, rows: Sequence[Scores], metrics: Sequence[Sequence[BoundMetric]], own: Callable[[], Scores]
    ) -> ScoreDict:
        """Combine the rows of every member, each with its metrics; `own` computes those of the task's metrics."""
        raise NotImplementedError


# --- what a class defines --------------------------------------------------------------------------------------------------


def _defines(scorer: Scorer, *methods: str) -> bool:
    """Whether a class, or the object itself, has one of these methods of its own."""
    return any(is_overridden(scorer, method, Scorer) for method in methods)


def has_score(scorer: Scorer) -> bool:
    return _defines(scorer, "score")


def is_batch(scorer: Scorer) -> bool:
    """Whether it scores all documents at once."""
    return scorer.parallel or _defines(scorer, "score_batch")


def computes_rows(scorer: Scorer) -> bool:
    """Whether it computes the rows of metrics itself, and so may want to see instances, too."""
    return _defines(scorer, "_compute_metrics")


def scores_instances(scorer: Scorer) -> bool:
    """Whether it scores the requests of a document in its own way, and so decides what else is called."""
    plain = (score_by_hooks, ResultScorer.score_instances)
    return getattr(type(scorer), "score_instances", None) not in plain or "score_instances" in vars(scorer)


def scores_itself(scorer: Scorer) -> bool:
    """Whether it has a score of its own, beside those of metrics."""
    return has_score(scorer) or scorer.asks or scores_instances(scorer) or computes_rows(scorer)


def asks_by_plan(scorer: Scorer) -> bool:
    """Whether it yields what it asks other models, instead of calling them."""
    return scorer.asks and not calls_models(scorer)


def calls_models(scorer: Scorer) -> bool:
    """Whether its code asks models by plain calls."""
    called = asked_models(scorer) or any(map(calls_models, members_of(scorer)))
    return bool(called) and not _defines(scorer, "ask", "questions")


def asked_models(scorer: Scorer) -> list[ScorerModel]:
    """The models that its code asks by plain calls: attributes of it, and globals of its methods."""
    held = [*_attributes(scorer), *globals_used(type(scorer))]
    return list(dict.fromkeys(value for value in held if isinstance(value, ScorerModel)))


def members_of(scorer: Scorer) -> list[Scorer]:
    """The scorers it is made of: those among its attributes, and theirs."""
    own = [value for value in _attributes(scorer) if isinstance(value, Scorer) and value is not scorer]
    return [each for member in own for each in (member, *members_of(member))]


def _attributes(scorer: Scorer) -> Iterator[Any]:
    """The values of attributes, and those in lists and mappings."""
    for value in vars(scorer).values():
        if isinstance(value, Mapping):
            yield from value.values()
        elif isinstance(value, list | tuple):
            yield from value
        else:
            yield value


def roles_of(scorer: Scorer) -> ModelRoles:
    """The further models that it and its members ask, by role."""
    plain = [{model.role: model.model} for model in asked_models(scorer)]
    return models_of([scorer.model_roles, *plain, *map(roles_of, members_of(scorer))])


def need_of(scorer: Scorer, role: str) -> str:
    """The capability that the model of a role needs: generate, loglikelihood or rolling."""
    return next((model.asks_for for model in asked_models(scorer) if model.role == role), scorer.asks_for)


def own_rows(scorer: Scorer) -> tuple[str, ...] | None:
    """The rows beside those of the metrics; None where only the documents show them."""
    if scorer.gives is not None:
        return scorer.gives
    return None if scores_itself(scorer) or is_batch(scorer) else ()


def added_rows(scorer: Scorer) -> list[str]:
    """The rows that reductions of its own scores add, where those are known."""
    rows = own_rows(scorer)
    names = (scorer.name,) if rows is None else rows
    return [added_row(scorer.name, row, reduction) for row in names for reduction in scorer.own_reductions.added]


def directions_of(scorer: Scorer) -> dict[str, bool | None]:
    """Whether higher is better in the rows that it, or a member, adds itself, where that is declared."""
    declared = [each for each in (scorer, *members_of(scorer)) if each.higher_is_better is not None]
    rows = [(each, (*(own_rows(each) or (each.name,)), *added_rows(each))) for each in declared]
    return {row: each.higher_is_better for each, names in rows for row in names}


def bounds_of(scorer: Scorer) -> dict[str, Bounds]:
    """The bounds of its own rows; a ValueError says what is wrong with those that a user's class declares."""
    declared = scorer.bounds
    if declared is None:
        return {}
    if isinstance(declared, Mapping):
        return {str(row): read_bounds(bounds) for row, bounds in declared.items()}
    return dict.fromkeys(own_rows(scorer) or (scorer.name,), read_bounds(declared))


def row_bounds(row: str, step: ScoringStep) -> Bounds | None:
    """The least and the greatest value of a document in a row: as its metric, its reduction or its scorer declares them."""
    scorer: Scorer = step.scorer
    parent = step.parents.get(row, row)
    own = next((metric for metric in step.metrics if metric.name == parent), None)
    if own is not None:
        return own.bounds
    declared = bounds_of(scorer)
    of_metrics = [(metric.bounds, metric.reductions) for metric in step.metrics]
    for bounds, reductions in (*of_metrics, (declared.get(scorer.name), scorer.own_reductions)):
        for name in reductions.added:
            if row == name or row.startswith(f"{name}("):
                return reductions.bounds.get(name, bounds)
    return declared.get(row, declared.get(parent))


def has_methods_set(scorer: Scorer) -> bool:
    """Whether a user set a method on this object."""
    return any(callable(value) and callable(getattr(type(scorer), name, None)) for name, value in vars(scorer).items())


def scorer_identity(scorer: Scorer) -> str | None:
    """Everything its scores depend on beside the answers; None where that is unknown, as with methods set on this object."""
    if has_methods_set(scorer):
        return None
    return identity_of(type(scorer), Scorer, scorer.version, scorer._parameters)


# --- what of it is called ----------------------------------------------------------------------------------------------------

_LEADING = ("score_instances", "ask", "questions", "score_batch", "_compute_metrics")
"""Hooks that are called in place of others."""
_CALLS: Mapping[str, Sequence[str]] = {
    "score_instances": ("get_metrics", "_create_result", "_compute_metrics"),
    "_compute_metrics": ("_compute_metric", "score"),
    "ask": ("questions", "verdict"),
}
"""What a hook of ours calls: one of a user's does so through `super()`, or by itself."""


def unused_hooks(scorer: Scorer) -> Iterator[tuple[str, str]]:
    """Methods of a user's class, or set on its object, that nothing would call: what is wrong, and how to correct it."""
    combines = isinstance(scorer, CombinedScorer | ProcessResultsScorer)
    kinds = type(scorer).__mro__
    base = next(kind for kind in kinds if kind.__module__.startswith("assay.")) if combines else Scorer
    defined = [hook for hook in HOOKS if is_overridden(scorer, hook, base)]
    if combines or scores_instances(scorer):
        defined += ["score_instances"] if is_overridden(scorer, "score_instances", base) else []
    called = _called_hooks(scorer, defined)
    others = [hook for hook in _LEADING if hook in defined and hook in called]
    for hook in defined:
        of_the_seed = hook == "get_metrics" and "score_instances" in defined  # its Scorer asks for both
        if hook in called or of_the_seed or not _is_users(scorer, hook):
            continue
        fix = f"remove one of the two, or call self.{hook} there"
        if hook in ("ask", "questions", "verdict") and not scorer.asks:
            yield f"{hook} would never be called, because `asks` is False", "write `asks = True`"
        elif scorer.parallel and hook in ("score_batch", "score_instances"):
            yield f"it is `parallel`, which computes `score`: {hook} would never be called", "remove one of the two"
        elif others:
            yield f"it defines both {others[0]} and {hook}, and {hook} would never be called", fix
        else:
            yield f"{base.__name__} never calls {hook}", "remove it, or derive the class from GenerationScorer"
    if scorer.parallel and not has_score(scorer):
        yield (
            "it is `parallel`, and has no `score` to compute in several processes",
            "define score, or remove `parallel`",
        )
    if isinstance(scorer, CombinedScorer):
        for member in scorer.scorers:
            yield from _unused_of_member(member)


def _is_users(scorer: Scorer, hook: str) -> bool:
    """Whether the user defines a hook. A class of ours that is derived from, such as a judge, has hooks that another replaces."""
    owner = next(kind for kind in type(scorer).__mro__ if hook in vars(kind))
    return hook in vars(scorer) or not owner.__module__.startswith("assay.")


def _unused_of_member(member: Scorer) -> Iterator[tuple[str, str]]:
    """What nothing would call of a member of an ensemble: the task's metrics are not its own."""
    for what, fix in unused_hooks(member):
        yield f"member {member.name!r}: {what}", fix
    of_metrics = ("_compute_metric",) if scores_itself(member) else ("_compute_metric", "_create_result")
    for hook in () if _defines(member, "get_metrics") else of_metrics:
        if _defines(member, hook):
            what = f"member {member.name!r} computes no metrics, so its {hook} would never be called"
            yield what, "define get_metrics in it, or score"


def _called_hooks(scorer: Scorer, defined: Sequence[str]) -> set[str]:
    """The hooks that scoring a document calls, with those that the scorer's own methods read."""
    read = _names_read(scorer)
    called = {"default_filters", "default_metrics", *read.intersection((*HOOKS, "score_instances"))}
    if isinstance(scorer, CombinedScorer):
        called |= {"get_metrics", "_compute_metric"}
    elif isinstance(scorer, ProcessResultsScorer):
        called |= {"get_metrics", "score_instances"}
    elif scores_instances(scorer) and not asks_by_plan(scorer) and not is_batch(scorer):
        called.add("score_instances")
    else:
        called |= {"get_metrics", "_create_result", "_compute_metrics"}
        if asks_by_plan(scorer):
            called.add("ask")
        elif is_batch(scorer):
            called.add("score" if scorer.parallel else "score_batch")
    scores_apart = asks_by_plan(scorer) or is_batch(scorer)
    for hook, parts in _CALLS.items():
        if hook in called and (hook not in defined or hook in read):
            leaves_score = scores_apart and hook == "_compute_metrics" and hook not in defined
            called.update(part for part in parts if part != "score" or not leaves_score)
    return called


def _names_read(scorer: Scorer) -> frozenset[str]:
    """The attributes that a scorer's classes read, and the functions set on the object."""
    of_object = [names_read(value) for value in vars(scorer).values() if isinstance(value, FunctionType)]
    return _read_by_class(type(scorer)).union(*of_object)


@lru_cache
def _read_by_class(kind: type[Scorer]) -> frozenset[str]:
    """What classes derived from those of this file read: also in functions beside them, which they may call."""
    names: set[str] = set()
    for owner in kind.__mro__:
        if owner.__module__ == __name__:
            continue
        names |= names_read(owner)
        module = vars(sys.modules[owner.__module__]) if owner.__module__ in sys.modules else {}
        if not owner.__module__.startswith("assay."):
            functions = [value for value in module.values() if isinstance(value, FunctionType)]
            names.update(*(names_read(each) for each in functions if each.__module__ == owner.__module__))
    return frozenset(names)


# --- its metrics -----------------------------------------------------------------------------------------------------------


def bind(scorer: Scorer, filter_name: str, metrics: Sequence[BoundMetric]) -> None:
    """Set the metrics of a filter, also for scorers that it holds. Members of an ensemble that score themselves need none."""
    bind_alone(scorer, filter_name, metrics)
    for member in members_of(scorer):
        if filter_name not in member._metrics and not isinstance(scorer, CombinedScorer):
            bind_alone(member, filter_name, metrics)
        elif filter_name not in member._metrics and scores_itself(member):
            bind_alone(member, filter_name, ())


def bind_alone(scorer: Scorer, filter_name: str, metrics: Sequence[BoundMetric]) -> None:
    """Set the metrics of a filter for this scorer only: those written as in seed 001 take theirs from the configuration."""
    scorer._metrics = {**scorer._metrics, filter_name: metrics}
    if scorer.config is None:
        return
    bound: Any = tuple(metrics)
    if scorer.config.filter_list is None:
        scorer.config = replace(scorer.config, metric_list=bound)
        return
    entries = [
        replace(each, metric_list=bound) if each.name == filter_name else each for each in scorer.config.filter_list
    ]
    scorer.config = replace(scorer.config, filter_list=tuple(entries))


def metrics_of(scorer: Scorer, filter_name: str) -> Sequence[BoundMetric]:
    """The metrics that the task has bound; where a class of the user's chooses, those it returns."""
    if not _defines(scorer, "get_metrics"):
        return scorer._metrics.get(filter_name, ())
    return _bound(scorer, scorer.get_metrics(filter_name))


def _bound(scorer: Scorer, metrics: Sequence[Any]) -> Sequence[BoundMetric]:
    """Metrics that can be called: a class of the user's may choose some by name."""
    return [metric if isinstance(metric, BoundMetric) else bind_one(scorer, metric) for metric in metrics]


# --- a scorer by itself ----------------------------------------------------------------------------------------------------


def score_by_hooks(scorer: Scorer, instances: Sequence[Instance], filter_name: str) -> Any:
    """Score the requests of one document by what a filter left of their responses: as a run does, without one."""
    if is_batch(scorer) and not scorer.parallel:
        fix = "give score_batch the results of all, or instances to GenerateTask(config).process_instances"
        raise OnlyInRun(f"scorer {scorer.name!r} scores all documents at once — {fix}")
    if asks_by_plan(scorer):
        raise OnlyInRun(f"scorer {scorer.name!r} asks other models, which only a run does — {RUN}")
    result = scorer._create_result(instances, filter_name)
    result.scores = dict(scorer._compute_metrics(result, _bound(scorer, scorer.get_metrics(filter_name))))
    return result


def compute_rows(scorer: Scorer, result: StepInput, metrics: Sequence[BoundMetric]) -> ScoreDict:
    """The rows of metrics and of `score`, as methods of users' classes see them: of generated text, in lists."""
    parts = _metric_parts(scorer, metrics)
    if has_score(scorer):
        parts.append(_own_part(scorer, f"scoring: scorer {scorer.name!r}")._replace(compute=partial(own_score, scorer)))
    scores: ScoreDict = replay(plan_rows(_step(scorer, Pipeline(""), parts), result))
    if not isinstance(result, GenResult):
        return scores
    return {row: value if isinstance(value, Repeated | Failed) else Repeated([value]) for row, value in scores.items()}


def _metric_parts(scorer: Scorer, metrics: Sequence[BoundMetric], filter_name: str | None = None) -> list[ScorePart]:
    compute = scorer._compute_metric if _defines(scorer, "_compute_metric") else None
    return metric_parts(metrics, filter_name, compute)


def _own_part(scorer: Scorer, place: str) -> ScorePart:
    """The part of its own score, without a way to compute it."""
    return ScorePart(scorer.name, place, own_rows(scorer) or (scorer.name,))


def own_score(scorer: Scorer, result: Result) -> MetricValue:
    """What `score` gives for a document, or what is known of it."""
    asked = [_reference(result), result.results]
    [value] = _remember(scorer, [asked], lambda _: [scorer.score(*asked)])
    return by_answer(value, result.results, scorer.name)


def own_scores(scorer: Scorer, place: str, results: Sequence[Result]) -> list[MetricValue]:
    """The scores of all documents: of `score` in several processes, or of `score_batch`."""
    asked: Sequence[Any] = results
    if scorer.parallel or scorer._memory is not None:
        asked = [[_reference(result), result.results] for result in results]
    if scorer.parallel:
        workers = scorer._workers or Workers([scorer], 1)
        values = _remember(scorer, asked, lambda at: workers.score(scorer, [asked[each] for each in at], place))
    else:
        if scorer._memory is not None:
            asked = [[dict(result.doc), *answered] for result, answered in zip(results, asked, strict=True)]
        values = _remember(scorer, asked, lambda at: _score_batch(scorer, [results[each] for each in at]))
    return [by_answer(value, result.results, scorer.name) for result, value in zip(results, values, strict=True)]


def _score_batch(scorer: Scorer, results: Sequence[Result]) -> Sequence[MetricValue]:
    returned = scorer.score_batch(results)
    if isinstance(returned, Mapping | str | bytes):
        kind = type(returned).__name__
        raise TypeError(f"score_batch returned {kind!r}, and must return a list with a score for each document")
    scores = list(returned)
    if len(scores) != len(results):
        raise ValueError(f"score_batch gave {len(scores)} scores for {len(results)} documents")
    return scores


def _remember(
    scorer: Scorer, asked: Sequence[ScoreInput], compute: Callable[[list[int]], Sequence[MetricValue]]
) -> Sequence[MetricValue]:
    """The scores that were stored, and `compute` for the numbers of the others."""
    return compute(list(range(len(asked)))) if scorer._memory is None else scorer._memory.filled(asked, compute)


def _reference(result: Result) -> Reference:
    """The reference of a score: the right answer, or a list of them; of choices, their text."""
    target = result.target
    choices = getattr(result, "choices", None)
    if choices is not None:
        return choices[target] if isinstance(target, int) else [choices[each] for each in target]
    return target[0] if isinstance(target, list) and len(target) == 1 else target


# --- a scorer as a step ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Documents:
    """What scorers see of the documents of a task: a result, with the requests where a class of the user's may look at these."""

    name: str
    filters: Sequence[str]
    reading: ResultBuilder
    task: str

    def instances(self, document: AnsweredSample, own: Answers, answers: Sequence[Filtered]) -> Sequence[Instance]:  # noqa: ARG002
        left = dict(zip(self.filters, answers, strict=bool(answers)))
        return instances_of(document, self.reading, left, self.task)

    def result(self, document: AnsweredSample, own: Answers, answers: Sequence[Filtered]) -> Result:
        if document.instances:
            return result_of(self.instances(document, own, answers), self.name)
        result = self.reading.result(document.sample, own)
        result.question = document.question
        return result

    def full_result(self, document: AnsweredSample, own: Answers, answers: Sequence[Filtered]) -> Result:
        result = self.result(document, own, answers)
        result.instances = self.instances(document, own, answers)
        if isinstance(result, GenResult) and result.instances:
            result.target = result.instances[0].target  # as classes of users see it, with instances or without
        return result

    def result_by(self, scorer: Scorer) -> Callable[[AnsweredSample, Answers, Sequence[Filtered]], StepInput]:
        """How the result is made for a scorer: as its class creates it, or with the instances that its class may read."""
        if _defines(scorer, "_create_result"):
            return partial(self.created_result, scorer._create_result)
        return self.full_result if computes_rows(scorer) else self.result

    def created_result(
        self, create: CreateResult, document: AnsweredSample, own: Answers, answers: Sequence[Filtered]
    ) -> StepInput:
        """The result as a method of a user's class creates it."""
        result = create(self.instances(document, own, answers), self.name)
        if isinstance(result, Result) and document.question:
            result.question = result.question or document.question
        return result


def scorer_step(
    scorer: Scorer, filter_: Pipeline, filters: Sequence[str], reading: ResultBuilder, task: str
) -> ScoringStep:
    """The step that a scorer's class describes. `filters` are the names of all filters of the task."""
    documents = Documents(filter_.name, filters, reading, task)
    metrics, computes, calls = metrics_of(scorer, filter_.name), computes_rows(scorer), calls_models(scorer)
    label = "" if type(scorer).__module__ == __name__ else f"scorer {scorer.name!r} of "  # nothing where metrics do all
    own = _own_part(scorer, f"scoring: {label}filter {filter_.name!r}")
    step = replace(
        _step(scorer, filter_, ()),
        result=documents.result,
        metrics=metrics,
        place=own.place,
        own_rows=() if metrics else own.rows,
        by_answer=[metric.name for metric in metrics] if computes else (),
    )
    if isinstance(scorer, ProcessResultsScorer) and not is_overridden(scorer, "score_instances", ProcessResultsScorer):
        return _process_results_step(step, scorer)
    if isinstance(scorer, CombinedScorer):
        members = [scorer_step(member, filter_, filters, reading, task) for member in scorer.scorers]
        return _combined_step(step, scorer, own, members)
    if scores_instances(scorer):

        def score(instances: Sequence[Instance]) -> ScoreDict:
            return _scores(scorer.score_instances(instances, filter_.name))

        step = replace(step, result=documents.instances, parts=[ScorePart("", own.place, (), score)])
        return _step_in_turn(step, own) if calls else step
    parts = _metric_parts(scorer, metrics, filter_.name)
    if computes:
        parts = [ScorePart("", own.place, (), lambda result: scorer._compute_metrics(result, metrics))]
    before = len(parts)
    if asks_by_plan(scorer):
        parts.append(own._replace(ask=partial(_ask, scorer)))
    elif is_batch(scorer):
        parts.append(own._replace(batch=partial(own_scores, scorer, own.place)))
    elif has_score(scorer) and not computes:  # there `_compute_metrics` includes it
        parts.append(own._replace(compute=partial(own_score, scorer)))
    own_rows = own.rows if len(parts) > before else step.own_rows
    step = replace(step, result=documents.result_by(scorer), parts=parts, own_rows=own_rows)
    return _step_in_turn(step, own) if calls else step


def _step(scorer: Scorer, filter_: Pipeline, parts: Sequence[ScorePart]) -> ScoringStep:
    """A step with what a scorer says of all its rows."""
    parents = vars(scorer).setdefault("_parents", {})  # one for all filters, and for calls without a run
    return ScoringStep(
        filter_,
        lambda document, own, answers: own,  # noqa: ARG005  # the shape of a result
        parts,
        scorer=scorer,
        dialect=scorer.task_dialect,
        parents=parents,
    )


def _scores(result: Result | Scores) -> ScoreDict:
    """The scores that `score_instances` returned."""
    rows = result.scores if isinstance(result, Result) else result
    if not isinstance(rows, Mapping):
        raise TypeError(f"score_instances returned {describe(rows)}, and must return a result, or scores by name")
    if not rows:
        raise ValueError("score_instances returned no scores")
    return dict(rows)


def _ask(scorer: Scorer, result: Result) -> Asks:
    value = yield from scorer.ask(result)
    return by_answer(value, result.results, scorer.name)


def _step_in_turn(step: ScoringStep, own: ScorePart) -> ScoringStep:
    """The step of a class whose code asks models by plain calls, wherever in it: all of its rows depend on the answers."""
    rows = [row for metric in step.metrics for row in metric.rows]

    def ask(result: StepInput) -> Asks:
        return asked_in_turn(step.place, lambda: replay(plan_rows(step, result)))

    return replace(step, parts=[ScorePart("", step.place, (*rows, *own.rows), ask=ask)], own_rows=own.rows)


def _process_results_step(step: ScoringStep, scorer: ProcessResultsScorer) -> ScoringStep:
    """A function of the task's own, which is given a document and its answers."""
    function, declared = scorer.process_results_fn, [metric.name for metric in step.metrics]
    place = f"scoring: process_results of filter {step.filter.name!r}"

    def compute(arguments: tuple[Document, list[Answer]]) -> ScoreDict:
        rows = function(*arguments)
        if scorer.task_dialect.leaves_out_missing_scores:  # lm-eval's tasks may return none for some documents
            return dict(rows or {})
        return returned_rows(rows, declared, place_of(place, function))

    return replace(
        step,
        result=lambda document, own, answers: (document.sample.doc, own),  # noqa: ARG005  # the shape of a result
        parts=[ScorePart("", place, (), compute)],
        place=place,
        own_rows=(),
        reduces_single=False,
    )


def returned_rows(returned: MetricValue, declared: Sequence[str], place: str) -> ScoreDict:
    """The rows that a `process_results` function returned. `declared` are the metrics that the task names.

    No row at all is a failure: the document would be missing from every number, without a word.
    """
    if not isinstance(returned, Mapping):
        raise Unscored(f"{place} returned {describe(returned)}, and must return values by name, as in {{'acc': 1.0}}")
    if not returned:
        raise Unscored(f"{place} returned no value")
    rows, names = dict(returned), {score_name(key) for key in returned}
    if declared and names.isdisjoint(declared):
        what = f"{place} returned {', '.join(map(repr, rows)):.80}, and none of the metrics in metric_list"
        rows |= dict.fromkeys(declared, Failed(f"{what} — use their names"))
    return rows


def _combined_step(
    step: ScoringStep, scorer: CombinedScorer, own: ScorePart, members: Sequence[ScoringStep]
) -> ScoringStep:
    """Several scorers as one: each has a step, and is given what a step is given."""
    of_metrics = replace(step, parts=_metric_parts(scorer, step.metrics, step.filter.name))

    def compute(arguments: StepInput) -> ScoreDict:
        return replay(plan_rows(of_metrics, step.result(*arguments)))

    def combine(arguments: StepInput) -> Asks:
        rows: list[Scores] = []
        for member in members:
            theirs: ScoreDict = yield from plan_rows(member, member.result(*arguments))
            rows.append(theirs)
        metrics = [member.metrics for member in members]
        scores: ScoreDict = scorer.combine(rows, metrics, lambda: compute(arguments))
        return scores

    own = own._replace(name="", ask=combine)  # it names all rows itself
    if not scorer.asks:
        own = own._replace(ask=None, compute=lambda arguments: replay(combine(arguments)))
    parts = [ScorePart("", own.place, (), compute), own]
    return replace(step, result=lambda *arguments: arguments, parts=parts, own_rows=own.rows)


def score_alone(scorer: CombinedScorer, instances: Sequence[Instance], filter_name: str) -> Scores:
    """Score the requests of one document by several scorers, without a run."""
    if scorer.asks:
        raise OnlyInRun(f"scorer {scorer.name!r} asks other models, which only a run does — {RUN}")
    step = scorer_step(scorer, Pipeline(filter_name), (filter_name,), ResultBuilder(instances[0].request_type), "")
    document = AnsweredSample(Sample(0, instances[0].doc, (), None, None), (), instances=instances)
    return replay(plan_rows(step, step.result(document, (), ())))
