"""Keys and values merged from files, each with its origin."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from assay.config.option import YAMLMapping, YAMLValue
from assay.config.source import Source
from assay.dialect import OURS, Dialect, join
from assay.errors import Place
from assay.redaction import seal


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of a mapping: `prefix` keys down in a file, or the name of a flag or argument."""

    source: Source | str
    prefix: tuple[str | int, ...] = ()
    written: str = ""
    """The key of a value as the file has it, where that is misspelled."""

    def place(self, path: Sequence[str | int] = (), *, key: bool = False) -> Place:
        path = (self.written, *path[1:]) if self.written else path
        if isinstance(self.source, Source):
            return self.source.place((*self.prefix, *path), key=key)
        return Place(".".join(map(str, (self.source, *self.prefix, *path))))

    def word_place(self, path: Sequence[str | int], word: str) -> Place:
        """Locate a word inside the text at `path`."""
        if isinstance(self.source, Source):
            return self.source.word_place((*self.prefix, *path), word)
        return self.place(path)

    def within(self, *path: str | int) -> "Origin":
        return Origin(self.source, (*self.prefix, *((self.written, *path[1:]) if self.written else path)))

    @property
    def folder(self) -> str | None:
        """The folder of the file, which paths in it are relative to."""
        return self.source.file.rpartition("/")[0] if isinstance(self.source, Source) else None

    @property
    def dialect(self) -> Dialect:
        """The rules that its file is read by."""
        return self.source.dialect if isinstance(self.source, Source) else OURS


class Fields(Mapping[str, object]):
    """Keys and values with the origin of each. Immutable: merging makes a new one.

    >>> low, high = Fields.of({"a": 1, "b": 1}, Origin("low")), Fields.of({"b": 2}, Origin("high"))
    >>> merged = low | high
    >>> dict(merged), str(merged.place("b"))
    ({'a': 1, 'b': 2}, 'high.b')
    """

    __slots__ = ("_origins", "_values")

    def __init__(self, values: YAMLMapping, origins: Mapping[str, Origin]) -> None:
        self._values = values
        self._origins = origins

    @classmethod
    def of(cls, values: YAMLMapping, origin: Origin) -> "Fields":
        """The values of a mapping, secret ones as Secrets."""
        texts = (
            values
            if all(isinstance(key, str) for key in values)
            else {str(key): value for key, value in values.items()}
        )
        return cls(seal(texts), dict.fromkeys(texts, origin))

    def __getitem__(self, key: str) -> YAMLValue:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __or__(self, other: "Fields") -> "Fields":
        """Merge; the other's values win."""
        if not other:
            return self
        if not self:
            return other
        return Fields({**self._values, **other._values}, {**self._origins, **other._origins})

    def without(self, *keys: str) -> "Fields":
        if not any(key in self._values for key in keys):
            return self
        return self.only(key for key in self._values if key not in keys)

    def only(self, keys: "Iterator[str] | Sequence[str]") -> "Fields":
        kept = [key for key in keys if key in self._values]
        return Fields({key: self._values[key] for key in kept}, {key: self._origins[key] for key in kept})

    def renamed(self, key: str, meant: str) -> "Fields":
        """The same with a misspelled key as it is meant; places are still those of the file."""
        origin = replace(self._origins[key], written=key)
        return self.without(key) | Fields({meant: self._values[key]}, {meant: origin})

    def origin(self, key: str) -> Origin:
        return self._origins[key]

    @property
    def dialect(self) -> Dialect:
        """The rules that its files are read by: those that hold in any of them."""
        dialect = OURS
        for origin in self._origins.values():
            dialect = join(dialect, origin.dialect)
        return dialect

    def place(self, *path: str | int, key: bool = False) -> Place:
        """Locate the value at `path`; the first step of a path is a key of these fields."""
        first = str(path[0])
        return self._origins[first].place(path, key=key)
