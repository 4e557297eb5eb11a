"""Group filters: which members count for a group's numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from assay.config.group import GroupConfig
from assay.groups.spread import MemberEstimate

KNOWN = ("only", "exclude", "top_k")


@dataclass(frozen=True, slots=True)
class MemberSelection:
    """Members by name (globs), and of those the best ones of each row."""

    only: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    top_k: int | None = None

    @classmethod
    def of(cls, config: GroupConfig) -> "MemberSelection":
        """What `group_filter` says: a mapping, or a list of `{function: top_k, k: 5}`."""
        written = config.group_filter
        if not written:
            return cls()
        said: dict[str, object] = {}
        for each in [written] if isinstance(written, Mapping) else written:
            said |= _one(each)
        only, exclude, best = said.get("only"), said.get("exclude"), said.get("top_k")
        return cls(
            _names(only) if only is not None else None, _names(exclude or ()), None if best is None else int(str(best))
        )

    def names(self, names: Sequence[str]) -> list[str]:
        kept = [name for name in names if self.only is None or _is_one_of(name, self.only)]
        return [name for name in kept if not _is_one_of(name, self.exclude)]

    def best(self, members: Sequence[MemberEstimate], *, higher_is_better: bool) -> Sequence[MemberEstimate]:
        """The k best members, in their order; of equal ones the first."""
        if self.top_k is None or len(members) <= self.top_k:
            return members
        ranked = sorted(members, key=lambda member: -member.estimate if higher_is_better else member.estimate)
        chosen = {member.name for member in ranked[: self.top_k]}
        return [member for member in members if member.name in chosen]


def _one(written: object) -> dict[str, object]:
    """One filter, in either form."""
    if not isinstance(written, Mapping):
        raise ValueError(f"a group filter is a mapping, not {written!r:.60}")
    if "function" not in written:
        wrong = [key for key in written if key not in KNOWN]
        if wrong:
            raise ValueError(f"no group filter is called {wrong[0]!r}; use one of: {', '.join(KNOWN)}")
        return dict(written)
    name = written["function"]
    if name not in KNOWN:
        raise ValueError(f"no group filter is called {name!r}; use one of: {', '.join(KNOWN)}")
    value = written.get("k") if name == "top_k" else written.get("tasks", written.get("names"))
    if value is None:
        raise ValueError(f"{name} needs {'`k`' if name == 'top_k' else '`tasks`'}")
    return {str(name): value}


def check(written: object) -> str | None:
    """What is wrong with a group filter, if anything."""
    try:
        found = MemberSelection.of(GroupConfig(group="?", group_filter=written))  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        return str(error)
    return "top_k takes a number from 1 on" if found.top_k is not None and found.top_k < 1 else None


def _names(written: object) -> tuple[str, ...]:
    return (written,) if isinstance(written, str) else tuple(map(str, written))  # type: ignore[call-overload]


def _is_one_of(name: str, patterns: Sequence[str]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
