"""The rows of a group: which numbers of which members make one, and which members count (`group_filter`)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from assay.config.group import AggMetricConfig, GroupConfig
from assay.groups.group import Group, TaskT
from assay.groups.task_results import NONE, MemberRows, Members
from assay.records import Params, UserValue
from assay.score_keys import ScoreKey
from assay.statistics.evidence import Estimate, Evidence
from assay.statistics.spread import MemberEstimate, smooth

DEFAULT = "default"


def documents_of(group: Group[TaskT], members: Members) -> int:
    """The number of documents of the tasks below a group."""
    return sum(member.documents for member in members.of(task.name for task in group.get_all_tasks()).values())


class GroupRow(NamedTuple):
    """A row to be computed: the filter it is called by, the members that have a number for it, and those that have not."""

    filter: str
    members: Sequence[MemberEstimate]
    missing: Sequence[str]


def rows(entry: AggMetricConfig, names: Sequence[str], known: Mapping[str, MemberRows]) -> Iterator[GroupRow]:
    """The rows of one entry of a group's aggregate_metric_list, of members with these names."""
    metric = entry.metric_name
    if isinstance(entry.filters, Mapping):
        asked = {name: filters_asked(entry, name) for name in names}
        row = _row("", names, known, lambda name: [ScoreKey(metric, each) for each in asked[name]])
        used = dict.fromkeys(each for member in row.members for each in asked[member.name])
        yield row._replace(filter="+".join(used) or NONE)
        return
    filters = _filters(entry, known)
    if entry.combine and len(filters) > 1:
        yield _row("+".join(filters), names, known, lambda _: [ScoreKey(metric, each) for each in filters])
        return
    for each in filters:
        key = ScoreKey(metric, each)
        yield _row(each, names, known, lambda _, key=key: [key])  # type: ignore[misc]  # mypy cannot infer the default


def member_names(group: Group[TaskT], entry: AggMetricConfig) -> list[str]:
    """The members whose numbers count: the tasks below, or the direct members of the group."""
    members = group.get_direct_children() if entry.levels == "children" else group.get_all_tasks()
    return [member.name for member in members]


def filters_asked(entry: AggMetricConfig, name: str = "") -> list[str]:
    """The filters that an entry names, by task for the member of this name; none where it takes all."""
    if isinstance(entry.filters, Mapping):
        by_task = {str(task): filter_name for task, filter_name in entry.filters.items()}
        written: Sequence[object] = [by_task.get(name, by_task.get("*", NONE))]
    else:
        written = [entry.filters] if isinstance(entry.filters, str) else entry.filters or ()
    # `default` is another word for the filter that every task has
    return list(dict.fromkeys(NONE if filter_name == DEFAULT else str(filter_name) for filter_name in written))


def _filters(entry: AggMetricConfig, known: Mapping[str, MemberRows]) -> list[str]:
    """The filters that an entry names, or all that members have; `default` where no member has `none`, as others' results."""
    there = {key.filter for member in known.values() for key in member.rows if key.metric == entry.metric_name}
    if entry.filters is None:
        return sorted(there)
    plain = DEFAULT if DEFAULT in there and NONE not in there else NONE
    return [plain if name == NONE else name for name in filters_asked(entry)]


def _row(
    label: str, names: Sequence[str], known: Mapping[str, MemberRows], keys: Callable[[str], Sequence[ScoreKey]]
) -> GroupRow:
    members, missing = [], []
    for name in names:
        member = _member(name, known[name], keys(name)) if name in known else None
        if member is None:
            missing.append(name)
        else:
            members.append(member)
    return GroupRow(label, members, missing)


