"""The data set of a task: a local folder, files named in its YAML, a function, an earlier run, or the Hugging Face
hub.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from glob import escape, has_magic
from pathlib import Path
from typing import Any, Protocol

from assay.config.task import TaskConfig
from assay.dialect import OURS, Dialect
from assay.errors import installing
from assay.redaction import reveal, without_queries
from assay.samples.hub import from_hub
from assay.samples.rows import DataError, HubError, ReaderOptions, Row, Rows, TypedRows, as_rows, typed
from assay.user_code import UserCodeError, place_of, user_code

FILE_READERS = ("json", "csv", "parquet", "text")
SUFFIXES = (".jsonl", ".json", ".parquet", ".csv", ".tsv")

Split = Sequence[Row]


@dataclass(slots=True)
class DataSet:
    """The splits of a task's data set, each opened on first use."""

    name: str
    open: Callable[[str], Split]
    available: Callable[[], Sequence[str]]
    is_local: bool = True
    """Whether it can be read without a network, and without calling a user's function."""
    _opened: dict[str, Split] = field(default_factory=dict)

    def split(self, name: str) -> Split:
        if name not in self._opened:
            try:
                self._opened[name] = self.open(name)
            except OSError as error:
                raise DataError(f"{error.filename or self.name}: {error.strerror or error}") from error
        return self._opened[name]


class EarlierRun(Protocol):
    """A run whose samples are the data set."""

    @property
    def splits(self) -> Sequence[str]: ...
    def rows(self, split: str) -> Split | None: ...


ReadRun = Callable[[Path], EarlierRun]


def data_set(
    config: TaskConfig,
    *,
    folder: str | None,
    data_dir: str | None,
    dialect: Dialect = OURS,
    read_run: ReadRun | None = None,
) -> DataSet:
    """Open the data set of a task. `folder` is that of its YAML; `data_dir` is searched first, by data-set name.

    `dialect` says how values are typed.
    `read_run` opens an earlier run whose samples are the data.
    """
    try:
        if config.dataset_path == "assay" and not callable(config.custom_dataset):
            return _from_run(dict(config.dataset_kwargs or {}), folder, read_run)
        return _locate(config, folder, data_dir, dialect)
    except OSError as error:
        raise DataError(f"{error.filename or config.dataset_path}: {error.strerror or error}") from error


def _locate(config: TaskConfig, folder: str | None, data_dir: str | None, dialect: Dialect) -> DataSet:
    if callable(config.custom_dataset):
        return _from_function(config, dialect)
    kwargs = dict(config.dataset_kwargs or {})
    path = config.dataset_path
    if not path:
        raise DataError("the task has neither dataset_path nor custom_dataset")
    if data_dir is not None and path not in FILE_READERS:
        here = Path(data_dir, path, config.dataset_name or "default")
        if here.is_dir():
            return _from_folder(path, here, kwargs, dialect)
    if path in FILE_READERS:
        return _from_files(path, kwargs, folder, data_dir, dialect)
    local = _local_folder(path, folder)
    if local is not None:
        inner = local / (config.dataset_name or "default")
        return _from_folder(path, inner if inner.is_dir() else local, kwargs, dialect)
    return _from_hub(path, config.dataset_name, reveal(kwargs), data_dir, dialect)


def _from_folder(name: str, folder: Path, kwargs: ReaderOptions, dialect: Dialect) -> DataSet:
    def available() -> list[str]:
        return sorted({file.stem for file in folder.iterdir() if file.suffix in SUFFIXES})

    def open_split(split: str) -> Split:
        files = [folder / f"{split}{suffix}" for suffix in SUFFIXES if (folder / f"{split}{suffix}").is_file()]
        if not files:
            raise DataError(f"no split {split!r} in {folder}; there are: {', '.join(available()) or 'none'}")
        return Rows(files[:1], kwargs, dialect=dialect)

    return DataSet(name, open_split, available)


def _from_run(kwargs: ReaderOptions, folder: str | None, read_run: ReadRun | None) -> DataSet:
    """The samples of an earlier run: each document with its answers and scores."""
    if read_run is None or not kwargs.get("run"):
        raise DataError("dataset_path 'assay' needs the folder of a run: dataset_kwargs: {run: FOLDER}")
    where = Path(folder or ".", str(kwargs["run"]))
    run = read_run(where)

    def open_split(split: str) -> Split:
        rows = run.rows(split)
        if rows is None:
            raise DataError(f"the run {where} has no samples of a task {split!r}; it has: {', '.join(run.splits)}")
        return rows

    return DataSet(f"run {where}", open_split, lambda: run.splits)


