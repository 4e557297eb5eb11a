"""A small stand-in for Hugging Face's `Dataset`: the operations that helper code uses, with the same results."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.compat.features import (
    Cell,
    ClassLabel,
    Feature,
    Features,
    Ignored,
    cast,
    complete,
    copied,
    inferred,
    plain_list,
    strictly_typed,
    typed,
    typed_as_before,
)
from assay.config.option import YAMLMapping
from assay.records import Document, UserFunction

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Cell]
Columns = dict[str, list[Cell]]
Names = str | Sequence[str]
FeaturesByName = Mapping[str, Feature]


class Dataset:
    """Rows in memory, all with the same columns. Every operation gives a new one, computed at once and in order.

    What is handed out is a copy, as the library makes one each time: helper code may shuffle the choices of a document
    in place. The rows themselves are never written to, so that data sets can share them.
    """

    def __init__(self, rows: Iterable[Document] = (), columns: Sequence[str] | None = None) -> None:
        copies = [dict(row) for row in rows]
        self._columns = (
            list(columns) if columns is not None else list(dict.fromkeys(name for row in copies for name in row))
        )
        self._rows = [{name: row.get(name) for name in self._columns} for row in copies]
        self._features: dict[str, Feature] = {}
        self.split: str | None = None
        complete(self._rows, self._columns)

    @classmethod
    def _of(cls, rows: list[Row], columns: Sequence[str], features: FeaturesByName | None = None) -> "Dataset":
        """A data set of rows that have these columns already; `features` are those that were set explicitly."""
        data = cls((), columns)
        data._rows = rows
        data._features = {name: each for name, each in (features or {}).items() if name in data._columns}
        return data

    @classmethod
    def _of_columns(cls, columns: Columns, features: FeaturesByName | None = None) -> "Dataset":
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns are not of one length: {lengths}")
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return cls._of(rows, list(columns), features)

    @classmethod
    def from_list(
        cls,
        mapping: Sequence[Document],
        features: FeaturesByName | None = None,
        info: Ignored = None,
        split: str | None = None,
    ) -> "Dataset":
        """The columns of the first row, for all rows."""
        names = list(mapping[0]) if mapping else []
        return cls.from_dict({name: [row.get(name) for row in mapping] for name in names}, features, info, split)

    @classmethod
    def from_dict(
        cls, mapping: Mapping[str, Sequence[Cell]], features: FeaturesByName | None = None, info: Ignored = None,  # noqa: ARG003
        split: str | None = None,
    ) -> "Dataset":  # fmt: skip
        types = dict(features or {})
        columns = {
            name: cast(values, types[name]) if name in types else strictly_typed(plain_list(values))
            for name, values in mapping.items()
        }
        data = cls._of_columns(columns, types)
        data.split = split
        return data

    @classmethod
    def from_generator(
        cls, generator: Callable[..., Iterable[Document]], features: FeaturesByName | None = None, *_: Ignored,
        gen_kwargs: YAMLMapping | None = None, **__: Ignored,
    ) -> "Dataset":  # fmt: skip
        """The columns of the first row, which the others must have."""
        rows = list(generator(**(gen_kwargs or {})))
        columns = {name: typed([row[name] for row in rows]) for name in (rows[0] if rows else ())}
        data = cls._of_columns(columns)
        return data.cast(features) if features is not None else data

    @classmethod
    def from_pandas(
        cls, df: "pd.DataFrame", features: FeaturesByName | None = None, info: Ignored = None, split: str | None = None,  # noqa: ARG003
        preserve_index: bool | None = None,
    ) -> "Dataset":  # fmt: skip
        import pyarrow as pa

        table = pa.Table.from_pandas(df, preserve_index=preserve_index)
        data = cls._of(table.to_pylist(), table.column_names)
        return data.cast(features) if features is not None else data

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    @cached_property
    def features(self) -> Features:
        """The types of the columns: as set, else as Arrow infers them."""
        known = self._features
        return Features(
            {name: known[name] if name in known else inferred(self._column(name)) for name in self._columns}
        )

    @property
    def num_rows(self) -> int:
        return len(self._rows)

    @property
    def num_columns(self) -> int:
        return len(self._columns)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._rows), len(self._columns)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return (self._fresh(row) for row in self._rows) if self._nested else (dict(row) for row in self._rows)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self._columns:
                raise KeyError(f"Column {key} not in the dataset. Current columns in the dataset: {self._columns}")
            return [copied(row[key]) for row in self._rows] if key in self._nested else self._column(key)
        if isinstance(key, int | np.integer):
            return self._fresh(self._rows[int(key)])
        return self._batch(self._rows[key] if isinstance(key, slice) else [self._rows[int(index)] for index in key])

    def __repr__(self) -> str:
        return f"Dataset({{\n    features: {self._columns},\n    num_rows: {len(self._rows)}\n}})"

    def _column(self, name: str) -> list[Cell]:
        return [row[name] for row in self._rows]

    @cached_property
    def _nested(self) -> list[str]:
        """The columns with lists or mappings in them: of these a reader gets copies."""
        return [name for name in self._columns if not {list, dict}.isdisjoint(map(type, self._column(name)))]

    def _fresh(self, row: Row) -> Row:
        copy = dict(row)
        for name in self._nested:
            copy[name] = copied(copy[name])
        return copy

    def _batch(self, rows: Sequence[Row]) -> Columns:
        nested = self._nested
        return {
            name: [copied(row[name]) for row in rows] if name in nested else [row[name] for row in rows]
            for name in self._columns
        }

    def map(  # noqa: PLR0913  # Hugging Face's signature
        self,
        function: UserFunction | None = None,
        with_indices: bool = False,
        with_rank: bool = False,
        input_columns: Names | None = None,
        batched: bool = False,
        batch_size: int | None = 1000,
        drop_last_batch: bool = False,
        remove_columns: Names | None = None,
        *_: Ignored,
        features: FeaturesByName | None = None,
        fn_kwargs: YAMLMapping | None = None,
        **__: Ignored,
    ) -> "Dataset":
        """Each row with what a function adds or changes."""
        removed = self._known(remove_columns or [])
        if function is None or not self._rows:
            return self.remove_columns(removed)
        call = caller(function, input_columns, fn_kwargs, indices=with_indices, rank=with_rank)
        before = Before(self._columns, self._column, self._features, removed)
        if batched:
            size = batch_size or len(self._rows)
            ends = range(size, len(self._rows) + (1 if drop_last_batch else size), size)
            batches = [range(end - size, min(end, len(self._rows))) for end in ends]
            columns = after_batches(before, batches, [call(self[each], list(each)) for each in batches])
        else:
            columns = after_rows(before, [call(row, number) for number, row in enumerate(self)])
        data = self if columns is None else Dataset._of_columns(columns, self._features)
        return data.cast(features) if features is not None else data

    def filter(  # noqa: PLR0913  # Hugging Face's signature
        self,
        function: UserFunction | None = None,
        with_indices: bool = False,
        with_rank: bool = False,
        input_columns: Names | None = None,
        batched: bool = False,
        batch_size: int | None = 1000,
        *_: Ignored,
        fn_kwargs: YAMLMapping | None = None,
        **__: Ignored,
    ) -> "Dataset":  # fmt: skip
        """The rows that a function accepts."""
        call = caller(function or bool, input_columns, fn_kwargs, indices=with_indices, rank=with_rank)
        kept: list[Any] = []
        if batched:
            size = batch_size or max(len(self._rows), 1)
            for start in range(0, len(self._rows), size):
                rows = self._rows[start : start + size]
                kept += list(call(self._batch(rows), list(range(start, start + len(rows)))))
        else:
            kept = [call(row, number) for number, row in enumerate(self)]
        return self._picked([row for row, keep in zip(self._rows, kept, strict=True) if keep])

    def _picked(self, rows: list[Row]) -> "Dataset":
        return Dataset._of(rows, self._columns, self._features)

    def _known(self, names: Names) -> list[str]:
        """The names as a list; an unknown column is refused."""
        listed = [names] if isinstance(names, str) else list(names)
        missing = [name for name in listed if name not in self._columns]
        if missing:
            raise ValueError(f"Column name {missing} not in the dataset. Current columns: {self._columns}")
        return listed

    def select(self, indices: Iterable[int], **_: Ignored) -> "Dataset":
        return self._picked([self._rows[int(index)] for index in indices])

    def shuffle(self, seed: int | None = None, generator: np.random.Generator | None = None, **_: Ignored) -> "Dataset":
        """The rows in the order that Hugging Face's shuffle gives for the same seed."""
        return self.select(random_numbers(seed, generator).permutation(len(self)))

    def train_test_split(
        self, test_size: float | int | None = None, train_size: float | int | None = None, shuffle: bool = True,
        seed: int | None = None, generator: np.random.Generator | None = None, **_: Ignored,
    ) -> "DatasetDict":  # fmt: skip
        trains, tests = split_sizes(len(self), test_size, train_size)
        if not shuffle:
            return DatasetDict(train=self.select(range(trains)), test=self.select(range(trains, trains + tests)))
        order = random_numbers(seed, generator).permutation(len(self))
        return DatasetDict(train=self.select(order[tests : tests + trains]), test=self.select(order[:tests]))

    def sort(
        self, column_names: Names, reverse: bool | Sequence[bool] = False, null_placement: str = "at_end", **_: Ignored
    ) -> "Dataset":
        """The rows in Arrow's order, which keeps the order of equal ones and puts None at the end."""
        names = self._known(column_names)
        down = [reverse] * len(names) if isinstance(reverse, bool) else list(reverse)
        if len(down) != len(names):
            raise ValueError(f"reverse has {len(down)} entries for {len(names)} columns")
        order = list(range(len(self)))
        for name, descending in reversed(list(zip(names, down, strict=True))):
            order = sorted_places(order, self._column(name), descending, null_placement in ("at_start", "first"))
        return self.select(order)

    def unique(self, column: str) -> list[Cell]:
        return list(dict.fromkeys(self[column]))

    def rename_column(self, original_column_name: str, new_column_name: str, **_: Ignored) -> "Dataset":
        return self.rename_columns({original_column_name: new_column_name})

    def rename_columns(self, column_mapping: Mapping[str, str], **_: Ignored) -> "Dataset":
        self._known(list(column_mapping))
        names = [column_mapping.get(name, name) for name in self._columns]
        if len(set(names)) < len(names):
            raise ValueError(f"two columns would have one name: {names}")
        features = {column_mapping.get(name, name): each for name, each in self._features.items()}
        return Dataset._of([dict(zip(names, row.values(), strict=True)) for row in self._rows], names, features)

    def remove_columns(self, column_names: Names, **_: Ignored) -> "Dataset":
        removed = self._known(column_names)
        return self.select_columns([name for name in self._columns if name not in removed])

    def select_columns(self, column_names: Names, **_: Ignored) -> "Dataset":
        names = self._known(column_names)
        return Dataset._of([{name: row[name] for name in names} for row in self._rows], names, self._features)

    def add_column(
        self, name: str, column: Sequence[Cell], *_: Ignored, feature: Feature | None = None, **__: Ignored
    ) -> "Dataset":
        if name in self._columns:
            raise ValueError(f"there is a column {name!r} already")
        values = strictly_typed(plain_list(column)) if feature is None else cast(column, feature)
        rows = [{**row, name: value} for row, value in zip(self._rows, values, strict=True)]
        return Dataset._of(
            rows, [*self._columns, name], {**self._features, name: feature} if feature else self._features
        )

    def add_item(self, item: Document, **_: Ignored) -> "Dataset":
        """One more row, of the types the columns have."""
        names = [*self._columns, *(name for name in item if name not in self._columns)]
        columns: Columns = {}
        for name in names:
            before = self._column(name) if name in self._columns else [None] * len(self._rows)
            columns[name] = [*before, *typed_as_before([item.get(name)], before, self._features.get(name))]
        return Dataset._of_columns(columns, self._features)

    def take(self, n: int) -> "Dataset":
        return self.select(range(min(n, len(self))))

    def skip(self, n: int) -> "Dataset":
        return self.select(range(n, len(self)))

    def repeat(self, num_times: int) -> "Dataset":
        return self._picked(self._rows * max(num_times, 0))

    def shard(self, num_shards: int, index: int, contiguous: bool = True, **_: Ignored) -> "Dataset":
        if not contiguous:
            return self.select(range(index, len(self), num_shards))
        size, more = divmod(len(self), num_shards)
        start = size * index + min(index, more)
        return self.select(range(start, start + size + (index < more)))

    def flatten_indices(self, **_: Ignored) -> "Dataset":
        return self

    def with_format(self, *_: Ignored, **__: Ignored) -> "Dataset":
        return self

    def cast(self, features: FeaturesByName, **_: Ignored) -> "Dataset":
        if sorted(features) != sorted(self._columns):
            raise ValueError(f"the features are of {list(features)}, and the columns are {self._columns}")
        return Dataset._of_columns({name: cast(self._column(name), features[name]) for name in features}, features)

    def cast_column(self, column: str, feature: Feature, **_: Ignored) -> "Dataset":
        self._known(column)
        columns = {name: self._column(name) for name in self._columns}
        return Dataset._of_columns(
            {**columns, column: cast(columns[column], feature)}, self._features | {column: feature}
        )

    def class_encode_column(self, column: str, **_: Ignored) -> "Dataset":
        """A column as numbers of its values, which are the names in their order."""
        texts = [value if value is None else str(value) for value in self._column(*self._known(column))]
        label = ClassLabel(names=sorted({text for text in texts if text is not None}))
        return self.remove_columns(column).add_column(column, texts, feature=label).select_columns(self._columns)

    def to_list(self) -> list[Row]:
        return list(self)

    def to_dict(self, **_: Ignored) -> Columns:
        return self._batch(self._rows)

    def to_pandas(self, **_: Ignored) -> "pd.DataFrame":
        import pyarrow as pa

        return pa.table({name: self._column(name) for name in self._columns}).to_pandas()

    def iter(self, batch_size: int, **_: Ignored) -> Iterator[Columns]:
        for start in range(0, len(self._rows), batch_size):
            yield self._batch(self._rows[start : start + batch_size])


