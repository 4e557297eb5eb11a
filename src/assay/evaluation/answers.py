"""Stored answers in the folder of a run. The manifest of a run that was made elsewhere is
data: no path in it is followed."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from assay.catalog.roots import split_paths
from assay.catalog.selection import graph_file, looks_like_path, split_specs
from assay.config.arguments import parse_arguments
from assay.config.option import YAMLMapping, YAMLValue
from assay.config.run import RunConfig, options_where
from assay.errors import AssayError
from assay.evaluation.options import run_config, task_manager
from assay.graphs.spec import Record
from assay.records import arguments
from assay.registry import is_plugin_file
from assay.results import Results
from assay.runs.folder import RunError
from assay.runs.results import ManifestJSON
from assay.runs.run import Run
from assay.runs.samples.encode import from_json
from assay.runs.samples.reader import ReplayedSample, SampleFile
from assay.runs.signature import SIGNATURE, is_signed_by_user
from assay.tasks import TaskManager
from assay.tasks.rescore import RescoredTask, StoredTask
from assay.tasks.runnable import Runnable

PATHS = frozenset(options_where(lambda each: each.imported == "path"))
CONSENT = frozenset(options_where(lambda each: each.imported == "consent"))
"""Options by which a user allows code to run: one user's consent is not another's."""
UNUSED = frozenset(options_where(lambda each: each.imported == "dropped"))
ARGUMENTS = frozenset(options_where(lambda each: each.imported == "arguments"))
"""Options that may hold anything, paths too."""
LEFT_OUT = "left_out"
"""The key of an imported manifest that lists the paths it named."""


class SafeOptions(NamedTuple):
    """Options of a run that was made elsewhere which lead to no code, and the paths that were taken out."""

    options: dict[str, Any]
    left_out: list[str]


class StoredAnswers(Protocol):
    """Answers to score again: the options they were asked with, their tasks and their earlier results."""

    @property
    def folder(self) -> Path: ...
    @property
    def config(self) -> RunConfig: ...
    @property
    def names(self) -> Sequence[str]:
        """The tasks whose answers are stored."""
        ...

    @property
    def absent(self) -> Sequence[str]:
        """The tasks of the run that have not finished."""
        ...

    @property
    def broken(self) -> Mapping[str, str]:
        """The tasks that could not be run, each with the reason."""
        ...

    @property
    def results(self) -> Results:
        """The earlier results, as far as they are known."""
        ...

    @property
    def left_out(self) -> Sequence[str]:
        """Paths in the manifest of a run that was made elsewhere; they are not used."""
        ...

    @property
    def manager(self) -> TaskManager: ...
    @property
    def created(self) -> float:
        """The time when the run began."""
        ...

    def stored(self, name: str) -> StoredTask: ...
    def record(self, name: str) -> Record | None:
        """A record of the output of a task that is a graph."""
        ...

    def samples(self, task: Runnable) -> Iterator[ReplayedSample]: ...


@dataclass(frozen=True)
class StoredRun:
    """The answers in the folder of a run."""

    run: Run
    include_path: Sequence[str] = ()

    @classmethod
    def of(cls, folder: Path, include_path: Sequence[str] = ()) -> "StoredRun":
        run = Run.open(folder)
        manifest = run.manifest
        if "created" not in manifest or not all(
            isinstance(manifest.get(key), dict) for key in ("options", "tasks", "spec")
        ):
            content = "a scoring of a run, not the run" if "scored" in manifest else "no run"
            fix = "name the folder that --output_path gave to `assay run`"
            raise RunError.at(folder, f"the folder holds {content}", fix)
        if manifest.get("without_gold"):
            what = "the right answers were taken out of this run when it was packed: nothing can be scored"
            raise RunError.at(folder, what, "score the run that it was packed from")
        return cls(run, include_path)

    @property
    def folder(self) -> Path:
        return self.run.path

    @property
    def manifest(self) -> ManifestJSON:
        return self.run.manifest

    @cached_property
    def config(self) -> RunConfig:
        """The options of the run."""
        return replace(named_config(self.options), predict_only=False)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the run, with the folders that are given now. Folders that no longer exist are left out: only class
        tasks need them. Those of a run that was made elsewhere are never used."""
        options = dict(self._safe.options)
        if not Path(options.get("data_dir") or "").is_dir():
            options.pop("data_dir", None)
        folders = [path for path in options.get("include_path") or () if Path(path).is_dir()]
        plugins = [each for each in options.get("plugins") or () if not is_plugin_file(each) or Path(each).is_file()]
        return {**options, "include_path": [*folders, *self.include_path] or None, "plugins": plugins or None}

    @cached_property
    def _safe(self) -> SafeOptions:
        if is_signed_by_user(self.manifest):
            return SafeOptions(self.manifest["options"], [])
        names = [*self.run.members, *self.manifest["tasks"]]
        safe = without_paths(self.manifest["options"], names)
        groups = self.results.groups if self.is_imported else ()  # what is imported names tasks alone
        tasks = [name for name in (*groups, *safe.options["tasks"]) if is_known(name, self.include_path)]
        return safe._replace(options={**safe.options, "tasks": list(dict.fromkeys(tasks))})

    @property
    def left_out(self) -> Sequence[str]:
        return [*self._safe.left_out, *self.manifest.get(LEFT_OUT, ())]

    @cached_property
    def manager(self) -> TaskManager:
        config = replace(self.config, compat=self.manifest.get("task_compat", self.config.compat))
        about = self.manifest.get("conditions", {}).get("model")
        return task_manager(config, **({"model": about} if about else {}))

    @cached_property
    def names(self) -> Sequence[str]:
        return [name for name in self.manifest["tasks"] if self.run.sample_path(name) is not None]

    @property
    def absent(self) -> Sequence[str]:
        return [name for name in self.manifest["tasks"] if name not in self.names]

    @property
    def broken(self) -> Mapping[str, str]:
        return self.run.broken

    @property
    def results(self) -> Results:
        return self.run.written

    @property
    def is_imported(self) -> bool:
        """Whether another program asked: targets and choices are then rendered again from the documents."""
        return "imported" in self.manifest

    def stored(self, name: str) -> StoredTask:
        facts = self.run.facts(name)
        fields = {key: facts[key] for key in StoredTask._fields if key in facts and key not in ("first", "columns")}
        size = fields.get("size", 0)
        stored = StoredTask(**{"size": size, "original": size, **fields})
        has_judges = bool(self.manifest["spec"].get("roles"))
        first = next(self._file(name).rows(), None) if self.is_imported or has_judges else None
        doc = from_json(first.doc) if first is not None else None
        return stored._replace(first=doc) if self.is_imported else stored._replace(columns=tuple(doc or ()))

    @property
    def created(self) -> float:
        return float(self.manifest["created"])

    def record(self, name: str) -> Record | None:
        return self._file(name).first_record()

    def samples(self, task: Runnable) -> Iterator[ReplayedSample]:
        return self.read(self.file(task), task)

    def read(self, file: SampleFile, task: Runnable) -> Iterator[ReplayedSample]:
        """The samples of a file; where another program asked, with targets and choices as the task renders them."""
        for stored in read(file, task):
            if self.is_imported and isinstance(task, RescoredTask) and stored.sample.requests:
                asked = [arguments(request) for request in stored.sample.requests[:: task.facts.repeats]]
                stored = stored._replace(sample=task.asked(stored.sample.doc_id, stored.sample.doc, asked))
            yield stored

    def file(self, task: Runnable) -> SampleFile:
        return self._file(task.task.name)

    def _file(self, name: str) -> SampleFile:
        """A new file object each time: a run may have more tasks than a process may have open files."""
        file = self.run.sample_file(name)
        assert file is not None, "names are those of tasks with samples"
        return file