def _from_files(
    reader: str, kwargs: ReaderOptions, folder: str | None, data_dir: str | None, dialect: Dialect
) -> DataSet:
    written = kwargs.get("data_files") or kwargs.get("data_file")
    if not written:
        raise DataError(f"dataset_path {reader!r} needs dataset_kwargs.data_files")
    by_split = written if isinstance(written, Mapping) else {"train": written}

    def open_split(split: str) -> Split:
        if split not in by_split:
            raise DataError(f"data_files has no split {split!r}; it has: {', '.join(map(str, by_split))}")
        listed = by_split[split]
        paths = [listed] if isinstance(listed, str) else listed
        if not isinstance(paths, list | tuple) or not all(isinstance(path, str) for path in paths):
            raise DataError(f"data_files.{split} must be a file or a list of files, got {listed!r:.60}")
        return Rows([file for path in paths for file in find_files(path, folder, data_dir)], kwargs, dialect=dialect)

    return DataSet(reader, open_split, lambda: [str(split) for split in by_split])


def find_files(written: str, folder: str | None, data_dir: str | None) -> list[Path]:
    """The files of a path or pattern: beside the YAML file first, then in the working directory, as lm-eval does."""
    if written.startswith("hf://datasets/"):
        if data_dir is None:
            raise DataError(
                f"{written} is on the Hugging Face hub; put it under --data_dir as _hf_files/{written[14:]}"
            )
        candidates = [str(Path(data_dir, "_hf_files", written.removeprefix("hf://datasets/")))]
    elif "://" in written:
        raise DataError(f"{without_queries(written)} is an address: download it, and name the file")
    elif os.path.isabs(written):  # noqa: PTH117  # texts, not paths yet: they may be patterns
        candidates = [written]
    else:
        candidates = [str(Path(start, written)) for start in (folder, ".") if start is not None]
    for candidate in candidates:
        files = [candidate] if os.path.isfile(candidate) else matching_files(candidate)  # noqa: PTH113  # a text
        if files:
            return [Path(file) for file in files]
    raise DataError(f"no data file {written!r}; looked for {' and '.join(candidates)}")


MOST_ENTRIES = 200_000
"""Files and folders that one pattern may look at: `/**/*` in the file of somebody else would read the whole disk."""


def matching_files(pattern: str) -> list[str]:
    """The files that a pattern matches, as `glob` with `**` finds them; refused where it looks at too many others.

    Folders count where nothing else matches: whoever reads them names the mistake.
    """
    if pattern.endswith("/"):
        return []
    start, parts = (os.sep if pattern.startswith(os.sep) else ""), [part for part in pattern.split("/") if part]
    matches = set(_PatternWalk(pattern).below(start, parts))
    files = [match for match in matches if not os.path.isdir(match)]  # noqa: PTH112  # texts
    return sorted(files or matches)


@dataclass(slots=True)
class _PatternWalk:
    """A walk through the folders that a pattern may match in."""

    pattern: str
    looked_at: int = 0
    visited: set[tuple[int, int, int]] = field(default_factory=set)
    """Folders by device and number, with the length of the rest of the pattern: links may lead to one again."""

    def below(self, folder: str, parts: Sequence[str]) -> Iterator[str]:
        if not parts:
            yield from [folder] if os.path.lexists(folder) else []  # a link that leads nowhere is named, too
        elif parts[0] == "**":
            yield from self._at_any_depth(folder, parts[1:] or ["*"])
        elif has_magic(parts[0]):
            names = [name for name in self._names(folder) if _matches(name, parts[0])]
            for name in names:
                yield from self.below(os.path.join(folder, name), parts[1:])  # noqa: PTH118
        else:
            yield from self.below(os.path.join(folder, parts[0]), parts[1:])  # noqa: PTH118

    def _at_any_depth(self, start: str, rest: Sequence[str]) -> Iterator[str]:
        waiting = [start]
        while waiting:
            folder = waiting.pop()
            try:
                status = os.stat(folder or os.curdir)  # noqa: PTH116
            except OSError:
                continue
            key = (status.st_dev, status.st_ino, len(rest))
            if not stat.S_ISDIR(status.st_mode) or key in self.visited:
                continue
            self.visited.add(key)
            yield from self.below(folder, rest)
            waiting += [os.path.join(folder, name) for name in self._names(folder) if not name.startswith(".")]  # noqa: PTH118

    def _names(self, folder: str) -> list[str]:
        try:
            names = os.listdir(folder or os.curdir)  # noqa: PTH208
        except OSError:
            return []
        self.looked_at += len(names)
        if self.looked_at > MOST_ENTRIES:
            what = f"the pattern {self.pattern!r} looks at more than {MOST_ENTRIES:,} files and folders"
            raise DataError(f"{what}: name a folder that is nearer to the data")
        return names


