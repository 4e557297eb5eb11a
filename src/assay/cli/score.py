"""`assay score` and `assay merge`: results from stored answers, without a model."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from assay.cli.output import command_line, counted, echo, echo_results, echo_table, echo_tables, echo_wrapped, exit_code
from assay.evaluation.merge import merge
from assay.evaluation.score import CHANGES, Rescored, RowChange, ScoreOptions
from assay.exchange.importers import score
from assay.report.report_table import (
    Cell,
    CountCell,
    NumberCell,
    make_table,
    number_columns,
)
from assay.report.table import table_footing

SHOWN = 10


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
    echo_table(
        make_table(
            ["Task or group", "Metric", *number_columns("Before", "After", "Difference", "changed")],
            map(_cells, changed),
        )
    )


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


def run_merge(options: argparse.Namespace) -> int:
    results = merge(
        options.output,
        options.shards,
        include_path=options.include_path or [],
        force=bool(options.force),
        confirm_run_unsafe_code=bool(options.confirm_run_unsafe_code),
    )
    return echo_results(results, Path(options.output))
