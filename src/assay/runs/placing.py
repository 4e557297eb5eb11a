"""Where a run goes that names no folder: into one of its own below `runs/`, or into the same one again until it is finished."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from assay.runs.folder import RunError, as_written
from assay.runs.lease import is_held
from assay.runs.run import COMPLETE, Run, runs_in

RUNS_DIR = "runs"


def output_folder(runs_dir: Path, spec: Mapping[str, Any], model: str, tasks: Sequence[str]) -> Path:
    """The folder of the latest unfinished run with this spec that nobody works in, else a new one."""
    wanted = as_written(spec)
    unfinished = [
        (manifest.get("created") or 0.0, path)
        for path, manifest in _manifests(runs_dir)
        if manifest.get("spec") == wanted and manifest.get("status") != COMPLETE and not is_held(path)
    ]
    return max(unfinished)[1] if unfinished else new_folder(runs_dir, model, tasks)


def new_folder(runs_dir: Path, model: str, tasks: Sequence[str]) -> Path:
    """A folder that is not there yet, named after the day, the model and the tasks.

    >>> new_folder(Path("runs"), "org/llama 3", ["mmlu", "gsm8k"]).name[11:]
    'llama_3-mmlu-and-1-more'
    """
    more = f"-and-{len(tasks) - 1}-more" if len(tasks) > 1 else ""
    parts = [time.strftime("%Y-%m-%d"), _plain(Path(model).name), _plain(tasks[0] if tasks else "") + more]
    name = "-".join(part for part in parts if part)
    names = (name, *(f"{name}-{number}" for number in range(2, 1_000_000)))
    return next(path for each in names if not (path := runs_dir / each).exists())


def _manifests(runs_dir: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The runs directly below a folder that can be read, each with its manifest."""
    for path in runs_in(runs_dir):
        with suppress(RunError):
            yield path, Run.open(path).manifest


def _plain(text: str) -> str:
    """Text that is safe in the name of a folder, and not too long."""
    return re.sub(r"[^\w.@#+-]+", "_", text).strip("._-")[:40]
