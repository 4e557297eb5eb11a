"""`assay runs`: list, show and remove the runs below a folder."""

import argparse
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.cli.output import say, say_columns, say_tables
from assay.errors import ConfigError, Place, Problem, did_you_mean
from assay.report.reading import RunSummary
from assay.report.table import table_heading
from assay.runs.folder import MANIFEST, RunError, no_run
from assay.runs.lease import Lease
from assay.runs.placing import RUNS_DIR
from assay.runs.run import RUNNING, Run, holds_run, runs_in

ENVIRONMENT = "ASSAY_RUNS_DIR"


def runs_dir(given: str | None) -> Path:
    """The folder of runs: as given, by the environment, or `runs` here."""
    return Path(given or os.environ.get(ENVIRONMENT) or RUNS_DIR)


def define(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("list", help="every run: model, tasks, status, number", description="List runs.")
    shown = actions.add_parser("show", help="the results of a run", description="Show the results of a run.")
    removed = actions.add_parser("rm", help="remove runs", description="Remove runs; one in progress is refused.")
    for action in (listed, shown, removed):
        action.add_argument(
            "--runs_dir", metavar="DIR", help=f"where runs are (default: ${ENVIRONMENT}, else {RUNS_DIR}/)"
        )
    shown.add_argument("name", metavar="RUN", help="its name below that folder, or its path")
    removed.add_argument("names", metavar="RUN", nargs="+", help="names below that folder, or paths")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    folder = runs_dir(options.runs_dir)
    if options.action == "list":
        return _list(folder)
    if options.action == "show":
        return _show(_found(folder, options.name, holds_run))
    for path in [
        _found(folder, name, _has_manifest) for name in options.names
    ]:  # all are looked for before one is removed
        _remove(path)
    return 0


def _list(folder: Path) -> int:
    readings = [RunSummary(path, path.name) for path in runs_in(folder)]
    if not readings:
        say(f"no runs in {folder}; `assay run` puts them there")
        return 0
    say_columns(("run", "started", "model", "tasks", "status", "number"), [_row(each.head) for each in readings])
    return 0


def _row(head: Any) -> tuple[str, ...]:
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(head.created)) if head.created else ""
    tasks = head.tasks[0] + (f" and {len(head.tasks) - 1} more" if len(head.tasks) > 1 else "") if head.tasks else ""
    number = head.headline
    shown = f"{number.metric} {number.value:.4f} ({head.headline_of})" if number is not None else ""
    return head.name, started, head.model, tasks, head.status, shown


def _show(path: Path) -> int:
    opened = Run.open(path)
    if opened.status == RUNNING or not opened.results:
        say(f"{path}: {opened.status}; no results yet")
        return 0
    say(table_heading(opened.results))
    say_tables(opened.results)
    return 0


def _remove(path: Path) -> None:
    """Remove a run. Its lease is taken first, so that no run is removed that somebody works in."""
    Lease(path).release()
    shutil.rmtree(path)
    say(f"removed {path}")


def _has_manifest(path: Path) -> bool:
    """Only such a folder is removed: one that only looks like a run may hold other things."""
    return (path / MANIFEST).is_file()


def _found(folder: Path, name: str, is_meant: Callable[[Path], bool]) -> Path:
    for path in (folder / name, Path(name)):
        if is_meant(path):
            return path
    known = [path.name for path in runs_in(folder)]
    if Path(name).exists() or (folder / name).exists():
        raise RunError([no_run(Path(name) if Path(name).exists() else folder / name)])
    raise ConfigError([Problem(Place(str(folder)), f"no run named {name!r}", did_you_mean(name, known))])
