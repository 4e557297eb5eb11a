"""`assay report`: one file that tells what runs came to, and how they compare."""

import argparse
import sys
from pathlib import Path

from assay.cli.output import say
from assay.report.document import ReportOptions
from assay.report.write import FILE_TYPES, format_of_file, report_text, write_report


def define(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="folders of runs; of several each is compared with the first")
    add(
        "--output_path",
        "-o",
        metavar="FILE",
        help="where to write (default: report.html, other formats to the terminal)",
    )
    add("--format", choices=list(FILE_TYPES), help="default: as the name of the file ends, else html")
    add("--samples", type=_count, default=2, metavar="N", help="the worst samples of each of the worst tasks (2)")
    add("--tasks", type=_count, default=5, metavar="N", help="how many tasks those are (5)")
    add("--slice", action="append", default=[], metavar="COLUMN", help="the numbers by this column of the documents; may be given"
        " again (default: columns of a few values)")  # fmt: skip
    add("--allow_different_prompts", action="store_true", help="compare runs that asked in other words")
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number")
    return int(text)


def run(options: argparse.Namespace) -> int:
    path = options.output_path
    name = options.format or (format_of_file(Path(path)) if path is not None else "html")
    wanted = ReportOptions(
        tasks=options.tasks,
        samples=options.samples,
        columns=options.slice,
        allow_different_prompts=options.allow_different_prompts,
    )
    if path == "-" or (path is None and name != "html"):
        sys.stdout.write(report_text(options.runs, name, wanted))
        return 0
    written = write_report(options.runs, path or "report.html", format=name, options=wanted)
    say(f"{written}: {written.stat().st_size:,} bytes")
    return 0
