"""`assay runs` and `assay cache`: list, show and remove stored runs and stored responses."""

import argparse
import shutil
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

from assay.cli.output import echo, echo_columns, echo_err, echo_json, echo_tables, echo_wrapped
from assay.config.folders import runs_folder
from assay.errors import ConfigError, did_you_mean
from assay.number_text import format_decimal
from assay.records import JSONObject
from assay.report.index import MIN_RUNS, IndexedRun, RunIndex, index_run
from assay.report.report_table import Cell, Column, CountCell, make_table, number_columns
from assay.report.table import table_heading
from assay.runs.cache import FILE, Cache
from assay.runs.folder import MANIFEST, RunError, no_run
from assay.runs.lease import Lease
from assay.runs.notes import read_notes, write_notes
from assay.runs.run import Run, holds_run, runs_in
from assay.runs.storage import HEADS, is_url, local_folder, push, shown_path


def runs_dir(folder: str | None) -> Path:
    """Return the folder of runs: the named one, else the environment's, else `runs` here; of a URL a copy, without samples."""
    return local_folder(folder or runs_folder(), names=HEADS)


def run_runs(options: argparse.Namespace) -> int:
    if options.action is None:  # `assay runs` alone
        return list_runs(runs_dir(options.runs_dir))
    if options.action == "push":
        return _push(Path(options.path), options.url, options.force)
    if options.action == "show" and (is_url(options.name) or is_url(options.runs_dir or runs_folder())):
        url = options.name if is_url(options.name) else f"{options.runs_dir or runs_folder()}/{options.name}"
        return _show(local_folder(url))
    named = [options.name] if options.action == "note" else options.names if options.action == "rm" else []
    if named and any(map(is_url, [options.runs_dir or runs_folder(), *named])):
        fix = "change it with the tool of the storage"
        raise ConfigError.at(f"runs {options.action}", "changes runs of this machine only", fix)
    folder = runs_dir(options.runs_dir)
    if options.action == "list":
        return list_runs(folder)
    if options.action == "show":
        return _show(_find_run(folder, options.name, holds_run))
    if options.action == "note":
        return _note(_find_run(folder, options.name, holds_run), options)
    paths = [_find_run(folder, name, _has_manifest) for name in options.names]  # all must exist before one is removed
    for path in paths:
        _remove(path)
    return 0


def list_runs(folder: Path, pattern: str = "*", *, as_json: bool = False) -> int:
    """Print the runs of a folder whose names match, as a table or as an array of objects."""
    paths = [path for path in runs_in(folder) if fnmatchcase(path.name, pattern)]
    if not paths and not as_json:
        which = f" that match {pattern!r}" if pattern != "*" else ""
        echo(f"no runs{which} in {folder}; `assay run` puts them there")
        return 0
    known = RunIndex(folder).refresh() if len(paths) >= MIN_RUNS else {}
    runs = [_list_entry(path, known.get(path.name)) for path in paths]
    if as_json:
        echo_json([_run_json(run) for run in runs])
        return 0
    echo_columns(
        make_table(
            ["run", Column("started", drop=1), "model", Column("tasks", drop=2), "status", "number"], map(_row, runs)
        )
    )
    for run in runs:
        if run.problem:
            echo_err(f"{run.path}: {run.problem}")
    return 0


def _list_entry(path: Path, known: IndexedRun | None) -> IndexedRun:
    """The line of a run, from the index; one that the index cannot read, behind a link say, is read here."""
    if known is None or known.problem or path.is_symlink():
        return index_run(Run.try_open(path, path.name))
    return known


def _run_json(run: IndexedRun) -> JSONObject:
    """A run as `ls runs --json` lists it: `name`, `kind` and `path` as of all names."""
    row = run.headline
    number = None if row is None else {"name": run.headline_of, "row": str(row.key), "value": row.estimate.value}
    return {
        "name": run.name,
        "kind": "run",
        "path": str(run.path),
        "started": run.created,
        "model": run.model,
        "tasks": list(run.tasks),
        "status": run.status,
        "number": number,
        "n": run.n,
        "failed": run.failed,
        "problem": run.problem or None,
    }


