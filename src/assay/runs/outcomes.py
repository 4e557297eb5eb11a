"""Finished records of graphs and results of tools in lines of the journal.

When the run is resumed, a record that went through its graph is read from its line, and no node runs again for it. The line
has the keys of its responses, which have separate lines. Messages and parameters that requests share are written once.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from assay.records import (
    AnyJSON,
    Generate,
    JSONDict,
    JSONObject,
    Loglikelihood,
    Message,
    Outcome,
    Prompt,
    Request,
    Returned,
    Rolling,
    Usage,
    UserValue,
    messages_to_plain,
    plain_to_messages,
)
from assay.redaction import written_arguments

_STRICT = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_UNWRITABLE = (TypeError, ValueError, RecursionError, AttributeError)


class KeptRecord(NamedTuple):
    """A finished record, and the keys of the responses on its way."""

    outcome: Outcome
    keys: Sequence[bytes]


def record_line(record: Mapping[str, Any]) -> bytes:
    """A record as a line of JSON."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    try:
        return orjson.dumps(record, default=_plain, option=options)
    except TypeError:  # a whole number beyond 64 bits, half a character: Python's own writes them
        return json.dumps(record, default=_plain).encode()


def _plain(value: UserValue) -> AnyJSON:
    for name in ("to_dict", "model_dump", "_asdict"):
        if callable(getattr(value, name, None)):
            return getattr(value, name)()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    return getattr(value, "content", None) or str(value)


def _as_output(value: UserValue) -> AnyJSON:
    """A value that JSON does not have, as `record_line` writes it."""
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError:
        return _plain(value)


def kept_record(outcome: Outcome) -> tuple[bytes, Outcome] | None:
    """The record as JSON, and the outcome that is read back from it; None for one that cannot be written.

    Whoever continues with the outcome read back gets the same results now and when the run is resumed.
    """
    record = outcome.record
    try:
        text = orjson.dumps(record, option=_STRICT)
        if orjson.loads(text) == record:
            return text, outcome
    except TypeError:
        pass
    try:
        written = json.dumps(dict(record), default=_as_output)
        return orjson.dumps(written), outcome._replace(record=json.loads(written))
    except _UNWRITABLE:
        return None


def kept_way(outcome: Outcome, keys: Sequence[bytes]) -> bytes | None:
    """The requests of a record, its trace and counts, as the inside of a JSON object; None where they cannot be written."""
    messages: dict[Message, int] = {}
    params: dict[int, tuple[int, AnyJSON]] = {}

    def prompt_of(prompt: Prompt) -> AnyJSON:
        return prompt if isinstance(prompt, str) else [messages.setdefault(each, len(messages)) for each in prompt]

    asked: list[AnyJSON] = []
    for request in outcome.asked:
        if isinstance(request, Generate):
            known = params.get(id(request.params))
            if known is None:
                known = params[id(request.params)] = (len(params), written_arguments(request)[1])
            asked.append((prompt_of(request.prompt), known[0], request.repeat, request.role, request.node))
        elif isinstance(request, Loglikelihood):
            asked.append((prompt_of(request.context), request.continuation, request.role))
        else:
            asked.append((request.text, request.role))
    try:
        parts = {
            "asked": asked,
            "messages": messages_to_plain([*messages]),
            "params": [each for _, each in params.values()],
            "noticed": dict(outcome.noticed),
            "trace": outcome.trace,
            "calls": outcome.calls,
            "keys": [key.hex() for key in keys],
        }
        return orjson.dumps(parts, option=orjson.OPT_NON_STR_KEYS)[1:-1]
    except TypeError:
        return None


def read_record(entry: JSONObject) -> KeptRecord:
    """The finished record of a line; a ValueError, KeyError, TypeError or IndexError where none is written like this."""
    messages, params, prompts = plain_to_messages(entry["messages"]), entry["params"], dict[tuple[int, ...], Prompt]()

    def prompt_of(written: AnyJSON) -> Prompt:
        if isinstance(written, str):
            return written
        return prompts.setdefault(tuple(written), tuple(messages[number] for number in written))

    asked: list[Request] = []
    for each in entry["asked"]:
        if len(each) == 5:
            prompt, number, repeat, role, node = each
            asked.append(Generate(prompt_of(prompt), params[number], repeat, role, tuple(node)))
        elif len(each) == 3:
            asked.append(Loglikelihood(prompt_of(each[0]), each[1], each[2]))
        else:
            asked.append(Rolling(*each))
    record = entry["record"]
    record = json.loads(record) if isinstance(record, str) else record
    if not isinstance(record, dict):
        raise TypeError("a record is an object")
    trace = [(str(name), list(numbers)) for name, numbers in entry["trace"]]
    outcome = Outcome(record, asked, entry["noticed"], trace=trace, calls=entry.get("calls", ()))
    return KeptRecord(outcome, [*map(bytes.fromhex, entry["keys"])])


def result_text(value: UserValue) -> str | None:
    """The result of a tool as JSON; None where it is not JSON.

    >>> result_text({"paid": (1, 2.5)}), result_text({1, 2})
    ('{"paid": [1, 2.5]}', None)
    """
    try:
        return json.dumps(value)
    except _UNWRITABLE:
        return None


def kept_result(result: Returned) -> JSONDict:
    """The result of a tool as its line has it."""
    seconds = {"seconds": result.usage.seconds} if result.usage is not None else {}
    return {"error": result.error, **seconds} if result.error else {"result": json.dumps(result.value), **seconds}


def read_result(entry: JSONObject) -> Returned:
    """The result of a tool that was written so."""
    usage = Usage(seconds=float(entry.get("seconds", 0.0)))
    if "error" in entry:
        return Returned(None, usage, str(entry["error"]))
    return Returned(json.loads(entry["result"]), usage)
