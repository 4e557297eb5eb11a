"""`assay compare` and `assay verify-backend`: differences between runs, and between backends, document by document."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from assay.cli.flags import given, run_options
from assay.cli.gate import begin_report, report_gates
from assay.cli.output import draw_table, echo, echo_err, echo_json, echo_table, echo_wrapped, screen
from assay.cli.report import of_readable_runs
from assay.comparison.compare import compare
from assay.comparison.verification import DIFFER, DRIFTS, NOTHING, PRECISIONS, SAME, verification
from assay.errors import ConfigError
from assay.evaluation.options import run_config
from assay.evaluation.verify import verify
from assay.report.charts import forest_text
from assay.report.comparison_text import (
    GateOutcome,
    attribution_lines,
    comparison_csv,
    comparison_json,
    comparison_summary,
    comparison_tables,
    flip_lines,
    gate_line,
    recovery_table,
    verification_json,
    verification_text,
)
from assay.report.pictures import check_target, plot_comparison, share_differences
from assay.report.progress import Progress
from assay.runs.comparison import Comparison

VERDICT_EXIT = {SAME: 0, DRIFTS: 1, DIFFER: 1, NOTHING: 2}


def run_compare(options: argparse.Namespace) -> int:
    if isinstance(options.plot, str):
        if Path(options.plot).is_dir():
            what = "--plot takes a file, and this is a folder"
            raise ConfigError.at(options.plot, what, "write the runs first: RUN RUN --plot, or RUN RUN --plot out.svg")
        check_target(Path(options.plot))  # before any run is read
    for flag in ("inconclusive", "junit"):
        if getattr(options, flag) and not options.gate:
            fix = "add --gate 'acc > -1pp'"
            raise ConfigError.at(f"--{flag}", "is for gates, and there is none", fix)
    begin_report(options)
    comparison, is_whole = of_readable_runs(options.runs, lambda runs: _compared(runs, options), needed=1)
    if options.summary:
        echo(comparison_summary(comparison))
    elif options.format == "json":
        echo_json(comparison_json(comparison))
    elif options.format == "csv":
        echo(comparison_csv(comparison).rstrip("\n"))
    else:
        _show(comparison, plain=options.format == "md", plot=options.plot is True, wide=options.wide)
    if isinstance(options.plot, str):
        echo_err(f"plot: {plot_comparison(comparison).save(options.plot).resolve()}")
    return _gates_code(comparison, options) if is_whole else 2


def _compared(runs: Sequence[str], options: argparse.Namespace) -> Comparison:
    names = (
        "tasks",
        "metrics",
        "cluster_by",
        "allow_different_prompts",
        "allow_incomplete",
        "flips",
        "level",
        "power",
        "recovery",
    )
    return compare([Path(run) for run in runs], gates=options.gate, **given(options, *names))


def _gates_code(comparison: Comparison, options: argparse.Namespace) -> int:
    names = " and ".join(run.label for run in comparison.runs[1:])
    title = f"{names} against {comparison.runs[0].label}"
    outcome = GateOutcome(title, comparison.verdicts, options.inconclusive, comparison.notes)
    return report_gates(outcome, options) if comparison.verdicts else 0


def _show(comparison: Comparison, *, plain: bool, plot: bool, wide: bool) -> None:
    for number, table in enumerate(comparison_tables(comparison, wide=wide)):
        if number and not screen().is_fitted:
            echo()
        echo_table(table)
    if any(row.recovery is not None for row in comparison.rows):
        echo()
        echo_table(recovery_table(comparison))
    for number, each in enumerate(comparison.runs[1:] if plot else (), 1):
        drawn = forest_text(share_differences(comparison, number), most=screen().width if screen().is_fitted else None)
        echo(f"\n{each.label} minus {comparison.runs[0].label}\n{drawn}")
    if comparison.flips:
        echo("\n" + "\n".join(flip_lines(comparison.flips)))
    if not plain:
        echo_wrapped("\n" + "\n".join(attribution_lines(comparison)))
    if comparison.verdicts:
        echo_wrapped("\n" + "\n".join(map(gate_line, comparison.verdicts)))
        echo_wrapped("\n" + comparison_summary(comparison))
    elif plain:
        echo_wrapped("\n" + comparison_summary(comparison))
    for note in comparison.notes:
        echo_wrapped(f"note: {note}", sys.stderr)


def run_verify_backend(options: argparse.Namespace) -> int:
    tolerance = PRECISIONS[options.precision]
    if options.tolerance is not None:
        tolerance = replace(tolerance, per_token=_share(options.tolerance, "tolerance"))
    if options.max_divergent is not None:
        tolerance = replace(tolerance, texts=_share(options.max_divergent, "max_divergent"))
    answers = verify(options.a, options.b, run_config(run_options(options)), watching=Progress)
    outcome = verification(answers, tolerance)
    if options.format == "json":
        echo_json(verification_json(outcome))
    else:
        echo(verification_text(outcome, draw_table))
    if options.output_path is not None:
        echo_err(f"runs: {options.output_path}/a, {options.output_path}/b")
    return 0 if outcome.verdict == options.accept else VERDICT_EXIT[outcome.verdict]


def _share(number: float, option: str) -> float:
    if not number >= 0:
        raise ConfigError.at(option, f"must be at least 0, got {number}")
    return number
