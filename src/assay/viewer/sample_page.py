"""One sample in detail: prompt, responses, filtered answers, scores, and how its answer differs from the target."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import orjson

from assay.models.reasoning import START, split_thinking
from assay.models.servers.server_model import Price
from assay.number_text import format_duration, format_figures, format_trimmed
from assay.records import Answers, AnyJSON, JSONObject, MetricValue
from assay.report.charts import Span
from assay.runs.samples.records import StoredRequest, StoredSample, call_text, made_calls, shown_texts
from assay.runs.samples.turns import ChatPrompt, ChatTurn, chat_prompt
from assay.safe_text import cut
from assay.score_keys import REPEATS, ScoreKey, join_scores
from assay.statistics.softmax import softmax
from assay.viewer.trajectory import Step, judge_questions, nodes_of_responses, spans_of, steps_of

TaskSettings = JSONObject
"""The configuration of a task as the run stored it."""
StoredReply = JSONObject
"""A response as the run stored it."""
StoredAnswers = Mapping[str, Answers]
"""The answers of each filter."""
StoredScores = Mapping[ScoreKey, MetricValue]
"""The values of a document by row."""
MAX_SAID = 200
"""Letters of an answer and a target in the sentence of what is wrong."""
MAX_WORDS = 4000
"""Words of a text that are compared; the rest is shown as it is."""
MAX_SCORE = 1e300
"""Larger values and non-numbers are not shown as a score."""


class DiffPart(NamedTuple):
    """A part of a text, and whether the other text has it, too."""

    text: str
    is_shared: bool


class UnitMetricView(NamedTuple):
    """The verdict of a unit metric on a graph's output: expected and predicted value."""

    metric: str
    is_correct: bool
    golden: Any
    predicted: Any


class Choice(NamedTuple):
    """A choice with its log-likelihood: raw, per character, per byte, minus its unconditional one, and as a
    probability.
    """

    text: str
    value: float | None
    per_character: float | None
    per_byte: float | None
    without_context: float | None
    share: float | None
    greedy: bool
    is_gold: bool
    is_best: bool


class ResponseView(NamedTuple):
    """A response with its reasoning, finish reason and usage."""

    text: str
    reasoning: str
    about: str
    node: str = ""
    """The node of a graph that asked for it."""


@dataclass(frozen=True)
class SampleView:
    """A sample, split into what its page shows."""

    doc_id: int
    doc: Mapping[str, Any]
    shots: Sequence[str]
    prompt: str
    target: str
    replies: Sequence[ResponseView]
    filtered: Sequence[tuple[str, Sequence[str], Sequence[str]]]
    scores: Sequence[tuple[str, str, str, bool | None]]
    choices: Sequence[Choice] = ()
    verdicts: Sequence[ResponseView] = ()
    trace: Sequence[Step] = ()
    failed: str = ""
    audit: Sequence[str] = ()
    dropped: int = 0
    raw: Mapping[str, str] = field(default_factory=dict)
    units: Sequence[UnitMetricView] = ()
    last_state: Mapping[str, str] = field(default_factory=dict)
    calls: Sequence[str] = ()
    """The tool calls that agents made."""
    chat: ChatPrompt | None = None
    """The prompt as turns, where it is a conversation."""
    spans: Sequence[Span] = ()
    """The requests and tool calls of a graph's record, with their seconds."""

    @property
    def is_wrong(self) -> bool:
        """Whether every score of a higher-is-better metric is 0 or less."""
        verdicts = [bad for _, _, _, bad in self.scores if bad is not None]
        return bool(verdicts) and all(verdicts)

    @property
    def marked(self) -> tuple[list[DiffPart], list[DiffPart]] | None:
        """The first filtered answer and the target of a wrong sample as diff parts; None where they share nothing."""
        left = self.filtered[0][2] if self.filtered and not self.trace else ()
        if not self.is_wrong or len(left) != 1:
            return None
        both = diff_parts(left[0], self.target)
        return both if any(piece.is_shared and piece.text.strip() for piece in both[0]) else None

    @property
    def missed(self) -> list[UnitMetricView]:
        """The failed unit metrics, each difference once; those without an expected value, as a judge's, have none."""
        wrong = {
            (as_text(each.golden), as_text(each.predicted)): each
            for each in reversed(self.units)
            if not each.is_correct and each.golden is not None
        }
        return list(reversed(wrong.values()))

    @property
    def differences(self) -> list[tuple[str, list[DiffPart], list[DiffPart]]]:
        """By failed unit metric: the predicted and the expected value as diff parts."""
        return [
            (each.metric, *diff_parts(as_text(each.predicted, indent=True), as_text(each.golden, indent=True)))
            for each in self.missed
        ]

    @property
    def is_rolled(self) -> bool:
        """Whether the text was only scored (rolling log-likelihood), so that prompt and target are the same."""
        return self.prompt == self.target and not self.replies

    @property
    def why(self) -> str:
        """Explain the score in one sentence."""
        scores = [
            (metric if name == "none" else f"{metric} ({name})", float(value))
            for metric, name, value, bad in self.scores
            if bad is not None
        ]
        if self.failed or not scores:
            return ""
        verdict = "Wrong" if self.is_wrong else "Right"
        if not self.is_wrong and any(value < 1 for _, value in scores):
            verdict = f"Partly right ({', '.join(f'{name} {format_figures(value)}' for name, value in scores[:6])})"
        best = next((choice.text.strip() for choice in self.choices if choice.is_best), None)
        if best is not None:
            right = self.target.partition(": ")[2]
            if verdict == "Right" and best == right.strip():
                return f"Right: {best!r}."
            return f"{verdict}: {best!r} is the likeliest choice, expected {right!r}."
        if "unextracted" in self.audit:
            return f"{verdict}: a filter extracted nothing from the answer, expected {self.target!r}."
        if self.missed:
            failed_units = [
                f"{each.metric} found {as_text(each.predicted)!r}, expected {as_text(each.golden)!r}"
                for each in self.missed
            ]
            return f"{verdict}: {cut('; '.join(failed_units), MAX_SAID)}."
        if not self.filtered or self.trace:
            return f"{verdict}."
        left = " and ".join(
            f"{each!r}" for each in dict.fromkeys(each for _, _, answers in self.filtered for each in answers)
        )
        return f"{verdict}: the answer is {cut(left, MAX_SAID)}, expected {cut(repr(self.target), MAX_SAID)}."


