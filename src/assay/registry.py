"""Names in YAML to things in Python: one table per kind, with an error that names the typo."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from assay.errors import ConfigError, Place, Problem, did_you_mean

T = TypeVar("T")


class Table(Mapping[str, T]):
    """What a kind of name can mean. Built-ins are given; plug-ins call `add`."""

    def __init__(self, kind: str, members: Mapping[str, T]) -> None:
        self.kind = kind
        self._members = dict(members)

    def __getitem__(self, name: str) -> T:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def add(self, name: str, member: T) -> T:
        """`member`, now known by `name`; a name that is taken by something else is refused."""
        if self._members.get(name, member) is not member:
            problem = Problem(Place(f"{self.kind} {name!r}"), "this name is taken", "choose another name")
            raise ConfigError([problem])
        self._members[name] = member
        return member

    def find(self, name: str, place: Place) -> T:
        """The member called `name`, or an error at `place` with the nearest names."""
        if name not in self._members:
            raise ConfigError([Problem(place, f"no {self.kind} is called {name!r}", did_you_mean(name, self))])
        return self._members[name]
