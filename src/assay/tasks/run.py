"""One task during a run: samples go out, responses come back, scores are noted in the order of the documents."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, starmap
from typing import Protocol

from assay.engine import Ended, Started
from assay.engine.calls import IN_DOUBT
from assay.engine.counts import FIRST_REQUESTS
from assay.records import (
    NOTHING_MORE,
    UNFINISHED,
    USUAL_FINISHES,
    Answer,
    Call,
    Failed,
    FilterScores,
    JSONDict,
    JSONObject,
    Likelihood,
    Outcome,
    Plan,
    Request,
    Response,
    Sample,
    Text,
    arguments,
)
from assay.runs.samples.records import SampleRecord
from assay.scoring.filters import INVALID, marks_in
from assay.scoring.filters import UNFINISHED as UNFINISHED_MARK
from assay.scoring.metrics.registry import READ_EVERY_LIKELIHOOD
from assay.scoring.results import AnsweredSample, raw
from assay.statistics.board import Board
from assay.tasks.audit import Audit, kinds_of
from assay.tasks.runnable import Runnable
from assay.tasks.settings import preserved_random

TRUNCATED = "cut off at the token limit"
UNFINISHED_THINKING = "unfinished thinking"
ODD_END = "with an unknown finish reason, or none"
BOUNDED = "with a choice of which only an upper bound is known"
UNKNOWN_LIKELIHOOD = (
    "a log-likelihood is not known: its text is not among the most likely next tokens that the server reports"
)
SHORTENED = "to a prompt that lost its beginning"
FEWER_EXAMPLES = "to a prompt with fewer examples"
MARKS = {INVALID: "no match", UNFINISHED_MARK: UNFINISHED_THINKING}
ResponseDetails = Sequence[Mapping[str, object]] | None
Keep = Callable[[SampleRecord], object]


class OnDocument(Protocol):
    """Called with each document whose requests were answered: why it failed, if it did, and whether it has no score at all."""

    def __call__(self, task: str, reason: str, *, is_lost: bool) -> None: ...


@dataclass
class TaskRun:
    """A task at work. `keep` is handed every sample when it is done, in order; `ended` is called after the last.

    Plans end in any order; what ends early waits, so that sums and files come out the same every time. A task whose
    filters must see all documents at once is scored when all have ended.
    """

    runnable: Runnable
    keep: Keep | None = None
    ended: Callable[[], None] | None = None
    on_document: OnDocument | None = None
    board: Board = field(default_factory=Board)
    audit: Audit = field(default_factory=Audit)
    differ: bool = False
    """Whether two answers to one request differ."""
    _is_tried: bool = False
    _has_scores: bool = False
    """Whether a document has all its scores: from then on, only documents that fail are reported."""
    _next: int = 0
    _waiting: dict[int, tuple[Sample, Sequence[Response]]] = field(default_factory=dict)
    _together: list[tuple[AnsweredSample, ResponseDetails, str]] = field(default_factory=list)
    _known_directions: tuple[int, Mapping[str, bool | None]] | None = None
    _bounded: set[int] = field(default_factory=set)
    """Documents with a choice of which only an upper bound is known."""

    def samples(self) -> Iterator[Sample]:
        """The samples to ask about."""
        return self.runnable.samples()

    def end(self, number: int, sample: Sample, responses: Sequence[Response]) -> None:
        """Take the responses to a sample."""
        self._waiting[number] = (sample, responses)
        while self._next in self._waiting:
            self._take(*self._waiting.pop(self._next))
            self._next += 1
        if self._next == self.runnable.facts.size:
            self.finish()

    def finish(self) -> None:
        """Score what could only be scored together, and say that this task is done.

        In a run that ended early some documents have no answer: those behind them are taken all the same.
        """
        for number in sorted(self._waiting):
            self._take(*self._waiting.pop(number))
        if self._together:
            scored = iter(self.runnable.score([document for document, _, failure in self._together if not failure]))
            for document, details, failure in self._together:
                if failure:
                    self._fail(document.sample, failure, document.responses, details)
                else:
                    self._note(document, next(scored), details)
            self._together = []
        if self.ended is not None:
            self.ended()
            self.ended = None

    def _take(self, sample: Sample, responses: Sequence[Response]) -> None:
        """Score a sample and note its scores; or that it failed."""
        runnable, details, has_failure = self.runnable, None, False
        self.board.documents += 1
        if not are_plain(responses) or sample.problem or sample.dropped:
            own = len(sample.requests) or len(responses)  # a graph's are all its own
            details = response_metadata(responses, own)
            if self._has_failed(sample, responses, own, details):
                return
            self._notice(sample, responses[:own])
            if details is not None and len(responses) > own:
                details = with_questions(details, own, _further_requests(runnable.plan(sample), responses))
            has_failure = any(isinstance(response, Failed) for response in responses)
        document = runnable.document(sample, responses)
        if runnable.facts.repeats > 1 and not self.differ:
            self.differ = any(answer != repeats[0] for repeats in document.responses for answer in repeats)
        if runnable.is_batch:
            self._together.append((document, details, ""))
            self._try_together()
            return
        [scores] = runnable.score([document])
        if not has_failure:
            self._report_scores(scores)
        self._note(document, scores, details)

    def _has_failed(self, sample: Sample, responses: Sequence[Response], own: int, details: ResponseDetails) -> bool:
        """Whether a sample cannot be scored: then it is noted as failed."""
        failure = next((response for response in responses[:own] if isinstance(response, Failed)), None)
        end = responses[-1] if responses else None
        failed = end.failed if isinstance(end, Outcome) else unknown_choice(sample, responses[:own])
        reason = failure.reason if failure is not None else sample.problem or failed
        if not reason and failure is None:
            return False
        if self.runnable.is_batch:
            self._together.append((AnsweredSample(sample, ()), details, reason))
        elif isinstance(end, Outcome):
            if failure is None and IN_DOUBT not in reason:
                self._report(reason, is_lost=True)
            self._fail(sample._replace(requests=end.asked), reason, _answers(end.asked, responses), details)
        else:
            self._fail(sample, reason, (), details)
        return True

    def _try_together(self) -> None:
        """Score the first documents of a task whose filters must see all of them, to find out early that its code fails."""
        if self.on_document is None or self._is_tried or len(self._together) < FIRST_REQUESTS:
            return
        if any(
            scorer.parallel for scorer in self.runnable.facts.scorers
        ):  # slow by declaration: nothing is scored twice
            self._is_tried = True
            return
        first = [document for document, _, failure in self._together if not failure]
        if len(first) < FIRST_REQUESTS or len(self._together) == self.runnable.facts.size:
            return
        self._is_tried = True
        with preserved_random():
            for scores in self.runnable.score(first):
                if isinstance(scores, Failed) or not any(each.values for each in scores):
                    self._report_scores(scores)

    def _report_scores(self, scores: list[FilterScores] | Failed) -> None:
        """Report a document that failed, as a whole or in some rows; and the first one that did not."""
        if isinstance(scores, Failed):
            self._report(scores.reason, is_lost=True)
            return
        for filtered in scores:
            if filtered.failed:
                reason = next(iter(filtered.failed.values()))
                self._report(reason, is_lost=not any(filtered.values for filtered in scores))
                return
        if not self._has_scores:
            self._has_scores = True
            self._report("", is_lost=False)

    def _report(self, reason: str, *, is_lost: bool) -> None:
        if self.on_document is not None:
            self.on_document(self.runnable.task.name, reason, is_lost=is_lost)

    def _note(self, document: AnsweredSample, scores: list[FilterScores] | Failed, details: ResponseDetails) -> None:
        if isinstance(scores, Failed):
            self._fail(document.sample, scores.reason, document.responses, details)
            return
        column = self.runnable.facts.cluster_column
        if column is not None:
            self.board.put_together(document.sample.doc_id, document.sample.doc.get(column))
        if document.sample.doc_id in self._bounded:
            scores = [without_bounds(filtered) for filtered in scores]
        has_failures = False
        for filtered in scores:
            self.board.add(document.sample.doc_id, filtered)
            has_failures = has_failures or bool(filtered.failed)
            marks = marks_in(filtered.answers, MARKS)
            for mark in MARKS if marks else ():
                if mark in marks:
                    self.board.noticed[f"{MARKS[mark]} by filter {filtered.filter}"] += 1
        reason = self.board.fail_rows(scores) if has_failures else ""
        self._put(
            SampleRecord(document.sample, document.responses, scores, self.runnable.facts.repeats, reason, details)
        )

    def _put(self, kept: SampleRecord) -> None:
        """Hand a sample that is done over, with what is worth a look about it."""
        kinds = kinds_of(kept, self._directions)
        if kinds:
            self.audit.note(kept.sample.doc_id, kinds)
            kept = kept._replace(audit=kinds)
        if self.keep is not None:
            self.keep(kept)

    def _directions(self) -> Mapping[str, bool | None]:
        """Which metrics are better when higher: asked again where documents have brought names of rows."""
        rows = len(self.runnable.parents)
        if self._known_directions is None or self._known_directions[0] != rows:
            self._known_directions = rows, self.runnable.higher_is_better()
        return self._known_directions[1]

    def _notice(self, sample: Sample, responses: Sequence[Response]) -> None:
        """Count what is worth telling about answers beside their scores: documents, however many of their answers it is."""
        kinds = {FEWER_EXAMPLES} if sample.dropped else set()
        for response in responses:
            if isinstance(response, Text):
                kinds |= _kinds_of_text(response)
            elif isinstance(response, Likelihood) and response.is_bound:
                kinds.add(BOUNDED)
                self._bounded.add(sample.doc_id)
            if isinstance(response, Outcome) and response.noticed:
                kinds |= {kind for kind, count in response.noticed.items() if count}
            if not isinstance(response, Failed) and response.usage is not None and response.usage.cut:
                kinds.add(SHORTENED)
        if kinds:
            self.board.noticed.update(kinds)

    def _fail(
        self, sample: Sample, reason: str, responses: Sequence[Sequence[object]] = (), details: ResponseDetails = None
    ) -> None:
        self.board.fail(reason)
        self._put(SampleRecord(sample, responses, (), self.runnable.facts.repeats, reason, details))


def _kinds_of_text(text: Text) -> set[str]:
    """What is worth telling about a text."""
    kinds: set[str] = set()
    if text.finish == "length":
        kinds.add(TRUNCATED)
    elif text.finish and text.finish not in USUAL_FINISHES:
        kinds.add(ODD_END)
    if text.finish == UNFINISHED:
        kinds.add(UNFINISHED_THINKING)
    elif not text.text.strip() and not text.calls:
        kinds.add("empty")
    return kinds


def unknown_choice(sample: Sample, responses: Sequence[Response]) -> str:
    """Why the likeliest choice is not known: it may be one with only an upper bound. Empty where it is known."""
    likelihoods = [response for response in responses if type(response) is Likelihood]
    if not any(likelihood.is_bound for likelihood in likelihoods):
        return ""
    choices = sample.choices or ()
    if not choices or len(choices) > len(likelihoods) or any(each.is_bound for each in likelihoods[len(choices) :]):
        return UNKNOWN_LIKELIHOOD
    for sizes in ([1] * len(choices), [len(text) for text in choices], [len(text.encode()) for text in choices]):
        values = [each.value / max(size, 1) for each, size in zip(likelihoods, sizes, strict=False)]
        best = max(values)
        if any(value == best and each.is_bound for value, each in zip(values, likelihoods, strict=False)):
            return (
                "the likeliest choice is not known: it may be one that is not among the most likely next tokens that the server"
                " reports; likelihoods=generated needs choices of one token"
            )
    return ""


def without_bounds(scores: FilterScores) -> FilterScores:
    """The scores of a document with a choice of which only an upper bound is known: its most likely choice is, too, and what
    metrics make of every log-likelihood is not."""
    unknown = {metric for metric in scores.values if metric in READ_EVERY_LIKELIHOOD}
    return scores._replace(
        values={metric: value for metric, value in scores.values.items() if metric not in unknown},
        repeats={metric: values for metric, values in scores.repeats.items() if metric not in unknown},
        failed={**scores.failed, **dict.fromkeys(unknown, UNKNOWN_LIKELIHOOD)},
    )


FIRST_DOCUMENTS = 8
"""Number of documents of a task that are asked before those of other tasks, to learn how long they take."""


def plans_of(runs: Sequence[TaskRun], early: Sequence[TaskRun] = ()) -> Iterator[Started]:
    """Return the plans of all samples of all tasks, for the engine; the first of the `early` tasks before all others."""
    begun = {id(run): enumerate(run.samples()) for run in early}
    first = (starmap(starter(run), islice(begun[id(run)], FIRST_DOCUMENTS)) for run in early)
    others = (starmap(starter(run), begun.get(id(run)) or enumerate(run.samples())) for run in runs)
    return chain.from_iterable(chain(first, others))  # no generator: it would be resumed for every document


def starter(run: TaskRun) -> Callable[[int, Sample], Started]:
    """A function that starts the plan of a task's n-th sample."""
    plan, name, is_kept = run.runnable.plan, run.runnable.task.name, run.runnable.facts.keeps_records
    encoded = name.encode()

    def start(number: int, sample: Sample) -> Started:
        return Started((run, number, sample), b"%s\0%d" % (encoded, sample.doc_id), plan(sample), name, is_kept)

    return start


