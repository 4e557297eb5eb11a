"""A file merged with its includes: one set of keys, each with the file it comes from."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from assay.config.fields import Fields, Origin
from assay.config.source import Source, read_bytes
from assay.dialect import Dialect
from assay.errors import Place, Problem, nearest
from assay.records import Params

MAX_INCLUDES = 250
"""Maximum length of a chain of includes."""

NO_FIELDS = Fields({}, {})


@dataclass(frozen=True, slots=True)
class MergedFile:
    """The keys of a file and its includes; `files` are those that were read, by path, with their digests."""

    fields: Fields
    files: Mapping[str, str]
    problems: tuple[Problem, ...]


class IncludeReader:
    """Reads files and their includes. Included files are cached: a template serves many tasks."""

    def __init__(self) -> None:
        self._kept: dict[str, Source] = {}

    def merged(self, path: str, dialect: Dialect) -> MergedFile:
        """Merge a file with its includes; problems are collected in `problems`, and the rest is still merged."""
        reading = _IncludeWalk(self, dialect)
        fields = reading.file(path, (), None)
        return MergedFile(fields, reading.files, tuple(dict.fromkeys(reading.problems)))

    def within(self, fields: Fields) -> MergedFile:
        """Merge a mapping written inside a file with the files that its `include` names."""
        reading = _IncludeWalk(self, fields.origin("include").dialect)
        merged = reading.mapping(fields, ())
        return MergedFile(merged, reading.files, tuple(dict.fromkeys(reading.problems)))

    def source(self, path: str, *, keep: bool, dialect: Dialect) -> Source:
        kept = self._kept.get(path)
        if kept is not None:
            return kept
        source = Source(path, read_bytes(path), dialect=dialect)
        if keep:
            self._kept[path] = source
        return source


class _IncludeWalk:
    """One walk through a file and its includes."""

    def __init__(self, reader: IncludeReader, dialect: Dialect) -> None:
        self.reader = reader
        self.dialect = dialect
        self.files: dict[str, str] = {}
        self.problems: list[Problem] = []

    def file(self, path: str, chain: tuple[str, ...], asked: Callable[[], Place] | None) -> Fields:
        source = self._source(path, chain, asked)
        if source is None:
            return NO_FIELDS
        self.files[path] = source.digest
        self.problems += source.problems
        if not isinstance(source.value, Mapping):
            if not source.problems:
                what = "is empty" if source.value is None else "is not a mapping of keys to values"
                self.problems.append(Problem(source.place(), f"the file {what}", "write `task: name` and what follows"))
            return NO_FIELDS
        values = {str(key): value for key, value in source.value.items()}
        return self.mapping(Fields.of(values, Origin(source)), (*chain, path))

    def mapping(self, fields: Fields, chain: tuple[str, ...]) -> Fields:
        """The fields over those of their includes; later includes win over earlier ones."""
        if "include" not in fields:
            return fields
        merged = NO_FIELDS
        for written, place in self._includes(fields):
            if isinstance(written, Mapping):
                below = Fields.of(written, fields.origin("include").within("include"))
            else:
                folder = fields.origin("include").folder or "."
                below = self.file(os.path.normpath(os.path.join(folder, written)), chain, place)  # noqa: PTH118  # hot
            merged = merged | below.without("task_list")
        return merged | fields.without("include")

    def _includes(self, fields: Fields) -> Iterator[tuple[str | Params, Callable[[], Place]]]:
        include = fields["include"]
        includes = include if isinstance(include, list | tuple) else [include]
        for number, written in enumerate(includes):
            place = partial(fields.place, "include", *([number] if includes is include else []))
            if isinstance(written, str | Mapping):
                yield written, place
            else:
                self.problems.append(Problem(place(), "include must name a file", "write a path relative to this file"))

    def _source(self, path: str, chain: tuple[str, ...], asked: Callable[[], Place] | None) -> Source | None:
        try:
            if path not in chain and len(chain) < MAX_INCLUDES:
                if not os.path.isfile(path):  # noqa: PTH113  # hot; a pipe would be waited for without end
                    raise _not_a_file(path)
                return self.reader.source(path, keep=asked is not None, dialect=self.dialect)
        except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
            self.files[path.replace("\0", "?")] = ""
            place = asked() if asked is not None else Place(path)
            self.problems.append(_unreadable_problem(path, place, error, included=asked is not None))
            return None
        what, fix = f"more than {MAX_INCLUDES} files include each other in a chain", "flatten the chain"
        if path in chain:
            loop = " → ".join(map(os.path.basename, (*chain[chain.index(path) :], path)))
            what, fix = f"files include each other in a circle: {loop}", "take one include out"
        self.problems.append(Problem(asked() if asked is not None else Place(path), what, fix))
        return None


def _not_a_file(path: str) -> OSError:
    if os.path.exists(path):  # noqa: PTH110  # a text
        return IsADirectoryError(0, "it is a folder, pipe or device", path)
    return FileNotFoundError(0, "it is a link to a missing file" if os.path.islink(path) else "no such file", path)  # noqa: PTH114


def _unreadable_problem(path: str, place: Place, error: OSError | ValueError, *, included: bool) -> Problem:
    if isinstance(error, ValueError):
        return Problem(place, f"the path {path!r} is invalid: {error}", "give a path relative to this file")
    fix = "check its permissions" if isinstance(error, PermissionError) else "put a file in its place, or remove it"
    if not included:
        return Problem(place, f"the file cannot be read: {error.strerror or error}", fix)
    if not isinstance(error, FileNotFoundError):
        return Problem(place, f"the included file {path} cannot be read: {error.strerror or error}", fix)
    if "\\" in path:
        return Problem(place, f"no file {path} to include", "write `/` between the parts of a path")
    folder, _, name = path.rpartition("/")
    try:
        own = os.path.basename(place.file)  # noqa: PTH119  # a file that includes itself is not meant
        near = nearest(name, [each for each in os.listdir(folder) if each != own], count=1)  # noqa: PTH208
    except OSError:
        near = []
    return Problem(
        place,
        f"no file {path} to include",
        f"did you mean {near[0]!r}?" if near else "give a path relative to this file",
    )
