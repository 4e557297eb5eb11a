"""Converts samples of format 1 (version 0.1), JSON in text columns, to format 2. No other module knows format 1."""

from collections.abc import Sequence

import orjson

from assay.records import AnyJSON, JSONDict, JSONObject
from assay.runs.samples.encode import as_json
from assay.runs.samples.records import GENERATE, GRAPH, LOGLIKELIHOOD, NOTHING, ROLLING, StoredRequest, StoredSample
from assay.runs.samples.schema import Array, ArrowSchema, ArrowTable, ArrowType
from assay.runs.samples.turns import read_conversation
from assay.runs.samples.writer import messages_of, row_arrays
from assay.runs.validation import JSON_COLUMNS, NEEDED, wrong_column

NUMBERS = ("doc_id", "dropped")
TEXTS = (
    "doc", "target", "gold", "choices", "prompt", "requests", "responses", "replies", "prefix", "answers", "scores", "failed",
    "audit",
)  # fmt: skip
LEAST = float("-inf")
"""The meaning of null as a likelihood: JSON has no infinity, and no other likelihood was written as null."""


def is_format_1(schema: ArrowSchema) -> bool:
    """Whether columns are of format 1: it has no kind of samples."""
    return "kind" not in schema.names


def wrong_schema(schema: ArrowSchema) -> str:
    """Describe what is wrong with the columns of a file; empty where they are right."""
    missing = sorted(NEEDED - {*schema.names})
    if missing or len({*schema.names}) != len(schema.names):
        return f"there is no column {missing[0]}" if missing else "two columns have one name"
    wrong = [field for field in schema if _is_of_another_kind(field.name, field.type)]
    return f"the column {wrong[0].name} holds {wrong[0].type}" if wrong else ""


def _is_of_another_kind(name: str, written: ArrowType) -> bool:
    from pyarrow import types

    kind = written.value_type if types.is_dictionary(written) else written
    is_number = "," in name or name in NUMBERS
    if types.is_null(kind) or not (is_number or name in TEXTS):
        return False
    if is_number:
        return not (types.is_floating(kind) or types.is_integer(kind))
    return not (types.is_string(kind) or types.is_large_string(kind))


def as_format_2(table: ArrowTable) -> tuple[dict[str, Array], list[str]]:
    """The columns of format 2 that say what columns of format 1 do, and the names of the rows of scores. What cannot be read
    is a ValueError."""
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    for name in JSON_COLUMNS.keys() | NEEDED:
        if what := wrong_column(name, columns.get(name, ())):
            raise ValueError(what)
    scores = [name for name in columns if "," in name]
    names = [name for name in (*NUMBERS, *TEXTS, *scores) if name in columns]
    rows = zip(*(columns[name] for name in names), strict=True)
    return row_arrays([row_of(dict(zip(names, row, strict=True))) for row in rows])


def row_of(written: JSONObject) -> StoredSample:
    """A row from the columns of format 1."""
    replies = _loads(written, "replies")
    requests = [request_row(each) for each in orjson.loads(written["requests"])]
    is_graph = bool(replies) and "trace" in replies[-1]
    prefix, prompt, requests = _with_conversations(written["prefix"] or "", written["prompt"], requests)
    return StoredSample(
        written["doc_id"],
        GRAPH if is_graph else requests[0].kind if requests else NOTHING,
        written.get("dropped"),
        written["doc"],
        written["target"],
        written.get("gold"),
        _loads(written, "choices"),
        prefix,
        prompt,
        requests,
        [[seen(value) for value in values] for values in orjson.loads(written["responses"])],
        replies,
        {name: [seen(value) for value in values] for name, values in orjson.loads(written["answers"]).items()},
        _scores(written),
        written.get("failed"),
        {},
        tuple(written["audit"].split(",")) if written.get("audit") else (),
    )


def _with_conversations(
    prefix: str, prompt: str, requests: Sequence[StoredRequest]
) -> tuple[str, str, list[StoredRequest]]:
    """The prompt, and the requests with their conversations: version 0.1 sent every text that is one as messages."""
    own = [_conversation(each.prompt if each.prompt is not None else "") for each in requests]
    first = _conversation(prefix + prompt) if requests and requests[0].prompt is None else None
    rows = [each._replace(messages=messages) for each, messages in zip(requests, own, strict=True)]
    if first is None:
        return prefix, prompt, rows
    return "", prefix + prompt, [rows[0]._replace(messages=first), *rows[1:]]


def _conversation(text: str) -> list[JSONDict] | None:
    messages = read_conversation(text)
    return messages_of(messages) if messages else None


def _loads(written: JSONObject, name: str) -> AnyJSON:
    return orjson.loads(written[name]) if written.get(name) is not None else None


def _scores(written: JSONObject) -> JSONDict:
    """Return the scores by name. Values that JSON cannot hold are in their own columns."""
    scores = orjson.loads(written["scores"])
    return {name: written.get(name) if value is None else value for name, value in scores.items()}


def request_row(described: Sequence[AnyJSON]) -> StoredRequest:
    """A request from what it had beside the first context: parameters, a continuation with its context, or nothing."""
    if not described or described[-1] is None:
        return StoredRequest(ROLLING, described[0] if described else None)
    own = described[0] if len(described) > 1 else None
    if isinstance(described[-1], dict):
        return StoredRequest(GENERATE, own, None, None, as_json(described[-1]))
    return StoredRequest(LOGLIKELIHOOD, own, None, described[-1])


def seen(value: AnyJSON) -> AnyJSON:
    """A response as filters saw it: a text, a pair of likelihood and greediness, or a likelihood alone."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], bool):
        return (LEAST if value[0] is None else value[0], value[1])
    return LEAST if value is None else value
