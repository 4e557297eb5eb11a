"""`assay validate` and `assay fetch`: check task files, and download their data."""

import argparse
from pathlib import Path

import orjson

from assay.cli.flags import add_catalog_options, add_option, task_manager
from assay.cli.output import counted, echo, echo_err, echo_json
from assay.config.run import RunConfig
from assay.config.task import TaskConfig
from assay.evaluation.prepare import find_problems
from assay.plugins import plugin_problems
from assay.records import Document
from assay.samples.data import FILE_READERS, data_set
from assay.samples.rows import DataError

HERE = ("/", "./", "../", "~")
"""Prefixes of data set paths that are on this machine already."""


def define_validate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to check (default: everything)")
    parser.add_argument("--tasks", action="append", metavar="NAMES", help="the same, in lm-eval's spelling")
    parser.add_argument("--json", action="store_true", help="an array of file, line, column, what, fix, serious")
    parser.add_argument(
        "--load", action="store_true", help="import helper modules, as a run does; else they are only read"
    )
    add_option(parser, "data_dir")
    add_catalog_options(parser)
    parser.set_defaults(run=run_validate)


def run_validate(options: argparse.Namespace) -> int:
    manager = task_manager(options)
    names = [*options.names, *(options.tasks or [])] or None
    config = RunConfig(data_dir=options.data_dir, compat=options.compat)
    problems = find_problems(manager, config, names, load=options.load)
    if names is None:
        problems = sorted([*problems, *plugin_problems()])
    serious = sum(problem.serious for problem in problems)
    if options.json:
        echo_json(
            [
                {"file": p.place.file, "line": p.place.line, "column": p.place.column}
                | {"what": p.what, "fix": p.fix, "serious": p.serious}
                for p in problems
            ]
        )
    else:
        for problem in problems:
            echo(str(problem) if problem.serious else f"{problem} (note)")
        echo(f"{counted(serious, 'problem')}, {counted(len(problems) - serious, 'note')}")
    return 1 if serious else 0


def define_fetch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tasks", nargs="+", metavar="NAME", help="tasks, groups or tags to download the data of")
    add_option(parser, "data_dir", required=True, help="the folder to write: DIR/<path>/<name>/<split>.jsonl")
    add_catalog_options(parser)
    parser.set_defaults(run=run_fetch)


def run_fetch(options: argparse.Namespace) -> int:
    loaded = task_manager(options).load(options.tasks)
    done: set[tuple[str | None, str | None]] = set()
    failed = 0
    for task in loaded["tasks"].values():
        config = task.config
        key = (config.dataset_path, config.dataset_name)
        path = config.dataset_path
        if key in done or path is None or path in FILE_READERS or path.startswith(HERE):
            continue
        done.add(key)
        try:
            for written, count in fetch(config, Path(options.data_dir)):
                echo(f"{written}: {count} rows")
        except DataError as error:
            failed += 1
            echo_err(f"{task.name}: {error}")
    return 1 if failed else 0


def fetch(config: TaskConfig, folder: Path) -> list[tuple[Path, int]]:
    """Write every split of a task's data set below a folder; existing files are kept."""
    data = data_set(config, folder=None, data_dir=None)
    target = folder / str(config.dataset_path) / (config.dataset_name or "default")
    written = []
    for split in data.available():
        path = target / f"{split}.jsonl"
        if path.exists():
            continue
        target.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        count = 0
        with part.open("wb") as lines:
            for row in data.split(split):
                lines.write(orjson.dumps(_plain(row), default=str) + b"\n")
                count += 1
        part.replace(path)
        written.append((path, count))
    return written


def _plain(row: Document) -> Document:
    return {str(key): value for key, value in dict(row).items()}
