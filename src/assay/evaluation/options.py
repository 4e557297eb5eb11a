"""The options of a run, checked and completed."""

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Iterator
from glob import glob, has_magic
from pathlib import Path

from assay.config.arguments import is_too_large, parse_arguments
from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.config.folders import runs_folder
from assay.config.option import YAMLMapping, YAMLValue
from assay.config.run import RunConfig
from assay.errors import ConfigError, Place, Problem
from assay.evaluation.model_facts import ModelFacts
from assay.registry import load_plugins
from assay.runs.results import plain
from assay.tasks import TaskManager

DATA_DIR = "ASSAY_DATA_DIR"
PRETRAINED = "pretrained"
WEIGHTS = {"embedded": "path"}
"""The arguments that name the weights, of backends that do not call it `pretrained`."""
STEP = re.compile(r"(?:step|checkpoint|iter|iteration|epoch|global_step|ckpt)[-_=]?(\d+)", re.IGNORECASE)


def in_runs_folder(config: RunConfig) -> RunConfig:
    """Add the folder of runs where none is named: the same command then gets a new folder below it."""
    if config.output_path is not None or config.runs_dir is not None:
        return config
    return dataclasses.replace(config, runs_dir=runs_folder(), keep_finished=True)


def run_config(options: YAMLMapping, file: Fields | None = None) -> RunConfig:
    """Decode and check the options of a run; every wrong option is reported at once, at its place if it is from a file."""
    problems: list[Problem] = []
    named = {key: value for key, value in options.items() if value is not None or key == "bootstrap_iters"}
    if DATA_DIR in os.environ:
        named.setdefault("data_dir", os.environ[DATA_DIR])
    fields = Fields.of(named, Origin("run"))
    if file is not None:
        fields |= file.only([key for key, value in named.items() if key in file and file[key] == value])
    config = decode(RunConfig, fields, problems, known=() if file is None else ("models",))
    if config is None or problems:
        raise ConfigError(problems)
    load_plugins(config.plugins)
    config = dataclasses.replace(config, model_named="model" in named or config.serve is not None)
    if config.serve is not None and "model" not in named:
        config = dataclasses.replace(config, model="openai")
    if not config.tasks:
        raise ConfigError.at("tasks", "no tasks were named", "give --tasks; `assay ls` lists every name")
    config = _with_seeds(config)
    problems = list(_wrong_values(config))
    if problems:
        raise ConfigError(problems)
    chosen = [name for name in ("limit", "sample", "samples") if getattr(config, name) is not None]
    if len(chosen) > 1:
        raise ConfigError.at(chosen[0], f"{' and '.join(chosen)} exclude each other", "give one of them")
    return config


MAX_SEED = 2**32 - 1
"""The largest seed that numpy takes."""


def _wrong_values(config: RunConfig) -> Iterator[Problem]:
    for each in dataclasses.fields(config):
        if is_too_large(getattr(config, each.name)):
            yield Problem(Place(each.name), "is a whole number of more than 64 bits", "give a smaller one")
    if not 0 <= (config.numpy_random_seed or 0) <= MAX_SEED:
        yield Problem(Place("seed"), f"numpy's must be between 0 and {MAX_SEED}, got {config.numpy_random_seed}")
    if config.limit is not None and not math.isfinite(config.limit):
        yield Problem(
            Place("limit"), f"must be a number, got {config.limit}", "give a whole number, or a share below 1"
        )
    if not 0 <= config.max_failed <= 1:
        yield Problem(
            Place("max_failed"), f"must be a share between 0 and 1, got {config.max_failed}", "0.01 means 1 %"
        )
    if config.data_dir is not None and not Path(config.data_dir).is_dir():
        yield Problem(
            Place("data_dir"), f"no folder {config.data_dir}", "correct the path, or fill it with `assay fetch`"
        )


