"""Where the records of a graph come from, and the values that its samplers take in turn."""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from assay.config.source import digest
from assay.config.task import TaskConfig
from assay.errors import ConfigError, Problem, check_each
from assay.graphs.reading import GraphFile
from assay.graphs.spec import Record, SampledColumn, SourceConfig, Transformation, Value
from assay.graphs.sygra import clone_around
from assay.graphs.transforms import TRANSFORMS, DataTransform
from assay.records import JSONDict
from assay.samples.data import Split, columns_of, data_set, find_files
from assay.samples.rows import DataError, Row, Rows, as_rows, file_digest, spill_rows
from assay.scoring.helper_code import Helpers
from assay.tasks.settings import Settings
from assay.user_code import place_of, user_code

Transform = Callable[[list[JSONDict]], list[JSONDict]]


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
        return self._with_id(range(len(self))[index], self._rows[index])

    def _with_id(self, number: int, row: Row) -> Row:
        if row.get("id") is not None:
            return row
        return {**row, "id": row[self._column] if self._column is not None else number}


def _changed(rows: Sequence[Row], changes: Sequence[Transform], source: SourceConfig) -> Sequence[Row]:
    """The rows of a source after its transformations, with the columns that are wanted."""
    if not changes and source.fields is None:
        return rows
    changed: Sequence[Record] = rows
    if changes:
        whole = [dict(row) for row in rows]
        for change in changes:
            whole = change(whole)
            if not isinstance(whole, list):
                raise DataError(f"a transformation must return a list of records, got {type(whole).__name__}")
            whole = [dict(row) for row in as_rows(whole, "a transformation returned")]
        changed = whole
    if source.fields is not None:
        columns = {*source.fields, "id"}
        changed = [{key: value for key, value in row.items() if key in columns} for row in changed]
    return spill_rows(changed)


def joined(sources: Sequence[SourceConfig], tables: Sequence[Sequence[Value]]) -> list[JSONDict]:
    """One list of records: below each other (`vstack`), or beside the primary ones, with columns called `alias->column`."""
    kinds = [source.join_type for source in sources]
    if any(source.alias is None for source in sources) or None in kinds:
        raise DataError("data_config.source: every one of several sources needs alias and join_type")
    if set(kinds) == {"vstack"}:
        shared = set.intersection(*({*table[0]} if table else set[str]() for table in tables))
        return [{key: row[key] for key in row if key in shared} for table in tables for row in table]
    if "vstack" in kinds or kinds.count("primary") != 1:
        raise DataError("data_config.source: exactly one of several sources is primary, or all are vstack")
    at = kinds.index("primary")
    records = [_named(row, sources[at]) for row in tables[at]]
    for source, table in zip(sources, tables, strict=True):
        if source.join_type != "primary":
            records = _beside(records, sources[at], source, [_named(row, source) for row in table])
    return records


def _named(row: JSONDict, source: SourceConfig) -> JSONDict:
    return {f"{source.alias}->{key}": value for key, value in row.items()}


def _beside(
    records: list[JSONDict], primary: SourceConfig, source: SourceConfig, others: list[JSONDict]
) -> list[JSONDict]:
    if not others:
        raise DataError(f"data_config.source: {source.alias!r} has no records to join")
    if source.join_type == "cross":
        return [{**row, **other} for row in records for other in others]
    if source.join_type == "sequential":
        return [{**row, **others[number % len(others)]} for number, row in enumerate(records)]
    if source.join_type == "random":
        drawn = random.Random(f"join {source.alias}")
        return [{**row, **drawn.choice(others)} for row in records]
    if not source.primary_key or not source.join_key:
        raise DataError(f"data_config.source: {source.alias!r} needs primary_key and join_key")
    left, right = f"{primary.alias}->{source.primary_key}", f"{source.alias}->{source.join_key}"
    for key, row in ((left, records[0] if records else {left: None}), (right, others[0])):
        if key not in row:
            raise DataError(f"data_config.source: there is no column {key!r} to join by; there are: {', '.join(row)}")
    by_key: dict[Any, list[JSONDict]] = {}
    for other in others:
        by_key.setdefault(other[right], []).append(other)
    nothing = [dict.fromkeys(others[0])]
    return [{**row, **other} for row in records for other in by_key.get(row[left], nothing)]


def _named_sources(file: GraphFile) -> list[tuple[SourceConfig, tuple[str | int, ...]]]:
    """The sources of the records, each with the way to it in the file."""
    written: Any = file.fields.get("data_config") or {}
    is_list = isinstance(written.get("source"), list)
    sources = enumerate(file.config.data_config.source or ())
    return [(source, ("data_config", "source", *([number] if is_list else []))) for number, source in sources]


