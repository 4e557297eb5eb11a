"""Unit metrics of agents: the tools they called, in which order, in how many turns, and at which cost.

The predicted value is `<key>_tool_calls` of an agent, or `<key>_usage` for turns and cost.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from assay.graphs.spec import Record, Value
from assay.graphs.unit_metrics import ComparingMetric, UnitMetricResult
from assay.records import JSONDict
from assay.scoring.metrics.structured import schema_validator
from assay.statistics.influence import COUNT

TOOL_PARAMETERS = {"tool_called": "tool", "tool_order": "order", "no_forbidden_tool": "forbidden"}
"""By metric the parameter that names tools."""


def _lone(value: Value) -> Value:
    """The value that a UnitMetrics node has wrapped as a text."""
    return value["text"] if isinstance(value, Mapping) and list(value) == ["text"] else value


def _names(written: str | Sequence[str]) -> list[str]:
    """The names of tools in a parameter: one name, or a list.

    >>> _names("refund"), _names(["refund", "cancel"])
    (['refund'], ['refund', 'cancel'])
    """
    return [written] if isinstance(written, str) else list(written)


def unknown_tools(entry: Record, tools: Collection[str]) -> Iterator[tuple[str, str]]:
    """The parameters of a metric that name tools which no agent has, with the name."""
    params = entry.get("params")
    key = TOOL_PARAMETERS.get(str(entry.get("name")))
    if key is not None and isinstance(params, Mapping):
        yield from (
            (key, name) for name in _names(params.get(key) or ()) if isinstance(name, str) and name not in tools
        )


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
        if self.tool is None and (self.arguments or self.times is not None):
            raise ValueError("`arguments` and `times` need `tool`, the name of the tool")
        self._fits = schema_validator(self.schema)

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
        return call["name"] == name and is_part_of(arguments, call["arguments"]) and self._fits(call["arguments"])


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

    def __post_init__(self) -> None:
        self.order = _names(self.order)

    @property
    def needs_golden(self) -> bool:
        return not self.order

    def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
        order = self.order or [name for name, _ in expected_calls(golden)]
        names = [call["name"] for call in calls_of(predicted)]
        left = iter(names)
        correct = names == order if self.exact else all(name in left for name in order)
        return self.result(correct, golden, {"order": names}, {"expected": order})


@dataclass(kw_only=True)
class NoForbiddenToolMetric(ComparingMetric):
    """Whether none of the `forbidden` tools, or those of the golden value, was called."""

    forbidden: Sequence[str] = ()

    validator = "no_forbidden_tool"

    def __post_init__(self) -> None:
        self.forbidden = _names(self.forbidden)

    @property
    def needs_golden(self) -> bool:
        return not self.forbidden

    def compare(self, golden: Value, predicted: Value) -> UnitMetricResult:
        forbidden = self.forbidden or [name for name, _ in expected_calls(golden)]
        called = [call["name"] for call in calls_of(predicted)]
        violations = [name for name in called if name in forbidden]
        return self.result(not violations, golden, {"called": called}, {"forbidden_calls": violations})


@dataclass(kw_only=True)
class _UsageMetric(ComparingMetric):
    """The base of metrics of an agent's `<key>_usage`: the number is the score, and correct if it is `at_most` so much."""

    at_most: float | None = None
    higher_is_better = False
    bounds = COUNT
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
