"""Importers: runs and logs of lm-eval, Inspect and assay, by what a file or folder contains."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.errors import ConfigError
from assay.evaluation.answers import StoredRun
from assay.evaluation.score import Rescored, ScoreOptions, loading_options, score_answers, stored_answers
from assay.exchange.archive import read_json, unpack
from assay.exchange.imported import ImportedRun, ImportedTask, ImportTarget, write_imported_run
from assay.exchange.inspect.importer import from_inspect
from assay.exchange.lm_eval import from_lm_eval
from assay.records import JSONObject
from assay.results import Results
from assay.runs.folder import RunError
from assay.runs.run import Run, holds_run
from assay.runs.samples.reader import SampleFile
from assay.runs.signature import with_signature


def import_runs(
    paths: Sequence[str | Path],
    output: str | Path,
    *,
    groups: Sequence[str | Path] = (),
    force: bool = False,
    facts: JSONObject | None = None,
) -> Results:
    """Import results and logs of other programs, and runs of assay, into one folder; returns its results.

    `groups` are YAML files of groups whose members are the imported tasks.
    """
    packed = [Path(path) for path in paths if str(path).lower().endswith(".zip")]
    if packed:
        if len(paths) > 1 or groups:
            fix = f"first unpack it: `assay import {packed[0]} -o FOLDER`"
            raise ConfigError.at(packed[0], "an archive must be imported alone", fix)
        return unpack(packed[0], Path(output))
    into = ImportTarget(Path(output), [Path(each) for each in groups], force, facts or {})
    with _layout_checked(paths):
        return write_imported_run(read_sources([Path(path) for path in paths]), into)


@contextmanager
def _layout_checked(paths: Sequence[str | Path]) -> Iterator[None]:
    """Report files of another layout: they may contain anything."""
    try:
        yield
    except ConfigError:  # a ValueError, too
        raise
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        what = f"has an unexpected layout: {type(error).__name__}: {error}"
        raise RunError.at(", ".join(map(str, paths)), what, "give the files as they were written") from error


def score(paths: str | Path | Sequence[str | Path], options: ScoreOptions | None = None) -> Rescored:
    """Score the stored answers of a run, or of lm-eval's samples files, again. The old scores are not touched."""
    options = options or ScoreOptions()
    files = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    answers = stored_answers(files, options)
    if answers is not None:
        return score_answers(answers, options)
    missing = [path for path in files if not path.exists()]
    if missing:
        fix = "name the folder of a run, or samples files that lm-eval wrote with --log_samples"
        raise RunError.at(missing[0], "there is no such file", fix)
    with TemporaryDirectory() as folder:
        with _layout_checked(files):
            runs = from_lm_eval(files)
            if sum(len(run.tasks) for run in runs) == len(options.tasks) == 1:  # whatever the file is called
                runs = [replace(runs[0], tasks=[replace(runs[0].tasks[0], name=options.tasks[0])], finished=None)]
            names = {"tasks": [task.name for run in runs for task in run.tasks]}
            given = loading_options(options)
            facts = with_signature(given) if options.tasks else {"options": {**given, **names}}
            write_imported_run(runs, ImportTarget(Path(folder) / "run", facts=facts))
        beside = files[0] if files[0].is_dir() else files[0].parent
        stored = StoredRun.of(Path(folder) / "run", options.include_path)
        return score_answers(stored, replace(options, output_path=options.output_path or str(beside)))


def read_sources(paths: Sequence[Path]) -> list[ImportedRun]:
    """Read runs from files and folders."""
    runs: list[ImportedRun] = []
    theirs: list[Path] = []
    for path in paths:
        if not path.exists():
            raise ConfigError.at(path, "no such file or folder", "name a run, a log, or a folder of them")
        logs = sorted(path.glob("*.eval")) if path.is_dir() else []
        read = [path, *logs] if path.suffix == ".eval" or not path.is_dir() else logs
        special = next((file for file in read if not file.is_file()), None)
        if special is not None:  # a pipe would be waited for
            raise RunError.at(special, "not a regular file", "copy its content to a file")
        if holds_run(path):
            runs.append(from_run(path))
        elif logs:
            runs += map(from_inspect, logs)
        elif path.suffix == ".eval" or (path.suffix == ".json" and isinstance(read_json(path).get("eval"), dict)):
            runs.append(from_inspect(path))
        else:
            theirs += [path] if not path.is_dir() or any(path.glob("samples_*.jsonl")) else _below(path)
    return [*runs, *(from_lm_eval(theirs) if theirs else ())]


def _below(folder: Path) -> list[Path]:
    """The folders of models below a folder that lm-eval was given: of one model only: two must not be mixed."""
    folders = sorted({path.parent for path in folder.glob("*/samples_*.jsonl")})
    if len(folders) != 1:
        what = (
            "there is more than one model below it"
            if folders
            else "there is nothing to import: no run, no .eval, no samples_*.jsonl"
        )
        raise ConfigError.at(
            folder, what, f"name one of: {', '.join(map(str, folders[:5]))}" if folders else "name another"
        )
    return folders


def from_run(folder: Path) -> ImportedRun:
    """Read the tasks and groups of an assay run."""
    run = Run.open(folder).finished().without_labels()
    files = run.sample_files()
    return ImportedRun(
        format="assay",
        tasks=[_task(run, name, file) for name, file in files.items()],
        facts={**run.results.facts, "config": run.results.config},
        files=[file.path for file in files.values()],
        finished=run.results,
    )


def _task(run: Run, name: str, file: SampleFile) -> ImportedTask:
    facts = run.facts(name)
    return ImportedTask(
        name=name,
        samples=file.records,
        repeats=run.repeats(name),
        source=str(facts.get("source") or ""),
        multiple_targets=bool(facts.get("multiple_targets")),
    )
