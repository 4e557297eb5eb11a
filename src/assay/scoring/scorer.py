"""Scorers: from a document's answers to its scores. Filtering comes before, aggregation after.

A user's scorer extends one of three things: the defaults (`default_filters`, `default_metrics`), the score of a
document (`score`), or those of all documents at once (`score_batch`). The loop around it is never written again.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from assay.config.task import FilterConfig, MetricConfig, TaskConfig
from assay.dialect import OURS, Dialect
from assay.late import late
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
    arguments,
)
from assay.scoring.reductions import MetricReductions
from assay.scoring.results import (
    CHOICE,
    GENERATE,
    LIKELIHOOD,
    ROLLING,
    BoundMetric,
    GenResult,
    Instance,
    LLResult,
    MCResult,
    ModelRoles,
    Reference,
    Repeated,
    Result,
    ResultBuilder,
    Results,
    ScoreDict,
    Scores,
    StepInput,
    added_row,
    by_answer,
    by_name,
    reduced_rows,
    result_of,
    score_name,
)
from assay.scoring.scorer_models import RUN, OnlyInRun, ScorerModel, globals_used, models_of
from assay.scoring.scorer_models import Unscored as Unscored
from assay.scoring.workers import ScoreInput, ScorerMemo, ScoreWorkers, Workers, identity_of
from assay.signatures import read_signature
from assay.statistics.influence import Bounds
from assay.user_code import call_user_code, is_overridden

ComputeMetric = Callable[[StepInput, BoundMetric], MetricValue]
"""Computes a metric of a result, as a user's class defines it."""
ProcessResults = Callable[[Document, list[Answer]], Scores | None]
"""A task's function `process_results(doc, results)`."""


class AnsweredSample(NamedTuple):
    """A sample with its responses: for each request, one per repeat, as filters see them; and what scorers asked about it."""

    sample: Sample
    responses: Sequence[list[Any]]
    verdicts: Sequence[Response] = ()
    """The responses to what scorers asked, in the order they asked."""
    question: str = ""
    """The question, without examples and instructions around it; known where scorers ask about it."""
    filtered: Mapping[str, Sequence[Any]] = MappingProxyType({})
    """By filter, answers that are filtered already."""
    instances: Sequence[Instance] = ()
    """The requests of the document, where it is made of them."""
    without_text: str = ""
    """Why an answer has nothing that filters and metrics look at, where one has not: empty otherwise."""


Bound = tuple[str, Callable[[StepInput], MetricValue], str, tuple[str, ...]]
"""A metric by name, with how it is computed, what it is called in reasons, and its rows."""


if TYPE_CHECKING:  # there, type variables have defaults already: `Scorer` alone scores to anything
    from typing_extensions import TypeVar as TypeVarWithDefault

    ResultT = TypeVarWithDefault("ResultT", default=Any)
else:
    ResultT = TypeVar("ResultT")

MEMBERS = "scorers"
"""The parameter of scorers that are made of others: a file names them."""
HOOKS = (
    "score", "score_batch", "ask", "questions", "default_filters", "default_metrics", "get_metrics",
    "_create_result", "_compute_metrics", "_compute_metric",
)  # fmt: skip
"""Methods of which one is enough to make a class a scorer: `score_instances` follows from them."""


def _score_by_hooks(self: "Scorer[Any]", instances: Sequence[Instance], filter_name: str) -> Any:
    """Score the requests of one document by what a filter left of their responses: as a run does, without one."""
    if self.is_batch and not self.parallel:
        fix = "give score_batch the results of all, or instances to GenerateTask(config).process_instances"
        raise OnlyInRun(f"scorer {self.name!r} scores all documents at once — {fix}")
    if self.asks and not self.calls_models:
        raise OnlyInRun(f"scorer {self.name!r} asks other models, which only a run does — {RUN}")
    result = self._create_result(instances, filter_name)
    result.scores = dict(self._compute_metrics(result, self.get_metrics(filter_name)))
    if self.parallel and self.has_score:
        self._put(result.scores, self.own_score(result), self.name)
    return result


