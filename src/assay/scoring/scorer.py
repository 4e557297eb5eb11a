"""Scorers: from a document's answers to its scores, and scorers by name. Filtering comes before, aggregation after.

A user's scorer extends one of three things: the defaults (`default_filters`, `default_metrics`), the score of a
document (`score`), or those of all documents at once (`score_batch`). The loop around it is never written again.
"""

import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

from assay.config.task import FilterConfig, FilterStep, MetricConfig, ScorerConfig, TaskConfig
from assay.errors import ConfigError, Place, Problem, SelfExplanatory
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
    UserFunction,
    UserValue,
    arguments,
)
from assay.registry import Accepted, Table, accepted, parameter_problems
from assay.scoring.reductions import MetricReductions
from assay.scoring.results import (
    CHOICE,
    GENERATE,
    LIKELIHOOD,
    ROLLING,
    Instance,
    Metric,
    ModelRoles,
    ModelSpec,
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
    row_name,
)
from assay.scoring.workers import ScoreInput, ScorerMemo, Workers, identity_of
from assay.user_code import call_user_code

ComputeMetric = Callable[[StepInput, Metric], MetricValue]
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


Bound = tuple[str, Callable[[StepInput], MetricValue], str, tuple[str, ...]]
"""A metric by name, with how it is computed, what it is called in reasons, and its rows."""


class Unscored(SelfExplanatory, ValueError):
    """Why a document has no score, in words that are shown as they are: a small number of them, so that they can be counted."""