def end_plan(ended: Ended) -> None:
    """Hand the responses of a plan to its task."""
    run, number, sample = ended.what
    run.end(number, sample, ended.responses)


def _answers(requests: Sequence[Request], responses: Sequence[Response]) -> list[list[Answer | None]]:
    """The answers to the requests of a record that failed; the one that has none is None."""
    pairs = zip(requests, responses, strict=False)
    return [[None if isinstance(response, Failed) else raw(request, response)] for request, response in pairs]


def are_plain(responses: Sequence[Response]) -> bool:
    """Whether responses are log-likelihoods with nothing more to tell about them, as most of all there are."""
    for response in responses:  # noqa: SIM110  # a generator takes twice as long, for every document
        if type(response) is not Likelihood or response[2:] != NOTHING_MORE:
            return False
    return True


def response_metadata(responses: Sequence[Response], own: int) -> Sequence[JSONObject] | None:
    """Return the metadata of responses beside their texts and numbers; the first `own` answer the sample's requests."""
    if are_plain(responses):
        return None
    metadata = [_reply(response) for response in responses[:own]]
    metadata += [{**_reply(response), **_verdict(response)} for response in responses[own:]]
    return metadata if any(metadata) else None


def _further_requests(plan: Plan, responses: Sequence[Response]) -> Iterator[Request | Call]:
    """The requests of a plan behind its first ones: those of scorers. It asks the same as it did when it was answered."""
    replies = iter(responses)
    requests = next(plan)
    try:
        while True:
            requests = plan.send(list(islice(replies, len(requests))))
            yield from requests
    except StopIteration:
        return


