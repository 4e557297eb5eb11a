"""The table of metrics: lm-eval's, those it does not have, and those of users."""

from collections.abc import Callable
from typing import Any

from assay.registry import Table, must_be_callable
from assay.scoring.metrics.classes import CLASS_METRICS
from assay.scoring.metrics.lm_eval import LM_EVAL_METRICS, DeclaredMetric
from assay.scoring.metrics.math_equal import MATH_METRICS
from assay.scoring.metrics.text import TEXT_METRICS
from assay.scoring.results import GENERATE
from assay.scoring.sandbox import CODE_METRICS


def _adopted(name: str, thing: Any) -> DeclaredMetric:
    """A metric, or a function of references and a prediction as one."""
    declared = thing if isinstance(thing, DeclaredMetric) else DeclaredMetric({GENERATE: must_be_callable(name, thing)})
    for output_type, function in declared.functions.items():
        METRICS.refuse_shape(function, 2 if output_type == GENERATE else 1)
    return declared


METRICS: Table[DeclaredMetric, Callable[[Any], Any]] = Table(
    "metric",
    {**LM_EVAL_METRICS, **TEXT_METRICS, **MATH_METRICS, **CLASS_METRICS, **CODE_METRICS},
    group="assay.metrics",
    supplied=("references", "prediction"),
    adopt=_adopted,
)
