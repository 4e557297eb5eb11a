"""One sample in detail: prompt, responses, filtered answers, scores, how its answer differs from the target, the verdicts of
judges, and the way of a graph's record through its nodes."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import orjson

from assay.comparison.labelling import judge_rows
from assay.errors import AssayError
from assay.models.reasoning import START, split_thinking
from assay.models.servers.server_model import Price, price_of
from assay.number_text import format_duration, format_figures, format_trimmed
from assay.records import Answers, AnyJSON, JSONObject, MetricValue, Usage, json_number, mapping
from assay.report.charts import Span
from assay.runs.labels import TaskLabels
from assay.runs.run import Run, model_text
from assay.runs.samples.records import StoredRequest, StoredSample, call_text, made_calls, shown_texts
from assay.runs.samples.turns import ChatPrompt, ChatTurn, chat_prompt, stored_exchanges, turns_of
from assay.safe_text import cut
from assay.score_keys import REPEATS, ScoreKey, join_scores
from assay.scoring.judges import ROLE, json_objects
from assay.statistics.softmax import softmax

TaskSettings = JSONObject
"""The configuration of a task as the run stored it."""
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
    trace: "Sequence[Step]" = ()
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


MODEL, TOOL = "model", "tool"
"""Who spent the time of a span."""
FENCED = re.compile(r"<<<(.+) ([0-9a-f]{32})>>>\n(?s:.*)\n<<<end of \1 \2>>>")
"""An answer as a judge sees it."""


class Step(NamedTuple):
    """A node that a graph's record visited, with its conversation, and its time where that is known; `failed` is the reason."""

    node: str
    turns: Sequence[ChatTurn]
    seconds: float | None
    failed: str = ""
    tokens: tuple[int, int] | None = None
    """Tokens read and written by its models."""
    cost: float | None = None


def steps_of(row: StoredSample, prices: Mapping[str, Price | None] | None = None) -> list[Step]:
    """The visited nodes in order. What an earlier request of a conversation has is not repeated."""
    parts, replies = stored_exchanges(row), row.replies or ()
    steps = []
    for node, numbers in _visits(row):
        own = [parts[number] for number in numbers if number < len(parts)]
        said = [message for each in own for message in (*each.asked, each.answer) if message is not None]
        node_replies = [replies[number] for number in numbers if number < len(replies)]
        usages = [reply["usage"] for reply in node_replies if reply.get("usage") is not None]
        reason = next((str(reply["failed"]) for reply in node_replies if "failed" in reply), "")
        tokens = (sum(each[0] for each in usages), sum(each[1] for each in usages)) if usages else None
        seconds = sum(each[2] for each in usages) if usages else None
        price = (prices or {}).get(node)
        cost = sum(price.of(Usage(*each)) for each in usages) if price is not None and usages else None
        steps.append(Step(node, turns_of(said), seconds, reason, tokens, cost))
    if row.failed and steps and not any(step.failed for step in steps):  # no request did: the last node it reached
        steps[-1] = steps[-1]._replace(failed=row.failed)
    return steps


def nodes_of_responses(row: StoredSample) -> dict[int, str]:
    """The node that each response of a graph's record belongs to."""
    return {number: node for node, numbers in _visits(row) for number in numbers}


def judge_questions(row: StoredSample) -> dict[int, str]:
    """The requests of a graph's record that ask a judge, by number: their question has an answer in its fence."""
    asked = {
        number: "\n\n".join(turn.text for turn in turns_of(each.asked))
        for number, each in enumerate(stored_exchanges(row))
    }
    return {number: question for number, question in asked.items() if FENCED.search(question)}


def _visits(row: StoredSample) -> Iterator[tuple[str, list[int]]]:
    trace = row.trace
    for entry in trace if isinstance(trace, list) else ():
        yield str(entry[0]), [number for number in entry[1] if isinstance(number, int)]


def spans_of(row: StoredSample) -> list[Span]:
    """Requests and tool calls in their order, each with its seconds; empty where none has any."""
    replies, left = row.replies or (), list(made_calls(row.replies))
    spans: list[Span] = []
    for node, numbers in _visits(row):
        for turn, number in enumerate(numbers, 1):
            reply = replies[number] if number < len(replies) else {}
            spans.append(_request_span(node, turn if len(numbers) > 1 else 0, reply))
            own = [call for call in left if _node(call) == node and call.get("turn") == turn]
            left = [call for call in left if not any(call is each for each in own)]
            spans += map(_call_span, own)
    spans += map(_call_span, left)
    return spans if any(span.seconds for span in spans) else []


def _node(call: JSONObject) -> str:
    return str(call.get("node"))


def _request_span(node: str, turn: int, reply: JSONObject) -> Span:
    usage = reply.get("usage")
    note = f"{usage[0]:,} tokens in, {usage[1]:,} out" if usage else ""
    failed = f"failed: {reply['failed']}" if "failed" in reply else ""
    return Span(f"{node}, turn {turn}" if turn else node, float(usage[2]) if usage else 0.0, MODEL, failed or note)


