"""A sample as its file has it, in Python's values: what was asked and answered, and what a scoring made of it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from assay.records import ScoreKey

GENERATE, LOGLIKELIHOOD, ROLLING, GRAPH, NOTHING = "generate", "loglikelihood", "loglikelihood_rolling", "graph", "none"
"""Kinds of samples and requests, in lm-eval's words; a graph asks on its own, and of some samples nothing could be asked."""


class StoredRequest(NamedTuple):
    """A request. `prompt` is None where it is that of the sample; `params` is JSON: backends take any key."""

    kind: str
    prompt: str | None = None
    messages: Sequence[Mapping[str, Any]] | None = None
    """The prompt as a conversation, in the words of OpenAI's protocol, where it is one."""
    continuation: str | None = None
    params: str | None = None


class RequestColumns(NamedTuple):
    """What was asked about a sample and answered. `doc`, `target` and `gold` are JSON: users' data has no schema."""

    doc_id: int
    kind: str
    dropped: int | None
    doc: str
    target: str
    gold: str | None
    choices: Sequence[str] | None
    prefix: str
    prompt: str
    requests: Sequence[StoredRequest]
    responses: Sequence[Sequence[Any]]
    """By request the answers as filters saw them: a text, a pair of log-likelihood and greediness, or a log-likelihood."""
    replies: Sequence[Mapping[str, Any]] | None
    """See `Kept.replies`."""


class ScoreColumns(NamedTuple):
    """What a scoring made of a sample."""

    answers: Mapping[str, Sequence[Any]]
    scores: Mapping[str, Any]
    """By the name of a row the value; by that of its repeats the scores of every answer (config/row_names.py)."""
    failed: str | None
    failures: Mapping[ScoreKey, str]
    """Why there is no value, by row."""
    audit: Sequence[str]


class StoredSample(NamedTuple):
    """A sample: the fields of `RequestColumns`, then those of `ScoreColumns`."""

    doc_id: int
    kind: str
    dropped: int | None
    doc: str
    target: str
    gold: str | None
    choices: Sequence[str] | None
    prefix: str
    prompt: str
    requests: Sequence[StoredRequest]
    responses: Sequence[Sequence[Any]]
    replies: Sequence[Mapping[str, Any]] | None
    answers: Mapping[str, Sequence[Any]]
    scores: Mapping[str, Any]
    failed: str | None
    failures: Mapping[ScoreKey, str]
    audit: Sequence[str]

    @property
    def asked(self) -> RequestColumns:
        return RequestColumns._make(self[: len(RequestColumns._fields)])

    @property
    def verdict(self) -> ScoreColumns:
        return ScoreColumns._make(self[len(RequestColumns._fields) :])
