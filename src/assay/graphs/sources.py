"""Where the records of a graph come from, and the values that its samplers take in turn."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.config.source import digest
from assay.errors import ConfigError, Problem
from assay.graphs.reading import GraphFile
from assay.graphs.rows import Transform, column_values, graph_rows
from assay.graphs.spec import SampledColumn, SourceConfig
from assay.graphs.transforms import TRANSFORMS, DataTransform
from assay.samples.data import Split, find_files
from assay.samples.rows import DataError
from assay.tasks.settings import Helpers, Settings
from assay.user_code import place_of, user_code


@dataclass
class GraphSources:
    """Reads the sources of a graph, changed as it says; `names` are those of contents beside that of the records."""

    settings: Settings
    helpers: Helpers
    names: list[str] = field(default_factory=list)

    def records(self, file: GraphFile, folder: str | None) -> tuple[Split, str]:
        """The records, and a name for their content."""
        problems: list[Problem] = []
        transforms = self.transforms(file, folder, problems)
        if problems:
            raise ConfigError(problems)
        limit, start = self.settings.limit, self.settings.start
        wanted = int(limit) + start if limit is not None and limit >= 1 else None
        return graph_rows(
            file.config.data_config,
            transforms,
            folder=folder,
            data_dir=self.settings.data_dir,
            wanted=wanted,
            like_pandas=self.settings.graphs.like_sygra,
        )

    def missing_files(self, file: GraphFile, folder: str | None) -> Iterator[Problem]:
        """Data files that the sources name, and that are not there."""
        written: Any = file.fields.get("data_config", {})
        several = isinstance(written.get("source"), list)
        for number, source in enumerate(file.config.data_config.source or ()):
            if source.type == "disk" and source.file_path:
                try:
                    find_files(os.path.expanduser(source.file_path), folder, self.settings.data_dir)  # noqa: PTH111  # maybe a pattern
                except DataError as error:
                    place = file.place("data_config", "source", *([number] if several else []), "file_path")
                    yield Problem(place, str(error), "put the file there, or correct its name")

    def column(
        self, file: GraphFile, wanted: SampledColumn, at: tuple[str | int, ...], folder: str | None
    ) -> Sequence[Any]:
        """The values that a sampler takes in turn."""
        problems: list[Problem] = []
        changes = self._of_source(file, wanted.source, at, folder, problems)
        if problems:
            raise ConfigError(problems)
        values, name = column_values(
            wanted.source,
            wanted.column,
            changes,
            folder=folder,
            data_dir=self.settings.data_dir,
            like_pandas=self.settings.graphs.like_sygra,
        )
        self.names.append(name)
        return values

    def named(self, records: str) -> str:
        """A name for all that was read."""
        return digest("\n".join([records, *self.names]).encode()) if self.names else records

    def transforms(self, file: GraphFile, folder: str | None, problems: list[Problem]) -> list[list[Transform]]:
        """The changes of every source of the records; what is wrong with them is in `problems`."""
        written: Any = file.fields.get("data_config", {})
        several = isinstance(written.get("source"), list)
        return [
            self._of_source(file, source, ("data_config", "source", *([number] if several else [])), folder, problems)
            for number, source in enumerate(file.config.data_config.source or ())
        ]

    def _of_source(
        self,
        file: GraphFile,
        source: SourceConfig,
        at: tuple[str | int, ...],
        folder: str | None,
        problems: list[Problem],
    ) -> list[Transform]:
        made: list[Transform] = []
        for index, each in enumerate(source.transformations):
            place = file.place(*at, "transformations", index, "transform")
            try:
                named = each.transform if each.transform in TRANSFORMS else None
                kind = named or self.helpers.dotted(each.transform, folder, place)
                if named is None and not (isinstance(kind, type) and hasattr(kind, "transform")):
                    what = f"{each.transform} has no `transform`"
                    raise ConfigError([Problem(place, what, "derive it from DataTransform")])
                change = TRANSFORMS.bind(kind, {}, place)
            except ConfigError as error:
                problems += error.problems
                continue
            if isinstance(change, DataTransform):
                change.like_sygra = self.settings.graphs.like_sygra
                problems += change.problems(each.params, file.place(*at, "transformations", index))
            made.append(_transform(each.transform, change, dict(each.params)))
        return made


def _transform(name: str, made: Any, params: dict[str, Any]) -> Transform:
    guard = user_code(place_of(name, made.transform), DataError)

    def transform(rows: Any) -> Any:
        with guard:
            return made.transform(rows, params)

    return transform
