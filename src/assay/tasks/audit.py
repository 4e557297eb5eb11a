"""Samples that deserve a look: answers that may say more about the set-up than about the model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from assay.records import JSON, UNFINISHED, USUAL_FINISHES, FilterScores, Sample
from assay.results import AuditCount, Results
from assay.runs.samples.records import SampleRecord
from assay.scoring.filters import INVALID

FAILED, TRUNCATED, EMPTY, UNEXTRACTED = "failed", "truncated", "empty", "unextracted"
UNUSUAL_END = "unusual_end"
DISAGREEING, GOLD_IN_ANSWER, TIED = "disagreeing", "gold_in_answer", "tied"
KINDS = {
    FAILED: "could not be asked or scored: no score, and never a zero",
    TRUNCATED: "an answer was cut off at the token limit, or the model did not finish thinking",
    EMPTY: "an answer without text",
    UNUSUAL_END: "the server gave no reason for the end of an answer, or one that is unknown",
    UNEXTRACTED: "a filter found nothing in an answer",
    DISAGREEING: "two filters give different values of one metric",
    GOLD_IN_ANSWER: "the right answer is in the raw answer, and no filter's first metric is above 0",
    TIED: "all choices have the same log-likelihood: the first one counts as chosen",
}
"""Kinds of samples, as results and `assay samples --reason` call them."""
NAMED = 20
"""Documents that results name of each kind; all of them are in the samples."""

Directions = Callable[[], Mapping[str, bool | None]]
"""By metric whether more is better."""


@dataclass(slots=True)
class Audit:
    """How many samples are of each kind, and which."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    documents: dict[str, list[int]] = field(default_factory=dict)

    def note(self, doc_id: int, kinds: Iterable[str]) -> None:
        for kind in kinds:
            self.counts[kind] += 1
            named = self.documents.setdefault(kind, [])
            if len(named) < NAMED:
                named.append(doc_id)

    def by_flag(self) -> dict[str, AuditCount]:
        """The documents of every flag, as results have them."""
        return {kind: AuditCount(count, self.documents[kind] if count else ()) for kind, count in self.counts.items()}


def kinds_of(kept: SampleRecord, directions: Directions) -> tuple[str, ...]:
    """Return the audit kinds of a sample."""
    are_choices = kept.sample.choices and kept.responses and type(kept.responses[0][0]) is tuple
    if are_choices and kept.replies is None and not kept.failed and len(kept.scores) == 1:  # nothing else can be odd
        return (TIED,) if _is_tied(kept) else ()
    return tuple(_kinds(kept, directions))


def _kinds(kept: SampleRecord, directions: Directions) -> Iterator[str]:
    if kept.failed:
        yield FAILED
    finished = {reply.get("finish") for reply in kept.replies} - {None, ""} if kept.replies is not None else frozenset()
    if "length" in finished or UNFINISHED in finished:
        yield TRUNCATED
    if not finished <= USUAL_FINISHES:
        yield UNUSUAL_END
    texts = [text for responses in kept.responses for text in responses if isinstance(text, str)]
    if UNFINISHED not in finished and not all(map(str.strip, texts)) and _has_empty(kept):
        yield EMPTY
    if len(kept.scores) > 1 and _disagree(kept.scores):
        yield DISAGREEING
    if not texts:
        if _is_tied(kept):
            yield TIED
        return
    if any(_is_unextracted(scores.answers) for scores in kept.scores):
        yield UNEXTRACTED
    if is_wrong(firsts_of(kept.scores), directions) and _has_gold(kept.sample, texts):
        yield GOLD_IN_ANSWER


def _has_empty(kept: SampleRecord) -> bool:
    """Whether a response has neither text nor tool calls."""
    said = [each for responses in kept.responses for each in responses]
    calls = [reply.get("calls") for reply in kept.replies or ()]
    calls += [None] * (len(said) - len(calls))
    pairs = zip(said, calls, strict=False)
    return any(isinstance(text, str) and not text.strip() and not called for text, called in pairs)


def _is_tied(kept: SampleRecord) -> bool:
    """Whether all choices have the same log-likelihood; responses without the question, behind them, do not count."""
    choices, responses = kept.sample.choices, kept.responses
    if not choices or len(responses) < len(choices) or len(choices) < 2:
        return False
    first, second = responses[0][0], responses[1][0]
    if type(first) is not tuple or type(second) is not tuple or first[0] != second[0]:  # as nearly always
        return False
    return all(pair[0] == first[0] for [pair, *_] in responses[: len(choices)])


def is_wrong(firsts: Iterable[tuple[str, JSON]], directions: Directions) -> bool:
    """Whether no filter's first metric, given by name and value, is above 0. A metric of which less is better does not count."""
    numbers = [(metric, value) for metric, value in firsts if isinstance(value, int | float)]
    if all(value > 0 for _, value in numbers):
        return False
    better = directions()
    counted = [value for metric, value in numbers if better.get(metric) is not False]
    return bool(counted) and all(value <= 0 for value in counted)


def firsts_of(scores: Sequence[FilterScores]) -> list[tuple[str, JSON]]:
    """The first metric of each filter, with its value."""
    return [next(iter(each.values.items()), ("", None)) for each in scores]


def _is_unextracted(answers: Sequence[JSON]) -> bool:
    """Whether a filter found nothing in an answer, or in one of several."""
    return any(each == INVALID or (isinstance(each, list | tuple) and INVALID in each) for each in answers)


def _disagree(scores: Sequence[FilterScores]) -> bool:
    first, *others = scores
    return any(
        metric in other.values and isinstance(value, int | float) and other.values[metric] != value
        for other in others
        for metric, value in first.values.items()
    )


def _has_gold(sample: Sample, texts: Sequence[str]) -> bool:
    golds = [gold.casefold() for gold in _gold_texts(sample)]
    return any(_is_in(gold, text.casefold()) for gold in golds for text in texts)


def _gold_texts(sample: Sample) -> list[str]:
    gold = sample.gold
    if isinstance(gold, bool) or gold is None:
        return []
    if isinstance(gold, int) and sample.choices is not None:
        return [sample.choices[gold]] if 0 <= gold < len(sample.choices) else []
    golds = gold if isinstance(gold, list | tuple) else [gold]
    return [text for each in golds if isinstance(each, str | int | float) and (text := str(each).strip())]


def _is_in(gold: str, text: str) -> bool:
    """Whether a text has these words as whole words: 4 is not in 42."""
    start = text.find(gold)
    while start >= 0:
        end = start + len(gold)
        before, after = text[start - 1 : start], text[end : end + 1]
        if not ((gold[0].isalnum() and before.isalnum()) or (gold[-1].isalnum() and after.isalnum())):
            return True
        start = text.find(gold, start + 1)
    return False


def audit_counts(results: Results) -> dict[str, int]:
    """The number of samples of each kind, over all tasks."""
    audits = [task.audit for task in results.tasks.values()]
    return {kind: sum(audit[kind].count for audit in audits if kind in audit) for kind in KINDS}
