"""Differences between the answers of two models to the same requests, and whether they matter."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from assay.evaluation.verify import KINDS, AnsweredTwice, Scores, Verified, kind_of
from assay.models.reasoning import split_thinking
from assay.number_text import format_figures
from assay.records import Failed, Likelihood, Loglikelihood, Request, Response, Text, prompt_text
from assay.statistics.aggregations import known_aggregation
from assay.statistics.board import Board
from assay.statistics.intervals import LEVEL
from assay.statistics.paired import Drift, PairedDifference, drift

ANSWER, REASONING = "answer", "reasoning"
SAME, DRIFTS, DIFFER, NOTHING = "same", "drifts", "differ", "nothing"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The limits for equal answers: how much a log-likelihood may differ per token, and the share of greedy texts that
    may diverge."""

    per_token: float
    texts: float


PRECISIONS = {"float32": Tolerance(1e-4, 0.0), "float16": Tolerance(0.1, 0.5), "bfloat16": Tolerance(0.5, 1.0)}
"""By the precision of the models. Measured with transformers on the bundled model against float32, 200 texts: one token in a
hundred is off by 0.018 in float16 and 0.15 in bfloat16, the worst by 0.10 and 0.50. Where two tokens are about as likely,
half precision picks either: 16 and 48 of 60 greedy texts of 48 tokens diverged, so the scores decide."""
ON_AVERAGE = 0.1
"""How much of the tolerance per token the log-likelihoods of a task may use up on average. Measured as above, on stories and
on choices: 0.002 and 0.02 of it in float16, 0.003 and 0.03 in bfloat16, 0.002 and 0.01 between two backends in float32."""


@dataclass(frozen=True, slots=True)
class Where:
    """A request: its task, its document, and its index."""

    task: str
    doc_id: int
    number: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """Two greedy texts that diverge: after how many characters, and after how many tokens where they can be counted; in the
    reasoning, or if that is equal, in the answer."""

    where: Where
    characters: int
    tokens: int | None
    a: str
    b: str
    part: str = ANSWER


@dataclass(frozen=True, slots=True)
class LikelihoodDifferences:
    """The log-likelihoods a request was given, and how many tokens they are of."""

    where: Where
    a: float
    b: float
    tokens: int
    same_greedy: bool = True

    @property
    def difference(self) -> float:
        """How far apart they are; two that are both impossible are not."""
        return 0.0 if self.a == self.b else abs(self.a - self.b)

    @property
    def per_token(self) -> float:
        return self.difference / self.tokens