def _call_span(call: JSONObject) -> Span:
    return Span(str(call.get("name")), float(call.get("seconds") or 0.0), TOOL, call_text(call))


def node_prices(run: Run, task: str) -> dict[str, Price | None]:
    """The price of the model that a node asks, by node; None where it has none, or where its model is not certain."""
    roles = mapping(run.manifest.get("roles"))
    under_test = mapping(run.results.config.get("model_args"))
    prices: dict[str, Price | None] = {}
    for name, node in mapping(run.graph(task).get("nodes")).items():
        role = _role(mapping(node))
        known = mapping(roles.get(role)).get("args") if role in roles else None if role == ROLE else under_test
        prices[str(name)] = _price(mapping(known))
    return prices


def _role(node: JSONObject) -> str:
    """The role that a node asks: the name of its model, or the judge that one of its unit metrics is."""
    measured: AnyJSON = node.get("unit_metrics_map")
    for each in measured if isinstance(measured, list) else ():
        if isinstance(each, Mapping) and each.get("name") == "llm_judge":
            return str(mapping(each.get("params")).get("role") or ROLE)
    model = node.get("model")
    return str(model.get("name") or "") if isinstance(model, Mapping) else str(model or "")


def _price(arguments: JSONObject) -> Price | None:
    return price_of("", json_number(arguments.get("price_in")), json_number(arguments.get("price_out")), None)


class VerdictView(NamedTuple):
    """One verdict. `score` is as the judge wrote it."""

    role: str
    model: str
    score: float | str | None
    reason: str
    question: str
    text: str
    about: str
    scale: str = ""
    node: str = ""
    """The node of a graph that asked."""


def verdict_views(run: Run, task: str, row: StoredSample) -> list[VerdictView]:
    """The verdicts of a sample, in the order in which they were asked for; of a graph those of its judge nodes."""
    replies = row.replies or ()
    own = sum(map(len, row.responses))
    views = [
        _view(
            run,
            str(reply.get("role") or ""),
            str(reply.get("question") or ""),
            reply.get("verdict"),
            reply.get("usage"),
        )
        for reply in replies[own:]
        if "verdict" in reply
    ]
    in_graph = _of_graph(run, row) if row.trace else []
    scale = _scale(run, task) if not in_graph else ""
    return [each._replace(scale=scale if isinstance(each.score, int | float) else "") for each in views] + in_graph


def _of_graph(run: Run, row: StoredSample) -> list[VerdictView]:
    """The verdicts of the judges that nodes of a graph asked."""
    texts, replies, nodes = shown_texts(row.responses, row.replies), row.replies or (), nodes_of_responses(row)
    role = ROLE if ROLE in mapping(run.manifest.get("roles")) else ""
    return [
        _view(run, role, question, texts[number], replies[number].get("usage") if number < len(replies) else None)
        ._replace(node=nodes.get(number, ""))
        for number, question in judge_questions(row).items()
        if number < len(texts)
    ]  # fmt: skip


def _scale(run: Run, task: str) -> str:
    """The scale that the judge of a task was asked to use, in words."""
    try:
        [rows] = judge_rows(run.finished(), [task])
    except AssayError:  # it has no judge, or is in progress
        return ""
    return "" if rows.other else f"from {rows.scale[0]:g} to {rows.scale[1]:g}"


def _view(run: Run, role: str, question: str, said: AnyJSON, usage: AnyJSON) -> VerdictView:
    roles = mapping(run.manifest.get("roles"))
    role = role or (next(iter(roles)) if len(roles) == 1 else "")
    known = mapping(roles.get(role))
    model = model_text(known.get("name") or "", known.get("args"))
    about = f"{usage[0]:,} tokens in, {usage[1]:,} out" if isinstance(usage, Sequence) and len(usage) > 1 else ""
    if not isinstance(said, str):  # the number of a reward model
        return VerdictView(role, model, said if isinstance(said, int | float) else None, "", question, "", about)
    score, reason = read_reply(said)
    return VerdictView(role, model, score, reason, question, said, about)


def read_reply(text: str) -> tuple[float | str | None, str]:
    """The score and the reason in a judge's reply, as it gave them; None where it gave no score.

    >>> read_reply('So: {"id": "ab", "reason": "It is right.", "score": 8}')
    (8, 'It is right.')
    >>> read_reply("I cannot say.")
    (None, '')
    """
    objects = [each for each in json_objects(text) if "score" in each or "winner" in each]
    if not objects:
        return None, ""
    verdict = objects[-1]
    score = verdict.get("score", verdict.get("winner"))
    is_plain = isinstance(score, int | float | str) and not isinstance(score, bool)
    return score if is_plain else None, str(verdict.get("reason") or "")


def label_lines(labels: TaskLabels | None, doc: int) -> list[tuple[str, float]]:
    """The labels that people gave to a document: name and label."""
    if labels is None:
        return []
    return [(name or "no name", own[doc]) for name, own in labels.people.items() if doc in own]