class _Prepared:
    """Sets what every scorer has before its `__init__` is called: classes of users may forget to call ours."""

    def __new__(cls, *args: UserValue, **kwargs: UserValue) -> Self:  # noqa: ARG004  # those of `__init__`
        scorer: Any = super().__new__(cls)
        scorer.config, scorer.parents, scorer._parameters = None, {}, {}
        scorer._metrics, scorer._ways, scorer._adds = {}, {}, {}
        scorer._memory = scorer._workers = None
        scorer.own_reductions = MetricReductions()
        return scorer  # type: ignore[no-any-return]


class Scorer(_Prepared, ABC, Generic[ResultT]):
    """Scores a document's answers with the metrics of the filter they come from."""

    name: ClassVar[str] = "score"
    """The row of what `score` gives: what it was registered as, else the name of its class."""
    output_types: ClassVar[tuple[str, ...]] = (GENERATE, CHOICE, LIKELIHOOD, ROLLING)
    asks: bool = False
    """Whether it asks other models."""
    asks_for: ClassVar[str] = "generate"
    """The capability those models need: generate, loglikelihood or rolling."""
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
    gives: ClassVar[tuple[str, ...] | None] = None
    """Rows beside those of the metrics, where they are known before the run."""
    bounds: Bounds | Mapping[str, Bounds] | None = None
    """The least and the greatest score that it gives, or those of each row: intervals stay within them."""
    higher_is_better: bool | None = None  # in its own rows; None where that is unknown
    combines: ClassVar[bool] = False
    """Whether the loop scores with its members, and it computes one score from all of them."""
    task_dialect: Dialect = OURS
    """The rules that its task is scored by; who binds it to a task sets it."""

    config: TaskConfig | None
    parents: dict[str, str]
    _metrics: dict[str, Sequence[BoundMetric]]
    _ways: dict[str, Mapping[str, MetricReductions]]
    _adds: dict[str, bool]
    _parameters: Mapping[str, Any]
    _memory: ScorerMemo | None
    _workers: ScoreWorkers | None
    own_reductions: MetricReductions
    """The reductions of the rows that it adds itself."""
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
            cls.score_instances = _score_by_hooks  # type: ignore[method-assign]  # what the others inherit

    def __class_getitem__(cls, result: Any) -> Any:
        """`Scorer[GenResult]`; a class that is not generic any more is what it is."""
        return super().__class_getitem__(result) if cls.__parameters__ else cls  # type: ignore[attr-defined,misc]  # Generic's own

    @classmethod
    def create(cls, config: TaskConfig | None, **kwargs: Any) -> "Scorer":
        """The scorer of a task with the parameters that its file gives: they, or the configuration, fill the first one."""
        first, named = first_parameter(cls)
        if first is not None and first not in (*kwargs, MEMBERS):
            return cls(config, **kwargs)
        return cls(**kwargs, **({"config": config} if "config" in named and "config" not in kwargs else {}))

    def made_with(self, kwargs: Params) -> None:
        """Set the parameters of the task file: cached scores depend on them."""
        self._parameters = kwargs

    def remember(self, memory: ScorerMemo) -> None:
        """Set the cache of scores that were computed before."""
        self._memory = memory

    def work_in(self, workers: ScoreWorkers) -> None:
        """Set the processes to compute in."""
        self._workers = workers

    # methods that subclasses override

    def default_filters(self) -> tuple[FilterConfig, ...] | None:
        """The filters of a task that names none."""
        return None

    def default_metrics(self) -> tuple[MetricConfig, ...] | None:
        """The metrics of a task that names none; those of its output type where this is None, too."""
        return () if self.has_score or self.is_batch or (self.asks and not self.calls_models) else None

    def score(self, reference: Reference, predictions: list[Answer]) -> MetricValue:
        """The score of a document's answers: a number, a list with one for each answer, or several by name."""
        raise NotImplementedError

    def score_batch(self, results: Sequence[Result]) -> Sequence[MetricValue]:
        """The scores of all documents of a task, in their order; each as `score` gives it."""
        raise NotImplementedError

    def models(self) -> ModelRoles:
        """Further models it asks, by role: as `--model_role` has them, or None where the run must name one."""
        own = [{each.role: each.model} for each in self.asked_models]
        return models_of([*own, *(member.models() for member in self.members)])

    def aggregation(self, row: str) -> str | None:  # noqa: ARG002  # asked of every scorer
        """The name of the aggregation of a row that this scorer adds; None for the mean."""
        return None

    def questions(self, result: Result) -> Sequence[Request]:
        """The requests to other models about a document's answers, where `asks` is true."""
        raise NotImplementedError

    def verdict(self, result: Result, responses: Sequence[Response]) -> MetricValue:
        """The score of a document from what they responded: as `score` gives it. What cannot be read raises an error."""
        raise NotImplementedError

    @abstractmethod
    def score_instances(self, instances: Sequence[Instance], filter_name: str) -> ResultT | Scores:
        """Score the requests of one document by what a filter left of their responses."""
        raise NotImplementedError

    def get_metrics(self, filter_name: str) -> Sequence[BoundMetric]:
        """The metrics for a filter: its own, else the task's."""
        if filter_name not in self._metrics:  # without a run
            late("bind_by_itself")(self, filter_name)
        return self._metrics[filter_name]

    def run_metrics(self, filter_name: str) -> Sequence[BoundMetric]:
        """The metrics that a run has bound; where a class of the user's chooses, those it returns."""
        if not is_overridden(self, "get_metrics", Scorer):
            return self._metrics.get(filter_name, ())
        chosen: Sequence[Any] = self.get_metrics(filter_name)
        if all(isinstance(each, BoundMetric) for each in chosen):
            return chosen
        return [each if isinstance(each, BoundMetric) else late("bind_chosen")(self, each) for each in chosen]

    def _create_result(self, instances: Sequence[Instance], filter_name: str) -> Result:
        return result_of(instances, filter_name)

    def _compute_metrics(self, result: StepInput, metrics: Sequence[BoundMetric]) -> ScoreDict:
        scores = computed(result, bound_metrics(self, metrics), self)
        if self.has_score and not self.parallel:
            own = call_user_code(f"scoring: scorer {self.name!r}", self.own_score, result)
            lost = dict.fromkeys(self.rows() or (self.name,), own) if isinstance(own, Failed) else {}
            self._put(scores, own if not isinstance(own, Failed) else lost, self.name)
        return scores

    def _compute_metric(self, result: StepInput, metric: BoundMetric) -> MetricValue:
        return metric.compute(result)

    def ask(self, result: Result) -> Generator[Sequence[Request], Sequence[Response], MetricValue]:
        """Yields what it asks other models about a document's answers, and returns the score; `questions` are asked at once."""
        responses = yield self.questions(result)
        return self.verdict(result, responses)

    # what loop.py builds steps from

    def rows(self) -> tuple[str, ...] | None:
        """The rows beside those of the metrics; None where only the documents show them."""
        if self.gives is not None:
            return self.gives
        computes = self.computes or self.wants_instances
        return None if computes or self.has_score or self.is_batch or self.asks else ()

    def added_rows(self) -> list[str]:
        """The rows that reductions of its scores add, where those are known."""
        rows = self.rows()
        names = (self.name,) if rows is None else rows
        return [added_row(self.name, row, reduction) for row in names for reduction in self.own_reductions.added]

    def declared_better(self) -> dict[str, bool | None]:
        """Whether higher is better in the rows that it, or a member, adds itself, where that is declared."""
        own = [each for each in (self, *self.members) if each.higher_is_better is not None]
        rows = [(each, (*(each.rows() or (each.name,)), *each.added_rows())) for each in own]
        return {row: each.higher_is_better for each, names in rows for row in names}

    @cached_property
    def has_score(self) -> bool:
        return is_overridden(self, "score", Scorer)

    @cached_property
    def computes(self) -> bool:
        """Whether a class of the user's computes the scores, which may want to see instances, too."""
        return is_overridden(self, "_compute_metrics", Scorer)

    @cached_property
    def is_batch(self) -> bool:
        return self.parallel or is_overridden(self, "score_batch", Scorer)

    @cached_property
    def wants_instances(self) -> bool:
        """Whether a class of the user's makes its own result of a document's requests."""
        is_plain = type(self).score_instances is _score_by_hooks and "score_instances" not in vars(self)
        return not is_plain or is_overridden(self, "_create_result", Scorer)

    @cached_property
    def calls_models(self) -> bool:
        """Whether its code asks models by plain calls."""
        plain = not is_overridden(self, "ask", Scorer) and not is_overridden(self, "questions", Scorer)
        return plain and bool(self.asked_models or any(member.calls_models for member in self.members))

    @property
    def asked_models(self) -> list[ScorerModel]:
        """The models that its code asks by plain calls: attributes of it, and globals of its methods."""
        held = [*_held(vars(self)), *globals_used(type(self))]
        return list(dict.fromkeys(each for each in held if isinstance(each, ScorerModel)))

    def need(self, role: str) -> str:
        """The capability that the model of a role needs: generate, loglikelihood or rolling."""
        return next((each.asks_for for each in self.asked_models if each.role == role), self.asks_for)

    def bind(self, filter_name: str, metrics: Sequence[BoundMetric]) -> None:
        """Set the metrics of a filter, also for scorers that it holds."""
        self.bind_alone(filter_name, metrics)
        for member in self.members:
            if filter_name not in member._metrics:
                member.bind(filter_name, metrics)

    def bind_alone(self, filter_name: str, metrics: Sequence[BoundMetric]) -> None:
        """Set the metrics of a filter for this scorer only."""
        self._metrics[filter_name] = metrics
        self.config = _with_bound(self.config, filter_name, metrics)
        self._ways[filter_name] = {metric.name: metric.reductions for metric in metrics}
        self._adds[filter_name] = any(metric.reductions.added for metric in metrics) or bool(self.own_reductions.added)

    def own_score(self, result: Result) -> ScoreDict:
        """The rows of what `score` gives."""
        asked = [_reference(result), result.results]
        [value] = self._remembered([asked], lambda _: [self.score(*asked)])
        return self.own_rows(value, result)

    def own_rows(self, value: MetricValue, result: Result) -> ScoreDict:
        """The scorer's own score as rows: one of its name, or those that a mapping names."""
        rows: dict[str, Any] = {}
        self._note(rows, self.name, by_answer(value, result.results, self.name))
        return rows

    def together(self, results: Sequence[Result], place: str = "") -> Sequence[MetricValue]:
        """The scorer's own scores of all documents: in several processes, or as it computes them itself.

        `place` is the name of the scorer in reasons.
        """
        if self.parallel:
            asked = [[_reference(result), result.results] for result in results]
            workers = self._workers or Workers([self], 1)
            return self._remembered(
                asked, lambda numbers: workers.score(self, [asked[number] for number in numbers], place)
            )
        whole = (
            [[dict(result.doc), _reference(result), result.results] for result in results] if self._memory else results
        )
        return self._remembered(whole, lambda numbers: self._batch([results[number] for number in numbers]))

    def _batch(self, results: Sequence[Result]) -> Sequence[MetricValue]:
        returned = self.score_batch(results)
        if isinstance(returned, Mapping | str | bytes):
            raise TypeError(
                f"score_batch returned {type(returned).__name__!r}, and must return a list with a score for each document"
            )
        scores = list(returned)
        if len(scores) != len(results):
            raise ValueError(f"score_batch gave {len(scores)} scores for {len(results)} documents")
        return scores

    def _remembered(
        self, asked: Sequence[ScoreInput], compute: Callable[[list[int]], Sequence[MetricValue]]
    ) -> Sequence[MetricValue]:
        return compute(list(range(len(asked)))) if self._memory is None else self._memory.filled(asked, compute)

    def identity(self) -> str | None:
        """Everything its scores depend on beside the answers; None where that is unknown, as with methods set on this object."""
        if any(callable(value) and callable(getattr(type(self), name, None)) for name, value in vars(self).items()):
            return None
        return identity_of(type(self), Scorer, self.version, self._parameters)

    @property
    def members(self) -> "Sequence[Scorer]":
        """The scorers it is made of: those among its attributes, and theirs."""
        own = [each for each in _held(vars(self)) if isinstance(each, Scorer) and each is not self]
        return [each for member in own for each in (member, *member.members)]

    def reduced(
        self, scores: Scores, filter_name: str, answers: Answers
    ) -> tuple[ScoreDict, Mapping[str, Sequence[MetricValue]]]:
        """One value for each row, and where a score is one of several answers, the scores of all of them."""
        ways = self._ways[filter_name]
        if not self._adds[filter_name] and Repeated not in map(type, scores.values()):
            return dict(scores), {}
        values: dict[str, Any] = {}
        for name, value in scores.items():
            self._put(values, reduced_rows(name, value, self._reductions_of(name, ways), answers), name)
        return values, {
            name: list(each) for name, each in scores.items() if isinstance(each, Repeated) and len(each) > 1
        }

    def _reductions_of(self, row: str, ways: Mapping[str, MetricReductions]) -> MetricReductions:
        """The reductions of a row: those of its metric, else of the scorer. Where these give several, added rows name theirs."""
        source = self.parents.get(row, row)
        own = ways.get(source)
        if own is None:
            source, own = self.name, self.own_reductions
        added = {added_row(source, row, name): reduce for name, reduce in own.added.items()}
        return replace(own, added=added) if added else own

    def _note(self, scores: ScoreDict, name: str, value: MetricValue) -> None:
        """Write a value down under its name; of several by name, each under its own."""
        if isinstance(value, Repeated) and value and isinstance(value[0], Mapping):
            value = by_name(value, name)
        if isinstance(value, Mapping) and not value and not self.task_dialect.leaves_out_missing_scores:
            self._put(scores, {name: Failed(f"scoring: {name!r} returned no value: the mapping is empty")}, name)
        elif isinstance(value, Mapping):
            self._put(scores, value, name)
            self.parents.update(dict.fromkeys(map(score_name, value), name))
        else:
            self._put(scores, {name: value}, name)

    def _put(self, scores: ScoreDict, more: Scores, source: str) -> None:
        """Add scores; a second score of the same name fails the row, unless the dialect keeps the last."""
        for key, value in more.items():
            name = score_name(key)
            taken = name in scores and not self.task_dialect.keeps_last_of_equal_rows
            what = f"scoring: {source!r} returns {name!r}, which is the name of another row of this filter"
            scores[name] = Failed(f"{what} — rename one of them") if taken else value


