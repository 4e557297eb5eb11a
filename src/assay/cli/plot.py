"""`assay plot`: pictures of runs as SVG, PNG or PDF."""

import argparse
import sys
from pathlib import Path

from assay.cli.output import echo
from assay.report.pictures import Picture, check_target, plot

TO_STDOUT = "-"


def run_plot(options: argparse.Namespace) -> int:
    target = options.output or f"{options.kind}.svg"
    if target != TO_STDOUT:
        check_target(Path(target))  # before any run is read
    picture = plot(
        options.runs, options.kind, tasks=options.tasks, metric=options.metric, over=options.over, title=options.title
    )
    write_picture(picture, target)
    return 0


def write_picture(picture: Picture, target: str) -> None:
    """Write a picture, and its path; or its SVG where the target is `-`."""
    if target == TO_STDOUT:
        sys.stdout.write(picture.svg)
    else:
        echo(f"plot: {picture.save(target).resolve()}")
