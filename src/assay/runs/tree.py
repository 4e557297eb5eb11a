"""The order of tasks and groups in results: the tree of groups, as every table shows it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Results = Mapping[str, Any]


def names_with_depth(results: Results) -> Iterator[tuple[str, int]]:
    """Every line of the tree with its depth, in the order of `result_paths`."""
    return ((path[-1], len(path) - 1) for path in result_paths(results))


def result_paths(results: Results) -> Iterator[tuple[str, ...]]:
    """The path to every line: groups that are in no other first, by name, each with its members below it; then the rest."""
    members: Mapping[str, Sequence[str]] = results.get("group_subtasks") or {}
    inside = {name for names in members.values() for name in names}

    def below(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        for member in sorted(members.get(path[-1], ())):
            if member not in path:
                yield from below((*path, member))

    for name in sorted(name for name in members if name not in inside):
        yield from below((name,))
    yield from ((name,) for name in sorted(results["results"]) if name not in members and name not in inside)
