"""Assay's metrics as unit metrics: every metric that gives a number for an answer and its references.

The number is the score. It is correct where it is as good as can be: 1, of BLEU and chrF 100, of errors 0; `threshold`
sets another bar. Metrics that are computed over all documents at once are aggregators here: aggregate/collected.py.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from assay.errors import ConfigError, Place, Problem
from assay.registry import library_problem, read_signature
from assay.scoring.metrics.table import METRICS
from assay.scoring.metrics.text import ALONE
from assay.scoring.results import GENERATE, DeclaredMetric
from assay.scoring.unit import UnitMetric, UnitMetricResult, as_mapping

TOLERANCE = 1e-9
"""What a score may lack of the best one: sums of fractions are not exact."""


def gives_a_number(declared: DeclaredMetric) -> bool:
    """Whether a metric gives one number for one answer."""
    return GENERATE in declared.functions and declared.aggregation == "mean" and declared.gives is None


def adapted(name: str, declared: DeclaredMetric) -> type[UnitMetric]:
    """A metric of assay as a class of unit metrics, with its parameters, `key` and `threshold`."""
    function = declared.functions[GENERATE]
    best = (100.0 if name in ALONE else 1.0) if declared.higher_is_better else 0.0

    class OfAnswer(UnitMetric):
        runs_code = declared.runs_code

        def __init__(self, *, key: str | None = "text", threshold: float = best, **params: Any) -> None:
            super().__init__(key=key, threshold=threshold, **params)
            self.key, self.threshold = key, threshold
            problem = library_problem(declared.needs, f"unit metric {name!r}", Place(f"unit metric {name!r}"))
            obstacle = declared.obstacle() if declared.obstacle is not None else None
            if obstacle is not None:
                problem = Problem(Place(f"unit metric {name!r}"), f"cannot work here: {obstacle[0]}", obstacle[1])
            if problem is not None:
                raise ConfigError([problem])
            prepared: Callable[..., Any] | None = getattr(function, "prepared", None)
            self._score = prepared(**params) if prepared is not None else _bound(function, params)

        def compare(self, golden: Any, predicted: Any) -> UnitMetricResult:
            right, given = _value(golden, self.key), _value(predicted, self.key)
            if right is None:
                raise ValueError(f"the golden value has no {self.key!r}: {golden!r:.80}")
            references = [str(each) for each in right] if isinstance(right, list | tuple) else [str(right)]
            score = float(self._score(references, "" if given is None else str(given)))
            above, below = score >= self.threshold - TOLERANCE, score <= self.threshold + TOLERANCE
            correct = given is not None and (above if declared.higher_is_better else below)
            said = {"validator": name, "threshold": self.threshold}
            return UnitMetricResult(correct, as_mapping(golden), as_mapping(predicted), said, score)

    OfAnswer.__name__ = OfAnswer.__qualname__ = f"Unit_{name}"
    OfAnswer.__doc__ = function.__doc__
    own = [each for each in inspect.signature(OfAnswer).parameters.values() if each.kind is each.KEYWORD_ONLY]
    more = [each for each in read_signature(function).parameters.values() if each.kind is each.KEYWORD_ONLY]
    OfAnswer.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    return OfAnswer


def _bound(function: Callable[..., Any], params: Mapping[str, Any]) -> Callable[..., Any]:
    return lambda references, answer: function(references, answer, **params)


def _value(value: Any, key: str | None) -> Any:
    return value.get(key) if key is not None and isinstance(value, Mapping) else value


ADAPTED_METRICS: dict[str, type[UnitMetric]] = {
    name: adapted(name, declared) for name, declared in {**METRICS, **ALONE}.items() if gives_a_number(declared)
}
