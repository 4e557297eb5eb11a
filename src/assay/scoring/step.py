"""A scoring step: one filter of a task with what scores the answers it leaves. Made once per task from a scorer's class.

`step_of` is the only place that looks at what a class defines; the loop (loop.py) walks over steps and asks nothing.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from assay.errors import SelfExplanatory
from assay.records import Failed, Request, Response
from assay.scoring.instance import Instance
from assay.scoring.metrics.lm_eval import Metric
from assay.scoring.results import Result, ResultBuilder, result_of
from assay.scoring.scorer import AnsweredSample, ProcessResultsScorer, Scorer, bound_metrics, computed, shown
from assay.user_code import call_user_code, user_code
from assay.writable import written

Rows = Mapping[str, Any]
"""By row its value, the values of several answers (`Repeated`), or the failure it is."""
Asks = Generator[Sequence[Request], Sequence[Response], Rows]
"""What is asked of other models about an answer: yields requests, is sent their responses, and returns rows."""


class Filter(Protocol):
    """The part of a filter that the loop uses."""

    @property
    def name(self) -> str: ...
    @property
    def is_batch(self) -> bool: ...
    def apply(self, responses: Sequence[list[Any]], doc: Mapping[str, Any]) -> list[Any]: ...
    def apply_batch(self, responses: Sequence[list[Any]], docs: Sequence[Mapping[str, Any]]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Unfiltered:
    """A filter that leaves the responses as they are, for answers that are filtered already."""

    name: str
    is_batch: bool = False

    def apply(self, responses: Sequence[list[Any]], doc: Mapping[str, Any]) -> list[Any]:  # noqa: ARG002
        return list(responses)

    def apply_batch(self, responses: Sequence[list[Any]], docs: Sequence[Mapping[str, Any]]) -> list[Any]:  # noqa: ARG002
        return list(responses)


@dataclass(frozen=True, slots=True)
class ScoringStep:
    """One filter and its rows: those of the metrics, and those of one of `score`, `batch` and `ask`.

    `result` is given a document, the answers that this filter leaves, and those that every filter leaves; it returns what
    metrics look at. `score` scores one document, `batch` all documents of a task at once, `ask` by asking other models.
    """

    filter: Filter
    metrics: Sequence[Metric]
    result: Callable[[AnsweredSample, Any, Sequence[Any]], Any]
    compute: Callable[[Any], dict[str, Any]]
    """The rows of the metrics."""
    score: Callable[[Any], Rows] | None = None
    batch: Callable[[Sequence[Any]], Sequence[Rows | Failed]] | None = None
    ask: Callable[[Any], Asks] | None = None
    own_rows: tuple[str, ...] = ()
    """The rows that fail where score, batch or ask fails."""
    place: str = "scoring"
    """What `score`, `batch` or `ask` is called in reasons."""
    filter_place: str = "scoring"
    """What the filter is called there."""
    sees_every_filter: bool = False
    by_answer: Collection[str] = ()
    """Rows in which a list has a value for each answer, whatever their aggregation takes."""
    reduce: Callable[[Rows, Any], tuple[dict[str, Any], Mapping[str, Sequence[Any]]]] | None = None
    """Makes one value for each row of those of several answers."""
    reduces_all: bool = True
    """Whether reductions look at every score; else at those of several answers alone."""
    add: Callable[[dict[str, Any], Rows], None] = dict.update
    """Puts the rows of score, batch or ask to those of the metrics."""

    @property
    def is_batch(self) -> bool:
        return self.filter.is_batch or self.batch is not None


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
        scorer, own = self.scorer, type(self.scorer)
        if isinstance(scorer, ProcessResultsScorer) and own.score_instances is ProcessResultsScorer.score_instances:
            return self._processed(scorer.process_results_fn)
        if isinstance(scorer, CombinedScorer):
            return self._weighed(scorer)
        if scorer.wants_instances and not scorer.asks and not scorer.is_batch:
            return self._shown()
        if scorer.asks:
            return self._computed(ask=self._asked)
        if scorer.is_batch:
            return self._computed(batch=self._together)
        has_own = scorer.has_score and not scorer.computes  # there `_compute_metrics` includes it
        return self._computed(score=scorer.own_score if has_own else None)

    def _made(self, **more: Any) -> ScoringStep:
        scorer, name = self.scorer, self.filter.name
        common: dict[str, Any] = {
            "filter": self.filter,
            "metrics": scorer.get_metrics(name),
            "place": f"scoring: {_label(scorer)}filter {name!r}",
            "filter_place": f"scoring: filter {name!r}",
            "own_rows": scorer.rows() or (scorer.name,),
            "add": lambda scores, rows: scorer._put(scores, rows, scorer.name),
            "reduce": lambda scores, answers: scorer.reduced(scores, name, answers),
        }
        return ScoringStep(**{**common, **more})

    def _computed(self, **own: Any) -> ScoringStep:
        """Rows of metrics, with those of its own."""
        scorer, metrics = self.scorer, self.scorer.get_metrics(self.filter.name)
        full = scorer.computes or scorer.wants_instances
        bound = bound_metrics(scorer, metrics, self.filter.name)
        return self._made(
            result=self._full_result if full else self._result,
            sees_every_filter=full,
            by_answer=[metric.name for metric in metrics] if scorer.computes else (),
            compute=(lambda result: scorer._compute_metrics(result, metrics))
            if scorer.computes
            else (lambda result: computed(result, bound, scorer)),
            **own,
        )

    def _shown(self) -> ScoringStep:
        """A class that wants to see a document's requests itself."""
        scorer, name = self.scorer, self.filter.name
        return self._made(
            result=lambda document, own, answers: self._instances(document, answers),  # noqa: ARG005
            compute=lambda instances: _scores(scorer.score_instances(instances, name)),
            sees_every_filter=True,
            by_answer=[metric.name for metric in scorer.get_metrics(name)] if scorer.computes else (),
        )

    def _processed(self, function: Callable[[Any, Any], Mapping[str, Any] | None]) -> ScoringStep:
        """A `process_results` function, which is handed a document and its answers."""
        return self._made(
            place=f"scoring: process_results of filter {self.filter.name!r}",
            result=lambda document, own, answers: (document.sample.doc, own),  # noqa: ARG005
            compute=lambda given: dict(function(*given) or {}),
            reduces_all=False,
        )

    def _weighed(self, scorer: "CombinedScorer") -> ScoringStep:
        """Several scorers as one: each has a step, and is given what a step is given."""
        members = [replace(self, scorer=member).step() for member in scorer.scorers]
        bound = bound_metrics(scorer, scorer.get_metrics(self.filter.name), self.filter.name)

        def compute(given: Any) -> dict[str, Any]:
            return computed(self._result(*given), bound, scorer)

        def weighed(given: Any) -> Asks:
            rows: list[Rows] = []
            for member in members:
                theirs = yield from rows_by(member, member.result(*given))
                rows.append(theirs)
            return scorer.weigh(rows, [member.metrics for member in members], lambda: compute(given))

        own: dict[str, Any] = {"ask": weighed} if scorer.asks else {"score": lambda given: finished(weighed(given))}
        return self._made(
            result=lambda *given: given,
            compute=compute,
            sees_every_filter=any(member.sees_every_filter for member in members),
            **own,
        )

    def _result(self, document: AnsweredSample, own: Any, answers: Sequence[Any]) -> Result:
        if document.instances:
            return result_of(self._instances(document, answers), self.filter.name)
        made = self.reading.result(document.sample, own)
        made.question = document.question
        return made

    def _full_result(self, document: AnsweredSample, own: Any, answers: Sequence[Any]) -> Result:
        made = self._result(document, own, answers)
        made.instances = self._instances(document, answers)
        return made

    def _instances(self, document: AnsweredSample, answers: Sequence[Any]) -> Sequence[Instance]:
        if document.instances:
            return _with_answers(document.instances, self.filters, answers)
        return shown(document, dict(zip(self.filters, answers, strict=True)), self.reading, self.task)

    def _asked(self, result: Result) -> Asks:
        value = yield from self.scorer.ask(result)
        return self.scorer.rows_of(value, result)

    def _together(self, results: Sequence[Result]) -> list[Rows | Failed]:
        values = self.scorer.together(results)
        return [
            value if isinstance(value, Failed) else self.scorer.rows_of(value, result)
            for result, value in zip(results, values, strict=True)
        ]


