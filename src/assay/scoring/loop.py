"""The one scoring loop: for filter, for document, create the result, for metric, compute."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any

from assay.records import EVERY_ROW, Failed, FilterScores, Likelihood, Request, Response, Rolling, Text
from assay.scoring.clock import TIME_LIMIT, timed
from assay.scoring.metrics.lm_eval import Metric
from assay.scoring.results import ResultBuilder
from assay.scoring.scorer import AnsweredSample as AnsweredSample
from assay.scoring.scorer import Scorer
from assay.scoring.step import Filter, Rows, ScoringStep, answered, put, step_of
from assay.scoring.values import Repeated, ScoreRules, usable
from assay.user_code import call_user_code
from assay.writable import HALF, is_writable

_NO_REPEATS: Mapping[str, Sequence[Any]] = MappingProxyType({})
Asking = Generator[Sequence[Request], Sequence[Response], dict[int, Rows | Failed]]
"""What the steps of a task ask; returns their rows by the number of the step."""
Call = Callable[..., Any]
"""`call_user_code`, or the same with a clock."""
_timed: Call = partial(timed, TIME_LIMIT)
_NOTHING_ASKED: Mapping[int, Rows | Failed] = MappingProxyType({})


@dataclass(frozen=True)
class ScoringLoop:
    """How a task is scored: its filters, each with the scorer that looks at what it leaves, as steps."""

    pipelines: Sequence[tuple[Filter, Scorer]]
    reading: ResultBuilder
    task: str = ""
    rules: ScoreRules | None = None
    """What is asked of scores; None where somebody else asks."""
    steps: Sequence[ScoringStep] = ()
    """One for each filter; given by tasks that have no scorers."""
    is_batch: bool = field(init=False, default=False)
    asks: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        names = [pipeline.name for pipeline, _ in self.pipelines]
        made = [step_of(scorer, pipeline, names, self.reading, self.task) for pipeline, scorer in self.pipelines]
        steps = made or self.steps
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "is_batch", any(step.is_batch for step in steps))
        object.__setattr__(self, "asks", any(step.ask is not None for step in steps))

    @property
    def metrics(self) -> list[Metric]:
        return [metric for step in self.steps for metric in step.metrics]

    @property
    def parents(self) -> dict[str, str]:
        """Values that came in a mapping, by name: the metric that gave them. Known when documents have been scored."""
        return {name: parent for _, scorer in self.pipelines for name, parent in scorer.parents.items()}

    def score(self, documents: Sequence[AnsweredSample]) -> list[list[FilterScores] | Failed]:
        """The scores of documents, filter by filter; or why one has none in any row. A failure is never a score."""
        if self.is_batch:
            return self._score_together(documents)
        return [timed(TIME_LIMIT, "scoring", self._score_one, document) for document in documents]

    def asking(self, document: AnsweredSample) -> Asking:
        """What scorers ask other models about a document's answers, round by round; returns the rows of those steps."""
        return self._asking(document, [self._answers(step, [document])[0] for step in self.steps])

    def _asking(self, document: AnsweredSample, answers: Sequence[Any]) -> Asking:
        found: dict[int, Rows | Failed] = {}
        plans: dict[int, Any] = {}
        for number, step in enumerate(self.steps):
            if step.ask is not None:
                result = _result(step, document, answers[number], answers, call_user_code)
                if isinstance(result, Failed):
                    found[number] = result
                else:
                    plans[number] = answered(step, result)
        sent: dict[int, Sequence[Response] | None] = dict.fromkeys(plans)
        while sent:
            requests: dict[int, Sequence[Request]] = {}
            for number, responses in sent.items():
                try:
                    requests[number] = plans[number].send(responses)
                except StopIteration as stop:
                    found[number] = stop.value
            together = [request for several in requests.values() for request in several]
            replies = iter((yield together) if together else ())
            sent = {number: list(islice(replies, len(several))) for number, several in requests.items()}
        return found

    def _replayed(self, document: AnsweredSample, answers: Sequence[Any]) -> Mapping[int, Rows | Failed]:
        """The rows of the steps that ask, from what was answered."""
        replies, plan = iter(document.verdicts), self._asking(document, answers)
        try:
            requests = next(plan)
            while True:
                responses = list(islice(replies, len(requests)))
                if len(responses) != len(requests):
                    what = f"{len(requests)} questions were to be asked about this answer, and {len(responses)} were answered"
                    lost = Failed(f"scoring: ValueError: {what}")
                    return {number: lost for number, step in enumerate(self.steps) if step.ask is not None}
                requests = plan.send(responses)
        except StopIteration as stop:
            rows: dict[int, Rows | Failed] = stop.value
            return rows

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
        """For filter, for document: every call has a clock of its own, since there may be many documents."""
        by_step = [self._answers(step, documents) for step in self.steps]
        by_document = list(zip(*by_step, strict=True))
        asked = [
            self._replayed(document, several) if self.asks else _NOTHING_ASKED
            for document, several in zip(documents, by_document, strict=True)
        ]
        rows: list[list[FilterScores]] = [[] for _ in documents]
        for number, step in enumerate(self.steps):
            found = (
                self._together(step, documents, by_step[number], by_document)
                if step.batch is not None
                else [
                    self._step(step, document, several[number], several, replies.get(number), _timed)
                    for document, several, replies in zip(documents, by_document, asked, strict=True)
                ]
            )
            for known, each in zip(rows, found, strict=True):
                known.append(each)
        return [_document(each) for each in rows]

    def _step(  # what a step is given
        self, step: ScoringStep, document: AnsweredSample, own: Any, answers: Sequence[Any], asked: Rows | Failed | None, call: Call
    ) -> FilterScores:  # fmt: skip
        """The rows of one step and document."""
        if step.sees_every_filter or type(own) is Failed:
            lost = _lost(step, own, answers)
            if lost is not None:
                return without_scores(step, lost, own)
        made = call(step.place, self._rows, step, document, own, answers, asked)
        return without_scores(step, made, own) if type(made) is Failed else made

    def _rows(
        self, step: ScoringStep, document: AnsweredSample, own: Any, answers: Sequence[Any], asked: Rows | Failed | None
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
        own: Sequence[Any],
        answers: Sequence[Sequence[Any]],
    ) -> list[FilterScores]:
        """The rows of all documents by a step that scores them at once."""
        assert step.batch is not None
        results = [
            _result(step, document, mine, several, _timed)
            for document, mine, several in zip(documents, own, answers, strict=True)
        ]
        whole = [result for result in results if not isinstance(result, Failed)]
        given = timed(TIME_LIMIT * max(1, len(documents)), step.place, step.batch, whole)
        rows = iter([given] * len(whole) if isinstance(given, Failed) else given)
        made = [each if isinstance(each, Failed) else (each, next(rows)) for each in results]
        return [
            without_scores(step, each, mine) if isinstance(each, Failed) else self._batched(step, *each, mine)
            for each, mine in zip(made, own, strict=True)
        ]

    def _batched(self, step: ScoringStep, result: Any, rows: Rows | Failed, own: Any) -> FilterScores:
        def all_rows() -> FilterScores:
            scores = step.compute(result)
            put(step, scores, rows)
            return self._reduced(step, scores, own)

        made = timed(TIME_LIMIT, step.place, all_rows)
        return without_scores(step, made, own) if isinstance(made, Failed) else made

    def _reduced(self, step: ScoringStep, scores: Mapping[str, Any], own: Any) -> FilterScores:
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

    def _answers(self, step: ScoringStep, documents: Sequence[AnsweredSample]) -> list[Any]:
        """The answers that a filter leaves of every document; a filter that must see them all at once, does."""
        pipeline, place, name = step.filter, step.filter_place, step.filter.name
        if not pipeline.is_batch:
            return [
                document.filtered[name]
                if name in document.filtered
                else _timed(place, pipeline.apply, document.responses, document.sample.doc)
                for document in documents
            ]
        responses = [each for document in documents for each in document.responses]
        docs = [document.sample.doc for document in documents for _ in document.responses]
        answers = timed(TIME_LIMIT * max(1, len(documents)), place, pipeline.apply_batch, responses, docs)
        if isinstance(answers, Failed):
            return [answers] * len(documents)
        parts = iter(answers)
        several = [[next(parts) for _ in document.responses] for document in documents]
        return [each if is_writable(each) else Failed(f"{place} returned {HALF}") for each in several]


