"""Encodes samples as the columns of format 2, from flat arrays: the values of all samples, and where each sample begins.

What no sample of a file has is left out of it, columns and fields of structs alike: an empty one costs 40 µs a file. SCHEMA
names them all.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import orjson

from assay.records import AnyJSON, JSONDict, JSONObject, Usage
from assay.runs.samples.arrays import float_array, int32_array, int_array, make_array, text_array, truth_array
from assay.runs.samples.records import RequestColumns, ScoreColumns, StoredRequest
from assay.runs.samples.schema import (
    ALWAYS,
    ANSWER,
    FILTERED,
    MADE_CALL,
    MESSAGE,
    REQUEST,
    RESPONSE,
    SCORE,
    TOOL_CALL,
    USAGE,
    VERDICT,
    Array,
    Type,
    arrow_type,
    type_of,
)
from assay.score_keys import ScoreKey


def request_arrays(rows: Sequence[RequestColumns], requests: Array | None = None) -> dict[str, Array]:
    """Build the columns of requests and responses; `requests` is that column, if it is built already. Prefixes that prompts
    share are stored once."""
    columns: dict[str, Sequence[Any]] = dict(
        zip(RequestColumns._fields, _turned(rows, len(RequestColumns._fields)), strict=True)
    )
    arrays: dict[str, Array] = {
        "doc_id": int_array(columns["doc_id"]),
        "kind": _dictionary(columns["kind"]),
        "dropped": _unless_empty(int_array(columns["dropped"])),
        **{name: text_array(columns[name]) for name in ("doc", "target", "gold")},
        "choices": _lists(columns["choices"], text_array),
        "prefix": _dictionary(columns["prefix"]),
        "prompt": text_array(columns["prompt"]),
        "requests": requests if requests is not None else request_lists(columns["requests"]),
        **_responses(columns["responses"], columns["replies"]),
    }
    return _with_required(arrays)


def score_arrays(rows: Sequence[ScoreColumns]) -> tuple[dict[str, Array], list[ScoreKey]]:
    """Build the columns of answers and scores, with numeric scores last; returns also the keys of all scores, in their order."""
    answers, scores, repeats, failed, failures, audit = _turned(rows, len(ScoreColumns._fields))
    kinds = dict.fromkeys(map(tuple, scores))  # of most tasks one
    keys = dict.fromkeys(key for kind in kinds for key in kind)
    arrays: dict[str, Array] = {
        "answers": _answers(answers),
        "failed": text_array(failed),
        "failures": _unless_empty(_lists([[*each.items()] for each in failures], _failures)) if any(failures) else None,
        "audit": _lists(audit, text_array),
        **_scores(scores, repeats, [*keys]),
    }
    return _with_required(arrays), [*keys]


def _with_required(columns: Mapping[str, Array | None]) -> dict[str, Array]:
    import pyarrow as pa

    size = len(next(each for each in columns.values() if each is not None))
    arrays = {
        name: pa.nulls(size, arrow_type(name)) if each is None and name in ALWAYS else each
        for name, each in columns.items()
    }
    return {name: each for name, each in arrays.items() if each is not None}


def _turned(rows: Sequence[Sequence[AnyJSON]], width: int) -> list[Sequence[AnyJSON]]:
    """The columns of rows."""
    return list(zip(*rows, strict=True)) if rows else [()] * width


# ---- arrays; None means an empty one


def _dictionary(values: Sequence[str]) -> Array:
    import pyarrow as pa

    numbers = {text: number for number, text in enumerate(dict.fromkeys(values))}
    indices = int32_array([numbers[text] for text in values])
    return pa.DictionaryArray.from_arrays(indices, text_array(list(numbers)))


def _unless_empty(array: Array) -> Array | None:
    return None if array is None or array.null_count == len(array) else array


def _lists(column: Sequence[Sequence[AnyJSON] | None], make: Callable[[list[AnyJSON]], Array]) -> Array:
    """Build a column of lists from the array of all their items; None is a missing list."""
    missing = [each is None for each in column] if None in column else None
    there: Sequence[Sequence[Any]] = [each or () for each in column] if missing else column  # type: ignore[assignment]
    return _split(make([item for each in there for item in each]), map(len, there), missing)


def _split(values: Array, lengths: Iterable[int], missing: Sequence[bool] | None = None) -> Array:
    import pyarrow as pa

    offsets: list[int | None] = [0, *accumulate(lengths)]
    if missing is not None:  # a mask would import pyarrow.compute, which takes as long as a hundred records
        offsets[:-1] = [None if is_missing else at for at, is_missing in zip(offsets, missing, strict=False)]
    return pa.ListArray.from_arrays(int32_array(offsets), values)


def _struct(described: Mapping[str, Type], fields: Mapping[str, Array | None], *always: str) -> Array:
    """Structs of the fields that hold anything, and those that are always there; the first, where nothing does."""
    import pyarrow as pa

    there = {name: each for name, each in fields.items() if name in always or _unless_empty(each) is not None}
    if not there:
        name = next(iter(described))
        size = len(next(each for each in fields.values() if each is not None))
        there = {name: pa.nulls(size, type_of(described[name]))}
    return pa.StructArray.from_arrays([*there.values()], [*there])


def as_json(value: AnyJSON) -> str:
    """A value as JSON; what JSON has no word for, as text."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # keys that are numbers, values that are arrays: allowed, and slower for all if always enabled
        return _odd_json(value)


