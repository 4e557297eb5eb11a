"""`assay plan`: how many documents or repeats are needed to detect a difference."""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from assay.cli.flags import task_manager
from assay.cli.output import counted, echo, echo_err, echo_json, echo_table, echo_wrapped
from assay.comparison.planning import Aim, Planned, may_be_rate, planned_from_runs, planned_from_tasks, unknown_task
from assay.errors import ConfigError, Place, Problem, did_you_mean, grouped, some
from assay.number_text import NO_VALUE, format_figures, format_points, format_share
from assay.report.report_table import Cell, Column, CountCell, ReportTable, make_table, number_columns
from assay.runs.results import tasks_text
from assay.score_keys import ScoreKey, spellings

if TYPE_CHECKING:
    from assay.comparison.planning import NoiseRow
    from assay.tasks.runnable import Runnable

COLUMNS: Sequence[Column | str] = ("Tasks", "Metric", *number_columns("n", "needed"), "enough", *number_columns("detectable"),
           Column("repeats needed", align="right", drop=1))  # fmt: skip
NONE = "no number suffices"


SIZE = re.compile(r"(\d+\.?\d*|\.\d+)(pp)?")
MOST = 0.5
"""A larger difference without a unit is refused as a likely mistake: shares are between 0 and 1."""
OWN_UNITS = ("bits_per_byte", "bleu", "chrf", "chrf++", "ter", "wer", "cer", "kappa", "spearman", "edit_distance")


def run_plan(options: argparse.Namespace) -> int:
    aim = _aim(options)
    rows = _from_runs(options, aim) if options.baseline else _from_tasks(options, aim)
    noise = _noise(options, aim, rows)
    if options.format == "json":
        planned = [{**asdict(each), "enough": each.is_enough} for each in rows]
        echo_json({"aim": asdict(aim), "rows": planned, "noise": [asdict(each) for each in noise]})
    else:
        echo_table(make_table(COLUMNS, map(_cells, rows)))
        for line in _assumptions(options, aim, rows):
            echo_wrapped(line)
        if noise:
            echo()
            echo_table(_noise_table(options, aim, noise))
    return 0


def _aim(options: argparse.Namespace) -> Aim:
    size = SIZE.fullmatch(options.mde.replace(" ", ""))
    shares = ("power", "alpha")
    wrong = [name for name in shares if not 0 < getattr(options, name) < 1]
    problems = [Problem(Place(f"--{name}"), f"must be between 0 and 1, got {getattr(options, name)}") for name in wrong]
    if size is None or not float(size[1]):
        problems.append(Problem(Place("--mde"), f"invalid difference {options.mde!r}", "write 1pp, or 0.05"))
    elif not size[2] and float(size[1]) > MOST and not _has_own_unit(ScoreKey.parse(options.metric or "").metric):
        what = f"a difference of {size[1]} means {float(size[1]) * 100:g} percentage points"
        fix = f"write {size[1]}pp, or {float(size[1]) / 100:g}; for a metric that is not a share, add --metric"
        problems.append(Problem(Place("--mde"), what, fix))
    if not -1 <= options.correlation < 1:
        problems.append(Problem(Place("--correlation"), f"must be at least -1 and below 1, got {options.correlation}"))
    if options.repeats < 1:
        problems.append(Problem(Place("--repeats"), f"must be at least 1, got {options.repeats}"))
    if problems or size is None:
        raise ConfigError(problems)
    share = float(size[1]) / (100 if size[2] else 1)
    return Aim(share, options.power, options.alpha, options.repeats, options.correlation)


def _noise(options: argparse.Namespace, aim: Aim, planned: Sequence[Planned]) -> "list[NoiseRow]":
    """The noise of the tasks that are planned from a run, and the documents for the wanted half-width."""
    if not options.baseline:
        return []
    from assay.comparison.planning import noise_rows
    from assay.runs.run import Run

    run = Run.open(options.baseline[0]).finished()
    return noise_rows(run, {each.name: options.metric or each.metric for each in planned}, _half_width(options, aim))


def _half_width(options: argparse.Namespace, aim: Aim) -> float:
    if options.half_width is None:
        return aim.mde
    size = SIZE.fullmatch(options.half_width.replace(" ", ""))
    if size is None or not float(size[1]):
        raise ConfigError.at("--half_width", f"invalid width {options.half_width!r}", "write 1pp, or 0.05")
    return float(size[1]) / (100 if size[2] else 1)


def _noise_table(options: argparse.Namespace, aim: Aim, noise: "Sequence[NoiseRow]") -> ReportTable:
    width = _half_width(options, aim)
    repeats = sorted({count for row in noise for count in row.needed})
    columns = [
        *map(Column, ("Tasks", "Metric")),
        *number_columns("n"),
        Column("± now", "half_width", align="right"),
        Column("± chosen", "chosen", align="right", drop=3),
        Column("between documents", align="right", drop=2),
        Column("within", align="right", drop=1),
        *number_columns(*(f"n for ± with {counted(count, 'repeat')}" for count in repeats)),
    ]
    rows: list[list[Cell]] = []
    for row in noise:
        widths = _size(row.half_width, row.metric), _size(width, row.metric)
        variances = format_figures(row.between), "" if row.within is None else format_figures(row.within)
        needed = (CountCell(row.needed.get(count)) for count in repeats)
        rows.append([row.name, row.metric, CountCell(row.n), *widths, *variances, *needed])
    note = "± is half of a 95 % interval; between and within are variances of a document's score."
    return replace(make_table(columns, rows), notes=[note])


