"""`assay report`: one file with the results of runs, and their comparison."""

import argparse
import sys
from pathlib import Path

from assay.cli.flags import parse_count
from assay.cli.output import echo
from assay.report.document import ReportOptions
from assay.report.write import FILE_TYPES, format_of_file, report_text, write_report


def define_report(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="folders of runs; each is compared with the first")
    add(
        "--output_path",
        "-o",
        metavar="FILE",
        help="where to write (default: report.html, other formats to the terminal)",
    )
    add("--format", choices=list(FILE_TYPES), help="default: by the suffix of the file, else html")
    add("--samples", type=parse_count, default=2, metavar="N", help="the worst samples of each of the worst tasks (2)")
    add("--tasks", type=parse_count, default=5, metavar="N", help="number of those tasks (5)")
    add("--slice", action="append", default=[], metavar="COLUMN", help="results by this column of the documents; repeatable"
        " (default: columns with few values)")  # fmt: skip
    add("--allow_different_prompts", action="store_true", help="compare runs whose prompts differ")
    parser.set_defaults(run=run_report)


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
        sys.stdout.write(report_text(options.runs, name, report_options))
        return 0
    written = write_report(options.runs, path or "report.html", format=name, options=report_options)
    echo(f"{written}: {written.stat().st_size:,} bytes")
    return 0