def _odd_json(value: AnyJSON) -> str:
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode()
    except TypeError:  # a whole number beyond 64 bits, half a character: Python's own writes them
        return json.dumps(value, default=_plain)


def from_json(text: str) -> AnyJSON:
    """A value that `as_json` wrote: also a whole number of 400 digits and half a character, which orjson refuses."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def _plain(value: AnyJSON) -> AnyJSON:
    if hasattr(value, "_asdict") or isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


# ---- requests


def request_lists(column: Sequence[Sequence[StoredRequest]]) -> Array:
    """The column of requests."""
    return _lists(column, _requests)


def _requests(flat: Sequence[StoredRequest]) -> Array:
    kinds, prompts, messages, continuations, params = _turned(flat, len(StoredRequest._fields))
    fields = {
        "kind": text_array(kinds),
        "prompt": text_array(prompts),
        "messages": _lists(messages, _messages) if any(each is not None for each in messages) else None,
        "continuation": text_array(continuations),
        "params": text_array(params),
    }
    return _struct(REQUEST, fields, "kind")


def likelihood_requests(
    lengths: Iterable[int], prompts: Sequence[str | None], continuations: Sequence[str], kind: str
) -> Array:
    """The column of requests of samples that ask for log-likelihoods alone, from what all of them ask."""
    fields = {
        "kind": text_array([kind] * len(prompts)),
        "prompt": text_array(prompts),
        "continuation": text_array(continuations),
    }
    return _split(_struct(REQUEST, fields, "kind"), lengths)


def _messages(flat: Sequence[JSONObject]) -> Array:
    calls = [each.get("tool_calls") for each in flat]
    fields = {
        **{name: text_array([each.get(name) for each in flat]) for name in ("role", "content", "name", "tool_call_id")},
        "tool_calls": _lists(calls, _tool_calls) if any(calls) else None,
    }
    return _struct(MESSAGE, fields, "role", "content")


def _tool_calls(flat: Sequence[JSONObject]) -> Array:
    parts = [call_parts(each) for each in flat]
    ids, names, arguments = _turned(parts, 3)
    whole = [None if call_of(*own) == each else as_json(each) for own, each in zip(parts, flat, strict=True)]
    fields = {
        "id": text_array(ids),
        "name": text_array(names),
        "arguments": text_array(arguments),
        "json": text_array(whole),
    }
    return _struct(TOOL_CALL, fields, "name")


def call_parts(call: JSONObject) -> tuple[str | None, str | None, str | None]:
    """Id, name and arguments of a call in OpenAI's words, those that are texts."""
    function = call.get("function")
    inner: Mapping[str, Any] = function if isinstance(function, Mapping) else {}
    parts = [call.get("id"), inner.get("name"), inner.get("arguments")]
    ids, name, arguments = (each if isinstance(each, str) else None for each in parts)
    return ids, name, arguments


