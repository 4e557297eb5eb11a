"""Options that several commands share."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.tasks import TaskManager


def add_catalog_options(parser: argparse.ArgumentParser) -> None:
    """Where tasks are looked for."""
    parser.add_argument(
        "--include_path", action="append", metavar="DIR", help="a folder with further tasks; may be given again, or a:b"
    )
    parser.add_argument(
        "--no_defaults", action="store_true", help="leave out bundled tasks, lm_eval's and those of plug-ins"
    )
    parser.add_argument("--compat", choices=["lm-eval"], help="read every folder as leniently as lm-eval does")


def task_manager(options: argparse.Namespace) -> "TaskManager":
    """The manager that those options describe."""
    from assay.tasks import TaskManager  # not loaded for commands that never come here

    return TaskManager(
        include_path=options.include_path, include_defaults=not options.no_defaults, compat=options.compat
    )
