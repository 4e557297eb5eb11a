"""`assay report`: one file with the results of runs, and their comparison."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from assay.cli.output import echo, echo_err
from assay.report.write import format_of_file, report_text, write_report
from assay.runs.extensions import ReportOptions
from assay.runs.folder import RunError

T = TypeVar("T")


def run_report(options: argparse.Namespace) -> int:
    path = options.output_path
    name = options.format or (format_of_file(Path(path)) if path is not None else "html")
    report_options = ReportOptions(
        tasks=options.tasks,
        samples=options.samples,
        columns=options.slice,
        allow_different_prompts=options.allow_different_prompts,
    )
    if path == "-" or (path is None and name != "html"):
        text, is_whole = of_readable_runs(options.runs, lambda runs: report_text(runs, name, report_options))
        sys.stdout.write(text)
    else:
        target = path or "report.html"
        written, is_whole = of_readable_runs(
            options.runs, lambda runs: write_report(runs, target, format=name, options=report_options)
        )
        echo(f"{written}: {written.stat().st_size:,} bytes")
    return 0 if is_whole else 1


def of_readable_runs(runs: Sequence[str], make: Callable[[Sequence[str]], T], needed: int = 0) -> tuple[T, bool]:
    """Return the result of `make` for the runs that can be read, and whether all can; the problems of the others are printed.

    An error of all, or of one of the first `needed`, is raised.
    """
    left = list(runs)
    while True:
        try:
            return make(left), len(left) == len(runs)
        except RunError as error:
            damaged = {_run_of(problem.place.file, left) for problem in error.problems}
            if None in damaged or len(left) - len(damaged) <= needed or not damaged.isdisjoint(left[:needed]):
                raise
            for problem in error.problems:
                echo_err(f"left out: {problem}")
            left = [run for run in left if run not in damaged]


def _run_of(file: str, runs: Sequence[str]) -> str | None:
    """The run whose folder a file is in; a scoring is in the folder of its run, too."""
    around = [run for run in runs if Path(file).is_relative_to(run)]
    return max(around, key=len, default=None)
