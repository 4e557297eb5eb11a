"""Functions of packages above, found by name when they are called.

Imports go one way, and so does the flow of a run: it hands every object what it needs. Objects that users make by hand and use
alone, as a scorer or the configuration of a metric, have no run; they get it from here, and from nowhere else. Objects that
users read, as a run or a comparison, get their tables and plots from here.
"""

from importlib import import_module
from typing import Any

ABOVE = {
    "metric_function": "assay.tasks.scoring",
    "bind_by_itself": "assay.tasks.scoring",
    "bind_chosen": "assay.tasks.scoring",
    "HelperCode": "assay.compat.modules",
    "node_workers": "assay.fleet.work",
    "Fleet": "assay.fleet.replicas",
    "check_backend": "assay.fleet.replicas",
    "compare": "assay.comparison.compare",
    "corrected_rows": "assay.comparison.labelling",
    "plot": "assay.report.pictures",
    "plot_comparison": "assay.report.pictures",
    "table_of_run": "assay.report.table",
    "table_of_comparison": "assay.report.comparison_text",
    "write_report": "assay.report.write",
    "load_served": "assay.fleet.servers",
    "shown_progress": "assay.cli.notebook",
}


def late(name: str) -> Any:
    """The function or class of ABOVE with this name."""
    return getattr(import_module(ABOVE[name]), name)
