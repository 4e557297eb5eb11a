"""One sample for the eye: what was asked, what came back, what filters left of it, what it scored."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import orjson

from assay.config.row_names import row_key, row_name
from assay.runs.redact import redacted, redacted_text
from assay.runs.rows import RequestRow, Row

LONG = 4000
"""Words of a text that are compared; what is behind them is shown as it is."""
LARGEST = 1e300
"""What is beyond it, or no number at all, is not shown as one."""


class Piece(NamedTuple):
    """A part of a text, and whether the other text has it, too."""

    text: str
    is_shared: bool


class UnitResult(NamedTuple):
    """What a unit metric says of the outcome of a graph: what it should have been, and what it is."""

    metric: str
    is_correct: bool
    golden: Any
    predicted: Any


class Choice(NamedTuple):
    """A continuation with its log-likelihood as it came, per character, per byte, without its context, and as a share."""

    text: str
    value: float | None
    per_character: float | None
    per_byte: float | None
    without_context: float | None
    share: float | None
    greedy: bool
    is_gold: bool
    is_best: bool


class Step(NamedTuple):
    """A node that a graph's record came through, with what was asked there and how long that took, where it is known.

    Of a record that failed texts are not stored: then `requests` says how many there were, and `failed` why it went no further.
    """

    node: str
    texts: Sequence[tuple[str, str]]
    seconds: float | None
    requests: int = 0
    failed: str = ""


class Reply(NamedTuple):
    """A response with what the model told beside it."""

    text: str
    reasoning: str
    about: str


@dataclass(frozen=True)
class SampleView:
    """A sample, taken apart."""

    doc_id: int
    doc: Mapping[str, Any]
    shots: Sequence[str]
    prompt: str
    target: str
    replies: Sequence[Reply]
    filtered: Sequence[tuple[str, Sequence[str], Sequence[str]]]
    scores: Sequence[tuple[str, str, str, bool | None]]
    choices: Sequence[Choice] = ()
    verdicts: Sequence[Reply] = ()
    trace: Sequence[Step] = ()
    failed: str = ""
    audit: Sequence[str] = ()
    dropped: int = 0
    raw: Mapping[str, str] = field(default_factory=dict)
    units: Sequence[UnitResult] = ()

    @property
    def is_wrong(self) -> bool:
        """Whether no score of a metric of which more is better is above 0."""
        told = [bad for _, _, _, bad in self.scores if bad is not None]
        return bool(told) and all(told)

    @property
    def marked(self) -> tuple[list[Piece], list[Piece]] | None:
        """What the first filter left of a wrong answer and the target, in pieces that they share or do not; None where
        they share nothing, and so nothing is to be seen in that."""
        left = self.filtered[0][2] if self.filtered and not self.trace else ()
        if not self.is_wrong or len(left) != 1:
            return None
        both = aligned(left[0], self.target)
        return both if any(piece.is_shared and piece.text.strip() for piece in both[0]) else None

    @property
    def missed(self) -> list[UnitResult]:
        """What unit metrics found wrong, each difference once."""
        wrong = {
            (shown(each.golden), shown(each.predicted)): each for each in reversed(self.units) if not each.is_correct
        }
        return list(reversed(wrong.values()))

    @property
    def differences(self) -> list[tuple[str, list[Piece], list[Piece]]]:
        """By unit metric that found something wrong: what is there and what should be, in pieces that they share or do not."""
        return [
            (each.metric, *aligned(shown(each.predicted, indent=True), shown(each.golden, indent=True)))
            for each in self.missed
        ]

    @property
    def is_rolled(self) -> bool:
        """Whether a text was only read: what was asked is what would be right."""
        return self.prompt == self.target and not self.replies

    @property
    def why(self) -> str:
        """What the score comes from, in one sentence."""
        told = [(f"{metric} {name}", float(value)) for metric, name, value, bad in self.scores if bad is not None]
        if self.failed or not told:
            return ""
        verdict = "Wrong" if self.is_wrong else "Right"
        if not self.is_wrong and any(value < 1 for _, value in told):
            verdict = f"In part right ({', '.join(f'{name} {value:.4g}' for name, value in told[:6])})"
        best = next((choice.text.strip() for choice in self.choices if choice.is_best), None)
        if best is not None:
            right = self.target.partition(": ")[2]
            if verdict == "Right" and best == right.strip():
                return f"Right: {best!r}."
            return f"{verdict}: {best!r} is the likeliest, {right!r} is right."
        if "unextracted" in self.audit:
            return f"{verdict}: a filter found nothing in the answer; {self.target!r} is right."
        if self.units and not all(each.is_correct for each in self.units):
            said = [
                f"{each.metric} found {shown(each.predicted)!r}, {shown(each.golden)!r} is right"
                for each in self.missed
            ]
            return f"{verdict}: {_brief('; '.join(said))}."
        if not self.filtered or self.trace:
            return f"{verdict}."
        left = ", ".join(
            f"{each!r}" for each in dict.fromkeys(each for _, _, several in self.filtered for each in several)
        )
        return f"{verdict}: of the answer {_brief(left)} is left, {_brief(repr(self.target))} is right."


def sample_view(row: Row, config: Mapping[str, Any], better: Mapping[str, bool | None]) -> SampleView:
    """A sample as it is written, taken apart for a page."""
    requests, responses, replies = row.requests, row.responses, row.replies or ()
    own = sum(map(len, responses))
    trace = next((reply["trace"] for reply in reversed(replies) if "trace" in reply), ())
    texts = [each for several in responses for each in several if isinstance(each, str)]
    return SampleView(
        row.doc_id,
        doc if isinstance(doc := loads(row.doc, {}), Mapping) else {"document": doc},
        *_shots(row, config),
        target_of(row),
        [_reply(text, told) for text, told in zip(texts, [*replies, *[{}] * len(texts)], strict=False)],
        _filtered(row.answers, config) if texts else (),
        _scores(row.scores, better),
        choices_of(row) if not texts else (),
        [_reply(str(told["verdict"]), told) for told in replies[own:] if "verdict" in told],
        _trace(trace, requests, texts, replies, row),
        redacted_text(row.failed or ""),
        row.audit,
        row.dropped or 0,
        _raw(row),
        unit_results(row.answers) if trace else (),
    )


def _brief(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"


def loads(text: str | None, otherwise: Any) -> Any:
    """What JSON says; something else where it says nothing. What only Python's own writes, it reads: half a character, NaN."""
    if not text:
        return otherwise
    for read in (orjson.loads, json.loads):
        try:
            found = read(text)
            return otherwise if otherwise in ([], {}) and type(found) is not type(otherwise) else found
        except (ValueError, RecursionError):
            continue
    return otherwise


