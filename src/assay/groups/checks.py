"""Checks of a group before anything is asked: its aggregators, and whether members have what these aggregate."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

from assay.checks import Check, Level, list_problems, refuse
from assay.config.group import AggMetricConfig, GroupConfig
from assay.errors import ConfigError, Place, Problem, collect, did_you_mean, nearest, some
from assay.extension_points import ExtensionPoint
from assay.groups.aggregators import Aggregator, AggregatorFactory, PassAtKAggregator, row_problems
from assay.groups.group import Group, StandardGroup, TaskT, aggregator_problem
from assay.groups.rows import REMEDY, MemberSelection, filters_asked, member_names
from assay.groups.rows import check as check_filter
from assay.records import Function, UserValue
from assay.score_keys import ScoreKey
from assay.signatures import parameter_problems

Resolve = Callable[[Function], Any]
"""Returns the object that a `!function` names, or a stand-in for it."""


class MemberAnswers(NamedTuple):
    """The rows that a task will have, and how many answers to a problem each filter leaves of its repeats.

    `rows` is None where only user code knows, and `answers` lacks the filters of which that holds.
    """

    rows: frozenset[ScoreKey] | None
    answers: Mapping[str, int]
    repeats: int = 1


_IN_FILE = "set it on the group, `self.{name} = …` after `super().__init__(…)`, or write it in the file"
GROUP_POINT = ExtensionPoint(
    Group,
    {
        "compute_metrics": ("task_results",), "own_metrics": ("task_results",), "get_all_tasks": (), "get_subtasks": None,
        "get_direct_children": (), "get_all_groups": (), "traverse": ("visitor",), "depth": (), "is_leaf": (),
        "add_child": ("child",),
    },
    ("aggregator", "_aggregator"),
    {
        **{name: _IN_FILE.format(name=name) for name in ("metadata", "alias", "name", "config")},
        "aggregate": "override compute_metrics, or write it in an Aggregator and set `self.aggregator`",
    },
    may_yield=("get_all_tasks", "get_direct_children"),
)  # fmt: skip
"""What users' classes of groups may define."""
AGGREGATOR_POINT = ExtensionPoint(
    Aggregator,
    {"aggregate": ("group", "task_results"), "estimates": None, "check": None, "of_entry": None},
    ("compute", "combine", "derived", "by_size", "strict", "config", "agg_metric_configs"),
    {"compute_metrics": "override aggregate"},
)
"""What users' classes of aggregators may define."""
Known = Mapping[str, MemberAnswers]
"""By name the tasks of which something is known before the run."""


@dataclass(frozen=True)
class CheckedGroup:
    """A group as far as it is known before a run: its functions, or their stand-ins, and the rows of its tasks."""

    group: Group[Any]
    resolve: Resolve
    known: Known

    @cached_property
    def config(self) -> GroupConfig:
        """Its configuration with the functions that it names; one that cannot be loaded stays a name."""
        config = self.group.config
        entries = [
            replace(entry, aggregation=self._loaded(entry.aggregation)) for entry in config.aggregate_metric_list or ()
        ]
        return replace(
            config, aggregate_metric_list=tuple(entries) or None, group_scorer=self._loaded(config.group_scorer)
        )

    def _loaded(self, written: UserValue) -> Any:
        try:
            return self.resolve(written) if isinstance(written, Function) else written
        except ConfigError:  # `unloadable_functions` reports it
            return written

    @property
    def own_aggregator(self) -> Aggregator | None:
        """The aggregator that user code set, if it did."""
        return self.group.aggregator if self.group.has_own_aggregator else None

    @property
    def makes_entries(self) -> bool:
        """Whether its rows can be known: not of a class that is not loaded, or of something that is no aggregator."""
        own = self.own_aggregator
        return not isinstance(self.group.config.type, Function) and (own is None or isinstance(own, Aggregator))

    def place(self, *path: str | int) -> Place:
        return place_in(self.group, *path)


Fault = tuple[str, str, str]
"""The key of an entry, its problem, and the fix."""
SKIP = "add `missing: skip` to leave such members out of this number"


