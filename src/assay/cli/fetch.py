"""`assay fetch`: the data sets of tasks into a folder, for machines that cannot reach the hub."""

import argparse
from pathlib import Path
from typing import Any

import orjson

from assay.cli.options import add_catalog_options, task_manager
from assay.cli.output import say, tell
from assay.config.task import TaskConfig
from assay.samples.data import FILE_READERS, data_set
from assay.samples.rows import DataError

HERE = ("/", "./", "../", "~")
"""How the path of a data set begins that lies on this machine already."""


def define(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tasks", nargs="+", metavar="NAME", help="tasks, groups or tags whose data is wanted")
    parser.add_argument(
        "--data_dir", required=True, metavar="DIR", help="where it goes: DIR/<path>/<name>/<split>.jsonl"
    )
    add_catalog_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
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
                say(f"{written}: {count} rows")
        except DataError as error:
            failed += 1
            tell(f"{task.name}: {error}")
    return 1 if failed else 0


def fetch(config: TaskConfig, folder: Path) -> list[tuple[Path, int]]:
    """Write every split of a task's data set below a folder; what is there already is left as it is."""
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


def _plain(row: Any) -> dict[str, Any]:
    return {str(key): value for key, value in dict(row).items()}