def _row(run: IndexedRun) -> tuple[str, ...]:
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created)) if run.created else ""
    tasks = run.tasks[0] + (f" and {len(run.tasks) - 1} more" if len(run.tasks) > 1 else "") if run.tasks else ""
    number = run.headline
    shown = (
        f"{number.metric} {format_decimal(number.estimate.value)} ({run.headline_of}){', provisional' if run.is_running else ''}"
        if number is not None
        else ""
    )
    return run.name, started, run.model, tasks, run.status, shown


def _show(path: Path) -> int:
    opened = Run.open(path)
    if opened.results.is_empty:
        echo(f"{path}: {opened.status}; no results yet")
        return 0
    echo_wrapped(table_heading(opened.results))
    echo_tables(opened.results)
    return 0


def _note(path: Path, options: argparse.Namespace) -> int:
    known = read_notes(path)
    if known.problem:
        raise ConfigError.at(path, known.problem, "repair or remove the file")
    if options.tag or options.untag or options.note is not None:
        tags = [tag for tag in (*known.tags, *options.tag) if tag not in options.untag]
        known = write_notes(path, tags, known.note if options.note is None else options.note)
    echo(f"tags: {', '.join(known.tags) or 'none'}")
    echo(f"note: {known.note or 'none'}")
    return 0


def _push(path: Path, url: str, force: bool) -> int:
    Run.open(path)  # nothing else is uploaded
    if not is_url(url):
        raise ConfigError.at(url, "is not a URL", "such as s3://bucket/run")
    echo(f"{push(path, url, force=force)} files uploaded: {shown_path(url)}")
    return 0


def _remove(path: Path) -> None:
    """Remove a run. Taking its lease first refuses a run in progress."""
    Lease(path).release()
    shutil.rmtree(path)
    echo(f"removed {path}")


def _has_manifest(path: Path) -> bool:
    """Return whether a folder may be removed: one without a manifest may hold other things."""
    return (path / MANIFEST).is_file()


def _find_run(folder: Path, name: str, is_run: Callable[[Path], bool]) -> Path:
    for path in (folder / name, Path(name)):
        if is_run(path):
            return path
    known = [path.name for path in runs_in(folder)]
    if Path(name).exists() or (folder / name).exists():
        raise RunError([no_run(Path(name) if Path(name).exists() else folder / name)])
    raise ConfigError.at(folder, f"no run named {name!r}", did_you_mean(name, known))


def run_cache(options: argparse.Namespace) -> int:
    folder = Path(options.folder)
    if not (folder / FILE).is_file():
        raise ConfigError.at(folder, "no cache in this folder", "name the folder of --use_cache")
    cache = Cache(folder)
    try:
        return _list_cache(cache) if options.action == "ls" else _prune(cache, options)
    finally:
        cache.close()


def _list_cache(cache: Cache) -> int:
    rows: list[list[Cell]] = []
    for shelf in cache.shelves():
        size = f"{shelf.bytes / 2**20:.1f} MB"
        rows.append([shelf.model, CountCell(shelf.responses), size, _day(shelf.written), _day(shelf.used)])
    echo_columns(make_table(["model", *number_columns("responses", "size"), "first written", "last used"], rows))
    return 0


def _prune(cache: Cache, options: argparse.Namespace) -> int:
    chosen = options.model is not None or options.unused_days is not None
    if chosen == options.all:
        what = "--all excludes --model and --unused_days" if chosen else "nothing selected to remove"
        raise ConfigError.at("prune", what, "give --model NAME, --unused_days N, or --all alone")
    known = [shelf.model for shelf in cache.shelves()]
    if options.model is not None and options.model not in known:
        fix = did_you_mean(options.model, known)
        raise ConfigError.at("--model", f"no responses of a model named {options.model!r}", fix)
    echo(f"{cache.prune(model=options.model, unused_days=options.unused_days):,} responses removed")
    return 0


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment))