class DatasetDict(dict[str, Dataset]):
    """Splits by name; an operation is done to each."""

    def __getattr__(self, name: str) -> Callable[..., "DatasetDict"]:
        if name.startswith("_") or not callable(getattr(Dataset, name, None)):
            raise AttributeError(name)
        return lambda *args, **kwargs: DatasetDict(
            {k: getattr(split, name)(*args, **kwargs) for k, split in self.items()}
        )

    @property
    def column_names(self) -> dict[str, list[str]]:
        return {name: split.column_names for name, split in self.items()}

    @property
    def num_rows(self) -> dict[str, int]:
        return {name: len(split) for name, split in self.items()}


def concatenate_datasets(dsets: Sequence[Dataset], axis: int = 0, **_: Ignored) -> Dataset:
    """Data sets below each other, or beside each other."""
    names = [name for each in dsets for name in each.column_names]
    features = {name: each.features[name] for each in dsets for name in each._features}
    if axis == 0:
        every = list(dict.fromkeys(names))
        return Dataset._of([{name: row.get(name) for name in every} for each in dsets for row in each], every, features)
    if len(set(names)) < len(names):
        raise ValueError(f"two columns would have one name: {names}")
    rows = [{k: v for row in parts for k, v in row.items()} for parts in zip(*dsets, strict=True)]
    return Dataset._of(rows, names, features)


