"""`assay compare`: runs against the first of them, document by document; with gates, a verdict for machines."""

import argparse
from pathlib import Path

from assay.cli.output import say, say_json, tell
from assay.comparison.compare import Comparison, compare
from assay.report.comparison_text import (
    attribution_lines,
    comparison_csv,
    comparison_json,
    comparison_summary,
    comparison_table,
    flip_lines,
    gate_line,
)
from assay.report.plots import difference_intervals, forest_text

EXIT = {None: 0, "pass": 0, "fail": 1, "inconclusive": 4}


def define(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "runs",
        nargs="+",
        metavar="RUN",
        help="folders of runs, or of scorings (RUN/scored/001): each against the first",
    )
    add(
        "--tasks",
        "-t",
        nargs="+",
        default=[],
        metavar="NAME",
        help="only these and what is below: names, globs, groups",
    )
    add(
        "--metrics",
        nargs="+",
        default=[],
        metavar="NAME",
        help="only these: acc, or with its filter exact_match,strict",
    )
    add("--gate", action="append", default=[], metavar="GATE", help="what a difference must be: 'acc > -0.5pp',"
        " 'mmlu/acc >= -1%% rel', 'word_perplexity < 0.05'; exit 0: all pass, 1: one fails, 2: one cannot be decided;"
        " may be given again")  # fmt: skip
    add(
        "--cluster_by",
        metavar="COLUMN",
        help="documents with the same value there are one draw (default: as tasks say)",
    )
    add("--allow_different_prompts", action="store_true", help="also where a document was asked about in other words")
    add(
        "--allow_incomplete",
        action="store_true",
        help="gates: decide on the documents that both runs scored, whatever failed",
    )
    add(
        "--flips",
        type=int,
        default=0,
        metavar="N",
        help="list N documents of each task that became worse, and N better",
    )
    add("--level", type=float, default=0.95, metavar="P", help="confidence of intervals, and one-sided of gates (0.95)")
    add("--power", type=float, default=0.8, metavar="P", help="power at which a difference counts as detectable (0.8)")
    add("--format", choices=["table", "md", "json", "csv"], default="table", help="md: the table and the summary alone")
    add("--plot", action="store_true", help="draw the differences with their intervals below the table")
    add("--summary", action="store_true", help="eight lines for a chat message, and nothing else")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    found = compare(
        [Path(each) for each in options.runs],
        tasks=options.tasks,
        metrics=options.metrics,
        gates=options.gate,
        cluster_by=options.cluster_by,
        allow_different_prompts=options.allow_different_prompts,
        allow_incomplete=options.allow_incomplete,
        flips=options.flips,
        level=options.level,
        power=options.power,
    )
    if options.summary:
        say(comparison_summary(found))
    elif options.format == "json":
        say_json(comparison_json(found))
    elif options.format == "csv":
        say(comparison_csv(found).rstrip("\n"))
    else:
        _show(found, plain=options.format == "md", plot=options.plot)
    return EXIT[found.decision]


def _show(found: Comparison, *, plain: bool, plot: bool) -> None:
    say(comparison_table(found))
    for number, each in enumerate(found.runs[1:] if plot else (), 1):
        say(f"\n{each.label} minus {found.runs[0].label}\n{forest_text(difference_intervals(found, number))}")
    if found.flips:
        say("\n" + "\n".join(flip_lines(found.flips)))
    if not plain:
        say("\n" + "\n".join(attribution_lines(found)))
    if found.verdicts:
        say("\n" + "\n".join(map(gate_line, found.verdicts)))
        say("\n" + comparison_summary(found))
    elif plain:
        say("\n" + comparison_summary(found))
    for note in found.notes:
        tell(f"note: {note}")
