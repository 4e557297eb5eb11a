"""`assay merge`: put the shards of a run together."""

import argparse
from pathlib import Path

from assay.cli.ended import say_results
from assay.evaluation.merge import merge


def define(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("output", metavar="OUT", help="the folder of the whole run, new")
    parser.add_argument("shards", nargs="+", metavar="RUN", help="the folders of all its shards")
    parser.add_argument("--include_path", action="append", default=[], metavar="DIR", help="a folder with tasks, beside those of"
                        " the run")  # fmt: skip
    parser.add_argument("--force", action="store_true", help="move another run in OUT aside")
    parser.add_argument("--confirm_run_unsafe_code", action="store_true", help="run code that the model wrote (shards that were"
                        " made here say so themselves)")  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    results = merge(
        options.output,
        options.shards,
        include_path=options.include_path,
        force=options.force,
        confirm_run_unsafe_code=options.confirm_run_unsafe_code,
    )
    return say_results(results, Path(options.output))