@dataclass(frozen=True, slots=True)
class ChoiceFlip:
    """A question of which the two choose otherwise: the numbers of the choices."""

    where: Where
    a: int
    b: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that at least one of the two did not answer, and why."""

    where: Where
    a: str
    b: str


class VerificationRow(NamedTuple):
    """A number of a task and its drift; `decides` is its difference with an interval widened for how many rows
    are looked at.

    `is_counted`: its values are whole numbers and words. `moved`: some document has another value.
    """

    task: str
    metric: str
    filter: str
    drift: Drift
    decides: PairedDifference
    is_counted: bool = True
    moved: bool = True

    @property
    def is_off(self) -> bool:
        """Whether the drift is more than chance explains."""
        return self.decides.excludes_zero is True

    @property
    def is_unclear(self) -> bool:
        """Whether the drift cannot be tested against chance."""
        return self.decides.interval is None and self.moved and self.drift.change.n > 0 and self.drift.change.value != 0


@dataclass(slots=True)
class AnswerComparison:
    """The compared answers, by kind. `same_texts` maps each generating task to whether all texts of both are equal."""

    requests: Counter[str] = field(default_factory=Counter)
    compared: Counter[str] = field(default_factory=Counter)
    divergences: list[Divergence] = field(default_factory=list)
    likelihoods: list[LikelihoodDifferences] = field(default_factory=list)
    greedy_changed: int = 0
    questions: int = 0
    flips: list[ChoiceFlip] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    same_texts: dict[str, bool] = field(default_factory=dict)
    scored_alone: int = 0


@dataclass(frozen=True, slots=True)
class Verification:
    """The differences between two models; `verdict` is one of same, drifts, differ, nothing, and `because` explains it."""

    of: Verified
    tolerance: Tolerance
    answers: AnswerComparison
    rows: Sequence[VerificationRow]
    verdict: str
    because: Sequence[str]


def verification(of: Verified, tolerance: Tolerance) -> Verification:
    """Two models compared: request by request, question by question, number by number."""
    answers = AnswerComparison()
    count = lru_cache(maxsize=64)(of.count_tokens) if of.count_tokens is not None else None  # choices share a context
    for answered in of.asked:
        _compare(answered, answers, count)
    answers.scored_alone = _scored_alone(of.scores, answers)
    rows = score_rows(of.scores)
    verdict, because = judge(answers, rows, tolerance)
    return Verification(of, tolerance, answers, rows, verdict, because)


def _compare(asked: AnsweredTwice, answers: AnswerComparison, count: Callable[[str], int] | None) -> None:
    for number, (request, a, b) in enumerate(zip(asked.sample.requests, asked.a, asked.b, strict=False)):
        where, kind = Where(asked.task, asked.sample.doc_id, number), kind_of(request)
        answers.requests[kind] += 1
        if isinstance(a, Failed) or isinstance(b, Failed):
            answers.failures.append(Failure(where, _reason(a), _reason(b)))
            continue
        if (isinstance(a, Likelihood) and a.is_bound) or (isinstance(b, Likelihood) and b.is_bound):
            continue  # an upper bound is not a log-likelihood to compare; the choices are compared
        answers.compared[kind] += kind != "sampled"
        if isinstance(a, Text) and isinstance(b, Text):
            one, other = _said(a, b), _said(b, a)
            is_same = one == other and list(a.calls) == list(b.calls)
            answers.same_texts[asked.task] = answers.same_texts.get(asked.task, True) and is_same
            answers.divergences += _parted(where, one, other, count) if kind == "generate" else ()
        elif isinstance(a, Likelihood) and isinstance(b, Likelihood):
            same_greedy = a.greedy == b.greedy
            answers.likelihoods.append(
                LikelihoodDifferences(where, a.value, b.value, _tokens(request, count), same_greedy)
            )
            answers.greedy_changed += not same_greedy
    _choose(asked, answers)


def _said(text: Text, other: Text) -> tuple[str, str]:
    """Return the reasoning and the answer of a text: where the other one's server keeps them apart, this text is split, too."""
    if text.reasoning is None and other.reasoning is None:
        return "", text.text
    reasoning, answer = text.reasoning, text.text
    if reasoning is None:
        reasoning, answer, _ = split_thinking(text.text)
        if (
            reasoning is None and not other.text.strip()
        ):  # the prompt began the reasoning, and neither of the two ended it
            reasoning, answer = answer, ""
    return (reasoning or "").strip(), answer.strip()


def _parted(
    where: Where, a: tuple[str, str], b: tuple[str, str], count: Callable[[str], int] | None
) -> Iterator[Divergence]:
    for part, one, other in zip((REASONING, ANSWER), a, b, strict=True):
        at = first_difference(one, other)
        if at is not None:
            yield Divergence(where, at, _added("", one[:at], count) if count is not None else None, one, other, part)
            return


def first_difference(a: str, b: str) -> int | None:
    """How many characters two texts share before they part; None where they do not.

    >>> first_difference("a cat", "a car"), first_difference("a", "a cat"), first_difference("a", "a")
    (4, 1, None)
    """
    if a == b:
        return None
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _tokens(request: Request, count: Callable[[str], int] | None) -> int:
    """Count the tokens of a log-likelihood; one where they cannot be counted, so that no difference is made smaller than it is."""
    if count is None:
        return 1
    if isinstance(request, Loglikelihood):
        return max(_added(prompt_text(request.context), request.continuation, count), 1)
    return max(_added("", str(request[0]), count), 1)


