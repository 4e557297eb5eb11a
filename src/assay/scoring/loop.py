"""The one scoring loop: for each filter and each document, make the result, then compute the rows of each part.

A step is a filter of a task with the parts that score what it leaves: metrics, a scorer's own score, a function of the task.
What classes of users define was read when the step was made (`scorer`, `tasks.task_methods`): here, nothing asks for it.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple

from assay.dialect import OURS, Dialect
from assay.errors import SelfExplanatory
from assay.records import EVERY_ROW, Answer, Answers, Failed, FilterScores, MetricValue, Request, Response
from assay.score_keys import ScoreKey
from assay.scoring import verdicts
from assay.scoring.batches import apply_batch
from assay.scoring.filters import Pipeline
from assay.scoring.reductions import MetricReductions
from assay.scoring.results import AnsweredSample, Filtered, GenResult, Reference, ResultBuilder, StepInput
from assay.scoring.scores import (
    BoundMetric,
    Repeated,
    ScoreDict,
    ScoreRules,
    by_name,
    check_scores,
    describe,
    reduce_row,
    score_name,
)
from assay.scoring.verdicts import Asks, VerdictPlan
from assay.scoring.workers import ScoreWorkers
from assay.user_code import HALF, TIME_LIMIT, call_user_code, is_writable, timed


class ScorePart(NamedTuple):
    """What computes one row of a step, or several: exactly one of `compute`, `ask` and `batch` is there."""

    name: str
    """The row; where the value is a mapping, the metric that its rows belong to. Empty where a mapping names all rows itself."""
    place: str
    """How it is called in reasons."""
    rows: Sequence[str] = ()
    """The rows that fail with it; where none is known, every row of the step does."""
    compute: Callable[[StepInput], MetricValue] | None = None
    ask: Callable[[StepInput], Asks] | None = None
    """Asks other models about a result, and returns the value."""
    batch: Callable[[Sequence[StepInput]], Sequence[MetricValue]] | None = None
    """Computes the values of all documents of a task at once."""


class ParallelMetric:
    """A metric of text whose scores take long: a run on a cluster computes them there, for all documents at the end.

    It has the shape of a scorer for worker processes: `score` takes the references and what a filter left of the answers.
    """

    def __init__(self, name: str, compute: Callable[[Any], MetricValue]) -> None:
        self.name = name
        self._compute = compute

    def score(self, reference: Reference, predictions: Answer) -> MetricValue:
        return self._compute(GenResult({}, reference, predictions))

    def __call__(self, result: GenResult) -> MetricValue:
        return self._compute(result)


@dataclass(frozen=True)
class ScoringStep:
    """One filter of a task, with all that scores the answers it leaves.

    `result` is given a document, the answers that this filter leaves, and those that every filter leaves.
    """

    filter: Pipeline
    result: Callable[[AnsweredSample, Answers, Sequence[Filtered]], StepInput]
    parts: Sequence[ScorePart]
    metrics: Sequence[BoundMetric] = ()
    scorer: Any = None
    """The scorer that the step was made of, for what it declares of rows, models and columns; None where there is none."""
    place: str = "scoring"
    """How it is called in reasons."""
    own_rows: Sequence[str] = ()
    """The rows that are known beside those of the metrics."""
    by_answer: Collection[str] = ()
    """Rows in which a list has a value for each answer, whatever their aggregation takes."""
    reduces_single: bool = True
    """Whether added rows are made of the score of one answer, too."""
    dialect: Dialect = OURS
    parents: dict[str, str] = field(default_factory=dict)
    """Of values that came in a mapping, the metric that gave them. Documents show these, so it grows while they are scored."""

    # asked for every document, and so found once

    @cached_property
    def filter_place(self) -> str:
        return f"scoring: filter {self.filter.name!r}"

    @cached_property
    def reductions(self) -> Mapping[str, MetricReductions]:
        """By metric how the scores of several answers become one."""
        return {metric.name: metric.reductions for metric in self.metrics}

    @cached_property
    def own_reductions(self) -> tuple[str, MetricReductions]:
        """Those of all other rows, with the name of the scorer, which its own added rows leave out."""
        return (self.scorer.name, self.scorer.own_reductions) if self.scorer is not None else ("", MetricReductions())

    @cached_property
    def adds_rows(self) -> bool:
        """Whether a reduction adds rows to those of the parts."""
        return any(reductions.added for reductions in (*self.reductions.values(), self.own_reductions[1]))

    @property
    def parallel(self) -> list[ParallelMetric]:
        return [part.compute for part in self.parts if isinstance(part.compute, ParallelMetric)]

    @property
    def listed_rows(self) -> list[str]:
        """The rows that results list even if every document fails."""
        of_metrics = [row for metric in self.metrics for row in (*metric.rows, *metric.reductions.added)]
        return list(dict.fromkeys([*of_metrics, *self.own_rows]))

    def lose(self, failure: Failed, own: Filtered = ()) -> FilterScores:
        """The scores of a document of which every row failed for one reason; `own` are the answers that the filter left."""
        answers = () if isinstance(own, Failed) else own
        return FilterScores(self.filter.name, answers, {}, _NO_REPEATS, {EVERY_ROW: failure.reason})


_NO_REPEATS: Mapping[str, Sequence[Any]] = MappingProxyType({})


# --- the rows of a result ----------------------------------------------------------------------------------------------


ComputeMetric = Callable[[StepInput, BoundMetric], MetricValue]
"""Computes a metric of a result, as a user's class defines it."""