def _held(attributes: Mapping[str, Any]) -> Iterator[Any]:
    """The values of attributes, and those in lists and mappings."""
    for value in attributes.values():
        if isinstance(value, Mapping):
            yield from value.values()
        elif isinstance(value, list | tuple):
            yield from value
        else:
            yield value


def first_parameter(kind: type) -> tuple[str | None, Sequence[str]]:
    """The first parameter of a class by position, if it has one, and the names of all."""
    parameters = read_signature(kind).parameters
    by_name_only = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    first = next(iter(parameters.values()), None)
    return first.name if first is not None and first.kind not in by_name_only else None, list(parameters)


def _with_bound(config: TaskConfig | None, filter_name: str, metrics: Sequence[BoundMetric]) -> TaskConfig | None:
    """The configuration with metrics that can be called: scorers written as in seed 001 take theirs from there."""
    if config is None:
        return None
    bound: Any = tuple(metrics)
    if config.filter_list is None:
        return replace(config, metric_list=bound)
    entries = [replace(each, metric_list=bound) if each.name == filter_name else each for each in config.filter_list]
    return replace(config, filter_list=tuple(entries))


def _reference(result: Result) -> Reference:
    """The reference of a score: the right answer, or a list of them; of choices, their text."""
    target = result.target
    choices = getattr(result, "choices", None)
    if choices is not None:
        return choices[target] if isinstance(target, int) else [choices[each] for each in target]
    return target[0] if isinstance(target, list) and len(target) == 1 else target


