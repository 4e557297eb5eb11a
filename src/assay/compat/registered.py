"""Lm-eval's names for what the helper code of one run registers and finds: views of registries that end with the run."""

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from assay.compat import evaluate_names
from assay.compat.features import Ignored
from assay.compat.filter_classes import CLASSES, FilterEnsemble, build_ensemble
from assay.compat.lm_eval_metrics import adapt_metric
from assay.config.option import YAMLMapping
from assay.records import UserFunction
from assay.registry import Registry
from assay.scoring.helper_code import RegisteredMetric
from assay.scoring.metrics.registry import LM_EVAL_METRICS
from assay.scoring.named import SCORERS
from assay.scoring.reductions import REDUCTIONS
from assay.scoring.results import GENERATE
from assay.scoring.scorer import Scorer
from assay.statistics.aggregations import AGGREGATIONS

if TYPE_CHECKING:
    from assay.compat.sygra_names import ModuleContents

T = TypeVar("T")
F = TypeVar("F", bound=UserFunction)


@dataclass(frozen=True, slots=True)
class Registered:
    """Filters, metrics and aggregations by name. The methods with lm-eval's names are what helper code calls."""

    filters: Registry[Callable[..., Any], Any] = field(default_factory=lambda: Registry("filter", {}))
    metrics: Registry[RegisteredMetric, Any] = field(default_factory=lambda: Registry("metric", {}))
    aggregations: Registry[Callable[..., Any], Any] = field(default_factory=lambda: Registry("aggregation", {}))
    reductions: Registry[Callable[..., Any], Any] = field(default_factory=lambda: Registry("reduction", {}))

    def register_filter(self, name: str) -> Callable[[F], F]:
        return _decorator(self.filters, name)

    def register_aggregation(self, name: str) -> Callable[[F], F]:
        return _decorator(self.aggregations, name)

    def register_reduction(self, name: str) -> Callable[[F], F]:
        return _decorator(self.reductions, name)

    def register_metric(
        self,
        metric: str,
        *,
        higher_is_better: bool | None = None,
        aggregation: str | None = None,
        reduction: str | None = None,
        output_type: str | Sequence[str] = GENERATE,
        **_: Ignored,
    ) -> Callable[[F], F]:
        """A decorator; an aggregation that is not registered is refused here, as in lm-eval."""
        function = None if aggregation is None else self.get_aggregation(aggregation)
        if aggregation is not None and function is None:
            raise KeyError(f"no aggregation named {aggregation!r}")

        def register(item: F) -> F:
            if metric not in self.metrics:
                self.metrics[metric] = adapt_metric(item, function, higher_is_better, reduction, output_type)
            return item

        return register

    def get_filter(self, filter_name: str | UserFunction) -> UserFunction:
        if not isinstance(filter_name, str):
            return filter_name
        return self.filters[filter_name] if filter_name in self.filters else CLASSES[filter_name]

    def get_aggregation(self, name: str) -> UserFunction | None:
        if name in self.aggregations:
            return self.aggregations[name]
        named = "median_high" if name == "median" else name  # lm-eval's median
        return AGGREGATIONS[named].function if named in AGGREGATIONS else None

    def get_reduction(self, name: str) -> UserFunction | None:
        return self.reductions[name] if name in self.reductions else REDUCTIONS.get(name)

    def get_metric(self, name: str, hf_evaluate_metric: bool = False) -> UserFunction | None:
        """The function of a metric: lm-eval's return their argument, apart from exact_match."""
        if hf_evaluate_metric:
            return evaluate_names.find_metric(name)
        if name in self.metrics:
            return self.metrics[name].function
        if name in LM_EVAL_METRICS and name != "exact_match":
            return identity
        return evaluate_names.find_metric(name)

    def get_metric_aggregation(self, name: str) -> UserFunction | None:
        if name in self.metrics:
            return self.metrics[name].aggregation
        named = LM_EVAL_METRICS[name].aggregation if name in LM_EVAL_METRICS else None
        return None if named is None else self.get_aggregation(named)

    def is_higher_better(self, metric_name: str) -> bool | None:
        if metric_name in self.metrics:
            return self.metrics[metric_name].higher_is_better
        return LM_EVAL_METRICS[metric_name].higher_is_better if metric_name in LM_EVAL_METRICS else None

    def build_filter_ensemble(
        self, filter_name: str, components: Iterable[tuple[str | UserFunction, YAMLMapping | None]]
    ) -> FilterEnsemble:
        return build_ensemble(filter_name, components, self.get_filter)

    def find_metric(self, name: str) -> UserFunction | None:
        """The function a task means by a name that is not one of our metrics."""
        return self.metrics[name].function if name in self.metrics else evaluate_names.find_metric(name)

    def names(self) -> "ModuleContents":
        """Contents of `lm_eval.api.registry`."""
        return {
            "register_filter": self.register_filter,
            "register_metric": self.register_metric,
            "register_aggregation": self.register_aggregation,
            "register_reduction": self.register_reduction,
            "register_scorer": register_scorers,
            "register_model": _ignored,
            "register_task": _ignored,
            "get_filter": self.get_filter,
            "get_metric": self.get_metric,
            "get_aggregation": self.get_aggregation,
            "get_reduction": self.get_reduction,
            "get_scorer": SCORERS.__getitem__,
            "get_metric_aggregation": self.get_metric_aggregation,
            "is_higher_better": self.is_higher_better,
            **self._dicts(),
        }

    def _dicts(self) -> dict[str, "View"]:
        """Lm-eval's dicts: what helper code writes into them is registered, what it reads may be ours."""
        metrics = partial(View, self.metrics, LM_EVAL_METRICS)
        return {
            "FILTER_REGISTRY": View(self.filters, CLASSES, self.get_filter, self.filters.__setitem__),
            "AGGREGATION_REGISTRY": View(
                self.aggregations, AGGREGATIONS, self.get_aggregation, self.aggregations.__setitem__
            ),
            "METRIC_REGISTRY": metrics(self.get_metric, partial(self._set, "function")),
            "METRIC_AGGREGATION_REGISTRY": metrics(self.get_metric_aggregation, partial(self._set, "aggregation")),
            "HIGHER_IS_BETTER_REGISTRY": metrics(self.is_higher_better, partial(self._set, "higher_is_better")),
        }

    def _set(self, key: str, name: str, value: Any) -> None:
        """Set one attribute of a metric: lm-eval has a dict for each."""
        known = self.metrics.get(name, RegisteredMetric(identity, None, None))
        self.metrics[name] = replace(known, **{key: value})


