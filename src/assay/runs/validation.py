"""Validation of the files of a run, once where they are read, so that no reader fails later.

It covers what readers rely on. Unknown keys are ignored; known ones have the type that they are written with, or are missing.
"""

import math
from collections.abc import Callable, Iterable, Mapping

from assay.records import AnyJSON

Check = Callable[[AnyJSON], str]
"""Describe what is wrong with a value, with its path (`.tasks.t.n must be a number, not a mapping`); empty where it is right."""
FORMAT = 3
"""The layout that is written and read here: docs/decisions/0018-format.md."""
DEEPEST = 60
"""Levels of a file: readers go down by calling themselves."""
LATEST = 253_402_300_799
"""The last second that a calendar has: of the year 9999."""
KINDS = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def wrong_manifest(value: AnyJSON) -> str:
    """Describe what is wrong with the content of a manifest.json; empty where it is right."""
    return _wrong(value, MANIFEST_LAYOUT)


def other_format(value: AnyJSON) -> str:
    """That a manifest or a journal's header has another format; nothing where it has ours."""
    written = value.get("format") if isinstance(value, dict) else None
    if not isinstance(written, int) or isinstance(written, bool) or written == FORMAT:
        return ""
    return f"it has format {written}, and this version of assay reads format {FORMAT}"


def _wrong(value: AnyJSON, check: Check) -> str:
    problem = " is nested too deeply" if is_too_deep(value) else check(value)
    return f"it{problem}" if problem[:1] == " " else problem.removeprefix(".")


def is_too_deep(value: AnyJSON) -> bool:
    """Whether a value has more levels than readers go down."""
    level = [value]
    for _ in range(DEEPEST):
        inside = [each for each in level if isinstance(each, dict | list)]
        if not inside:
            return False
        level = [inner for each in inside for inner in (each.values() if isinstance(each, dict) else each)]
    return True


# ---- kinds of values


def must_be(kind: str, value: AnyJSON) -> str:
    """Say what a value must be, and what it is."""
    return f"must be {kind}, not {KINDS.get(type(value), repr(value))}"


def _must(kind: str, holds: Callable[[AnyJSON], bool]) -> Check:
    return lambda value: "" if holds(value) else f" {must_be(kind, value)}"


