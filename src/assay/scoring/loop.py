"""The one scoring loop: for filter, for document, create the result, for metric, compute.

A scoring step is one filter of a task with what scores its answers. `step_of` alone reads what a scorer's class defines.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

from assay.records import (
    EVERY_ROW,
    Answer,
    Answers,
    Document,
    Failed,
    FilterScores,
    MetricValue,
)
from assay.score_keys import ScoreKey
from assay.scoring import verdicts
from assay.scoring.ahead import ParallelMetric, compute_ahead, parallel_metrics
from assay.scoring.batches import apply_batch
from assay.scoring.results import (
    BoundMetric,
    Filtered,
    GenResult,
    Instance,
    Repeated,
    Result,
    ResultBuilder,
    ScoreDict,
    ScoreRules,
    Scores,
    StepInput,
    described,
    result_of,
    score_name,
    usable,
    with_answers,
    without_lost,
)
from assay.scoring.scorer import AnsweredSample as AnsweredSample
from assay.scoring.scorer import ProcessResults, ProcessResultsScorer, Scorer, Unscored, bound_metrics, computed, shown
from assay.scoring.scorer_models import asked_in_turn
from assay.scoring.verdicts import Asks, VerdictPlan, answered
from assay.scoring.workers import ScoreWorkers
from assay.user_code import HALF, TIME_LIMIT, call_user_code, is_overridden, is_writable, place_of, timed


class CombinedScorer(Scorer[Scores]):
    """A scorer made of others: `combine` computes its rows from theirs."""

    combines = True

    scorers: Sequence[Scorer]

    def combine(
        self, rows: Sequence[Scores], metrics: Sequence[Sequence[BoundMetric]], own: Callable[[], Scores]
    ) -> ScoreDict:
        """Combine the rows of every member, each with its metrics; `own` computes those of the task's metrics."""
        raise NotImplementedError


class Filter(Protocol):
    """The part of a filter that the loop uses."""

    @property
    def name(self) -> str: ...
    @property
    def is_batch(self) -> bool: ...
    def apply(self, responses: Sequence[list[Answer]], doc: Document) -> list[Answer]: ...
    def apply_batch(self, responses: Sequence[list[Answer]], docs: Sequence[Document]) -> list[Answer]: ...


@dataclass(frozen=True, slots=True)
class Unfiltered:
    """A filter that leaves the responses as they are, for answers that are filtered already."""

    name: str
    is_batch: bool = False

    def apply(self, responses: Sequence[list[Answer]], doc: Document) -> list[Answer]:  # noqa: ARG002
        return list(responses)

    def apply_batch(self, responses: Sequence[list[Answer]], docs: Sequence[Document]) -> list[Answer]:  # noqa: ARG002
        return list(responses)


@dataclass(frozen=True, slots=True)
class ScoringStep:
    """One filter and its rows: those of the metrics, and those of one of `score`, `batch` and `ask`.

    `result` is given a document, the answers that this filter leaves, and those that every filter leaves; it returns what
    metrics look at. `score` scores one document, `batch` all documents of a task at once, `ask` by asking other models.
    """

    filter: Filter
    metrics: Sequence[BoundMetric]
    result: Callable[[AnsweredSample, Answers, Sequence[Filtered]], StepInput]
    compute: Callable[[StepInput], ScoreDict]
    """The rows of the metrics."""
    score: Callable[[StepInput], Scores] | None = None
    batch: Callable[[Sequence[StepInput]], Sequence[Scores | Failed]] | None = None
    ask: Callable[[StepInput], Asks] | None = None
    own_rows: tuple[str, ...] = ()
    """The rows that fail where score, batch or ask fails."""
    place: str = "scoring"
    """The name of `score`, `batch` or `ask` in reasons."""
    filter_place: str = "scoring"
    """The name of the filter in reasons."""
    by_answer: Collection[str] = ()
    """Rows in which a list has a value for each answer, whatever their aggregation takes."""
    reduce: Callable[[Scores, Answers], tuple[ScoreDict, Mapping[str, Sequence[MetricValue]]]] | None = None
    """Makes one value for each row of those of several answers."""
    reduces_all: bool = True
    """Whether reductions look at every score; else at those of several answers alone."""
    parallel: Sequence[ParallelMetric] = ()
    """Metrics whose scores may be computed ahead."""
    add: Callable[[ScoreDict, Scores], None] = dict.update
    """Puts the rows of score, batch or ask to those of the metrics."""

    @property
    def is_batch(self) -> bool:
        return self.filter.is_batch or self.batch is not None

    @property
    def listed_rows(self) -> list[str]:
        """The rows that are known before documents are scored."""
        named = [
            row for metric in self.metrics for row in (*(metric.gives or (metric.name,)), *metric.reductions.added)
        ]
        has_own = self.score is not None or self.batch is not None or self.ask is not None
        return [*named, *(self.own_rows if has_own or not named else ())]


