"""What the index knows of one file: enough to list, search and select; the rest is read when it is used."""

from typing import Literal, NamedTuple

Kind = Literal["task", "group", "format", "template", "broken", "graph"]
"""A graph is a task; this kind is for one without a name, which is found by where it lies."""


class Entry(NamedTuple):
    """One file of the catalog; `error` says why it cannot be used.

    A tuple, not a dataclass: fourteen thousand of them are made before a warm `assay ls` can print a line.
    """

    kind: Kind
    name: str
    path: str
    tags: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    output_type: str = ""
    error: str = ""
