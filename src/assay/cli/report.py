"""`assay report`: one file that tells what runs came to, and how they compare."""

import argparse
import sys
from pathlib import Path

from assay.cli.output import say
from assay.report.document import Document, Wanted, document
from assay.report.page import page
from assay.report.plain import as_csv, as_json, as_markdown

FORMATS = {"html": page, "md": as_markdown, "json": as_json, "csv": as_csv}
ENDINGS = {".html": "html", ".htm": "html", ".md": "md", ".json": "json", ".csv": "csv"}


def define(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="folders of runs; of several each is compared with the first")
    add(
        "--output_path",
        "-o",
        metavar="FILE",
        help="where to write (default: report.html, other formats to the terminal)",
    )
    add("--format", choices=list(FORMATS), help="default: as the name of the file ends, else html")
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
    ending = Path(options.output_path).suffix.lower() if options.output_path is not None else ""
    name = options.format or ENDINGS.get(ending, "html")
    wanted = Wanted(
        tasks=options.tasks,
        samples=options.samples,
        columns=options.slice,
        allow_different_prompts=options.allow_different_prompts,
    )
    text = _text(name, document(options.runs, wanted))
    path = options.output_path or ("report.html" if name == "html" else None)
    if path in (None, "-"):
        sys.stdout.write(text)
    else:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
        say(f"{path}: {len(text.encode(errors='backslashreplace')):,} bytes")
    return 0


def _text(name: str, made: Document) -> str:
    return FORMATS[name](made)