def step_of(scorer: Scorer, filter_: Filter, filters: Sequence[str], reading: ResultBuilder, task: str) -> ScoringStep:
    """The step that a scorer's class describes. `filters` are the names of all filters of the task."""
    return _Adapter(scorer, filter_, filters, reading, task).step()


@dataclass(frozen=True, slots=True)
class _Adapter:
    """Reads what a scorer's class defines, once."""

    scorer: Scorer
    filter: Filter
    filters: Sequence[str]
    reading: ResultBuilder
    task: str

    def step(self) -> ScoringStep:
        scorer = self.scorer
        if isinstance(scorer, ProcessResultsScorer) and not is_overridden(
            scorer, "score_instances", ProcessResultsScorer
        ):
            return self._processed(scorer.process_results_fn)
        if isinstance(scorer, CombinedScorer):
            return self._combined(scorer)
        if scorer.calls_models:
            return self._asked_in_turn()
        if scorer.wants_instances and not scorer.asks and not scorer.is_batch:
            return self._shown()
        if scorer.asks:
            return self._computed(ask=self._asked)
        if scorer.is_batch:
            return self._computed(batch=self._together)
        has_own = scorer.has_score and not scorer.computes  # there `_compute_metrics` includes it
        return self._computed(score=scorer.own_score if has_own else None)

    def _step_with(self, **more: Any) -> ScoringStep:
        scorer, name = self.scorer, self.filter.name
        common: dict[str, Any] = {
            "filter": self.filter,
            "metrics": scorer.run_metrics(name),
            "place": self._place,
            "filter_place": f"scoring: filter {name!r}",
            "own_rows": scorer.rows() or (scorer.name,),
            "add": lambda scores, rows: scorer._put(scores, rows, scorer.name),
            "reduce": lambda scores, answers: scorer.reduced(scores, name, answers),
        }
        return ScoringStep(**{**common, **more})

    @property
    def _place(self) -> str:
        return f"scoring: {_label(self.scorer)}filter {self.filter.name!r}"

    def _computed(self, **own: Any) -> ScoringStep:
        """Rows of metrics, with those of the scorer itself."""
        scorer, metrics = self.scorer, self.scorer.run_metrics(self.filter.name)
        full = scorer.computes or scorer.wants_instances
        bound = bound_metrics(scorer, metrics, self.filter.name)
        return self._step_with(
            result=self._full_result if full else self._result,
            by_answer=[metric.name for metric in metrics] if scorer.computes else (),
            parallel=() if full else parallel_metrics(metrics),
            compute=(lambda result: scorer._compute_metrics(result, metrics))
            if scorer.computes
            else (lambda result: computed(result, bound, scorer)),
            **own,
        )

    def _shown(self) -> ScoringStep:
        """A class that wants to see a document's requests itself."""
        scorer, name = self.scorer, self.filter.name
        return self._step_with(
            result=lambda document, own, answers: self._instances(document, answers),  # noqa: ARG005
            compute=lambda instances: _scores(scorer.score_instances(instances, name)),
            by_answer=[metric.name for metric in scorer.run_metrics(name)] if scorer.computes else (),
        )

    def _asked_in_turn(self) -> ScoringStep:
        """A class whose code asks models by plain calls, wherever in it: all of its rows depend on the answers."""
        scorer = self.scorer
        own = scorer.own_score if scorer.has_score and not scorer.computes else None
        step = self._shown() if scorer.wants_instances else self._computed(score=own)
        rows = tuple(row for metric in step.metrics for row in metric.gives or (metric.name,))
        return replace(
            step,
            score=None,
            compute=lambda result: {},  # noqa: ARG005
            ask=lambda result: asked_in_turn(step.place, lambda: finished(rows_by(step, result))),
            own_rows=(*rows, *step.own_rows),
        )

    def _processed(self, function: ProcessResults) -> ScoringStep:
        """A `process_results` function, which is handed a document and its answers."""
        return self._step_with(
            place=f"scoring: process_results of filter {self.filter.name!r}",
            result=lambda document, own, answers: (document.sample.doc, own),  # noqa: ARG005
            compute=partial(self._returned, function),
            reduces_all=False,
            own_rows=(),
        )

    def _returned(self, function: ProcessResults, arguments: tuple[Document, list[Answer]]) -> ScoreDict:
        """The rows that `process_results` returns; lm-eval's tasks may return none for some documents."""
        rows = function(*arguments)
        if self.scorer.task_dialect.leaves_out_missing_scores:
            return dict(rows or {})
        declared = [metric.name for metric in self.scorer.get_metrics(self.filter.name)]
        return returned_rows(
            rows, declared, place_of(f"scoring: process_results of filter {self.filter.name!r}", function)
        )

    def _combined(self, scorer: CombinedScorer) -> ScoringStep:
        """Several scorers as one: each has a step, and is given what a step is given."""
        members = [replace(self, scorer=member).step() for member in scorer.scorers]
        bound = bound_metrics(scorer, scorer.run_metrics(self.filter.name), self.filter.name)

        def compute(arguments: StepInput) -> ScoreDict:
            return computed(self._result(*arguments), bound, scorer)

        def combined(arguments: StepInput) -> Asks:
            rows: list[Scores] = []
            for member in members:
                theirs = yield from rows_by(member, member.result(*arguments))
                rows.append(theirs)
            return scorer.combine(rows, [member.metrics for member in members], lambda: compute(arguments))

        own: dict[str, Any] = (
            {"ask": combined} if scorer.asks else {"score": lambda arguments: finished(combined(arguments))}
        )
        return self._step_with(
            result=lambda *arguments: arguments,
            compute=compute,
            **own,
        )

    def _result(self, document: AnsweredSample, own: Answers, answers: Sequence[Filtered]) -> Result:
        if document.instances:
            return result_of(self._instances(document, answers), self.filter.name)
        result = self.reading.result(document.sample, own)
        result.question = document.question
        return result

    def _full_result(self, document: AnsweredSample, own: Answers, answers: Sequence[Filtered]) -> Result:
        result = self._result(document, own, answers)
        result.instances = self._instances(document, answers)
        if isinstance(result, GenResult) and result.instances:
            result.target = result.instances[0].target  # as classes of users see it, with instances or without
        return result

    def _instances(self, document: AnsweredSample, answers: Sequence[Filtered]) -> Sequence[Instance]:
        if document.instances:
            return with_answers(document.instances, self.filters, answers)
        known = {name: each for name, each in zip(self.filters, answers, strict=True) if not isinstance(each, Failed)}
        return without_lost(shown(document, known, self.reading, self.task), self.filters, answers)

    def _asked(self, result: Result) -> Asks:
        value = yield from self.scorer.ask(result)
        return self.scorer.own_rows(value, result)

    def _together(self, results: Sequence[Result]) -> list[Scores | Failed]:
        values = self.scorer.together(results, self._place)
        return [
            value if isinstance(value, Failed) else self.scorer.own_rows(value, result)
            for result, value in zip(results, values, strict=True)
        ]