def read(file: SampleFile, task: Runnable) -> Iterator[ReplayedSample]:
    """The samples of a file in the form that the task scores."""
    return file.outcomes() if task.task.definition is not None else file.samples()


def named_config(options: YAMLMapping) -> RunConfig:
    """The configuration of a run, even if none of its tasks can be loaded by name."""
    tasks = options["tasks"]
    return run_config(options) if tasks else replace(run_config({**options, "tasks": ["-"]}), tasks=())


def without_paths(options: YAMLMapping, names: Iterable[str]) -> SafeOptions:
    """The options of a run without those that may lead to code; its tasks are loaded by name.

    `names` are its tasks and groups, which take the place of a file or folder.
    """
    dropped = PATHS | CONSENT | UNUSED | ARGUMENTS | {"tasks"}
    kept = {key: value for key, value in options.items() if key not in dropped}
    left_out = [
        each for key in sorted(PATHS - {"output_path", "runs_dir", "use_cache"}) for each in _texts(options.get(key))
    ]
    for key in sorted(ARGUMENTS & options.keys()):
        values = _arguments(options[key])
        kept[key] = {name: value for name, value in values.items() if not any(map(_is_path, _texts(value)))}
    specs = _specs(options.get("tasks"))
    texts = [spec for spec in specs if isinstance(spec, str)]
    named = [text for text in texts if _is_name(text)]
    left_out += [text for text in texts if text not in named]
    others = [] if named and len(named) == len(specs) else [name for name in names if _is_name(name)]
    return SafeOptions({**kept, "tasks": list(dict.fromkeys([*named, *others]))}, list(dict.fromkeys(left_out)))