def sample_view(
    row: StoredSample,
    config: TaskSettings,
    better: Mapping[str, bool | None],
    prices: Mapping[str, Price | None] | None = None,
) -> SampleView:
    """Build the view of a stored sample; with the prices of a graph's nodes, its steps have their cost."""
    responses, replies = row.responses, row.replies or ()
    own = sum(map(len, responses))
    trace = row.trace or ()
    texts = shown_texts(responses, replies)
    return SampleView(
        row.doc_id,
        doc if isinstance(doc := parse_json(row.doc, {}), Mapping) else {"document": doc},
        *_split_examples(row, config),
        target_of(row),
        _replies(row, texts),
        _filtered(row.answers, config) if texts else (),
        _scores(row, better),
        choice_views(row) if not texts else (),
        [_response_view(str(reply["verdict"]), reply) for reply in replies[own:] if "verdict" in reply],
        steps_of(row, prices),
        row.failed or "",
        row.audit,
        row.dropped or 0,
        stored_columns(row),
        unit_results(row.answers) if trace else (),
        {key: as_text(value, indent=True) for key, value in row.last_state.items()},
        [call_text(call) for call in made_calls(replies)],
        prompt_chat(row, config),
        spans_of(row) if trace else (),
    )


def _replies(row: StoredSample, texts: Sequence[str]) -> list[ResponseView]:
    """The responses; those of a graph with their nodes, without the verdicts of its judges."""
    nodes, replies = nodes_of_responses(row), [*(row.replies or ()), *[{}] * len(texts)]
    judged = judge_questions(row) if nodes else {}
    return [
        _response_view(text, reply)._replace(node=nodes.get(number, ""))
        for number, (text, reply) in enumerate(zip(texts, replies, strict=False))
        if number not in judged
    ]


MAX_DEPTH, TOO_DEEP = 200, "… nested deeper than 200 levels"


def parse_json(text: str | None, otherwise: AnyJSON) -> AnyJSON:
    """Parse JSON, or return `otherwise`. What orjson refuses (lone surrogates, NaN), Python's json reads."""
    if not text:
        return otherwise
    for read in (orjson.loads, json.loads):
        try:
            value = read(text)
            return otherwise if otherwise in ([], {}) and type(value) is not type(otherwise) else value
        except (ValueError, RecursionError):
            continue
    return otherwise


def _split_examples(row: StoredSample, config: TaskSettings) -> tuple[list[str], str]:
    """Split a prompt into examples and question, at blank lines of the shared prefix.

    Examples that differ per document are part of the prompt: they are split only where their number is certain.
    """
    prefix, prompt = row.prefix or "", row.prompt or ""
    shots, between = config.get("num_fewshot"), config.get("fewshot_delimiter") or "\n\n"
    if not prefix and isinstance(shots, int) and shots > 0 and prompt.count(str(between)) == shots:
        *examples, question = prompt.split(str(between))
        return [f"{each}{between}" for each in examples], question
    return [part for part in re.split(r"(?<=\n\n)(?=\S)", prefix) if part], prompt