class Scorer:
    """Scores a document's answers with the metrics of the filter they come from."""

    name: ClassVar[str] = "score"
    """The row of what `score` gives; what it was registered as."""
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
    overwrites: bool = False
    """Whether the later of two scores of one name is taken, as in lm-eval; else neither is."""

    def __init__(self, config: TaskConfig | None = None) -> None:
        self.config = config
        self.parents: dict[str, str] = {}
        self._metrics: dict[str, Sequence[Metric]] = {}
        self._ways: dict[str, Mapping[str, MetricReductions]] = {}
        self.own_reductions = MetricReductions()
        self._adds: dict[str, bool] = {}
        self._parameters: Mapping[str, Any] = {}
        self._memory: ScorerMemo | None = None
        self._workers: Workers | None = None

    def __class_getitem__(cls, result: StepInput) -> type["Scorer"]:
        """`Scorer[GenResult]`, for readers: what a scorer makes of instances is up to it."""
        return cls

    @classmethod
    def create(cls, config: TaskConfig | None, **kwargs: UserValue) -> "Scorer":
        """The scorer of a task with the parameters that its file gives."""
        return cls(config, **kwargs)

    def made_with(self, kwargs: Params) -> None:
        """Set the parameters of the task file: cached scores depend on them."""
        self._parameters = kwargs

    def remember(self, memory: ScorerMemo) -> None:
        """Set the cache of scores that were computed before."""
        self._memory = memory

    def work_in(self, workers: Workers) -> None:
        """Set the processes to compute in."""
        self._workers = workers

    # methods that subclasses override

    def default_filters(self) -> tuple[FilterConfig, ...] | None:
        """The filters of a task that names none."""
        return None

    def default_metrics(self) -> tuple[MetricConfig, ...] | None:
        """The metrics of a task that names none; those of its output type where this is None, too."""
        return () if self.has_score or self.is_batch or self.asks else None

    def score(self, reference: Reference, predictions: list[Answer]) -> MetricValue:
        """The score of a document's answers: a number, a list with one for each answer, or several by name."""
        raise NotImplementedError

    def score_batch(self, results: Sequence[Result]) -> Sequence[MetricValue]:
        """The scores of all documents of a task, in their order; each as `score` gives it."""
        raise NotImplementedError

    def models(self) -> ModelRoles:
        """Further models it asks, by role: as `--model_role` has them, or None where the run must name one."""
        return {}

    def aggregation(self, row: str) -> str | None:  # noqa: ARG002  # asked of every scorer
        """The name of the aggregation of a row that this scorer adds; None for the mean."""
        return None

    def questions(self, result: Result) -> Sequence[Request]:
        """The requests to other models about a document's answers, where `asks` is true."""
        raise NotImplementedError

    def verdict(self, result: Result, responses: Sequence[Response]) -> MetricValue:
        """The score of a document from what they responded: as `score` gives it. What cannot be read raises an error."""
        raise NotImplementedError

    def score_instances(self, instances: Sequence[Instance], filter_name: str) -> Result | Scores:
        """Score the requests of one document by what a filter left of their responses."""
        result = self._create_result(instances, filter_name)
        result.scores = dict(self._compute_metrics(result, self.get_metrics(filter_name)))
        return result

    def get_metrics(self, filter_name: str) -> Sequence[Metric]:
        """The metrics for a filter: its own, else the task's."""
        return self._metrics.get(filter_name, ())

    def _create_result(self, instances: Sequence[Instance], filter_name: str) -> Result:
        return result_of(instances, filter_name)

    def _compute_metrics(self, result: StepInput, metrics: Sequence[Metric]) -> ScoreDict:
        scores = computed(result, bound_metrics(self, metrics), self)
        if self.has_score and not self.parallel:
            own = call_user_code(f"scoring: scorer {self.name!r}", self.own_score, result)
            lost = dict.fromkeys(self.rows() or (self.name,), own) if isinstance(own, Failed) else {}
            self._put(scores, own if not isinstance(own, Failed) else lost, self.name)
        return scores

    def _compute_metric(self, result: StepInput, metric: Metric) -> MetricValue:
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
        computes = self.computes or type(self).score_instances is not Scorer.score_instances
        return None if computes or self.has_score or self.is_batch or self.asks else ()

    def added_rows(self) -> list[str]:
        """The rows that reductions of its scores add, where those are known."""
        rows = self.rows()
        names = (self.name,) if rows is None else rows
        return [added_row(self.name, row, reduction) for row in names for reduction in self.own_reductions.added]

    @cached_property
    def has_score(self) -> bool:
        return type(self).score is not Scorer.score

    @cached_property
    def computes(self) -> bool:
        """Whether a class of the user's computes the scores, which may want to see instances, too."""
        return type(self)._compute_metrics is not Scorer._compute_metrics

    @cached_property
    def is_batch(self) -> bool:
        return self.parallel or type(self).score_batch is not Scorer.score_batch

    @cached_property
    def wants_instances(self) -> bool:
        """Whether a class of the user's makes its own result of a document's requests."""
        own = type(self)
        return own.score_instances is not Scorer.score_instances or own._create_result is not Scorer._create_result

    def bind(self, filter_name: str, metrics: Sequence[Metric]) -> None:
        """Set the metrics of a filter."""
        self._metrics[filter_name] = metrics
        self.config = _with_bound(self.config, filter_name, metrics)
        self._ways[filter_name] = {metric.name: metric.reductions for metric in metrics}
        self._adds[filter_name] = any(metric.reductions.added for metric in metrics) or bool(self.own_reductions.added)

    def own_score(self, result: Result) -> ScoreDict:
        """The rows of what `score` gives."""
        asked = [_reference(result), result.results]
        [value] = self._remembered([asked], lambda _: [self.score(*asked)])
        return self.rows_of(value, result)

    def rows_of(self, value: MetricValue, result: Result) -> ScoreDict:
        """The scorer's own score as rows: one of its name, or those that a mapping names."""
        rows: dict[str, Any] = {}
        self._note(rows, self.name, by_answer(value, result.results, self.name))
        return rows

    def together(self, results: Sequence[Result]) -> Sequence[MetricValue]:
        """The scorer's own scores of all documents: in several processes, or as it computes them itself."""
        if self.parallel:
            asked = [[_reference(result), result.results] for result in results]
            workers = self._workers or Workers([self], 1)
            return self._remembered(asked, lambda numbers: workers.score(self, [asked[number] for number in numbers]))
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
        """Everything its scores depend on beside the answers; None where that is unknown."""
        return identity_of(type(self), Scorer, self.version, self._parameters)

    @property
    def members(self) -> "Sequence[Scorer]":
        """The scorers it is made of."""
        return ()

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
        if isinstance(value, Mapping):
            self._put(scores, value, name)
            self.parents.update(dict.fromkeys(map(row_name, value), name))
        else:
            self._put(scores, {name: value}, name)

    def _put(self, scores: ScoreDict, more: Scores, source: str) -> None:
        """Add scores; a second score of the same name fails the row, unless later ones win as in lm-eval."""
        for key, value in more.items():
            name = row_name(key)
            taken = name in scores and not self.overwrites
            what = f"scoring: {source!r} returns {name!r}, which is the name of another row of this filter"
            scores[name] = Failed(f"{what} — rename one of them") if taken else value