def _added(before: str, text: str, count: Callable[[str], int]) -> int:
    """Count the tokens that a text adds to the text before it, without those that a tokenizer puts before every text."""
    return count(before + text) - count(before)


def _choose(asked: AnsweredTwice, answers: AnswerComparison) -> None:
    """Compare which of the choices of a question is likeliest."""
    choices = asked.sample.choices
    if not choices or not all(isinstance(each, Loglikelihood) for each in asked.sample.requests[: len(choices)]):
        return
    chosen = [_likeliest(responses[: len(choices)]) for responses in (asked.a, asked.b)]
    if chosen[0] is None or chosen[1] is None:
        return
    answers.questions += 1
    if chosen[0] != chosen[1]:
        answers.flips.append(ChoiceFlip(Where(asked.task, asked.sample.doc_id, 0), chosen[0], chosen[1]))


def _likeliest(responses: Sequence[Response]) -> int | None:
    values = [response.value for response in responses if isinstance(response, Likelihood)]
    return values.index(max(values)) if values and len(values) == len(responses) else None


def _reason(response: Response) -> str:
    return response.reason if isinstance(response, Failed) else ""


# scores


def score_rows(scores: Mapping[str, Scores]) -> list[VerificationRow]:
    """The drift of every number of every task, of the documents that both models scored."""
    rows = [
        (task, key.metric, key.filter, *_paired(each, key))
        for task, each in scores.items()
        for key in each.a.columns
        if key in each.b.columns and key.metric != "bypass"
    ]
    level = 1 - (1 - LEVEL) / max(len(rows), 1)  # Bonferroni: any of the rows might be off by chance
    return [
        VerificationRow(task, metric, named, drift(how, a, b, clusters=of), drift(how, a, b, clusters=of, level=level).change,
            is_counted=_is_whole([a, b]), moved=repr(a) != repr(b))
        for task, metric, named, how, a, b, of in rows
    ]  # fmt: skip


def _paired(scores: Scores, key: Any) -> tuple[Any, list[Any], list[Any], list[int] | None]:
    """The aggregation of a row, and the values of the documents that both have; with their clusters, if there are any."""
    values = [
        dict(zip(board.columns[key].documents, board.columns[key].values, strict=True))
        for board in (scores.a, scores.b)
    ]
    both = [document for document in values[0] if document in values[1]]
    clusters = [scores.a.clusters.get(each, each) for each in both] if scores.a.clusters else None
    how = known_aggregation(scores.aggregation(key))
    return how, [values[0][each] for each in both], [values[1][each] for each in both], clusters


def _is_whole(value: Any) -> bool:
    """Whether a value has no fraction: then it is a count or a choice, and does not change with rounding."""
    if isinstance(value, list | tuple):
        return all(map(_is_whole, value))
    return not isinstance(value, float) or value.is_integer()


def _scored_alone(scores: Mapping[str, Scores], answers: AnswerComparison) -> int:
    """How many documents were answered by both, and have a score of one of the two alone."""
    failed = {(each.where.task, each.where.doc_id) for each in answers.failures}
    return sum(
        (task, document) not in failed
        for task, each in scores.items()
        for document in _documents(each.a) ^ _documents(each.b)
    )


def _documents(board: Board) -> set[int]:
    return {document for column in board.columns.values() for document in column.documents}


# the verdict


def judge(answers: AnswerComparison, rows: Sequence[VerificationRow], tolerance: Tolerance) -> tuple[str, list[str]]:
    """Decide whether the two are the same, and why not.

    Differ: a number drifts further than chance explains, or one of the two fails where the other answers. Same: every answer
    is within the tolerance, and no number drifts. Drifts: answers differ, and no number shows it, or none can. Nothing: no
    request was answered by both, and there is no number.
    """
    drifting = [row for row in rows if row.is_off or row.is_unclear]
    unexplained = [row for row in drifting if not _is_explained(row, answers, tolerance)]
    off = [f"{_drifts(row)}, which chance does not explain" for row in unexplained if row.is_off]
    off += _alone(answers)
    beyond = list(_beyond(answers, tolerance))
    beyond += [
        f"{_drifts(row)}, and it cannot be tested against chance: {row.drift.change.reason}"
        for row in unexplained
        if row.is_unclear
    ]
    if off:
        return DIFFER, [*off, *beyond]
    if not (answers.compared.total() or answers.likelihoods or any(row.drift.change.n for row in rows)):
        return NOTHING, ["no answer and no score of one could be compared with one of the other"]
    return (DRIFTS, beyond) if beyond else (SAME, [])


