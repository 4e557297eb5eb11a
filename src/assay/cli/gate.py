"""`assay gate`: what a run must show, and the flags, files and exit codes of gates that `run` and `compare` share."""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from assay.cli.flags import SUMMARY, add_gate_flags
from assay.cli.output import DECISION_EXIT, echo, echo_err, echo_json, printable
from assay.comparison.verdicts import GateReport, gate
from assay.errors import AssayError, ConfigError, Place, Problem
from assay.report.ci import GateOutcome, annotations, gates_markdown, gates_text, junit_xml
from assay.runs.files import make_folder, replace_file


def define_gate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", metavar="RUN", help="the folder of a run, or a file of `assay pack`")
    add("gates", nargs="+", metavar="GATE", help="'acc >= 0.8', 'mmlu/acc > 75%%', 'failed <= 1%%', 'cost <= 5', 'time <= 10m',"
        " 'tokens <= 2M', 'truncated <= 2%%', 'empty <= 0'; with --baseline 'acc >= baseline - 1pp', 'acc > -1%% rel',"
        " 'acc >= 99%% of baseline'")  # fmt: skip
    add("--baseline", metavar="RUN", help="the run, or the file of `assay pack`, that differences are to")
    add_gate_flags(parser)
    add("--level", type=float, default=0.95, metavar="P", help="one-sided confidence of all gates together (0.95)")
    add("--allow_different_prompts", action="store_true", help="compare documents whose prompts differ, too")
    add("--allow_incomplete", action="store_true", help="decide on the documents that were scored, whatever failed")
    add("--format", choices=["text", "md", "json"], default="text", help="how the verdicts are printed")
    parser.set_defaults(run=run_gate)


def run_gate(options: argparse.Namespace) -> int:
    def make() -> GateReport:
        return gate(
            options.folder,
            options.gates,
            baseline=options.baseline,
            level=options.level,
            allow_incomplete=options.allow_incomplete,
            allow_different_prompts=options.allow_different_prompts,
        )

    return concluded(make, options, options.folder)


@contextmanager
def reported_errors(options: argparse.Namespace, title: str) -> Iterator[None]:
    """Write an error to the JUnit file, too: a broken pipeline has no green test."""
    check_report_path(options)
    started = time.monotonic()
    try:
        yield
    except AssayError as error:
        if options.junit:
            write_junit(options.junit, junit_xml(GateOutcome(title, ()), time.monotonic() - started, str(error)))
        raise


def concluded(make: Callable[[], GateReport], options: argparse.Namespace, title: str) -> int:
    """Decide the gates of a run, report the verdicts wherever they are wanted, and return the exit code."""
    started = time.monotonic()
    with reported_errors(options, title):
        report = make()
    against = f" against {report.baseline}" if report.baseline is not None else ""
    outcome = GateOutcome(f"{report.run}{against}", report.verdicts, options.inconclusive, report.notes)
    if getattr(options, "format", "text") == "json":
        echo_json(_json(report, outcome))
    elif getattr(options, "format", "text") == "md":
        echo(gates_markdown(outcome))
    else:
        echo(gates_text(outcome))
        for note in report.notes:
            echo_err(f"note: {note}")
    return report_gates(outcome, options, time.monotonic() - started)


def report_gates(outcome: GateOutcome, options: argparse.Namespace, seconds: float = 0.0) -> int:
    """Write the JUnit file, GitHub's summary and annotations, and return the exit code."""
    if options.junit:
        write_junit(options.junit, junit_xml(outcome, seconds))
    summary = os.environ.get(SUMMARY)
    if summary:
        _append(Path(summary), gates_markdown(outcome))
    elif options.github:
        echo(gates_markdown(outcome))
    if summary or options.github:
        for line in annotations(outcome):
            echo(line)
    return DECISION_EXIT[outcome.decision]


def check_report_path(options: argparse.Namespace) -> None:
    """Refuse a path where no report can be written, before there is one."""
    path = Path(options.junit) if options.junit else None
    if path is not None and (path.is_dir() or (path.parent.exists() and not path.parent.is_dir())):
        raise ConfigError(
            [Problem(Place("--junit"), f"{path} cannot be written: it is a folder, or below a file", "name a file")]
        )


def write_junit(path: str, content: bytes) -> None:
    target = Path(path)
    try:
        make_folder(target.parent)
        part = target.with_name(f".{target.name}.part")
        part.write_bytes(content)
        replace_file(part, target)
    except OSError as error:
        raise ConfigError(
            [Problem(Place("--junit"), f"{path} cannot be written: {error.strerror}", "name another file")]
        ) from None


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(printable(text) + "\n")
    except OSError as error:
        echo_err(f"note: {SUMMARY}: {path} cannot be written: {error.strerror}")


def _json(report: GateReport, outcome: GateOutcome) -> dict[str, object]:
    return {
        "decision": report.decision,
        "counts_as": outcome.decision,
        "run": str(report.run),
        "status": report.status,
        "baseline": str(report.baseline) if report.baseline is not None else None,
        "level": report.level,
        "gates": [asdict(each) for each in report.verdicts],
        "notes": list(report.notes),
    }