@dataclass(frozen=True, slots=True)
class Before:
    """A data set's columns before `map`, the types that were set explicitly, and the columns to remove."""

    names: Sequence[str]
    column: Callable[[str], list[Cell]]
    features: Mapping[str, Feature]
    removed: Sequence[str]

    def order(self, result: Document) -> list[str]:
        """The columns after a function gave this: those there were in their order, then the new."""
        kept = [name for name in self.names if name in result or name not in self.removed]
        return [*kept, *(name for name in result if name not in self.names)]

    def typed(self, name: str, values: Sequence[Cell]) -> list[Cell]:
        if name not in self.names:
            return typed(values)
        return typed_as_before(values, self.column(name), self.features.get(name))


def caller(
    function: UserFunction,
    columns: str | Sequence[str] | None,
    kwargs: YAMLMapping | None,
    *,
    indices: bool,
    rank: bool,
) -> UserFunction:
    """The function as a call of a row or batch and its number or numbers. There is one process, whose rank is None."""
    names = [columns] if isinstance(columns, str) else columns
    fixed, ranks = dict(kwargs or {}), [None] if rank else []

    def call(row: Any, number: Any) -> Any:
        values = [row] if names is None else [row[name] for name in names]
        return function(*values, *([number] if indices else []), *ranks, **fixed)

    return call


