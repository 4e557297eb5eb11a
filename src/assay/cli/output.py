"""Output of commands: plain when piped, in color on a terminal; escape sequences in data are neutralized."""

import io
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.config.option import YAMLValue
from assay.records import JSON, Function

if TYPE_CHECKING:
    from assay.runs.results import ResultsJSON

EXIT = {"complete": 0, "incomplete": 1, "partial": 3}
"""Exit codes by the status of a run."""
DECISION_EXIT = {"pass": 0, "fail": 1, "inconclusive": 4, None: 0}
"""Exit codes by the decision of gates, or of a rule to stop."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Spell out control characters: the name or content of a file cannot control the terminal.

    >>> printable("a" + chr(27) + "[31mb")
    'a\\\\x1b[31mb'
    """
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def prepare_streams() -> None:
    """Let every character be written: those that the terminal's encoding lacks are escaped."""
    if sys.stdout is None:  # closed by the parent process
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_terminal() -> bool:
    return sys.stdout.isatty()


def echo(text: str = "") -> None:
    """Print to standard output."""
    sys.stdout.write(printable(text) + "\n")


def write_lines(lines: Iterable[str]) -> None:
    """Write lines that are printable already."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def echo_err(text: str) -> None:
    """Print to standard error."""
    sys.stderr.write(printable(text) + "\n")


def echo_json(value: YAMLValue) -> None:
    sys.stdout.write(json.dumps(plain(value), indent=1, ensure_ascii=False) + "\n")


def plain(value: YAMLValue) -> JSON:
    """Convert a value to JSON types; functions are written as in YAML."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value) if isinstance(value, Function) else repr(value)


def counted(number: int, noun: str) -> str:
    """Write a number with its noun: `1 task`, `2 tasks`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def echo_columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under a header, in aligned columns."""
    table = [[printable(cell).replace("\n", "⏎") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [list(header), *table]) for column in range(len(header))]
    bold, end = ("\x1b[1m", "\x1b[0m") if is_terminal() else ("", "")
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    head = "  ".join(cell.ljust(width) for cell, width in zip(header, widths, strict=True)).rstrip()
    sys.stdout.write("\n".join([f"{bold}{head}{end}", *lines]) + "\n")


def echo_tables(results: "ResultsJSON", depth: int | None = None) -> None:
    """Print the table of tasks, and that of groups if they have metrics."""
    from assay.report.table import results_table

    echo(results_table(results, depth=depth))
    groups = results_table(results, groups=True, depth=depth)
    if groups:
        echo("\n" + groups)


def echo_results(results: "ResultsJSON", folder: Path) -> int:
    """Print the tables and the folder of a run that was made without a model; returns the exit code of its status."""
    from assay.report.table import table_footing, table_heading

    echo(table_heading(results))
    echo_tables(results)
    for line in table_footing(results):
        echo_err(line)
    echo(f"\nrun: {folder.resolve()}")
    return EXIT.get(results.get("assay", {}).get("status", ""), EXIT["incomplete"])


def exit_code(results: "ResultsJSON") -> int:
    """Look up the exit code of a run; of a shard, that of the documents in it; with a rule to stop, that of its decision."""
    account = results["assay"]
    decided = account.get("stop_when", {}).get("decision")
    if decided is not None and (decided != "inconclusive" or account["status"] != "partial"):
        return DECISION_EXIT[decided]
    return EXIT[account.get("shard", account)["status"]]
