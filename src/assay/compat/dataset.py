"""A small stand-in for Hugging Face's `Dataset`: the operations that helper code uses, with the same results."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]


class Dataset:
    """Rows in memory, all with the same columns. Every operation gives a new one, computed at once and in order."""

    def __init__(self, rows: Iterable[Mapping[str, Any]] = (), columns: Sequence[str] | None = None) -> None:
        made = [dict(row) for row in rows]
        self._columns = list(columns) if columns is not None else _union(made)
        self._rows = [{name: row.get(name) for name in self._columns} for row in made]
        _complete(self._rows, self._columns)

    @classmethod
    def from_list(cls, mapping: Sequence[Mapping[str, Any]], **_: Any) -> "Dataset":
        return cls(_plain(mapping))

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Sequence[Any]], **_: Any) -> "Dataset":
        names = list(mapping)
        columns = [_plain(list(mapping[name])) for name in names]
        return cls((dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)), names)

    @classmethod
    def from_generator(
        cls, generator: Callable[..., Iterable[Mapping[str, Any]]], gen_kwargs: Any = None, **_: Any
    ) -> "Dataset":
        return cls(_plain(list(generator(**(gen_kwargs or {})))))

    @classmethod
    def from_pandas(cls, df: Any, **_: Any) -> "Dataset":
        return cls(_plain(df.to_dict("records")), [str(name) for name in df.columns])

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    @property
    def features(self) -> dict[str, Any]:
        return dict.fromkeys(self._columns)

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
        return (dict(row) for row in self._rows)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self._columns:
                raise KeyError(f"Column {key} not in the dataset. Current columns in the dataset: {self._columns}")
            return [row[key] for row in self._rows]
        if isinstance(key, slice):
            return _as_columns(self._rows[key], self._columns)
        if isinstance(key, int | np.integer):
            return dict(self._rows[int(key)])
        return _as_columns([self._rows[int(index)] for index in key], self._columns)

    def __repr__(self) -> str:
        return f"Dataset({{\n    features: {self._columns},\n    num_rows: {len(self._rows)}\n}})"

    def map(  # noqa: PLR0913  # Hugging Face's signature
        self,
        function: Callable[..., Any],
        with_indices: bool = False,
        input_columns: str | Sequence[str] | None = None,
        batched: bool = False,
        batch_size: int | None = 1000,
        remove_columns: str | Sequence[str] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> "Dataset":
        """Each row with what a function adds or changes."""
        removed = [remove_columns] if isinstance(remove_columns, str) else list(remove_columns or [])
        call = _caller(function, input_columns, with_indices, dict(fn_kwargs or {}))
        if batched:
            return self._map_batches(call, removed, batch_size or max(len(self), 1))
        made, names = [], [name for name in self._columns if name not in removed]
        for number, row in enumerate(self._rows):
            result = call(dict(row), number)
            new = _plain(dict(result)) if result is not None else {}
            names += [name for name in new if name not in names]
            made.append({**{name: value for name, value in row.items() if name not in removed}, **new})
        return Dataset(made, names)

    def _map_batches(self, call: Callable[[Any, Any], Any], removed: Sequence[str], size: int) -> "Dataset":
        made: list[Row] = []
        names = [name for name in self._columns if name not in removed]
        for start in range(0, len(self._rows), size):
            batch = self._rows[start : start + size]
            result = _plain(dict(call(_as_columns(batch, self._columns), list(range(start, start + len(batch)))) or {}))
            length = len(next(iter(result.values()))) if result else len(batch)
            kept = {name: [row[name] for row in batch] for name in names} if length == len(batch) else {}
            columns = {**{name: values for name, values in kept.items() if name not in removed}, **result}
            names = list(dict.fromkeys([*[name for name in names if name in columns], *columns]))
            made += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return Dataset(made, names)

    def filter(
        self,
        function: Callable[..., Any] | None = None,
        with_indices: bool = False,
        input_columns: str | Sequence[str] | None = None,
        batched: bool = False,
        fn_kwargs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> "Dataset":
        """The rows that a function accepts."""
        call = _caller(function or bool, input_columns, with_indices, dict(fn_kwargs or {}))
        if batched:
            kept = call(_as_columns(self._rows, self._columns), list(range(len(self._rows))))
        else:
            kept = [call(dict(row), number) for number, row in enumerate(self._rows)]
        return Dataset((row for row, keep in zip(self._rows, kept, strict=True) if keep), self._columns)

    def select(self, indices: Iterable[int], **_: Any) -> "Dataset":
        return Dataset((self._rows[int(index)] for index in indices), self._columns)

    def shuffle(self, seed: int | None = None, generator: Any = None, **_: Any) -> "Dataset":
        """The rows in the order that Hugging Face's shuffle gives for the same seed."""
        return self.select(_generator(seed, generator).permutation(len(self._rows)))

    def train_test_split(
        self, test_size: float | int | None = None, train_size: float | int | None = None, shuffle: bool = True,
        seed: int | None = None, generator: Any = None, **_: Any,
    ) -> "DatasetDict":  # fmt: skip
        n = len(self._rows)
        tests = _part(test_size, n, up=True) if test_size is not None else None
        trains = _part(train_size, n, up=False) if train_size is not None else None
        if tests is None:
            tests = n - trains if trains is not None else _part(0.25, n, up=True)
        trains = n - tests if trains is None else trains
        if not shuffle:
            return DatasetDict(train=self.select(range(trains)), test=self.select(range(trains, trains + tests)))
        order = _generator(seed, generator).permutation(n)
        return DatasetDict(train=self.select(order[tests : tests + trains]), test=self.select(order[:tests]))

    def sort(self, column_names: str | Sequence[str], reverse: bool = False, **_: Any) -> "Dataset":
        names = [column_names] if isinstance(column_names, str) else list(column_names)
        order = sorted(
            range(len(self._rows)), key=lambda n: tuple(self._rows[n][name] for name in names), reverse=reverse
        )
        return self.select(order)

    def unique(self, column: str) -> list[Any]:
        return list(dict.fromkeys(self[column]))

    def rename_column(self, original_column_name: str, new_column_name: str, **_: Any) -> "Dataset":
        return self.rename_columns({original_column_name: new_column_name})

    def rename_columns(self, column_mapping: Mapping[str, str], **_: Any) -> "Dataset":
        names = [column_mapping.get(name, name) for name in self._columns]
        return Dataset((dict(zip(names, row.values(), strict=True)) for row in self._rows), names)

    def remove_columns(self, column_names: str | Sequence[str], **_: Any) -> "Dataset":
        removed = [column_names] if isinstance(column_names, str) else list(column_names)
        return self.select_columns([name for name in self._columns if name not in removed])

    def select_columns(self, column_names: str | Sequence[str], **_: Any) -> "Dataset":
        names = [column_names] if isinstance(column_names, str) else list(column_names)
        return Dataset(({name: row[name] for name in names} for row in self._rows), names)

    def add_column(self, name: str, column: Sequence[Any], **_: Any) -> "Dataset":
        values = _plain(list(column))
        rows = ({**row, name: value} for row, value in zip(self._rows, values, strict=True))
        return Dataset(rows, [*self._columns, name])

    def add_item(self, item: Mapping[str, Any], **_: Any) -> "Dataset":
        return Dataset([*self._rows, _plain(dict(item))])

    def take(self, n: int) -> "Dataset":
        return self.select(range(min(n, len(self))))

    def skip(self, n: int) -> "Dataset":
        return self.select(range(n, len(self)))

    def shard(self, num_shards: int, index: int, contiguous: bool = True, **_: Any) -> "Dataset":
        if not contiguous:
            return self.select(range(index, len(self), num_shards))
        size, more = divmod(len(self), num_shards)
        start = size * index + min(index, more)
        return self.select(range(start, start + size + (index < more)))

    def flatten_indices(self, **_: Any) -> "Dataset":
        return self

    def with_format(self, *_: Any, **__: Any) -> "Dataset":
        return self

    def cast(self, *_: Any, **__: Any) -> "Dataset":
        return self

    def cast_column(self, *_: Any, **__: Any) -> "Dataset":
        return self

    def to_list(self) -> list[Row]:
        return [dict(row) for row in self._rows]

    def to_dict(self, **_: Any) -> dict[str, list[Any]]:
        return _as_columns(self._rows, self._columns)

    def to_pandas(self, **_: Any) -> Any:
        import pandas as pd

        return pd.DataFrame(self._rows, columns=self._columns)

    def iter(self, batch_size: int, **_: Any) -> Iterator[dict[str, list[Any]]]:
        for start in range(0, len(self._rows), batch_size):
            yield _as_columns(self._rows[start : start + batch_size], self._columns)


