"""The modules that helper code finds under the names of SyGra, and of its `tasks.eval.utils`, by dotted name."""

import logging
from typing import Any

from assay.compat import sygra_utils
from assay.compat.modules import TASK_UTILITIES
from assay.graphs import (
    aggregator_registry,
    collate,
    sygra,
    sygra_classes,
    transforms,
    unit_metrics,
    unit_node,
)

_CONSTANTS = {
    "SYGRA_START": "__start__", "SYGRA_END": "__end__", "START": "START", "END": "END", "BACKEND": "langgraph",
    "ERROR_PREFIX": "###SERVER_ERROR###", "GRAPH_OUTPUT_KEY": "output_keys", "HF_TOKEN": "HF_TOKEN",
    "CHAT_CONVERSATION_MULTITURN": "multiturn", "CHAT_CONVERSATION_SINGLETURN": "singleturn",
    "VAR_CHAT_HISTORY": "__chat_history__", "VAR_REQUESTS": "__requests__", "VAR_RESPONSES": "__responses__",
    "VAR_LAST_NODES": "__last_node__", "KEY_NAME": "name", "KEY_REQUEST": "request", "KEY_RESPONSE": "response",
    "LIST_SEPARATOR": "|", "DEFAULT_TIMEOUT": 120, "RETRYABLE_HTTP_ERROR": [408, 429, 599, 444],
    "SERVER_DOWN_ERROR_CODE": [404, 500, 501, 502, 503],
}  # fmt: skip

ModuleContents = dict[str, Any]
"""The names of a module, with their values."""


def sygra_modules() -> dict[str, ModuleContents]:
    """By dotted name of a module, what it holds; packages are empty."""
    parts = vars(sygra)
    contents = {
        **_metrics(),
        "sygra.core.graph.functions.node_processor": _some(
            parts, "NodePreProcessor", "NodePostProcessor", "NodePostProcessorWithState", "SygraMessage", "SygraState"
        ),
        "sygra.core.graph.functions.lambda_function": _some(
            parts, "LambdaFunction", "AsyncLambdaFunction", "SygraState"
        ),
        "sygra.core.graph.functions.edge_condition": _some(parts, "EdgeCondition", "SygraState"),
        "sygra.core.graph.sygra_message": _some(parts, "SygraMessage"),
        "sygra.core.graph.sygra_state": _some(parts, "SygraState"),
        "sygra.core.models.model_postprocessor": _some(parts, "ModelPostProcessor", "RemoveThinkData"),
        "sygra.core.graph.graph_postprocessor": _some(parts, "GraphPostProcessor"),
        "sygra.processors.output_record_generator": _some(parts, "BaseOutputGenerator"),
        "sygra.processors.data_transform": {"DataTransform": transforms.DataTransform, **transforms.TRANSFORMS},
        "sygra.utils.constants": dict(_CONSTANTS),
        "sygra.utils.utils": dict(sygra_utils.NAMES),
        "sygra.logger.logger_config": {"logger": logging.getLogger("sygra")},
        TASK_UTILITIES: {
            "UnitMetrics": unit_node.UnitMetrics,
            "MetricCollatorPostProcessor": collate.MetricCollatorPostProcessor,
            "parse_response_as_json": sygra.parse_response_as_json,
        },
    }
    packages = {
        name[:at] for name in contents if name.startswith("sygra.") for at, sign in enumerate(name) if sign == "."
    }
    return {**{package: {} for package in sorted(packages)}, **contents}


def _some(names: ModuleContents, *chosen: str) -> ModuleContents:
    return {name: names[name] for name in chosen}


def _called_by_hand(name: str, class_name: str) -> type[sygra_classes.UnitMetric]:
    """A unit metric for helper code that makes it itself, as SyGra's does after it saw which tool a model chose: what cannot
    be compared is wrong, with the reason in the metadata."""
    kind: type[sygra_classes.UnitMetric] = unit_metrics.UnitMetricRegistry.get_metric_class(name)

    class CalledByHand(kind):  # type: ignore[valid-type, misc]
        def compare(self, golden: Any, predicted: Any) -> sygra_classes.UnitMetricResult:
            try:
                result: sygra_classes.UnitMetricResult = super().compare(golden, predicted)
            except ValueError as error:
                said = {"validator": name, "error": str(error)}
                return sygra_classes.UnitMetricResult(False, dict(golden), dict(predicted), said, 0.0)
            return result

    CalledByHand.__name__ = CalledByHand.__qualname__ = class_name
    return CalledByHand


def _made_by_hand(name: str, class_name: str) -> type[sygra_classes.AggregatorMetric]:
    known = aggregator_registry.AggregatorMetricRegistry
    kind = known.get_metric_class("pass^k" if name == "pass_power_k" else name)
    kind.__name__ = kind.__qualname__ = class_name
    return kind


def _metrics() -> dict[str, ModuleContents]:
    base = {"BaseUnitMetric": sygra_classes.UnitMetric, "BaseMetricMetadata": sygra_classes.MetricMetadata}
    result = {"UnitMetricResult": sygra_classes.UnitMetricResult}
    unit_names = {"UnitMetricRegistry": unit_metrics.UnitMetricRegistry, "unit_metric": unit_metrics.unit_metric}
    aggregator_base = {"BaseAggregatorMetric": sygra_classes.AggregatorMetric, **result}
    aggregator_names = {
        "AggregatorMetricRegistry": aggregator_registry.AggregatorMetricRegistry,
        "aggregator_metric": aggregator_registry.aggregator_metric,
    }
    units = {
        "exact_match": "ExactMatchMetric",
        "fuzzy_match": "FuzzyMatchMetric",
        "action_within_bbox": "ActionWithinBboxMetric",
        "typed_value_match": "TypedValueMatchMetric",
        "scroll_direction": "ScrollDirectionMetric",
        "scroll_amount": "ScrollAmountMetric",
    }
    aggregators = {
        "accuracy": "AccuracyMetric",
        "precision": "PrecisionMetric",
        "recall": "RecallMetric",
        "f1_score": "F1ScoreMetric",
        "pass_at_k": "PassAtKMetric",
        "pass_power_k": "PassPowerKMetric",
        "step_efficiency": "StepEfficiencyMetric",
    }
    top = "sygra.core.eval.metrics"
    return {
        f"{top}.base_metric_metadata": {"BaseMetricMetadata": sygra_classes.MetricMetadata},
        f"{top}.unit_metrics.unit_metric_result": result,
        f"{top}.unit_metrics.base_unit_metric": {**base, **result},
        f"{top}.unit_metrics.unit_metric_registry": {**unit_names, **base},
        **{f"{top}.unit_metrics.{name}": {kind: _called_by_hand(name, kind)} for name, kind in units.items()},
        f"{top}.aggregator_metrics.base_aggregator_metric": aggregator_base,
        f"{top}.aggregator_metrics.aggregator_metric_registry": {**aggregator_names, **aggregator_base},
        **{f"{top}.aggregator_metrics.{name}": {kind: _made_by_hand(name, kind)} for name, kind in aggregators.items()},
    }
