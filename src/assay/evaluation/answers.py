"""Answers that are there already: in the folder of a run, or in files that lm-eval wrote."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import orjson

from assay.config.run import RunConfig
from assay.errors import Place, Problem
from assay.evaluation.foreign import LEFT_OUT, Kept, is_known, without_paths
from assay.evaluation.options import run_config, task_manager
from assay.records import Likelihood, Response, Text, arguments
from assay.registry import is_plugin_file
from assay.runs.folder import RunError
from assay.runs.lm_eval_logs import SampleLog, logged_files, logged_samples, results_beside
from assay.runs.run import Run
from assay.runs.samples.reader import AnsweredSample, SampleFile
from assay.runs.signature import is_signed_by_user
from assay.scoring.results import ROLLING
from assay.tasks import TaskManager
from assay.tasks.rescore import RescoredTask, TaskFacts
from assay.tasks.runnable import Runnable


class Answers(Protocol):
    """What a scoring needs to know of answers: whose they are, how they were asked for, what was made of them before."""

    @property
    def folder(self) -> Path: ...
    @property
    def config(self) -> RunConfig: ...
    @property
    def names(self) -> Sequence[str]:
        """The tasks whose answers are there."""
        ...

    @property
    def absent(self) -> Sequence[str]:
        """The tasks of the run whose answers are not there yet."""
        ...

    @property
    def broken(self) -> Mapping[str, str]:
        """The tasks that could not be run, each with why."""
        ...

    @property
    def results(self) -> Mapping[str, Any]:
        """What was made of them before, as far as it is known."""
        ...

    @property
    def left_out(self) -> Sequence[str]:
        """Paths that a run names which was made elsewhere: they are not used."""
        ...

    @property
    def manager(self) -> TaskManager: ...
    @property
    def created(self) -> float:
        """When they were begun to be asked for."""
        ...

    def facts(self, name: str) -> TaskFacts: ...
    def record(self, name: str) -> Mapping[str, Any] | None:
        """A record of the output of a task that is a graph."""
        ...

    def samples(self, task: Runnable) -> Iterator[AnsweredSample]: ...


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
            known = "a run of another version of assay" if manifest else "no run"
            known = "a scoring of a run, not the run" if "scored" in manifest else known
            fix = "name the folder that --output_path gave to `assay run`"
            raise RunError([Problem(Place(str(folder)), f"the folder holds {known}", fix)])
        if manifest.get("without_gold"):
            what = "the right answers were taken out of this run when it was packed: nothing can be scored"
            raise RunError([Problem(Place(str(folder)), what, "score the run that it was packed from")])
        return cls(run, include_path)

    @property
    def folder(self) -> Path:
        return self.run.path

    @property
    def manifest(self) -> Mapping[str, Any]:
        return self.run.manifest

    @cached_property
    def config(self) -> RunConfig:
        """How the run was asked for."""
        return replace(named_config(self.options), predict_only=False)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the run, with the folders that are given now. Folders that are gone since are left out: they are
        needed for classes alone. Those that somebody else named are never used."""
        options = dict(self._kept.options)
        if not Path(options.get("data_dir") or "").is_dir():
            options.pop("data_dir", None)
        there = [path for path in options.get("include_path") or () if Path(path).is_dir()]
        plugins = [each for each in options.get("plugins") or () if not is_plugin_file(each) or Path(each).is_file()]
        return {**options, "include_path": [*there, *self.include_path] or None, "plugins": plugins or None}

    @cached_property
    def _kept(self) -> Kept:
        if is_signed_by_user(self.manifest):
            return Kept(self.manifest["options"], [])
        names = [*self.run.members, *self.manifest["tasks"]]
        kept = without_paths(self.manifest["options"], names)
        tasks = [name for name in kept.options["tasks"] if is_known(name, self.include_path)]
        return kept._replace(options={**kept.options, "tasks": tasks})

    @property
    def left_out(self) -> Sequence[str]:
        return [*self._kept.left_out, *self.manifest.get(LEFT_OUT, ())]

    @cached_property
    def manager(self) -> TaskManager:
        lenient = replace(self.config, compat="lm-eval") if self.manifest.get("lenient") else self.config
        about = self.manifest.get("conditions", {}).get("model")
        return task_manager(lenient, **({"model": about} if about else {}))

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
    def results(self) -> Mapping[str, Any]:
        return self.run.results

    @property
    def is_imported(self) -> bool:
        """Whether somebody else asked: then right answers and choices are made again from the documents."""
        return "imported" in self.manifest

    def facts(self, name: str) -> TaskFacts:
        written = self.run.facts(name)
        noted = {key: written[key] for key in TaskFacts._fields if key in written and key != "first"}
        size = noted.get("size", 0)
        known = TaskFacts(**{"size": size, "original": size, **noted})
        if not self.is_imported:
            return known
        first = next(self._file(name).rows(), None)
        return known._replace(first=orjson.loads(first.doc) if first is not None else None)

    @property
    def created(self) -> float:
        return float(self.manifest["created"])

    def record(self, name: str) -> Mapping[str, Any] | None:
        return self._file(name).first_record()

    def samples(self, task: Runnable) -> Iterator[AnsweredSample]:
        return self.read(self.file(task), task)

    def read(self, file: SampleFile, task: Runnable) -> Iterator[AnsweredSample]:
        """The samples of a file, with what the task makes of documents where somebody else asked."""
        for stored in read(file, task):
            if self.is_imported and isinstance(task, RescoredTask) and stored.sample.requests:
                asked = [arguments(request) for request in stored.sample.requests[:: task.repeats]]
                stored = stored._replace(sample=task.asked(stored.sample.doc_id, stored.sample.doc, asked))
            yield stored

    def file(self, task: Runnable) -> SampleFile:
        return self._file(task.task.name)

    def _file(self, name: str) -> SampleFile:
        """Opened anew each time: a run may have more tasks than a process may have files."""
        file = self.run.sample_file(name)
        assert file is not None, "names are those of tasks with samples"
        return file


