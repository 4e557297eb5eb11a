"""`assay score` and `assay merge`: results from stored answers, without a model."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from assay.cli.flags import add_option, add_table_options
from assay.cli.output import command_line, counted, echo, echo_results, echo_table, echo_tables, echo_wrapped, exit_code
from assay.evaluation.merge import merge
from assay.evaluation.score import CHANGES, Rescored, RowChange, ScoreOptions
from assay.exchange.importers import score
from assay.report.report_table import Cell, Column, CountCell, NumberCell, ReportTable, TableLine
from assay.report.table import table_footing

SHOWN = 10
CATALOG = "a folder with tasks, in addition to those of the run"


def define_score(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "runs",
        nargs="+",
        metavar="RUN",
        help="the folder of a run; or samples_*.jsonl files of lm-eval, or their folder; or the output of a graph, which"
        " --tasks names",
    )
    add("--tasks", "-t", nargs="+", default=[], metavar="NAME", help="only these: names, globs, groups")
    add("--filter", action="append", default=[], metavar="NAME=STEP:VALUE", help=r"another filter, or a replacement for the one"
        r" of that name: 'number=regex:(\d+)', or an entry of filter_list in YAML")  # fmt: skip
    add("--metric", action="append", default=[], metavar="NAME[:K=V]", help="another metric, or a replacement for the one of that"
        " name: exact_match:ignore_case=true, or an entry of metric_list in YAML")  # fmt: skip
    add("--with", action="append", default=[], dest="files", metavar="FILE", help="a YAML file of a task or group that replaces"
        " the one of that name")  # fmt: skip
    add_option(parser, "include_path", help=CATALOG)
    add_option(parser, "include_defaults", help="for lm-eval's files: omit bundled tasks, lm_eval's and plug-ins'")
    add_option(
        parser,
        "compat",
        help="reproduce lm-eval 0.4.13, or SyGra's reports, including their errors (default: as in the run)",
    )
    add("--output_path", "-o", metavar="DIR", help="put scored/ there (default: into the folder of the run)")
    add_option(parser, "confirm_run_unsafe_code")
    add_table_options(parser)
    parser.set_defaults(run=run_score)


def run_score(options: argparse.Namespace) -> int:
    score_options = ScoreOptions(
        tasks=options.tasks,
        filters=options.filter,
        metrics=options.metric,
        files=options.files,
        include_path=options.include_path or [],
        plugins=options.plugin,
        include_defaults=options.include_defaults is None,
        compat=options.compat,
        output_path=options.output_path,
        confirm_run_unsafe_code=bool(options.confirm_run_unsafe_code),
        facts={"command": command_line()},
    )
    scored = score(options.runs, score_options)
    _show(scored)
    return exit_code(scored.results)


def _show(scored: Rescored) -> None:
    echo_tables(scored.results)
    echo()
    _show_numbers(scored.numbers)
    for line in _samples(scored):
        echo(line)
    for line in [*scored.remarks, *table_footing(scored.results)]:
        echo_wrapped(line, sys.stderr)
    echo(f"\nscored: {scored.folder.resolve()}")


def _show_numbers(numbers: Sequence[RowChange]) -> None:
    """Print the numbers that changed as a table."""
    changed = [number for number in numbers if number.before != number.after or number.changed]
    if not changed:
        echo("no number changed")
        return
    columns = [Column("Task or group"), Column("Metric")]
    columns += [Column(title, align="right") for title in ("Before", "After", "Difference", "changed")]
    echo_table(ReportTable(columns, [TableLine(_cells(number)) for number in changed]))


def _cells(number: RowChange) -> list[Cell]:
    step: Cell = ""
    if number.before is not None and number.after is not None:
        step = NumberCell(number.after - number.before, digits=4, is_signed=True)
    before, after = NumberCell(number.before, digits=4), NumberCell(number.after, digits=4)
    return [number.name, number.row, before, after, step, CountCell(number.changed)]


def _samples(scored: Rescored) -> Iterable[str]:
    changed = scored.results.rescored["changed"]
    for task, change in changed.items():
        ids = ", ".join(map(str, change["ids"][:SHOWN])) + (" …" if change["count"] > SHOWN else "")
        yield f"{task}: {counted(change['count'], 'sample')} changed: {ids}"
    if changed:
        yield f"all of them: {scored.folder / CHANGES}"


def define_merge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("output", metavar="OUT", help="the folder of the whole run, new")
    parser.add_argument("shards", nargs="+", metavar="RUN", help="the folders of all its shards")
    add_option(parser, "include_path", help=CATALOG)
    add_option(parser, "force", help="move another run in OUT aside")
    add_option(
        parser,
        "confirm_run_unsafe_code",
        help="run code that the model wrote (not needed for shards that were made here with this flag)",
    )
    add_table_options(parser)
    parser.set_defaults(run=run_merge)


def run_merge(options: argparse.Namespace) -> int:
    results = merge(
        options.output,
        options.shards,
        include_path=options.include_path or [],
        force=bool(options.force),
        confirm_run_unsafe_code=bool(options.confirm_run_unsafe_code),
    )
    return echo_results(results, Path(options.output))
