"""Kinds of task as a run needs them: `config.kinds` reads their files, this protocol prepares, checks and rescores them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from assay.config.kinds import KINDS, Definition, FileKind, kind_key
from assay.errors import Place, Problem
from assay.scoring.helper_code import Helpers
from assay.tasks.runnable import Runnable
from assay.tasks.settings import Settings
from assay.tasks.task import Task

if TYPE_CHECKING:
    from assay.tasks.rescore import StoredTask

FindDefinition = Callable[[str, Place], Definition]
"""Finds the definition of another task by its name; the place is where the name is written."""
FindDotted = Callable[[str, str | None, Place], object]
"""Finds the object of a dotted name without importing a user's module, or returns None."""


@runtime_checkable
class TaskKind(FileKind, Protocol):
    """A kind of task that can be run. Its plans may ask in steps and end with an Outcome."""

    def prepare(self, task: Task, settings: Settings, helpers: Helpers, find: FindDefinition) -> Runnable:
        """Bind the task to its data and code; everything that can fail before the first request fails here."""
        ...

    def prepare_scoring(self, task: Task, settings: Settings, helpers: Helpers, stored: "StoredTask") -> Runnable:
        """Bind the task to answers that are stored, without its data and models."""
        ...

    def check(self, task: Task, helpers: Helpers, find_dotted: FindDotted) -> list[Problem]:
        """List the problems that show without running user code."""
        ...


def kind_of(task: Task) -> TaskKind | None:
    """Return the kind of a task; None for a plain one."""
    key = kind_key(task.definition.fields) if task.definition is not None else None
    if key is None:
        return None
    kind = KINDS[key]
    if not isinstance(kind, TaskKind):
        raise TypeError(
            f"the kind of task under {key!r} must have prepare, prepare_scoring and check, got {kind!r:.60}"
        )
    return kind