def _with_bound(config: TaskConfig | None, filter_name: str, metrics: Sequence[Metric]) -> TaskConfig | None:
    """The configuration with metrics that can be called: scorers written as in seed 001 take theirs from there."""
    if config is None:
        return None
    bound: Any = tuple(metrics)
    if config.filter_list is None:
        return replace(config, metric_list=bound)
    entries = [replace(each, metric_list=bound) if each.name == filter_name else each for each in config.filter_list]
    return replace(config, filter_list=tuple(entries))


def models_of(roles: Iterable[ModelRoles]) -> dict[str, ModelSpec | None]:
    """The models that several scorers ask, by role: two that mean different models by one role are refused."""
    models: dict[str, Any] = {}
    for asked in roles:
        for role, model in asked.items():
            if models.get(role) not in (None, model) and model is not None:
                what = f"two scorers name different models for the role {role!r}"
                raise ConfigError([Problem(Place("scorer"), what, "give one of them another `role`")])
            models[role] = models.get(role) if model is None else model
    return models


def _reference(result: Result) -> Reference:
    """The reference of a score: the right answer, or a list of them; of choices, their text."""
    target = result.target
    choices = getattr(result, "choices", None)
    if choices is not None:
        return choices[target] if isinstance(target, int) else [choices[each] for each in target]
    return target[0] if isinstance(target, list) and len(target) == 1 else target


def bound_metrics(
    scorer: Scorer,
    metrics: Sequence[Metric],
    filter_name: str | None = None,
    compute: ComputeMetric | None = None,
) -> list[Bound]:
    """Metrics with how each is computed, what they are called in reasons, and the rows that fail with them.

    `compute` is given where a class of the user's computes every metric in its own way.
    """
    of_filter = f" of filter {filter_name!r}" if filter_name is not None else ""
    if compute is None and type(scorer)._compute_metric is not Scorer._compute_metric:
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


def _computing(compute: ComputeMetric, metric: Metric) -> Callable[[StepInput], MetricValue]:
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


class GenerationScorer(Scorer):
    """Scores generated text against references: each answer of a document with each metric."""

    output_types = (GENERATE,)


class LoglikelihoodScorer(Scorer):
    """Scores choices and continuations by their log-likelihoods."""

    output_types = (CHOICE, LIKELIHOOD)


class PerplexityScorer(Scorer):
    """Scores whole texts by their log-likelihood."""

    output_types = (ROLLING,)


