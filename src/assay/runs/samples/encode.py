"""Encodes samples as the columns of format 2, from flat arrays: the values of all samples, and where each sample begins.

What no sample of a file has is left out of it, columns and fields of structs alike: an empty one costs 40 µs a file. SCHEMA
names them all.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import orjson

from assay.records import AnyJSON, JSONDict, JSONObject, Usage
from assay.runs.samples.arrays import ARRAYS, float_array, int32_array, text_array, truth_array
from assay.runs.samples.records import StoredRequest, StoredSample
from assay.runs.samples.schema import (
    ALWAYS,
    ANSWER,
    FAILURE,
    FILTERED,
    MESSAGE,
    REQUEST,
    REQUEST_COLUMNS,
    RESPONSE,
    SCHEMA,
    SCORE,
    SCORE_COLUMNS,
    TOOL_CALL,
    USAGE,
    VERDICT,
    Array,
    Type,
    arrow_type,
    type_of,
)
from assay.score_keys import ScoreKey


def sample_arrays(rows: Sequence[StoredSample]) -> tuple[dict[str, Array], list[ScoreKey]]:
    """Build all columns, and return the keys of all scores beside them."""
    scored, keys = score_arrays(rows)
    return {**request_arrays(rows), **scored}, keys


def request_arrays(rows: Sequence[StoredSample], requests: Array | None = None) -> dict[str, Array]:
    """Build the columns of requests and responses; `requests` is that column, if it is built already. Prefixes that prompts
    share are stored once."""
    columns = _columns(rows)
    arrays: dict[str, Array | None] = {
        "kind": _dictionary(columns["kind"]),
        "prefix": _dictionary(columns["prefix"]),
        "requests": requests if requests is not None else request_lists(columns["requests"]),
        **_responses(columns["responses"], columns["replies"]),
    }
    return _with_plain(arrays, REQUEST_COLUMNS, columns)


def score_arrays(rows: Sequence[StoredSample]) -> tuple[dict[str, Array], list[ScoreKey]]:
    """Build the columns of answers and scores, with numeric scores last; returns also the keys of all scores, in their order."""
    columns = _columns(rows)
    kinds = dict.fromkeys(map(tuple, columns["scores"]))  # of most tasks one
    keys = [*dict.fromkeys(key for kind in kinds for key in kind)]
    arrays: dict[str, Array | None] = {
        "answers": _answers(columns["answers"]),
        "failures": make_array([FAILURE], [*map(_failures, columns["failures"])]) if any(columns["failures"]) else None,
        "other_scores": None,
    }
    return {**_with_plain(arrays, SCORE_COLUMNS, columns), **_scores(columns["scores"], columns["repeats"], keys)}, keys


def _failures(of_row: Mapping[ScoreKey, str]) -> list[JSONDict]:
    return [{"metric": key.metric, "filter": key.filter, "reason": reason} for key, reason in of_row.items()]


def _columns(rows: Sequence[StoredSample]) -> dict[str, Sequence[Any]]:
    return dict(zip(StoredSample._fields, _turned(rows, len(StoredSample._fields)), strict=True))


def _with_plain(
    made: Mapping[str, Array | None], types: Mapping[str, Type], columns: Mapping[str, Sequence[AnyJSON]]
) -> dict[str, Array]:
    """Add the columns that are as the fields of the rows: in the order of the schema, without those that are empty."""
    import pyarrow as pa

    arrays: dict[str, Array] = {}
    for name, kind in types.items():
        array = made[name] if name in made else make_array(kind, columns[name]) if name in columns else None
        if name in ALWAYS:
            arrays[name] = array if array is not None else pa.nulls(len(columns["doc_id"]), arrow_type(name))
        elif _unless_empty(array) is not None:
            arrays[name] = array
    return arrays


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
    return _split(make([*chain.from_iterable(there)]), map(len, there), missing)


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


def make_array(kind: Type, values: Sequence[AnyJSON]) -> Array:
    """An array of a type as the schema has it, as `pa.array` makes it, but without pandas; structs lack what none of them has."""
    if isinstance(kind, str):
        return ARRAYS[kind](values)
    if isinstance(kind, list):
        return _lists(values, lambda items: make_array(kind[0], items))
    return _struct(
        kind, {name: make_array(inner, [value.get(name) for value in values]) for name, inner in kind.items()}
    )


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


def _optional(
    kind: Type, column: Sequence[Sequence[JSONObject] | None], convert: Callable[[JSONObject], JSONDict]
) -> Array | None:
    """A column of lists of structs; None where no row has any."""
    if not any(column):
        return None
    return make_array([kind], [None if items is None else [*map(convert, items)] for items in column])


# ---- requests


def request_lists(column: Sequence[Sequence[StoredRequest]]) -> Array:
    """The column of requests."""
    return _lists(column, _requests)


def _requests(flat: Sequence[StoredRequest]) -> Array:
    kinds, prompts, messages, continuations, params = _turned(flat, len(StoredRequest._fields))
    fields = {
        "kind": text_array(kinds),
        "prompt": text_array(prompts),
        "messages": _optional(MESSAGE, messages, _message),
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


def _message(message: JSONObject) -> JSONDict:
    """A message as the schema has it."""
    calls = [*map(_tool_call, message.get("tool_calls") or ())]
    return {**message, "tool_calls": calls or None}


def _tool_call(call: JSONObject) -> JSONDict:
    """A tool call as the schema has it: as a whole where its parts do not say all."""
    parts = call_parts(call)
    whole = None if call_of(*parts) == call else as_json(call)
    return {**dict(zip(("id", "name", "arguments"), parts, strict=True)), "json": whole}


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
        of_requests = [*chain.from_iterable(column)]
        structs = _response_structs([*chain.from_iterable(of_requests)], None)
        return {"responses": _split(_split(structs, map(len, of_requests)), map(len, column))}
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
    of_requests = [*chain.from_iterable(nested)]
    structs = _response_structs([*chain.from_iterable(of_requests)], own)
    ends = [(metadata[-1] if metadata else {}) for metadata in replies]
    return {
        "responses": _split(_split(structs, map(len, of_requests)), map(len, nested)),
        "verdicts": _lists(behind, _verdicts) if any(behind) else None,
        **_ends(ends),
    }


def _ends(ends: Sequence[JSONObject]) -> dict[str, Array | None]:
    """The columns of what the last response of a graph's record has beside it."""
    columns: dict[str, list[Any]] = {
        "trace": [
            [{"node": str(node), "responses": numbers} for node, numbers in end.get("trace") or ()] or None
            for end in ends
        ],
        "noticed": [
            [{"what": what, "count": count} for what, count in end.get("noticed", {}).items()] or None for end in ends
        ],
        "tool_calls": [[*map(_made_call, end.get("tool_calls") or ())] or None for end in ends],
        "state": [as_json(end["state"]) if "state" in end else None for end in ends],
    }
    return {name: make_array(SCHEMA[name], values) if any(values) else None for name, values in columns.items()}


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
        fields["tool_calls"] = _optional(TOOL_CALL, calls, _tool_call)
    return fields