def place_in(group: Group[TaskT], *path: str | int) -> Place:
    """Return the place of a key in the file of a group."""
    if str(path[0]) in group.fields:
        return group.fields.place(*path)
    return Place(f"group {group.name!r}, {path[0]}")


def unloadable_functions(about: CheckedGroup) -> Iterator[Problem]:
    """Find functions that a module does not have; a stand-in is made of those alone that it has."""
    config, problems = about.group.config, list[Problem]()
    entries = config.aggregate_metric_list or ()
    written = [
        config.type,
        config.group_scorer,
        *(entry.metric for entry in entries),
        *(entry.aggregation for entry in entries),
    ]
    for function in written:
        if isinstance(function, Function):
            collect(problems, about.resolve, function)
    yield from problems


def wrong_filter(about: CheckedGroup) -> Iterator[Problem]:
    wrong = check_filter(about.group.config.group_filter)
    if wrong is not None:
        yield Problem(about.place("group_filter"), wrong, REMEDY)


def misfit_scorer(about: CheckedGroup) -> Iterator[Problem]:
    scorer: Any = about.config.group_scorer
    if scorer is not None and not isinstance(scorer, Function):
        called = f"group_scorer {getattr(scorer, '__name__', 'function')!r}"
        yield from parameter_problems(scorer, {}, called, about.place("group_scorer"), 2)


def wrong_aggregators(about: CheckedGroup) -> Iterator[Problem]:
    problems: list[Problem] = []
    AggregatorFactory.of_entries(about.config, partial(about.place, "aggregate_metric_list"), problems)
    yield from problems
    wrong = aggregator_problem(about.group.name, about.own_aggregator) if about.own_aggregator is not None else None
    if wrong is not None:  # a user's class need not go through the setter
        yield wrong


def equal_rows(about: CheckedGroup) -> Iterator[Problem]:
    if about.makes_entries and about.own_aggregator is None:
        yield from row_problems(about.config, partial(about.place, "aggregate_metric_list"))


def unasked_members(about: CheckedGroup) -> Iterator[Problem]:
    """Find what users' classes define, or was set on the group or its aggregator, and nothing asks for or can call."""
    at, own = about.place("type"), about.own_aggregator
    checked: list[tuple[object, ExtensionPoint, Place]] = [(about.group, GROUP_POINT, at)]
    if isinstance(own, Aggregator):
        checked.append((own, AGGREGATOR_POINT, at))
    elif own is None:
        of_entries = AggregatorFactory.of_entries(about.config, partial(about.place, "aggregate_metric_list"), [])
        for number, aggregator in enumerate(of_entries):
            if aggregator is not None:
                checked.append(
                    (aggregator, AGGREGATOR_POINT, about.place("aggregate_metric_list", number, "aggregation"))
                )
    for owner, point, place in checked:
        for what, fix in point.problems(owner):
            yield Problem(place, f"class {type(owner).__name__!r}: {what}", fix)


def unknown_members(about: CheckedGroup) -> Iterator[Problem]:
    """Find names in `only` and `exclude` of its filter that no member has; a glob may match none."""
    group = about.group
    if check_filter(group.config.group_filter) is not None or isinstance(group.config.type, Function):
        return
    members = list(dict.fromkeys([*group.child_names, *(task.name for task in group.get_all_tasks())]))
    for name in MemberSelection.of(group.config).unknown(members):
        yield Problem(
            about.place("group_filter"), f"group_filter: no member named {name!r}", did_you_mean(name, members)
        )


def missing_members(about: CheckedGroup) -> Iterator[Problem]:
    """Find aggregates of what members do not have."""
    group, own = about.group, about.own_aggregator
    if not about.makes_entries or group.config.rules.missing != "error":
        return
    of_entries = AggregatorFactory.of_entries(about.config, partial(about.place, "aggregate_metric_list"), [])
    for number, entry in enumerate(group.aggregated_entries):
        every = member_names(group, entry)
        is_filtered = check_filter(group.config.group_filter) is None
        names = MemberSelection.of(group.config).names(every) if is_filtered else every
        if every and not names:
            what = f"{dict.fromkeys(['group_filter'], group.config.group_filter)} leaves no member"
            yield Problem(about.place("group_filter"), what, f"there are: {', '.join(every[:8])}")
            return
        aggregator = of_entries[number] if own is None else own.of_entry(number)
        wrong = aggregator.check(names) if aggregator is not None else None
        fault = ("kwargs", *wrong) if wrong else _fault(group, entry, aggregator, names, about.known)
        if fault is not None:
            key, what, fix = fault
            yield Problem(about.place("aggregate_metric_list", number, key), what, fix)