def is_number(value: AnyJSON) -> bool:
    """Whether a value is a number that can be reckoned with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_numeric(value: AnyJSON) -> bool:
    try:
        return is_number(float(value)) if isinstance(value, str) else is_number(value)
    except ValueError:
        return False


anything = _must("anything", lambda _: True)
text = _must("a text", lambda value: isinstance(value, str))
number = _must("a number", is_number)
numeric = _must("a number", _is_numeric)
count = _must(
    "a whole number from 0 on", lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0
)
repeats = _must("a whole number from 1 on", lambda value: count(value) == "" and 1 <= value <= 1_000_000)
truth = _must("true or false", lambda value: isinstance(value, bool))
moment = _must("a time in seconds", lambda value: is_number(value) and 0 <= value <= LATEST)
mapping = _must("a mapping", lambda value: isinstance(value, dict))
pair = _must(
    "two numbers",
    lambda value: isinstance(value, list) and len(value) == 2 and all(end is None or is_number(end) for end in value),
)


def optional(check: Check) -> Check:
    """Null, or a value of that kind."""
    return lambda value: "" if value is None else check(value)


def each(check: Check) -> Check:
    """A mapping by names, of values of one kind."""

    def checked(value: AnyJSON) -> str:
        return mapping(value) or _first((f".{key}", check(inner)) for key, inner in value.items())

    return checked


def listed(check: Check) -> Check:
    """A list of values of one kind."""

    def checked(value: AnyJSON) -> str:
        if not isinstance(value, list):
            return f" {must_be('a list', value)}"
        return _first((f".{number}", check(inner)) for number, inner in enumerate(value))

    return checked


def fields(known: Mapping[str, Check], *needed: str) -> Check:
    """A mapping with keys that are known, of which some are needed."""

    def checked(value: AnyJSON) -> str:
        if wrong := mapping(value):
            return wrong
        missing = [key for key in needed if key not in value]
        if missing:
            return f".{missing[0]} is missing"
        return _first((f".{key}", check(value[key])) for key, check in known.items() if key in value)

    return checked


def _first(problems: Iterable[tuple[str, str]]) -> str:
    return next((way + wrong for way, wrong in problems if wrong), "")


# ---- the layout


def _is_tree(value: AnyJSON) -> str:
    """Groups by name: none is below itself."""
    left = {name: {member for member in group["members"] if member in value} for name, group in value.items()}
    while left:
        ended = [name for name, members in left.items() if not members & left.keys()]
        if not ended:
            return f".{next(iter(left))} is a member of itself"
        for name in ended:
            del left[name]
    return ""


TOKENS = fields({"in": number, "out": number, "in_from_cache": number, "computed": number}, "in", "out")
_SPENT = {
    "requests": count, "failed": count, "retries": count, "tokens": TOKENS, "cost": number, "seconds": each(number),
    "device_seconds": number,
}  # fmt: skip
_COUNTED = ("requests", "failed", "retries", "tokens")


def _spent(value: AnyJSON) -> str:
    """The usage; for a model on this machine with the number of computed tokens."""
    is_local = isinstance(value, dict) and "device_seconds" in value
    computed = fields({"tokens": fields({}, "computed")})(value) if is_local else ""
    return fields(_SPENT, *_COUNTED)(value) or computed


def _spent_in_all(value: AnyJSON) -> str:
    if value == {}:
        return ""
    return _spent(value) or fields({"roles": each(_spent), "tasks": each(_spent)})(value)


SHARD = fields({"part": anything, "status": text}, "part")
CHANGED = fields({"count": count, "ids": listed(number)}, "count", "ids")
RULE = fields({
    "rule": text, "decision": text, "documents": count, "of": count, "failed": count, "value": optional(number),
    "interval": optional(pair), "threshold": number, "unit": text, "level": number, "baseline": optional(text),
}, "rule", "decision", "documents", "of")  # fmt: skip
FALLBACK = fields({"what": text, "reason": text, "times": count, "requests": count}, "what", "reason")
SERVERS = fields({"count": count, "restarts": count, "reasons": listed(text)})
RESULTS_PARTS = fields({
    "groups": _is_tree, "usage": _spent_in_all, "shard": SHARD, "stop_when": RULE, "fallbacks": listed(FALLBACK),
    "servers": SERVERS, "rescored": fields({"changed": each(CHANGED), "numbers": listed(mapping)}),
    "config": fields({"model_args": optional(mapping)}),
    "facts": fields({
        "date": moment, "start_time": moment, "end_time": moment, "total_evaluation_time_seconds": numeric,
        "model_name": optional(text), "model_source": optional(text),
    }),
})  # fmt: skip
"""Parts of results.json that its records leave open (runs/results_json.py)."""
NAMED_MODEL = fields({"name": text, "args": mapping})
TASK_FACTS = fields({
    "size": count, "original": count, "repeats": repeats, "num_fewshot": optional(count), "multiple_targets": truth,
    "source": text,
})  # fmt: skip
ENVIRONMENT = fields({"packages": each(text), "git": optional(fields({"commit": text}, "commit"))})
MANIFEST_LAYOUT = fields({
    "format": count, "created": moment, "finished": moment, "status": text, "reason": text, "spec": mapping, "spec_digest": text,
    "options": fields({"tasks": listed(anything)}), "tasks": each(TASK_FACTS), "environment": ENVIRONMENT, "model": NAMED_MODEL,
    "roles": each(NAMED_MODEL), "helper_files": each(text), "requests": each(count),
    "conditions": fields({"model": mapping}), "imported": listed(text), "left_out": listed(text), "scored": mapping,
    "plugins": each(text), "checksums": each(text),
})  # fmt: skip
