"""The keys of a group file. Keys of a task are allowed too: they are defaults for the members."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from assay.config.option import option
from assay.records import Function

Member = str | Mapping[str, object]
"""A name; or a name with changes; or a whole task or group, defined inline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AggMetricConfig:
    """One entry of `aggregate_metric_list`: a metric of the group, aggregated from its members."""

    metric: str | Function = option("The members' metric: its name, or the function it is.")
    aggregation: str | Function = option("How the members' values are aggregated.", "mean")
    weight_by_size: bool | None = option(
        "Weight members by their number of samples (micro average); by default only a mean does.", None
    )
    filter_list: str | tuple[str, ...] | Mapping[str, object] | None = option(
        "The filters to aggregate (default: every filter of the members).", None
    )
    higher_is_better: bool | None = option("Whether more is better (default: as in the members).", None)
    name: str | None = option("The name of the row (default: the metric's).", None)
    kwargs: Mapping[str, object] | None = option("Parameters of the aggregation.", None)
    combine: bool = option("Combine the filters into one row; each document counts once.", False)
    levels: Literal["leaves", "children"] = option(
        "Aggregate the tasks below, or the results of the members.", "leaves"
    )
    missing: Literal["error", "skip"] | None = option(
        "Members without the metric: skip them, or give the group no value (default).", None
    )

    @property
    def metric_name(self) -> str:
        return self.metric if isinstance(self.metric, str) else self.metric.name

    @property
    def row_name(self) -> str:
        return self.name or self.metric_name


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Tasks and groups under one name, with aggregated metrics if `aggregate_metric_list` is given."""

    group: str = option("The name.")
    group_alias: str | None = option("The name shown in tables.", None)
    task: tuple[Member, ...] | list[Member] | None = option("The members.", (), many=True)
    aggregate_metric_list: tuple[AggMetricConfig, ...] | list[AggMetricConfig] | None = option(
        "The metrics of the group itself.", None, many=True
    )
    group_filter: Mapping[str, object] | tuple[Mapping[str, object], ...] | None = option(
        "Which members count: `only`, `exclude` (names, globs), `top_k`.", None
    )
    group_scorer: Function | None = option("A function of group and results that returns more rows.", None)
    type: str | Function | None = option("The kind of group: a registered name, or a class.", None)
    metadata: Mapping[str, object] | None = option(
        "`description`, `version`, `domain`, `difficulty`, `citation`, and any other key.", None
    )
