"""The progress of a run in its folder, for readers in other processes and on other machines that share the disk.

`.live.part` has a record of progress and the newest samples of each task in progress, both replaced in one move about once a
second. The folder is removed when the run ends; its name keeps it out of uploads. Nothing in it is needed to resume.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

import orjson

from assay.records import JSONDict, JSONObject
from assay.runs.files import read_bytes
from assay.runs.samples.writer import SampleWriter, file_name

LIVE, PROGRESS = ".live.part", "progress.json"
FORMAT = 1


class LiveFolder:
    """Writes the progress of a run. Nothing is synced: a power cut ends the run, and then it is not needed."""

    def __init__(self, run: Path) -> None:
        self.path = run / LIVE

    def write(self, record: JSONObject) -> None:
        self.path.mkdir(exist_ok=True)
        part = self.path / f"{PROGRESS}.part"
        part.write_bytes(orjson.dumps({"format": FORMAT, **record}, option=orjson.OPT_NON_STR_KEYS))
        part.replace(self.path / PROGRESS)

    def write_samples(self, writer: SampleWriter, task: str, count: int) -> int:
        """Write the newest samples of a task; returns their number."""
        self.path.mkdir(exist_ok=True)
        return writer.write_newest(self.path / f"{file_name(task)}.parquet", count)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def read_progress(run: Path) -> JSONDict:
    """The last record of progress; empty where there is none, or one that another version wrote."""
    try:
        record = orjson.loads(read_bytes(run / LIVE / PROGRESS))
    except (OSError, ValueError):
        return {}
    return dict(record) if isinstance(record, Mapping) and record.get("format") == FORMAT else {}


def newest_samples(run: Path, task: str) -> Path | None:
    """The file with the newest samples of a task in progress; None where there is none."""
    path = run / LIVE / f"{file_name(task)}.parquet"
    return path if path.is_file() else None
