"""The records of a sample: its document, requests, responses and scores."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from assay.records import (
    EVERY_ROW,
    AnyJSON,
    FilterScores,
    JSONDict,
    JSONObject,
    Request,
    Sample,
    Trace,
)
from assay.records import arguments as arguments
from assay.redaction import written_arguments
from assay.score_keys import ScoreKey

GENERATE, LOGLIKELIHOOD, ROLLING, GRAPH, NOTHING = "generate", "loglikelihood", "loglikelihood_rolling", "graph", "none"
"""Kinds of samples and requests, by lm-eval's names; a graph sends its own requests, and some samples have none."""


class StoredRequest(NamedTuple):
    """A request. `prompt` is None where it is that of the sample; `params` is JSON: backends take any key."""

    kind: str
    prompt: str | None = None
    messages: Sequence[Mapping[str, Any]] | None = None
    """The prompt as a conversation, in the words of OpenAI's protocol, where it is one."""
    continuation: str | None = None
    params: str | None = None


class StoredSample(NamedTuple):
    """A sample as its file has it. `doc`, `target` and `gold` are JSON: users' data has no schema.

    A new column is a field here, with a default, and its type in schema.py; the writer fills it.
    """

    doc_id: int
    kind: str = NOTHING
    dropped: int | None = None
    doc: str = "{}"
    target: str = '""'
    gold: str | None = None
    choices: Sequence[str] | None = None
    prefix: str = ""
    prompt: str = ""
    requests: Sequence[StoredRequest] = ()
    responses: Sequence[Sequence[Any]] = ()
    """By request the answers as filters saw them: a text, a pair of log-likelihood and greediness, or a log-likelihood."""
    replies: Sequence[Mapping[str, Any]] | None = None
    """See `SampleRecord.replies`."""
    answers: Mapping[str, Sequence[Any]] = MappingProxyType({})
    scores: Mapping[ScoreKey, Any] = MappingProxyType({})
    repeats: Mapping[ScoreKey, Sequence[Any]] = MappingProxyType({})
    """The score of every answer, where a document has several."""
    failed: str | None = None
    failures: Mapping[ScoreKey, str] = MappingProxyType({})
    """The reason of each missing value, by row."""
    audit: Sequence[str] = ()

    @property
    def trace(self) -> Trace | None:
        """The nodes that the record of a graph visited; None of other samples."""
        return next((reply["trace"] for reply in reversed(self.replies or ()) if "trace" in reply), None)

    @property
    def last_state(self) -> JSONObject:
        """The keys and values that nodes of a graph had written when the record failed."""
        state: JSONObject = self.replies[-1].get("state", {}) if self.replies else {}
        return state


class SampleRecord(NamedTuple):
    """A sample after the run: its responses as filters saw them, and for each filter its answers and values."""

    sample: Sample
    responses: Sequence[Sequence[Any]]
    scores: Sequence[FilterScores]
    repeats: int = 1
    failed: str = ""
    replies: Sequence[Mapping[str, Any]] | None = None
    """The metadata of each response, if there is any: finish reason, reasoning, usage; after those the responses to
    scorers, verbatim, each as a `verdict`. The last entry of a graph has its `trace`: the nodes the record passed, each
    with the numbers of its responses; and of a record that failed its `state`: what nodes had written."""
    audit: Sequence[str] = ()
    """Anomalies of the sample: see tasks/audit.py."""


LONG_RESULT = 200


def call_text(call: JSONObject) -> str:
    """A tool call as a line, with its result where that is known. It is one that an agent made, or in OpenAI's words.

    >>> call_text({"name": "look_up", "arguments": '{"order": "A1", "n": 2}', "result": "shipped"})
    'look_up(order="A1", n=2) → shipped'
    >>> call_text({"id": "c", "function": {"name": "look_up", "arguments": "{"}})
    'look_up({)'
    """
    inner = call.get("function")
    parts: Mapping[str, Any] = inner if isinstance(inner, Mapping) else call
    written = parts.get("arguments")
    try:
        arguments = orjson.loads(written) if isinstance(written, str) else written
    except ValueError:
        arguments = None
    shown = str(written or "")
    if isinstance(arguments, Mapping):
        shown = ", ".join(f"{name}={_json(value)}" for name, value in arguments.items())
    text = f"{parts.get('name')}({shown})"
    if call.get("error"):
        return f"{text} → Error: {call['error']}"
    result = call.get("result")
    if result is None:
        return text
    said = result if isinstance(result, str) else _json(result)
    return f"{text} → {said if len(said) <= LONG_RESULT else said[:LONG_RESULT] + '…'}"


def _json(value: AnyJSON) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def shown_texts(responses: Sequence[Sequence[Any]], replies: Sequence[JSONObject] | None) -> list[str]:
    """The texts of responses, each with its tool calls."""
    said = [each for repeats in responses for each in repeats]
    metadata = [*(replies or ()), *[{}] * len(said)]
    return [
        "\n".join([*([text] if text.strip() else []), *map(call_text, reply["calls"])]) if reply.get("calls") else text
        for text, reply in zip(said, metadata, strict=False)
        if isinstance(text, str)
    ]


def made_calls(replies: Sequence[JSONObject] | None) -> Sequence[JSONObject]:
    """The tool calls that the agents of a graph made for a record."""
    return next((reply["tool_calls"] for reply in reversed(replies or ()) if reply.get("tool_calls")), ())


def row_failures(record: SampleRecord) -> dict[ScoreKey, str]:
    """Return by row why a sample has no value there; EVERY_ROW means all rows of a filter, or of all filters."""
    if record.failed and not record.scores:
        return {ScoreKey(EVERY_ROW, EVERY_ROW): record.failed}
    return {ScoreKey(row, each.filter): reason for each in record.scores for row, reason in each.failed.items()}


def lm_eval_records(record: SampleRecord, doc_id: int) -> Iterator[JSONDict]:
    """The sample as lm-eval logs it: one record per filter."""
    sample = record.sample
    if not record.scores:
        return
    common = {
        "doc_id": doc_id,
        "doc": sample.doc,
        "target": sample.target,
        "arguments": [written_arguments(request) for request in sample.requests[:: record.repeats]],
        "resps": [list(responses) for responses in record.responses],
    }
    verbatim = [reply["verdict"] for reply in record.replies or () if "verdict" in reply]
    verdicts = {"verdicts": verbatim} if verbatim else {}
    hashes = {
        "doc_hash": _hash(_indented(sample.doc)),
        "prompt_hash": _hash((_prompt(sample.requests[0]) if sample.requests else "").encode()),
        "target_hash": _hash(str(sample.target).encode()),
    }
    for name, answers, values, repeats, failed in record.scores:
        if EVERY_ROW in failed:  # lm-eval has no line for what has no score
            continue
        own = {"filtered_resps": list(answers), "filter": name, "metrics": list(values)}
        per_repeat = {"scores_per_repeat": dict(repeats)} if repeats else {}
        yield {**common, **own, **hashes, **values, **per_repeat, **verdicts}


def _prompt(request: Request) -> str:
    return str(arguments(request)[0])


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _indented(doc: JSONObject) -> bytes:
    return orjson.dumps(dict(doc), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str)
