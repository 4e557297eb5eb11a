"""Several checkpoints of a model in one command: which, what each is called, and a run for each."""

import dataclasses
import gc
import re
import sys
from collections.abc import Iterable
from glob import glob, has_magic
from pathlib import Path

from assay.config.arguments import parse_arguments
from assay.config.run import RunConfig
from assay.errors import ConfigError, Place, Problem

KEY = "pretrained"


def checkpoint_runs(config: RunConfig) -> dict[str, RunConfig]:
    """A run for each checkpoint that `pretrained` names with a list or a pattern, by what it is called; none where it
    names one model."""
    arguments = parse_arguments(config.model_args, "model_args")
    several = _named(arguments.get(KEY))
    if not several:
        return {}
    folders = {} if config.output_path is None else {"output_path": Path(config.output_path)}
    return {
        label: dataclasses.replace(
            config,
            model_args={**arguments, KEY: name},
            **{key: str(folder / label) for key, folder in folders.items()},  # type: ignore[arg-type]
        )
        for name, label in zip(several, labels(several), strict=True)
    }


def _named(written: object) -> list[str]:
    """The checkpoints of a list, in its order; those that fit a pattern, in the order of their numbers."""
    if isinstance(written, str) and re.fullmatch(r"\[.*\]", written.strip()):
        written = [part.strip(" '\"") for part in written.strip()[1:-1].split(",")]
    if isinstance(written, list | tuple):
        return [found for each in written for found in (_named(str(each)) or [str(each)])]
    if not isinstance(written, str) or not has_magic(written) or Path(written).expanduser().exists():
        return []
    found = sorted(glob(str(Path(written).expanduser())), key=in_order)  # noqa: PTH207  # every part of it may be a pattern
    if not found:
        what = f"no checkpoint fits {written!r}"
        raise ConfigError([Problem(Place(f"model_args.{KEY}"), what, "check the path; quote it for the shell")])
    return found


def in_order(name: str) -> list[tuple[int, int, str]]:
    """What names are sorted by, so that numbers in them count as numbers.

    >>> sorted(["step-10", "step-9", "step-10b"], key=in_order)
    ['step-9', 'step-10', 'step-10b']
    """
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", name) if part]


def labels(names: Iterable[str]) -> list[str]:
    """A short name for each: as much of the end of its path as tells it from the others.

    >>> labels(["runs/a/step-1", "runs/b/step-1"])
    ['a__step-1', 'b__step-1']
    """
    parts = [[part for part in name.split("/") if part not in ("", ".", "..", "~")] or [name] for name in names]
    for size in range(1, max(map(len, parts)) + 1):
        made = ["__".join(each[-size:]) for each in parts]
        if len(set(made)) == len(made):
            return made
    return [f"{number}__{'__'.join(each)}" for number, each in enumerate(parts, 1)]


def make_room() -> None:
    """Give back the memory of a model that is no longer needed."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.cuda.empty_cache()