def read(file: SampleFile, task: Runnable) -> Iterator[AnsweredSample]:
    """The samples of a file, as a task of this kind takes them."""
    return file.outcomes() if task.task.graph is not None else file.samples()


@dataclass(frozen=True)
class LoggedRun:
    """The answers in samples files of lm-eval's, which say nothing of how tasks were found: that must be given."""

    files: Mapping[str, SampleLog]
    config: RunConfig
    left_out: Sequence[str] = ()

    @classmethod
    def of(cls, paths: Sequence[Path], options: Mapping[str, object]) -> "LoggedRun":
        missing = [path for path in paths if not path.exists()]
        files = logged_files(paths)
        if missing or not files:
            what = "there is no such file" if missing else "there are no samples_*.jsonl files"
            fix = "name the folder of a run, or samples files that lm-eval wrote with --log_samples"
            raise RunError([Problem(Place(str((missing or paths)[0])), what, fix)])
        wanted = [str(name) for name in options.get("tasks") or ()]  # type: ignore[attr-defined]
        if len(files) == len(wanted) == 1:  # whatever the file is called
            files = {wanted[0]: next(iter(files.values()))}
        kept, given = without_paths({"tasks": list(files)}, ()), options.get("include_path") or ()
        named = wanted or [name for name in kept.options["tasks"] if is_known(name, given)]  # type: ignore[arg-type]
        return cls(files, named_config({**options, "tasks": named}), [] if wanted else kept.left_out)

    @property
    def folder(self) -> Path:
        return next(iter(self.files.values())).path.parent

    @property
    def names(self) -> Sequence[str]:
        return list(self.files)

    @property
    def absent(self) -> Sequence[str]:
        return ()

    @property
    def broken(self) -> Mapping[str, str]:
        return {}

    @property
    def created(self) -> float:
        return next(iter(self.files.values())).path.stat().st_mtime

    def record(self, name: str) -> Mapping[str, Any] | None:
        what = "is a graph, and these are samples files of lm-eval's"
        fix = "name its output_….json or .jsonl, and nothing else"
        raise RunError([Problem(Place(f"task {name!r}"), what, fix)])

    @cached_property
    def manager(self) -> TaskManager:
        return task_manager(self.config)

    @cached_property
    def results(self) -> Mapping[str, Any]:
        """The rows of all files, as if one run had written them."""
        beside = [(name, results_beside(file)) for name, file in self.files.items()]
        merged: dict[str, Any] = {**beside[0][1]}
        for name, found in beside:
            groups = {key: row for key, row in found.get("results", {}).items() if key in found.get("groups", {})}
            own = found.get("results", {}).get(name)
            merged["results"] = {**merged.get("results", {}), **({name: own} if own else {}), **groups}
            merged["n-shot"] = {**merged.get("n-shot", {}), **found.get("n-shot", {})}
        return merged

    def facts(self, name: str) -> TaskFacts:
        first, count = None, 0
        for count, logged in enumerate(logged_samples(self.files[name].path), 1):  # noqa: B007  # the last one counts
            first = first or logged
        if first is None:
            raise RunError([Problem(Place(str(self.files[name].path)), "the file is empty", "name another")])
        counts = self.results.get("n-samples", {}).get(name, {})
        repeats = max(len(first.responses[0]), 1) if first.responses else 1
        shots = self.results.get("n-shot", {}).get(name)
        return TaskFacts(count, counts.get("original", count), repeats, shots, first=first.doc)

    def samples(self, task: Runnable) -> Iterator[AnsweredSample]:
        if not isinstance(task, RescoredTask):
            place, fix = Place(f"task {task.task.name!r}"), "run it again with `assay run`"
            raise RunError([Problem(place, "is a Python class, which cannot be scored from lm-eval's files", fix)])
        for logged in logged_samples(self.files[task.task.name].path):
            sample = task.asked(logged.doc_id, logged.doc, logged.arguments)
            responses = [response for several in logged.responses for response in several]
            if task.config.output_type == ROLLING:
                responses = [_rolled(response) for response in responses]
            yield AnsweredSample(sample, responses, logged.scores)


def named_config(options: Mapping[str, Any]) -> RunConfig:
    """The configuration of a run of which perhaps no task can be asked for by its name."""
    tasks = options["tasks"]
    return run_config(options) if tasks else replace(run_config({**options, "tasks": ["-"]}), tasks=())


def _rolled(response: Response) -> Response:
    return Likelihood(float(response.text)) if isinstance(response, Text) else response
