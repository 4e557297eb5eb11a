"""Unit metrics of agents: the tools they called, in which order, in how many turns, and at which cost.

The predicted value is `<key>_tool_calls` of an agent, or `<key>_usage` for turns and cost.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from assay.graphs.spec import Record, Value
from assay.graphs.sygra_classes import UnitMetricResult
from assay.graphs.unit_metrics import Compare, judged
from assay.records import JSONDict
from assay.scoring.declarations import RECORD, Metric, prepared
from assay.scoring.metrics.structured import schema_validator
from assay.statistics.influence import COUNT, SHARE

TOOL_PARAMETERS = {"tool_called": "tool", "tool_order": "order", "no_forbidden_tool": "forbidden"}
"""By metric the parameter that names tools, and stands in for a golden value."""


def _lone(value: Value) -> Value:
    """The value that a UnitMetrics node has wrapped as a text."""
    return value["text"] if isinstance(value, Mapping) and list(value) == ["text"] else value


def _names(written: str | Sequence[str]) -> list[str]:
    """The names of tools in a parameter: one name, or a list.

    >>> _names("refund"), _names(["refund", "cancel"])
    (['refund'], ['refund', 'cancel'])
    """
    return [written] if isinstance(written, str) else list(written)


def unknown_tools(metric: str, params: Value, tools: Collection[str]) -> Iterator[tuple[str, str]]:
    """The parameters of a metric that name tools which no agent has, with the name."""
    key = TOOL_PARAMETERS.get(metric)
    if key is not None and isinstance(params, Mapping):
        names = _names(params.get(key) or ())
        yield from ((key, name) for name in names if isinstance(name, str) and name not in tools)


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


def _prepare_tool_called(
    *,
    tool: str | None = None,
    arguments: JSONDict | None = None,
    schema: JSONDict | None = None,
    times: int | None = None,
) -> Compare:
    """Whether a tool was called: `tool` with `arguments` (those given must be equal) that fit the JSON `schema`, at least
    once or exactly `times`. Without `tool`, the golden value is a name, `{name:, arguments:}`, or a list of them: each must
    be among the calls."""
    if tool is None and (arguments or times is not None):
        raise ValueError("`arguments` and `times` need `tool`, the name of the tool")
    fits = schema_validator(schema or {})

    def matches(call: JSONDict, name: str, wanted: Record) -> bool:
        return call["name"] == name and is_part_of(wanted, call["arguments"]) and fits(call["arguments"])

    def compare(golden: Value, predicted: Value) -> UnitMetricResult:
        calls = calls_of(predicted)
        found = {"calls": calls}
        if tool is not None:
            count = sum(matches(call, tool, arguments or {}) for call in calls)
            correct = count > 0 if times is None else count == times
            return judged("tool_called", golden, found, correct, matching=count)
        left = list(calls)
        for name, wanted in expected_calls(golden):
            match = next((call for call in left if matches(call, name, wanted)), None)
            if match is None:
                missing = {"name": name, "arguments": wanted}
                return judged("tool_called", golden, found, False, missing=missing)
            left.remove(match)
        return judged("tool_called", golden, found, True, missing=None)

    return compare


def expected_calls(golden: Value) -> list[tuple[str, Record]]:
    """The calls that a golden value asks for."""
    value = _lone(golden)
    written = value if isinstance(value, list) else [value]
    calls: list[JSONDict] = [{"name": each} if isinstance(each, str) else each for each in written]
    if not all(isinstance(each, Mapping) and isinstance(each.get("name"), str) for each in calls):
        raise ValueError(f"the golden value must be names of tools, or {{name:, arguments:}}; got {value!r:.60}")
    return [(each["name"], each.get("arguments", each.get("args")) or {}) for each in calls]


def tool_order(
    golden: Value, predicted: Value, *, order: str | Sequence[str] = (), exact: bool = False
) -> UnitMetricResult:
    """Whether tools were called in an `order`, or that of the golden value: other calls may be between them, unless it is
    `exact`."""
    expected = _names(order) or [name for name, _ in expected_calls(golden)]
    names = [call["name"] for call in calls_of(predicted)]
    left = iter(names)
    correct = names == expected if exact else all(name in left for name in expected)
    return judged("tool_order", golden, {"order": names}, correct, expected=expected)


def no_forbidden_tool(golden: Value, predicted: Value, *, forbidden: str | Sequence[str] = ()) -> UnitMetricResult:
    """Whether none of the `forbidden` tools, or those of the golden value, was called."""
    not_allowed = _names(forbidden) or [name for name, _ in expected_calls(golden)]
    called = [call["name"] for call in calls_of(predicted)]
    violations = [name for name in called if name in not_allowed]
    return judged("no_forbidden_tool", golden, {"called": called}, not violations, forbidden_calls=violations)


def _usage(validator: str, part: str, predicted: Value, golden: Value, at_most: float | None) -> UnitMetricResult:
    """The number that an agent's `<key>_usage` has under `part` as the score: correct if it is `at_most` so much."""
    used = predicted.get(part) if isinstance(predicted, Mapping) else None
    if not isinstance(used, int | float) or isinstance(used, bool):
        known = isinstance(predicted, Mapping) and part in predicted
        fix = "set price_in and price_out in model_args" if known else "predicted_key must name <output key>_usage"
        raise ValueError(f"the {part} of the agent are not known: {fix}")
    correct = at_most is None or used <= at_most
    return judged(validator, golden, predicted, correct, float(used), at_most=at_most)


def agent_turns(golden: Value, predicted: Value, *, at_most: float | None = None) -> UnitMetricResult:
    """The number of an agent's turns."""
    return _usage("agent_turns", "turns", predicted, golden, at_most)


def agent_cost(golden: Value, predicted: Value, *, at_most: float | None = None) -> UnitMetricResult:
    """The cost of an agent's replies."""
    return _usage("agent_cost", "cost", predicted, golden, at_most)


TOOL_CALLED = Metric(
    {RECORD: prepared(_prepare_tool_called)}, bounds=SHARE, needs_golden=TOOL_PARAMETERS["tool_called"]
)
TOOL_ORDER = Metric({RECORD: tool_order}, bounds=SHARE, needs_golden=TOOL_PARAMETERS["tool_order"])
NO_FORBIDDEN_TOOL = Metric({RECORD: no_forbidden_tool}, bounds=SHARE, needs_golden=TOOL_PARAMETERS["no_forbidden_tool"])
AGENT_TURNS = Metric({RECORD: agent_turns}, bounds=COUNT, higher_is_better=False, needs_golden=False)
AGENT_COST = Metric({RECORD: agent_cost}, bounds=COUNT, higher_is_better=False, needs_golden=False)
