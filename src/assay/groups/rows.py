"""Which numbers of which members make a row of a group."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from assay.config.group import AggMetricConfig
from assay.groups.group import Group
from assay.groups.selection import Selection
from assay.groups.spread import Member
from assay.records import Estimate

Results = Mapping[str, Mapping[str, float]]
"""By task (and by group, once it has numbers) the value of each `metric,filter`; `samples` is how many documents it has."""

NONE = "none"


class Row(NamedTuple):
    """A row to be computed: the filter it is called by, the members that have a number for it, and those that have not."""

    filter: str
    members: Sequence[Member]
    missing: Sequence[str]


def rows(group: Group[Any], entry: AggMetricConfig, results: Results) -> Iterator[Row]:
    """The rows of one entry of a group's aggregate_metric_list."""
    names = Selection.of(group.config).names(member_names(group, entry))
    metric = entry.metric_name
    if isinstance(entry.filter_list, Mapping):
        by_task = {str(task): filter_name(str(name)) for task, name in entry.filter_list.items()}
        wanted = {name: by_task.get(name, by_task.get("*", NONE)) for name in names}
        made = _row("", names, results, lambda name: [f"{metric},{wanted[name]}"])
        yield made._replace(filter="+".join(dict.fromkeys(wanted[member.name] for member in made.members)) or NONE)
        return
    filters = _filters(entry, names, results)
    if entry.combine and len(filters) > 1:
        yield _row("+".join(filters), names, results, lambda _: [f"{metric},{each}" for each in filters])
        return
    for each in filters:
        key = f"{metric},{each}"
        yield _row(each, names, results, lambda _, key=key: [key])


def member_names(group: Group[Any], entry: AggMetricConfig) -> list[str]:
    """The members whose numbers count: the tasks below, or what stands directly in the group."""
    return group.child_names if entry.levels == "children" else [task.name for task in group.get_all_tasks()]


def filter_name(written: str) -> str:
    """`default` is another word for the filter that every task has."""
    return NONE if written == "default" else written


def _filters(entry: AggMetricConfig, names: Sequence[str], results: Results) -> list[str]:
    if entry.filter_list is not None:
        several = [entry.filter_list] if isinstance(entry.filter_list, str) else entry.filter_list
        return list(dict.fromkeys(filter_name(str(each)) for each in several))
    before = f"{entry.metric_name},"
    found = {key[len(before) :] for name in names for key in results.get(name, ()) if key.startswith(before)}
    return sorted(found)


def _row(label: str, names: Sequence[str], results: Results, keys: Any) -> Row:
    members, missing = [], []
    for name in names:
        member = _member(name, results.get(name, {}), keys(name))
        if member is None:
            missing.append(name)
        else:
            members.append(member)
    return Row(label, members, missing)


def _member(name: str, own: Mapping[str, float], keys: Sequence[str]) -> Member | None:
    """A member's number; of several filters their mean, its documents counted once."""
    found = [_estimate(own[key], own) for key in keys if key in own]
    if not found:
        return None
    if len(found) == 1:
        return Member(name, found[0], found[0].n)
    from assay.groups.spread import smooth

    several = [Member(name, each, each.n) for each in found]
    joined = smooth(sum(found) / len(found), several, [1 / len(found)] * len(found))
    size = max(each.n for each in found)
    draws = max(each.draws for each in found)
    return Member(name, Estimate(joined, joined.stderr, size, joined.reason, parts=joined.parts, draws=draws), size)


def _estimate(value: float, own: Mapping[str, float]) -> Estimate:
    if isinstance(value, Estimate):
        return value
    return Estimate(value, None, int(own.get("samples", 1)), "a plain number has no standard error")
