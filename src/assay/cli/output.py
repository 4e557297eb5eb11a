"""How commands speak: plain when piped, with colour on a terminal, and never with somebody else's escapes."""

import io
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.records import Function

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with control characters spelt out: a file's name or content cannot steer the terminal.

    >>> printable("a" + chr(27) + "[31mb")
    'a\\\\x1b[31mb'
    """
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def prepare_streams() -> None:
    """See to it that anything can be written: where the terminal knows a letter not, its number is written."""
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_terminal() -> bool:
    return sys.stdout.isatty()


def say(text: str = "") -> None:
    sys.stdout.write(printable(text) + "\n")


def write_lines(lines: Iterable[str]) -> None:
    """Many lines at once; they are printable already."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def tell(text: str) -> None:
    """Say something beside the output: to standard error."""
    sys.stderr.write(printable(text) + "\n")


def say_json(value: object) -> None:
    sys.stdout.write(json.dumps(plain(value), indent=1, ensure_ascii=False) + "\n")


def plain(value: object) -> object:
    """A value as JSON can hold it; functions as they are written in YAML."""
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
    """A number with its noun: `1 task`, `2 tasks`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def say_columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows under a header, in columns as wide as they need to be."""
    table = [[printable(cell).replace("\n", "⏎") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [list(header), *table]) for column in range(len(header))]
    bold, end = ("\x1b[1m", "\x1b[0m") if is_terminal() else ("", "")
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    head = "  ".join(cell.ljust(width) for cell, width in zip(header, widths, strict=True)).rstrip()
    sys.stdout.write("\n".join([f"{bold}{head}{end}", *lines]) + "\n")


def say_tables(results: Mapping[str, Any], depth: int | None = None) -> None:
    """Print the table of tasks and, where there are groups with numbers, theirs."""
    from assay.report.table import results_table

    say(results_table(results, depth=depth))
    groups = results_table(results, groups=True, depth=depth)
    if groups:
        say("\n" + groups)