def _shots(row: Row, config: Mapping[str, Any]) -> tuple[list[str], str]:
    """The examples before the question, each for itself where blank lines part them; and the question.

    Examples that every document has of its own stand in the prompt: they are told by their number, where that leaves no doubt.
    """
    prefix, prompt = row.prefix or "", row.prompt or ""
    shots, between = config.get("num_fewshot"), config.get("fewshot_delimiter") or "\n\n"
    if not prefix and isinstance(shots, int) and shots > 0 and prompt.count(str(between)) == shots:
        *examples, question = prompt.split(str(between))
        return [f"{each}{between}" for each in examples], question
    return [part for part in re.split(r"(?<=\n\n)(?=\S)", prefix) if part], prompt


def target_of(row: Row) -> str:
    """What would have been right, as text: of choices, the number and the choice."""
    target = loads(row.target, None)
    gold, choices = loads(row.gold, target), row.choices
    if isinstance(gold, int) and not isinstance(gold, bool) and choices is not None and 0 <= gold < len(choices):
        return f"{gold}: {choices[gold]}"
    return target if isinstance(target, str) else shown(target)


def _reply(text: str, told: Any) -> Reply:
    about = dict(told) if isinstance(told, Mapping) else {}
    parts = [f"ended: {about['finish']}"] if about.get("finish") else []
    usage = about.get("usage")
    if usage is not None and len(usage) >= 4:
        parts.append(f"{usage[0]:,} tokens read, {usage[1]:,} written")
        parts += [f"{usage[2]:.2f} s"] if usage[2] else []
        parts += [f"asked {usage[3]} times"] if usage[3] > 1 else []
    return Reply(text, str(about.get("reasoning") or ""), " · ".join(parts))


