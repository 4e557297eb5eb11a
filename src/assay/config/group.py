"""The keys of a group file. Keys of a task are allowed too: they are defaults for the members."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.config.option import NOTHING, YAMLValue, option, with_keys
from assay.errors import ConfigError, Place, Problem
from assay.records import Function

Member = str | Mapping[str, object]
"""A name; or a name with changes; or a whole task or group, defined inline."""
UNSAID: Mapping[str, object] = {"weight_by_size": True, "filter_list": "none", "kwargs": NOTHING}
"""The values that readers see of keys that were not given; `filters` and `by_size` tell the two apart."""


@with_keys
@dataclass(frozen=True, slots=True)
class AggMetricConfig:
    """One entry of `aggregate_metric_list`: a metric of the group, aggregated from its members."""

    metric: str | Function = option("The members' metric: its name, or the function it is.")
    _: KW_ONLY
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
    written_keys: frozenset[str] | None = field(default=None, repr=False)
    """Which of the keys of UNSAID were given."""

    def __post_init__(self) -> None:
        unsaid = [key for key in UNSAID if getattr(self, key) is None]
        for key in unsaid:
            object.__setattr__(self, key, UNSAID[key])
        if self.written_keys is None:  # else this is a copy, which was given what the first one was
            object.__setattr__(self, "written_keys", frozenset(UNSAID) - frozenset(unsaid))

    @property
    def filters(self) -> str | tuple[str, ...] | Mapping[str, object] | None:
        """The filters to aggregate; None for every filter of the members."""
        is_default = "filter_list" not in (self.written_keys or ()) and self.filter_list == UNSAID["filter_list"]
        return None if is_default else self.filter_list

    @property
    def by_size(self) -> bool | None:
        """Whether members count by size; None where the kind of aggregation decides."""
        return (
            None if self.weight_by_size and "weight_by_size" not in (self.written_keys or ()) else self.weight_by_size
        )

    @property
    def metric_name(self) -> str:
        return self.metric if isinstance(self.metric, str) else self.metric.name

    @property
    def row_metric(self) -> str:
        """The metric of the rows that the entry makes."""
        return self.name or self.metric_name


@dataclass(frozen=True, slots=True)
class GroupRules:
    """How the numbers of a group are computed where its file says nothing. No keys of the file: who loads it sets them."""

    missing: Literal["error", "skip"] = "error"
    """What a member without the metric does to an entry that does not say it."""
    row_names: Literal["checked", "any"] = "checked"
    equal_rows: Literal["error", "last"] = "error"
    """What becomes of two numbers with one name."""
    means: Literal["exact", "pooled"] = "exact"
    """How means have their standard error and weights: from the documents, or pooled from the tasks' as lm-eval does."""


@with_keys
@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Tasks and groups under one name, with aggregated metrics if `aggregate_metric_list` is given.

    Entries of the list may be mappings with the keys of a file; one alone needs no list around it.
    """

    group: str = option("The name.")
    _: KW_ONLY
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
    rules: GroupRules = GroupRules()

    def __post_init__(self) -> None:
        place = Place(f"group {self.group!r:.60}")
        if not isinstance(self.group, str | int | float) or self.group == "":  # lm-eval's files may have a number
            raise ConfigError.at(place, "the name of a group must be text", "write GroupConfig('name')")
        if self.metadata is not None and not isinstance(self.metadata, Mapping):
            what = f"metadata must be a mapping, got {self.metadata!r:.60}"
            raise ConfigError.at(place, what, "write {'version': 1.0}")
        if isinstance(self.task, str | Mapping):
            object.__setattr__(self, "task", (self.task,))
        if self.aggregate_metric_list is not None:
            object.__setattr__(self, "aggregate_metric_list", _entries(self.aggregate_metric_list, self.group))


def _entries(written: YAMLValue, group: str) -> Sequence[AggMetricConfig]:
    """The entries of a list, or of one alone; mappings are read as those of a file are."""
    listed: Sequence[Any] = written if isinstance(written, list | tuple) else [written]
    problems: list[Problem] = []
    entries = [
        _entry(each, Place(f"group {group!r}, aggregate_metric_list[{n}]"), problems) for n, each in enumerate(listed)
    ]
    if problems:
        raise ConfigError(problems)
    return tuple(each for each in entries if each is not None)


def _entry(written: YAMLValue, place: Place, problems: list[Problem]) -> AggMetricConfig | None:
    if isinstance(written, AggMetricConfig):
        return written
    if not isinstance(written, Mapping):
        problems.append(Problem(place, f"an entry must be a mapping, got {written!r:.60}", "write {'metric': 'acc'}"))
        return None
    return decode(AggMetricConfig, Fields.of(written, Origin(str(place))), problems)
