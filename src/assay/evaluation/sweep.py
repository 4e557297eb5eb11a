"""Sweeps: the models of a run file, and the checkpoints that their patterns match, each a run on the same tasks."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from assay.config.arguments import parse_arguments
from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.config.option import YAMLValue, option
from assay.config.run import RunConfig
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.manifest import spec
from assay.evaluation.models import check_model_options, split_model
from assay.evaluation.options import checkpoint_labels, checkpoint_runs, weights_argument
from assay.evaluation.prepare import PreparedRun
from assay.evaluation.replicas import FleetOptions, fleet_options
from assay.models.load import check_arguments
from assay.models.scripted import NoModel
from assay.runs.folder import RunError, as_written
from assay.runs.run import COMPLETE, Run, runs_in
from assay.runs.storage import is_url
from assay.tasks.runnable import UNDER_TEST

KEY = "models"
FOLDER_NAME = re.compile(r"\w[\w.@+= -]*")
WEIGHTS = "weights"
"""The key of a manifest with the folder that the weights were read from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepModel:
    """An entry of `models:`."""

    model: str = option("The model's backend; `assay ls models` lists them.")
    model_args: str | Mapping[str, object] | None = option("Arguments of the backend: k=v,k=v or a mapping.", None)
    name: str | None = option("Its name in the table, and of its folder.", None)


@dataclass(frozen=True)
class _SweepMember:
    """A run of a sweep, with the place of its entry; `label` is empty where its weights are to give it one."""

    label: str
    weights: str
    config: RunConfig
    place: Place


def sweep_runs(config: RunConfig, written: YAMLValue, origin: Origin) -> dict[str, RunConfig]:
    """A run by label for each entry of `models:`, in its order, and for each checkpoint that an entry matches. Everything that
    can be wrong before a model is opened is reported at once."""
    if not isinstance(written, list) or not written:
        fix = "write a list: - hf,pretrained=org/name, or - {model: hf, model_args: {pretrained: org/name}}"
        raise ConfigError.at(origin.place((KEY,)), "must be a list of models", fix)
    problems: list[Problem] = []
    members: list[_SweepMember] = []
    for number, each in enumerate(written):
        place = origin.place((KEY, number))
        try:
            entry = _entry(each, origin.within(KEY, number), place, problems)
            members += _members(config, entry, place) if entry is not None else ()
        except ConfigError as error:
            problems += [replace(problem, place=place) for problem in error.problems]
    members = _labelled(members)
    problems += [] if problems else _twice(members)
    if problems:
        raise ConfigError(problems)
    return {each.label: _in_folder(each.config, config.output_path, each.label) for each in members}


def _entry(written: YAMLValue, origin: Origin, place: Place, problems: list[Problem]) -> SweepModel | None:
    """An entry: a mapping, or a text as roles are written, `hf,pretrained=org/name`."""
    if isinstance(written, str):
        name, arguments = split_model(written, KEY)
        return SweepModel(model=name, model_args=arguments)
    if not isinstance(written, Mapping):
        fix = "write {model: hf, model_args: {pretrained: org/name}}, or hf,pretrained=org/name"
        problems.append(Problem(place, f"must be a model, got {written!r:.60}", fix))
        return None
    entry = decode(SweepModel, Fields.of(written, origin), problems)
    if entry is not None and entry.name is not None and not FOLDER_NAME.fullmatch(entry.name):
        what = f"name {entry.name!r} cannot be that of a folder"
        problems.append(Problem(origin.place(("name",)), what, "use letters, digits, - and _"))
    return entry


def _members(config: RunConfig, entry: SweepModel, place: Place) -> Iterator[_SweepMember]:
    arguments = parse_arguments(entry.model_args, KEY)
    check_arguments(entry.model, fleet_options(entry.model, arguments, FleetOptions.of_run(config))[0])
    own = replace(config, model=entry.model, model_args=arguments, model_named=True)
    check_model_options(own, None)
    matched = checkpoint_runs(own)
    for label, each in matched.items():
        yield _SweepMember(f"{entry.name}__{label}" if entry.name else "", _weights(each), each, place)
    if not matched:
        yield _SweepMember(entry.name or "", _weights(own), own, place)