class CombinedScorer(Scorer):
    """A scorer made of others: `weigh` makes its rows of theirs."""

    scorers: Sequence[Scorer]

    def weigh(
        self, rows: Sequence[Rows], metrics: Sequence[Sequence[Metric]], own: Callable[[], Rows]
    ) -> dict[str, Any]:
        """The rows of the whole from those of every member, each with the metrics of its own; `own` gives those of all."""
        raise NotImplementedError


def rows_by(step: ScoringStep, result: Any) -> Asks:
    """The rows that a step makes of one result; yields what it asks."""
    scores = step.compute(result)
    if step.score is not None:
        put(step, scores, call_user_code(step.place, step.score, result))
    elif step.ask is not None:
        put(step, scores, (yield from answered(step, result)))
    return scores


def put(step: ScoringStep, scores: dict[str, Any], rows: Rows | Failed) -> None:
    """Add the step's own rows; where it failed, each of them with the reason."""
    step.add(scores, dict.fromkeys(step.own_rows, rows) if isinstance(rows, Failed) else rows)


def answered(step: ScoringStep, result: Any) -> Generator[Sequence[Request], Sequence[Response], Rows | Failed]:
    """The rows that follow from what other models answer, or why there are none: asking, or a request of it, failed."""
    assert step.ask is not None
    try:
        with user_code(step.place):
            plan, responses = step.ask(result), None
            while True:
                try:
                    requests = plan.send(responses)  # type: ignore[arg-type]  # a generator begins with None
                except StopIteration as stop:
                    rows: Rows = stop.value
                    return rows
                responses = yield requests
                lost = next((each for each in responses if isinstance(each, Failed)), None)
                if lost is not None:
                    return Failed(f"judge: {lost.reason}")
    except SelfExplanatory as error:
        return Failed(written(str(error)))