def bound_metrics(
    scorer: Scorer,
    metrics: Sequence[BoundMetric],
    filter_name: str | None = None,
    compute: ComputeMetric | None = None,
) -> list[Bound]:
    """Metrics with how each is computed, what they are called in reasons, and the rows that fail with them.

    `compute` is given where a class of the user's computes every metric in its own way.
    """
    of_filter = f" of filter {filter_name!r}" if filter_name is not None else ""
    if compute is None and is_overridden(scorer, "_compute_metric", Scorer):
        compute = scorer._compute_metric
    return [
        (
            metric.name,
            metric.compute if compute is None else _computing(compute, metric),
            f"scoring: metric {metric.name!r}{of_filter}",
            tuple(metric.gives or (metric.name,)),
        )
        for metric in metrics
    ]


def _computing(compute: ComputeMetric, metric: BoundMetric) -> Callable[[StepInput], MetricValue]:
    return lambda result: compute(result, metric)


def computed(result: StepInput, bound: Sequence[Bound], scorer: Scorer) -> ScoreDict:
    """The rows of metrics: one that raises has failed, and the others have their scores."""
    scores: dict[str, Any] = {}
    for name, compute, place, rows in bound:
        value = call_user_code(place, compute, result)
        if type(value) is float and name not in scores:  # as nearly always
            scores[name] = value
        elif type(value) is Failed:
            scorer._put(scores, dict.fromkeys(rows, value), name)
        else:
            scorer._note(scores, name, value)
    return scores


