"""`assay gate`: what a run must show, and the flags, files and exit codes of gates that `run` and `compare` share."""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from assay.cli.flags import SUMMARY, given
from assay.cli.output import DECISION_EXIT, echo, echo_err, echo_json, echo_wrapped
from assay.comparison.compare import GateReport, gate
from assay.errors import ConfigError
from assay.report.comparison_text import GateOutcome, annotations, gates_markdown, gates_text, junit_xml
from assay.runs.files import make_folder, new_file
from assay.runs.storage import refuse_url, shown_path
from assay.safe_text import printable


def run_gate(options: argparse.Namespace) -> int:
    parameters = given(options, "baseline", "level", "allow_incomplete", "allow_different_prompts")
    return concluded(lambda: gate(options.folder, options.gates, **parameters), options)


def begin_report(options: argparse.Namespace) -> None:
    """Write an error to the JUnit file before there is a verdict: a pipeline that breaks, or is killed, has no green test of a
    former one. A path where nothing can be written is refused."""
    if options.junit:
        write_error(options.junit, getattr(options, "command", "run"), "the command has not ended")


def write_error(path: str, command: str, error: str) -> None:
    """Write the error of a command without a verdict."""
    write_junit(path, junit_xml(GateOutcome(command, ()), error=error))


def concluded(make: Callable[[], GateReport], options: argparse.Namespace) -> int:
    """Decide the gates of a run, report the verdicts wherever they are wanted, and return the exit code."""
    started = time.monotonic()
    begin_report(options)
    report = make()
    against = f" against {shown_path(report.baseline)}" if report.baseline is not None else ""
    outcome = GateOutcome(f"{shown_path(report.run)}{against}", report.verdicts, options.inconclusive, report.notes)
    if getattr(options, "format", "text") == "json":
        echo_json(_json(report, outcome))
    elif getattr(options, "format", "text") == "md":
        echo(gates_markdown(outcome))
    else:
        echo_wrapped(gates_text(outcome))
        for note in report.notes:
            echo_wrapped(f"note: {note}", sys.stderr)
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


def write_junit(path: str, content: bytes) -> None:
    target = Path(path)
    refuse_url(path, "--junit")
    if target.is_dir():
        raise ConfigError.at("--junit", f"{path} cannot be written: it is a folder", "name a file")
    try:
        make_folder(target.parent)
        with new_file(target) as part:
            part.write_bytes(content)
    except OSError as error:
        raise ConfigError.at("--junit", f"{path} cannot be written: {error.strerror}", "name another file") from None


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
        "run": shown_path(report.run),
        "status": report.status,
        "baseline": shown_path(report.baseline) if report.baseline is not None else None,
        "level": report.level,
        "gates": [asdict(each) for each in report.verdicts],
        "notes": list(report.notes),
    }
