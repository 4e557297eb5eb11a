"""What a world has come to: every file of it, byte by byte but for what LEFT_OUT names, and what must not be left behind."""

import io
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

LEFT_OUT = frozenset(
    ("date", "start_time", "end_time", "total_evaluation_time_seconds", "created", "finished",  # when a command was run
     "seconds", "tries", "retries",  # how long an answer took, and at which try it came
     "sent", "known",  # of its requests, how many the last command sent and how many it found in the journal
     "crc32", "checksums",  # of files that hold such values
     "was_cut_off")  # a command of the run was killed: what it asked last is not known, and usage says "at least"
)  # fmt: skip
"""Keys whose values two equal runs may differ in, in results.json, manifest.json, and the header of a journal; of usage, in journals
and in samples. Besides: the order of lines in a journal, their checksums, and lines of failures that were asked again with success; the time in the names of a graph's files, the times in a
cache, and lock files of SQLite. Files with nothing of this are compared as they are: samples_*.jsonl, archives, exports, Parquet of
the embedded model."""
TIMED = re.compile(r"\d{4}-\d\d-\d\d[T_]\d\d-\d\d-\d\d(?:\.\d+)?")
SCORING = re.compile(r"/scored/\d+/")
SETTINGS = frozenset(("command", "model_role", "replicas", "ray", "signature"))
"""Keys of a manifest, and of the copy that heads a journal: the command and its options with their signature. A run of a fleet
differs in them from one of one process, and in nothing else."""
JOURNAL, CACHE = "responses.jsonl", "responses.sqlite"
ASIDE = ("-wal", "-shm")


def outcome(work: Path) -> dict[str, bytes]:
    """Every file below a folder: its name and what is compared of it."""
    found: dict[str, bytes] = {}
    for path in sorted(work.rglob("*")):
        if path.is_file() and not path.name.endswith(ASIDE):
            name, content = TIMED.sub("TIME", str(path.relative_to(work))), compared(path)
            first = SCORING.sub(
                "/scored/001/", name
            )  # a scoring that was killed after its end is made once more: a second version
            found[first if found.get(first, content) == content else name] = content
    return found


def compared(path: Path) -> bytes:
    """What is compared of a file."""
    if path.name == JOURNAL:
        header, *lines = map(json.loads, path.read_bytes().splitlines())
        answered = {line["done"] for line in lines if "done" in line}
        timeless = sorted(
            _dumped(without_times(_line(line)))
            for line in lines
            if not _is_failure(line) and line.get("intent") not in answered
        )  # the intent of a call that was repeated is there twice
        return b"\n".join([_dumped(without_times(_line(header))), *timeless])
    if path.name == CACHE:
        rows = sqlite3.connect(path).execute("select key, model, response from responses order by key").fetchall()
        return b"\n".join(
            _dumped([key.hex(), model, _line(json.loads(b"{%s}" % response))]) for key, model, response in rows
        )
    if path.suffix == ".json":
        return _dumped(without_times(json.loads(path.read_bytes())))
    if path.suffix == ".parquet":
        return _table(path.read_bytes())
    return path.read_bytes()


def _table(content: bytes) -> bytes:
    """A Parquet file as it is, or where it holds usage, its rows without the seconds."""
    file = pq.ParquetFile(io.BytesIO(content))
    schema = str(file.schema_arrow.remove_metadata())
    if not LEFT_OUT.intersection(re.findall(r"(\w+): ", schema)):
        return content
    return schema.encode() + _dumped(without_times(file.read().to_pylist()))


def _dumped(value: Any) -> bytes:
    return json.dumps(value, default=str, ensure_ascii=False).encode()


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if key not in LEFT_OUT}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def without_settings(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Files of `outcome` without SETTINGS: to compare a run of a fleet with one of one process."""

    def kept(value: Any) -> Any:
        return (
            {key: kept(each) for key, each in value.items() if key not in SETTINGS}
            if isinstance(value, dict)
            else value
        )

    def cleaned(name: str, content: bytes) -> bytes:
        if Path(name).name not in ("manifest.json", JOURNAL):
            return content
        first, *rest = content.split(b"\n")
        return b"\n".join([_dumped(kept(json.loads(first))), *rest])

    return {name: cleaned(name, content) for name, content in files.items()}


def _is_failure(line: Any) -> bool:
    return isinstance(line.get("r"), dict) and "failed" in line["r"]


def _line(line: dict[str, Any]) -> dict[str, Any]:
    """A line of a journal without its checksum, and without the seconds and tries of its usage."""
    kept = {key: value for key, value in line.items() if key != "c"}
    if isinstance(kept.get("u"), list):
        kept["u"] = [each for place, each in enumerate(kept["u"]) if place not in (2, 3)]
    return kept


def answers(folder: Path) -> dict[str, bytes]:
    """The whole lines of a journal that hold an answer, by key."""
    path = folder / JOURNAL
    content = path.read_bytes() if path.is_file() else b""
    lines = [line for line in content.splitlines(keepends=True)[1:] if line.endswith(b"\n")]
    loaded = [(json.loads(line), line) for line in lines]
    return {each["k"]: line for each, line in loaded if "k" in each and not _is_failure(each)}


def leftovers(work: Path, tmp: Path) -> Iterator[str]:
    """What finished commands must not leave: temporary files, locks, keys twice in a journal."""
    for path in sorted(work.rglob("*")):
        if ".part" in path.name or path.name == "run.lock" or path.name.endswith((".tmp", "-journal")):
            yield str(path.relative_to(work))
        if path.name == JOURNAL:
            lines = [json.loads(line) for line in path.read_bytes().splitlines()[1:]]
            keys = Counter(line["k"] for line in lines if "k" in line and not _is_failure(line))
            yield from (f"{path.relative_to(work)}: {key} {times} times" for key, times in keys.items() if times > 1)
    yield from (f"temporary {path.name}" for path in tmp.iterdir())
