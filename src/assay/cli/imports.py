"""`assay import`: a run from lm-eval's files, from Inspect's logs, or from several runs: with groups over all of them."""

import argparse
import sys
from pathlib import Path

from assay.cli.ended import say_results
from assay.exchange.importers import import_runs
from assay.runs.redaction import redacted_command


def define(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="lm-eval's results or samples files or their folder; .eval or .json logs of"
        " Inspect; folders of runs; or one archive of `assay pack`, which is unpacked")  # fmt: skip
    add("--output_path", "-o", required=True, metavar="DIR", help="the folder of the new run")
    add("--group", action="append", default=[], metavar="FILE", help="a YAML file of a group whose members are among what is"
        " brought in; may be given again")  # fmt: skip
    add("--force", action="store_true", help="move another run in DIR aside")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    facts = {"command": redacted_command(["assay", *sys.argv[1:]])}
    results = import_runs(options.files, options.output_path, groups=options.group, force=options.force, facts=facts)
    return say_results(results, Path(options.output_path))