def _matches(name: str, part: str) -> bool:
    return fnmatch(name, part) and (part.startswith(".") or not name.startswith("."))


def _local_folder(path: str, folder: str | None) -> Path | None:
    """The folder of a data-set path, where it is a local one and not a name of the hub."""
    if path.startswith(("/", "./", "../", "~")):
        here = Path(path).expanduser() if path[0] in "/~" else Path(folder or ".", path)
        if not here.is_dir():
            raise DataError(f"no folder {here}")
        return here
    beside = Path(folder, path) if folder is not None else None
    return (
        beside
        if beside is not None and beside.is_dir() and any(matching_files(f"{escape(str(beside))}/**/*.jsonl"))
        else None
    )


def _from_function(config: TaskConfig, dialect: Dialect) -> DataSet:
    """The splits that a function returns. As in lm-eval, it gets the metadata and dataset_kwargs; the latter win."""
    function: Any = config.custom_dataset
    loaded: dict[str, Split] = {}

    def splits() -> dict[str, Split]:
        if not loaded:
            arguments = reveal({**(config.metadata or {}), **(config.dataset_kwargs or {})})
            with user_code(place_of("custom_dataset", function), DataError):
                returned = function(**arguments)
            if not isinstance(returned, Mapping):
                raise DataError(f"custom_dataset returned {type(returned).__name__}, and must return splits by name")
            loaded.update(returned)
        return loaded

    def open_split(split: str) -> Split:
        if split not in splits():
            raise DataError(f"custom_dataset returned no split {split!r}; it returned: {', '.join(map(str, splits()))}")
        rows = as_rows(splits()[split], f"custom_dataset returned for the split {split!r}")
        return rows if dialect.keeps_python_objects else _typed(rows)

    return DataSet(
        f"function {getattr(function, '__name__', 'custom_dataset')}",
        open_split,
        lambda: list(splits()),
        is_local=False,
    )


def _from_hub(path: str, name: str | None, kwargs: ReaderOptions, data_dir: str | None, dialect: Dialect) -> DataSet:
    """A data set of the hub, through the `datasets` library (extra `hub`), which respects HF_HUB_OFFLINE."""
    full_name = f"{path}/{name or 'default'}"
    options = {key: value for key, value in kwargs.items() if key != "trust_remote_code"}
    loaded: dict[str, Split] = {}

    def splits() -> dict[str, Split]:
        if not loaded:
            loaded.update(_load_from_hub(path, name, options, full_name, data_dir))
        return loaded

    def open_split(split: str) -> Split:
        if split not in splits():
            raise DataError(f"{full_name} has no split {split!r}; it has: {', '.join(splits())}")
        return splits()[split] if dialect.keeps_python_objects else _typed(splits()[split])

    return DataSet(full_name, open_split, lambda: list(splits()), is_local=False)


def _typed(rows: Split) -> Split:
    """The documents with the types that files give; a library's data set that has no others stays what it is."""
    if isinstance(rows, list | tuple):
        return [typed(row) for row in rows]
    table = getattr(getattr(rows, "data", None), "table", None)
    if table is None:
        return rows
    from assay.samples.parquet import needs_typing  # of Arrow's tables, and so not imported without one

    return TypedRows(rows, columns_of(rows)) if needs_typing(table) else rows


def _load_from_hub(
    path: str, name: str | None, options: ReaderOptions, full_name: str, data_dir: str | None
) -> Mapping[str, Split]:
    looked = f", and {Path(data_dir, full_name)} does not exist" if data_dir is not None else ""
    try:
        import datasets
    except ImportError:
        fix = f"{installing('hub')}, or put its splits under --data_dir as {full_name}/<split>.jsonl"
        raise DataError(f"{full_name} is on the Hugging Face hub{looked}: {fix}") from None
    fix = f"check the name and the network, or put its splits under --data_dir as {full_name}/<split>.jsonl"
    try:
        place = f"{full_name} cannot be loaded from the hub{looked}"
        splits: Mapping[str, Split] = from_hub(place, lambda: datasets.load_dataset(path, name, **options))
    except UserCodeError as error:
        raise HubError(f"{error} — {fix}") from error
    return splits


def columns_of(split: Iterable[Row]) -> tuple[str, ...]:
    """The column names of a split."""
    known = getattr(split, "columns", None) or getattr(split, "column_names", None)
    return tuple(known) if known is not None else tuple(next(iter(split), {}))
