"""The output file of a graph as stored answers: its records can be aggregated again."""

import calendar
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.config.option import YAMLMapping
from assay.config.run import RunConfig
from assay.evaluation.options import run_config, task_manager
from assay.graphs.spec import Record
from assay.records import Failed, Outcome, Sample
from assay.results import NO_RESULTS, Results
from assay.runs.folder import NoRun, RunError
from assay.runs.run import Run
from assay.runs.samples.reader import ReplayedSample
from assay.samples.rows import Rows
from assay.tasks import TaskManager
from assay.tasks.rescore import StoredTask
from assay.tasks.runnable import Runnable

_NAME = re.compile(r"(?:(?P<run>.+)_)?output(?:_(?P<time>\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d))?\.jsonl?")
ENDINGS = (".json", ".jsonl")


@dataclass(frozen=True)
class OutputFile:
    """The records of a graph in its output_….json or .jsonl, which says nothing of the graph: that is named."""

    path: Path
    name: str
    config: RunConfig
    manager: TaskManager

    @classmethod
    def of(cls, paths: Sequence[Path], options: YAMLMapping) -> "OutputFile | None":
        """The output, where one file and one graph are named."""
        named: Any = options.get("tasks")
        if len(paths) != 1 or not paths[0].is_file() or paths[0].suffix not in ENDINGS or len(named or ()) != 1:
            return None
        match = _NAME.fullmatch(paths[0].name)
        config = run_config({**options, "run_name": match["run"] if match else paths[0].stem})
        manager = task_manager(config)
        graphs = [task for task in manager.attempt(config.tasks)[0]["tasks"].values() if task.definition is not None]
        return cls(paths[0], graphs[0].name, config, manager) if len(graphs) == 1 else None

    @cached_property
    def _rows(self) -> Rows:
        return Rows([self.path], {})

    @cached_property
    def asked(self) -> int | None:
        """Number of records of its run, if the run's manifest is beside the file: failed records are not in the file."""
        try:
            size = Run.open(self.path.parent).facts(self.name).get("size")
        except NoRun:
            return None
        return size if isinstance(size, int) and size >= len(self._rows) else None

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def names(self) -> Sequence[str]:
        return [self.name]

    @property
    def absent(self) -> Sequence[str]:
        return ()

    @property
    def broken(self) -> Mapping[str, str]:
        return {}

    @property
    def left_out(self) -> Sequence[str]:
        return ()

    @property
    def results(self) -> Results:
        return NO_RESULTS

    @property
    def created(self) -> float:
        """The time in the file's name, so that reports are named after it; else that of the file."""
        match = _NAME.fullmatch(self.path.name)
        if match is None or match["time"] is None:
            return self.path.stat().st_mtime
        return calendar.timegm(time.strptime(match["time"], "%Y-%m-%d_%H-%M-%S"))

    def stored(self, name: str) -> StoredTask:  # noqa: ARG002  # there is one
        if not len(self._rows):
            raise RunError.at(self.path, "the output has no records", "name another file")
        size = self.asked or len(self._rows)
        return StoredTask(size, size)

    def record(self, name: str) -> Record:  # noqa: ARG002  # there is one
        return self._rows[0]

    def samples(self, task: Runnable) -> Iterator[ReplayedSample]:  # noqa: ARG002  # there is one
        for number, record in enumerate(self._rows):
            yield ReplayedSample(Sample(number, record, (), None, None), [Outcome(record)])
        for number in range(len(self._rows), self.asked or 0):
            yield ReplayedSample(Sample(number, {}, (), None, None), [Failed("the record is not in the output file")])
