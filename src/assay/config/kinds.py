"""Kinds of task beside the plain one: how a file of each is known, read and named.

`KINDS` has one entry per kind, under the YAML key that marks its files. Catalog and tasks ask the entry and never import
the package behind it; the entry is imported when the first such file is seen. `assay.tasks.kinds` adds what it takes to run one.
"""

from typing import Protocol

from assay.config.fields import Fields
from assay.config.option import YAMLMapping
from assay.config.task import TaskConfig
from assay.errors import Problem
from assay.registry import Registry


class Definition(Protocol):
    """The content of one file of a kind, read and checked."""

    @property
    def fields(self) -> Fields: ...

    def task_config(self, name: str) -> TaskConfig:
        """The settings that every task has; `name` is for a file without one."""
        ...


class FileKind(Protocol):
    """One kind of task file."""

    @property
    def name(self) -> str:
        """The word for it in lists and messages."""
        ...

    @property
    def config(self) -> type:
        """The dataclass whose fields are the keys of a file."""
        ...

    @property
    def hint_keys(self) -> tuple[str, ...]:
        """Keys by which a file is recognized whose marking key is misspelled."""
        ...

    def read(self, fields: Fields, problems: list[Problem]) -> Definition | None:
        """Return the definition, or None after adding to `problems` everything that is wrong."""
        ...

    def default_name(self, path: str) -> str:
        """Return the name of a file that does not give one."""
        ...


KINDS: Registry[FileKind, FileKind] = Registry("kind of task", {"graph_config": "assay.graphs.kind:GRAPH"})


def kind_key(fields: YAMLMapping) -> str | None:
    """Return the key of KINDS that a file has, or None for a plain task, group, format or template."""
    return next((key for key in KINDS if key in fields), None)