@dataclass
class GraphSources:
    """Reads the sources of a graph, with their transforms; `names` identify the content of other sources than the records."""

    settings: Settings
    helpers: Helpers
    names: list[str] = field(default_factory=list)

    def records(self, file: GraphFile) -> tuple[Split, str]:
        """The records, and a name for their content. Where no source is named, the run or the file says how many there are."""
        changes = self.transforms(file)
        config, run = file.config.data_config, self.settings.run
        if not config.source:
            is_number = run.limit is not None and run.limit >= 1
            number = int(run.limit or 0) + run.start_index if is_number else config.num_records
            if number is None:
                raise DataError("the graph has no data_config.source; give the number of records: --num_records N")
            return Numbered([{} for _ in range(number)]), f"{number} empty records"
        tables = [self._table(file, *table) for table in zip(config.source, changes, strict=True)]
        name = digest("\n".join(name for _, name in tables).encode())
        rows = tables[0][0]
        if len(tables) > 1:
            rows = spill_rows(joined(config.source, [list(table) for table, _ in tables]))
        return Numbered(rows, config.id_column), name

    def _table(self, file: GraphFile, source: SourceConfig, changes: Sequence[Transform]) -> tuple[Sequence[Row], str]:
        rows, name = self.open(source, file.folder)
        return _changed(rows, changes, source), name

    def open(self, source: SourceConfig, folder: str | None) -> tuple[Sequence[Row], str]:
        """The rows of a source as they are, and a name for their content."""
        if source.type == "disk":
            if not source.file_path:
                raise DataError("data_config.source: a source of the type disk needs file_path")
            files = self._files(source.file_path, folder)
            options = {"encoding": source.encoding} if source.encoding else {}
            return Rows(files, options, dialect=self.settings.dialect), " ".join(map(file_digest, files))
        if not source.repo_id:
            raise DataError("data_config.source: a source of the type hf needs repo_id")
        token = {"token": source.token} if source.token else {}
        config = TaskConfig(task="", dataset_path=source.repo_id, dataset_name=source.config_name, dataset_kwargs=token)
        data = data_set(config, folder=folder, data_dir=self.settings.run.data_dir)
        splits = [source.split] if isinstance(source.split, str) else list(source.split)
        parts = [data.split(split) for split in splits]
        files = [file for part in parts for file in getattr(part, "files", ())]
        name = " ".join([data.name, *splits, *map(file_digest, files)])
        return (parts[0] if len(parts) == 1 else spill_rows(list(chain(*parts)))), name

    def _files(self, written: str, folder: str | None) -> list[Path]:
        """The files of a source. In SyGra's repository paths begin at its top, whichever folder is the current one."""
        text, data_dir = os.path.expanduser(written), self.settings.run.data_dir  # noqa: PTH111  # it may be a pattern
        try:
            return find_files(text, folder, data_dir)
        except DataError:
            top = clone_around(Path(folder).resolve()) if folder is not None else None
            if top is None or not text.startswith("tasks/"):
                raise
            return find_files(str(top / text), folder, data_dir)

    def missing_files(self, file: GraphFile) -> Iterator[Problem]:
        """Data files that the sources name, and that are not there."""
        for source, path in _named_sources(file):
            if source.type == "disk" and source.file_path:
                try:
                    self._files(source.file_path, file.folder)
                except DataError as error:
                    yield Problem(file.place(*path, "file_path"), str(error), "put the file there, or correct its name")

    def column(self, file: GraphFile, sampled: SampledColumn, at: tuple[str | int, ...]) -> Sequence[Value]:
        """The values that a sampler takes in turn."""
        rows, name = self._table(file, sampled.source, self._transforms(file, (sampled.source, at)))
        columns = columns_of(rows) if len(rows) else ()
        if sampled.column not in columns:
            known = ", ".join(columns) or "no records"
            raise DataError(f"a sampler needs the column {sampled.column!r}, and its source has: {known}")
        self.names.append(name)
        return [row[sampled.column] for row in rows]

    def named(self, records: str) -> str:
        """A name for all that was read."""
        return digest("\n".join([records, *self.names]).encode()) if self.names else records

    def transforms(self, file: GraphFile) -> list[list[Transform]]:
        """The changes of every source of the records."""
        return check_each(partial(self._transforms, file), _named_sources(file))

    def _transforms(self, file: GraphFile, named: tuple[SourceConfig, tuple[str | int, ...]]) -> list[Transform]:
        source, at = named
        written = enumerate(source.transformations)
        return check_each(lambda one: self._transform(file, one[1], (*at, "transformations", one[0])), written)

    def _transform(self, file: GraphFile, written: Transformation, at: tuple[str | int, ...]) -> Transform:
        place, params = file.place(*at, "transform"), dict(written.params)
        kind: Any = written.transform
        if kind not in TRANSFORMS and "." not in kind:
            TRANSFORMS.find(kind, place)  # refuses it, with the nearest names
        if kind not in TRANSFORMS:
            kind = self.helpers.dotted(written.transform, file.folder, place)
            if not (isinstance(kind, type) and hasattr(kind, "transform")):
                raise ConfigError.at(place, f"{written.transform} has no `transform`", "derive it from DataTransform")
        change = TRANSFORMS.bind(kind, {}, place)
        if isinstance(change, DataTransform):
            change.run_dialect = self.settings.dialect
            problems = change.problems(params, file.place(*at))
            if problems:
                raise ConfigError(problems)
        guard = user_code(place_of(written.transform, change.transform), DataError)

        def transform(rows: list[JSONDict]) -> list[JSONDict]:
            with guard:
                return copy_context().run(change.transform, rows, params)

        return transform