def rows_by(step: ScoringStep, result: StepInput) -> Asks:
    """The rows that a step makes of one result; yields what it asks."""
    scores = step.compute(result)
    if step.score is not None:
        put(step, scores, call_user_code(step.place, step.score, result))
    elif step.ask is not None:
        put(step, scores, (yield from answered(step.place, step.ask, result)))
    return scores


def put(step: ScoringStep, scores: ScoreDict, rows: Scores | Failed) -> None:
    """Add the step's own rows; where it failed, each of them with the reason."""
    step.add(scores, dict.fromkeys(step.own_rows, rows) if isinstance(rows, Failed) else rows)


def returned_rows(returned: MetricValue, declared: Sequence[str], place: str) -> ScoreDict:
    """The rows that a `process_results` function returned. `declared` are the metrics that the task names.

    No row at all is a failure: the document would be missing from every number, without a word.
    """
    if not isinstance(returned, Mapping):
        raise Unscored(f"{place} returned {described(returned)}, and must return values by name, as in {{'acc': 1.0}}")
    if not returned:
        raise Unscored(f"{place} returned no value")
    rows, names = dict(returned), {score_name(key) for key in returned}
    if declared and names.isdisjoint(declared):
        what = f"{place} returned {', '.join(map(repr, rows)):.80}, and none of the metrics in metric_list"
        rows |= dict.fromkeys(declared, Failed(f"{what} — use their names"))
    return rows