def prompt_chat(row: StoredSample, config: TaskSettings) -> ChatPrompt | None:
    """The prompt as turns. Examples within the one message of the user are split from the question, where they can be."""
    shots, between = config.get("num_fewshot"), str(config.get("fewshot_delimiter") or "\n\n")
    chat = chat_prompt(row, shots)
    if chat is None or len(chat.turns) != 1 or chat.examples or not isinstance(shots, int) or shots < 1:
        return chat
    *examples, question = chat.turns[0].text.split(between)
    if len(examples) != shots:
        return chat
    return chat._replace(
        examples=[ChatTurn("example", each) for each in examples], turns=[chat.turns[0]._replace(text=question)]
    )


def target_of(row: StoredSample) -> str:
    """The target as text; for choices, its number and text."""
    target = parse_json(row.target, None)
    gold, choices = parse_json(row.gold, target), row.choices
    if isinstance(gold, int) and not isinstance(gold, bool) and choices is not None and 0 <= gold < len(choices):
        return f"{gold}: {choices[gold]}"
    return target if isinstance(target, str) else "" if target is None else as_text(target)


def _response_view(text: str, reply: AnyJSON) -> ResponseView:
    about = dict(reply) if isinstance(reply, Mapping) else {}
    parts = [f"finish reason: {about['finish']}"] if about.get("finish") else []
    usage = about.get("usage")
    if usage is not None and len(usage) >= 4:
        parts.append(f"{usage[0]:,} tokens in, {usage[1]:,} out")
        parts += [format_duration(usage[2])] if usage[2] else []
        parts += [f"{usage[3]} attempts"] if usage[3] > 1 else []
    reasoning = str(about.get("reasoning") or "")
    if not reasoning and text.lstrip().startswith(START):  # the server did not separate it
        thoughts, text, _ = split_thinking(text)
        reasoning = thoughts or ""
    return ResponseView(text, reasoning, " · ".join(parts))


def _filtered(answers: StoredAnswers, config: TaskSettings) -> list[tuple[str, list[str], list[str]]]:
    """By filter: its steps in words, and the filtered answers."""
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
            [as_text(each, indent=True) for each in left],
        )
        for name, left in answers.items()
    ]


def _step(step: TaskSettings) -> str:
    rest = {key: value for key, value in step.items() if key != "function"}
    return str(step.get("function")) + (
        f"({', '.join(f'{key}={as_text(value)}' for key, value in rest.items())})" if rest else ""
    )


def _scores(row: StoredSample, better: Mapping[str, bool | None]) -> list[tuple[str, str, str, bool | None]]:
    """Metric, filter, value, and whether it is 0 or less in a higher-is-better metric (None where that is unknown)."""
    views = []
    of_repeats = {ScoreKey(key.metric, key.filter + REPEATS): values for key, values in row.repeats.items()}
    for (metric, name), value in {**row.scores, **of_repeats}.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        bad = value <= 0 if number and better.get(metric) else None
        own = sample_score(metric, value)
        views.append((metric, name, format_trimmed(own) if own is not None else as_text(value), bad))
    return views


def choice_views(row: StoredSample) -> list[Choice]:
    """The choices with their log-likelihoods. A rolling log-likelihood has one."""
    values = [responses[0] if responses else None for responses in row.responses]
    asked = [each.continuation or "" for each in row.requests]
    named = row.choices or ()
    count = len(named) or len(values)
    pairs = [(_finite(value[0]), value[1]) if isinstance(value, tuple) else (_finite(value), False) for value in values]
    alone = [value for value, _ in pairs[count : 2 * count]]
    known = [value for value, _ in pairs[:count] if value is not None]
    best = max(known, default=None)
    shares = iter(softmax(known) if known else ())
    gold = parse_json(row.gold, parse_json(row.target, None))
    golds = gold if isinstance(gold, list) else [gold]
    views = []
    for number, (text, (value, greedy)) in enumerate(zip(asked[:count], pairs[:count], strict=False)):
        apart = alone[number] if number < len(alone) else None
        share = next(shares) if value is not None else None
        stripped = str(named[number]) if number < len(named) else text  # what acc_norm and acc_bytes divide by
        views.append(
            Choice(
                text,
                value,
                value / len(stripped) if value is not None and stripped else None,
                value / len(stripped.encode()) if value is not None and stripped else None,
                value - apart if value is not None and apart is not None else None,
                share if count > 1 else None,
                greedy,
                count > 1 and number in golds,
                count > 1 and value == best,
            )
        )
    return views


def _finite(value: float | None) -> float | None:
    """A log-likelihood; None where it is infinite."""
    return value if value is not None and math.isfinite(value) else None