def metric_parts(
    metrics: Sequence[BoundMetric],
    filter_name: str | None = None,
    compute: ComputeMetric | None = None,
) -> list[ScorePart]:
    """A part for each metric; `compute` is given where a class of the user's computes every metric in its own way."""
    of_filter = f" of filter {filter_name!r}" if filter_name is not None else ""
    return [
        ScorePart(
            metric.name,
            f"scoring: metric {metric.name!r}{of_filter}",
            metric.rows,
            metric.compute if compute is None else partial(_compute_by, compute, metric),
        )
        for metric in metrics
    ]


def _compute_by(compute: ComputeMetric, metric: BoundMetric, result: StepInput) -> MetricValue:
    return compute(result, metric)


def plan_rows(step: ScoringStep, result: StepInput) -> Generator[Sequence[Request], Sequence[Response], ScoreDict]:
    """The rows of a result by all parts of a step, one that asks included: yields what it asks."""
    scores: ScoreDict = {}
    for part in step.parts:
        if part.ask is not None:
            value = yield from verdicts.answered(part.place, part.ask, result)
        else:
            assert part.compute is not None, "a member of an ensemble scores one document at a time"
            value = call_user_code(part.place, part.compute, result)
        add_value(step, scores, part, value)
    return scores


def add_value(step: ScoringStep, scores: ScoreDict, part: ScorePart, value: MetricValue) -> None:
    """Write the value of a part down under its name; of several by name, each under its own."""
    name = part.name
    if isinstance(value, Repeated) and value and isinstance(value[0], Mapping):
        value = by_name(value, name)
    if isinstance(value, Failed):
        if not part.rows:
            raise SelfExplanatory(value.reason)
        rows: ScoreDict = dict.fromkeys(part.rows, value)
    elif not isinstance(value, Mapping):
        if not name:
            raise TypeError(f"{describe(value)} was returned, and scores by name are wanted")
        rows = {name: value}
    elif name and not value and not step.dialect.leaves_out_missing_scores:
        rows = {name: Failed(f"scoring: {name!r} returned no value: the mapping is empty")}
    else:
        rows = dict(value)
        if name:
            step.parents.update(dict.fromkeys(map(score_name, value), name))
    add_rows(scores, rows, name, step.dialect)


def add_rows(scores: ScoreDict, rows: Mapping[Any, MetricValue], source: str, dialect: Dialect) -> None:
    """Add rows; a second one of the same name fails, unless the dialect keeps the last."""
    for key, value in rows.items():
        name = score_name(key)
        if name in scores and not dialect.keeps_last_of_equal_rows:
            what = f"scoring: {source!r} returns {name!r}, which is the name of another row of this filter"
            scores[name] = Failed(f"{what} — rename one of them")
        else:
            scores[name] = value


# --- the loop ----------------------------------------------------------------------------------------------------------

GuardedCall = Callable[..., Any]
"""`call_user_code`, or the same with a clock."""
timed_call: GuardedCall = partial(timed, TIME_LIMIT)


KnownValues = Mapping[verdicts.PartNumber, MetricValue]
"""Values of parts that are known before a document is scored: computed for all documents together, or by other models."""
_NOTHING: KnownValues = MappingProxyType({})
KnownResults = dict[int, StepInput | Failed]
"""By number of a step the result of a document, or why there is none: users' classes create it once for all parts."""


