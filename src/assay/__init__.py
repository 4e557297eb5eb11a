"""assay: evaluate language models; YAML in, numbers with honest error bars out.

Everything a user needs can be imported from here; a name is loaded at its first use, so `import assay` costs nothing.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOME = {
    "AssayError": "assay.errors",
    "ConfigError": "assay.errors",
    "Problem": "assay.errors",
    "AggMetricConfig": "assay.config.group",
    "GroupConfig": "assay.config.group",
    "TaskConfig": "assay.config.task",
    "FormatConfig": "assay.config.format",
    "RunConfig": "assay.config.run",
    "Group": "assay.groups",
    "StandardGroup": "assay.groups",
    "TagGroup": "assay.groups",
    "GroupManager": "assay.groups",
    "simple_evaluate": "assay.evaluation",
    "evaluate": "assay.evaluation",
    "Task": "assay.tasks",
    "TaskManager": "assay.tasks",
}

__all__ = ["__version__", *sorted(_HOME)]

if TYPE_CHECKING:
    from assay.config.format import FormatConfig as FormatConfig
    from assay.config.group import AggMetricConfig as AggMetricConfig
    from assay.config.group import GroupConfig as GroupConfig
    from assay.config.run import RunConfig as RunConfig
    from assay.config.task import TaskConfig as TaskConfig
    from assay.errors import AssayError as AssayError
    from assay.errors import ConfigError as ConfigError
    from assay.errors import Problem as Problem
    from assay.evaluation import evaluate as evaluate
    from assay.evaluation import simple_evaluate as simple_evaluate
    from assay.groups import Group as Group
    from assay.groups import GroupManager as GroupManager
    from assay.groups import StandardGroup as StandardGroup
    from assay.groups import TagGroup as TagGroup
    from assay.tasks import Task as Task
    from assay.tasks import TaskManager as TaskManager


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