def stored_columns(row: StoredSample) -> dict[str, str]:
    """The stored columns as text."""
    columns = {
        **row._asdict(),
        **{name: parse_json(getattr(row, name), None) for name in ("doc", "target", "gold")},
        "requests": [_request_fields(each) for each in row.requests],
        "scores": join_scores(row.scores, row.repeats),
        "repeats": None,
        "failures": {str(key): reason for key, reason in row.failures.items()} or None,
        "audit": [*row.audit] or None,
    }
    left_out = ("doc_id", "dropped")
    return {
        name: as_text(value, indent=True)
        for name, value in columns.items()
        if value is not None and name not in left_out
    }


def _request_fields(request: StoredRequest) -> JSONObject:
    fields = request._replace(params=parse_json(request.params, None))._asdict()
    return {name: value for name, value in fields.items() if value is not None}


def as_text(value: AnyJSON, *, indent: bool = False) -> str:
    """A value as text: strings as they are, everything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else 0, default=str).decode()
    except TypeError:
        return json.dumps(_cut_off(value), indent=2 if indent else None, default=str)


def _cut_off(value: AnyJSON, depth: int = 0) -> AnyJSON:
    """A value without what is nested too deep to be written."""
    if depth > MAX_DEPTH:
        return TOO_DEEP
    if isinstance(value, Mapping):
        return {key: _cut_off(inner, depth + 1) for key, inner in value.items()}
    return [_cut_off(inner, depth + 1) for inner in value] if isinstance(value, list | tuple) else value


def diff_parts(before: str, after: str) -> tuple[list[DiffPart], list[DiffPart]]:
    """Split both texts into parts: words that both have, in the same order, are shared.

    >>> diff_parts("a b c", "a x c")[1]
    [DiffPart(text='a ', is_shared=True), DiffPart(text='x', is_shared=False), DiffPart(text=' c', is_shared=True)]
    """
    one, two = _words(before), _words(after)
    first, second = one[:MAX_WORDS], two[:MAX_WORDS]
    steps = SequenceMatcher(None, first, second, autojunk=False).get_opcodes() if len(first) * len(second) < 10**6 else [
        ("replace", 0, len(first), 0, len(second))
    ]  # fmt: skip
    left = [DiffPart("".join(first[a:b]), kind == "equal") for kind, a, b, _, _ in steps if b > a]
    right = [DiffPart("".join(second[a:b]), kind == "equal") for kind, _, _, a, b in steps if b > a]
    return [*left, *_after_max_words(one)], [*right, *_after_max_words(two)]


def _after_max_words(words: list[str]) -> Iterator[DiffPart]:
    if len(words) > MAX_WORDS:
        yield DiffPart("".join(words[MAX_WORDS:]), True)


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|\w+|[^\w\s]", text)


def sample_score(metric: str, value: AnyJSON) -> float | None:
    """The score of one sample as a number; None where a metric has no per-sample value.

    >>> sample_score("acc", 1.0), sample_score("brier_score", [0, [0.75, 0.25]]), sample_score("byte_perplexity", [0.0, 9])
    (1.0, 0.125, 1.0)
    """
    if isinstance(value, bool | int | float):
        return float(value) if abs(value) < MAX_SCORE else None
    if not isinstance(value, list) or len(value) != 2:
        return None
    first, second = value
    if metric == "brier_score" and isinstance(first, int) and isinstance(second, list):
        shares = [float(share) for share in second] if _all_finite(second) else []
        return math.fsum((share - (place == first)) ** 2 for place, share in enumerate(shares)) if shares else None
    if metric not in ("word_perplexity", "byte_perplexity", "bits_per_byte") or not _all_finite(value) or second <= 0:
        return None
    nats = -float(first) / float(second)
    if metric == "bits_per_byte":
        return nats / math.log(2)
    return math.exp(nats) if nats < math.log(MAX_SCORE) else None


def sample_scores(scores: StoredScores, keys: Sequence[ScoreKey]) -> list[float | None]:
    """The scores of a sample under these keys."""
    return [sample_score(key.metric, scores.get(key)) for key in keys]


def _all_finite(values: Sequence[float]) -> bool:
    return all(
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_SCORE for value in values
    )


def unit_results(answers: AnyJSON) -> list[UnitMetricView]:
    """The verdicts that unit metrics stored in a graph's outputs."""
    outcomes = [each for left in answers.values() for each in left] if isinstance(answers, Mapping) else []
    return [
        UnitMetricView(
            name.removesuffix("_result"),
            result["correct"] is True,
            _single_value(result["golden"]),
            _single_value(result["predicted"]),
        )
        for outcome in outcomes
        if isinstance(outcome, Mapping)
        for name, result in outcome.items()
        if isinstance(result, Mapping) and {"correct", "golden", "predicted"} <= set(result)
    ]


def _single_value(value: AnyJSON) -> AnyJSON:
    """The value of a mapping with one key: the key adds nothing."""
    return next(iter(value.values())) if isinstance(value, Mapping) and len(value) == 1 else value