GROUP_CHECKS: tuple[Check[CheckedGroup], ...] = (
    Check(Level.STATIC, wrong_filter),
    Check(Level.LOADED, unloadable_functions),
    Check(Level.LOADED, misfit_scorer),
    Check(Level.LOADED, wrong_aggregators),
    Check(Level.LOADED, equal_rows),
    Check(Level.BOUND, unasked_members),
    Check(Level.BOUND, unknown_members),
    Check(Level.BOUND, missing_members),
)


def group_problems(group: Group[TaskT], resolve: Resolve, known: Known) -> list[Problem]:
    """Everything wrong with a group that needs no data; `run`, before the first request, and `validate` report the same."""
    about = CheckedGroup(group, resolve, known)
    return [problem for level in Level for problem in list_problems(GROUP_CHECKS, about, level)]


def ready_group(group: Group[TaskT], resolve: Resolve) -> None:
    """Give a group the functions that its file names; an aggregator that was set is kept."""
    about = CheckedGroup(group, resolve, {})
    refuse(GROUP_CHECKS, about, Level.LOADED)
    if about.config != group.config:
        group.config = about.config


def resolved_kind(written: Function, resolve: Resolve) -> type[StandardGroup[Any]]:
    """The kind of group that a `!function` names."""
    kind = resolve(written)
    if not (isinstance(kind, type) and issubclass(kind, Group)):
        what = f"{written.name} is not a kind of group: it must be a subclass of assay.StandardGroup"
        raise ConfigError.at(written.place, what, f"write `class {written.name}(StandardGroup):`")
    return kind  # type: ignore[return-value]


def _fault(
    group: Group[TaskT], entry: AggMetricConfig, aggregator: Aggregator | None, names: Sequence[str], known: Known
) -> Fault | None:
    if not isinstance(entry.aggregation, str):
        return None
    rows = {name: keys for name in names if (keys := _rows(group, name, known)) is not None}
    if not rows:
        return None
    metrics = {entry.metric_name}
    if isinstance(aggregator, PassAtKAggregator):
        metrics.add(aggregator.of)
    if aggregator is None and not _is_metric_or_slip(entry.metric_name, rows):
        return None  # perhaps a name of the aggregator's own, such as that of pass@k
    fault = _metric_fault(entry, metrics, rows, len(rows) == len(names)) or _filter_fault(entry, metrics, rows, names)
    if fault is None and isinstance(aggregator, PassAtKAggregator):
        return _few_answers(entry, aggregator, rows, known)
    return fault


def _rows(group: Group[TaskT], name: str, known: Known) -> frozenset[ScoreKey] | None:
    """The rows of a member: those of a task, or of the aggregate_metric_list of a group; None where user code decides."""
    child = next((each for each in group.children if each.name == name and isinstance(each, Group)), None)
    if child is None:
        return known[name].rows if name in known else None
    entries = child.config.aggregate_metric_list or ()
    own_code = child.computes_own_numbers or child.config.group_scorer is not None
    own_code = own_code or isinstance(child.config.type, Function)
    if own_code or any(not isinstance(entry.aggregation, str) for entry in entries):
        return None
    return frozenset(ScoreKey(entry.row_metric, "*") for entry in entries)


def _is_metric_or_slip(metric: str, rows: Mapping[str, frozenset[ScoreKey]]) -> bool:
    there = {key.metric for keys in rows.values() for key in keys}
    return metric in there or bool(nearest(metric, there, count=1))