def _from_runs(options: argparse.Namespace, aim: Aim) -> list[Planned]:
    from assay.comparison.contrasts import below
    from assay.runs.run import Run

    if len(options.baseline) > 2:
        raise ConfigError.at("--baseline", "takes one run or two", "name a run, or two to compare")
    runs = [Run.open(each).finished() for each in options.baseline]
    names = [*runs[0].groups, *runs[0].scored_tasks]
    selected = (
        set().union(*(below(runs[0], each, set(names)) for each in options.tasks)) if options.tasks else set(names)
    )
    rows = planned_from_runs(runs, [name for name in names if name in selected], options.metric, aim)
    planned = {each.name for each in rows}
    wanted = options.metric
    missing = [
        name
        for name in names
        if name in selected - planned and any(wanted is None or wanted in spellings(key) for key in runs[0].rows(name))
    ]
    if missing:
        echo_err(f"unknown variance{f' of {wanted}' if wanted else ''}: {', '.join(missing)}")
    return rows


def _from_tasks(options: argparse.Namespace, aim: Aim) -> list[Planned]:
    from assay.config.run import RunConfig
    from assay.evaluation.flow import prepare_run

    if not options.tasks:
        raise ConfigError.at("assay plan", "no tasks", "name tasks or groups, or a --baseline RUN")
    prepared = prepare_run(RunConfig(tasks=options.tasks), task_manager(options))
    for names, why in grouped(prepared.broken.items()):
        echo_wrapped(f"{tasks_text(names)}: {why}", sys.stderr)
    tasks, unknown = {}, []
    known = _known_keys(prepared.tasks, options.metric)
    for each in (task for task in prepared.tasks if task.facts.size and task.task.name in known):
        keys = known[each.task.name]
        rates = [key for key in keys if may_be_rate(each.aggregation(key))]
        if rates:
            tasks[each.task.name] = unknown_task(
                each.task.name, rates, each.facts.size, each.facts.source or each.task.name, aim
            )
        else:
            unknown.append(each.task.name)
    if unknown:
        echo_err(f"no rate, so the variance is not known without a run of it (--baseline RUN): {', '.join(unknown)}")
    if unknown and not tasks:
        raise ConfigError.at("assay plan", f"nothing is known of {some(unknown)}", "add --baseline RUN")
    rows = planned_from_tasks(tasks, prepared.groups, aim)
    missing = {group.name for group in prepared.groups} - {each.name for each in rows}
    if missing:
        echo_err(f"no aggregated metric, or one of unknown variance: {', '.join(sorted(missing))}")
    return rows


def _known_keys(tasks: "Sequence[Runnable]", wanted: str | None) -> dict[str, list[ScoreKey]]:
    """The rows that tasks will have; of a `wanted` metric those alone, of the tasks that have it."""
    every = {
        task.task.name: list(task.facts.rows or [ScoreKey(metric, "none") for metric in task.higher_is_better()])
        for task in tasks
    }
    if wanted is None:
        return every
    chosen = {name: [key for key in keys if wanted in spellings(key)] for name, keys in every.items()}
    lacking = [name for name, keys in chosen.items() if not keys]
    if len(lacking) == len(every):
        names = [text for keys in every.values() for key in keys for text in spellings(key)]
        raise ConfigError.at("--metric", f"no task has a metric named {wanted!r}", did_you_mean(wanted, names))
    if lacking:
        echo_err(f"no metric {wanted!r}: {', '.join(lacking)}")
    return {name: keys for name, keys in chosen.items() if keys}


def _has_own_unit(metric: str) -> bool:
    """Return whether a metric has its own unit, so that percentage points make no sense."""
    return metric.endswith("perplexity") or metric in OWN_UNITS


def _size(size: float, metric: str, digits: int = 2) -> str:
    """Write a difference in the unit of its metric.

    >>> _size(0.0047, "acc"), _size(0.0047, "word_perplexity")
    ('0.47pp', '0.0047')
    """
    return format_figures(size) if _has_own_unit(metric) else format_points(size, digits, is_signed=False)


def _cells(row: Planned) -> list[Cell]:
    repeats = row.repeats_needed or NONE if row.documents is not None else NO_VALUE
    return [
        row.name,
        row.metric,
        CountCell(row.documents) if row.documents else NO_VALUE,
        CountCell(row.needed),
        {True: "yes", False: "no", None: NO_VALUE}[row.is_enough],
        _size(row.mde, row.metric) if row.mde is not None else NO_VALUE,
        str(repeats),
    ]


def _assumptions(options: argparse.Namespace, aim: Aim, rows: Sequence[Planned]) -> list[str]:
    """List the assumptions behind the figures."""
    units = {_has_own_unit(each.metric) for each in rows}
    size = f"{aim.mde:g}" if units == {True} else f"{aim.mde * 100:g}pp" + (f" ({aim.mde:g})" if True in units else "")
    how = f"to detect {size} with power {aim.power:g} at alpha {aim.alpha:g}, two models on the same documents"
    if not options.baseline:
        rests = f"assumes rates of 0.5 (the worst case) and a correlation of {aim.correlation:g} between the models:"
        rests += f" {format_share(2 * 0.25 * (1 - aim.correlation), 0)} of documents right for only one"
    elif len(options.baseline) == 1:
        rests = f"assumes the variance of the run and a correlation of {aim.correlation:g} between two models"
    else:
        rests = "uses the differences between the two runs"
    few = [each for each in rows if each.is_enough is False]
    worst = max(few, key=lambda each: each.mde or 0, default=None)
    lines = [f"\n{how}, each request sent {aim.repeats}×; {rests}"]
    if worst is not None and worst.mde is not None:
        lines.append(
            f"too few documents in {len(few)} of {len(rows)}; {worst.name} detects {_size(worst.mde, worst.metric, 1)} at best"
        )
    if any(each.documents is not None and each.repeats_needed is None for each in rows):
        lines.append(f"repeats needed: {NONE}: repeats do not reduce the variance between documents")
    return lines