class DatasetDict(dict[str, Dataset]):
    """Splits by name; an operation is done to each."""

    def __getattr__(self, name: str) -> Callable[..., "DatasetDict"]:
        if name.startswith("_") or not hasattr(Dataset, name):
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


def concatenate_datasets(dsets: Sequence[Dataset], axis: int = 0, **_: Any) -> Dataset:
    """Several data sets below each other, or beside each other."""
    if axis == 1:
        names = [name for each in dsets for name in each.column_names]
        return Dataset(({k: v for row in rows for k, v in row.items()} for rows in zip(*dsets, strict=True)), names)
    return Dataset(row for each in dsets for row in each)


def _caller(
    function: Callable[..., Any], columns: str | Sequence[str] | None, indices: bool, kwargs: Mapping[str, Any]
) -> Callable[[Any, Any], Any]:
    names = [columns] if isinstance(columns, str) else columns

    def call(row: Any, number: Any) -> Any:
        values = [row] if names is None else [row[name] for name in names]
        return function(*values, *([number] if indices else []), **kwargs)

    return call


def _generator(seed: int | None, generator: Any) -> Any:
    if generator is not None:
        return generator
    if seed is None:  # as Hugging Face does: from the state of numpy's global numbers, which moves on by one
        state: Any = np.random.get_state()
        words, position = state[1], state[2]
        seed = int(words[position]) if position < 624 else int(words[0])
        np.random.random()
    return np.random.default_rng(seed)


def _part(size: float | int, n: int, *, up: bool) -> int:
    if isinstance(size, int):
        return size
    return int(np.ceil(size * n)) if up else int(np.floor(size * n))


def _union(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _as_columns(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in names}


def _plain(value: Any) -> Any:
    """A value as it comes back from Arrow: lists for tuples and arrays, Python's numbers for numpy's."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def _complete(rows: Sequence[Row], names: Sequence[str]) -> None:
    """Mappings of one column have the same keys in every row, None where one had not: they are one type to Arrow."""
    for name in names:
        keys = [row[name].keys() for row in rows if isinstance(row[name], dict)]
        if keys and any(each != keys[0] for each in keys):
            every = dict.fromkeys(key for each in keys for key in each)
            for row in rows:
                if isinstance(row[name], dict):
                    row[name] = {**every, **row[name]}