def _usages(column: Sequence[Sequence[AnyJSON] | None]) -> Array:
    import pyarrow as pa

    whole = [Usage(*each) if each is not None else Usage() for each in column]
    columns = zip(Usage._fields, _turned(whole, len(Usage._fields)), strict=True)
    arrays = [make_array(USAGE[name], values) for name, values in columns]
    mask = truth_array([each is None for each in column]) if None in column else None
    return pa.StructArray.from_arrays(arrays, [*Usage._fields], mask=mask)


def _made_call(call: JSONObject) -> JSONDict:
    """A tool call as the schema has it: arguments, and a result that is not a text, as JSON."""
    texts = {
        name: value if value is None or isinstance(value, str) else as_json(value)
        for name in ("arguments", "result")
        for value in [call.get(name)]
    }
    return {**call, **texts}


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
    left = _split(_answer_structs([*chain.from_iterable(answers)]), map(len, answers))
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
        arrays["other_scores"] = make_array([SCORE], others)
    return arrays


def _others(scores: Mapping[ScoreKey, AnyJSON], repeats: Mapping[ScoreKey, Sequence[AnyJSON]]) -> Iterator[JSONDict]:
    for key, value in scores.items():
        if not is_number(value):
            yield _other_score(key, None, value)
    for key, values in repeats.items():
        for repeat, value in enumerate(values):
            yield _other_score(key, repeat, value)


def _other_score(key: ScoreKey, repeat: int | None, value: AnyJSON) -> JSONDict:
    stored = {"value": value} if is_number(value) else {"json": as_json(value)}
    return {"metric": key.metric, "filter": key.filter, "repeat": repeat, **stored}


def is_number(value: AnyJSON) -> bool:
    """Whether a value fits a column of numbers: whole ones as far as they are exact there."""
    return isinstance(value, float) or (
        isinstance(value, int) and not isinstance(value, bool) and -(2**53) <= value <= 2**53
    )