def _member(name: str, own: MemberRows, keys: Sequence[ScoreKey]) -> MemberEstimate | None:
    """A member's number; of several filters their mean, its documents counted once."""
    estimates = [own.rows[key] for key in keys if key in own.rows]
    if not estimates:
        return None
    if len(estimates) == 1:
        return MemberEstimate(name, estimates[0], estimates[0].n or own.documents)  # a user's number has no n
    parts = [MemberEstimate(name, each, each.n) for each in estimates]
    joined = smooth(sum(map(float, estimates)) / len(estimates), parts, [1 / len(estimates)] * len(estimates))
    size = max(each.n for each in estimates)
    draws = max(each.draws for each in estimates)
    evidence = Evidence(joined.evidence.parts, draws)
    return MemberEstimate(name, Estimate(joined.value, joined.stderr, size, joined.reason, evidence=evidence), size)


KNOWN = ("only", "exclude", "top_k")


@dataclass(frozen=True, slots=True)
class MemberSelection:
    """Members by name (globs), and of those the best ones of each row."""

    only: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    top_k: int | None = None

    @classmethod
    def of(cls, config: GroupConfig) -> "MemberSelection":
        """Read `group_filter`: a mapping, or a list of `{function: top_k, k: 5}`."""
        written = config.group_filter
        if not written:
            return cls()
        said: dict[str, object] = {}
        for each in [written] if isinstance(written, Mapping) else written:
            said |= _one(each)
        only, exclude, best = said.get("only"), said.get("exclude"), said.get("top_k")
        if best is not None and (isinstance(best, bool) or not isinstance(best, int)):
            raise ValueError(f"top_k must be a whole number, got {best!r:.60}")
        return cls(_names(only) if only is not None else None, _names(exclude or ()), best)

    def names(self, names: Sequence[str]) -> list[str]:
        if self.only is not None:
            names = [name for name in names if _is_one_of(name, self.only)]
        return [name for name in names if not _is_one_of(name, self.exclude)] if self.exclude else list(names)

    def unknown(self, names: Sequence[str]) -> list[str]:
        """What it names, and none of these members has; a glob may match none."""
        written = [*(self.only or ()), *self.exclude]
        return [each for each in written if not any(letter in each for letter in "*?[") and not _any_is(names, each)]

    def best(self, members: Sequence[MemberEstimate], *, higher_is_better: bool) -> Sequence[MemberEstimate]:
        """The k best members, in their order; of equal ones the first."""
        if self.top_k is None or len(members) <= self.top_k:
            return members
        ranked = sorted(
            members, key=lambda member: -float(member.estimate) if higher_is_better else float(member.estimate)
        )
        chosen = {member.name for member in ranked[: self.top_k]}
        return [member for member in members if member.name in chosen]


def _any_is(names: Sequence[str], written: str) -> bool:
    return any(_is_one_of(name, [written]) for name in names)


def _one(written: UserValue) -> Params:
    """One filter, in either form."""
    if not isinstance(written, Mapping):
        raise ValueError(f"a group filter must be a mapping, got {written!r:.60}")
    if "function" not in written:
        wrong = [key for key in written if key not in KNOWN]
        if wrong:
            raise ValueError(f"no group filter named {wrong[0]!r}; use one of: {', '.join(KNOWN)}")
        return dict(written)
    name = written["function"]
    if name not in KNOWN:
        raise ValueError(f"no group filter named {name!r}; use one of: {', '.join(KNOWN)}")
    value = written.get("k") if name == "top_k" else written.get("tasks", written.get("names"))
    if value is None:
        raise ValueError(f"{name} needs {'`k`' if name == 'top_k' else '`tasks`'}")
    return {str(name): value}


def check(written: UserValue) -> str | None:
    """The problem with a group filter, if there is one."""
    try:
        selection = MemberSelection.of(GroupConfig(group="?", group_filter=written))  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        return str(error)
    return "top_k must be at least 1" if selection.top_k is not None and selection.top_k < 1 else None


REMEDY = 'write `group_filter: {exclude: ["*_old"], top_k: 5}`'


def _names(written: UserValue) -> tuple[str, ...]:
    return (written,) if isinstance(written, str) else tuple(map(str, written))  # type: ignore[call-overload]


def _is_one_of(name: str, patterns: Sequence[str]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