@dataclass(frozen=True)
class ScoringLoop:
    """The scoring loop of a task: a step for each filter."""

    steps: Sequence[ScoringStep]
    reading: ResultBuilder
    rules: ScoreRules | None = None
    """Checks of scores; None where the caller checks them."""
    call: GuardedCall = timed_call
    """Calls the scoring of one document; without a clock where that runs no code of users."""
    workers: ScoreWorkers | None = None
    """Where the scores of parallel metrics are computed, for all documents at the end; None: here, like all others."""

    @cached_property
    def asks(self) -> bool:
        return any(part.ask is not None for step in self.steps for part in step.parts)

    @cached_property
    def waits(self) -> bool:
        """Whether documents are scored when all of them have their answers."""
        looks_at_all = any(part.batch is not None for step in self.steps for part in step.parts)
        return looks_at_all or self.workers is not None or any(step.filter.is_batch for step in self.steps)

    @property
    def metrics(self) -> list[BoundMetric]:
        return [metric for step in self.steps for metric in step.metrics]

    @property
    def listed_rows(self) -> list[ScoreKey]:
        """The rows that are known before documents are scored: where all of them fail, these have."""
        return [ScoreKey(row, step.filter.name) for step in self.steps for row in step.listed_rows]

    @property
    def parents(self) -> dict[str, str]:
        """Of values that came in a mapping, the metric that gave them. Known when documents have been scored."""
        return {row: parent for step in self.steps for row, parent in step.parents.items()}

    @cached_property
    def keeps_answers_only(self) -> bool:
        """Whether nothing is scored, as with --predict_only."""
        return all(metric.name == "bypass" for metric in self.metrics) and bool(self.metrics)

    def score(self, documents: Sequence[AnsweredSample]) -> list[list[FilterScores] | Failed]:
        """The scores of documents, filter by filter; or why one has none in any row. A failure is never a score."""
        if not self.waits:
            return [self.call("scoring", self._score, document, _NOTHING, {}) for document in documents]
        with_text = [document for document in documents if self.keeps_answers_only or not document.without_text]
        filtered = self._filter_together(with_text)
        results: list[KnownResults] = [{} for _ in filtered]
        values = self._compute_together(filtered, results)
        known = {id(document): found for document, *found in zip(with_text, filtered, values, results, strict=True)}
        return [
            self.call("scoring", self._score, *known.get(id(document), (document, _NOTHING, {})))
            for document in documents
        ]

    def _score(
        self, document: AnsweredSample, known: KnownValues, results: KnownResults
    ) -> list[FilterScores] | Failed:
        """For each filter of one document: make the result, then compute its rows. Where every row failed, the document has."""
        if document.without_text and not self.keeps_answers_only:
            return Failed(document.without_text)
        answers = [self._filter(step, document, call_user_code) for step in self.steps]
        if self.asks:
            known = {**known, **verdicts.replay(self._verdict_plan(document, answers, results), document.verdicts)}
        scores: list[FilterScores] = []
        for number, step in enumerate(self.steps):
            own = answers[number]
            rows = (
                own
                if isinstance(own, Failed)
                else call_user_code(step.place, self._rows, number, document, answers, known, results)
            )
            scores.append(step.lose(rows, own) if isinstance(rows, Failed) else rows)
        for scored in scores:
            if scored.values or not scored.failed:
                return scores
        return Failed("; ".join(dict.fromkeys(reason for scored in scores for reason in scored.failed.values())))

    def _rows(
        self,
        number: int,
        document: AnsweredSample,
        answers: Sequence[Filtered],
        known: KnownValues,
        results: KnownResults,
    ) -> FilterScores:
        """The rows of one document by one step."""
        step, own = self.steps[number], answers[number]
        result = results[number] if number in results else step.result(document, own, answers)
        if isinstance(result, Failed):
            return step.lose(result, own)
        scores: ScoreDict = {}
        for position, part in enumerate(step.parts):
            if known and (number, position) in known:
                value = known[number, position]
            else:
                value = call_user_code(part.place, part.compute, result)  # type: ignore[arg-type]  # the others are known
            if type(value) is float and part.name not in scores:  # as nearly always
                scores[part.name] = value
            else:
                add_value(step, scores, part, value)
        return self._reduce(step, scores, own)

    def _reduce(self, step: ScoringStep, scores: ScoreDict, own: Answers) -> FilterScores:
        """One value for each row, or the reason that there is none; where a row has scores of several answers, these too."""
        name, rules = step.filter.name, self.rules
        if rules is not None:
            scores = check_scores(scores, own, name, rules, step.by_answer)
        repeats = _NO_REPEATS
        if (step.adds_rows and step.reduces_single) or Repeated in map(type, scores.values()):
            repeats = {row: list(each) for row, each in scores.items() if isinstance(each, Repeated) and len(each) > 1}
            scores = reduce_rows(step, scores, own)
            if rules is not None:  # reductions are user code, too
                scores = check_scores(scores, (), name, rules)
        if Failed not in map(type, scores.values()):
            return FilterScores(name, own, scores, repeats)
        failed = {row: value.reason for row, value in scores.items() if isinstance(value, Failed)}
        values = {row: value for row, value in scores.items() if row not in failed}
        return FilterScores(name, own, values, {row: repeats[row] for row in repeats if row in values}, failed)

    # what other models are asked about an answer

    def verdict_plan(self, document: AnsweredSample) -> VerdictPlan:
        """The plan of what scorers ask other models about a document's answers; returns the values of those parts."""
        if document.without_text:
            return verdicts.together({})
        return self._verdict_plan(document, [self._filter(step, document, timed_call) for step in self.steps], {})

    def _verdict_plan(
        self, document: AnsweredSample, answers: Sequence[Filtered], results: KnownResults
    ) -> VerdictPlan:
        plans: dict[verdicts.PartNumber, Asks | Failed] = {}
        for number, step in enumerate(self.steps):
            for position, part in enumerate(step.parts):
                if part.ask is not None:
                    result = self._result(number, document, answers, results)
                    failed = isinstance(result, Failed)
                    plans[number, position] = result if failed else verdicts.answered(part.place, part.ask, result)
        return verdicts.together(plans)

    # what is computed for all documents together

    def _compute_together(
        self, documents: Sequence[AnsweredSample], results: Sequence[KnownResults]
    ) -> Sequence[KnownValues]:
        """By document the values of parts that look at all documents, or are computed elsewhere. All filters were applied."""
        values: list[dict[verdicts.PartNumber, MetricValue]] = [{} for _ in documents]
        for number, step in enumerate(self.steps):
            for position, part in enumerate(step.parts):
                batch = self._batch(part)
                if batch is None:
                    continue
                made: list[tuple[dict[verdicts.PartNumber, MetricValue], StepInput]] = []
                for document, known, known_results in zip(documents, values, results, strict=True):
                    answers = [document.filtered[each.filter.name] for each in self.steps]
                    result = self._result(number, document, answers, known_results)
                    if not isinstance(result, Failed):
                        made.append((known, result))
                scores = apply_batch(part.place, batch, [result for _, result in made])
                for (known, _), value in zip(made, scores, strict=True):
                    known[number, position] = value
        return values

    def _batch(self, part: ScorePart) -> Callable[[Sequence[StepInput]], Sequence[MetricValue]] | None:
        """How the values of all documents are computed at once, where they are."""
        metric, workers = part.compute, self.workers
        if workers is None or not isinstance(metric, ParallelMetric):
            return part.batch
        return lambda results: workers.score(metric, [(each.references, each.answer) for each in results], part.place)

    def _result(
        self, number: int, document: AnsweredSample, answers: Sequence[Filtered], results: KnownResults
    ) -> StepInput | Failed:
        """The result of a document by a step, or why there is none; made once."""
        step, own = self.steps[number], answers[number]
        if number not in results:
            failed = isinstance(own, Failed)
            results[number] = own if failed else timed_call(step.place, step.result, document, own, answers)
        return results[number]

    def _filter(self, step: ScoringStep, document: AnsweredSample, call: GuardedCall) -> Filtered:
        """The answers that a filter leaves of a document, unless it was applied before."""
        filtered = document.filtered
        if filtered and step.filter.name in filtered:
            return filtered[step.filter.name]
        answers: Filtered = call(step.filter_place, step.filter.apply, document.responses, document.sample.doc)
        return answers

    def _filter_together(self, documents: Sequence[AnsweredSample]) -> Sequence[AnsweredSample]:
        """The documents with what every filter leaves of them; a filter that must see all documents at once, does."""
        for step in self.steps:
            name = step.filter.name
            answers = self._filter_all(step, documents)
            documents = [
                document._replace(filtered={**document.filtered, name: own})
                for document, own in zip(documents, answers, strict=True)
            ]
        return documents

    def _filter_all(self, step: ScoringStep, documents: Sequence[AnsweredSample]) -> list[Filtered]:
        name, place = step.filter.name, step.filter_place
        if not step.filter.is_batch or all(name in document.filtered for document in documents):
            return [self._filter(step, document, timed_call) for document in documents]

        def answers_of(some: Sequence[AnsweredSample]) -> list[Answers]:
            responses = [list(given) for document in some for given in document.responses]  # a filter may change them
            docs = [document.sample.doc for document in some for _ in document.responses]
            parts = iter(step.filter.apply_batch(responses, docs))
            return [[next(parts) for _ in document.responses] for document in some]

        odd = Failed(f"{place} returned {HALF}")
        by_document = apply_batch(place, answers_of, documents)
        return [left if isinstance(left, Failed) or is_writable(left) else odd for left in by_document]


def reduce_rows(step: ScoringStep, scores: ScoreDict, answers: Answers) -> ScoreDict:
    """One value for each row: of several answers' the reduced one, and the rows that reductions add."""
    reduced: ScoreDict = {}
    for row, value in scores.items():
        source = step.parents.get(row, row)
        reductions = step.reductions.get(source)
        if reductions is None:
            source, reductions = step.own_reductions
        add_rows(reduced, reduce_row(source, row, value, reductions, answers), row, step.dialect)
    return reduced
