"""`assay validate` and `assay fetch`: check task files, download lm-eval's, and download the data of tasks."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson

from assay.catalog.index import Index, index_root
from assay.catalog.lm_eval_names import KINDS, VERSION
from assay.catalog.roots import default_roots, lm_eval_tasks
from assay.cli.flags import task_manager
from assay.cli.output import counted, echo, echo_err, echo_json
from assay.config.run import RunConfig
from assay.config.task import TaskConfig
from assay.errors import ConfigError, Place
from assay.evaluation.prepare import find_problems
from assay.exchange.lm_eval_tasks import fetch_tasks
from assay.plugins import plugin_problems
from assay.records import Document
from assay.runs.files import new_file
from assay.samples.data import FILE_READERS, data_set
from assay.samples.rows import DataError
from assay.similar import nearest

TASKS, DATA = "tasks", "data"
HERE = ("/", "./", "../", "~")
"""Prefixes of data set paths that are on this machine already."""


def run_validate(options: argparse.Namespace) -> int:
    manager = task_manager(options)
    names = [*options.names, *(options.tasks or [])] or None
    config = RunConfig(data_dir=options.data_dir, compat=options.compat)
    if names is None:
        echo_err(f"all files are checked: {len(manager.catalog.index.named):,} tasks and groups …")
        _show_progress()
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


def _show_progress() -> None:
    """Print how far a check of many tasks is."""
    progress = logging.getLogger("assay.validate")
    progress.setLevel(logging.INFO)
    progress.propagate = False
    progress.handlers = [logging.StreamHandler(sys.stderr)]


def run_fetch(options: argparse.Namespace) -> int:
    kind, *names = options.tasks
    if kind == TASKS:
        return _fetch_tasks(options, names)
    for flag in ("source", "version"):
        if getattr(options, flag) is not None:
            place = Place("--from" if flag == "source" else "--version")
            raise ConfigError.at(place, "is for lm-eval's task files", "write `assay fetch tasks`")
    names = names if kind == DATA and names else options.tasks
    if len(options.tasks) == 1 and options.data_dir is None and nearest(kind, [TASKS], only_slips=True):
        raise ConfigError.at("fetch", f"no task named {kind!r}", "did you mean `assay fetch tasks`?")
    if options.data_dir is None:
        what = "data needs a folder"
        raise ConfigError.at("--data_dir", what, f"assay fetch {' '.join(names)} --data_dir DIR")
    loaded = task_manager(options).load(names)
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


def _fetch_tasks(options: argparse.Namespace, names: Sequence[str]) -> int:
    """Put lm-eval's task files on this machine, and say which names they add."""
    if names or options.data_dir is not None:
        fix = f"their data: assay fetch data {' '.join(names) or 'NAME'} --data_dir DIR"
        raise ConfigError.at("fetch tasks", "gets the files of all of lm-eval's tasks", fix)
    if options.source is None:
        echo_err(f"task files of lm_eval {options.version or VERSION} …")
    fetched = fetch_tasks(options.version, Path(options.source) if options.source is not None else None)
    index = Index([(root, index_root(root)) for root in default_roots()])
    known = {kind: index.names(kind) for kind in KINDS}
    there = "already there" if fetched.were_there else "fetched"
    echo(f"lm-eval {fetched.version}: {fetched.files:,} files {there}: {fetched.folder}")
    echo(f"{', '.join(f'{len(names):,} {kind}s' for kind, names in known.items())} can be named; `assay ls` lists them")
    if (used := lm_eval_tasks()) is not None and used != fetched.folder.resolve():
        echo_err(f"an installed lm_eval is used instead: {used}")
    return 0


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
        count = 0
        with new_file(path) as part, part.open("wb") as lines:
            for row in data.split(split):
                lines.write(orjson.dumps(_plain(row), default=str) + b"\n")
                count += 1
        written.append((path, count))
    return written


def _plain(row: Document) -> Document:
    return {str(key): value for key, value in dict(row).items()}
