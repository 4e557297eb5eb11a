"""The one scoring loop: for filter, for document, create the result, for metric, compute."""

import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from assay.records import Failed, FilterScores, Likelihood, Response, Rolling, Sample, Text
from assay.scorers.metrics import CHOICE, GENERATE, LIKELIHOOD, Metric, Repeated
from assay.scorers.results import GenResult, LLResult, MCResult, gold_index, is_none_of

TIME_LIMIT = 10.0
"""Seconds that the filters and metrics of one document may take: patterns of users can run without end."""


class Filter(Protocol):
    """What the loop needs of a filter."""

    @property
    def name(self) -> str: ...
    @property
    def is_batch(self) -> bool: ...
    def apply(self, responses: Sequence[list[Any]], doc: Mapping[str, Any]) -> list[Any]: ...
    def apply_batch(self, responses: Sequence[list[Any]], docs: Sequence[Mapping[str, Any]]) -> list[Any]: ...


class Document(NamedTuple):
    """A sample with its responses: for each request, one per repeat, as filters see them."""

    sample: Sample
    responses: Sequence[list[Any]]


@dataclass(frozen=True, slots=True)
class Scoring:
    """How a task is scored: its filters with their metrics, or a function of the task's own instead of metrics."""

    output_type: str
    pipelines: Sequence[tuple[Filter, Sequence[Metric]]]
    process_results: Callable[[Mapping[str, Any], list[Any]], Mapping[str, Any]] | None = None
    has_choices: bool = False
    like_lm_eval: bool = False
    parents: dict[str, str] = field(default_factory=dict)
    """Values that came in a mapping, by name: the metric that gave them. Known when documents have been scored."""
    multiple_targets: bool = False

    @property
    def is_batch(self) -> bool:
        return any(pipeline.is_batch for pipeline, _ in self.pipelines)

    def score(self, documents: Sequence[Document]) -> list[list[FilterScores] | Failed]:
        """The scores of documents, filter by filter; or why one has none. Failure is told apart from every score."""
        scored: list[list[FilterScores] | Failed] = [[] for _ in documents]
        for pipeline, metrics in self.pipelines:
            together = self._filtered_together(pipeline, documents) if pipeline.is_batch else None
            for number, document in enumerate(documents):
                already = scored[number]
                if isinstance(already, Failed):
                    continue
                answers = together[number] if isinstance(together, list) else together
                made = (
                    answers
                    if isinstance(answers, Failed)
                    else _guarded(self._score_one, pipeline, metrics, document, answers)
                )
                if isinstance(made, Failed):
                    scored[number] = made
                else:
                    already.append(made)
        return scored

    def _score_one(self, pipeline: Filter, metrics: Sequence[Metric], document: Document, answers: Any) -> FilterScores:
        sample = document.sample
        if answers is None:
            answers = pipeline.apply(document.responses, sample.doc)
        if self.process_results is not None:
            return FilterScores(pipeline.name, answers, dict(self.process_results(sample.doc, answers)))
        return FilterScores(pipeline.name, answers, *self._compute(self._create_result(sample, answers), metrics))

    def _filtered_together(self, pipeline: Filter, documents: Sequence[Document]) -> list[Any] | Failed:
        """The answers of every document, from a filter that must see them all at once."""
        responses = [each for document in documents for each in document.responses]
        docs = [document.sample.doc for document in documents for _ in document.responses]
        answers = _guarded(pipeline.apply_batch, responses, docs, seconds=TIME_LIMIT * max(1, len(documents)))
        if isinstance(answers, Failed):
            return answers
        parts = iter(answers)
        return [[next(parts) for _ in document.responses] for document in documents]

    def _compute(self, result: Any, metrics: Sequence[Metric]) -> tuple[dict[str, Any], Mapping[str, Sequence[Any]]]:
        """The value of each metric, and where it is one of several answers, the score of each."""
        values: dict[str, Any] = {}
        repeats: dict[str, Sequence[Any]] = {}
        for metric in metrics:
            value = metric.compute(result)
            if isinstance(value, Repeated):
                if len(value) > 1:
                    repeats[metric.name] = list(value)
                value = metric.reduce(value) if len(value) > 1 else value[0]
            if isinstance(value, Mapping):
                values.update(value)
                self.parents.update(dict.fromkeys(value, metric.name))
            else:
                values[metric.name] = value
        return values, repeats

    def _create_result(self, sample: Sample, answers: Sequence[Any]) -> Any:
        """What the metrics of this output type look at."""
        if self.output_type == CHOICE:
            choices = sample.choices or ()
            lls, greedy = [answer[0] for answer in answers], [answer[1] for answer in answers]
            count = len(choices)
            alone = lls[count:] if len(lls) == 2 * count else ()
            gold = gold_index(sample.gold, choices)
            if not self.like_lm_eval and is_none_of(gold, choices):
                raise ValueError(f"the right answer, {sample.gold!r:.80}, is none of the {count} choices")
            return MCResult(sample.doc, gold, choices, lls[:count], greedy[:count], alone)
        if self.output_type == GENERATE:
            return GenResult(sample.doc, self._references(sample, answers[0]), answers[0])
        if self.output_type == LIKELIHOOD:
            return LLResult(sample.doc, sample.target, answers[0][0], answers[0][1])
        return LLResult(sample.doc, sample.target, answers[0], False)

    def _references(self, sample: Sample, answer: Any) -> list[Any]:
        """The right answers, each of the type that the answer has."""
        gold = sample.gold
        if self.has_choices and sample.choices is not None and isinstance(gold, int):
            gold = sample.choices[gold]
        elif self.multiple_targets:
            return list(gold) if isinstance(gold, list | tuple) else [gold]
        one = answer[0] if isinstance(answer, list) and answer else answer
        if one is not None and type(gold) is not type(one):
            gold = type(one)(gold)
        return [gold]


def raw(request: Any, response: Response) -> Any:
    """A response as filters and helper code see it: a text, a pair of log-likelihood and greedy, or a log-likelihood."""
    if isinstance(response, Text):
        return response.text
    assert isinstance(response, Likelihood), "failures never come this far"
    return response.value if isinstance(request, Rolling) else (response.value, response.greedy)


def _guarded(compute: Callable[..., Any], *arguments: Any, seconds: float = TIME_LIMIT) -> Any:
    """What a function gives, or the failure it is: filters and metrics may be anybody's code."""
    limited = _start_clock(seconds)
    try:
        return compute(*arguments)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a document that cannot be scored is counted, and the run goes on
        fix = f" (pip install {error.name})" if isinstance(error, ModuleNotFoundError) else ""
        return Failed(f"scoring: {type(error).__name__}: {error}{fix}")
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