def finished(plan: Asks) -> Scores:
    """The rows of a plan that asks nothing."""
    try:
        requests = next(plan)
    except StopIteration as stop:
        rows: Scores = stop.value
        return rows
    raise ValueError(f"{len(requests)} questions were to be asked about this answer, and 0 were answered")


def _label(scorer: Scorer) -> str:
    """A scorer in reasons: its name; nothing where metrics do all."""
    kind = type(scorer)
    if kind.__module__ == Scorer.__module__:
        return ""
    return f"scorer {scorer.name!r} of "


def _scores(result: Result | Scores) -> ScoreDict:
    rows = result.scores if isinstance(result, Result) else result
    if not isinstance(rows, Mapping):
        raise TypeError(f"score_instances returned {described(rows)}, and must return a result, or scores by name")
    if not rows:
        raise ValueError("score_instances returned no scores")
    return dict(rows)


# --- the loop ------------------------------------------------------------------------------------------------------


_NO_REPEATS: Mapping[str, Sequence[Any]] = MappingProxyType({})
GuardedCall = Callable[..., Any]
"""`call_user_code`, or the same with a clock."""
timed_call: GuardedCall = partial(timed, TIME_LIMIT)
_NOTHING_ASKED: Mapping[int, Scores | Failed] = MappingProxyType({})