def after_rows(before: Before, results: Sequence[Cell]) -> Columns | None:
    """The columns after a function gave a result for each row; None where it never gave any.

    As in the library, the first result says which columns there are: a later one must have them, and has no others.
    """
    if not _gives_results(results):
        return None
    return {
        name: before.typed(name, [result[name] for result in results]) if name in results[0] else before.column(name)
        for name in before.order(results[0])
    }


def after_batches(before: Before, batches: Sequence[range], results: Sequence[Cell]) -> Columns | None:
    """The columns after a function gave columns for each batch, which may be longer or shorter if no old one stays."""
    if not _gives_results(results):
        return None
    old = {name: before.column(name) for name in before.order(results[0]) if name in before.names}
    columns: Columns = {name: [] for name in before.order(results[0])}
    for batch, result in zip(batches, results, strict=True):
        for name, values in columns.items():
            values += plain_list(result[name]) if name in result else old[name][batch.start : batch.stop]
        if len({len(values) for values in columns.values()}) > 1:
            lengths = {name: len(values) for name, values in result.items()}
            raise ValueError(f"a batch of {len(batch)} rows was mapped to columns of other lengths: {lengths}")
    return {name: before.typed(name, values) if name in results[0] else values for name, values in columns.items()}


def _gives_results(results: Sequence[Cell]) -> bool:
    """Whether a function gives mappings; one that never gives anything is called for what it does besides."""
    if all(result is None for result in results):
        return False
    for result in results:
        if not isinstance(result, Mapping):
            raise TypeError(f"a function for map must return a mapping always or never, got {result!r:.80}")
    return True