def _is_name(spec: str) -> bool:
    """Whether a spec is the name of a task or group, and not a file."""
    return not looks_like_path(spec.partition("@")[0]) and split_specs([spec]) == [spec]


def is_known(spec: str, include_path: Sequence[str]) -> bool:
    """Whether a name resolves inside these folders or packages. SyGra's names of graphs resolve in the working directory
    first, which the user did not name."""
    folders = split_paths(include_path)
    graph = graph_file(spec.partition("@")[0], folders)
    return graph is None or any(graph.is_relative_to(Path(folder).expanduser().resolve()) for folder in folders)


def imported(manifest: ManifestJSON, names: Iterable[str]) -> ManifestJSON:
    """The manifest of an imported run: its paths are listed, not used."""
    rest = {key: value for key, value in manifest.items() if key != SIGNATURE}
    if not isinstance(manifest.get("options"), Mapping):
        return rest
    safe = without_paths(manifest["options"], names)
    listed = _texts(manifest.get(LEFT_OUT))
    return {**rest, "options": safe.options, LEFT_OUT: list(dict.fromkeys([*listed, *safe.left_out]))}


def _specs(tasks: YAMLValue) -> list[YAMLValue]:
    """The specs of an option `tasks`, one by one; an object that is not text has no name to load it by."""
    items = tasks if isinstance(tasks, list | tuple) else [tasks]
    return [spec for item in items for spec in (split_specs([item]) if isinstance(item, str) else [item])]


def _arguments(written: YAMLValue) -> dict[str, YAMLValue]:
    try:
        return parse_arguments(written, "arguments") if isinstance(written, str | Mapping) else {}
    except AssayError:
        return {}


def _texts(value: YAMLValue) -> list[str]:
    """Every text in a value."""
    if isinstance(value, Mapping):
        return [text for each in value.items() for text in _texts(each)]
    if isinstance(value, list | tuple):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) and value else []


def _is_path(text: str) -> bool:
    """Whether a text is a path: `org/name` is the name of a model, unless such a folder exists."""
    try:
        return text.startswith(("~", "./", "../", os.sep)) or Path(text).is_absolute() or Path(text).exists()
    except (OSError, ValueError):
        return True