def _result(step: ScoringStep, document: AnsweredSample, own: Any, answers: Sequence[Any], call: Call) -> Any:
    """What a step looks at, or why it cannot be made."""
    return _lost(step, own, answers) or call(step.place, step.result, document, own, answers)


def _lost(step: ScoringStep, own: Any, answers: Sequence[Any]) -> Failed | None:
    """Why a step cannot look at a document: its filter failed, or another one that it looks at."""
    if isinstance(own, Failed):
        return own
    if step.sees_every_filter:
        return next((each for each in answers if isinstance(each, Failed)), None)
    return None


def without_scores(step: ScoringStep, lost: Failed, own: Any) -> FilterScores:
    """A step that failed as a whole: every row of its filter has the reason."""
    answers = () if isinstance(own, Failed) else own
    return FilterScores(step.filter.name, answers, {}, _NO_REPEATS, {EVERY_ROW: lost.reason})


def _document(rows: list[FilterScores]) -> list[FilterScores] | Failed:
    """The rows of a document; where all of them failed, the document has."""
    for each in rows:
        if each.values or not each.failed:
            return rows
    return Failed("; ".join(dict.fromkeys(reason for each in rows for reason in each.failed.values())))


def raw(request: Any, response: Response) -> Any:
    """A response as filters and helper code see it: a text, a pair of log-likelihood and greedy, or a log-likelihood."""
    if isinstance(response, Text):
        return response.text
    assert isinstance(response, Likelihood), "failures never come this far"
    return response.value if isinstance(request, Rolling) else (response.value, response.greedy)


def grouped(requests: Iterable[Any], responses: Sequence[Response], repeats: int) -> list[list[Any]]:
    """The responses of each request together: plans ask a request `repeats` times in a row."""
    values = [raw(request, response) for request, response in zip(requests, responses, strict=True)]
    return [values[start : start + repeats] for start in range(0, len(values), repeats)]
