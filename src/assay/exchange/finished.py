"""A run that has finished, opened to be handed on: without secrets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from assay.runs.run import Run
from assay.runs.samples.reader import SampleFile


def finished_run(folder: str | Path) -> Run:
    """The run in a folder, or a scoring of one, without secrets; a RunError where it has not finished."""
    return Run.open(folder).finished().redacted()


def sample_files(run: Run) -> dict[str, SampleFile]:
    """The samples by task, in the order of the results."""
    files = {task: run.sample_file(task) for task in run.scored_tasks}
    return {task: file for task, file in files.items() if file is not None}


def model_name(run: Run) -> str:
    """The name of the model: how it was reached, and what it is called there."""
    parts = [
        str(part) for part in dict.fromkeys((run.results.get("model_source"), run.results.get("model_name"))) if part
    ]
    return "/".join(parts) or str(run.results.get("config", {}).get("model"))


def read_json(path: Path) -> Mapping[str, Any]:
    """The mapping in a file of another program; an empty one where there is none."""
    try:
        content = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