class ProcessResultsScorer(Scorer):
    """Hands a document and its answers to a function of the task's own; what that returns are the scores."""

    def __init__(
        self,
        config: TaskConfig | None = None,
        process_results_fn: ProcessResults | None = None,
    ) -> None:
        super().__init__(config)
        function = process_results_fn or (config.process_results if config is not None else None)
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
    if isinstance(target, list) and len(target) == 1 and reading.output_type == GENERATE:
        target = target[0]
    step = max(1, len(sample.requests) // max(1, len(responses)))
    return [
        Instance(
            doc=sample.doc,
            doc_id=sample.doc_id,
            args=arguments(request),
            target=target,
            idx=number,
            resps=responses[number],
            filtered_resps={name: filtered[number] for name, filtered in answers.items()},
            task_name=task,
            request_type=reading.output_type,
            choices=tuple(sample.choices or ()),
        )
        for number, request in enumerate(sample.requests[::step])
    ]


S = TypeVar("S", bound=type[Scorer])


def _adopted(name: str, scorer: UserValue) -> type[Scorer]:
    if not (inspect.isclass(scorer) and issubclass(scorer, Scorer)):
        raise TypeError(f"{scorer!r:.60} must be a class derived from assay.Scorer")
    if "name" not in vars(scorer):
        scorer.name = name
    return scorer


class _Scorers(Table[type[Scorer], Scorer]):
    """Classes of scorers: the configuration of the task is supplied, whatever the parameter is called."""

    def accepts(self, member: type[Scorer] | UserFunction) -> Accepted:
        if inspect.getattr_static(member, "create") is inspect.getattr_static(Scorer, "create"):
            return accepted(member, 1)
        takes = accepted(member)  # a class that makes itself may take anything first
        return replace(takes, named={name: each for name, each in takes.named.items() if name != "config"})

    def fix_for_missing(self, name: str, key: str) -> str:  # noqa: ARG002
        return f"write `kwargs: {{{key}: …}}`"


SCORER_REGISTRY = SCORERS = _Scorers(
    "scorer",
    {
        "llm_judge": "assay.scoring.judges:LLMJudgeScorer",
        "reward_model": "assay.scoring.judges:RewardModelScorer",
        "ensemble": "assay.scoring.combined:EnsembleScorer",
        "cross_filter": "assay.scoring.combined:CrossFilterScorer",
        "first_token": "assay.scoring.scorer:FirstToken",
        "regex": "assay.scoring.scorer:Regex",
        "choice_match": "assay.scoring.scorer:ChoiceMatch",
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
    """The match of a pattern in the answer, compared without case and punctuation. Parameters are those of the filter."""

    def __init__(self, config: TaskConfig | None = None, **kwargs: UserValue) -> None:
        super().__init__(config)
        self._kwargs = kwargs

    def steps(self) -> tuple[FilterStep, ...]:
        return (FilterStep(function="regex", kwargs=self._kwargs),)


class ChoiceMatch(_Matching):
    """The answer as it is, compared without case and punctuation."""


def make_scorer(written: UserValue, config: TaskConfig | None, place: Place) -> Scorer:
    """The scorer that a task names: an unknown name, a class that does not extend Scorer, or a wrong parameter is refused."""
    kind: Any = written.type if isinstance(written, ScorerConfig) else written
    kwargs: Mapping[str, Any] = written.kwargs if isinstance(written, ScorerConfig) else {}
    if not isinstance(kind, str) and not (inspect.isclass(kind) and issubclass(kind, Scorer)):
        raise _problem(place, f"unsupported scorer {kind!r}", "name one, or a class derived from assay.Scorer")
    scorer = SCORERS.bind(kind, kwargs, place, config)
    scorer.made_with(kwargs)
    named = kind if isinstance(kind, str) else kind.__name__
    if scorer.has_score:
        wrong = parameter_problems(scorer.score, {}, f"`score` of scorer {named!r}", place, 2)
        if wrong:
            raise ConfigError([replace(each, fix="write `def score(self, reference, predictions)`") for each in wrong])
    if scorer.asks and scorer.is_batch:
        what = f"scorer {named!r} asks other models and scores all documents at once"
        raise _problem(place, what, "let it do one of the two")
    if config is not None and config.output_type not in scorer.output_types:
        what = f"scorer {named!r} does not score {config.output_type}"
        raise _problem(place, what, f"it scores {', '.join(scorer.output_types)}")
    return scorer


def _problem(place: Place, what: str, fix: str) -> ConfigError:
    return ConfigError([Problem(place, what, fix)])
