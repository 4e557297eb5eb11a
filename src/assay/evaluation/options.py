"""The options of a run, checked and completed."""

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from assay.config.arguments import parse_arguments
from assay.config.decode import decode
from assay.config.fields import Fields, Origin
from assay.config.run import RunConfig
from assay.errors import ConfigError, Place, Problem
from assay.registry import load_plugins
from assay.runs.redaction import redacted
from assay.tasks import TaskManager

DATA_DIR = "ASSAY_DATA_DIR"


def run_config(options: Mapping[str, object]) -> RunConfig:
    """The configuration of a run, checked: every wrong option at once."""
    problems: list[Problem] = []
    given = {key: value for key, value in options.items() if value is not None or key == "bootstrap_iters"}
    if DATA_DIR in os.environ:
        given.setdefault("data_dir", os.environ[DATA_DIR])
    config = decode(RunConfig, Fields.of(given, Origin("run")), problems)
    if config is None or problems:
        raise ConfigError(problems)
    load_plugins(config.plugins)
    config = dataclasses.replace(config, model_named="model" in given)
    if not config.tasks:
        raise ConfigError([Problem(Place("tasks"), "no tasks were named", "give --tasks; `assay ls` lists every name")])
    problems = list(_wrong_values(config))
    if problems:
        raise ConfigError(problems)
    chosen = [name for name in ("limit", "sample", "samples") if getattr(config, name) is not None]
    if len(chosen) > 1:
        raise ConfigError([Problem(Place(chosen[0]), f"{' and '.join(chosen)} exclude each other", "give one of them")])
    return _with_seeds(config)


def _wrong_values(config: RunConfig) -> Iterator[Problem]:
    if config.limit is not None and not math.isfinite(config.limit):
        yield Problem(Place("limit"), f"{config.limit} is no number", "give a whole number, or a share below 1")
    if not 0 <= config.max_failed <= 1:
        yield Problem(Place("max_failed"), f"{config.max_failed} is no share", "give a number from 0 to 1")
    if config.data_dir is not None and not Path(config.data_dir).is_dir():
        yield Problem(
            Place("data_dir"), f"there is no folder {config.data_dir}", "correct it, or `assay fetch` fills one"
        )


def _with_seeds(config: RunConfig) -> RunConfig:
    """The four seeds, where they are given as one option: one for all, three, or four."""
    if config.seed is None:
        return config
    seeds = [config.seed] * 4 if isinstance(config.seed, int) else list(config.seed)
    seeds = seeds * 4 if len(seeds) == 1 else [*seeds, 1234] if len(seeds) == 3 else seeds
    if len(seeds) != 4:
        raise ConfigError(
            [Problem(Place("seed"), f"takes 1, 3 or 4 numbers, not {len(seeds)}", "python,numpy,torch,few-shot")]
        )
    return dataclasses.replace(
        config,
        seed=None,
        random_seed=seeds[0],
        numpy_random_seed=seeds[1],
        torch_random_seed=seeds[2],
        fewshot_random_seed=seeds[3],
    )


def task_manager(config: RunConfig, **more: object) -> TaskManager:
    """The manager that knows the tasks of a run. `more` are facts beside those of the options."""
    arguments = parse_arguments(config.model_args, "model_args")
    facts = {**redacted(arguments), **parse_arguments(config.metadata or None, "metadata")}
    return TaskManager(
        None, config.include_path, config.include_defaults, facts, config.compat, {**run_facts(config), **more}
    )


def run_facts(config: RunConfig) -> dict[str, object]:
    """What conditions of members may speak of: `model`, `run`, `metadata`."""
    given = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}
    model = {"name": config.model, **parse_arguments(config.model_args, "model_args")}
    return {"model": model, "run": given, "metadata": parse_arguments(config.metadata or None, "metadata")}
