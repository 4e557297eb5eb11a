"""What a group file may say. Any key of a task may stand there too: it is a default for the members."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from assay.config.option import option
from assay.records import Function

Member = str | Mapping[str, object]
"""A name; or a name with changes; or a whole task or group, written in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AggMetricConfig:
    """One entry of `aggregate_metric_list`: a number for the group from the numbers of its members."""

    metric: str | Function = option("The members' metric: its name, or the function it is.")
    aggregation: str | Function = option("How the members' values become one.", "mean")
    weight_by_size: bool | None = option(
        "Weigh members by their number of samples (micro average); a mean does when absent, others do not.", None
    )
    filter_list: str | tuple[str, ...] | Mapping[str, object] | None = option(
        "The filters whose values are taken; every filter found when absent.", None
    )
    higher_is_better: bool | None = option("Whether more is better; as the members say when absent.", None)
    name: str | None = option("The name of the row; the metric's when absent.", None)
    kwargs: Mapping[str, object] | None = option("Parameters of the aggregation.", None)
    combine: bool = option("Make one row of several filters, each document counted once.", False)
    levels: Literal["leaves", "children"] = option("Of the tasks below, or of the members' own numbers.", "leaves")
    missing: Literal["error", "skip"] | None = option("What of members without the metric; refused when absent.", None)

    @property
    def metric_name(self) -> str:
        return self.metric if isinstance(self.metric, str) else self.metric.name

    @property
    def row_name(self) -> str:
        return self.name or self.metric_name


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Tasks and groups under one name, with numbers of its own where it says how."""

    group: str = option("The name.")
    group_alias: str | None = option("The name shown in tables.", None)
    task: tuple[Member, ...] | list[Member] | None = option("The members.", (), many=True)
    aggregate_metric_list: tuple[AggMetricConfig, ...] | list[AggMetricConfig] | None = option(
        "The numbers of the group itself.", None, many=True
    )
    group_filter: Mapping[str, object] | tuple[Mapping[str, object], ...] | None = option(
        "Which members count: `only`, `exclude` (names, globs), `top_k`.", None
    )
    group_scorer: Function | None = option("A function of group and results that gives further rows.", None)
    type: str | Function | None = option("The kind of group: a name or class of your own.", None)
    metadata: Mapping[str, object] | None = option(
        "`description`, `version`, `domain`, `difficulty`, `citation`, and anything else.", None
    )
