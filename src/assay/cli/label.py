"""`assay label`: a table of documents for people to label, and a judge's numbers corrected by the labels."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from assay.cli.flags import labeller_name
from assay.cli.output import counted, echo, echo_err, echo_table, echo_wrapped
from assay.comparison.labelling import (
    AGREEMENT,
    JudgeRows,
    Plan,
    corrections,
    judge_card,
    judge_rows,
    plan_labels,
    read_table,
    store_labels,
    write_table,
)
from assay.report.report_table import (
    Cell,
    Column,
    CountCell,
    IntervalCell,
    NumberCell,
    TextCell,
    make_table,
    number_columns,
)
from assay.report.write import card_table
from assay.runs.run import Run
from assay.runs.storage import shown_path


def run_label(options: argparse.Namespace) -> int:
    run = Run.open(options.folder).finished()
    rows = judge_rows(run, options.task, options.metric)
    if options.filled:
        _import(run, rows, Path(options.filled), labeller_name(options.labeller))
        run = Run.open(options.folder)
    elif not options.card:
        _write(run, rows, options)
    if options.card:
        echo_table(card_table(judge_card(run, rows)))
    return 0


def _write(run: Run, rows: list[JudgeRows], options: argparse.Namespace) -> None:
    path = Path(options.output_path or "labels.csv")
    plans = [plan_labels(run, each, options.n, seed=options.seed, by=options.labeller) for each in rows]
    written = write_table(run, plans, path, seen=options.show_scores)
    lines = [line for plan in plans for line in _widths(plan)]
    if lines:
        echo_wrapped("width of the 95 % interval to expect, by how labels and verdicts correlate:")
        titles = ("labels", "labels alone", *(f"r = {agreement}" for agreement in AGREEMENT))
        echo_table(make_table(["task", *number_columns(*titles)], lines))
    for plan in plans:
        if not plan.widths:
            echo_wrapped(f"{plan.rows.task}: labels of {counted(plan.n, 'document')} give no interval")
        echo_wrapped(_scale(plan))
    echo(f"{path}: {counted(written, 'document')} to label; then: assay label {shown_path(run.path)} --import {path}")


def _widths(plan: Plan) -> Iterator[list[Cell]]:
    for number, (labels, widths) in enumerate(plan.widths.items()):
        task = TextCell(plan.rows.task, is_repeated=number > 0)
        yield [task, CountCell(labels), *(NumberCell(width, digits=3) for width in widths)]


def _scale(plan: Plan) -> str:
    low, high = plan.rows.scale
    means = (
        "1: the answer is better than the other, 0: it is worse, 0.5: neither"
        if plan.rows.other
        else f"{low:g} to {high:g}"
    )
    chosen = f"{len(plan.documents)} of {plan.n:,} documents, chosen at random"
    return f"{plan.rows.task}: labels from {means}; {chosen}" + (f"; {plan.labelled} have one" if plan.labelled else "")


def _import(run: Run, rows: list[JudgeRows], path: Path, labeller: str) -> None:
    read = read_table(path, run, rows)
    store_labels(run, rows, read.labels, labeller)
    labelled = Run.open(run.path)
    lines: list[list[Cell]] = []
    for task in read.labels:
        for key, number in corrections(labelled.without_labels(), task, labelled.labels[task]).items():
            values = (NumberCell(number.judge, digits=4), NumberCell(float(number), digits=4))
            ends = IntervalCell(number.low, number.high)
            lines.append([task, str(key), *values, ends, CountCell(number.labels), number.method])
    interval = Column("95 %", "interval")
    echo_table(
        make_table(
            ["task", "row", *number_columns("judge", "corrected"), interval, *number_columns("labels"), "method"], lines
        )
    )
    if read.empty:
        echo_err(
            f"{counted(read.empty, 'line')} without a label: if people skip what is hard to judge, the corrected value is biased"
        )
