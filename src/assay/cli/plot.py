"""`assay plot`: pictures of runs as SVG, PNG or PDF."""

import argparse
import sys
from pathlib import Path

from assay.cli.output import echo
from assay.report.pictures import KINDS, Picture, check_target, plot

TO_STDOUT = "-"


def define_plot(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="folders of runs, or of scorings (RUN/scored/001)")
    add("--kind", choices=KINDS, default="intervals", help="intervals: scores of tasks and groups, runs side by side"
        " (default); time: scores over dates or training steps; reliability: confidence against accuracy, of tasks with the"
        " metric ece; pass_at_k: of tasks with repeats")  # fmt: skip
    add("-o", "--output", metavar="FILE", help="FILE.svg, .png or .pdf (default: KIND.svg here); - prints SVG")
    add(
        "--tasks",
        "-t",
        nargs="+",
        default=[],
        metavar="NAME",
        help="only these and their members: names, globs, groups",
    )
    add(
        "--metric",
        "--metrics",
        metavar="NAME",
        help="acc, or with a filter exact_match,strict (default: the main one of each task)",
    )
    add("--over", choices=["auto", "date", "step"], default="auto", help="for --kind time: the date of runs, or the step in"
        " their names, as in step-100 (default: the step where every run has one)")  # fmt: skip
    add("--title", metavar="TEXT", help="the title above the picture")
    parser.set_defaults(run=run_plot)


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
