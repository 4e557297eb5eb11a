"""Titles and sizes for `assay ls` on a terminal: from the files of tasks, of which nothing is imported or executed."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.catalog.include import IncludeReader
from assay.cli.output import counted
from assay.config.fields import Fields
from assay.config.option import YAMLValue
from assay.dialect import OURS
from assay.records import Failed
from assay.safe_text import cut
from assay.samples.data import FILE_READERS, find_files
from assay.samples.rows import DataError
from assay.user_code import call_user_code

if TYPE_CHECKING:
    from assay.cli.ls import ListedName

LARGEST = 64 * 2**20
"""Bytes of data that are counted; a larger file has no size in the list."""
LONGEST = 70


def detailed(rows: "Sequence[ListedName]") -> list[tuple[str, str]]:
    """The title and the number of documents of every name, empty where they are not known."""
    reader = IncludeReader()
    return [_details(row, reader) for row in rows]


def _details(row: "ListedName", reader: IncludeReader) -> tuple[str, str]:
    more = row.more or {}
    if row.error:
        return f"broken: {row.error}", ""
    if row.kind == "tag":
        tasks = more.get("tasks")
        return (counted(len(tasks), "task") if isinstance(tasks, list | tuple) else ""), ""
    if row.path is None or row.kind not in ("task", "group"):
        kinds = more.get("output_types")
        listed = f"for {', '.join(map(str, kinds))}" if isinstance(kinds, list) and kinds else ""
        return str(more.get("description") or more.get("output_type") or listed), ""
    fields = reader.merged(row.path, OURS).fields
    if row.kind == "group":
        members = fields.get("task")
        count = counted(len(members), "member") if isinstance(members, list) else ""
        return ", ".join(filter(None, (_title(fields, row), count))), ""
    size = call_user_code("cannot be counted", _documents, fields, str(Path(row.path).parent))
    return _title(fields, row) or str(more.get("output_type") or ""), "" if isinstance(size, Failed) else size


def _title(fields: Fields, row: "ListedName") -> str:
    """The alias, else the first line of what every prompt begins with."""
    alias = fields.get("group_alias" if row.kind == "group" else "task_alias")
    described = fields.get("description")
    text = alias if isinstance(alias, str) else described if isinstance(described, str) else ""
    line = text.strip().partition("\n")[0]
    return cut(line, LONGEST)


def _documents(fields: Fields, folder: str) -> str:
    """The number of documents in the local files of the split that is evaluated; empty where there are none."""
    options = fields.get("dataset_kwargs")
    reader, split = fields.get("dataset_path"), fields.get("test_split") or fields.get("validation_split")
    if reader not in FILE_READERS or not isinstance(options, Mapping):
        return ""
    written: YAMLValue = options.get("data_files") or options.get("data_file")
    listed = written.get(split) if isinstance(written, Mapping) else written if split == "train" else None
    texts = [listed] if isinstance(listed, str) else listed
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return ""
    try:
        files = [file for text in texts for file in find_files(str(text), folder, None)]
    except DataError:
        return ""
    counts = [_rows(file) for file in files]
    return "" if None in counts or not counts else f"{sum(each for each in counts if each):,}"


def _rows(file: Path) -> int | None:
    """The rows of a file; None where only reading it as data would say."""
    if file.stat().st_size > LARGEST:
        return None
    if file.suffix == ".jsonl":
        with file.open("rb") as lines:
            return sum(1 for line in lines if line.strip())
    if file.suffix in (".csv", ".tsv"):
        with file.open(encoding="utf-8", newline="") as lines:
            return max(sum(1 for _ in csv.reader(lines)) - 1, 0)
    if file.suffix == ".parquet":
        from pyarrow.parquet import read_metadata

        return int(read_metadata(file).num_rows)
    return None