def call_of(call_id: str | None, name: str | None, arguments: str | None) -> JSONDict:
    """A call of a tool in OpenAI's words."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


# ---- responses

NOT_STORED: list[Any] = [None]


def _responses(
    column: Sequence[Sequence[Sequence[AnyJSON]]], replies: Sequence[Sequence[JSONObject] | None]
) -> dict[str, Array | None]:
    """Build the columns of responses with their metadata; the responses to scorers come after those to the sample's requests."""
    if not any(replies):
        lengths = [len(repeats) for responses in column for repeats in responses]
        structs = _response_structs([said for responses in column for repeats in responses for said in repeats], None)
        return {"responses": _split(_split(structs, lengths), map(len, column))}
    nested: list[Sequence[Sequence[Any]]] = []
    own: list[Mapping[str, Any]] = []
    behind: list[Sequence[Mapping[str, Any]]] = []
    for responses, metadata in zip(column, replies, strict=True):
        # a failed sample has no responses: only the reason and the usage of its other requests are stored
        stored = responses or [NOT_STORED] * len(metadata or ())
        count = sum(map(len, stored))
        nested.append(stored)
        own += metadata[:count] if metadata else [{}] * count
        behind.append(metadata[count:] if metadata else ())
    lengths = [len(repeats) for responses in nested for repeats in responses]
    structs = _response_structs([said for responses in nested for repeats in responses for said in repeats], own)
    ends = [(metadata[-1] if metadata else {}) for metadata in replies]
    return {
        "responses": _split(_split(structs, lengths), map(len, nested)),
        "verdicts": _lists(behind, _verdicts) if any(behind) else None,
        "trace": _lists([each.get("trace") or None for each in ends], _trace)
        if any("trace" in e for e in ends)
        else None,
        "noticed": _lists([[*each["noticed"].items()] if each.get("noticed") else None for each in ends], _noticed)
        if any("noticed" in each for each in ends)
        else None,
        "tool_calls": _lists([each.get("tool_calls") or None for each in ends], _made_calls)
        if any("tool_calls" in each for each in ends)
        else None,
        "state": _unless_empty(text_array([as_json(each["state"]) if "state" in each else None for each in ends])),
    }


def _verdicts(flat: Sequence[JSONObject]) -> Array:
    fields = _response_fields_of([each.get("verdict") for each in flat], flat)
    return _struct(
        VERDICT, fields | {name: text_array([each.get(name) for each in flat]) for name in ("role", "question")}
    )


def _response_structs(said: Sequence[AnyJSON], metadata: Sequence[JSONObject] | None) -> Array:
    return _struct(RESPONSE, _response_fields_of(said, metadata))


def _response_fields_of(said: Sequence[AnyJSON], metadata: Sequence[JSONObject] | None) -> dict[str, Array | None]:
    fields = _response_fields(said)
    if metadata is not None:
        usages = [each.get("usage") for each in metadata]
        calls = [each.get("calls") for each in metadata]
        fields |= {
            name: text_array([each.get(name) for each in metadata]) for name in ("failed", "finish", "reasoning")
        }
        fields["usage"] = _usages(usages) if any(each is not None for each in usages) else None
        fields["tool_calls"] = _lists(calls, _tool_calls) if any(calls) else None
    return fields


def _usages(column: Sequence[Sequence[AnyJSON] | None]) -> Array:
    import pyarrow as pa

    whole = [Usage(*each) if each is not None else Usage() for each in column]
    columns = zip(Usage._fields, _turned(whole, len(Usage._fields)), strict=True)
    arrays = [make_array(USAGE[name], values) for name, values in columns]
    mask = truth_array([each is None for each in column]) if None in column else None
    return pa.StructArray.from_arrays(arrays, [*Usage._fields], mask=mask)


def _trace(flat: Sequence[Sequence[AnyJSON]]) -> Array:
    import pyarrow as pa

    numbers = _lists([each[1] for each in flat], int_array)
    return pa.StructArray.from_arrays([text_array([str(each[0]) for each in flat]), numbers], ["node", "responses"])


def _made_calls(flat: Sequence[JSONObject]) -> Array:
    import pyarrow as pa

    columns = {name: [each.get(name) for each in flat] for name in MADE_CALL}
    for name in ("arguments", "result"):
        columns[name] = [each if each is None or isinstance(each, str) else as_json(each) for each in columns[name]]
    arrays = [make_array(MADE_CALL[name], values) for name, values in columns.items()]
    return pa.StructArray.from_arrays(arrays, [*MADE_CALL])


def _noticed(flat: Sequence[tuple[str, int]]) -> Array:
    import pyarrow as pa

    counts = int_array([count for _, count in flat])
    return pa.StructArray.from_arrays([text_array([what for what, _ in flat]), counts], ["what", "count"])


def _response_fields(values: Sequence[AnyJSON]) -> dict[str, Array | None]:
    """Texts, pairs of log-likelihood and greediness, and log-likelihoods, each in its field."""
    if (arrays := _of_one_kind(values)) is not None:
        return arrays
    pairs = [each if isinstance(each, tuple | list) else (each, None) for each in values]
    numbers = [
        None if isinstance(each, str) else as_float(number, flag)
        for each, (number, flag) in zip(values, pairs, strict=True)
    ]
    return {
        "text": text_array([each if isinstance(each, str) else None for each in values]),
        "value": float_array(numbers),
        "greedy": truth_array([flag for _, flag in pairs]),
    }


def as_float(value: float | None, flag: bool | None) -> float | None:
    """A log-likelihood. Where only its greediness is known it is that of the impossible, as JSON has it."""
    return float(value) if value is not None else None if flag is None else -math.inf


