"""Which functions and classes of a task take any parameter, so that a typo in one cannot be found."""

from collections.abc import Iterator

from assay.catalog.functions import static_signature
from assay.config.task import FilterConfig, MetricConfig, ScorerConfig, TaskConfig
from assay.records import Function
from assay.registry import Accepted, accepted
from assay.scoring.filters import FILTERS
from assay.scoring.metrics.table import METRICS
from assay.scoring.named import SCORERS


def unchecked_parameters(config: TaskConfig) -> list[str]:
    """A sentence for each metric, filter and scorer whose signature has `**kwargs`. No helper code is run."""
    named = list(dict.fromkeys(_named(config)))
    return [
        f"{kind} {getattr(name, 'name', name)!r} takes any parameter (**kwargs): names are not checked"
        for kind, name in named
        if any(each.takes_any for each in _accepts(kind, name))
    ]


def _named(config: TaskConfig) -> Iterator[tuple[str, str | Function]]:
    yield from _scorer(config.scorer)
    yield from _metrics(config.metric_list)
    for each in config.filter_list or ():
        yield from _filter(each)


def _filter(config: FilterConfig) -> Iterator[tuple[str, str | Function]]:
    for step in config.filter:
        yield "filter", step.function
    yield from _metrics(config.metric_list)
    yield from _scorer(config.scorer)


def _metrics(configs: tuple[MetricConfig, ...] | None) -> Iterator[tuple[str, str | Function]]:
    for each in configs or ():
        yield "metric", each.name
        if isinstance(each.aggregation, Function):
            yield "aggregation", each.aggregation


def _scorer(written: str | Function | ScorerConfig | None) -> Iterator[tuple[str, str | Function]]:
    if written is not None:
        yield "scorer", written.type if isinstance(written, ScorerConfig) else written


def _accepts(kind: str, name: str | Function) -> list[Accepted]:
    if isinstance(name, Function):
        written = static_signature(name)
        return [] if written is None else [accepted(_With(written.signature))]
    if kind == "metric":
        return [accepted(function) for function in METRICS[name].functions.values()] if name in METRICS else []
    table = FILTERS if kind == "filter" else SCORERS
    return [table.accepts(table[name])] if name in table else []


class _With:
    """A callable with a given signature."""

    def __init__(self, signature: object) -> None:
        self.__signature__ = signature

    def __call__(self) -> None: ...
