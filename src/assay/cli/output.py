"""Output of commands: plain when piped, in color on a terminal; escape sequences in data are neutralized."""

import io
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from assay.config.option import YAMLValue
from assay.records import JSON, Function
from assay.redaction import Secret, SecretNumber, conceal, redact_command
from assay.safe_text import printable

if TYPE_CHECKING:
    from assay.report.report_table import ReportTable
    from assay.results import Results

EXIT = {"complete": 0, "incomplete": 1, "partial": 3}
"""Exit codes by the status of a run."""
DECISION_EXIT = {"pass": 0, "fail": 1, "inconclusive": 4, None: 0}
"""Exit codes by the decision of gates, or of a rule to stop."""
USUAL_WIDTH = 80


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
    """Print to standard error, without the secrets of this process."""
    sys.stderr.write(printable(conceal(text)) + "\n")


def command_line(program: str = "assay") -> list[str]:
    """The command of this process without secrets, for the manifest."""
    return redact_command([program, *sys.argv[1:]])


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
    if isinstance(value, Secret | SecretNumber):
        return value.shown
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value) if isinstance(value, Function) else repr(value)


def counted(number: int, noun: str) -> str:
    """Write a number with its noun: `1 task`, `2 tasks`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


class Screen(NamedTuple):
    """How tables are drawn: markdown or plain columns where output is piped, or where it is asked for."""

    wide: bool = False
    markdown: bool = False
    no_color: bool = False

    @property
    def is_fitted(self) -> bool:
        return is_terminal() and not self.markdown

    @property
    def is_colored(self) -> bool:
        return (
            is_terminal() and not self.no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )

    @property
    def width(self) -> int | None:
        """The columns of the terminal; None without a limit."""
        return None if self.wide else terminal_width(sys.stdout)


_SCREEN: ContextVar[Screen] = ContextVar("screen")
_USUAL = Screen()


@contextmanager
def drawing(screen: Screen) -> Iterator[None]:
    """Draw the tables of one command like this."""
    before = _SCREEN.set(screen)
    try:
        yield
    finally:
        _SCREEN.reset(before)


def screen() -> Screen:
    return _SCREEN.get(_USUAL)


def terminal_width(stream: TextIO) -> int:
    """The width of a terminal: $COLUMNS, else what it says itself, else 80."""
    chosen = os.environ.get("COLUMNS", "")
    if chosen.isdecimal() and int(chosen):
        return int(chosen)
    with suppress(OSError, ValueError):  # it has no descriptor, or is not a terminal
        return os.get_terminal_size(stream.fileno()).columns or USUAL_WIDTH
    return USUAL_WIDTH


def echo_columns(table: "ReportTable") -> None:
    """Print lines under a header: fitted on a terminal, else in aligned columns."""
    if screen().is_fitted:
        echo_table(table)
    else:
        from assay.report.terminal import write_terminal  # names alone are listed without it

        write_lines(write_terminal(table, None)[0])


def draw_table(table: "ReportTable", *, colored: bool = False) -> str:
    """A table without its title and notes as text: fitted on a terminal, else markdown."""
    if not screen().is_fitted:
        from assay.report.table_writers import write_markdown

        return write_markdown(replace(table, title="", notes=()))
    from assay.report.terminal import write_terminal

    shown, left_out = write_terminal(table, screen().width, colored=colored)
    if left_out:
        shown.append(wrapped_text(f"left out: {', '.join(left_out)}; --wide shows all columns"))
    return "\n".join(shown)


def echo_table(table: "ReportTable") -> None:
    """Print a table with its title and notes: fitted on a terminal, else markdown."""
    # only cells are escaped, which markup could break: people read what is piped, too
    echo_text = echo_wrapped if screen().is_fitted else echo
    if table.title:
        echo_text(f"{table.title}\n")
    write_lines([draw_table(table, colored=screen().is_colored)])
    if table.notes:
        echo_text("\n" + "\n".join(table.notes))


def echo_wrapped(text: str, stream: TextIO | None = None) -> None:
    """Print lines of text; on a terminal they are broken at spaces. Paths and addresses stay whole."""
    target = stream or sys.stdout
    target.write(wrapped_text(printable(text), target) + "\n")


def wrapped_text(text: str, stream: TextIO | None = None) -> str:
    """The text in lines that fit the terminal, if it is for one."""
    target = stream or sys.stdout
    width = terminal_width(target) if target.isatty() else None
    return "\n".join(part for line in text.split("\n") for part in break_line(line, width))


def break_line(line: str, width: int | None) -> list[str]:
    """A line in several that fit, but for paths and addresses, which stay whole; further ones are indented."""
    if width is None:
        return [line]
    from assay.report.terminal import cell_width, pieces

    if cell_width(line) <= width:
        return [line]
    lead = line[: len(line) - len(line.lstrip(" "))]
    lines, current = [], lead
    for word in line[len(lead) :].split(" "):
        for number, part in enumerate([word] if "/" in word else pieces(word, width - len(lead) - 2)):
            space = " " if current.strip() and not number else ""
            if current.strip() and cell_width(current + space + part) > width:
                lines.append(current)
                current = f"{lead}  {part}"
            else:
                current += space + part
    return [*lines, current]


def echo_tables(results: "Results", depth: int | None = None) -> None:
    """Print the results: on a terminal one table; else that of all lines, and that of groups if they have metrics."""
    from assay.report.table import results_table

    if screen().is_fitted:
        echo_table(results_table(results, is_fitted=True, depth=depth))
        return
    echo_table(results_table(results, depth=depth))
    groups = results_table(results, groups=True, depth=depth)
    if groups.lines:
        echo()
        echo_table(groups)


def echo_results(results: "Results", folder: Path) -> int:
    """Print the tables and the folder of a run that was made without a model; returns the exit code of its status."""
    from assay.report.table import table_footing, table_heading

    echo_wrapped(table_heading(results))
    echo_tables(results)
    for line in table_footing(results):
        echo_wrapped(line, sys.stderr)
    echo(f"\nrun: {folder.resolve()}")
    return EXIT.get(results.status, EXIT["incomplete"])


def exit_code(results: "Results") -> int:
    """Look up the exit code of a run; of a shard, that of the documents in it; with a rule to stop, that of its decision."""
    decided = results.stop_when.get("decision")
    if decided is not None and (decided != "inconclusive" or results.status != "partial"):
        return DECISION_EXIT[decided]
    return EXIT[results.shard["status"] if results.shard else results.status]