class View(MutableMapping[str, Any]):
    """One of lm-eval's dicts over a registry of helper code and the names that are built in."""

    def __init__(
        self,
        registry: Registry[Any, Any],
        built_in: Iterable[str],
        read: Callable[[str], Any],
        write: Callable[[str, Any], None],
    ) -> None:
        self._registry, self._built_in, self._read, self._write = registry, built_in, read, write

    def __getitem__(self, name: str) -> Any:
        value = self._read(name)
        if value is None:
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, item: Any) -> None:
        self._write(name, item)

    def __delitem__(self, name: str) -> None:
        del self._registry[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._built_in, *self._registry]))

    def __len__(self) -> int:
        return len(list(iter(self)))


def _decorator(registry: MutableMapping[str, UserFunction], name: str) -> Callable[[F], F]:
    """Enters what helper code decorates; a name that is taken stays with the first, as in lm-eval."""

    def register(item: F) -> F:
        if name not in registry:
            registry[name] = item
        return item

    return register


def identity(items: T) -> T:
    """The same: of a metric whose aggregation does the work."""
    return items


def register_scorers(*names: str) -> Callable[[type[Scorer]], type[Scorer]]:
    """A decorator for a class of scorers, with all its names."""

    def register(kind: type[Scorer]) -> type[Scorer]:
        for name in names:
            SCORERS.add(name, kind)
        return kind

    return register


def _ignored(*_: Ignored, **__: Ignored) -> Callable[[T], T]:
    return lambda item: item