@dataclass(frozen=True)
class ScoringLoop:
    """The scoring loop of a task: a step for each filter with its scorer."""

    pipelines: Sequence[tuple[Filter, Scorer]]
    reading: ResultBuilder
    task: str = ""
    rules: ScoreRules | None = None
    """Checks of scores; None where the caller checks them."""
    steps: Sequence[ScoringStep] = ()
    """One for each filter; given by tasks that have no scorers."""
    adapt: "Callable[[ScoringLoop, ScoringStep, Scorer], ScoringStep] | None" = None
    """Changes a step: a class of the user's may create results and compute metrics itself."""
    call: GuardedCall = timed_call
    """Calls the scoring of one document; without a clock where that runs no code of users."""
    is_batch: bool = field(init=False, default=False)
    asks: bool = field(init=False, default=False)
    waits: bool = field(init=False, default=False)
    """Whether documents are scored when all of them have their answers."""
    workers: ScoreWorkers | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        names = [pipeline.name for pipeline, _ in self.pipelines]
        from_scorers = [
            step_of(scorer, pipeline, names, self.reading, self.task) for pipeline, scorer in self.pipelines
        ]
        if self.adapt is not None:
            scorers = [scorer for _, scorer in self.pipelines]
            from_scorers = [self.adapt(self, *each) for each in zip(from_scorers, scorers, strict=True)]
        steps = from_scorers or self.steps
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "is_batch", any(step.is_batch for step in steps))
        object.__setattr__(self, "asks", any(step.ask is not None for step in steps))
        object.__setattr__(self, "waits", self.is_batch)

    def work_in(self, workers: ScoreWorkers) -> None:
        """Compute the scores of parallel metrics there, for all documents at the end."""
        object.__setattr__(self, "workers", workers)
        object.__setattr__(self, "waits", True)

    @property
    def metrics(self) -> list[BoundMetric]:
        return [metric for step in self.steps for metric in step.metrics]

    @property
    def listed_rows(self) -> list[ScoreKey]:
        """The rows that are known before documents are scored: where all of them fail, these have."""
        return [ScoreKey(row, step.filter.name) for step in self.steps for row in step.listed_rows]

    @property
    def parents(self) -> dict[str, str]:
        """Values that came in a mapping, by name: the metric that gave them. Known when documents have been scored."""
        return {name: parent for _, scorer in self.pipelines for name, parent in scorer.parents.items()}

    def score(self, documents: Sequence[AnsweredSample]) -> list[list[FilterScores] | Failed]:
        """The scores of documents, filter by filter; or why one has none in any row. A failure is never a score."""
        if any([document.without_text for document in documents]) and not self._scores_nothing:  # noqa: C419  # nearly always none
            rest = [document for document in documents if not document.without_text]
            scored = iter(self.score(rest) if rest else ())
            return [Failed(each.without_text) if each.without_text else next(scored) for each in documents]
        if self.workers is not None:
            by_step = [self._answers(step, documents) for step in self.steps]
            documents = compute_ahead(self.steps, documents, by_step, self.workers)
        if self.is_batch:
            return self._score_together(documents)
        return [self.call("scoring", self._score_one, document) for document in documents]

    @property
    def _scores_nothing(self) -> bool:
        """Whether answers are only kept, as with --predict_only."""
        return all(metric.name == "bypass" for metric in self.metrics) and bool(self.metrics)

    def verdict_plan(self, document: AnsweredSample) -> VerdictPlan:
        """The plan of what scorers ask other models about a document's answers; returns the rows of those steps."""
        if document.without_text:
            return verdicts.together({})
        return self._verdict_plan(document, [self._answers(step, [document])[0] for step in self.steps])

    def _verdict_plan(self, document: AnsweredSample, answers: Sequence[Filtered]) -> VerdictPlan:
        plans: dict[int, Any] = {}
        for number, step in enumerate(self.steps):
            if step.ask is not None:
                result = _result(step, document, answers[number], answers, timed_call)
                plans[number] = result if isinstance(result, Failed) else answered(step.place, step.ask, result)
        return verdicts.together(plans)

    def _replayed(self, document: AnsweredSample, answers: Sequence[Filtered]) -> Mapping[int, Scores | Failed]:
        """The rows of the steps that ask, from what was answered."""
        numbers = [number for number, step in enumerate(self.steps) if step.ask is not None]
        return verdicts.replayed(self._verdict_plan(document, answers), document.verdicts, numbers)

    def _score_one(self, document: AnsweredSample) -> list[FilterScores] | Failed:
        """For filter, of one document, under one clock."""
        responses, doc, filtered = document.responses, document.sample.doc, document.filtered
        answers = [
            filtered[step.filter.name]
            if step.filter.name in filtered
            else call_user_code(step.filter_place, step.filter.apply, responses, doc)
            for step in self.steps
        ]
        asked = self._replayed(document, answers) if self.asks else _NOTHING_ASKED
        return _document([
            self._step(step, document, answers[number], answers, asked.get(number), call_user_code)
            for number, step in enumerate(self.steps)
        ])  # fmt: skip

    def _score_together(self, documents: Sequence[AnsweredSample]) -> list[list[FilterScores] | Failed]:
        """For filter, for document: every call has its own time limit, since there may be many documents."""
        by_step = [self._answers(step, documents) for step in self.steps]
        by_document = list(zip(*by_step, strict=True))
        asked = [
            self._replayed(document, every_answer) if self.asks else _NOTHING_ASKED
            for document, every_answer in zip(documents, by_document, strict=True)
        ]
        rows: list[list[FilterScores]] = [[] for _ in documents]
        for number, step in enumerate(self.steps):
            step_scores = (
                self._together(step, documents, by_step[number], by_document)
                if step.batch is not None
                else [
                    self._step(step, document, every_answer[number], every_answer, replies.get(number), timed_call)
                    for document, every_answer, replies in zip(documents, by_document, asked, strict=True)
                ]
            )
            for known, each in zip(rows, step_scores, strict=True):
                known.append(each)
        return [_document(each) for each in rows]

    def _step(  # what a step is given
        self, step: ScoringStep, document: AnsweredSample, own: Filtered, answers: Sequence[Filtered],
        asked: Scores | Failed | None, call: GuardedCall,
    ) -> FilterScores:  # fmt: skip
        """The rows of one step and document."""
        if type(own) is Failed:
            return without_scores(step, own, own)
        scores = call(step.place, self._rows, step, document, own, answers, asked)
        return without_scores(step, scores, own) if type(scores) is Failed else scores

    def _rows(
        self,
        step: ScoringStep,
        document: AnsweredSample,
        own: Answers,
        answers: Sequence[Filtered],
        asked: Scores | Failed | None,
    ) -> FilterScores:
        """The rows of one document: create the result, then for each metric compute."""
        result = step.result(document, own, answers)
        scores = step.compute(result)
        if step.score is not None:
            put(step, scores, call_user_code(step.place, step.score, result))
        elif asked is not None:
            put(step, scores, asked)
        return self._reduced(step, scores, own)

    def _together(
        self,
        step: ScoringStep,
        documents: Sequence[AnsweredSample],
        own: Sequence[Filtered],
        answers: Sequence[Sequence[Filtered]],
    ) -> list[FilterScores]:
        """The rows of all documents by a step that scores them at once."""
        assert step.batch is not None
        results = [
            _result(step, document, mine, every_answer, timed_call)
            for document, mine, every_answer in zip(documents, own, answers, strict=True)
        ]
        whole = [result for result in results if not isinstance(result, Failed)]
        rows = iter(apply_batch(step.place, step.batch, whole))
        pairs = [each if isinstance(each, Failed) else (each, next(rows)) for each in results]
        return [
            without_scores(step, each, mine) if isinstance(each, Failed) else self._batched(step, *each, mine)
            for each, mine in zip(pairs, own, strict=True)
        ]

    def _batched(self, step: ScoringStep, result: StepInput, rows: Scores | Failed, own: Filtered) -> FilterScores:
        def all_rows() -> FilterScores:
            scores = step.compute(result)
            put(step, scores, rows)
            return self._reduced(step, scores, own)

        scores = timed(TIME_LIMIT, step.place, all_rows)
        return without_scores(step, scores, own) if isinstance(scores, Failed) else scores

    def _reduced(self, step: ScoringStep, scores: Scores, own: Filtered) -> FilterScores:
        """One value for each row, or the reason that there is none."""
        name = step.filter.name
        if self.rules is not None:
            scores = usable(scores, own, name, self.rules, by_answer=step.by_answer)
        values, repeats = scores, _NO_REPEATS
        if step.reduce is not None and (step.reduces_all or Repeated in map(type, scores.values())):
            values, repeats = step.reduce(scores, own)
            if self.rules is not None:  # reductions are user code, too
                values = usable(values, (), name, self.rules)
        if Failed not in map(type, values.values()):
            return FilterScores(name, own, values, repeats)
        failed = {row: value.reason for row, value in values.items() if isinstance(value, Failed)}
        scored = {row: value for row, value in values.items() if row not in failed}
        return FilterScores(name, own, scored, {row: repeats[row] for row in repeats if row in scored}, failed)

    def _answers(self, step: ScoringStep, documents: Sequence[AnsweredSample]) -> list[Filtered]:
        """The answers that a filter leaves of every document; a filter that must see them all at once, does."""
        pipeline, place, name = step.filter, step.filter_place, step.filter.name
        if not pipeline.is_batch or all(name in document.filtered for document in documents):
            return [
                document.filtered[name]
                if name in document.filtered
                else timed_call(place, pipeline.apply, document.responses, document.sample.doc)
                for document in documents
            ]

        def answers_of(some: Sequence[AnsweredSample]) -> list[Answers]:
            responses = [list(each) for document in some for each in document.responses]  # a filter may change them
            docs = [document.sample.doc for document in some for _ in document.responses]
            parts = iter(pipeline.apply_batch(responses, docs))
            return [[next(parts) for _ in document.responses] for document in some]

        by_document = apply_batch(place, answers_of, documents)
        odd = Failed(f"{place} returned {HALF}")
        return [each if isinstance(each, Failed) or is_writable(each) else odd for each in by_document]


def _result(
    step: ScoringStep, document: AnsweredSample, own: Answers, answers: Sequence[Filtered], call: GuardedCall
) -> StepInput:
    """The result that a step scores, or why it cannot be made."""
    return own if isinstance(own, Failed) else call(step.place, step.result, document, own, answers)


def without_scores(step: ScoringStep, lost: Failed, own: Filtered) -> FilterScores:
    """A step that failed as a whole: every row of its filter has the reason."""
    answers = () if isinstance(own, Failed) else own
    return FilterScores(step.filter.name, answers, {}, _NO_REPEATS, {EVERY_ROW: lost.reason})


def _document(rows: list[FilterScores]) -> list[FilterScores] | Failed:
    """The rows of a document; where all of them failed, the document has."""
    for each in rows:
        if each.values or not each.failed:
            return rows
    return Failed("; ".join(dict.fromkeys(reason for each in rows for reason in each.failed.values())))