def _of_one_kind(values: Sequence[AnyJSON]) -> dict[str, Array | None] | None:
    """The fields of values that are all texts, all pairs of log-likelihood and greediness, or all log-likelihoods."""
    kinds = {*map(type, values)}
    if kinds == {str}:
        return {"text": text_array(values)}
    if kinds == {float}:
        return {"value": float_array(values)}
    if kinds != {tuple} or {*map(len, values)} != {2}:
        return None
    numbers, flags = zip(*values, strict=True)
    if {*map(type, numbers)} != {float} or {*map(type, flags)} != {bool}:
        return None
    return {"value": float_array(numbers), "greedy": truth_array(flags)}


# ---- answers and scores


def _answers(column: Sequence[Mapping[str, Sequence[AnyJSON]]]) -> Array:
    names = [name for each in column for name in each]
    answers = [values for each in column for values in each.values()]
    left = _split(_answer_structs([value for values in answers for value in values]), map(len, answers))
    return _split(
        _struct(FILTERED, {"filter": text_array(names), "values": left}, "filter", "values"), map(len, column)
    )


def _answer_structs(flat: Sequence[AnyJSON]) -> Array:
    if (arrays := _of_one_kind(flat)) is None:
        kinds = [_kind_of_answer(each) for each in flat]
        pairs = [each if kind == "pair" else (each, None) for each, kind in zip(flat, kinds, strict=True)]
        has_value = [kind in ("pair", "value") for kind in kinds]
        answers_by_kind = [*zip(flat, kinds, strict=True)]
        arrays = {
            "text": text_array([each if kind == "text" else None for each, kind in answers_by_kind]),
            "value": float_array(
                [as_float(*each) if has else None for each, has in zip(pairs, has_value, strict=True)]
            ),
            "greedy": truth_array([flag for _, flag in pairs]),
            "json": text_array([as_json(each) if kind == "json" else None for each, kind in answers_by_kind]),
        }
    return _struct(ANSWER, arrays)


def _kind_of_answer(value: AnyJSON) -> str:
    kind = type(value)
    if kind is str or kind is float:
        return "text" if kind is str else "value"
    if kind in (tuple, list) and len(value) == 2 and type(value[1]) is bool:
        return "pair" if value[0] is None or type(value[0]) in (float, int) else "json"
    return "json"


def _failures(flat: Sequence[tuple[tuple[str, str], str]]) -> Array:
    import pyarrow as pa

    columns = [[key[0] for key, _ in flat], [key[1] for key, _ in flat], [reason for _, reason in flat]]
    return pa.StructArray.from_arrays([text_array(each) for each in columns], ["metric", "filter", "reason"])


def _scores(
    column: Sequence[Mapping[ScoreKey, AnyJSON]],
    repeats: Sequence[Mapping[ScoreKey, Sequence[AnyJSON]]],
    keys: Sequence[ScoreKey],
) -> dict[str, Array | None]:
    """A column for each row of scores that has numbers; and one of all scores that are something else."""
    arrays: dict[str, Array | None] = {}
    are_all = not any(repeats)
    for key in keys:
        values = [scores.get(key) for scores in column]
        if not {*map(type, values)} <= {float, type(None)}:
            numbers = [each if is_number(each) else None for each in values]
            are_all = are_all and numbers == values
            values = numbers
        if any(each is not None for each in values):
            arrays[str(key)] = float_array(values)
    if not are_all:
        others = [[*_others(*of_sample)] for of_sample in zip(column, repeats, strict=True)]
        arrays["other_scores"] = _lists(others, _other_scores)
    return arrays


def _others(
    scores: Mapping[ScoreKey, AnyJSON], repeats: Mapping[ScoreKey, Sequence[AnyJSON]]
) -> Iterator[tuple[str, str, int | None, AnyJSON]]:
    for key, value in scores.items():
        if not is_number(value):
            yield (*key, None, value)
    for key, values in repeats.items():
        for repeat, value in enumerate(values):
            yield (*key, repeat, value)


def _other_scores(flat: Sequence[tuple[str, str, int | None, AnyJSON]]) -> Array:
    metrics, filters, repeats, values = _turned(flat, 4)
    fields = {
        "metric": text_array(metrics),
        "filter": text_array(filters),
        "repeat": int_array(repeats),
        "value": float_array([each if is_number(each) else None for each in values]),
        "json": text_array([None if is_number(each) else as_json(each) for each in values]),
    }
    return _struct(SCORE, fields, "metric", "filter")


def is_number(value: AnyJSON) -> bool:
    """Whether a value fits a column of numbers: whole ones as far as they are exact there."""
    return isinstance(value, float) or (
        isinstance(value, int) and not isinstance(value, bool) and -(2**53) <= value <= 2**53
    )