def with_questions(details: Sequence[JSONObject], own: int, requests: Iterable[Request | Call]) -> Sequence[JSONObject]:
    """Metadata of responses in which every verdict has the question and the role that was asked."""
    behind = [{**reply, **_question(request)} for reply, request in zip(details[own:], requests, strict=False)]
    return [*details[:own], *behind, *details[own + len(behind) :]]


def _question(request: Request | Call) -> JSONDict:
    if isinstance(request, Call):
        return {}
    texts = [each for each in arguments(request) if isinstance(each, str)]
    return {"question": "".join(texts), "role": getattr(request, "role", None)}


def _verdict(response: Response) -> JSONDict:
    if isinstance(response, Text):
        return {"verdict": response.text}
    return {"verdict": response.value} if isinstance(response, Likelihood) else {}


def _reply(response: Response) -> JSONDict:
    if isinstance(response, Failed):
        return {"failed": response.reason}
    metadata = _end(response) if isinstance(response, Outcome) else {}
    if isinstance(response, Text):
        if response.finish:
            metadata["finish"] = response.finish
        if response.reasoning:
            metadata["reasoning"] = response.reasoning
        if response.calls:
            metadata["calls"] = list(response.calls)
    if response.usage is not None:
        metadata["usage"] = tuple(response.usage)
    return metadata


def _end(outcome: Outcome) -> JSONDict:
    metadata: JSONDict = {}
    if outcome.trace:
        metadata["trace"] = outcome.trace
    if outcome.noticed:
        metadata["noticed"] = dict(outcome.noticed)
    if outcome.failed:
        metadata["state"] = outcome.record
    if outcome.calls:
        metadata["tool_calls"] = list(outcome.calls)
    return metadata
