"""`assay table`: runs side by side as a paper prints them."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from assay.cli.leaderboard import parse_names
from assay.cli.output import echo, echo_err, echo_table
from assay.cli.report import of_readable_runs
from assay.errors import ConfigError
from assay.report.report_table import ReportTable
from assay.report.runs_table import RunsTableOptions, metadata_table, runs_table
from assay.report.table_writers import write_csv, write_html, write_json, write_latex, write_markdown
from assay.runs.files import new_file
from assay.runs.storage import refuse_url

WRITERS: Mapping[str, Callable[[ReportTable], str]] = {
    "latex": write_latex,
    "md": write_markdown,
    "html": write_html,
    "csv": write_csv,
    "json": write_json,
}
SUFFIXES = {".tex": "latex", ".md": "md", ".html": "html", ".csv": "csv", ".json": "json"}
MOST_COLUMNS = 8
"""More columns of numbers with their errors than that are wider than a page."""


def run_table(options: argparse.Namespace) -> int:
    path = None if options.output_path in (None, "-") else Path(options.output_path)
    if path is not None:
        refuse_url(path)
    form = options.format or (_format_of_file(path) if path is not None else "terminal")
    chosen = RunsTableOptions(
        tasks=options.tasks,
        metrics=options.metrics,
        names=parse_names(options.name),
        level=options.level,
        spread=options.error,
        digits=options.digits,
        transposed=options.transpose,
        allow_different_prompts=options.allow_different_prompts,
    )
    table, is_whole = of_readable_runs(
        options.runs,
        lambda runs: runs_table(runs, chosen) if options.by is None else metadata_table(runs, options.by, chosen),
    )
    if form == "latex" and len(table.columns) > MOST_COLUMNS + 1:
        echo_err(f"note: {len(table.columns)} columns may be wider than a page; --transpose has a line for each task")
    if path is not None:
        text = write_markdown(table) + "\n" if form == "terminal" else WRITERS[form](table)
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as part:
            part.write_text(text, encoding="utf-8", newline="\n")
        echo(f"{path}: {len(table.lines)} lines of {len(table.columns)} columns")
    elif form == "terminal":
        echo_table(table)
    else:
        sys.stdout.write(WRITERS[form](table).rstrip("\n") + "\n")
    return 0 if is_whole else 1


def _format_of_file(path: Path) -> str:
    form = SUFFIXES.get(path.suffix.lower())
    if form is None:
        what, fix = f"unsupported file name '{path.name}'", f"end it in {', '.join(SUFFIXES)}, or give --format"
        raise ConfigError.at(path, what, fix)
    return form
