"""Decodes samples from the columns of format 2; the reverse is encode.py."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from assay.records import AnyJSON, JSONDict, Usage
from assay.runs.samples.encode import call_of, from_json
from assay.runs.samples.records import StoredRequest, StoredSample
from assay.runs.samples.schema import (
    MADE_CALL,
    SCHEMA,
    Array,
    ArrowSchema,
    ArrowTable,
    ArrowType,
    arrow_type,
    is_subtype,
    list_buffers,
    score_keys,
)
from assay.runs.samples.writer import conversation_text, ordered
from assay.score_keys import ScoreKey, is_joined

NEEDS: dict[str, tuple[str, ...]] = {
    "prompt": ("prompt", "requests"),
    "replies": ("responses", "verdicts", "trace", "noticed", "tool_calls", "state"),
    "scores": ("other_scores",),
    "repeats": ("other_scores",),
}  # fmt: skip
"""The columns that a field of a row is made of, where it is not the one of its name; scores have also one for each row."""
PRESENT = frozenset(("doc_id", "kind", "doc", "target", "prefix", "prompt", "requests", "responses", "answers"))
"""Columns that have a value in every row."""
JSON_TEXTS = ("doc", "target", "gold")


def columns_of(names: Sequence[str], fields: Sequence[str | ScoreKey]) -> list[str]:
    """The columns, of those that a file has, that some fields of rows or scores are made of."""
    needed = {column for field in map(str, fields) for column in NEEDS.get(field, (field,))}
    has_scores = "scores" in fields
    return [name for name in names if name in needed or (has_scores and is_joined(name))]


def wrong_schema(schema: ArrowSchema) -> str:
    """Describe what is wrong with the columns of a file; empty where they are right."""
    missing = sorted(PRESENT - {*schema.names})
    if missing or len({*schema.names}) != len(schema.names):
        return f"there is no column {missing[0]}" if missing else "two columns have one name"
    wrong = [field for field in schema if not _is_right(field.name, field.type)]
    return f"the column {wrong[0].name} holds {wrong[0].type}" if wrong else ""


def _is_right(name: str, written: ArrowType) -> bool:
    from pyarrow import types

    if is_joined(name):
        return bool(types.is_floating(written) or types.is_integer(written))
    plain = written.value_type if types.is_dictionary(written) else written
    return name not in SCHEMA or is_subtype(plain, arrow_type(name))


def fields_of(table: ArrowTable, names: Sequence[str | ScoreKey]) -> dict[str | ScoreKey, list[AnyJSON]]:
    """Some fields of the rows of a table, or scores that have a column, as lists. What is not as it should be is a ValueError."""
    arrays = {name: _whole(table.column(name)) for name in table.column_names}
    empty = sorted(name for name in PRESENT & arrays.keys() if arrays[name].null_count)
    if empty:
        raise ValueError(f"the column {empty[0]} is empty in some rows")
    values: dict[str | ScoreKey, list[Any]] = {}
    for name in names:
        make = None if isinstance(name, ScoreKey) else FIELDS.get(name)
        if make is not None:
            values[name] = make(arrays, table)
        elif str(name) in arrays:
            values[name] = arrays[str(name)].to_pylist()
        elif name in StoredSample._fields:
            values[name] = [None] * table.num_rows
    return values


def decode_samples(table: ArrowTable) -> Iterator[StoredSample]:
    """Decode the rows of a table."""
    fields = fields_of(table, StoredSample._fields)
    return map(StoredSample._make, zip(*(fields[name] for name in StoredSample._fields), strict=True))


def texts_of(table: ArrowTable) -> Iterator[str]:
    """All texts in a table, wherever they are."""
    for column in table.itercolumns():
        yield from _texts_in(_whole(column))


def _texts_in(array: Array) -> Iterator[str]:
    from pyarrow import types

    if types.is_list(array.type):
        yield from _texts_in(array.flatten())
    elif types.is_struct(array.type):
        for child in array.flatten():
            yield from _texts_in(child)
    elif types.is_dictionary(array.type) or types.is_string(array.type):
        yield from (text for text in _texts(array) if text is not None)


def wrong_json(fields: Mapping[str | ScoreKey, Sequence[AnyJSON]]) -> str:
    """Describe what is wrong with texts that must be JSON; empty where they are right. A column is parsed at once."""
    for name in JSON_TEXTS:
        texts = [each for each in dict.fromkeys(fields.get(name, ())) if each is not None]
        try:
            parsed = from_json("[" + ",".join(texts) + "]")
        except (TypeError, ValueError) as error:
            return f"the column {name} is not JSON ({error})"
        if len(parsed) != len(texts) or (name == "doc" and not all(isinstance(each, dict) for each in parsed)):
            return f"the column {name} has invalid values"
    return ""


# ---- arrays as lists

Arrays = Mapping[str, Any]


def _whole(column: Array) -> Array:
    combined = column.combine_chunks()
    return combined if not hasattr(combined, "chunks") else combined.chunk(0)


def _texts(array: Array) -> list[AnyJSON]:
    """A list of texts; those of a dictionary are one object each."""
    if hasattr(array, "dictionary"):
        texts = array.dictionary.to_pylist()
        return [texts[number] if number is not None else None for number in array.indices.to_pylist()]
    plain: list[Any] = array.to_pylist()
    return plain


def _field(structs: Array, name: str) -> Array | None:
    """A field of structs, where they have it."""
    return structs.field(name) if structs.type.get_field_index(name) >= 0 else None


def _values(structs: Array, name: str) -> list[AnyJSON]:
    array = _field(structs, name)
    return array.to_pylist() if array is not None else [None] * len(structs)


def _lists(array: Array, make: Callable[[AnyJSON], Sequence[AnyJSON]], missing: Array = None) -> list[AnyJSON]:
    """By row the items of its list, from what is made of all items."""
    offsets, values, absent = list_buffers(array)
    items, ends = make(values), offsets.to_pylist()
    lists: list[Any] = [items[start:end] for start, end in pairwise(ends)]
    if absent is None:
        return lists
    return [missing if is_absent else each for each, is_absent in zip(lists, absent.to_pylist(), strict=True)]


def _optional_lists(
    arrays: Arrays, name: str, make: Callable[[AnyJSON], Sequence[AnyJSON]], size: int
) -> list[AnyJSON]:
    return _lists(arrays[name], make) if name in arrays else [None] * size


# ---- requests


def _requests(arrays: Arrays, _: ArrowTable) -> list[list[StoredRequest]]:
    requests: list[list[StoredRequest]] = _lists(arrays["requests"], _request_rows)
    return requests


def _request_rows(structs: Array) -> list[StoredRequest]:
    messages: Sequence[Any] = [None] * len(structs)
    prompts = _values(structs, "prompt")
    if (talks := _field(structs, "messages")) is not None:
        messages = _lists(talks, _messages)
        prompts = [
            conversation_text(talk) if talk is not None else prompt
            for prompt, talk in zip(prompts, messages, strict=True)
        ]
    columns = (
        _values(structs, "kind"),
        prompts,
        messages,
        _values(structs, "continuation"),
        _values(structs, "params"),
    )
    return [*map(StoredRequest._make, zip(*columns, strict=True))]


def _messages(structs: Array) -> list[JSONDict]:
    names = ("role", "tool_call_id", "content", "name")
    columns = [_values(structs, name) for name in names]
    calls = _field(structs, "tool_calls")
    called = _lists(calls, _tool_calls) if calls is not None else [None] * len(structs)
    messages = []
    for *values, tool_calls in zip(*columns, called, strict=True):
        message = {
            name: value for name, value in zip(names, values, strict=True) if value is not None or name == "content"
        }
        messages.append(ordered({**message, "tool_calls": tool_calls} if tool_calls else message))
    return messages


def _tool_calls(structs: Array) -> list[JSONDict]:
    columns = [_values(structs, name) for name in ("id", "name", "arguments", "json")]
    return [call_of(*parts) if whole is None else from_json(whole) for *parts, whole in zip(*columns, strict=True)]


def _prompts(arrays: Arrays, _: ArrowTable) -> list[str]:
    """The prompt of each sample; that of a conversation is the text it is sent as."""
    prompts = _texts(arrays["prompt"])
    _, values, _ = list_buffers(arrays["requests"])
    if _field(values, "messages") is None:
        return prompts
    firsts = [requests[0] if requests else None for requests in _requests(arrays, None)]
    return [
        first.prompt or "" if first is not None and first.messages is not None else prompt
        for prompt, first in zip(prompts, firsts, strict=True)
    ]


# ---- responses


def _responses(arrays: Arrays, _: ArrowTable) -> list[list[list[AnyJSON]]]:
    """Return the responses by request. A failed sample has none."""
    nested: list[list[list[Any]]] = _lists(arrays["responses"], lambda inner: _lists(inner, _response_values))
    return [[] if responses and _are_not_stored(responses) else responses for responses in nested]


def _are_not_stored(responses: Sequence[Sequence[AnyJSON]]) -> bool:
    return responses[0] == [None] and all(repeats == [None] for repeats in responses)


def _response_values(structs: Array) -> list[AnyJSON]:
    """Texts, log-likelihoods, or pairs of those with their greediness."""
    texts, values, flags = (_field(structs, name) for name in ("text", "value", "greedy"))
    if values is None:
        return texts.to_pylist() if texts is not None else [None] * len(structs)
    numbers = values.to_pylist()
    if flags is not None and not flags.null_count and not values.null_count:
        return [*zip(numbers, flags.to_pylist(), strict=True)]
    greedy = flags.to_pylist() if flags is not None else [None] * len(numbers)
    written = texts.to_pylist() if texts is not None else [None] * len(numbers)
    return [
        text if text is not None else number if flag is None else (number, flag)
        for text, number, flag in zip(written, numbers, greedy, strict=True)
    ]


def _replies(arrays: Arrays, table: ArrowTable) -> list[list[JSONDict] | None]:
    """Return the metadata of responses, then the responses to scorers; None where there is neither."""
    size = table.num_rows
    nested = _lists(arrays["responses"], lambda inner: _lists(inner, _metadata))
    own = [[reply for repeats in responses for reply in repeats] for responses in nested]
    behind = _optional_lists(arrays, "verdicts", _verdicts, size)
    traces = _optional_lists(arrays, "trace", _trace, size)
    noticed = _optional_lists(arrays, "noticed", _noticed, size)
    called = _optional_lists(arrays, "tool_calls", _made_calls, size)
    states = arrays["state"].to_pylist() if "state" in arrays else [None] * size
    replies: list[list[dict[str, Any]] | None] = []
    for reply, more, trace, counts, calls, state in zip(own, behind, traces, noticed, called, states, strict=True):
        repeats = [*reply, *(more or ())]
        ends = {**({"trace": trace} if trace else {}), **({"noticed": dict(counts)} if counts else {})}
        ends |= {"tool_calls": calls} if calls else {}
        ends |= {"state": from_json(state)} if state is not None else {}
        if ends:
            repeats = [*repeats[:-1], {**(repeats[-1] if repeats else {}), **ends}]
        replies.append(repeats if any(repeats) else None)
    return replies


def _metadata(structs: Array) -> list[JSONDict]:
    fields = [
        name for name in ("failed", "finish", "reasoning", "usage", "tool_calls") if _field(structs, name) is not None
    ]
    if not fields:
        return [{}] * len(structs)
    columns: dict[str, list[Any]] = {name: _values(structs, name) for name in fields if name != "tool_calls"}
    if "usage" in columns:
        columns["usage"] = [each and tuple(each.get(name, 0) for name in Usage._fields) for each in columns["usage"]]
    if "tool_calls" in fields:
        columns["calls"] = [each or None for each in _lists(structs.field("tool_calls"), _tool_calls)]
    return [
        {name: value for name, value in zip(columns, values, strict=True) if value is not None}
        for values in zip(*columns.values(), strict=True)
    ]


def _verdicts(structs: Array) -> list[JSONDict]:
    known = [name for name in ("role", "question") if _field(structs, name) is not None]
    asked = zip(*(_values(structs, name) for name in known), strict=True) if known else [()] * len(structs)
    return [
        {
            **reply,
            **({"verdict": said} if said is not None else {}),
            **{name: text for name, text in zip(known, texts, strict=True) if text is not None},
        }
        for reply, said, texts in zip(_metadata(structs), _response_values(structs), asked, strict=True)
    ]


def _trace(structs: Array) -> list[list[AnyJSON]]:
    numbers = _lists(structs.field("responses"), lambda values: values.to_pylist())
    return [[node, indices] for node, indices in zip(_values(structs, "node"), numbers, strict=True)]


def _made_calls(structs: Array) -> list[JSONDict]:
    return [{**dict.fromkeys(MADE_CALL), **call} for call in structs.to_pylist()]


def _noticed(structs: Array) -> list[tuple[str, int]]:
    return [*zip(_values(structs, "what"), _values(structs, "count"), strict=True)]


# ---- answers and scores


def _answers(arrays: Arrays, _: ArrowTable) -> list[dict[str, list[AnyJSON]]]:
    pairs = _lists(arrays["answers"], _filtered)
    return [dict(each) for each in pairs]


def _filtered(structs: Array) -> list[tuple[str, list[AnyJSON]]]:
    return [*zip(_values(structs, "filter"), _lists(structs.field("values"), _answer_values), strict=True)]


def _answer_values(structs: Array) -> list[AnyJSON]:
    """Return the answers by filter."""
    said, others = _response_values(structs), _field(structs, "json")
    if others is None:
        return said
    return [each if text is None else from_json(text) for each, text in zip(said, others.to_pylist(), strict=True)]


def _scores(arrays: Arrays, table: ArrowTable) -> list[dict[ScoreKey, AnyJSON]]:
    """The scores of each sample, in their order."""
    keys = score_keys(table.schema)
    columns = {key: arrays[str(key)].to_pylist() for key in keys if str(key) in arrays}
    numbers = [
        {key: value for key, value in zip(columns, values, strict=True) if value is not None}
        for values in _turned(columns.values(), table.num_rows)
    ]
    if "other_scores" not in arrays:
        return numbers
    scores = []
    for of_sample, others in zip(numbers, _lists(arrays["other_scores"], _other_scores, ()), strict=True):
        own = {key: value for key, repeat, value in others if repeat is None}
        both = {**of_sample, **own}
        scores.append({key: both[key] for key in dict.fromkeys([*keys, *own]) if key in both})
    return scores


def _repeats(arrays: Arrays, table: ArrowTable) -> list[dict[ScoreKey, list[AnyJSON]]]:
    """The scores of the repeats of each sample, in their order."""
    repeats: list[dict[ScoreKey, list[Any]]] = [{} for _ in range(table.num_rows)]
    if "other_scores" in arrays:
        for of_sample, others in zip(repeats, _lists(arrays["other_scores"], _other_scores, ()), strict=True):
            for key, repeat, value in others:
                if repeat is not None:
                    of_sample.setdefault(key, []).append(value)
    return repeats


def _turned(columns: AnyJSON, size: int) -> AnyJSON:
    return zip(*columns, strict=True) if columns else [()] * size


def _other_scores(structs: Array) -> list[tuple[ScoreKey, int | None, AnyJSON]]:
    columns = [_values(structs, name) for name in ("metric", "filter", "repeat", "value", "json")]
    return [
        (ScoreKey(metric, name), repeat, from_json(text) if text is not None else value)
        for metric, name, repeat, value, text in zip(*columns, strict=True)
    ]


def _failures(arrays: Arrays, table: ArrowTable) -> list[dict[ScoreKey, str]]:
    if "failures" not in arrays:
        return [{}] * table.num_rows
    return [dict(each) for each in _lists(arrays["failures"], _reasons, ())]


def _reasons(structs: Array) -> list[tuple[ScoreKey, str]]:
    columns = [_values(structs, name) for name in ("metric", "filter", "reason")]
    return [(ScoreKey(metric, name), reason) for metric, name, reason in zip(*columns, strict=True)]


FIELDS: dict[str, Callable[[Arrays, Any], list[Any]]] = {
    "kind": lambda arrays, _: _texts(arrays["kind"]),
    "prefix": lambda arrays, _: _texts(arrays["prefix"]),
    "choices": lambda arrays, table: _optional_lists(arrays, "choices", _texts, table.num_rows),
    "audit": lambda arrays, table: [each or () for each in _optional_lists(arrays, "audit", _texts, table.num_rows)],
    "prompt": _prompts,
    "requests": _requests,
    "responses": _responses,
    "replies": _replies,
    "answers": _answers,
    "scores": _scores,
    "repeats": _repeats,
    "failures": _failures,
}
