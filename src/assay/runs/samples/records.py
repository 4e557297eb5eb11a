"""What is kept of every sample: its document, what was asked, what was answered, what it scored."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from assay.records import (
    EVERY_ROW,
    Failed,
    FilterScores,
    Likelihood,
    Outcome,
    Request,
    Response,
    Sample,
    ScoreKey,
    Text,
)
from assay.records import arguments as arguments
from assay.runs.redaction import written_arguments


class SampleRecord(NamedTuple):
    """A sample after the run: its responses as filters saw them, and for each filter its answers and values."""

    sample: Sample
    responses: Sequence[Sequence[Any]]
    scores: Sequence[FilterScores]
    repeats: int = 1
    failed: str = ""
    response_metadata: Sequence[Mapping[str, Any]] | None = None
    """What the model told beside each response, where it told anything: why it ended, what it thought, what it took; and
    behind those what scorers were told about the answers, word for word, each as a `verdict`. The last of a graph's has its
    `trace`: the nodes the record came through, each with the numbers of the responses it was given."""
    audit: Sequence[str] = ()
    """What deserves a look about it: see tasks/audit.py."""


def row_failures(kept: SampleRecord) -> dict[ScoreKey, str]:
    """By row why a sample has no value there; EVERY_ROW stands for all rows of a filter, or for all of all filters."""
    if kept.failed and not kept.scores:
        return {ScoreKey(EVERY_ROW, EVERY_ROW): kept.failed}
    return {ScoreKey(row, each.filter): reason for each in kept.scores for row, reason in each.failed.items()}


def response_metadata(responses: Sequence[Response], own: int) -> Sequence[Mapping[str, Any]] | None:
    """What is worth keeping beside the texts and numbers of responses; the first `own` are those to the sample's requests."""
    if all(type(response) is Likelihood and response.usage is None for response in responses):  # most of all there are
        return None
    found = [_reply(response) for response in responses[:own]]
    found += [{**_reply(response), **_verdict(response)} for response in responses[own:]]
    return found if any(found) else None


def _verdict(response: Response) -> dict[str, Any]:
    if isinstance(response, Text):
        return {"verdict": response.text}
    return {"verdict": response.value} if isinstance(response, Likelihood) else {}


def _reply(response: Response) -> dict[str, Any]:
    if isinstance(response, Failed):
        return {"failed": response.reason, **({"trace": response.trace} if response.trace else {})}
    told: dict[str, Any] = {"trace": response.trace} if isinstance(response, Outcome) and response.trace else {}
    if isinstance(response, Text):
        if response.finish:
            told["finish"] = response.finish
        if response.reasoning:
            told["reasoning"] = response.reasoning
        if response.calls:
            told["calls"] = list(response.calls)
    if isinstance(response, Outcome) and response.noticed:
        told["noticed"] = dict(response.noticed)
    if response.usage is not None:
        told["usage"] = tuple(response.usage)
    return told


def lm_eval_records(kept: SampleRecord, doc_id: int) -> Iterator[dict[str, Any]]:
    """The sample as lm-eval logs it: one record per filter."""
    sample = kept.sample
    if not kept.scores:
        return
    common = {
        "doc_id": doc_id,
        "doc": sample.doc,
        "target": sample.target,
        "arguments": [written_arguments(request) for request in sample.requests[:: kept.repeats]],
        "resps": [list(responses) for responses in kept.responses],
    }
    asked = [told["verdict"] for told in kept.replies or () if "verdict" in told]
    verdicts = {"verdicts": asked} if asked else {}
    hashes = {
        "doc_hash": _hash(_indented(sample.doc)),
        "prompt_hash": _hash((_prompt(sample.requests[0]) if sample.requests else "").encode()),
        "target_hash": _hash(str(sample.target).encode()),
    }
    for name, answers, values, repeats, failed in kept.scores:
        if EVERY_ROW in failed:  # lm-eval has no line for what has no score
            continue
        own = {"filtered_resps": list(answers), "filter": name, "metrics": list(values)}
        several = {"scores_per_repeat": dict(repeats)} if repeats else {}
        yield {**common, **own, **hashes, **values, **several, **verdicts}


def _prompt(request: Request) -> str:
    return str(arguments(request)[0])


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _indented(doc: Mapping[str, Any]) -> bytes:
    return orjson.dumps(dict(doc), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str)