def _drifts(row: VerificationRow) -> str:
    return f"{row.task} {row.metric} drifts by {format_figures(row.drift.change.value, is_signed=True)}"


def _alone(answers: AnswerComparison) -> Iterator[str]:
    """List the answers and scores that only one of the two has."""
    alone = sum(not (each.a and each.b) for each in answers.failures)
    if alone:
        yield f"{alone} requests were answered by one of the two alone"
    if answers.scored_alone:
        yield f"{answers.scored_alone} documents that both answered have a score of one of the two alone"


def _is_explained(row: VerificationRow, answers: AnswerComparison, tolerance: Tolerance) -> bool:
    """Whether a drift has a cause other than the models.

    It has one where all answers of the task are equal: then they were scored differently. A number that is not a count, such
    as a perplexity, moves with every log-likelihood, and with enough documents rounding becomes significant: it is explained
    where only log-likelihoods differ, each within the tolerance and all of them within a tenth of it on average.
    """
    likelihoods = [each for each in answers.likelihoods if each.where.task == row.task]
    if not answers.same_texts.get(row.task, bool(likelihoods)):
        return False
    if all(each.difference == 0 and each.same_greedy for each in likelihoods):
        return True
    differences = [each.per_token for each in likelihoods]
    average = sum(differences) / len(differences)
    is_close = all(each <= tolerance.per_token for each in differences) and average <= ON_AVERAGE * tolerance.per_token
    return is_close and not row.is_counted


def _beyond(answers: AnswerComparison, tolerance: Tolerance) -> Iterator[str]:
    """List the differences beyond the tolerance."""
    far = sum(not each.per_token <= tolerance.per_token for each in answers.likelihoods)
    if far:
        yield f"{far} of {len(answers.likelihoods)} log-likelihoods differ by more than {tolerance.per_token:g} per token"
    texts, compared = len(answers.divergences), answers.compared["generate"]
    if texts > tolerance.texts * compared:
        yield f"{texts} of {compared} greedy texts differ"


def spread(values: Sequence[float]) -> dict[str, float]:
    """The middle, the 99th of a hundred and the largest of some differences."""
    ordered = sorted(values)
    if not ordered:
        return {}
    last = len(ordered) - 1
    return {
        "median": ordered[last // 2],
        "p99": ordered[math.ceil(last * 0.99)],
        "max": ordered[last],
        "mean": sum(ordered) / len(ordered),
    }


EDGES = (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, math.inf)
"""Up to where the bars of a histogram of differences reach; the first has those that are exactly equal."""
POSITIONS = (0, 1, 4, 16, 64, 256, math.inf)


def histogram(values: Iterable[float], edges: Sequence[float]) -> list[tuple[float, int]]:
    """Count the values above one edge and not above the next.

    >>> histogram([0.0, 0.5, 2.0], (0.0, 1.0, math.inf))
    [(0.0, 1), (1.0, 1), (inf, 1)]
    """
    counts = Counter(next((edge for edge in edges if value <= edge), math.inf) for value in values)
    return [(edge, counts[edge]) for edge in edges]


def counts_by_kind(verification: Verification) -> list[tuple[str, int, int, int]]:
    """Count by kind the requests sent, compared, and skipped with their task."""
    left: Counter[str] = Counter()
    for each in verification.of.left_out:
        left.update(each.requests)
    answers = verification.answers
    return [
        (kind, answers.requests[kind], answers.compared[kind], left[kind])
        for kind in KINDS
        if answers.requests[kind] or left[kind]
    ]
