"""A report written down: in the format that the name of its file says."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.report.document import Document, ReportOptions, document
from assay.report.page import page
from assay.report.plain import as_csv, as_json, as_markdown

FILE_TYPES: Mapping[str, Callable[[Document], str]] = {"html": page, "md": as_markdown, "json": as_json, "csv": as_csv}


def report_text(runs: Sequence[str | Path], format: str = "html", options: ReportOptions | None = None) -> str:
    """A report of runs as a text: `html`, `md`, `json` or `csv`."""
    if format not in FILE_TYPES:
        raise ConfigError([Problem(Place("format"), f"no format named {format!r}", did_you_mean(format, FILE_TYPES))])
    return FILE_TYPES[format](document(runs, options))


def write_report(
    runs: Sequence[str | Path], path: str | Path, *, format: str | None = None, options: ReportOptions | None = None
) -> Path:
    """Write a report of runs; the name of the file says the format where nothing else does, and is a page if it says none."""
    target = Path(path)
    text = report_text(runs, format or named(target), options)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    return target


def named(path: Path) -> str:
    """The format that the name of a file says: a page where it says none."""
    ending = path.suffix.lower().removeprefix(".")
    if ending and ending not in FILE_TYPES:
        what, fix = f"a report is never a .{ending}", f"end its name in .{', .'.join(FILE_TYPES)}, or say --format"
        raise ConfigError([Problem(Place(str(path)), what, fix)])
    return ending or "html"