def _filtered(answers: Mapping[str, Any], config: Mapping[str, Any]) -> list[tuple[str, list[str], list[str]]]:
    """By filter: its steps in words, and what it left."""
    written = config.get("filter_list")
    steps = (
        {str(each.get("name")): each.get("filter") or () for each in written if isinstance(each, Mapping)}
        if isinstance(written, list)
        else {}
    )
    return [
        (
            name,
            [_step(each) for each in steps.get(name, ()) if isinstance(each, Mapping)],
            [shown(each, indent=True) for each in left],
        )
        for name, left in answers.items()
    ]


def _step(step: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in step.items() if key != "function"}
    return str(step.get("function")) + (
        f"({', '.join(f'{key}={shown(value)}' for key, value in rest.items())})" if rest else ""
    )


def _scores(scores: Mapping[str, Any], better: Mapping[str, bool | None]) -> list[tuple[str, str, str, bool | None]]:
    """Metric, filter, value, and whether that is as bad as it gets: no share at all of something of which more is better."""
    made = []
    for written, value in scores.items():
        metric, name = row_key(written)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        bad = value <= 0 if number and better.get(metric) else None
        own = own_number(metric, value) if not number else None
        made.append((metric, name, f"{own:.4f}" if own is not None else shown(value), bad))
    return made


def choices_of(row: Row) -> list[Choice]:
    """The log-likelihood of every continuation, with what metrics make of it. A text that is rolled over is its only one."""
    values = [several[0] if several else None for several in row.responses]
    asked = [each.continuation or "" for each in row.requests]
    named = row.choices or ()
    count = len(named) or len(values)
    pairs = [(_finite(value[0]), value[1]) if isinstance(value, tuple) else (_finite(value), False) for value in values]
    alone = [value for value, _ in pairs[count : 2 * count]]
    known = [value for value, _ in pairs[:count] if value is not None]
    best = max(known, default=None)
    total = sum(math.exp(value - best) for value in known) if best is not None else 0.0
    gold = loads(row.gold, loads(row.target, None))
    golds = gold if isinstance(gold, list) else [gold]
    made = []
    for number, (text, (value, greedy)) in enumerate(zip(asked[:count], pairs[:count], strict=False)):
        apart = alone[number] if number < len(alone) else None
        stripped = str(named[number]) if number < len(named) else text  # what acc_norm and acc_bytes divide by
        made.append(
            Choice(
                text,
                value,
                value / len(stripped) if value is not None and stripped else None,
                value / len(stripped.encode()) if value is not None and stripped else None,
                value - apart if value is not None and apart is not None else None,
                math.exp(value - best) / total if value is not None and best is not None and count > 1 else None,
                greedy,
                count > 1 and number in golds,
                count > 1 and value == best,
            )
        )
    return made


def _finite(value: float | None) -> float | None:
    """A log-likelihood; None where it is that of the impossible."""
    return value if value is not None and math.isfinite(value) else None


def _trace(
    trace: Any, requests: Sequence[RequestRow], texts: Sequence[str], replies: Sequence[Any], row: Row
) -> list[Step]:
    """The nodes in their order, each with what was asked and answered there."""
    steps = []
    for entry in trace if isinstance(trace, list) else ():
        name, numbers = str(entry[0]), [number for number in entry[1] if isinstance(number, int)]
        told = [replies[number] for number in numbers if number < len(replies)]
        took = [reply["usage"][2] for reply in told if reply.get("usage") is not None]
        stored = [number for number in numbers if number < max(len(requests), len(texts))]
        asked = [(_asked(number, requests, row), texts[number] if number < len(texts) else "") for number in stored]
        reason = next((str(reply["failed"]) for reply in told if "failed" in reply), "")
        steps.append(Step(name, asked, sum(took) if took else None, len(numbers), redacted_text(reason)))
    if row.failed and steps and not any(step.failed for step in steps):  # no request did: the last node it came to
        steps[-1] = steps[-1]._replace(failed=redacted_text(row.failed))
    return steps


def _asked(number: int, requests: Sequence[RequestRow], row: Row) -> str:
    own = requests[number].prompt if number < len(requests) else None
    return own if own is not None else row.prefix + row.prompt


