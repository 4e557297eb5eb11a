"""Checkpoints for tests: the bundled model with a little or a lot of noise in its weights, and runs of the command on them."""

import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

import run_world
from assay.models.local.embedded import BUNDLED

TASK = "first_steps_facts"
NOISE = 1.0
"""So much noise, in standard deviations of a matrix, that the bundled model answers by chance."""


def checkpoint(folder: Path, noise: float = 0.0, seed: int = 0) -> Path:
    """A folder with the bundled model whose weights have noise in them."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in BUNDLED.iterdir():
        if file.suffix == ".json":
            shutil.copy(file, folder)
    weights = load_file(BUNDLED / "model.safetensors")
    random = np.random.default_rng(seed)
    for name, values in weights.items():
        if noise and values.ndim == 2:
            wide = values.astype(np.float32)
            weights[name] = (wide + noise * wide.std() * random.standard_normal(wide.shape)).astype(values.dtype)
    save_file(weights, folder / "model.safetensors")
    return folder


def value(folder: Path, row: str = "acc,none", task: str = TASK) -> float:
    return float(run_world.results(folder)["results"][task][row])
