"""Which file is whose: exports by the name of their format, imports by what lies there."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

from assay.errors import ConfigError, Place, Problem
from assay.exchange.brought import ImportedRun
from assay.exchange.finished import finished_run, read_json
from assay.exchange.from_lm_eval import from_lm_eval
from assay.exchange.imported import ImportTarget, write_imported_run
from assay.exchange.importers import from_run
from assay.exchange.inspect.exporter import export_inspect
from assay.exchange.inspect.importer import from_inspect
from assay.exchange.lm_eval import export_lm_eval
from assay.exchange.to_parquet import export_parquet
from assay.exchange.trackers import export_mlflow, export_wandb
from assay.exchange.unpack import unpack
from assay.registry import Table, must_be_callable, read_signature, refused
from assay.runs.folder import RunError
from assay.runs.run import holds_run

EXPORTERS: Table[Callable[..., Any], Any] = Table(
    "exporter",
    {
        "lm-eval": export_lm_eval,
        "inspect": export_inspect,
        "parquet": export_parquet,
        "mlflow": export_mlflow,
        "wandb": export_wandb,
    },
    group="assay.exporters",
    supplied=("run", "target"),
    adopt=must_be_callable,
)
"""Functions of a run and of the folder it goes to, which return where they wrote. A parameter `name` is `--name`; a target
that is `str | None` is handed over as it was given, if it was."""


def export(run: str | Path, to: str, target: str | Path | None = None, *, name: str | None = None) -> list[str]:
    """Hand a run on in another format; what comes back is where it went. `name` is the experiment or project of a tracker."""
    exporter = EXPORTERS.check(to, {} if name is None else {"name": name}, Place("--to"))
    if target is None and not _goes_anywhere(exporter):
        raise ConfigError([Problem(Place("--output_path"), f"{to} needs a folder to write to", "give one with -o")])
    where = target if target is None else str(target) if _goes_anywhere(exporter) else Path(target)
    made = finished_run(run)
    with (
        refused(Place(f"--to {to}"), f"exporter {to!r} failed", "correct it")
        if to in EXPORTERS.added
        else nullcontext()
    ):
        written = exporter(made, where, **({} if name is None else {"name": name}))
    return [str(each) for each in ([written] if isinstance(written, str | Path) else written or ())]


def _goes_anywhere(exporter: Callable[..., Any]) -> bool:
    """Whether an exporter says that its target may be None."""
    parameters = list(read_signature(exporter).parameters.values())
    return len(parameters) > 1 and type(None) in get_args(parameters[1].annotation)


def import_runs(
    paths: Sequence[str | Path],
    output: str | Path,
    *,
    groups: Sequence[str | Path] = (),
    force: bool = False,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Bring results and logs of others, and runs of our own, into one folder; the result is the content of its results.json.

    `groups` are YAML files of groups whose members are the tasks that were brought in.
    """
    packed = [Path(path) for path in paths if str(path).lower().endswith(".zip")]
    if packed:
        if len(paths) > 1 or groups:
            fix = f"first unpack it: `assay import {packed[0]} -o FOLDER`"
            raise ConfigError([Problem(Place(str(packed[0])), "an archive is unpacked alone", fix)])
        return unpack(packed[0], Path(output))
    into = ImportTarget(Path(output), [Path(each) for each in groups], force, facts or {})
    try:
        return write_imported_run(read_sources([Path(path) for path in paths]), into)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:  # files of others may say anything
        what = f"is not laid out as its program lays it out: {type(error).__name__}: {error}"
        raise RunError(
            [Problem(Place(", ".join(map(str, paths))), what, "give the files as they were written")]
        ) from error


def read_sources(paths: Sequence[Path]) -> list[ImportedRun]:
    """What lies in some files and folders."""
    runs: list[ImportedRun] = []
    theirs: list[Path] = []
    for path in paths:
        if not path.exists():
            raise ConfigError(
                [Problem(Place(str(path)), "there is no such file or folder", "name what is to be imported")]
            )
        logs = sorted(path.glob("*.eval")) if path.is_dir() else []
        if holds_run(path):
            runs.append(from_run(path))
        elif logs:
            runs += map(from_inspect, logs)
        elif path.suffix == ".eval" or (path.suffix == ".json" and isinstance(read_json(path).get("eval"), dict)):
            runs.append(from_inspect(path))
        else:
            theirs += [path] if not path.is_dir() or any(path.glob("samples_*.jsonl")) else _below(path)
    return [*runs, *([from_lm_eval(theirs)] if theirs else [])]


def _below(folder: Path) -> list[Path]:
    """The folders of models below a folder that lm-eval was given: of one model only, lest two be taken for one."""
    found = sorted({path.parent for path in folder.glob("*/samples_*.jsonl")})
    if len(found) != 1:
        what = (
            "several models lie below it"
            if found
            else "there is nothing to import: no run, no .eval, no samples_*.jsonl"
        )
        raise ConfigError(
            [
                Problem(
                    Place(str(folder)),
                    what,
                    f"name one of: {', '.join(map(str, found[:5]))}" if found else "name another",
                )
            ]
        )
    return found
