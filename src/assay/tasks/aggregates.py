"""Aggregates that cannot be computed: found before a run, where the members can tell what they will have."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.config.group import AggMetricConfig
from assay.config.row_names import row_name_problem
from assay.errors import Place, Problem, did_you_mean, some
from assay.groups.group import Group
from assay.groups.rows import NONE, MemberSelection, filter_name, member_names
from assay.records import ScoreKey

Known = Mapping[str, frozenset[ScoreKey] | None]
"""By task the rows it will have; None where only a function of its own knows."""
Fault = tuple[str, str]
"""What is wrong, and the remedy."""
SKIP = "add `missing: skip` to leave such members out of this number"


def lacking(group: Group[Any], known: Known) -> Iterator[Problem]:
    """Aggregates of what members do not have."""
    entries = group.config.aggregate_metric_list or ()
    for number, entry in enumerate(entries):
        place = place_in(group, "aggregate_metric_list", number)
        every = member_names(group, entry)
        names = MemberSelection.of(group.config).names(every)
        if every and not names:
            what = f"{dict.fromkeys(['group_filter'], group.config.group_filter)} leaves no member"
            yield Problem(place_in(group, "group_filter"), what, f"there are: {', '.join(every[:8])}")
            return
        wrong = group.aggregator.of_entry(number).check(names)
        fault = (wrong, "correct it") if wrong else _fault(group, entry, names, known)
        if fault is not None:
            yield Problem(place, *fault)


def doubled(group: Group[Any]) -> Iterator[Problem]:
    """Entries that make the same row, of which one would overwrite the other, or a row that results read otherwise."""
    entries = list(enumerate(group.config.aggregate_metric_list or ()))
    for number, entry in entries:
        place = place_in(group, "aggregate_metric_list", number)
        wrong = row_name_problem(entry.row_name)
        if wrong is not None:
            yield Problem(place, f"a row cannot be named {entry.row_name!r}: {wrong[0]}", wrong[1])
        first = next((n for n, other in entries[:number] if _make_one_row(other, entry)), None)
        if first is not None:
            other_place = place_in(group, "aggregate_metric_list", first)
            what = f"two entries make the row {entry.row_name!r}: the other one is at {other_place}"
            yield Problem(place, what, "give one of them a `name`")


def _make_one_row(one: AggMetricConfig, other: AggMetricConfig) -> bool:
    """Whether two entries make rows of one name, of the same filter or of filters that only a run will tell."""
    if one.row_name != other.row_name or not one.filter_list or not other.filter_list:
        return one.row_name == other.row_name
    if isinstance(one.filter_list, Mapping) or isinstance(other.filter_list, Mapping):
        return one.filter_list == other.filter_list
    several = [[each] if isinstance(each, str) else each for each in (one.filter_list, other.filter_list)]
    return not {filter_name(str(each)) for each in several[0]}.isdisjoint(filter_name(str(each)) for each in several[1])


def place_in(group: Group[Any], *path: str | int) -> Place:
    """Where something stands in the file of a group."""
    if str(path[0]) in group.fields:
        return group.fields.place(*path)
    return Place(f"group {group.name!r}, {path[0]}")


def _fault(group: Group[Any], entry: AggMetricConfig, names: Sequence[str], known: Known) -> Fault | None:
    if callable(entry.aggregation):
        return None
    rows = {name: found for name in names if (found := _rows(group, name, known)) is not None}
    if not rows:
        return None
    metrics = {entry.metric_name}
    if entry.aggregation == "pass@k":
        metrics.add(str((entry.kwargs or {}).get("of", "exact_match")))
    return _metric_fault(entry, metrics, rows, len(rows) == len(names)) or _filter_fault(entry, metrics, rows, names)


def _rows(group: Group[Any], name: str, known: Known) -> frozenset[ScoreKey] | None:
    """The rows of a member: of a task as it says, of a group as its list says."""
    child = next((each for each in group.children if each.name == name and isinstance(each, Group)), None)
    if child is None:
        return known.get(name)
    entries = child.config.aggregate_metric_list or ()
    if child.config.group_scorer is not None or any(callable(entry.aggregation) for entry in entries):
        return None
    return frozenset(ScoreKey(entry.row_name, "*") for entry in entries)


def _metric_fault(
    entry: AggMetricConfig, metrics: set[str], rows: Mapping[str, frozenset[ScoreKey]], whole: bool
) -> Fault | None:
    there = sorted({key.metric for found in rows.values() for key in found})
    if not metrics & set(there):
        wanted = sorted(metrics)[0] if entry.aggregation == "pass@k" else entry.metric_name
        what = f"no task of the group has the metric {wanted!r}"
        return (what, f"{did_you_mean(wanted, there)} (there are: {', '.join(there)})") if whole else None
    without = [name for name, found in rows.items() if not any(key.metric in metrics for key in found)]
    if without and entry.missing != "skip":
        return f"{some(without)}: no metric {entry.metric_name!r}", SKIP
    return None


def _filter_fault(
    entry: AggMetricConfig, metrics: set[str], rows: Mapping[str, frozenset[ScoreKey]], names: Sequence[str]
) -> Fault | None:
    """A filter that is named and that members lack."""
    filters = {name: {key.filter for key in found if key.metric in metrics} for name, found in rows.items()}
    if isinstance(entry.filter_list, Mapping):
        unknown = [str(name) for name in entry.filter_list if name != "*" and name not in names]
        if unknown:
            return f"no member named {unknown[0]!r}", did_you_mean(unknown[0], names)
        by_task = {str(task): filter_name(str(name)) for task, name in entry.filter_list.items()}
        wanted = {name: [by_task.get(name, by_task.get("*", NONE))] for name in filters}
    else:
        several = [entry.filter_list] if isinstance(entry.filter_list, str) else list(entry.filter_list or ())
        wanted = {name: [filter_name(str(each)) for each in several] for name in filters}
    for name, found in filters.items():
        absent = next((each for each in wanted[name] if found and "*" not in found and each not in found), None)
        if absent is not None and (entry.missing != "skip" or not any(absent in each for each in filters.values())):
            anybody = any(absent in each for each in filters.values())
            who = f"{name}: no" if anybody else "no task of the group has"
            return f"{who} {entry.metric_name!r} of a filter {absent!r}", f"{did_you_mean(absent, found)} or {SKIP}"
    return None
