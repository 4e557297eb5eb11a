"""The samples of an earlier run as the documents of a task: `dataset_path: assay`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from assay.runs.folder import RunError
from assay.runs.run import Run
from assay.runs.samples.records import StoredSample
from assay.runs.samples.writer import file_name
from assay.samples.rows import DataError


def read_run(folder: Path) -> "RunSplits":
    """The run in a folder, to be handed to `samples.data.data_set`; a DataError where there is none."""
    try:
        return RunSplits(Run.open(folder))
    except RunError as error:
        raise DataError(f"{error.problems[0]}; give a run as dataset_kwargs.run") from error


class RunSplits:
    """Each task of a run as a split; a task may also be named as its file of samples is."""

    def __init__(self, run: Run) -> None:
        self._files = {task: file for task in run.tasks if (file := run.sample_file(task)) is not None}

    @property
    def splits(self) -> list[str]:
        return sorted(self._files)

    def rows(self, split: str) -> list[Mapping[str, Any]] | None:
        """The documents of a split, each with what was asked, answered and scored; None where there is no such split."""
        named = {**{file_name(task): file for task, file in self._files.items()}, **self._files}
        if split not in named:
            return None
        try:
            return [_document(row) for row in named[split].rows()]
        except RunError as error:
            raise DataError(str(error.problems[0])) from error


def _document(row: StoredSample) -> Mapping[str, Any]:
    return {
        **orjson.loads(row.doc), "doc_id": row.doc_id, "prompt": row.prefix + row.prompt, "target": orjson.loads(row.target),
        "responses": row.responses, "answers": row.answers, "scores": row.scores,
    }  # fmt: skip