def _metric_fault(
    entry: AggMetricConfig, metrics: set[str], rows: Mapping[str, frozenset[ScoreKey]], whole: bool
) -> Fault | None:
    there = sorted({key.metric for keys in rows.values() for key in keys})
    if not metrics & set(there):
        metric = sorted(metrics)[0] if entry.aggregation == "pass@k" else entry.metric_name
        what = f"no task of the group has the metric {metric!r}"
        fix = did_you_mean(metric, there)
        return (
            ("metric", what, fix if fix.startswith("use") else f"{fix} (there are: {', '.join(there)})")
            if whole
            else None
        )
    without = [name for name, keys in rows.items() if not any(key.metric in metrics for key in keys)]
    if without and entry.missing != "skip":
        return "metric", f"{some(without)}: no metric {entry.metric_name!r}", SKIP
    return None


def _filter_fault(
    entry: AggMetricConfig, metrics: set[str], rows: Mapping[str, frozenset[ScoreKey]], names: Sequence[str]
) -> Fault | None:
    """Return the problem of a filter that an entry names and members lack."""
    filters = {name: {key.filter for key in keys if key.metric in metrics} for name, keys in rows.items()}
    if isinstance(entry.filters, Mapping):
        unknown = [str(name) for name in entry.filters if name != "*" and name not in names]
        if unknown:
            return "filter_list", f"no member named {unknown[0]!r}", did_you_mean(unknown[0], names)
    if entry.filters is None and entry.missing != "skip":
        return _no_common_filter(entry, {name: sorted(keys) for name, keys in filters.items() if keys})
    for name, keys in filters.items():
        asked = filters_asked(entry, name)
        absent = next((each for each in asked if keys and "*" not in keys and each not in keys), None)
        if absent is not None and (entry.missing != "skip" or not any(absent in each for each in filters.values())):
            known_elsewhere = any(absent in each for each in filters.values())
            who = f"{name}: no" if known_elsewhere else "no task of the group has"
            fix = did_you_mean(absent, keys) + (f" or {SKIP}" if known_elsewhere else "")
            return "filter_list", f"{who} {entry.metric_name!r} of filter {absent!r}", fix
    return None


def _no_common_filter(entry: AggMetricConfig, filters: Mapping[str, Sequence[str]]) -> Fault | None:
    """Return the problem of members that have no filter in common: then no row has a number of every member."""
    different = list(dict.fromkeys(each for keys in filters.values() for each in keys))
    if (
        "*" in different
        or len(filters) < 2
        or any(all(each in keys for keys in filters.values()) for each in different)
    ):
        return None
    has = some([f"{name} has {', '.join(keys)}" for name, keys in filters.items()])
    first, second = [f"{name}: {keys[0]}" for name, keys in filters.items()][:2]
    what = f"no filter of {entry.metric_name!r} is in all members: {has}"
    return "metric", what, f"add `filter_list: {{{first}, {second}}}`, or {SKIP}"


def _few_answers(
    entry: AggMetricConfig, aggregator: PassAtKAggregator, rows: Mapping[str, frozenset[ScoreKey]], known: Known
) -> Fault | None:
    """Return the problem of a member whose filter leaves fewer answers to a problem than are drawn from them."""
    k = aggregator.k
    for name, keys in rows.items():
        asked = filters_asked(entry, name)
        reported = {key.filter for key in keys if key.metric == entry.metric_name}
        for key in sorted(keys):
            left = known[name].answers.get(key.filter, k) if name in known else k
            if (
                key.metric != aggregator.of
                or key.filter in reported
                or left >= k
                or (asked and key.filter not in asked)
            ):
                continue
            what = (
                f"{name}: filter {key.filter!r} leaves {left} of {known[name].repeats} answers, and pass@{k} needs {k}"
            )
            enough = sorted(each for each, count in known[name].answers.items() if count >= k)
            if enough:
                return "aggregation", what, f"add `filter_list: {enough[0]}` to this entry"
            all_answers = f"[{{name: all, filter: [{{function: take_first_k, k: {k}}}]}}]"
            repeats = f"`repeats: {k}` and " if known[name].repeats < k else ""
            return "aggregation", what, f"add {repeats}`filter_list: {all_answers}` to the task"
    return None
