"""The records of a graph: from the hub, from files, from nowhere; changed, joined, and each with its id."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from assay.config.graph import DataConfig, SourceConfig
from assay.config.source import digest
from assay.config.task import TaskConfig
from assay.samples.data import columns_of, data_set, find_files
from assay.samples.joins import joined
from assay.samples.rows import DataError, Row, Rows, as_rows, file_digest, spill_rows

Transform = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
Opened = tuple[Sequence[Row], str]
"""Rows, and a name for their content."""


def graph_rows(
    config: DataConfig,
    transforms: Sequence[Sequence[Transform]],
    *,
    folder: str | None,
    data_dir: str | None,
    wanted: int | None,
    like_pandas: bool = False,
) -> Opened:
    """All records of a graph. `transforms` are those of each source; `wanted` is how many, where they come from nowhere;
    `like_pandas` reads csv cells as SyGra does."""
    if config.source is None:
        number = wanted if wanted is not None else config.num_records
        if number is None:
            raise DataError("the graph has no data_config.source; say how many records: --num_records N")
        return Numbered([{} for _ in range(number)]), f"{number} empty records"
    opened = [_opened(source, folder, data_dir, like_pandas) for source in config.source]
    changed = [
        (_changed(rows, changes, source), name)
        for (rows, name), changes, source in zip(opened, transforms, config.source, strict=True)
    ]
    name = digest("\n".join(name for _, name in changed).encode())
    rows = changed[0][0]
    if len(config.source) > 1:
        rows = spill_rows(joined(config.source, [list(each) for each, _ in changed]))
    return Numbered(rows, config.id_column), name


def column_values(
    source: SourceConfig,
    column: str,
    changes: Sequence[Transform],
    *,
    folder: str | None,
    data_dir: str | None,
    like_pandas: bool = False,
) -> tuple[list[Any], str]:
    """The values of one column of a source, and a name for its content."""
    rows, name = _opened(source, folder, data_dir, like_pandas)
    rows = _changed(rows, changes, source)
    if not len(rows) or column not in columns_of(rows):
        known = ", ".join(columns_of(rows)) if len(rows) else "no records"
        raise DataError(f"a sampler wants the column {column!r}, and its source has: {known}")
    return [row[column] for row in rows], name


class Numbered(Sequence[Row]):
    """Records with an `id`: their own, that of a column, or their number."""

    def __init__(self, rows: Sequence[Row], column: str | None = None) -> None:
        self._rows, self._column = rows, column
        own = columns_of(rows)
        if column is not None and len(rows) and column not in own:
            raise DataError(f"id_column: the records have no column {column!r}; they have: {', '.join(own)}")
        self.columns = tuple(dict.fromkeys((*own, "id")))

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return (self._with_id(number, row) for number, row in enumerate(self._rows))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self._with_id(range(len(self))[index], self._rows[index])

    def _with_id(self, number: int, row: Row) -> Row:
        if row.get("id") is not None:
            return row
        return {**row, "id": row[self._column] if self._column is not None else number}


def _opened(source: SourceConfig, folder: str | None, data_dir: str | None, like_pandas: bool) -> Opened:
    if source.type == "disk":
        if not source.file_path:
            raise DataError("data_config.source: a source of the type disk needs file_path")
        files = _files(source.file_path, folder, data_dir)
        options = {"encoding": source.encoding} if source.encoding else {}
        return Rows(files, options, like_pandas=like_pandas), " ".join(file_digest(file) for file in files)
    if not source.repo_id:
        raise DataError("data_config.source: a source of the type hf needs repo_id")
    token = {"token": source.token} if source.token else {}
    config = TaskConfig(task="", dataset_path=source.repo_id, dataset_name=source.config_name, dataset_kwargs=token)
    found = data_set(config, folder=folder, data_dir=data_dir)
    splits = [source.split] if isinstance(source.split, str) else list(source.split)
    parts = [found.split(split) for split in splits]
    files = [file for part in parts for file in getattr(part, "files", ())]
    name = " ".join([found.name, *splits, *map(file_digest, files)])
    return (parts[0] if len(parts) == 1 else spill_rows(list(chain(*parts)))), name


def _files(written: str, folder: str | None, data_dir: str | None) -> list[Path]:
    return find_files(os.path.expanduser(written), folder, data_dir)  # noqa: PTH111  # a text: it may be a pattern


def _changed(rows: Sequence[Row], changes: Sequence[Transform], source: SourceConfig) -> Sequence[Row]:
    """The rows of a source after its transformations, with the columns that are wanted."""
    if not changes and source.fields is None:
        return rows
    made: Sequence[Mapping[str, Any]] = rows
    if changes:
        whole = [dict(row) for row in rows]
        for change in changes:
            whole = change(whole)
            if not isinstance(whole, list):
                raise DataError(f"a transformation gave {type(whole).__name__}, and must give a list of records")
            whole = [dict(row) for row in as_rows(whole, "a transformation returned")]
        made = whole
    if source.fields is not None:
        wanted = {*source.fields, "id"}
        made = [{key: value for key, value in row.items() if key in wanted} for row in made]
    return spill_rows(made)
