"""Unit metrics of agents: the tools they called, in which order, in how many turns, and at which cost.

The predicted value is `<key>_tool_calls` of an agent, or `<key>_usage` for turns and cost.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from assay.graphs.spec import Record, Value
from assay.graphs.unit_metrics import UnitMetricResult
from assay.graphs.unit_metrics import _Comparing as ComparingMetric
from assay.records import JSONDict

CLASSES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,), "object": (dict,),
    "null": (type(None),),
}  # fmt: skip


def _lone(value: Value) -> Value:
    """The value that a UnitMetrics node has wrapped as a text."""
    return value["text"] if isinstance(value, Mapping) and list(value) == ["text"] else value


def calls_of(value: Value) -> list[JSONDict]:
    """The tool calls in a value of the state, each with `name` and `arguments`."""
    calls = _lone(value)
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) and "name" in call for call in calls):
        raise ValueError(f"predicted_key must name tool calls, such as <output key>_tool_calls; got {calls!r:.60}")
    return [{**call, "arguments": call.get("arguments", call.get("args"))} for call in calls]


def is_part_of(expected: Value, value: Value) -> bool:
    """Whether a value is the expected one, or a mapping that has it in it.

    >>> is_part_of({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}), is_part_of([1], [1, 2])
    (True, False)
    """
    if isinstance(expected, Mapping):
        return isinstance(value, Mapping) and all(
            key in value and is_part_of(inner, value[key]) for key, inner in expected.items()
        )
    return bool(expected == value) and isinstance(expected, bool) == isinstance(value, bool)


def _is_of(kinds: Value, value: Value) -> bool:
    names = kinds if isinstance(kinds, list) else [kinds]
    return any(
        isinstance(value, CLASSES[name]) and (name == "boolean" or not isinstance(value, bool)) for name in names
    )


def _among(values: Value, value: Value) -> bool:
    return any(is_part_of(each, value) and is_part_of(value, each) for each in values)


def _properties(schemas: Record, value: Value) -> bool:
    return not isinstance(value, Mapping) or all(
        fits(schema, value[key]) for key, schema in schemas.items() if key in value
    )


def _items(schema: Record, value: Value) -> bool:
    return not isinstance(value, list) or all(fits(schema, each) for each in value)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


KEYWORDS: dict[str, Callable[[Value, Value], bool]] = {
    "type": _is_of,
    "enum": _among,
    "const": lambda expected, value: _among([expected], value),
    "required": lambda keys, value: not isinstance(value, Mapping) or all(key in value for key in keys),
    "properties": _properties,
    "items": _items,
    "minimum": lambda limit, value: not _is_number(value) or value >= limit,
    "maximum": lambda limit, value: not _is_number(value) or value <= limit,
    "minLength": lambda limit, value: not isinstance(value, str) or len(value) >= limit,
    "maxLength": lambda limit, value: not isinstance(value, str) or len(value) <= limit,
    "minItems": lambda limit, value: not isinstance(value, list) or len(value) >= limit,
    "maxItems": lambda limit, value: not isinstance(value, list) or len(value) <= limit,
    "description": lambda text, value: True,  # noqa: ARG005
    "title": lambda text, value: True,  # noqa: ARG005
}
"""By keyword of JSON Schema: whether a value fits."""
CLOSED = "additionalProperties"


def fits(schema: Record, value: Value) -> bool:
    """Whether a value fits a JSON Schema."""
    if schema.get(CLOSED) is False and isinstance(value, Mapping) and set(value) - set(schema.get("properties", {})):
        return False
    return all(KEYWORDS[name](said, value) for name, said in schema.items() if name != CLOSED)


def check_schema(schema: Value) -> None:
    """Raise a ValueError for a schema that cannot be checked."""
    if not isinstance(schema, Mapping):
        raise ValueError(f"a JSON Schema must be a mapping, got {schema!r:.60}")
    unknown = [str(name) for name in schema if name not in KEYWORDS and name != CLOSED]
    if unknown:
        raise ValueError(f"the schema keyword {unknown[0]!r} is not supported; use {', '.join([*KEYWORDS, CLOSED])}")
    kinds = schema.get("type", [])
    wrong = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind not in CLASSES]
    if wrong:
        raise ValueError(f"the schema type {wrong[0]!r} does not exist; use {', '.join(CLASSES)}")
    for inner in [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]:
        check_schema(inner)


@dataclass(kw_only=True)
class ToolCalledMetric(ComparingMetric):
    """Whether a tool was called: `tool` with `arguments` (those given must be equal) that fit the JSON `schema`, at least
    once or exactly `times`. Without `tool`, the golden value is a name, `{name:, arguments:}`, or a list of them: each must
    be among the calls."""

    tool: str | None = None
    arguments: JSONDict = field(default_factory=dict)
    schema: JSONDict = field(default_factory=dict)
    times: int | None = None

    validator = "tool_called"

    def __post_init__(self) -> None:
        check_schema(self.schema)

    @property
    def needs_golden(self) -> bool:
        return self.tool is None

    def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
        calls = calls_of(predicted)
        if self.tool is not None:
            matching = [call for call in calls if self._matches(call, self.tool, self.arguments)]
            correct = bool(matching) if self.times is None else len(matching) == self.times
            return self.result(correct, golden, {"calls": calls}, {"matching": len(matching)})
        expected, left = expected_calls(golden), list(calls)
        for name, arguments in expected:
            match = next((call for call in left if self._matches(call, name, arguments)), None)
            if match is None:
                return self.result(False, golden, {"calls": calls}, {"missing": {"name": name, "arguments": arguments}})
            left.remove(match)
        return self.result(True, golden, {"calls": calls}, {"missing": None})

    def _matches(self, call: JSONDict, name: str, arguments: Record) -> bool:
        return (
            call["name"] == name and is_part_of(arguments, call["arguments"]) and fits(self.schema, call["arguments"])
        )


def expected_calls(golden: Value) -> list[tuple[str, Record]]:
    """The calls that a golden value asks for."""
    value = _lone(golden)
    written = value if isinstance(value, list) else [value]
    calls: list[JSONDict] = [{"name": each} if isinstance(each, str) else each for each in written]
    if not all(isinstance(each, Mapping) and isinstance(each.get("name"), str) for each in calls):
        raise ValueError(f"the golden value must be names of tools, or {{name:, arguments:}}; got {value!r:.60}")
    return [(each["name"], each.get("arguments", each.get("args")) or {}) for each in calls]


@dataclass(kw_only=True)
class ToolOrderMetric(ComparingMetric):
    """Whether tools were called in an `order`, or that of the golden value: other calls may be between them, unless it is
    `exact`."""

    order: Sequence[str] = ()
    exact: bool = False

    validator = "tool_order"

    @property
    def needs_golden(self) -> bool:
        return not self.order

    def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
        order = list(self.order) or [name for name, _ in expected_calls(golden)]
        names = [call["name"] for call in calls_of(predicted)]
        left = iter(names)
        correct = names == order if self.exact else all(name in left for name in order)
        return self.result(correct, golden, {"order": names}, {"expected": order})


@dataclass(kw_only=True)
class NoForbiddenToolMetric(ComparingMetric):
    """Whether none of the `forbidden` tools, or those of the golden value, was called."""

    forbidden: Sequence[str] = ()

    validator = "no_forbidden_tool"

    @property
    def needs_golden(self) -> bool:
        return not self.forbidden

    def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
        forbidden = list(self.forbidden) or [name for name, _ in expected_calls(golden)]
        called = [call["name"] for call in calls_of(predicted)]
        violations = [name for name in called if name in forbidden]
        return self.result(not violations, golden, {"called": called}, {"forbidden_calls": violations})


@dataclass(kw_only=True)
class _UsageMetric(ComparingMetric):
    """The base of metrics of an agent's `<key>_usage`: the number is the score, and correct if it is `at_most` so much."""

    at_most: float | None = None
    higher_is_better = False
    part = ""
    """The key of the number."""

    @property
    def needs_golden(self) -> bool:
        return False

    def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
        used = predicted.get(self.part) if isinstance(predicted, Mapping) else None
        if not isinstance(used, int | float) or isinstance(used, bool):
            known = isinstance(predicted, Mapping) and self.part in predicted
            fix = "set price_in and price_out in model_args" if known else "predicted_key must name <output key>_usage"
            raise ValueError(f"the {self.part} of the agent are not known: {fix}")
        correct = self.at_most is None or used <= self.at_most
        return self.result(correct, golden, predicted, {"at_most": self.at_most}, float(used))


@dataclass(kw_only=True)
class TurnsMetric(_UsageMetric):
    """The number of an agent's turns."""

    validator, part = "agent_turns", "turns"


@dataclass(kw_only=True)
class CostMetric(_UsageMetric):
    """The cost of an agent's replies."""

    validator, part = "agent_cost", "cost"
