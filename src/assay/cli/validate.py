"""`assay validate`: every problem of every file, before anything runs."""

import argparse
from typing import Any

from assay.cli.options import add_catalog_options, task_manager
from assay.cli.output import counted, say, say_json
from assay.compat.evaluate_names import find_metric
from assay.compat.modules import HelperCode, seen_dotted
from assay.errors import Place
from assay.plugins import plugin_problems
from assay.tasks.validate import validate


def define(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to check; everything when absent")
    parser.add_argument("--tasks", action="append", metavar="NAMES", help="the same, as lm-eval spells it")
    parser.add_argument("--json", action="store_true", help="an array of file, line, column, what, fix, serious")
    add_catalog_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    manager = task_manager(options)
    helper = HelperCode()

    def see(name: str, folder: str | None, place: Place) -> Any:
        return seen_dotted(name, folder, helper, place)

    names = [*options.names, *(options.tasks or [])] or None
    problems = validate(manager, names, find_metric, see)
    if names is None:
        problems = sorted([*problems, *plugin_problems()])
    serious = sum(problem.serious for problem in problems)
    if options.json:
        say_json(
            [
                {"file": p.place.file, "line": p.place.line, "column": p.place.column}
                | {"what": p.what, "fix": p.fix, "serious": p.serious}
                for p in problems
            ]
        )
    else:
        for problem in problems:
            say(str(problem) if problem.serious else f"{problem} (note)")
        say(f"{counted(serious, 'problem')}, {counted(len(problems) - serious, 'note')}")
    return 1 if serious else 0