def _raw(row: Row) -> dict[str, str]:
    """The columns as they are written; parameters of requests and reasons of failures without secrets."""
    found = {
        **row._asdict(),
        **{name: loads(getattr(row, name), None) for name in ("doc", "target", "gold")},
        "requests": redacted([_request(each) for each in row.requests], texts=False),
        "replies": [_without_key(reply) for reply in row.replies] if row.replies is not None else None,
        "failed": redacted_text(row.failed) if row.failed else None,
        "failures": {row_name(key): redacted_text(reason) for key, reason in row.failures.items()} or None,
        "audit": [*row.audit] or None,
    }
    left_out = ("doc_id", "dropped")
    return {
        name: shown(value, indent=True) for name, value in found.items() if value is not None and name not in left_out
    }


def _request(request: RequestRow) -> dict[str, Any]:
    told = request._replace(params=loads(request.params, None))._asdict()
    return {name: value for name, value in told.items() if value is not None}


def _without_key(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    """What came beside an answer; why there is none may tell the key that was sent."""
    return {**reply, "failed": redacted_text(reply["failed"])} if "failed" in reply else reply


def shown(value: Any, *, indent: bool = False) -> str:
    """A value as text: a text as it is, all else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else 0, default=str).decode()
    except TypeError:
        return json.dumps(value, indent=2 if indent else None, default=str)


def aligned(before: str, after: str) -> tuple[list[Piece], list[Piece]]:
    """Both texts in pieces: words that stand in both, in the same order, are shared.

    >>> aligned("a b c", "a x c")[1]
    [Piece(text='a ', is_shared=True), Piece(text='x', is_shared=False), Piece(text=' c', is_shared=True)]
    """
    one, two = _words(before), _words(after)
    first, second = one[:LONG], two[:LONG]
    steps = SequenceMatcher(None, first, second, autojunk=False).get_opcodes() if len(first) * len(second) < 10**6 else [
        ("replace", 0, len(first), 0, len(second))
    ]  # fmt: skip
    left = [Piece("".join(first[a:b]), kind == "equal") for kind, a, b, _, _ in steps if b > a]
    right = [Piece("".join(second[a:b]), kind == "equal") for kind, _, _, a, b in steps if b > a]
    return [*left, *_rest(one)], [*right, *_rest(two)]


def _rest(words: list[str]) -> Iterator[Piece]:
    if len(words) > LONG:
        yield Piece("".join(words[LONG:]), True)


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|\w+|[^\w\s]", text)


def own_number(metric: str, value: Any) -> float | None:
    """The number of a sample; None where there is none to be had of it alone.

    >>> own_number("acc", 1.0), own_number("brier_score", [0, [0.75, 0.25]]), own_number("byte_perplexity", [0.0, 9])
    (1.0, 0.125, 1.0)
    """
    if isinstance(value, bool | int | float):
        return float(value) if abs(value) < LARGEST else None
    if not isinstance(value, list) or len(value) != 2:
        return None
    first, second = value
    if metric == "brier_score" and isinstance(first, int) and isinstance(second, list):
        shares = [float(share) for share in second] if _are_numbers(second) else []
        return math.fsum((share - (place == first)) ** 2 for place, share in enumerate(shares)) if shares else None
    if metric not in ("word_perplexity", "byte_perplexity", "bits_per_byte") or not _are_numbers(value) or second <= 0:
        return None
    nats = -float(first) / float(second)
    if metric == "bits_per_byte":
        return nats / math.log(2)
    return math.exp(nats) if nats < math.log(LARGEST) else None


def own_numbers(scores: Mapping[str, Any], names: Sequence[str]) -> list[float | None]:
    """The numbers of a sample under these names: metric and filter."""
    return [own_number(row_key(name).metric, scores.get(name)) for name in names]


def _are_numbers(several: Sequence[Any]) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) and abs(each) < LARGEST for each in several)


def unit_results(answers: Any) -> list[UnitResult]:
    """What unit metrics wrote into the outcomes of a graph."""
    outcomes = [each for left in answers.values() for each in left] if isinstance(answers, Mapping) else []
    return [
        UnitResult(
            name.removesuffix("_result"), told["correct"] is True, _plain(told["golden"]), _plain(told["predicted"])
        )
        for outcome in outcomes
        if isinstance(outcome, Mapping)
        for name, told in outcome.items()
        if isinstance(told, Mapping) and {"correct", "golden", "predicted"} <= set(told)
    ]


def _plain(value: Any) -> Any:
    """What a mapping of one key holds: the key says nothing."""
    return next(iter(value.values())) if isinstance(value, Mapping) and len(value) == 1 else value
