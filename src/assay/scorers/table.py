"""Every metric by name: lm-eval's, and those it does not have."""

from assay.scorers.classes import CLASS_METRICS
from assay.scorers.math_metric import MATH_METRICS
from assay.scorers.metrics import METRICS, Declared
from assay.scorers.sandbox import CODE_METRICS
from assay.scorers.text_metrics import TEXT_METRICS

ALL_METRICS: dict[str, Declared] = {**METRICS, **TEXT_METRICS, **MATH_METRICS, **CLASS_METRICS, **CODE_METRICS}
