"""`assay pack`: one file of a run to hand on."""

import argparse

from assay.cli.output import counted, say, tell
from assay.exchange.archive import pack


def define(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", metavar="RUN", help="the folder of a run")
    add("--no_gold", action="store_true", help="take out right answers: targets, the columns they are made of, examples in prompts;"
        " what was taken out is said")  # fmt: skip
    add("--output_path", "-o", metavar="FILE", help="the archive (default: RUN.zip here)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    made = pack(options.folder, options.output_path, no_gold=options.no_gold)
    for what in made.removed:
        tell(f"removed: {what}")
    if options.no_gold:
        tell("answers and scores are still there: an answer that scored tells what is right")
    if made.left:
        tell(
            f"left out: {', '.join(made.left[:8])}" + (f" and {len(made.left) - 8} more" if len(made.left) > 8 else "")
        )
    say(f"{made.path}: {counted(len(made.files), 'file')}, {made.path.stat().st_size:,} bytes")
    say(f"to look at it: assay import {made.path} -o FOLDER (or unzip it), then assay view FOLDER")
    return 0