class NamedSplit(str):
    """The name of a split, which is a text like any other."""

    def __repr__(self) -> str:
        return f"NamedSplit({str(self)!r})"


class Split(NamedSplit):
    """The usual names."""

    TRAIN = NamedSplit("train")
    TEST = NamedSplit("test")
    VALIDATION = NamedSplit("validation")
    ALL = NamedSplit("all")


def random_numbers(seed: int | None, generator: np.random.Generator | None) -> np.random.Generator:
    """The generator that shuffles, as Hugging Face makes it."""
    if generator is not None:
        return generator
    if seed is None:  # as Hugging Face does: from the state of numpy's global numbers, which moves on by one
        state: Any = np.random.get_state()
        words, position = state[1], state[2]
        seed = int(words[position]) if position < 624 else int(words[0])
        np.random.random()
    return np.random.default_rng(seed)


def sorted_places(places: Sequence[int], values: Sequence[Cell], descending: bool, nothing_first: bool) -> list[int]:
    """Places in the order of their values; equal ones stay, NaN and then None come last."""
    nothing = [place for place in places if values[place] is None]
    numberless = [place for place in places if values[place] is not None and values[place] != values[place]]
    apart = {*nothing, *numberless}
    rest = [place for place in places if place not in apart]
    rest.sort(key=values.__getitem__, reverse=descending)
    return [*nothing, *numberless, *rest] if nothing_first else [*rest, *numberless, *nothing]


def split_sizes(n: int, test_size: float | int | None, train_size: float | int | None) -> tuple[int, int]:
    """The number of rows of n for training and for testing; by default a quarter is for testing."""
    tests = _part(test_size, n, up=True) if test_size is not None else None
    trains = _part(train_size, n, up=False) if train_size is not None else None
    if tests is None:
        tests = n - trains if trains is not None else _part(0.25, n, up=True)
    trains = n - tests if trains is None else trains
    if trains + tests > n:
        raise ValueError(f"train_size and test_size are {trains + tests} together, and there are {n} rows")
    return trains, tests


def _part(size: float | int, n: int, *, up: bool) -> int:
    if (size < 1 or size >= n) if isinstance(size, int) else not 0 < size < 1:
        raise ValueError(f"{size} is neither a share between 0 and 1 nor a number of rows below {n}")
    if isinstance(size, int):
        return size
    return int(np.ceil(size * n)) if up else int(np.floor(size * n))
