"""What `map` makes of a data set's columns and of what a function gave for its rows or batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.compat.features import plain_list, typed, typed_as_before

Columns = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Before:
    """A data set's columns before `map`, the types that somebody has set, and which columns are to go."""

    names: Sequence[str]
    column: Callable[[str], list[Any]]
    features: Mapping[str, Any]
    removed: Sequence[str]

    def order(self, result: Mapping[str, Any]) -> list[str]:
        """The columns after a function gave this: those there were in their order, then the new."""
        kept = [name for name in self.names if name in result or name not in self.removed]
        return [*kept, *(name for name in result if name not in self.names)]

    def typed(self, name: str, values: Sequence[Any]) -> list[Any]:
        if name not in self.names:
            return typed(values)
        return typed_as_before(values, self.column(name), self.features.get(name))


def caller(
    function: Callable[..., Any],
    columns: str | Sequence[str] | None,
    kwargs: Mapping[str, Any] | None,
    *,
    indices: bool,
    rank: bool,
) -> Callable[[Any, Any], Any]:
    """The function as a call of a row or batch and its number or numbers. There is one process, whose rank is None."""
    names = [columns] if isinstance(columns, str) else columns
    fixed, ranks = dict(kwargs or {}), [None] if rank else []

    def call(row: Any, number: Any) -> Any:
        values = [row] if names is None else [row[name] for name in names]
        return function(*values, *([number] if indices else []), *ranks, **fixed)

    return call


def after_rows(before: Before, results: Sequence[Any]) -> Columns | None:
    """The columns after a function gave a result for each row; None where it never gave any.

    As in the library, the first result says which columns there are: a later one must have them, and has no others.
    """
    if not _gives_results(results):
        return None
    return {
        name: before.typed(name, [result[name] for result in results]) if name in results[0] else before.column(name)
        for name in before.order(results[0])
    }


def after_batches(before: Before, batches: Sequence[range], results: Sequence[Any]) -> Columns | None:
    """The columns after a function gave columns for each batch, which may be longer or shorter if no old one stays."""
    if not _gives_results(results):
        return None
    old = {name: before.column(name) for name in before.order(results[0]) if name in before.names}
    made: Columns = {name: [] for name in before.order(results[0])}
    for batch, result in zip(batches, results, strict=True):
        for name, values in made.items():
            values += plain_list(result[name]) if name in result else old[name][batch.start : batch.stop]
        if len({len(values) for values in made.values()}) > 1:
            lengths = {name: len(values) for name, values in result.items()}
            raise ValueError(f"a batch of {len(batch)} rows was mapped to columns of other lengths: {lengths}")
    return {name: before.typed(name, values) if name in results[0] else values for name, values in made.items()}


def _gives_results(results: Sequence[Any]) -> bool:
    """Whether a function gives mappings; one that never gives anything is called for what it does besides."""
    if all(result is None for result in results):
        return False
    for result in results:
        if not isinstance(result, Mapping):
            raise TypeError(f"a function for map must give a mapping, or never anything; it gave {result!r:.80}")
    return True