def finished(plan: Asks) -> Rows:
    """The rows of a plan that asks nothing."""
    try:
        requests = next(plan)
    except StopIteration as stop:
        rows: Rows = stop.value
        return rows
    raise ValueError(f"{len(requests)} questions were to be asked about this answer, and 0 were answered")


def with_methods(
    step: ScoringStep,
    scorer: Scorer,
    create_result: Callable[[Sequence[Instance], str], Any],
    compute_metric: Callable[[Any, Metric], Any],
) -> ScoringStep:
    """A step for instances whose result and metrics are computed by the two methods that seed 004 gives to tasks."""
    if isinstance(scorer, ProcessResultsScorer):
        return step  # a task's own function comes first
    name = step.filter.name
    bound = bound_metrics(scorer, step.metrics, name, compute_metric)

    def result(document: AnsweredSample, own: Any, answers: Sequence[Any]) -> Any:  # noqa: ARG001  # the shape of a result
        return create_result(_with_answers(document.instances, (name,), (own,)), name)

    return replace(step, result=result, compute=lambda made: computed(made, bound, scorer))


def _label(scorer: Scorer) -> str:
    """A scorer in reasons: its name, or that of its class where it has none; nothing where metrics do all."""
    kind = type(scorer)
    if kind.__module__ == Scorer.__module__:
        return ""
    return f"scorer {(scorer.name if scorer.name != Scorer.name else kind.__name__)!r} of "


def _with_answers(given: Sequence[Instance], filters: Sequence[str], answers: Sequence[Any]) -> Sequence[Instance]:
    """Instances with the answers that filters leave, where these are known."""
    if not answers:
        return given
    named = {name: each for name, each in zip(filters, answers, strict=True) if not isinstance(each, Failed)}
    return [
        replace(instance, filtered_resps={**instance.filtered_resps, **{name: named[name][number] for name in named}})
        for number, instance in enumerate(given)
    ]


def _scores(made: Result | Rows) -> dict[str, Any]:
    return dict(made.scores if isinstance(made, Result) else made)
