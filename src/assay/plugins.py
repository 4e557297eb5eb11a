"""Decorators that register user code, one for each kind, and the registries behind them.

Each takes the name for files and flags, and returns the decorated object unchanged. Installed packages can register with
entry points instead: the group is `assay.` with the kind in the plural.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Literal, TypeVar, get_args

from assay.config.task import FormatConfig
from assay.errors import Problem
from assay.records import UserValue
from assay.registry import Registry, installed_plugins

T = TypeVar("T", bound=Callable[..., Any])
Format = TypeVar("Format", bound=FormatConfig | Callable[[], FormatConfig])
OutputType = Literal["generate_until", "multiple_choice", "loglikelihood", "loglikelihood_rolling"]

REGISTRIES = {
    "metrics": "assay.scoring.metrics.registry:METRICS",
    "filters": "assay.scoring.filters:FILTERS",
    "aggregations": "assay.statistics.aggregations:AGGREGATIONS",
    "reductions": "assay.scoring.reductions:REDUCTIONS",
    "aggregators": "assay.groups.aggregators:AGGREGATORS",
    "scorers": "assay.scoring.named:SCORERS",
    "models": "assay.models.load:BACKENDS",
    "samplers": "assay.samples.fewshot:SAMPLERS",
    "transforms": "assay.graphs.transforms:TRANSFORMS",
    "formats": "assay.samples.formats:FORMATS",
    "unit_metrics": "assay.graphs.unit_metrics:UNIT_METRICS",
    "aggregator_metrics": "assay.graphs.aggregator_registry:AGGREGATOR_METRICS",
    "exporters": "assay.exchange.exporters:EXPORTERS",
}
"""The registries by kind; each is imported at its first use."""


def registry(kind: str) -> Registry[UserValue, UserValue]:
    """Import the registry of a kind."""
    module, _, name = REGISTRIES[kind].partition(":")
    entries: Registry[Any, Any] = getattr(import_module(module), name)
    return entries


def plugin_problems() -> list[Problem]:
    """List the problems of the names of installed plug-ins, without importing one."""
    kinds = [kind for kind in REGISTRIES if installed_plugins(f"assay.{kind}", tuple(sys.path))]
    return [problem for kind in kinds for problem in registry(kind).plugin_problems()]


def _check_declared(name: str, key: str, value: object, options: Sequence[object]) -> None:
    """Refuse a declaration that has another value than those that are known."""
    if value not in options:
        raise ValueError(f"{key} of {name!r} must be one of {', '.join(map(repr, options))}, got {value!r:.60}")


def metric(
    name: str,
    *,
    aggregation: str = "mean",
    higher_is_better: bool = True,
    output_type: OutputType | Sequence[OutputType] = "generate_until",
    bounds: tuple[float, float] | None = None,
) -> Callable[[T], T]:
    """Register a function `(references, prediction, *, …)` as a metric; of other output types it takes `(result, *, …)`.

    `bounds` are the least and the greatest score of a sample: intervals stay within them.
    """
    from assay.scoring.declarations import Metric
    from assay.statistics.influence import read_bounds

    limits = read_bounds(bounds) if bounds is not None else None
    types = [output_type] if isinstance(output_type, str) else output_type
    registry("metrics").check_name(name)
    _check_declared(name, "higher_is_better", higher_is_better, (True, False))
    for kind in types:
        _check_declared(name, "output_type", kind, get_args(OutputType))

    def register(function: T) -> T:
        functions = dict.fromkeys(map(str, types), function)
        registry("metrics").add(name, Metric(functions, aggregation, higher_is_better, bounds=limits), source=function)
        return function

    return register


def filter(  # noqa: A001  # the field's word; used as assay.filter
    name: str,
    *,
    keeps: Literal["one", "k", "all"] | None = None,
    reads: Literal["text", "any"] | None = None,
    leaves: Literal["text", "value"] | None = None,
) -> Callable[[T], T]:
    """Register a function of its parameters that returns a step `(responses, doc) -> responses`, or lm-eval's class.

    What is declared is checked before the run: how many responses it keeps, what it reads, and what it leaves of text.
    """
    from assay.scoring.declarations import Filter

    registry("filters").check_name(name)
    ways = {
        "keeps": (keeps, ("one", "k", "all")),
        "reads": (reads, ("text", "any")),
        "leaves": (leaves, ("text", "value")),
    }
    for key, (value, options) in ways.items():
        _check_declared(name, key, value, (*options, None))

    def register(function: T) -> T:
        registry("filters").add(name, Filter(function, keeps, reads, leaves), source=function)
        return function

    return register


def aggregation(name: str) -> Callable[[T], T]:
    """Register a function `(values, *, …)` of all scores, which returns one number."""
    return registry("aggregations").register(name)


def reduction(name: str, *, bounds: tuple[float, float] | None = None) -> Callable[[T], T]:
    """Register a function `(scores)` or `(scores, answers)` of one document's repeats; with `*, k` it is `name4` in files.

    `bounds` are the least and the greatest value that it can return.
    """
    from assay.statistics.influence import read_bounds

    registry("reductions").check_name(name)

    def register(function: T) -> T:
        if bounds is not None:
            function.bounds = read_bounds(bounds)  # type: ignore[attr-defined]  # a function takes attributes
        return registry("reductions").register(name)(function)

    return register


def aggregator(name: str) -> Callable[[T], T]:
    """Register a class derived from `Aggregator`: a group's metric from those of its members."""
    return registry("aggregators").register(name)


def scorer(name: str) -> Callable[[T], T]:
    """Register a class derived from `Scorer`."""
    return registry("scorers").register(name)


def model(name: str) -> Callable[[T], T]:
    """Register a class or function that makes a model: its parameters are the `--model_args`."""
    return registry("models").register(name)


def sampler(name: str) -> Callable[[T], T]:
    """Register a function `(pool, seed, leaks)` that returns a few-shot sampler `(doc, number) -> indices`."""
    return registry("samplers").register(name)


def transform(name: str) -> Callable[[T], T]:
    """Register a class with `transform(data, params)`, which changes the records of a graph."""
    return registry("transforms").register(name)


def format(name: str) -> Callable[[Format], Format]:  # noqa: A001  # the field's word; used as assay.format
    """Register a FormatConfig, or a function that returns one."""
    return registry("formats").register(name)


def exporter(name: str) -> Callable[[T], T]:
    """Register a function `(run, target)` that writes a run and returns where."""
    return registry("exporters").register(name)
