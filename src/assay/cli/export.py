"""`assay export`: hand a run on: to lm-eval's tools, to Inspect's viewer, to an analysis, to a tracker."""

import argparse

from assay.cli.output import say
from assay.exchange.exporters import export


def define(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", metavar="RUN", help="the folder of a run, or of a scoring of it: RUN/scored/001")
    add("--to", required=True, metavar="NAME", help="lm-eval: results and samples files; inspect: a .eval log for each task;"
        " parquet: three tables; mlflow, wandb: numbers, settings and files in a tracker; or an exporter of a plug-in")  # fmt: skip
    add("--output_path", "-o", metavar="DIR", help="where to write; for mlflow the address of its server or a folder, for wandb"
        " the folder of its files (default: as they are set up)")  # fmt: skip
    add("--name", metavar="NAME", help="the experiment of mlflow, or the project of wandb (default: assay)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for place in export(options.folder, options.to, options.output_path, name=options.name):
        say(place)
    return 0