def _weights(config: RunConfig) -> str:
    """The text that says which model it is."""
    arguments = parse_arguments(config.model_args, KEY)
    keys = (weights_argument(config.model, arguments), "model")
    return next((str(arguments[key]) for key in keys if arguments.get(key)), config.model)


def _labelled(members: list[_SweepMember]) -> list[_SweepMember]:
    """Give a label to each that has none: as much of the end of its path as distinguishes it from the others."""
    unnamed = list(dict.fromkeys(each.weights for each in members if not each.label))
    labels = dict(zip(unnamed, checkpoint_labels(unnamed), strict=True)) if unnamed else {}
    return [replace(each, label=each.label or labels[each.weights]) for each in members]


def _twice(members: list[_SweepMember]) -> Iterator[Problem]:
    """Models that would share a row of the table and a folder."""
    counts = Counter(each.label for each in members)
    seen: set[str] = set()
    for each in members:
        if counts[each.label] > 1 and each.label in seen:
            same = any(other.config == each.config and other is not each for other in members)
            what = f"two models are named {each.label!r}" + (", and they are the same one" if same else "")
            yield Problem(each.place, what, "remove one" if same else "give each another name:")
        seen.add(each.label)


def _in_folder(config: RunConfig, output: str | None, label: str) -> RunConfig:
    return config if output is None else replace(config, output_path=f"{output.rstrip('/') or '/'}/{label}")


def weights_folder(config: RunConfig) -> Path | None:
    """The folder with the weights of a run's model, where it is one of this machine."""
    arguments = parse_arguments(config.model_args, "model_args")
    written = arguments.get(weights_argument(config.model, arguments))
    folder = Path(written).expanduser() if isinstance(written, str) else None
    return folder.resolve() if folder is not None and folder.is_dir() else None


def changed_at(folder: Path) -> float:
    """When anything in a folder last changed: written, renamed, or given another time."""
    newest = folder.stat().st_ctime
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # removed, or a link to nothing
            newest = max(newest, file.stat().st_ctime)
    return newest


def finished_run(prepared: PreparedRun, weights: Path | None) -> Run | None:
    """The complete run of the same tasks, options and weights, where the folder of runs has it: the model need not be opened.
    Weights that changed since are another model's."""
    config = prepared.config
    place = config.output_path or config.runs_dir
    if weights is None or place is None or is_url(place) or config.force or config.stop_when:
        return None
    for folder in [Path(place)] if config.output_path is not None else runs_in(Path(place)):
        run = same_but_model(folder, prepared)
        if run is not None and run.manifest.get(WEIGHTS) == str(weights):
            arguments = as_written(parse_arguments(config.model_args, "model_args"))
            changed = changed_at(weights) if weights.is_dir() else 0.0
            if run.manifest["created"] > changed and run.manifest["model"]["args"] == arguments:
                return run
    return None


def same_but_model(folder: Path, prepared: PreparedRun) -> Run | None:
    """The complete run in a folder, where its tasks and options are these, and its backend, whatever the weights of its model."""
    config = prepared.config
    if config.model_role or any(task.facts.models for task in prepared.tasks):
        return None  # the weights of the others are not known either
    own = as_written(spec(config, {UNDER_TEST: NoModel("")}, prepared.tasks, prepared.helper_files))
    try:
        run = Run.open(folder)
        model = (run.manifest.get("options") or {}).get("model", RunConfig().model)
        if run.status != COMPLETE or model != config.model or run.results.is_empty:
            return None
        return run if {**run.manifest.get("spec", {}), "model": own["model"]} == own else None
    except RunError:  # none, or a damaged one: the run reports what is wrong with it
        return None
