"""The one scoring loop: for filter, for document, create the result, for metric, compute."""

import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from assay.records import Failed, FilterScores, Likelihood, Request, Response, Rolling, Text
from assay.scorers.instance import Instance
from assay.scorers.metrics import Metric
from assay.scorers.results import Reading, Result
from assay.scorers.scorer import Document as Document
from assay.scorers.scorer import ProcessResultsScorer, Scorer, shown
from assay.scorers.values import Repeated, Rules, usable
from assay.user_code import call_user_code
from assay.writable import HALF, is_writable

TIME_LIMIT = 10.0
"""Seconds that the filters and metrics of one document may take: patterns of users can run without end."""


_NO_REPEATS: Mapping[str, Sequence[Any]] = MappingProxyType({})


class Filter(Protocol):
    """What the loop needs of a filter."""

    @property
    def name(self) -> str: ...
    @property
    def is_batch(self) -> bool: ...
    def apply(self, responses: Sequence[list[Any]], doc: Mapping[str, Any]) -> list[Any]: ...
    def apply_batch(self, responses: Sequence[list[Any]], docs: Sequence[Mapping[str, Any]]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Scoring:
    """How a task is scored: its filters, each with the scorer that looks at what it leaves."""

    pipelines: Sequence[tuple[Filter, Scorer]]
    reading: Reading
    task: str = ""
    rules: Rules | None = None
    """What is asked of scores; None where somebody else asks."""

    @property
    def is_batch(self) -> bool:
        return any(pipeline.is_batch or scorer.is_batch for pipeline, scorer in self.pipelines)

    @property
    def metrics(self) -> list[Metric]:
        return [metric for pipeline, scorer in self.pipelines for metric in scorer.get_metrics(pipeline.name)]

    @property
    def parents(self) -> dict[str, str]:
        """Values that came in a mapping, by name: the metric that gave them. Known when documents have been scored."""
        return {name: parent for _, scorer in self.pipelines for name, parent in scorer.parents.items()}

    def score(self, documents: Sequence[Document]) -> list[list[FilterScores] | Failed]:
        """The scores of documents, filter by filter; or why one has none. Failure is told apart from every score."""
        if self.asks:  # each scorer takes its own verdicts, in the order of filters
            documents = [document._replace(verdicts=iter(document.verdicts)) for document in documents]
        if not self.is_batch:
            return [guarded(self._score_one, document) for document in documents]
        documents = [document._replace(verdicts=iter(document.verdicts)) for document in documents]
        by_filter = [self._answers(pipeline, documents) for pipeline, _ in self.pipelines]
        answers = list(zip(*by_filter, strict=True))
        scored: list[list[FilterScores] | Failed] = [[] for _ in documents]
        for number, (pipeline, scorer) in enumerate(self.pipelines):
            found = self._score_all(pipeline.name, scorer, documents, by_filter[number], answers)
            for at, made in enumerate(found):
                already = scored[at]
                if isinstance(already, Failed):
                    continue
                if isinstance(made, Failed):
                    scored[at] = made
                else:
                    already.append(made)
        return scored

    def questions(self, document: Document) -> list[Request]:
        """What scorers ask other models about a document's answers; nothing where its answers cannot be told."""
        if not self.asks:
            return []
        found = guarded(self._questions, document)
        return [] if isinstance(found, Failed) else found

    def _questions(self, document: Document) -> list[Request]:
        responses, doc = document.responses, document.sample.doc
        return [
            request
            for pipeline, scorer in self.pipelines
            if scorer.asks
            for request in scorer.questions(self._asked(document, pipeline.apply(responses, doc)))
        ]

    def _asked(self, document: Document, own: Any) -> Result:
        """What a scorer that asks is shown: the answers, and what they are answers to."""
        made = self.reading.result(document.sample, own)
        made.question = document.question
        return made

    @property
    def asks(self) -> bool:
        return any(scorer.asks for _, scorer in self.pipelines)

    def _score_one(self, document: Document) -> list[FilterScores]:
        responses, doc = document.responses, document.sample.doc
        answers = [pipeline.apply(responses, doc) for pipeline, _ in self.pipelines]
        return [
            self._scores(pipeline.name, scorer, document, own, answers)
            for (pipeline, scorer), own in zip(self.pipelines, answers, strict=True)
        ]

    def _scores(self, name: str, scorer: Scorer, document: Document, own: Any, answers: Sequence[Any]) -> FilterScores:
        """What a scorer makes of one document's answers: create the result, then for each metric compute."""
        sample = document.sample
        if isinstance(scorer, ProcessResultsScorer) and scorer.is_direct:
            return self._reduced(name, scorer, scorer.values(sample, own), own)
        if scorer.asks:
            result = self._asked(document, own)
            result.instances = () if scorer.is_plain else self._shown(document, answers)
            scores = scorer.scores_asked(result, name, document.verdicts)
        elif scorer.is_plain:
            result = self.reading.result(sample, own)
            result.instances = self._shown(document, answers) if scorer.computes else ()
            scores = scorer.scores(result, name)
        else:
            scores = scorer.scores_shown(self._shown(document, answers), name)
        return self._reduced(name, scorer, scores, own)

    def _reduced(self, name: str, scorer: Scorer, scores: Mapping[str, Any], own: Any) -> FilterScores:
        """One value for each row, or the reason that there is none."""
        if self.rules is not None:
            scores = usable(scores, own, name, self.rules, by_answer=scorer.by_answer(name))
        values, repeats = scores, _NO_REPEATS
        if not isinstance(scorer, ProcessResultsScorer) or Repeated in map(type, scores.values()):
            values, repeats = scorer.reduced(scores, name, own)
            if self.rules is not None:  # reductions are user code, too
                values = usable(values, (), name, self.rules)
        failed = {row: value.reason for row, value in values.items() if isinstance(value, Failed)}
        if not failed:
            return FilterScores(name, own, values, repeats)
        scored = {row: value for row, value in values.items() if row not in failed}
        return FilterScores(name, own, scored, {row: repeats[row] for row in repeats if row in scored}, failed)

    def _shown(self, document: Document, answers: Sequence[Any]) -> Sequence[Instance]:
        named = {pipeline.name: each for (pipeline, _), each in zip(self.pipelines, answers, strict=True)}
        return shown(document, named, self.reading, self.task)

    def _score_all(
        self, name: str, scorer: Scorer, documents: Sequence[Document], own: Sequence[Any], answers: Sequence[Any]
    ) -> list[FilterScores | Failed]:
        """What a scorer makes of all documents; `own` are the answers it looks at, `answers` those of every filter."""
        lost = [next((each for each in several if isinstance(each, Failed)), None) for several in answers]
        if not scorer.is_batch:
            return [
                failed or guarded(self._scores, name, scorer, document, mine, several)
                for document, mine, several, failed in zip(documents, own, answers, lost, strict=True)
            ]
        made: list[Any] = [
            failed or guarded(self.reading.result, document.sample, mine)
            for document, mine, failed in zip(documents, own, lost, strict=True)
        ]
        whole = [result for result in made if not isinstance(result, Failed)]
        seconds = TIME_LIMIT * max(1, len(documents))
        found = guarded(scorer.scores_together, whole, name, seconds=seconds)
        scores = iter([found] * len(whole) if isinstance(found, Failed) else found)
        return [
            each if isinstance(each, Failed) else self._together(name, scorer, next(scores), mine)
            for each, mine in zip(made, own, strict=True)
        ]

    def _together(self, name: str, scorer: Scorer, scores: Any, own: Any) -> FilterScores | Failed:
        return scores if isinstance(scores, Failed) else guarded(self._reduced, name, scorer, scores, own)

    def _answers(self, pipeline: Filter, documents: Sequence[Document]) -> list[Any]:
        """What a filter leaves of every document; a filter that must see them all at once, does."""
        if not pipeline.is_batch:
            return [guarded(pipeline.apply, document.responses, document.sample.doc) for document in documents]
        responses = [each for document in documents for each in document.responses]
        docs = [document.sample.doc for document in documents for _ in document.responses]
        answers = guarded(pipeline.apply_batch, responses, docs, seconds=TIME_LIMIT * max(1, len(documents)))
        if isinstance(answers, Failed):
            return [answers] * len(documents)
        parts = iter(answers)
        several = [[next(parts) for _ in document.responses] for document in documents]
        return [each if is_writable(each) else Failed(f"scoring: a filter returned {HALF}") for each in several]


def raw(request: Any, response: Response) -> Any:
    """A response as filters and helper code see it: a text, a pair of log-likelihood and greedy, or a log-likelihood."""
    if isinstance(response, Text):
        return response.text
    assert isinstance(response, Likelihood), "failures never come this far"
    return response.value if isinstance(request, Rolling) else (response.value, response.greedy)


def guarded(compute: Callable[..., Any], *arguments: Any, seconds: float = TIME_LIMIT) -> Any:
    """What a function gives, or the failure it is: filters and metrics may be anybody's code."""
    limited = _start_clock(seconds)
    try:
        return call_user_code("scoring", compute, *arguments)
    finally:
        if limited:
            signal.setitimer(signal.ITIMER_REAL, 0)


def _stop(*_: object) -> None:
    raise TimeoutError(f"a filter or metric took more than {TIME_LIMIT:.0f} s")


def _start_clock(seconds: float) -> bool:
    """Have TimeoutError raised after so many seconds: Python's pattern matcher looks for signals now and then.

    Only the main thread can be stopped so; elsewhere there is no limit.
    """
    global _handled  # to ask the system for its handler would take longer than most metrics
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        return False
    if not _handled:
        signal.signal(signal.SIGALRM, _stop)
        _handled = True
    signal.setitimer(signal.ITIMER_REAL, seconds)
    return True


_handled = False


def grouped(requests: Iterable[Any], responses: Sequence[Response], repeats: int) -> list[list[Any]]:
    """The responses of each request together: plans ask a request `repeats` times in a row."""
    values = [raw(request, response) for request, response in zip(requests, responses, strict=True)]
    return [values[start : start + repeats] for start in range(0, len(values), repeats)]
