"""`assay merge`: put the shards of a run together."""

import argparse
from pathlib import Path

from assay.cli.output import say, tell
from assay.cli.run import EXIT
from assay.evaluation.merge import merge
from assay.report.table import footing, heading, results_table


def define(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("output", metavar="OUT", help="the folder of the whole run, new")
    parser.add_argument("shards", nargs="+", metavar="RUN", help="the folders of all its shards")
    parser.add_argument("--include_path", action="append", default=[], metavar="DIR", help="a folder with tasks, beside those of"
                        " the run")  # fmt: skip
    parser.add_argument("--force", action="store_true", help="move another run in OUT aside")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    results = merge(options.output, options.shards, include_path=options.include_path, force=options.force)
    say(heading(results))
    say(results_table(results))
    groups = results_table(results, groups=True)
    if groups:
        say("\n" + groups)
    for line in footing(results):
        tell(line)
    say(f"\nrun: {Path(options.output).resolve()}")
    return EXIT[results["assay"]["status"]]