def _with_seeds(config: RunConfig) -> RunConfig:
    """Set the four seeds from the option `seed`: one for all, three, or four."""
    if config.seed is None:
        return config
    seeds = [config.seed] * 4 if isinstance(config.seed, int) else list(config.seed)
    seeds = seeds * 4 if len(seeds) == 1 else [*seeds, 1234] if len(seeds) == 3 else seeds
    if len(seeds) != 4:
        raise ConfigError.at("seed", f"takes 1, 3 or 4 numbers, not {len(seeds)}", "python,numpy,torch,few-shot")
    return dataclasses.replace(
        config,
        seed=None,
        random_seed=seeds[0],
        numpy_random_seed=seeds[1],
        torch_random_seed=seeds[2],
        fewshot_random_seed=seeds[3],
    )


def task_manager(config: RunConfig, **more: YAMLValue) -> TaskManager:
    """The task manager of a run. `more` are facts beside those of the options."""
    arguments = parse_arguments(config.model_args, "model_args")
    facts = {**plain(arguments), **parse_arguments(config.metadata or None, "metadata")}
    return TaskManager(
        None, config.include_path, config.include_defaults, facts, config.compat, {**run_facts(config), **more}
    )


def run_facts(config: RunConfig) -> dict[str, YAMLValue]:
    """The names that conditions of group members can use: `model`, `run`, `metadata`."""
    options = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}
    metadata = parse_arguments(config.metadata or None, "metadata")
    model = ModelFacts({"name": config.model, **parse_arguments(config.model_args, "model_args")}, metadata)
    return {"model": model, "run": options, "metadata": metadata}


def weights_argument(model: str, arguments: YAMLMapping) -> str:
    """The name of the argument that says where a backend's weights are."""
    return PRETRAINED if PRETRAINED in arguments else WEIGHTS.get(model, PRETRAINED)


def checkpoint_runs(config: RunConfig) -> dict[str, RunConfig]:
    """A run by label for each checkpoint that the weights list or match; none where they are one model's."""
    arguments = parse_arguments(config.model_args, "model_args")
    weights = weights_argument(config.model, arguments)
    names = _checkpoint_names(arguments.get(weights), weights)
    if not names:
        return {}
    folders = {} if config.output_path is None else {"output_path": Path(config.output_path)}
    return {
        label: dataclasses.replace(
            config,
            model_args={**arguments, weights: name},
            **{key: str(folder / label) for key, folder in folders.items()},  # type: ignore[arg-type]
        )
        for name, label in zip(names, checkpoint_labels(names), strict=True)
    }


def training_step(name: str) -> int | None:
    """The last training step in a name.

    >>> training_step("runs/step-100"), training_step("out/checkpoint_2500"), training_step("2026-01-02-model")
    (100, 2500, None)
    """
    steps = STEP.findall(name)
    return int(steps[-1]) if steps else None


def _checkpoint_names(written: YAMLValue, argument: str) -> list[str]:
    """The checkpoints of a list in its order; those that match a pattern in natural order."""
    if isinstance(written, str) and re.fullmatch(r"\[.*\]", written.strip()):
        written = [part.strip(" '\"") for part in written.strip()[1:-1].split(",")]
    if isinstance(written, list | tuple):
        return [name for item in written for name in (_checkpoint_names(str(item), argument) or [str(item)])]
    if not isinstance(written, str) or not has_magic(written) or Path(written).expanduser().exists():
        return []
    names = sorted(glob(str(Path(written).expanduser())), key=natural_order)  # noqa: PTH207  # every part of it may be a pattern
    if not names:
        what = f"no checkpoint matches {written!r}"
        raise ConfigError.at(f"model_args.{argument}", what, "check the path; quote it for the shell")
    return names


def natural_order(name: str) -> list[tuple[int, int, str]]:
    """A sort key by which numbers in names count as numbers.

    >>> sorted(["step-10", "step-9", "step-10b"], key=natural_order)
    ['step-9', 'step-10', 'step-10b']
    """
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", name) if part]


def checkpoint_labels(names: Iterable[str]) -> list[str]:
    """A short label for each: as much of the end of its path as distinguishes it from the others.

    >>> checkpoint_labels(["runs/a/step-1", "runs/b/step-1"])
    ['a__step-1', 'b__step-1']
    """
    parts = [[part for part in name.split("/") if part not in ("", ".", "..", "~")] or [name] for name in names]
    for size in range(1, max(map(len, parts)) + 1):
        labels = ["__".join(path[-size:]) for path in parts]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{number}__{'__'.join(path)}" for number, path in enumerate(parts, 1)]
