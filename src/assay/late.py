"""Functions of packages above, found by name when they are called.

Imports go one way, and so does the flow of a run: it hands every object what it needs. Objects that users make by hand and use
alone, as a scorer or the configuration of a metric, have no run; they get it from here, and from nowhere else.
"""

from importlib import import_module
from typing import Any

ABOVE = {
    "metric_function": "assay.tasks.scoring",
    "bind_by_itself": "assay.tasks.scoring",
    "bind_chosen": "assay.tasks.scoring",
}


def late(name: str) -> Any:
    """The function or class of ABOVE with this name."""
    return getattr(import_module(ABOVE[name]), name)