class GenerationScorer(Scorer[GenResult]):
    """Scores generated text against references: each answer of a document with each metric."""

    output_types = (GENERATE,)
    score_instances = _score_by_hooks


class LoglikelihoodScorer(Scorer[MCResult | LLResult]):
    """Scores choices and continuations by their log-likelihoods."""

    output_types = (CHOICE, LIKELIHOOD)
    score_instances = _score_by_hooks


class PerplexityScorer(Scorer[LLResult]):
    """Scores whole texts by their log-likelihood."""

    output_types = (ROLLING,)
    score_instances = _score_by_hooks


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

    def score_instances(self, instances: Sequence[Instance], filter_name: str) -> Scores:
        result = Results.create(instances, filter_name)
        answers = result.results[filter_name]
        return dict(self.process_results_fn(result.doc, answers if len(instances) > 1 else [answers]) or {})


def shown(
    document: AnsweredSample, answers: Mapping[str, Answers], reading: ResultBuilder, task: str
) -> list[Instance]:
    """The instances of a document: one for each of its requests, with what every filter left of its responses."""
    sample, responses = document.sample, document.responses
    target = reading.target(sample, next(iter(answers.values())))
    is_lone = isinstance(target, list) and len(target) == 1 and reading.output_type == GENERATE
    step = max(1, len(sample.requests) // max(1, len(responses)))
    return [
        Instance(
            doc=sample.doc,
            doc_id=sample.doc_id,
            args=arguments(request),
            target=target[0] if is_lone else target,
            idx=number,
            resps=responses[number],
            filtered_resps={name: filtered[number] for name, filtered in answers.items()},
            task_name=task,
            request_type=reading.output_type,
            choices=tuple(sample.choices or ()),
        )
        for number, request in enumerate(sample.requests[::step])
    ]
